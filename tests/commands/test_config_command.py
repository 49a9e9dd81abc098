"""`odradek config`: profiles are made, shown without secrets, used and removed."""

import io

import pytest


@pytest.fixture
def config(run, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return lambda *arguments: run("config", *arguments)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "odradek" / "config.toml"


def listed(config):
    rows = config("list", "--output", "json").rows
    return [(row["profile"], row["default"], row["name"], row["value"]) for row in rows]


def test_a_profile_is_made_and_used(config, path, odradek_command, broker, run):
    assert config("path").out == f"{path}\n"
    assert config("path", "--output", "json").rows == [{"path": str(path), "exists": False}]
    assert config("list").out == f"no profiles ({path})\n"
    made = config("set", "mine", f"bootstrap.servers={broker.bootstrap_servers}", "request.timeout.ms=9000")
    assert (made.status, made.err) == (0, "")
    assert config("use", "mine").status == 0
    assert listed(config) == [
        ("mine", True, "bootstrap.servers", broker.bootstrap_servers),
        ("mine", True, "request.timeout.ms", "9000"),
    ]
    assert run("cluster", "info", "--output", "json").rows[0]["broker"] == 1
    assert config("set", "mine", "request.timeout.ms=8000").status == 0
    assert listed(config)[1] == ("mine", True, "request.timeout.ms", "8000")


def test_a_secret_is_no_argument_and_is_not_shown(config, path, monkeypatch):
    for name in ("sasl.password", "sasl.jaas.config", "ssl.key.password"):
        refused = config("set", "p", f"{name}=hidden")
        assert refused.status == 1
        assert "config set-password PROFILE" in refused.err
        assert "hidden" not in refused.err
    refused = config("set", "p", "ssl.key.pem=hidden")
    assert "use ssl.key.location, which names a file" in refused.err
    assert not path.exists()
    config("set", "p", "sasl.username=ann", "sasl.password_command=pass show x", "sasl.mechanism=PLAIN")
    monkeypatch.setenv("ODRADEK_PASSWORD", "of something else")
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    ended = config("set-password", "p")
    assert (ended.status, "geheim" in ended.out) == (0, False)
    assert listed(config) == [
        ("p", False, "sasl.mechanism", "PLAIN"),
        ("p", False, "sasl.password", "***"),
        ("p", False, "sasl.username", "ann"),
    ]
    for form in ("table", "json", "jsonl", "tsv"):
        assert "geheim" not in config("list", "--output", form).out
        assert "geheim" not in config("unset", "p", "--dry-run", "--output", form).out
    assert '"sasl.password" = "geheim"\n' in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_secret_has_a_name(config, path, monkeypatch):
    config("set", "p", "ssl.key.location=/x")
    monkeypatch.setattr("sys.stdin", io.StringIO("of key"))
    assert config("set-password", "p", "--name", "ssl.key.password").status == 0
    assert '"ssl.key.password" = "of key"' in path.read_text()
    assert config("set-password", "p", "--name", "client.id").status == 2


def test_properties_and_profiles_are_removed(config, path):
    config("set", "a", "client.id=x", "bootstrap.servers=h:1")
    config("set", "b", "bootstrap.servers=h:2")
    config("use", "a")
    before = path.read_text()
    assert config("unset", "a", "client.id", "--dry-run").status == 0
    assert config("unset", "a", "--dry-run").status == 0
    assert path.read_text() == before
    (row,) = config("unset", "a", "client.id", "--output", "json").rows
    assert row == {"profile": "a", "default": True, "name": "client.id", "value": "x"}
    assert config("unset", "a").status == 0
    assert listed(config) == [("b", False, "bootstrap.servers", "h:2")]


def test_a_property_that_is_not_used_is_told(config):
    ended = config("set", "p", "max.poll.records=1", "sasl.mechanisms=PLAIN", "ssl.ca.location=/x")
    assert (ended.status, ended.err) == (0, "odradek: the property max.poll.records is not used here\n")


def test_a_slip_in_the_name_of_a_property_changes_nothing(config):
    ended = config("set", "p", "bootstrap.server=h:1", "client.id=me")
    told = "odradek: there is no property bootstrap.server; did you mean bootstrap.servers?\n"
    assert (ended.status, ended.err) == (1, told)
    assert config("list").out.startswith("no profiles")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["use", "nobody"], "profile 'nobody' does not exist in "),
        (["use", ""], "the name of the profile is empty"),
        (["set", "", "a=b"], "the name of the profile is empty"),
        (["set", "p", "client.id"], "client.id is not NAME=VALUE"),
        (["set", "p", "=x"], "=x is not NAME=VALUE"),
        (["unset", "nobody"], "profile 'nobody' does not exist in "),
        (["unset", "there", "no.such"], "the profile 'there' has no property no.such"),
        (["set-password", "nobody"], "profile 'nobody' does not exist in "),
        (["set-password", "there"], "the password is empty; nothing was changed"),
    ],
)
def test_a_fault_is_one_sentence_and_status_1(config, path, monkeypatch, arguments, sentence):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    config("set", "there", "client.id=x")
    before = path.read_text()
    ended = config(*arguments)
    assert ended.status == 1
    assert ended.err.startswith(f"odradek: {sentence}"), ended.err
    assert len(ended.err.splitlines()) == 1
    assert path.read_text() == before
