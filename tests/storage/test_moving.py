"""Moving a partition between data directories: while it is used, and killed at every point of it."""

import errno
from itertools import count

import pytest
import stores
from memory_disk import MemoryDisk, PowerLost
from stores import NOW_MS, offsets_of, value_at, write_checkpoints

from odradek.storage.config import LogConfig
from odradek.storage.directories import moving
from odradek.storage.directories.store import LogStore, StoreListener
from odradek.storage.disk import OsDisk
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch
from odradek.wire.work import finish

TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(reversed(TOPIC_ID))
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=1000)


class Told(StoreListener):
    def __init__(self):
        self.moves = []

    def moved(self, name, directory):
        self.moves.append((name, directory))

    def move_failed(self, name, directory, reason):
        self.moves.append((name, None))


def open_store(disk, directories=("one", "two"), **kwargs) -> LogStore:
    return stores.open_store(disk, *directories, listener=Told(), config_for=lambda topic: CONFIG, **kwargs)


def append(partition, count: int = 1, producer_id: int = -1) -> None:
    for _ in range(count):
        offset = partition.log.next_offset
        batch = build_batch(
            [Record(0, NOW_MS + offset, b"k", value_at(offset))],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=-1
            if producer_id < 0
            else partition.log.producers.producers[producer_id].last_sequence + 1
            if producer_id in partition.log.producers.producers
            else 0,
        )
        partition.appends.append(batch, now_ms=NOW_MS)
    partition.commit()


def move(store, now_ms=NOW_MS) -> None:
    """All the way: change over, the flush that a server does, and the old directory goes."""
    finish(store.relocation.moving(now_ms))
    for partition in store.flush_due(now_ms):
        partition.flush()
    finish(store.relocation.moving(now_ms))
    finish(store.maintaining(now_ms + 10_000))


def delete_records(store, partition, offset: int) -> int:
    """As a server answers it; where the log begins then."""
    start = partition.retention.delete_records(offset)
    assert finish(store.checkpointing.saving_starts([partition])) == []
    return start


def steps_of(work):
    """Do it, and stop after each step of the worker."""
    step, result = next(work), None
    while True:
        result = None if step is None else step()
        if step is not None:
            yield
        try:
            step = work.send(result)
        except StopIteration:
            return


def directories_of(disk, name="t-0"):
    return sorted(path.rpartition("/")[0] for path in disk.directories if path.rpartition("/")[2] == name)


@pytest.mark.parametrize("count", [0, 1, 5, 40])
@pytest.mark.parametrize("is_real", [False, True])
def test_a_partition_is_the_same_in_its_new_directory(tmp_path, is_real, count):
    disk = OsDisk() if is_real else MemoryDisk()
    paths = (str(tmp_path / "one"), str(tmp_path / "two")) if is_real else ("one", "two")
    store = open_store(disk, paths)
    partition = store.create("t", 0, TOPIC_ID, CONFIG)
    partition.follow_leader_epoch(3)
    append(partition, count, producer_id=7)
    partition.retention.delete_records(count // 2)
    in_flight = partition.read(count // 2, max_bytes=1).records
    store.relocation.begin("t", 0, paths[1])
    assert [one[:3] for one in store.relocation.moves()] == [(paths[1], "t", 0)]
    move(store)
    assert store.listener.moves == [("t-0", paths[1])]
    assert not store.relocation.has_moves
    assert store.get("t", 0) is partition
    assert partition.directory == f"{paths[1]}/t-0"
    assert offsets_of(partition) == list(range(count // 2, count))
    assert len(in_flight.tobytes()) == len(in_flight)
    assert not [name for name in disk.list(paths[0]) if name.startswith("t-0")]
    assert [name for name in disk.list(paths[1]) if name.startswith("t-0")] == ["t-0"]
    append(partition, 3, producer_id=7)
    epochs = partition.log.leader_epochs.entries()
    store.close(NOW_MS)
    partition = open_store(disk, paths).get("t", 0)
    assert partition.directory == f"{paths[1]}/t-0"
    assert offsets_of(partition) == list(range(count // 2, count + 3))
    assert partition.log.leader_epochs.entries() == epochs
    assert partition.log.producers.producers[7].last_sequence == count + 2


def test_a_move_keeps_the_rate_that_is_allowed_and_follows_its_change():
    store = open_store(MemoryDisk())
    partition = store.create("t", 0, TOPIC_ID, CONFIG)
    append(partition, 100)

    def copied_at(second: int) -> int:
        finish(store.relocation.moving(NOW_MS + 1000 * second))
        return next(store.relocation.moves())[3]

    store.relocation.allowance.change(500)
    store.relocation.begin("t", 0, "two")
    # Two seconds may be saved up; so may they after a clock was set ahead.
    assert [copied_at(second) for second in range(4)] == [1000, 1500, 2000, 2500]
    assert copied_at(3600) == 3500
    assert copied_at(3500) == 3500
    store.relocation.allowance.change(0)
    assert [copied_at(second) for second in (3501, 3502)] == [3500, 3500]
    append(partition, 5)
    store.relocation.allowance.change(2**63 - 1)
    move(store, NOW_MS + 3_503_000)
    assert store.listener.moves == [("t-0", "two")]
    assert offsets_of(partition) == list(range(105))


def test_moves_share_what_is_allowed():
    store = open_store(MemoryDisk())
    for index in range(2):
        append(store.create("t", index, TOPIC_ID, CONFIG), 30)
        store.relocation.begin(
            "t", index, "one" if store.get("t", index).directory.startswith("two") else "two"
        )
    store.relocation.allowance.change(1000)
    size_bytes = sum(store.get("t", index).size_bytes for index in range(2))
    for second in range(size_bytes // 1000 + 1):
        finish(store.relocation.moving(NOW_MS + 1000 * second))
        assert sum(one[3] for one in store.relocation.moves()) <= 2000 + 1000 * second
    assert len(store.listener.moves) == 2


def test_what_happens_during_a_move_is_in_the_copy(monkeypatch):
    """Appends, rolls, retention, DeleteRecords: all between the steps of the copying."""
    monkeypatch.setattr(moving, "COPIED_BYTES", 100)
    monkeypatch.setattr(moving, "REST_BYTES_MAX", 0)
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, CONFIG)
    append(partition, 30)
    store.relocation.begin("t", 0, "two")
    work = store.relocation.moving(NOW_MS)
    step, number = next(work), 0
    while True:
        number += 1
        if number < 40:
            append(partition)
            if number % 9 == 0:
                partition.retention.delete_records(partition.log_start_offset + 5)
                finish(store.maintaining(NOW_MS))
        try:
            result = step() if step is not None else None
        except OSError as error:
            step = work.throw(error)
            continue
        try:
            step = work.send(result)
        except StopIteration:
            break
    move(store)
    assert store.listener.moves == [("t-0", "two")]
    start, end = partition.log_start_offset, partition.log_end_offset
    assert (start > 10, end) == (True, 69)
    assert offsets_of(partition) == list(range(start, end))
    disk.held.clear()
    partition = open_store(disk).get("t", 0)
    assert (partition.log_start_offset, partition.log_end_offset) == (start, end)
    assert offsets_of(partition) == list(range(start, end))


def test_an_append_that_is_staged_when_the_log_changes_over_is_committed_in_the_new_place():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, CONFIG)
    append(partition, 3)
    for _ in range(9):  # beyond the end of the segment
        offset = partition.log.next_offset
        batch = build_batch([Record(0, NOW_MS + offset, b"k", value_at(offset))])
        partition.appends.append(batch, now_ms=NOW_MS)
    store.relocation.begin("t", 0, "two")
    finish(store.relocation.moving(NOW_MS))
    partition.commit()
    move(store)
    assert offsets_of(partition) == list(range(12))
    disk.held.clear()
    partition = open_store(disk).get("t", 0)
    assert (partition.directory, offsets_of(partition)) == ("two/t-0", list(range(12)))


@pytest.mark.deep
@pytest.mark.parametrize("loses_power", [False, True])
def test_a_crash_at_any_point_leaves_one_whole_partition(loses_power):
    """Before the move, flushed; after its change over, appended and flushed more: nothing of it is lost."""
    points = 0
    for point in range(1, 400):
        disk = MemoryDisk()
        store = open_store(disk)
        partition = store.create("t", 0, TOPIC_ID, CONFIG)
        append(partition, 12)
        partition.retention.delete_records(3)
        finish(store.checkpointing.saving_starts([partition]))
        partition.flush()
        safe = 12
        disk.lose_power_at = disk.operations + point
        try:
            store.relocation.begin("t", 0, "two")
            finish(store.relocation.moving(NOW_MS))
            append(partition, 4)
            partition.flush()
            safe = 16
            finish(store.relocation.moving(NOW_MS))
            finish(store.maintaining(NOW_MS + 5000))
        except PowerLost:
            points += 1
        else:
            break
        for seed in range(4) if loses_power else (0,):
            after = disk.lose_power(seed) if loses_power else disk
            after.lose_power_at = None
            after.held.clear()
            again = open_store(after)
            found = again.get("t", 0)
            assert found.log_start_offset == 3
            end = found.log_end_offset
            assert safe <= end <= 16
            assert offsets_of(found) == list(range(3, end))
            assert len(directories_of(after)) == 1, (point, directories_of(after))
            assert not [name for path in ("one", "two") for name in after.list(path) if "-future" in name]
            # A move that was interrupted begins anew.
            move(again)
            assert found.directory in ("one/t-0", "two/t-0")
            assert offsets_of(found) == list(range(3, end))
            append(found, 2)
            again.close(NOW_MS)
            assert offsets_of(open_store(after).get("t", 0)) == list(range(3, end + 2))
    assert points > 30


@pytest.mark.deep
@pytest.mark.parametrize("source", ["one", "two"])
def test_nothing_that_was_answered_during_a_move_is_undone_by_a_crash(source):
    """Flushes until it changes over; afterwards DeleteRecords, checkpoints, one append without a flush."""
    target = "two" if source == "one" else "one"
    options = {"topic_id_for": lambda topic, index: TOPIC_ID, "config_for": lambda topic: LogConfig()}
    for point in count(1):
        disk = MemoryDisk()
        store = stores.open_store(disk, "one", "two", **options)
        if source == "two":
            store.create("other", 0, TOPIC_ID, LogConfig())
        partition = store.create("t", 0, TOPIC_ID, LogConfig())
        assert partition.directory == f"{source}/t-0"
        append(partition, 12)
        partition.flush()
        start = asked = delete_records(store, partition, 3)
        flushed = 12
        disk.lose_power_at = disk.operations + point
        try:
            store.relocation.begin("t", 0, target)
            for _ in steps_of(store.relocation.moving(NOW_MS)):
                append(partition)
                partition.flush()
                flushed = partition.log_end_offset
            assert partition.directory == f"{target}/t-0"
            append(partition)
            for asked in (4, 6):
                start = delete_records(store, partition, asked)
                write_checkpoints(store)
            append(partition, 2)
            partition.flush()
            flushed = partition.log_end_offset
            move(store)
        except PowerLost:
            pass
        else:
            break
        for seed in (0, 1, 2, 3, 4, 5, None):
            after = disk if seed is None else disk.lose_power(seed)
            after.lose_power_at = None
            after.held.clear()
            again = stores.open_store(after, "one", "two", **options)
            found = again.get("t", 0)
            assert start <= found.log_start_offset <= asked, (point, seed)
            assert flushed <= found.log_end_offset, (point, seed)
            assert offsets_of(found) == list(range(found.log_start_offset, found.log_end_offset))
            assert len(directories_of(after)) == 1, (point, seed)
    assert point > 60
    assert directories_of(disk) == [target]


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("deletes", ["before", "after"])
def test_deleted_records_stay_deleted_when_a_stop_meets_the_old_directory(deletes, is_clean):
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, CONFIG)
    append(partition, 10)
    partition.flush()
    if deletes == "before":
        delete_records(store, partition, 6)
    store.relocation.begin("t", 0, "two")
    finish(store.relocation.moving(NOW_MS))
    assert directories_of(disk) == ["one", "two"]
    if deletes == "after":
        delete_records(store, partition, 6)
    if is_clean:
        store.close(NOW_MS)
        assert directories_of(disk) == ["two"]
    else:
        write_checkpoints(store)
        disk.held.clear()
    store = open_store(disk)
    assert store.opening.was_clean is is_clean
    assert offsets_of(store.get("t", 0)) == [6, 7, 8, 9]
    # Nor does it matter that the new name never reached the disk.
    after = MemoryDisk.of({path: bytes(inode.data) for path, inode in disk.files.items()})
    assert offsets_of(open_store(after).get("t", 0)) == [6, 7, 8, 9]


def test_where_a_loss_of_power_takes_the_new_directory_the_old_one_has_what_its_checkpoints_say():
    """The gaps of compaction before the recovery point are no losses; what is deleted stays deleted."""
    disk = MemoryDisk()
    policies = frozenset({"compact", "delete"})
    config = LogConfig(cleanup_policy=policies, segment_bytes=400, min_cleanable_dirty_ratio=0.01)
    store = stores.open_store(disk, "one", "two", config_for=lambda topic: config)
    partition = store.create("t", 0, TOPIC_ID, config)
    append(partition, 20)
    partition.flush()
    write_checkpoints(store)
    while store.compact(NOW_MS):
        pass
    partition.flush()
    kept = offsets_of(partition)
    assert kept != list(range(20)), "compaction has made gaps"
    store.relocation.begin("t", 0, "two")
    finish(store.relocation.moving(NOW_MS))
    start = kept[1]
    delete_records(store, partition, start)
    write_checkpoints(store)
    left = {path: bytes(inode.data) for path, inode in disk.files.items() if not path.startswith("two/t-0/")}
    store = stores.open_store(MemoryDisk.of(left), "one", "two", config_for=lambda topic: config)
    found = store.get("t", 0)
    assert (found.directory, found.log_start_offset) == ("one/t-0", start)
    assert offsets_of(found) == kept[1:]


@pytest.mark.parametrize("source", ["one", "two"])
def test_a_copy_that_has_the_length_without_the_bytes_is_not_the_longer_one(source):
    """What was copied at the change over is not flushed: a loss of power may leave but the size of a file."""
    disk = MemoryDisk()
    store = open_store(disk)
    if source == "two":
        store.create("other", 0, TOPIC_ID, CONFIG)
    partition = store.create("t", 0, TOPIC_ID, LogConfig())
    append(partition, 5)
    store.relocation.begin("t", 0, "two" if source == "one" else "one")
    for number, _ in enumerate(steps_of(store.relocation.moving(NOW_MS))):
        append(partition, number == 0)
    copied_bytes = partition.size_bytes
    partition_bytes = copied_bytes // 6
    append(partition, 3)
    log = disk.files[f"{partition.directory}/{0:020d}.log"].data
    log[copied_bytes - partition_bytes :] = bytes(len(log) - copied_bytes + partition_bytes)
    disk.held.clear()
    store = LogStore(disk, ["one", "two"])
    assert store.open(NOW_MS) == {}, "nothing of it is said to be cut"
    found = store.get("t", 0)
    assert found.directory == f"{source}/t-0"
    assert offsets_of(found) == [0, 1, 2, 3, 4, 5]


def test_an_old_directory_of_which_a_part_is_removed_does_not_come_back():
    """Its new name is on the disk before a file of it goes."""
    for point in count(1):
        disk = MemoryDisk()
        store = open_store(disk)
        partition = store.create("t", 0, TOPIC_ID, CONFIG)
        append(partition, 20)
        partition.flush()
        store.relocation.begin("t", 0, "two")
        finish(store.relocation.moving(NOW_MS))
        partition.flush()
        disk.lose_power_at = disk.operations + point
        try:
            move(store)
        except PowerLost:
            pass
        else:
            break
        for seed in range(8):
            found = open_store(disk.lose_power(seed)).get("t", 0)
            assert offsets_of(found) == list(range(20)), (point, seed)
    assert directories_of(disk) == ["two"]


def test_an_old_directory_that_cannot_be_renamed_is_tried_again():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, CONFIG)
    append(partition, 10)
    store.relocation.begin("t", 0, "two")
    disk.fail = lambda operation, path: errno.EIO if operation == "rename" and "-delete" in path else None
    move(store)
    assert (directories_of(disk), store.relocation.has_moves) == (["one", "two"], True)
    delete_records(store, partition, 6)
    disk.fail = lambda operation, path: None
    move(store)
    assert (directories_of(disk), store.relocation.has_moves) == (["two"], False)
    write_checkpoints(store)
    assert b"t 0" not in disk.files["one/log-start-offset-checkpoint"].data


def test_a_data_directory_with_an_old_one_that_cannot_be_renamed_was_not_stopped_cleanly():
    disk = MemoryDisk()
    store = open_store(disk)
    append(store.create("t", 0, TOPIC_ID, CONFIG), 10)
    store.relocation.begin("t", 0, "two")
    finish(store.relocation.moving(NOW_MS))
    disk.fail = lambda operation, path: errno.EIO if operation == "rename" and "-delete" in path else None
    store.close(NOW_MS)
    disk.fail = lambda operation, path: None
    assert [disk.exists(f"{path}/.kafka_cleanshutdown") for path in ("one", "two")] == [False, True]
    assert offsets_of(open_store(disk).get("t", 0)) == list(range(10))


def test_a_move_that_was_given_up_takes_nothing_from_one_to_the_same_place():
    disk = MemoryDisk()
    store = open_store(disk, ("one", "two", "three"))
    partition = store.create("t", 0, TOPIC_ID, CONFIG)
    append(partition, 10)
    delete_records(store, partition, 6)
    for target in ("two", "three", "two"):
        store.relocation.begin("t", 0, target)
    finish(store.relocation.moving(NOW_MS))
    assert partition.directory == "two/t-0"
    for home in store.places.homes.values():
        home.want()
        home.write()
    disk.held.clear()
    assert offsets_of(open_store(disk, ("one", "two", "three")).get("t", 0)) == [6, 7, 8, 9]


@pytest.mark.parametrize("counts", [(2, 5), (5, 2), (3, 3)])
def test_two_directories_with_other_records_are_both_kept(counts):
    """As when one was away and the partition was made anew without it: neither is thrown away unseen."""
    disk, told = MemoryDisk(), []
    for number, (home, length) in enumerate(zip(("one", "two"), counts, strict=True)):
        store = LogStore(disk, [home])
        store.open(NOW_MS)
        stores.append(store.create("t", 0, TOPIC_ID, CONFIG), length, timestamp=NOW_MS + number)
        store.close(NOW_MS)
    listener = StoreListener()
    listener.damage = told.append
    store = LogStore(disk, ["one", "two"], listener=listener)
    store.open(NOW_MS)
    stays, goes = ("two", "one") if counts[1] > counts[0] else ("one", "two")
    assert store.get("t", 0).directory == f"{stays}/t-0"
    assert store.get("t", 0).log_end_offset == max(counts)
    (sentence,) = told
    assert sentence.startswith(f"{goes}/t-0 and {stays}/t-0 are the same partition with different records")
    (kept,) = [path for path in disk.directories if path.endswith("-stray")]
    assert kept in sentence
    store.close(NOW_MS)
    # Somebody takes what is longer away, and wants the other one.
    disk.rename(f"{stays}/t-0", f"{stays}/aside")
    disk.rename(kept, f"{goes}/t-0")
    again = LogStore(disk, ["one", "two"])
    again.open(NOW_MS)
    assert again.get("t", 0).log_end_offset == min(counts)


@pytest.mark.parametrize("seed", range(8))
def test_a_moved_partition_whose_first_flush_failed_is_safe_before_the_old_directory_goes(seed):
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, CONFIG)
    append(partition, 6)
    partition.flush()
    store.relocation.begin("t", 0, "two")
    finish(store.relocation.moving(NOW_MS))
    failing = iter([errno.EIO])
    disk.fail = lambda operation, path: next(failing, None) if operation == "sync" else None
    append(partition)
    with pytest.raises(KafkaError):
        partition.flush()
    finish(store.failing_disks.attending(NOW_MS))
    assert partition.is_available
    partition.flush()
    finish(store.relocation.moving(NOW_MS))
    finish(store.maintaining(NOW_MS + 60_000))
    assert directories_of(disk) == ["two"]
    again = open_store(disk.lose_power(seed))
    assert offsets_of(again.get("t", 0)) == list(range(7))


def test_a_move_that_was_interrupted_is_taken_up_by_the_next_start():
    disk = MemoryDisk()
    store = open_store(disk)
    append(store.create("t", 0, TOPIC_ID, CONFIG), 20)
    store.relocation.begin("t", 0, "two")
    work = store.relocation.moving(NOW_MS)
    for _ in range(3):
        step = next(work)
        if step is not None:
            step()
    disk.held.clear()
    store = open_store(disk)
    assert store.relocation.has_moves
    move(store)
    assert store.get("t", 0).directory == "two/t-0"
    assert offsets_of(store.get("t", 0)) == list(range(20))


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "mkdir"])
def test_a_move_to_a_disk_that_fails_leaves_the_partition_where_it_is(operation):
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, CONFIG)
    append(partition, 20)
    store.relocation.begin("t", 0, "two")
    disk.fail = lambda done, path: errno.EIO if done == operation and path.startswith("two/t-0") else None
    finish(store.relocation.moving(NOW_MS))
    disk.fail = lambda done, path: None
    finish(store.relocation.moving(NOW_MS))
    assert store.listener.moves == [("t-0", None)]
    assert not store.relocation.has_moves
    assert partition.directory == "one/t-0"
    append(partition, 2)
    assert offsets_of(partition) == list(range(22))
    assert disk.list("two") == [name for name in disk.list("two") if "t-0" not in name]


def test_a_partition_goes_to_and_fro():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, CONFIG)
    for number in range(6):
        append(partition, 5)
        target = "one" if number % 2 else "two"
        store.relocation.begin("t", 0, target)
        for _ in range(4):
            finish(store.relocation.moving(NOW_MS))
            if not store.relocation.has_moves:
                break
            if number < 5:
                break  # the next move begins before the old directory of this one is gone
            for one in store.flush_due(NOW_MS):
                one.flush()
        assert offsets_of(partition) == list(range(5 * number + 5))
    move(store)
    assert not store.relocation.has_moves
    assert partition.directory == "one/t-0"
    assert directories_of(disk) == ["one"]
    assert store.listener.moves[-1] == ("t-0", "one")


def test_a_move_can_be_taken_back():
    disk = MemoryDisk()
    store = open_store(disk)
    partition = store.create("t", 0, TOPIC_ID, CONFIG)
    append(partition, 20)
    store.relocation.begin("t", 0, "two")
    store.relocation.begin("t", 0, "one")
    move(store)
    assert (partition.directory, store.relocation.has_moves) == ("one/t-0", False)
    store.relocation.begin("t", 0, "one")
    assert not store.relocation.has_moves


def test_a_topic_that_is_deleted_during_its_move_is_gone_in_both_directories():
    disk = MemoryDisk()
    store = open_store(disk)
    append(store.create("t", 0, TOPIC_ID, CONFIG), 20)
    store.relocation.begin("t", 0, "two")
    work = store.relocation.moving(NOW_MS)
    step = next(work)
    store.delete("t", 0)
    fresh = store.create("t", 0, OTHER_ID, CONFIG)
    try:
        while True:
            try:
                step = work.send(step() if step is not None else None)
            except OSError as error:
                step = work.throw(error)
    except StopIteration:
        pass
    move(store, NOW_MS + 100_000)
    append(fresh, 2)
    assert offsets_of(fresh) == [0, 1]
    names = [name for path in ("one", "two") for name in disk.list(path) if name.startswith("t-0")]
    assert names == ["t-0"]


def test_a_topic_that_is_deleted_after_the_change_over_is_gone_in_both_directories():
    disk = MemoryDisk()
    store = open_store(disk)
    append(store.create("t", 0, TOPIC_ID, CONFIG), 20)
    store.relocation.begin("t", 0, "two")
    finish(store.relocation.moving(NOW_MS))
    store.delete("t", 0)
    fresh = store.create("t", 0, OTHER_ID, CONFIG)
    append(fresh, 2)
    move(store, NOW_MS + 100_000)
    finish(store.maintaining(NOW_MS + 200_000))
    assert offsets_of(fresh) == [0, 1]
    disk.held.clear()
    found = open_store(disk, topic_id_for=lambda topic, index: OTHER_ID).get("t", 0)
    assert (found.topic_id, offsets_of(found)) == (OTHER_ID, [0, 1])


def test_what_is_moved_before_it_is_made_is_made_there():
    store = open_store(MemoryDisk())
    with pytest.raises(KafkaError) as refused:
        store.relocation.begin("t", 0, "two")
    assert refused.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
    assert store.create("t", 0, TOPIC_ID, CONFIG).directory == "two/t-0"
    assert store.create("u", 0, TOPIC_ID, CONFIG).directory == "one/u-0"


def test_compaction_leaves_a_partition_alone_that_is_moved():
    store = open_store(MemoryDisk())
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_bytes=400, min_cleanable_dirty_ratio=0.01
    )
    partition = store.create("t", 0, TOPIC_ID, config)
    append(partition, 20)
    partition.flush()
    write_checkpoints(store)
    store.relocation.begin("t", 0, "two")
    assert not store.compact(NOW_MS)
    move(store)
    partition.flush()
    assert store.compact(NOW_MS)
