"""The metadata log on the disk: epochs, appends, snapshots, and what fetchers get."""

from __future__ import annotations

import errno
import json
import os
import pathlib

import pytest

from odradek.config.config_error import ConfigError
from odradek.coordinator.controller.log import EpochEnd, SnapshotId
from odradek.server.metadata.meta_properties import METADATA_LOG as DIRECTORY
from odradek.server.metadata.metadata_log import (
    DiskMetadataLog,
    MetadataLogSettings,
    ThisVoter,
)
from odradek.server.metadata.metadata_snapshots import (
    BOOTSTRAP,
    file_name_of,
)
from odradek.storage.disk import OsDisk
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata_records import (
    BeginTransactionRecord,
    ControlRecord,
    EndTransactionRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    NoOpRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    UserScramCredentialRecord,
    VotersRecord,
    records_of_batch,
)
from odradek.wire.records import iter_batches
from odradek.wire.work import finish
from tests.server.metadata_logs import (
    LEVEL,
    PATH,
    VOTER,
    copy_of,
    image_of,
    level,
    new_disk,
    opened,
    setting,
    settings_of,
    settings_records,
    write_bootstrap_snapshot,
)
from tests.storage.memory_disk import MemoryDisk


def kinds(log: DiskMetadataLog) -> list[list[str]]:
    """Names of the records of each batch."""
    return [[type(record).__name__ for record in batch.records] for batch in log.batches()]


def test_a_new_log_begins_as_kafkas() -> None:
    disk = new_disk()
    log = opened(disk)
    assert kinds(log) == [["LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord"]]
    (batch,) = log.batches()
    change, version, voters = batch.records
    assert isinstance(change, LeaderChangeMessage)
    assert isinstance(version, KRaftVersionRecord)
    assert isinstance(voters, VotersRecord)
    assert (change.version, change.leader_id, change.voters) == (0, 1, change.granting_voters)
    assert version.kraft_version == 1
    assert voters == VOTER.voters_record()
    assert sorted(name.removeprefix(PATH) for name in disk.files) == [
        "/00000000000000000000.log",
        "/leader-epoch-checkpoint",
        "/partition.metadata",
        "/quorum-state",
    ]
    state = json.loads(disk.files[f"{PATH}/quorum-state"].data)
    assert state == {
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": -1,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
        "data_version": 1,
    }
    metadata = bytes(disk.files[f"{PATH}/partition.metadata"].data)
    assert metadata.startswith(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")


def test_each_start_begins_an_epoch_with_a_leader_change() -> None:
    disk = new_disk()
    log = opened(disk)
    assert log.append([level()], LEVEL) == 3
    log.close()
    for epoch in (2, 3):
        log = opened(disk)
        assert (log.leader_epoch, log.epoch_start_offset, log.end_offset) == (epoch, epoch + 2, epoch + 3)
    assert kinds(log)[1:] == [["FeatureLevelRecord"], ["LeaderChangeMessage"], ["LeaderChangeMessage"]]


def test_quorum_state_is_durable_before_the_epoch_has_a_record() -> None:
    disk = new_disk()
    opened(disk).close()
    disk.operations, writes = 0, list[tuple[str, str]]()

    def note(operation: str, path: str) -> None:
        if operation in ("write", "sync", "rename", "syncdir"):
            writes.append((operation, path))

    disk.fail = note
    opened(disk)
    log_write = writes.index(("write", f"{PATH}/{0:020}.log"))
    renamed = writes.index(("rename", f"{PATH}/quorum-state"))
    assert writes[renamed + 1] == ("syncdir", PATH)
    assert renamed < log_write


def test_voters_are_written_again_where_they_are_others() -> None:
    disk = new_disk()
    opened(disk).close()
    moved = ThisVoter(1, VOTER.directory_id, (("CONTROLLER", "elsewhere", 9094),))
    log = opened(disk, voter=moved)
    log.close()
    assert kinds(log)[-1] == ["LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord"]
    assert kinds(opened(disk, voter=moved))[-1] == ["LeaderChangeMessage"]


def test_an_append_is_one_batch_and_one_sync() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append([level()], LEVEL)
    syncs = list[str]()
    disk.fail = lambda operation, path: syncs.append(path) if operation == "sync" else None
    assert log.append([setting("a", "1"), setting("b", "2")], LEVEL) == 5
    assert syncs == [f"{PATH}/{0:020}.log"]
    assert log.end_offset == 6
    assert kinds(log)[-1] == ["ConfigRecord", "ConfigRecord"]
    assert settings_of(opened(copy_of(disk))) == {"a": "1", "b": "2"}


def test_more_than_a_batch_holds_is_a_transaction() -> None:
    log = opened(new_disk())
    records = [setting(f"s{number}", "1") for number in range(20_001)]
    assert log.append(records, LEVEL) == 20_005
    batches = [list(batch.records) for batch in log.batches()][1:]
    assert [len(batch) for batch in batches] == [10_000, 10_000, 3]
    assert batches[0][0] == BeginTransactionRecord()
    assert batches[-1][-1] == EndTransactionRecord()
    assert len(settings_of(log)) == 20_001


def test_many_bytes_are_a_transaction_too() -> None:
    log = opened(new_disk())
    log.append([setting(f"s{number}", "x" * 30_000) for number in range(600)], LEVEL)
    sizes = [header.size_bytes for _, header in iter_batches(b"".join(log.read(0, 2**30).buffers()))]
    assert len(sizes) == 4
    assert max(sizes) <= 8_388_608


def test_what_cannot_be_one_change_is_refused() -> None:
    log = opened(new_disk())
    with pytest.raises(KafkaError, match=r"too many for metadata.version 7"):
        log.append([NoOpRecord()] * 10_001, 7)
    large = UserScramCredentialRecord(
        name="u", mechanism=1, salt=bytes(9_000_000), stored_key=b"", server_key=b"", iterations=4096
    )
    for records, metadata_version, code in (
        ([large], LEVEL, ErrorCode.RECORD_LIST_TOO_LARGE),
        ([setting("a", "x" * 40_000)], LEVEL, ErrorCode.UNKNOWN_SERVER_ERROR),
        ([BeginTransactionRecord()], 7, ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        with pytest.raises(KafkaError) as refused:
            log.append(records, metadata_version)
        assert refused.value.code == code
    assert log.append([setting("a", "1")], LEVEL) == 3


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("count", [1, 10_001])
def test_a_failed_append_has_changed_nothing(operation: str, count: int) -> None:
    disk = new_disk()
    log = opened(disk)
    log.append([level()], LEVEL)
    before = bytes(disk.files[f"{PATH}/{0:020}.log"].data)
    calls = []

    def fail(now: str, path: str) -> int | None:
        calls.append(now)
        # In a transaction the second write.
        is_due = now == operation and path.endswith(".log") and calls.count(now) == (1 if count == 1 else 2)
        return errno.EIO if is_due else None

    disk.fail = fail
    with pytest.raises(KafkaError) as refused:
        log.append([setting("a", "1")] * count, LEVEL)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = lambda operation, path: None
    assert log.end_offset == 4
    assert bytes(disk.files[f"{PATH}/{0:020}.log"].data) == before
    assert log.append([setting("b", "2")], LEVEL) == 4
    assert settings_of(opened(copy_of(disk))) == settings_of(log) == {"b": "2"}


def test_after_a_failure_that_cannot_be_undone_nothing_is_appended() -> None:
    disk = new_disk()
    log = opened(disk)
    disk.fail = lambda operation, path: errno.EIO if operation in ("sync", "truncate") else None
    for _ in range(2):
        with pytest.raises(KafkaError):
            log.append([setting("a", "1")], LEVEL)
    disk.fail = lambda operation, path: None
    with pytest.raises(KafkaError, match="cannot be written until a restart"):
        log.append([setting("a", "1")], LEVEL)
    assert opened(disk).append([setting("a", "1")], LEVEL) >= 4


@pytest.mark.parametrize("steps", range(1, 54, 7))
def test_an_append_that_is_closed_has_changed_nothing(steps: int) -> None:
    disk = new_disk()
    log = opened(disk)
    log.append([level(), setting("a", "1")], LEVEL)
    before = bytes(disk.files[f"{PATH}/{0:020}.log"].data)
    work = log.appending([setting("a", "2")] * 10_500, LEVEL)
    step = next(work)
    for _ in range(steps):
        step = work.send(step() if step is not None else None)
    work.close()
    assert (log.end_offset, bytes(disk.files[f"{PATH}/{0:020}.log"].data)) == (5, before)
    assert log.append([setting("b", "1")], LEVEL) == 5
    assert settings_of(log) == {"a": "1", "b": "1"}


def test_nothing_is_read_before_it_is_durable() -> None:
    log = opened(new_disk())
    work = log.appending([level()], LEVEL)
    step = next(work)
    assert step is not None
    assert (log.end_offset, len(log.read(3, 1000))) == (3, 0)
    step()
    with pytest.raises(StopIteration):
        work.send(None)
    assert len(log.read(3, 1000)) > 0


def test_fetchers_get_batches_from_an_offset_on() -> None:
    log = opened(new_disk())
    for name in "abc":
        log.append([setting(name, "1")], LEVEL)
    content = b"".join(log.read(4, 10_000).buffers())
    assert [header.base_offset for _, header in iter_batches(content)] == [4, 5]
    assert len(log.read(4, 1)) == len(content) // 2
    with pytest.raises(KafkaError) as refused:
        log.read(7, 1)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetcher_of_another_epoch_is_told_where_it_diverges() -> None:
    disk = new_disk()
    opened(disk).close()
    log = opened(disk)
    log.append([level()], LEVEL)
    assert (log.leader_epoch, log.epoch_start_offset, log.end_offset) == (2, 3, 5)
    assert log.diverging_epoch(0, 0) is None
    assert log.diverging_epoch(3, 1) is None
    assert log.diverging_epoch(5, 2) is None
    assert log.diverging_epoch(4, 1) == EpochEnd(1, 3)
    assert log.diverging_epoch(4, 7) == EpochEnd(2, 5)
    assert log.end_offset_for_epoch(1) == EpochEnd(1, 3)


# --- Snapshots ---


def test_a_snapshot_has_kafkas_name_and_records() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append([level(), setting("a", "1")], LEVEL)
    snapshot_id = log.write_snapshot(settings_records({"a": "1"}), LEVEL)
    assert file_name_of(snapshot_id) == "00000000000000000005-0000000001.checkpoint"
    content = bytes(disk.files[f"{PATH}/{file_name_of(snapshot_id)}"].data)
    batches = [content[at : at + header.size_bytes] for at, header in iter_batches(content)]
    assert [type(record) for record in records_of_batch(batches[0])] == [
        SnapshotHeaderRecord,
        KRaftVersionRecord,
        VotersRecord,
    ]
    assert [type(record) for record in records_of_batch(batches[-1])] == [SnapshotFooterRecord]
    offsets = [(header.base_offset, header.leader_epoch) for _, header in iter_batches(content)]
    assert offsets == [(0, 1), (3, 1), (5, 1)]


def test_a_start_reads_the_snapshot_and_what_came_after_it() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append([level(), setting("a", "1"), setting("b", "1")], LEVEL)
    log.write_snapshot(settings_records({"a": "1", "b": "1"}), LEVEL)
    log.append([setting("a", "2"), setting("b", None)], LEVEL)
    log.close()
    log = opened(disk)
    assert [batch.is_snapshot for batch in log.batches()] == [True, True, True, False, False]
    assert [batch.last_offset for batch in log.batches()] == [5, 5, 5, 7, 8]
    assert settings_of(log) == {"a": "2"}


def test_a_start_does_not_read_the_log_before_the_snapshot() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append([level(), *(setting(f"s{number}", "1") for number in range(1000))], LEVEL)
    log.write_snapshot([level()], LEVEL)
    log.close()
    disk.bytes_read.clear()
    list(opened(disk).batches())
    assert disk.bytes_read[f"{PATH}/{0:020}.log"] == 0


def test_appends_go_on_while_a_snapshot_is_written() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append([level(), setting("a", "1")], LEVEL)
    records = [level(), setting("a", "1"), *[setting("a", "1")] * 300]
    work = log.writing_snapshot(records, LEVEL)
    assert next(work) is None
    log.append([setting("a", "2")], LEVEL)
    assert finish(work) == SnapshotId(5, 1)
    assert settings_of(log) == settings_of(opened(copy_of(disk))) == {"a": "2"}
    assert log.snapshots == [SnapshotId(5, 1)]


def test_a_snapshot_that_fails_is_none() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append([level()], LEVEL)
    disk.fail = lambda operation, path: errno.ENOSPC if operation == "write" else None
    with pytest.raises(KafkaError):
        log.write_snapshot([level()], LEVEL)
    disk.fail = lambda operation, path: None
    work = log.writing_snapshot([level()] * 1000, LEVEL)
    next(work)
    work.close()
    assert log.snapshots == []
    assert not [path for path in disk.files if "checkpoint.part" in path or path.endswith(".checkpoint")]
    assert log.write_snapshot([level()], LEVEL) == SnapshotId(4, 1)


def test_snapshots_are_due_by_bytes_and_by_time() -> None:
    clock = [0]
    options = MetadataLogSettings(bytes_between_snapshots_max=500, snapshot_interval_ms_max=1000)
    log = opened(new_disk(), settings=options, now_ms=lambda: clock[0])
    log.append([level()], LEVEL)
    assert not log.is_snapshot_due(999)
    assert log.is_snapshot_due(1000)
    clock[0] = 5000
    log.write_snapshot([level()], LEVEL)
    assert not log.is_snapshot_due(9999)
    log.append([setting("a", "x" * 400)], LEVEL)
    assert not log.is_snapshot_due(5999)
    log.append([setting("a", "y")], LEVEL)
    assert log.is_snapshot_due(5999)
    without_time = MetadataLogSettings(snapshot_interval_ms_max=0)
    assert not opened(new_disk(), settings=without_time, now_ms=lambda: 0).is_snapshot_due(2**60)


def test_a_stop_wants_a_snapshot_after_many_records() -> None:
    log = opened(new_disk())
    log.append([setting("a", "1")] * 997, LEVEL)
    assert not log.is_snapshot_due_at_stop
    log.append([setting("a", "1")], LEVEL)
    assert log.is_snapshot_due_at_stop
    log.write_snapshot([level()], LEVEL)
    assert not log.is_snapshot_due_at_stop


def with_snapshots(count: int, settings: MetadataLogSettings) -> tuple[MemoryDisk, DiskMetadataLog]:
    clock = [0]
    disk = new_disk()
    log = opened(disk, settings=settings, now_ms=lambda: clock[0])
    log.append([level()], LEVEL)
    for number in range(count):
        clock[0] += 1000
        log.append([setting("a", str(number))], LEVEL)
        log.write_snapshot(settings_records({"a": str(number)}), LEVEL)
    return disk, log


@pytest.mark.parametrize(
    "settings", [MetadataLogSettings(retention_ms=1500), MetadataLogSettings(retention_bytes=1)]
)
def test_two_snapshots_stay_and_the_log_from_the_older_one_on(settings: MetadataLogSettings) -> None:
    disk, log = with_snapshots(5, settings)
    assert [one.end_offset for one in log.snapshots] == [8, 9]
    assert log.start_offset == 8
    names = sorted(name.rpartition("/")[2] for name in disk.files)
    assert [name for name in names if name.endswith((".log", ".checkpoint"))] == [
        "00000000000000000008-0000000001.checkpoint",
        "00000000000000000008.log",
        "00000000000000000009-0000000001.checkpoint",
        "00000000000000000009.log",
    ]
    log.close()
    log = opened(disk)
    assert (log.start_offset, settings_of(log)) == (8, {"a": "4"})


def test_by_default_snapshots_stay_for_a_week() -> None:
    _, log = with_snapshots(5, MetadataLogSettings())
    assert len(log.snapshots) == 5
    assert log.start_offset == 0


def test_a_fetcher_before_the_log_start_gets_the_newest_snapshot() -> None:
    _, log = with_snapshots(4, MetadataLogSettings(retention_bytes=1))
    newest = SnapshotId(8, 1)
    assert log.snapshot_for(0, 0) == log.snapshot_for(6, 1) == log.snapshot_for(7, 0) == newest
    assert log.snapshot_for(7, 1) is None
    assert log.snapshot_for(8, 1) is None
    size, first = log.read_snapshot(newest, 0, 100)
    _, rest = log.read_snapshot(newest, 100, 2**30)
    assert len(first) == 100
    assert len(first + rest) == size
    for asked, code in (
        ((SnapshotId(8, 2), 0, 1), ErrorCode.SNAPSHOT_NOT_FOUND),
        ((newest, size, 1), ErrorCode.POSITION_OUT_OF_RANGE),
        ((newest, -1, 1), ErrorCode.POSITION_OUT_OF_RANGE),
    ):
        with pytest.raises(KafkaError) as refused:
            log.read_snapshot(*asked)
        assert refused.value.code == code


def test_a_formatted_directory_says_with_what_to_begin() -> None:
    disk = new_disk()
    write_bootstrap_snapshot(disk, PATH, VOTER.control_records(), [level()], LEVEL, 1000)
    log = opened(disk)
    assert log.bootstrap_records() == [level()]
    assert log.snapshots == [BOOTSTRAP]
    # It is no state: the records are appended.
    assert kinds(log) == [["LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord"]]
    assert log.snapshot_for(0, 0) is None
    assert opened(new_disk()).bootstrap_records() == []


def test_segments_roll_by_size_and_are_read_in_order() -> None:
    disk = new_disk()
    log = opened(disk, settings=MetadataLogSettings(segment_bytes=300))
    for number in range(20):
        log.append([setting("a", str(number))], LEVEL)
    assert sum(path.endswith(".log") for path in disk.files) > 3
    assert [batch.last_offset for batch in log.batches()] == list(range(2, 23))
    log.close()
    log = opened(disk, settings=MetadataLogSettings(segment_bytes=300))
    assert settings_of(log) == {"a": "19"}
    assert image_of(log).offset == 23


def test_control_records_of_the_quorum_are_given_with_their_batch() -> None:
    log = opened(new_disk())
    (batch,) = log.batches()
    assert all(isinstance(record, ControlRecord) for record in batch.records)


def test_a_directory_that_cannot_be_used_is_one_sentence() -> None:
    disk = new_disk()
    disk.fail = lambda operation, path: errno.EROFS if operation == "mkdir" else None
    with pytest.raises(ConfigError, match=r"cannot be opened: Read-only file system\.$"):
        opened(disk)


def test_it_works_on_a_real_disk(tmp_path: pathlib.Path) -> None:
    path = os.path.join(tmp_path, DIRECTORY)
    for number in range(3):
        log = DiskMetadataLog(OsDisk(), path, VOTER, now_ms=lambda: 1000)
        log.append([level(), setting("a", str(number))], LEVEL)
        if number == 1:
            log.write_snapshot(settings_records({"a": "1"}), LEVEL)
        assert settings_of(log) == {"a": str(number)}
        log.close()
