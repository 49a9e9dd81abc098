"""The examples in the help of the commands do what they show: in a shell, where what they name is there."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

import odradek
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.commands.command import COMMANDS
from odradek.embedding.free_port import free_port
from tests.client.topics import Transactions

pytestmark = pytest.mark.nightly

EXAMPLE = re.compile(r"^  (\S.*?)(?:  +.*)?$")
OPTIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
FILES = {
    "orders.txt": "o-1:one\no-2:two\n",
    "one-value.txt": "one value",
    "records.jsonl": '{"key": "o-991", "value": "refund"}\n',
    "day.jsonl": '{"key": "o-992", "value": "two"}\n',
    "deletes.txt": "o-1:\n",
    "secret.txt": "the-secret-of-a-test",
    "secret": "the-secret-of-a-test",
    "server.properties": "log.dirs=data\n",
}
PREPARED = """\
odradek topics create orders -p 4
odradek topics create payments -p 1
odradek topics create orders.load -p 1
odradek topics create old-topic -p 1
odradek topics create shop.a -p 1
odradek topics create test-1 -p 1
odradek topics create metrics -p 1
seq 20 | odradek produce orders
seq 3 | odradek produce orders -p 3
seq 3 | odradek produce payments
odradek consume orders payments old-topic -g billing -n 5 > /dev/null
odradek groups seek billing --to start --topics orders payments old-topic
odradek groups seek test-group --to start --topics payments
odradek users add ann --mechanism SCRAM-SHA-512 --password-file secret
odradek acls add --principal User:ann --operation READ --topic orders
odradek quotas set producer_byte_rate=1000 --user ann
"""
OF_ANOTHER = "it names a host, or a directory, of the reader"
FOR_EVER = "it goes on until it is interrupted"
LEFT_OUT = {
    "kafka.example": OF_ANOTHER,
    "/etc/prometheus": OF_ANOTHER,
    "/kafka/logs": OF_ANOTHER,
    "/disk1/logs": OF_ANOTHER,
    "localhost:9092": OF_ANOTHER,
    "backup/orders": OF_ANOTHER,
    "import-log old": OF_ANOTHER,
    "pass show": "a store of passwords",
    "set-password": "it asks for a password",
    "users add ann --mechanism SCRAM-SHA-512": "it asks for a password",
    "users add admin --mechanism": "it asks for a password",
    "fpath": "a variable of zsh",
    "--watch": FOR_EVER,
    "--follow": FOR_EVER,
    "cluster start": FOR_EVER,
    "/usr/share/dict/words": FOR_EVER,
    "--records 1000000": "a load",
    "--seconds": "a load",
    "--records 100000": "a load",
    "bench produce": "a load",
    "trace --test-api": "this broker has no test API at a port",
}
"""A part of an example, and why it is not run. `compat_tests/commands/test_bench.py` runs small loads."""
OTHERWISE = {
    "odradek topics create orders -p 6 -c retention.ms=86400000": "there is one already",
    "odradek transactions abort orders:3 --producer-id 4012 --dry-run": "there is no such producer",
    "odradek config unset live ssl.ca.location": "the profile has none",
    "odradek topics move orders payments --to 4,5,6 --dry-run": "there is one broker",
    "odradek topics delete 'test-*'": "it asks first, and nobody answers",
    "odradek groups delete 'test-*'": "it asks first, and nobody answers",
    "odradek groups describe word-count --topology": "there is no such group",
    "odradek groups seek parcels --to start": "there is no such group",
    "odradek cluster unregister 7": "there is one broker",
    "odradek cluster features upgrade share.version=1": "it is higher already",
}
"""Examples that end with 1 here, and why."""


def examples(name: str) -> list[str]:
    """What the help shows."""
    _, _, shown = COMMANDS[name].load().EXAMPLES.partition("examples:\n")
    block = shown.split("\n\n")[0] if shown else ""
    found = [EXAMPLE.match(line) for line in block.splitlines()]
    return [
        one[1] for one in found if one is not None and "odradek" in one[1] and "odradek ..." not in one[1]
    ]


ALL = [
    line
    for name in COMMANDS
    if COMMANDS[name].help and name not in ("serve", "spark")
    for line in examples(name)
]
WANTS_DATA = [line for line in ALL if re.search(r"\bdata\b|server\.properties|monday\.tar", line)]
ASKING = [line for line in ALL if line not in WANTS_DATA]


def is_run(line: str) -> bool:
    return not any(part in line for part in LEFT_OUT)


class Shell:
    """bash in a directory, with `odradek` on its path."""

    def __init__(self, directory: pathlib.Path, port: int) -> None:
        programs = str(pathlib.Path(sys.executable).parent)
        self._directory = directory
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory),
            "ODRADEK_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
        }

    def run(self, line: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self._directory, env=self._environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, odradek.Broker]]:
    directory, port = tmp_path_factory.mktemp("examples"), free_port()
    for name, text in FILES.items():
        (directory / name).write_text(text)
    for name in ("bash-completion/completions", "fish/completions"):
        for base in (".local/share", ".config"):
            (directory / base / name).mkdir(parents=True)
    shell = Shell(directory, port)
    with (
        odradek.Broker(process=True, data_dir=directory / "data", options=OPTIONS, port=port) as broker,
        Cluster(ClientSettings(broker.bootstrap_servers)) as cluster,
    ):
        for line in PREPARED.splitlines():
            status, told = shell.run(line)
            assert status == 0, (line, told)
        Transactions(cluster, "pay-7").write("orders", 3, [b"open"])
        yield shell, broker


@pytest.mark.parametrize("line", [line for line in ASKING if is_run(line)])
def test_an_example_does_what_it_shows(place: tuple[Shell, odradek.Broker], line: str) -> None:
    shell, broker = place
    status, told = shell.run(line)
    room = shutil.disk_usage(broker.data_dir)
    is_nearly_full = "--min-free 20" in line and room.free < room.total * 0.2
    assert status == (1 if line in OTHERWISE or is_nearly_full else 0), told
    assert "Traceback" not in told


def test_examples_of_directories_do_what_they_show(place: tuple[Shell, odradek.Broker]) -> None:
    shell, broker = place
    broker.stop()
    shown = [line for line in WANTS_DATA if is_run(line)]
    assert len(shown) >= 8
    for line in shown:
        status, told = shell.run(line)
        assert status == 0, (line, told)


@pytest.mark.parametrize("part", LEFT_OUT)
def test_what_is_left_out_is_in_an_example(part: str) -> None:
    assert any(part in line for line in ALL), "take it out of the list"


@pytest.mark.parametrize("line", OTHERWISE)
def test_what_ends_otherwise_is_an_example(line: str) -> None:
    assert line in ALL
