"""The wall clock of a node jumps: nothing of replication and of a node's life in the cluster goes by it."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from compat_tests.broker_host import shared_host
from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.cluster.bad_days import (
    lines_with,
    produce,
    produce_all,
    wait_for_equal_logs,
    wait_for_isr,
)
from compat_tests.cluster.inside import Inside
from compat_tests.cluster.sharing import QUICK, with_short_sessions
from compat_tests.cluster.test_replication import create
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, OdradekMember
from odradek.server.network.timers import wall_clock_ms
from odradek.wire.errors import ErrorCode

JUMPING, FOLLOWING = 1, 2
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def controllers() -> Iterator[Controllers]:
    with with_short_sessions(host=shared_host()) as started:
        assert isinstance(started, Controllers)
        yield started


class Clock:
    """The wall clock of a machine that somebody sets."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return wall_clock_ms() + self.ahead_ms


def test_a_clock_that_jumps_moves_no_leader_and_no_isr(
    controllers: Controllers, tmp_path: pathlib.Path
) -> None:
    """The clock of a node that leads one partition and follows in another one, an hour ahead and an hour
    back. The member of a group lives through it, too."""
    from kafka import KafkaConsumer

    topic = "jumps"
    clock = Clock()
    inside = Inside(controllers, JUMPING, tmp_path, properties=QUICK, now_ms=clock)
    with inside as leader, OdradekMember(controllers, FOLLOWING, QUICK) as follower:
        asked = follower.bootstrap_servers
        create(asked, topic, [JUMPING, FOLLOWING], min_insync_replicas="2")
        create(asked, f"{topic}-followed", [FOLLOWING, JUMPING], min_insync_replicas="2")
        for name in (topic, f"{topic}-followed"):
            wait_for_isr(asked, name, JUMPING, FOLLOWING)
        sides = {
            topic: Side("leader", leader.bootstrap_servers),
            f"{topic}-followed": Side("follower", asked),
        }
        for name, side in sides.items():
            produce_all(side, name, b"0")
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=leader.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            consumer_timeout_ms=int(DEADLINE_SECONDS * 1000),
        )
        assert next(consumer).value == b"0"
        views = leader.server.cluster_view
        epochs = {name: views.partition(name, 0) for name in sides}
        told = len(follower.log)
        for number, ahead_ms in enumerate((HOUR_MS, 0, -HOUR_MS, 0), 1):
            clock.ahead_ms = ahead_ms
            for _ in range(10):
                for name, side in sides.items():
                    assert produce(side, name, b"%d" % number) is ErrorCode.NONE
                assert next(consumer).value == b"%d" % number
        # Neither has begun anew, or changed at all.
        views = leader.server.cluster_view
        assert {name: views.partition(name, 0) for name in sides} == epochs
        assert "asking for the ISR" not in follower.log[told:]
        assert not lines_with(follower, "this node is fenced")
        for name in sides:
            wait_for_equal_logs(name, leader.directories[0], follower.data_dir)
        consumer.close()
        for side in sides.values():
            side.close()
