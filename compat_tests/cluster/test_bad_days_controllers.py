"""The controllers are gone for a while: the node serves on, what needs them waits, and then all goes on."""

from __future__ import annotations

import os
import signal
import time

from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.cluster.bad_days import (
    QUICK,
    SHORT_SESSION,
    leader_of,
    lines_with,
    produce,
    produce_all,
    values_at,
    wait_for_equal_logs,
    wait_for_isr,
    wait_for_line,
    waits,
)
from compat_tests.cluster.test_replication import create, isr_of
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, OdradekMember
from odradek.wire.errors import ErrorCode

FIRST, SECOND = 1, 2
ABSENCE_SECONDS = 20
"""Sessions of brokers have 3 s here, those of the group 6 s. No machine has a deadline: see
`tests/coordinator/test_long_absence.py` for an hour."""


def commit(bootstrap: str, topic: str) -> int:
    """A member joins a group, reads to the end, commits, and leaves. Returns how many records it has read."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        consumer_timeout_ms=int(DEADLINE_SECONDS * 1000),
    )
    count = 1
    next(consumer)
    (assigned,) = consumer.assignment()
    end = consumer.end_offsets([assigned])[assigned]
    while consumer.position(assigned) < end:
        next(consumer)
        count += 1
    consumer.commit()
    consumer.close()
    return count


def test_nodes_serve_on_without_controllers_and_changes_of_the_isr_wait_for_them() -> None:
    topic = "served"
    with Controllers(SHORT_SESSION) as controllers:
        assert isinstance(controllers, Controllers)
        with (
            OdradekMember(controllers, FIRST, QUICK) as first,
            OdradekMember(controllers, SECOND, QUICK) as second,
        ):
            create(first.bootstrap_servers, topic, [FIRST, SECOND])
            wait_for_isr(first.bootstrap_servers, topic, FIRST, SECOND)
            side = Side("first", first.bootstrap_servers)
            produce_all(side, topic, b"before")
            assert commit(first.bootstrap_servers, topic) == 1

            gone_since = time.monotonic()
            controllers.kill()
            number = 0
            while time.monotonic() - gone_since < ABSENCE_SECONDS:
                for acks in (1, -1):
                    assert produce(side, topic, b"%d" % number, acks=acks) is ErrorCode.NONE
                    number += 1
                    time.sleep(0.05)
            assert commit(first.bootstrap_servers, topic) == number
            for node in (first, second):
                assert lines_with(node, "waiting for the controllers at")
                assert node.process.poll() is None

            # A follower stops, and nobody can take it out of the ISR: acks=all has to wait for it.
            os.kill(second.pid, signal.SIGSTOP)
            assert produce(side, topic, b"alone", acks=1) is ErrorCode.NONE
            assert produce(side, topic, b"waits") is ErrorCode.REQUEST_TIMED_OUT
            assert isr_of(first.bootstrap_servers, topic) == {FIRST, SECOND}
            controllers.start()
            wait_for_isr(first.bootstrap_servers, topic, FIRST)
            assert produce(side, topic, b"goes on") is ErrorCode.NONE
            os.kill(second.pid, signal.SIGCONT)
            wait_for_isr(first.bootstrap_servers, topic, FIRST, SECOND)
            produce_all(side, topic, b"after")
            wait_for_equal_logs(topic, first.data_dir, second.data_dir)
            expected = [b"before", *(b"%d" % one for one in range(number)), b"alone", b"waits", b"goes on"]
            assert values_at(side, topic) == [*expected, b"after"]
            wait_for_line(first, "the controllers answer again")
            # It was heard of in time, and led all the while.
            assert not lines_with(first, "this node is fenced")
            assert leader_of(second.bootstrap_servers, topic) == FIRST
            create(second.bootstrap_servers, "new", [SECOND, FIRST])
            waits(lambda: leader_of(first.bootstrap_servers, "new") == SECOND, "topics are made again")
            side.close()
