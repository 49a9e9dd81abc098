"""OAUTHBEARER with client libraries: unsigned tokens where a listener takes them, and signed ones of an
authority whose keys are behind an address of this machine, and change."""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka.abc
import kafka
import pytest
from aiokafka.helpers import create_ssl_context
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import JavaFailure, JavaProgram
from compat_tests.secured import LISTENER, secured_odradek
from compat_tests.security import programs
from compat_tests.security.certificates import Authority as Certificates
from compat_tests.security.refusals import confluent_gets_in
from compat_tests.security.test_sasl_clients import Entrance, aiokafka_gets_in, kafka_python_gets_in
from compat_tests.token_client import Client
from odradek import Broker, BrokerStartError
from tests.server.jwt_authority import jwk, jwks, new_key, signed, unsigned

HERE = pathlib.Path(__file__).parent
SECONDS = 30.0
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
PREFIX = f"listener.name.{LISTENER.lower()}.oauthbearer"
SEALED = "SASL_SSL"
ISSUER, AUDIENCE = "https://authority.example", "kafka"

Connect = Callable[[Broker, str, pathlib.Path | None], bool]
"""Broker, token, and the authority of a listener with TLS: whether the client gets in. Any other failure
raises, a time-out, too.
"""


class Authority:
    """Its keys are served over HTTP."""

    def __init__(self) -> None:
        self.algorithm = "RS256"
        self.key = new_key(self.algorithm)
        self.kid = "key-1"
        self.fetches = 0
        authority = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                authority.fetches += 1
                content = jwks(jwk(authority.key, authority.algorithm, kid=authority.kid))
                self.send_response(200 if self.path == "/keys" else 302)
                if self.path != "/keys":
                    self.send_header("Location", "/keys")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Not to the test's output."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/keys"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def renew_key(self) -> None:
        self.key, self.kid = new_key(self.algorithm), f"{self.kid}-next"

    def token(self, **more: Any) -> str:
        return signed(self.key, claims(**more), self.kid, self.algorithm)


def claims(**more: Any) -> dict[str, Any]:
    now_s = int(time.time())
    return {
        "sub": "ann",
        "iat": now_s - 5,
        "exp": now_s + 3600,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "scope": "a",
        **more,
    }


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    one = Authority()
    yield one
    one.close()


def signing_settings(authority: Authority, listener: str) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}.oauthbearer"
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": authority.url,
        f"{prefix}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{prefix}.sasl.oauthbearer.expected.issuer": ISSUER,
    }


@pytest.fixture(scope="module")
def signing(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = signing_settings(authority, LISTENER)
    with secured_odradek(tmp_path_factory.mktemp("signing"), settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def sealed_signing(
    authority: Authority, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    settings = signing_settings(authority, SEALED)
    settings |= certificates.key_store("PEM", "broker", certificates.server())
    with secured_odradek(tmp_path_factory.mktemp("sealed"), settings, listener=SEALED) as broker:
        yield broker


@pytest.fixture(params=[LISTENER, SEALED])
def entrance(request: pytest.FixtureRequest) -> Entrance:
    """A broker that wants signed tokens, over each listener type."""
    if request.param == LISTENER:
        return Entrance(request.getfixturevalue("signing"), None)
    certificates: Certificates = request.getfixturevalue("certificates")
    return Entrance(request.getfixturevalue("sealed_signing"), certificates.pem)


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """It takes unsigned tokens, as it was told."""
    handler = f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}.sasl.server.callback.handler.class": handler,
    }
    with secured_odradek(tmp_path_factory.mktemp("trusting"), settings) as broker:
        yield broker


def with_confluent(broker: Broker, token: str, ca: pathlib.Path | None = None) -> bool:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": LISTENER,
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 3600),
    }
    if ca is not None:
        settings |= {"security.protocol": SEALED, "ssl.ca.location": str(ca)}
    return confluent_gets_in(settings, KafkaError._AUTHENTICATION, "invalid_token")


class _Provider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def python_settings(broker: Broker, provider: object, ca: pathlib.Path | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": LISTENER,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }
    if ca is not None:
        settings |= {"security_protocol": SEALED, "ssl_context": create_ssl_context(cafile=str(ca))}
    return settings


def with_kafka_python(broker: Broker, token: str, ca: pathlib.Path | None = None) -> bool:
    return kafka_python_gets_in(python_settings(broker, _Provider(token), ca))


class _LaterProvider(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def with_aiokafka(broker: Broker, token: str, ca: pathlib.Path | None = None) -> bool:
    # It takes the first answer of a refusal for a success, and is sent away with its next request.
    settings = python_settings(broker, _LaterProvider(token), ca)
    return aiokafka_gets_in(settings, "KafkaConnectionError: Connection at")


@pytest.fixture(scope="module")
def java() -> Iterator[JavaProgram]:
    """Its server is set by each command."""
    class_path = compile_java(":".join([reference.client_class_path(), *jackson()]), HERE / "SaslClient.java")
    program = JavaProgram(class_path, "SaslClient", "nowhere:1")
    yield program
    program.close()


def jackson() -> list[str]:
    """With it Kafka's client reads tokens."""
    folder = pathlib.Path(reference.class_path().removesuffix("/*"))
    return [str(path) for path in sorted([*folder.glob("jackson-*.jar"), *folder.glob("jose4j-*.jar")])]


def java_asks(java: JavaProgram, broker: Broker, jaas: str, *properties: str) -> bool:
    try:
        java.ask(
            "connect-with",
            f"bootstrap.servers={broker.bootstrap_servers}",
            "sasl.mechanism=OAUTHBEARER",
            f"sasl.jaas.config={PACKAGE}.OAuthBearerLoginModule required {jaas};",
            *properties,
        )
    except JavaFailure as error:
        if "SaslAuthenticationException" not in str(error) or "invalid_token" not in str(error):
            raise
        return False
    return True


def java_connect(java: JavaProgram, path: pathlib.Path) -> Connect:
    def connect(broker: Broker, token: str, ca: pathlib.Path | None = None) -> bool:
        sealed = () if ca is None else (f"security.protocol={SEALED}", "ssl.truststore.type=PEM")
        sealed += () if ca is None else (f"ssl.truststore.location={ca}",)
        # The client keeps what it has read of a file.
        file = path / f"{abs(hash(token))}.jwt"
        file.write_text(token)
        return java_asks(
            java,
            broker,
            f'name="{file.name}"',
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={file}",
            f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}",
            f"sasl.login.callback.handler.class={PACKAGE}.OAuthBearerLoginCallbackHandler",
            *sealed,
        )

    return connect


CONNECTS: dict[str, Connect] = {
    "confluent": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


@pytest.fixture(params=[*CONNECTS, "java"])
def connect(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Connect:
    name: str = request.param
    if name == "java":
        return java_connect(request.getfixturevalue("java"), tmp_path)
    return CONNECTS[name]


def test_a_client_gets_in_with_a_right_token_only(
    entrance: Entrance, authority: Authority, connect: Connect
) -> None:
    broker, ca = entrance
    now_s = int(time.time())
    assert connect(broker, authority.token(), ca)
    wrong = {
        "expired": authority.token(iat=now_s - 200, exp=now_s - 100),
        "another audience": authority.token(aud="others"),
        "another issuer": authority.token(iss="https://others.example"),
        "another key": signed(new_key("RS256"), claims(), authority.kid, "RS256"),
        "an unknown key": signed(new_key("RS256"), claims(), "nobody's", "RS256"),
    }
    if ca is not None:
        # What is behind TLS is the same.
        wrong = {"expired": wrong["expired"]}
    for reason, token in wrong.items():
        assert not connect(broker, token, ca), reason
    assert connect(broker, authority.token(sub="bob"), ca)


@pytest.mark.nightly
@pytest.mark.parametrize("library", ["franz", "sarama-1", "kafkajs"])
def test_a_client_of_go_or_node_gets_in_with_a_right_token_only(
    entrance: Entrance, authority: Authority, library: str
) -> None:
    broker, ca = entrance
    now_s = int(time.time())
    for wrong in (
        authority.token(iat=now_s - 200, exp=now_s - 100),
        signed(new_key("RS256"), claims(), authority.kid, "RS256"),
        unsigned(claims()),
    ):
        programs.let_try(library, broker.bootstrap_servers, "OAUTHBEARER", authority.token(), wrong, ca=ca)


@pytest.mark.parametrize("name", CONNECTS)
def test_an_unsigned_token_is_refused_where_there_are_keys(signing: Broker, name: str) -> None:
    """CVE-2026-33557. Kafka's own client does not even send such a token."""
    assert not CONNECTS[name](signing, unsigned(claims()), None)


def test_kafkas_client_for_unsigned_tokens_is_refused_where_there_are_keys(
    signing: Broker, java: JavaProgram
) -> None:
    assert not java_asks(java, signing, 'unsecuredLoginStringClaim_sub="ann"')


def test_unsigned_tokens_are_taken_where_the_listener_says_so(
    trusting: Broker, signing: Broker, java: JavaProgram
) -> None:
    assert java_asks(java, trusting, 'unsecuredLoginStringClaim_sub="ann"')
    for name, attempt in CONNECTS.items():
        assert attempt(trusting, unsigned(claims()), None), name
    settings = {
        "bootstrap.servers": trusting.bootstrap_servers,
        "security.protocol": LISTENER,
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=ann scope=a",
    }
    assert AdminClient(settings).list_topics(timeout=SECONDS).brokers


def gets_in(broker: Broker, token: str) -> bool:
    """Without a library, which would try again for a while."""
    with Client(broker.port) as client:
        return client.with_bearer(token) == 0


def test_renewed_keys_count_and_the_old_ones_do_not(signing: Broker, authority: Authority) -> None:
    old = authority.token()
    assert gets_in(signing, old)
    authority.renew_key()
    new = authority.token()
    # The first token with the new key makes the broker ask for it.
    wait_until(lambda: gets_in(signing, new), "the new key", seconds=SECONDS)
    assert with_kafka_python(signing, new)
    assert not gets_in(signing, old)
    fetches = authority.fetches
    for _ in range(20):
        assert not gets_in(signing, old)
    assert authority.fetches <= fetches + 1


FOR_ANYBODY = {
    "sasl.oauthbearer.allow.unverified.audience": "true",
    "sasl.oauthbearer.allow.unverified.issuer": "true",
}
"""Tokens are taken whoever they are for and whoever made them."""


def test_a_file_of_keys_is_enough(authority: Authority, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(jwks(jwk(authority.key, authority.algorithm, kid=authority.kid)))
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        **FOR_ANYBODY,
    }
    with secured_odradek(tmp_path / "data", settings) as broker:
        assert with_kafka_python(broker, authority.token())
        assert not gets_in(broker, unsigned(claims()))


def test_a_redirect_and_an_authority_without_keys_stop_the_start(
    authority: Authority, tmp_path: pathlib.Path
) -> None:
    empty = tmp_path / "keys.json"
    empty.write_text(json.dumps({"keys": []}))
    for url in (authority.url.replace("/keys", "/moved"), empty.as_uri(), "http://127.0.0.1:1/keys"):
        settings = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": url,
            **FOR_ANYBODY,
        }
        with (
            pytest.raises(BrokerStartError, match="cannot be used"),
            secured_odradek(tmp_path / "data", settings),
        ):
            pass


def test_a_session_ends_with_its_token_and_is_renewed_by_the_next(
    signing: Broker, authority: Authority
) -> None:
    class Fresh(_Provider):
        def token(self) -> str:
            return authority.token(exp=int(time.time()) + 3)

    producer = kafka.KafkaProducer(
        bootstrap_servers=signing.bootstrap_servers,
        security_protocol=LISTENER,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Fresh(""),
        retries=0,
    )
    before = handshakes(signing)
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        producer.send("oauth", b"value").get(SECONDS)
    producer.close()
    assert handshakes(signing) > before


def handshakes(broker: Broker) -> int:
    """Those of clients that were authenticated already."""
    return sum(one.requests for (name, _), one in broker.metrics().items() if name == "SaslHandshake")
