"""`odradek users` at a broker of ours with SASL; tests/server has the same on a data directory."""

import io

import pytest

import odradek
from odradek.client.client_error import ClientError
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.client.settings import ClientSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest
from tests.server.test_sasl_listener import OPTIONS, PASSWORD

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def broker():
    with odradek.Broker(options=OPTIONS) as running:
        yield running


@pytest.fixture
def users(odradek_command, tmp_path):
    """As ann, who logs in with PLAIN."""
    file = tmp_path / "admin.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.username=ann\nsasl.password={PASSWORD}\n"
    )
    return lambda *arguments: odradek_command("users", *arguments, "--command-config", str(file))


def logs_in(broker, user, password, mechanism):
    options = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{SCRAM} required username="{user}" password="{password}";',
    }
    with Cluster(ClientSettings.from_options(options)) as cluster:
        try:
            return bool(cluster.ask(ANY_NODE, MetadataRequest(topics=[])).brokers)
        except ClientError as error:
            if error.code != ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            return False


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_logs_in_until_it_is_removed(users, broker, monkeypatch, mechanism):
    monkeypatch.setenv("ODRADEK_PASSWORD", "pw of eve")
    added = users("add", "eve", "--mechanism", mechanism, "--iterations", "8192", "--output", "json")
    row = {"user": "eve", "mechanism": mechanism, "iterations": 8192}
    assert (added.status, added.err, added.rows) == (0, "", [row])
    assert row in users("list", "--output", "json").rows
    assert logs_in(broker, "eve", "pw of eve", mechanism)
    assert not logs_in(broker, "eve", "pw of bob", mechanism)
    removal = ("remove", "eve", "--mechanism", mechanism)
    assert users(*removal, "--dry-run", "--output", "json").rows == [row]
    assert logs_in(broker, "eve", "pw of eve", mechanism)
    assert users(*removal, "--output", "json").rows == [row]
    assert not logs_in(broker, "eve", "pw of eve", mechanism)
    assert row not in users("list", "--output", "json").rows
    again = users(*removal)
    assert (again.status, again.err) == (1, f"odradek: user 'eve' with {mechanism} does not exist\n")


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_the_password_is_no_argument(users, broker, monkeypatch, tmp_path, source):
    file = tmp_path / "secret"
    file.write_text("pw of file\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("pw of stdin\n"))
    more = ["--password-file", str(file)] if source == "file" else []
    assert users("add", source, "--mechanism", "SCRAM-SHA-256", *more).status == 0
    assert logs_in(broker, source, f"pw of {source}", "SCRAM-SHA-256")
    assert not logs_in(broker, source, f"pw of {source} ", "SCRAM-SHA-256")


def test_what_is_no_user_is_refused(users, monkeypatch):
    monkeypatch.setenv("ODRADEK_PASSWORD", "")
    ended = users("add", "eve", "--mechanism", "SCRAM-SHA-256")
    assert (ended.status, ended.err) == (1, "odradek: the password of the user 'eve' is empty\n")
    monkeypatch.setenv("ODRADEK_PASSWORD", "x")
    ended = users("add", "eve", "--mechanism", "SCRAM-SHA-256", "--iterations", "5")
    assert (ended.status, ended.err) == (1, "odradek: the number of iterations is 4096 to 16384, not 5\n")
    assert users("list", "--output", "json").status == 0
    assert users("add", "eve", "--mechanism", "PLAIN").status == 2


def test_users_are_of_brokers_or_of_a_directory(run, users, tmp_path):
    ended = users("list", "--data-dir", str(tmp_path))
    assert (ended.status, ended.err) == (
        1,
        "odradek: the users are either of brokers or of a data directory: name one of them\n",
    )


def test_the_file_of_a_node_names_its_directory(run, monkeypatch, tmp_path):
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path / 'logs'}\n")
    monkeypatch.setenv("ODRADEK_PASSWORD", "x")
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert run("users", "add", "eve", str(file), "--mechanism", "SCRAM-SHA-256").status == 0
    listed = run("users", "list", "--data-dir", str(tmp_path / "logs"), "--output", "json")
    assert listed.rows == [{"user": "eve", "mechanism": "SCRAM-SHA-256", "iterations": 4096}]
    assert run("users", "list", str(file)).out == "'eve' SCRAM-SHA-256 iterations=4096\n"
    removal = ("users", "remove", "eve", str(file), "--mechanism", "SCRAM-SHA-256")
    assert run(*removal, "--dry-run").status == 0
    assert run("users", "list", str(file)).out != ""
    assert run(*removal).status == 0
    assert run("users", "list", str(file)).out == ""


def test_where_no_broker_is_a_directory_nearby_is_hinted_at(run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    ended = run("users", "list", "--timeout", "0.1")
    assert (ended.status, "refuses connections" in ended.err, "--data-dir" in ended.err) == (1, True, False)
    (tmp_path / "data").mkdir()
    ended = run("users", "list", "--timeout", "0.1")
    assert ended.err.endswith("; for the users of a node that does not run, give --data-dir data\n")
    assert "--data-dir" not in run("users", "list", "--timeout", "0.1", "-b", "127.0.0.1:1").err
