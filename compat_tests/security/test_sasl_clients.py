"""Client libraries with each mechanism: the right password, a wrong one, a user that does not exist, one that
has been removed; and sessions that end, with the libraries that authenticate again.

Kafka's own tools change the users. Libraries of Go and Node have programs of their own (`programs.py`).
"""

from __future__ import annotations

import asyncio
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.helpers import create_ssl_context
from confluent_kafka import KafkaError
from kafka.errors import KafkaError as KafkaPythonError

from compat_tests import reference
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import JavaFailure, JavaProgram
from compat_tests.secured import LISTENER, MECHANISMS, PASSWORD
from compat_tests.security import programs
from compat_tests.security.certificates import Authority
from compat_tests.security.refusals import confluent_gets_in, log_of
from odradek import Broker

HERE = pathlib.Path(__file__).parent
SECONDS = 30.0
MODULES = "org.apache.kafka.common.security"
SESSION_SECONDS = 6
ATTEMPTS = 4
"""Three times as long as a session."""

Connect = Callable[..., bool]
"""Broker, mechanism, user, password, and the authority of a listener with TLS: whether the client gets in.
Any other failure raises, a time-out, too.
"""


class Entrance(NamedTuple):
    """A broker, and of a listener with TLS the file of its authority."""

    broker: Broker
    ca: pathlib.Path | None


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def entrance(request: pytest.FixtureRequest) -> Entrance:
    if request.param == LISTENER:
        return Entrance(request.getfixturevalue("secured"), None)
    authority: Authority = request.getfixturevalue("certificates")
    return Entrance(request.getfixturevalue("sealed"), authority.pem)


def confluent_settings(
    broker: Broker, mechanism: str, user: str, password: str, ca: pathlib.Path | None = None
) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": LISTENER,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    if ca is not None:
        settings |= {"security.protocol": "SASL_SSL", "ssl.ca.location": str(ca)}
    return settings


def with_confluent(
    broker: Broker, mechanism: str, user: str, password: str, ca: pathlib.Path | None = None
) -> bool:
    settings = confluent_settings(broker, mechanism, user, password, ca)
    return confluent_gets_in(settings, KafkaError._AUTHENTICATION)


def kafka_python_settings(
    broker: Broker, mechanism: str, user: str, password: str, ca: pathlib.Path | None = None
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": LISTENER,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
    if ca is not None:
        settings |= {"security_protocol": "SASL_SSL", "ssl_context": create_ssl_context(cafile=str(ca))}
    return settings


def with_kafka_python(
    broker: Broker, mechanism: str, user: str, password: str, ca: pathlib.Path | None = None
) -> bool:
    return kafka_python_gets_in(kafka_python_settings(broker, mechanism, user, password, ca))


def kafka_python_gets_in(settings: dict[str, Any]) -> bool:
    with log_of("kafka") as lines:
        try:
            # After a refusal it tries again for so long.
            admin = kafka.KafkaAdminClient(**settings, bootstrap_timeout_ms=3_000)
        except KafkaPythonError:
            if any("SaslAuthenticationFailed" in line for line in lines):
                return False
            raise
    admin.list_topics()
    admin.close()
    return True


def with_aiokafka(
    broker: Broker, mechanism: str, user: str, password: str, ca: pathlib.Path | None = None
) -> bool:
    return aiokafka_gets_in(kafka_python_settings(broker, mechanism, user, password, ca))


def aiokafka_gets_in(settings: dict[str, Any], reason: str = "SaslAuthenticationFailed") -> bool:
    """Words of its log are the reason; its time-out is 40 seconds."""
    began = time.monotonic()

    async def connect() -> bool:
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
        except aiokafka.errors.KafkaError:
            if any(reason in line for line in lines) and time.monotonic() - began < SECONDS / 2:
                return False
            raise
        finally:
            await producer.stop()
        return True

    with log_of("aiokafka") as lines:
        return asyncio.run(connect())


@pytest.fixture(scope="module")
def java(secured: Broker) -> Iterator[JavaProgram]:
    class_path = compile_java(reference.client_class_path(), HERE / "SaslClient.java")
    program = JavaProgram(class_path, "SaslClient", secured.bootstrap_servers)
    yield program
    program.close()


def attempts_of(connect: Connect, entrance: Entrance, mechanism: str) -> None:
    broker, ca = entrance
    assert connect(broker, mechanism, "ann", PASSWORD, ca)
    assert not connect(broker, mechanism, "ann", "wrong", ca)
    assert not connect(broker, mechanism, "nobody", PASSWORD, ca)
    assert connect(broker, mechanism, "ann", PASSWORD, ca)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("connect", [with_confluent, with_kafka_python, with_aiokafka])
def test_a_client_of_python_gets_in_with_the_right_password_only(
    entrance: Entrance, connect: Connect, mechanism: str
) -> None:
    attempts_of(connect, entrance, mechanism)


def java_connect(java: JavaProgram) -> Connect:
    def connect(
        broker: Broker, mechanism: str, user: str, password: str, ca: pathlib.Path | None = None
    ) -> bool:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = f'{MODULES}.{module} required username="{user}" password="{password}";'
        properties = [f"bootstrap.servers={broker.bootstrap_servers}"]
        if ca is not None:
            properties += ["security.protocol=SASL_SSL", "ssl.truststore.type=PEM"]
            properties += [f"ssl.truststore.location={ca}"]
        try:
            java.ask("connect-with", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={login}", *properties)
        except JavaFailure as error:
            # Anything else, such as a time-out, is a failure of the test.
            if "SaslAuthenticationException" not in str(error):
                raise
            return False
        return True

    return connect


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_own_client_gets_in_with_the_right_password_only(
    entrance: Entrance, java: JavaProgram, mechanism: str
) -> None:
    attempts_of(java_connect(java), entrance, mechanism)


def kafka_configs(broker: Broker, path: pathlib.Path, *arguments: str) -> str:
    """Kafka's own tool, as the user admin of PLAIN."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    path.write_text(
        f"security.protocol={LISTENER}\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="admin" password="pw-of-admin";\n'
    )
    finished = reference.kafka_tool(
        reference.CONFIG_COMMAND,
        *(
            "--bootstrap-server",
            broker.bootstrap_servers,
            "--command-config",
            str(path),
            "--entity-type",
            "users",
        ),
        *arguments,
    )
    return finished.stdout


def test_users_of_kafkas_own_tool_get_in_until_they_are_removed(
    secured: Broker, java: JavaProgram, tmp_path: pathlib.Path
) -> None:
    connections: dict[str, Connect] = {
        "java": java_connect(java),
        "confluent": with_confluent,
        "kafka-python": with_kafka_python,
        "aiokafka": with_aiokafka,
    }
    for mechanism in MECHANISMS[1:]:
        added = f"{mechanism}=[iterations=8192,password=pw-of-carl]"
        named = ("--entity-name", "carl")
        kafka_configs(secured, tmp_path / "client", *named, "--alter", "--add-config", added)
        described = kafka_configs(secured, tmp_path / "client", *named, "--describe")
        assert f"{mechanism}=iterations=8192" in described
        for name, connect in connections.items():
            assert connect(secured, mechanism, "carl", "pw-of-carl"), name
        kafka_configs(secured, tmp_path / "client", *named, "--alter", "--delete-config", mechanism)
        for name, connect in connections.items():
            assert not connect(secured, mechanism, "carl", "pw-of-carl"), name


# Sessions that end


def renewals(broker: Broker) -> int:
    """Handshakes of clients that were authenticated already."""
    return sum(metrics.requests for (name, _), metrics in broker.metrics().items() if name == "SaslHandshake")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_own_client_renews_its_session(short_sessions: Broker, mechanism: str) -> None:
    class_path = compile_java(reference.client_class_path(), HERE / "SaslClient.java")
    program = JavaProgram(class_path, "SaslClient", short_sessions.bootstrap_servers)
    before = renewals(short_sessions)
    counts = []
    try:
        topic = f"java-{mechanism}"
        # On a busy machine its connection may be made late, and the time be over before the session.
        while renewals(short_sessions) == before and len(counts) < ATTEMPTS:
            counts += program.ask("produce", mechanism, "ann", PASSWORD, topic, SESSION_SECONDS)
    finally:
        program.close()
    assert int(counts[-1]) > 0
    assert renewals(short_sessions) > before


def test_librdkafka_renews_its_session(short_sessions: Broker) -> None:
    failures: list[Any] = []
    before = renewals(short_sessions)
    settings = confluent_settings(short_sessions, "SCRAM-SHA-512", "ann", PASSWORD)
    producer = confluent_kafka.Producer({**settings, "error_cb": failures.append})
    deadline = time.monotonic() + SESSION_SECONDS
    delivered: list[Any] = []
    while time.monotonic() < deadline:
        producer.produce("confluent", b"value", on_delivery=lambda error, message: delivered.append(error))
        assert producer.flush(SECONDS) == 0
    assert delivered
    assert not any(delivered)
    assert failures == []
    assert renewals(short_sessions) > before


def test_kafka_python_renews_its_session(short_sessions: Broker) -> None:
    before = renewals(short_sessions)
    producer = kafka.KafkaProducer(
        **kafka_python_settings(short_sessions, "SCRAM-SHA-256", "ann", PASSWORD), retries=0
    )
    deadline = time.monotonic() + SESSION_SECONDS
    while time.monotonic() < deadline:
        producer.send("kafka-python", b"value").get(SECONDS)
    producer.close()
    assert renewals(short_sessions) > before


def test_aiokafka_connects_anew_when_its_session_has_ended(
    short_sessions: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def produce() -> int:
        producer = aiokafka.AIOKafkaProducer(
            **kafka_python_settings(short_sessions, "SCRAM-SHA-256", "ann", PASSWORD), retry_backoff_ms=100
        )
        await producer.start()
        sent = 0
        try:
            deadline = time.monotonic() + SESSION_SECONDS
            while time.monotonic() < deadline:
                await producer.send_and_wait("aiokafka", b"value")
                sent += 1
                await asyncio.sleep(0.05)
        finally:
            await producer.stop()
        return sent

    assert asyncio.run(produce()) > 0
    lost = [one for one in caplog.records if one.name.startswith("aiokafka") and "closed" in one.getMessage()]
    assert lost, "no connection has ended"


# Go and Node


@pytest.mark.nightly
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("library", [*programs.LIBRARIES, "segmentio"])
def test_a_client_of_go_or_node_gets_in_with_the_right_password_only(
    entrance: Entrance, library: str, mechanism: str
) -> None:
    broker, ca = entrance
    programs.let_try(library, broker.bootstrap_servers, mechanism, "ann", PASSWORD, ca=ca)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("library", "reason"),
    [("franz", "SASL_AUTHENTICATION_FAILED"), ("kafkajs", "uthentication")],
)
def test_a_client_of_go_or_node_gets_in_until_its_user_is_removed(
    secured: Broker, tmp_path: pathlib.Path, library: str, reason: str
) -> None:
    words = (library, secured.bootstrap_servers, "SCRAM-SHA-512", "dan", "pw-of-dan")
    named = ("--entity-name", "dan", "--alter")
    kafka_configs(secured, tmp_path / "client", *named, "--add-config", "SCRAM-SHA-512=[password=pw-of-dan]")
    programs.let_try(*words)
    kafka_configs(secured, tmp_path / "client", *named, "--delete-config", "SCRAM-SHA-512")
    programs.let_try(*words, refused=reason)
