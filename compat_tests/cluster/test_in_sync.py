"""The ISR of a partition that a node of ours leads: a follower that stops leaves it, and comes back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from compat_tests.clients import wait_until
from compat_tests.cluster.test_replication import create, isr_of
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, OdradekMember
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, build_batch

LEADER, FOLLOWER = 41, 42
LAG = {"replica.lag.time.max.ms": "2000"}
POLL_SECONDS = 0.5
"""replica.fetch.wait.max.ms"""


@pytest.fixture
def leader(controllers: Controllers) -> Iterator[OdradekMember]:
    with OdradekMember(controllers, LEADER, LAG) as started:
        yield started


@pytest.fixture
def follower(controllers: Controllers) -> Iterator[OdradekMember]:
    with OdradekMember(controllers, FOLLOWER, LAG) as started:
        yield started


def produce(side: Side, topic: str, acks: int, timeout_ms: int = 30_000) -> ErrorCode:
    data = PartitionProduceData(index=0, records=build_batch([Record(0, 1_700_000_000_000, None, b"v")]))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return ErrorCode(side.ask(request, 9).responses[0].partition_responses[0].error_code)


def test_a_follower_that_stops_leaves_the_isr_and_comes_back(
    leader: OdradekMember, follower: OdradekMember
) -> None:
    topic, both = "watched", {LEADER, FOLLOWER}
    create(leader.bootstrap_servers, topic, [LEADER, FOLLOWER], min_insync_replicas="2")
    side = Side("leader", leader.bootstrap_servers)
    wait_until(lambda: isr_of(leader.bootstrap_servers, topic) == both, "both in sync", seconds=30)
    assert produce(side, topic, -1) is ErrorCode.NONE

    os.kill(follower.pid, signal.SIGSTOP)
    # It is in the ISR still: nobody may say that it has the record.
    assert produce(side, topic, -1, timeout_ms=200) is ErrorCode.REQUEST_TIMED_OUT
    wait_until(lambda: isr_of(leader.bootstrap_servers, topic) == {LEADER}, "it has left", seconds=30)
    assert produce(side, topic, -1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(side, topic, 1) is ErrorCode.NONE

    os.kill(follower.pid, signal.SIGCONT)
    wait_until(lambda: isr_of(leader.bootstrap_servers, topic) == both, "it is back", seconds=60)
    assert produce(side, topic, -1) is ErrorCode.NONE
    side.close()


def test_a_record_does_not_wait_for_the_partitions_beside_it(
    leader: OdradekMember, follower: OdradekMember
) -> None:
    """A follower's fetch is one long poll for all that it follows of a leader. It tells of an append at once,
    and not only when the poll is over."""
    topics, both = ("busy", "idle"), {LEADER, FOLLOWER}
    for topic in topics:
        create(leader.bootstrap_servers, topic, [LEADER, FOLLOWER], min_insync_replicas="2")
        wait_until(lambda topic=topic: isr_of(leader.bootstrap_servers, topic) == both, "in sync", seconds=30)  # type: ignore[misc]
    side = Side("leader", leader.bootstrap_servers)
    answers = [produce(side, "busy", -1)]
    begin = time.monotonic()
    answers += [produce(side, "busy", -1) for _ in range(20)]
    seconds = time.monotonic() - begin
    assert set(answers) == {ErrorCode.NONE}
    assert seconds < 20 * POLL_SECONDS / 2, f"{seconds:.1f} s for 20 records"
    side.close()
