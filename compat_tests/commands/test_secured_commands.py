"""`odradek` as a program logs in by TLS and each mechanism of SASL: at Odradek, and by night at Apache Kafka
4.4 and 3.9."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from compat_tests import reference
from compat_tests.secured import (
    MECHANISMS,
    PASSWORD,
    SecuredKafka,
    SecuredOdradek,
    sasl_options,
    secured_odradek,
)
from compat_tests.security.certificates import Authority
from tests.server.jwt_authority import unsigned

SECURITY = "org.apache.kafka.common.security"
UNSIGNED = f"{SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
OAUTH = f'{SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";'
FIRST, OTHERS = "SASL_SSL", ("SASL_PLAINTEXT", "SSL")
SERVERS = [
    "odradek",
    *(pytest.param(one, marks=pytest.mark.nightly) for one in (reference.CURRENT, reference.OLDER)),
]
Secured = SecuredKafka | SecuredOdradek
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module", params=SERVERS)
def broker(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """It wants a certificate of a client that has no other way to log in."""
    options = {
        **authority.key_store("PEM", "broker", authority.server()),
        **authority.trust_store("PEM"),
        **sasl_options(FIRST),
        **sasl_options(OTHERS[0]),
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        "listener.name.ssl.ssl.client.auth": "required",
    }
    for listener in (FIRST, OTHERS[0]):
        prefix = f"listener.name.{listener.lower()}.oauthbearer"
        options[f"{prefix}.sasl.server.callback.handler.class"] = UNSIGNED
        options[f"{prefix}.sasl.jaas.config"] = OAUTH
    with contextlib.ExitStack() as stack:
        if request.param == "odradek":
            directory = tmp_path_factory.mktemp("data")
            yield stack.enter_context(secured_odradek(directory, options, listener=FIRST, others=OTHERS))
        else:
            kafka = SecuredKafka(options, listener=FIRST, others=OTHERS, version=request.param)
            yield stack.enter_context(kafka)


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")}

    def ended(*arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "odradek", *arguments],
            input=stdin, capture_output=True, text=True, timeout=120,
            env={**environment, "XDG_CONFIG_HOME": str(tmp_path), **more},
        )  # fmt: skip

    return ended


def writes_and_reads(run: Run, words: list[str], topic: str, **more: str) -> None:
    for arguments, stdin, expected in (
        (["topics", "create", topic], "", None),
        (["produce", topic], "one\ntwo\n", ""),
        (["consume", topic, "-o", "beginning", "-e"], "", "one\ntwo\n"),
    ):
        done = run(*arguments, *words, stdin=stdin, **more)
        assert done.returncode == 0, (arguments, done.stderr)
        assert expected is None or done.stdout == expected


def logged_in(mechanism: str, token: pathlib.Path) -> list[str]:
    words = ["-X", f"sasl.mechanism={mechanism}"]
    if mechanism == "OAUTHBEARER":
        now_s = int(time.time())
        token.write_text(unsigned({"sub": "ann", "iat": now_s - 5, "exp": now_s + 3600}))
        return [*words, "-X", f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}"]
    return [*words, "-X", "sasl.username=ann"]


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
@pytest.mark.parametrize("listener", [FIRST, OTHERS[0]])
def test_each_mechanism_by_properties(
    broker: Secured, authority: Authority, run: Run, tmp_path: pathlib.Path, listener: str, mechanism: str
) -> None:
    words = ["-b", broker.address(listener), "-X", f"security.protocol={listener}"]
    words += logged_in(mechanism, tmp_path / "token")
    if listener == FIRST:
        words += ["-X", f"ssl.ca.location={authority.pem}"]
    topic = f"by-{listener}-{mechanism}".lower()
    writes_and_reads(run, words, topic, ODRADEK_SASL_PASSWORD=PASSWORD)


def test_a_client_certificate_in_a_profile(
    broker: Secured, authority: Authority, run: Run, tmp_path: pathlib.Path
) -> None:
    key = authority.write_pem("client", authority.issue("client", common_name="client"))
    file = tmp_path / "odradek" / "config.toml"
    file.parent.mkdir()
    file.write_text(
        f"""profile = "sealed"
[profiles.sealed]
"bootstrap.servers" = "{broker.address("SSL")}"
"security.protocol" = "SSL"
"ssl.ca.location" = "{authority.pem}"
"ssl.keystore.type" = "PEM"
"ssl.keystore.location" = "{key}"
"""
    )
    file.chmod(0o600)
    writes_and_reads(run, [], "by-certificate")


def test_the_file_of_a_java_client(
    broker: Secured, authority: Authority, run: Run, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "client.properties"
    jaas = f'{SECURITY}.scram.ScramLoginModule required username="ann" password="{PASSWORD}";'
    options = {
        "security.protocol": FIRST,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": jaas,
        **authority.trust_store("PEM"),
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    words = ["-b", broker.address(FIRST), "--command-config", str(file)]
    writes_and_reads(run, words, "by-java")
    doctor = run("doctor", *words)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_in_a_sentence(broker: Secured, run: Run, mechanism: str) -> None:
    listener = OTHERS[0]
    words = ["-b", broker.address(listener), "-X", f"security.protocol={listener}"]
    words += ["-X", f"sasl.mechanism={mechanism}", "-X", "sasl.username=ann"]
    done = run("topics", "list", *words, ODRADEK_SASL_PASSWORD="wrong-secret")
    assert done.returncode == 1
    assert "refuses the user 'ann' (SASL_AUTHENTICATION_FAILED)" in done.stderr
    assert "wrong-secret" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_client_without_a_certificate_is_told_so(broker: Secured, authority: Authority, run: Run) -> None:
    words = ["-b", broker.address("SSL"), "-X", "security.protocol=SSL"]
    done = run("topics", "list", *words, "-X", f"ssl.ca.location={authority.pem}")
    assert done.returncode == 1
    assert "refuse" in done.stderr
