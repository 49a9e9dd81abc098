"""Clients as they are published over TLS: key stores of each type, wrong and old certificates, new keys."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import pathlib
import random
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import aiokafka
import kafka
import pytest
from aiokafka.helpers import create_ssl_context
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from compat_tests.clients import wait_until
from compat_tests.kit.programs import JavaFailure
from compat_tests.security import programs, refusals, sealed_clients
from compat_tests.security.certificates import KINDS, PASSWORD, Authority
from compat_tests.security.sealed_clients import LIBRARIES, VALUES, JavaClients
from compat_tests.security.served import Served
from odradek.server.process.health import check

RULES = "RULE:^CN=([^,]*),.*$/$1/L,DEFAULT"
HALF_OPEN = 1_000
INVALID_REQUEST = 42
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    clients = JavaClients()
    yield clients
    clients.close()


@pytest.fixture(scope="module")
def alice(authority: Authority) -> pathlib.Path:
    return authority.write_pem("alice", authority.issue("alice.example", common_name="Alice"))


LISTENERS = {
    "listeners": "OPEN://localhost:0,MUTUAL://localhost:0,PLAIN://localhost:0",
    "listener.security.protocol.map": "OPEN:SSL,MUTUAL:SSL,PLAIN:PLAINTEXT",
    "inter.broker.listener.name": "PLAIN",
    "listener.name.mutual.ssl.client.auth": "required",
    "ssl.principal.mapping.rules": RULES,
    "group.initial.rebalance.delay.ms": "0",
}
"""Without certificates, with them, and without TLS."""


@pytest.fixture(scope="module")
def broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    options = LISTENERS | authority.key_store("PEM", "broker", authority.server())
    options |= authority.trust_store("PEM")
    with Served(tmp_path_factory.mktemp("data"), options) as served:
        yield served


@pytest.mark.parametrize("kind", KINDS)
def test_java_and_the_broker_read_stores_of_each_type_of_keytool(
    kind: str, authority: Authority, java: JavaClients, tmp_path: pathlib.Path
) -> None:
    options = LISTENERS | authority.key_store(kind, f"of-{kind}", authority.server())
    options |= authority.trust_store(kind)
    settings = authority.key_store(kind, f"alice-{kind}", authority.issue("a.example", common_name="Alice"))
    settings |= authority.trust_store(kind)
    with Served(tmp_path, options) as served:
        assert java.round_trip(served.address("MUTUAL"), "stores", settings) == VALUES
        java.open("alice", served.address("MUTUAL"), settings)
        java.send("alice", "stores", "more")
        assert served.principals("MUTUAL") == {"User:alice"}
        java.end("alice")
        assert java.round_trip(served.address("OPEN"), "open", authority.trust_store(kind)) == VALUES


def test_java_takes_keys_that_are_in_the_options_themselves(
    authority: Authority, java: JavaClients, tmp_path: pathlib.Path
) -> None:
    pem = authority.write_pem("inline", authority.server()).read_text()
    key, certificate, rest = pem.partition("-----BEGIN CERTIFICATE-----")
    options = LISTENERS | {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": certificate + rest,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem.read_text(),
    }
    with Served(tmp_path, options) as served:
        assert java.round_trip(served.address("OPEN"), "open", authority.trust_store("PEM")) == VALUES


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_java_speaks_either_version(
    version: str, authority: Authority, java: JavaClients, broker: Served
) -> None:
    settings = authority.trust_store("PEM") | {"ssl.enabled.protocols": version, "ssl.protocol": version}
    assert java.round_trip(broker.address("OPEN"), f"of-{version}", settings) == VALUES


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_is_served_with_and_without_a_certificate(
    name: str, authority: Authority, broker: Served, alice: pathlib.Path
) -> None:
    library = LIBRARIES[name]
    assert library(broker.address("OPEN"), f"{name}-open", authority.pem, None) == VALUES
    assert library(broker.address("MUTUAL"), f"{name}-mutual", authority.pem, alice) == VALUES


@pytest.mark.nightly
def test_kafkajs_is_served_with_and_without_a_certificate(
    authority: Authority, broker: Served, alice: pathlib.Path
) -> None:
    assert sealed_clients.kafkajs(broker.address("OPEN"), "js-open", authority.pem, None) == VALUES
    assert sealed_clients.kafkajs(broker.address("MUTUAL"), "js-mutual", authority.pem, alice) == VALUES


def test_clients_are_served_on_the_event_loop_of_asyncio_too(
    authority: Authority, alice: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    options = LISTENERS | authority.key_store("PEM", "asyncio", authority.server())
    options |= authority.trust_store("PEM")
    with Served(tmp_path, options, asyncio.new_event_loop) as served:
        address = served.address("MUTUAL")
        assert LIBRARIES["confluent"](address, "asyncio", authority.pem, alice) == VALUES
        producer = kafka.KafkaProducer(
            max_request_size=4 * MEGABYTE,
            **sealed_clients.kafka_python_settings(address, authority.pem, alice),
        )
        large = random.Random(7).randbytes(MEGABYTE - 1000)
        for _ in range(8):
            producer.send("large", large).get(60)
        producer.close()
        consumer = kafka.KafkaConsumer(
            "large",
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
            max_partition_fetch_bytes=16 * MEGABYTE,
            **sealed_clients.kafka_python_settings(address, authority.pem, alice),
        )
        assert all(next(consumer).value == large for _ in range(8))
        consumer.close()


def test_java_calls_every_fault_of_certificates_an_authentication_error_and_the_broker_lives(
    authority: Authority, stranger: Authority, java: JavaClients, broker: Served
) -> None:
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    trust = authority.trust_store("PEM")
    expired = authority.issue("x.example", common_name="Old", not_after=past)
    failed = broker_failures(broker, "MUTUAL")
    for settings in (
        authority.key_store("PEM", "expired", expired) | trust,
        stranger.key_store("PEM", "foreign", stranger.issue("x.example", common_name="Alice")) | trust,
        trust,
    ):
        with pytest.raises(JavaFailure, match="SslAuthenticationException"):
            java.round_trip(broker.address("MUTUAL"), "refused", settings)
    assert broker_failures(broker, "MUTUAL") >= failed + 3
    with pytest.raises(JavaFailure, match="SslAuthenticationException"):
        java.round_trip(broker.address("OPEN"), "refused", stranger.trust_store("PEM"))
    assert java.round_trip(broker.address("OPEN"), "after-refusals", trust) == VALUES


@pytest.fixture(scope="module")
def wrong(authority: Authority, stranger: Authority) -> dict[str, pathlib.Path | None]:
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    expired = authority.issue("x.example", common_name="Alice", not_after=past)
    return {
        "expired": authority.write_pem("expired-alice", expired),
        "foreign": stranger.write_pem("foreign-alice", stranger.issue("x.example", common_name="Alice")),
        "missing": None,
    }


Refuse = Callable[[str, pathlib.Path, pathlib.Path | None, str], None]
"""Address, authority and certificate of a client; fails where no refusal with these words comes."""


def refuse_confluent(address: str, ca: pathlib.Path, client: pathlib.Path | None, words: str) -> None:
    if words == OPENSSL["authority"]:
        words = "broker certificate could not be verified"
    assert not refusals.confluent_gets_in(sealed_clients.confluent_settings(address, ca, client), None, words)


def refuse_kafka_python(address: str, ca: pathlib.Path, client: pathlib.Path | None, words: str) -> None:
    settings = sealed_clients.kafka_python_settings(address, ca, client)
    with refusals.log_of("kafka") as lines, pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(**settings, bootstrap_timeout_ms=1_000)
    assert words in "\n".join(lines)


def refuse_aiokafka(address: str, ca: pathlib.Path, client: pathlib.Path | None, words: str) -> None:
    own = None if client is None else str(client)
    context = create_ssl_context(cafile=str(ca), certfile=own, keyfile=own)

    async def connect() -> None:
        settings = {"bootstrap_servers": address, "security_protocol": "SSL", "ssl_context": context}
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with refusals.log_of("aiokafka") as lines, pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(connect())
    # Of the certificate of its own it hears nothing: asyncio hides the alert.
    assert (words if words == OPENSSL["authority"] else "KafkaConnectionError: Connection at") in "\n".join(
        lines
    )


def refused_alike(
    refuse: Refuse,
    broker: Served,
    authorities: tuple[Authority, Authority],
    wrong: Mapping[str, pathlib.Path | None],
    words: Mapping[str, str],
) -> None:
    """Every wrong certificate of a client, and a wrong one of the broker."""
    authority, stranger = authorities
    for name, certificate in wrong.items():
        failed = broker_failures(broker, "MUTUAL")
        refuse(broker.address("MUTUAL"), authority.pem, certificate, words[name])
        assert broker_failures(broker, "MUTUAL") > failed, name
    refuse(broker.address("OPEN"), stranger.pem, None, words["authority"])


OPENSSL = {
    "expired": "alert certificate expired",
    "foreign": "alert unknown ca",
    "missing": "alert certificate required",
    "authority": "self-signed certificate in certificate chain",
}
GO = {
    "expired": "remote error: tls: expired certificate",
    "foreign": "remote error: tls: unknown certificate authority",
    "missing": "remote error: tls: certificate required",
    "authority": "x509: certificate signed by unknown authority",
}


@pytest.mark.parametrize("refuse", [refuse_confluent, refuse_kafka_python, refuse_aiokafka])
def test_libraries_with_a_wrong_certificate_or_authority_are_refused_and_told_why(
    refuse: Refuse,
    authority: Authority,
    stranger: Authority,
    broker: Served,
    wrong: dict[str, pathlib.Path | None],
) -> None:
    refused_alike(refuse, broker, (authority, stranger), wrong, OPENSSL)


@pytest.mark.nightly
@pytest.mark.parametrize("library", ["franz", "sarama-1", "kafkajs"])
def test_clients_of_go_and_node_get_in_with_a_right_certificate_only(
    library: str,
    authority: Authority,
    stranger: Authority,
    broker: Served,
    alice: pathlib.Path,
    wrong: dict[str, pathlib.Path | None],
) -> None:
    def let_try(address: str, ca: pathlib.Path, certificate: pathlib.Path | None, words: str) -> None:
        programs.let_try(library, address, "NONE", "", "", ca=ca, certificate=certificate, refused=words)

    let_try(broker.address("OPEN"), authority.pem, None, "")
    let_try(broker.address("MUTUAL"), authority.pem, alice, "")
    words = OPENSSL if library == "kafkajs" else GO
    refused_alike(let_try, broker, (authority, stranger), wrong, words)


def broker_failures(broker: Served, listener: str) -> int:
    acceptors = {one.name: one.tls for one in broker.server.listeners}
    acceptor = acceptors[listener]
    assert acceptor is not None
    return acceptor.failed_count


# With SASL behind it


def test_passwords_go_through_tls_and_name_the_principal_also_beside_a_certificate(
    authority: Authority, java: JavaClients, alice: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    options = {
        "listeners": "SECRET://localhost:0",
        "listener.security.protocol.map": "SECRET:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secret.plain.sasl.jaas.config": f'{module} user_ann="known-secret";',
        "listener.name.secret.ssl.client.auth": "requested",
        **authority.key_store("PEM", "secret", authority.server()),
        **authority.trust_store("PEM"),
    }
    login = f'{module} username="ann" password="{{}}";'
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"} | authority.trust_store("PEM")
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(alice)}
    python = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": "ann"}
    with Served(tmp_path, options) as served:
        address = served.address("SECRET")
        right = sasl | own | {"sasl.jaas.config": login.format("known-secret")}
        assert java.round_trip(address, "secret", right) == VALUES
        java.open("ann", address, right)
        java.send("ann", "secret", "more")
        assert served.principals("SECRET") == {"User:ann"}
        java.end("ann")
        with pytest.raises(JavaFailure, match="SaslAuthenticationException"):
            java.round_trip(address, "secret", sasl | {"sasl.jaas.config": login.format("wrong")})
        settings = sealed_clients.kafka_python_settings(address, authority.pem, None) | python
        producer = kafka.KafkaProducer(**settings, sasl_plain_password="known-secret")
        producer.send("secret", b"x").get(30)
        producer.close()
        confluent = sealed_clients.confluent_settings(address, authority.pem, None)
        confluent |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        admin = AdminClient(confluent | {"sasl.username": "ann", "sasl.password": "known-secret"})
        assert "secret" in admin.list_topics(timeout=30).topics


# New keys


def test_keys_are_renewed_while_clients_are_connected(
    authority: Authority, java: JavaClients, alice: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    store = authority.key_store("PEM", "renewed", authority.server())
    path = pathlib.Path(store["ssl.keystore.location"])
    prefixed = {f"listener.name.mutual.{name}": value for name, value in store.items()}
    options = LISTENERS | store | prefixed | authority.trust_store("PEM")
    with Served(tmp_path, options) as served:
        address, port = served.address("MUTUAL"), served.port("MUTUAL")
        settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(alice)}
        java.open("renewed", address, settings | authority.trust_store("PEM"))
        producer = kafka.KafkaProducer(**sealed_clients.kafka_python_settings(address, authority.pem, alice))
        admin = AdminClient(sealed_clients.confluent_settings(address, authority.pem, alice))
        java.send("renewed", "renewed", "before")
        producer.send("renewed", b"before").get(30)
        peers = connected(served)
        first = served_certificate(port, authority, alice)

        authority.write_pem("renewed", authority.server())
        set_location(admin, path)
        wait_until(
            lambda: served_certificate(port, authority, alice) != first,
            "the location that is set again is read",
        )
        second = served_certificate(port, authority, alice)
        authority.write_pem("renewed", authority.server())
        wait_until(lambda: served_certificate(port, authority, alice) != second, "a changed file is noticed")

        java.send("renewed", "renewed", "after")
        producer.send("renewed", b"after").get(30)
        assert peers <= connected(served)
        with pytest.raises(KafkaException) as refused:
            set_location(admin, "/no/such/file")
        assert refused.value.args[0].code() == INVALID_REQUEST
        java.send("renewed", "renewed", "still")
        java.end("renewed")
        producer.close()


def set_location(admin: AdminClient, path: object) -> None:
    name = "listener.name.mutual.ssl.keystore.location"
    setting = ConfigEntry(name, str(path), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[setting])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def connected(served: Served) -> set[int]:
    """The ports of the clients."""
    return served.call(
        lambda: {one.peer_port for one in served.server.connections if one.listener_name == "MUTUAL"}
    )


def served_certificate(port: int, authority: Authority, client: pathlib.Path) -> bytes | None:
    context = ssl.create_default_context(cafile=str(authority.pem))
    context.load_cert_chain(client)
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sealed,
    ):
        return sealed.getpeercert(True)


# Strangers


def hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_half_open_handshakes_are_bounded_and_the_others_are_served(
    authority: Authority, broker: Served, java: JavaClients
) -> None:
    acceptor = {one.name: one.tls for one in broker.server.listeners}["OPEN"]
    assert acceptor is not None
    settings = authority.trust_store("PEM")
    half = hello()[:100]
    with contextlib.ExitStack() as ending:
        before = resident_bytes()
        for _ in range(HALF_OPEN):
            one = ending.enter_context(socket.create_connection(("127.0.0.1", broker.port("OPEN"))))
            one.sendall(half)
        wait_until(lambda: len(acceptor.under_way) >= HALF_OPEN, "all of them have begun")
        assert resident_bytes() - before < HALF_OPEN * 64 * 1024
        assert java.round_trip(broker.address("OPEN"), "beside-half-open", settings) == VALUES
        late = broker.call(lambda: list(broker.server.connections))
        assert len(late) >= HALF_OPEN
    wait_until(lambda: len(acceptor.under_way) == 0, "none of them is left")


def resident_bytes() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_half_open_clients_count_as_connections(authority: Authority, tmp_path: pathlib.Path) -> None:
    options = LISTENERS | authority.key_store("PEM", "limited", authority.server())
    options |= authority.trust_store("PEM") | {"listener.name.open.max.connections": "5"}
    with Served(tmp_path, options) as served, contextlib.ExitStack() as ending:
        address = "127.0.0.1", served.port("OPEN")

        def ports() -> set[int]:
            return served.call(lambda: {one.peer_port for one in served.server.connections})

        held = [ending.enter_context(socket.create_connection(address)) for _ in range(5)]
        wait_until(lambda: len(ports()) == 5, "five are there")
        more = ending.enter_context(socket.create_connection(address))
        assert more.getsockname()[1] not in ports()
        held[0].close()
        wait_until(lambda: more.getsockname()[1] in ports(), "one has left, and the next one is let in")


def ended(client: socket.socket) -> bool:
    """Whether the broker closes it, whatever it sends before."""
    client.settimeout(30)
    with contextlib.suppress(ConnectionResetError):
        while client.recv(4096):
            pass
    return True


def test_plaintext_at_a_port_with_tls_gets_the_alert_of_kafka(broker: Served) -> None:
    with socket.create_connection(("127.0.0.1", broker.port("OPEN")), 30) as client:
        client.sendall(bytes.fromhex("0000000a00120000000000010000"))
        assert client.recv(100) == bytes.fromhex("15030300020250")
        assert client.recv(100) == b""


def test_tls_at_a_port_without_it_is_closed_and_named(
    broker: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", broker.port("PLAIN")), 30) as client:
        client.sendall(hello())
        assert ended(client)
    wait_until(
        lambda: any("looks like TLS" in record.getMessage() for record in caplog.records), "the line is there"
    )


def sealed(broker: Served, authority: Authority) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(authority.pem))
    plain = socket.create_connection(("127.0.0.1", broker.port("OPEN")), 30)
    return context.wrap_socket(plain, server_hostname="localhost")


def test_damage_at_any_place_ends_one_connection_and_nothing_else(
    broker: Served, authority: Authority
) -> None:
    chance = random.Random(33)
    context = ssl.create_default_context(cafile=str(authority.pem))
    start = hello()
    for number in range(60):
        with socket.create_connection(("127.0.0.1", broker.port("OPEN")), 30) as client:
            if number % 3 == 0:
                damaged = bytearray(start)
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
                client.sendall(damaged)
                client.shutdown(socket.SHUT_WR)
            elif number % 3 == 1:
                client.sendall(start[: chance.randrange(1, len(start))])
                client.shutdown(socket.SHUT_WR)
            else:
                incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                end = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
                while True:
                    try:
                        end.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        client.sendall(outgoing.read())
                        incoming.write(client.recv(65536))
                end.write(bytes(200))
                record = bytearray(outgoing.read())
                record[chance.randrange(len(record))] ^= 1 << chance.randrange(8)
                client.sendall(record)
                client.shutdown(socket.SHUT_WR)
            assert ended(client)
    assert LIBRARIES["kafka-python"](broker.address("OPEN"), "after-damage", authority.pem, None) == VALUES


def test_a_request_that_comes_byte_by_byte_in_records_of_one_is_served(
    broker: Served, authority: Authority
) -> None:
    request = bytes.fromhex("0000000a") + bytes.fromhex("00120000000000070000")
    with sealed(broker, authority) as client:
        for position in range(len(request)):
            client.sendall(request[position : position + 1])
        head = client.recv(8)
        assert head[4:] == bytes.fromhex("00000007")


def test_the_health_check_knows_a_broker_with_tls_from_nothing(broker: Served) -> None:
    assert check(f"ssl://localhost:{broker.port('OPEN')}") is None
    assert check(f"ssl://localhost:{broker.port('MUTUAL')}") is None
    assert check(f"ssl://localhost:{broker.port('PLAIN')}") is not None
    assert check(f"localhost:{broker.port('OPEN')}") is not None


# The start


def refused_start(tmp_path: pathlib.Path, *options: str) -> str:
    command = [sys.executable, "-m", "odradek", "serve", "--data-dir", str(tmp_path / "data")]
    for option in ("listeners=SSL://localhost:0", *options):
        command += ["--set", option]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
    return finished.stderr


def test_a_broker_without_usable_keys_does_not_start_and_says_why_without_secrets(
    authority: Authority, tmp_path: pathlib.Path
) -> None:
    store = authority.key_store("PKCS12", "start", authority.server())
    location = f"ssl.keystore.location={store['ssl.keystore.location']}"
    for options, reason in (
        ((), "Listener SSL: ssl.keystore.location is missing"),
        ((location,), "is set without ssl.keystore.password"),
        ((location, "ssl.keystore.password=known-secret"), "its password is wrong"),
        (
            (location, f"ssl.keystore.password={PASSWORD}", "ssl.client.auth=required"),
            "ssl.client.auth=required needs a trust store",
        ),
        (
            (location, f"ssl.keystore.password={PASSWORD}", "ssl.engine.factory.class=org.example.Mine"),
            "ssl.engine.factory.class is known but not built",
        ),
    ):
        told = refused_start(tmp_path, *options)
        assert reason in told
        assert "known-secret" not in told
        assert PASSWORD not in told
