"""Kafka's own command-line programs, of 4.4 and of 3.9, against the broker."""

from __future__ import annotations

import json
import pathlib
import random
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import pytest
from kafka import KafkaAdminClient, KafkaProducer

import odradek
from compat_tests import reference
from compat_tests.brokers import TestBroker
from compat_tests.clients import DEADLINE_SECONDS, Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.reference import CONFIG_COMMAND, kafka_tool, tool_command
from compat_tests.stories import START_MS, Sending, topic_name
from odradek.storage.directories.store import MANY_TO_CLOSE
from odradek.storage.log.batches import scan
from tests.tiers import rest_at_night

TOOLS = "org.apache.kafka.tools"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(params=rest_at_night(reference.CURRENT, reference.OLDER))
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
        command = (CONFIG_COMMAND, "--bootstrap-server", bootstrap, *arguments, *entity)
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


def test_the_configs_tool_looks_after_groups(bootstrap: str) -> None:
    """Those that have settings of their own are listed, whether they exist or not."""
    group, setting = topic_name("group"), "consumer.session.timeout.ms"

    def run(*arguments: str, check: bool = True) -> str:
        command = (CONFIG_COMMAND, "--bootstrap-server", bootstrap, "--entity-type", "groups")
        finished = kafka_tool(*command, *arguments, check=check)
        return finished.stdout + finished.stderr

    entity = ("--entity-name", group)
    assert "Completed updating" in run("--alter", "--add-config", f"{setting}=50000", *entity)
    own = f"{setting}=50000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{setting}=50000"
    wait_until(lambda: own in run("--describe", *entity), "the group has the setting")
    assert own in run("--describe")
    everything = run("--describe", "--all", *entity)
    assert own in everything
    assert "streams.num.standby.replicas=0" in everything
    refused = run("--alter", "--add-config", f"{setting}=1", *entity, check=False)
    assert f"{setting} must be in the range 45000 to 60000 inclusive." in refused
    run("--alter", "--delete-config", setting, *entity)
    wait_until(lambda: group not in run("--describe"), "the setting is taken back")


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


def test_the_delete_records_tool_moves_the_start_of_a_log(
    bootstrap: str, client: KafkaPythonClient, version: str, tmp_path: pathlib.Path
) -> None:
    topic = topic_name("deleted")
    client.create_topic(topic, 2)
    client.produce(topic, [Message(b"%d" % n, timestamp_ms=START_MS + n) for n in range(10)])

    def run(*wanted: tuple[str, int, int]) -> list[str]:
        asked = [{"topic": name, "partition": index, "offset": offset} for name, index, offset in wanted]
        path = tmp_path / "offsets.json"
        path.write_text(json.dumps({"version": 1, "partitions": asked}))
        command = ("--bootstrap-server", bootstrap, "--offset-json-file", str(path))
        tool = f"{TOOLS}.DeleteRecordsCommand"
        return kafka_tool(tool, *command, version=version).stdout.splitlines()

    assert f"partition: {topic}-0\tlow_watermark: 4" in run((topic, 0, 4), (topic, 1, -1))
    assert f"partition: {topic}-0\tlow_watermark: 10" in run((topic, 0, -1))
    assert any("OffsetOutOfRange" in line for line in run((topic, 0, 11)))


def test_the_log_dirs_tool_describes_what_lies_where(
    bootstrap: str, client: KafkaPythonClient, version: str
) -> None:
    topic = topic_name("dirs")
    client.create_topic(topic, 2)
    client.produce(topic, [Message(b"value", timestamp_ms=START_MS)])
    arguments = ("--bootstrap-server", bootstrap, "--describe", "--topic-list", topic)
    lines = kafka_tool(f"{TOOLS}.LogDirsCommand", *arguments, version=version).stdout.splitlines()
    (told,) = [json.loads(line) for line in lines if line.startswith("{")]
    (broker,) = told["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["error"] is None
    found = {one["partition"]: one for one in directory["partitions"]}
    assert found.keys() == {f"{topic}-0", f"{topic}-1"}
    assert found[f"{topic}-0"]["size"] > 0 == found[f"{topic}-1"]["size"]
    assert {(one["offsetLag"], one["isFuture"]) for one in found.values()} == {(0, False)}


@pytest.fixture(scope="module")
def two_directories(
    broker: TestBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, list[pathlib.Path]]]:
    """Address and log.dirs of a broker of the kind under test that has two of them."""
    paths = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    given = ",".join(map(str, paths))
    with (
        odradek.Broker(process=True, data_dir=given)
        if broker.is_odradek
        else reference.Kafka(properties={"log.dirs": given})
    ) as own:
        yield own.bootstrap_servers, paths


class Reassigning:
    """kafka-reassign-partitions for partition 0 of a topic, with the files that it reads."""

    def __init__(self, bootstrap: str, topic: str, version: str, directory: pathlib.Path) -> None:
        self._bootstrap, self._topic, self._version, self._directory = bootstrap, topic, version, directory

    def __call__(self, *arguments: str, check: bool = True) -> str:
        tool = f"{TOOLS}.reassign.ReassignPartitionsCommand"
        command = (tool, "--bootstrap-server", self._bootstrap, *arguments)
        return kafka_tool(*command, version=self._version, check=check).stdout

    def plan(self, *, to: str, replicas: tuple[int, ...] = (1,)) -> tuple[str, str]:
        """The arguments that name a plan: `to` is a directory or "any"."""
        replica = {
            "topic": self._topic,
            "partition": 0,
            "replicas": replicas,
            "log_dirs": [to] * len(replicas),
        }
        return "--reassignment-json-file", self._written("plan", {"version": 1, "partitions": [replica]})

    def generate(self) -> list[dict[str, object]]:
        """The partition as it is, and as it might be."""
        topics = self._written("topics", {"version": 1, "topics": [{"topic": self._topic}]})
        told = self("--generate", "--topics-to-move-json-file", topics, "--broker-list", "1")
        plans = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
        return [partition for plan in plans for partition in plan["partitions"]]

    def _written(self, name: str, content: dict[str, object]) -> str:
        path = self._directory / f"{name}.json"
        path.write_text(json.dumps(content))
        return str(path)


def where(paths: list[pathlib.Path], topic: str) -> list[pathlib.Path]:
    """The directories that hold partition 0 under its name."""
    return [path for path in paths if (path / f"{topic}-0").exists()]


def test_the_reassignment_tool_moves_a_partition_while_it_is_written(
    two_directories: tuple[str, list[pathlib.Path]], version: str, tmp_path: pathlib.Path
) -> None:
    bootstrap, paths = two_directories
    client, topic = KafkaPythonClient(bootstrap), topic_name("moved")
    client.create_topic(topic, 1)
    client.produce(topic, [Message(random.randbytes(10_000)) for _ in range(300)])
    tool = Reassigning(bootstrap, topic, version, tmp_path)
    (home,) = where(paths, topic)
    (target,) = set(paths) - {home}

    now, proposed = tool.generate()
    # The older tool does not ask where the replica lies.
    assert now["log_dirs"] == [str(home) if version == reference.CURRENT else "any"]
    assert now["replicas"] == proposed["replicas"] == [1]
    stay = tool.plan(to="any")
    assert f"Successfully started partition reassignment for {topic}-0" in tool("--execute", *stay)
    assert f"Reassignment of partition {topic}-0 is completed." in tool("--verify", *stay)
    assert "No partition reassignments found." in tool("--list")
    assert "None of the specified partition reassignments are active." in tool("--cancel", *stay)

    with Sending(client, topic, pause_s=0.01) as sending:
        sent = sending.values
        wait_until(lambda: len(sent) > 2, "the producer is at work")
        move = tool.plan(to=str(target))
        assert f"moving log directory to {target} for replica {topic}-0" in tool("--execute", *move)
        done = f"Reassignment of replica {topic}-0-1 completed successfully."
        wait_until(lambda: done in tool("--verify", *move), "the partition is moved")
        sent_before = len(sent)
        wait_until(lambda: len(sent) > sent_before + 2, "the producer gets on")
    wait_until(lambda: where(paths, topic) == [target], "it is nowhere else")
    records = client.read(topic, {0: 0}, 300 + len(sent))
    assert [record.offset for record in records] == list(range(300 + len(sent)))
    assert [record.value for record in records[300:]] == sent


def test_the_reassignment_tool_throttles_a_move_and_takes_the_throttles_back(
    two_directories: tuple[str, list[pathlib.Path]], version: str, tmp_path: pathlib.Path
) -> None:
    bootstrap, paths = two_directories
    client, topic = KafkaPythonClient(bootstrap), topic_name("throttled")
    client.create_topic(topic, 1)
    client.produce(topic, [Message(random.randbytes(10_000)) for _ in range(500)])
    tool = Reassigning(bootstrap, topic, version, tmp_path)
    (home,) = where(paths, topic)
    (target,) = set(paths) - {home}

    def settings() -> dict[str, str]:
        """What is set for the broker and the topic."""
        found = {}
        for entity in (("brokers", "1"), ("topics", topic)):
            of = ("--describe", "--entity-type", entity[0], "--entity-name", entity[1])
            command = (CONFIG_COMMAND, "--bootstrap-server", bootstrap, *of)
            text = kafka_tool(*command, version=version).stdout
            found.update(re.findall(r"^ +([\w.]+)=(\S*) sensitive", text, re.MULTILINE))
        return found

    def execute(throttle: str, *more: str) -> str:
        return tool("--execute", *move, *more, "--replica-alter-log-dirs-throttle", throttle)

    move = tool.plan(to=str(target))
    assert "throttle limit was set to 1000 B/s" in execute("1000", "--throttle", "2000")
    throttled = {
        "leader.replication.throttled.rate": "2000",
        "follower.replication.throttled.rate": "2000",
        "replica.alter.log.dirs.io.max.bytes.per.second": "1000",
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "",
    }
    assert settings() == throttled
    # It would take more than an hour.
    assert f"Reassignment of replica {topic}-0-1 is still in progress." in tool("--verify", *move)
    assert where(paths, topic) == [home]
    assert "throttle limit was set to 100000000 B/s" in execute("100000000", "--additional")
    done = f"Reassignment of replica {topic}-0-1 completed successfully."
    wait_until(lambda: done in tool("--verify", *move, "--preserve-throttles"), "the partition is moved")
    assert settings() == {**throttled, "replica.alter.log.dirs.io.max.bytes.per.second": "100000000"}
    told = tool("--verify", *move)
    assert "Clearing broker-level throttles on broker 1" in told
    assert f"Clearing topic-level throttles on topic {topic}" in told
    assert settings() == {}
    wait_until(lambda: where(paths, topic) == [target], "it is nowhere else")


def test_the_reassignment_tool_is_refused_another_broker(
    two_directories: tuple[str, list[pathlib.Path]], version: str, tmp_path: pathlib.Path
) -> None:
    bootstrap, _ = two_directories
    topic = topic_name("stays")
    KafkaPythonClient(bootstrap).create_topic(topic, 1)
    tool = Reassigning(bootstrap, topic, version, tmp_path)
    assert "Unknown broker id 9" in tool("--execute", *tool.plan(to="any", replicas=(9,)), check=False)


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


HEADERS = (("trace", b"\x00\x01"), ("trace", b""))


def write_many(client: KafkaPythonClient) -> None:
    """Forty records of each codec: keys and headers, null values, over several segments."""
    for codec in CODECS:
        client.produce(
            "dump",
            [
                Message(
                    None if n % 10 == 9 else f"{codec}-{n}".encode(),
                    key=bulky_key(),
                    headers=HEADERS if n % 4 == 0 else (),
                )
                for n in range(40)
            ],
            codec,
        )


def write_compacted(client: KafkaPythonClient, data_dir: pathlib.Path) -> None:
    """Ten keys, over and over, and others that come once, until the cleaner has been there.

    The last record of each producer is one of these: its last batch is kept also where it has lost all its
    records, and then the tool misses them when it looks for the time of that batch.
    """
    sent = 0

    def is_compacted() -> bool:
        nonlocal sent
        messages = [
            Message(
                b"%d" % n if n % 17 else None,
                key=b"once-%d" % n if n % 7 == 0 or n % 100 == 99 else b"key-%d" % (n % 10),
                timestamp_ms=START_MS + n,
            )
            for n in range(sent, sent + 100)
        ]
        sent += len(client.produce("compacted", messages))
        log = (data_dir / "compacted-0" / f"{0:020}.log").read_bytes()
        batches = scan(lambda position, size: log[position : position + size], 0, len(log))
        return any(batch.record_count <= batch.last_offset_delta for batch in batches)

    wait_until(is_compacted, "the log is compacted")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A data directory, left behind by a clean stop of ours."""
    data_dir = tmp_path_factory.mktemp("written")
    options = {
        "log.cleaner.backoff.ms": 50,
        "log.index.interval.bytes": 300,
        "offsets.topic.num.partitions": 1,
    }
    with odradek.Broker(process=True, data_dir=data_dir, options=options) as own:
        with KafkaAdminClient(bootstrap_servers=own.bootstrap_servers) as admin:
            settings = {"internal.segment.bytes": "20000"}
            compacted = {
                "internal.segment.bytes": "2000",
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
            }
            for topic, configs in (("dump", settings), ("compacted", compacted)):
                admin.create_topics(
                    {topic: {"num_partitions": 1, "replication_factor": 1, "configs": configs}},
                    wait_for_metadata=True,
                )
        client = KafkaPythonClient(own.bootstrap_servers)
        write_many(client)
        client.create_topic("short", MANY_TO_CLOSE)
        producer = KafkaProducer(bootstrap_servers=own.bootstrap_servers)
        for partition in range(MANY_TO_CLOSE):
            producer.send("short", b"alone", partition=partition)
        producer.close(DEADLINE_SECONDS)
        write_compacted(client, data_dir)
        client.commit("a-group", "dump", {0: 17})
        member = client.join("a-group", "dump")
        wait_until(lambda: client.committed("a-group", "dump", [0]) == {0: 200}, "all is committed", [member])
        member.leave()
    return data_dir


def files_of(directory: pathlib.Path, suffix: str) -> list[pathlib.Path]:
    return sorted(directory.glob(f"*{suffix}"))


def dump_log_segments(version: str, files: Sequence[pathlib.Path], *arguments: str) -> str:
    """What the tool says of the files, on both its outputs."""
    assert files
    main_class = f"{TOOLS}.DumpLogSegments" if version == reference.CURRENT else "kafka.tools.DumpLogSegments"
    finished = kafka_tool(main_class, "--files", ",".join(map(str, files)), *arguments, version=version)
    return finished.stdout + finished.stderr


COMPLAINTS = (
    "isvalid: false",
    "Found",
    "ismatch",
    "out of order",
    "Out of order",
    "Exception",
    "invalid bytes",
    "could not be found",
    "corrupt",
)


def assert_content(text: str) -> None:
    for complaint in COMPLAINTS:
        assert complaint not in text, text


def gaps(text: str) -> list[tuple[int, int]]:
    """Offsets that the tool does not find consecutive. That of 4.3 calls the first of every file one."""
    pairs = re.findall(r"(-?\d+) is followed by (\d+)", text)
    return [(int(one), int(other)) for one, other in pairs if one != "-1"]


def test_dump_log_segments_reads_our_records(written: pathlib.Path, version: str) -> None:
    logs = files_of(written / "dump-0", ".log")
    assert len(logs) > 2
    text = dump_log_segments(version, logs, "--print-data-log", "--deep-iteration")
    assert_content(text)
    assert gaps(text) == []
    records = [line for line in text.splitlines() if line.startswith("| offset: ")]
    assert [int(line.split()[2]) for line in records] == list(range(200))
    assert [line.rpartition("payload: ")[2] for line in records if "payload: " in line] == [
        f"{codec}-{n}" for codec in CODECS for n in range(40) if n % 10 != 9
    ]
    assert sum("headerKeys: [trace,trace]" in line for line in records) == 50
    for codec in CODECS:
        assert f"compresscodec: {codec}" in text


@pytest.mark.parametrize("topic", ["dump-0", "compacted-0", "__consumer_offsets-0"])
def test_dump_log_segments_finds_our_indexes_sound(written: pathlib.Path, version: str, topic: str) -> None:
    indexes = [
        path for suffix in (".index", ".timeindex") for path in files_of(written / topic, suffix)
        if path.stat().st_size > 0
    ]  # fmt: skip
    for check in ("--verify-index-only", "--index-sanity-check"):
        assert_content(dump_log_segments(version, indexes, check))


def test_dump_log_segments_reads_a_log_that_we_compacted(written: pathlib.Path, version: str) -> None:
    text = dump_log_segments(
        version, files_of(written / "compacted-0", ".log"), "--print-data-log", "--deep-iteration"
    )
    assert_content(text)
    assert gaps(text), "compaction leaves gaps"
    keys = {line.rpartition(" key: ")[2].split()[0] for line in text.splitlines() if " key: " in line}
    assert keys >= {f"key-{n}" for n in range(10)} | {"once-7", "once-14"}


def test_dump_log_segments_decodes_what_groups_have_committed(written: pathlib.Path) -> None:
    # Offsets with the ids of their topics: no tool before 4.1 knows these.
    logs = files_of(written / "__consumer_offsets-0", ".log")
    text = dump_log_segments(reference.CURRENT, logs, "--offsets-decoder", "--deep-iteration")
    assert_content(text)
    assert '"group":"a-group"' in text.replace(" ", "")
    assert '"offset":200' in text.replace(" ", "")
    assert re.search(r'"topicId":"[\w-]{22}"', text)


def test_dump_log_segments_reads_our_producer_snapshots(written: pathlib.Path, version: str) -> None:
    snapshots = files_of(written / "dump-0", ".snapshot")
    text = dump_log_segments(version, snapshots)
    assert_content(text)
    # One producer for each codec, all of them idempotent.
    assert text.count("producerId: ") >= len(CODECS)


def test_kafka_serves_our_segments_as_its_own(written: pathlib.Path, version: str) -> None:
    with reference.Kafka(version) as kafka:
        client = KafkaPythonClient(kafka.bootstrap_servers)
        for topic in ("dump", "short"):
            client.create_topic(topic, 1)
        kafka.stop()
        theirs = kafka.data_dir / "dump-0"
        for topic in ("dump-0", "short-0"):
            for path in (kafka.data_dir / topic).iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            for path in (written / topic).iterdir():
                if path.name != "partition.metadata":
                    shutil.copy(path, kafka.data_dir / topic)
        kafka.start()
        assert [record.value for record in client.read("short", {0: 0}, 1)] == [b"alone"]
        records = client.read("dump", {0: 0}, 200)
        assert [record.value for record in records] == [
            None if n % 10 == 9 else f"{codec}-{n}".encode() for codec in CODECS for n in range(40)
        ]
        # Not idempotent: this Kafka would give out producer ids that the log knows already.
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=False)
        assert producer.send("dump", b"more", partition=0).get(DEADLINE_SECONDS).offset == 200
        producer.close()
        kafka.stop()
        epochs = (theirs / "leader-epoch-checkpoint").read_text().split("\n")
        assert epochs[2] == "0 0"
        told = (kafka.directory / "broker.log").read_text().splitlines()
        # Short logs of which many were closed have no indexes, and Kafka says so when it makes them.
        # A combined node may ask itself as its controller before it is that.
        (error,) = [line for line in told if "ERROR" in line and "CONTROLLER_REGISTRATION" not in line]
        assert re.search(r"Could not find offset index file .*short-0.*rebuilding index files", error), error
