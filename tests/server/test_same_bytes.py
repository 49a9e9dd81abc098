"""Two principals send the same bytes in turn, for every API: neither ever gets the answer of the other. The
broker is real, so that all that it remembers of requests is in the way."""

import contextlib
import time
from types import SimpleNamespace

import pytest

from odradek import Broker
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages import find
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from odradek.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.records import Record, build_batch
from odradek.wire.response_errors import errors_of
from tests.apis.test_every_version import SERVED, fields
from tests.apis.test_refusals import WHEN_NOTHING_IS_ALLOWED
from tests.raw_client import RawClient

OPTIONS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice='a' user_bob='b';"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "delegation.token.secret.key": "secret-of-tokens",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
ALICE, BOB = b"\0alice\0a", b"\0bob\0b"
PATIENCE_S = 20
EVERY_OPERATION = 8096
"""The bits of the operations on a cluster."""
TURNS = (ALICE, BOB, ALICE, ALICE, BOB, BOB, ALICE, BOB)


@pytest.fixture(scope="module")
def broker():
    with Broker(options=OPTIONS) as one:
        yield one


@pytest.fixture
def clients(broker):
    with contextlib.ExitStack() as ending:
        found = {}
        for token in (ALICE, BOB):
            client = found[token] = ending.enter_context(RawClient(broker.port))
            client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
        yield found


def topic_of(client):
    """The topic `t` and its id; it is made if it is not there."""
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7)
    (found,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12).topics
    assert found.error_code == 0
    return found


def frame_of(key, version, topic):
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"a")]))
    directories = SimpleNamespace(directories=["/no/such/directory"])
    node = SimpleNamespace(batch=lambda value: batch, store=directories)
    request = find(key)[0](**fields(node, key, version, topic))
    if key == 14:
        request.protocol_type, request.protocol_name = "consumer", "range"  # else it is refused for that
    return request_frame(request, version, 1, "the same")


@pytest.mark.parametrize("key", sorted(WHEN_NOTHING_IS_ALLOWED))
def test_the_same_bytes_of_two_principals_get_each_its_own_answer(clients, key):
    version = SERVED[key][-1]
    request_class, response_class = find(key)
    frame = frame_of(key, version, topic_of(clients[ALICE]))
    answers_of_bob = []
    for token in TURNS:
        clients[token].send(frame)
        raw = clients[token].receive_frame()
        codes = set(errors_of(response_class)(read_response(raw, request_class, version)[1]))
        if token is ALICE:
            assert not codes & REFUSALS
        else:
            answers_of_bob.append((codes & REFUSALS, raw))
    refused = {ErrorCode(code) for code in WHEN_NOTHING_IS_ALLOWED[key]} & REFUSALS
    if key == 24:
        refused = {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}  # only brokers send this version
    assert [codes for codes, _ in answers_of_bob] == [refused] * len(answers_of_bob)
    if key != 60:  # a list of brokers is for everybody
        assert len({raw for _, raw in answers_of_bob}) == 1, "whatever has been asked meanwhile"


# Lists refuse nothing: they leave out what the client may not see


def allow_bob(alice, resource_type, name, operation=Operation.DESCRIBE):
    rule = AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:bob",
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )
    (result,) = alice.ask(CreateAclsRequest(creations=[rule]), 3).results
    assert result.error_code == 0


def until_done(ask):
    """An answer without an error: the topic of a coordinator is made at the first request."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := ask()).error_code and time.monotonic() < deadline:
        time.sleep(0.005)
    assert answer.error_code == 0
    return answer


def make_groups(alice):
    alice.ask(FindCoordinatorRequest(coordinator_keys=["of-alice"]), 6)
    for group in ("of-alice", "of-both"):
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        until_done(lambda request=request: alice.ask(request, 3))
    allow_bob(alice, ResourceType.GROUP, "of-both")
    return ListGroupsRequest(), 5


def make_transactions(alice):
    alice.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["of-alice"]), 6)
    for name in ("of-alice", "of-both"):
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        until_done(lambda request=request: alice.ask(request, 5))
    allow_bob(alice, ResourceType.TRANSACTIONAL_ID, "of-both")
    return ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 2


def make_topics(alice):
    for name in ("of-alice", "of-both"):
        wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        alice.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7)
    allow_bob(alice, ResourceType.TOPIC, "of-both")


def topics_of_partitions(alice):
    make_topics(alice)
    return DescribeTopicPartitionsRequest(topics=[]), 0


def topics_of_metadata(alice):
    make_topics(alice)
    return MetadataRequest(topics=None), 12


@pytest.mark.parametrize("make", [make_groups, make_transactions, topics_of_partitions, topics_of_metadata])
def test_a_list_has_what_its_client_may_see_and_no_more(clients, make):
    frame = request_frame(*make(clients[ALICE]), 1, "the same")
    for token in TURNS:
        clients[token].send(frame)
        raw = clients[token].receive_frame()
        assert b"of-both" in raw
        assert (b"of-alice" in raw) is (token is ALICE)


def test_the_ids_of_topics_are_for_those_who_may_see_the_topics(clients):
    topic = topic_of(clients[ALICE])
    frame = request_frame(DescribeTopicPartitionsRequest(topics=[]), 0, 1, "the same")
    for token in TURNS:
        clients[token].send(frame)
        assert (topic.topic_id in clients[token].receive_frame()) is (token is ALICE)


def test_the_operations_on_the_cluster_are_those_of_the_client(clients):
    """The list of brokers is for everybody."""
    frame = request_frame(DescribeClusterRequest(include_cluster_authorized_operations=True), 2, 1, "same")
    for token in TURNS:
        clients[token].send(frame)
        _, answer = clients[token].receive(DescribeClusterRequest, 2)
        assert len(answer.brokers) == 1
        assert answer.cluster_authorized_operations == (EVERY_OPERATION if token is ALICE else 0)


# Delegation tokens


def new_token(client):
    request = CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1
    )
    answer = client.ask(request, 3)
    assert answer.error_code == 0
    return answer


def test_a_token_is_listed_for_its_owner_and_for_who_may_do_all(clients):
    hers, his = new_token(clients[ALICE]), new_token(clients[BOB])
    frame = request_frame(DescribeDelegationTokenRequest(owners=None), 3, 1, "the same")
    for token in TURNS:
        clients[token].send(frame)
        raw = clients[token].receive_frame()
        assert his.hmac in raw
        assert his.token_id.encode() in raw
        for secret in (hers.hmac, hers.token_id.encode(), b"alice"):
            assert (secret in raw) is (token is ALICE)


def test_a_token_is_made_for_who_asks_for_it(clients):
    request = CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1
    )
    frame = request_frame(request, 3, 1, "the same")
    seen = []
    for token in TURNS:
        clients[token].send(frame)
        _, answer = clients[token].receive(CreateDelegationTokenRequest, 3)
        assert answer.error_code == 0
        owner = "alice" if token is ALICE else "bob"
        assert (answer.principal_name, answer.token_requester_principal_name) == (owner, owner)
        seen.append(bytes(answer.hmac))
    assert len(set(seen)) == len(TURNS)


def test_tokens_of_others_are_made_and_changed_by_those_who_may(clients):
    """Renewing and ending is for the owner."""
    hmac = bytes(new_token(clients[ALICE]).hmac)
    for request, version, refusal in (
        (
            CreateDelegationTokenRequest(
                owner_principal_type="User", owner_principal_name="alice", renewers=[], max_lifetime_ms=-1
            ),
            3,
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ),
        (
            RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=3_600_000),
            2,
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
        ),
        (
            ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=3_600_000),
            2,
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
        ),
    ):
        frame = request_frame(request, version, 1, "the same")
        for token in TURNS:
            clients[token].send(frame)
            _, answer = clients[token].receive(type(request), version)
            assert answer.error_code == (0 if token is ALICE else refusal)
            assert (answer.expiry_timestamp_ms > 0) is (token is ALICE)
            if token is BOB and hasattr(answer, "hmac"):
                assert (bytes(answer.hmac), answer.token_id) == (b"", "")
