"""Reassignments of partitions: what one node can be asked for, and how each thing is refused."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import itertools

import pytest

from compat_tests.differential.harness import Pair
from compat_tests.differential.topics import new_topic
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

HERE, NOWHERE = 1, 99


def alter(
    *wanted: tuple[str, int, list[int] | None], may_change_factor: bool = True
) -> AlterPartitionReassignmentsRequest:
    """`wanted`: (topic, partition, replicas); neighbours of one topic go into one item."""
    return AlterPartitionReassignmentsRequest(
        timeout_ms=30_000,
        allow_replication_factor_change=may_change_factor,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=replicas)
                    for _, index, replicas in group
                ],
            )
            for name, group in itertools.groupby(wanted, key=lambda one: one[0])
        ],
    )


@pytest.mark.parametrize("may_change_factor", [True, False])
def test_reassignments_are_taken_and_refused_alike(pair: Pair, may_change_factor: bool) -> None:
    topic, other = new_topic(pair, "reassigned", 3), new_topic(pair, "reassigned")
    for version in pair.versions(AlterPartitionReassignmentsRequest):
        if version == 0 and not may_change_factor:
            continue
        cases: dict[str, list[tuple[str, int, list[int] | None]]] = {
            "where it is": [(topic, 0, [HERE])],
            "cancelled": [(topic, 0, None)],
            "no replicas": [(topic, 0, [])],
            "unknown broker": [(topic, 0, [NOWHERE])],
            "negative broker": [(topic, 0, [-1])],
            "twice the broker": [(topic, 0, [HERE, HERE])],
            "and an unknown broker": [(topic, 0, [HERE, NOWHERE])],
            "an unknown broker first": [(topic, 0, [NOWHERE, HERE])],
            "twice an unknown broker": [(topic, 0, [NOWHERE, NOWHERE])],
            "twice a broker and an unknown one": [(topic, 0, [NOWHERE, HERE, HERE])],
            "two unknown brokers": [(topic, 0, [NOWHERE, -5])],
            "unknown topic": [("not-there", 0, [HERE])],
            "unknown topic cancelled": [("not-there", 0, None)],
            "no name": [("", 0, [HERE])],
            "bad name": [("bad/name", 0, [])],
            "unknown partition": [(topic, 7, [HERE])],
            "unknown partition cancelled": [(topic, 7, None)],
            "unknown partition, no replicas": [(topic, 7, [])],
            "negative partition": [(topic, -1, [HERE])],
            "many": [(topic, 2, [HERE]), (topic, 0, None), (other, 0, [HERE]), ("not-there", 3, [])],
            "twice the partition": [(topic, 0, [HERE]), (topic, 0, [NOWHERE])],
            "twice the topic": [(topic, 0, [HERE]), (other, 0, None), (topic, 0, [])],
            "nothing": [],
        }
        for note, wanted in cases.items():
            request = alter(*wanted, may_change_factor=may_change_factor)
            pair.ask(lambda _: request, version, note)
        empty = AlterPartitionReassignmentsRequest(
            timeout_ms=30_000,
            allow_replication_factor_change=may_change_factor,
            topics=[ReassignableTopic(name=topic, partitions=[])],
        )
        pair.ask(lambda _: empty, version, "no partitions")


def test_no_reassignment_is_ever_under_way(pair: Pair) -> None:
    topic = new_topic(pair, "listed", 2)
    for version in pair.versions(ListPartitionReassignmentsRequest):
        for note, wanted in {
            "all": None,
            "none": [],
            "one": [(topic, [0, 1])],
            "unknown partition": [(topic, [7, -1])],
            "no partitions": [(topic, [])],
            "unknown topic": [("not-there", [0])],
            "twice": [(topic, [0]), (topic, [0])],
        }.items():
            topics = wanted and [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in wanted
            ]
            request = ListPartitionReassignmentsRequest(timeout_ms=30_000, topics=topics)
            pair.ask(lambda _: request, version, note)
