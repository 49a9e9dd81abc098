"""The commands in a real terminal, which tmux is: nothing is wider than it, colours, closed pipes, Ctrl-C."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer

from compat_tests.clients import wait_until
from compat_tests.stories import topic_name
from odradek.client.cluster import LATEST, Cluster
from odradek.client.settings import ClientSettings
from odradek.commands.main import main
from odradek.commands.output import display_width

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")

PATIENCE_S = 60
ESCAPE = "\x1b["
SCREEN = 24


class Terminal:
    """A terminal with a shell. Its tmux is one of its own, that no other session of the user knows."""

    def __init__(self, columns: int, folder: pathlib.Path, environ: dict[str, str]) -> None:
        self._folder = folder
        self._socket = str(folder / "tmux.socket")
        self._runs = 0
        self._environ = {**environ, "PS1": "", "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
            self._environ.pop(name, None)
        size = ["-x", str(columns), "-y", str(SCREEN)]
        self._tmux("new-session", "-d", *size, "exec bash --norc --noprofile")
        self._tmux("set-option", "-g", "history-limit", "5000")
        self.columns = columns

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *arguments]
        done = subprocess.run(
            command, env=self._environ, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        return done.stdout

    def end(self) -> None:
        self._tmux("kill-server")

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def screen(self, *, styled: bool = False) -> list[str]:
        """The lines as they were printed: what the terminal itself has wrapped is one line."""
        flags = ["-e"] if styled else []
        return self._tmux("capture-pane", "-p", "-J", *flags, "-S", "-").rstrip("\n").split("\n")

    def type(self, command: str) -> None:
        """Types a command into an empty screen; it need not end."""
        self._runs += 1
        script = self._folder / f"command-{self._runs}"
        # What was typed is no part of the screen that is looked at.
        script.write_text(f"clear\n{command}\nprintf 'STATUS-{self._runs}=%s\\n' $?\n")
        self._tmux("clear-history")
        self.keys(f". {script}", "Enter")

    def ended(self, *, styled: bool = False) -> tuple[list[str], int]:
        """Waits for the end of the command: what it printed, and its status."""
        mark = f"STATUS-{self._runs}="
        self.wait_for(mark)
        lines = self.screen(styled=styled)
        (end,) = (number for number, line in enumerate(lines) if mark in line)
        printed = [line.rstrip() for line in lines[:end]]
        return printed, int(lines[end].partition(mark)[2])

    def run(self, command: str, *, styled: bool = False) -> tuple[list[str], int]:
        self.type(command)
        return self.ended(styled=styled)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in "\n".join(self.screen()):
            assert time.monotonic() < deadline, f"no {text!r} on the screen: {self.screen()}"


@pytest.fixture(scope="module")
def environ(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("bin")
    (folder / "odradek").write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek "$@"\n')
    (folder / "odradek").chmod(0o755)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("ODRADEK_", "TMUX"))},
        "PATH": f"{folder}:{os.environ['PATH']}",
        "ODRADEK_BOOTSTRAP_SERVERS": bootstrap,
        "XDG_CONFIG_HOME": "/nowhere",
        "LC_ALL": "C.UTF-8",
    }


@pytest.fixture(scope="module", params=[80, 200])
def terminal(
    request: pytest.FixtureRequest, environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Terminal]:
    terminal = Terminal(request.param, tmp_path_factory.mktemp("terminal"), environ)
    yield terminal
    terminal.end()


@pytest.fixture(scope="module")
def narrow(environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    terminal = Terminal(80, tmp_path_factory.mktemp("narrow"), environ)
    yield terminal
    terminal.end()


# Tables -----------------------------------------------------------------------------------------------

LONG = "a-name-that-is-longer-than-any-terminal-of-a-person-" * 4
"""208 characters."""
TABLES = {
    "topics list": "topic",
    "topics list --sizes": "topic",
    "topics describe {topic}": "topic",
    "topics offsets {topic}": "topic",
    "groups list": "group",
    "groups list --lag": "group",
    "groups describe {group}": "topic",
    "groups describe {group} --members": "group",
    "configs get topic:{topic}": "",
    "configs diff topic:{topic}": "topic",
    "acls list -b {authorizing}": "topic",
    "users list": "user",
    "quotas list": "user",
    "transactions list": "transaction",
    "producers {topic}": "topic",
    "cluster info": "",
    "cluster health": "",
    "cluster features": "",
    "cluster log-dirs": "",
    "doctor": "",
    "doctor -b {nobody}": "",
}
"""Each with the long name that it shows."""


@pytest.fixture(scope="module")
def names(
    bootstrap: str, authorizing: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Long ones, of what is there to show; some of it has to be going on meanwhile."""
    names = {
        **{what: topic_name(f"{LONG}{what}") for what in ("topic", "group", "user", "transaction")},
        "authorizing": authorizing,
        "nobody": "localhost:1",
    }
    topic, user = names["topic"], names["user"]
    password = tmp_path_factory.mktemp("user") / "password"
    password.write_text("secret\n")
    for command in (
        [
            "topics",
            "create",
            topic,
            "-p",
            "2",
            "-c",
            f"leader.replication.throttled.replicas={'1:1,' * 60}0:1",
        ],
        ["users", "add", user, "--mechanism", "SCRAM-SHA-256", "--password-file", str(password)],
        ["quotas", "set", "producer_byte_rate=1000000", "--user", user, "--client-id", LONG],
        ["acls", "add", "--principal", f"User:{user}", "--operation", "READ", "--topic", topic],
    ):
        assert main([*command, "-b", authorizing if command[0] == "acls" else bootstrap]) == 0
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": names["transaction"],
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    consumer = KafkaConsumer(
        topic,
        group_id=names["group"],
        client_id=LONG,
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
    )
    deadline = time.monotonic() + PATIENCE_S
    while not consumer.assignment():
        assert time.monotonic() < deadline, "the group is not there"
        consumer.poll(timeout_ms=100)
    yield names
    consumer.close()
    producer.abort_transaction(PATIENCE_S)
    # Others use the brokers, too, and count what there is.
    for command in (
        ["acls", "remove", "--principal", f"User:{user}"],
        ["quotas", "remove", "--user", user, "--client-id", LONG],
        ["users", "remove", user, "--mechanism", "SCRAM-SHA-256"],
        ["topics", "delete", topic],
    ):
        assert main([*command, "-b", authorizing if command[0] == "acls" else bootstrap]) == 0


def _width_of(line: str, columns: int) -> int:
    """The width of the first columns of a line. There are two blanks or more between them."""
    ends = [found.end() for found in re.finditer(r"\S+(?: \S+)*", line)]
    return display_width(line[: ends[:columns][-1]]) if ends else 0


@pytest.mark.parametrize("command", TABLES)
def test_nothing_but_the_first_column_is_wider_than_the_terminal(
    terminal: Terminal, names: dict[str, str], command: str
) -> None:
    lines, status = terminal.run(f"odradek {command}".format(**names))
    assert status == (1 if "{nobody}" in command else 0), lines
    # The name of a thing is never cut, as the next command needs it; nor is that of a setting.
    columns = 2 if command.startswith("configs diff") else 1
    whole = max(_width_of(line, columns) for line in lines)
    assert max(map(display_width, lines)) <= max(terminal.columns, whole + 1), lines
    long = names.get(TABLES[command])
    if long is not None:
        cut = re.search(rf"{LONG[:6]}\S*…", "\n".join(lines))
        assert cut or long in "".join(lines), "what has no room is cut visibly, or goes on in the next line"


@pytest.mark.parametrize("command", TABLES)
def test_nothing_is_cut_in_a_pipe_and_nothing_has_escapes(
    environ: dict[str, str], names: dict[str, str], command: str
) -> None:
    words = f"odradek {command}".format(**names).split()
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (1 if "{nobody}" in command else 0, "")
    assert "…" not in done.stdout
    assert "\x1b" not in done.stdout
    long = names.get(TABLES[command])
    assert long is None or any(long in line for line in done.stdout.splitlines())


@pytest.mark.parametrize("command", ["topics list", "doctor", "cluster health"])
def test_colours_are_for_terminals_that_may_have_them(narrow: Terminal, command: str) -> None:
    coloured, _ = narrow.run(f"odradek {command}", styled=True)
    assert any(ESCAPE in line for line in coloured)
    for setting in ("NO_COLOR=1", "TERM=dumb"):
        plain, status = narrow.run(f"{setting} odradek {command}", styled=True)
        assert (status, [line for line in plain if ESCAPE in line]) == (0, [])


def test_records_are_never_cut_and_move_no_cursor(terminal: Terminal, topic: str) -> None:
    value = "v" * 500
    terminal.run(f"printf '%s\\n' k:{value} $'k2:\\e[31mred' | odradek produce {topic} -K : -p 0")
    lines, status = terminal.run(f"odradek consume {topic} -f '%p %o %k %s\\n'", styled=True)
    assert (lines, status) == ([f"0 0 k {value}", "0 1 k2 \\x1b[31mred"], 0)


# Pipes and Ctrl-C -------------------------------------------------------------------------------------


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = topic_name("terminal")
    assert main(["topics", "create", name, "-p", "1", "-b", bootstrap]) == 0
    return name


def test_a_pipe_that_is_closed_is_no_failure(narrow: Terminal, topic: str) -> None:
    made, status = narrow.run(f"seq -f 'record %.0f {'x' * 100}' 1 30000 | odradek produce {topic}")
    assert (made, status) == (["odradek: 30,000 records to " + topic], 0)
    for command, first in (
        (f"odradek consume -o beginning {topic} | head -1", [f"record 1 {'x' * 100}"]),
        (f"odradek consume -o beginning {topic} --json | true", []),
        ("odradek topics list | true", []),
        ("odradek topics list --output json | true", []),
    ):
        printed, _ = narrow.run(f'{command}; echo "${{PIPESTATUS[*]}}"')
        assert printed == [*first, "0 0"]
    printed, _ = narrow.run('odradek topics list | head -1; echo "${PIPESTATUS[*]}"')
    assert printed[0].split()[0] == "topic"
    assert printed[1:] == ["0 0"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("consume {topic} --follow", "one"),
        ("consume {topic} -g {topic}-group --follow", "one"),
        ("groups describe {topic}-watched --watch 1", "{topic}-watched"),
        ("produce {topic}", "typed"),
    ],
)
def test_an_interrupt_is_told_by_the_status_alone(
    narrow: Terminal, bootstrap: str, topic: str, command: str, shown: str
) -> None:
    narrow.run(f"echo one | odradek produce {topic} -q")
    narrow.run(f"odradek groups seek {topic}-watched --to start --topics {topic}")
    before, _ = narrow.run("stty -g")
    narrow.type(f"odradek {command}".format(topic=topic))
    if shown == "typed":
        narrow.keys(shown, "Enter")
        wait_until(lambda: count(bootstrap, topic) == 2, "the line is written while the input goes on")
    narrow.wait_for(shown.format(topic=topic))
    narrow.keys("C-c")
    printed, status = narrow.ended()
    assert status == 130
    assert not [line for line in printed if "Traceback" in line or "Error" in line]
    assert narrow.run("stty -g") == (before, 0)


def count(bootstrap: str, topic: str) -> int:
    with Cluster(ClientSettings(bootstrap)) as cluster:
        return cluster.list_offsets({(topic, 0): LATEST})[topic, 0]
