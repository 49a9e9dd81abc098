"""`odradek spark` as far as it goes without Spark."""

import subprocess
import sys
import textwrap

import pytest

from odradek.client.client_error import ClientError
from odradek.commands import main as cli
from odradek.embedding.free_port import free_port
from odradek.spark import cli as spark_cli
from odradek.spark.jobs.topics import Topics, options_of_other


@pytest.mark.parametrize("job", ["archive", "replay", "mirror", "verify", "latest", "profile"])
def test_help_has_examples_and_fits_a_terminal(capsys, monkeypatch, job):
    monkeypatch.setenv("COLUMNS", "110")
    with pytest.raises(SystemExit) as ended:
        cli.main(["spark", job, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    assert f"usage: odradek spark {job}" in out
    assert max(map(len, out.splitlines())) <= 110


def test_without_a_job_the_usage_is_shown(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["spark"])
    assert ended.value.code == 2
    assert "archive" in capsys.readouterr().err


def test_the_list_of_commands_names_spark(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "jobs on Spark (pip install 'odradek[spark]')" in capsys.readouterr().out


def test_without_pyspark_one_sentence_says_what_to_install():
    script = """
        import sys
        sys.modules["pyspark"] = None  # what is not installed
        import importlib.util
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *a: None if name == "pyspark" else found(name, *a)
        from odradek.commands.main import main
        sys.exit(main(["spark", "verify", "-b", "b:1", "--topic", "t", "--table", "d"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    needs = "odradek spark needs PySpark: pip install 'odradek[spark]', and a Java runtime (17 or later)"
    assert done.stderr == f"odradek: {needs}\n"


def test_importing_the_jobs_imports_neither_pyspark_nor_pyarrow():
    script = (
        "import sys, odradek.spark.cli, odradek.spark.jobs.archive, odradek.spark.jobs.mirror;"
        "sys.exit(bool({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        check=False,
    )
    assert done.returncode == 0


def test_the_file_for_spark_submit_is_the_command_line_and_hides_no_module_of_others():
    script = """
        import os, runpy, sys
        from importlib.util import find_spec
        file = find_spec("odradek.spark.cli").origin.replace("cli.py", "__main__.py")
        sys.path.insert(0, os.path.dirname(file))  # as Python does with the file that it is started with
        sys.argv = [file, "profile", "--help"]
        try:
            runpy.run_path(file, run_name="__main__")
        except SystemExit as ended:
            sys.exit(ended.code or int(find_spec("progress") is not None))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: odradek spark profile")


def parsed(*words):
    options = spark_cli.make_parser()[0].parse_args(words)
    spark_cli.name_brokers(options)
    return options


LEAST = ("-b", "a:1", "--topic", "t")


@pytest.fixture(autouse=True)
def no_profile(monkeypatch, tmp_path):
    """The configuration of whoever runs the tests says nothing here."""
    monkeypatch.setenv("ODRADEK_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.delenv("ODRADEK_BOOTSTRAP_SERVERS", raising=False)


def test_brokers_are_named_as_for_all_commands(monkeypatch, tmp_path):
    profiles = tmp_path / "config.toml"
    profiles.write_text(
        'profile = "test"\n[profiles.test]\nbootstrap.servers = "profile:1"\nclient.id = "me"\n'
    )
    assert parsed("profile", "--topic", "t").bootstrap_servers == "localhost:9092"
    monkeypatch.setenv("ODRADEK_CONFIG", str(profiles))
    options = parsed("profile", "--topic", "t", "--timeout", "2")
    assert options.bootstrap_servers == "profile:1"
    assert spark_cli.kafka_options(options) == {
        "kafka.client.id": "me",
        "kafka.default.api.timeout.ms": "2000",
    }
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVERS", "environment:1")
    assert parsed("profile", "--topic", "t").bootstrap_servers == "environment:1"
    assert parsed("profile", *LEAST).bootstrap_servers == "a:1"


def test_the_file_of_kafkas_tools_comes_before_single_options(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=elsewhere:1\nsecurity.protocol=SASL_SSL\nclient.id=of-the-file\n"
        'sasl.jaas.config=org.x.PlainLoginModule required username="ann" password="secret word";\n'
    )
    words = ("profile", *LEAST, "--command-config", str(file), "--option", "kafka.client.id=mine")
    assert spark_cli.kafka_options(parsed(*words)) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.client.id": "mine",
        "kafka.sasl.jaas.config": 'org.x.PlainLoginModule required username="ann" password="secret word";',
    }
    assert spark_cli.kafka_options(parsed("profile", *LEAST)) == {}


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ClientError, match=r"--command-config .*nowhere cannot be read"):
        spark_cli.kafka_options(parsed("profile", *LEAST, "--command-config", str(tmp_path / "nowhere")))


def test_each_job_takes_such_a_file_and_those_of_two_clusters_take_two(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    path = str(file)
    more = {
        "archive": ("--table", "x"),
        "replay": ("--table", "x"),
        "mirror": ("--to", "b:1", "--offsets", "x", "--to-command-config", path),
        "verify": ("--table", "x", "--other-command-config", path),
        "latest": ("--table", "x"),
        "profile": (),
    }
    for job, words in more.items():
        options = parsed(job, *LEAST, "--command-config", path, *words)
        assert spark_cli.kafka_options(options) == {"kafka.security.protocol": "SSL"}, job


def test_the_other_cluster_has_its_own_tls_and_sasl_and_the_other_options_of_both():
    both = {"kafka.Security.Protocol": "SSL", "kafka.ssl.key.password": "x", "kafka.client.id": "c"}
    assert options_of_other(both, None) == both
    assert options_of_other(both, {}) == {"kafka.client.id": "c"}
    own = {"kafka.security.protocol": "SASL_SSL"}
    assert options_of_other(both, own) == {"kafka.client.id": "c", **own}


def test_topics_show_no_option():
    assert "secret" not in repr(Topics("a:1", ("t",), options={"kafka.sasl.jaas.config": "secret"}))


def test_a_slip_of_a_property_is_refused_before_spark_starts(capsys):
    with pytest.raises(ClientError, match=r"^there is no property securty.protocol; did you mean security"):
        parsed("profile", *LEAST, "-X", "securty.protocol=SSL")
    options = parsed("profile", *LEAST, "-X", "message.timeout.ms=1", "-X", "isolation.level=read_committed")
    assert capsys.readouterr().err == "odradek: the property message.timeout.ms is not used here\n"
    assert spark_cli.kafka_options(options) == {"kafka.isolation.level": "read_committed"}


def test_the_broker_is_asked_before_spark_starts(capsys, monkeypatch):
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setattr(spark_cli, "find_spec", lambda name: name)
    monkeypatch.setattr(spark_cli, "_session", lambda options: pytest.fail("Spark starts"))
    words = ["latest", "-b", address, "--topic", "t", "--table", "d", "--timeout", "1.2"]
    assert spark_cli.main(words) == 1
    assert capsys.readouterr().err == (
        f"odradek: {address} refuses connections; trying for 1.2 s (odradek doctor says more)\n"
        f"odradek: no broker answered in 1.2 s: {address} refuses connections\n"
    )
