"""GSSAPI at Kafka 4.4.0 and at Odradek with one centre of Kerberos: the same tokens, the same ends."""

from __future__ import annotations

import pathlib
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import gssapi
import pytest

from compat_tests import reference
from compat_tests.kerberos import Centre, in_this_process
from compat_tests.secured import LISTENER, PLAIN_USERS, SecuredKafka
from odradek import Broker
from odradek.embedding.free_port import free_port
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.raw_client import RawClient

SERVICE = "kafka/localhost"
NO_LAYER = b"\1\0\0\0"
SKEW_SECONDS = 2
CLOSED = "closed without an answer"
Tokens = tuple[Centre, dict[str, pathlib.Path]]


def options(keytab: pathlib.Path) -> dict[str, str]:
    prefix = f"listener.name.{LISTENER.lower()}"
    return {
        "sasl.enabled.mechanisms": "PLAIN,GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](a.*),RULE:[2:$1/$2]",
        f"{prefix}.plain.sasl.jaas.config": PLAIN_USERS,
        f"{prefix}.gssapi.sasl.jaas.config": (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{keytab}" principal="{SERVICE}@TEST.EXAMPLE";'
        ),
    }


class KerberizedKafka(SecuredKafka):
    def __init__(self, centre: Centre, keytab: pathlib.Path) -> None:
        jvm = (
            *reference.BROKER_JVM,
            f"-Djava.security.krb5.conf={centre.settings}",
            # Without it Kafka cannot read the number of an error of Kerberos, and none is one of the moment.
            "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        )
        reference.Kafka.__init__(self, properties=options(keytab), jvm=jvm)
        self._listener, self._ports = LISTENER, {LISTENER: self.port}


@pytest.fixture(scope="module")
def centre() -> Iterator[Tokens]:
    with Centre(skew=SKEW_SECONDS) as one:
        keytabs = {name: one.keytab(name) for name in (SERVICE, "ann", "other/localhost", "bob")}
        for _ in in_this_process(one):
            yield one, keytabs


@pytest.fixture(scope="module")
def ports(centre: Tokens, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Of Kafka and of Odradek."""
    one, keytabs = centre
    port = free_port()
    settings = options(keytabs[SERVICE]) | {
        "listeners": f"{LISTENER}://127.0.0.1:{port}",
        "security.inter.broker.protocol": LISTENER,
    }
    with (
        KerberizedKafka(one, keytabs[SERVICE]) as kafka,
        Broker(options=settings, data_dir=tmp_path_factory.mktemp("gssapi")),
    ):
        yield kafka.port, port


def context(centre: Tokens, principal: str = "ann", service: str = "kafka@localhost") -> Any:
    one, keytabs = centre
    ticket = one.ticket(principal, keytabs[principal])
    credentials = gssapi.Credentials(usage="initiate", store={"ccache": f"FILE:{ticket}"})
    name = gssapi.Name(service, gssapi.NameType.hostbased_service)
    return gssapi.SecurityContext(
        name=name, creds=credentials, usage="initiate", mech=gssapi.MechType.kerberos
    )


class Session:
    """A client, and all that it has seen."""

    def __init__(self, port: int, version: int) -> None:
        self._client = RawClient(port)
        self._version = version
        self.seen: list[object] = []
        assert self._client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), version).error_code == 0

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def send(self, token: bytes) -> bytes:
        try:
            if self._version:
                answer = self._client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
                code, challenge = answer.error_code, bytes(answer.auth_bytes)
            else:
                self._client.send(struct.pack(">i", len(token)) + token)
                code, challenge = 0, self._client.receive_frame()
        except (EOFError, ConnectionError):
            self.seen.append(CLOSED)
            return b""
        self.seen.append((code, bool(challenge)))
        return challenge

    def send_last(self, token: bytes) -> None:
        """After a bare one nothing comes but what the client asks for."""
        if self._version:
            self.send(token)
        else:
            self._client.send(struct.pack(">i", len(token)) + token)

    def ask(self) -> None:
        try:
            self.seen.append(len(self._client.ask(MetadataRequest(topics=[]), 9).brokers))
        except (EOFError, ConnectionError):
            self.seen.append(CLOSED)

    def log_in(self, client: Any, choice: bytes = NO_LAYER) -> None:
        token = client.step()
        while not client.complete:
            token = client.step(self.send(token)) or b""
        offer = client.unwrap(self.send(token)).message
        self.seen.append(offer[:1])
        self.send_last(client.wrap(choice, False).message)


Story = Callable[[Session, Tokens], None]


def right(session: Session, centre: Tokens) -> None:
    session.log_in(context(centre))
    session.ask()


def foreign_authorization_id(session: Session, centre: Tokens) -> None:
    session.log_in(context(centre), NO_LAYER + b"admin")
    session.ask()


def layer_not_offered(session: Session, centre: Tokens) -> None:
    session.log_in(context(centre), b"\2\0\0\0")
    session.ask()


def other_service(session: Session, centre: Tokens) -> None:
    session.send(context(centre, service="other@localhost").step())


def nonsense(session: Session, centre: Tokens) -> None:
    session.send(b"nonsense")


def empty(session: Session, centre: Tokens) -> None:
    session.send(b"")


def too_old(session: Session, centre: Tokens) -> None:
    token = context(centre).step()
    made = time.monotonic()
    while time.monotonic() < made + 2 * SKEW_SECONDS:
        time.sleep(0.1)
    session.send(token)


def token_in_place_of_the_empty_one(session: Session, centre: Tokens) -> None:
    client = context(centre)
    client.step(session.send(client.step()))
    session.send(b"something")


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "story",
    [
        *(right, foreign_authorization_id, layer_not_offered, other_service, nonsense, empty, too_old),
        token_in_place_of_the_empty_one,
    ],
)
def test_the_same_tokens_have_the_same_end(
    ports: tuple[int, int], centre: Tokens, story: Story, version: int
) -> None:
    seen = []
    for port in ports:
        with Session(port, version) as session:
            story(session, centre)
            seen.append(session.seen)
    assert seen[1] == seen[0]
    assert seen[0]


@pytest.mark.parametrize("version", [0, 1])
def test_a_replay_closes_without_an_answer(ports: tuple[int, int], centre: Tokens, version: int) -> None:
    for port in ports:
        token = context(centre).step()
        with Session(port, version) as session:
            session.send(token)
            assert session.seen == [(0, True)]
        with Session(port, version) as session:
            session.send(token)
            assert session.seen == [CLOSED]


@pytest.mark.parametrize("principal", ["bob", "other/localhost"])
def test_a_principal_without_a_user_is_not_served(
    ports: tuple[int, int], centre: Tokens, principal: str
) -> None:
    """Kafka says so by closing at the first request, we by refusing the last token."""
    for port in ports:
        with Session(port, 1) as session:
            session.log_in(context(centre, principal))
            session.ask()
            assert session.seen[-1] == CLOSED
