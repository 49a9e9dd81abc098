"""Quotas of a cluster: set through any node, described and kept by all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.clients import wait_until
from compat_tests.cluster.bad_days import TIMESTAMP
from compat_tests.cluster.test_replication import create
from compat_tests.differential.harness import CLIENT_ID, Side
from compat_tests.quorum import KafkaMember, OdradekMember
from odradek.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, build_batch

Sides = tuple[Side, Side]
VALUE_BYTES = 20_000


@pytest.fixture
def sides(odradek: OdradekMember, kafka: KafkaMember) -> Iterator[Sides]:
    """Ours first; without quotas afterwards."""
    ours, theirs = Side("odradek", odradek.bootstrap_servers), Side("kafka", kafka.bootstrap_servers)
    yield ours, theirs
    for name in ("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"):
        set_quota(theirs, name, None)
    wait_until(lambda: described(ours) == {} == described(theirs), "the quotas are gone")
    ours.close()
    theirs.close()


def set_quota(side: Side, name: str, value: float | None) -> None:
    """Of the client id of all sides; None removes it."""
    op = OpData(key=name, value=value or 0.0, remove=value is None)
    entry = EntryData(entity=[EntityData(entity_type="client-id", entity_name=CLIENT_ID)], ops=[op])
    answer = side.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1, "admin")
    assert [one.error_code for one in answer.entries] == [0]


def described(side: Side) -> dict[str, float]:
    answer = side.ask(DescribeClientQuotasRequest(components=[], strict=False), 1, "admin")
    return {value.key: value.value for one in answer.entries for value in one.values}


def produced(topic: str) -> ProduceRequest:
    batch = build_batch([Record(0, TIMESTAMP, None, b"v" * VALUE_BYTES)])
    partition = PartitionProduceData(index=0, records=batch)
    data = TopicProduceData(name=topic, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])


def test_a_node_of_ours_keeps_the_quotas_of_its_cluster(sides: Sides, odradek: OdradekMember) -> None:
    ours, theirs = sides
    create(odradek.bootstrap_servers, "metered", [odradek.node_id])
    assert ours.ask(produced("metered"), 9).throttle_time_ms == 0
    set_quota(theirs, "producer_byte_rate", 100.0)
    set_quota(ours, "consumer_byte_rate", 100.0)
    expected = {"producer_byte_rate": 100, "consumer_byte_rate": 100}
    wait_until(lambda: described(ours) == expected == described(theirs), "both nodes have both quotas")
    answer = ours.ask(produced("metered"), 9, "producer")
    assert answer.responses[0].partition_responses[0].error_code == 0
    # 20,000 bytes over ten seconds are 2,000 a second.
    assert 180_000 < answer.throttle_time_ms < 200_000
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="metered", partitions=[partition])],
    )
    answer = ours.ask(request, 12, "consumer")
    assert answer.throttle_time_ms > 100_000
    assert answer.responses == []
    for name in ("producer", "consumer"):
        ours.hang_up(name)


def test_the_wait_that_a_controller_asks_for_is_passed_on_and_kept(sides: Sides) -> None:
    ours, theirs = sides
    set_quota(ours, "controller_mutation_rate", 1.0)
    wait_until(lambda: "controller_mutation_rate" in described(ours), "our node knows of it")

    def refused(side: Side) -> bool:
        topic = CreatableTopic(name="planned", num_partitions=50, replication_factor=1)
        answer = side.ask(CreateTopicsRequest(topics=[topic], validate_only=True), 7, "creator")
        side.hang_up("creator")
        assert answer.topics[0].error_code in (0, 89)
        return answer.topics[0].error_code == 89 and answer.throttle_time_ms > 0

    wait_until(lambda: refused(ours), "the controller refuses what our node forwards")
    assert refused(theirs)
