"""Disks that fail: a partition comes back by a rescan, a directory takes only its own partitions offline."""

import errno
import random
from itertools import count

import pytest
import stores
from memory_disk import MemoryDisk
from stores import NOW_MS, append, offsets_of, value_at, write_checkpoints

from odradek.storage.config import LogConfig
from odradek.storage.directories.failing_disks import Role
from odradek.storage.directories.store import LogStore, StoreListener
from odradek.storage.log.flush_journal import PAGE_BYTES, FlushJournal
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch
from odradek.wire.work import finish

TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(reversed(TOPIC_ID))
LATER_MS = NOW_MS + 60_000


class TellingDisk(MemoryDisk):
    """Whose `fail` hears of each listing, too."""

    def list(self, path):
        self.fail("list", path)
        return super().list(path)


class Meanwhile:
    """What the loop does while a worker is at the `number`th operation that it asks of the disk. When that is
    asked under a lock, as which this serves, it is done as the lock is given back: the loop wants it, too.
    """

    def __init__(self, number, action):
        self.left, self.action = number, action
        self.locks_held = 0
        self.is_in_worker = self.is_done = False

    def __enter__(self):
        self.locks_held += 1

    def __exit__(self, *_):
        self.locks_held -= 1
        self._act_if_due()

    def asked(self, operation, path):
        self.left -= self.is_in_worker
        self._act_if_due()

    def _act_if_due(self):
        if self.left <= 0 and self.is_in_worker and not self.locks_held and not self.is_done:
            self.is_done, self.is_in_worker = True, False
            self.action()
            self.is_in_worker = True

    def during(self, work):
        """The same work, whose steps for the worker are known to be there."""
        result = error = None
        while True:
            try:
                step = work.send(result) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value
            result = error = None
            if step is None:
                yield None
                continue
            self.is_in_worker = True
            try:
                result = yield step
            except OSError as raised:
                error = raised
            self.is_in_worker = False


class Told(StoreListener):
    """Remembers what the store tells."""

    def __init__(self):
        self.directories = []
        self.partitions = []
        self.strays = []
        self.troubles = 0
        self.said = []

    def stray(self, topic, index, path):
        self.strays.append((topic, index))

    def trouble(self):
        self.troubles += 1

    def failed(self, path, sentence):
        self.said.append(("failed", path, sentence))

    def offline(self, sentence):
        self.said.append(("offline", sentence))

    def still_offline(self, name, reason):
        self.said.append(("still offline", name, reason))

    def directory(self, path, failure):
        self.directories.append((path, failure is None))

    def recovered(self, name, cut_bytes):
        self.partitions.append((name, cut_bytes))


def open_store(disk, *directories: str, **kwargs) -> LogStore:
    return stores.open_store(disk, *directories, listener=Told(), **kwargs)


def refusal(call) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code


def attend(store, now_ms=LATER_MS) -> None:
    finish(store.failing_disks.attending(now_ms))


def break_flush(disk, partition, part=".log") -> None:
    """A flush that fails, once: as far as the kernel goes the pages are clean afterwards."""
    disk.fail = lambda operation, path: errno.EIO if operation == "sync" and part in path else None
    assert refusal(partition.flush) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = lambda operation, path: None


def make_anew(store, config) -> None:
    store.delete("t", 0)
    fresh = store.create("t", 0, OTHER_ID, config)
    append(fresh, 5)
    fresh.flush()


# Rescans


@pytest.mark.parametrize("flushed", [0, 1, 4, 9])
@pytest.mark.parametrize("segment_bytes", [100, 250, 10_000])
def test_a_partition_whose_flush_failed_comes_back_with_all_that_can_be_read(flushed, segment_bytes):
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=segment_bytes))
    if flushed:
        append(partition, flushed)
        partition.flush()
    append(partition, 10)
    break_flush(disk, partition)
    assert store.listener.troubles
    assert store.places.offline() == {("t", 0)}
    assert refusal(lambda: append(partition)) is ErrorCode.KAFKA_STORAGE_ERROR
    woken = []
    partition.watch(lambda: woken.append(partition.is_available))
    attend(store)
    assert store.get("t", 0) is partition
    assert store.listener.partitions == [("t-0", 0)]
    assert woken[-1]
    assert not store.failing_disks.needs_attention
    assert offsets_of(partition) == list(range(flushed + 10))
    append(partition, 3)
    partition.flush()
    assert offsets_of(partition) == list(range(flushed + 13))


def test_what_becomes_of_a_partition_whose_disk_fails_is_told_each_time():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition)
    disk.fail = lambda operation, path: errno.EIO if operation == "sync" and "t-0" in path else None
    assert refusal(partition.flush) is ErrorCode.KAFKA_STORAGE_ERROR
    said = store.listener.said
    ((what, sentence),) = said
    assert what == "offline"
    assert sentence.startswith("t-0 is offline: flushing data/t-0 failed: [Errno 5]")
    refusal(partition.flush)
    refusal(lambda: append(partition))
    assert len(said) == 1, "it is offline once"
    attend(store)
    attend(store, LATER_MS + 10_000)
    assert [one[:2] for one in said[1:]] == [("still offline", "t-0")] * 2
    disk.fail = lambda operation, path: None
    attend(store, LATER_MS + 20_000)
    assert store.listener.partitions == [("t-0", 0)]
    break_flush(disk, partition)
    assert said[3][0] == "offline", "and offline again"


def test_a_partition_that_a_start_cannot_open_is_told():
    disk = MemoryDisk()
    store = open_store(disk)
    append(store.create("t", 0, TOPIC_ID, LogConfig()))
    disk.held.clear()
    disk.fail = lambda operation, path: errno.EIO if operation == "read" and "t-0/0" in path else None
    store = open_store(disk)
    ((what, sentence),) = store.listener.said
    assert what == "offline"
    assert sentence.startswith("t-0 is offline: opening data/t-0 failed: ")


@pytest.mark.parametrize("operation", ["write", "mkdir"])
def test_what_a_full_disk_refuses_is_told(operation):
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    disk.fail = lambda operated, path: errno.ENOSPC if operated == operation else None
    if operation == "write":
        assert refusal(lambda: append(partition)) is ErrorCode.KAFKA_STORAGE_ERROR
    else:
        assert refusal(lambda: store.create("u", 0, TOPIC_ID, LogConfig())) is ErrorCode.KAFKA_STORAGE_ERROR
    ((what, path, sentence),) = store.listener.said
    assert (what, path) == ("failed", "data")
    assert "[Errno 28]" in sentence
    assert partition.is_available


@pytest.mark.parametrize("seed", range(60))
def test_after_a_rescan_the_disk_has_everything_that_is_served(seed):
    """The page cache is not believed: what comes back was written again, and survives a loss of power."""
    chance = random.Random(seed)
    disk = MemoryDisk()
    store = open_store(disk)
    config = LogConfig(segment_bytes=chance.choice((150, 400, 10_000)), index_interval_bytes=100)
    partition = store.create("t", 0, TOPIC_ID, config)
    append(partition, chance.randrange(1, 6))
    partition.flush()
    append(partition, chance.randrange(1, 12))
    break_flush(disk, partition)
    forget_unsynced(disk, chance)
    attend(store)
    served = offsets_of(partition)
    after = LogStore(disk.lose_power(seed), ["data"])
    after.open(NOW_MS)
    assert offsets_of(after.get("t", 0)) == served


def forget_unsynced(disk, chance) -> None:
    """What the kernel counted as clean makes room: memory has what the disk has, from then on."""
    for path, inode in disk.files.items():
        if path.endswith(".log") and chance.random() < 0.5:
            survivor = inode.after_power_loss(chance)
            inode.data[:] = survivor.data
            inode.pending.clear()
            inode.durable = bytes(survivor.data)


def test_what_memory_has_lost_is_cut_off_and_said():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition, 3)
    partition.flush()
    append(partition, 3)
    size_bytes = partition.size_bytes
    break_flush(disk, partition)
    data = disk.files["data/t-0/00000000000000000000.log"].data
    data[size_bytes * 5 // 6 - 3] ^= 1  # in the fifth batch
    attend(store)
    assert offsets_of(partition) == [0, 1, 2, 3]
    ((name, cut_bytes),) = store.listener.partitions
    assert (name, cut_bytes) == ("t-0", size_bytes // 6 * 2)
    append(partition)
    assert offsets_of(partition) == [0, 1, 2, 3, 4]


def test_what_was_flushed_is_never_cut_off():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition, 4)
    partition.flush()
    append(partition, 1)
    break_flush(disk, partition)
    data = disk.files["data/t-0/00000000000000000000.log"].data
    data[70] ^= 1
    attend(store)
    assert store.places.offline() == {("t", 0)}
    data[70] ^= 1
    attend(store, LATER_MS + 60_000)
    assert offsets_of(partition) == [0, 1, 2, 3, 4]


def test_what_only_the_flush_journal_has_is_put_back_by_a_rescan():
    disk = MemoryDisk()
    store = LogStore(disk, ["data"], listener=Told())
    store.flush_journals = [FlushJournal(disk, "data", file_bytes=8 * PAGE_BYTES)]
    store.open(NOW_MS)
    (log,) = store.flush_journals
    partition = store.create("t", 0, TOPIC_ID, LogConfig(flush_messages=1))
    append(partition, 2)
    partition.flush()
    log.prepare()
    append(partition, 3)
    block = log.begin([partition])
    block.write()
    log.finish(block, None)
    assert partition.log.durable_offset == 5
    break_flush(disk, partition)
    inode = disk.files["data/t-0/00000000000000000000.log"]
    inode.data[:] = inode.durable + bytes(len(inode.data) - len(inode.durable))
    attend(store)
    assert offsets_of(partition) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("is_written", [True, False])
def test_a_rescan_waits_for_what_is_on_its_way_to_the_flush_journal(is_written):
    """What the block has is put back then, and nothing of it has been cut off."""
    disk = MemoryDisk()
    store = LogStore(disk, ["data"], listener=Told())
    store.flush_journals = [FlushJournal(disk, "data", file_bytes=8 * PAGE_BYTES)]
    store.open(NOW_MS)
    (log,) = store.flush_journals
    partition = store.create("t", 0, TOPIC_ID, LogConfig(flush_messages=1))
    append(partition, 2)
    partition.flush()
    log.prepare()
    append(partition)
    block = log.begin([partition])
    break_flush(disk, partition)
    del disk.files["data/t-0/00000000000000000000.log"].data[-40:]
    attend(store)
    assert store.places.offline() == {("t", 0)}
    assert store.failing_disks.needs_attention
    if is_written:
        block.write()
    log.finish(block, None if is_written else OSError(errno.EIO, "lost"))
    attend(store, LATER_MS + 1000)
    end_offset = 3 if is_written else 2
    assert offsets_of(partition) == list(range(end_offset))
    assert partition.log.durable_offset <= end_offset
    batch = build_batch([Record(0, NOW_MS, b"k", value_at(end_offset))])
    assert partition.appends.append(batch, now_ms=NOW_MS).must_flush
    partition.commit()
    partition.flush()
    append(partition)
    block = log.begin([partition])
    assert (block is not None) is is_written
    if block is not None:
        block.write()
        log.finish(block, None)
        end_offset += 1
    for seed in range(20):
        after = LogStore(disk.lose_power(seed), ["data"])
        after.open(NOW_MS)
        found = offsets_of(after.get("t", 0))
        assert found == list(range(len(found)))
        assert len(found) > end_offset


def test_a_rescan_that_fails_is_tried_again_after_a_while():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition, 3)
    break_flush(disk, partition)
    disk.fail = lambda operation, path: errno.EIO if ".log.tmp" in path and operation == "sync" else None
    attend(store)
    assert store.failing_disks.needs_attention
    assert not any(path.endswith(".tmp") for path in disk.files)
    disk.fail = lambda operation, path: None
    attend(store, LATER_MS + 1)
    assert store.places.offline()
    attend(store, LATER_MS + 60_000)
    assert offsets_of(partition) == [0, 1, 2]
    assert not store.failing_disks.needs_attention


def test_a_read_in_flight_ends_though_a_rescan_replaces_its_file():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition, 5)
    records = partition.read(0, max_bytes=10_000).records
    break_flush(disk, partition)
    attend(store)
    assert len(records.tobytes()) == len(records)


def test_a_partition_that_is_deleted_while_it_is_offline_does_not_come_back():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition, 5)
    break_flush(disk, partition)
    work = store.failing_disks.attending(LATER_MS)
    step = next(work)  # the probe
    step = work.send(step())
    store.delete("t", 0)
    fresh = store.create("t", 0, OTHER_ID, LogConfig())
    try:
        result = step()
    except OSError as error:
        with pytest.raises(StopIteration):
            work.throw(error)
    else:
        with pytest.raises(StopIteration):
            work.send(result)
    assert store.get("t", 0) is fresh
    append(fresh, 2)
    assert offsets_of(fresh) == [0, 1]


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_topic_made_anew_at_any_moment_of_a_rescan_is_none_of_its_business(is_loaded):
    """A worker reads the partition's files again, by their paths; the loop deletes and makes topics."""
    config = LogConfig(segment_bytes=150)
    for number in count(1):
        disk = TellingDisk()
        meanwhile = Meanwhile(number, lambda: make_anew(store, config))  # noqa: B023 - done in this round
        options = {"new_lock": lambda meanwhile=meanwhile: meanwhile, "config_for": lambda topic: config}
        store = open_store(disk, **options)
        partition = store.create("t", 0, TOPIC_ID, config)
        append(partition, 9)
        partition.flush()
        partition.retention.delete_records(7)
        finish(store.checkpointing.saving_starts([partition]))
        append(partition, 1)
        if is_loaded:
            break_flush(disk, partition)
        else:
            disk.held.clear()
            disk.fail = lambda operation, path: errno.EIO if operation == "read" and "t-0/0" in path else None
            store = open_store(disk, **options)
        assert store.places.offline() == {("t", 0)}
        disk.fail = meanwhile.asked
        finish(meanwhile.during(store.failing_disks.attending(LATER_MS)))
        disk.fail = lambda operation, path: None
        if not meanwhile.is_done:
            break
        fresh = store.get("t", 0)
        assert offsets_of(fresh) == list(range(5)), number
        files = [name for name in disk.list("data/t-0") if name.endswith((".tmp", "sync-failed"))]
        assert not files, number
        append(fresh, 2)
        disk.held.clear()
        for found in (disk, disk.lose_power(number)):
            again = open_store(found, topic_id_for=lambda topic, index: OTHER_ID)
            partition = again.get("t", 0)
            assert (partition.topic_id, partition.log_start_offset) == (OTHER_ID, 0), number
            assert partition.log_end_offset >= 5, number
            assert offsets_of(partition) == list(range(partition.log_end_offset)), number
        assert "still offline" not in [one[0] for one in store.listener.said]
        assert (store.listener.partitions, store.places.offline()) == ([], set()), "nothing has come back"
    assert store.listener.partitions == [("t-0", 0)]
    assert number > 20


def test_a_restart_after_a_failed_flush_finds_the_same_as_a_rescan():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition, 5)
    break_flush(disk, partition)
    store.close(NOW_MS)
    assert not disk.exists("data/.kafka_cleanshutdown")
    store = open_store(disk)
    assert offsets_of(store.get("t", 0)) == [0, 1, 2, 3, 4]


# Directories


def spread(disk, **kwargs):
    """A store with a partition in each of two directories; `t-0` in "one"."""
    store = open_store(disk, "one", "two", **kwargs)
    for index in range(2):
        append(store.create("t", index, TOPIC_ID, LogConfig()), 3)
        store.get("t", index).flush()
    return store


def fail_in(directory, *, code=errno.EIO):
    """A disk that answers nothing below `directory`."""
    return lambda operation, path: code if path == directory or path.startswith(directory + "/") else None


@pytest.mark.parametrize("met_by", ["commit", "flush", "read", "maintenance", "checkpoint"])
def test_a_directory_that_fails_takes_only_its_own_partitions_offline(met_by):
    disk = MemoryDisk()
    store = spread(disk, open_files_max=1)
    lost, kept = store.get("t", 0), store.get("t", 1)
    append(lost, 1)
    disk.fail = fail_in("one")
    if met_by == "commit":
        assert refusal(lambda: append(lost)) is ErrorCode.KAFKA_STORAGE_ERROR
    elif met_by == "flush":
        assert refusal(lost.flush) is ErrorCode.KAFKA_STORAGE_ERROR
    elif met_by == "read":
        lost.log.reader.segments_changed()
        assert refusal(lambda: lost.read(0, max_bytes=1)) is ErrorCode.KAFKA_STORAGE_ERROR
    elif met_by == "maintenance":
        lost.set_config(LogConfig(retention_ms=1))
        finish(store.maintaining(LATER_MS - 1))
    else:
        write_checkpoints(store)
    attend(store)
    assert store.listener.directories == [("one", False)]
    assert list(store.failing_disks.failures) == ["one"]
    assert store.places.offline() == {("t", 0)}
    for refuses in (lambda: append(lost), lambda: lost.read(0, max_bytes=1), lost.flush):
        assert refusal(refuses) is ErrorCode.KAFKA_STORAGE_ERROR
    append(kept, 2)
    kept.flush()
    assert offsets_of(kept) == [0, 1, 2, 3, 4]
    finish(store.maintaining(LATER_MS))
    assert store.create("t", 2, TOPIC_ID, LogConfig()).directory == "two/t-2"
    assert [directory for directory, *_ in store.places.sizes()] == ["two", "two"]


def test_partitions_come_back_when_the_disk_answers_again():
    disk = MemoryDisk()
    store = spread(disk)
    lost = store.get("t", 0)
    append(lost, 1)
    disk.fail = fail_in("one")
    assert refusal(lost.flush) is ErrorCode.KAFKA_STORAGE_ERROR
    attend(store)
    attend(store, LATER_MS + 1000)
    assert store.places.offline() == {("t", 0)}
    disk.fail = lambda operation, path: None
    attend(store, LATER_MS + 2000)
    assert store.listener.directories == [("one", False), ("one", True)]
    assert store.places.offline() == set()
    assert offsets_of(lost) == [0, 1, 2, 3]
    append(lost)
    store.close(NOW_MS)
    assert offsets_of(open_store(disk, "one", "two").get("t", 0)) == [0, 1, 2, 3, 4]


def test_an_error_of_a_sound_disk_takes_nothing_offline():
    disk = MemoryDisk()
    store = spread(disk)
    partition = store.get("t", 0)
    for code in (errno.ENOSPC, errno.EMFILE, errno.EIO):
        disk.fail = lambda operation, path, code=code: (
            code if operation == "write" and path.endswith(".log") else None
        )
        assert refusal(lambda: append(partition)) is ErrorCode.KAFKA_STORAGE_ERROR
        attend(store)
        assert store.places.offline() == set()
    disk.fail = lambda operation, path: None
    append(partition)
    assert offsets_of(partition) == [0, 1, 2, 3]


def test_a_full_disk_is_no_failed_one():
    disk = MemoryDisk()
    store = spread(disk)
    disk.room_bytes = 0
    store.places.suspect("one", OSError(errno.EIO, "once"))
    attend(store)
    assert store.failing_disks.failures == {}


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_directory_that_cannot_be_opened_is_left_out_until_the_next_start(is_clean):
    disk = MemoryDisk()
    store = spread(disk)
    if is_clean:
        store.close(NOW_MS)
    disk.held.clear()
    disk.fail = fail_in("one", code=errno.EACCES)
    store = open_store(disk, "one", "two")
    assert list(store.failing_disks.failures) == ["one"]
    assert store.places.has_unopened
    assert store.places.names() == [("t", 1)]
    append(store.get("t", 1))
    store.close(NOW_MS)
    disk.fail = lambda operation, path: None
    store = open_store(disk, "one", "two")
    assert (offsets_of(store.get("t", 0)), offsets_of(store.get("t", 1))) == ([0, 1, 2], [0, 1, 2, 3])


def test_a_start_fails_when_no_directory_can_be_opened():
    disk = MemoryDisk()
    spread(disk)
    disk.held.clear()
    disk.fail = lambda operation, path: errno.EACCES
    with pytest.raises(OSError, match="Permission"):
        open_store(disk, "one", "two")


def test_one_partition_that_cannot_be_opened_does_not_keep_the_others_from_it():
    disk = MemoryDisk()
    store = open_store(disk)
    for index in range(3):
        append(store.create("t", index, TOPIC_ID, LogConfig()), 2)
    disk.held.clear()
    disk.fail = lambda operation, path: errno.EIO if "data/t-1/" in path and operation == "read" else None
    store = open_store(disk)
    assert refusal(lambda: store.get("t", 1)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert store.places.offline() == {("t", 1)}
    assert offsets_of(store.get("t", 2)) == [0, 1]
    disk.fail = lambda operation, path: None
    attend(store)
    assert offsets_of(store.get("t", 1)) == [0, 1]


def test_a_topic_made_anew_finds_another_place_and_stays_its_own_when_the_old_directory_is_back():
    disk = MemoryDisk()
    store = spread(disk)
    disk.fail = fail_in("one")
    assert refusal(lambda: append(store.get("t", 0))) is ErrorCode.KAFKA_STORAGE_ERROR
    attend(store)
    assert refusal(lambda: store.delete("t", 0)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert store.get("t", 0) is None
    fresh = store.create("t", 0, OTHER_ID, LogConfig())
    assert fresh.directory == "two/t-0"
    append(fresh, 1)
    disk.fail = lambda operation, path: None
    disk.held.clear()
    store = open_store(disk, "one", "two", topic_id_for=lambda topic, index: OTHER_ID if index == 0 else None)
    partition = store.get("t", 0)
    assert (partition.topic_id, partition.directory, offsets_of(partition)) == (OTHER_ID, "two/t-0", [0])
    assert store.listener.strays == [("t", 0)]


def of_cluster(store, *, leads, has_substitute):
    """As a node of a cluster has it."""
    store.failing_disks.are_given_up = True
    store.failing_disks.role_of = lambda key: Role(leads, has_substitute)
    return store


ROLES = [(leads, has_substitute) for leads in (True, False) for has_substitute in (True, False)]


@pytest.mark.parametrize(("leads", "has_substitute"), ROLES)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_a_directory_whose_disk_refuses_a_write_is_given_up_by_a_leader_in_whose_place_another_may_lead(
    leads, has_substitute, code
):
    """Also where the disk as a whole is sound. That the process has too much open is not the disk's fault."""
    disk = MemoryDisk()
    store = of_cluster(spread(disk), leads=leads, has_substitute=has_substitute)
    partition = store.get("t", 0)
    disk.fail = lambda operation, path: code if operation == "write" and path.endswith(".log") else None
    assert refusal(lambda: append(partition)) is ErrorCode.KAFKA_STORAGE_ERROR
    attend(store)
    is_given_up = leads and has_substitute and code != errno.EMFILE
    assert list(store.failing_disks.failures) == (["one"] if is_given_up else [])
    disk.fail = lambda operation, path: None
    attend(store)
    assert partition.is_available is not is_given_up
    assert store.failing_disks.may_return(("t", 0)) is not is_given_up
    assert not store.failing_disks.needs_attention


@pytest.mark.parametrize(("leads", "has_substitute"), ROLES)
def test_records_that_a_node_of_a_cluster_has_promised_and_lost_cost_it_the_directory(leads, has_substitute):
    """Until its next start: as a leader it would give their offsets, in the same epoch, to other records; and
    it must not lead before it has fetched them again."""
    disk = MemoryDisk()
    store = of_cluster(spread(disk), leads=leads, has_substitute=has_substitute)
    partition = store.get("t", 0)
    partition.flush()
    end_offset = partition.log_end_offset
    append(partition, 2)
    break_flush(disk, partition)
    data = disk.files[f"{partition.directory}/00000000000000000000.log"].data
    data[-3] ^= 1
    attend(store)
    is_given_up = leads or has_substitute
    assert list(store.failing_disks.failures) == (["one"] if is_given_up else [])
    if not is_given_up:
        assert offsets_of(partition) == list(range(end_offset + 1))
    store.close(NOW_MS)
    assert disk.exists("two/.kafka_cleanshutdown")
    assert disk.exists("one/.kafka_cleanshutdown") is not is_given_up
