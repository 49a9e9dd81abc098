"""Compaction by a process of its own: that it is one, that it may die, and that without one it is done all
the same.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

import odradek
from odradek.server.background import cleaner
from odradek.server.background.cleaner import CleanerOptions, LogCleaner
from odradek.server.background.work import WorkQueue
from odradek.server.network.timers import Timers, wall_clock_ms
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.storage.log.partition import Partition
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches
from odradek.wire.work import Work

COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=50_000, min_cleanable_dirty_ratio=0.01
)
KEYS = 50
EARLY = 20
"""So many of the first records have keys of their own: they stay, so that rewriting begins with a write."""
RECORDS = 2000
PATIENCE_S = 60.0


def key_of(number: int) -> bytes:
    return b"early%d" % number if number < EARLY else b"key%d" % (number % KEYS)


class Running:
    """A store with a dirty log, and the driver of its compaction."""

    def __init__(self, directory: Path, options: CleanerOptions, topics: str) -> None:
        loop = asyncio.get_running_loop()
        self.upkeep, self.timers = WorkQueue(loop), Timers(loop)
        self.store = LogStore(OsDisk(), [str(directory)], config_for=lambda topic: COMPACTED)
        self.store.open(wall_clock_ms())
        self.partition, *_ = [self.dirty(topic) for topic in topics]
        self.driver = LogCleaner(
            self.store.cleaner,
            self.store.disk,
            self.upkeep,
            self.timers,
            self.timers,
            wall_clock_ms,
            options,
        )
        self.directory = directory

    def dirty(self, topic: str) -> Partition:
        partition = self.store.create(topic, 0, bytes(16), COMPACTED)
        for first in range(0, RECORDS, 20):
            records = [
                Record(number - first, wall_clock_ms(), key_of(number), b"%d" % number + b"." * 100)
                for number in range(first, first + 20)
            ]
            partition.appends.append(build_batch(records), now_ms=wall_clock_ms())
            partition.commit()
        partition.log.roll(wall_clock_ms())
        partition.flush()
        return partition

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "it does not come"
            await asyncio.sleep(0.01)

    def is_clean(self) -> bool:
        return self.store.checkpointing.first_dirty_of(self.partition) == RECORDS

    def half_done(self) -> list[Path]:
        found = self.directory.glob("*/*.cleaned")
        return [path for path in found if not path.parent.name.endswith("-delete")]

    def values(self, partition: Partition | None = None) -> dict[bytes, bytes]:
        partition = partition or self.partition
        found = {}
        offset = 0
        while offset < partition.log_end_offset:
            data = memoryview(partition.read(offset, max_bytes=100_000).records.tobytes())
            if not data:
                break
            for position, header in iter_whole_batches(data):
                for record in iter_records(data[position:], header):
                    assert record.key not in found, "a key has two records"
                    found[record.key] = record.value
                offset = header.last_offset + 1
        return found

    def check(self) -> None:
        found = self.values()
        assert found == {
            key_of(number): b"%d" % number + b"." * 100
            for number in (*range(EARLY), *range(RECORDS - KEYS, RECORDS))
        }


@asynccontextmanager
async def running(directory: Path, *, topics: str = "t", between_requests: bool = False, **options):
    one = Running(directory, CleanerOptions(**{"backoff_ms": 20, **options}), topics)
    one.driver.may_start_processes = not between_requests
    one.driver.start()
    try:
        yield one
    finally:
        one.driver.close()
        one.upkeep.close()
        one.timers.close()
        one.store.close(wall_clock_ms())
    assert not one.half_done()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
        if os.path.exists("/proc")
        else True
    )


def test_a_log_is_compacted_by_another_process_at_the_lowest_priority(tmp_path, caplog):
    caplog.set_level("INFO", "odradek.cleaner")

    async def story() -> list[int]:
        async with running(tmp_path) as one:
            await one.until(lambda: "compacted t-0" in caplog.text)
            one.check()
            (pid,) = one.driver.pids
            assert pid != os.getpid()
            assert os.getpriority(os.PRIO_PROCESS, pid) == 19
            # A priority counts among the processes of a session only, where Linux groups by them; Ctrl-C
            # goes to a process group.
            assert os.getsid(pid) == os.getsid(0)
            assert os.getpgid(pid) != os.getpgid(0)
            return one.driver.pids

    (pid,) = asyncio.run(story())
    assert not is_alive(pid)
    (line,) = [record.getMessage() for record in caplog.records if "compacted t-0" in record.getMessage()]
    assert f"up to offset {RECORDS}" in line
    assert f"{EARLY + KEYS} of {RECORDS} records stay" in line


def test_several_logs_are_compacted_at_once_with_several_threads(tmp_path):
    async def story() -> None:
        async with running(tmp_path, threads=2, bytes_per_second=800_000.0, topics="tu") as one:
            other = one.store.get("u", 0)
            await one.until(lambda: len({path.parent for path in one.half_done()}) == 2)
            assert len(set(one.driver.pids)) == 2
            one.driver.configure(CleanerOptions(backoff_ms=20, threads=2))
            await one.until(
                lambda: one.is_clean() and one.store.checkpointing.first_dirty_of(other) == RECORDS
            )
            one.driver.configure(CleanerOptions(backoff_ms=20))
            await one.until(lambda: len(one.driver.pids) == 1)

    asyncio.run(story())


def test_a_new_rate_counts_for_the_round_that_is_under_way(tmp_path):
    async def story() -> None:
        # At this rate the first thing that is read is rested for for hours.
        async with running(tmp_path, bytes_per_second=10.0) as one:
            await one.until(lambda: one.driver.pids)
            pids = one.driver.pids
            one.driver.configure(CleanerOptions(backoff_ms=20, bytes_per_second=5.0))
            one.driver.configure(CleanerOptions(backoff_ms=20, bytes_per_second=1e9))
            await one.until(one.is_clean)
            assert one.driver.pids == pids
            one.check()

    asyncio.run(story())


def test_a_new_rate_counts_for_a_round_between_requests_too(tmp_path):
    async def story() -> None:
        async with running(tmp_path, bytes_per_second=500_000.0, between_requests=True) as one:
            await one.until(one.half_done)
            one.driver.configure(CleanerOptions(backoff_ms=20, bytes_per_second=1.0))
            one.driver.configure(CleanerOptions(backoff_ms=20, bytes_per_second=1e9))
            await one.until(one.is_clean)
            assert not one.driver.pids
            one.check()

    asyncio.run(story())


def test_a_process_that_dies_is_started_again_and_nothing_of_its_work_remains(tmp_path, monkeypatch):
    monkeypatch.setattr(cleaner, "RESTART_DELAY_MS", 10)

    async def story() -> None:
        async with running(tmp_path, bytes_per_second=500_000.0) as one:
            await one.until(one.half_done)
            (pid,) = one.driver.pids
            before = one.half_done()
            os.kill(pid, signal.SIGKILL)
            one.driver.configure(CleanerOptions(backoff_ms=20))
            await one.until(one.is_clean)
            assert one.driver.pids != [pid]
            assert not any(path.exists() for path in before)
            one.check()

    asyncio.run(story())


def test_a_partition_over_which_the_process_dies_again_and_again_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(cleaner, "RESTART_DELAY_MS", 10)

    async def story() -> None:
        async with running(tmp_path, bytes_per_second=300_000.0) as one:
            seen: set[int] = set()
            while not one.store.cleaner.uncleanable():
                for pid in set(one.driver.pids) - seen:
                    await one.until(one.half_done)
                    seen.add(pid)
                    os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.01)
            assert len(seen) == 3
            assert "died 3 times" in one.store.cleaner.uncleanable()["t", 0]
            assert len(one.partition.log.segments) > 2

    asyncio.run(story())


@pytest.mark.parametrize("executable", ["/nowhere/python", "/bin/false", ""])
def test_where_no_process_can_be_started_the_work_is_done_between_the_requests(
    tmp_path, monkeypatch, caplog, executable
):
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(cleaner, "RESTART_DELAY_MS", 1)

    async def story() -> None:
        async with running(tmp_path) as one:
            await one.until(one.is_clean)
            one.check()
            assert one.driver.pids == []

    asyncio.run(story())
    assert any("no process for compaction" in record.getMessage() for record in caplog.records)


def test_a_round_is_given_up_when_its_topic_is_deleted(tmp_path):
    async def story() -> None:
        async with running(tmp_path, bytes_per_second=500_000.0) as one:
            await one.until(one.half_done)
            one.store.delete("t", 0)
            again = one.dirty("t")
            one.driver.configure(CleanerOptions(backoff_ms=20))
            await one.until(lambda: one.store.checkpointing.first_dirty_of(again) == RECORDS)
            one.partition = again
            one.check()

    asyncio.run(story())


def waiting_for(release: threading.Event) -> Work[None]:
    """A chore that is at the disk."""
    yield release.wait


def sizes(directory: Path) -> dict[str, int]:
    """Of the logs that count, in bytes."""
    return {path.name: path.stat().st_size for path in directory.glob("t-0/*.log")}


def test_a_group_that_waits_when_the_broker_stops_replaces_nothing(tmp_path):
    async def story() -> None:
        release = threading.Event()
        async with running(tmp_path) as one:
            before = sizes(tmp_path)
            await one.until(lambda: one.driver.pids)
            one.upkeep.run(waiting_for(release), lambda _: None, pytest.fail)
            # The chore, and a group behind it.
            await one.until(lambda: len(one.upkeep) > 1)
            one.driver.close()
            release.set()
            await one.until(lambda: not len(one.upkeep))
            assert one.store.checkpointing.first_dirty_of(one.partition) == 0
            assert sizes(tmp_path) == before
        assert sizes(tmp_path) == before

    asyncio.run(story())


def held_up(one: Running, monkeypatch) -> threading.Event:
    """Whoever looks for a round waits for the disk first, until this is set."""
    release, next_round = threading.Event(), one.store.cleaner.next_round

    def looking(*arguments):
        yield release.wait
        return (yield from next_round(*arguments))

    monkeypatch.setattr(one.store.cleaner, "next_round", looking)
    return release


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_round_that_a_worker_begins_that_has_been_ended_is_left_to_others(
    tmp_path, monkeypatch, is_stopped
):
    async def story() -> None:
        async with running(tmp_path, threads=0) as one:
            release, before = held_up(one, monkeypatch), children_of(os.getpid())
            one.driver.configure(CleanerOptions(backoff_ms=20, threads=1))
            await one.until(lambda: len(one.upkeep))
            if is_stopped:
                one.driver.close()
            else:
                one.driver.configure(CleanerOptions(backoff_ms=20, threads=0))
            release.set()
            await one.until(lambda: not len(one.upkeep))
            assert children_of(os.getpid()) == before
            if not is_stopped:
                one.driver.configure(CleanerOptions(backoff_ms=20, threads=1))
                await one.until(one.is_clean)
                one.check()

    asyncio.run(story())


# A whole broker


OPTIONS = {
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.segment.delete.delay.ms": 0,
}
TOPIC_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "1048576"}
SENT = 3000


def fill(broker: odradek.Broker) -> dict[bytes, bytes]:
    """Three segments of 1 KB records; the latest value of each key."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics([NewTopic("t", 1, 1, topic_configs=TOPIC_CONFIGS)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=5)
    latest = {}
    for number in range(SENT):
        key, value = b"key%d" % (number % KEYS), b"%d" % number + b"." * 1000
        producer.send("t", value, key=key)
        latest[key] = value
    producer.flush()
    producer.close()
    return latest


def read(broker: odradek.Broker) -> list[tuple[int, bytes, bytes]]:
    consumer = KafkaConsumer("t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    records = []
    while not records or records[-1][0] < SENT - 1:
        for batch in consumer.poll(1000).values():
            records += [(record.offset, record.key, record.value) for record in batch]
    consumer.close()
    return records


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.005)


def children_of(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for one in lists for child in one.read_text().split()]


def checkpoint(broker: odradek.Broker) -> str:
    path = broker.data_dir / "cleaner-offset-checkpoint"
    return path.read_text() if path.exists() else ""


def test_a_broker_in_a_thread_compacts_what_clients_wrote():
    with odradek.Broker(options=OPTIONS) as broker:
        latest = fill(broker)
        wait_until(lambda: "\nt 0 " in checkpoint(broker))
        records = read(broker)
        assert len(records) < SENT
        assert {key: value for _, key, value in records} == latest


@pytest.mark.skipif(not os.path.exists("/proc"), reason="looks for the child in /proc")
def test_a_broker_killed_in_the_middle_of_a_compaction_has_every_latest_value_and_leaves_no_process():
    slow = {**OPTIONS, "log.cleaner.io.max.bytes.per.second": 4_000_000}
    with odradek.Broker(process=True, options=slow) as broker:
        latest = fill(broker)
        wait_until(lambda: list(broker.data_dir.glob("t-0/*.cleaned")))
        (child,) = children_of(broker.pid)
        broker.kill()
        wait_until(lambda: not is_alive(child))
        broker.start()
        records = read(broker)
        assert {key: value for _, key, value in records} == latest
        wait_until(lambda: "\nt 0 " in checkpoint(broker))
        assert {key: value for _, key, value in read(broker)} == latest
