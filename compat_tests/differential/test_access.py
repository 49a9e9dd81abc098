"""Who may do what: every API asked by clients with different permissions, in every version.

Clients are told apart by their addresses, which rules name as hosts: the administrator has 127.0.0.1, and
each set of rules an address of its own. So all rules of a test exist before its first question. For each API
there are clients with nothing, with each need alone, with all needs by literal, prefixed and wildcard rules,
with one need denied or left out, and with operations that imply the needed ones. They send the same bytes in
turn. Each question is about names that the rules allow, of things that exist and that do not, and about names
that only a wildcard allows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest

from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.differential import share_state, sharing
from compat_tests.differential.harness import CLOSED, SECONDS, Pair, Pauses, Side
from compat_tests.differential.members import consumer_join
from compat_tests.differential.pairs import access_pair
from compat_tests.differential.test_transactions import (
    _until,
    add,
    begun,
    ready,
    wait_for_coordinators,
    without_times,
)
from compat_tests.differential.topics import NOW_MS, id_of, metadata_of, new_topic, wait_until_readable
from compat_tests.kit.group_wire import wait_for_coordinator
from odradek.wire.acl_types import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType
from odradek.wire.messages import find
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest
from odradek.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from odradek.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_acls import DescribeAclsRequest
from odradek.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.describe_quorum import DescribeQuorumRequest
from odradek.wire.messages.describe_quorum import PartitionData as QuorumPartition
from odradek.wire.messages.describe_quorum import TopicData as QuorumTopic
from odradek.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.wire.messages.describe_topic_partitions import TopicRequest as TopicToDescribe
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from odradek.wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.list_config_resources import ListConfigResourcesRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from odradek.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from odradek.wire.messages.sync_group import SyncGroupRequest
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek.wire.messages.unregister_controller import UnregisterControllerRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.wire.records import build_batch
from odradek.wire.schema import Message, fields_of
from tests.tiers import rest_at_night

ANYBODY = "User:*"

IMPLYING = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
_addresses = itertools.count(7)
_numbers = itertools.count()


@pytest.fixture(scope="module", params=rest_at_night(reference.CURRENT, reference.OLDER))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with access_pair(request.param) as pair:
        yield pair


def only_current(pair: Pair) -> None:
    """Of the older Kafka only versions are asked that the current one serves no more."""
    if not pair.versions(ConsumerGroupHeartbeatRequest):
        pytest.skip("asked of the current Kafka")


# Rules


class Need(NamedTuple):
    operation: Operation
    resource_type: ResourceType


class Client(NamedTuple):
    """The address of a client, and what it may do."""

    address: str
    note: str
    rules: list[AclCreation]


def rule(
    need: Need,
    name: str,
    host: str,
    *,
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
) -> AclCreation:
    return AclCreation(
        resource_type=need.resource_type,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=ANYBODY,
        host=host,
        operation=need.operation,
        permission_type=permission,
    )


def address(pair: Pair) -> str:
    """A new one, which is the name of its connection, too."""
    number = next(_addresses)
    address = f"127.1.{number // 250}.{number % 250 + 1}"
    for side in pair.sides:
        side.sources[address] = address
    return address


class Names:
    """The names of one test: what begins with `own` is allowed by rules; `foreign` only by a wildcard."""

    def __init__(self, pair: Pair, topics: int = 2) -> None:
        number = next(_numbers)
        self.own = f"own{number}-"
        self.pair = pair
        self.topic = new_topic(pair, f"{self.own}topic")
        self.foreign_topic = new_topic(pair, f"foreign{number}-topic")
        self.absent = f"{self.own}absent"
        self.foreign_absent = f"foreign{number}-absent"
        self.group = f"{self.own}group"
        self.foreign_group = f"foreign{number}-group"
        self.id = f"{self.own}id"
        self.foreign_id = f"foreign{number}-id"

    @property
    def topics(self) -> list[str]:
        return [self.topic, self.absent, self.foreign_topic, self.foreign_absent]

    def of(self, resource_type: ResourceType) -> list[str]:
        """Those that rules allow."""
        if resource_type is ResourceType.TOPIC:
            return [self.topic, self.absent]
        if resource_type is ResourceType.GROUP:
            return [self.group, f"{self.group}-own", f"{self.group}-both"]
        if resource_type is ResourceType.TRANSACTIONAL_ID:
            return [self.id]
        return [CLUSTER_NAME]


def literal(needs: Iterable[Need], names: Names, host: str) -> list[AclCreation]:
    return [rule(need, name, host) for need in needs for name in names.of(need.resource_type)]


def prefixed(needs: Iterable[Need], names: Names, host: str) -> list[AclCreation]:
    """Nothing but its whole name is the name of the cluster."""
    return [
        rule(need, CLUSTER_NAME, host)
        if need.resource_type is ResourceType.CLUSTER
        else rule(need, names.own, host, pattern=PatternType.PREFIXED)
        for need in needs
    ]


def wildcard(needs: Iterable[Need], names: Names, host: str) -> list[AclCreation]:
    return [
        rule(need, CLUSTER_NAME if need.resource_type is ResourceType.CLUSTER else WILDCARD, host)
        for need in needs
    ]


def denied(needs: Iterable[Need], names: Names, host: str) -> list[AclCreation]:
    return [
        rule(need, name, host, permission=Permission.DENY)
        for need in needs
        for name in names.of(need.resource_type)
    ]


def implied(need: Need) -> Iterator[Need]:
    for operation in IMPLYING.get(need.operation, ()):
        yield Need(operation, need.resource_type)


def clients_of(needs: list[Need], names: Names) -> list[Client]:
    """The clients that are asked for an API with these needs."""
    clients: list[Client] = []

    def add(note: str, make: Callable[[str], list[AclCreation]]) -> None:
        host = address(names.pair)
        clients.append(Client(host, note, make(host)))

    add("nothing", lambda host: [])
    add("literal", lambda host: literal(needs, names, host))
    add("prefixed", lambda host: prefixed(needs, names, host))
    add("wildcard", lambda host: wildcard(needs, names, host))
    for need in needs:
        what = f"{need.operation.name} {need.resource_type.name}"
        others = [one for one in needs if one != need]
        if others:
            add(f"only {what}", lambda host, need=need: literal([need], names, host))
        if len(others) > 1:
            add(f"all but {what}", lambda host, others=others: literal(others, names, host))
        add(
            f"all, {what} denied",
            lambda host, need=need: [*wildcard(needs, names, host), *denied([need], names, host)],
        )
        for other in implied(need):
            add(
                f"all, {other.operation.name} for {what}",
                lambda host, other=other, others=others: literal([other, *others], names, host),
            )
        add(
            f"all, ALL for {what}",
            lambda host, need=need, others=others: literal(
                [Need(Operation.ALL, need.resource_type), *others], names, host
            ),
        )
    return clients


def install(pair: Pair, rules: list[AclCreation]) -> None:
    """Returns when both decide by these rules, too."""
    if not rules:
        return
    for side in pair.sides:
        answer = side.ask(CreateAclsRequest(creations=rules), 3)
        assert not any(result.error_code for result in answer.results), (side.name, answer)
        _wait_for(side, rules)


def _wait_for(side: Side, rules: list[AclCreation]) -> None:
    wanted = {(one.host, one.resource_name, one.operation, one.permission_type) for one in rules}
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )

    def has_all() -> bool:
        known = {
            (acl.host, resource.resource_name, acl.operation, acl.permission_type)
            for resource in side.ask(everything, 3).resources
            for acl in resource.acls
        }
        return wanted <= known

    wait_until(has_all, f"{side.name} has the rules", seconds=SECONDS)


# Questions


Build = Callable[[Side, int, Names], Message]


class Case(NamedTuple):
    api_key: int
    needs: list[Need]
    build: Build
    prepare: Callable[[Pair, Names], None] | None = None
    """Before the first question."""
    undo: Callable[[Pair, Names], None] | None = None
    """After each question that may have changed something."""
    versions: range = range(100)
    see: Callable[[Side, Any], None] | None = None
    """Remembers values of an answer before it is compared."""


CASES: dict[str, Case] = {}
ALTER, CLUSTER_ACTION, CREATE = Operation.ALTER, Operation.CLUSTER_ACTION, Operation.CREATE
DELETE, DESCRIBE, READ, WRITE = Operation.DELETE, Operation.DESCRIBE, Operation.READ, Operation.WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE = Operation.IDEMPOTENT_WRITE
T, G, C, X = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


def case(api_key: int, *needs: tuple[Operation, ResourceType], **more: Any) -> Callable[[Build], Build]:
    def keep(build: Build) -> Build:
        CASES[f"{api_key}_{build.__name__}"] = Case(api_key, [Need(*one) for one in needs], build, **more)
        return build

    return keep


def find_ids(pair: Pair, names: Names) -> None:
    """Both have producer ids, and coordinators for the transactional ids."""
    wait_for_coordinators(pair)
    for side in pair.sides:
        for name in (names.id, names.foreign_id, None):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000)
            _until(side, request, 4, ready)


def is_of_this_test(side: Side, name: str) -> bool:
    """Other tests have left theirs."""
    number = side.values["own"].removeprefix("own")
    return name.startswith((f"own{number}", f"foreign{number}"))


def fitting(message: type[Message], version: int, **fields: Any) -> Message:
    """The message with those of the fields that the version has."""
    known = {spec.name for spec in fields_of(message) if spec.exists_in(version)}
    return message(**{name: value for name, value in fields.items() if name in known})


# Records


def records(producer_id: int = -1, epoch: int = -1, *, transactional: bool = False) -> bytes:
    return build_batch(
        [(0, NOW_MS, None, b"a", ())],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=transactional,
    )


UNKNOWN_ID = bytes(range(1, 17))


def named(side: Side, version: int, names: Names, first_with_ids: int) -> list[dict[str, Any]]:
    """The topics of a request, each by name or by id; `topic` stands for the field with the name."""
    if version < first_with_ids:
        return [{"name": topic} for topic in names.topics]
    ids = [id_of(side, names.topic), id_of(side, names.foreign_topic), UNKNOWN_ID]
    return [{"topic_id": topic_id} for topic_id in ids]


def produced(
    side: Side, version: int, names: Names, batch: bytes, transactional_id: str | None = None
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(partition_data=[PartitionProduceData(index=0, records=batch)], **one)
            for one in named(side, version, names, 13)
        ],
    )


@case(0, (WRITE, T))
def produce(side: Side, version: int, names: Names) -> Message:
    return produced(side, version, names, records())


@case(0, (WRITE, T), (WRITE, X), versions=range(3, 100))
def produce_with_an_id(side: Side, version: int, names: Names) -> Message:
    """The id counts only for transactional batches."""
    return produced(side, version, names, records(), names.id)


@case(0, (WRITE, T), (WRITE, X), versions=range(3, 100))
def produce_in_a_transaction(side: Side, version: int, names: Names) -> Message:
    return produced(side, version, names, records(7_000, 0, transactional=True), names.id)


@case(0, (WRITE, T), (WRITE, X), versions=range(3, 100))
def produce_in_a_foreign_transaction(side: Side, version: int, names: Names) -> Message:
    return produced(side, version, names, records(7_000, 0, transactional=True), names.foreign_id)


@case(0, (WRITE, T), (WRITE, X))
def produce_in_a_transaction_without_an_id(side: Side, version: int, names: Names) -> Message:
    return produced(side, version, names, records(7_000, 0, transactional=True))


@case(0, (WRITE, T))
def produce_with_impossible_acks(side: Side, version: int, names: Names) -> Message:
    request = produced(side, version, names, records())
    request.acks = 5
    return request


def fetched(side: Side, version: int, names: Names, replica_id: int = -1) -> FetchRequest:
    state = ReplicaState(replica_id=replica_id, replica_epoch=-1) if version >= 15 else None
    return FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        replica_state=state,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchTopic(
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 16)],
                **({"topic": one["name"]} if "name" in one else one),
            )
            for one in named(side, version, names, 13)
        ],
    )


@case(1, (READ, T))
def fetch(side: Side, version: int, names: Names) -> Message:
    return fetched(side, version, names)


@case(1, (READ, T), (CLUSTER_ACTION, C))
def fetch_of_a_replica(side: Side, version: int, names: Names) -> Message:
    return fetched(side, version, names, 5)


@case(2, (DESCRIBE, T))
def list_offsets(side: Side, version: int, names: Names) -> Message:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            for topic in names.topics
        ],
    )


@case(21, (DELETE, T))
def delete_records(side: Side, version: int, names: Names) -> Message:
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
            for topic in names.topics
        ],
        timeout_ms=5_000,
    )


@case(23, (DESCRIBE, T), (CLUSTER_ACTION, C))
def offset_for_leader_epoch(side: Side, version: int, names: Names) -> Message:
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic=topic, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
            )
            for topic in names.topics
        ],
    )


@case(61, (READ, T))
def describe_producers(side: Side, version: int, names: Names) -> Message:
    return DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[0]) for topic in [*names.topics, "bad name"]]
    )


# Topics


@case(3, (DESCRIBE, T), versions=range(4, 100))
def metadata_by_name(side: Side, version: int, names: Names) -> Message:
    return fitting(
        MetadataRequest,
        version,
        topics=[MetadataRequestTopic(name=topic) for topic in names.topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )


@case(3, (DESCRIBE, T), (DESCRIBE, C), (WRITE, T), (ALTER, C), versions=range(8, 100))
def operations(side: Side, version: int, names: Names) -> Message:
    return metadata_by_name(side, version, names)


@case(3, (DESCRIBE, T), versions=range(12, 100))
def metadata_by_id(side: Side, version: int, names: Names) -> Message:
    ids = [UNKNOWN_ID, id_of(side, names.topic), id_of(side, names.foreign_topic)]
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


def own_topics_only(side: Side, answer: Any) -> None:
    answer.topics = [topic for topic in answer.topics if is_of_this_test(side, topic.name)]


@case(3, (DESCRIBE, T), see=own_topics_only)
def metadata_of_all(side: Side, version: int, names: Names) -> Message:
    topics = None if version else []
    return fitting(MetadataRequest, version, topics=topics, include_topic_authorized_operations=True)


def delete_absent(pair: Pair, names: Names) -> None:
    """The topics that a request has created."""
    for side in pair.sides:
        wanted = [DeleteTopicState(name=name) for name in (names.absent, names.foreign_absent)]
        deadline = time.monotonic() + SECONDS
        while True:
            side.ask(DeleteTopicsRequest(topics=wanted, timeout_ms=30_000), 6)
            answer = side.ask(metadata_of(names.absent, names.foreign_absent), 12)
            if all(topic.error_code == 3 for topic in answer.topics):
                break
            assert time.monotonic() < deadline, (side.name, answer)


def without_new_topics(side: Side, answer: Any) -> None:
    """Odradek has created a topic when it answers, Kafka has not: who may create it gets no refusal."""
    for topic in answer.topics:
        if topic.name.endswith("absent") and topic.error_code in (0, 3, 5):
            topic.error_code, topic.partitions, topic.topic_id = 3, [], bytes(16)
            topic.topic_authorized_operations = -(2**31)


@case(3, (DESCRIBE, T), (CREATE, T), (CREATE, C), undo=delete_absent, see=without_new_topics)
def auto_creation(side: Side, version: int, names: Names) -> Message:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in names.topics])


def remember_new(side: Side, answer: Any) -> None:
    for topic in answer.topics:
        if any(topic.topic_id):
            side.remember(f"id of {topic.name}", topic.topic_id)


@case(19, (CREATE, T), (CREATE, C), (DESCRIBE_CONFIGS, T), undo=delete_absent, see=remember_new)
def create_topics(side: Side, version: int, names: Names) -> Message:
    wanted = [*names.topics, f"{names.own}twice", f"{names.own}twice", "__cluster_metadata"]
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in wanted
        ],
        timeout_ms=30_000,
    )


def make_deleted(pair: Pair, names: Names) -> None:
    for name in (names.topic, names.foreign_topic):
        for side in pair.sides:
            answer = side.ask(
                CreateTopicsRequest(
                    topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)],
                    timeout_ms=30_000,
                ),
                7,
            )
            assert answer.topics[0].error_code in (0, 36), (side.name, answer)
            side.remember(f"id of {name}", wait_until_readable(side, name, 1).topics[0].topic_id)


@case(20, (DELETE, T), (DELETE, C), (DESCRIBE, T), undo=make_deleted)
def delete_topics(side: Side, version: int, names: Names) -> Message:
    twice = f"{names.own}twice"
    wanted = [*names.topics, twice, twice]
    if version < 6:
        return DeleteTopicsRequest(topic_names=wanted, timeout_ms=30_000)
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in wanted]
        + [DeleteTopicState(name=None, topic_id=UNKNOWN_ID)],
        timeout_ms=30_000,
    )


@case(20, (DELETE, T), (DELETE, C), (DESCRIBE, T), undo=make_deleted, versions=range(6, 100))
def delete_topics_by_id(side: Side, version: int, names: Names) -> Message:
    ids = [UNKNOWN_ID, id_of(side, names.topic), id_of(side, names.foreign_topic)]
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids], timeout_ms=30_000
    )


@case(37, (ALTER, T))
def create_partitions(side: Side, version: int, names: Names) -> Message:
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names.topics],
        timeout_ms=30_000,
        validate_only=True,
    )


@case(75, (DESCRIBE, T))
def describe_topic_partitions(side: Side, version: int, names: Names) -> Message:
    return DescribeTopicPartitionsRequest(
        topics=[TopicToDescribe(name=name) for name in names.topics], response_partition_limit=100
    )


@case(75, (DESCRIBE, T), see=own_topics_only)
def describe_partitions_of_all(side: Side, version: int, names: Names) -> Message:
    return DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2_000)


# Groups


def make_groups(pair: Pair, names: Names) -> None:
    """Groups with offsets in both topics."""
    for side in pair.sides:
        for group in (names.group, names.foreign_group):
            wait_for_coordinator(side, group)
            answer = side.ask(commit(group, [{"name": name} for name in names.topics[::2]]), 8)
            assert {p.error_code for topic in answer.topics for p in topic.partitions} == {0}, answer


def commit(group: str, topics: list[dict[str, Any]]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=0)], **one
            )
            for one in topics
        ],
    )


@case(8, (READ, G), (READ, T), prepare=make_groups)
def offset_commit(side: Side, version: int, names: Names) -> Message:
    return commit(names.group, named(side, version, names, 10))


@case(8, (READ, G), (READ, T), prepare=make_groups)
def offset_commit_of_a_foreign_group(side: Side, version: int, names: Names) -> Message:
    return commit(names.foreign_group, named(side, version, names, 10))


@case(9, (DESCRIBE, G), (DESCRIBE, T), prepare=make_groups)
def offset_fetch(side: Side, version: int, names: Names) -> Message:
    topics = named(side, version, names, 10)
    if version < 8:
        return OffsetFetchRequest(
            group_id=names.group,
            topics=[OffsetFetchRequestTopic(partition_indexes=[0], **one) for one in topics],
        )
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestTopics(partition_indexes=[0], **one) for one in topics],
            )
            for group in (names.group, names.foreign_group)
        ]
    )


@case(9, (DESCRIBE, G), (DESCRIBE, T), prepare=make_groups, versions=range(2, 100))
def offset_fetch_of_all(side: Side, version: int, names: Names) -> Message:
    if version < 8:
        return OffsetFetchRequest(group_id=names.group, topics=None)
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id=group, topics=None)
            for group in (names.group, names.foreign_group)
        ]
    )


@case(10, (DESCRIBE, G), prepare=make_groups)
def find_group(side: Side, version: int, names: Names) -> Message:
    return coordinators(version, 0, names.group, names.foreign_group)


@case(10, (DESCRIBE, X), prepare=find_ids, versions=range(1, 100))
def find_transaction(side: Side, version: int, names: Names) -> Message:
    return coordinators(version, 1, names.id, names.foreign_id)


def find_shares(pair: Pair, names: Names) -> None:
    """Both have coordinators for share partitions, as far as their release has them."""
    if pair.versions(share_state.InitializeShareGroupStateRequest):
        for side in pair.sides:
            share_state.wait_for_coordinator(side, names.topic)


@case(10, (CLUSTER_ACTION, C), prepare=find_shares, versions=range(1, 100))
def find_share_partition(side: Side, version: int, names: Names) -> Message:
    return coordinators(version, 2, f"g:{'A' * 22}:0", "no key")


@case(83, (CLUSTER_ACTION, C), prepare=find_shares)
def initialize_share_state(side: Side, version: int, names: Names) -> Message:
    return share_state.initialize(side, names.topic, names.group, 0, 1)


@case(84, (CLUSTER_ACTION, C), prepare=find_shares)
def read_share_state(side: Side, version: int, names: Names) -> Message:
    return share_state.read(side, names.topic, names.group, 0, 1)


@case(85, (CLUSTER_ACTION, C), prepare=find_shares)
def write_share_state(side: Side, version: int, names: Names) -> Message:
    return share_state.write(side, names.topic, names.group, 0, 1)


@case(86, (CLUSTER_ACTION, C), prepare=find_shares)
def delete_share_state(side: Side, version: int, names: Names) -> Message:
    return share_state.delete(side, names.topic, names.group, 0, 1)


@case(87, (CLUSTER_ACTION, C), prepare=find_shares)
def summarize_share_state(side: Side, version: int, names: Names) -> Message:
    return share_state.summarize(side, names.topic, names.group, 0, 1)


def coordinators(version: int, key_type: int, *keys: str) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key=keys[0], key_type=key_type)
    return FindCoordinatorRequest(coordinator_keys=[*keys], key_type=key_type)


@case(11, (READ, G), prepare=make_groups)
def join_group(side: Side, version: int, names: Names) -> Message:
    """The session time-out is too short for anybody."""
    return JoinGroupRequest(
        group_id=names.group,
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


@case(12, (READ, G), prepare=make_groups, versions=range(100))
def heartbeat(side: Side, version: int, names: Names) -> Message:
    return HeartbeatRequest(group_id=names.group, generation_id=1, member_id="who")


@case(13, (READ, G), prepare=make_groups)
def leave_group(side: Side, version: int, names: Names) -> Message:
    if version < 3:
        return LeaveGroupRequest(group_id=names.group, member_id="who")
    return LeaveGroupRequest(group_id=names.group, members=[MemberIdentity(member_id="who")])


@case(14, (READ, G), prepare=make_groups)
def sync_group(side: Side, version: int, names: Names) -> Message:
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return SyncGroupRequest(group_id=names.group, generation_id=1, member_id="who", assignments=[], **named)


@case(14, (READ, G), prepare=make_groups, versions=range(5, 100))
def sync_group_without_protocol(side: Side, version: int, names: Names) -> Message:
    return SyncGroupRequest(group_id=names.group, generation_id=1, member_id="who", assignments=[])


@case(15, (DESCRIBE, G), (READ, G), prepare=make_groups)
def describe_groups(side: Side, version: int, names: Names) -> Message:
    groups = [names.foreign_group, names.group, f"{names.group}-absent"]
    return fitting(DescribeGroupsRequest, version, groups=groups, include_authorized_operations=True)


def own_groups_only(side: Side, answer: Any) -> None:
    answer.groups = [group for group in answer.groups if is_of_this_test(side, group.group_id)]


@case(16, (DESCRIBE, G), (DESCRIBE, C), prepare=make_groups, see=own_groups_only)
def list_groups(side: Side, version: int, names: Names) -> Message:
    return ListGroupsRequest()


@case(42, (DELETE, G), prepare=make_groups, undo=make_groups)
def delete_groups(side: Side, version: int, names: Names) -> Message:
    return DeleteGroupsRequest(groups_names=[names.foreign_group, names.group, names.group])


@case(47, (DELETE, G), (READ, T), prepare=make_groups, undo=make_groups)
def offset_delete(side: Side, version: int, names: Names) -> Message:
    return OffsetDeleteRequest(
        group_id=names.group,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in names.topics
        ],
    )


@case(68, (READ, G), (DESCRIBE, T), prepare=make_groups)
def consumer_heartbeat(side: Side, version: int, names: Names) -> Message:
    """Of a member that nobody knows."""
    return ConsumerGroupHeartbeatRequest(
        group_id=names.group,
        member_id="who",
        member_epoch=5,
        subscribed_topic_names=[names.topic, names.absent],
    )


@case(68, (READ, G), (DESCRIBE, T), prepare=make_groups)
def consumer_heartbeat_with_a_foreign_topic(side: Side, version: int, names: Names) -> Message:
    return ConsumerGroupHeartbeatRequest(
        group_id=names.group,
        member_id="who",
        member_epoch=5,
        subscribed_topic_names=[names.topic, names.foreign_topic],
    )


def make_consumer_groups(pair: Pair, names: Names) -> None:
    """With a member for the own topic, one for both."""
    for side in pair.sides:
        wait_for_coordinator(side, names.group)
        for group, topics in (
            (names.group, [names.topic]),
            (f"{names.group}-both", [names.topic, names.foreign_topic]),
            (names.foreign_group, [names.topic]),
        ):
            answer = side.ask(consumer_join(group, "m", *topics), 1)
            assert answer.error_code == 0, answer


@case(69, (DESCRIBE, G), (DESCRIBE, T), (READ, G), prepare=make_consumer_groups)
def consumer_describe(side: Side, version: int, names: Names) -> Message:
    return ConsumerGroupDescribeRequest(
        group_ids=[names.foreign_group, f"{names.group}-both", names.group, f"{names.group}-absent"],
        include_authorized_operations=True,
    )


# Share groups


def make_share_groups(pair: Pair, names: Names) -> None:
    """With a member for the own topic, one for both, and one without members."""
    find_shares(pair, names)
    for side in pair.sides:
        wait_for_coordinator(side, names.group)
        for group, topics in (
            (f"{names.group}-own", [names.topic]),
            (f"{names.group}-both", [names.topic, names.foreign_topic]),
            (f"{names.foreign_group}-share", [names.topic]),
        ):
            join_share_group(side, group, *topics)
        start_again(side, names)


def join_share_group(side: Side, group: str, *topics: str) -> None:
    """Returns when the member has them."""
    request, had = sharing.heartbeat(group, "m", 0, topics), 0

    def has_all(answer: Any) -> bool:
        nonlocal request, had
        assert answer.error_code == 0, (side.name, answer)
        if answer.assignment is not None:
            had = len(answer.assignment.topic_partitions)
        request = sharing.heartbeat(group, "m", answer.member_epoch)
        return had == len(topics)

    sharing.until(side, lambda: request, 1, has_all)


def start_again(side: Side, names: Names) -> None:
    altered = sharing.alter_offsets(names.group, (names.topic, {0: 0}), (names.foreign_topic, {0: 0}))
    answer = side.ask(altered, 0)
    assert answer.error_code == 0, (side.name, answer)


def make_offsets_again(pair: Pair, names: Names) -> None:
    for side in pair.sides:
        start_again(side, names)


@case(76, (READ, G), (DESCRIBE, T), prepare=make_share_groups)
def share_heartbeat(side: Side, version: int, names: Names) -> Message:
    """Of a member that nobody knows."""
    return sharing.heartbeat(names.group, "who", 5, [names.topic, names.absent])


@case(76, (READ, G), (DESCRIBE, T), prepare=make_share_groups)
def share_heartbeat_with_a_foreign_topic(side: Side, version: int, names: Names) -> Message:
    return sharing.heartbeat(names.group, "who", 5, [names.topic, names.foreign_topic])


@case(77, (DESCRIBE, G), (DESCRIBE, T), (READ, G), prepare=make_share_groups)
def share_describe(side: Side, version: int, names: Names) -> Message:
    return ShareGroupDescribeRequest(
        group_ids=[
            f"{names.foreign_group}-share",
            f"{names.group}-both",
            f"{names.group}-own",
            f"{names.group}-absent",
        ],
        include_authorized_operations=True,
    )


@case(78, (READ, G), (READ, T), prepare=make_share_groups)
def share_fetch_of_no_session(side: Side, version: int, names: Names) -> Message:
    return sharing.fetch_request(side, names.group, "m", 3, [(names.topic, 0)])


@case(78, (READ, G), (READ, T), prepare=make_share_groups)
def share_fetch(side: Side, version: int, names: Names) -> Message:
    """Of a partition that is not there: what is read goes by time."""
    places: list[sharing.Place] = [(names.topic, 7), (names.foreign_topic, 7)]
    return sharing.fetch_request(side, names.group, "m", 0, places)


@case(79, (READ, G), (READ, T), prepare=make_share_groups)
def share_acknowledge_of_no_session(side: Side, version: int, names: Names) -> Message:
    return sharing.acknowledge_request(side, names.group, "m", 3, {(names.topic, 0): [(0, 0, [1])]})


@case(90, (DESCRIBE, G), (DESCRIBE, T), prepare=make_share_groups)
def share_offsets(side: Side, version: int, names: Names) -> Message:
    topics = {name: [0] for name in names.topics}
    return sharing.describe_offsets_request((names.group, topics), (names.foreign_group, topics))


@case(90, (DESCRIBE, G), (DESCRIBE, T), prepare=make_share_groups)
def all_share_offsets(side: Side, version: int, names: Names) -> Message:
    return sharing.describe_offsets_request((names.group, None), (names.foreign_group, None))


@case(91, (READ, G), (READ, T), prepare=make_share_groups)
def alter_share_offsets(side: Side, version: int, names: Names) -> Message:
    return sharing.alter_offsets(names.group, *((name, {0: 1}) for name in names.topics))


@case(92, (DELETE, G), (READ, T), prepare=make_share_groups, undo=make_offsets_again)
def delete_share_offsets(side: Side, version: int, names: Names) -> Message:
    return sharing.delete_offsets(names.group, *names.topics)


def topology(*sources: str, changelog: str | None = None) -> Topology:
    changelogs = [] if changelog is None else [TopicInfo(name=changelog, partitions=0, replication_factor=1)]
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=[*sources], state_changelog_topics=changelogs)
        ],
    )


def streams_join(group: str, member: str, topology: Topology, **more: Any) -> StreamsGroupHeartbeatRequest:
    fields = {"rebalance_timeout_ms": 600_000, **more}
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        process_id="p",
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        **fields,
    )


@case(88, (READ, G), (DESCRIBE, T), prepare=make_groups)
def streams_heartbeat(side: Side, version: int, names: Names) -> Message:
    """One that is invalid otherwise."""
    return streams_join(
        names.group, "m", topology(names.topic, changelog=names.absent), rebalance_timeout_ms=-1
    )


@case(88, (READ, G), (DESCRIBE, T), prepare=make_groups)
def streams_heartbeat_with_a_foreign_topic(side: Side, version: int, names: Names) -> Message:
    return streams_join(names.group, "m", topology(names.foreign_topic), rebalance_timeout_ms=-1)


@case(88, (READ, G), (DESCRIBE, T), prepare=make_groups)
def streams_heartbeat_with_an_illegal_topic(side: Side, version: int, names: Names) -> Message:
    return streams_join(names.group, "m", topology("not legal"))


@case(93, (READ, G), prepare=make_groups)
def describe_topology_of_streams(side: Side, version: int, names: Names) -> Message:
    return StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=names.group,
        member_id="m",
        topology_epoch=0,
        topology_description=TopologyDescription(subtopologies=[], global_stores=[]),
    )


def make_streams_groups(pair: Pair, names: Names) -> None:
    for side in pair.sides:
        wait_for_coordinator(side, names.group)
        for group, topic in (
            (f"{names.group}-own", names.topic),
            (f"{names.group}-both", names.foreign_topic),
            (f"{names.foreign_group}-streams", names.topic),
        ):
            answer = side.ask(streams_join(group, "m", topology(topic)), 0)
            assert answer.error_code == 0, answer


@case(89, (DESCRIBE, G), (DESCRIBE, T), (READ, G), prepare=make_streams_groups)
def streams_describe(side: Side, version: int, names: Names) -> Message:
    return StreamsGroupDescribeRequest(
        group_ids=[
            f"{names.foreign_group}-streams",
            f"{names.group}-both",
            f"{names.group}-own",
            f"{names.group}-absent",
        ],
        include_authorized_operations=True,
    )


# Transactions


def hide_producer(side: Side, answer: Any) -> None:
    if answer.producer_id >= 0:
        answer.producer_id = answer.producer_epoch = 0


@case(22, (IDEMPOTENT_WRITE, C), (WRITE, T), prepare=find_ids, see=hide_producer)
def init_producer(side: Side, version: int, names: Names) -> Message:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=600_000)


@case(22, (WRITE, X), prepare=find_ids, see=hide_producer)
def init_transactional_producer(side: Side, version: int, names: Names) -> Message:
    return InitProducerIdRequest(transactional_id=names.id, transaction_timeout_ms=600_000)


@case(22, (WRITE, X), (IDEMPOTENT_WRITE, C), prepare=find_ids, versions=range(3, 100))
def init_impossible_producer(side: Side, version: int, names: Names) -> Message:
    return InitProducerIdRequest(
        transactional_id=names.id, transaction_timeout_ms=600_000, producer_id=7, producer_epoch=-1
    )


UNKNOWN_PRODUCER = {"producer_id": 987_654, "producer_epoch": 0}


def added(version: int, name: str, topics: list[str]) -> AddPartitionsToTxnRequest:
    listed = [AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics]
    if version >= 4:
        one = AddPartitionsToTxnTransaction(
            transactional_id=name, verify_only=False, topics=listed, **UNKNOWN_PRODUCER
        )
        return AddPartitionsToTxnRequest(transactions=[one])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_topics=listed,
        **{f"v3_and_below_{field}": value for field, value in UNKNOWN_PRODUCER.items()},
    )


@case(24, (WRITE, X), (WRITE, T), (CLUSTER_ACTION, C), prepare=find_ids)
def add_partitions(side: Side, version: int, names: Names) -> Message:
    return added(version, names.id, [*names.topics, "__consumer_offsets"])


@case(24, (WRITE, X), (WRITE, T), (CLUSTER_ACTION, C), prepare=find_ids)
def add_own_partitions(side: Side, version: int, names: Names) -> Message:
    return added(version, names.id, [names.topic])


@case(25, (WRITE, X), (READ, G), prepare=find_ids)
def add_offsets(side: Side, version: int, names: Names) -> Message:
    return AddOffsetsToTxnRequest(transactional_id=names.id, group_id=names.group, **UNKNOWN_PRODUCER)


@case(26, (WRITE, X), prepare=find_ids)
def end_transaction(side: Side, version: int, names: Names) -> Message:
    return EndTxnRequest(transactional_id=names.id, committed=True, **UNKNOWN_PRODUCER)


@case(27, (ALTER, C), (CLUSTER_ACTION, C), prepare=find_ids)
def write_markers(side: Side, version: int, names: Names) -> Message:
    topics = [WritableTxnMarkerTopic(name=names.absent, partition_indexes=[0, 1])]
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(transaction_result=True, topics=topics, coordinator_epoch=0, **UNKNOWN_PRODUCER)
        ]
    )


@case(28, (WRITE, X), (READ, G), (READ, T), prepare=find_ids)
def commit_in_transaction(side: Side, version: int, names: Names) -> Message:
    return TxnOffsetCommitRequest(
        transactional_id=names.id,
        group_id=names.group,
        member_id="",
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                topic_id=side.values.get(f"id of {topic}", UNKNOWN_ID),
                partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0)],
            )
            for topic in names.topics
        ],
        **UNKNOWN_PRODUCER,
    )


def open_transactions(pair: Pair, names: Names) -> None:
    """One with both topics, for each id."""
    find_ids(pair, names)
    for name in (names.id, names.foreign_id):
        begun(pair, name)
        for side in pair.sides:
            wanted = {names.topic: [0], names.foreign_topic: [0]}
            answer = side.ask(add(side, name, wanted), 3)
            codes = {
                one.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            }
            assert codes == {0}, answer


@case(65, (DESCRIBE, X), (DESCRIBE, T), prepare=open_transactions, see=without_times)
def describe_transactions(side: Side, version: int, names: Names) -> Message:
    return DescribeTransactionsRequest(transactional_ids=[names.foreign_id, names.id, f"{names.id}-absent"])


def own_transactions_only(side: Side, answer: Any) -> None:
    listed = answer.transaction_states
    answer.transaction_states = [one for one in listed if is_of_this_test(side, one.transactional_id)]


@case(66, (DESCRIBE, X), prepare=open_transactions, see=own_transactions_only)
def list_transactions(side: Side, version: int, names: Names) -> Message:
    return ListTransactionsRequest()


# Settings

KINDS_OF_SETTINGS = 2, 4, 8, 16, 32


def resources(names: Names) -> list[tuple[int, str]]:
    return [
        (2, names.foreign_topic),
        (2, names.foreign_absent),
        (2, names.topic),
        (2, names.absent),
        (32, names.foreign_group),
        (32, names.group),
        (4, "1"),
        (16, "subscription"),
    ]


@case(32, (DESCRIBE_CONFIGS, T), (DESCRIBE_CONFIGS, G), (DESCRIBE_CONFIGS, C))
def describe_configs(side: Side, version: int, names: Names) -> Message:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=["retention.ms"]
            )
            for kind, name in resources(names)
            if version or kind in (2, 4)  # Kafka 3.9 knows no others
        ]
    )


@case(33, (ALTER_CONFIGS, T), (ALTER_CONFIGS, G), (ALTER_CONFIGS, C))
def alter_configs(side: Side, version: int, names: Names) -> Message:
    return AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name="retention.ms", value="77")] if kind == 2 else [],
            )
            for kind, name in resources(names)
            if kind != 16
        ],
        validate_only=True,
    )


SETTING = {
    2: ("retention.ms", "77"),
    4: ("log.retention.ms", "77"),
    32: ("consumer.session.timeout.ms", "50000"),
}


@case(44, (ALTER_CONFIGS, T), (ALTER_CONFIGS, G), (ALTER_CONFIGS, C))
def incremental_alter_configs(side: Side, version: int, names: Names) -> Message:
    return incremental([(kind, name, *SETTING[kind]) for kind, name in resources(names) if kind != 16])


@case(44, (ALTER_CONFIGS, T), (ALTER_CONFIGS, G), (ALTER_CONFIGS, C))
def bad_alter_configs(side: Side, version: int, names: Names) -> Message:
    """Settings of brokers are looked at before the permission, others after it."""
    return incremental(
        [
            (2, names.topic, "retention.ms", "x"),
            (4, "1", "log.retention.ms", "x"),
            (4, "", "log.retention.ms", "77"),
        ]
    )


def incremental(wanted: list[tuple[int, str, str, str]]) -> Message:
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalResource(
                resource_type=kind,
                resource_name=name,
                configs=[IncrementalConfig(name=setting, config_operation=0, value=value)],
            )
            for kind, name, setting, value in wanted
        ],
        validate_only=True,
    )


@case(74, (DESCRIBE_CONFIGS, C))
def list_config_resources(side: Side, version: int, names: Names) -> Message:
    return ListConfigResourcesRequest(resource_types=[4] if version else [])


# The cluster


@case(34, (ALTER, C))
def alter_log_dirs(side: Side, version: int, names: Names) -> Message:
    topics = [AlterReplicaLogDirTopic(name=names.topic, partitions=[0, 1])]
    return AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path=path, topics=topics) for path in ("/nowhere", "/elsewhere")]
    )


def without_sizes(side: Side, answer: Any) -> None:
    for result in answer.results:
        result.total_bytes = result.usable_bytes = 0


@case(35, (DESCRIBE, C), see=without_sizes)
def describe_log_dirs(side: Side, version: int, names: Names) -> Message:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=names.absent, partitions=[0])])


@case(43, (ALTER, C))
def elect_leaders(side: Side, version: int, names: Names) -> Message:
    return ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic=topic, partitions=[0, 1]) for topic in names.topics[:2]],
        timeout_ms=5_000,
    )


@case(45, (ALTER, C))
def reassign(side: Side, version: int, names: Names) -> Message:
    return AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=None)]
            )
            for topic in names.topics[:2]
        ],
        timeout_ms=5_000,
    )


@case(46, (DESCRIBE, C))
def list_reassignments(side: Side, version: int, names: Names) -> Message:
    return ListPartitionReassignmentsRequest(
        topics=[ListPartitionReassignmentsTopics(name=names.topic, partition_indexes=[0])], timeout_ms=5_000
    )


@case(55, (DESCRIBE, C))
def describe_quorum(side: Side, version: int, names: Names) -> Message:
    """Of a topic that is none of controllers."""
    return DescribeQuorumRequest(
        topics=[QuorumTopic(topic_name=names.absent, partitions=[QuorumPartition(partition_index=0)])]
    )


@case(57, (ALTER, C))
def update_features(side: Side, version: int, names: Names) -> Message:
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=2, upgrade_type=1)
    return fitting(UpdateFeaturesRequest, version, feature_updates=[update], validate_only=True)


@case(60, (DESCRIBE, C), (ALTER, C))
def describe_cluster(side: Side, version: int, names: Names) -> Message:
    return DescribeClusterRequest(include_cluster_authorized_operations=True)


@case(64, (ALTER, C))
def unregister_broker(side: Side, version: int, names: Names) -> Message:
    return UnregisterBrokerRequest(broker_id=77)


@case(94, (ALTER, C))
def unregister_controller(side: Side, version: int, names: Names) -> Message:
    return UnregisterControllerRequest(controller_id=77)


@case(80, (ALTER, C))
def add_voter(side: Side, version: int, names: Names) -> Message:
    return AddRaftVoterRequest(
        cluster_id="another", timeout_ms=1_000, voter_id=5, voter_directory_id=UNKNOWN_ID, listeners=[]
    )


@case(81, (ALTER, C))
def remove_voter(side: Side, version: int, names: Names) -> Message:
    return RemoveRaftVoterRequest(cluster_id="another", voter_id=5, voter_directory_id=UNKNOWN_ID)


# Security


@case(29, (DESCRIBE, C))
def describe_acls(side: Side, version: int, names: Names) -> Message:
    return DescribeAclsRequest(
        resource_type_filter=2,
        resource_name_filter="nothing",
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


@case(30, (ALTER, C))
def create_acls(side: Side, version: int, names: Names) -> Message:
    return CreateAclsRequest(creations=[rule(Need(READ, T), name, "127.9.9.9") for name in (names.topic, "")])


@case(31, (ALTER, C))
def delete_acls(side: Side, version: int, names: Names) -> Message:
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=2,
                resource_name_filter=name,
                pattern_type_filter=3,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            for name in ("nothing", "nobody")
        ]
    )


@case(48, (DESCRIBE_CONFIGS, C))
def describe_quotas(side: Side, version: int, names: Names) -> Message:
    return DescribeClientQuotasRequest(
        components=[ComponentData(entity_type="user", match_type=0, match="nobody")], strict=True
    )


@case(49, (ALTER_CONFIGS, C))
def alter_quotas(side: Side, version: int, names: Names) -> Message:
    entity = [EntityData(entity_type="user", entity_name="nobody")]
    return AlterClientQuotasRequest(
        entries=[EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=1.0, remove=True)])],
        validate_only=True,
    )


@case(50, (DESCRIBE, C))
def describe_scram_users(side: Side, version: int, names: Names) -> Message:
    return DescribeUserScramCredentialsRequest(users=[UserName(name="nobody"), UserName(name="who")])


@case(51, (ALTER, C))
def alter_scram_users(side: Side, version: int, names: Names) -> Message:
    return AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in ("nobody", "who")],
        upsertions=[],
    )


# The walk


def asked_versions(pair: Pair, case: Case) -> list[int]:
    request = find(case.api_key)[0]
    return [version for version in pair.versions(request) if version in case.versions]


def ask(pair: Pair, case: Case, names: Names, client: Client, version: int) -> None:
    pair.ask(
        lambda side: case.build(side, version, names),
        version,
        client.note,
        connection=client.address,
        see=case.see,
        any_order=True,
    )
    if case.undo is not None:
        case.undo(pair, names)


@pytest.mark.parametrize("name", CASES)
def test_what_an_api_refuses_is_refused_alike(pair: Pair, name: str) -> None:
    case = CASES[name]
    versions = asked_versions(pair, case)
    if not versions:
        only_current(pair)
    assert versions, "both serve it"
    names = Names(pair)
    for side in pair.sides:
        side.values["own"] = names.own
    clients = clients_of(case.needs, names)
    install(pair, [one for client in clients for one in client.rules])
    if case.prepare is not None:
        case.prepare(pair, names)
    with pair.collecting():
        for version in versions:
            for client in clients:
                ask(pair, case, names, client, version)
    for side in pair.sides:
        for client in clients:
            side.hang_up(client.address)


def test_every_api_is_asked_or_open(pair: Pair) -> None:
    """Open are SaslHandshake, ApiVersions and SaslAuthenticate; of tokens the owner decides."""
    only_current(pair)
    assert pair.api_keys - {case.api_key for case in CASES.values()} == {17, 18, 36, 38, 39, 40, 41}


# What is no question with one answer


def clients(pair: Pair, names: Names, *rules_of: list[Need]) -> list[Client]:
    """One for each list of needs, which it is allowed for the names of the test."""
    made = []
    for needs in rules_of:
        host = address(pair)
        made.append(Client(host, str(needs), literal(needs, names, host)))
    install(pair, [one for client in made for one in client.rules])
    return made


REPEATED = [
    "0_produce",
    "2_list_offsets",
    "8_offset_commit",
    "9_offset_fetch",
    "12_heartbeat",
    "68_consumer_heartbeat",
    "1_fetch",
    "3_metadata_by_name",
    "10_find_group",
    "15_describe_groups",
    "32_describe_configs",
    "35_describe_log_dirs",
    "60_describe_cluster",
]
"""Questions that change nothing that another one asks for; the first six are remembered as bytes."""


@pytest.mark.parametrize("name", REPEATED)
def test_the_same_bytes_of_two_clients_get_each_its_own_answer(pair: Pair, name: str) -> None:
    """In turn, several times: what one has taught the broker serves no other one."""
    only_current(pair)
    case = CASES[name]
    names = Names(pair)
    allowed, refused = clients(pair, names, case.needs, [])
    if case.prepare is not None:
        case.prepare(pair, names)
    version = asked_versions(pair, case)[-1]

    with pair.collecting():
        for client in (allowed, refused, allowed, allowed, refused, refused, allowed):
            ask(pair, case, names, client, version)


def member(pair: Pair, names: Names, group: str) -> None:
    """A member of a consumer group on both sides, whose heartbeats are remembered."""
    for side in pair.sides:
        wait_for_coordinator(side, group)
        answer = side.ask(consumer_join(group, "m", names.topic), 1)
        assert answer.error_code == 0, answer
        side.values["epoch"] = answer.member_epoch


def test_a_member_does_not_share_its_heartbeat(pair: Pair) -> None:
    only_current(pair)
    names = Names(pair)
    member(pair, names, names.group)
    allowed, refused = clients(pair, names, [Need(READ, G), Need(DESCRIBE, T)], [])
    for client, code in ((allowed, 0), (refused, 30), (allowed, 0), (allowed, 0), (refused, 30)):
        answers = pair.ask(
            lambda side: ConsumerGroupHeartbeatRequest(
                group_id=names.group, member_id="m", member_epoch=side["epoch"]
            ),
            1,
            client.note,
            connection=client.address,
        )
        assert {answer.error_code for answer in answers} == {code}


def test_a_session_is_authorized_with_each_fetch(pair: Pair) -> None:
    """Rules that come later count for the partitions of a session, too."""
    only_current(pair)
    names = Names(pair)
    reader, _ = clients(pair, names, [Need(READ, T)], [])

    def full(side: Side) -> FetchRequest:
        request = fetched(side, 12, names)
        request.session_epoch = 0
        return request

    def seen(side: Side, answer: Any) -> None:
        side.values["session"] = answer.session_id
        side.remember("session", answer.session_id, "session_id")

    def rest(epoch: int) -> Callable[[Side], Message]:
        return lambda side: FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=side["session"], session_epoch=epoch, topics=[]
        )

    pair.ask(full, 12, "full", connection=reader.address, see=seen, any_order=True)
    pair.ask(rest(1), 12, "nothing new", connection=reader.address, any_order=True)
    install(pair, denied([Need(READ, T)], names, reader.address))
    pair.ask(rest(2), 12, "denied meanwhile", connection=reader.address, any_order=True)
    more = rule(Need(READ, T), names.foreign_topic, reader.address)
    install(pair, [more])
    pair.ask(rest(3), 12, "another allowed", connection=reader.address, any_order=True)


def test_a_refusal_without_acknowledgement_closes_the_connection(pair: Pair) -> None:
    only_current(pair)
    names = Names(pair)
    writer, other = clients(pair, names, [Need(WRITE, T)], [])
    for client, ends in ((writer, False), (other, True)):
        for transactional_id, is_transactional in ((None, False), (names.id, True)):
            wanted = produced(
                pair.kafka, 9, names, records(7, 0, transactional=is_transactional), transactional_id
            )
            wanted.acks = 0
            wanted.topic_data = wanted.topic_data[:1]
            for side in pair.sides:
                side.request(wanted, 9, client.address)
                asked = side.ask(metadata_of(names.topic), 9, client.address)
                is_closed = asked == CLOSED
                assert is_closed is (ends or is_transactional), (side.name, client.note, transactional_id)


def test_a_fetch_that_waits_was_authorized_when_it_came(pair: Pair) -> None:
    only_current(pair)
    names = Names(pair)
    (reader,) = clients(pair, names, [Need(READ, T)])
    for side in pair.sides:
        waiting = fetched(side, 12, names)
        waiting.topics = waiting.topics[:1]
        waiting.max_wait_ms, waiting.min_bytes = 6_000, 1
        side.request(waiting, 12, reader.address)
    install(pair, denied([Need(READ, T)], names, reader.address))
    answers = []
    for side in pair.sides:
        side.ask(produced(side, 9, names, records()), 9)
        answer = side.answer(FetchRequest, 12, reader.address)
        answers.append(side.plain(answer, 12))
        assert bool(answer.responses[0].partitions[0].records), side.name
    pair.compare("Fetch", *answers)


def test_a_share_session_is_authorized_with_each_request(pair: Pair) -> None:
    only_current(pair)
    names = Names(pair)
    make_share_groups(pair, names)
    group = f"{names.group}-both"
    reader, refused = clients(pair, names, [Need(READ, G), Need(READ, T)], [])
    own, foreign = (names.topic, 0), (names.foreign_topic, 0)

    def asks(what: str, build: Callable[[Side], Message], version: int = 2) -> None:
        pair.ask(build, version, what, connection=reader.address, any_order=True)

    first = {"max_wait_ms": 2_000, "min_bytes": 1}
    for side in pair.sides:
        # Its state is read with the first request, and then there are no records.
        side.ask(sharing.fetch_request(side, group, "m", 0, [own], **first), 2, reader.address)
        answer = side.ask(produced(side, 9, names, records()), 9)
        assert answer.responses, side.name
    asks("reads", lambda side: sharing.fetch_request(side, group, "m", 1, [own], **first))
    asks("a foreign one", lambda side: sharing.fetch_request(side, group, "m", 2, [foreign], max_wait_ms=0))
    for version in (1, 2):
        told: dict[sharing.Place, list[sharing.Acknowledged]] = {
            own: [(version - 1, version - 1, [1])],
            foreign: [(0, 0, [1])],
        }
        epoch = 2 + version
        asks(
            "acknowledges",
            lambda side, told=told, epoch=epoch: sharing.acknowledge_request(side, group, "m", epoch, told),
            version,
        )
    install(pair, denied([Need(READ, T)], names, reader.address))
    told = {own: [(2, 2, [1])]}
    asks("denied meanwhile", lambda side: sharing.acknowledge_request(side, group, "m", 5, told))
    asks(
        "denied meanwhile",
        lambda side: sharing.fetch_request(side, group, "m", 6, acknowledged=told, max_wait_ms=0),
    )
    pair.ask(
        lambda side: sharing.acknowledge_request(side, group, "m", 7, told),
        2,
        "of another client",
        connection=refused.address,
    )


def test_patterns_find_only_topics_that_the_member_may_describe(pair: Pair) -> None:
    only_current(pair)
    names = Names(pair)
    (client,) = clients(pair, names, [Need(READ, G), Need(DESCRIBE, T)])
    pattern = f"({names.topic}|{names.foreign_topic})"
    found = []
    for side in pair.sides:
        wait_for_coordinator(side, names.group)
        join = consumer_join(names.group, "m", subscribed_topic_names=None, subscribed_topic_regex=pattern)
        answer = side.ask(join, 1, client.address)
        assert answer.error_code == 0, (side.name, answer)
        epoch, assigned = answer.member_epoch, answer.assignment
        deadline = time.monotonic() + SECONDS
        pause = Pauses()
        while assigned is None or not assigned.topic_partitions:
            assert time.monotonic() < deadline, side.name
            beat = ConsumerGroupHeartbeatRequest(group_id=names.group, member_id="m", member_epoch=epoch)
            answer = side.ask(beat, 1, client.address)
            assert answer.error_code == 0, (side.name, answer)
            epoch, assigned = answer.member_epoch, answer.assignment
            pause()
        found.append([side.plain(one.topic_id, 1) for one in assigned.topic_partitions])
    assert found == [[f"<id of {names.topic}>"]] * 2


@pytest.mark.parametrize("may_create", [[], [Need(CREATE, C)], [Need(CREATE, T)]])
def test_a_streams_member_is_told_that_it_may_not_create_its_topics(
    pair: Pair, may_create: list[Need]
) -> None:
    only_current(pair)
    names = Names(pair)
    (client,) = clients(pair, names, [Need(READ, G), Need(DESCRIBE, T), *may_create])
    for side in pair.sides:
        wait_for_coordinator(side, names.group)
    wanted = topology(names.topic, changelog=names.absent)
    pair.ask(lambda side: streams_join(names.group, "m", wanted), 0, "join", connection=client.address)
    if not may_create:
        (answer,) = pair.odradek.ask(metadata_of(names.absent), 12).topics
        assert answer.error_code == 3, "not created"
    else:
        for side in pair.sides:
            wait_until_readable(side, names.absent, 1)
