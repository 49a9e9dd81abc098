"""The states of share partitions in a cluster: asked through any node, wherever their coordinator moves. And
the first group of all, as nobody else uses groups in this cluster."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaProducer

from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.cluster.inside import SECONDS, Inside
from compat_tests.quorum import Controllers
from odradek.coordinator.shares.state.persister import DeliveryState, InitialState, Refusal, SharePartitionKey
from odradek.server.cluster import new_topics
from odradek.server.coordination.share_persister import SharePersister
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.read_share_group_state import PartitionResult as ShareState
from odradek.wire.messages.write_share_group_state import PartitionData as StateWrite
from odradek.wire.messages.write_share_group_state import StateBatch
from tests.raw_client import RawClient

NODES = (61, 62)
SHARE_STATE_TOPIC = "__share_group_state"
PARTITIONS = 4
DONE = Refusal(ErrorCode.NONE)
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
}


@pytest.fixture(scope="module")
def controllers() -> Iterator[Controllers]:
    """Of these two nodes alone: all states are with them."""
    with Controllers(host=shared_host()) as started:
        assert isinstance(started, Controllers)
        yield started


@pytest.fixture(scope="module")
def nodes(controllers: Controllers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Inside]]:
    """Two nodes of ours; the second one leads what the first one does not."""
    started = []
    for node_id in NODES:
        folder: pathlib.Path = tmp_path_factory.mktemp(f"node-{node_id}")
        started.append(Inside(controllers, node_id, folder, properties=SETTINGS))
    try:
        for node in started:
            node.start()
        yield started
    finally:
        for node in started:
            node.stop()


def asked(node: Inside, ask: Callable[[SharePersister, Callable[[Any], None]], None]) -> Any:
    """What the persister of a node calls back with."""
    told = threading.Event()
    results: list[Any] = []

    def then(result: Any) -> None:
        results.append(result)
        told.set()

    node.begin(lambda: ask(node.server.coordinators.persister, then))
    assert told.wait(SECONDS)
    return results[0]


def create_topic(node: Inside, name: str) -> bytes:
    topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
    with RawClient(node.port) as client:
        answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
    assert answer.topics[0].error_code == 0, answer
    return bytes(answer.topics[0].topic_id)


def keys_of(topic_id: bytes, *groups: str) -> list[SharePartitionKey]:
    return [SharePartitionKey(group, topic_id, index) for group in groups for index in range(PARTITIONS)]


def write(key: SharePartitionKey, start_offset: int) -> StateWrite:
    batch = StateBatch(
        first_offset=start_offset,
        last_offset=start_offset + 9,
        delivery_state=DeliveryState.AVAILABLE,
        delivery_count=1,
    )
    return StateWrite(
        partition=key.partition,
        state_epoch=0,
        leader_epoch=0,
        start_offset=start_offset,
        state_batches=[batch],
    )


def keep(node: Inside, key: SharePartitionKey, start_offset: int) -> Any:
    change = write(key, start_offset)
    return asked(node, lambda persister, then: persister.write(key, change, then))


def offsets_of(state: ShareState | StateWrite) -> list[tuple[int, int]]:
    """First and last offsets of the batches."""
    return [(one.first_offset, one.last_offset) for one in state.state_batches]


def leaders(node: Inside) -> set[int]:
    topic = node.server.cluster_view.topics[SHARE_STATE_TOPIC]
    return {partition.leader for partition in topic.partitions}


def in_sync(node: Inside) -> set[int]:
    """How many replicas of each partition are."""
    topic = node.server.cluster_view.topics[SHARE_STATE_TOPIC]
    return {len(partition.isr) for partition in topic.partitions}


def test_the_first_group_of_a_cluster_finds_its_coordinator_in_the_first_answer(
    nodes: list[Inside], monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long a busy machine takes for the topic of the coordinators.
    monkeypatch.setattr(new_topics, "NEW_TOPIC_WAIT_S", float(SECONDS))
    with RawClient(nodes[0].port) as client:
        answer = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["first"]), 4)
    assert [one.error_code for one in answer.coordinators] == [ErrorCode.NONE]


def test_each_node_asks_the_coordinators_of_both(nodes: list[Inside]) -> None:
    first, second = nodes
    keys = keys_of(create_topic(first, "of-both"), "g", "h")
    states = [InitialState(key, 0, 0) for key in keys]
    assert asked(first, lambda persister, then: persister.initialize(states, then)) == dict.fromkeys(
        keys, DONE
    )
    assert leaders(first) == set(NODES), "one node has all coordinators"
    for number, key in enumerate(keys):
        node = nodes[number % 2]
        change = write(key, number + 1)
        assert (
            asked(node, lambda persister, then, key=key, change=change: persister.write(key, change, then))
            == DONE
        )
    for node in nodes:
        found = asked(node, lambda persister, then: persister.summaries(dict.fromkeys(keys, -1), then))
        assert [found[key].start_offset for key in keys] == list(range(1, len(keys) + 1))
    for number, key in enumerate(keys):
        state = asked(second, lambda persister, then, key=key: persister.read(key, 2, then))
        assert offsets_of(state) == offsets_of(write(key, number + 1))
        fenced = asked(first, lambda persister, then, key=key: persister.read(key, 1, then))
        assert fenced.error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert asked(second, lambda persister, then: persister.delete(keys[:3], then)) == dict.fromkeys(
        keys[:3], DONE
    )
    found = asked(first, lambda persister, then: persister.summaries(dict.fromkeys(keys, -1), then))
    assert [found[key].start_offset for key in keys[:4]] == [-1, -1, -1, 4]


def test_the_lag_is_known_wherever_a_partition_is_led(nodes: list[Inside]) -> None:
    first, _ = nodes
    keys = keys_of(create_topic(first, "lagging"), "g")
    states = [InitialState(key, 0, 1) for key in keys]
    assert asked(first, lambda persister, then: persister.initialize(states, then)) == dict.fromkeys(
        keys, DONE
    )
    topic = first.server.cluster_view.topics["lagging"]
    assert {one.leader for one in topic.partitions} == set(NODES)
    with KafkaProducer(bootstrap_servers=first.bootstrap_servers, acks="all") as producer:
        for index in range(PARTITIONS):
            for _ in range(index + 1):
                producer.send("lagging", b"one", partition=index)
    named = DescribeShareGroupOffsetsRequestTopic(topic_name="lagging", partitions=list(range(PARTITIONS)))
    group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[named])
    for node in nodes:
        with RawClient(node.port) as client:
            (told,) = client.ask(DescribeShareGroupOffsetsRequest(groups=[group]), 1).groups
        assert [(one.error_code, one.start_offset, one.lag) for one in told.topics[0].partitions] == [
            (0, 1, index) for index in range(PARTITIONS)
        ]


def test_no_answered_write_is_lost_when_the_coordinator_moves(nodes: list[Inside]) -> None:
    """The second node stops and comes back, while the first one has changes kept."""
    first, second = nodes
    keys = keys_of(create_topic(first, "moving"), "g")
    states = [InitialState(key, 0, 0) for key in keys]
    assert asked(first, lambda persister, then: persister.initialize(states, then)) == dict.fromkeys(
        keys, DONE
    )
    wait_until(lambda: in_sync(first) == {2}, "both nodes have all states")

    def write_all(start_offset: int) -> None:
        for key in keys:
            change = write(key, start_offset)
            assert (
                asked(
                    first, lambda persister, then, key=key, change=change: persister.write(key, change, then)
                )
                == DONE
            )

    write_all(1)
    second.stop()
    try:
        write_all(2)
        assert leaders(first) == {first.node_id}
    finally:
        second.start()
    wait_until(lambda: in_sync(first) == {2}, "the second node has all states again")
    write_all(3)
    first.stop()
    try:
        wait_until(lambda: leaders(second) == {second.node_id}, "the second node leads")
        for key in keys:
            state = asked(second, lambda persister, then, key=key: persister.read(key, 5, then))
            assert (state.error_code, state.start_offset) == (ErrorCode.NONE, 3)
            assert offsets_of(state) == offsets_of(write(key, 3))
    finally:
        first.start()
