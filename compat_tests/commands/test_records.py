"""`odradek produce` and `odradek consume` as programs, at any broker, compared with what clients of others
write and read."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor

from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import topic_name
from odradek.client.cluster import LATEST, Cluster
from odradek.client.reading import Reader
from odradek.client.settings import ClientSettings
from odradek.wire.records import HEADER_SIZE_BYTES, iter_whole_batches

TIMEOUT_S = 60
BEGAN_MS = (int(time.time()) - 7200) * 1000
"""The time of records: not so long ago that retention takes them away."""
Row = dict[str, Any]


class Odradek:
    """Runs the command line at one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.environ = {
            **os.environ,
            "ODRADEK_BOOTSTRAP_SERVERS": bootstrap,
            "XDG_CONFIG_HOME": "/nowhere",
            "PYTHONUNBUFFERED": "1",  # as in many images
        }

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "odradek", *arguments]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=self.environ)

    def end(self, *arguments: str, content: bytes = b"") -> tuple[int, bytes, str]:
        with self.start(*arguments) as process:
            out, err = process.communicate(content, TIMEOUT_S)
            return process.returncode, out, err.decode()

    def __call__(self, *arguments: str, content: bytes = b"") -> bytes:
        status, out, err = self.end(*arguments, content=content)
        assert (status, err) == (0, "")
        return out

    def rows(self, *arguments: str) -> list[Row]:
        lines = self("consume", *arguments, "--json").splitlines()
        return sorted((json.loads(line) for line in lines), key=lambda row: (row["partition"], row["offset"]))


@pytest.fixture
def odradek(bootstrap: str) -> Odradek:
    return Odradek(bootstrap)


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = topic_name("records")
    KafkaPythonClient(bootstrap).create_topic(name, 3)
    return name


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(ClientSettings(bootstrap)) as connected:
        yield connected


def read(bootstrap: str, topic: str, count: int, **options: Any) -> list[Any]:
    """What kafka-python reads."""
    with KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None, **options
    ) as consumer:
        found: list[Any] = []
        while len(found) < count:
            polled = consumer.poll(timeout_ms=TIMEOUT_S * 1000)
            assert polled, f"only {len(found)} of {count} records came"
            found += [record for records in polled.values() for record in records]
    return sorted(found, key=lambda record: (record.partition, record.offset))


def sections(cluster: Cluster, topic: str, partition: int) -> list[bytes]:
    """The bytes of the records of each batch in the log, without its header."""
    key = topic, partition
    end = cluster.list_offsets({key: LATEST})[key]
    return [
        bytes(fetched.buffer[position + HEADER_SIZE_BYTES : position + header.size_bytes])
        for fetched in Reader(cluster, {key: (0, end)}, read_committed=True)
        for position, header in iter_whole_batches(fetched.buffer)
        if not header.is_control
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_others_read_what_is_produced(odradek: Odradek, bootstrap: str, topic: str, codec: str) -> None:
    lines = ["ключ:значение", "k:", ":v", "no key", "k2:" + "v" * 5000]
    odradek(
        *("produce", topic, "-K", ":", "-Z", "-H", "h=1", "-H", "h", "-p", "1", "--compression", codec),
        content="\n".join(lines).encode(),
    )
    found = read(bootstrap, topic, 5)
    assert [(one.partition, one.key, one.value) for one in found] == [
        (1, "ключ".encode(), "значение".encode()),
        (1, b"k", None),
        (1, None, b"v"),
        (1, None, b"no key"),
        (1, b"k2", b"v" * 5000),
    ]
    assert all(one.headers == [("h", b"1"), ("h", None)] for one in found)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_others_produce_is_printed(odradek: Odradek, bootstrap: str, topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for number in range(300):
        producer.produce(
            topic,
            key=None if number % 3 == 0 else b"k%d" % number,
            value=None if number % 7 == 0 else b"\xff%d" % number if number % 5 == 0 else b"v%d" % number,
            headers=[("h", b"1"), ("h", None)] if number % 2 else [],
            timestamp=BEGAN_MS + number,
        )
    assert producer.flush(TIMEOUT_S) == 0
    expected = read(bootstrap, topic, 300)
    rows = odradek.rows(topic)
    assert [(row["partition"], row["offset"], row["timestamp"], row["key"]) for row in rows] == [
        (one.partition, one.offset, one.timestamp, one.key and one.key.decode()) for one in expected
    ]
    shown = odradek("consume", topic, "-f", "%p %o %k %s{hex} %S %h\\n").decode().splitlines()
    assert sorted(shown) == sorted(
        f"{one.partition} {one.offset} {(one.key or b'').decode()} {(one.value or b'').hex()} "
        f"{-1 if one.value is None else len(one.value)} {'h=1,h=NULL' if one.headers else ''}"
        for one in expected
    )


def test_a_copy_is_the_same_byte_for_byte(
    odradek: Odradek, cluster: Cluster, bootstrap: str, topic: str, tmp_path: pathlib.Path
) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=50) as producer:
        for number in range(200):
            producer.send(
                topic,
                partition=number % 3,
                key=[None, b"", b"k", b"\xff\x00"][number % 4],
                value=[None, b"", "ж".encode(), b"\xfe", b"\x1b[2J"][number % 5 if number % 4 else 1],
                headers=[("h", b"1"), ("h", b"\xff"), ("", b"")][: number % 4],
                timestamp_ms=BEGAN_MS + 7 * number,
            )
        producer.flush()
    printed = odradek("consume", topic, "--json")
    copy = topic_name("copy")
    KafkaPythonClient(bootstrap).create_topic(copy, 3)
    file = tmp_path / "printed.jsonl"
    file.write_bytes(printed)
    odradek("produce", copy, "--json", "--file", str(file))
    again = odradek("consume", copy, "--json").replace(copy.encode(), topic.encode())
    assert sorted(again.splitlines()) == sorted(printed.splitlines())
    second = topic_name("copy")
    KafkaPythonClient(bootstrap).create_topic(second, 3)
    odradek("produce", second, "--json", "--transaction", "--file", str(file))
    for partition in range(3):
        (section,) = sections(cluster, copy, partition)
        assert len(section) > 500
        assert sections(cluster, second, partition) == [section]
        if len(sections(cluster, topic, partition)) == 1:
            assert sections(cluster, topic, partition) == [section], "as kafka-python wrote it"


@pytest.mark.parametrize(("ours", "theirs"), [("murmur2", "murmur2_random"), ("crc", "consistent_random")])
def test_keys_go_where_librdkafka_puts_them(
    odradek: Odradek, bootstrap: str, topic: str, ours: str, theirs: str
) -> None:
    keys = [f"ключ {number}" for number in range(50)]
    other = topic_name("records")
    KafkaPythonClient(bootstrap).create_topic(other, 3)
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": theirs})
    for key in keys:
        producer.produce(other, key=key.encode(), value=b"v")
    assert producer.flush(TIMEOUT_S) == 0
    content = "".join(f"{key}|v\n" for key in keys).encode()
    odradek("produce", topic, "-K", "|", "--partitioner", ours, content=content)
    placed = {row["key"]: row["partition"] for row in odradek.rows(topic)}
    assert placed == {row["key"]: row["partition"] for row in odradek.rows(other)}
    assert len(set(placed.values())) == 3


FORMATS = {
    "value": ("%s\\n", b"one\n\n\n"),
    "lengths": ("[%k|%K|%s|%S|%o|%p]", b"[a|1|one|3|0|0][|-1||-1|1|0][|0||0|2|0]"),
    "binary": ("%R%s;", b"\0\0\0\3one;\xff\xff\xff\xff;\0\0\0\0;"),
    "times": ("%T %h\\t", b"%d h=1,n=NULL,e=\t%d \t%d \t" % (BEGAN_MS, BEGAN_MS + 1, BEGAN_MS + 2)),
    "escapes": ("%%\\x41\\r", b"%A\r" * 3),
}


@pytest.mark.parametrize(("text", "expected"), FORMATS.values(), ids=FORMATS)
def test_formats_are_those_of_kcat(odradek: Odradek, bootstrap: str, text: str, expected: bytes) -> None:
    topic = topic_name("records")
    KafkaPythonClient(bootstrap).create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, (key, value) in enumerate(((b"a", b"one"), (None, None), (b"", b""))):
        headers: list[tuple[str, bytes | None]] = [("h", b"1"), ("n", None), ("e", b"")]
        timestamp = BEGAN_MS + number
        producer.produce(topic, key=key, value=value, timestamp=timestamp, headers=headers if key else [])
    assert producer.flush(TIMEOUT_S) == 0
    assert odradek("consume", topic, "-f", text) == expected
    if shutil.which("kcat"):
        kcat = ["kcat", "-b", bootstrap, "-C", "-t", topic, "-e", "-q", "-f", text]
        assert subprocess.run(kcat, capture_output=True, check=True, timeout=TIMEOUT_S).stdout == expected


def test_places_are_found(odradek: Odradek, bootstrap: str) -> None:
    topic = topic_name("records")
    KafkaPythonClient(bootstrap).create_topic(topic, 1)
    rows = [{"value": str(number), "timestamp": BEGAN_MS + 1000 * number} for number in range(10)]
    odradek("produce", topic, "--json", content="\n".join(map(json.dumps, rows)).encode())

    def iso(second: int) -> str:
        return datetime.fromtimestamp(BEGAN_MS / 1000 + second, UTC).isoformat()

    def found(*arguments: str) -> str:
        return odradek("consume", topic, "-f", "%s", *arguments).decode()

    assert found() == found("-o", "beginning") == "0123456789"
    assert found("-o", "-3") == "789"
    assert found("-o", "4") == "456789"
    assert found("-o", "+2", "-n", "2") == "23"
    assert found("-o", "4:6") == "45"
    assert found("-o", f"@{BEGAN_MS + 2000}:{BEGAN_MS + 4000}") == "23"
    assert found("-o", iso(5), "--until", iso(7)) == "56"
    assert found("-o", f"s@{BEGAN_MS + 8000}") == "89"
    assert found("-o", "-1h") == ""
    assert found("-o", "end", "-e") == ""


def test_follow_prints_what_comes_later(odradek: Odradek, topic: str) -> None:
    odradek("produce", topic, content=b"before")
    with odradek.start("consume", topic, "--follow", "-u") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"before\n"
        odradek("produce", topic, content=b"after")
        assert process.stdout.readline() == b"after\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, out, err) == (130, b"", b"")


def test_a_reader_that_has_seen_enough_ends_it_well(odradek: Odradek, topic: str) -> None:
    odradek("produce", topic, "-p", "0", content=b"x" * 99 + b"\n" + b"y\n" * 200_000)
    with odradek.start("consume", topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x" * 99 + b"\n"
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def committed(bootstrap: str, topics: Sequence[str], group: str) -> dict[int, int]:
    with KafkaConsumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        places = [TopicPartition(topic, number) for topic in topics for number in range(3)]
        found = {place.partition: consumer.committed(place) for place in places}
    return {number: offset for number, offset in found.items() if offset is not None}


def await_commit(bootstrap: str, topic: str, group: str, offsets: dict[int, int]) -> None:
    """Until the member has committed by itself: an interrupt may come between its output and the commit."""
    deadline = time.monotonic() + TIMEOUT_S
    while committed(bootstrap, [topic], group) != offsets:
        assert time.monotonic() < deadline


ENDS = pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])


@ENDS
def test_a_group_has_what_was_printed(
    odradek: Odradek, bootstrap: str, topic: str, protocol: str, number: signal.Signals, status: int
) -> None:
    group = topic_name("group")
    member = ("consume", topic, "-g", group, "-X", f"group.protocol={protocol}")
    odradek("produce", topic, "-p", "1", content=b"a\nb\nc\nd\n")
    assert odradek(*member, "-n", "3") == b"a\nb\nc\n"
    assert committed(bootstrap, [topic], group) == {1: 3}
    with odradek.start(*member, "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"d\n"
        await_commit(bootstrap, topic, group, {1: 4})
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == status
    assert odradek(*member) == b"", "the one that was ended has left"


def test_what_a_closed_pipe_did_not_take_comes_again(
    odradek: Odradek, bootstrap: str, topic: str, protocol: str
) -> None:
    group = topic_name("group")
    member = ("consume", topic, "-g", group, "-X", f"group.protocol={protocol}")
    odradek("produce", topic, "-p", "0", content=b"x" * 99 + b"\n" + b"y\n" * 400_000)
    with odradek.start(*member) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x" * 99 + b"\n"
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert committed(bootstrap, [topic], group) == {}, "the first response did not go out as a whole"
    assert len(odradek(*member).splitlines()) == 400_001
    assert committed(bootstrap, [topic], group) == {0: 400_001}


@pytest.mark.parametrize("theirs", ["kafka-python", "librdkafka", "librdkafka, KIP-848"])
def test_a_group_is_shared_with_members_of_others(
    odradek: Odradek, bootstrap: str, topic: str, theirs: str, request: pytest.FixtureRequest
) -> None:
    group = topic_name("group")
    protocol = "consumer" if "848" in theirs else "classic"
    if protocol == "consumer":
        request.getfixturevalue("newer")
    lines = {number: b"%d" % number for number in range(3)}
    with other_member(theirs, bootstrap, group, topic) as numbers:
        while numbers() != {0, 1, 2}:
            pass
        options = ("-u", "-X", f"group.protocol={protocol}")
        with odradek.start("consume", topic, "-g", group, "--follow", *options) as process:
            deadline = time.monotonic() + TIMEOUT_S
            while len(others := numbers()) not in (1, 2):
                assert time.monotonic() < deadline
                assert process.poll() is None
            for number, line in lines.items():
                odradek("produce", topic, "-p", str(number), content=line)
            ours = {*lines} - others
            assert process.stdout is not None
            found = {int(process.stdout.readline()) for _ in ours}
            assert found == ours
            await_commit(bootstrap, topic, group, dict.fromkeys(ours, 1))
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_S) == 130
        deadline = time.monotonic() + TIMEOUT_S
        while numbers() != {0, 1, 2}:
            assert time.monotonic() < deadline, "it has not left"


@contextlib.contextmanager
def other_member(library: str, bootstrap: str, group: str, topic: str) -> Iterator[Callable[[], set[int]]]:
    """A member whose partitions each call tells; it commits nothing."""
    if library == "kafka-python":
        python = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            partition_assignment_strategy=[RangePartitionAssignor],
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
        )

        def of_python() -> set[int]:
            python.poll(timeout_ms=500)
            return {one.partition for one in python.assignment()}

        with contextlib.closing(python):
            yield of_python
        return
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    if "848" in library:
        settings["group.protocol"] = "consumer"
    else:
        settings |= {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 500}
    consumer = Consumer(settings)
    consumer.subscribe([topic])

    def of_librdkafka() -> set[int]:
        consumer.poll(0.5)
        return {one.partition for one in consumer.assignment()}

    with contextlib.closing(consumer):
        yield of_librdkafka


@ENDS
def test_a_transaction_that_is_interrupted_leaves_nothing(
    odradek: Odradek, cluster: Cluster, topic: str, number: signal.Signals, status: int
) -> None:
    with odradek.start("produce", topic, "-p", "0", "--transaction", "-q") as process:
        assert process.stdin is not None
        process.stdin.write(b"a\nb\n")
        process.stdin.flush()
        key = topic, 0
        while cluster.list_offsets({key: LATEST})[key] < 2:
            pass  # the log has the records, not yet their end
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == status
    odradek("produce", topic, "-p", "0", content=b"behind")
    assert odradek("consume", f"{topic}:0") == b"behind\n", "the abort is not left to a timeout"
    assert odradek("consume", topic, "--isolation", "read_uncommitted") == b"a\nb\nbehind\n"


def test_input_that_waits_is_written_meanwhile(odradek: Odradek, bootstrap: str, topic: str) -> None:
    with odradek.start("produce", topic) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\nsec")
        process.stdin.flush()
        (found,) = read(bootstrap, topic, 1)
        assert found.value == b"first"
        process.stdin.write(b"ond")
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
    assert sorted(one.value for one in read(bootstrap, topic, 2)) == [b"first", b"second"]


def test_the_leader_alone_may_acknowledge(odradek: Odradek, topic: str) -> None:
    odradek("produce", topic, "--acks", "1", content=b"a\n" * 200_000)
    assert odradek("consume", topic) == b"a\n" * 200_000


def test_topics_that_are_not_there(odradek: Odradek) -> None:
    name = topic_name("records")
    assert odradek.end("consume", name) == (1, b"", f"odradek: topic {name} does not exist\n")
    status, _, err = odradek.end("produce", name, content=b"x")
    assert (status, err.startswith(f"odradek: topic {name} does not exist: ")) == (1, True)
    odradek("produce", name, "--create", content=b"x")
    assert odradek("consume", name) == b"x\n"


def test_internal_topics_are_decoded(odradek: Odradek, bootstrap: str, topic: str) -> None:
    group = topic_name("group")
    odradek("produce", topic, "-p", "2", "--transaction", f"{topic}-id", content=b"a\nb\n")
    assert odradek("consume", topic, "-g", group) == b"a\nb\n"
    rows = odradek.rows("__consumer_offsets", "--decode", "auto")
    commits = [
        row["value_decoded"]["offset"]
        for row in rows
        if row["key_decoded"].items() >= {"type": "OffsetCommit", "group": group, "partition": 2}.items()
    ]
    assert commits[-1] == 3, "behind the marker"
    states = odradek.rows("__transaction_state", "--decode", "internal")
    assert {row["value_form"] for row in states} <= {"internal", "null"}
    assert f"{topic}-id" in {row["key_decoded"]["transactional_id"] for row in states}
