"""Compaction: the same log, byte for byte, cleaned by Apache Kafka and by us; and the same requests to both
brokers, after which both have the same records left.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.differential.harness import Pair, Pauses, Side
from compat_tests.differential.sharing import ACCEPT, GAP, Member, describe_offsets, readers
from compat_tests.differential.test_records import produce
from compat_tests.differential.topics import NOW_MS, new_topic
from odradek.embedding.embedded import Broker
from odradek.storage.compaction.run import CleanedGroup, CleaningJob, JobSegment, cleaning_round
from odradek.storage.disk import OsDisk
from odradek.storage.log.producer_state import decode_snapshot
from odradek.storage.log.transaction_index import decode_aborted
from odradek.wire.records import Record, build_batch, iter_batches, iter_records, verify_crc

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "offsets.topic.num.partitions": "1",
}
HOUR_MS = 3_600_000
DELETE_RETENTION_MS = 500
PATIENCE_S = 60.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
NEVER, SOON = "1", "0.01"


@pytest.fixture(scope="module")
def kafka() -> Iterator[reference.Kafka]:
    """From its jars: its files are looked at."""
    settings = {**SETTINGS, "transaction.state.log.num.partitions": "1"}
    with reference.Kafka(properties=settings, host=shared_host()) as broker:
        yield broker


@pytest.fixture(scope="module")
def both(kafka: reference.Kafka) -> Iterator[Pair]:
    with Broker(process=True, options=SETTINGS) as broker:
        sides = [Side("kafka", kafka.bootstrap_servers), Side("odradek", broker.bootstrap_servers)]
        yield Pair(*sides, {})
        for side in sides:
            side.close()


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    pause = Pauses()
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        pause()
    return found


def compacted(pair: Pair, prefix: str, ratio: str) -> str:
    """A topic whose segments end where a timestamp is an hour behind the segment's first."""
    return new_topic(
        pair,
        prefix,
        cleanup_policy="compact",
        segment_ms=str(HOUR_MS),
        min_cleanable_dirty_ratio=ratio,
        delete_retention_ms=str(DELETE_RETENTION_MS),
        message_timestamp_after_max_ms=str(2**62),
    )


def set_topic(bootstrap: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def roll(side: Side, topic: str, hours: int) -> None:
    """A record of nobody's key, in a segment of its own."""
    one = bytes(build_batch([Record(0, NOW_MS + hours * HOUR_MS, b"roll%d" % hours, b"v")]))
    answer = side.ask(produce(side, topic, one), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


# The same log


def contents(data: bytes) -> list[Any]:
    """All that a log file says, but for what it is packed like and when its tombstones may go."""
    found = []
    for position, header in iter_batches(data):
        verify_crc(data, position, header)
        records = list(iter_records(memoryview(data)[position:], header))
        found.append(
            (
                (header.base_offset, header.last_offset, header.leader_epoch, header.attributes),
                (header.producer_id, header.producer_epoch, header.base_sequence, header.max_timestamp),
                records,
            )
        )
    return found


def log_files(directory: pathlib.Path) -> dict[int, pathlib.Path]:
    return {int(path.stem): path for path in sorted(directory.glob("*.log"))}


def cleaned_by_us(directory: pathlib.Path, first_dirty: int) -> list[tuple[int, list[Any], bytes]]:
    """Base offset, contents and transaction index of each segment that a round makes of the sealed ones."""
    files = log_files(directory)
    *sealed, active = files
    producers = decode_snapshot((directory / f"{active:020d}.snapshot").read_bytes())
    assert producers is not None
    aborted = [one for path in directory.glob("*.txnindex") for one in decode_aborted(path.read_bytes())]
    ends = [*sealed[1:], active]
    job = CleaningJob(
        directory=str(directory),
        segments=tuple(
            JobSegment(base, end, files[base].stat().st_size) for base, end in zip(sealed, ends, strict=True)
        ),
        first_dirty=first_dirty,
        end_offset=active,
        now_ms=int(time.time() * 1000),
        token="ours",
        segment_bytes=2**30,
        segment_index_bytes=10_485_760,
        index_interval_bytes=4096,
        delete_retention_ms=DELETE_RETENTION_MS,
        producers=tuple(
            (one, entry.producer_epoch, entry.last_data_offset) for one, entry in producers.items()
        ),
        aborted=tuple(aborted),
    )
    found = []
    for event in cleaning_round(OsDisk(), job, os.urandom(16)):
        if isinstance(event, CleanedGroup):
            path = directory / f"{event.base_offset:020d}"
            index = pathlib.Path(f"{path}.txnindex{job.suffix}")
            found.append(
                (
                    event.base_offset,
                    contents(pathlib.Path(f"{path}.log{job.suffix}").read_bytes()),
                    index.read_bytes() if index.exists() else b"",
                )
            )
    return found


def as_kafka_has_it(directory: pathlib.Path) -> list[tuple[int, list[Any], bytes]]:
    *sealed, _ = log_files(directory).items()
    return [
        (
            base,
            contents(path.read_bytes()),
            index.read_bytes() if (index := path.with_suffix(".txnindex")).exists() else b"",
        )
        for base, path in sealed
    ]


class Story:
    """Transactions, tombstones and every codec, by several producers, into a log of Kafka's."""

    def __init__(self, kafka: reference.Kafka, topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.dice = random.Random(5)
        self.hours = 0
        self.producers = [self.producer(number, codec) for number, codec in enumerate(CODECS)]
        self.directory = kafka.data_dir / f"{topic}-0"

    def producer(self, number: int, codec: str) -> Producer:
        made = Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "compression.type": codec,
                "transactional.id": f"{self.topic}-{number}",
                "linger.ms": 20,
            }
        )
        made.init_transactions()
        return made

    def write(self) -> None:
        """Segments whose keys outdate each other, some of it aborted."""
        for _ in range(20):
            producer = self.dice.choice(self.producers)
            producer.begin_transaction()
            for _ in range(self.dice.randrange(1, 6)):
                producer.produce(
                    self.topic,
                    key=b"key%d" % self.dice.randrange(12),
                    value=None if self.dice.random() < 0.25 else self.dice.randbytes(4).hex() * 20,
                    timestamp=NOW_MS + self.hours * HOUR_MS + self.dice.randrange(1000),
                )
            producer.flush()
            (producer.abort_transaction if self.dice.random() < 0.3 else producer.commit_transaction)()
            if self.dice.random() < 0.3:
                self.hours += 2

    def set_ratio(self, ratio: str) -> None:
        set_topic(self.kafka.bootstrap_servers, self.topic, "min.cleanable.dirty.ratio", ratio)

    def first_dirty(self) -> int:
        path = self.kafka.data_dir / "cleaner-offset-checkpoint"
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        offsets = {topic: int(offset) for topic, _, offset in map(str.split, lines)}
        return offsets.get(self.topic, 0)


def test_the_same_log_is_cleaned_alike_round_after_round(
    both: Pair, kafka: reference.Kafka, tmp_path: pathlib.Path
) -> None:
    story = Story(kafka, compacted(both, "alike", NEVER))
    for number in range(3):
        story.write()
        story.hours += 2
        roll(both.kafka, story.topic, story.hours)
        # The tombstones and markers of the round before are to be past their horizon.
        time.sleep(2 * DELETE_RETENTION_MS / 1000)
        copy = tmp_path / str(number)
        shutil.copytree(story.directory, copy)
        *sealed, active = log_files(copy)
        assert len(sealed) > 1
        ours = cleaned_by_us(copy, story.first_dirty())
        story.set_ratio(SOON)
        wait_until(lambda active=active: story.first_dirty() == active, "Kafka does not clean")
        story.set_ratio(NEVER)
        theirs = as_kafka_has_it(story.directory)
        assert ours == theirs
        assert sum(len(one.read_bytes()) for one in log_files(copy).values()) > sum(
            one.stat().st_size for one in log_files(story.directory).values()
        )


# The same requests


def survivors(side: Side, topic: str, bootstrap: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append((message.offset(), message.timestamp()[1], message.key(), message.value()))
    consumer.close()
    return found


def test_the_same_requests_leave_the_same_records(both: Pair, kafka: reference.Kafka) -> None:
    topic = compacted(both, "left", SOON)
    dice = random.Random(11)
    sequences = dict.fromkeys(range(3), 0)
    count = 0
    for step in range(60):
        base_ms = NOW_MS + step // 8 * 2 * HOUR_MS
        records = [
            Record(
                place,
                base_ms + dice.randrange(1000),
                b"key%d" % dice.randrange(15) * dice.choice([1, 10]),
                None if dice.random() < 0.2 else dice.randbytes(20),
                [("h", b"1")] if dice.random() < 0.3 else (),
            )
            for place in range(dice.randrange(1, 7))
        ]
        producer = dice.choice([-1, 0, 1, 2])
        more = {}
        if producer >= 0:
            more = {"producer_id": 1000 + producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            sequences[producer] += len(records)
        count += len(records)
        one = bytes(build_batch(records, compression=dice.randrange(5), **more))
        for side in both.sides:
            answer = side.ask(produce(side, topic, one), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0, (side.name, answer)
    hours = 60
    seen: list[Any] = []

    def are_equal() -> bool:
        # Another segment each time: what was past its horizon goes with the next round only.
        nonlocal hours
        hours += 2
        for side in both.sides:
            roll(side, topic, hours)
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            seen[:] = [survivors(side, topic, f"127.0.0.1:{side.port}") for side in both.sides]
            theirs, ours = seen
            if theirs == ours and len(ours) < 40 and not any(value is None for _, _, _, value in ours):
                return True
        return False

    wait_until(are_equal, f"{count} records, the rest differs")
    theirs, ours = seen
    assert theirs == ours
    latest = {key: offset for offset, _, key, _ in ours}
    assert len(latest) == len(ours)
    compare_a_share_group(both, topic, {offset for offset, *_ in ours})


def without_records(side: Side, answer: Any) -> None:
    """They have been compared, and may be packed otherwise."""
    for found in answer.responses:
        for one in found.partitions:
            one.records = None


def compare_a_share_group(pair: Pair, topic: str, survivors: set[int]) -> None:
    """Its members acquire offsets that are gone beside those that are there, and say which those are. All at
    once: where a limit of records ends between batches, Kafka's range goes on to the limit."""
    place = (topic, 0)
    with pair.collecting():
        group = readers(pair, topic)
        one = Member(pair, group)
        _, ours = one.fetch(place, note="all of it", batch_size=7, see=without_records)
        (found,) = ours.responses[0].partitions
        ranges = [(held.first_offset, held.last_offset) for held in found.acquired_records]
        assert len(ranges) > 5
        told = [
            (first, last, [ACCEPT if offset in survivors else GAP for offset in range(first, last + 1)])
            for first, last in ranges
        ]
        one.acknowledge({place: told[::2]}, "every second range")
        describe_offsets(pair, (group, {topic: [0]}), note="half is done")
        one.acknowledge({place: told[1::2]}, "the others")
        describe_offsets(pair, (group, {topic: [0]}), note="all is done")
        one.close()


# When a log is cleaned, and how far


def two_keys_an_hour(pair: Pair, topic: str, hours: range) -> list[tuple[int, bytes]]:
    """The same records for both, of so many hours ago, each hour's in a segment; offset and key of each."""
    now_ms = int(time.time() * 1000)
    keys = [b"even", b"odd"]
    written: list[tuple[int, bytes]] = []
    for hour in hours:
        written += [(len(written) + place, key) for place, key in enumerate(keys)]
        records = [Record(place, now_ms - hour * HOUR_MS, key, b"v") for place, key in enumerate(keys)]
        one = bytes(build_batch(records))
        for side in pair.sides:
            answer = side.ask(produce(side, topic, one), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0, (side.name, answer)
    return written


def left(side: Side, topic: str) -> list[tuple[int, bytes | None]]:
    return [(offset, key) for offset, _, key, _ in survivors(side, topic, f"127.0.0.1:{side.port}")]


def test_lags_decide_alike_when_a_log_is_cleaned_and_how_far(both: Pair) -> None:
    settings = {"cleanup_policy": "compact", "segment_ms": str(HOUR_MS // 2)}
    lag_ms = str(11 * HOUR_MS // 2)
    # Cleaned up to the first segment that has a record younger than the least lag.
    recent = new_topic(
        both, "recent", **settings, min_cleanable_dirty_ratio=SOON, min_compaction_lag_ms=lag_ms
    )
    of_recent = two_keys_an_hour(both, recent, range(10, -1, -1))[8:]
    # Never dirty enough, so that nothing but the age of their first record has them cleaned.
    young, old = (
        new_topic(both, name, **settings, min_cleanable_dirty_ratio=NEVER) for name in ("young", "old")
    )
    of_young = two_keys_an_hour(both, young, range(5, -1, -1))
    of_old = two_keys_an_hour(both, old, range(6, -1, -1))[-4:]
    for side in both.sides:
        # Only now, with all of the records there: each round would end where a log ends then.
        for topic in (young, old):
            set_topic(f"127.0.0.1:{side.port}", topic, "max.compaction.lag.ms", lag_ms)
        for topic, wanted in ((recent, of_recent), (old, of_old)):
            wait_until(
                lambda side=side, topic=topic, wanted=wanted: left(side, topic) == wanted,
                f"{side.name} does not clean {topic} so",
            )
        assert left(side, young) == of_young
        assert left(side, recent) == of_recent
