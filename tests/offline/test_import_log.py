"""`odradek import-log`: partition directories from elsewhere become a topic, whole or not at all."""

import io
import json
import os
import shutil

import pytest

from odradek.commands import main as cli
from odradek.offline.check import check
from odradek.offline.import_log import CannotImport, _Import, import_log
from odradek.server.metadata.meta_properties import METADATA_LOG
from odradek.server.metadata.metadata_log import DiskMetadataLog
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk, OsFile
from odradek.storage.log.transactions import Verified
from odradek.wire.compression import Compression, compress
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode
from odradek.wire.errors import KafkaError as StorageRefusal
from odradek.wire.legacy_records import build_message
from odradek.wire.messages.metadata_records import (
    PartitionChangeRecord,
    RemoveTopicRecord,
    encode_metadata_record,
)
from odradek.wire.records import Record, build_batch
from tests.kit import compressed_forms
from tests.kit.collecting import collected
from tests.kit.data_directories import controller_of
from tests.kit.kafka_directories import (
    COUNT,
    FIRST,
    NOW_MS,
    TOPIC_ID,
    USERS_ID,
    config_record,
    expected,
    make_kafka,
    next_producer_id,
    refused,
    served,
    split_in_two,
    take_in,
    topic_record,
    topic_records,
    topics,
    write_metadata,
)


@pytest.fixture
def kafka(made_once, tmp_path):
    return shutil.copytree(made_once, tmp_path / made_once.name)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """Made with every flush to the disk, which takes longer than a test."""
    return make_kafka(tmp_path_factory.mktemp("original"))


@pytest.fixture
def two_directories(kafka, tmp_path):
    return split_in_two(kafka, tmp_path)


# --- Taking in ---


def test_a_topic_of_a_log_directory_becomes_a_topic_with_its_id(kafka, tmp_path):
    data = tmp_path / "data"
    lines = take_in(kafka, data=data, configs={"retention.ms": "-1"})
    assert lines[0].startswith(f"partition orders-0: offsets 0 to {COUNT - 1}, ")
    assert lines[-1] == (
        f"topic orders (id AQIDBAUGBwgJCgsMDQ4PEA) is in {data}: odradek serve --data-dir {data} serves it"
    )
    topic = topics(data)["orders"]
    assert (topic.topic_id, dict(topic.configs)) == (TOPIC_ID, {"retention.ms": "-1"})
    assert [(one.index, one.leader, one.leader_epoch) for one in topic.partitions] == [
        (n, 1, 4) for n in range(3)
    ]
    for index in range(3):
        assert served(data, index=index) == (expected(index), 0)
    assert (kafka / "orders-0").exists()
    assert next_producer_id(data) == 4
    out = io.StringIO()
    assert check([str(data)], out=out) == 0, out.getvalue()


def test_a_leader_epoch_without_a_record_counts(kafka, tmp_path):
    """Share groups keep the epoch of the leader with their state, and take no older leader."""
    unchanged = PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[1])
    elected = PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=1)
    of_others = PartitionChangeRecord(partition_id=0, topic_id=USERS_ID, leader=1)
    changes = [encode_metadata_record(one, 0) for one in (unchanged, *[elected] * 7, *[of_others] * 9)]
    write_metadata(
        kafka,
        f"{0:020}.log",
        0,
        *topic_records("orders", 3),
        *topic_records("users", 1, USERS_ID),
        *changes,
    )
    take_in(kafka, data=tmp_path / "data")
    epochs = [one.leader_epoch for one in topics(tmp_path / "data")["orders"].partitions]
    # The log has 4 as its latest; the metadata begin at -1.
    assert epochs == [4, 6, 4]


def test_where_share_groups_are_is_taken_in_with_settings_that_one_node_can_have(kafka, tmp_path):
    name = "__share_group_state"
    take_in(str(kafka / "users-0"), data=tmp_path / "data", topic=name)
    configs = topics(tmp_path / "data")[name].configs
    assert (configs["cleanup.policy"], configs["min.insync.replicas"]) == ("delete", "1")


def test_old_records_are_announced_to_be_deleted_soon(kafka, tmp_path):
    lines = take_in(kafka, data=tmp_path / "data")
    assert any(
        "are older than retention.ms=604800000 and will be deleted soon after a start" in line
        for line in lines
    )
    lines = take_in(kafka, data=tmp_path / "data", topic="users", configs={"cleanup.policy": "compact"})
    assert not any("attention" in line for line in lines)


def test_the_settings_come_from_kafkas_metadata(kafka, tmp_path):
    data = tmp_path / "data"
    write_metadata(
        kafka,
        f"{5:020}-0000000001.checkpoint",
        0,
        topic_record("orders"),
        config_record("retention.ms", "1"),
        config_record("retention.bytes", "77"),
    )
    write_metadata(
        kafka,
        f"{0:020}.log",
        3,
        config_record("segment.ms", "1"),
        config_record("segment.ms", "2"),
        config_record("retention.ms", "-1"),
        config_record("retention.bytes", None),
        config_record("retention.bytes", "5", topic="users"),
        config_record("cleanup.policy", "compact,delete"),
        config_record("min.insync.replicas", "2"),
        config_record("segment.bytes", "3"),
    )
    lines = take_in(kafka, data=data)
    assert dict(topics(data)["orders"].configs) == {"retention.ms": "-1", "cleanup.policy": "compact,delete"}
    assert "attention: min.insync.replicas=2 is not imported: there is one replica here." in lines
    assert any(line.startswith("attention: segment.bytes=3 is not imported: ") for line in lines)


def test_a_topic_that_was_deleted_leaves_its_settings_to_nobody(kafka, tmp_path):
    write_metadata(
        kafka,
        f"{0:020}.log",
        0,
        topic_record("orders", bytes(16)),
        config_record("retention.ms", "1"),
        encode_metadata_record(RemoveTopicRecord(topic_id=bytes(16)), 0),
        topic_record("orders"),
    )
    take_in(kafka, data=tmp_path / "data")
    assert not topics(tmp_path / "data")["orders"].configs


UNKNOWN = "attention: the settings of orders in Kafka are not known, since {}: it gets the defaults, and the \
values of --config NAME=VALUE; name all of Kafka's log.dirs, or give its settings with --config"


def test_settings_that_nobody_knows_are_told_with_the_way_to_give_them(kafka, tmp_path):
    metadata = kafka / "__cluster_metadata-0"
    write_metadata(kafka, f"{0:020}.log", 0, b"\x07")
    lines = take_in(kafka, data=tmp_path / "one")
    assert lines[0] == UNKNOWN.format(
        f"{metadata} cannot be read (a record is cut short or damaged: a record has a frame of an unknown "
        "version (7))"
    )
    write_metadata(kafka, f"{0:020}.log", 0, *topic_records("users", 1))
    lines = take_in(kafka, data=tmp_path / "two")
    assert lines[0] == UNKNOWN.format(f"{metadata} does not have it")
    shutil.rmtree(metadata)
    lines = take_in(kafka, data=tmp_path / "three", configs={"cleanup.policy": "compact"})
    assert lines[0] == UNKNOWN.format("no __cluster_metadata-0 is in the directories given or beside them")
    assert dict(topics(tmp_path / "three")["orders"].configs) == {"cleanup.policy": "compact"}
    (kafka / "orders-0").rename(kafka / "old")
    lines = take_in(kafka / "old", data=tmp_path / "four", partitions=[0])
    assert lines[0] == UNKNOWN.format("the directory names do not have its name")


def batches_of(*values, offset=0):
    """One batch for each value, as Kafka appends them to its metadata log."""
    return [
        bytes(build_batch([Record(number, NOW_MS, None, value)]))
        for number, value in enumerate(values, offset)
    ]


SETTINGS = (
    *topic_records("orders", 3),
    config_record("retention.ms", "1"),
    config_record("retention.ms", "-1"),
)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda before, last: [*before[:-1], before[-1][:-1] + b"?", last], "the checksum of a batch is 0x"),
        (lambda before, last: [*before[:-1], last], "the records from offset 4 to 4 are not there"),
        (lambda before, last: [*before[1:], last], "the records from offset 0 to 0 are not there"),
    ],
)
def test_metadata_that_are_damaged_in_the_middle_are_not_believed(kafka, tmp_path, damage, what):
    metadata = kafka / "__cluster_metadata-0"
    *before, last = batches_of(*SETTINGS)
    (metadata / f"{FIRST}.log").write_bytes(b"".join(damage(before, last)))
    line, *_ = take_in(kafka, data=tmp_path / "data")
    assert line.startswith("attention: the settings of orders in Kafka are not known, since ")
    assert f"{metadata} cannot be read ({FIRST}.log" in line
    assert what in line
    assert not topics(tmp_path / "data")["orders"].configs


def test_a_segment_of_the_metadata_that_is_missing_is_told(kafka, tmp_path):
    metadata = kafka / "__cluster_metadata-0"
    batches = batches_of(*SETTINGS)
    (metadata / f"{FIRST}.log").write_bytes(batches[0])
    (metadata / f"{4:020}.log").write_bytes(b"".join(batches[4:]))
    assert "the records from offset 1 to 3 are not there" in take_in(kafka, data=tmp_path / "data")[0]


@pytest.mark.parametrize("tail", [b"", bytes(500), b"torn", bytes(60), "batch"])
def test_what_a_crash_has_torn_off_the_end_of_the_metadata_was_not_decided(kafka, tmp_path, tail):
    *before, last = batches_of(*SETTINGS)
    tail = last[:-1] if tail == "batch" else tail
    (kafka / "__cluster_metadata-0" / f"{FIRST}.log").write_bytes(b"".join(before) + tail)
    assert not any("is not known" in line for line in take_in(kafka, data=tmp_path / "data"))
    assert dict(topics(tmp_path / "data")["orders"].configs) == {"retention.ms": "1"}


def test_a_snapshot_of_the_metadata_has_to_be_whole(kafka, tmp_path):
    metadata = kafka / "__cluster_metadata-0"
    batches = batches_of(*SETTINGS)
    (metadata / f"{FIRST}.log").unlink()
    (metadata / f"{6:020}.log").write_bytes(b"")
    snapshot = metadata / f"{6:020}-0000000001.checkpoint"
    snapshot.write_bytes(b"".join(batches))
    assert take_in(kafka, data=tmp_path / "one")[0].startswith("partition ")
    snapshot.write_bytes(b"".join(batches)[:-1])
    assert f"cannot be read ({snapshot.name} at byte " in take_in(kafka, data=tmp_path / "two")[0]


def test_the_log_directories_of_one_kafka_are_taken_together(two_directories, tmp_path):
    """Whichever has the metadata, and whether or not each has a partition of the topic."""
    data = tmp_path / "data"
    lines = take_in(*two_directories, data=data)
    assert not any("not known" in line for line in lines)
    assert dict(topics(data)["orders"].configs) == {"retention.ms": "-1"}
    for index in range(3):
        assert served(data, index=index) == (expected(index), 0)
    take_in(*two_directories, data=data, topic="users")
    assert dict(topics(data)["users"].configs) == {"cleanup.policy": "compact"}


def test_the_metadata_beside_any_of_the_partitions_do(two_directories, tmp_path):
    here, other = two_directories
    data = tmp_path / "data"
    take_in(here / "orders-0", other / "orders-1", here / "orders-2", data=data)
    assert dict(topics(data)["orders"].configs) == {"retention.ms": "-1"}


def test_a_part_of_a_topic_is_refused_unless_its_directories_get_numbers(two_directories, tmp_path):
    here, _ = two_directories
    shutil.move(here / "orders-2", tmp_path / "orders-2")
    data = tmp_path / "data"
    why = (
        "orders has 3 partitions in Kafka, and {} not in the directories given: name all of Kafka's "
        "log.dirs, of every broker that has some, or take those here as the whole topic by naming "
        "each one's directory and giving it a number with --partition."
    )
    assert refused(here, data=data) == why.format("partitions 1, 2 are")
    assert refused(*two_directories, data=data) == why.format("partition 2 is")
    assert not data.exists()
    take_in(here / "orders-0", data=data, partitions=[0])
    assert len(topics(data)["orders"].partitions) == 1
    assert dict(topics(data)["orders"].configs) == {"retention.ms": "-1"}


def test_single_directories_get_the_numbers_that_are_said(kafka, tmp_path):
    data = tmp_path / "data"
    take_in(kafka / "orders-2", kafka / "orders-0", data=data, topic="two", partitions=[0, 1])
    assert served(data, "two", 0) == (expected(2), 0)
    assert served(data, "two", 1) == (expected(0), 0)


def test_indexes_and_snapshots_may_be_missing(kafka, tmp_path):
    for path in list((kafka / "orders-0").iterdir()):
        if path.suffix != ".log":
            path.unlink()
    data = tmp_path / "data"
    take_in(kafka, data=data)
    assert served(data) == (expected(), 0)


def test_deleted_records_stay_deleted(kafka, tmp_path):
    (kafka / "log-start-offset-checkpoint").write_text("0\n1\norders 1 5\n")
    data = tmp_path / "data"
    take_in(kafka, data=data)
    assert served(data, index=1) == (expected(1)[5:], 5)


def test_of_a_link_to_a_partition_counts_what_is_beside_the_partition(kafka, tmp_path):
    (kafka / "log-start-offset-checkpoint").write_text("0\n1\norders 0 7\n")
    (tmp_path / "orders-0").symlink_to(kafka / "orders-0")
    data = tmp_path / "data"
    store = LogStore(OsDisk(), [str(kafka)])
    store.open(NOW_MS)
    why = refused(tmp_path / "orders-0", data=data, partitions=[0])
    assert why == f"A broker is running on {kafka}: stop it first."
    store.close(NOW_MS)
    take_in(tmp_path / "orders-0", data=data, partitions=[0], move=True)
    assert served(data) == (expected()[7:], 7)
    assert not os.path.lexists(tmp_path / "orders-0")
    assert not (kafka / "orders-0").exists()


def test_a_second_topic_joins_the_first(kafka, tmp_path):
    data = tmp_path / "data"
    take_in(kafka, data=data)
    take_in(kafka, data=data, topic="users")
    assert set(topics(data)) == {"orders", "users"}
    assert served(data, "users") == (expected(), 0)
    take_in(kafka / "orders-0", data=data, topic="again", partitions=[0])
    assert topics(data)["again"].topic_id not in (TOPIC_ID, bytes(16))


def test_moving_links_and_removes_the_source(kafka, tmp_path):
    inode = (kafka / "orders-0" / f"{FIRST}.log").stat().st_ino
    data = tmp_path / "data"
    take_in(kafka, data=data, move=True)
    assert (data / "orders-0" / f"{FIRST}.log").stat().st_ino == inode
    assert not (kafka / "orders-0").exists()
    assert (kafka / "users-0").exists()
    assert served(data) == (expected(), 0)


def test_a_source_that_cannot_be_removed_is_told_with_the_topic_that_is_there(kafka, tmp_path):
    data = tmp_path / "data"
    (kafka / "orders-1" / "notes").mkdir()
    lines = take_in(kafka, data=data, move=True)
    assert f"attention: {kafka}/orders-1/notes: Is a directory; remove {kafka}/orders-1 by hand" in lines
    assert served(data, index=2) == (expected(2), 0)
    assert not (kafka / "orders-0").exists()
    assert not (kafka / "orders-2").exists()


def test_moving_removes_a_directory_and_the_link_to_it(kafka, tmp_path):
    (kafka / "orders-1").rename(tmp_path / "elsewhere")
    (kafka / "orders-1").symlink_to(tmp_path / "elsewhere")
    assert not any(
        "attention" in line and "remove" in line for line in take_in(kafka, data=tmp_path / "data", move=True)
    )
    assert served(tmp_path / "data", index=1) == (expected(1), 0)
    assert not os.path.lexists(kafka / "orders-1")
    assert not (tmp_path / "elsewhere").exists()


def test_a_reader_that_is_gone_does_not_undo_what_was_taken_in(kafka, tmp_path):
    class Gone(io.StringIO):
        def write(self, text):
            if topics(tmp_path / "data"):
                raise BrokenPipeError
            return len(text)

    with pytest.raises(BrokenPipeError):
        import_log([str(kafka)], topic="orders", data_dir=str(tmp_path / "data"), out=Gone())
    assert served(tmp_path / "data") == (expected(), 0)


def test_a_directory_that_lies_in_its_place_is_taken_in_where_it_is(kafka, tmp_path):
    data = tmp_path / "data"
    take_in(kafka, data=data)
    shutil.copytree(kafka / "users-0", data / "users-0")
    take_in(data / "users-0", data=data, topic="users")
    assert served(data, "users") == (expected(), 0)


@pytest.mark.parametrize("how", ["copied", "linked", "in place"])
def test_the_disk_has_every_log_before_the_checkpoint_says_so(kafka, tmp_path, monkeypatch, how):
    data = tmp_path / "data"
    synced = set()

    def note(descriptor, sync=os.fdatasync):
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", note)
    if how == "in place":
        take_in(kafka, data=data, topic="users")
        for index in range(3):
            (kafka / f"orders-{index}").rename(data / f"orders-{index}")
        take_in(*sorted(data.glob("orders-*")), data=data)
    else:
        take_in(kafka, data=data, move=how == "linked")
    logs = list(data.glob("orders-*/*.log"))
    assert len(logs) > 3
    assert {path.stat().st_ino for path in logs} <= synced


def test_room_behind_the_entries_of_an_index_is_not_taken_over(kafka, tmp_path):
    index = next((kafka / "orders-0").glob("*.timeindex"))
    index.write_bytes(index.read_bytes() + bytes(1200))
    data = tmp_path / "data"
    take_in(kafka, data=data)
    assert not (data / "orders-0" / index.name).read_bytes().endswith(bytes(12))


def test_the_room_that_kafka_had_set_aside_for_indexes_is_not_copied(kafka, tmp_path, monkeypatch):
    """A copy that goes with the first full disk, of zeros that go with the next step."""
    for path in (*kafka.glob("orders-*/*.index"), *kafka.glob("orders-*/*.timeindex")):
        os.truncate(path, 10 << 20)
    written = 0

    def write(self, position, parts, write=OsFile.write):
        nonlocal written
        taken = write(self, position, parts)
        written += taken
        return taken

    monkeypatch.setattr(OsFile, "write", write)
    data = tmp_path / "data"
    take_in(kafka, data=data)
    assert written < 1 << 20
    assert served(data) == (expected(), 0)
    assert check([str(data)], out=io.StringIO()) == 0


# --- Transactions ---


def test_transactions_that_nobody_will_end_are_told(kafka, tmp_path):
    store = LogStore(OsDisk(), [str(kafka)])
    store.open(NOW_MS)
    partition = store.create("trades", 0, bytes(range(3, 19)), LogConfig())
    for producer_id in (7, 8, 9):
        batch = build_batch(
            [Record(0, NOW_MS, None, b"v")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        verified = Verified(partition.begin_verification(producer_id, 0, 0, version=2), 2)
        partition.appends.append(batch, now_ms=NOW_MS, transactions=verified)
        partition.commit()
    partition.appends.append_marker(EndMarker(8, 0, 1, commit=False), now_ms=NOW_MS)
    partition.commit()
    store.close(NOW_MS)
    lines = take_in(kafka, data=tmp_path / "data", topic="trades")
    assert (
        "attention: transactions are open, and readers of committed records stop before them until they "
        "are aborted with kafka-transactions.sh abort: trades-0 from offset 0 on (producer 7), trades-0 from "
        "offset 2 on (producer 9)"
    ) in lines
    assert not any("transactions are open" in line for line in take_in(kafka, data=tmp_path / "data"))


# --- Directories that no topic has ---


# --- Old formats ---


def test_messages_of_old_formats_are_converted(kafka, tmp_path):
    old = tmp_path / "old-0"
    old.mkdir()
    inner = b"".join(
        build_message(1, offset=n, timestamp=NOW_MS + n, key=b"k", value=b"w%d" % n) for n in range(3)
    )
    log = b"".join(
        [
            build_message(0, offset=0, key=None, value=b"v0"),
            build_message(0, offset=2, key=b"k", value=None),
            build_message(1, offset=3, timestamp=NOW_MS, key=b"k", value=b"v1"),
            build_message(
                1,
                offset=6,
                timestamp=NOW_MS + 2,
                key=None,
                value=compress(Compression.GZIP, inner, magic=1),
                attributes=Compression.GZIP,
            ),
            bytes(build_batch([Record(7, NOW_MS + 9, None, b"v2")])),
        ]
    )
    (old / f"{FIRST}.log").write_bytes(log)
    data = tmp_path / "data"
    _, line, *_ = take_in(old, data=data, topic="old")
    assert ", 4 messages of an old format converted, " in line
    assert served(data, "old")[0] == [
        (0, -1, None, b"v0"),
        (2, -1, b"k", None),
        (3, NOW_MS, b"k", b"v1"),
        *((4 + n, NOW_MS + n, b"k", b"w%d" % n) for n in range(3)),
        (7, NOW_MS + 9, None, b"v2"),
    ]
    assert (old / f"{FIRST}.log").read_bytes() == log
    assert check([str(data)], out=io.StringIO()) == 0


def test_an_old_log_is_compacted_like_any_other_once_it_is_taken_in(tmp_path):
    """Kafka cleans such a log in its old format; here none is left of it."""
    old = tmp_path / "old-0"
    old.mkdir()
    offset = 0
    for segment in range(4):
        messages = []
        base_offset = offset
        for n in range(20):
            key = b"key%d" % (n % 7)
            value = None if n == 13 else b"%d" % offset
            messages.append(
                build_message(segment % 2, offset=offset, timestamp=NOW_MS + offset, key=key, value=value)
            )
            offset += 1
        (old / f"{base_offset:020}.log").write_bytes(b"".join(messages))
    data = tmp_path / "data"
    take_in(old, data=data, topic="old", configs={"cleanup.policy": "compact"})
    before = served(data, "old")[0]
    assert len(before) == 80
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01, delete_retention_ms=0
    )
    store = LogStore(OsDisk(), [str(data)], config_for=lambda topic: config)
    store.open(NOW_MS)
    partition = store.get("old", 0)
    for later_ms in (1000, 2000):
        partition.appends.append(
            build_batch([Record(0, NOW_MS + 1000, b"last", b"%d" % later_ms)]), now_ms=NOW_MS
        )
        partition.commit()
        partition.log.roll(NOW_MS)
        partition.flush()
        while store.compact(NOW_MS + later_ms):
            pass
    assert store.cleaner.uncleanable() == {}
    store.close(NOW_MS)
    latest = {key: one for one in before for key in [one[2]]}
    left = served(data, "old")[0]
    # A tombstone goes with the round after the one that first saw it.
    assert [one for one in left if one[2] != b"last"] == sorted(
        one for one in latest.values() if one[3] is not None
    )


# --- Refusals ---


def test_refusals_are_one_sentence_that_says_what_to_do(kafka, tmp_path):
    data = tmp_path / "data"
    assert refused(kafka, data=data, topic=None) == (
        f"{kafka} is a whole log directory: "
        "name the topic with --topic, one topic at a time; it has orders, users."
    )
    assert (
        refused(kafka, data=data, topic="bills")
        == f"{kafka} has no partition of bills: it has orders, users."
    )
    (tmp_path / "empty").mkdir()
    assert (
        refused(kafka, tmp_path / "empty", data=data, topic="bills")
        == f"{kafka}, {tmp_path}/empty have no partition of bills: they have orders, users."
    )
    assert refused(kafka / "__cluster_metadata-0", data=data).startswith(
        f"{kafka}/__cluster_metadata-0 is the metadata log of a Kafka cluster, not a topic: "
    )
    assert refused(kafka / "orders-0", kafka / "orders-2", data=data) == (
        "Partition 1 of orders is missing, 2 is there: a topic's partitions are numbered from 0 without a "
        "gap; name all of them, or give other numbers with --partition."
    )
    assert refused(kafka / "orders-0", kafka / "orders-0", data=data) == (
        "There are two directories of partition 0 of orders."
    )
    assert refused(kafka / "orders-0", kafka / "orders-1", data=data, partitions=[0]) == (
        "--partition is the number of a partition directory: give it once for each DIR."
    )
    assert refused(kafka / "orders-0", kafka / "users-0", data=data, partitions=[0, 1]).startswith(
        "The directories are of different topics, with the ids "
    )
    assert refused(tmp_path / "nowhere", data=data).startswith(f"{tmp_path}/nowhere is not a directory")
    with pytest.raises(CannotImport, match=f"{kafka} is a data directory of Apache Kafka itself"):
        take_in(kafka, data=kafka)
    assert "Illegal topic name" in refused(kafka / "orders-0", data=data, topic="a b")
    assert "retention.ms" in refused(kafka, data=data, configs={"retention.ms": "soon"})
    assert refused(kafka / "users-0", data=data, topic="__transaction_state").startswith(
        "__transaction_state is an internal topic of Apache Kafka"
    )


def test_an_existing_topic_is_refused(kafka, tmp_path):
    data = tmp_path / "data"
    take_in(kafka, data=data)
    with pytest.raises(CannotImport) as error:
        take_in(kafka, data=data)
    assert str(error.value) == (
        f"{data} has a topic orders already: choose another name with --topic, or delete this topic first."
    )


def test_damaged_metadata_are_refused_until_they_are_repaired(kafka, tmp_path):
    data = tmp_path / "data"
    take_in(kafka, data=data, topic="users")
    (segment,) = (data / METADATA_LOG).glob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b"group.version", b"GROUP.VERSION"))
    with pytest.raises(CannotImport) as error:
        take_in(kafka, data=data)
    assert str(error.value).startswith(f"{data / METADATA_LOG}: the metadata log is damaged in ")
    assert str(error.value).endswith(f"Repair it with odradek check --repair {data}.")
    assert check([str(data)], repair=True, out=io.StringIO()) == 0
    take_in(kafka, data=data)
    assert topics(data).keys() == {"users", "orders"}


def test_a_directory_of_somebody_is_not_taken_for_an_interrupted_import(kafka, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(kafka / "orders-0", data / "old-import")
    out = io.StringIO()
    take_in(data / "old-import", data=data, partitions=[0])
    assert (data / "old-import" / f"{FIRST}.log").exists()
    assert check([str(data)], out=out) == 0
    assert "old-import" not in out.getvalue()


def test_an_empty_name_is_no_data_directory(kafka, tmp_path, monkeypatch):
    """`--data-dir "$NOT_SET"` of a shell: it would be the root of all directories."""
    monkeypatch.setattr("odradek.offline.import_log._Import", None)  # lest it come so far
    with pytest.raises(CannotImport) as error:
        import_log([str(kafka)], topic="orders", data_dir="", out=io.StringIO())
    assert str(error.value) == "--data-dir is empty: name the directory where Odradek has its data."


def test_a_directory_in_the_way_is_refused(kafka, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(kafka / "users-0", data / "orders-1")
    assert refused(kafka, data=data) == (
        f"{data}/orders-1 exists already and belongs to no topic: import it, or move it away."
    )


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_running_broker_is_refused(kafka, tmp_path, which):
    data = tmp_path / "data"
    busy = kafka if which == "source" else data
    store = LogStore(OsDisk(), [str(busy)])
    store.open(NOW_MS)
    with pytest.raises(CannotImport) as error:
        take_in(kafka, data=data)
    assert str(error.value) == f"A broker is running on {busy}: stop it first."
    store.close(NOW_MS)
    take_in(kafka, data=data)


def test_a_damaged_log_is_refused_until_it_is_repaired(kafka, tmp_path):
    data = tmp_path / "data"
    log = sorted((kafka / "orders-1").glob("*.log"))[-1]
    log.write_bytes(log.read_bytes()[:-3])
    why = refused(kafka, data=data)
    assert why.startswith(f"{log} is damaged at byte ")
    assert why.endswith(f": odradek check --repair {kafka / 'orders-1'} saves the sound records.")
    assert not any(path.name.startswith("orders") for path in data.iterdir())
    assert check([str(kafka / "orders-1")], repair=True, out=io.StringIO()) == 0
    take_in(kafka, data=data)
    assert len(served(data, index=1)[0]) == COUNT - 1


@pytest.mark.parametrize(("which", "in_place"), [(0, False), (1, False), (-1, False), (0, True), (1, True)])
def test_a_log_file_that_is_gone_is_refused_as_damage(kafka, tmp_path, which, in_place):
    data = tmp_path / "data"
    if in_place:
        take_in(kafka, data=data, topic="users")
        for index in range(3):
            (kafka / f"orders-{index}").rename(data / f"orders-{index}")
    source = data if in_place else kafka
    log = sorted((source / "orders-1").glob("*.log"))[which]
    log.unlink()
    with pytest.raises(CannotImport) as error:
        take_in(source, data=data)
    assert str(error.value).startswith(f"{log} is damaged (it is missing, but it has indexes")
    assert log.with_suffix(".index").exists()
    assert check([str(source / "orders-1")], repair=True, out=io.StringIO()) == 0
    take_in(source, data=data)


def test_indexes_of_a_segment_that_was_never_flushed_are_not_taken_over(kafka, tmp_path):
    (kafka / ".kafka_cleanshutdown").unlink()
    (kafka / "recovery-point-offset-checkpoint").write_text("0\n1\norders 1 8\n")
    log = sorted((kafka / "orders-1").glob("*.log"))[-1]
    log.unlink()
    data = tmp_path / "data"
    take_in(kafka, data=data)
    assert not (data / "orders-1" / log.name.replace(".log", ".index")).exists()
    assert served(data, index=1) == (expected(1)[:8], 0)


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_log_that_ends_before_what_was_flushed_is_refused_as_damage(kafka, tmp_path, is_clean):
    data = tmp_path / "data"
    if not is_clean:
        (kafka / ".kafka_cleanshutdown").unlink()
    log = sorted((kafka / "orders-1").glob("*.log"))[-1]
    log.write_bytes(b"")
    assert refused(kafka, data=data) == (
        f"{kafka}/orders-1 is damaged (its log ends at 8, but it was flushed up to {COUNT}): "
        f"odradek check --repair {kafka}/orders-1 saves the sound records."
    )
    assert check([str(kafka / "orders-1")], repair=True, out=io.StringIO()) == 0
    take_in(kafka, data=data)
    assert served(data, index=1) == (expected(1)[:8], 0)


def test_a_full_disk_is_told_with_the_path(kafka, tmp_path, monkeypatch):
    """Whichever write finds it so. A short one, and one of SQLite's, bring no path of their own."""
    left = 0

    def write(self, position, parts, write=OsFile.write):
        nonlocal left
        left -= 1
        if left < 0:
            return 0
        return write(self, position, parts)

    monkeypatch.setattr(OsFile, "write", write)
    why = {}
    for count in range(1000):
        left = count
        data = tmp_path / f"data-{count}"
        try:
            take_in(kafka, data=data)
        except CannotImport as error:
            path, _, rest = str(error).partition(": ")
            assert path.startswith(str(data))
            if METADATA_LOG in path or "metadata log" in rest:
                assert "the disk is full." in rest
            else:
                assert rest == "the disk is full; nothing was imported."
            left = 1000
            assert not topics(data)
            why[count] = path
        else:
            break
    assert any(path.endswith(f"-import/{FIRST}.index") for path in why.values())
    assert len(why) > 20

    def full(self, records, metadata_version):
        raise StorageRefusal(
            ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log could not be written: disk is full."
        )
        yield None

    left = 1000
    data = tmp_path / "data"
    with controller_of(data):
        pass
    monkeypatch.setattr(DiskMetadataLog, "appending", full)
    assert refused(kafka, data=data) == (
        f"{data}: The metadata log could not be written: disk is full. Nothing was imported."
    )


# --- Crashes ---


class Killed(BaseException):
    """The process is gone: nothing that it would still have done happens."""


STEPS = ("open", "rename", "remove", "sync_directory", "make_directory", "set_modified_ms")


def count_down(monkeypatch, left):
    """Let the process be killed at one of its changes; returns what tells how many there were."""
    done = [0]

    def killing(function):
        def step(*arguments, **keywords):
            done[0] += 1
            if done[0] > left:
                raise Killed
            return function(*arguments, **keywords)

        return step

    for name in STEPS:
        monkeypatch.setattr(OsDisk, name, killing(getattr(OsDisk, name)))
    return done


@pytest.mark.deep
@pytest.mark.parametrize("move", [False, True])
def test_a_kill_at_any_moment_leaves_nothing_visible_or_the_whole(kafka, tmp_path, monkeypatch, move):
    data = tmp_path / "data"
    with monkeypatch.context() as patch:
        done = count_down(patch, 10**9)
        take_in(kafka, data=tmp_path / "trial", move=False)
    visible = 0
    # All moments of the end, when things get their names, and some of the copying before it.
    for moment in (*range(0, done[0] - 24, 11), *range(done[0] - 24, done[0] + 4, 2)):
        source = tmp_path / "source"
        for directory in (data, source):
            shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(kafka, source)
        with monkeypatch.context() as patch:
            count_down(patch, moment)
            try:
                take_in(source, data=data, move=move)
            except Killed:
                pass
        if "orders" not in topics(data):
            take_in(source, data=data, move=move)
        else:
            visible += 1
        for index in range(3):
            assert served(data, index=index) == (expected(index), 0), moment
        assert not [path for path in data.iterdir() if path.name.endswith("-import")]
    assert visible


def test_what_an_interrupted_import_has_left_is_no_source(kafka, tmp_path, monkeypatch):
    """It would be cleared away first: the only copy, where somebody took the import for complete."""
    data = tmp_path / "data"

    def killed(self):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(_Import, "_write_checkpoints", killed)
        with pytest.raises(Killed):
            take_in(kafka, data=data)
    out = io.StringIO()
    assert check([str(data)], out=out) == 0
    for index, line in enumerate(out.getvalue().splitlines()[:-1]):
        assert line == (
            f"note {data}/orders-{index}: an import that was interrupted. "
            "The next odradek import-log removes it."
        )
    (tmp_path / "link").symlink_to(data)
    for source in (data, tmp_path / "link", data / "orders-1"):
        options = {"partitions": [0]} if source.name == "orders-1" else {}
        first = source if options else data / "orders-0"
        assert refused(source, data=data, **options) == (
            f"{first} was left by an interrupted import: import from the same source again, or "
            f"move it out of {data} and import it from there."
        )
    assert (data / "orders-0" / f"{FIRST}.log").exists()
    take_in(kafka, data=data)
    assert served(data) == (expected(), 0)


# --- The command ---


def run(capsys, *arguments):
    status = cli.main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command_takes_in_or_says_one_sentence(kafka, tmp_path, capsys):
    data = str(tmp_path / "data")
    status, out, err = run(capsys, "import-log", str(kafka), "--data-dir", data)
    assert (status, out) == (1, "")
    assert err.startswith(f"odradek: {kafka} is a whole log directory: name the topic with --topic")
    arguments = (str(kafka), "--topic", "orders", "--data-dir", data)
    assert (
        run(capsys, "import-log", *arguments, "--config", "x")[2]
        == "odradek: --config x is not NAME=VALUE.\n"
    )
    status, out, err = run(capsys, "import-log", *arguments, "--config", "retention.ms=-1")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1].endswith(f"odradek serve --data-dir {data} serves it")
    status, out, _ = run(capsys, "check", data, "--json")
    assert (status, json.loads(out)["partitions"]) == (0, 3)


def test_compressed_data_of_each_form_are_taken_in(tmp_path):
    directory, batches = tmp_path / "kafka-logs", compressed_forms.readable_batches()
    store = LogStore(OsDisk(), [str(directory)])
    store.open(NOW_MS)
    for index, (_, batch) in enumerate(batches):
        partition = store.create("orders", index, TOPIC_ID, LogConfig())
        partition.appends.append(bytearray(batch), now_ms=NOW_MS)
        partition.commit()
    store.close(NOW_MS)
    (directory / "__cluster_metadata-0").mkdir()
    write_metadata(directory, f"{0:020}.log", 0, *topic_records("orders", len(batches)))
    take_in(directory, data=tmp_path / "data")
    expected = [(one.offset, one.timestamp, one.key, one.value) for one in compressed_forms.RECORDS]
    with collected() as failures:
        for index, (name, _) in enumerate(batches):
            with failures.of(name):
                assert served(tmp_path / "data", index=index) == (expected, 0)
