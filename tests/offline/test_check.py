"""`odradek check` of whole data directories: what is around the partitions, the exit status, the repair."""

import errno
import io
import json
import os
import shutil

import pytest

from odradek.commands import main as cli
from odradek.coordinator.cluster.draft import at_once
from odradek.offline.check import CannotCheck, check
from odradek.offline.workers import with_workers
from odradek.server.metadata import meta_properties
from odradek.server.metadata.member_directories import claim_member_directories
from odradek.server.metadata.meta_properties import METADATA_LOG as LOG
from odradek.server.metadata.meta_properties import OLD_STORE, claim_directories, new_id
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.messages.metadata_records import (
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from odradek.wire.records import Record, build_batch
from odradek.wire.work import finish
from tests.kit.data_directories import (
    FIRST,
    NOW_MS,
    TOPIC_ID,
    controller_and_log_of,
    controller_of,
    fill,
    make_data,
)
from tests.kit.old_store import write_store


@pytest.fixture
def data(tmp_path):
    return make_data(tmp_path / "data")


def told(*paths, status=0, **options):
    """All lines but the summary, with the directory that the first path is in left out."""
    out = io.StringIO()
    assert check([str(path) for path in paths], out=out, **options) == status, out.getvalue()
    *lines, summary = out.getvalue().splitlines()
    assert summary.startswith("summary partitions=")
    return [line.replace(f"{paths[0]}/", "") for line in lines]


def test_a_sound_data_directory_is_one_line_and_status_0(data):
    out = io.StringIO()
    assert check([str(data)], out=out) == 0
    size_bytes = 2 * (data / "orders-0" / f"{FIRST}.log").stat().st_size
    assert out.getvalue() == (
        f"summary partitions=2 segments=2 batches=10 size_bytes={size_bytes} damages=0 notes=0 repairs=0 "
        "lost_bytes=0\n"
    )


def test_nothing_is_changed_by_a_check(data):
    (data / "orders-0" / f"{FIRST}.log").open("ab").write(b"torn")
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    told(data, status=1)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_damage_is_repaired_and_each_lost_byte_is_told(data):
    log = data / "orders-1" / f"{FIRST}.log"
    content = bytearray(log.read_bytes())
    size = len(content) // 5
    content[2 * size - 1] ^= 1
    log.write_bytes(content + b"torn")
    damage, tail = told(data, status=1)
    assert damage.startswith(f"damage orders-1/{FIRST}.log at byte {size}: the checksum of a batch is 0x")
    assert damage.endswith(
        f"; {size} bytes are no sound batch. The records from offset 1 to 1 cannot be read."
    )
    assert tail == (
        f"damage orders-1/{FIRST}.log at byte {5 * size}: 4 bytes are too few for a batch; "
        "4 bytes are no sound batch. No offset is missing."
    )
    out = io.StringIO()
    assert check([str(data)], repair=True, as_json=True, out=out) == 0
    facts = [json.loads(line) for line in out.getvalue().splitlines()]
    repairs = [(fact["done"], fact["lost_bytes"]) for fact in facts if fact["what"] == "repair"]
    assert repairs[:2] == [
        (f"removed {size} bytes, the offsets 1 to 1 are lost", size),
        ("removed 4 bytes, no records", 4),
    ]
    assert (facts[-1]["what"], facts[-1]["lost_bytes"], facts[-1]["damages"]) == ("summary", size + 4, 0)
    assert told(data) == []


def test_a_partition_alone_is_checked_by_the_checkpoints_beside_it(data):
    assert told(data / "orders-0") == []
    log = data / "orders-0" / f"{FIRST}.log"
    log.write_bytes(log.read_bytes()[:-10])
    lines = told(data / "orders-0", status=1)
    assert any(
        "recovery-point-offset-checkpoint: it has offset 5 for orders-0, whose log ends at 4" in line
        for line in lines
    )
    assert all("orders-1" not in line for line in lines)
    told(data / "orders-0", repair=True)
    assert told(data / "orders-0") == []
    assert told(data) == []


def test_a_partition_of_nobody_is_checked_by_itself(data, tmp_path):
    alone = tmp_path / "somewhere" / "backup"
    shutil.copytree(data / "orders-0", alone)
    assert told(alone) == []
    (alone / f"{FIRST}.log").open("ab").write(b"torn")
    assert len(told(alone, status=1)) == 1
    told(alone, repair=True)
    assert told(alone) == []


def in_segments(data, **configs):
    """A clean stop of one partition of orders whose log has a segment for each two of ten records."""
    make_data(data, **configs)
    shutil.rmtree(data / "orders-0")
    store = LogStore(OsDisk(), [str(data)])
    store.open(NOW_MS)
    config = LogConfig(segment_bytes=250, index_interval_bytes=0)
    partition = store.create("orders", 0, TOPIC_ID, config)
    for number in range(10):
        partition.appends.append(build_batch([Record(0, NOW_MS + number, b"k", b"v" * 30)]), now_ms=NOW_MS)
        partition.commit()
    bases = [segment.base_offset for segment in partition.log.segments]
    store.close(NOW_MS)
    assert bases == [0, 2, 4, 6, 8]
    return data / "orders-0"


@pytest.mark.parametrize("is_repaired_at_once", [False, True])
def test_the_records_of_a_log_file_that_is_gone_are_told_as_lost(tmp_path, is_repaired_at_once):
    data = tmp_path / "data"
    partition = in_segments(data)
    gone = partition / f"{4:020}.log"
    last_batch = gone.stat().st_size // 2
    gone.unlink()
    # A repair finishes what was interrupted before it looks.
    (partition / f"{0:020}.log.cleaned").touch()
    lost = f"the offsets 4 to 5 are lost, at least {last_batch + 61} bytes"
    if not is_repaired_at_once:
        lines = told(data, status=1)
        assert (
            f"damage orders-0/{4:020}.log: it is missing, but it has indexes; a broker removes all "
            f"files of a segment together. T{lost[1:]}."
        ) in lines
    out = io.StringIO()
    assert check([str(data)], repair=True, as_json=True, out=out) == 0
    facts = [json.loads(line) for line in out.getvalue().splitlines()]
    (fact,) = (fact for fact in facts if fact["what"] == "repair" and fact["lost_bytes"])
    assert (fact["done"], fact["lost_bytes"]) == (f"removed its indexes; {lost}", last_batch + 61)
    assert facts[-1]["lost_bytes"] == last_batch + 61
    assert told(data) == [
        f"note orders-0/{6:020}.log: no segment has the offsets 4 to 5. "
        "They are lost, unless a repair has reported them, or the topic was once compacted."
    ]


def test_a_gap_of_a_compacted_topic_may_be_of_compaction(tmp_path):
    partition = in_segments(tmp_path / "data", **{"cleanup.policy": "compact,delete"})
    for path in partition.glob(f"{4:020}.*"):
        path.unlink()
    (line,) = told(tmp_path / "data")
    assert line.endswith(
        "no segment has the offsets 4 to 5. Compaction leaves such gaps, and so does a repair."
    )


def test_a_repair_tells_what_was_lost_with_a_log_that_was_cut_between_batches(data):
    log = data / "orders-0" / f"{FIRST}.log"
    content = log.read_bytes()
    log.write_bytes(content[: 3 * len(content) // 5])
    lines = told(data, repair=True)
    assert "repair orders-0: the offsets 3 to 4 are lost." in lines
    assert told(data) == []
    # Where a hole has told it, it is told once.
    log = data / "orders-1" / f"{FIRST}.log"
    log.write_bytes(content[:-5])
    lines = told(data, repair=True)
    assert sum("are lost" in line for line in lines if line.startswith("repair ")) == 1


def test_after_a_repair_a_start_cuts_nothing_more(tmp_path):
    """Not a clean stop, nothing flushed, a segment in the middle gone: a start would take that for a loss."""
    data = tmp_path / "data"
    store = LogStore(OsDisk(), [str(data)])
    store.open(NOW_MS)
    partition = store.create("orders", 0, TOPIC_ID, LogConfig(segment_bytes=250))
    for number in range(9):
        producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number}
        partition.appends.append(build_batch([Record(0, NOW_MS, b"k", b"v" * 30)], **producer), now_ms=NOW_MS)
        partition.commit()
    bases = [segment.base_offset for segment in partition.log.segments]
    assert len(bases) > 3
    crashed = tmp_path / "crashed"
    shutil.copytree(data, crashed)
    store.close(NOW_MS)
    gone = crashed / "orders-0" / f"{bases[1]:020}.log"
    gone.write_bytes(bytes(gone.stat().st_size))
    lines = told(crashed, repair=True)
    assert any(f"the offsets {bases[1]} to {bases[2] - 1} are lost" in line for line in lines)
    store = LogStore(OsDisk(), [str(crashed)])
    assert store.open(NOW_MS) == {}
    partition = store.get("orders", 0)
    assert partition.log_end_offset == 9
    assert [segment.base_offset for segment in partition.log.segments] == [bases[0], *bases[2:]]
    assert partition.log.producers.producers[5].last_sequence == 8
    store.close(NOW_MS)
    assert told(crashed)[1].startswith(f"note orders-0/{bases[2]:020}.log: no segment has the offsets ")


# --- Checkpoints ---


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        (
            "recovery-point-offset-checkpoint",
            "0\n2\norders 0 5\n",
            "it is not a checkpoint of version 0 with as many lines as its count. "
            "A start after a crash reads all logs, and takes gaps for losses.",
        ),
        (
            "log-start-offset-checkpoint",
            "0\n1\norders 0 x\n",
            "'orders 0 x' is not a topic, a partition and an offset. "
            "Records that DeleteRecords has removed may come back.",
        ),
        (
            "recovery-point-offset-checkpoint",
            "0\n1\norders 0 9\n",
            "it has offset 9 for orders-0, whose log ends at 5. "
            "They had been flushed: the offsets 5 to 8 are gone.",
        ),
        (
            "replication-offset-checkpoint",
            "0\n1\norders 1 9\n",
            "it has offset 9 for orders-1, whose log ends at 5. The offsets 5 to 8 are gone.",
        ),
        (
            "cleaner-offset-checkpoint",
            "0\n1\norders 1 9\n",
            "it has offset 9 for orders-1, whose log ends at 5. Compaction skips the log.",
        ),
    ],
)
def test_a_checkpoint_that_is_damaged_or_says_too_much_is_found_and_written_anew(data, name, content, line):
    (data / name).write_text(content)
    assert told(data, status=1) == [f"damage {name}: {line}"]
    told(data, repair=True)
    assert told(data) == []


@pytest.mark.parametrize("name", ["scan-checkpoint", "end-checkpoint"])
def test_a_damaged_checkpoint_of_ours_is_found_and_removed(data, name):
    path = data / name
    path.write_text("0\n1\norders 0 0 9\n")
    assert told(data, status=1) == [
        f"damage {name}: it is not a checkpoint of version 0 with as many lines as its count. "
        "A start after a crash reads more of the logs."
    ]
    told(data, repair=True)
    assert told(data) == []
    assert not path.exists()


def test_a_log_start_behind_the_log_is_what_a_start_takes_care_of(data):
    (data / "log-start-offset-checkpoint").write_text("0\n1\norders 0 9\n")
    assert told(data) == [
        "note log-start-offset-checkpoint: it has offset 9 for orders-0, whose log ends at 5. "
        "A start begins the log there; all earlier records were deleted."
    ]


def test_what_can_be_read_of_a_damaged_checkpoint_is_kept(data):
    path = data / "log-start-offset-checkpoint"
    path.write_text("0\n3\norders 0 2\norders 1 x\n")
    told(data, repair=True)
    assert path.read_text().rstrip() == "0\n1\norders 0 2"


# --- Identity and metadata ---


@pytest.mark.parametrize("content", ["", "version=1\nnode.id=1\n", "version=7\ncluster.id=x\nnode.id=1\n"])
def test_a_damaged_identity_is_found_and_not_invented(data, content):
    (data / "meta.properties").write_text(content)
    line = (
        "damage meta.properties: version, cluster.id or node.id is missing. "
        "A broker does not start with it: restore the file from a backup."
    )
    assert told(data, status=1) == [line]
    assert told(data, status=1, repair=True) == [line]


def test_directories_of_different_clusters_are_told(data, tmp_path):
    other = tmp_path / "other"
    claim_directories([str(other)], node_id=2, cluster_id="BBBBBBBBBBBBBBBBBBBBBB")
    (line,) = told(data, other, status=1)
    assert (
        "it is of cluster BBBBBBBBBBBBBBBBBBBBBB and node 2, another is of AAAAAAAAAAAAAAAAAAAAAA and 1"
        in line
    )


def add_records(data, *records):
    with controller_of(data) as controller:
        finish(controller.changing(at_once(lambda draft: draft.add_records(records))))


def setting(kind, owner, name, value):
    return ConfigRecord(resource_type=kind, resource_name=owner, name=name, value=value)


def lose_a_record(data):
    """The name of the topic."""
    (segment,) = (data / LOG).glob("*.log")
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"orders", b"ORDERS", 1))
    return content


def test_damaged_metadata_are_made_anew_and_the_damaged_log_is_kept(data):
    add_records(data, setting(TOPIC_RESOURCE, "orders", "flush.ms", "5"))
    lose_a_record(data)
    (line,) = told(data, status=1)
    assert line.startswith(f"damage {LOG}/{FIRST}.log: it is damaged at byte ")
    assert line.endswith(
        "It cannot be mended: a start makes a new log of the rest, unless ACLs or users may be lost."
    )
    lines = told(data, repair=True)
    assert f"repair {LOG}: topic orders: found again by its directories." in lines
    assert any("topics orders: their settings may be lost" in line for line in lines)
    assert any("the damaged metadata log is kept as" in line for line in lines)
    assert (data / f"{LOG}.0.damaged").is_dir()
    assert told(data) == []


def test_a_repair_that_was_interrupted_is_told_and_finished(data):
    (data / LOG).rename(data / f"{LOG}.repaired")
    assert told(data, status=1)[0] == (f"damage {LOG}: a repair of it was interrupted. A start finishes it.")
    told(data, repair=True)
    assert told(data) == []


@pytest.mark.parametrize("repair", [False, True])
def test_the_metadata_of_an_earlier_version_are_noted(data, repair):
    shutil.rmtree(data / LOG)
    write_store(data / OLD_STORE, [("topic", "orders", TOPIC_ID.hex()), ("partition", "orders/0", "1 0 1 1")])
    before = (data / OLD_STORE).read_bytes()
    assert told(data, repair=repair) == [
        f"note {OLD_STORE}: 1 topics with 1 partitions, 0 ACLs and 0 credentials of users can be taken over "
        "into the metadata log. The next start does it."
    ]
    assert (data / OLD_STORE).read_bytes() == before


@pytest.mark.parametrize(
    ("rows", "head", "why"),
    [
        ([("topic", "orders", TOPIC_ID.hex())], {}, "its rows cannot be taken over: partitions of topic"),
        ([], {"version": 99}, "it has schema 99, and 1 is the newest known here"),
        ([], {"application_id": 7}, "its head is damaged, or it is a database of another program"),
        ([("topic", "orders", "")], {"crc": 0}, "the checksum of row topic 'orders' does not fit"),
    ],
)
def test_metadata_of_an_earlier_version_that_a_start_refuses_are_damage(data, rows, head, why):
    shutil.rmtree(data / LOG)
    write_store(data / OLD_STORE, rows, **head)
    (line,) = told(data, status=1)
    assert line.startswith(f"damage {OLD_STORE}: {why}")
    assert line.endswith("A start is refused.")


def test_an_identity_with_one_wrong_bit_is_told(data):
    path = data / "meta.properties"
    path.write_bytes(path.read_bytes().replace(b"node.id=1", b"node.id=3"))
    assert told(data, status=1) == [
        "damage meta.properties: its checksum does not fit. One bit is wrong: a start corrects it."
    ]


def test_a_directory_of_a_cluster_has_no_metadata_and_needs_its_identity(tmp_path):
    directory = tmp_path / "data"
    claim_member_directories([str(directory)], node_id=1, cluster_id="AAAAAAAAAAAAAAAAAAAAAA").settle()
    store = LogStore(OsDisk(), [str(directory)])
    store.open(NOW_MS)
    fill(store)
    store.close(NOW_MS)
    assert told(directory) == []
    path = directory / "meta.properties"
    path.write_bytes(path.read_bytes().replace(b"node.id=1", b"node.id=2").replace(b"cluster", b"cloister"))
    assert told(directory, status=1) == [
        "damage meta.properties: its checksum does not fit. A node of a cluster does not start with it: "
        "restore the file from a backup, or empty the directory so that its replicas are copied again."
    ]


@pytest.mark.parametrize("repair", [False, True])
def test_a_damaged_replica_of_a_cluster_is_left_to_its_leader(tmp_path, repair):
    directory = tmp_path / "data"
    claim_member_directories([str(directory)], node_id=1, cluster_id="AAAAAAAAAAAAAAAAAAAAAA").settle()
    store = LogStore(OsDisk(), [str(directory)])
    store.open(NOW_MS)
    fill(store)
    store.close(NOW_MS)
    path = directory / "orders-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    damage, note = told(directory, status=1, repair=repair)
    assert damage.startswith("damage orders-0/00000000000000000000.log")
    assert note == (
        "note orders-0: it is a replica in a cluster, which is not repaired: no leader would fill the gap. "
        "Remove this directory and .kafka_cleanshutdown beside it, and start the node, which fetches all of "
        "it again; if no other replica has it, odradek import-log takes in what is sound."
    )
    assert path.read_bytes() == content


def test_records_that_contradict_each_other_are_found(data):
    with controller_and_log_of(data) as (_, log):
        # As another program writes them: this one does not take them in.
        log.append([RemoveTopicRecord(topic_id=bytes(15) + b"\7")], 33)
    assert "its records make no sense" in told(data, status=1)[0]


def test_a_setting_that_is_refused_is_found(data):
    add_records(data, setting(TOPIC_RESOURCE, "orders", "retention.ms", "soon"))
    assert "a setting of topic orders is refused: " in told(data, status=1)[0]


def test_a_setting_of_a_group_that_is_refused_is_found(data):
    add_records(data, setting(GROUP_RESOURCE, "a/b", "consumer.session.timeout.ms", "50000"))
    assert told(data) == []
    add_records(data, setting(GROUP_RESOURCE, "a/b", "consumer.session.timeout.ms", "soon"))
    assert "a setting of group a/b is refused: " in told(data, status=1)[0]


def test_a_setting_of_a_subscription_that_is_refused_is_found(data):
    add_records(data, setting(CLIENT_METRICS_RESOURCE, "a/b", "interval.ms", "5000"))
    assert told(data) == []
    add_records(data, setting(CLIENT_METRICS_RESOURCE, "a/b", "interval.ms", "5"))
    assert "a setting of the subscription a/b to client metrics is refused: " in told(data, status=1)[0]


def test_directories_that_no_topic_has_are_noted(data):
    shutil.copytree(data / "orders-0", data / "orders-7")
    shutil.copytree(data / "orders-0", data / "bills-0")
    for ending in ("delete", "stray", "import", "future"):
        (data / f"gone-0.{'0' * 32}-{ending}").mkdir()
    assert told(data) == [
        f"note gone-0.{'0' * 32}-delete: it is deleted. A start removes it.",
        f"note gone-0.{'0' * 32}-future: a copy of a move between data directories that was interrupted. "
        "A start removes it, and begins the move again.",
        f"note gone-0.{'0' * 32}-import: an import that was interrupted. "
        "The next odradek import-log removes it.",
        f"note gone-0.{'0' * 32}-stray: a partition that was set aside. "
        "It is not changed; odradek import-log can import it.",
        "note bills-0: it belongs to no topic. It is not changed; odradek import-log can import it.",
        "note orders-7: it belongs to no topic. It is not changed; odradek import-log can import it.",
    ]


def test_digits_that_are_no_number_make_no_partition_no_segment_and_no_count(data):
    """`str.isdigit` takes a superscript for one, `int` does not."""
    (data / "notes-²").mkdir()
    (data / "orders-0" / f"²{FIRST[1:]}.log").write_bytes(b"")
    assert told(data) == [f"note orders-0/²{FIRST[1:]}.log: is not named like a segment. It is not changed."]
    store = LogStore(OsDisk(), [str(data)])
    store.open(NOW_MS)
    store.close(NOW_MS)
    (data / "replication-offset-checkpoint").write_text("0\n²\norders 0 5\n")
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("0\n²\n0 0\n")
    damage = [line for line in told(data, status=1) if line.startswith("damage")]
    assert len(damage) == 2
    assert all("it is not a checkpoint of version 0" in line for line in damage)


def test_a_directory_of_another_topic_is_told_and_left_alone(data):
    path = data / "orders-1" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OEA")
    line = (
        "damage orders-1: its topic id is AAECAwQFBgcICQoLDA0OEA, topic orders has AAECAwQFBgcICQoLDA0ODw. "
        "A start sets it aside, and the partition begins empty."
    )
    assert told(data, status=1) == [line]
    assert line in told(data, repair=True, status=1)
    topic_id = bytes.fromhex("000102030405060708090a0b0c0d0e10")
    add_records(data, TopicRecord(name="gone", topic_id=topic_id), RemoveTopicRecord(topic_id=topic_id))
    assert told(data) == ["note orders-1: its topic is deleted. A start removes it."]


def test_an_identity_that_cannot_be_read_is_made_anew_from_the_metadata(data):
    path = data / "orders-1" / "partition.metadata"
    sound = path.read_text()
    path.write_text("?")
    assert "it has no topic id" in told(data, status=1)[0]
    told(data, repair=True)
    assert path.read_text() == sound


def test_a_partition_that_is_not_there_is_told(data):
    shutil.rmtree(data / "orders-1")
    assert told(data, status=1) == [
        "damage orders-1: it is missing. "
        "A start with all log.dirs makes it again, empty; without its directory it stays offline: "
        "check all log.dirs together."
    ]


def test_metadata_that_are_gone_are_damage_with_advice_that_works(data, tmp_path, capsys):
    (data / LOG).rename(tmp_path / "log")
    (line,) = told(data, status=1)
    assert line == (
        f"damage {LOG}: it is missing, but there are partitions of 1 topic. If the broker has other "
        "log.dirs, one of those has it: check all of them together; if none has it, a broker would serve "
        "none of the topics: restore it from a backup, or start Odradek once without it and import each "
        "topic in place "
        f"(odradek import-log {data} --topic NAME --data-dir {data})."
    )
    assert line in told(data, repair=True, status=1)
    assert not (data / LOG).exists()
    (tmp_path / "log").rename(data / LOG)
    assert told(data) == []
    shutil.rmtree(data / LOG)
    with controller_of(data):
        pass  # as a start makes it
    assert run(capsys, "import-log", str(data), "--topic", "orders", "--data-dir", str(data))[0] == 0
    assert told(data) == []


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        *(f"orders-0/{FIRST}{kind}" for kind in (".log", ".index", ".timeindex")),
        *("orders-0/partition.metadata", "orders-0/leader-epoch-checkpoint"),
        *("recovery-point-offset-checkpoint", "end-checkpoint", "meta.properties"),
    ],
)
def test_a_directory_where_a_file_should_be_is_told_with_its_path_and_the_rest_is_checked(data, name, repair):
    other = data / "orders-1" / f"{FIRST}.log"
    other.write_bytes(other.read_bytes() + b"torn")
    (data / name).unlink(missing_ok=True)
    (data / name).mkdir()
    lines = told(data, status=1, repair=repair)
    line = next(line for line in lines if line.startswith(f"damage {name}: it cannot be read"))
    assert "Is a directory" in line
    assert any(line.startswith(f"damage orders-1/{FIRST}.log at byte ") for line in lines)
    assert any("removed 4 bytes" in line for line in lines) is repair
    assert not any(line.startswith("repair orders-0") for line in lines)


def test_a_log_file_that_is_a_link_to_nowhere_is_told(data):
    path = data / "orders-0" / f"{FIRST}.log"
    path.unlink()
    path.symlink_to("nowhere")
    (line,) = told(data, status=1)
    assert line.startswith(f"damage orders-0/{FIRST}.log: it cannot be read: No such file or directory.")


def test_directories_that_were_never_served_by_odradek_need_no_metadata_of_ours(data):
    shutil.rmtree(data / LOG)
    identity = data / "meta.properties"
    identity.write_bytes(identity.read_bytes().partition(b"#crc32=")[0])
    assert told(data) == []
    shutil.rmtree(data / "orders-0")
    shutil.rmtree(data / "orders-1")
    identity.unlink()
    claim_directories([str(data)], node_id=1)
    assert told(data) == [], "nor has a new one"


def test_a_directory_that_is_named_twice_is_checked_once(data, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(data)
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    assert check([str(data), "data", "link/orders-0", str(tmp_path / "link")], out=out) == 0
    assert out.getvalue().startswith("summary partitions=2 ")


@pytest.mark.parametrize("left", [[f"{FIRST}.index", f"{FIRST}.timeindex"], [f"{FIRST[:-1]}5.snapshot"], []])
def test_a_partition_alone_whose_log_file_is_gone_is_damaged(data, left):
    for path in (data / "orders-0").iterdir():
        if path.name not in left:
            path.unlink()
    lines = told(data / "orders-0", status=1)
    assert any("recovery-point-offset-checkpoint: it has offset 5 for orders-0" in line for line in lines)


def test_what_cannot_be_listed_is_told_in_one_sentence(data, monkeypatch):
    def refuse(self, path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(OsDisk, "list", refuse)
    with pytest.raises(CannotCheck, match=r"^.*/data does not answer: Permission denied\.$"):
        check([str(data)], out=io.StringIO())


def test_two_directories_of_one_broker_are_checked_together(data, tmp_path):
    other = tmp_path / "second"
    claim_directories([str(other)], node_id=1, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    shutil.move(data / "orders-1", other)
    assert told(data, other) == []
    shutil.copytree(other / "orders-1", data / "orders-1")
    assert told(data, other) == [
        f"note {other}/orders-1: the partition is in {data}, too. "
        "A start keeps the longer one, and removes the other if it is a part of that, as after a move."
    ]
    store = LogStore(OsDisk(), [str(data), str(other)])
    store.open(NOW_MS)
    store.close(NOW_MS)
    assert told(data, other) == []


def test_of_two_directories_one_only_may_have_the_metadata(data, tmp_path):
    """A start is refused (`log_directories.refuse_misplaced`)."""
    other = tmp_path / "second"
    shutil.copytree(data, other)
    shutil.rmtree(data / "orders-1")
    shutil.rmtree(other / "orders-0")
    line = (
        f"damage {{}}/{LOG}: {{}} has cluster metadata, too. A broker does not start with both: "
        "check each with the directories that belong to it."
    )
    assert line.format(other, data) in told(data, other, status=1)
    assert line.format(data, other) in told(other, data, status=1)


def test_of_one_of_several_directories_it_is_said_first_that_the_others_must_be_named(data, tmp_path):
    other = tmp_path / "second"
    claim_directories([str(other)], node_id=1, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    shutil.move(data / "orders-1", other)
    (line,) = told(other, status=1)
    assert (
        "there are partitions of 1 topic. If the broker has other log.dirs, one of those has it: check"
        in line
    )
    (line,) = told(data, status=1)
    assert line.startswith("damage orders-1: it is missing. ")
    assert line.endswith("check all log.dirs together.")


def test_of_a_stray_beside_the_partition_it_is_not_said_that_this_begins_empty(data, tmp_path):
    other = tmp_path / "second"
    claim_directories([str(other)], node_id=1, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    shutil.copytree(data / "orders-1", other / "orders-1")
    (other / "orders-1" / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OEA")
    (line,) = told(data, other, status=1)
    assert line.endswith("topic orders has AAECAwQFBgcICQoLDA0ODw. A start sets it aside.")


# --- The flush journal ---


@pytest.fixture
def crashed(tmp_path):
    """A data directory after a loss of power: the last three batches are in the flush journal only."""
    live, lost = tmp_path / "live", tmp_path / "lost"
    live.mkdir()
    store = LogStore(OsDisk(), [str(live)])
    store.open(NOW_MS)
    fill(store, partitions=1, count=2)
    partition = store.get("orders", 0)
    partition.flush()
    journal = store.flush_journals[0]
    journal.prepare()
    size_bytes = partition.size_bytes
    for _ in range(3):
        partition.appends.append(build_batch([Record(0, NOW_MS, b"k", b"v" * 30)]), now_ms=NOW_MS)
    partition.commit()
    block = journal.begin([partition])
    block.write()
    journal.finish(block, None)
    shutil.copytree(live, lost)
    with (lost / "orders-0" / f"{FIRST}.log").open("r+b") as file:
        file.truncate(size_bytes)
    store.close(NOW_MS)
    return lost, 3 * size_bytes // 2


def test_what_waits_in_the_flush_journal_is_noted_and_put_back_by_a_repair(crashed):
    data, waiting_bytes = crashed
    assert told(data)[-1] == (
        f"note flush-journal.*: {waiting_bytes} bytes of 1 partition wait in it for a replay (orders-0). "
        "A start restores the missing bytes: start Odradek once before Kafka uses the directory."
    )
    assert f"repair flush-journal.*: restored {waiting_bytes} bytes that were only in it." in told(
        data, repair=True
    )
    out = io.StringIO()
    check([str(data)], out=out)
    assert "batches=5 " in out.getvalue()


# --- The command ---


def test_a_directory_that_a_broker_has_is_left_alone(data):
    store = LogStore(OsDisk(), [str(data)])
    store.open(NOW_MS)
    for path in (data, data / "orders-0"):
        for repair in (False, True):
            with pytest.raises(CannotCheck, match=r"data is in use by a broker: stop the broker first"):
                check([str(path)], repair=repair, out=io.StringIO())
    store.close(NOW_MS)


class Gone(io.StringIO):
    """Takes some lines; the next one raises the error."""

    def __init__(self, error, lines=0):
        super().__init__()
        self.error, self.lines = error, lines

    def write(self, text):
        self.lines -= 1
        if self.lines < 0:
            raise self.error
        return super().write(text)


def test_an_output_that_takes_no_more_is_no_fault_of_the_disk(data):
    (data / "orders-0" / f"{FIRST}.log").open("ab").write(b"torn")
    error = OSError(errno.ENOSPC, "Full")
    with pytest.raises(OSError, match="Full") as raised:
        check([str(data)], out=Gone(error))
    assert raised.value is error


def test_a_check_ends_with_its_reader_and_the_status_is_of_what_was_found(data):
    closed = BrokenPipeError(errno.EPIPE, "Broken pipe")
    assert check([str(data)], out=Gone(closed)) == 0
    for name in ("orders-0", "orders-1"):
        (data / name / f"{FIRST}.log").open("ab").write(b"torn")
    out = Gone(closed, lines=1)
    assert check([str(data)], out=out) == 1
    assert len(out.getvalue().splitlines()) == 1


def test_a_repair_goes_on_when_its_reader_has_gone(data):
    for name in ("orders-0", "orders-1"):
        (data / name / f"{FIRST}.log").open("ab").write(b"torn")
    assert check([str(data)], repair=True, out=Gone(BrokenPipeError(errno.EPIPE, "Broken pipe"))) == 0
    assert told(data) == []


def test_a_link_to_a_partition_that_a_broker_has_is_left_alone(data, tmp_path):
    (tmp_path / "link").symlink_to(data / "orders-0")
    store = LogStore(OsDisk(), [str(data)])
    store.open(NOW_MS)
    with pytest.raises(CannotCheck, match=r"data is in use by a broker: stop the broker first"):
        check([str(tmp_path / "link")], repair=True, out=io.StringIO())
    store.close(NOW_MS)
    # Where a partition of a data directory is a link, the lock and the checkpoints are beside the link.
    (data / "orders-1").rename(tmp_path / "elsewhere")
    (data / "orders-1").symlink_to(tmp_path / "elsewhere")
    with (data / "orders-1" / f"{FIRST}.log").open("r+b") as log:
        log.truncate(0)
    lines = told(data / "orders-1", status=1)
    assert any("recovery-point-offset-checkpoint: it has offset 5 for orders-1" in line for line in lines)


def run(capsys, *arguments):
    status = cli.main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command_tells_by_its_status_and_refuses_in_one_sentence(data, tmp_path, capsys):
    assert run(capsys, "check", str(data))[0] == 0
    (data / "orders-0" / f"{FIRST}.log").open("ab").write(b"torn")
    status, out, _ = run(capsys, "check", str(data), "--json")
    assert status == 1
    assert json.loads(out.splitlines()[0]) == {
        "what": "damage",
        "path": f"{data}/orders-0/{FIRST}.log",
        "position": (data / "orders-0" / f"{FIRST}.log").stat().st_size - 4,
        "finding": "4 bytes are too few for a batch; 4 bytes are no sound batch",
        "consequence": "no offset is missing",
    }
    assert run(capsys, "check", str(data), "--repair")[0] == 0
    status, out, err = run(capsys, "check", str(tmp_path / "nowhere"))
    assert (status, out) == (1, "")
    assert (
        err == f"odradek: {tmp_path}/nowhere is not a directory: name a data directory or a partition's "
        "directory.\n"
    )


def of_workers(folder, count, cluster_id="dyBMQBZIRiaFoE8M-lBfAw"):
    """The directories of a broker with so many workers, each with the same partition."""
    for index in range(count):
        directory = make_data(folder / ("data" if index == 0 else f"data.w{index}"))
        (directory / "meta.properties").unlink(missing_ok=True)
        shutil.rmtree(directory / LOG, ignore_errors=True)
        meta_properties.write(str(directory), cluster_id, index + 1, new_id(os.urandom), for_member=True)
    return folder / "data"


def test_the_directories_of_workers_are_checked_as_those_of_several_nodes(tmp_path):
    data = of_workers(tmp_path, 3)
    (tmp_path / "data.w2/orders-0" / f"{FIRST}.log").open("ab").write(b"torn")
    for paths in ([data], [data, tmp_path / "data.w1", tmp_path / "data.w2"]):
        out = io.StringIO()
        assert check([str(path) for path in paths], out=out) == 1
        damage, *_, summary = out.getvalue().splitlines()
        assert damage.startswith(f"damage {tmp_path}/data.w2/orders-0/{FIRST}.log")
        assert summary.startswith("summary partitions=6 ")
        assert "damages=1" in summary


def test_a_directory_beside_it_that_is_of_another_cluster_is_left_alone(tmp_path):
    data = of_workers(tmp_path, 1)
    meta_properties.write(
        str(make_data(tmp_path / "data.w1")), new_id(os.urandom), 2, new_id(os.urandom), for_member=True
    )
    assert with_workers([str(data)]) == [[str(data)]]


def test_a_directory_that_is_nothing_of_a_broker_is_not_checked(tmp_path):
    (tmp_path / "dbus-1").mkdir()
    (tmp_path / "dbus-1" / "session.conf").write_text("")
    (tmp_path / "system.log").write_text("")
    with pytest.raises(CannotCheck, match=r"is neither a data directory nor the directory of a partition\.$"):
        check([str(tmp_path)], out=io.StringIO())
