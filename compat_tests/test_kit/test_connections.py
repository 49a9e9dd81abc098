"""Faults that are not of requests, with every client: connections that are refused, logins that fail, a disk
that is full. They are for all clients of a broker, so that a test has the broker for itself."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from compat_tests.test_kit.clients import Failed, StoryClient
from compat_tests.test_kit.operations import OPERATIONS
from compat_tests.test_kit.stories import CLIENTS, CONFLUENT, JAVA, KAFKA_PYTHON
from compat_tests.test_kit.walking import BRIEF, PATIENT
from odradek import Broker
from odradek.embedding.free_port import free_port
from tests.kit.collecting import collected
from tests.server.clocked import Client

PASSWORD = "right"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = {
    KAFKA_PYTHON: {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "ann",
        "sasl_plain_password": PASSWORD,
    },
    CONFLUENT: {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "ann",
        "sasl_password": PASSWORD,
    },
    JAVA: {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": f'{JAAS} username="ann" password="{PASSWORD}";',
    },
}
REFUSED_LOGIN = {
    # Tried again until the time is over; the log, or the callback for errors, is told the reason.
    KAFKA_PYTHON: "KafkaTimeoutError",
    CONFLUENT: "_TIMED_OUT",
    JAVA: "SaslAuthenticationException",
}
FULL_DISK = {KAFKA_PYTHON: "KafkaTimeoutError", CONFLUENT: "_MSG_TIMED_OUT", JAVA: "TimeoutException"}

every_client = pytest.mark.parametrize(
    "library",
    [pytest.param(client, marks=pytest.mark.xdist_group(client)) for client in CLIENTS],
    indirect=True,
)


def new_name(library: StoryClient, what: str) -> str:
    return f"{library.name}-{what}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def with_logins() -> Iterator[tuple[Broker, str]]:
    """A broker, and the address at which ann logs in; nobody needs to at the other one."""
    ports = {"PLAINTEXT": free_port(), "LOGIN": free_port()}
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f"{JAAS} user_ann='{PASSWORD}';",
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(process=True, port=ports["PLAINTEXT"], options=options) as broker:
        yield broker, f"127.0.0.1:{ports['LOGIN']}"


@every_client
def test_a_client_gets_over_connections_that_are_refused(library: StoryClient, tested: Broker) -> None:
    with collected() as failures:
        for name in ("produce", "read", "group", "create_topics"):
            operation, topic = OPERATIONS[name], new_name(library, "refused")
            with failures.of(name), contextlib.closing(Client(tested.port)) as asking:
                operation.before(asking, topic)
                with tested.faults.add(refuse_connection=True, times=3) as fault:
                    assert library.run(tested.bootstrap_servers, name, topic, PATIENT) == operation.found
                    assert fault.fired == 3
                assert operation.state is None or operation.has_happened(asking, topic)


@every_client
def test_a_full_disk_that_is_emptied_in_time_loses_and_doubles_nothing(
    library: StoryClient, tested: Broker
) -> None:
    operation, topic = OPERATIONS["produce"], new_name(library, "full")
    with contextlib.closing(Client(tested.port)) as asking, ThreadPoolExecutor(1) as threads:
        operation.before(asking, topic)
        with tested.faults.add(disk_error="ENOSPC", topic=topic, partition=0) as fault:
            producing = threads.submit(library.run, tested.bootstrap_servers, "produce", topic, PATIENT)
            fault.wait(3)
        assert producing.result() == operation.found
        assert operation.has_happened(asking, topic)


@every_client
def test_a_disk_that_stays_full_ends_in_the_exception_of_the_client(
    library: StoryClient, tested: Broker
) -> None:
    operation, topic = OPERATIONS["produce"], new_name(library, "full")
    with contextlib.closing(Client(tested.port)) as asking:
        operation.before(asking, topic)
        with tested.faults.add(disk_error="ENOSPC", topic=topic, partition=0) as fault:
            with pytest.raises(Failed) as refused:
                library.run(tested.bootstrap_servers, "produce", topic, BRIEF)
            assert fault.fired >= 1
        assert refused.value.name == FULL_DISK[library.name], refused.value
        assert not operation.has_happened(asking, topic)


@every_client
def test_a_login_that_fails_ends_in_the_exception_of_the_client(
    library: StoryClient, with_logins: tuple[Broker, str]
) -> None:
    broker, address = with_logins
    operation, topic = OPERATIONS["create_topics"], new_name(library, "login")
    with contextlib.closing(Client(broker.port)) as asking:
        with broker.faults.add(fail_login=True, principal="User:ann") as fault:
            with pytest.raises(Failed) as refused:
                library.run(address, "create_topics", topic, BRIEF, **LOGIN[library.name])
            assert fault.fired >= 1
        assert refused.value.name == REFUSED_LOGIN[library.name], refused.value
        assert not operation.has_happened(asking, topic)
        assert library.run(address, "create_topics", topic, PATIENT, **LOGIN[library.name]) == []
        assert operation.has_happened(asking, topic)
