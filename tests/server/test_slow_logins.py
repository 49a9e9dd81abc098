"""Logins that cost the broker a computation: it is done in a worker, so that the others are served meanwhile,
and not more than a number of them wait. The computations stand still as long as the test says so."""

import contextlib
import threading
import time

import pytest

from odradek import Broker
from odradek.server.security.sasl import gate
from odradek.server.security.signed_tokens import SignedValidator
from odradek.server.security.tokens import TokenLogins
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.raw_client import RawClient
from tests.server.jwt_authority import jwk, jwks, new_key, signed

PATIENCE_S = 30
WAITING_MAX, REFUSED = 10, 4
KEY = new_key()
OPTIONS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        "username=ann password='pw-of-ann' user_ann='pw-of-ann';"
    ),
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "us",
    "delegation.token.secret.key": "secret-of-tokens",
}


class Held:
    """Stands in the way of a method, and notes the threads that call it."""

    def __init__(self, original):
        self.threads = set()
        self.go_on = threading.Event()
        self._original = original

    def method(self):
        def held(one, *arguments):
            self.threads.add(threading.current_thread().name)
            assert self.go_on.wait(PATIENCE_S)
            return self._original(one, *arguments)

        return held


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(jwks(jwk(KEY, kid="k1")))
    with Broker(options={**OPTIONS, "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()}) as one:
        yield one


def log_in(client):
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    token = b"\0ann\0pw-of-ann"
    assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0


def jwt_of(broker):
    now_s = int(time.time())
    claims = {"sub": "ann", "iat": now_s, "exp": now_s + 600, "aud": "kafka", "iss": "us"}
    return f"n,,\x01auth=Bearer {signed(KEY, claims)}\x01\x01".encode()


def first_of_token(broker):
    with RawClient(broker.port) as client:
        log_in(client)
        request = CreateDelegationTokenRequest(
            owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1
        )
        token = client.ask(request, 3)
        assert token.error_code == 0
        return f"n,,n={token.token_id},r=nonce,tokenauth=true".encode()


def is_ended(client):
    client.socket.setblocking(False)
    try:
        return not client.socket.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        client.socket.settimeout(PATIENCE_S)


@pytest.mark.parametrize(
    ("mechanism", "owner", "name", "message_of"),
    [
        ("OAUTHBEARER", SignedValidator, "validate", jwt_of),
        ("SCRAM-SHA-256", TokenLogins, "credential", first_of_token),
    ],
)
def test_a_flood_of_logins_leaves_the_loop_to_the_others_and_is_bounded(
    broker, monkeypatch, mechanism, owner, name, message_of
):
    message = message_of(broker)
    held = Held(getattr(owner, name))
    monkeypatch.setattr(owner, name, held.method())
    monkeypatch.setattr(gate, "COMPUTATIONS_MAX", WAITING_MAX)
    with contextlib.ExitStack() as ending:
        ending.callback(held.go_on.set)
        other = ending.enter_context(RawClient(broker.port, timeout_s=PATIENCE_S))
        log_in(other)
        flood = []
        for _ in range(WAITING_MAX + REFUSED):
            client = ending.enter_context(RawClient(broker.port, timeout_s=PATIENCE_S))
            assert client.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
            client.send_request(SaslAuthenticateRequest(auth_bytes=message), 2)
            flood.append(client)
        deadline_s = time.monotonic() + PATIENCE_S
        while sum(map(is_ended, flood)) < REFUSED and time.monotonic() < deadline_s:
            # Served, and let in, while those before it wait.
            assert other.ask(MetadataRequest(topics=[]), 9).brokers
        with RawClient(broker.port, timeout_s=PATIENCE_S) as late:
            log_in(late)
            assert late.ask(MetadataRequest(topics=[]), 9).brokers
        waiting = [client for client in flood if not is_ended(client)]
        assert len(waiting) == WAITING_MAX
        assert not held.go_on.is_set()
        held.go_on.set()
        for client in waiting:
            assert client.receive(SaslAuthenticateRequest, 2)[1].error_code == 0
        assert all(thread.startswith("odradek-work") for thread in held.threads), held.threads
        after = ending.enter_context(RawClient(broker.port, timeout_s=PATIENCE_S))
        after.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        assert after.ask(SaslAuthenticateRequest(auth_bytes=message), 2).error_code == 0
