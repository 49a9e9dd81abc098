"""Every row of the table of SASL: the same bytes to Kafka and to Odradek, on connections of their own.

What is compared of a step: whether the connection closed, whether it waited for the delay, and of an answer
its code, the mechanisms, whether it has a message, and the token where it is not random.
"""

from __future__ import annotations

import base64
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pytest

from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.differential.harness import SECONDS
from compat_tests.secured import MECHANISMS, OTHER_PASSWORD, PASSWORD, SecuredKafka, secured_odradek
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.schema import Message
from odradek.wire.scram import MECHANISM_NUMBERS, ScramClient, digest_of, keys_of, salted_password

DELAY_S = 0.08
"""A bit less than the delay: timers of both have a resolution of a millisecond."""
ATTEMPTS = 3
OPEN_S = 0.3
"""After that time without a sign a connection counts as open."""
REAUTH_MS = "3000"
NO_ANSWER = -1
"""In place of a code: the connection closed."""

RIGHT = b"\0ann\0" + PASSWORD.encode()
BOB = b"\0bob\0" + OTHER_PASSWORD.encode()


class Ask(NamedTuple):
    """A request, whose answer is read."""

    request: Message
    version: int


class Raw(NamedTuple):
    """Bytes as they are; `answers` of them are read as frames."""

    content: bytes
    answers: bool = True


class Wait(NamedTuple):
    seconds: float


Step = Ask | Raw | Wait


@dataclass(frozen=True)
class Ports:
    kafka: int
    odradek: int


def shake(mechanism: str = "PLAIN", version: int = 1) -> Ask:
    return Ask(SaslHandshakeRequest(mechanism=mechanism), version)


def prove(token: bytes = RIGHT, version: int = 2) -> Ask:
    return Ask(SaslAuthenticateRequest(auth_bytes=token), version)


def bare(token: bytes) -> Raw:
    return Raw(len(token).to_bytes(4, "big") + token)


def unknown(api_key: int, version: int, rest: bytes = b"") -> Raw:
    return Raw(struct.pack(">ihhih", 10 + len(rest), api_key, version, 7, -1) + rest)


def client_versions(name: str = "test", version: int = 3) -> Ask:
    return Ask(ApiVersionsRequest(client_software_name=name, client_software_version="1"), version)


LISTING = Ask(ListGroupsRequest(), 4)

ROWS: dict[str, Sequence[Step]] = {
    # first
    "versions, then everything": [client_versions(), shake(), prove(), LISTING],
    "versions of every version": [client_versions(version=0), shake(), prove(), LISTING],
    "versions twice": [client_versions(), client_versions()],
    "versions of an unknown version, then known": [unknown(18, 99, b"\0"), client_versions(), shake()],
    "versions of an unknown version twice": [unknown(18, 99, b"\0"), unknown(18, 99, b"\0"), shake()],
    "a bad name": [client_versions("-"), client_versions(), shake()],
    "another request first": [LISTING],
    "an authentication first": [prove()],
    "another request after the versions": [client_versions(), LISTING],
    "an authentication after the versions": [client_versions(), prove()],
    "no header": [Raw(struct.pack(">i", 3) + b"abc")],
    "an empty frame": [Raw(struct.pack(">i", 0))],
    "an unknown API": [unknown(999, 0)],
    "an unknown version of the handshake": [unknown(17, 2, b"\0\5PLAIN")],
    "half a handshake": [unknown(17, 1, b"\0\6PLAI")],
    # lengths
    "a length over the limit": [Raw(struct.pack(">i", 524_289))],
    "the largest length": [Raw(struct.pack(">i", 2**31 - 1))],
    "a negative length": [Raw(struct.pack(">i", -1))],
    "a length over the limit after the handshake": [shake(), Raw(struct.pack(">i", 524_289))],
    # handshake
    "an unknown mechanism": [shake("NONE")],
    "an unknown mechanism, version 0": [shake("NONE", 0)],
    "a mechanism in lower case": [shake("plain")],
    "an empty mechanism": [shake("")],
    # authenticate
    **{f"authenticate {version}": [shake(), prove(version=version), LISTING] for version in range(3)},
    "a second handshake": [shake(), shake()],
    "another handshake": [shake(), shake("SCRAM-SHA-256")],
    "another request in the middle": [shake(), LISTING],
    "versions in the middle": [shake(), client_versions()],
    "an unknown version of authenticate": [shake(), unknown(36, 3, b"\0\1\0")],
    "an unknown API in the middle": [shake(), unknown(999, 0)],
    "no header in the middle": [shake(), Raw(struct.pack(">i", 3) + b"abc")],
    # bare tokens
    "bare": [shake(version=0), bare(RIGHT), LISTING],
    "bare and wrong": [shake(version=0), bare(b"\0ann\0wrong")],
    "bare and nonsense": [shake(version=0), bare(b"nonsense")],
    "bare and empty": [shake(version=0), bare(b"")],
    "an authentication after a bare handshake": [shake(version=0), prove()],
    # PLAIN
    "a wrong password": [shake(), prove(b"\0ann\0wrong")],
    "an unknown user": [shake(), prove(b"\0nobody\0" + PASSWORD.encode())],
    "no user": [shake(), prove(b"\0\0x")],
    "no password": [shake(), prove(b"\0ann\0")],
    "two parts": [shake(), prove(b"ann\0" + PASSWORD.encode())],
    "four parts": [shake(), prove(RIGHT + b"\0")],
    "nothing": [shake(), prove(b"")],
    "no UTF-8": [shake(), prove(b"\0ann\0\xff")],
    "the same authorization id": [shake(), prove(b"ann" + RIGHT), LISTING],
    "another authorization id": [shake(), prove(b"bob" + RIGHT)],
    # SCRAM
    "nonsense for SCRAM": [shake("SCRAM-SHA-256"), prove(b"nonsense")],
    "channel binding": [shake("SCRAM-SHA-256"), prove(b"y,,n=ann,r=nonce")],
    "another authorization id for SCRAM": [shake("SCRAM-SHA-256"), prove(b"n,a=bob,n=ann,r=nonce")],
    "a name that is wrongly escaped": [shake("SCRAM-SHA-256"), prove(b"n,,n=a=nn,r=nonce")],
    # complete
    "a handshake after it": [shake(), prove(), shake(), LISTING],
    "an unknown mechanism after it": [shake(), prove(), shake("NONE"), LISTING],
    "an authentication after it": [shake(), prove(), prove(), LISTING],
    "versions after it": [shake(), prove(), client_versions(), LISTING],
}

SESSION_ROWS: dict[str, Sequence[Step]] = {
    "again": [shake(), prove(), shake(), prove(), LISTING],
    "again with bare tokens": [shake(), prove(), shake(version=0), bare(RIGHT), LISTING],
    "after a bare authentication": [shake(version=0), bare(RIGHT), shake(), prove(), LISTING],
    "twice within a second": [shake(), prove(), shake(), prove(), shake(), LISTING],
    "again after more than a second": [
        shake(),
        prove(),
        shake(),
        prove(),
        Wait(1.2),
        shake(),
        prove(),
        LISTING,
    ],
    "another mechanism": [shake(), prove(), shake("SCRAM-SHA-256"), prove(b"n,,n=ann,r=nonce")],
    "another user": [shake(), prove(), shake(), prove(BOB)],
    "another user, bare": [shake(), prove(), shake(version=0), bare(BOB)],
    "an unknown mechanism again": [shake(), prove(), shake("NONE")],
    "a wrong password again": [shake(), prove(), shake(), prove(b"\0ann\0wrong")],
    "another request in the middle again": [shake(), prove(), shake(), LISTING],
    "versions again": [shake(), prove(), shake(), client_versions()],
    "an authentication without a handshake": [shake(), prove(), prove(), LISTING],
    "expired": [shake(), prove(), Wait(3.3), LISTING],
    "expired, version 0 of authenticate": [shake(), prove(version=0), Wait(3.3), LISTING],
    "expired, bare": [shake(version=0), bare(RIGHT), Wait(3.3), LISTING],
    "expired and again": [shake(), prove(), Wait(3.3), shake(), prove(), LISTING],
    "expired, and it sends a token": [shake(), prove(), Wait(3.3), prove()],
}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with SecuredKafka(host=shared_host()) as kafka, secured_odradek(tmp_path_factory.mktemp("data")) as ours:
        yield Ports(kafka.port, ours.port)


@pytest.fixture(scope="module")
def ports_of_sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    limit = {"connections_max_reauth_ms": REAUTH_MS}
    directory = tmp_path_factory.mktemp("data")
    with SecuredKafka(host=shared_host(), **limit) as kafka, secured_odradek(directory, **limit) as ours:
        yield Ports(kafka.port, ours.port)


ROWS_AT_ONCE = 12


def assert_alike(ports: Ports, told: Callable[[int], Any]) -> None:
    """What is told at the port of each. A busy machine may be late with what is done at once, so a difference
    is tried again."""
    for _ in range(ATTEMPTS):
        ours, theirs = told(ports.odradek), told(ports.kafka)
        if ours == theirs:
            break
    assert ours == theirs


def assert_all_alike(ports: Ports, rows: Mapping[str, Callable[[int], Any]]) -> None:
    """Each row at both ports, many at once: brokers wait before they refuse somebody. A row that differs is
    tried again alone."""
    with ThreadPoolExecutor(ROWS_AT_ONCE) as threads:
        told = list(threads.map(lambda row: (row(ports.odradek), row(ports.kafka)), rows.values()))
    failed = []
    for (name, row), (ours, theirs) in zip(rows.items(), told, strict=True):
        if ours != theirs:
            try:
                assert_alike(ports, row)
            except AssertionError as difference:
                failed.append(f"{name}: {difference}")
    assert not failed, "\n".join(failed)


def transcript(port: int, steps: Sequence[Step]) -> list[Any]:
    """What the broker does at each step, up to the end of the connection."""
    seen: list[Any] = []
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        for step in steps:
            if isinstance(step, Wait):
                time.sleep(step.seconds)  # the end of a session has no other sign
                continue
            frame = (
                request_frame(step.request, step.version, 7, "c") if isinstance(step, Ask) else step.content
            )
            began = time.monotonic()
            answer = _exchange(connection, frame)
            is_late = time.monotonic() - began >= DELAY_S
            if answer is None:
                seen.append(("closed", "late" if is_late else "at once"))
                return seen
            shown = _shown(step, answer)
            failed = isinstance(shown, dict) and shown.get("error_code") in (33, 34, 58)
            seen.append((shown, "late" if failed and is_late else ""))
        seen.append("closed" if _is_closed(connection) else "open")
    return seen


def _exchange(connection: socket.socket, frame: bytes) -> bytes | None:
    try:
        connection.sendall(frame)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        return _receive(connection, size)
    except (ConnectionError, EOFError):
        return None


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(OPEN_S)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def _shown(step: Step, answer: bytes) -> Any:
    if not isinstance(step, Ask):
        # A refusal of a version: version 0, whose code is behind the correlation id.
        return ("bytes", answer) if len(answer) < 6 else ("code", struct.unpack(">h", answer[4:6])[0])
    _, message = read_response(answer, type(step.request), step.version)
    found = {"error_code": message.error_code}
    if isinstance(step.request, SaslHandshakeRequest):
        found["mechanisms"] = sorted(message.mechanisms)
    if isinstance(step.request, SaslAuthenticateRequest):
        found["message"] = message.error_message is not None
        found["token"] = len(message.auth_bytes) > 0
        found["lifetime"] = message.session_lifetime_ms
    return found


def test_each_row_of_the_table_is_alike(ports: Ports) -> None:
    assert_all_alike(ports, {name: partial(transcript, steps=steps) for name, steps in ROWS.items()})


def test_each_row_of_sessions_that_end_is_alike(ports_of_sessions: Ports) -> None:
    rows = {name: partial(transcript, steps=steps) for name, steps in SESSION_ROWS.items()}
    assert_all_alike(ports_of_sessions, rows)


def scram_codes(
    port: int, mechanism: str, user: str, password: str, change: tuple[str, str] | None = None
) -> list[int]:
    """The codes of both answers."""
    client = ScramClient(mechanism, user, password, "nonce")
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:

        def ask(request: Message, version: int) -> Any:
            answer = _exchange(connection, request_frame(request, version, 7, "c"))
            assert answer is not None
            return read_response(answer, type(request), version)[1]

        ask(*shake(mechanism))
        first = ask(*prove(client.first))
        if first.error_code:
            return [first.error_code]
        final = client.final(bytes(first.auth_bytes)).decode()
        if change is not None:
            final = final.replace(*change)
        frame = request_frame(*prove(final.encode()), 7, "c")
        answer = _exchange(connection, frame)
        if answer is None:
            return [first.error_code, NO_ANSWER]
        last = read_response(answer, SaslAuthenticateRequest, 2)[1]
        if not last.error_code:
            client.verify(bytes(last.auth_bytes))
        return [first.error_code, last.error_code]


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_scram_is_alike(ports: Ports, mechanism: str) -> None:
    cases: list[tuple[str, str, tuple[str, str] | None]] = [
        ("ann", PASSWORD, None),
        ("ann", "wrong", None),
        ("ann", PASSWORD, ("c=", "d=")),
        ("ann", PASSWORD, ("r=nonce", "r=Nonce")),
    ]
    for user, password, change in cases:
        theirs, ours = (
            scram_codes(port, mechanism, user, password, change) for port in (ports.kafka, ports.odradek)
        )
        assert ours == theirs, (user, password, change)


def test_a_proof_of_another_length_gets_an_answer_from_odradek_alone(ports: Ports) -> None:
    longer = ("p=", "p=AAAA")
    assert scram_codes(ports.kafka, "SCRAM-SHA-256", "ann", PASSWORD, longer) == [0, NO_ANSWER]
    assert scram_codes(ports.odradek, "SCRAM-SHA-256", "ann", PASSWORD, longer) == [0, 58]


def test_a_proof_covers_extensions_for_odradek_alone(ports: Ports) -> None:
    """As RFC 5802 says. The client of this test leaves the extension out of the proof, as Kafka does."""
    extended = (",p=", ",x=y,p=")
    assert scram_codes(ports.kafka, "SCRAM-SHA-256", "ann", PASSWORD, extended) == [0, 0]
    assert scram_codes(ports.odradek, "SCRAM-SHA-256", "ann", PASSWORD, extended) == [0, 58]


def test_users_that_do_not_exist_are_told_apart_by_kafka_alone(ports: Ports) -> None:
    assert scram_codes(ports.kafka, "SCRAM-SHA-256", "nobody", "x") == [58]
    assert scram_codes(ports.odradek, "SCRAM-SHA-256", "nobody", "x") == [0, 58]


def test_channel_bindings_are_compared_by_odradek_alone(ports: Ports) -> None:
    """The proof covers the binding, so the client has to make it with another one."""
    assert proven_code(ports.kafka, binding=b"y,,") == 0
    assert proven_code(ports.odradek, binding=b"y,,") == 58


NONCES: dict[str, Callable[[str], str]] = {
    "another beginning of the client's part": lambda nonce: "N" + nonce[1:],
    "another end of the server's part": lambda nonce: nonce[:-1] + ("a" if nonce[-1] != "a" else "b"),
    "the client's part alone": lambda nonce: NONCE,
    "the server's part alone": lambda nonce: nonce.removeprefix(NONCE),
    "more at the beginning": lambda nonce: "x" + nonce,
    "more at the end": lambda nonce: nonce + "x",
}


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_a_proof_of_another_nonce_lets_nobody_in(ports: Ports, mechanism: str) -> None:
    """The proof covers the nonce that the client sends, so it is right but for the nonce (CVE-2024-56128)."""
    for port in (ports.kafka, ports.odradek):
        assert proven_code(port, mechanism) == 0
        assert {name: proven_code(port, mechanism, nonce=change) for name, change in NONCES.items()} == (
            dict.fromkeys(NONCES, 58)
        )


NONCE = "nonce"


def proven_code(
    port: int,
    mechanism: str = "SCRAM-SHA-256",
    binding: bytes = b"n,,",
    nonce: Callable[[str], str] = lambda nonce: nonce,
) -> int:
    """The code of the last answer to a client that proves the right password, over the last message as it
    sends it."""
    number = MECHANISM_NUMBERS[mechanism]
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:

        def ask(request: Message, version: int) -> Any:
            answer = _exchange(connection, request_frame(request, version, 7, "c"))
            assert answer is not None
            return read_response(answer, type(request), version)[1]

        ask(*shake(mechanism))
        challenge = bytes(ask(*prove(f"n,,n=ann,r={NONCE}".encode())).auth_bytes).decode()
        parts = dict(part.split("=", 1) for part in challenge.split(","))
        salted = salted_password(number, PASSWORD, base64.b64decode(parts["s"]), int(parts["i"]))
        keys = keys_of(number, salted)
        without_proof = f"c={base64.b64encode(binding).decode()},r={nonce(parts['r'])}"
        covered = f"n=ann,r={NONCE},{challenge},{without_proof}".encode()
        signature = digest_of(number, keys.stored, covered)
        proof = bytes(one ^ other for one, other in zip(keys.client, signature, strict=True))
        final = f"{without_proof},p={base64.b64encode(proof).decode()}"
        code: int = ask(*prove(final.encode())).error_code
        return code


# Users


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=bytes(32 * mechanism),
    )


def deletion(user: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


ALTERATIONS: list[tuple[list[ScramCredentialDeletion], list[ScramCredentialUpsertion]]] = [
    ([], []),
    ([], [upsertion("u")]),
    ([], [upsertion("u", 2, 8192)]),
    ([], [upsertion("u", 1, 4095)]),
    ([], [upsertion("u", 1, 16385)]),
    ([], [upsertion("u", 1, 16384), upsertion("v")]),
    ([], [upsertion("")]),
    ([], [upsertion("u", 0)]),
    ([], [upsertion("u", 3)]),
    ([], [upsertion("w"), upsertion("w", 2)]),
    ([deletion("u")], [upsertion("u", 2)]),
    ([deletion("nobody")], [upsertion("v", 2)]),
    ([deletion("nobody", 3), deletion("")], []),
    ([deletion("u"), deletion("u", 2)], []),
    ([deletion("u", 2)], []),
    ([deletion("u", 2)], []),
]
DESCRIPTIONS: list[list[str] | None] = [
    None,
    [],
    ["u"],
    ["u", "nobody", "v"],
    ["u", "u"],
    [""],
    ["v", "w", "v"],
]


def test_users_are_altered_and_described_alike(ports: Ports) -> None:
    def told(port: int) -> list[Any]:
        seen: list[Any] = []
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:

            def ask(request: Message, version: int) -> Any:
                answer = _exchange(connection, request_frame(request, version, 7, "c"))
                assert answer is not None
                return read_response(answer, type(request), version)[1]

            ask(*shake())
            ask(*prove())
            for deletions, upsertions in ALTERATIONS:
                request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
                answer = ask(request, 0)
                results = {one.user: (one.error_code, one.error_message is None) for one in answer.results}
                seen.append(results)
                deadline = time.monotonic() + SECONDS
                for names in DESCRIPTIONS:
                    users = None if names is None else [UserName(name=name) for name in names]
                    found: Any = None
                    # Kafka's broker hears of a change after the controller has answered.
                    for _ in range(3):
                        described = ask(DescribeUserScramCredentialsRequest(users=users), 0)
                        assert time.monotonic() < deadline
                        found = (
                            described.error_code,
                            described.error_message,
                            {
                                one.user: (
                                    one.error_code,
                                    bool(one.error_message),
                                    sorted(
                                        (info.mechanism, info.iterations) for info in one.credential_infos
                                    ),
                                )
                                for one in described.results
                            },
                        )
                        time.sleep(0.05)
                    seen.append((names, found))
        return seen

    theirs, ours = told(ports.kafka), told(ports.odradek)
    for index, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        assert our == their, index


def test_a_user_that_a_client_has_made_logs_in(ports: Ports) -> None:
    for port in (ports.kafka, ports.odradek):
        for mechanism in MECHANISMS[1:]:
            number = MECHANISM_NUMBERS[mechanism]
            salted = salted_password(number, "pw", b"salt", 4096)
            made = ScramCredentialUpsertion(
                name="made", mechanism=number, iterations=4096, salt=b"salt", salted_password=salted
            )
            with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
                for request, version in (
                    shake(),
                    prove(),
                    (AlterUserScramCredentialsRequest(deletions=[], upsertions=[made]), 0),
                ):
                    assert _exchange(connection, request_frame(request, version, 7, "c"))
            wait_until(
                lambda: scram_codes(port, mechanism, "made", "pw") == [0, 0],  # noqa: B023
                "the new user gets in",
            )
