"""Directories that Apache Kafka wrote, of 4.4 and of 3.9: taken in, and served record by record as it did."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, KafkaError, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType

import odradek
from compat_tests import reference
from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.clients.kafka_python import KafkaPythonClient
from odradek.embedding.broker_form import BrokerStartError
from odradek.wire.compression import Compression, compress
from odradek.wire.legacy_records import build_message
from odradek.wire.records import Record, build_batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = int(time.time() * 1000) - 3_600_000
OFFSETS_PARTITIONS = 3
SETTINGS = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "100",
    "log.index.interval.bytes": "300",
    "share.coordinator.state.topic.num.partitions": "3",
}

Content = tuple[int, int, tuple[int, int], bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `odradek ARGUMENTS`."""
    return subprocess.run(
        [sys.executable, "-m", "odradek", *arguments], capture_output=True, text=True, timeout=100
    )


def read_all(bootstrap: str, topic: str, partitions: int) -> list[Content]:
    """(partition, offset, timestamp with its type, key, value, headers) of every record, committed or not."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found: list[Content] = []
        ended: set[int] = set()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"{topic}: the ends of {ended} only were reached"
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
                continue
            found.append(
                (
                    message.partition(),
                    message.offset(),
                    message.timestamp(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                )
            )
        return sorted(found, key=lambda one: one[:2])
    finally:
        consumer.close()


def offsets_at(bootstrap: str, topic: str, partition: int, times: Sequence[int]) -> list[int | None]:
    client = KafkaPythonClient(bootstrap)
    return [client.offset_at(topic, partition, time_ms) for time_ms in times]


def first_at(records: Sequence[Content], times: Sequence[int]) -> list[int | None]:
    """Of each time the first offset in partition 0 that is not older."""
    return [
        next((offset for index, offset, (_, at), *_ in records if index == 0 and at >= time_ms), None)
        for time_ms in times
    ]


def ends(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_SECONDS)
    finally:
        consumer.close()


# --- What Kafka is given ---


def create(bootstrap: str, topic: str, partitions: int, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    named = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(DEADLINE_SECONDS)


def producing(bootstrap: str, **settings: Any) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **named})


def write_codecs(bootstrap: str, segment_option: str) -> None:
    """Every codec, idempotent, with headers and nulls, over many segments of two partitions."""
    create(bootstrap, "codecs", 2, **{segment_option: "4000"})
    for number, codec in enumerate(CODECS):
        producer = producing(bootstrap, compression_codec=codec, enable_idempotence=True)
        for n in range(60):
            producer.produce(
                "codecs",
                None if n % 11 == 3 else f"{codec} value {n} ".encode() * (n % 7 + 1),
                None if n % 5 == 2 else f"{codec}-{n}".encode(),
                partition=n % 2,
                timestamp=START_MS + 100 * number + n,
                headers=[("a", b"1"), ("a", None), ("b", b"")] if n % 3 == 0 else None,
            )
            if n % 10 == 9:
                assert producer.flush(DEADLINE_SECONDS) == 0
        assert producer.flush(DEADLINE_SECONDS) == 0


def write_transactions(bootstrap: str) -> None:
    """Committed, aborted and plain records among each other."""
    create(bootstrap, "transactions", 1)
    for number in range(6):
        producer = producing(bootstrap, transactional_id=f"t-{number % 2}")
        producer.init_transactions(DEADLINE_SECONDS)
        producer.begin_transaction()
        for n in range(8):
            producer.produce("transactions", f"{number}-{n}".encode(), b"k", timestamp=START_MS + number)
        assert producer.flush(DEADLINE_SECONDS) == 0
        if number % 3 == 2:
            producer.abort_transaction(DEADLINE_SECONDS)
        else:
            producer.commit_transaction(DEADLINE_SECONDS)
        plain = producing(bootstrap)
        plain.produce("transactions", b"plain", b"p", timestamp=START_MS + number)
        assert plain.flush(DEADLINE_SECONDS) == 0


COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100000000",
}


def own_settings(bootstrap: str, topic: str) -> dict[str, str]:
    """What was set of the topic, but for the size of its segments, which 4.x has under another name."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = admin.describe_configs([resource])[resource].result(DEADLINE_SECONDS)
    return {
        name: entry.value
        for name, entry in entries.items()
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value and "segment.bytes" not in name
    }


def write_compacted(kafka: reference.Kafka, segment_option: str) -> None:
    """Twenty keys, written over and over, with tombstones; waits until the cleaner was there and rests."""
    bootstrap = kafka.bootstrap_servers
    create(bootstrap, "compacted", 1, **{segment_option: "2000"}, **COMPACTED)
    producer = producing(bootstrap, enable_idempotence=True)
    for n in range(600):
        value = None if n % 40 == 39 else f"value {n}".encode()
        producer.produce("compacted", value, f"key {n % 20}".encode(), timestamp=START_MS + n)
        if n % 10 == 9:
            assert producer.flush(DEADLINE_SECONDS) == 0
    deadline = time.monotonic() + DEADLINE_SECONDS
    before = read_all(bootstrap, "compacted", 1)
    while len(now := read_all(bootstrap, "compacted", 1)) > 300 or now != before:
        assert time.monotonic() < deadline, "the cleaner did not come"
        before = now
        time.sleep(0.2)


class Written:
    """A stopped Kafka's directory, and what it had served from it."""

    def __init__(self, data_dir: pathlib.Path) -> None:
        self.data_dir = data_dir
        self.records: dict[str, list[Content]] = {}
        self.times: dict[str, list[int | None]] = {}
        self.ends: dict[str, tuple[int, int]] = {}
        self.committed: dict[str, dict[int, int | None]] = {}
        self.accepted: set[tuple[int, int]] = set()
        """What the share group has accepted of `codecs`; nothing in a release without share groups."""
        self.given_back: set[tuple[int, int]] = set()
        """What it has got and given back."""


GROUPS = ["group", "orders", "copies", "tables"]
"""Java's hashes of three are negative: what is chosen by them has to be what Kafka has chosen."""


def committed_by_all(bootstrap: str) -> dict[str, dict[int, int | None]]:
    client = KafkaPythonClient(bootstrap)
    try:
        return {group: client.committed(group, "codecs", [0, 1]) for group in GROUPS}
    finally:
        client.close()


SHARE_GROUP = "parcels"


def begin_at_the_start(bootstrap: str) -> None:
    where = ("--bootstrap-server", bootstrap, "--alter", "--group", SHARE_GROUP)
    setting = "share.auto.offset.reset=earliest"
    reference.kafka_tool(reference.CONFIG_COMMAND, *where, "--add-config", setting)


def read_as_share_group(bootstrap: str, count: int) -> dict[tuple[int, int], int]:
    """Partition, offset and delivery count of so many records of `codecs`. Those at even offsets are accepted
    and the others given back."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": SHARE_GROUP,
        "share.acknowledgement.mode": "explicit",
    }
    found: dict[tuple[int, int], int] = {}
    deadline = time.monotonic() + DEADLINE_SECONDS
    with ShareConsumer(settings) as consumer:
        consumer.subscribe(["codecs"])
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} records have come"
            for message in consumer.poll(1.0):
                place = message.partition(), message.offset()
                is_wanted = place not in found and len(found) < count
                if is_wanted:
                    found[place] = message.delivery_count()
                is_done = is_wanted and place[1] % 2 == 0
                consumer.acknowledge(message, AcknowledgeType.ACCEPT if is_done else AcknowledgeType.RELEASE)
            refused = [error for error in consumer.commit_sync().values() if error is not None]
            assert refused == []
    return found


PARTITIONS = {"codecs": 2, "transactions": 1, "compacted": 1}
TIMES = [START_MS - 1, START_MS, START_MS + 3, START_MS + 333, START_MS + 580, START_MS + 100_000]


@pytest.fixture(scope="module", params=[reference.CURRENT, reference.OLDER])
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def written(version: str, tmp_path_factory: pytest.TempPathFactory) -> Written:
    segment_option = "internal_segment_bytes" if version == reference.CURRENT else "segment_bytes"
    with reference.Kafka(version, SETTINGS) as kafka:
        bootstrap = kafka.bootstrap_servers
        write_codecs(bootstrap, segment_option)
        write_transactions(bootstrap)
        write_compacted(kafka, segment_option)
        for number, group in enumerate(GROUPS):
            KafkaPythonClient(bootstrap).commit(group, "codecs", {0: 11 + number, 1: 22})
        if version == reference.CURRENT:
            begin_at_the_start(bootstrap)
            delivered = read_as_share_group(bootstrap, 40)
        kafka.restart()  # a new leader epoch; records of both are in the log
        producer = producing(bootstrap)
        for partition in range(2):
            producer.produce("codecs", b"after the restart", partition=partition, timestamp=START_MS + 999)
        assert producer.flush(DEADLINE_SECONDS) == 0
        facts = Written(tmp_path_factory.mktemp("kafka") / "data")
        for topic, partitions in PARTITIONS.items():
            facts.records[topic] = read_all(bootstrap, topic, partitions)
            # Not of the compacted one: Kafka looks into one segment only, and finds nothing in one that
            # compaction has emptied.
            facts.times[topic] = (
                first_at(facts.records[topic], TIMES)
                if topic == "compacted"
                else offsets_at(bootstrap, topic, 0, TIMES)
            )
            facts.ends[topic] = ends(bootstrap, topic, 0)
        if version == reference.CURRENT:
            facts.accepted = {place for place in delivered if place[1] % 2 == 0}
            facts.given_back = delivered.keys() - facts.accepted
        facts.committed = committed_by_all(bootstrap)
        assert [offsets[0] for offsets in facts.committed.values()] == [11, 12, 13, 14]
        shutil.copytree(kafka.data_dir, facts.data_dir.parent / "killed")
        kafka.stop()
        shutil.copytree(kafka.data_dir, facts.data_dir)
    return facts


def take_in(source: pathlib.Path, data_dir: pathlib.Path, topic: str, *more: str) -> None:
    finished = command("import-log", str(source), "--topic", topic, "--data-dir", str(data_dir), *more)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[-1].endswith(f"odradek serve --data-dir {data_dir} serves it")


def check(*paths: pathlib.Path) -> list[dict[str, Any]]:
    finished = command("check", "--json", *map(str, paths))
    facts = [json.loads(line) for line in finished.stdout.splitlines()]
    assert finished.returncode == 0, [fact for fact in facts if fact["what"] == "damage"] or finished.stderr
    return facts


# --- Taken in, and served ---


def test_what_kafka_left_behind_is_sound(written: Written) -> None:
    facts = check(written.data_dir)
    assert facts[-1]["partitions"] >= 4 + OFFSETS_PARTITIONS
    assert all("gone" not in str(fact) for fact in facts)


def test_everything_is_served_as_kafka_served_it(written: Written, tmp_path: pathlib.Path) -> None:
    data_dir = tmp_path / "data"
    for topic in PARTITIONS:
        take_in(written.data_dir, data_dir, topic)
    take_in(written.data_dir, data_dir, "__consumer_offsets")
    check(data_dir)
    with odradek.Broker(process=True, data_dir=data_dir) as broker:
        for _ in range(2):
            bootstrap = broker.bootstrap_servers
            for topic, partitions in PARTITIONS.items():
                assert read_all(bootstrap, topic, partitions) == written.records[topic]
                assert offsets_at(bootstrap, topic, 0, TIMES) == written.times[topic], topic
                assert ends(bootstrap, topic, 0) == written.ends[topic]
            assert committed_by_all(bootstrap) == written.committed
            assert own_settings(bootstrap, "compacted") == COMPACTED
            broker.kill()
            broker.restart()
        # It goes on where Kafka stopped.
        producer = producing(broker.bootstrap_servers, enable_idempotence=True)
        producer.produce("codecs", b"ours", partition=0)
        assert producer.flush(DEADLINE_SECONDS) == 0
        more = read_all(broker.bootstrap_servers, "codecs", 2)
        (new,) = [one for one in more if one not in written.records["codecs"]]
        assert new[:2] == (0, written.ends["codecs"][1])
        assert new[4] == b"ours"
    check(data_dir)


def test_a_share_group_goes_on_where_it_was(written: Written, tmp_path: pathlib.Path) -> None:
    """Also where the leader epoch of a partition is newer than its last record: the state names it."""
    if not written.accepted:
        pytest.skip("this release has no share groups")
    data_dir = tmp_path / "data"
    for topic in ("codecs", "__consumer_offsets", "__share_group_state"):
        take_in(written.data_dir, data_dir, topic)
    check(data_dir)
    all_of_it = {one[:2] for one in written.records["codecs"]}
    with odradek.Broker(process=True, data_dir=data_dir) as broker:
        # Settings of groups are not in their records; of one partition the group had read nothing yet.
        begin_at_the_start(broker.bootstrap_servers)
        rest = read_as_share_group(broker.bootstrap_servers, len(all_of_it) - len(written.accepted))
    assert rest.keys() == all_of_it - written.accepted
    assert min(rest[place] for place in written.given_back) == 2


def test_what_was_aborted_in_kafka_is_not_shown_to_those_who_read_what_is_committed(
    written: Written, tmp_path: pathlib.Path
) -> None:
    data_dir = tmp_path / "data"
    take_in(written.data_dir, data_dir, "transactions")
    with odradek.Broker(process=True, data_dir=data_dir) as broker:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition("transactions", 0, 0)])
        found = []
        while (message := consumer.poll(DEADLINE_SECONDS)) is not None and message.error() is None:
            found.append(message.offset())
        consumer.close()
    assert found == [
        offset
        for _, offset, _, _, value, *_ in written.records["transactions"]
        if not value.startswith((b"2-", b"5-"))
    ]


def test_what_a_kill_left_behind_is_taken_in_too(written: Written, tmp_path: pathlib.Path) -> None:
    data_dir = tmp_path / "data"
    source = written.data_dir.parent / "killed"
    check(source)
    for topic in PARTITIONS:
        take_in(source, data_dir, topic)
    check(data_dir)
    with odradek.Broker(process=True, data_dir=data_dir) as broker:
        for topic, partitions in PARTITIONS.items():
            assert read_all(broker.bootstrap_servers, topic, partitions) == written.records[topic]


def test_indexes_and_snapshots_may_be_missing(written: Written, tmp_path: pathlib.Path) -> None:
    data_dir, sources = tmp_path / "data", []
    for index in range(2):
        source = tmp_path / f"codecs-{index}"
        shutil.copytree(written.data_dir / source.name, source)
        for path in list(source.iterdir()):
            if path.suffix in (".index", ".timeindex", ".snapshot") or path.name == "leader-epoch-checkpoint":
                path.unlink()
        sources.append(str(source))
    finished = command("import-log", *sources, "--topic", "codecs", "--data-dir", str(data_dir), "--move")
    assert finished.returncode == 0, finished.stderr
    assert not any(pathlib.Path(source).exists() for source in sources)
    check(data_dir)
    with odradek.Broker(process=True, data_dir=data_dir) as broker:
        assert read_all(broker.bootstrap_servers, "codecs", 2) == written.records["codecs"]
        assert offsets_at(broker.bootstrap_servers, "codecs", 0, TIMES) == written.times["codecs"]


def test_a_whole_directory_of_kafka_is_served_as_it_is(written: Written, tmp_path: pathlib.Path) -> None:
    finished = command("import-log", str(written.data_dir))
    assert finished.returncode == 1
    assert "name the topic with --topic, one topic at a time; it has " in finished.stderr
    whole = tmp_path / "whole"
    shutil.copytree(written.data_dir, whole)
    with odradek.Broker(process=True, data_dir=whole) as broker:
        assert own_settings(broker.bootstrap_servers, "compacted") == COMPACTED
        assert read_all(broker.bootstrap_servers, "codecs", 2) == written.records["codecs"]


def test_the_log_directories_of_one_kafka_are_taken_together_or_refused(
    written: Written, tmp_path: pathlib.Path
) -> None:
    here, other, data_dir = tmp_path / "here", tmp_path / "other", tmp_path / "data"
    shutil.copytree(written.data_dir, here)
    other.mkdir()
    shutil.copy(here / "meta.properties", other)
    for name in ("compacted-0", "codecs-1"):
        (here / name).rename(other / name)
    finished = command("import-log", str(here), "--topic", "codecs", "--data-dir", str(data_dir))
    assert finished.returncode == 1
    assert "codecs has 2 partitions in Kafka, and partition 1 is not in the directories" in finished.stderr
    with pytest.raises(BrokerStartError, match=r"odradek import-log \S+ --topic NAME --data-dir THERE"):
        odradek.Broker(data_dir=other).start()
    for topic in ("codecs", "compacted"):
        arguments = (str(here), str(other), "--topic", topic, "--data-dir", str(data_dir))
        finished = command("import-log", *arguments)
        assert (finished.returncode, "not known" in finished.stdout) == (0, False), finished.stderr
    with odradek.Broker(process=True, data_dir=data_dir) as broker:
        assert own_settings(broker.bootstrap_servers, "compacted") == COMPACTED
        assert read_all(broker.bootstrap_servers, "codecs", 2) == written.records["codecs"]


def test_a_running_kafka_is_refused(version: str, tmp_path: pathlib.Path) -> None:
    if version != reference.CURRENT:
        pytest.skip("the lock is the same")
    with reference.Kafka(version) as kafka:
        create(kafka.bootstrap_servers, "busy", 1)
        finished = command(
            "import-log", str(kafka.data_dir), "--topic", "busy", "--data-dir", str(tmp_path / "data")
        )
        assert (finished.returncode, finished.stderr) == (
            1,
            f"odradek: A broker is running on {kafka.data_dir.resolve()}: stop it first.\n",
        )
        assert "is in use by a broker" in command("check", str(kafka.data_dir), "--repair").stderr


# --- Old formats ---


def old_log() -> bytes:
    """Formats v0, v1 and v2 in one segment, as a log that lived through upgrades has them."""
    parts = [build_message(0, offset=n, key=b"k%d" % n, value=b"v0-%d" % n) for n in range(3)]
    for magic, first, codec in (
        (0, 5, Compression.GZIP),
        (1, 9, Compression.SNAPPY),
        (1, 13, Compression.LZ4),
    ):
        inner = b"".join(
            build_message(
                magic, offset=n if magic else first + n, timestamp=START_MS + n, key=b"k", value=b"w%d" % n
            )
            for n in range(3)
        )
        parts.append(
            build_message(
                magic,
                offset=first + 2,
                timestamp=START_MS + 2,
                key=None,
                value=compress(codec, inner, magic=magic),
                attributes=codec,
            )
        )
    parts += [
        build_message(1, offset=20 + n, timestamp=START_MS + n, key=None, value=b"v1-%d" % n)
        for n in range(3)
    ]
    parts.append(bytes(build_batch([Record(23, START_MS + 50, b"k", b"v2", (("h", b"x"),))], leader_epoch=0)))
    return b"".join(parts)


def test_old_formats_are_served_converted_as_kafka_served_them(tmp_path: pathlib.Path) -> None:
    with reference.Kafka(reference.OLDER) as kafka:
        create(kafka.bootstrap_servers, "old", 1)
        kafka.stop()
        (kafka.data_dir / "old-0" / f"{0:020}.log").write_bytes(old_log())
        for suffix in ("index", "timeindex"):
            (kafka.data_dir / "old-0" / f"{0:020}.{suffix}").unlink()
        kafka.start()
        records = read_all(kafka.bootstrap_servers, "old", 1)
        kafka.stop()
        take_in(kafka.data_dir, tmp_path / "data", "old")
    assert [offset for _, offset, *_ in records] == [0, 1, 2, 5, 6, 7, 9, 10, 11, 13, 14, 15, 20, 21, 22, 23]
    with odradek.Broker(process=True, data_dir=tmp_path / "data") as broker:
        ours = read_all(broker.bootstrap_servers, "old", 1)
    assert [one[:2] + one[3:] for one in ours] == [one[:2] + one[3:] for one in records]
    # In v0 there are no timestamps: librdkafka makes a 0 of that, and shows the -1 that a batch then says.
    assert [max(one[2][1], 0) for one in ours] == [one[2][1] for one in records]
