"""A node whose event loop is busy for longer than its session stays in the cluster."""

from __future__ import annotations

import pathlib
import threading
import time

from compat_tests.cluster.inside import Inside
from compat_tests.cluster.sharing import SharedControllers
from compat_tests.cluster.test_membership import brokers_named_by
from compat_tests.quorum import KafkaMember

BUSY_SECONDS = 5
"""A session has 3 s (`sharing.py`)."""
NODE_ID = 31


def test_heartbeats_go_on_while_the_event_loop_is_busy(
    controllers: SharedControllers, kafka: KafkaMember, tmp_path: pathlib.Path
) -> None:
    with Inside(controllers, NODE_ID, tmp_path) as node:
        done = threading.Event()

        def be_busy() -> None:
            until = time.monotonic() + BUSY_SECONDS
            while time.monotonic() < until:
                pass
            done.set()

        node.begin(be_busy)
        seen = set()
        while not done.wait(0.1):
            seen.add(NODE_ID in brokers_named_by(kafka.bootstrap_servers))
        assert seen == {True}
