"""Kafka's own command-line programs, of 4.3 and of 3.9, against the broker."""

from __future__ import annotations

import json
import pathlib
import random
import subprocess
from collections.abc import Iterator, Sequence

import pytest

import odradek
from compat_tests import reference
from compat_tests.brokers import TestBroker
from compat_tests.clients import Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.reference import kafka_tool, tool_command
from compat_tests.stories import START_MS, topic_name

TOOLS = "org.apache.kafka.tools"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(params=[reference.CURRENT, reference.OLDER])
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def client(bootstrap: str) -> KafkaPythonClient:
    return KafkaPythonClient(bootstrap)


class Program:
    """A Java program that runs until it is told to stop, and prints a line of JSON an event."""

    def __init__(self, directory: pathlib.Path, main_class: str, *arguments: str, version: str) -> None:
        self._output = directory / f"{main_class.rpartition('.')[2]}.out"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                tool_command(main_class, *arguments, version=version), stdout=output, stderr=output
            )

    def events(self, name: str) -> list[dict[str, object]]:
        lines = self._output.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [event for event in events if event.get("name") == name]

    def text(self) -> str:
        return self._output.read_text()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture
def programs(tmp_path: pathlib.Path) -> Iterator[list[Program]]:
    running: list[Program] = []
    yield running
    for program in running:
        program.stop()


def test_the_topic_tool_creates_describes_grows_and_deletes(bootstrap: str, version: str) -> None:
    topic = topic_name("tool")

    def run(*arguments: str) -> str:
        command = (f"{TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, *arguments)
        return kafka_tool(*command, version=version).stdout

    settings = ("--config", "retention.ms=123456", "--config", "cleanup.policy=compact")
    run("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1", *settings)
    assert topic in run("--list").split()
    described = run("--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    assert "retention.ms=123456" in described
    assert "cleanup.policy=compact" in described
    run("--alter", "--topic", topic, "--partitions", "5")
    assert run("--describe", "--topic", topic).count("Leader: 1") == 5
    run("--delete", "--topic", topic)
    assert topic not in run("--list").split()


@pytest.mark.parametrize(
    ("entity", "setting", "value", "source"),
    [
        (("--entity-type", "topics", "--entity-name", "TOPIC"), "retention.ms", "123456789", "DYNAMIC_TOPIC"),
        (("--entity-type", "brokers", "--entity-name", "1"), "log.retention.bytes", "-5", "DYNAMIC_BROKER"),
        (
            ("--entity-type", "brokers", "--entity-default"),
            "log.retention.bytes",
            "-6",
            "DYNAMIC_DEFAULT_BROKER",
        ),
    ],
    ids=["topic", "broker", "brokers"],
)
def test_the_configs_tool_adds_describes_and_deletes(
    bootstrap: str,
    client: KafkaPythonClient,
    version: str,
    entity: tuple[str, ...],
    setting: str,
    value: str,
    source: str,
) -> None:
    topic = topic_name("tool")
    client.create_topic(topic, 1)
    entity = tuple(topic if word == "TOPIC" else word for word in entity)

    def run(*arguments: str, check: bool = True) -> str:
        command = ("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *arguments, *entity)
        finished = kafka_tool(*command, version=version, check=check)
        return finished.stdout + finished.stderr

    def described() -> str:
        return run("--describe")

    assert "Completed updating" in run("--alter", "--add-config", f"{setting}={value}")
    told = f"{source}_CONFIG:{setting}={value}"
    wait_until(lambda: told in described(), f"{setting} is set")
    assert f"{setting}={value} sensitive=false" in described()
    assert "Exception" in run("--alter", "--add-config", f"{setting}=much", check=False)
    run("--alter", "--delete-config", setting)
    wait_until(lambda: told not in described(), f"{setting} is taken back")


def test_the_console_consumer_prints_what_the_console_producer_was_given(
    bootstrap: str, version: str
) -> None:
    topic = topic_name("console")
    KafkaPythonClient(bootstrap).create_topic(topic, 1)
    current = version == reference.CURRENT
    producer = f"{TOOLS}.ConsoleProducer" if current else "kafka.tools.ConsoleProducer"
    reading, printing = (
        ("--reader-property", "--formatter-property") if current else ("--property", "--property")
    )
    codecs = CODECS if current else ("gzip",)
    expected = []
    for codec in codecs:
        lines = [f"h:{codec}\tkey-{n}\tvalue {codec} {n}" for n in range(50)]
        kafka_tool(
            producer,
            *("--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec),
            *(reading, "parse.key=true", reading, "parse.headers=true"),
            stdin="\n".join(lines) + "\n",
            version=version,
        )
        expected += lines
    finished = kafka_tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(len(expected)), "--timeout-ms", "30000"),
        *(printing, "print.key=true", printing, "print.headers=true"),
        version=version,
    )
    assert finished.stdout.splitlines() == expected


def test_the_verifiable_programs_survive_a_restart(
    broker: TestBroker,
    client: KafkaPythonClient,
    version: str,
    programs: list[Program],
    tmp_path: pathlib.Path,
) -> None:
    topic, group = topic_name("verifiable"), topic_name("group")
    client.create_topic(topic, 3)
    consumer = Program(
        tmp_path,
        f"{TOOLS}.VerifiableConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", group),
        *("--reset-policy", "earliest", "--session-timeout", "10000"),
        version=version,
    )
    programs.append(consumer)
    producer = Program(
        tmp_path,
        f"{TOOLS}.VerifiableProducer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--acks", "-1"),
        *("--throughput", "400"),
        version=version,
    )
    programs.append(producer)

    def sent_count() -> int:
        return len(producer.events("producer_send_success"))

    wait_until(lambda: sent_count() > 500, "the producer is at work")
    broker.crash_and_restart()
    sent_before = sent_count()
    wait_until(lambda: sent_count() > sent_before + 500, "the producer gets on")
    producer.stop()
    sent = producer.events("producer_send_success")
    # The program does not retry, so what was under way in that moment may be lost, but nothing acknowledged.
    assert producer.events("tool_data")[0]["acked"] == len(sent)

    def read() -> int:
        return sum(int(str(event["count"])) for event in consumer.events("records_consumed"))

    wait_until(lambda: read() >= len(sent), "everything is read")
    acknowledged = {(int(str(e["partition"])), int(str(e["offset"]))): e["value"] for e in sent}
    records = client.read(topic, dict.fromkeys(range(3), 0), read())
    values = {(r.partition, r.offset): (r.value or b"").decode() for r in records}
    assert {where: values.get(where) for where in acknowledged} == acknowledged

    def all_committed() -> bool:
        committed = client.committed(group, topic, range(3))
        return all(offset < (committed[partition] or 0) for partition, offset in acknowledged)

    wait_until(all_committed, "everything is committed")


def test_the_group_tool_lists_describes_and_deletes(
    bootstrap: str, client: KafkaPythonClient, version: str
) -> None:
    topic, group = topic_name("tool"), topic_name("group")
    client.create_topic(topic, 2)
    client.produce(topic, [Message(b"%d" % n, partition=n % 2) for n in range(20)])

    def run(*arguments: str, check: bool = True) -> str:
        command = (
            f"{TOOLS}.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server",
            bootstrap,
            *arguments,
        )
        return kafka_tool(*command, version=version, check=check).stdout

    member = client.join(group, topic)
    wait_until(lambda: client.committed(group, topic, [0, 1]) == {0: 10, 1: 10}, "all is committed", [member])
    assert group in run("--list").split()
    rows = [line.split() for line in run("--describe", "--group", group).splitlines() if group in line]
    assert sorted((row[2], row[3], row[4], row[5]) for row in rows) == [
        ("0", "10", "10", "0"),
        ("1", "10", "10", "0"),
    ]
    assert "Stable" in run("--describe", "--group", group, "--state")
    refused = run("--delete", "--group", group, check=False)
    assert "GroupNotEmptyException" in refused
    member.leave()
    assert "Empty" in run("--describe", "--group", group, "--state")
    assert "successful" in run("--delete", "--group", group)
    assert group not in run("--list").split()


def test_the_offset_tool_finds_ends_and_times(
    bootstrap: str, client: KafkaPythonClient, version: str
) -> None:
    topic = topic_name("tool")
    client.create_topic(topic, 2)
    client.produce(topic, [Message(b"%d" % n, timestamp_ms=START_MS + n) for n in range(30)])

    def offsets(time_: str) -> str:
        arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--time", time_)
        return kafka_tool(f"{TOOLS}.GetOffsetShell", *arguments, version=version).stdout

    assert offsets("latest").split() == [f"{topic}:0:30", f"{topic}:1:0"]
    assert offsets("earliest").split() == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("max-timestamp").split()[0] == f"{topic}:0:29"
    assert offsets(str(START_MS + 12)).split()[0] == f"{topic}:0:12"


def test_the_performance_tools_run(bootstrap: str, client: KafkaPythonClient, version: str) -> None:
    topic = topic_name("perf")
    client.create_topic(topic, 3)
    finished = kafka_tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={bootstrap}", "compression.type=lz4"),
        version=version,
    )
    assert "20000 records sent" in finished.stdout
    finished = kafka_tool(
        f"{TOOLS}.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--messages", "20000", "--timeout", "30000"),
        version=version,
    )
    assert ", 20000, " in finished.stdout


def bulky_key() -> bytes:
    """Half of it cannot be compressed, so that the index gets entries: it has one for every 4 KiB."""
    return random.randbytes(300).hex().encode() + b"k" * 600


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A partition directory with 40 records of each codec, left behind by a clean stop of ours."""
    data_dir = tmp_path_factory.mktemp("written")
    with odradek.Broker(process=True, data_dir=data_dir) as own:
        client = KafkaPythonClient(own.bootstrap_servers)
        client.create_topic("dump", 1)
        for codec in CODECS:
            client.produce(
                "dump", [Message(f"{codec}-{n}".encode(), key=bulky_key()) for n in range(40)], codec
            )
    return data_dir / "dump-0"


def dump_log_segments(version: str, files: Sequence[pathlib.Path], *arguments: str) -> str:
    main_class = f"{TOOLS}.DumpLogSegments" if version == reference.CURRENT else "kafka.tools.DumpLogSegments"
    return kafka_tool(main_class, "--files", ",".join(map(str, files)), *arguments, version=version).stdout


def test_dump_log_segments_reads_our_records(written: pathlib.Path, version: str) -> None:
    text = dump_log_segments(version, [written / f"{0:020}.log"], "--print-data-log", "--deep-iteration")
    assert "isvalid: false" not in text
    assert [f"payload: {codec}-{n}" for codec in CODECS for n in range(40)] == [
        "payload: " + line.rpartition("payload: ")[2] for line in text.splitlines() if "payload: " in line
    ]
    for codec in CODECS:
        assert f"compresscodec: {codec}" in text


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_dump_log_segments_finds_our_indexes_sound(written: pathlib.Path, version: str, suffix: str) -> None:
    index = written / f"{0:020}{suffix}"
    assert index.stat().st_size > 0
    for check in ("--verify-index-only", "--index-sanity-check"):
        text = dump_log_segments(version, [index], check)
        for complaint in ("Found", "mismatch", "out of order", "Exception"):
            assert complaint not in text, text
