"""The leading controller is killed, and the node goes on with the next one."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.sharing import OFTEN_HEARD, SESSION_MS, SHORT_SESSION
from compat_tests.cluster.test_membership import brokers_named_by
from compat_tests.differential.harness import Side
from compat_tests.quorum import ControllerQuorum, OdradekMember
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)

FAIL_OVER_SECONDS = 60
"""Kafka's controllers elect another one within 2 to 4 s; the bound is for a busy machine."""


@pytest.fixture(scope="module")
def quorum() -> Iterator[ControllerQuorum]:
    with ControllerQuorum(3, SHORT_SESSION, of_members=OFTEN_HEARD) as started:
        yield started


def is_created(node: OdradekMember, name: str) -> bool:
    """Whether the controllers have created the topic, now or before."""
    side = Side("odradek", node.bootstrap_servers)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[node.node_id])
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    try:
        answer = side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
    finally:
        side.close()
    return not isinstance(answer, str) and answer.topics[0].error_code in (0, 36)


def test_a_node_goes_on_with_the_next_leader_of_the_controllers(quorum: ControllerQuorum) -> None:
    with OdradekMember(quorum, 1) as node:
        assert is_created(node, "before")
        leader = quorum.leader()
        leader.kill()
        killed = time.monotonic()
        wait_until(lambda: is_created(node, "after"), "another one leads", seconds=FAIL_OVER_SECONDS)
        seconds = time.monotonic() - killed
        print(f"a topic was created {seconds:.1f} s after the controller was killed")
        assert quorum.leader() is not leader
        # Longer than a session: heartbeats go to the new leader.
        over = SESSION_MS / 1000 + 1
        wait_until(lambda: time.monotonic() - killed > over, "a session is over", seconds=30)
        with OdradekMember(quorum, 2) as second:
            assert brokers_named_by(second.bootstrap_servers) == {1, 2}
            wait_until(
                lambda: brokers_named_by(node.bootstrap_servers) == {1, 2},
                "the node follows the log",
                seconds=DEADLINE_SECONDS,
            )
        leader.start()
        assert "fenced by the controllers" not in node.log
