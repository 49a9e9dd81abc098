"""The listener for controllers of a node alone (`process.roles=broker,controller`), asked as Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.combined import NODE_ID as NODE
from compat_tests.combined import CombinedNode
from compat_tests.differential.harness import CLOSED, Pair, Side, common_versions, served_versions, side_of
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest
from odradek.wire.messages.add_raft_voter import Listener as VoterListener
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_acls import DescribeAclsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek.wire.messages.unregister_controller import UnregisterControllerRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

ACCESS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOPIC, BROKER = 2, 4
METADATA_ID = bytes(15) + b"\1"
OF_QUORUMS = {52, 53, 54, 70, 82}
"""Vote, BeginQuorumEpoch, EndQuorumEpoch, ControllerRegistration and UpdateRaftVoter: among controllers."""
UNSERVED = {41, 50}
"""DescribeDelegationToken and DescribeUserScramCredentials: Kafka's controller names them, and fails."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as stack:
        kafka = stack.enter_context(reference.Kafka(properties=ACCESS, host=shared_host()))
        ours = stack.enter_context(CombinedNode(tmp_path_factory.mktemp("alone"), ACCESS))
        assert isinstance(kafka, reference.Kafka)
        sides = [
            side_of("kafka", f"127.0.0.1:{kafka.controller_port}"),
            side_of("odradek", f"127.0.0.1:{ours.controller_port}"),
        ]
        for side in sides:
            stack.callback(side.close)
            side.remember("cluster id", side.ask(DescribeClusterRequest(endpoint_type=2), 1).cluster_id)
            described = side.ask(described_quorum(), 2).topics[0].partitions[0]
            side.remember("directory", described.current_voters[0].replica_directory_id)
            side.values["epoch"] = described.leader_epoch
            side.remember("epoch", described.leader_epoch, "leader_epoch")
        yield Pair(*sides, common_versions(*sides))


def described_quorum(topic: str = "__cluster_metadata", partition: int = 0) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[TopicData(topic_name=topic, partitions=[PartitionData(partition_index=partition)])]
    )


def create(pair: Pair, name: str, partitions: int = 1, factor: int = 1, **configs: str) -> None:
    def see(side: Side, answer: Any) -> None:
        side.remember(f"id of {name}", answer.topics[0].topic_id)

    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=one, value=value) for one, value in configs.items()],
    )
    pair.ask(lambda side: CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, see=see)


def test_the_same_apis_in_the_same_versions_but_for_those_among_controllers(pair: Pair) -> None:
    theirs, ours = map(served_versions, pair.sides)
    assert theirs.keys() - ours.keys() == OF_QUORUMS | UNSERVED
    assert ours.keys() <= theirs.keys()
    for key, one in ours.items():
        # Older versions are served here, too.
        assert one.stop == theirs[key].stop, key
        assert one.start <= theirs[key].start, key


def test_what_only_brokers_serve_closes_the_connection(pair: Pair) -> None:
    for side in pair.sides:
        assert side.ask(MetadataRequest(topics=None), 9) == CLOSED


def without_progress(value: Any) -> Any:
    """A plain value without offsets and times of the log, to which Kafka appends all the time."""
    if isinstance(value, dict):
        progress = ("offset", "timestamp", "watermark")
        return {
            name: without_progress(one)
            for name, one in value.items()
            if not any(word in name for word in progress)
        }
    return [without_progress(one) for one in value] if isinstance(value, list) else value


def test_the_cluster_and_its_quorum(pair: Pair) -> None:
    for endpoint_type in (1, 2, 3):
        pair.sweep(
            DescribeClusterRequest,
            lambda side, version, kind=endpoint_type: DescribeClusterRequest(
                endpoint_type=kind if version else 1, include_cluster_authorized_operations=True
            ),
        )
    for topic, partition in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("other", 0)):
        for version in pair.versions(DescribeQuorumRequest):
            answers = [side.ask(described_quorum(topic, partition), version) for side in pair.sides]
            plain = [
                without_progress(side.plain(one, version))
                for side, one in zip(pair.sides, answers, strict=True)
            ]
            pair.compare(f"DescribeQuorum v{version}", *plain)


def test_topics_are_made_grow_and_go(pair: Pair) -> None:
    create(pair, "a", 2)
    create(pair, "a", 2)
    create(pair, "two-replicas", 1, 2)
    create(pair, "with-settings", 1, 1, **{"retention.ms": "1000"})
    create(pair, "wrong-settings", 1, 1, **{"retention.ms": "x"})
    for count in (1, 3):
        grown = CreatePartitionsTopic(name="a", count=count, assignments=None)
        pair.ask(lambda side, one=grown: CreatePartitionsRequest(topics=[one], timeout_ms=30_000), 3)
    for name in ("with-settings", "nowhere"):
        gone = DeleteTopicState(name=name)
        pair.ask(lambda side, one=gone: DeleteTopicsRequest(topics=[one], timeout_ms=30_000), 6)


@pytest.mark.parametrize(
    ("kind", "name", "config"),
    [
        (BROKER, "1", ("log.cleaner.threads", "2")),
        (BROKER, "", ("log.cleaner.threads", "2")),
        (BROKER, "7", ("log.cleaner.threads", "2")),
        (TOPIC, "settings", ("retention.ms", "2000")),
        (TOPIC, "settings", ("retention.ms", "x")),
        (TOPIC, "nowhere", ("retention.ms", "2000")),
    ],
)
def test_settings_are_changed_and_described(
    pair: Pair, kind: int, name: str, config: tuple[str, str]
) -> None:
    create(pair, "settings")
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=config[0], config_operation=0, value=config[1])],
    )
    changed, _ = pair.ask(lambda side: IncrementalAlterConfigsRequest(resources=[resource]), 1)
    is_changed = not changed.responses[0].error_code
    described = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[config[0], "min.insync.replicas"]
    )

    def is_told(answer: Any) -> bool:
        return not is_changed or config in [(one.name, one.value) for one in answer.results[0].configs]

    pair.ask(
        lambda side: DescribeConfigsRequest(resources=[described], include_synonyms=True), 4, settle=is_told
    )


def test_rules_are_made_described_and_removed(pair: Pair) -> None:
    rule = {
        "resource_type": TOPIC,
        "resource_name": "a",
        "principal": "User:one",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    creation = AclCreation(resource_pattern_type=3, **rule)
    pair.ask(lambda side: CreateAclsRequest(creations=[creation]), 3)
    wanted = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    pair.ask(lambda side: DescribeAclsRequest(pattern_type_filter=1, **wanted), 3)
    removed = DeleteAclsFilter(pattern_type_filter=1, **wanted)
    pair.ask(lambda side: DeleteAclsRequest(filters=[removed]), 3)
    pair.ask(lambda side: DescribeAclsRequest(pattern_type_filter=1, **wanted), 3)


def test_users_and_quotas_are_changed(pair: Pair) -> None:
    upsertion = ScramCredentialUpsertion(
        name="one", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
    )
    for request in (
        AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]),
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)], upsertions=[]
        ),
    ):
        pair.ask(lambda side, one=request: one, 0)
    for key in ("producer_byte_rate", "no_such_quota"):
        entry = EntryData(
            entity=[EntityData(entity_type="user", entity_name="one")],
            ops=[OpData(key=key, value=1000.0, remove=False)],
        )
        pair.ask(lambda side, one=entry: AlterClientQuotasRequest(entries=[one], validate_only=False), 1)


@pytest.mark.parametrize(
    ("feature", "level", "kind"),
    [
        ("metadata.version", 99, 1),
        ("no.such.feature", 1, 1),
        ("share.version", 2, 1),
        ("kraft.version", 1, 1),
    ],
)
def test_feature_levels(pair: Pair, feature: str, level: int, kind: int) -> None:
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    pair.sweep(UpdateFeaturesRequest, lambda side, version: UpdateFeaturesRequest(feature_updates=[update]))


def test_leaders_and_reassignments(pair: Pair) -> None:
    create(pair, "moved", 2)
    wanted = [
        TopicPartitions(topic="moved", partitions=[0, 1, 7]),
        TopicPartitions(topic="no", partitions=[0]),
    ]
    for kind, some in ((0, wanted), (1, wanted), (0, None)):
        pair.ask(
            lambda side, kind=kind, some=some: ElectLeadersRequest(election_type=kind, topic_partitions=some),
            2,
            any_order=True,
        )
    for replicas in ([1], [1, 2], [], None):
        moved = ReassignableTopic(
            name="moved", partitions=[ReassignablePartition(partition_index=0, replicas=replicas)]
        )
        pair.ask(lambda side, one=moved: AlterPartitionReassignmentsRequest(topics=[one]), 1)
    pair.ask(lambda side: ListPartitionReassignmentsRequest(topics=None), 0)


def test_nodes_that_are_not_there_are_not_unregistered(pair: Pair) -> None:
    pair.ask(lambda side: UnregisterBrokerRequest(broker_id=99), 0)
    for controller in (NODE, 99):
        pair.ask(lambda side, one=controller: UnregisterControllerRequest(controller_id=one), 0)


def test_voters_are_not_changed(pair: Pair) -> None:
    listener = VoterListener(name="CONTROLLER", host="127.0.0.1", port=1)
    for voter in (NODE, 2):
        pair.ask(
            lambda side, voter=voter: RemoveRaftVoterRequest(
                cluster_id=side["cluster id"],
                voter_id=voter,
                voter_directory_id=side["directory"] if voter == NODE else bytes(15) + b"\7",
            ),
            0,
        )
    pair.ask(
        lambda side: AddRaftVoterRequest(
            cluster_id=side["cluster id"],
            timeout_ms=1000,
            voter_id=NODE,
            voter_directory_id=bytes(15) + b"\7",
            listeners=[listener],
        ),
        0,
    )


def test_the_log_is_fetched_and_refusals_are_the_same(pair: Pair) -> None:
    def fetch(
        side: Side, *, epoch: int | None = None, offset: int = 0, cluster: str | None = None
    ) -> FetchRequest:
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=side["epoch"] if epoch is None else epoch,
            fetch_offset=offset,
            last_fetched_epoch=0,
            partition_max_bytes=1000,
        )
        return FetchRequest(
            cluster_id=cluster,
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchTopic(topic_id=METADATA_ID, partitions=[partition])],
        )

    for side in pair.sides:
        answer = side.ask(fetch(side), 17)
        (topic,) = answer.responses
        assert topic.partitions[0].error_code == 0
        assert topic.partitions[0].high_watermark > 0
        assert topic.partitions[0].records or topic.partitions[0].snapshot_id.end_offset >= 0
    for more in ({"cluster": "another"}, {"epoch": -1}, {"offset": -1}):
        answers = [side.ask(fetch(side, **more), 17) for side in pair.sides]
        codes = [
            (one.error_code, [each.error_code for topic in one.responses for each in topic.partitions])
            for one in answers
        ]
        assert codes[0] == codes[1], more
