"""GSSAPI with a centre of MIT Kerberos: clients with right, wrong, foreign and ended tickets."""

from __future__ import annotations

import asyncio
import os
import pathlib
import re
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aiokafka
import gssapi
import kafka
import pytest
from gssapi import raw
from kafka.errors import KafkaError as KafkaPythonError

from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.kerberos import Centre, in_this_process
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import JavaFailure, JavaProgram
from compat_tests.security.refusals import log_of
from compat_tests.security.served import Served
from odradek.config.config_error import ConfigError
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.raw_client import RawClient
from tools import environment

HERE = pathlib.Path(__file__).parent
LISTENER = "SASL_PLAINTEXT"
SERVICE = "kafka/localhost"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
CHOICE = b"\1\0\0\0"


@dataclass
class Kerberized:
    """A broker, its centre, and the keytab of each principal."""

    centre: Centre
    broker: Served
    keytabs: dict[str, pathlib.Path]

    @property
    def port(self) -> int:
        return self.broker.port(LISTENER)


def options(keytab: pathlib.Path, **more: str) -> dict[str, str]:
    """More have underscores for dots."""
    return {
        "listeners": f"{LISTENER}://localhost:0",
        "security.inter.broker.protocol": LISTENER,
        "sasl.kerberos.service.name": "kafka",
        "connection.failed.authentication.delay.ms": "10",
        f"listener.name.{LISTENER.lower()}.gssapi.sasl.jaas.config": (
            f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{SERVICE}";'
        ),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.fixture(scope="module")
def kerberized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kerberized]:
    rules = "RULE:[1:$1@$0](.*@TEST\\.EXAMPLE)s/@.*//,RULE:[2:$1-$2]s/localhost/here/"
    with Centre(skew=2) as centre:
        principals = (SERVICE, "ann", "other/localhost", "strange.name", "gone")
        keytabs = {one: centre.keytab(one) for one in principals}
        for _ in in_this_process(centre):
            settings = options(keytabs[SERVICE], sasl_kerberos_principal_to_local_rules=rules)
            with Served(tmp_path_factory.mktemp("kerberized"), settings) as broker:
                yield Kerberized(centre, broker, keytabs)


def initiator(kerberized: Kerberized, principal: str, service: str = "kafka@localhost") -> Any:
    """A context of GSSAPI for a client with a fresh ticket."""
    ticket = kerberized.centre.ticket(principal, kerberized.keytabs[principal])
    credentials = gssapi.Credentials(usage="initiate", store={"ccache": f"FILE:{ticket}"})
    name = gssapi.Name(service, gssapi.NameType.hostbased_service)
    return gssapi.SecurityContext(
        name=name, creds=credentials, usage="initiate", mech=gssapi.MechType.kerberos
    )


class Login:
    """A client that sends tokens in either form."""

    def __init__(self, client: RawClient, version: int | None) -> None:
        """None: the handshake, of version 1, has been."""
        self._client, self._version = client, 1 if version is None else version
        if version is not None:
            assert client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), version).error_code == 0
        self.error_code = ErrorCode.NONE

    def send(self, token: bytes) -> None:
        if self._version:
            self._client.send_request(SaslAuthenticateRequest(auth_bytes=token), 2)
        else:
            self._client.send(struct.pack(">i", len(token)) + token)

    def ask(self, token: bytes) -> bytes:
        if not self._version:
            self.send(token)
            return self._client.receive_frame()
        answer = self._client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        self.error_code = answer.error_code
        return bytes(answer.auth_bytes)

    def run(self, context: Any, choice: bytes = CHOICE) -> None:
        """To the client's last token, for which an answer comes only in the newer form."""
        token = context.step()
        while not context.complete:
            token = context.step(self.ask(token)) or b""
        offer = context.unwrap(self.ask(token)).message
        assert offer == CHOICE
        wrapped = context.wrap(choice, False).message
        if self._version:
            assert self.ask(wrapped) == b""
        else:
            self.send(wrapped)


def principals_of(kerberized: Kerberized) -> set[str]:
    return kerberized.broker.principals(LISTENER)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("principal", "user"), [("ann", "User:ann"), ("other/localhost", "User:other-here")])
def test_the_rules_make_a_user_of_the_principal(
    kerberized: Kerberized, version: int, principal: str, user: str
) -> None:
    with RawClient(kerberized.port) as client:
        Login(client, version).run(initiator(kerberized, principal))
        assert len(client.ask(MetadataRequest(topics=[]), 9).brokers) == 1
        assert principals_of(kerberized) == {user}


def test_the_authorization_id_has_no_effect(kerberized: Kerberized) -> None:
    with RawClient(kerberized.port) as client:
        Login(client, 1).run(initiator(kerberized, "ann"), CHOICE + b"admin")
        assert len(client.ask(MetadataRequest(topics=[]), 9).brokers) == 1
        assert principals_of(kerberized) == {"User:ann"}


@pytest.mark.parametrize("choice", [b"\2\0\0\0", b"\4\0\0\0", b"\0\0\0\0", b"\1\0\0", b""])
def test_a_layer_that_is_not_offered_is_refused(kerberized: Kerberized, choice: bytes) -> None:
    with RawClient(kerberized.port) as client:
        login = Login(client, 1)
        login.run(initiator(kerberized, "ann"), choice)
        assert login.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.read_to_end() == b""


def refusal(kerberized: Kerberized, token: bytes) -> ErrorCode | None:
    """Of a first token; None: it closes without an answer."""
    with RawClient(kerberized.port) as client:
        login = Login(client, 1)
        try:
            login.ask(token)
        except (EOFError, ConnectionError):
            return None
        assert client.read_to_end() == b""
        return login.error_code


def test_a_ticket_for_another_service_is_refused(kerberized: Kerberized) -> None:
    token = initiator(kerberized, "ann", "other@localhost").step()
    assert refusal(kerberized, token) == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("token", [b"", b"nonsense", b"\x60\x82\xff\xff", bytes(100_000)])
def test_nonsense_is_refused(kerberized: Kerberized, token: bytes) -> None:
    assert refusal(kerberized, token) == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_damaged_ticket_is_refused(kerberized: Kerberized) -> None:
    token = bytearray(initiator(kerberized, "ann").step())
    token[len(token) // 2] ^= 1
    assert refusal(kerberized, bytes(token)) == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_ticket_of_a_foreign_realm_is_refused(kerberized: Kerberized) -> None:
    with Centre("FOREIGN.EXAMPLE") as foreign, pytest.MonkeyPatch.context() as patch:
        keytab = foreign.keytab("ann")
        foreign.keytab(SERVICE)
        ticket = foreign.ticket("ann", keytab)
        patch.setenv("KRB5_CONFIG", str(foreign.settings))
        credentials = gssapi.Credentials(usage="initiate", store={"ccache": f"FILE:{ticket}"})
        name = gssapi.Name("kafka@localhost", gssapi.NameType.hostbased_service)
        token = raw.init_sec_context(name, credentials, mech=gssapi.MechType.kerberos).token
    assert refusal(kerberized, token) == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_replay_closes_without_an_answer_so_that_the_client_tries_again(kerberized: Kerberized) -> None:
    token = initiator(kerberized, "ann").step()
    with RawClient(kerberized.port) as client:
        assert Login(client, 1).ask(token) != b""
    assert refusal(kerberized, token) is None


def test_a_token_that_is_older_than_clocks_may_differ_is_refused(kerberized: Kerberized) -> None:
    token = initiator(kerberized, "ann").step()
    made = time.monotonic()
    while time.monotonic() < made + 4:
        time.sleep(0.1)
    assert refusal(kerberized, token) == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_new_keys_of_the_service_need_no_restart(kerberized: Kerberized) -> None:
    kerberized.centre.new_keys(SERVICE, kerberized.keytabs[SERVICE])
    with RawClient(kerberized.port) as client:
        Login(client, 1).run(initiator(kerberized, "ann"))
        assert len(client.ask(MetadataRequest(topics=[]), 9).brokers) == 1


def test_a_listener_without_the_key_of_its_service_does_not_start(
    kerberized: Kerberized, tmp_path: pathlib.Path
) -> None:
    foreign_key, no_file = kerberized.keytabs["ann"], tmp_path / "no.keytab"
    for keytab, words in (
        (foreign_key, f"as {SERVICE}: No key table entry found for {SERVICE}@TEST.EXAMPLE"),
        (no_file, f"Key table file '{no_file}' not found"),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)), Served(tmp_path / "data", options(keytab)):
            pass


def test_a_client_authenticates_again_as_the_same_principal_only(
    kerberized: Kerberized, tmp_path: pathlib.Path
) -> None:
    settings = options(kerberized.keytabs[SERVICE], connections_max_reauth_ms="60000")
    with Served(tmp_path, settings) as broker, RawClient(broker.port(LISTENER)) as client:
        for principal, error_code in (
            ("ann", 0),
            ("ann", 0),
            ("strange.name", ErrorCode.SASL_AUTHENTICATION_FAILED),
        ):
            # Kafka's bound of once a second holds here, too.
            wait_until(lambda: is_shaken(client), "a handshake is taken")
            login = Login(client, None)
            login.run(initiator(kerberized, principal))
            assert login.error_code == error_code
        assert client.read_to_end() == b""


def is_shaken(client: RawClient) -> bool:
    error_code: int = client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1).error_code
    return error_code == 0


# Client libraries


def java_module(keytab: pathlib.Path, principal: str, service: str) -> str:
    return (
        f'{MODULE} required useKeyTab=true storeKey=true refreshKrb5Config=true keyTab="{keytab}" '
        f'principal="{principal}" serviceName="{service}";'
    )


@pytest.fixture(scope="module")
def java(kerberized: Kerberized) -> Iterator[JavaProgram]:
    class_path = compile_java(reference.client_class_path(), HERE / "KerberosClient.java")
    program = JavaProgram(
        class_path, "KerberosClient", f"localhost:{kerberized.port}", str(kerberized.centre.settings)
    )
    yield program
    program.close()


def test_kafkas_own_client_gets_in_with_its_keytab(kerberized: Kerberized, java: JavaProgram) -> None:
    assert java.ask("connect", java_module(kerberized.keytabs["ann"], "ann@TEST.EXAMPLE", "kafka"))


def test_kafkas_own_client_does_not_get_in_without_a_right_ticket(
    kerberized: Kerberized, java: JavaProgram
) -> None:
    kerberized.centre.administer('modprinc -expire "2020-01-01 00:00:00" gone')
    for principal, keytab, service in (
        ("ann", "ann", "other"),
        ("ann", "other/localhost", "kafka"),
        ("gone", "gone", "kafka"),
    ):
        module = java_module(kerberized.keytabs[keytab], f"{principal}@TEST.EXAMPLE", service)
        with pytest.raises(JavaFailure, match=r"Sasl|Login|Kafka"):
            java.ask("connect", module)
    assert java.ask("connect", java_module(kerberized.keytabs["ann"], "ann@TEST.EXAMPLE", "kafka"))


def kafka_python(kerberized: Kerberized, principal: str, service: str) -> int:
    """The number of brokers that it sees."""
    ticket = kerberized.centre.ticket(principal, kerberized.keytabs[principal])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", f"FILE:{ticket}")
        admin = kafka.KafkaAdminClient(
            bootstrap_servers=f"localhost:{kerberized.port}",
            security_protocol=LISTENER,
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name=service,
            sasl_kerberos_domain_name="localhost",
            bootstrap_timeout_ms=10_000,
        )
        try:
            return len(admin.describe_cluster()["brokers"])
        finally:
            admin.close()


@pytest.mark.parametrize("client", ["sarama", "franz"])
def test_a_client_of_go_gets_in_with_its_keytab(kerberized: Kerberized, client: str) -> None:
    """sarama sends bare tokens."""
    program = environment.go_programs(HERE.parent / "polyglot" / "go") / f"{client}_kerberos"

    def run(keytab: str, service: str) -> subprocess.CompletedProcess[str]:
        words = (kerberized.centre.settings, kerberized.centre.realm, "ann", kerberized.keytabs[keytab])
        return subprocess.run(
            [str(program), f"localhost:{kerberized.port}", *map(str, words), service],
            capture_output=True,
            text=True,
            timeout=100,
        )

    finished = run("ann", "kafka")
    assert finished.returncode == 0, finished.stderr
    for keytab, service, reason in (
        ("ann", "other", "could not be authenticated with GSSAPI"),
        ("gone", "kafka", "matching key not found in keytab"),
    ):
        refused = run(keytab, service)
        assert refused.returncode == 1
        assert reason in refused.stderr


def kcat(kerberized: Kerberized, keytab: str, service: str) -> subprocess.CompletedProcess[str]:
    settings = {
        "security.protocol": LISTENER,
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": service,
        "sasl.kerberos.principal": "ann",
        "sasl.kerberos.keytab": str(kerberized.keytabs[keytab]),
    }
    words = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    ticket = kerberized.centre.directory / f"kcat-{keytab}-{service}"
    return subprocess.run(
        ["kcat", "-b", f"localhost:{kerberized.port}", "-L", "-m", "5", *words],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "KRB5CCNAME": f"FILE:{ticket}"},
    )


def test_librdkafka_gets_in_with_its_keytab(kerberized: Kerberized) -> None:
    finished = kcat(kerberized, "ann", "kafka")
    assert finished.returncode == 0, finished.stderr
    assert "1 brokers" in finished.stdout
    for keytab, service, reason in (
        ("ann", "other", "could not be authenticated with GSSAPI"),
        ("gone", "kafka", "Keytab contains no suitable keys"),
    ):
        refused = kcat(kerberized, keytab, service)
        assert refused.returncode == 1
        assert reason in refused.stderr


async def aio(kerberized: Kerberized, service: str) -> int:
    """The offset of a record."""
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=f"localhost:{kerberized.port}",
        security_protocol=LISTENER,
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name=service,
        sasl_kerberos_domain_name="localhost",
    )
    await producer.start()
    try:
        return int((await producer.send_and_wait("aiokafka-kerberos", b"value")).offset)
    finally:
        await producer.stop()


def test_aiokafka_gets_in_with_a_ticket_for_this_service_only(kerberized: Kerberized) -> None:
    ticket = kerberized.centre.ticket("ann", kerberized.keytabs["ann"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", f"FILE:{ticket}")
        assert asyncio.run(aio(kerberized, "kafka")) == 0
        with log_of("aiokafka") as lines, pytest.raises(aiokafka.errors.KafkaError):
            asyncio.run(aio(kerberized, "other"))
        assert "could not be authenticated with GSSAPI" in "\n".join(lines)


def test_kafka_python_gets_in_with_a_ticket_for_this_service_only(kerberized: Kerberized) -> None:
    assert kafka_python(kerberized, "ann", "kafka") == 1
    with log_of("kafka") as lines, pytest.raises(KafkaPythonError):
        kafka_python(kerberized, "ann", "other")
    assert "could not be authenticated with GSSAPI" in "\n".join(lines)
