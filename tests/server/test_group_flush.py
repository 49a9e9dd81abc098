"""One sync of the file system for many partitions: when it is used, what it vouches for, how it fails."""

import asyncio
import errno
import os
import threading

import pytest

from odradek.server.group_flush import PAUSES_PER_SLOW, SLOW_S, GroupFlush
from odradek.server.turn import TOGETHER_MIN, LoopTurn
from odradek.storage import file_system
from odradek.storage.file_system import open_file_system
from odradek.wire.errors import ErrorCode, KafkaError


class FileSystem:
    """Counts syncs; `during` is called inside each."""

    def __init__(self):
        self.syncs = 0
        self.error = None
        self.elsewhere = set()
        self.during = lambda: None

    def holds(self, path):
        return path not in self.elsewhere

    def sync(self):
        self.syncs += 1
        self.during()
        if self.error:
            raise self.error


class Partition:
    def __init__(self, name):
        self.directory = name
        self.end = 5
        self.flushed_to = None
        self.flushes = 0
        self.flush_error = None
        self.is_ordinary = True

    def commit(self):
        pass

    def flush(self):
        self.flushes += 1
        if self.flush_error:
            raise self.flush_error

    def end_if_one_sync_flushes(self):
        return self.end if self.is_ordinary else None

    def take_flushed(self, end_offset):
        self.flushed_to = end_offset


@pytest.fixture
def disk():
    return FileSystem()


@pytest.fixture
def partitions():
    return [Partition(f"data/t-{i}") for i in range(4)]


def test_one_sync_vouches_for_what_was_there_before_it_began(disk, partitions):
    def appended_meanwhile():
        for partition in partitions:
            partition.end += 10

    disk.during = appended_meanwhile
    assert GroupFlush(disk)(partitions) == [None] * 4
    assert disk.syncs == 1
    assert [(p.flushed_to, p.flushes) for p in partitions] == [(5, 0)] * 4


def test_a_partition_with_more_to_do_or_on_another_disk_is_flushed_by_itself(disk, partitions):
    partitions[1].is_ordinary = False
    partitions[2].directory = "elsewhere"
    disk.elsewhere.add("elsewhere")
    assert GroupFlush(disk)(partitions) == [None] * 4
    assert [p.flushes for p in partitions] == [0, 1, 1, 0]
    assert [p.flushed_to for p in partitions] == [5, None, None, 5]


def test_after_a_failed_sync_each_file_is_asked_then_and_for_ever(disk, partitions):
    group = GroupFlush(disk)
    disk.error = OSError(errno.EIO, "lost")
    partitions[2].flush_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    errors = group(partitions)
    assert errors == [None, None, partitions[2].flush_error, None]
    assert [p.flushes for p in partitions] == [1] * 4
    assert {p.flushed_to for p in partitions} == {None}
    assert not group.is_worthwhile


def test_after_a_slow_sync_partitions_are_flushed_one_by_one_for_a_while(disk, partitions):
    now_s = [100.0]

    def take_long():
        now_s[0] += SLOW_S * 2

    disk.during = take_long
    group = GroupFlush(disk, lambda: now_s[0])
    assert group(partitions) == [None] * 4
    assert not group.is_worthwhile
    now_s[0] += SLOW_S * PAUSES_PER_SLOW
    assert not group.is_worthwhile
    now_s[0] += SLOW_S * PAUSES_PER_SLOW * 1.01
    assert group.is_worthwhile


def test_a_turn_of_many_partitions_is_one_sync_and_what_gathers_meanwhile_the_next(disk, partitions):
    gate = threading.Event()
    disk.during = lambda: gate.wait(10)
    told = []

    async def story():
        turn = LoopTurn(asyncio.get_running_loop())
        turn.flush_together = GroupFlush(disk)
        try:
            for partition in partitions:
                turn.add(
                    partition, lambda error, p=partition: told.append(("first", p.directory, error)), True
                )
            await asyncio.sleep(0)
            late = Partition("data/late")
            for partition in (partitions[0], late, partitions[1]):
                turn.add(
                    partition, lambda error, p=partition: told.append(("next", p.directory, error)), True
                )
            await asyncio.sleep(0)
            assert told == []
            assert late.flushes == 0
            gate.set()
            async with asyncio.timeout(10):
                while turn.is_flushing:
                    await asyncio.sleep(0.001)
        finally:
            turn.close()

    asyncio.run(story())
    assert len(partitions) >= TOGETHER_MIN
    assert disk.syncs == 2
    assert told == [("first", f"data/t-{i}", None) for i in range(4)] + [
        ("next", name, None) for name in ("data/t-0", "data/late", "data/t-1")
    ]


def test_without_it_many_partitions_are_flushed_by_few_workers_and_told_of_their_own_errors():
    partitions = [Partition(f"data/t-{i}") for i in range(30)]
    partitions[17].flush_error = OSError(errno.EIO, "lost")
    told = {}

    async def story():
        turn = LoopTurn(asyncio.get_running_loop())
        try:
            for partition in partitions:
                turn.add(partition, lambda error, p=partition: told.update({p.directory: error}), True)
            async with asyncio.timeout(10):
                while len(told) < 30:
                    await asyncio.sleep(0.001)
        finally:
            turn.close()

    asyncio.run(story())
    assert [p.flushes for p in partitions] == [1] * 30
    assert [name for name, error in told.items() if error is not None] == ["data/t-17"]


@pytest.mark.parametrize(
    ("kind", "release", "is_used"),
    [
        ("ext4", "6.1.0-17-amd64", True),
        ("xfs", "5.17.1", True),
        ("ext4", "5.15.0", False),
        ("fuse", "6.1.0", False),
        ("overlay", "6.1.0", False),
    ],
)
def test_only_file_systems_and_kernels_that_promise_enough_are_synced_whole(
    tmp_path, monkeypatch, kind, release, is_used
):
    device = os.stat(tmp_path).st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 0:99 / /proc rw - proc proc rw\n"
        f"2 0 {os.major(device)}:{os.minor(device)} / /a\\040b rw,relatime shared:1 - {kind} /dev/x rw\n"
    )
    monkeypatch.setattr(file_system, "MOUNTS", str(mounts))
    system = os.uname()
    named = os.uname_result(("Linux", system.nodename, release, system.version, system.machine))
    monkeypatch.setattr(os, "uname", lambda: named)
    found = open_file_system(str(tmp_path))
    assert (found is not None) == is_used
    if found is not None:
        assert found.holds(str(tmp_path))
        assert not found.holds("/proc")
        if system.sysname == "Linux":
            found.sync()
        found.close()
        found.close()
