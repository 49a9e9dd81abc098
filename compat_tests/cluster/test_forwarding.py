"""Requests that the controllers carry out are answered by a node of ours as by a broker of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.differential.harness import Side
from compat_tests.quorum import CONTROLLER_ID, KafkaMember, OdradekMember
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from odradek.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek.wire.messages.unregister_controller import UnregisterControllerRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

Sides = tuple[Side, Side]


@pytest.fixture(scope="module")
def sides(odradek: OdradekMember, kafka: KafkaMember) -> Iterator[Sides]:
    """Ours first."""
    ours, theirs = Side("odradek", odradek.bootstrap_servers), Side("kafka", kafka.bootstrap_servers)
    yield ours, theirs
    ours.close()
    theirs.close()


TOPIC, PARTITION = 2, 0
REQUESTS: list[tuple[Any, int]] = [
    (
        CreateTopicsRequest(
            topics=[CreatableTopic(name="planned", num_partitions=2, replication_factor=1)],
            validate_only=True,
        ),
        7,
    ),
    (
        CreateTopicsRequest(topics=[CreatableTopic(name="a/b", num_partitions=1, replication_factor=1)]),
        2,
    ),
    (
        CreateTopicsRequest(topics=[CreatableTopic(name="much", num_partitions=1, replication_factor=9)]),
        5,
    ),
    (DeleteTopicsRequest(topics=[DeleteTopicState(name="absent")], timeout_ms=1000), 6),
    (DeleteTopicsRequest(topic_names=["absent", "absent"], timeout_ms=1000), 4),
    (
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="absent", count=3, assignments=None)],
            timeout_ms=1000,
            validate_only=False,
        ),
        3,
    ),
    (
        AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name="absent",
                    configs=[AlterableConfig(name="retention.ms", value="1")],
                )
            ],
            validate_only=False,
        ),
        2,
    ),
    (ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="absent", partitions=[PARTITION])]), 2),
    (
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="absent", partitions=[ReassignablePartition(partition_index=0, replicas=[1])]
                )
            ]
        ),
        0,
    ),
    (ListPartitionReassignmentsRequest(topics=None), 0),
    (
        AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type="user", entity_name="u")],
                    ops=[OpData(key="no.such.quota", value=1.0, remove=False)],
                )
            ],
            validate_only=True,
        ),
        1,
    ),
    (
        UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature="no.such.feature", max_version_level=1)],
            validate_only=True,
        ),
        2,
    ),
    (UnregisterBrokerRequest(broker_id=4711), 0),
    (UnregisterControllerRequest(controller_id=4711), 0),
    (UnregisterControllerRequest(controller_id=CONTROLLER_ID), 0),
    (
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=TOPIC,
                    resource_name_filter="t",
                    principal_filter=None,
                    host_filter=None,
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        3,
    ),
    (RemoveRaftVoterRequest(cluster_id=None, voter_id=4711, voter_directory_id=bytes(15) + b"\7"), 0),
]


@pytest.mark.parametrize(
    ("request_", "version"),
    REQUESTS,
    ids=[f"{type(one).__name__}-{number}" for number, (one, _) in enumerate(REQUESTS)],
)
def test_a_forwarded_request_is_answered_as_by_kafka(sides: Sides, request_: Any, version: int) -> None:
    ours, theirs = (side.ask(request_, version) for side in sides)
    assert not isinstance(theirs, str), theirs
    for answer in (ours, theirs):
        for topic in getattr(answer, "topics", None) or ():
            # Each validation makes up an id.
            topic.topic_id = bytes(16)
    assert ours == theirs


def test_what_one_broker_has_created_the_other_serves(sides: Sides) -> None:
    ours, theirs = sides
    for number, side in enumerate((ours, theirs)):
        name = f"by-{side.name}"
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1)]
        )
        answer = side.ask(request, 7)
        assert [one.error_code for one in answer.topics] == [ErrorCode.NONE]
        again = sides[1 - number].ask(request, 7)
        assert [one.error_code for one in again.topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]
