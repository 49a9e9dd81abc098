"""Migration of the rows of a node alone into a metadata log: all of them, or none, at any crash."""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import pytest

from odradek.config.config_error import ConfigError
from odradek.coordinator.cluster.view import NO_LEADER, UNASSIGNED, ClusterView, PartitionView
from odradek.coordinator.controller.from_rows import LOG_DIRECTORY, Row, from_rows
from odradek.coordinator.security.acls import Acl
from odradek.coordinator.security.delegation_tokens import DelegationToken
from odradek.coordinator.security.scram_users import ScramCredential
from odradek.server.metadata import metadata_batches
from odradek.server.metadata.meta_properties import METADATA_LOG as DIRECTORY
from odradek.server.metadata.metadata_log import DiskMetadataLog
from odradek.server.metadata.migration import Node, check_migration, migrate
from odradek.server.metadata.old_store import checksum
from odradek.storage.checkpoints import write_partition_metadata
from odradek.storage.disk import OsDisk
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.schema import uuid_to_text
from tests.kit.old_store import write_store
from tests.server.metadata_logs import PATH, VOTER, image_of, new_disk, opened, view_of
from tests.storage.memory_disk import MemoryDisk, PowerLost

DIRECTORY_ID = VOTER.directory_id
STORE = "data/odradek-metadata.db"
NODE = Node(VOTER, {"data": DIRECTORY_ID}, "data")


GONE = (4).to_bytes(16, "big")
ACL_ID = bytes(range(1, 17))
CREDENTIAL = ScramCredential(b"salt", bytes(32), bytes(32), 4096)
SCRAM_TEXT = f"4096 {b'salt'.hex()} {bytes(32).hex()} {bytes(32).hex()}"
TOKEN = DelegationToken("token", "User:u", "User:u", (), 1, 3, 2)
TOKEN_TEXT = '["User:u", "User:u", [], 1, 3, 2]'
ACL = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:u", "*", Operation.READ, Permission.DENY)


class Rows:
    """Rows of a store, as an earlier version has written them."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def rows(self) -> list[Row]:
        return [Row(kind, key, value) for (kind, key), value in self.kept.items()]

    def add(self, kind: str, **values: str) -> None:
        self.kept |= {(kind, key): value for key, value in values.items()}


def some_rows(topic_count: int = 3, level: int = 33) -> Rows:
    """Rows of each kind."""
    rows = Rows()
    rows.add("feature", **{"metadata.version": str(level), "group.version": "1"})
    rows.add("cluster", features_epoch="1", acl_count="1", scram_count="1", next_producer_id="1000")
    rows.add("quota", **{'[["user", "u"]]': '{"producer_byte_rate": 1000.0}'})
    rows.add("acl", **{ACL_ID.hex(): '[2, "t", 3, "User:u", "*", 3, 2]'})
    rows.add("scram", **{"SCRAM-SHA-256/u": SCRAM_TEXT})
    rows.add("token", token=TOKEN_TEXT)
    for number in range(topic_count):
        rows.add("topic", **{f"t{number}": f"{number + 1:032x}"})
        rows.add("partition", **{f"t{number}/{index}": "1 0 1 1" for index in range(2)})
    rows.add("deletion", **{f"{GONE.hex()}": "gone"})
    rows.add("topic_config", **{"t0/retention.ms": "5"})
    rows.add("broker_config", **{"/log.cleaner.threads": "2", "1/background.threads": "3"})
    rows.add("group_config", **{"consumer.session.timeout.ms/g": "45000"})
    rows.add("client-metrics", **{"interval.ms/m": "60000"})
    return rows


def compared(view: ClusterView) -> ClusterView:
    """What does not depend on when it was made."""
    return replace(view, version=0, features_epoch=0, acls=None)


def wanted_of(rows: Rows) -> ClusterView:
    """The view of a log that has all of the rows, and no registration yet."""
    places = {
        (name, int(index)): DIRECTORY_ID
        for kind, key in rows.kept
        if kind == "partition"
        for name, index in [key.split("/")]
    }
    view = from_rows(rows.rows(), places).view
    return compared(replace(view, features={**view.features, "kraft.version": 1}))


def prepared(rows: Rows) -> MemoryDisk:
    """A disk with a file in the place of the store, and a directory for each partition."""
    disk = new_disk()
    disk.open(STORE, create=True).close()
    for kind, key in rows.kept:
        if kind == "partition":
            disk.make_directory(f"data/{key.replace('/', '-')}")
    disk.make_directory("data/gone-0")
    write_partition_metadata(disk, "data/gone-0/partition.metadata", GONE)
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
    assert migrated(disk, rows)
    view = view_of(opened(disk))
    assert {name: topic.topic_id for name, topic in view.topics.items()} == {
        f"t{number}": (number + 1).to_bytes(16, "big") for number in range(3)
    }
    for topic in view.topics.values():
        assert topic.partitions == tuple(
            PartitionView(index, NO_LEADER, 0, (1,), (1,), directories=(DIRECTORY_ID,)) for index in range(2)
        )
    assert [dict(view.topics[f"t{number}"].configs) for number in range(3)] == [{"retention.ms": "5"}, {}, {}]
    assert view.features == {"metadata.version": 33, "group.version": 1, "kraft.version": 1}
    assert view.broker_configs == {None: {"log.cleaner.threads": "2"}, 1: {"background.threads": "3"}}
    assert view.group_configs == {"g": {"consumer.session.timeout.ms": "45000"}}
    assert view.client_metrics_configs == {"m": {"interval.ms": "60000"}}
    assert view.client_quotas == {(("user", "u"),): {"producer_byte_rate": 1000.0}}
    assert view.acls is not None
    assert view.acls.by_id == {ACL_ID: ACL}
    assert view.scram_users.credentials == {("u", 1): CREDENTIAL}
    assert view.delegation_tokens.by_id == {"token": TOKEN}
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
    assert from_rows(rows.rows(), {}).deletions == {GONE: "gone"}
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
    assert compared(view_of(log)) == wanted_of(rows)


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
    wanted = wanted_of(rows)
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
    write_store(path, rows.rows())
    return path


def test_a_check_says_what_would_be_taken_over(tmp_path: pathlib.Path) -> None:
    rows = some_rows()
    path = real_store(tmp_path, rows)
    before = pathlib.Path(path).read_bytes()
    is_whole, told = check_migration(path)
    assert is_whole
    assert told[0].startswith("3 topics with 6 partitions, 1 ACLs and 1 credentials of users ")
    assert told[1:] == ["the deletion of 1 topics has to be finished"]
    assert pathlib.Path(path).read_bytes() == before
    del rows.kept["partition", "t1/0"]
    os.remove(path)
    real_store(tmp_path, rows)
    is_whole, told = check_migration(path)
    assert not is_whole
    assert "its rows cannot be taken over" in told[0]


def test_a_store_that_a_kill_has_left_open_is_taken_over_with_its_last_rows(tmp_path: pathlib.Path) -> None:
    rows = some_rows()
    path = real_store(tmp_path, rows)
    killed = tmp_path / "killed"
    killed.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        row = ("topic_config", "t1/flush.ms", "7")
        connection.execute("INSERT INTO facts VALUES (?, ?, ?, ?)", (*row, checksum(*row)))
        connection.commit()
        for name in ("odradek-metadata.db", "odradek-metadata.db-wal"):
            shutil.copy(tmp_path / name, killed / name)
    node = Node(VOTER, {str(killed): DIRECTORY_ID}, str(killed))
    migrate(OsDisk(), str(killed / "odradek-metadata.db"), node, now_ms=lambda: 1000)
    log = DiskMetadataLog(OsDisk(), str(killed / DIRECTORY), VOTER, now_ms=lambda: 1000)
    assert view_of(log).topics["t1"].configs == {"flush.ms": "7"}
    log.close()


def test_a_damaged_store_is_refused_and_stays(tmp_path: pathlib.Path) -> None:
    path = real_store(tmp_path, some_rows())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE facts SET value = 'x' WHERE kind = 'topic'")
        connection.commit()
    node = Node(VOTER, {str(tmp_path): DIRECTORY_ID}, str(tmp_path))
    with pytest.raises(ConfigError, match="start the version of Odradek that wrote it"):
        migrate(OsDisk(), path, node, now_ms=lambda: 1000)
    assert not (tmp_path / DIRECTORY).exists()


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
    wanted = wanted_of(rows)
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
