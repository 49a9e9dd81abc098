"""Damage of the metadata log: single wrong bits are mended, more are said, and a loss of power costs nothing
that was acknowledged.
"""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from odradek.config.config_error import ConfigError
from odradek.server.metadata import metadata_batches, quorum_state
from odradek.server.metadata.metadata_log import (
    DiskMetadataLog,
    MetadataLogSettings,
)
from odradek.server.metadata.metadata_log_opening import DamagedMetadataLog, findings, finish_repair
from odradek.server.metadata.metadata_log_repair import repair
from odradek.server.metadata.metadata_snapshots import file_name_of
from odradek.storage.checkpoints import write_partition_metadata
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.errors import KafkaError
from odradek.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    TopicRecord,
)
from odradek.wire.records import iter_batches
from tests.server.metadata_logs import (
    LEVEL,
    PATH,
    VOTER,
    abort_open_transaction,
    copy_of,
    image_of,
    level,
    new_disk,
    opened,
    setting,
    settings_of,
    settings_records,
    view_of,
)
from tests.storage.memory_disk import MemoryDisk, PowerLost

LOG = f"{PATH}/{0:020}.log"
without_power = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""A dying process still tries to take an append back."""


def flip(disk: MemoryDisk, path: str, *bits: int) -> None:
    data = disk.files[path].data
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8


def written(*, with_snapshot: bool) -> MemoryDisk:
    """The log of two epochs, killed at its end."""
    disk = new_disk()
    log = opened(disk)
    log.append([level(), setting("a", "1")], LEVEL)
    if with_snapshot:
        log.write_snapshot(settings_records({"a": "1"}), LEVEL)
    log.append([setting("b", "1")], LEVEL)
    log.close()
    log = opened(disk)
    log.append([setting("b", "2"), setting("c", "3")], LEVEL)
    return copy_of(disk)


@pytest.mark.parametrize(
    "step_bits",
    [pytest.param(23, id="some"), pytest.param(1, id="all", marks=pytest.mark.deep)],
)
@pytest.mark.parametrize("with_snapshot", [False, True])
def test_each_single_bit_of_each_file_is_mended(with_snapshot: bool, step_bits: int) -> None:
    disk = written(with_snapshot=with_snapshot)
    told_of = {name for name in disk.files if name.endswith((".checkpoint", "quorum-state"))}
    told_of.add(max(name for name in disk.files if name.endswith(".log")))
    for path, file in disk.files.items():
        for bit in range(0, 8 * len(file.data), step_bits):
            other = copy_of(disk)
            flip(other, path, bit)
            told = list[str]()
            log = opened(other, tell=told.append)
            assert (log.leader_epoch, settings_of(log)) == (3, {"a": "1", "b": "2", "c": "3"}), (path, bit)
            if path in told_of:
                assert [path in sentence for sentence in told] == [True], (path, bit, told)
            if path.endswith(".checkpoint") or (path.endswith(".log") and path in told_of):
                content = bytes(other.files[path].data)
                assert content.startswith(bytes(file.data)), (path, bit)
            assert log.append([setting("d", "4")], LEVEL) == log.end_offset - 1
            assert settings_of(opened(other))["d"] == "4"


def test_a_sound_log_has_no_findings_and_a_look_changes_nothing() -> None:
    disk = written(with_snapshot=True)
    assert findings(disk, PATH) == []
    (snapshot,) = (path for path in disk.files if path.endswith(".checkpoint"))
    last = max(path for path in disk.files if path.endswith(".log"))
    for path in (snapshot, last, f"{PATH}/quorum-state"):
        flip(disk, path, 300)
    before = {path: bytes(file.data) for path, file in disk.files.items()}
    told = findings(disk, PATH)
    assert [one.name for one in told] == [
        snapshot.rpartition("/")[2],
        last.rpartition("/")[2],
        "quorum-state",
    ]
    assert {path: bytes(file.data) for path, file in disk.files.items()} == before


def test_quorum_state_of_kafka_without_a_checksum_is_read() -> None:
    text = (
        b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",'
        b'"data_version":1}'
    )
    assert quorum_state.decode(text).state == quorum_state.QuorumState(1, 7)
    assert quorum_state.decode(b"").state is None
    assert quorum_state.decode(b"[]").is_damaged
    older = b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"data_version":0}'
    assert quorum_state.decode(older).state == quorum_state.QuorumState(1, 2)


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_without_quorum_state_the_epochs_go_on(content: bytes) -> None:
    disk = written(with_snapshot=True)
    disk.files[f"{PATH}/quorum-state"].data[:] = content
    told = list[str]()
    log = opened(disk, tell=told.append)
    assert log.leader_epoch == 3
    assert len(told) == 1
    disk.remove(f"{PATH}/quorum-state")
    assert opened(disk).leader_epoch == 4


def test_a_start_that_got_no_record_of_its_epoch_is_no_damage() -> None:
    disk = new_disk()
    opened(disk).close()
    # Power was lost before the checkpoint had the second epoch.
    checkpoint = bytes(disk.files[f"{PATH}/leader-epoch-checkpoint"].data)
    opened(disk)
    disk.files[f"{PATH}/leader-epoch-checkpoint"].data[:] = checkpoint
    is_written = [False]

    def lose(operation: str, path: str) -> int | None:
        is_written[0] = is_written[0] or (operation == "rename" and path.endswith("quorum-state"))
        return errno.EIO if is_written[0] and operation == "syncdir" else None

    disk.fail = lose
    with pytest.raises(ConfigError):
        opened(disk)
    disk.fail = lambda operation, path: None
    told = list[str]()
    assert opened(disk, tell=told.append).leader_epoch == 4
    assert told == []


def test_an_unfinished_last_batch_is_cut() -> None:
    disk = written(with_snapshot=False)
    whole = bytes(disk.files[LOG].data)
    last = [position for position, _ in iter_batches(whole)][-1]
    for size in range(last, len(whole)):
        other = copy_of(disk)
        del other.files[LOG].data[size:]
        told = list[str]()
        log = opened(other, tell=told.append)
        assert settings_of(log) == {"a": "1", "b": "1"}
        if size > last:
            assert told == [
                f"{PATH}: a change in {0:020}.log at byte {last} was never finished, and has been cut"
            ]


def test_the_older_snapshot_stands_in_for_a_damaged_one() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append([level(), setting("a", "1")], LEVEL)
    log.write_snapshot(settings_records({"a": "1"}), LEVEL)
    log.append([setting("a", "2")], LEVEL)
    newest = log.write_snapshot(settings_records({"a": "2"}), LEVEL)
    log.append([setting("b", "3")], LEVEL)
    log.close()
    for damage in (b"", b"\0" * 300, bytes(disk.files[f"{PATH}/{file_name_of(newest)}"].data[:-70])):
        other = copy_of(disk)
        other.files[f"{PATH}/{file_name_of(newest)}"].data[:] = damage
        told = list[str]()
        log = opened(other, tell=told.append)
        assert settings_of(log) == {"a": "2", "b": "3"}
        assert told == [
            f"{PATH}/{file_name_of(newest)} was damaged; the records before it were there, and it is removed"
        ]
        assert newest not in opened(other).snapshots


# --- Damage beyond mending ---


def acl(number: int) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=bytes([number]) * 16,
        resource_type=ResourceType.TOPIC,
        resource_name=f"t{number}",
        pattern_type=PatternType.LITERAL,
        principal="User:u",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.DENY,
    )


def topic(name: str, number: int) -> list[MetadataRecord]:
    topic_id = bytes([number]) * 16
    partition = PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=[1],
        isr=[1],
        removing_replicas=[],
        adding_replicas=[],
        leader=1,
        leader_epoch=5,
        partition_epoch=2,
        directories=[VOTER.directory_id],
    )
    return [TopicRecord(name=name, topic_id=topic_id), partition]


def damaged(appends: list[list[MetadataRecord]], number: int) -> MemoryDisk:
    """A log with these appends, of which one is damaged beyond mending."""
    disk = new_disk()
    log = opened(disk)
    log.append([level()], LEVEL)
    for records in appends:
        log.append(records, LEVEL)
    log.close()
    position = [position for position, _ in iter_batches(bytes(disk.files[LOG].data))][2 + number]
    flip(disk, LOG, 8 * position + 600, 8 * position + 601)
    return disk


def repaired(disk: MemoryDisk, **wanted: bool) -> tuple[DiskMetadataLog, list[str]]:
    told = list[str]()
    repair(disk, PATH, ["data"], VOTER, now_ms=5000, tell=told.append, **wanted)
    return opened(disk), told


def test_what_is_lost_stops_the_start_and_a_repair_goes_on_with_the_rest() -> None:
    disk = damaged([topic("before", 1), [setting("x", "1")], topic("after", 2), [setting("y", "2")]], 1)
    with pytest.raises(DamagedMetadataLog, match=f"damaged in {0:020}.log at byte "):
        opened(disk)
    (finding,) = findings(disk, PATH)
    assert finding.consequence.startswith("it cannot be mended")
    before = {path: bytes(file.data) for path, file in disk.files.items()}
    log, told = repaired(disk)
    view = view_of(log)
    assert settings_of(log) == {"y": "2"}
    assert view.topics.keys() == {"before", "after"}
    assert view.topics["before"].partitions[0].leader_epoch == 5
    assert dict(view.topics["before"].configs)["retention.ms"] == "-1"
    assert image_of(log).next_producer_id == 5_000_000
    assert "9 records of it could be read, and 0 of them did not fit" in told[0]
    assert any("settings may be lost" in sentence for sentence in told)
    # Observers have to fetch the snapshot: they may have the lost record.
    assert log.start_offset == 11
    assert log.snapshot_for(10, 1) == log.snapshots[0]
    assert log.leader_epoch == 3
    assert {path.replace(PATH, PATH + ".0.damaged"): content for path, content in before.items()}.items() <= {
        path: bytes(file.data) for path, file in disk.files.items()
    }.items()


def test_topics_come_back_from_their_directories() -> None:
    disk = damaged([topic("lost", 1), [setting("x", "1")]], 0)
    for index in range(2):
        disk.make_directory(f"data/lost-{index}")
        write_partition_metadata(disk, f"data/lost-{index}/partition.metadata", bytes([1]) * 16)
    log, told = repaired(disk)
    found = view_of(log).topics["lost"]
    assert (found.topic_id, len(found.partitions)) == (bytes([1]) * 16, 2)
    assert found.partitions[1].replicas == (1,)
    assert "topic lost: found again by its directories" in told


@pytest.mark.parametrize("number", [0, 1, 2])
def test_acls_that_may_be_lost_refuse_the_start(number: int) -> None:
    disk = damaged([[acl(1)], [setting("x", "1")], [acl(2)], [setting("y", "1")]], number)
    with pytest.raises(ConfigError, match=r"ACLs or users may be lost.*odradek check --repair"):
        repaired(disk)
    with pytest.raises(DamagedMetadataLog):
        opened(disk)
    log, told = repaired(disk, gives_up_guards=True)
    assert any(sentence.startswith("ACLs and users may be lost") for sentence in told)
    acls = view_of(log).acls
    assert acls is not None
    assert len(acls) == (2 if number == 1 else 1)


def test_an_acl_that_was_made_again_after_a_lost_removal_is_one() -> None:
    again = replace(acl(1), id=bytes(16))
    removal = RemoveAccessControlEntryRecord(id=acl(1).id)
    log, _ = repaired(damaged([[acl(1)], [removal], [again]], 1), gives_up_guards=True)
    acls = view_of(log).acls
    assert acls is not None
    assert list(acls.by_id) == [bytes(16)]


def test_with_an_authorizer_any_loss_refuses_the_start() -> None:
    disk = damaged([[setting("x", "1")], [setting("y", "1")]], 0)
    with pytest.raises(ConfigError, match="ACLs or users may be lost"):
        repaired(disk, is_guarded=True)
    assert settings_of(repaired(disk)[0]) == {"y": "1"}


def test_a_lost_end_of_a_transaction_keeps_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_batches, "BATCH_RECORDS_MAX", 3)
    disk = new_disk()
    log = opened(disk)
    log.append([level()], LEVEL)
    monkeypatch.setattr("odradek.server.metadata.metadata_log.BATCH_RECORDS_MAX", 3)
    log.append([setting(f"t{number}", "1") for number in range(5)], LEVEL)
    log.append([setting("z", "1")], LEVEL)
    log.close()
    positions = [position for position, _ in iter_batches(bytes(disk.files[LOG].data))]
    flip(disk, LOG, 8 * positions[-2] + 400, 8 * positions[-2] + 401)
    kept = settings_of(repaired(disk)[0])
    assert kept["z"] == kept["t0"] == "1"


def test_a_log_without_any_sound_snapshot_is_repaired_from_the_damaged_one() -> None:
    disk = new_disk()
    log = opened(disk, settings=MetadataLogSettings(retention_bytes=1))
    log.append([level(), setting("a", "1")], LEVEL)
    for _ in range(3):
        log.append([setting("b", "1")], LEVEL)
        log.write_snapshot([level(), setting("a", "1"), setting("b", "1")], LEVEL)
    log.append([setting("c", "1")], LEVEL)
    log.close()
    for path in list(disk.files):
        if path.endswith(".checkpoint"):
            # In the footer: the records can be read.
            flip(disk, path, 8 * len(disk.files[path].data) - 20, 8 * len(disk.files[path].data) - 21)
    with pytest.raises(DamagedMetadataLog):
        opened(disk)
    assert settings_of(repaired(disk)[0]) == {"a": "1", "b": "1", "c": "1"}


@without_power
def test_a_repair_is_finished_or_begun_again_after_any_loss_of_power() -> None:
    whole = damaged([topic("before", 1), [setting("x", "1")], [setting("y", "2")]], 1)
    number, is_done = 0, False
    while not is_done:
        disk = copy_of(whole)
        disk.lose_power_at = number
        try:
            repair(disk, PATH, ["data"], VOTER, now_ms=5000, tell=lambda sentence: None)
            is_done = True
        except PowerLost:
            pass
        for seed in range(6):
            after = disk.lose_power(seed)
            finish_repair(after, PATH, lambda sentence: None)
            try:
                log = opened(after)
            except DamagedMetadataLog:
                log, _ = repaired(after)
            assert settings_of(log) == {"y": "2"}, (number, seed)
            assert view_of(log).topics.keys() == {"before"}
        number += 1
    assert number > 10


# --- A loss of power ---


class History:
    """Starts, appends and snapshots, and what was acknowledged."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.clock = 0
        self.acknowledged: dict[str, str] = {}
        self.pending: dict[str, str] = {}
        self.epoch = 0

    def run(self) -> None:
        for name in "ab":
            log = self._open()
            self._append(log, {f"{name}1": "1"})
            self._append(log, {f"{name}2.{number}": "1" for number in range(9)})
            self._snapshot(log)
            self._append(log, {f"{name}1": "2", f"{name}3": "1"})
            self._snapshot(log)
            self._snapshot(log)
            self._append(log, {f"{name}4": "1"})
            log.close()

    def _open(self) -> DiskMetadataLog:
        log = opened(self.disk, settings=MetadataLogSettings(retention_ms=0), now_ms=lambda: self.clock)
        assert log.leader_epoch > self.epoch
        self.epoch = log.leader_epoch
        abort_open_transaction(log)
        return log

    def _append(self, log: DiskMetadataLog, settings: dict[str, str]) -> None:
        self.clock += 1000
        self.pending = settings
        log.append([level(), *(setting(name, value) for name, value in settings.items())], LEVEL)
        self.acknowledged = {**self.acknowledged, **settings}
        self.pending = {}

    def _snapshot(self, log: DiskMetadataLog) -> None:
        self.clock += 1000
        log.write_snapshot(settings_records(self.acknowledged), LEVEL)

    def check(self, disk: MemoryDisk, place: object) -> None:
        log = opened(disk)
        possible = (self.acknowledged, {**self.acknowledged, **self.pending})
        assert settings_of(log) in possible, place
        # Of an epoch that a start had not told anybody yet, another start may make its own.
        assert log.leader_epoch > self.epoch, place
        now = settings_of(log)
        log.close()
        assert settings_of(opened(disk)) == now, place


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of four records, so that transactions are small."""
    monkeypatch.setattr(metadata_batches, "BATCH_RECORDS_MAX", 4)
    monkeypatch.setattr("odradek.server.metadata.metadata_log.BATCH_RECORDS_MAX", 4)


@without_power
@pytest.mark.usefixtures("small_batches")
def test_power_may_be_lost_at_each_operation() -> None:
    number, is_done = 0, False
    while not is_done:
        history = History(new_disk())
        history.disk.lose_power_at = history.disk.operations + number
        try:
            history.run()
            is_done = True
        except PowerLost:
            pass
        for seed in range(8):
            history.check(history.disk.lose_power(seed), (number, seed))
        number += 1
    assert number > 100


@without_power
@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("seed", range(30))
def test_power_may_be_lost_again_and_again(seed: int) -> None:
    chance = random.Random(seed)
    history = History(new_disk())
    for _ in range(6):
        history.disk.lose_power_at = history.disk.operations + chance.randrange(1, 60)
        try:
            history.run()
        except PowerLost:
            pass
        history.disk = history.disk.lose_power(chance.randrange(2**32))
        survivor = copy_of(history.disk)
        history.check(survivor, seed)
        kept = settings_of(opened(copy_of(history.disk)))
        history.acknowledged, history.pending = kept, {}


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("seed", range(10))
def test_a_disk_that_fails_and_writes_short_loses_nothing(seed: int) -> None:
    chance = random.Random(seed)
    disk = new_disk()
    disk.short_writes = random.Random(seed)
    log = opened(disk)
    kept: dict[str, str] = {}
    for number in range(40):
        fail_at = chance.randrange(6)
        calls = [0]

        def fail(operation: str, path: str, calls: list[int] = calls, at: int = fail_at) -> int | None:
            calls[0] += operation not in ("read", "map")
            return errno.ENOSPC if calls[0] == at else None

        disk.fail = fail if chance.random() < 0.5 else lambda operation, path: None
        changes = {f"s{chance.randrange(5)}": str(number) for _ in range(chance.choice((1, 6)))}
        changes |= {f"t{one}": str(number) for one in range(chance.choice((0, 6)))}
        records = [level(), *(setting(name, value) for name, value in changes.items())]
        try:
            log.append(records, LEVEL)
            kept |= changes
        except KafkaError:
            pass
        disk.fail = lambda operation, path: None
        assert settings_of(log) == kept
        try:
            log.append([ConfigRecord(resource_type=4, resource_name="", name="n", value=str(number))], LEVEL)
            kept["n"] = str(number)
        except KafkaError:
            log = opened(disk)
        assert settings_of(log) == kept
    assert settings_of(opened(disk.lose_power(seed))) == kept
