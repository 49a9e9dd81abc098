"""`odradek completion`: the scripts are those of the parsers, and complete in real shells."""

import contextlib
import os
import pathlib
import pty
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

from odradek.commands import completing
from tools import completions

ROOT = pathlib.Path(__file__).parent.parent.parent
PATIENCE_S = 60
SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def odradek_bin(tmp_path_factory):
    """A folder with `odradek`, as it stands in the PATH of an installation."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "odradek"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.fixture
def environ(odradek_bin, broker, cluster, tmp_path, run):
    """Of a shell, near a broker with topics."""
    for name in ("orders", "orders.eu", "payments"):
        run("topics", "create", name, "-p", "1", "--if-not-exists", "-b", broker.bootstrap_servers)
    path = os.pathsep.join(one for one in sys.path if one)
    return {
        "PATH": f"{odradek_bin}:{os.environ['PATH']}",
        "PYTHONPATH": path,
        "HOME": str(tmp_path),
        "ZDOTDIR": str(tmp_path),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "ODRADEK_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
    }


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_in_the_package_is_that_of_the_parsers(run, shell):
    made = completions.scripts()[shell]
    assert (completions.FOLDER / f"odradek.{shell}").read_text() == made, "run: python -m tools.completions"
    ended = run("completion", shell)
    assert (ended.status, ended.out) == (0, made)


def test_another_shell_is_a_wrong_usage(run):
    assert run("completion", "tcsh").status == 2


BASH = """
source <(odradek completion bash)
while IFS= read -r COMP_LINE; do
  COMP_POINT=${#COMP_LINE} COMPREPLY=()
  $(complete -p odradek | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
  (IFS='|'; echo "${COMPREPLY[*]}")
done
"""
FISH = """
odradek completion fish | source
while read -l line
  echo (complete -C $line | string replace -r '\\t.*' '' | string join '|')
end
"""
LINES = {
    "odradek top": "topics",
    "odradek topics d": "describe|delete",
    "odradek topics describe ord": "orders|orders.eu",
    "odradek topics describe orders pay": "payments",
    "odradek topics describe -b {address} pay": "payments",
    "odradek acls list --topic p": "payments",
    "odradek completion z": "zsh",
    "odradek topics list --out": "--output",
    "odradek spark ver": "verify",
    "odradek topics describe nothing-like-it": "",
}


def completed(program, environ):
    address = environ["ODRADEK_BOOTSTRAP_SERVERS"]
    lines = [line.format(address=address) for line in LINES]
    done = subprocess.run(
        program, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, env=environ
    )
    found = ["|".join(sorted(line.split("|"))) for line in done.stdout.splitlines()]
    return dict(zip(lines, found, strict=True)), done.stderr


def expected(environ):
    return {
        line.format(address=environ["ODRADEK_BOOTSTRAP_SERVERS"]): "|".join(sorted(words.split("|")))
        for line, words in LINES.items()
    }


def test_bash_completes_commands_options_and_names(environ):
    assert completed(["bash", "--norc", "-c", BASH], environ) == (expected(environ), "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes_commands_options_and_names(environ, tmp_path):
    file = tmp_path / "test.fish"
    file.write_text(FISH)
    assert completed(["fish", str(file)], environ)[0] == expected(environ)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh_completes_commands_options_and_names(environ, tmp_path, run):
    functions = tmp_path / "functions"
    functions.mkdir()
    (functions / "_odradek").write_text(run("completion", "zsh").out)
    # A word is completed when it is the only one: then the shell writes the rest of it.
    (tmp_path / ".zshrc").write_text(
        f"PS1='READY> '\nfpath=({functions} $fpath)\nautoload -Uz compinit\ncompinit -D -u\n"
    )
    with terminal(["zsh", "-i"], environ) as ask:
        ask(b"", b"READY> ")
        assert b"topics" in ask(b"odradek topi\t", b"topics ")
        assert b"describe" in ask(b"desc\t", b"describe ")
        assert b"payments" in ask(b"pay\t", b"payments ")
        assert b"--timeout" in ask(b"--timeo\t", b"--timeout ")


@contextlib.contextmanager
def terminal(program, environ):
    """Runs a program in a terminal; gives a function that types and reads until it sees a text."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.execvpe(program[0], program, environ)
    seen = b""

    def ask(typed, until):
        nonlocal seen
        os.write(descriptor, typed)
        deadline = time.monotonic() + PATIENCE_S
        while until not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([descriptor], [], [], 1)[0]:
                seen += os.read(descriptor, 4096)
        told, seen = seen, b""
        return told

    try:
        yield ask
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(descriptor)


# The names --------------------------------------------------------------------------------------------


@pytest.fixture
def names(run, monkeypatch, broker, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVERS", broker.bootstrap_servers)

    def found(*arguments):
        ended = run("__complete", *arguments)
        assert (ended.status, ended.err) == (0, "")
        return ended.out.splitlines()

    return found


def test_names_are_those_that_begin_so(names, run, monkeypatch, broker):
    run("topics", "create", "a.one", "a.two", "b", "-b", broker.bootstrap_servers)
    assert names("topics", "a.") == ["a.one", "a.two"]
    assert names("topics", "a.t", "odradek topics describe a.t") == ["a.two"]
    assert names("groups", "") == []
    assert names("nothing", "") == []
    assert names() == []


def test_the_options_of_the_line_name_the_brokers(names, run, monkeypatch, broker):
    run("topics", "create", "here", "-b", broker.bootstrap_servers)
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert names("topics", "he", f"odradek topics list -b {broker.bootstrap_servers} he") == ["here"]
    half = f"odradek topics list --bootstrap-server={broker.bootstrap_servers} 'he"
    assert names("topics", "he", half) == ["here"], "a quote is not closed yet"
    assert names("topics", "he", "odradek topics list he") == []
    assert names("topics", "he", "odradek topics list -b") == []


def test_names_are_remembered_for_a_moment(names, run, broker, tmp_path):
    run("topics", "create", "early", "-b", broker.bootstrap_servers)
    assert names("topics", "early") == ["early"]
    run("topics", "create", "early.bird", "-b", broker.bootstrap_servers)
    assert names("topics", "early") == ["early"]
    (file,) = (tmp_path / "cache" / "odradek").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    long_ago = time.time() - completing.CACHED_SECONDS - 0.1
    os.utime(file, (long_ago, long_ago))
    assert names("topics", "early") == ["early", "early.bird"]
    other = file.with_name("names-of-yesterday")
    other.write_text("x")
    os.utime(other, (1, 1))
    os.utime(file, (1, 1))
    assert names("topics", "early") == ["early", "early.bird"]
    assert not other.exists()


def test_a_broker_that_says_nothing_is_waited_for_a_second(names, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVERS", f"127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        assert names("topics", "") == []
        assert time.monotonic() - began < completing.SECONDS_MAX + 1


def test_a_password_command_that_asks_is_ended_with_the_second(names, monkeypatch, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('[profiles.slow]\nsasl.password_command = "exec sleep 100"\n')
    monkeypatch.setenv("ODRADEK_CONFIG", str(file))
    began = time.monotonic()
    assert names("topics", "", "odradek topics list --profile slow ") == []
    assert time.monotonic() - began < completing.SECONDS_MAX + 2


def test_profiles_are_those_of_the_file(names, monkeypatch, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("[profiles.live]\n[profiles.lab]\n[profiles.test]\n")
    monkeypatch.setenv("ODRADEK_CONFIG", str(file))
    assert names("profiles", "l") == ["lab", "live"]
    file.write_text("[profiles.live")
    assert names("profiles", "l") == []


def test_the_list_of_commands_does_not_show_what_scripts_call(run):
    assert "__complete" not in run().err
