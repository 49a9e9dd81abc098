"""The controllers are gone for a while: nodes serve on, what needs them waits, and then all goes on."""

from __future__ import annotations

import errno
import logging
import os
import pathlib
import signal
import time
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer

from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.cluster.bad_days import (
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
from compat_tests.cluster.failing_disk import FailingDisk, Failure
from compat_tests.cluster.inside import Inside
from compat_tests.cluster.sharing import QUICK, with_short_sessions
from compat_tests.cluster.test_bad_days_failing import lines_with as logged
from compat_tests.cluster.test_log_directories import home_of, ids_of, move, recorded
from compat_tests.cluster.test_membership import create_on
from compat_tests.cluster.test_replication import create, isr_of
from compat_tests.cluster.test_topics_on_demand import errors_of
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, OdradekMember
from odradek.wire.errors import ErrorCode

FIRST, SECOND, MOVING, FAILING = 1, 2, 3, 4
ABSENCE_SECONDS = 8
"""Sessions of brokers have 3 s here, those of the group 6 s. No machine has a deadline: see
`tests/coordinator/test_long_absence.py` for an hour."""


def commit(bootstrap: str, topic: str) -> int:
    """A member joins a group, reads to the end, commits, and leaves. Returns how many records it has read."""
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


@pytest.fixture(scope="module")
def controllers() -> Iterator[Controllers]:
    """To be killed and started again."""
    with with_short_sessions(host=None) as started:
        assert isinstance(started, Controllers)
        yield started


@pytest.fixture(scope="module")
def first(controllers: Controllers) -> Iterator[OdradekMember]:
    with OdradekMember(controllers, FIRST, QUICK) as started:
        yield started


def test_nodes_serve_on_without_controllers_and_changes_of_the_isr_wait_for_them(
    controllers: Controllers, first: OdradekMember
) -> None:
    topic = "served"
    with OdradekMember(controllers, SECOND, QUICK) as second:
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
        for _ in range(2):
            # At once, and not when a request to the controllers is over.
            before = time.monotonic()
            assert errors_of(side, "later") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert time.monotonic() - before < 5
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
        waits(lambda: errors_of(side, "later") == [ErrorCode.NONE], "a topic that is asked for is made again")
        side.close()


def test_a_move_while_no_controller_answers_is_told_when_they_are_back(
    controllers: Controllers, tmp_path: pathlib.Path
) -> None:
    with Inside(controllers, MOVING, tmp_path, directories=2) as node:
        side = Side("odradek", node.bootstrap_servers)
        create_on(side, "moved", MOVING)
        before = home_of(node, "moved")
        (other,) = [str(one) for one in node.directories if str(one) != before]
        waits(lambda: recorded(node, "moved") == ids_of(node)[before], "the record names the first one")
        controllers.kill()
        move(side, "moved", other)
        waits(lambda: pathlib.Path(other, "moved-0").is_dir(), "it has moved")
        side.close()
        controllers.start()
        waits(lambda: recorded(node, "moved") == ids_of(node)[other], "the record names the other one")


def test_a_node_ends_whose_failed_directory_no_controller_learns_of_in_time(
    controllers: Controllers, disk: FailingDisk, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its partitions would stay without a leader (`log.dir.failure.timeout.ms`)."""
    caplog.set_level(logging.INFO, logger="odradek")
    properties = {**QUICK, "log.dir.failure.timeout.ms": "2000"}
    with Inside(controllers, FAILING, tmp_path, directories=2, properties=properties) as node:
        side = Side("node", node.bootstrap_servers)
        create(node.bootstrap_servers, "lost", [FAILING])
        produce_all(side, "lost", b"0")
        controllers.kill()
        disk.failures.append(Failure(home_of(node, "lost"), errno.EIO, "open", "write", "sync"))
        assert produce(side, "lost", b"1") is ErrorCode.KAFKA_STORAGE_ERROR
        line = ("stopping: a failed log directory", "log.dir.failure.timeout.ms")
        waits(lambda: bool(logged(caplog, *line)), "it says why it ends")
        side.close()
        disk.failures.clear()
    assert len(logged(caplog, *line)) == 1
    controllers.start()
