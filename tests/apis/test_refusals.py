"""What each API answers when the authorizer refuses, in every version."""

import re
from dataclasses import replace

import pytest

from odradek.apis.api import RequestContext
from odradek.apis.declaration import Forwarding
from odradek.apis.table import Apis, declared
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import find
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.sync_group import SyncGroupRequest
from odradek.wire.response_errors import errors_of
from tests.apis.granting import Granting
from tests.apis.test_every_version import SERVED, fields
from tests.kit.collecting import collected

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
ALTER, CREATE, DELETE, DESCRIBE = Operation.ALTER, Operation.CREATE, Operation.DELETE, Operation.DESCRIBE
READ, WRITE, CLUSTER_ACTION = Operation.READ, Operation.WRITE, Operation.CLUSTER_ACTION
NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_ID = 29, 30, 31, 53

WHEN_NOTHING_IS_ALLOWED = {
    **{key: {NO_TOPIC} for key in (0, 1, 2, 3, 19, 20, 21, 23, 33, 37, 44, 61)},
    **{key: {NO_GROUP} for key in (8, 9, 10, 11, 12, 13, 14, 15, 42, 47, 68, 69, 88, 89, 93)},
    **{key: {NO_GROUP} for key in (76, 77, 78, 79, 90, 91, 92)},
    **{key: {NO_CLUSTER} for key in (22, 27, 29, 30, 31, 34, 35, 43, 45, 46, 48, 49, 50, 51, 55, 57, 64, 74)},
    **{key: {NO_CLUSTER} for key in (94, 80, 81, 83, 84, 85, 86, 87)},
    **{key: {NO_ID} for key in (24, 25, 26, 28, 65)},
    32: {NO_TOPIC, NO_CLUSTER},
    **{key: set() for key in (16, 60, 66, 75)},
}
"""API key -> the error codes of the answer."""
OPEN = {17, 18, 36, 38, 39, 40, 41, 71, 72}
"""Need nothing, or are decided by the tokens themselves."""


def codes(answer):
    return set(errors_of(type(answer))(answer))


def refuse_all(node):
    node.authorizer = Granting.only(node)


def test_who_may_do_nothing_is_refused_everything_in_every_version(short_lived):
    with collected() as failures:
        for key in sorted(WHEN_NOTHING_IS_ALLOWED):
            with failures.of(f"API {key}"), short_lived() as node:
                check_that_all_is_refused(node, key)


def check_that_all_is_refused(node, key):
    node.create("__consumer_offsets")
    node.create("__transaction_state")
    node.loop.turn()
    topic = node.create("t")
    refuse_all(node)
    for version in SERVED[key]:
        request = find(key)[0](**fields(node, key, version, topic))
        expected = WHEN_NOTHING_IS_ALLOWED[key]
        if key == 24 and version >= 4:
            expected = {NO_CLUSTER}  # only brokers send it
        if key == 14 and version >= 5:
            expected = {ErrorCode.INCONSISTENT_GROUP_PROTOCOL}  # the request lacks the protocol
        if key == 35 and version < 3:
            expected = set()  # the answer has no place for it: it is empty
        assert codes(node.ask(request, version)) == expected, version
    assert "t" in node.machine.view.topics
    assert "new" not in node.machine.view.topics


def test_each_api_is_refused_or_open():
    assert WHEN_NOTHING_IS_ALLOWED.keys() | OPEN == SERVED.keys()


def test_who_may_do_everything_gets_the_answers_of_a_node_without_authorizer(short_lived):
    with collected() as failures:
        for key in sorted(SERVED):
            with failures.of(f"API {key}"), short_lived() as plain, short_lived() as asked:
                check_that_answers_are_the_same(plain, asked, key)


def check_that_answers_are_the_same(plain, asked, key):
    asked.authorizer = Granting.all_but(asked)
    for version in SERVED[key]:
        answers = []
        for node in (plain, asked):
            if "__consumer_offsets" not in node.machine.view.topics:
                node.create("__consumer_offsets")
                node.loop.turn()
            topic = node.machine.view.topics.get("t") or node.create("t")
            request = find(key)[0](**fields(node, key, version, topic))
            answers.append(without_what_differs(node.ask(request, version)))
        assert answers[0] == answers[1], version
    asked_for = asked.authorizer.asked + asked.authorizer.asked_quietly
    # DescribeCluster needs one for its list of operations only, and there is no transaction to list.
    assert asked_for or key in OPEN or key in (60, 66)


def without_what_differs(answer):
    """Directories, free bytes, where records are in memory, and random ids."""
    names = "log_dir|total_bytes|usable_bytes|client_instance_id|subscription_id"
    # Random bytes may have a comma, or a quotation mark.
    value = r"""(?:b'(?:\\.|[^'\\])*'|b"(?:\\.|[^"\\])*"|[^,]*)"""
    return re.sub(rf"({names})={value}|<memory at [^>]*>", "", repr(answer))


# Records


def produce(node, version, *topics, transactional_id=None, transactional=False, acks=-1):
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    batch = node.batch(b"a", **(producer if transactional else {}))
    named = [{"name": topic.name} if version < 13 else {"topic_id": topic.topic_id} for topic in topics]
    return ProduceRequest(
        acks=acks,
        timeout_ms=1,
        transactional_id=transactional_id,
        topic_data=[
            TopicProduceData(partition_data=[PartitionProduceData(index=0, records=batch)], **one)
            for one in named
        ],
    )


def results_of(answer):
    return [
        (partition.error_code, partition.base_offset)
        for topic in answer.responses
        for partition in topic.partition_responses
    ]


@pytest.mark.parametrize("version", [3, 12, 13])
def test_records_reach_only_the_topics_that_the_client_may_write_to(node, version):
    one, other = node.create("one"), node.create("other")
    node.authorizer = Granting.only(node, (WRITE, TOPIC, "one"))
    answer = node.ask(produce(node, version, one, other), version)
    assert results_of(answer) == [(0, 0), (NO_TOPIC, -1)]
    assert node.partition("other").log_end_offset == 0


@pytest.mark.parametrize("version", [3, 13])
def test_a_refused_transactional_id_refuses_all_partitions_of_a_transactional_batch(node, version):
    topic = node.create("t")
    node.authorizer = Granting.only(node, (WRITE, TOPIC, "t"))
    request = produce(node, version, topic, transactional_id="x", transactional=True)
    assert results_of(node.ask(request, version)) == [(NO_ID, -1)]
    request = produce(node, version, topic, transactional_id="x")
    assert results_of(node.ask(request, version)) == [(0, 0)]


def test_impossible_acks_are_refused_after_topics_and_permissions(node):
    one, other = node.create("one"), node.create("other")

    class Absent:
        name, topic_id = "absent", b"\x07" * 16

    request = produce(node, 12, one, other, Absent, acks=7)
    node.authorizer = Granting.only(node, (WRITE, TOPIC, "one"), (WRITE, TOPIC, "absent"))
    acks = ErrorCode.INVALID_REQUIRED_ACKS
    assert results_of(node.ask(request, 12)) == [(acks, -1), (NO_TOPIC, -1), (3, -1)]
    assert results_of(node.ask(produce(node, 13, Absent, one, acks=7), 13)) == [(100, -1), (acks, -1)]


@pytest.mark.parametrize("version", [3, 13])
def test_a_transactional_batch_without_an_id_is_refused_before_its_topic(node, version):
    topic = node.create("t")

    class Absent:
        name, topic_id = "absent", b"\x07" * 16

    refuse_all(node)
    answer = node.ask(produce(node, version, topic, Absent, transactional=True), version)
    assert results_of(answer) == [(NO_ID, -1), (NO_ID, -1)]


@pytest.mark.parametrize("is_of_id", [False, True])
def test_a_refusal_of_records_that_need_no_answer_closes_the_connection(node, is_of_id):
    topic = node.create("t")
    node.authorizer = Granting.only(node, *([(WRITE, TOPIC, "t")] if is_of_id else []))
    request = produce(node, 12, topic, transactional_id="x", transactional=is_of_id, acks=0)
    answer = node.start(request, 12)
    node.loop.turn()
    assert not answer.was_sent
    assert node.connection.closed


def fetch(version, *topics, session=(0, -1), replica_id=-1, wait_ms=0):
    session_id, epoch = session
    is_named = version < 13
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        replica_id=replica_id if version < 15 else -1,
        replica_state=ReplicaState(replica_id=replica_id) if version >= 15 and replica_id >= 0 else None,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=999)],
                **({"topic": topic.name} if is_named else {"topic_id": topic.topic_id}),
            )
            for topic in topics
        ],
    )


def fetched(answer):
    """Topic -> error code and whether there are records."""
    return {
        topic.topic or topic.topic_id: (partition.error_code, bool(partition.records))
        for topic in answer.responses
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_each_fetch_of_a_session_is_authorized_for_all_its_partitions(node, version):
    one, other = node.create("one"), node.create("other")
    for name in ("one", "other"):
        node.fill(name, [b"a"])
    keys = ("one", "other") if version < 13 else (one.topic_id, other.topic_id)
    node.authorizer = Granting.only(node, (READ, TOPIC, "one"))
    opened = node.ask(fetch(version, one, other, session=(0, 0)), version)
    assert fetched(opened) == {keys[0]: (0, True), keys[1]: (NO_TOPIC, False)}
    node.authorizer = Granting.only(node, (READ, TOPIC, "other"))
    again = node.ask(fetch(version, session=(opened.session_id, 1)), version)
    assert fetched(again) == {keys[0]: (NO_TOPIC, False), keys[1]: (0, True)}


def test_a_waiting_fetch_was_authorized_when_it_came(node):
    topic = node.create("t")
    node.authorizer = Granting.only(node, (READ, TOPIC, "t"))
    waiting = node.start(fetch(12, topic, wait_ms=1_000), 12)
    node.loop.turn()
    assert not waiting.was_sent
    refuse_all(node)
    node.fill("t", [b"a"])
    node.loop.turn()
    assert fetched(waiting.response) == {"t": (0, True)}


def test_a_fetch_of_refused_topics_does_not_wait(node):
    topic = node.create("t")
    refuse_all(node)
    assert fetched(node.ask(fetch(12, topic, wait_ms=1_000), 12)) == {"t": (NO_TOPIC, False)}


@pytest.mark.parametrize("version", [4, 15])
def test_a_replica_needs_the_permission_for_the_cluster(node, version):
    topic = node.create("t")
    node.authorizer = Granting.only(node, (READ, TOPIC, "t"))
    (refused,) = fetched(node.ask(fetch(version, topic, replica_id=7), version)).values()
    assert refused == (NO_TOPIC, False)
    node.authorizer = Granting.only(node, (CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
    (allowed,) = fetched(node.ask(fetch(version, topic, replica_id=7), version)).values()
    assert allowed[0] != NO_TOPIC


@pytest.mark.parametrize("version", [13, 18])
def test_an_unknown_id_is_told_without_a_permission(node, version):
    refuse_all(node)

    class Unknown:
        name, topic_id = "", b"\x07" * 16

    assert fetched(node.ask(fetch(version, Unknown), version)) == {Unknown.topic_id: (100, False)}
    assert results_of(node.ask(produce(node, 13, Unknown), 13)) == [(100, -1)]


# Topics


def metadata(*names, version=12, **more):
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **more)


def told(answer):
    return [(topic.name, topic.error_code) for topic in answer.topics]


def test_topics_that_a_client_may_not_describe_are_refused_or_left_out(node):
    one, other = node.create("one"), node.create("other")
    node.authorizer = Granting.only(node, (DESCRIBE, TOPIC, "one"), (DESCRIBE, TOPIC, "absent"))
    answer = node.ask(metadata("other", "hidden", "absent", "one", allow_auto_topic_creation=False), 12)
    assert told(answer) == [("absent", 3), ("one", 0), ("other", NO_TOPIC), ("hidden", NO_TOPIC)]
    assert [topic.topic_id for topic in answer.topics[2:]] == [bytes(16)] * 2
    assert told(node.ask(MetadataRequest(topics=None), 12)) == [("one", 0)]
    assert told(node.ask(MetadataRequest(topics=[]), 0)) == [("one", 0)]
    by_id = MetadataRequest(
        topics=[
            MetadataRequestTopic(name=None, topic_id=topic_id)
            for topic_id in (other.topic_id, one.topic_id, b"\x07" * 16)
        ]
    )
    assert told(node.ask(by_id, 12)) == [(None, 100), ("one", 0), (None, NO_TOPIC)]


@pytest.mark.parametrize(
    ("allowed", "is_created"),
    [((), False), ((CREATE, TOPIC, "new"), True), ((CREATE, CLUSTER, CLUSTER_NAME), True)],
)
def test_a_topic_is_created_by_itself_only_for_who_may_create_it(node, allowed, is_created):
    node.authorizer = Granting.only(node, (DESCRIBE, TOPIC, "new"), allowed)
    answer = node.ask(metadata("new", "hidden"), 12)
    assert told(answer) == [("new", 0 if is_created else NO_TOPIC), ("hidden", NO_TOPIC)]
    assert ("new" in node.machine.view.topics) is is_created
    assert "hidden" not in node.machine.view.topics


def bits(*operations):
    return sum(1 << operation for operation in operations)


def test_operations_are_those_that_the_client_may_do(node):
    node.create("t")
    node.authorizer = Granting.only(
        node, (DESCRIBE, TOPIC, "t"), (READ, TOPIC, "t"), (ALTER, CLUSTER, CLUSTER_NAME)
    )
    asking = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = node.ask(metadata("t", "absent", **asking), 8)
    assert [topic.topic_authorized_operations for topic in answer.topics] == [bits(DESCRIBE, READ), -(2**31)]
    assert answer.cluster_authorized_operations == 0, "it may not describe the cluster"
    node.authorizer = Granting.only(
        node, (DESCRIBE, CLUSTER, CLUSTER_NAME), (ALTER, CLUSTER, CLUSTER_NAME), (DESCRIBE, GROUP, "g")
    )
    described = node.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 2)
    assert described.cluster_authorized_operations == bits(DESCRIBE, ALTER)
    assert node.ask(DescribeClusterRequest(), 2).cluster_authorized_operations == -(2**31)


def test_settings_of_a_new_topic_are_told_to_who_may_describe_them(node):
    node.authorizer = Granting.only(node, (CREATE, TOPIC, "new"))
    wanted = [CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in ("new", "other")]
    made, refused = node.ask(CreateTopicsRequest(topics=wanted), 7).topics
    assert (made.error_code, made.topic_config_error_code) == (0, NO_TOPIC)
    assert (made.num_partitions, made.replication_factor, made.configs) == (-1, -1, [])
    assert (refused.name, refused.error_code) == ("other", NO_TOPIC)
    assert "other" not in node.machine.view.topics


def test_a_deletion_tells_nothing_about_topics_that_the_client_may_not_describe(node):
    ids = {name: node.create(name).topic_id for name in ("seen", "unseen", "mine")}
    node.authorizer = Granting.only(
        node,
        (DESCRIBE, TOPIC, "seen"),
        (DESCRIBE, TOPIC, "absent"),
        (DESCRIBE, TOPIC, "mine"),
        (DELETE, TOPIC, "mine"),
    )
    by_name = [DeleteTopicState(name=name) for name in ("seen", "absent", "unseen", "hidden")]
    by_id = [DeleteTopicState(name=None, topic_id=ids[name]) for name in ("unseen", "mine")]
    by_id.append(DeleteTopicState(name=None, topic_id=b"\x07" * 16))
    answer = node.ask(DeleteTopicsRequest(topics=by_name + by_id), 6)
    assert {(one.name, one.topic_id, one.error_code) for one in answer.responses} == {
        ("seen", bytes(16), NO_TOPIC),
        ("absent", bytes(16), 3),
        ("unseen", bytes(16), NO_TOPIC),
        ("hidden", bytes(16), NO_TOPIC),
        (None, ids["unseen"], NO_TOPIC),
        ("mine", ids["mine"], 0),
        (None, b"\x07" * 16, 100),
    }
    node.authorizer = Granting.only(node, (DELETE, CLUSTER, CLUSTER_NAME))
    answer = node.ask(DeleteTopicsRequest(topic_names=["seen", "unseen"]), 5)
    assert [one.error_code for one in answer.responses] == [0, 0]


# Groups


@pytest.mark.parametrize("version", [0, 1, 2, 7, 8, 9])
def test_offsets_of_a_refused_group_have_the_error_where_the_version_has_it(node, version):
    node.create("t")
    refuse_all(node)
    if version >= 8:
        topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
        (group,) = node.ask(request, version).groups
        assert (group.error_code, group.topics) == (NO_GROUP, [])
        return
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    answer = node.ask(OffsetFetchRequest(group_id="g", topics=topics), version)
    found = [one for topic in answer.topics for one in topic.partitions]
    in_partitions = [(one.partition_index, one.error_code) for one in found]
    if version < 2:
        assert in_partitions == [(0, NO_GROUP), (1, NO_GROUP)]
    else:
        assert (answer.error_code, in_partitions) == (NO_GROUP, [])


def commit(node, version, *topics):
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)],
                **({"name": topic.name} if version < 10 else {"topic_id": topic.topic_id}),
            )
            for topic in topics
        ],
    )


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_offsets_of_refused_topics_are_refused_last_or_left_out(node, version):
    node.create("__consumer_offsets", 5)
    one, other = node.create("one"), node.create("other")
    assert codes(node.ask(commit(node, 8, one, other), 8)) == set()
    node.authorizer = Granting.only(node, (DESCRIBE, GROUP, "g"), (DESCRIBE, TOPIC, "one"))

    def request(topics):
        if version < 8:
            of = [OffsetFetchRequestTopic(name=one.name, partition_indexes=[0]) for one in topics or ()]
            return OffsetFetchRequest(group_id="g", topics=None if topics is None else of)
        of = [
            OffsetFetchRequestTopics(
                partition_indexes=[0],
                **({"name": one.name} if version < 10 else {"topic_id": one.topic_id}),
            )
            for one in topics or ()
        ]
        group = OffsetFetchRequestGroup(group_id="g", topics=None if topics is None else of)
        return OffsetFetchRequest(groups=[group])

    def found(answer):
        topics = answer.topics if version < 8 else answer.groups[0].topics
        return [
            (topic.name if version < 10 else topic.topic_id, partition.committed_offset, partition.error_code)
            for topic in topics
            for partition in topic.partitions
        ]

    names = ("one", "other") if version < 10 else (one.topic_id, other.topic_id)
    answer = node.ask(request([other, one]), version)
    assert found(answer) == [(names[0], 5, 0), (names[1], -1, NO_TOPIC)]
    assert found(node.ask(request(None), version)) == [(names[0], 5, 0)]


@pytest.mark.parametrize("version", [8, 10])
def test_offsets_are_committed_only_in_topics_that_the_client_may_read(node, version):
    node.create("__consumer_offsets", 5)
    one, other = node.create("one"), node.create("other")
    node.authorizer = Granting.only(node, (READ, GROUP, "g"), (READ, TOPIC, "one"))
    answer = node.ask(commit(node, version, one, other), version)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [NO_TOPIC, 0]
    node.authorizer = Granting.only(node, (READ, TOPIC, "one"))
    answer = node.ask(commit(node, version, one, other), version)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [NO_GROUP, NO_GROUP]


@pytest.mark.parametrize("version", range(10))
def test_a_refused_join_has_a_null_protocol_since_version_7(node, version):
    refuse_all(node)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=9_000, member_id="", protocol_type="consumer", protocols=protocols
    )
    answer = node.ask(request, version)
    assert (answer.error_code, answer.generation_id) == (NO_GROUP, -1)
    assert answer.protocol_name == (None if version >= 7 else "")


def test_a_sync_without_protocol_is_refused_before_its_group(node):
    refuse_all(node)
    request = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    assert node.ask(SyncGroupRequest(**request), 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    named = SyncGroupRequest(**request, protocol_type="consumer", protocol_name="range")
    assert node.ask(named, 5).error_code == NO_GROUP
    assert node.ask(SyncGroupRequest(**request), 4).error_code == NO_GROUP


def test_refused_groups_come_first_in_a_description(node):
    node.create("__consumer_offsets", 5)
    node.authorizer = Granting.only(node, (DESCRIBE, GROUP, "mine"))
    answer = node.ask(DescribeGroupsRequest(groups=["mine", "other"]), 5)
    assert [(one.group_id, one.error_code) for one in answer.groups] == [("other", NO_GROUP), ("mine", 0)]


def test_groups_are_listed_for_who_may_describe_them_or_the_cluster(node):
    node.create("__consumer_offsets", 5)
    topic = node.create("t")
    for group in ("mine", "other"):
        request = commit(node, 8, topic)
        request.group_id = group
        assert codes(node.ask(request, 8)) == set()

    def listed():
        return sorted(group.group_id for group in node.ask(ListGroupsRequest(), 5).groups)

    node.authorizer = Granting.only(node, (DESCRIBE, GROUP, "mine"))
    assert listed() == ["mine"]
    assert (DESCRIBE, GROUP, "other") in node.authorizer.asked_quietly
    node.authorizer = Granting.only(node, (DESCRIBE, CLUSTER, CLUSTER_NAME))
    assert listed() == ["mine", "other"]


def test_no_coordinator_is_looked_for_where_every_key_is_refused(node):
    refuse_all(node)
    answer = node.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=0), 4)
    assert [(one.key, one.error_code, one.node_id) for one in answer.coordinators] == [
        ("g", NO_GROUP, -1),
        ("h", NO_GROUP, -1),
    ]
    assert "__consumer_offsets" not in node.machine.view.topics
    node.authorizer = Granting.only(node, (DESCRIBE, GROUP, "h"))
    answer = node.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=0), 4)
    assert [one.error_code for one in answer.coordinators] == [NO_GROUP, 0]
    assert "__consumer_offsets" in node.machine.view.topics


def test_a_consumer_group_with_a_refused_topic_is_not_described(node):
    node.create("__consumer_offsets", 5)
    node.create("one"), node.create("other")
    for group, topics in (("g", ["one"]), ("h", ["one", "other"])):
        join = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=topics,
            topic_partitions=[],
        )
        assert node.ask(join, 1).error_code == 0
    node.authorizer = Granting.only(
        node, (DESCRIBE, GROUP, "g"), (DESCRIBE, GROUP, "h"), (DESCRIBE, TOPIC, "one")
    )
    answer = node.ask(ConsumerGroupDescribeRequest(group_ids=["g", "h", "i"]), 1)
    assert [(one.group_id, one.error_code, len(one.members)) for one in answer.groups] == [
        ("i", NO_GROUP, 0),
        ("g", 0, 1),
        ("h", NO_TOPIC, 0),
    ]


# Transactions


def test_an_idempotent_producer_needs_the_cluster_or_any_topic(node):
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    for allowed, code in (
        ((WRITE, TOPIC, "any"), 0),
        ((Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME), 0),
        ((READ, TOPIC, "any"), NO_CLUSTER),
    ):
        node.authorizer = Granting.only(node, allowed)
        answer = node.ask(request, 5)
        assert answer.error_code == code, allowed
        assert (answer.producer_id >= 0) is (code == 0)
    with_id = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1)
    node.authorizer = Granting.only(node, (Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME))
    assert node.ask(with_id, 5).error_code == NO_ID


@pytest.mark.parametrize("version", [0, 3])
def test_one_refused_partition_keeps_the_others_out_of_a_transaction(node, version):
    node.create("one"), node.create("other")
    node.authorizer = Granting.only(node, (WRITE, TRANSACTIONAL_ID, "x"), (WRITE, TOPIC, "one"))
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("one", "other")]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )
    answer = node.ask(request, version)
    results = {
        topic.name: [one.partition_error_code for one in topic.results_by_partition]
        for topic in answer.results_by_topic_v3_and_below
    }
    assert results == {"one": [ErrorCode.OPERATION_NOT_ATTEMPTED], "other": [NO_TOPIC]}


def test_partitions_are_added_by_brokers_with_the_permission_for_the_cluster(node):
    one = AddPartitionsToTxnTransaction(
        transactional_id="x",
        producer_id=1,
        producer_epoch=0,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    node.authorizer = Granting.only(node, (WRITE, TRANSACTIONAL_ID, "x"), (WRITE, TOPIC, "t"))
    answer = node.ask(AddPartitionsToTxnRequest(transactions=[one]), 5)
    assert (answer.error_code, answer.results_by_transaction) == (NO_CLUSTER, [])
    node.authorizer = Granting.only(node, (CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
    answer = node.ask(AddPartitionsToTxnRequest(transactions=[one]), 5)
    assert answer.error_code == 0


def test_a_transaction_is_described_without_the_topics_that_the_client_may_not_describe(node):
    node.create("__transaction_state", 3)
    node.create("one"), node.create("other")
    producer = node.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=9_000), 5)
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("one", "other")]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics,
    )
    assert codes(node.ask(request, 3)) == set()
    node.authorizer = Granting.only(node, (DESCRIBE, TRANSACTIONAL_ID, "x"), (DESCRIBE, TOPIC, "one"))
    answer = node.ask(DescribeTransactionsRequest(transactional_ids=["x", "y"]), 0)
    mine, refused = answer.transaction_states
    assert (mine.error_code, [topic.topic for topic in mine.topics]) == (0, ["one"])
    assert (refused.transactional_id, refused.error_code) == ("y", NO_ID)


# The cluster


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_refused_election_has_its_error_in_each_named_partition(node, version):
    refuse_all(node)
    named = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0, 1])])
    answer = node.ask(named, version)
    found = [one.error_code for topic in answer.replica_election_results for one in topic.partition_result]
    assert found == [NO_CLUSTER, NO_CLUSTER]
    assert answer.error_code == (NO_CLUSTER if version else 0)
    assert node.ask(ElectLeadersRequest(topic_partitions=None), version).replica_election_results == []


# A node of a cluster


def test_controllers_authorize_what_is_forwarded_to_them_and_the_node_the_rest(node):
    forwarded = replace(node.parts, forward=lambda envelope, answered: None)
    apis = Apis(forwarded, node.api_settings)
    for key in apis:
        api = declared(key)
        as_it_comes = api.forwarded is Forwarding.AS_IT_COMES
        assert apis[key].api.needs == (() if as_it_comes else api.needs), key
    # No controller sees the loggers of a node, which these two change.
    assert {declared(key).forwarded for key in (33, 44)} == {Forwarding.AFTER_CHECKS}


def test_a_node_of_a_cluster_authorizes_changes_of_its_loggers(node):
    sent = []
    forwarded = replace(node.parts, forward=lambda envelope, answered: sent.append(envelope))
    apis = Apis(forwarded, node.api_settings)
    level = AlterableConfig(name="root", config_operation=0, value="DEBUG")
    loggers = AlterConfigsResource(resource_type=8, resource_name="1", configs=[level])
    request = IncrementalAlterConfigsRequest(resources=[loggers])
    authorizer = Granting.only(node)
    refused = authorizer.refused(node.connection, declared(44).needs, request)
    context = RequestContext(44, 1, 7, "tester", node.connection, node.loop.now_ms, refused, authorizer)
    (result,) = apis[44].handle(request, context).responses
    assert (result.resource_name, result.error_code, sent) == ("1", NO_CLUSTER, [])
