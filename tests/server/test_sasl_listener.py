"""A broker with SASL listeners, met over sockets: by right and wrong clients, and by nonsense."""

import asyncio
import contextlib
import dataclasses
import logging
import random
import socket
import struct
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from odradek import Broker, BrokerStartError
from odradek.config.credentials import Credentials
from odradek.config.secret import Secret
from odradek.server.network.peers import PeerLost, SetupTimeout, connect
from odradek.server.network.unauthenticated import Unauthenticated
from odradek.server.security.sasl import listeners
from odradek.server.security.sasl.client import PeerLogin
from odradek.server.security.sasl.exchange import Settings
from odradek.server.security.sasl.gate import COMPUTATIONS_MAX, SaslListener
from odradek.server.security.sasl.mechanism import Later
from odradek.wire.errors import ErrorCode, error_message
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages import find
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.records import Record, build_batch
from odradek.wire.response_errors import errors_of
from odradek.wire.schema import ZERO_UUID
from odradek.wire.scram import MECHANISM_NUMBERS, ScramClient, salted_password
from tests.apis.test_every_version import SERVED, fields
from tests.kit.collecting import collected
from tests.raw_client import RawClient
from tests.tiers import NIGHTLY

PASSWORD = "pw-of-ann"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f"user_ann='{PASSWORD}' user_bob='pw-of-bob';"
)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OPTIONS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "10",
}
RIGHT = b"\0ann\0" + PASSWORD.encode()
PATIENCE_S = 50
"""For what takes a second or two of computing, on a machine that has a lot to do, too."""


@pytest.fixture(scope="module")
def broker():
    with Broker(options=OPTIONS) as one:
        yield one


def versions_request():
    return ApiVersionsRequest(client_software_name="test", client_software_version="1")


def log_in(client, token=RIGHT):
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
    return answer


def log_in_with_scram(client, mechanism, user, password):
    """The error code of the last answer."""
    assert client.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    scram = ScramClient(mechanism, user, password, "nonce")
    challenge = client.ask(SaslAuthenticateRequest(auth_bytes=scram.first), 2)
    assert challenge.error_code == 0
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=scram.final(bytes(challenge.auth_bytes))), 2)
    if answer.error_code == 0:
        scram.verify(bytes(answer.auth_bytes))
    return answer.error_code


def is_served(client):
    return len(client.ask(MetadataRequest(topics=[]), 9).brokers) == 1


def upsertion(user, mechanism, password, iterations=4096):
    salt = b"a salt of the test"
    number = MECHANISM_NUMBERS[mechanism]
    salted = salted_password(number, password, salt, iterations)
    return ScramCredentialUpsertion(
        name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
    )


def alter(broker, *, deletions=(), upsertions=()):
    with RawClient(broker.port) as client:
        log_in(client)
        request = AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))
        return {one.user: one.error_code for one in client.ask(request, 0).results}


def test_a_client_is_served_after_it_has_authenticated_and_not_before(broker):
    with RawClient(broker.port) as client:
        assert client.ask(versions_request(), 3).error_code == 0
        answer = log_in(client)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert is_served(client)
        assert client.ask(versions_request(), 3).error_code == 0
    with RawClient(broker.port) as client:
        client.send_request(MetadataRequest(topics=[]), 9)
        assert client.read_to_end() == b""


def test_what_comes_with_the_last_token_is_served_after_it(broker):
    frames = [
        request_frame(versions_request(), 3, 1, "c"),
        request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1, 2, "c"),
        request_frame(SaslAuthenticateRequest(auth_bytes=RIGHT), 2, 3, "c"),
        request_frame(MetadataRequest(topics=[]), 9, 4, "c"),
        request_frame(MetadataRequest(topics=[]), 9, 5, "c"),
    ]
    with RawClient(broker.port) as client:
        client.send(*frames)
        assert [struct.unpack(">i", client.receive_frame()[:4])[0] for _ in frames] == [1, 2, 3, 4, 5]


def test_a_failure_waits_for_the_delay():
    with Broker(options={**OPTIONS, "connection.failed.authentication.delay.ms": "300"}) as slow:
        began = time.monotonic()
        with RawClient(slow.port) as client:
            answer = log_in(client, b"\0ann\0wrong")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.read_to_end() == b""
        assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_users_are_made_changed_and_removed_while_the_broker_runs(broker, mechanism):
    user = f"user of {mechanism}"
    number = MECHANISM_NUMBERS[mechanism]

    def attempt(password):
        with RawClient(broker.port) as client:
            return log_in_with_scram(client, mechanism, user, password)

    assert attempt("first") == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert alter(broker, upsertions=[upsertion(user, mechanism, "first")]) == {user: 0}
    assert attempt("first") == 0
    assert attempt("second") == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert alter(broker, upsertions=[upsertion(user, mechanism, "second", 5000)]) == {user: 0}
    assert attempt("second") == 0
    assert attempt("first") == ErrorCode.SASL_AUTHENTICATION_FAILED
    with RawClient(broker.port) as client:
        assert log_in_with_scram(client, mechanism, user, "second") == 0
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=user)])
        (found,) = client.ask(request, 0).results
        assert [(one.mechanism, one.iterations) for one in found.credential_infos] == [(number, 5000)]
        deletion = ScramCredentialDeletion(name=user, mechanism=number)
        assert alter(broker, deletions=[deletion]) == {user: 0}
        assert is_served(client), "a session goes on, as in Kafka"
    assert attempt("second") == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert alter(broker, deletions=[deletion]) == {user: ErrorCode.RESOURCE_NOT_FOUND}


def test_users_outlive_a_restart(tmp_path):
    with Broker(options=OPTIONS, data_dir=tmp_path) as one:
        assert alter(one, upsertions=[upsertion("u", "SCRAM-SHA-256", "p")]) == {"u": 0}
        secret = (tmp_path / listeners.SECRET_FILE).read_bytes()
        assert (tmp_path / listeners.SECRET_FILE).stat().st_mode & 0o777 == 0o600
        one.restart()
        with RawClient(one.port) as client:
            assert log_in_with_scram(client, "SCRAM-SHA-256", "u", "p") == 0
            assert (
                client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
                == ErrorCode.ILLEGAL_SASL_STATE
            )
            token = client.ask(SaslAuthenticateRequest(auth_bytes=b""), 2)
            assert token.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert is_served(client)
        assert (tmp_path / listeners.SECRET_FILE).read_bytes() == secret


# Sessions that end


@pytest.fixture
def short(request):
    with Broker(options={**OPTIONS, "connections.max.reauth.ms": getattr(request, "param", "1500")}) as one:
        yield one


def test_a_session_is_renewed_between_requests(short):
    with RawClient(short.port) as client:
        assert log_in(client).session_lifetime_ms == 1500
        client.send(
            request_frame(MetadataRequest(topics=[]), 9, 1, "c"),
            request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1, 2, "c"),
            request_frame(SaslAuthenticateRequest(auth_bytes=RIGHT), 2, 3, "c"),
            request_frame(MetadataRequest(topics=[]), 9, 4, "c"),
        )
        assert [struct.unpack(">i", client.receive_frame()[:4])[0] for _ in range(4)] == [1, 2, 3, 4]
        again = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE, "it was a moment ago"
        assert is_served(client)


def test_who_authenticates_again_does_not_pay_for_the_buffer_of_its_requests(short, monkeypatch):
    noted = []
    note = Unauthenticated.note_held
    monkeypatch.setattr(
        Unauthenticated, "note_held", lambda self, *told: (noted.append(told[1]), note(self, *told))
    )
    topics = [MetadataRequestTopic(name=f"{number:04}" + "x" * 10_000) for number in range(100)]
    with RawClient(short.port) as client:
        log_in(client)
        client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        noted.clear()
        assert log_in(client).error_code == 0
        assert noted
        assert not any(noted)


@pytest.mark.parametrize("short", ["300"], indirect=True)
def test_a_session_that_has_ended_serves_no_request_but_a_handshake(short):
    with RawClient(short.port) as client, RawClient(short.port) as other:
        log_in(client)
        log_in(other)
        # The end of a session has no sign: the client has to wait for it.
        ends = time.monotonic() + 0.35
        while time.monotonic() < ends:
            time.sleep(0.05)
        assert log_in(client).error_code == 0
        assert is_served(client)
        other.send_request(MetadataRequest(topics=[]), 9)
        assert other.read_to_end() == b""


@pytest.mark.parametrize("short", ["300"], indirect=True)
def test_an_ended_session_does_not_serve_what_comes_with_the_handshake(short):
    with RawClient(short.port) as client:
        log_in(client)
        ends = time.monotonic() + 0.35
        while time.monotonic() < ends:
            time.sleep(0.05)
        client.send(
            request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, "c"),
            request_frame(MetadataRequest(topics=[]), 9, 2, "c"),
        )
        assert struct.unpack(">i", client.receive_frame()[:4])[0] == 1
        refused = client.read_to_end()
        assert refused == b"", "Metadata has no form for the refusal"


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_changes_no_session_and_closes_nobody(short, monkeypatch, jump_ms):
    """It is the clock of timestamps and of credentials."""
    with RawClient(short.port) as client, RawClient(short.port) as stranger:
        log_in(client)
        assert stranger.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + jump_ms * 1_000_000)
        assert is_served(client)
        assert stranger.ask(SaslAuthenticateRequest(auth_bytes=RIGHT), 2).error_code == 0
        assert is_served(stranger)


# Other nodes


def ask_as_peer(port, mechanism, user, password, requests=1, wait_s=0.0):
    """The answers to Metadata of a connection as nodes open it."""

    async def run():
        login = PeerLogin(Credentials(mechanism, user, Secret(password)))
        peer = await connect(
            "127.0.0.1",
            port,
            name="broker",
            client_id="test",
            timeout_ms=10_000,
            setup=SetupTimeout(login=login),
        )
        try:
            answers = []
            for _ in range(requests):
                answers.append(await peer.ask(MetadataRequest(topics=[]), 9))
                await asyncio.sleep(wait_s)
            return answers
        finally:
            peer.close()

    return asyncio.run(run())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_node_logs_in_to_another(broker, mechanism):
    if mechanism != "PLAIN":
        alter(broker, upsertions=[upsertion("ann", mechanism, PASSWORD)])
    (answer,) = ask_as_peer(broker.port, mechanism, "ann", PASSWORD)
    assert len(answer.brokers) == 1
    with pytest.raises(PeerLost, match="SASL_AUTHENTICATION_FAILED") as caught:
        ask_as_peer(broker.port, mechanism, "ann", "topsecret")
    assert "topsecret" not in str(caught.value)


def test_a_node_is_told_which_mechanisms_there_are(broker):
    with pytest.raises(PeerLost, match="it offers: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        ask_as_peer(broker.port, "GSSAPI", "ann", PASSWORD)


@pytest.mark.parametrize("short", ["1200"], indirect=True)
def test_a_node_renews_its_session(short):
    assert len(ask_as_peer(short.port, "PLAIN", "ann", PASSWORD, requests=30, wait_s=0.1)) == 30


# Nonsense


def survives(broker):
    with RawClient(broker.port) as client:
        log_in(client)
        return is_served(client)


BEGINNINGS = {
    "first": [],
    "after the versions": [(versions_request(), 3)],
    "after the handshake": [(SaslHandshakeRequest(mechanism="PLAIN"), 1)],
    "after a bare handshake": [(SaslHandshakeRequest(mechanism="PLAIN"), 0)],
    "after a token": [
        (SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1),
        (SaslAuthenticateRequest(auth_bytes=b"n,,n=ann,r=nonce"), 2),
    ],
}
KEYS = range(-1, 93)
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
WITHOUT_PLACE_FOR_CODE = {2, 9, 10, 21, 23, 32, 61, 65, 75}
"""The last versions of these have no error for the whole request."""
ILLEGAL_STATE, FAILED = ErrorCode.ILLEGAL_SASL_STATE, ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("state", BEGINNINGS)
def test_every_api_in_every_state_gets_an_answer_or_the_end(broker, state):
    """Of nonsense: what can be read at all is refused with one of few errors."""
    seen = {}
    for key in KEYS:
        frame, version = nonsense(key)
        with RawClient(broker.port, timeout_s=PATIENCE_S) as client:
            begin(client, state)
            client.send(frame)
            rest = client.read_to_end()
            seen[key] = codes_in(rest, key, version) if rest else None
    answered = {key: codes for key, codes in seen.items() if codes is not None}
    if state in ("first", "after the versions"):
        assert answered == {SASL_HANDSHAKE: {ErrorCode.UNSUPPORTED_SASL_MECHANISM}}
    elif state == "after a bare handshake":
        assert answered == {}, "each is a token, and a wrong one"
    else:
        assert answered[SASL_HANDSHAKE] == {ILLEGAL_STATE}
        assert {code for codes in answered.values() for code in codes} == {ILLEGAL_STATE}
        assert not answered.keys() & WITHOUT_PLACE_FOR_CODE
    assert survives(broker)


def nonsense(key):
    """A request of this API in its last version, if there is such an API, and the version."""
    try:
        version = find(key)[0].versions[-1]
    except LookupError:
        return struct.pack(">ihhih", 10, key, 0, 1, -1), 0
    return struct.pack(">ihhih", 10 + 64, key, version, 1, -1) + bytes(64), version


def begin(client, state):
    for request, version in BEGINNINGS[state]:
        client.ask(request, version)


def only_answer(rest, key, version):
    (size,) = struct.unpack(">i", rest[:4])
    assert size == len(rest) - 4, "one answer"
    return read_response(rest[4:], find(key)[0], version)[1]


def codes_in(rest, key, version):
    return set(errors_of(find(key)[1])(only_answer(rest, key, version)))


@pytest.fixture(scope="module")
def topic(broker):
    """`t` of the requests; it has a record, and there is a group."""
    with RawClient(broker.port) as client:
        log_in(client)
        wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7)
        (found,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12).topics
        node = SimpleNamespace(batch=lambda value: BATCH)
        produced = client.ask(find(0)[0](**fields(node, 0, 13, found)), 13)
        assert produced.responses[0].partition_responses[0].error_code == 0
        return found


BATCH = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"a record that nobody may see")]))


@pytest.mark.parametrize("state", BEGINNINGS)
def test_no_request_that_means_something_is_served_before_authentication(broker, topic, state):
    """In each state: the error is the one of the state, and what the answer says besides is from the
    request, so it has nothing of the broker's."""
    with collected() as failures:
        for key in sorted(SERVED):
            with failures.of(f"API {key}"):
                check_that_it_is_not_served(broker, topic, state, key)
    assert survives(broker)


def check_that_it_is_not_served(broker, topic, state, key):
    version = SERVED[key][-1]
    directories = SimpleNamespace(directories=["/no/such/directory"])
    node = SimpleNamespace(batch=lambda value: BATCH, store=directories)
    request = find(key)[0](**fields(node, key, version, topic))
    with RawClient(broker.port, timeout_s=PATIENCE_S) as client:
        begin(client, state)
        client.send(request_frame(request, version, 1, "c"))
        is_first = state in ("first", "after the versions")
        if (is_first and key == SASL_HANDSHAKE) or (state == "first" and key == API_VERSIONS):
            _, answer = client.receive(type(request), version)
            assert answer.error_code == 0
            return  # which the protocol wants
        rest = client.read_to_end()
    in_the_middle = state in ("after the handshake", "after a token")
    if not in_the_middle or key in WITHOUT_PLACE_FOR_CODE:
        assert rest == b""
        return
    code = FAILED if key == SASL_AUTHENTICATE else ILLEGAL_STATE
    answer = only_answer(rest, key, version)
    assert set(errors_of(type(answer))(answer)) == {code}
    told = leaves(answer) - leaves(request) - {code} - DEFAULTS
    assert all(isinstance(one, str) and one in SENTENCES for one in told), told


DEFAULTS = {None, "", b"", 0, -1, -(2**31), ZERO_UUID}
SENTENCES = {
    error_message(ILLEGAL_STATE),
    "The user or the password is wrong.",
    "The client could not be authenticated with SCRAM-SHA-256.",
}


def leaves(value):
    """What a message says: the values of its fields, and of those in its lists."""
    if isinstance(value, list | tuple):
        return set().union(*map(leaves, value))
    if dataclasses.is_dataclass(value):
        return set().union(*(leaves(getattr(value, one.name)) for one in dataclasses.fields(value)))
    return {bytes(value) if isinstance(value, memoryview) else value}


@pytest.mark.parametrize("state", BEGINNINGS)
def test_flipped_bytes_end_no_broker(broker, state):
    choices = random.Random(state)
    sound = b"".join(
        [
            request_frame(versions_request(), 3, 1, "c"),
            request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1, 2, "c"),
            request_frame(SaslAuthenticateRequest(auth_bytes=RIGHT), 2, 3, "c"),
        ]
    )
    for _ in range(150 if NIGHTLY else 40):
        spoilt = bytearray(sound)
        for _ in range(choices.randint(1, 4)):
            spoilt[choices.randrange(len(spoilt))] = choices.randrange(256)
        with RawClient(broker.port, timeout_s=PATIENCE_S) as client:
            for request, version in BEGINNINGS[state]:
                client.ask(request, version)
            client.send(bytes(spoilt))
            client.socket.shutdown(socket.SHUT_WR)
            client.read_to_end()
    assert survives(broker)


def test_frames_may_be_cut_at_any_byte(broker):
    """Two requests and a third one behind them, in two pieces that come one after the other."""
    frames = [
        request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, "c"),
        request_frame(SaslAuthenticateRequest(auth_bytes=RIGHT), 2, 2, "c"),
        request_frame(MetadataRequest(topics=[]), 9, 3, "c"),
    ]
    whole = b"".join(frames)
    for cut in range(1, len(whole)):
        with RawClient(broker.port, timeout_s=PATIENCE_S) as client:
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.send(whole[:cut])
            answered = sum(cut >= len(b"".join(frames[:count])) for count in (1, 2, 3))
            for number in range(1, answered + 1):
                assert client.receive_frame()[:4] == struct.pack(">i", number)
            client.send(whole[cut:])
            for number in range(answered + 1, 4):
                assert client.receive_frame()[:4] == struct.pack(">i", number)


def test_a_length_over_the_limit_ends_the_connection_at_once(broker):
    for length in (524_289, 2**31 - 1, -1):
        with RawClient(broker.port) as client:
            client.send(struct.pack(">i", length))
            assert client.read_to_end() == b""
    with RawClient(broker.port) as client:
        client.send(b"\x16\x03\x01\x02\x00")
        assert client.read_to_end() == b""


def is_closed_under(client, frames):
    """Whether the broker ends the connection while it sends these frames again and again."""
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            client.send(frames)
    except ConnectionError:
        return True
    return False


def test_answers_that_nobody_reads_are_bounded(broker):
    unknown = struct.pack(">ihhihb", 11, 18, 99, 7, -1, 0)
    with RawClient(broker.port, timeout_s=PATIENCE_S, receive_buffer_bytes=65_536) as client:
        assert is_closed_under(client, unknown * 1000)
    assert survives(broker)


def test_known_passwords_are_nowhere_in_the_log(caplog, tmp_path):
    with caplog.at_level(logging.DEBUG), Broker(options=OPTIONS, data_dir=tmp_path) as one:
        alter(one, upsertions=[upsertion("u", "SCRAM-SHA-256", "pw-of-u")])
        for token in (b"\0ann\0pw-of-nobody", RIGHT, b"\0ann\0" + b"pw-of-x" * 1000, b"pw-of-ann"):
            with RawClient(one.port) as client:
                log_in(client, token)
        with RawClient(one.port) as client:
            log_in_with_scram(client, "SCRAM-SHA-256", "u", "pw-of-nobody")
        for _ in range(3):
            with RawClient(one.port) as client:
                client.send(b"pw-of-bob" * 100)
                client.read_to_end()
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "authentication failed: 127.0.0.1: listener SASL_PLAINTEXT: PLAIN: wrong user or password" in text
    assert "pw-of" not in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "offers GSSAPI, the default of sasl.enabled.mechanisms"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "nonsense"}, "something else"),
    ],
)
def test_a_broker_that_could_not_authenticate_does_not_start(changes, words):
    with pytest.raises(BrokerStartError, match=words):
        Broker(options={**OPTIONS, **changes}).start()


def test_without_the_package_of_kerberos_the_start_ends_with_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    login = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab='/no/keytab' "
        "principal='kafka/localhost@TEST.EXAMPLE' serviceName=kafka;"
    )
    changes = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": login,
    }
    with pytest.raises(BrokerStartError, match=r"pip install 'odradek\[kerberos\]'"):
        Broker(options={**OPTIONS, **changes}).start()


def test_many_silent_clients_hold_no_memory_and_leave_others_alone(broker):
    """A frame of half a megabyte is announced; a byte of it comes."""
    silent = []
    try:
        for _ in range(200):
            one = socket.create_connection(("127.0.0.1", broker.port))
            one.sendall(struct.pack(">i", 524_288) + b"\0")
            silent.append(one)
        assert survives(broker)
    finally:
        for one in silent:
            one.close()


class HeldWorkers:
    """Nothing is done until the test says so."""

    def __init__(self):
        self.asked = []

    def __len__(self):
        return len(self.asked)

    def run(self, *asked):
        self.asked.append(asked)


def waiting_gate(workers, failures=None):
    """One whose client waits for a worker, without a socket. `failures` gets the reasons of its end."""
    frames = [
        request_frame(SaslHandshakeRequest(mechanism="SLOW"), 1, 1, "c")[4:],
        request_frame(SaslAuthenticateRequest(auth_bytes=b""), 2, 2, "c")[4:],
    ]
    buffer = SimpleNamespace(
        take_frame=lambda _: frames.pop(0) if frames else None, shrink=lambda: None, capacity=0
    )
    slow = SimpleNamespace(login=None, respond=lambda token, now_ms: Later(lambda: b"computed"))
    connection = SimpleNamespace(
        requests=SimpleNamespace(suspend=lambda: None, buffer=buffer),
        responses=SimpleNamespace(transport=None, is_closing=False),
        peer_host="192.0.2.7",
    )
    listener = SaslListener(
        name="OUTSIDE",
        settings=Settings({"SLOW": lambda: slow}, {}),
        new_versions=lambda _: SimpleNamespace(check=lambda _: None),
        unauthenticated=SimpleNamespace(
            remove=lambda _: None,
            note_held=lambda *_: None,
            note_failure=lambda _, reason: failures.append(reason),
        ),
        timers=None,
        now_ms=lambda: 0,
        workers=workers,
    )
    gate = listener.gate_of(connection)
    gate.serve()
    return gate


def test_no_worker_computes_for_a_client_that_has_gone():
    workers = HeldWorkers()
    _, gone = waiting_gate(workers), waiting_gate(workers)
    gone.forget()
    (first, *_), (second, done, _) = workers.asked
    assert next(first)() == b"computed"
    with pytest.raises(StopIteration) as end:
        next(second)
    done(end.value.value)


def test_so_many_wait_for_a_worker_and_no_more():
    workers, failures = HeldWorkers(), []
    for _ in range(COMPUTATIONS_MAX):
        waiting_gate(workers, failures)
    assert (len(workers), failures) == (COMPUTATIONS_MAX, [])
    for _ in range(3):
        waiting_gate(workers, failures)
    assert len(workers) == COMPUTATIONS_MAX
    assert failures == ["listener OUTSIDE: too many authentications wait for a worker"] * 3
    workers.asked.pop()
    waiting_gate(workers, failures)
    assert (len(workers), len(failures)) == (COMPUTATIONS_MAX, 3)


def test_a_failing_thread_of_clients_is_no_trouble_for_a_served_one(broker):
    stop = threading.Event()

    def guess():
        while not stop.is_set():
            try:
                with RawClient(broker.port) as client:
                    log_in(client, b"\0ann\0guess")
            except (OSError, EOFError):
                pass

    threads = [threading.Thread(target=guess) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        with RawClient(broker.port) as client:
            log_in(client)
            assert all(is_served(client) for _ in range(100))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_clients_before_authentication_hold_a_bounded_memory_together(broker):
    """200 clients send half a megabyte each, without the last byte: 100 MB, of which 64 MiB may stay."""
    frame = struct.pack(">i", 524_288) + bytes(500_000)
    silent = []
    try:
        for _ in range(200):
            one = socket.create_connection(("127.0.0.1", broker.port))
            one.settimeout(PATIENCE_S)
            silent.append(one)
            with contextlib.suppress(ConnectionError):
                one.sendall(frame)
        assert survives(broker)
        deadline = time.monotonic() + PATIENCE_S
        while (ended := sum(map(is_ended, silent))) < 60 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert 60 <= ended <= 110
        assert survives(broker)
    finally:
        for one in silent:
            one.close()


def is_ended(connection):
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_which_node_this_is_comes_with_the_authentication(broker):
    foreign = replace(versions_request(), cluster_id="another", node_id=1)
    with RawClient(broker.port) as client:
        assert client.ask(foreign, 5).error_code == ErrorCode.NONE
        assert log_in(client).error_code == ErrorCode.NONE
        assert client.ask(foreign, 5).error_code == ErrorCode.REBOOTSTRAP_REQUIRED
    with RawClient(broker.port) as client:
        half = replace(versions_request(), node_id=1)
        assert client.ask(half, 5).error_code == ErrorCode.INVALID_REQUEST
