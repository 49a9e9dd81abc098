"""What a node that is alone says to those who administer clusters: beside the comparison with Kafka, what
that cannot show."""

from dataclasses import replace

import pytest

from odradek.apis.client_quotas import NAMES_MAX
from odradek.coordinator.cluster.features import first_levels
from odradek.coordinator.cluster.view import Broker
from odradek.wire.errors import ErrorCode, MalformedMessage
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
from odradek.wire.messages.describe_acls import DescribeAclsRequest
from odradek.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from odradek.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from odradek.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek.wire.messages.unregister_controller import UnregisterControllerRequest
from odradek.wire.schema import ZERO_UUID

PREFERRED, UNCLEAN = 0, 1


def elected(node, election_type, *partitions):
    topics = [TopicPartitions(topic="t", partitions=list(partitions))] if partitions else None
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=topics)
    (topic,) = node.ask(request, 2).replica_election_results
    return {one.partition_id: ErrorCode(one.error_code).name for one in topic.partition_result}


def test_a_partition_whose_disk_has_failed_finds_no_leader(node):
    node.create("t", 2)
    node.machine.set_offline(1, [("t", 1)])
    assert elected(node, PREFERRED, 0, 1) == {0: "ELECTION_NOT_NEEDED", 1: "PREFERRED_LEADER_NOT_AVAILABLE"}
    assert elected(node, UNCLEAN, 0, 1) == {0: "ELECTION_NOT_NEEDED", 1: "ELIGIBLE_LEADERS_NOT_AVAILABLE"}
    assert elected(node, PREFERRED) == {1: "PREFERRED_LEADER_NOT_AVAILABLE"}


def test_the_voter_is_found_where_the_client_came_in(node):
    asked = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    node.machine.set_features(first_levels())
    response = node.ask(DescribeQuorumRequest(topics=[asked]), 2)
    (found,) = response.topics[0].partitions
    assert (found.leader_id, found.leader_epoch, found.observers) == (1, 1, [])
    assert [voter.replica_id for voter in found.current_voters] == [1]
    (listener,) = response.nodes[0].listeners
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "broker.example", 19092)


def test_the_metadata_is_seen_to_go_on(node):
    def high_watermark():
        asked = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
        (found,) = node.ask(DescribeQuorumRequest(topics=[asked]), 1).topics[0].partitions
        assert found.current_voters[0].log_end_offset == found.high_watermark
        return found.high_watermark

    before = high_watermark()
    node.create("t")
    assert high_watermark() > before


def test_the_broker_that_runs_is_not_unregistered(node):
    answer = node.ask(UnregisterBrokerRequest(broker_id=1), 0)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert 1 in node.machine.view.brokers


def test_a_broker_of_the_cluster_that_there_was_is_forgotten(node):
    node.machine.register_broker(Broker(2, {}, is_fenced=True))
    assert [node.ask(UnregisterBrokerRequest(broker_id=2), 0).error_code for _ in range(2)] == [
        ErrorCode.NONE,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    ]
    assert node.machine.view.registrations.keys() == {1}


def test_the_controller_of_a_node_alone_is_the_active_one(node):
    def codes():
        return [node.ask(UnregisterControllerRequest(controller_id=one), 0).error_code for one in (1, 2)]

    node.machine.set_features(first_levels("4.3"))
    assert codes() == [ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION]
    node.machine.publisher.view = replace(node.machine.view, features={"metadata.version": 33})
    assert codes() == [ErrorCode.INVALID_REQUEST, ErrorCode.CONTROLLER_ID_NOT_REGISTERED]


def voter(voter_id, directory=bytes(range(16))):
    listeners = [Listener(name="CONTROLLER", host="localhost", port=9093)]
    return AddRaftVoterRequest(
        cluster_id=None, timeout_ms=1, voter_id=voter_id, voter_directory_id=directory, listeners=listeners
    )


def test_nobody_else_becomes_a_voter(node):
    node.machine.set_features(first_levels())
    answer = node.ask(voter(2), 1)
    assert (answer.error_code, "one node" in answer.error_message) == (ErrorCode.INVALID_REQUEST, True)


def test_the_one_voter_stays(node):
    removal = RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=bytes(range(16)))
    assert node.ask(voter(1), 1).error_code == ErrorCode.DUPLICATE_VOTER
    assert node.ask(removal, 0).error_code == ErrorCode.VOTER_NOT_FOUND
    assert node.ask(voter(1, ZERO_UUID), 1).error_code == ErrorCode.INVALID_REQUEST


def test_an_acl_of_an_unknown_kind_ends_the_connection(node):
    fields = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    request = DescribeAclsRequest(resource_type_filter=1, operation=0, permission_type=1, **fields)
    with pytest.raises(MalformedMessage):
        node.ask(request, 3)


def alteration(name, value, *, validate_only=False):
    """A quota of a user; a value of None removes it."""
    op = OpData(key="producer_byte_rate", value=value or 0.0, remove=value is None)
    entry = EntryData(entity=[EntityData(entity_type="user", entity_name=name)], ops=[op])
    return AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)


def quotas(node):
    """Values by the names of users."""
    answer = node.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
    return {
        one.entity[0].entity_name: {value.key: value.value for value in one.values} for one in answer.entries
    }


def test_quotas_are_set_described_and_removed(node):
    assert node.ask(alteration("a", 1000.0), 1).entries[0].error_code == ErrorCode.NONE
    node.ask(alteration(None, 0.5e3), 1)
    assert quotas(node) == {"a": {"producer_byte_rate": 1000}, None: {"producer_byte_rate": 500}}
    node.ask(alteration("a", 2000.0, validate_only=True), 1)
    node.ask(alteration("a", None, validate_only=True), 1)
    assert quotas(node)["a"] == {"producer_byte_rate": 1000}
    node.ask(alteration("a", None), 1)
    assert quotas(node) == {None: {"producer_byte_rate": 500}}


def test_a_request_has_a_bounded_number_of_names_to_resolve(node):
    op = OpData(key="connection_creation_rate", value=5.0, remove=False)
    entries = [
        EntryData(entity=[EntityData(entity_type="ip", entity_name=f"host-{number}")], ops=[op])
        for number in range(NAMES_MAX + 1)
    ]
    answer = node.ask(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
    (refused,) = [one for one in answer.entries if one.error_code]
    assert refused.entity[0].entity_name == f"host-{NAMES_MAX}"
    assert f"may have {NAMES_MAX} names" in refused.error_message
    assert len(node.machine.view.client_quotas) == NAMES_MAX


def test_a_metadata_version_without_scram_refuses_users(node):
    node.machine.set_features(first_levels("3.5-IV1"))
    user = ScramCredentialUpsertion(name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[user])
    (answer,) = node.ask(request, 0).results
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "metadata.version" in answer.error_message
    assert node.machine.view.scram_users.credentials == {}


def test_users_are_stored_and_described(node):
    node.machine.set_features(first_levels("4.3"))
    user = ScramCredentialUpsertion(name="a", mechanism=2, iterations=5000, salt=b"s", salted_password=b"p")
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[user])
    (answer,) = node.ask(request, 0).results
    assert (answer.user, answer.error_code, answer.error_message) == ("a", 0, None)
    described = node.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    (found,) = described.results
    assert [(one.mechanism, one.iterations) for one in found.credential_infos] == [(2, 5000)]
    deletion = ScramCredentialDeletion(name="a", mechanism=2)
    (answer,) = node.ask(AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]), 0).results
    assert answer.error_code == 0
    assert node.ask(DescribeUserScramCredentialsRequest(users=[]), 0).results == []
