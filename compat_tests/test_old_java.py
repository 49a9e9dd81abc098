"""Clients of the 0.8 and 0.9 years: message sets instead of record batches, the lowest version of every API.

Against `--broker=kafka` these run on Kafka 3.9.2, the last line that still speaks those versions.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.clients import Message
from compat_tests.clients.java import SOURCE, compile_java
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import topic_name

CODECS = ("none", "gzip", "snappy", "lz4")


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.config.getoption("--broker") == "kafka":
        with reference.Kafka(reference.OLDER) as kafka:
            yield kafka.bootstrap_servers
    else:
        yield request.getfixturevalue("broker").bootstrap


def run_java(program: str, version: str, *arguments: str) -> list[list[str]]:
    """Compiles and runs one of our programs against the jars of `version`; its lines, split into fields."""
    class_path = compile_java(reference.class_path(version), SOURCE.with_name(f"{program}.java"))
    command = ["java", "-Xmx256m", "-cp", class_path, program, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return [line.split("\t") for line in finished.stdout.splitlines() if "\t" in line]


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_an_old_producer_and_simple_consumer_see_the_same_records(bootstrap: str, version: str) -> None:
    client = KafkaPythonClient(bootstrap)
    topics = {codec: topic_name(f"old-{codec}") for codec in CODECS}
    for topic in topics.values():
        client.create_topic(topic, 1)
    host, port = bootstrap.split(":")
    facts = run_java("OldProducer", version, host, port, *(f"{c}={topic}" for c, topic in topics.items()))
    sent = [
        (
            None if n % 10 == 0 else b"key-%d" % n,
            None if n % 50 == 1 else b"value-%d-of-many-that-compress-well-well-well" % n,
        )
        for n in range(200)
    ]
    texts = [
        tuple("-" if part is None else base64.b64encode(part).decode() for part in pair) for pair in sent
    ]
    for topic in topics.values():
        mine = [fact[1:] for fact in facts if fact[0] == topic]
        assert [fact for fact in mine if fact[0] == "acknowledged"] == [
            ["acknowledged", str(n)] for n in range(200)
        ]
        assert ["partition", "0", "0"] in mine
        assert ["earliest", "0"] in mine
        assert ["latest", "200"] in mine
        assert [fact[1:] for fact in mine if fact[0] == "read"] == [
            [str(offset), key, value] for offset, (key, value) in enumerate(texts)
        ]
        newer = client.read(topic, {0: 0}, 200)
        assert [(record.key, record.value) for record in newer] == sent


def test_the_first_group_consumer_shares_out_what_a_new_producer_wrote(bootstrap: str) -> None:
    client = KafkaPythonClient(bootstrap)
    topic = topic_name("old-group")
    client.create_topic(topic, 3)
    messages = [
        Message(b"%d" % n, headers=(("h", b"lost on the way down"),), partition=n % 3) for n in range(90)
    ]
    client.produce(topic, messages, "gzip")
    facts = run_java("OldGroup", "0.9.0.1", bootstrap, topic, topic_name("group"), "90")
    read = {(int(p), int(offset), value) for kind, p, offset, value in (f for f in facts if f[0] == "read")}
    assert read == {(n % 3, n // 3, str(n)) for n in range(90)}
    assert ["placed", "3"] in facts
    assert [fact for fact in facts if fact[0] == "committed"] == [
        ["committed", str(p), "30"] for p in range(3)
    ]
    assert ["sought", "7"] in facts
    assert ["end", "30"] in facts
