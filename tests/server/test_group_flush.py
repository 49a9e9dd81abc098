"""Group flushes: one write for many partitions, what gathers meanwhile, and how each of it fails."""

import asyncio
import errno
import threading

import pytest

from odradek.apis.turn import COMMITTED, FLUSHED
from odradek.server.network import group_flush
from odradek.server.network._pipeline import Turn
from odradek.storage.checkpoints import LEADER_EPOCHS, read_leader_epochs
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk, SyncFailed
from odradek.storage.log.durability import Durability
from odradek.storage.log.flush_journal import PAGE_BYTES, FlushJournal
from odradek.storage.log.flushing import Flushing
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch
from odradek.wire.work import finish

NOW_MS = 1_700_000_000_000


class Partition:
    """Knows only how to be flushed by itself."""

    def __init__(self, name):
        self.directory = name
        self.log = self
        self.flushes = 0
        self.flush_error = None

    def commit(self):
        pass

    def flush(self):
        self.flushes += 1
        if self.flush_error:
            raise self.flush_error


class GatedDisk(OsDisk):
    """A sync of the flush journal waits for `gate` and fails with `error`."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.error = None
        self.syncs = 0
        self.file_syncs = 0

    def open(self, path, *, create=False):
        file = super().open(path, create=create)
        return GatedFile(file, self, "flush-journal" in path)


class GatedFile:
    def __init__(self, file, disk, is_journal):
        self._file = file
        self._disk = disk
        self._is_journal = is_journal

    def __getattr__(self, name):
        return getattr(self._file, name)

    def sync(self):
        if self._is_journal:
            self._disk.syncs += 1
            assert self._disk.gate.wait(10)
            if self._disk.error:
                raise self._disk.error
        else:
            self._disk.file_syncs += 1
        self._file.sync()


class Bench:
    """A store of a few partitions with a small flush journal, and the turn of a running loop."""

    def __init__(self, path, *, prepared=True):
        self.disk = GatedDisk()
        self.store = LogStore(self.disk, [str(path / "data")])
        self.store.flush_journals = [FlushJournal(self.disk, str(path / "data"), file_bytes=4 * PAGE_BYTES)]
        self.store.open(NOW_MS)
        (self.log,) = self.store.flush_journals
        config = LogConfig.from_mapping({"flush.messages": 1})
        self.partitions = [self.store.create("t", index, b"t" * 16, config) for index in range(6)]
        for partition in self.partitions:
            self.stage(partition)
            partition.commit()
            partition.flush()
        if prepared:
            self.log.prepare()
        self.disk.syncs = self.disk.file_syncs = 0
        self.told = []

    def stage(self, partition, size_bytes=10):
        batch = build_batch([Record(0, NOW_MS, b"k", bytes(size_bytes))])
        return partition.appends.append(bytes(batch), now_ms=NOW_MS).must_flush

    def produce(self, turn, partition, label, size_bytes=10):
        until = FLUSHED if self.stage(partition, size_bytes) else COMMITTED
        turn.add(partition, lambda error: self.told.append((label, partition.index, error)), until)

    def run(self, story):
        async def whole():
            turn = Turn(asyncio.get_running_loop())
            turn.flushes.use(self.store.flush_journals)
            try:
                await story(turn)
                await quiet(turn)
            finally:
                turn.close()

        asyncio.run(whole())


async def quiet(turn):
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        while turn.is_flushing:
            await asyncio.sleep(0.001)


def test_a_turn_of_many_partitions_is_one_sync_and_what_gathers_meanwhile_the_next(tmp_path):
    bench = Bench(tmp_path)
    bench.disk.gate.clear()

    async def story(turn):
        for partition in bench.partitions[:4]:
            bench.produce(turn, partition, "first")
        async with asyncio.timeout(10):
            while bench.disk.syncs == 0:
                await asyncio.sleep(0.001)
        for index in (0, 5, 1, 0):
            bench.produce(turn, bench.partitions[index], "next")
            await asyncio.sleep(0)
        assert bench.told == []
        bench.disk.gate.set()

    bench.run(story)
    assert (bench.disk.syncs, bench.disk.file_syncs) == (2, 0)
    assert bench.told == [("first", index, None) for index in range(4)] + [
        ("next", index, None) for index in (0, 0, 5, 1)
    ]
    assert [p.log.durable_offset for p in bench.partitions] == [p.log_end_offset for p in bench.partitions]


def test_a_flush_waits_for_those_that_keep_coming_but_not_long(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    now_s = [0.0]
    monkeypatch.setattr(group_flush, "perf_counter", lambda: now_s[0])

    async def story(turn):
        for index in (0, 1, 2):
            bench.produce(turn, bench.partitions[index], "one")
            await asyncio.sleep(0)
        await quiet(turn)
        assert bench.disk.syncs == 1
        for _ in range(100):
            bench.produce(turn, bench.partitions[3], "endless")
            await asyncio.sleep(0)
        assert bench.disk.syncs == 1
        # Held up in its sync, so that it is seen however fast the disk is.
        bench.disk.gate.clear()
        now_s[0] += group_flush.GATHER_S_MAX
        for _ in range(3):
            bench.produce(turn, bench.partitions[3], "endless")
            await asyncio.sleep(0)
        assert turn.flushes._written is not None
        bench.disk.gate.set()

    bench.run(story)
    assert len(bench.told) == 106


def test_what_the_flush_journal_cannot_take_is_flushed_by_itself(tmp_path):
    bench = Bench(tmp_path)
    new = bench.store.create("new", 0, b"n" * 16, bench.partitions[0].config)

    async def story(turn):
        for partition in (*bench.partitions[:3], new):
            bench.produce(turn, partition, partition.topic)
        bench.produce(turn, bench.partitions[5], "large", 100_000)

    bench.run(story)
    assert bench.disk.syncs == 1
    assert new.log.durability.recovery_point == 1
    assert bench.partitions[5].log.durability.recovery_point == 2
    assert [p.log.durability.recovery_point for p in bench.partitions[:3]] == [1] * 3
    assert sorted(label for label, _, error in bench.told if error is None) == ["large", "new", "t", "t", "t"]


def test_after_a_failed_write_each_file_is_asked_then_and_for_ever(tmp_path):
    bench = Bench(tmp_path)
    bench.disk.error = OSError(errno.EIO, "lost")

    async def story(turn):
        for partition in bench.partitions[:3]:
            bench.produce(turn, partition, "first")
        await quiet(turn)
        bench.disk.error = None
        bench.produce(turn, bench.partitions[0], "next")

    bench.run(story)
    assert sorted(bench.told) == [("first", index, None) for index in range(3)] + [("next", 0, None)]
    assert bench.disk.syncs == 1
    assert bench.disk.file_syncs == 4
    assert bench.log.has_failed


def replace_flush(monkeypatch, partition, flush):
    """`flush()` instead of syncing the files of one partition."""
    others = Durability.flush

    def either(durability):
        return flush() if durability is partition.log.durability else others(durability)

    monkeypatch.setattr(Durability, "flush", either)


def test_a_partition_that_cannot_be_flushed_either_tells_its_own_and_takes_no_more(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    bench.disk.error = OSError(errno.EIO, "lost")
    bad = bench.partitions[1]

    def lost():
        raise SyncFailed(errno.EIO, "lost too")

    replace_flush(monkeypatch, bad, lost)

    async def story(turn):
        for partition in bench.partitions[:3]:
            bench.produce(turn, partition, "first")
        await quiet(turn)
        with pytest.raises(KafkaError):
            bench.stage(bad)

    bench.run(story)
    errors = {index: error for _, index, error in bench.told}
    assert (errors[0], errors[2]) == (None, None)
    assert errors[1].code == ErrorCode.KAFKA_STORAGE_ERROR
    assert bad.log.durable_offset == 1


def rescanned(bench, partition, *, without):
    """The disk fails, has not even what could be read, and a rescan brings back the rest."""
    partition.availability.take_offline("its disk has failed")
    segment = partition.log.active
    segment.file.open().truncate(segment.size_bytes - without)
    finish(bench.store.failing_disks.attending(NOW_MS))
    assert partition.is_available


@pytest.mark.parametrize("prepared", [True, False])
def test_who_waits_for_records_that_a_rescan_has_cut_off_meanwhile_is_told_an_error(tmp_path, prepared):
    bench = Bench(tmp_path, prepared=prepared)
    partition, beside = bench.partitions[:2]

    async def story(turn):
        for one in (partition, beside):
            bench.produce(turn, one, "before")
        await asyncio.sleep(0)
        assert partition.log_end_offset == 2
        assert bench.told == [], "they wait for a flush to come"
        rescanned(bench, partition, without=1)
        assert partition.log_end_offset == 1
        bench.produce(turn, partition, "in its place")

    bench.run(story)
    codes = {(label, index): error and error.code for label, index, error in bench.told}
    assert codes == {
        ("before", 0): ErrorCode.KAFKA_STORAGE_ERROR,
        ("before", 1): None,
        ("in its place", 0): None,
    }


def test_who_waits_for_the_log_before_a_rescan_is_told_an_error_though_a_block_has_the_one_after(tmp_path):
    bench = Bench(tmp_path)
    partition, beside = bench.partitions[:2]

    async def story(turn):
        bench.disk.gate.clear()
        bench.produce(turn, beside, "holds up the writer")
        async with asyncio.timeout(10):
            while bench.disk.syncs == 0:
                await asyncio.sleep(0.001)
        bench.produce(turn, partition, "before")
        await asyncio.sleep(0)
        rescanned(bench, partition, without=1)
        bench.stage(partition)
        partition.commit()
        partition.flush()
        bench.produce(turn, partition, "after")
        bench.disk.gate.set()

    bench.run(story)
    assert bench.disk.syncs == 2
    codes = {label: error and error.code for label, _, error in bench.told}
    assert codes == {
        "holds up the writer": None,
        "before": ErrorCode.KAFKA_STORAGE_ERROR,
        "after": None,
    }


def test_the_flush_journal_is_made_when_somebody_waits_for_the_disk_and_not_before(tmp_path):
    bench = Bench(tmp_path, prepared=False)

    async def story(turn):
        turn.flush_in_background(bench.partitions[0])
        await quiet(turn)
        assert not bench.log.is_ready
        bench.produce(turn, bench.partitions[1], "by itself")
        await quiet(turn)
        async with asyncio.timeout(10):
            while not bench.log.is_ready:
                await asyncio.sleep(0.001)
        bench.disk.file_syncs = 0
        bench.produce(turn, bench.partitions[1], "by the log")

    bench.run(story)
    assert [label for label, _, _ in bench.told] == ["by itself", "by the log"]
    assert bench.disk.file_syncs == 0


def test_a_full_file_is_used_again_after_its_partitions_were_flushed_while_others_go_on(tmp_path):
    bench = Bench(tmp_path)

    async def story(turn):
        for number in range(40):
            for partition in bench.partitions[number % 3 :: 3]:
                bench.produce(turn, partition, number)
            await asyncio.sleep(0)
            await quiet(turn)

    bench.run(story)
    assert len(bench.told) == 80
    assert all(error is None for _, _, error in bench.told)
    assert bench.log.generation >= 8
    assert all(partition.log.durability.recovery_point > 1 for partition in bench.partitions)


def run_with_a_retiring_partition_that_cannot_be_flushed(bench, monkeypatch, failures):
    """Rounds that fill the flush journal's files several times over; how often the flush of one was tried."""
    bad = bench.partitions[0]
    flush, tried = Durability.flush, []

    def full_at_first():
        tried.append(bench.log.generation)
        if len(tried) <= failures:
            raise OSError(errno.ENOSPC, "full")
        return flush(bad.log.durability)

    replace_flush(monkeypatch, bad, full_at_first)

    async def story(turn):
        bench.produce(turn, bad, "bad")
        await quiet(turn)
        for number in range(40):
            for partition in bench.partitions[1:]:
                bench.produce(turn, partition, number)
            await asyncio.sleep(0)
            await quiet(turn)
            async with asyncio.timeout(10):
                while turn.flushes._retiring:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)  # for a timer that is due

    bench.run(story)
    assert len(bench.told) == 201
    assert all(error is None for _, _, error in bench.told)
    return tried


def test_a_flush_that_fails_once_does_not_end_the_use_of_the_flush_journal(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(group_flush, "RETIRE_AGAIN_S", 0)
    bench = Bench(tmp_path)
    assert len(run_with_a_retiring_partition_that_cannot_be_flushed(bench, monkeypatch, failures=1)) == 2
    assert bench.log.generation >= 8
    ((said, *_),) = [record.args for record in caplog.records if record.name == "odradek.flush"]
    assert said == bench.log.directory


def test_a_flush_that_keeps_failing_is_tried_again_only_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(group_flush, "RETIRE_AGAIN_S", 3600)
    bench = Bench(tmp_path)
    assert len(run_with_a_retiring_partition_that_cannot_be_flushed(bench, monkeypatch, failures=100)) == 1
    assert bench.log.generation == 2


def test_two_data_directories_have_a_flush_journal_each(tmp_path):
    bench = Bench(tmp_path)
    other = LogStore(bench.disk, [str(tmp_path / "other")])
    other.flush_journals = [FlushJournal(bench.disk, str(tmp_path / "other"), file_bytes=4 * PAGE_BYTES)]
    other.open(NOW_MS)
    far = other.create("far", 0, b"f" * 16, bench.partitions[0].config)
    bench.stage(far)
    far.commit()
    far.flush()
    other.flush_journals[0].prepare()
    bench.store.flush_journals += other.flush_journals
    bench.disk.syncs = 0

    async def story(turn):
        bench.produce(turn, far, "far")
        bench.produce(turn, bench.partitions[0], "near")

    bench.run(story)
    assert sorted(bench.told) == [("far", 0, None), ("near", 0, None)]
    assert bench.disk.syncs == 2
    other.close(NOW_MS)


def test_without_it_many_partitions_are_flushed_by_few_workers_and_told_of_their_own_errors():
    partitions = [Partition(f"data/t-{i}") for i in range(30)]
    partitions[17].flush_error = OSError(errno.EIO, "lost")
    told = {}

    async def story():
        turn = Turn(asyncio.get_running_loop())
        try:
            for partition in partitions:
                turn.add(partition, lambda error, p=partition: told.update({p.directory: error}), FLUSHED)
            async with asyncio.timeout(10):
                while len(told) < 30:
                    await asyncio.sleep(0.001)
        finally:
            turn.close()

    asyncio.run(story())
    assert [p.flushes for p in partitions] == [1] * 30
    assert [name for name, error in told.items() if error is not None] == ["data/t-17"]


def test_a_clean_stop_leaves_no_flush_journal_and_a_killed_broker_needs_it(tmp_path):
    bench = Bench(tmp_path)

    async def story(turn):
        for partition in bench.partitions:
            bench.produce(turn, partition, "answered")

    bench.run(story)
    # As after a loss of power: what was only in the page cache is gone.
    for partition in bench.partitions:
        path = tmp_path / "data" / partition.name / f"{0:020d}.log"
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    bench.store._unlock()
    again = LogStore(OsDisk(), [str(tmp_path / "data")])
    again.open(NOW_MS)
    assert again.opening.restored_bytes
    assert [again.get("t", index).log_end_offset for index in range(6)] == [2] * 6
    again.close(NOW_MS)
    assert not list((tmp_path / "data").glob("flush-journal*"))


def test_leader_epochs_of_many_partitions_are_written_in_workers_each_not_beside_its_own_flush(tmp_path):
    bench = Bench(tmp_path, prepared=False)
    loop_thread = threading.get_ident()
    under_way, saved, threads = set(), [], set()
    first, *others = bench.partitions

    def alone(act):
        def acting(self):
            assert self not in under_way
            under_way.add(self)
            threads.add(threading.get_ident())
            act(self)
            under_way.remove(self)

        return acting

    async def story(turn):
        bench.produce(turn, first, "flushed")
        for epoch in (7, 8):
            for partition in bench.partitions:
                partition.log.leader_epochs.assign(epoch, partition.log_end_offset)
                turn.flushes.save_epochs(
                    partition, lambda error, one=partition: saved.append((one.index, error))
                )
            assert turn.is_flushing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Flushing, "flush", alone(Flushing.flush))
        patch.setattr(Flushing, "save_leader_epochs", alone(Flushing.save_leader_epochs))
        bench.run(story)
    assert sorted(saved) == [(index, None) for index in range(6) for _ in range(2)]
    assert loop_thread not in threads
    for partition in others:
        path = f"{partition.directory}/{LEADER_EPOCHS}"
        assert read_leader_epochs(bench.disk, path)[-1] == (8, partition.log_end_offset)


def test_leader_epochs_that_the_disk_does_not_take_are_an_error_for_who_waits(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    told = []

    def fail(self, *, sync=True):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(Durability, "save_leader_epochs", fail)

    async def story(turn):
        bench.partitions[0].log.leader_epochs.assign(7, 1)
        turn.flushes.save_epochs(bench.partitions[0], told.append)

    bench.run(story)
    assert [error.code for error in told] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert bench.partitions[0].is_available
