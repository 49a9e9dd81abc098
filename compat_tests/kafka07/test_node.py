"""Old clients of Node: `prozess` and `franz-kafka` speak Kafka 0.7, `kafka` (node-kafka) Kafka 0.6. They are
left out where there is no Node."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from typing import Any

import pytest

from compat_tests.kafka07.conftest import Oldest
from compat_tests.kafka07.today import read, write
from compat_tests.outside import clean_environment
from tools import environment

HERE = pathlib.Path(__file__).parent / "node"
TIMEOUT_S = 60
VALUES = ["one", "two", "x" * 5000, "four"]


pytestmark = pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("npm")), reason="no Node with npm is here"
)


@pytest.fixture(scope="module")
def modules() -> str:
    return str(environment.node_modules(HERE))


def judge(modules: str, *arguments: object) -> Any:
    """What a client says."""
    command = ["node", str(HERE / "judge.js"), *map(str, arguments)]
    done = subprocess.run(
        command,
        env=clean_environment(NODE_PATH=modules),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_prozess_writes_and_todays_clients_read(modules: str, oldest: Oldest, topic: str) -> None:
    judge(modules, "prozess", "produce", oldest.port, topic, *VALUES)
    assert read(oldest.broker, topic, len(VALUES)) == [value.encode() for value in VALUES]


def test_todays_clients_write_and_prozess_reads(modules: str, oldest: Oldest, topic: str) -> None:
    write(oldest.broker, topic, [value.encode() for value in VALUES])
    size = sum(10 + len(value) for value in VALUES)
    assert judge(modules, "prozess", "consume", oldest.port, topic, 0) == {"values": VALUES, "offset": size}
    assert judge(modules, "prozess", "offsets", oldest.port, topic) == [0, size]


def test_prozess_goes_on_where_it_was_when_answers_are_cut(modules: str, oldest: Oldest, topic: str) -> None:
    values = [f"{number:05d}" * 20 for number in range(300)]
    write(oldest.broker, topic, [value.encode() for value in values])
    found = judge(modules, "prozess", "consume", oldest.port, topic, 110 * 7, 1000)
    assert found == {"values": values[7:], "offset": 300 * 110}


def test_prozess_learns_what_is_out_of_range(modules: str, oldest: Oldest, topic: str) -> None:
    write(oldest.broker, topic, [b"one"])
    assert judge(modules, "prozess", "consume", oldest.port, topic, 14) == {"error": "OffsetOutOfRange"}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_franz_kafka_writes_and_todays_clients_read(
    modules: str, oldest: Oldest, topic: str, compression: str
) -> None:
    """Two messages are a batch, which is one compressed message."""
    command = [str(HERE / "judge.js"), "franz", "produce", str(oldest.port), topic, compression, *VALUES]
    with subprocess.Popen(
        ["node", *command], env=clean_environment(NODE_PATH=modules), stdin=subprocess.PIPE
    ) as process:
        # It ends when it is told to, as it does not know when all has gone.
        assert read(oldest.broker, topic, len(VALUES)) == [value.encode() for value in VALUES]
    assert process.returncode == 0


def test_todays_clients_write_and_franz_kafka_reads(modules: str, oldest: Oldest, topic: str) -> None:
    values = [f"{number:05d}" * 20 for number in range(300)]
    write(oldest.broker, topic, [value.encode() for value in values])
    assert judge(modules, "franz", "consume", oldest.port, topic, 0, 300, 100_000) == values
    found = judge(modules, "franz", "consume", oldest.port, topic, 110 * 7, 293, 1000)
    assert found == values[7:], "it goes on where answers are cut"


def test_node_kafka_writes_and_reads(modules: str, oldest: Oldest, topic: str) -> None:
    judge(modules, "kafka", "produce", oldest.port_06, topic, *VALUES)
    assert read(oldest.broker, topic, len(VALUES)) == [value.encode() for value in VALUES]
    write(oldest.broker, topic, [b"five"])
    values = [*VALUES, "five"]
    found = judge(modules, "kafka", "consume", oldest.port_06, topic, 0, len(values))
    assert found == {"values": values, "offset": sum(9 + len(value) for value in values)}
    found = judge(modules, "kafka", "consume", oldest.port_06, topic, 12, len(values) - 1)
    assert found["values"] == values[1:]


def test_what_one_of_them_writes_the_other_one_reads(modules: str, oldest: Oldest, topic: str) -> None:
    judge(modules, "kafka", "produce", oldest.port_06, topic, "of 0.6")
    read(oldest.broker, topic, 1)
    judge(modules, "prozess", "produce", oldest.port, topic, "of 0.7")
    read(oldest.broker, topic, 2)
    both = ["of 0.6", "of 0.7"]
    assert judge(modules, "prozess", "consume", oldest.port, topic, 0)["values"] == both
    assert judge(modules, "kafka", "consume", oldest.port_06, topic, 0, 2)["values"] == both
