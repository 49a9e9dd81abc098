"""AlterPartitionReassignments and ListPartitionReassignments: a partition can be asked for where it is."""

from dataclasses import replace

import pytest

from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest


def alter(*wanted, **more):
    """`wanted`: (topic, partition, replicas)."""
    topics = [
        ReassignableTopic(
            name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)]
        )
        for name, index, replicas in wanted
    ]
    return AlterPartitionReassignmentsRequest(topics=topics, **more)


def told(node, replicas, *, index=0, name="t", version=1, **more):
    """(code, message) for one partition."""
    (topic,) = node.ask(alter((name, index, replicas), **more), version).responses
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index) == (name, index)
    return ErrorCode(partition.error_code).name, partition.error_message


@pytest.mark.parametrize("version", range(2))
def test_a_partition_that_is_there_already_is_reassigned_without_a_move(node, version):
    node.create("t")
    before = node.machine.view
    assert told(node, [1], version=version) == ("NONE", None)
    assert node.machine.view is before
    assert node.ask(ListPartitionReassignmentsRequest()).topics == []


@pytest.mark.parametrize(
    ("replicas", "reason"),
    [
        ([], "a partition has no replica"),
        ([99], "broker 99 is not registered or takes no replicas"),
        ([-1], "broker -1 is not registered or takes no replicas"),
        ([1, 1], "a broker is named twice in [1, 1]"),
        ([99, 1, 1], "broker 99 is not registered or takes no replicas"),
    ],
)
def test_other_replicas_are_refused_as_those_of_a_new_topic(node, replicas, reason):
    node.create("t")
    expected = "INVALID_REPLICA_ASSIGNMENT", f"Bad assignment of replicas: {reason}."
    assert told(node, replicas) == expected
    assert told(node, replicas, allow_replication_factor_change=False) == expected


def test_what_is_not_there_is_unknown_whatever_is_asked_of_it(node):
    node.create("t")
    for replicas in ([1], [], [99], None):
        assert told(node, replicas, name="u") == (
            "UNKNOWN_TOPIC_OR_PARTITION",
            "There is no topic 'u'.",
        )
        for index in (1, -1):
            assert told(node, replicas, index=index) == (
                "UNKNOWN_TOPIC_OR_PARTITION",
                f"Topic 't' has no partition {index}.",
            )


def test_there_is_nothing_to_call_off(node):
    node.create("t")
    assert told(node, None) == ("NO_REASSIGNMENT_IN_PROGRESS", None)


def test_every_partition_has_its_own_answer(node):
    node.create("t", 2)
    answer = node.ask(
        alter(("t", 1, [1]), ("t", 0, None), ("t", 1, [99]), allow_replication_factor_change=False)
    )
    assert [topic.partitions[0].error_code for topic in answer.responses] == [
        ErrorCode.NONE,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ]
    assert answer.allow_replication_factor_change is False
    assert (answer.error_code, answer.error_message) == (0, None)


def test_a_request_for_nothing_is_answered_with_nothing_filled_in(node):
    answer = node.ask(alter(allow_replication_factor_change=False))
    assert (answer.allow_replication_factor_change, answer.error_message, answer.responses) == (True, "", [])


def test_replicas_on_another_broker_that_is_known_are_not_built_yet(node):
    node.create("t")
    brokers = {**node.machine.view.brokers, 2: replace(node.machine.view.brokers[1], node_id=2)}
    node.machine.publisher.view = replace(node.machine.view, brokers=brokers)
    for replicas in ([2], [1, 2]):
        code, message = told(node, replicas)
        assert code == "INVALID_REPLICA_ASSIGNMENT"
        assert message.endswith("moving them to other brokers is not built yet.")
    assert told(node, [1, 2], allow_replication_factor_change=False) == (
        "INVALID_REPLICATION_FACTOR",
        "The partition has 1 replica(s); 2 would change that.",
    )
