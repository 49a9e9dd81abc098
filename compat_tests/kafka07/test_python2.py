"""Old clients of Python: `samsa` speaks Kafka 0.7, `brod` and the first `pykafka` Kafka 0.6. They need a
Python 2.7, and are left out where there is none."""

from __future__ import annotations

import json
import pathlib
import subprocess
from typing import Any

import pytest

from compat_tests.kafka07.conftest import Oldest
from compat_tests.kafka07.old_python import PYTHON, variables
from compat_tests.kafka07.today import read, write

JUDGE = pathlib.Path(__file__).parent / "python2" / "judge.py"
TIMEOUT_S = 60
VALUES = ["one", "two", "x" * 5000, "four"]


pytestmark = pytest.mark.skipif(PYTHON is None, reason="no Python 2.7 is here")


def judge(client: str, action: str, *arguments: object) -> Any:
    """What a client says."""
    assert PYTHON is not None
    done = subprocess.run(
        [PYTHON, str(JUDGE), client, action, *map(str, arguments)],
        env=variables(client),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("magic", [0, 1])
def test_samsa_writes_and_todays_clients_read(oldest: Oldest, topic: str, magic: int) -> None:
    judge("samsa", "produce", oldest.port, topic, magic, *VALUES)
    assert read(oldest.broker, topic, len(VALUES)) == [value.encode() for value in VALUES]


def test_todays_clients_write_and_samsa_reads(oldest: Oldest, topic: str) -> None:
    write(oldest.broker, topic, [value.encode() for value in VALUES])
    whole = sum(10 + len(value) for value in VALUES)
    found = judge("samsa", "fetch", oldest.port, topic, 0, 10_000)
    assert found == {"values": VALUES, "offset": whole}
    assert judge("samsa", "offsets", oldest.port, topic, -1, 10) == [whole, 0]
    assert judge("samsa", "offsets", oldest.port, topic, -2, 10) == [0]
    assert judge("samsa", "offsets", oldest.port, topic, 0, 10) == []


def test_samsa_goes_on_where_answers_are_cut(oldest: Oldest, topic: str) -> None:
    values = [f"{number:05d}" * 20 for number in range(300)]
    write(oldest.broker, topic, [value.encode() for value in values])
    found = judge("samsa", "fetch", oldest.port, topic, 110 * 7, 1000)
    assert found == {"values": values[7:], "offset": 300 * 110}


def test_samsa_learns_what_is_out_of_range(oldest: Oldest, topic: str) -> None:
    write(oldest.broker, topic, [b"one"])
    assert judge("samsa", "fetch", oldest.port, topic, 14, 1000) == {"error": "OffsetOutOfRangeError"}


def test_samsa_writes_and_reads_several_topics_at_once(oldest: Oldest, topic: str) -> None:
    topics = [f"{topic}{number}" for number in range(3)]
    judge("samsa", "multiproduce", oldest.port, *topics)
    for name in topics:
        read(oldest.broker, name, 2)
    assert judge("samsa", "multifetch", oldest.port, *topics, "nobody") == [
        *[[f"{name} 1", f"{name} 2"] for name in topics],
        [],
    ]


def test_brod_writes_and_reads(oldest: Oldest, topic: str) -> None:
    judge("brod", "produce", oldest.port_06, topic, *VALUES)
    assert read(oldest.broker, topic, len(VALUES)) == [value.encode() for value in VALUES]
    write(oldest.broker, topic, [b"five"])
    values = [*VALUES, "five"]
    positions = [sum(9 + len(value) for value in values[:number]) for number in range(len(values) + 1)]
    found = judge("brod", "fetch", oldest.port_06, topic, 0)
    assert found == [[position, value] for position, value in zip(positions, values, strict=False)]
    assert judge("brod", "fetch", oldest.port_06, topic, positions[2]) == found[2:]
    assert judge("brod", "ends", oldest.port_06, topic) == [0, positions[-1]]
    assert judge("brod", "fetch", oldest.port_06, topic, positions[-1] + 1) == {"error": "OffsetOutOfRange"}


def test_pykafka_writes_and_reads(oldest: Oldest, topic: str) -> None:
    judge("pykafka", "produce", oldest.port_06, topic, *VALUES)
    assert read(oldest.broker, topic, len(VALUES)) == [value.encode() for value in VALUES]
    write(oldest.broker, topic, [b"five"])
    values = [*VALUES, "five"]
    end = sum(9 + len(value) for value in values)
    assert judge("pykafka", "fetch", oldest.port_06, topic, 0) == {"values": values, "offset": end}
    assert judge("pykafka", "fetch", oldest.port_06, topic, 12) == {"values": values[1:], "offset": end}
    assert judge("pykafka", "fetch", oldest.port_06, topic, end) == {"values": [], "offset": end}
