"""Coordinators on a broker of Kafka and on nodes of ours: one reads what the other has written, and in the
same trouble both answer the same."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import pytest

from compat_tests.clients import wait_until
from compat_tests.cluster.nodes import COMMIT_TIMEOUT_MS, KAFKA_ID, REPLICAS, Cluster
from compat_tests.cluster.test_coordinators import commit_of
from compat_tests.differential.harness import Side
from compat_tests.groups.members import CONSUMER, Kind, group_of
from compat_tests.kit import readers
from compat_tests.kit.topics import create_topics
from compat_tests.stories import topic_name
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

OURS, OTHER = 1, 2
SESSION_MS = 20_000
REFUSED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.fixture
def cluster(mixed: Cluster) -> Cluster:
    return mixed


@pytest.mark.parametrize(
    "kind",
    [
        Kind("confluent-kafka", "range"),
        Kind("kafka-python", "range"),
        Kind("confluent-kafka", "uniform", CONSUMER),
    ],
    ids=str,
)
def test_a_group_goes_on_while_its_partition_moves_from_a_broker_of_kafka_to_a_node_of_ours_and_back(
    cluster: Cluster, kind: Kind, tmp_path: pathlib.Path
) -> None:
    cluster.wait_until_healthy()
    with group_of(cluster, tmp_path, kind, session_ms=SESSION_MS, replicas=REPLICAS) as group:
        where = cluster.offsets_partition(group.name)
        readers.committed_offset(cluster.bootstrap, group.name, (group.topic, 0))
        cluster.move(where, [KAFKA_ID])
        for _ in range(2):
            group.join()
        group.wait_until_shared()
        for replicas in ([OURS], [KAFKA_ID], [OURS, OTHER], [KAFKA_ID, OURS, OTHER]):
            cluster.move(where, replicas)
            assert cluster.leader(where) in replicas
            group.wait_until_shared()
        group.finish()


def name_led_by(cluster: Cluster, node_id: int, kind: str) -> str:
    """A group, or a transactional id, that this node coordinates from now on."""
    name = topic_name(kind)
    where = cluster.offsets_partition(name) if kind == "group" else cluster.transactions_partition(name)
    wait_until(lambda: exists(cluster, name, kind), f"{where[0]} is there")
    cluster.move_leader(where, node_id)
    return name


def exists(cluster: Cluster, name: str, kind: str) -> bool:
    request = FindCoordinatorRequest(coordinator_keys=[name], key_type=0 if kind == "group" else 1)
    with readers.asking(cluster.nodes[OURS].bootstrap_servers) as side:
        return bool(side.ask(request, 4).coordinators[0].error_code == 0)


@pytest.mark.parametrize("coordinator", [KAFKA_ID, OURS], ids=["kafka", "odradek"])
def test_a_coordinator_without_its_followers_refuses_after_a_time_and_keeps_what_it_was_told(
    cluster: Cluster, coordinator: int
) -> None:
    cluster.wait_until_healthy()
    (read,) = create_topics(cluster.bootstrap, {topic_name("read"): 1}, REPLICAS)
    group, producer = (name_led_by(cluster, coordinator, kind) for kind in ("group", "transactional"))
    side = Side("coordinator", cluster.nodes[coordinator].bootstrap_servers)
    wait_until(lambda: committed(side, group, read, 1) is ErrorCode.NONE, "the coordinator is there")
    wait_until(lambda: initialised(side, producer) is ErrorCode.NONE, "both are")
    others = [node for node_id, node in cluster.nodes.items() if node_id != coordinator]
    for node in others:
        node.kill()

    # While they are in the ISR still, and when they are no more: it is on the disk here, and waits for them.
    for offset in (2, 3):
        began = time.monotonic()
        assert committed(side, group, read, offset) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert time.monotonic() - began > COMMIT_TIMEOUT_MS / 1000 * 0.9
        wait_until(lambda: is_alone(cluster, group), "the others have left the ISR", seconds=60)
    assert initialised(side, producer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    # Kafka tells what was committed before (docs/differences.md).
    told = fetched(side, group, read)
    assert told == ((ErrorCode.NONE, 1) if coordinator == KAFKA_ID else REFUSED)

    for node in others:
        node.start()
    cluster.wait_until_healthy()
    assert readers.committed_offset(cluster.bootstrap, group, read) == 3
    wait_until(lambda: initialised(side, producer) is ErrorCode.NONE, "it goes on", seconds=60)
    side.close()


def committed(side: Side, group: str, where: tuple[str, int], offset: int) -> ErrorCode:
    answer: Any = side.ask(commit_of(group, where, offset), 8, seconds=30)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def fetched(side: Side, group: str, where: tuple[str, int]) -> tuple[ErrorCode, int]:
    """The offset that the group has there, if it is told."""
    topic = OffsetFetchRequestTopics(name=where[0], partition_indexes=[where[1]])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])])
    found = side.ask(request, 8, seconds=30).groups[0]
    if found.error_code:
        return ErrorCode(found.error_code), -1
    (one,) = found.topics[0].partitions
    return ErrorCode(one.error_code), int(one.committed_offset)


def initialised(side: Side, transactional_id: str) -> ErrorCode:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return ErrorCode(side.ask(request, 4, seconds=30).error_code)


def is_alone(cluster: Cluster, group: str) -> bool:
    return len(cluster.partition(cluster.offsets_partition(group)).isr_nodes) == 1
