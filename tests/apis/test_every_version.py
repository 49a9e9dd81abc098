"""Every version of every API in the table is answered, and what it answers can be written in that version."""

import sys
from dataclasses import replace

from odradek.apis.table import MODULES
from odradek.wire.messages import (
    alter_configs,
    find,
    incremental_alter_configs,
    share_fetch,
    versions_of,
)
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.add_raft_voter import Listener
from odradek.wire.messages.alter_client_quotas import EntityData, EntryData, OpData
from odradek.wire.messages.alter_partition_reassignments import ReassignablePartition, ReassignableTopic
from odradek.wire.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirTopic
from odradek.wire.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.create_acls import AclCreation
from odradek.wire.messages.create_delegation_token import CreatableRenewers
from odradek.wire.messages.create_partitions import CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig
from odradek.wire.messages.delete_acls import DeleteAclsFilter
from odradek.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from odradek.wire.messages.delete_topics import DeleteTopicState
from odradek.wire.messages.describe_client_quotas import ComponentData
from odradek.wire.messages.describe_configs import DescribeConfigsResource
from odradek.wire.messages.describe_delegation_token import DescribeDelegationTokenOwner
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic
from odradek.wire.messages.describe_producers import TopicRequest
from odradek.wire.messages.describe_quorum import PartitionData, TopicData
from odradek.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequestGroup
from odradek.wire.messages.describe_user_scram_credentials import UserName
from odradek.wire.messages.elect_leaders import TopicPartitions
from odradek.wire.messages.fetch import FetchPartition, FetchTopic
from odradek.wire.messages.join_group import JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import MemberIdentity
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsTopics
from odradek.wire.messages.metadata import MetadataRequestTopic
from odradek.wire.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from odradek.wire.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from odradek.wire.messages.produce import PartitionProduceData, TopicProduceData
from odradek.wire.messages.streams_group_topology_description_update import TopologyDescription
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.messages.update_features import FeatureUpdateKey
from odradek.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from odradek.wire.schema import ZERO_UUID, fields_of
from tests.kit.collecting import collected

SERVED = {key: versions_of(key) for key in MODULES}
GROUP = {"group_id": "g", "generation_id": 1, "member_id": "m"}
ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
TRANSACTION = {"transactional_id": "me", "producer_id": 5, "producer_epoch": 0}


def partitions_to_add(version):
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
    if version < 4:
        fields = {f"v3_and_below_{name}": value for name, value in TRANSACTION.items()}
        return {**fields, "v3_and_below_topics": topics}
    asked = AddPartitionsToTxnTransaction(**TRANSACTION, verify_only=False, topics=topics)
    return {"transactions": [asked]}


def upgrade_type(version):
    return {"allow_downgrade": False} if version == 0 else {"upgrade_type": 1}


def offsets_to_fetch(version, topic_id):
    if version < 8:
        return {"group_id": "g", "topics": [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]}
    topic = OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0])
    return {"groups": [OffsetFetchRequestGroup(group_id="g", topics=[topic])]}


def fields(node, key, version, topic):
    """A request that means something, for a topic `t` that exists."""
    topic_id = topic.topic_id
    records = node.batch(b"a") if version >= 3 else None
    by_key = {
        0: lambda: {
            "acks": 1,
            "timeout_ms": 1,
            "topic_data": [
                TopicProduceData(
                    name="t",
                    topic_id=topic_id,
                    partition_data=[PartitionProduceData(index=0, records=records)],
                )
            ],
        },
        1: lambda: {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "topics": [
                FetchTopic(
                    topic="t",
                    topic_id=topic_id,
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=9)],
                )
            ],
        },
        2: lambda: {
            "replica_id": -1,
            "topics": [
                ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            ],
        },
        3: lambda: {"topics": [MetadataRequestTopic(name="t")]},
        8: lambda: {
            "group_id": "g",
            "topics": [
                OffsetCommitRequestTopic(
                    name="t",
                    topic_id=topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=None
                        )
                    ],
                )
            ],
        },
        9: lambda: offsets_to_fetch(version, topic_id),
        10: lambda: {"key": "g"} if version < 4 else {"coordinator_keys": ["g", "h"]},
        11: lambda: {
            "group_id": f"g{version}",
            "session_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"\0")],
        },
        12: lambda: GROUP,
        13: lambda: (
            {"group_id": "g", "member_id": "m"}
            if version < 3
            else {"group_id": "g", "members": [MemberIdentity(member_id="m")]}
        ),
        14: lambda: GROUP,
        15: lambda: {"groups": ["g"]},
        16: dict,
        17: lambda: {"mechanism": "PLAIN"},
        18: lambda: {"client_software_name": "x", "client_software_version": "1"} if version >= 3 else {},
        19: lambda: {
            "topics": [
                CreatableTopic(
                    name="new",
                    num_partitions=2,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name="retention.ms", value="1000")],
                )
            ],
            "timeout_ms": 1,
        },
        20: lambda: (
            {"topic_names": ["t"], "timeout_ms": 1}
            if version < 6
            else {"topics": [DeleteTopicState(name="t", topic_id=ZERO_UUID)], "timeout_ms": 1}
        ),
        21: lambda: {
            "topics": [
                DeleteRecordsTopic(
                    name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)]
                )
            ],
            "timeout_ms": 1,
        },
        22: lambda: {"transactional_id": None, "transaction_timeout_ms": 1},
        23: lambda: {
            "topics": [
                OffsetForLeaderTopic(
                    topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
                )
            ]
        },
        24: lambda: partitions_to_add(version),
        25: lambda: {**TRANSACTION, "group_id": "g"},
        26: lambda: {**TRANSACTION, "committed": True},
        27: lambda: {
            "markers": [
                WritableTxnMarker(
                    producer_id=5,
                    producer_epoch=0,
                    transaction_result=True,
                    topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
                    coordinator_epoch=0,
                )
            ]
        },
        28: lambda: {
            **TRANSACTION,
            "group_id": "g",
            "topics": [
                TxnOffsetCommitRequestTopic(
                    name="t",
                    topic_id=topic_id,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=None
                        )
                    ],
                )
            ],
        },
        29: lambda: ANY_ACL,
        30: lambda: {
            "creations": [
                AclCreation(
                    resource_type=2,
                    resource_name="t",
                    principal="User:a",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        },
        31: lambda: {"filters": [DeleteAclsFilter(**ANY_ACL)]},
        32: lambda: {
            "resources": [
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
                for kind, name in ((2, "t"), (4, "1"))
            ]
        },
        33: lambda: {
            "resources": [
                alter_configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[alter_configs.AlterableConfig(name="flush.ms", value="5")],
                )
            ],
            "validate_only": False,
        },
        34: lambda: {
            "dirs": [
                AlterReplicaLogDir(
                    path=str(node.store.directories[0]),
                    topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])],
                )
            ]
        },
        35: lambda: {"topics": [DescribableLogDirTopic(topic="t", partitions=[0])]},
        36: lambda: {"auth_bytes": b"\0a\0b"},
        37: lambda: {
            "topics": [CreatePartitionsTopic(name="t", count=3, assignments=None)],
            "timeout_ms": 1,
            "validate_only": False,
        },
        38: lambda: {
            "renewers": [CreatableRenewers(principal_type="User", principal_name="a")],
            "max_lifetime_ms": -1,
        },
        39: lambda: {"hmac": b"token", "renew_period_ms": 1},
        40: lambda: {"hmac": b"token", "expiry_time_period_ms": 1},
        41: lambda: {"owners": [DescribeDelegationTokenOwner(principal_type="User", principal_name="a")]},
        42: lambda: {"groups_names": ["g"]},
        43: lambda: {"topic_partitions": [TopicPartitions(topic="t", partitions=[0])]},
        44: lambda: {
            "resources": [
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[
                        incremental_alter_configs.AlterableConfig(
                            name="flush.ms", config_operation=0, value="5"
                        )
                    ],
                )
            ],
            "validate_only": False,
        },
        45: lambda: {
            "topics": [
                ReassignableTopic(
                    name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[1])]
                )
            ]
        },
        46: lambda: {"topics": [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])]},
        47: lambda: {
            "group_id": "g",
            "topics": [
                OffsetDeleteRequestTopic(
                    name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        },
        48: lambda: {
            "components": [ComponentData(entity_type="user", match_type=0, match="a")],
            "strict": True,
        },
        49: lambda: {
            "entries": [
                EntryData(
                    entity=[EntityData(entity_type="user", entity_name="a")],
                    ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)],
                )
            ],
            "validate_only": False,
        },
        50: lambda: {"users": [UserName(name="a")]},
        51: lambda: {
            "deletions": [ScramCredentialDeletion(name="a", mechanism=1)],
            "upsertions": [
                ScramCredentialUpsertion(
                    name="b", mechanism=2, iterations=4096, salt=b"s", salted_password=b"p"
                )
            ],
        },
        55: lambda: {
            "topics": [
                TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
            ]
        },
        57: lambda: {
            "feature_updates": [
                FeatureUpdateKey(feature="transaction.version", max_version_level=1, **upgrade_type(version))
            ]
        },
        60: dict,
        61: lambda: {"topics": [TopicRequest(name="t", partition_indexes=[0])]},
        64: lambda: {"broker_id": 1},
        65: lambda: {"transactional_ids": ["me"]},
        66: lambda: {"state_filters": ["Ongoing"], "producer_id_filters": []},
        68: lambda: {
            "group_id": f"c{version}",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        },
        69: lambda: {"group_ids": ["g"], "include_authorized_operations": True},
        71: lambda: {"client_instance_id": bytes(16)},
        72: lambda: {
            "client_instance_id": bytes(range(16)),
            "subscription_id": 0,
            "terminating": False,
            "compression_type": 0,
            "metrics": b"",
        },
        74: dict,
        75: lambda: {"topics": []},
        76: lambda: {"group_id": "s", "member_id": "m", "member_epoch": -1},
        77: lambda: {"group_ids": ["g"], "include_authorized_operations": True},
        78: lambda: {"group_id": "s", "member_id": "m", "max_bytes": 1, "topics": [shared(topic)]},
        79: lambda: {"group_id": "s", "member_id": "m", "share_session_epoch": 1, "topics": []},
        80: lambda: {
            "cluster_id": None,
            "timeout_ms": 1,
            "voter_id": 2,
            "voter_directory_id": bytes(range(16)),
            "listeners": [Listener(name="CONTROLLER", host="localhost", port=1)],
        },
        81: lambda: {"cluster_id": None, "voter_id": 1, "voter_directory_id": bytes(range(16))},
        **{
            shares: lambda: {"group_id": "g", "topics": [share_states(key, topic)]}
            for shares in (83, 84, 85, 86, 87)
        },
        88: lambda: {"group_id": "g", "member_id": "m", "member_epoch": 1, "rebalance_timeout_ms": -1},
        89: lambda: {"group_ids": ["g"]},
        90: lambda: {"groups": [DescribeShareGroupOffsetsRequestGroup(group_id="g")]},
        91: lambda: {"group_id": "g", "topics": []},
        92: lambda: {"group_id": "g", "topics": []},
        93: lambda: {
            "group_id": "g",
            "member_id": "m",
            "topology_epoch": 0,
            "topology_description": TopologyDescription(subtopologies=[], global_stores=[]),
        },
        94: lambda: {"controller_id": 2},
    }
    return by_key[key]()


def shared(topic):
    partitions = [share_fetch.FetchPartition(partition_index=0)]
    return share_fetch.FetchTopic(topic_id=topic.topic_id, partitions=partitions)


def share_states(key, topic):
    """The states of one partition, as a request of this API names it."""
    module = sys.modules[find(key)[0].__module__]
    topics = next(field for field in fields_of(find(key)[0]) if field.name == "topics").type.item
    return topics(topic_id=topic.topic_id, partitions=[module.PartitionData(partition=0)])


def test_a_node_serves_the_versions_of_its_messages(node):
    assert {key: one.api.versions for key, one in node.apis.items()} == SERVED


def test_versions_begin_at_0_but_for_those_of_an_early_access():
    """Old clients need the low ones. Kafka's last version of each is asked of Kafka itself
    (`compat_tests/differential/test_administration.py`)."""
    assert {key for key, versions in SERVED.items() if versions[0] > 0} == {76, 77, 78, 79}


def test_every_version_is_answered(short_lived):
    with collected() as failures:
        for key in SERVED:
            with failures.of(f"API {key}"), short_lived() as node:
                check_that_every_version_is_answered(node, key)


def check_that_every_version_is_answered(node, key):
    node.create("__consumer_offsets")
    node.loop.turn()
    for version in SERVED[key]:
        topic = node.machine.view.topics.get("t") or node.create("t")
        request = find(key)[0](**fields(node, key, version, topic))
        assert node.ask(request, version) is not None, version


def test_every_version_can_refuse_everything(short_lived):
    """The same requests, when nothing that they name exists."""
    with collected() as failures:
        for key in SERVED:
            with failures.of(f"API {key}"), short_lived() as node:
                check_that_every_version_can_refuse(node, key)


def check_that_every_version_can_refuse(node, key):
    topic = node.create("t")
    node.machine.delete_topics(["t"])
    node.machine.publisher.view = replace(node.machine.view, brokers={})
    for version in SERVED[key]:
        request = find(key)[0](**fields(node, key, version, topic))
        assert node.ask(request, version) is not None, version
