"""Connections and authentications as the metrics count them, by listener."""

import contextlib
import socket
import ssl

import pytest

import odradek
from odradek.embedding.free_port import free_port
from odradek.server.metrics.exposition import label_text
from odradek.server.metrics.new_connections import WINDOW_S, Rates
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.raw_client import RawClient
from tests.server.scrape import scraped, until
from tests.server.tls_ends import Authority

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_ann='right';"
CREATED, FAILED, SUCCEEDED = (
    "connection_creation_total",
    "failed_authentication_total",
    "successful_authentication_total",
)


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture
def ports(authority):
    """Of the listeners and of the metrics, by name."""
    ports = {name: free_port() for name in ("OPEN", "LOGIN", "SEALED", "metrics")}
    sealed = authority.server_options(**authority.trusting("required"))
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in ("OPEN", "LOGIN", "SEALED")),
        "listener.security.protocol.map": "OPEN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,SEALED:SSL",
        "inter.broker.listener.name": "OPEN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": JAAS,
        "connection.failed.authentication.delay.ms": "0",
        "connections.max.reauth.ms": "3600000",
        "odradek.metrics.listen": f"127.0.0.1:{ports['metrics']}",
        **{f"listener.name.sealed.{name}": value for name, value in sealed.items()},
    }
    with odradek.Broker(options=options, port=ports["OPEN"]):
        yield ports


def counted(ports, listener):
    """(let in, failed, succeeded)"""
    samples = scraped(ports["metrics"])
    labels = label_text(listener=listener)
    return tuple(
        samples[f"kafka_server_socketservermetrics_{name}", labels] for name in (CREATED, FAILED, SUCCEEDED)
    )


def log_in(client, password):
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    return client.ask(SaslAuthenticateRequest(auth_bytes=b"\0ann\0" + password), 2).error_code


def test_a_wrong_password_is_a_failure_of_its_listener_and_a_right_one_is_none(ports):
    with RawClient(ports["LOGIN"]) as client:
        assert log_in(client, b"wrong") == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert counted(ports, "LOGIN") == (1, 1, 0)
    with RawClient(ports["LOGIN"]) as client:
        assert log_in(client, b"right") == ErrorCode.NONE
        assert counted(ports, "LOGIN") == (2, 1, 1)
        # The same client again, as with a session that ends.
        assert log_in(client, b"right") == ErrorCode.NONE
    assert counted(ports, "LOGIN") == (2, 1, 1)
    assert counted(ports, "SEALED") == (0, 0, 0)


def handshake(port, context):
    """And what comes after it: with TLS 1.3 a server refuses a certificate when the client is done."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as connected,
        context.wrap_socket(connected, server_hostname="localhost") as sealed,
    ):
        sealed.sendall(bytes(4))
        return sealed.recv(1)


def test_a_client_without_a_certificate_is_a_failure_and_one_with_it_is_not(ports, authority):
    with pytest.raises(ssl.SSLError):
        handshake(ports["SEALED"], authority.client_context())
    until(lambda: counted(ports, "SEALED"), lambda counts: counts == (1, 1, 0))
    own = authority.client_context(authority.issue("ann", common_name="ann"))
    handshake(ports["SEALED"], own)
    until(lambda: counted(ports, "SEALED"), lambda counts: counts == (2, 1, 1))


def test_where_nobody_authenticates_nothing_is_counted_but_connections(ports):
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(RawClient(ports["OPEN"]))
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        assert counted(ports, "OPEN") == (3, 0, 0)
        rate = "kafka_server_socketservermetrics_connection_creation_rate"
        # More than a second of the window may have passed, and never more than that.
        assert scraped(ports["metrics"])[rate, label_text(listener="OPEN")] >= 3 / (WINDOW_S + 1)


def test_a_rate_is_of_the_last_half_minute():
    rates = Rates()
    assert rates.rates(0.0, {"A": 5}) == {"A": 0}
    for second in range(100):
        rates.note(second, {"A": 2 * second})
    assert rates.rates(99.5, {"A": 2 * 99 + 1, "new": 61}) == {
        "A": pytest.approx(2.0),
        "new": pytest.approx(61 / 30.5),
    }
    for second in range(100, 200):
        rates.note(second, {"A": 198})
    assert rates.rates(199.5, {"A": 198}) == {"A": 0}
