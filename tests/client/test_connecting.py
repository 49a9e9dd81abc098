"""How a command finds its brokers: each source, and which rules over which."""

import argparse
import io
import os
import sys

import pytest

from odradek.client.client_error import ClientError
from odradek.client.connecting import add_connection_arguments, client_settings, options_of
from odradek.client.librdkafka_names import java_names
from odradek.client.profiles import config_path, read_profiles

CONFIG = """\
profile = "test"
[profiles.test]
"bootstrap.servers" = "test:1"
[profiles.live]
bootstrap.servers = "live:9093"
security.protocol = "sasl_plaintext"
sasl.mechanisms = "SCRAM-SHA-512"
sasl.username = "ann"
sasl.password_command = "printf 'a\\"b'"
request.timeout.ms = 5000
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    path.chmod(0o600)
    return path


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_connection_arguments(parser)
    return parser.parse_args(arguments)


def servers(environ, *arguments):
    return options_of(parsed(*arguments), environ)["bootstrap.servers"]


def test_each_source_rules_over_the_one_before(config, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\n")
    environ = {"ODRADEK_CONFIG": str(tmp_path / "none.toml")}
    assert servers(environ) == "localhost:9092"
    environ = {"ODRADEK_CONFIG": str(config)}
    assert servers(environ) == "test:1"
    assert servers({**environ, "ODRADEK_PROFILE": "live"}) == "live:9093"
    assert servers({**environ, "ODRADEK_PROFILE": "live"}, "--profile", "test") == "test:1"
    environ["ODRADEK_BOOTSTRAP_SERVERS"] = "environment:1"
    assert servers(environ) == "environment:1"
    assert servers(environ, "--command-config", str(file)) == "file:1"
    given = ["--command-config", str(file), "-X", "bootstrap.servers=x:1"]
    assert servers(environ, *given) == "x:1"
    assert servers(environ, *given, "-b", "flag:1,flag:2") == "flag:1,flag:2"


def test_a_profile_logs_in_with_the_password_of_a_command(config):
    settings = client_settings(parsed("--profile", "live"), {"ODRADEK_CONFIG": str(config)})
    assert settings.addresses() == [("live", 9093)]
    assert settings.request_timeout_ms == 5000
    assert settings.security.protocol == "SASL_PLAINTEXT"
    assert settings.security.credentials.mechanism == "SCRAM-SHA-512"
    assert (settings.security.credentials.user, settings.security.credentials.password[:]) == ("ann", 'a"b')


def test_the_password_may_come_from_a_file_or_the_environment(config, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("from file\n")
    config.write_text(
        f'[profiles.live]\nsecurity.protocol = "SASL_PLAINTEXT"\nsasl.mechanism = "PLAIN"\n'
        f'sasl.username = "ann"\nsasl.password_file = "{secret}"\n'
    )
    environ = {"ODRADEK_CONFIG": str(config), "ODRADEK_PROFILE": "live"}
    assert client_settings(parsed(), environ).security.credentials.password[:] == "from file"
    environ["ODRADEK_SASL_PASSWORD"] = "from environment"
    assert client_settings(parsed(), environ).security.credentials.password[:] == "from environment"


class Terminal(io.StringIO):
    """A person types there."""

    def isatty(self):
        return True


def test_a_person_is_asked_for_the_password_that_a_user_lacks(monkeypatch, tmp_path):
    login = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=ann"]
    options = parsed(*(word for one in login for word in ("-X", one)))
    environ = {"ODRADEK_CONFIG": str(tmp_path / "none.toml")}
    prompts, typed = [], iter(["from the prompt", ""])

    def getpass(prompt):
        prompts.append(prompt)
        return next(typed)

    monkeypatch.setattr("getpass.getpass", getpass)
    with pytest.raises(ClientError, match="have to be given together"):
        client_settings(options, environ)
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert client_settings(options, environ).security.credentials.password[:] == "from the prompt"
    with pytest.raises(ClientError, match="the password of ann is missing"):
        client_settings(options, environ)
    assert prompts == ["Password of ann: "] * 2
    # The environment has it, and a shell that completes names asks nobody.
    from_environment = client_settings(options, {**environ, "ODRADEK_SASL_PASSWORD": "known"})
    assert from_environment.security.credentials.password[:] == "known"
    with pytest.raises(ClientError, match="be given together"):
        client_settings(options, environ, asks=False)
    assert len(prompts) == 2


def test_a_password_that_others_can_read_is_told(config, capsys):
    config.write_text('[profiles.p]\nsasl.password = "secret"\n')
    config.chmod(0o644)
    with pytest.raises(ClientError, match=r"sasl.username and sasl.password have to be given together"):
        client_settings(parsed("--profile", "p"), {"ODRADEK_CONFIG": str(config)})
    told = capsys.readouterr().err
    assert "has a password (p), and others can read it: chmod 600" in told
    assert "secret" not in told


@pytest.mark.parametrize("name", ["sasl.password", "sasl.jaas.config", "ssl.key.password"])
def test_a_secret_is_no_argument(name):
    with pytest.raises(ClientError, match=f"-X {name} would show the secret") as caught:
        options_of(parsed("-X", f"{name}=hidden"), {"XDG_CONFIG_HOME": "/nowhere"})
    assert "hidden" not in str(caught.value)


def test_a_property_of_another_kind_of_client_is_told_and_left_out(capsys):
    settings = client_settings(
        parsed("-X", "max.poll.records=5", "-X", "client.id=me"), {"XDG_CONFIG_HOME": "/nowhere"}
    )
    assert settings.client_id == "me"
    assert capsys.readouterr().err == "odradek: the property max.poll.records is not used here\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("profile =", "is not a TOML file"),
        ("profil = 'x'", "has 'profil': it may have 'profile' and tables"),
        ("profile = 'x'", "profile is 'x', and there is no .profiles.x."),
        ("[profiles.a]\nx = []", "x of profile 'a' has to be a text or a number"),
        ("profiles = 3", "each profile is a table"),
        ("[profiles.a]\nsasl.password_command = 'exit 3'", "failed with the exit status 3"),
        ("[profiles.a]\nsasl.password_command = 'true'", "has to give one line"),
        ("[profiles.a]\nsasl.password_file = '/nowhere/x'", "/nowhere/x cannot be read: No such file"),
    ],
)
def test_a_configuration_that_is_not_understood_is_told(tmp_path, content, sentence):
    path = tmp_path / "config.toml"
    path.write_text(content)
    with pytest.raises(ClientError, match=sentence):
        read_profiles(str(path)).get("a").resolved()


def test_an_unknown_profile_is_told_with_those_that_are_there(config):
    with pytest.raises(ClientError, match=r"profile 'prod' does not exist in .*; it has: live, test"):
        read_profiles(str(config)).get("prod")


def test_the_configuration_is_where_the_desktop_has_it(monkeypatch):
    assert config_path({"XDG_CONFIG_HOME": "/x"}) == "/x/odradek/config.toml"
    monkeypatch.setenv("HOME", "/home/ann")
    assert config_path({}) == "/home/ann/.config/odradek/config.toml"


def test_names_of_librdkafka_become_those_of_java(tmp_path):
    (tmp_path / "ca").write_text("CA")
    (tmp_path / "cert").write_text("CERTIFICATE")
    (tmp_path / "key").write_text("KEY")
    given = {
        "metadata.broker.list": "a:1",
        "security.protocol": "ssl",
        "ssl.ca.location": str(tmp_path / "ca"),
        "ssl.certificate.location": str(tmp_path / "cert"),
        "ssl.key.location": str(tmp_path / "key"),
    }
    assert java_names(given) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERTIFICATE",
        "ssl.keystore.key": "KEY",
    }


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"ssl.key.pem": "x"}, "ssl.key.location needs ssl.certificate.location"),
        ({"ssl.ca.location": os.devnull + "/x"}, "ssl.ca.location .* cannot be read"),
        ({"sasl.username": "a"}, "have to be given together"),
        ({"sasl.username": "a", "sasl.password": "b"}, "and sasl.mechanism is missing"),
        (
            {"sasl.username": "a", "sasl.password": "b", "sasl.mechanism": "GSSAPI"},
            "sasl.mechanism is GSSAPI",
        ),
    ],
)
def test_options_of_librdkafka_that_cannot_be_are_told(given, sentence):
    with pytest.raises(ClientError, match=sentence):
        java_names(given)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("ssl.calocation", "ssl.ca.location"), ("ssl.certificate.locaton", "ssl.certificate.location")],
)
def test_a_slip_of_a_name_of_librdkafka_is_told_with_the_name_that_was_meant(name, meant):
    with pytest.raises(ClientError, match=f"^there is no property {name}; did you mean {meant}[?]$"):
        client_settings(parsed("-X", f"{name}=x"), {"XDG_CONFIG_HOME": "/nowhere"})


@pytest.mark.parametrize("name", ["ssl.crl.location", "ssl.nothing.of.the.kind"])
def test_what_is_no_slip_of_it_is_not_taken(name):
    with pytest.raises(ClientError, match="is not taken"):
        client_settings(parsed("-X", f"{name}=x"), {"XDG_CONFIG_HOME": "/nowhere"})
