"""Delegation tokens: Kafka's own tool makes, shows, renews and ends them, and clients log in with them.

Of the libraries here, Kafka's own client and franz-go can say that a user is a token. librdkafka,
kafka-python and aiokafka cannot, nor kafkajs and sarama: with them a token is a user that does not exist.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import JavaFailure, JavaProgram
from compat_tests.secured import LISTENER, secured_odradek
from compat_tests.security import programs
from compat_tests.security.test_sasl_clients import with_aiokafka, with_confluent, with_kafka_python
from odradek import Broker

HERE = pathlib.Path(__file__).parent
SECONDS = 30.0
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MODULES = "org.apache.kafka.common.security"
SECRET = "the-secret-of-these-tokens"


class Token(NamedTuple):
    """A line of the tool."""

    token_id: str
    hmac: str
    owner: str
    requester: str
    renewers: str


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"delegation.token.secret.key": SECRET}
    with secured_odradek(tmp_path_factory.mktemp("tokens"), settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def java(tokens: Broker) -> Iterator[JavaProgram]:
    class_path = compile_java(reference.client_class_path(), HERE / "SaslClient.java")
    program = JavaProgram(class_path, "SaslClient", tokens.bootstrap_servers)
    yield program
    program.close()


def tool(broker: Broker, path: pathlib.Path, user: str, *arguments: str, check: bool = True) -> str:
    """Kafka's own, as a user of PLAIN; what it prints."""
    path.write_text(
        f"security.protocol={LISTENER}\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        f'{MODULES}.plain.PlainLoginModule required username="{user}" password="pw-of-{user}";\n'
    )
    finished = reference.kafka_tool(
        "org.apache.kafka.tools.DelegationTokenCommand",
        *("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(path)),
        *arguments,
        check=check,
    )
    return finished.stdout + finished.stderr


def lines_of(printed: str) -> list[Token]:
    """The lines below the heading of the table."""
    lines = printed.splitlines()
    (heading,) = [number for number, line in enumerate(lines) if line.startswith("TOKENID")]
    found = []
    for line in lines[heading + 1 :]:
        words = line.split()
        if len(words) >= 5:
            found.append(Token(words[0], words[1], words[2], words[3], words[4]))
    return found


def java_connect(java: JavaProgram, mechanism: str, token_id: str, hmac: str) -> bool:
    jaas = (
        f'{MODULES}.scram.ScramLoginModule required username="{token_id}" password="{hmac}" tokenauth="true";'
    )
    try:
        java.ask("connect-with", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={jaas}")
    except JavaFailure as error:
        if "SaslAuthenticationException" not in str(error):
            raise
        return False
    return True


def test_a_token_of_kafkas_tool_lets_a_client_in_until_the_tool_ends_it(
    tokens: Broker, java: JavaProgram, tmp_path: pathlib.Path
) -> None:
    config = tmp_path / "client.properties"
    command = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    (made,) = lines_of(tool(tokens, config, "ann", *command))
    assert (made.owner, made.requester, made.renewers) == ("User:ann", "User:ann", "[User:bob]")
    for mechanism in SCRAM:
        assert java_connect(java, mechanism, made.token_id, made.hmac)
        assert not java_connect(java, mechanism, made.token_id, made.hmac[:-4] + "AAA=")
        assert not java_connect(java, mechanism, "nothing", made.hmac)
    shown = lines_of(tool(tokens, config, "bob", "--describe", "--owner-principal", "User:ann"))
    assert made in shown
    renewed = tool(tokens, config, "bob", "--renew", "--renew-time-period", "60000", "--hmac", made.hmac)
    assert "Completed renew operation" in renewed
    refused = tool(
        tokens, config, "admin", "--renew", "--renew-time-period", "-1", "--hmac", made.hmac, check=False
    )
    assert "DelegationTokenOwnerMismatchException" in refused
    ended = tool(tokens, config, "ann", "--expire", "--expiry-time-period", "-1", "--hmac", made.hmac)
    assert "Completed expire operation" in ended
    assert not java_connect(java, SCRAM[0], made.token_id, made.hmac)
    assert made.token_id not in [one.token_id for one in lines_of(tool(tokens, config, "ann", "--describe"))]


def test_a_token_that_has_expired_lets_nobody_in(
    tokens: Broker, java: JavaProgram, tmp_path: pathlib.Path
) -> None:
    """One that lives so short that a busy machine may not get in at all: the test above gets in."""
    config = tmp_path / "client.properties"
    (made,) = lines_of(tool(tokens, config, "ann", "--create", "--max-life-time-period", "4000"))

    def is_out() -> bool:
        return not java_connect(java, SCRAM[1], made.token_id, made.hmac)

    wait_until(is_out, "the end of the token", seconds=SECONDS)
    period = ("--renew-time-period", "-1", "--hmac", made.hmac)
    refused = tool(tokens, config, "ann", "--renew", *period, check=False)
    assert "DelegationTokenExpiredException" in refused


def test_a_client_that_cannot_say_that_it_has_a_token_does_not_get_in(
    tokens: Broker, tmp_path: pathlib.Path
) -> None:
    (made,) = lines_of(tool(tokens, tmp_path / "c", "ann", "--create", "--max-life-time-period", "-1"))
    for connect in (with_confluent, with_kafka_python, with_aiokafka):
        assert not connect(tokens, SCRAM[0], made.token_id, made.hmac), connect.__name__


@pytest.mark.nightly
@pytest.mark.parametrize("mechanism", SCRAM)
def test_franz_go_gets_in_with_a_token_until_the_tool_ends_it(
    tokens: Broker, tmp_path: pathlib.Path, mechanism: str
) -> None:
    (made,) = lines_of(tool(tokens, tmp_path / "c", "ann", "--create", "--max-life-time-period", "-1"))
    words = ("franz", tokens.bootstrap_servers, mechanism, made.token_id, made.hmac, "token")
    programs.let_try(*words)
    command = ("--expire", "--expiry-time-period", "-1", "--hmac", made.hmac)
    assert "Completed expire operation" in tool(tokens, tmp_path / "c", "ann", *command)
    programs.let_try(*words, refused="SASL_AUTHENTICATION_FAILED")
