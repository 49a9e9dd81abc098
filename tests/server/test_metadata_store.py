"""The durable rows of the cluster's metadata, and whose data a directory holds."""

import os
import random
import sqlite3
import subprocess
import sys

import pytest

from odradek.config.broker_config import ConfigError
from odradek.config.properties import parse_properties
from odradek.coordinator.cluster.machine import Row
from odradek.server.metadata.meta_properties import FILE_NAME, claim_directories
from odradek.server.metadata.metadata_repair import repair
from odradek.server.metadata.metadata_store import DamagedMetadata, SqliteMetadataStore, verify
from odradek.storage.checkpoints import write_partition_metadata
from odradek.storage.disk import OsDisk
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import build_message
from tests.tiers import NIGHTLY


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "metadata.db")


def rows_of(path):
    store = SqliteMetadataStore(path)
    try:
        return list(store.rows())
    finally:
        store.close()


def test_rows_are_there_after_a_restart(path):
    store = SqliteMetadataStore(path)
    store.write([Row("topic", "b", "2"), Row("topic", "a", "1"), Row("feature", "a", "\N{SNOWMAN}")])
    store.write([Row("topic", "a", None), Row("topic", "b", "3")])
    store.close()
    assert rows_of(path) == [("feature", "a", "\N{SNOWMAN}"), ("topic", "b", "3")]


def test_a_write_is_on_disk_when_it_returns(path):
    # The child ends without closing anything, as after kill -9.
    program = (
        "import os, sys\n"
        "from odradek.server.metadata.metadata_store import SqliteMetadataStore\n"
        "store = SqliteMetadataStore(sys.argv[1])\n"
        "store.write([('topic', 'a', '1')])\n"
        "os._exit(9)\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-c", program, path], env=environ, check=False).returncode == 9
    assert rows_of(path) == [("topic", "a", "1")]


def test_a_write_that_fails_changes_nothing(path):
    store = SqliteMetadataStore(path)
    store.write([Row("topic", "a", "1")])
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON facts WHEN NEW.key = 'c' "
            "BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    with pytest.raises(KafkaError) as caught:
        store.write([Row("topic", "a", None), Row("topic", "b", "2"), Row("topic", "c", "3")])
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert list(store.rows()) == [("topic", "a", "1")]
    store.write([Row("topic", "b", "2")])
    assert len(list(store.rows())) == 2
    store.close()


def test_a_changed_row_is_told_instead_of_served(path):
    store = SqliteMetadataStore(path)
    store.write([Row("topic", "a", "1")])
    store.close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE facts SET value = '2'")
    with pytest.raises(ConfigError, match="damaged at topic 'a'"):
        rows_of(path)


@pytest.mark.parametrize("byte", [18, 19])
@pytest.mark.parametrize("bit", range(8))
def test_a_store_that_sqlite_would_open_and_never_write_is_damaged(path, byte, bit):
    store = SqliteMetadataStore(path)
    store.write([Row("topic", "a", "1")])
    store.close()
    with open(path, "r+b") as file:
        content = bytearray(file.read())
        content[byte] ^= 1 << bit
        file.seek(0)
        file.write(content)
    assert verify(path)[1]
    with pytest.raises(DamagedMetadata):
        SqliteMetadataStore(path)


def test_a_newer_schema_is_refused_unchanged(path):
    SqliteMetadataStore(path).close()
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA user_version={(99 ^ 0x7FFF) << 16 | 99}")
    with pytest.raises(ConfigError, match="has schema 99"):
        SqliteMetadataStore(path)


def test_what_is_no_metadata_of_ours_is_refused(path, tmp_path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE photos (name TEXT)")
    with pytest.raises(ConfigError, match="another program"):
        SqliteMetadataStore(path)
    (tmp_path / "text.db").write_text("this is no database at all, but a text of some length" * 20)
    with pytest.raises(ConfigError, match=r"text\.db"):
        SqliteMetadataStore(str(tmp_path / "text.db"))
    with pytest.raises(ConfigError, match="cannot be opened"):
        SqliteMetadataStore(str(tmp_path / "missing" / "metadata.db"))


# --- meta.properties ---


def test_a_directory_is_claimed_once_and_keeps_its_ids(tmp_path):
    directories = [str(tmp_path / "deep" / "one"), str(tmp_path / "two")]
    first = claim_directories(directories, node_id=3)
    assert claim_directories(directories, node_id=3) == first
    assert len(set(first.directory_ids.values())) == 2
    properties = parse_properties((tmp_path / "two" / FILE_NAME).read_bytes())
    assert properties == {
        "cluster.id": first.cluster_id,
        "directory.id": first.directory_ids[directories[1]],
        "node.id": "3",
        "version": "1",
    }
    assert len(first.cluster_id) == 22


def test_a_new_directory_joins_the_cluster_of_the_others(tmp_path):
    first = claim_directories([str(tmp_path / "one")], node_id=1)
    both = claim_directories([str(tmp_path / "new"), str(tmp_path / "one")], node_id=1)
    assert both.cluster_id == first.cluster_id


def test_an_id_never_looks_like_an_option(tmp_path):
    # 0xFB begins with "-" in URL-safe base64.
    chosen = [b"\xfb" * 16, b"\x01" * 16, b"\x02" * 16]
    identity = claim_directories([str(tmp_path)], node_id=1, random_bytes=lambda _: chosen.pop(0))
    assert not identity.cluster_id.startswith("-")
    assert len(chosen) == 0


def test_the_cluster_id_that_was_asked_for_is_taken_or_refused(tmp_path):
    assert claim_directories([str(tmp_path)], node_id=1, cluster_id="mine").cluster_id == "mine"
    with pytest.raises(ConfigError, match="cluster mine, not of yours"):
        claim_directories([str(tmp_path)], node_id=1, cluster_id="yours")


def test_the_directory_of_another_node_is_refused(tmp_path):
    claim_directories([str(tmp_path)], node_id=1)
    with pytest.raises(ConfigError, match=r"set node\.id=1"):
        claim_directories([str(tmp_path)], node_id=2)


def test_directories_of_two_clusters_are_refused(tmp_path):
    for name in ("one", "two"):
        claim_directories([str(tmp_path / name)], node_id=1, cluster_id=name)
    with pytest.raises(ConfigError, match="cluster two, not of one"):
        claim_directories([str(tmp_path / "one"), str(tmp_path / "two")], node_id=1)


def test_a_directory_that_kafka_wrote_is_refused_untouched(tmp_path):
    (tmp_path / "__cluster_metadata-0").mkdir()
    with pytest.raises(ConfigError, match="written by Apache Kafka"):
        claim_directories([str(tmp_path)], node_id=1)
    assert not (tmp_path / FILE_NAME).exists()


KAFKAS = "#\n#Wed Nov 25 17:56:17 UTC 2026\nnode.id=1\ndirectory.id={}\nversion=1\ncluster.id=theirs\n"


def format_as_kafka(directory, *partitions):
    """What kafka-storage format makes of a log directory, and a broker of Kafka afterwards."""
    directory.mkdir()
    (directory / FILE_NAME).write_text(KAFKAS.format(f"id-of-{directory.name}"))
    (directory / "bootstrap.checkpoint").write_bytes(b"")
    for partition in partitions:
        (directory / partition).mkdir()
    return directory


def test_kafkas_other_log_directories_are_refused_untouched(tmp_path):
    """They have no cluster metadata, but partitions, and a file that we did not write."""
    theirs, new = format_as_kafka(tmp_path / "b", "orders-1"), tmp_path / "new"
    before = (theirs / FILE_NAME).read_bytes()
    for directories in ([theirs], [new, theirs], [theirs, new]):
        with pytest.raises(ConfigError, match=r"b of log\.dirs was written by Apache Kafka, .* import-log "):
            claim_directories(map(str, directories), node_id=1)
    assert (theirs / FILE_NAME).read_bytes() == before
    assert not (new / FILE_NAME).exists()


def test_kafkas_other_log_directory_never_joins_ours(tmp_path):
    """Whoever sets CLUSTER_ID has the same one in both."""
    ours = tmp_path / "ours"
    claim_directories([str(ours)], node_id=1, cluster_id="theirs")
    (ours / "odradek-metadata.db").touch()
    theirs = format_as_kafka(tmp_path / "b", "orders-1")
    with pytest.raises(ConfigError, match="written by Apache Kafka"):
        claim_directories([str(ours), str(theirs)], node_id=1)


def test_directories_that_kafkas_tools_formatted_for_us_are_ours_once_they_are_used(tmp_path):
    directories = [format_as_kafka(tmp_path / name) for name in ("a", "b")]
    first = claim_directories(map(str, directories), node_id=1)
    assert (first.cluster_id, list(first.directory_ids.values())) == ("theirs", ["id-of-a", "id-of-b"])
    for directory in directories:
        (directory / "orders-0").mkdir()
    assert claim_directories(map(str, directories), node_id=1) == first


def test_a_directory_with_our_metadata_is_ours_whoever_formatted_it(tmp_path):
    directory = format_as_kafka(tmp_path / "a", "orders-0")
    (directory / "odradek-metadata.db").touch()
    assert claim_directories([str(directory)], node_id=1).cluster_id == "theirs"


def test_a_directory_of_partitions_that_nobody_formatted_is_claimed(tmp_path):
    (tmp_path / "orders-0").mkdir()
    first = claim_directories([str(tmp_path)], node_id=1)
    assert claim_directories([str(tmp_path)], node_id=1) == first


def test_a_directory_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file \(log\.dirs\) cannot be used"):
        claim_directories([str(tmp_path / "file")], node_id=1)
    (tmp_path / FILE_NAME).write_text("version=1")
    with pytest.raises(ConfigError, match="is damaged"):
        claim_directories([str(tmp_path)], node_id=1)


def test_a_write_in_steps_is_all_or_nothing(path):
    store = SqliteMetadataStore(path)
    store.write([Row("topic", "a", "1")])
    rows = [Row("topic", str(number), "2") for number in range(1000)]
    interrupted = store.writing([Row("topic", "a", None), *rows])
    assert next(interrupted) is None
    interrupted.close()
    store.write([Row("topic", "b", "3")])
    steps = 0
    for step in store.writing([Row("topic", "c", "4"), *rows]):
        steps += 1
        if step is not None:
            step()
    store.close()
    assert steps > 10
    assert set(rows_of(path)) == {("topic", "a", "1"), ("topic", "b", "3"), ("topic", "c", "4"), *rows}


# --- Damage ---


def test_one_flipped_bit_of_meta_properties_is_mended(tmp_path):
    first = claim_directories([str(tmp_path)], node_id=1)
    (tmp_path / "orders-0").mkdir()
    path = tmp_path / FILE_NAME
    content = path.read_bytes()
    for place in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert claim_directories([str(tmp_path)], node_id=1) == first


def test_a_meta_properties_that_cannot_be_mended_is_made_anew(tmp_path):
    first = claim_directories([str(tmp_path)], node_id=1)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(b"node.id=1", b"node.id=7").replace(b"cluster", b"cloister"))
    second = claim_directories([str(tmp_path)], node_id=1)
    assert second.cluster_id != first.cluster_id
    assert claim_directories([str(tmp_path)], node_id=1) == second


def damaged_files(tmp_path, count):
    """Sets a file with one flipped bit after the other in place; yields which bit it is."""
    path = tmp_path / "odradek-metadata.db"
    content = path.read_bytes()
    chance = random.Random(1)
    step, count = (1, 20 * count) if NIGHTLY else (17, count)
    for place in [*range(0, 8 * 100, step), *(chance.randrange(8 * len(content)) for _ in range(count))]:
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        for old in tmp_path.glob("odradek-metadata.db*"):
            old.unlink()
        path.write_bytes(damaged)
        yield place


def opened_or_repaired(path, told):
    """The rows that a start finds, whatever it takes."""
    try:
        return rows_of(path)
    except DamagedMetadata:
        repair(path, OsDisk(), [os.path.dirname(path)], node_id=1, now_ms=1, tell=told.append).close()
        return rows_of(path)


@pytest.mark.timeout(600)
def test_topics_survive_a_flipped_bit_of_the_metadata(tmp_path):
    """Wherever it is: the file is read, or kept aside and made anew from rows and directories."""
    path, topic_id = str(tmp_path / "odradek-metadata.db"), bytes(range(16))
    store = SqliteMetadataStore(path)
    rows = {("topic", "t"): topic_id.hex(), ("partition", "t/0"): "1 0 1 1", ("partition", "t/1"): "1 0 1 1"}
    kept = ("topic_config", "t/retention.ms")
    store.write([Row(kind, key, value) for (kind, key), value in rows.items()])
    store.write([Row(*kept, "-1"), Row("topic_config", "t/cleanup.policy", "compact")])
    store.close()
    for index in range(2):
        directory = tmp_path / f"t-{index}"
        directory.mkdir()
        write_partition_metadata(OsDisk(), f"{directory}/partition.metadata", topic_id)
    told: list[str] = []
    whole = 0
    for place in damaged_files(tmp_path, 60):
        found = {(kind, key): value for kind, key, value in opened_or_repaired(path, told)}
        assert found.items() >= rows.items(), f"bit {place}"
        assert found[kept] == "-1", f"bit {place}: what was to stay for ever would be deleted"
        whole += found.get(("topic_config", "t/cleanup.policy")) == "compact"
        assert place >= 8 * 100 or found["topic_config", "t/cleanup.policy"] == "compact", f"bit {place}"
    assert told
    assert whole > 80


def test_a_changed_bit_of_a_row_is_mended_by_its_checksum(path):
    rows = {("topic", "t"): "00" * 16, ("partition", "t/0"): "1 0 1 1"}
    rows["topic_config", "t/retention.ms"] = "86400000"
    store = SqliteMetadataStore(path)
    store.write([Row(kind, key, value) for (kind, key), value in rows.items()])
    store.close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE facts SET value = '06400000' WHERE kind = 'topic_config'")
    told: list[str] = []
    repair(path, OsDisk(), [], node_id=1, now_ms=1, tell=told.append).close()
    assert {(kind, key): value for kind, key, value in rows_of(path)} == rows
    assert told[0] == "3 rows of the metadata could be read, and that is all that there were"


KEEPS_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def test_a_topic_whose_settings_may_be_lost_keeps_all_records_and_says_so(path):
    store = SqliteMetadataStore(path)
    offsets, shares = "__consumer_offsets", "__share_group_state"
    for name in ("a", "b", offsets, shares):
        store.write([Row("topic", name, "00" * 16), Row("partition", f"{name}/0", "1 0 1 1")])
    store.write([Row("topic_config", "b/retention.ms", "5000"), Row("topic_config", "x/y", "z")])
    store.close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE facts SET value = 'another' WHERE key = 'x/y'")
    told: list[str] = []
    repair(path, OsDisk(), [], node_id=1, now_ms=1, tell=told.append).close()
    settings = {key: value for kind, key, value in rows_of(path) if kind == "topic_config"}
    assert settings == {
        **{f"a/{option}": value for option, value in KEEPS_ALL.items()},
        **{f"b/{option}": value for option, value in KEEPS_ALL.items()},
        "b/retention.ms": "5000",
        f"{offsets}/cleanup.policy": "compact",
        # Its updates all count.
        **{f"{shares}/{option}": value for option, value in KEEPS_ALL.items()},
    }
    assert "others are lost" in told[0]
    assert told[1].startswith(f"topics {shares}, a, b: their settings may be lost; they keep all records")


def test_a_directory_with_messages_of_old_formats_becomes_no_topic_when_rows_are_lost(tmp_path):
    """It has never been served, since nobody has converted it; a start would take its messages for damage."""
    path, topic_id = str(tmp_path / "odradek-metadata.db"), bytes(range(16))
    for name in ("t-0", "old-0"):
        (tmp_path / name).mkdir()
        write_partition_metadata(OsDisk(), f"{tmp_path}/{name}/partition.metadata", topic_id)
    message = build_message(1, offset=5, timestamp=1, key=None, value=b"v")
    (tmp_path / "old-0" / f"{5:020d}.log").write_bytes(message)
    store = SqliteMetadataStore(path)
    store.write([Row("topic", "lost", "00" * 16)])
    store.close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE facts SET value = 'changed'")
    told: list[str] = []
    repair(path, OsDisk(), [str(tmp_path)], node_id=1, now_ms=1, tell=told.append).close()
    assert {key for kind, key, _ in rows_of(path) if kind == "topic"} == {"t"}
    advice = "has messages of format v0 or v1 and is left alone: odradek import-log takes it in"
    assert f"{tmp_path}/old-0 {advice}" in told


def test_a_directory_that_is_nobodys_stays_so_unless_rows_are_lost(tmp_path):
    path, topic_id = str(tmp_path / "odradek-metadata.db"), bytes(range(16))
    rows = {("topic", "t"): topic_id.hex(), ("partition", "t/0"): "1 0 1 1"}
    for name in ("t-0", "stray-0"):
        (tmp_path / name).mkdir()
        write_partition_metadata(OsDisk(), f"{tmp_path}/{name}/partition.metadata", topic_id)
    for changed, topics in (("0 0 1 1", {"t"}), ("quite another one", {"t", "stray"})):
        for old in tmp_path.glob("odradek-metadata.db*"):
            old.unlink()
        store = SqliteMetadataStore(path)
        store.write([Row(kind, key, value) for (kind, key), value in rows.items()])
        store.close()
        with sqlite3.connect(path) as other:
            other.execute("UPDATE facts SET value = ? WHERE kind = 'partition'", (changed,))
        found = opened_or_repaired(path, [])
        assert {key for kind, key, _ in found if kind == "topic"} == topics


@pytest.mark.parametrize("moved", range(4))
def test_a_repair_that_a_kill_has_interrupted_is_finished_by_the_next_start(path, moved):
    """The new store is complete; so many of the old one's files have been set aside."""
    store = SqliteMetadataStore(path)
    store.write([Row("topic", "old", "1")])
    store.close()
    store = SqliteMetadataStore(path + ".repaired")
    store.write([Row("topic", "new", "2")])
    store.close()
    for ending in ("-wal", "-shm"):
        with open(path + ending, "wb") as file:
            file.write(b"of the old one")
    for ending in ("-wal", "-shm", "")[:moved]:
        os.rename(path + ending, f"{path}.0.damaged{ending}")
    assert rows_of(path) == [("topic", "new", "2")]
    assert rows_of(f"{path}.0.damaged") == [("topic", "old", "1")]
    assert not os.path.exists(path + ".repaired")


@pytest.mark.parametrize("stage", ["shutil.copyfile", "os.replace", "os.fsync"])
def test_a_repair_that_cannot_be_done_leaves_what_there_was(path, stage, monkeypatch):
    store = SqliteMetadataStore(path)
    store.write([Row("topic", "a", "00" * 16), Row("topic_config", "a/x", "y")])
    store.close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE facts SET value = 'changed' WHERE key = 'a/x'")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(stage, full)
        with pytest.raises(ConfigError, match="No space left"):
            repair(path, OsDisk(), [], node_id=1, now_ms=1, tell=lambda what: None)
    assert ("topic", "a", "00" * 16) in opened_or_repaired(path, [])
