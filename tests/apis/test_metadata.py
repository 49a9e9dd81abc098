"""Metadata, DescribeCluster and DescribeTopicPartitions: what clients learn of the cluster."""

from dataclasses import replace

import pytest

from odradek.apis import operations, topic_creation
from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.coordinator.cluster.view import (
    Broker,
    Endpoint,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from odradek.wire.schema import ZERO_UUID

ANY_VERSION = range(14)


def named(*names, **fields):
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


def by_id(*ids, **fields):
    topics = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    return MetadataRequest(topics=topics, **fields)


def codes(response):
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", ANY_VERSION)
def test_a_topic_is_described_in_every_version(node, version):
    created = node.create("t", 2)
    response = node.ask(named("t"), version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "broker.example", 19092)
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert topic.topic_id == (created.topic_id if version >= 10 else ZERO_UUID)
    assert [(one.partition_index, one.leader_id, one.error_code) for one in topic.partitions] == [
        (0, 1, 0),
        (1, 1, 0),
    ]
    assert topic.partitions[0].replica_nodes == topic.partitions[0].isr_nodes == [1]
    assert topic.partitions[0].leader_epoch == (0 if version >= 7 else -1)
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == ("test-cluster" if version >= 2 else None)


@pytest.mark.parametrize("version", ANY_VERSION)
def test_all_topics_are_null_from_version_1_on_and_an_empty_list_before(node, version):
    node.create("a")
    node.create("b")
    everything = MetadataRequest(topics=[] if version == 0 else None)
    assert sorted(codes(node.ask(everything, version))) == ["a", "b"]
    if version >= 1:
        assert node.ask(MetadataRequest(topics=[]), version).topics == []


def test_unknown_and_illegal_names_say_so(node):
    response = node.ask(named("u", "no good", "", "x" * 250, allow_auto_topic_creation=False), 12)
    assert codes(response) == {
        "u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no good": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "x" * 250: ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert "u" not in node.machine.view.topics


def test_a_topic_that_is_asked_for_twice_is_told_once(node):
    node.create("t")
    assert len(node.ask(named("t", "t"), 12).topics) == 1


def test_the_internal_topic_says_that_it_is(node):
    node.create("__consumer_offsets")
    assert node.ask(named("__consumer_offsets"), 12).topics[0].is_internal


# Creating


@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_an_asked_for_topic_exists_when_the_answer_leaves(node, version):
    response = node.ask(named("fresh", allow_auto_topic_creation=True), version)
    assert codes(response) == {"fresh": ErrorCode.NONE}
    assert node.partition("fresh") is not None


def test_very_many_missing_topics_are_created_bit_by_bit(node, monkeypatch):
    """The broker serves nobody while it makes directories; illegal names do not take the others' places."""
    monkeypatch.setattr(topic_creation, "CREATED_AT_ONCE_MAX", 2)
    names = ["no good", "a", "b", "c", "d", "e"]
    refused = {"no good": ErrorCode.INVALID_TOPIC_EXCEPTION}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def ask():
        return codes(node.ask(named(*names, allow_auto_topic_creation=True), 12))

    assert ask() == refused | {"a": 0, "b": 0, "c": unknown, "d": unknown, "e": unknown}
    assert ask() == refused | {"a": 0, "b": 0, "c": 0, "d": 0, "e": unknown}
    assert ask() == refused | dict.fromkeys("abcde", 0)


def test_a_client_can_decline_the_creation_from_version_4_on(node):
    assert codes(node.ask(named("fresh", allow_auto_topic_creation=False), 4)) == {"fresh": 3}


def test_the_broker_can_decline_the_creation(make_node):
    node = make_node(auto_creates_topics=False)
    assert codes(node.ask(named("fresh"), 12)) == {"fresh": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_asking_for_all_topics_or_an_illegal_name_creates_nothing(node):
    node.ask(MetadataRequest(topics=None), 12)
    assert codes(node.ask(named("no good"), 12)) == {"no good": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert not node.machine.view.topics


def test_the_topics_of_coordinators_are_created_as_they_have_to_be(node):
    response = node.ask(named("__consumer_offsets", "__transaction_state", "__share_group_state"), 12)
    assert codes(response) == {
        "__consumer_offsets": ErrorCode.NONE,
        "__transaction_state": ErrorCode.NONE,
        "__share_group_state": ErrorCode.NONE,
    }
    created = node.machine.view.topics["__consumer_offsets"]
    assert (len(created.partitions), dict(created.configs)) == (5, {"cleanup.policy": "compact"})
    created = node.machine.view.topics["__transaction_state"]
    assert len(created.partitions) == 3
    assert created.configs["compression.type"] == "uncompressed"
    created = node.machine.view.topics["__share_group_state"]
    assert (created.configs["cleanup.policy"], created.configs["retention.ms"]) == ("delete", "-1")


def test_a_topic_that_cannot_be_created_is_unknown_whatever_the_reason(node, caplog):
    node.create("a.b")
    node.metadata.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    unknown = {"a_b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "fresh": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes(node.ask(named("a_b", "fresh"), 12)) == unknown
    assert caplog.text.count("cannot be created") == 2
    assert codes(node.ask(named("a_b"), 12)) == {"a_b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert caplog.text.count("topic a_b, requested by a client, cannot be created") == 1, (
        "the reason is logged once"
    )
    assert set(node.machine.view.topics) == {"a.b"}


def test_the_log_of_the_controllers_is_never_created(node):
    response = node.ask(named("__cluster_metadata"), 12)
    assert codes(response) == {"__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [topic.is_internal for topic in response.topics] == [False]


def delete(node, *names):
    node.ask(DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000), 5)


@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_a_deleted_topic_is_unknown_to_the_first_who_asks_and_created_behind_the_answer(node, version):
    node.create("gone", 2)
    delete(node, "gone")
    asked = named("gone", "fresh", allow_auto_topic_creation=True)
    assert codes(node.ask(asked, version)) == {"gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "fresh": 0}
    assert "gone" in node.machine.view.topics
    assert codes(node.ask(asked, version)) == {"gone": 0, "fresh": 0}


def test_who_may_not_create_a_deleted_topic_does_not_end_that_it_is_told(node):
    node.create("gone")
    delete(node, "gone")
    for may_create in (False, False, True):
        asked = named("gone", allow_auto_topic_creation=may_create)
        assert codes(node.ask(asked, 12)) == {"gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert "gone" in node.machine.view.topics


def test_only_so_many_deleted_topics_are_remembered(node, monkeypatch):
    monkeypatch.setattr(topic_creation, "DELETED_KEPT_MAX", 2)
    for name in "abc":
        node.create(name)
        delete(node, name)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(node.ask(named("a", "b", "c"), 12)) == {"a": 0, "b": unknown, "c": unknown}


# Ids


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_found_by_id(node, version):
    created = node.create("t")
    response = node.ask(by_id(created.topic_id, b"\x08" * 16), version)
    unknown, found = response.topics  # as in Kafka
    assert (found.name, found.topic_id, found.error_code) == ("t", created.topic_id, 0)
    assert (unknown.name, unknown.topic_id) == (None, b"\x08" * 16)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_names_beside_ids_are_passed_over(node):
    created = node.create("t")
    topics = [
        MetadataRequestTopic(name=None, topic_id=created.topic_id),
        MetadataRequestTopic(name="other"),
    ]
    assert codes(node.ask(MetadataRequest(topics=topics), 12)) == {"t": 0}
    assert "other" not in node.machine.view.topics


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize(
    "topic", [{"name": None}, {"name": "t", "topic_id": b"\x08" * 16}], ids=["null name", "id"]
)
def test_versions_10_and_11_can_carry_ids_and_may_not(node, version, topic):
    node.create("t")
    response = node.ask(MetadataRequest(topics=[MetadataRequestTopic(**topic)]), version)
    assert [one.error_code for one in response.topics] == [ErrorCode.INVALID_REQUEST]
    assert response.brokers == []


def test_neither_name_nor_id_is_refused(node):
    topics = [MetadataRequestTopic(name=None)]
    response = node.ask(MetadataRequest(topics=topics), 13)
    assert response.error_code == ErrorCode.INVALID_REQUEST


# Operations


@pytest.mark.parametrize("version", [8, 10, 11, 13])
def test_operations_are_told_to_those_who_ask(node, version):
    node.create("t")
    silent = node.ask(named("t"), version)
    assert silent.topics[0].topic_authorized_operations == operations.NOT_ASKED
    assert silent.cluster_authorized_operations == operations.NOT_ASKED
    request = named("t", include_topic_authorized_operations=True)
    if version <= 10:
        request.include_cluster_authorized_operations = True
    asked = node.ask(request, version)
    assert asked.topics[0].topic_authorized_operations == 0b110111111000
    expected = operations.ON_CLUSTER if version <= 10 else operations.NOT_ASKED
    assert asked.cluster_authorized_operations == expected


# Other brokers


def with_other_broker(node, *, listener="PLAINTEXT", leader=2):
    """A second broker that leads partition 0 of `t`."""
    node.create("t")
    if listener is not None:
        node.machine.register_broker(Broker(2, {listener: Endpoint("other.example", 9093)}, "rack-b"))
    view = node.machine.view
    topic = view.topics["t"]
    moved = tuple(one._replace(leader=leader, replicas=(2, 1), isr=(2, 1)) for one in topic.partitions)
    node.machine.publisher.view = replace(view, topics={"t": replace(topic, partitions=moved)})


def test_other_brokers_are_told_at_their_address_on_the_clients_listener(node):
    with_other_broker(node)
    response = node.ask(named("t"), 12)
    assert [(one.node_id, one.host, one.port, one.rack) for one in response.brokers] == [
        (1, "broker.example", 19092, None),
        (2, "other.example", 9093, "rack-b"),
    ]
    assert response.topics[0].partitions[0].leader_id == 2


@pytest.mark.parametrize(("version", "code"), [(1, 5), (5, 5), (6, 72), (12, 72)])
def test_a_leader_without_the_clients_listener_is_not_found(node, version, code):
    with_other_broker(node, listener="INTERNAL")
    response = node.ask(named("t"), version)
    partition = response.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id) == (code, -1)
    assert partition.replica_nodes == [2, 1]
    assert [one.node_id for one in response.brokers] == [1]


def test_a_dead_leader_is_not_available_and_its_replica_offline(node):
    with_other_broker(node, listener=None)
    partition = node.ask(named("t"), 12).topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.offline_replicas == [2]


def test_replicas_of_a_cluster_are_offline_when_their_broker_or_their_directory_is(node):
    directory, other, lost = b"d" * 16, b"e" * 16, bytes(15) + b"\x02"
    topic_id = b"t" * 16
    image = MetadataImage(1, "c")
    for node_id, fenced in ((1, False), (2, True), (4, False), (5, False), (6, False)):
        listener = BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)
        image.replay(
            RegisterBrokerRecord(
                broker_id=node_id, end_points=[listener], fenced=fenced, log_dirs=[directory]
            )
        )
    image.replay(TopicRecord(name="t", topic_id=topic_id))
    image.replay(
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[1, 2, 3, 4, 5, 6],  # 2 is fenced, 3 is not registered
            isr=[1, 6],
            leader=1,
            directories=[directory, directory, directory, lost, other, directory],
            eligible_leader_replicas=[4],
            last_known_elr=[5],
        )
    )
    node.machine.publisher.view, _ = image.publish()
    partition = node.ask(named("t"), 12).topics[0].partitions[0]
    assert (partition.leader_id, partition.error_code) == (1, 0)
    assert partition.offline_replicas == [2, 3, 4, 5]
    described = node.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
    partition = described.topics[0].partitions[0]
    assert partition.offline_replicas == [2, 3, 4, 5]
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([4], [5])


def test_version_0_leaves_dead_replicas_out_and_says_so(node):
    with_other_broker(node, listener=None, leader=1)
    partition = node.ask(named("t"), 0).topics[0].partitions[0]
    assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert partition.replica_nodes == partition.isr_nodes == [1]
    assert node.ask(named("t"), 1).topics[0].partitions[0].error_code == ErrorCode.NONE


def test_what_is_remembered_of_a_topic_follows_its_changes(node):
    node.create("t")
    assert len(node.ask(named("t"), 12).topics[0].partitions) == 1
    node.machine.delete_topics(["t"])
    node.create("t", 3)
    assert len(node.ask(named("t"), 12).topics[0].partitions) == 3


# DescribeCluster


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_described_at_the_same_address(node, version):
    response = node.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, "test-cluster", 1)
    assert [(one.broker_id, one.host, one.port) for one in response.brokers] == [(1, "broker.example", 19092)]
    assert response.cluster_authorized_operations == operations.ON_CLUSTER


@pytest.mark.parametrize(("asks", "expected"), [(False, [1, 2]), (True, [1, 2, 3])])
def test_fenced_brokers_are_told_to_those_who_ask_at_the_listener_of_the_client(node, asks, expected):
    listener = node.connection.listener_name

    def broker(node_id, name=listener, *, is_fenced=False):
        endpoints = {name: Endpoint("right", node_id), "OTHER": Endpoint("wrong", 9)}
        return Broker(node_id, endpoints, f"rack-{node_id}", is_fenced=is_fenced)

    registrations = {one.node_id: one for one in (broker(1), broker(2), broker(4, "NOWHERE"))}
    alive = dict(registrations)
    registrations[3] = broker(3, is_fenced=True)
    view = replace(node.machine.view, brokers=alive, registrations=registrations)
    node.machine.publisher.view = view
    response = node.ask(DescribeClusterRequest(include_fenced_brokers=asks), 2)
    assert [one.broker_id for one in response.brokers] == expected
    for one in response.brokers[1:]:
        told = (one.host, one.port, one.rack, one.is_fenced)
        assert told == ("right", one.broker_id, f"rack-{one.broker_id}", one.broker_id == 3)


@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (0, 115), (3, 115)])
def test_controllers_are_not_told_of_here(node, endpoint_type, code):
    response = node.ask(DescribeClusterRequest(endpoint_type=endpoint_type), 2)
    assert (response.error_code, response.brokers) == (code, [])


# DescribeTopicPartitions


def describe(node, *names, limit=2000, cursor=None):
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return node.ask(request)


def shown(response):
    return [(topic.name, [one.partition_index for one in topic.partitions]) for topic in response.topics]


def test_topics_are_described_by_name_in_order_with_errors_for_unknown_ones(node):
    node.create("b", 2)
    node.create("a")
    response = describe(node, "b", "u", "a", "no good")
    assert shown(response) == [("a", [0]), ("b", [0, 1]), ("no good", []), ("u", [])]
    assert [topic.error_code for topic in response.topics] == [0, 0, 17, 3]
    assert response.next_cursor is None
    assert response.topics[0].partitions[0].eligible_leader_replicas == []
    assert response.topics[0].topic_authorized_operations == operations.ON_TOPIC


def test_all_topics_come_in_pages(node):
    node.create("a", 2)
    node.create("b", 2)
    node.create("c", 1)
    first = describe(node, limit=3)
    assert shown(first) == [("a", [0, 1]), ("b", [0])]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("b", 1)
    second = describe(node, limit=1, cursor=("b", 1))
    assert shown(second) == [("b", [1])]
    assert (second.next_cursor.topic_name, second.next_cursor.partition_index) == ("c", 0)
    last = describe(node, limit=3, cursor=("c", 0))
    assert (shown(last), last.next_cursor) == ([("c", [0])], None)


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0)])
def test_a_cursor_that_points_to_nothing_asked_for_is_refused(node, cursor):
    node.create("a")
    assert [one.error_code for one in describe(node, "a", cursor=cursor).topics] == [42]
