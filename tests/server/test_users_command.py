"""`odradek users` on a data directory, and the users of the environment at a start."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import pytest

from odradek import Broker
from odradek.commands.main import main
from odradek.config.config_error import ConfigError
from odradek.config.passwords import read_password
from odradek.offline.dump import dump
from odradek.server.metadata.meta_properties import METADATA_LOG
from tests.raw_client import RawClient
from tests.server.test_sasl_listener import OPTIONS, log_in_with_scram

PASSWORD = "pw-of-admin"


def run(*arguments, stdin="", **environ):
    """Runs the command here, and gives what a process of it would have left."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "ODRADEK_"))
    }
    with (
        mock.patch.dict(os.environ, inherited | environ, clear=True),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()))),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        status = main(["users", *arguments])
    done = subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())
    assert PASSWORD not in done.stdout + done.stderr
    return done


def add(directory, *more, mechanism="SCRAM-SHA-256", **keywords):
    return run("add", "admin", "--mechanism", mechanism, "--data-dir", str(directory), *more, **keywords)


def logs_in(directory, mechanism="SCRAM-SHA-256", password=PASSWORD):
    with Broker(options=OPTIONS, data_dir=directory) as broker, RawClient(broker.port) as client:
        return log_in_with_scram(client, mechanism, "admin", password) == 0


@pytest.mark.parametrize("source", ["environment", "file", "stdin", "stdin by its name"])
def test_the_first_user_is_made_before_a_start(tmp_path, source):
    directory, file = tmp_path / "data", tmp_path / "secret"
    file.write_text(f"{PASSWORD}\n")
    if source == "environment":
        done = add(directory, ODRADEK_PASSWORD=PASSWORD)
    elif source == "file":
        done = add(directory, "--password-file", str(file))
    else:
        done = add(directory, *(["--password-file", "-"] if " " in source else []), stdin=f"{PASSWORD}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert logs_in(directory)
    assert run("list", "--data-dir", str(directory)).stdout == "'admin' SCRAM-SHA-256 iterations=4096\n"


def test_a_user_gets_another_password_and_is_removed(tmp_path):
    assert add(tmp_path, mechanism="SCRAM-SHA-512", stdin="first\n").returncode == 0
    assert add(tmp_path, "--iterations", "8192", mechanism="SCRAM-SHA-512", stdin=PASSWORD).returncode == 0
    assert logs_in(tmp_path, "SCRAM-SHA-512")
    assert run("list", "--data-dir", str(tmp_path)).stdout == "'admin' SCRAM-SHA-512 iterations=8192\n"
    removal = ("remove", "admin", "--mechanism", "SCRAM-SHA-512", "--data-dir", str(tmp_path))
    assert run(*removal).returncode == 0
    assert not logs_in(tmp_path, "SCRAM-SHA-512")
    done = run(*removal)
    assert done.returncode == 1
    assert "user 'admin' with" in done.stderr


def test_a_directory_that_is_served_is_left_alone(tmp_path):
    with Broker(data_dir=tmp_path):
        done = add(tmp_path, stdin=PASSWORD)
    assert done.returncode == 1
    assert "stop the broker first" in done.stderr


@pytest.mark.parametrize(
    ("more", "stdin", "words"),
    [
        ([], "", "is empty"),
        (["--iterations", "100"], PASSWORD, "4096 to 16384"),
        (["--password-file", "/no/such/file"], "", "cannot be read"),
        ([], "x" * 1025, "standard input has more than 1024 characters"),
    ],
)
def test_what_is_no_user_is_refused_in_one_sentence(tmp_path, more, stdin, words):
    done = add(tmp_path, *more, stdin=stdin)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_start_makes_the_users_of_the_environment_once(tmp_path):
    def start(password):
        path = os.pathsep.join(one for one in sys.path if one)
        command = [
            sys.executable,
            "-m",
            "odradek",
            "serve",
            "--data-dir",
            str(tmp_path),
            "--listen",
            "127.0.0.1:0",
        ]
        users = f"SCRAM-SHA-256=[name=admin,password={password}]"
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path, "ODRADEK_ADD_SCRAM": users},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        ready = process.stdout.readline()
        process.terminate()
        _, told = process.communicate()
        assert "ready on" in ready, told
        assert password not in ready + told
        return told

    assert "user 'admin' was made for SCRAM-SHA-256" in start(PASSWORD)
    assert logs_in(tmp_path)
    assert "was made" not in start("another")
    assert logs_in(tmp_path)


def test_what_is_stored_is_not_shown(tmp_path):
    assert add(tmp_path, stdin=PASSWORD).returncode == 0
    out = io.StringIO()
    dump([str(tmp_path / METADATA_LOG)], records=True, as_json=True, out=out, include_empty=False)
    (line,) = [line for line in out.getvalue().splitlines() if '"type": "UserScramCredential"' in line]
    assert "[hidden]" in line
    assert len(line) < 300


def test_a_password_is_taken_whole_or_refused(tmp_path, monkeypatch):
    path = tmp_path / "secret"
    whole = "\u20ac" * 1024
    for text in (whole, f"{whole}\n", f"{whole}\r\n"):
        path.write_bytes(text.encode())
        assert read_password(str(path), io.StringIO()) == whole
        monkeypatch.setenv("ODRADEK_PASSWORD", text)
        assert read_password(None, io.StringIO()) == whole
        monkeypatch.delenv("ODRADEK_PASSWORD")
        assert read_password("-", io.StringIO(text)) == whole
    for text, words in (
        (f"{whole}x", "more than 1024"),
        ("x" * 9000, "1024"),
        ("a\nb", "one line"),
        ("a\n\n", "line"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_password(str(path), io.StringIO())
        monkeypatch.setenv("ODRADEK_PASSWORD", text)
        with pytest.raises(ConfigError, match=words):
            read_password(None, io.StringIO())
        monkeypatch.delenv("ODRADEK_PASSWORD")


def test_what_stands_in_no_utf_8_is_told_of_standard_input():
    raw = io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8")
    with pytest.raises(ConfigError, match="standard input cannot be read"):
        read_password("-", raw)


def test_a_prompt_asks_twice(monkeypatch):
    answers = iter(["one", "one", "one", "other"])
    monkeypatch.setattr("getpass.getpass", lambda _: next(answers))

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("ODRADEK_PASSWORD", raising=False)
    assert read_password(None, Terminal()) == "one"
    with pytest.raises(ConfigError, match="differ"):
        read_password(None, Terminal())
