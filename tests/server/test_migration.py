"""Migration of the rows of a node alone into a metadata log: all of them, or none, at any crash."""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

from odradek.config.config_error import ConfigError
from odradek.coordinator.cluster.changes import ClientMetricsOwner, ConfigChange, GroupOwner, Owner
from odradek.coordinator.cluster.draft import Draft
from odradek.coordinator.cluster.machine import LOG_DIRECTORY, ClusterMachine, Row, RowDraft
from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.cluster.view import NO_LEADER, UNASSIGNED, Broker, ClusterView
from odradek.coordinator.controller.from_rows import from_rows
from odradek.coordinator.security.acls import Acl
from odradek.coordinator.security.delegation_tokens import DelegationToken
from odradek.coordinator.security.scram_users import ScramCredential
from odradek.server.metadata import metadata_batches
from odradek.server.metadata.metadata_log import DIRECTORY, DiskMetadataLog
from odradek.server.metadata.metadata_store import SqliteMetadataStore
from odradek.server.metadata.migration import Node, check_migration, migrate
from odradek.storage.checkpoints import write_partition_metadata
from odradek.storage.disk import OsDisk
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.schema import uuid_to_text
from odradek.wire.work import Work, finish
from tests.server.metadata_logs import PATH, VOTER, image_of, new_disk, opened, view_of
from tests.storage.memory_disk import MemoryDisk, PowerLost

DIRECTORY_ID = VOTER.directory_id
STORE = "data/odradek-metadata.db"
NODE = Node(VOTER, {"data": DIRECTORY_ID}, "data")


class Rows:
    """A `MetadataStore` in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def rows(self) -> list[Row]:
        return [Row(kind, key, value) for (kind, key), value in self.kept.items()]

    def write(self, rows: Iterable[Row]) -> None:
        for kind, key, value in rows:
            if value is None:
                self.kept.pop((kind, key), None)
            else:
                self.kept[kind, key] = value

    def writing(self, rows: Iterable[Row]) -> Work[None]:
        self.write(rows)
        yield None


def set_all(owner: Owner, **values: str) -> ConfigChange:
    named = {name.replace("_", "."): value for name, value in values.items()}
    return ConfigChange(owner, lambda before: {**before, **named}, tuple(named))


def machine_of(rows: Rows) -> ClusterMachine:
    ids = iter(range(1, 10_000))
    machine = ClusterMachine(rows, cluster_id="", new_topic_id=lambda: next(ids).to_bytes(16, "big"))
    machine.load()
    machine.register_broker(Broker(1, {}))
    return machine


def some_rows(topic_count: int = 3, level: int = 33) -> Rows:
    """Rows of each kind."""
    rows = Rows()
    machine = machine_of(rows)
    finish(machine.changing(lambda draft: _set_up(draft, level)))
    new = [NewTopic(f"t{number}", 2) for number in range(topic_count)]
    assert all(one.error is None for one in machine.create_topics([*new, NewTopic("gone", 1)]))
    changes = [
        set_all("t0", retention_ms="5"),
        set_all(None, log_cleaner_threads="2"),
        set_all(1, background_threads="3"),
        set_all(GroupOwner("g"), consumer_session_timeout_ms="45000"),
        set_all(ClientMetricsOwner("m"), interval_ms="60000"),
    ]
    finish(machine.changing_configs(changes))
    machine.allocate_producer_ids()
    machine.delete_topics(["gone"])
    return rows


def _set_up(draft: Draft, level: int) -> Work[None]:
    assert isinstance(draft, RowDraft)
    draft.set_features({"metadata.version": level, "group.version": 1})
    draft.set_quotas({(("user", "u"),): {"producer_byte_rate": 1000.0}})
    acl = Acl(
        resource_type=ResourceType.TOPIC,
        pattern_type=PatternType.LITERAL,
        name="t",
        principal="User:u",
        host="*",
        operation=Operation.READ,
        permission=Permission.DENY,
    )
    draft.change_acls({bytes(range(1, 17)): acl})
    draft.change_scram_users({("u", 1): ScramCredential(b"salt", bytes(32), bytes(32), 4096)})
    draft.change_tokens({"token": DelegationToken("token", "User:u", "User:u", (), 1, 3, 2)})
    yield None


def compared(view: ClusterView, directory: bytes = DIRECTORY_ID) -> ClusterView:
    """A view of rows as the view of a log that has no registration yet."""
    topics = {
        name: replace(
            topic,
            partitions=tuple(
                one._replace(leader=NO_LEADER, directories=(directory,)) for one in topic.partitions
            ),
        )
        for name, topic in view.topics.items()
    }
    return replace(
        view,
        version=0,
        features_epoch=0,
        brokers={},
        registrations={},
        controller_id=-1,
        topics=topics,
        acls=None,
        features={**view.features, "kraft.version": 1},
    )


def prepared(rows: Rows) -> MemoryDisk:
    """A disk with a file in the place of the store, and a directory for each partition."""
    disk = new_disk()
    disk.open(STORE, create=True).close()
    for topic in machine_of(rows).view.topics.values():
        for partition in topic.partitions:
            disk.make_directory(f"data/{topic.name}-{partition.index}")
    disk.make_directory("data/gone-0")
    write_partition_metadata(disk, "data/gone-0/partition.metadata", (4).to_bytes(16, "big"))
    # All names are safe.
    disk.sync_file_system("data")
    return disk


def migrated(disk: MemoryDisk, rows: Rows, node: Node = NODE) -> bool:
    return migrate(
        disk, STORE, node, now_ms=lambda: 1000, rows_of=lambda path: rows.rows(), tell=lambda sentence: None
    )


def test_all_rows_become_records() -> None:
    rows = some_rows()
    disk = prepared(rows)
    before = machine_of(rows)
    assert migrated(disk, rows)
    log = opened(disk)
    view = view_of(log)
    assert compared(view) == compared(before.view)
    assert view.acls is not None
    assert before.view.acls is not None
    assert view.acls.by_id == before.view.acls.by_id
    assert view.scram_users.credentials == before.view.scram_users.credentials
    assert view.delegation_tokens.by_id == before.view.delegation_tokens.by_id
    assert view.group_configs == {"g": {"consumer.session.timeout.ms": "45000"}}
    assert not disk.exists(STORE)
    assert disk.exists(STORE + ".migrated")
    assert not migrated(disk, rows)


def test_the_first_producer_id_is_one_that_nobody_has() -> None:
    rows = some_rows()
    disk = prepared(rows)
    migrated(disk, rows)
    assert image_of(opened(disk)).next_producer_id == 1000


def test_a_deletion_that_was_under_way_is_finished() -> None:
    rows = some_rows()
    disk = prepared(rows)
    assert from_rows(rows.rows(), {}).deletions == {(4).to_bytes(16, "big"): "gone"}
    migrated(disk, rows)
    (left,) = (name for name in disk.list("data") if name.startswith("gone"))
    assert left == f"gone-0.{4:032x}-delete"


def test_many_topics_are_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_batches, "BATCH_RECORDS_MAX", 50)
    monkeypatch.setattr("odradek.server.metadata.metadata_log.BATCH_RECORDS_MAX", 50)
    rows = some_rows(topic_count=100)
    disk = prepared(rows)
    migrated(disk, rows)
    log = opened(disk)
    assert len(list(log.batches())) > 5
    assert compared(view_of(log)) == compared(machine_of(rows).view)


def test_a_metadata_version_without_transactions_is_migrated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.server.metadata.migration.BATCH_RECORDS_MAX", 5)
    rows = some_rows(level=12)
    disk = prepared(rows)
    migrated(disk, rows)
    view = view_of(opened(disk))
    assert view.features["metadata.version"] == 12
    assert view.topics.keys() == {"t0", "t1", "t2"}


def test_partitions_of_a_missing_directory_are_not_made_anew() -> None:
    rows = some_rows()
    missing = bytes(range(20, 36))
    rows.kept[LOG_DIRECTORY, f"1/{uuid_to_text(DIRECTORY_ID)}"] = "data"
    rows.kept[LOG_DIRECTORY, f"1/{uuid_to_text(missing)}"] = "other"
    disk = prepared(rows)
    disk.remove_directory("data/t1-1")
    migrated(disk, rows)
    partitions = view_of(opened(disk)).topics["t1"].partitions
    assert [one.directories for one in partitions] == [(DIRECTORY_ID,), (missing,)]
    placed = from_rows(rows.rows(), {}).view.topics["t1"].partitions[0]
    assert placed.directories == (UNASSIGNED,)


def test_rows_that_lack_others_are_refused_and_the_store_stays() -> None:
    for kind, key in (("partition", "t1/0"), ("cluster", "acl_count")):
        rows = some_rows()
        disk = prepared(rows)
        del rows.kept[kind, key]
        with pytest.raises(ConfigError, match="cannot be taken over"):
            migrated(disk, rows)
        assert disk.exists(STORE)
        assert not disk.exists(PATH)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("metadata_directory", ["data", "metadata"])
def test_power_may_be_lost_at_each_operation(
    metadata_directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_batches, "BATCH_RECORDS_MAX", 10)
    monkeypatch.setattr("odradek.server.metadata.metadata_log.BATCH_RECORDS_MAX", 10)
    rows = some_rows()
    wanted = compared(machine_of(rows).view)
    node = NODE._replace(metadata_directory=metadata_directory)
    path = f"{metadata_directory}/{DIRECTORY}"
    number, is_done = 0, False
    while not is_done:
        disk = prepared(rows)
        disk.make_directory(metadata_directory)
        disk.lose_power_at = disk.operations + number
        try:
            migrated(disk, rows, node)
            is_done = True
        except PowerLost:
            pass
        for seed in range(6):
            after = disk.lose_power(seed)
            migrated(after, rows, node)
            log = DiskMetadataLog(after, path, VOTER, now_ms=lambda: 1000)
            assert compared(view_of(log)) == wanted, (number, seed)
            assert not after.exists(STORE), (number, seed)
        number += 1
    assert number > 30


def real_store(directory: pathlib.Path, rows: Rows) -> str:
    path = os.path.join(directory, "odradek-metadata.db")
    store = SqliteMetadataStore(path)
    store.write(rows.rows())
    store.close()
    return path


def test_a_check_says_what_would_be_taken_over(tmp_path: pathlib.Path) -> None:
    rows = some_rows()
    path = real_store(tmp_path, rows)
    before = pathlib.Path(path).read_bytes()
    told = check_migration(path)
    assert told[0].startswith(
        f"The metadata in {path} can be taken over: 3 topics with 6 partitions, 1 ACLs, "
    )
    assert told[1:] == ["The deletion of 1 topics would be finished before."]
    assert pathlib.Path(path).read_bytes() == before
    del rows.kept["partition", "t1/0"]
    os.remove(path)
    real_store(tmp_path, rows)
    assert "cannot be taken over as they are" in check_migration(path)[-1]


MIGRATION = """
import os, sys
from odradek.server.metadata.metadata_log import ThisVoter
from odradek.server.metadata.migration import Node, migrate
from odradek.storage.disk import OsDisk
directory = sys.argv[1]
node = Node(ThisVoter(1, bytes(range(16))), {directory: bytes(range(16))}, directory)
print("begins", flush=True)
migrate(OsDisk(), os.path.join(directory, "odradek-metadata.db"), node, now_ms=lambda: 1000)
print("done", flush=True)
"""


@pytest.mark.parametrize("times", [8, pytest.param(200, marks=pytest.mark.deep)])
def test_a_kill_at_any_time_loses_nothing(tmp_path: pathlib.Path, times: int) -> None:
    rows = some_rows(topic_count=300)
    wanted = compared(machine_of(rows).view)
    whole = tmp_path / "whole"
    whole.mkdir()
    real_store(whole, rows)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    chance = random.Random(1)
    longest = 0.3
    killed = 0
    for number in range(times):
        directory = tmp_path / f"killed-{number}"
        shutil.copytree(whole, directory)
        process = subprocess.Popen(
            [sys.executable, "-c", MIGRATION, str(directory)],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        began = time.monotonic()
        try:
            process.wait(timeout=chance.random() * longest)
            longest = time.monotonic() - began
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
        process.stdout.close()
        path = str(directory / "odradek-metadata.db")
        node = Node(VOTER, {str(directory): DIRECTORY_ID}, str(directory))
        migrate(OsDisk(), path, node, now_ms=lambda: 1000)
        log = DiskMetadataLog(OsDisk(), str(directory / DIRECTORY), VOTER, now_ms=lambda: 1000)
        assert compared(view_of(log)) == wanted, number
        assert sorted(os.listdir(directory)) == [DIRECTORY, "odradek-metadata.db.migrated"]
        log.close()
    assert killed > times // 4
