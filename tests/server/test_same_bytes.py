"""Two principals send the same bytes in turn, for every API: neither ever gets the answer of the other. The
broker is real, so that all that it remembers of requests is in the way."""

import contextlib
from types import SimpleNamespace

import pytest

from odradek import Broker
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages import find
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
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
}
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
ALICE, BOB = b"\0alice\0a", b"\0bob\0b"
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
    return request_frame(request, version, 1, "the same")


@pytest.mark.parametrize("key", sorted(WHEN_NOTHING_IS_ALLOWED))
def test_the_same_bytes_of_two_principals_get_each_its_own_answer(clients, key):
    version = SERVED[key]
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
    if key == 14:
        refused = set()  # this request lacks the protocol, which is told first
    assert [codes for codes, _ in answers_of_bob] == [refused] * len(answers_of_bob)
    if key not in (14, 60):  # a list of brokers is for everybody
        assert len({raw for _, raw in answers_of_bob}) == 1, "whatever has been asked meanwhile"


def test_a_list_has_the_topics_of_its_client_only(clients):
    """It refuses nothing: it leaves out what the client may not see."""
    topic = topic_of(clients[ALICE])
    frame = request_frame(DescribeTopicPartitionsRequest(topics=[]), 0, 1, "the same")
    for token in TURNS:
        clients[token].send(frame)
        assert (topic.topic_id in clients[token].receive_frame()) is (token is ALICE)
