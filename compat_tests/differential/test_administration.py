"""What a node without authorizer, users and tokens answers to those who ask about them, and what one
that is alone says of elections and quorums."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

from typing import Any

from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.topics import new_topic
from odradek.wire.messages import alter_user_scram_credentials as scram
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.describe_acls import DescribeAclsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek.wire.messages.unregister_controller import UnregisterControllerRequest
from odradek.wire.schema import ZERO_UUID

OF_KAFKA_4 = 68
"""From this API on nothing has been dropped in Kafka 4 that is served here."""


def test_what_is_advertised_is_what_kafka_advertises(pair: Pair) -> None:
    """Keys, and the highest version of each; of the newer APIs the lowest, too."""
    if not pair.versions(DescribeQuorumRequest):
        return
    request = ApiVersionsRequest(client_software_name="differential", client_software_version="1")
    theirs, ours = (
        {
            one.api_key: (one.min_version if one.api_key >= OF_KAFKA_4 else 0, one.max_version)
            for one in side.ask(request, 4).api_keys
        }
        for side in pair.sides
    )
    pair.compare("ApiVersions", theirs, ours)


# Elections and quorums


def test_elections_are_answered_alike(pair: Pair) -> None:
    topic, other = new_topic(pair, "elected", 3), new_topic(pair, "elected")
    cases: dict[str, list[tuple[str, list[int]]] | None] = {
        "two topics": [(topic, [0, 2]), (other, [0])],
        "unknown partitions": [(topic, [0, 7, -1])],
        "an unknown topic": [("not-there", [0, 1]), (other, [0])],
        "no name": [("", [0])],
        "no partitions": [(topic, [])],
        "twice a partition": [(topic, [0, 0])],
        "twice a topic": [(topic, [0]), (topic, [1]), (topic, [0])],
        "nothing": [],
    }
    for version in pair.versions(ElectLeadersRequest):
        for kind in (0, 1, 2, -1) if version else (0,):
            for note, wanted in cases.items():
                asked = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted or ()]
                request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
                pair.ask(lambda _: request, version, f"{note}, type {kind}")


def test_of_all_partitions_only_those_are_told_that_want_a_leader(pair: Pair) -> None:
    topic = new_topic(pair, "elected", 3)

    def only_mine(side: Side, answer: Any) -> None:
        results = [one for one in answer.replica_election_results if one.topic == topic]
        answer.replica_election_results = results

    for version in pair.versions(ElectLeadersRequest):
        for kind in (0, 1, 2) if version else (0,):
            request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
            pair.ask(lambda _: request, version, f"all, type {kind}", see=only_mine)


def quorum(*asked: tuple[str, list[int]]) -> DescribeQuorumRequest:
    topics = [
        TopicData(topic_name=name, partitions=[PartitionData(partition_index=index) for index in indexes])
        for name, indexes in asked
    ]
    return DescribeQuorumRequest(topics=topics)


METADATA = "__cluster_metadata"


def test_the_quorum_is_described_alike(pair: Pair) -> None:
    def without_what_is_each_ones_own(side: Side, answer: Any) -> None:
        """Offsets of Kafka's log of metadata, the clock, ids, and the listener of its controller."""
        for partition in (one for topic in answer.topics for one in topic.partitions):
            assert (partition.high_watermark > 0) == bool(partition.current_voters)
            partition.high_watermark = min(partition.high_watermark, 1)
            for voter in partition.current_voters:
                assert voter.log_end_offset > 0
                voter.log_end_offset = 1
                voter.last_fetch_timestamp = min(voter.last_fetch_timestamp, 1)
                voter.last_caught_up_timestamp = min(voter.last_caught_up_timestamp, 1)
                if version >= 2:
                    assert voter.replica_directory_id != ZERO_UUID
                    voter.replica_directory_id = ZERO_UUID
        if version >= 2:
            for listener in (one for node in answer.nodes for one in node.listeners):
                assert listener.port > 0
                listener.name, listener.port = "", 0

    for version in pair.versions(DescribeQuorumRequest):
        for asked in (
            [(METADATA, [0])],
            [(METADATA, [1])],
            [(METADATA, [0, 0])],
            [(METADATA, [0, 1])],
            [(METADATA, [])],
            [(METADATA, [0]), ("other", [0])],
            [("other", [0])],
            [("", [-1])],
            [],
        ):
            request = quorum(*asked)
            pair.ask(lambda _: request, version, repr(asked), see=without_what_is_each_ones_own)


def test_voters_are_refused_alike(pair: Pair) -> None:
    """But for one that Kafka would ask whether it is ready: there are no others here."""
    directory = bytes(range(16))
    clusters = {side: side.ask(DescribeClusterRequest(), 0).cluster_id for side in pair.sides}
    for version in pair.versions(AddRaftVoterRequest):
        for cluster, voter, voters_directory, listener in (
            ("ours", 1, directory, "CONTROLLER"),
            (None, 1, directory, "CONTROLLER"),
            ("another", 1, directory, "CONTROLLER"),
            ("ours", 1, ZERO_UUID, "CONTROLLER"),
            ("ours", -1, directory, "CONTROLLER"),
            ("ours", 5, ZERO_UUID, "CONTROLLER"),
            ("ours", 5, directory, "OTHER"),
            ("ours", 1, directory, "OTHER"),
            ("ours", 1, directory, None),
        ):
            listeners = [] if listener is None else [Listener(name=listener, host="127.0.0.1", port=1)]
            pair.ask(
                lambda side: AddRaftVoterRequest(
                    cluster_id=clusters[side] if cluster == "ours" else cluster,
                    timeout_ms=1000,
                    voter_id=voter,
                    voter_directory_id=voters_directory,
                    listeners=listeners,
                ),
                version,
                f"{cluster}, {voter}, {voters_directory.hex()}, {listener}",
            )
    for version in pair.versions(RemoveRaftVoterRequest):
        for cluster, voter, voters_directory in (
            ("ours", 1, directory),
            (None, 5, directory),
            ("another", 1, directory),
            ("ours", 1, ZERO_UUID),
            ("ours", -1, directory),
        ):
            pair.ask(
                lambda side: RemoveRaftVoterRequest(
                    cluster_id=clusters[side] if cluster == "ours" else cluster,
                    voter_id=voter,
                    voter_directory_id=voters_directory,
                ),
                version,
                f"{cluster}, {voter}, {voters_directory.hex()}",
            )


def test_the_only_voter_stays(pair: Pair) -> None:
    own: dict[Side, bytes] = {}
    for side in pair.sides:
        if pair.versions(RemoveRaftVoterRequest):
            (topic,) = side.ask(quorum((METADATA, [0])), 2).topics
            own[side] = topic.partitions[0].current_voters[0].replica_directory_id
    for version in pair.versions(RemoveRaftVoterRequest):
        pair.ask(
            lambda side: RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=own[side]),
            version,
        )


def test_brokers_that_are_not_there_are_not_unregistered(pair: Pair) -> None:
    for version in pair.versions(UnregisterBrokerRequest):
        for broker_id in (7, 0, -1):
            pair.ask(lambda _: UnregisterBrokerRequest(broker_id=broker_id), version, str(broker_id))


def test_controllers_are_not_unregistered(pair: Pair) -> None:
    for version in pair.versions(UnregisterControllerRequest):
        pair.ask(lambda _: UnregisterControllerRequest(controller_id=1), version, "the active one")


# ACLs

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
ANYTHING = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
FILTERS: list[dict[str, Any]] = [
    {},
    {"resource_type_filter": 2, "resource_name_filter": "t", "pattern_type_filter": LITERAL},
    {"resource_type_filter": 0},
    {"resource_type_filter": 99},
    {"resource_type_filter": -1},
    {"operation": 0},
    {"operation": 99},
    {"permission_type": 0},
    {"permission_type": 99},
    {"pattern_type_filter": 0},
    {"pattern_type_filter": MATCH},
    {"pattern_type_filter": 99},
    {"principal_filter": "no principal"},
    {"resource_name_filter": ""},
]


def in_version(fields: dict[str, Any], version: int, pattern: str) -> dict[str, Any]:
    """Version 0 knows no types of patterns: all are literal."""
    return {**fields, pattern: LITERAL} if version == 0 else fields


def test_acls_are_described_alike(pair: Pair) -> None:
    for version in pair.versions(DescribeAclsRequest):
        for changes in FILTERS:
            if version == 0 and "pattern_type_filter" in changes:
                continue
            fields = in_version({**ANYTHING, **changes}, version, "pattern_type_filter")
            pair.ask(lambda _: DescribeAclsRequest(**fields), version, repr(changes))


def test_acls_are_deleted_alike(pair: Pair) -> None:
    for version in pair.versions(DeleteAclsRequest):
        pair.ask(lambda _: DeleteAclsRequest(filters=[]), version, "none")
        for changes in FILTERS:
            if version == 0 and "pattern_type_filter" in changes:
                continue
            sound = in_version(ANYTHING, version, "pattern_type_filter")
            filters = [DeleteAclsFilter(**sound), DeleteAclsFilter(**{**sound, **changes})]
            pair.ask(lambda _: DeleteAclsRequest(filters=filters), version, repr(changes))


def test_acls_are_created_alike(pair: Pair) -> None:
    sound = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    cases: list[dict[str, Any]] = [
        {},
        {"resource_pattern_type": PREFIXED},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": 0},
        {"resource_type": 0},
        {"resource_type": ANY},
        {"resource_type": 99},
        {"operation": 0},
        {"operation": ANY},
        {"permission_type": 0},
        {"permission_type": ANY},
        {"principal": "no principal"},
        {"resource_name": ""},
        {"host": ""},
    ]
    for version in pair.versions(CreateAclsRequest):
        pair.ask(lambda _: CreateAclsRequest(creations=[]), version, "none")
        for changes in cases:
            if version == 0 and "resource_pattern_type" in changes:
                continue
            creations = [AclCreation(**sound), AclCreation(**{**sound, **changes})]
            pair.ask(lambda _: CreateAclsRequest(creations=creations), version, repr(changes))


# Tokens and SASL


def test_tokens_are_refused_alike(pair: Pair) -> None:
    for version in pair.versions(CreateDelegationTokenRequest):
        for kind in ("User", "Group", ""):
            renewers = [CreatableRenewers(principal_type=kind, principal_name="bob")]
            request = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1)
            pair.ask(lambda _: request, version, f"renewer of type {kind!r}")
        if version >= 3:
            for kind, name in (("User", "bob"), ("Group", "bob"), ("User", ""), ("User", None), (None, None)):
                request = CreateDelegationTokenRequest(
                    owner_principal_type=kind, owner_principal_name=name, renewers=[], max_lifetime_ms=-1
                )
                pair.ask(lambda _: request, version, f"owner {kind}:{name}")
    for hmac in (b"", b"no token"):
        for version in pair.versions(RenewDelegationTokenRequest):
            renewal = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=1000)
            pair.ask(lambda _: renewal, version, repr(hmac))
        for version in pair.versions(ExpireDelegationTokenRequest):
            expiry = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
            pair.ask(lambda _: expiry, version, repr(hmac))
    for version in pair.versions(DescribeDelegationTokenRequest):
        for names in (None, [], ["alice"], ["alice", "alice"]):
            owners = names and [
                DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in names
            ]
            question = DescribeDelegationTokenRequest(owners=owners)
            pair.ask(lambda _: question, version, repr(names))


def test_who_wants_to_prove_a_name_is_told_that_nobody_has_asked(pair: Pair) -> None:
    for version in pair.versions(SaslHandshakeRequest):
        for mechanism in ("PLAIN", "GSSAPI", "", "NONE"):
            pair.ask(lambda _: SaslHandshakeRequest(mechanism=mechanism), version, mechanism)
    for version in pair.versions(SaslAuthenticateRequest):
        for token in (b"", b"\0alice\0secret"):
            pair.ask(lambda _: SaslAuthenticateRequest(auth_bytes=token), version, repr(token))


# Users


def test_users_are_described_alike(pair: Pair) -> None:
    for version in pair.versions(DescribeUserScramCredentialsRequest):
        for names in (None, [], ["alice"], ["alice", "alice"], ["alice", "bob", "alice"], [""]):
            users = None if names is None else [UserName(name=name) for name in names]
            request = DescribeUserScramCredentialsRequest(users=users)
            pair.ask(lambda _: request, version, repr(names))


def deletion(name: str, mechanism: int = 1) -> scram.ScramCredentialDeletion:
    return scram.ScramCredentialDeletion(name=name, mechanism=mechanism)


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> scram.ScramCredentialUpsertion:
    return scram.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=bytes(32)
    )


def test_users_that_nobody_may_have_are_refused_alike(pair: Pair) -> None:
    cases: dict[str, tuple[list[Any], list[Any]]] = {
        "nothing": ([], []),
        "removed": ([deletion("a")], []),
        "removed twice": ([deletion("a"), deletion("a")], []),
        "removed of both mechanisms": ([deletion("a"), deletion("a", 2)], []),
        "removed without a name": ([deletion("")], []),
        "removed of no mechanism": ([deletion("a", 0), deletion("b", 9)], []),
        "too few iterations": ([], [upsertion("a", iterations=4095)]),
        "too many iterations": ([], [upsertion("a", 2, 16385)]),
        "no name": ([], [upsertion("", iterations=1)]),
        "no mechanism": ([], [upsertion("a", 0), upsertion("b", 3)]),
        "no mechanism, and too few": ([], [upsertion("a", 3, 1)]),
        "wrong twice": ([], [upsertion("a", iterations=1), upsertion("a")]),
        "removed and made": ([deletion("a")], [upsertion("a")]),
        "twice": ([], [upsertion("a"), upsertion("a", 2)]),
        "three times": ([], [upsertion("a"), upsertion("a"), upsertion("a")]),
        "right, then wrong": ([], [upsertion("a"), upsertion("a", iterations=1)]),
        "many": ([deletion("a"), deletion("b", 5)], [upsertion("", 1), upsertion("c", 1, 1)]),
    }
    for version in pair.versions(scram.AlterUserScramCredentialsRequest):
        for note, (deletions, upsertions) in cases.items():
            request = scram.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
            pair.ask(lambda _: request, version, note)
