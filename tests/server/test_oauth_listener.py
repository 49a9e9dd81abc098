"""A broker with OAUTHBEARER, met over sockets: its answers, its log, and its settings."""

import logging
import sys
import time

import pytest

from odradek import Broker, BrokerStartError
from odradek.config import options as config_options
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.raw_client import RawClient
from tests.server.jwt_authority import jwk, jwks, new_key, signed, unsigned

PATIENCE_S = 30
KEY = new_key()
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
URL = "sasl.oauthbearer.jwks.endpoint.url"
OPTIONS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "us",
    "connection.failed.authentication.delay.ms": "10",
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_bytes(jwks(jwk(KEY, kid="k1")))
    return path


@pytest.fixture(scope="module")
def broker(keys):
    with Broker(options={**OPTIONS, URL: keys.as_uri()}) as one:
        yield one


def claims(**more):
    now_s = int(time.time())
    return {"sub": "ann", "iat": now_s, "exp": now_s + 600, "aud": "kafka", "iss": "us", **more}


def log_in(client, token, *, is_first=True):
    """The last answer."""
    assert client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
    first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
    if answer.auth_bytes:
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b'{"status":"invalid_token"}')
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert answer.error_message == '{"status":"invalid_token"}'
    return answer


def test_a_client_is_served_until_its_token_ends(broker):
    with RawClient(broker.port) as client:
        answer = log_in(client, signed(KEY, claims(exp=int(time.time()) + 3)))
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime_ms <= 3000
        assert client.ask(MetadataRequest(topics=[]), 9).brokers
        # Another token renews the session, of the same user only.
        assert 500_000 < log_in(client, signed(KEY, claims())).session_lifetime_ms <= 600_000
        assert client.ask(MetadataRequest(topics=[]), 9).brokers
    with RawClient(broker.port) as client:
        assert log_in(client, signed(KEY, claims())).error_code == 0
        answer = log_in(client, signed(KEY, claims(sub="bob")))
        assert answer.error_code == 58
        assert "User:ann" in answer.error_message


def test_a_session_ends_with_its_token(broker):
    with RawClient(broker.port) as client:
        assert log_in(client, signed(KEY, claims(exp=int(time.time()) + 2))).error_code == 0
        with pytest.raises((ConnectionError, EOFError)):
            ask_for_ever(client)


def ask_for_ever(client):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        client.ask(MetadataRequest(topics=[]), 9)


def test_forged_tokens_are_refused_and_the_log_has_none_of_them(broker, caplog):
    forged = [
        unsigned(claims()),
        signed(new_key(), claims()),
        signed(KEY, claims(aud="others")),
        signed(KEY, claims(iss="others")),
        signed(KEY, claims(iat=1, exp=2)),
    ]
    with caplog.at_level(logging.DEBUG):
        for token in forged:
            with RawClient(broker.port) as client:
                assert log_in(client, token).error_code == 58
                assert client.read_to_end() == b""
    assert not any(part in caplog.text for token in forged for part in token.split(".") if part)


def test_a_new_key_in_the_file_counts(broker, keys):
    key = new_key()
    keys.write_bytes(jwks(jwk(KEY, kid="k1"), jwk(key, kid="k2")))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with RawClient(broker.port) as client:
            code = log_in(client, signed(key, claims(), "k2")).error_code
        if code == 0 or time.monotonic() > deadline:
            break
    assert code == 0


def altered(broker, name, text):
    """The codes of an attempt for all brokers and for this one."""
    setting = AlterableConfig(name=name, config_operation=0, value=text)
    with RawClient(broker.port) as client:
        assert log_in(client, signed(KEY, claims())).error_code == 0
        (node,) = client.ask(MetadataRequest(topics=[]), 9).brokers
        codes = []
        for owner in ("", str(node.node_id)):
            resource = AlterConfigsResource(resource_type=4, resource_name=owner, configs=[setting])
            (result,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
            codes.append(result.error_code)
        return codes


def test_no_client_can_say_how_tokens_are_checked(keys):
    """CVE-2025-27817: the broker would read files and ask addresses for it."""
    unsigned_tokens = f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    listener = "listener.name.sasl_plaintext."
    with Broker(options={**OPTIONS, URL: keys.as_uri()}) as broker:
        for prefix in ("", listener, f"{listener}oauthbearer."):
            assert altered(broker, f"{prefix}{URL}", "file:/nowhere") == [42, 42]
            assert altered(broker, f"{prefix}sasl.server.callback.handler.class", unsigned_tokens) == [42, 42]


def test_what_was_stored_of_how_tokens_are_checked_does_not_count_after_a_start(keys, tmp_path, monkeypatch):
    """Older versions have stored settings of single listeners."""
    unsigned_tokens = f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    handler = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
    options = {**OPTIONS, URL: keys.as_uri()}
    with monkeypatch.context() as older:
        older.setattr(config_options, "is_of_start", lambda name: False)
        with Broker(options=options, data_dir=tmp_path) as broker:
            assert altered(broker, handler, unsigned_tokens)[1] == 0
    with Broker(options=options, data_dir=tmp_path) as broker:
        for token, code in ((signed(KEY, claims()), 0), (unsigned(claims()), 58)):
            with RawClient(broker.port) as client:
                assert log_in(client, token).error_code == code
        assert altered(broker, "log.retention.ms", "5") == [0, 0]


def test_without_keys_there_is_no_start(tmp_path):
    with pytest.raises(BrokerStartError, match="no keys to check tokens with"), Broker(options=OPTIONS):
        pass
    missing = (tmp_path / "missing").as_uri()
    with (
        pytest.raises(BrokerStartError, match="cannot be used"),
        Broker(options={**OPTIONS, URL: missing}),
    ):
        pass


def test_without_its_packages_there_is_no_start_but_a_hint(keys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jwt", None)
    for name in ("odradek.server.security.jwks", "odradek.server.security.signed_tokens"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    hint = r"pip install 'odradek\[security\]'"
    with (
        pytest.raises(BrokerStartError, match=hint),
        Broker(options={**OPTIONS, URL: keys.as_uri()}),
    ):
        pass
