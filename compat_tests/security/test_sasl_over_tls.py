"""Client libraries of Go and Node with each mechanism over SASL_SSL, and kafka-go over SASL_PLAINTEXT, too:
the right password, a wrong one, and a user that does not exist."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from compat_tests.secured import LISTENER, MECHANISMS, PASSWORD, SCRAM_USERS, sasl_options
from compat_tests.security.certificates import Authority
from compat_tests.security.test_sasl_clients import tell
from odradek import Broker
from odradek.config.broker_config import load
from odradek.config.first_users import parse
from odradek.server.free_port import free_port
from odradek.server.security.users import add
from tools import environment

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
POLYGLOT = pathlib.Path(__file__).parents[1] / "polyglot"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[str]:
    """Where a broker with SASL_SSL listens."""
    directory = tmp_path_factory.mktemp("sealed")
    for user in parse(" ".join(SCRAM_USERS)):
        add(load(data_dir=directory), user)
    port = free_port()
    theirs = f"listener.name.{LISTENER.lower()}."
    options = {
        name.replace(theirs, "listener.name.sasl_ssl."): value for name, value in sasl_options().items()
    }
    options |= authority.key_store("PEM", "broker", authority.server())
    options |= {"listeners": f"SASL_SSL://localhost:{port}", "security.inter.broker.protocol": "SASL_SSL"}
    with Broker(options=options, data_dir=directory):
        yield f"localhost:{port}"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", ["franz", "segmentio"])
def test_a_client_of_go_gets_in_over_tls_with_the_right_password_only(
    sealed: str, authority: Authority, client: str, mechanism: str
) -> None:
    program = environment.go_programs(POLYGLOT / "go") / f"{client}_sasl"
    tell([str(program), sealed, mechanism, "ann", PASSWORD], CA=str(authority.pem))


@pytest.mark.parametrize("handshake", ["0", "1"])
def test_sarama_gets_in_over_tls_with_the_right_password_only(
    sealed: str, authority: Authority, handshake: str
) -> None:
    program = environment.go_programs(POLYGLOT / "go") / "sarama_sasl"
    tell([str(program), sealed, handshake, "ann", PASSWORD], CA=str(authority.pem))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkajs_gets_in_over_tls_with_the_right_password_only(
    sealed: str, authority: Authority, mechanism: str
) -> None:
    modules = environment.node_modules(POLYGLOT / "node")
    program = str(POLYGLOT / "node" / "sasl.js")
    variables = {"NODE_PATH": str(modules), "CA": str(authority.pem)}
    tell(["node", program, sealed, mechanism, "ann", PASSWORD], **variables)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_go_gets_in_with_the_right_password_only(secured: Broker, mechanism: str) -> None:
    program = environment.go_programs(POLYGLOT / "go") / "segmentio_sasl"
    tell([str(program), secured.bootstrap_servers, mechanism, "ann", PASSWORD])
