"""`odradek completion`: what the parsers know is completed, in real shells, too."""

import argparse
import contextlib
import os
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

from odradek.commands import known_names
from odradek.commands.command import COMMANDS, parser_of
from odradek.commands.completing import Found, complete, words_of
from odradek.spark.cli import make_parser

PATIENCE_S = 60


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


def every_parser():
    """The words that lead to a parser, and the parser: of each command and each of its actions."""
    for command in filter(lambda one: one.help, COMMANDS.values()):
        parser = make_parser()[0] if command.name == "spark" else parser_of(command, command.load())
        yield [command.name], parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from (([command.name, name], inner) for name, inner in action.choices.items())


def no_names(kind, words):
    return []


@pytest.mark.parametrize(
    ("words", "parser"), [pytest.param(*one, id=" ".join(one[0])) for one in every_parser()]
)
def test_each_option_choice_and_action_is_completed_where_its_parser_takes_it(words, parser):
    offered = complete(words, "-", no_names)
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    assert offered.kind == "names"
    assert set(offered.names) == {name for action in shown for name in action.option_strings}
    for action in parser._actions:
        if action.choices and action.option_strings:
            values = complete([*words, action.option_strings[-1]], "", no_names)
            assert set(values.names) == set(map(str, action.choices))
    first = next((action for action in parser._actions if not action.option_strings), None)
    if first is not None and first.choices:
        assert set(complete(words, "", no_names).names) == set(map(str, first.choices))


def test_each_command_is_completed_and_what_scripts_call_is_not():
    offered = complete([], "", no_names).names
    assert offered == {command.name: command.help for command in COMMANDS.values() if command.help}
    assert complete(["__complete"], "", no_names) == complete(["nothing"], "-", no_names) == Found("names")


def test_names_files_and_folders_stand_where_arguments_ask_for_them():
    def names(kind, words):
        return [f"{kind}-of-{words[0]}"]

    for line, found in {
        "topics describe ": {"topics-of-topics"},
        "topics describe one --timeout 5 ": {"topics-of-topics"},
        "groups describe -b localhost:1 ": {"groups-of-groups"},
        "topics list --profile ": {"profiles-of-topics"},
        "topics list --profile=prof": {"--profile=profiles-of-topics"},
        "topics list --output=t": {"--output=table", "--output=tsv"},
        "topics list --timeout ": set(),
        "topics nothing ": set(),
        "completion zsh ": set(),
        "topics describe -- -": set(),
    }.items():
        assert set(complete(*words_of(f"odradek {line}"), names).names) == found, line
    for line, kind in {
        "serve ": "files",
        "serve --data-dir ": "directories",
        "topics list -F ": "files",
        "check ": "directories",
        "check one ": "directories",
    }.items():
        assert complete(*words_of(f"odradek {line}"), names) == Found(kind), line


def test_a_line_is_split_as_a_shell_does_it_and_its_last_word_may_be_in_a_quote():
    assert words_of("odradek top") == ([], "top")
    assert words_of("odradek topics ") == (["topics"], "")
    assert words_of("odradek produce 'two words' --key='a") == (["produce", "two words"], "--key=a")
    assert words_of('odradek produce "a\\ b') == (["produce"], "a\\ b")
    assert words_of("") == ([], "")


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

    def found(line):
        ended = run("__complete", f"odradek {line}")
        assert (ended.status, ended.err) == (0, "")
        kind, *lines = ended.out.splitlines()
        assert kind == "names"
        return [name.split("\t")[0] for name in lines]

    return found


def test_names_are_those_that_begin_so(names, run, monkeypatch, broker):
    run("topics", "create", "a.one", "a.two", "b", "-b", broker.bootstrap_servers)
    assert names("topics describe a.") == ["a.one", "a.two"]
    assert names("topics describe b a.t") == ["a.two"]
    assert names("groups describe ") == []


def test_the_options_of_the_line_name_the_brokers(names, run, monkeypatch, broker):
    run("topics", "create", "here", "-b", broker.bootstrap_servers)
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert names(f"topics describe -b {broker.bootstrap_servers} he") == ["here"]
    half = f"topics describe --bootstrap-server={broker.bootstrap_servers} 'he"
    assert names(half) == ["here"], "a quote is not closed yet"
    assert names("topics describe he") == []
    assert names("topics describe -b") == ["-b"]


def test_names_are_remembered_for_a_moment(names, run, broker, tmp_path):
    run("topics", "create", "early", "-b", broker.bootstrap_servers)
    assert names("topics describe early") == ["early"]
    run("topics", "create", "early.bird", "-b", broker.bootstrap_servers)
    assert names("topics describe early") == ["early"]
    (file,) = (tmp_path / "cache" / "odradek").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    long_ago = time.time() - known_names.CACHED_SECONDS - 0.1
    os.utime(file, (long_ago, long_ago))
    assert names("topics describe early") == ["early", "early.bird"]
    other = file.with_name("names-of-yesterday")
    other.write_text("x")
    os.utime(other, (1, 1))
    os.utime(file, (1, 1))
    assert names("topics describe early") == ["early", "early.bird"]
    assert not other.exists()


def test_a_broker_that_says_nothing_is_not_waited_for(names, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVERS", f"127.0.0.1:{silent.getsockname()[1]}")
        assert names("topics describe ") == []


def test_a_password_command_that_asks_is_ended_with_the_second(names, monkeypatch, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('[profiles.slow]\nsasl.password_command = "exec sleep 1000"\n')
    monkeypatch.setenv("ODRADEK_CONFIG", str(file))
    assert names("topics describe --profile slow ") == []


def test_profiles_are_those_of_the_file(names, monkeypatch, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("[profiles.live]\n[profiles.lab]\n[profiles.test]\n")
    monkeypatch.setenv("ODRADEK_CONFIG", str(file))
    assert names("topics list --profile l") == ["lab", "live"]
    file.write_text("[profiles.live")
    assert names("topics list --profile l") == []


def test_the_list_of_commands_does_not_show_what_scripts_call(run):
    assert "__complete" not in run().err
