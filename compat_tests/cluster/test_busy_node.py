"""A node whose event loop is busy for longer than its session stays in the cluster."""

from __future__ import annotations

import asyncio
import pathlib
import threading
import time

from compat_tests.cluster.test_membership import brokers_named_by
from compat_tests.quorum import INTERNAL_TOPICS, Controllers, KafkaMember, broker_properties
from compat_tests.reference import free_port
from odradek.config.broker_config import load
from odradek.server.broker import BrokerServer

BUSY_SECONDS = 12
"""`broker.session.timeout.ms` is 9 s."""
NODE_ID = 31


def test_heartbeats_go_on_while_the_event_loop_is_busy(
    controllers: Controllers, kafka: KafkaMember, tmp_path: pathlib.Path
) -> None:
    config = tmp_path / "server.properties"
    data = tmp_path / "data"
    config.write_text(broker_properties(controllers, NODE_ID, free_port(), data, INTERNAL_TOPICS))
    loop = asyncio.new_event_loop()
    server = BrokerServer(load(config, cluster_id=controllers.cluster_id))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
    done = threading.Event()

    def be_busy() -> None:
        until = time.monotonic() + BUSY_SECONDS
        while time.monotonic() < until:
            pass
        done.set()

    loop.call_soon_threadsafe(be_busy)
    seen = set()
    while not done.wait(0.5):
        seen.add(NODE_ID in brokers_named_by(kafka.bootstrap_servers))
    assert seen == {True}
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()
