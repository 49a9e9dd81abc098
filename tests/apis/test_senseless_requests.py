"""Requests of administrators that are refused, each for its own reason, and change nothing."""

import pytest

from odradek.coordinator.cluster.features import first_levels
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from odradek.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

INVALID, UNSUPPORTED = ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION
EXACT, DEFAULT, ANY = range(3)


@pytest.mark.parametrize(
    ("components", "code", "words"),
    [
        ([("", EXACT, "a")], INVALID, "empty entity type"),
        ([("user", EXACT, "a"), ("user", DEFAULT, None)], INVALID, "more than once"),
        ([("group", EXACT, "a")], UNSUPPORTED, "Unsupported entity type group"),
        ([("user", 3, None)], INVALID, "Unknown match type 3"),
        ([("user", EXACT, None)], INVALID, "MATCH_TYPE_EXACT goes with a match string"),
        ([("user", DEFAULT, "a")], INVALID, "MATCH_TYPE_DEFAULT goes with no match string"),
        ([("user", ANY, "a")], INVALID, "MATCH_TYPE_SPECIFIED goes with no match string"),
        ([("ip", ANY, None), ("client-id", ANY, None)], INVALID, "IP"),
    ],
)
def test_a_filter_of_quotas_that_makes_no_sense_is_refused(node, components, code, words):
    asked = [ComponentData(entity_type=kind, match_type=how, match=what) for kind, how, what in components]
    answer = node.ask(DescribeClientQuotasRequest(components=asked, strict=False), 1)
    assert (answer.error_code, answer.entries) == (code, None)
    assert words in answer.error_message


def altered(node, entity, *ops):
    """The answers for an entity, given as (type, name), with operations, given as (key, value or None)."""
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )
    (answer,) = node.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1).entries
    return answer


@pytest.mark.parametrize(
    ("entity", "ops", "words"),
    [
        ([], [("producer_byte_rate", 1.0)], "empty client quota entity"),
        ([("group", "a")], [("producer_byte_rate", 1.0)], "Unhandled client quota entity type: group"),
        ([("user", "")], [("producer_byte_rate", 1.0)], "Empty user not supported"),
        ([("ip", "::1"), ("user", "a")], [("connection_creation_rate", 1.0)], "IP"),
        ([("user", "a")], [("connection_creation_rate", 1.0)], "Invalid configuration key"),
        ([("ip", "::1")], [("producer_byte_rate", 1.0)], "Invalid configuration key"),
        ([("user", "a")], [("request_percentage", -1.0)], "must be greater than 0"),
        ([("ip", "::1")], [("connection_creation_rate", 3e9)], "can be 2147483647 at most"),
        ([("user", "a")], [("consumer_byte_rate", 1.5)], "cannot be a fractional value"),
        ([("user", "a")], [("consumer_byte_rate", 1.0), ("consumer_byte_rate", 2.0)], "twice"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(node, entity, ops, words):
    answer = altered(node, entity, *ops)
    assert answer.error_code == INVALID
    assert words in answer.error_message
    assert sorted((one.entity_type, one.entity_name) for one in answer.entity) == sorted(entity)


def test_a_quota_that_is_not_there_can_be_removed(node):
    assert altered(node, [("user", None)], ("producer_byte_rate", None)).error_code == 0


def test_an_entity_that_is_named_twice_is_answered_once_and_refused(node):
    entity = [EntityData(entity_type="user", entity_name="a")]
    entry = EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=0.0, remove=True)])
    (answer,) = node.ask(AlterClientQuotasRequest(entries=[entry, entry], validate_only=False), 1).entries
    assert answer.error_code == INVALID


def user(name="a", mechanism=1, iterations=4096):
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=b"p"
    )


@pytest.mark.parametrize(
    ("alterations", "code", "words"),
    [
        ([user(name="")], ErrorCode.UNACCEPTABLE_CREDENTIAL, "is empty"),
        ([user(mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "no such SCRAM mechanism"),
        ([user(iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "must be 4096 to 16384"),
        ([user(iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "must be 4096 to 16384"),
        ([user(), user(mechanism=2)], ErrorCode.DUPLICATE_RESOURCE, "one credential of a user"),
        ([user(iterations=1), user()], ErrorCode.UNACCEPTABLE_CREDENTIAL, "must be 4096 to 16384"),
        (
            [ScramCredentialDeletion(name="a", mechanism=1)],
            ErrorCode.RESOURCE_NOT_FOUND,
            "no such credential",
        ),
    ],
)
def test_a_credential_that_makes_no_sense_is_refused_once_for_each_user(node, alterations, code, words):
    node.machine.set_features(first_levels())
    deletions = [one for one in alterations if isinstance(one, ScramCredentialDeletion)]
    upsertions = [one for one in alterations if isinstance(one, ScramCredentialUpsertion)]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    (answer,) = node.ask(request, 0).results
    assert (answer.user, answer.error_code) == (alterations[0].name, code)
    assert words in answer.error_message


def test_a_voter_of_another_cluster_is_refused(node):
    node.machine.set_features(first_levels())
    strange = {"cluster_id": "another", "voter_id": 2, "voter_directory_id": bytes(range(16))}
    listeners = [Listener(name="CONTROLLER", host="localhost", port=9093)]
    added = node.ask(AddRaftVoterRequest(timeout_ms=1, listeners=listeners, **strange), 1)
    removed = node.ask(RemoveRaftVoterRequest(**strange), 0)
    assert {added.error_code, removed.error_code} == {ErrorCode.INCONSISTENT_CLUSTER_ID}


def test_a_voter_without_an_endpoint_for_controllers_is_refused(node):
    listeners = [Listener(name="PLAINTEXT", host="localhost", port=9093)]
    request = AddRaftVoterRequest(
        cluster_id=None, timeout_ms=1, voter_id=2, voter_directory_id=bytes(range(16)), listeners=listeners
    )
    answer = node.ask(request, 1)
    assert (answer.error_code, "CONTROLLER" in answer.error_message) == (INVALID, True)


def test_a_voter_that_is_none_is_not_removed(node):
    node.machine.set_features(first_levels())
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=2, voter_directory_id=bytes(range(16)))
    assert node.ask(request, 0).error_code == ErrorCode.VOTER_NOT_FOUND


def test_of_other_partitions_than_that_of_the_metadata_no_quorum_is_known(node):
    node.create("t")
    asked = [
        TopicData(topic_name=name, partitions=[PartitionData(partition_index=0)])
        for name in ("t", "__cluster_metadata")
    ]
    answer = node.ask(DescribeQuorumRequest(topics=asked), 2)
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    assert (answer.error_code, codes) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2)


def test_an_election_of_an_unknown_kind_is_refused_for_each_partition(node):
    node.create("t", 2)
    topics = [TopicPartitions(topic="t", partitions=[0, 1])]
    answer = node.ask(ElectLeadersRequest(election_type=2, topic_partitions=topics), 2)
    (topic,) = answer.replica_election_results
    assert answer.error_code == INVALID
    assert [one.error_code for one in topic.partition_result] == [INVALID, INVALID]


def test_an_election_of_no_partition_elects_nobody(node):
    node.create("t")
    answer = node.ask(ElectLeadersRequest(election_type=0, topic_partitions=[]), 2)
    assert (answer.error_code, answer.replica_election_results) == (0, [])
