"""The console blocks of README.md and docs/howto are run, a page in one shell, and their output is compared.

How a page is written:

- `$ ` begins a command and `> ` goes on with it, as shells show them; then comes what it prints (stdout and
  stderr).
- `...` stands for anything within a line, and a line of it alone for any lines. Runs of spaces count as one,
  since columns are as wide as their values.
- A command ends with status 0, unless the next one is `echo $?`, which shows another.
- `odradek serve` without `&` keeps its terminal: the next blocks are typed in another one. A block that
  begins with `^C` is Ctrl-C in the terminal of the last of them.
- Ports from 9000 to 9999 are free ones in truth, and `odradek serve` without an address gets one.
- A command that only shows something is asked again until it shows what the page says, as the commands before
  it may go on in the background.
"""

from __future__ import annotations

import os
import pathlib
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs" / "howto").glob("*.md"))]
PATIENCE_S = 60
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORT = re.compile(r"(?<=:)9\d{3}\b|(?<=--metrics )9\d{3}\b")
SHOWS = re.compile(
    r"odradek (?:\w+ (?:list|describe|offsets|get|diff|info|health)|producers|doctor)\b[^|>]*|curl [^>]*"
)
INTERRUPT = "^C"


class Typed(NamedTuple):
    """A command, and what the page shows below it."""

    command: str
    shown: str


def typed(block: str) -> list[Typed]:
    """The commands of a block, of which `^C` may be the first."""
    found: list[Typed] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ ") or (not found and line.rstrip() == INTERRUPT):
            found.append(Typed(line.removeprefix("$ ").rstrip("\n"), ""))
            continue
        assert found, f"a block begins with no command, but with {line!r}"
        command, shown = found[-1]
        if line.startswith("> ") and not shown:
            found[-1] = Typed(f"{command}\n{line.removeprefix('> ').rstrip()}", "")
        else:
            found[-1] = Typed(command, shown + line)
    return found


def plain(text: str) -> str:
    """Without what depends on the width of values."""
    lines = [re.sub(r" +", " ", line).strip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines).strip("\n")


def pattern(shown: str) -> re.Pattern[str]:
    lines = plain(shown).split("\n")
    parts = [
        r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*?") + "\n" for line in lines
    ]
    return re.compile("".join(parts) if shown.strip() else "")


def is_shown(shown: str, printed: str) -> bool:
    text = plain(printed)
    return pattern(shown).fullmatch(f"{text}\n" if text else "") is not None


class Ports:
    """A free port for each that a page names."""

    def __init__(self) -> None:
        self._free: dict[str, str] = {}

    def free(self, named: str) -> str:
        if named not in self._free:
            with socket.socket() as bound:
                bound.bind(("127.0.0.1", 0))
                self._free[named] = str(bound.getsockname()[1])
        return self._free[named]

    def of_command(self, command: str) -> str:
        command = PORT.sub(lambda match: self.free(match[0]), command)
        if "listen" in command:
            return command
        return re.sub(r"^odradek serve\b", rf"\g<0> --listen localhost:{self.free('9092')}", command)

    def of_page(self, printed: str) -> str:
        for named, free in self._free.items():
            printed = re.sub(rf"\b{free}\b", named, printed)
        return printed


class Running:
    """A program whose output is read as it comes: the shell, or what keeps a terminal of its own."""

    def __init__(self, program: list[str], folder: pathlib.Path, environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            program,
            cwd=folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)
        self.printed = ""
        """What was not taken yet."""

    def read(self) -> bool:
        """Waits a moment for more; False at the end."""
        assert self.process.stdout is not None
        if not self._selector.select(0.1):
            return True
        piece = os.read(self.process.stdout.fileno(), 1 << 16)
        self.printed += piece.decode()
        return bool(piece)

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def end(self) -> None:
        """With all that it started, which is in its session."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.communicate()
        self._selector.close()


class Reader:
    """Who types what a page shows."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.ports = Ports()
        hidden = ("KAFKA_", "ODRADEK_", "PYTEST_")
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(hidden)},
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "ODRADEK_BOOTSTRAP_SERVERS": f"localhost:{self.ports.free('9092')}",
            "PYTHONUNBUFFERED": "1",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        self._folder = folder
        self._shell = Running(["bash", "--norc", "-s"], folder, self._environ)
        self._brokers: list[Running] = []
        self._status = 0

    def end(self) -> None:
        for running in (self._shell, *self._brokers):
            running.end()

    def type(self, one: Typed, shows_status: bool) -> None:
        """Types a command; fails if it prints something else than the page, or ends with another status than
        0 where the page does not show one."""
        command = self.ports.of_command(one.command)
        if command == INTERRUPT:
            self._interrupt(one)
        elif command.startswith("odradek serve") and not command.endswith("&"):
            self._serve(command, one)
        else:
            self._ask(command, one)
        assert shows_status or self._status == 0, f"{one.command!r} ended with {self._status}"

    def _ask(self, command: str, one: Typed) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_shown(one.shown, printed := self._run(command)):
            may_change = SHOWS.fullmatch(command) and time.monotonic() < deadline
            assert may_change, told(one, printed)

    def _run(self, command: str) -> str:
        # What a program prints has no such character; the command before is seen by `echo $?`.
        self._shell.send(f"(exit {self._status})\n{{\n{command}\n}} </dev/null\nprintf '\\036%s\\036' $?\n")
        deadline = time.monotonic() + PATIENCE_S
        while not self._shell.printed.endswith("\x1e"):
            assert time.monotonic() < deadline, f"{command!r} does not end: {self._shell.printed}"
            assert self._shell.read(), f"the shell ended at {command!r}: {self._shell.printed}"
        printed, status, _ = self._shell.printed.split("\x1e")
        self._shell.printed, self._status = "", int(status)
        return self.ports.of_page(printed)

    def _serve(self, command: str, one: Typed) -> None:
        broker = Running(["bash", "-c", f"exec {command}"], self._folder, self._environ)
        self._brokers.append(broker)
        deadline = time.monotonic() + PATIENCE_S
        while not is_shown(one.shown, self.ports.of_page(broker.printed)):
            is_going_on = broker.read()
            assert is_going_on, told(one, broker.printed)
            assert time.monotonic() < deadline, told(one, broker.printed)
        broker.printed, self._status = "", 0

    def _interrupt(self, one: Typed) -> None:
        broker = self._brokers.pop()
        os.killpg(broker.process.pid, signal.SIGINT)
        while broker.read():
            pass
        self._status = broker.process.wait(PATIENCE_S)
        printed = self.ports.of_page(broker.printed)
        broker.end()
        assert is_shown(one.shown, printed), told(one, printed)


def told(one: Typed, printed: str) -> str:
    return f"\n$ {one.command}\nThe page shows:\n{one.shown}\nThe command prints:\n{printed}"


@pytest.fixture
def reader(tmp_path: pathlib.Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.end()


@pytest.mark.skipif("config.getoption('--broker') == 'kafka'", reason="the pages start brokers of their own")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_is_what_one_sees(page: pathlib.Path, reader: Reader) -> None:
    blocks = [typed(block) for block in BLOCK.findall(page.read_text())]
    assert blocks, f"{page.name} has no console block"
    commands = [one for block in blocks for one in block]
    for one, following in zip(commands, [*commands[1:], None], strict=True):
        reader.type(one, following is not None and following.command == "echo $?")


@pytest.mark.parametrize(
    ("one", "shows_status"),
    [
        (Typed("echo one", "two\n"), False),
        (Typed("echo one", ""), False),
        (Typed("echo one >&2", ""), False),
        (Typed("false", ""), False),
        (Typed("exit 1", ""), True),
        (Typed("odradek serve --no-such-option", "ready\n"), False),
    ],
)
def test_what_a_page_should_not_show_is_found(one: Typed, shows_status: bool, reader: Reader) -> None:
    with pytest.raises(AssertionError):
        reader.type(one, shows_status)


def test_a_status_that_the_page_shows_is_compared(reader: Reader) -> None:
    reader.type(Typed("(exit 3)", ""), shows_status=True)
    reader.type(Typed("echo $?", "3\n"), shows_status=False)


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("a  b\n", "a b\n", True),
        ("a\n", "a\nb\n", False),
        ("", "", True),
        ("", "something\n", False),
        ("took ... ms\n", "took 12 ms\n", True),
        ("took ... ms\n", "took 12 s\n", False),
        ("took ... ms\n", "took\n12 ms\n", False),
        ("...\nend\n", "a\nb\nend\n", True),
        ("...\nend\n", "end\n", True),
        ("...\nend\n", "a\nb\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_what_a_page_leaves_open_is_all_that_may_differ(shown: str, printed: str, expected: bool) -> None:
    assert is_shown(shown, printed) is expected


def test_a_block_is_read_as_commands_with_what_they_print() -> None:
    block = "$ one \\\n>   more\nprinted\n$ for i in 1 2; do\n>   echo $i\n> done\n1\n2\n$ true\n"
    assert typed(block) == [
        Typed("one \\\n  more", "printed\n"),
        Typed("for i in 1 2; do\n  echo $i\ndone", "1\n2\n"),
        Typed("true", ""),
    ]
    assert typed("^C\nstopped\n") == [Typed("^C", "stopped\n")]
