"""The health check at listeners with TLS and SASL, with the options of a client and without."""

import subprocess
import sys

import pytest

from odradek.server.process import health
from tests.secured import MECHANISMS, PASSWORD, PROTOCOLS, running
from tests.server.tls_ends import Authority, chain_text


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture(scope="module")
def ports(authority, tmp_path_factory):
    with running(authority, tmp_path_factory.mktemp("secured")) as found:
        yield found


def written(tmp_path, values):
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={one_line(text)}\n" for name, text in values.items()))
    return str(file)


def one_line(text):
    return text.replace("\n", "\\n")


def options(authority, protocol, mechanism="SCRAM-SHA-256"):
    values = {"security.protocol": protocol, "client.id": "of no meaning here"}
    if protocol != "SASL_PLAINTEXT":
        values |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.text}
    if protocol == "SSL":
        issued = authority.issue("client", common_name="client")
        values["ssl.keystore.type"] = "PEM"
        values["ssl.keystore.key"] = issued.private_key_pem.bytes().decode()
        values["ssl.keystore.certificate.chain"] = chain_text(issued)
    else:
        values |= {"sasl.mechanism": mechanism, "sasl.jaas.config": MECHANISMS[mechanism]}
    return values


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_with_the_options_of_a_client_it_is_healthy_for_that_client(authority, ports, tmp_path, protocol):
    file = written(tmp_path, options(authority, protocol))
    assert health.check(f"127.0.0.1:{ports[protocol]}", file) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_is_refused_hears_why_and_shows_no_password(authority, ports, tmp_path, mechanism):
    values = options(authority, "SASL_SSL", mechanism)
    values["sasl.jaas.config"] = values["sasl.jaas.config"].replace(PASSWORD, "wrong-secret")
    told = health.check(f"127.0.0.1:{ports['SASL_SSL']}", written(tmp_path, values))
    assert "refuses the user 'ann' (SASL_AUTHENTICATION_FAILED)" in told
    assert "wrong-secret" not in told


def test_a_broker_of_another_authority_is_not_healthy(ports, tmp_path):
    file = written(tmp_path, options(Authority(), "SASL_SSL"))
    assert "certificate verify failed" in health.check(f"127.0.0.1:{ports['SASL_SSL']}", file)


def test_options_that_cannot_be_used_are_named(ports, tmp_path):
    address = f"127.0.0.1:{ports['SASL_PLAINTEXT']}"
    file = written(tmp_path, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})
    assert "sasl.mechanism is 'GSSAPI'" in health.check(address, file)
    assert "cannot be read" in health.check(address, str(tmp_path / "nowhere"))


def test_without_options_any_listener_of_a_broker_is_healthy(ports):
    assert health.check(f"ssl://127.0.0.1:{ports['SSL']}") is None
    assert health.check(f"ssl://127.0.0.1:{ports['SASL_SSL']}") is None
    assert health.check(f"127.0.0.1:{ports['SASL_PLAINTEXT']}") is None
    assert "no broker answers" in health.check(f"127.0.0.1:{ports['SASL_SSL']}")


def test_it_is_a_command(authority, ports, tmp_path):
    file = written(tmp_path, options(authority, "SASL_SSL"))
    words = ["--command-config", file, f"127.0.0.1:{ports['SASL_SSL']}"]
    done = subprocess.run(
        [sys.executable, "-m", "odradek.server.process.health", *words],
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
