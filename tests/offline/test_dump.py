"""What `odradek dump` shows of whole and of damaged files."""

import io
import json
import struct

import pytest

from odradek.coordinator.cluster.draft import at_once
from odradek.coordinator.controller.snapshot import snapshot_records
from odradek.offline.dump import dump
from odradek.server.metadata.meta_properties import claim_directories
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.storage.log.producer_state import ProducerEntry, encode_snapshot
from odradek.wire.checksums import crc32c
from odradek.wire.messages import group_records, transaction_records
from odradek.wire.messages.metadata_records import ConfigRecord, UserScramCredentialRecord
from odradek.wire.records import Record, build_batch, end_txn_marker
from odradek.wire.schema import uuid_to_text
from odradek.wire.work import finish
from tests.kit.data_directories import controller_and_log_of, make_data

TOPIC_ID = bytes(range(16))


def shown(*paths, records=False, status=0, **options):
    out = io.StringIO()
    said = dump(
        [str(path) for path in paths], records=records, as_json=True, out=out, err=io.StringIO(), **options
    )
    assert said == status
    return [json.loads(line) for line in out.getvalue().splitlines()]


def lines(path, **options):
    out = io.StringIO()
    dump([str(path)], records=options.get("records", False), as_json=False, out=out, err=io.StringIO())
    return out.getvalue().splitlines()


def of(facts, what):
    return [fact for fact in facts if fact["what"] == what]


def write(path, *parts):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(bytes(part) for part in parts))
    return path


@pytest.fixture
def segment(tmp_path):
    return write(
        tmp_path / "orders-0" / "00000000000000000000.log",
        build_batch(
            [Record(0, 1000, b"k", b"v one", ()), Record(1, 1001, None, b"\xff\x00", (("h", b"x"),))]
        ),
        build_batch(
            [Record(2, 1002, b"k", None, ())], compression=1, producer_id=7, producer_epoch=0, base_sequence=4
        ),
    )


def test_a_segment_is_shown_batch_by_batch(segment):
    first, second = shown(segment)
    assert (first["base_offset"], first["last_offset"], first["records"]) == (0, 1, 2)
    assert (first["position"], first["compression"]) == (0, "none")
    assert "producer_id" not in first
    assert (second["position"], second["compression"]) == (first["size_bytes"], "gzip")
    assert (second["producer_id"], second["base_sequence"]) == (7, 4)


def test_records_are_text_where_they_are_text_and_base64_where_not(segment):
    one, two, three = of(shown(segment, records=True), "record")
    assert (one["offset"], one["timestamp"], one["key"], one["value"]) == (0, 1000, "k", "v one")
    assert (two["key"], two["value_base64"], two["headers"]) == (None, "/wA=", [["h", "x"]])
    assert (three["key"], three["value"]) == ("k", None)


def test_a_line_of_text_is_one_line_whatever_is_in_it(tmp_path):
    segment = write(
        tmp_path / "t-0" / f"{0:020}.log", build_batch([Record(0, 5, b"a\nb", b'say "hi" = \x1b', ())])
    )
    text = lines(segment, records=True)
    assert len(text) == 2
    assert text[1] == 'record offset=0 timestamp=5 key="a\\nb" value="say \\"hi\\" = \\u001b"'


def test_a_torn_tail_is_told_with_its_place(segment):
    data = segment.read_bytes()
    write(segment, data[:-5])
    batch, damage = shown(segment, status=1)
    assert damage["position"] == batch["size_bytes"]
    assert "has only" in damage["why"]


def test_a_flipped_bit_is_told_with_its_place(segment):
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    write(segment, data)
    *_, damage = shown(segment, records=True, status=1)
    assert damage["what"] == "damage"
    assert damage["position"] > 0


@pytest.mark.parametrize("cut", range(0, 61, 7))
def test_any_cut_of_a_segment_is_survived(segment, cut):
    write(segment, segment.read_bytes()[:cut])
    assert len(shown(segment, records=True, status=1 if cut else 0)) == (1 if cut else 0)


def test_the_end_of_a_transaction_is_shown(tmp_path):
    marker = end_txn_marker(committed=True, coordinator_epoch=3, timestamp=9, producer_id=7, producer_epoch=1)
    facts = shown(write(tmp_path / "t-0" / f"{0:020}.log", marker), records=True)
    assert facts[0]["control"] is True
    assert (facts[1]["marker"], facts[1]["coordinator_epoch"]) == ("commit", 3)


def test_offsets_of_groups_are_shown_by_their_fields(tmp_path):
    key = group_records.OffsetCommitKey(group="g", topic="orders", partition=2)
    value = group_records.OffsetCommitValue(offset=41, metadata="m", commit_timestamp=5)
    records = [
        Record(0, 5, group_records.encode_key(key), group_records.encode_value(value, 3), ()),
        Record(1, 6, group_records.encode_key(key), None, ()),
        Record(2, 7, b"\x00\x01broken", b"?", ()),
        Record(3, 8, b"\x00\x63later", b"?", ()),
    ]
    directory = tmp_path / "__consumer_offsets-12"
    write(directory / f"{0:020}.log", build_batch(records))
    commit, tombstone, broken, unknown = of(shown(directory, records=True), "record")
    assert commit["type"] == "OffsetCommit"
    assert commit["key"] == {"group": "g", "topic": "orders", "partition": 2}
    assert commit["value"]["offset"] == 41
    assert tombstone["value"] is None
    assert "not_decoded" in broken
    assert unknown["key"] == "\x00clater"


def test_members_of_groups_are_shown_by_their_fields(tmp_path):
    member = group_records.MemberMetadata(
        member_id="m-1",
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout=9,
        subscription=b"\x00",
        assignment=b"\x01",
    )
    value = group_records.GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="m-1", members=[member]
    )
    key = group_records.encode_key(group_records.GroupMetadataKey(group="g"))
    directory = tmp_path / "__consumer_offsets-12"
    batch = build_batch([Record(0, 5, key, group_records.encode_value(value, 3), ())])
    write(directory / f"{0:020}.log", batch)
    (group,) = of(shown(directory, records=True), "record")
    assert (group["type"], group["key"]) == ("GroupMetadata", {"group": "g"})
    assert (group["value"]["generation"], group["value"]["protocol"]) == (3, "range")
    assert [one["member_id"] for one in group["value"]["members"]] == ["m-1"]


def test_states_of_share_partitions_are_shown_by_their_fields(tmp_path):
    topic = group_records.TopicPartitionsInfo(topic_id=b"i" * 16, topic_name="orders", partitions=[0, 2])
    value = group_records.ShareGroupStatePartitionMetadataValue(
        initializing_topics=[],
        initialized_topics=[topic],
        deleting_topics=[group_records.DeletingTopicInfo(topic_id=b"j" * 16, topic_name="old")],
    )
    key = group_records.encode_key(group_records.ShareGroupStatePartitionMetadataKey(group_id="g"))
    directory = tmp_path / "__consumer_offsets-12"
    batch = build_batch([Record(0, 5, key, group_records.encode_value(value, 0), ())])
    write(directory / f"{0:020}.log", batch)
    (states,) = of(shown(directory, records=True), "record")
    assert (states["type"], states["key"]) == ("ShareGroupStatePartitionMetadata", {"group_id": "g"})
    (initialized,) = states["value"]["initialized_topics"]
    assert (initialized["topic_name"], initialized["partitions"]) == ("orders", [0, 2])
    assert [one["topic_name"] for one in states["value"]["deleting_topics"]] == ["old"]


def test_states_of_transactions_are_shown_by_their_fields(tmp_path):
    value = transaction_records.TransactionLogValue(
        producer_id=7,
        producer_epoch=2,
        next_producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_status=2,
        transaction_partitions=[transaction_records.PartitionsSchema(topic="orders", partition_ids=[0, 4])],
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=4,
        client_transaction_version=2,
    )
    key = transaction_records.encode_key(transaction_records.TransactionLogKey(transactional_id="me"))
    records = [
        Record(0, 5, key, transaction_records.encode_value(value, 1), ()),
        Record(1, 6, key, None, ()),
    ]
    directory = tmp_path / "__transaction_state-3"
    write(directory / f"{0:020}.log", build_batch(records))
    state, tombstone = of(shown(directory, records=True), "record")
    assert (state["type"], state["key"]) == ("TransactionLog", {"transactional_id": "me"})
    assert (state["value"]["producer_id"], state["value"]["next_producer_epoch"]) == (7, 3)
    assert state["value"]["transaction_partitions"] == [{"topic": "orders", "partition_ids": [0, 4]}]
    assert tombstone["value"] is None


def test_indexes_are_shown_without_their_unused_end(tmp_path):
    index = write(tmp_path / f"{100:020}.index", struct.pack(">iiii", 0, 0, 5, 400), bytes(80))
    entries = shown(index)
    assert [(entry["offset"], entry["position"]) for entry in entries] == [(100, 0), (105, 400)]
    times = write(tmp_path / f"{100:020}.timeindex", struct.pack(">qi", 1000, 5), b"\x01")
    entry, damage = shown(times, status=1)
    assert (entry["timestamp"], entry["offset"]) == (1000, 105)
    assert damage["position"] == 12
    aborted = write(tmp_path / f"{100:020}.txnindex", struct.pack(">hqqqq", 0, 7, 100, 104, 105))
    assert shown(aborted)[0]["producer_id"] == 7


def test_a_producer_snapshot_is_shown_or_called_damaged(tmp_path):
    data = encode_snapshot({7: ProducerEntry(1, 1000, ((3, 4, 10, 11, 1000),))})
    snapshot = write(tmp_path / f"{12:020}.snapshot", data)
    _, producer = shown(snapshot)
    assert (producer["producer_id"], producer["last_sequence"], producer["last_offset"]) == (7, 4, 11)
    write(snapshot, data[:-1])
    assert shown(snapshot, status=1)[0]["what"] == "damage"


def test_records_that_do_not_unpack_are_damage_and_the_next_batch_is_shown(tmp_path):
    batch = bytearray(build_batch([Record(0, 1000, b"k", b"v" * 100, ())], compression=1))
    batch[70:80] = bytes(10)  # of the gzip stream
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    segment = write(tmp_path / "t-0" / f"{0:020}.log", batch, build_batch([Record(1, 1001, b"k", b"v", ())]))
    facts = shown(segment, records=True, status=1)
    assert [fact["what"] for fact in facts] == ["batch", "damage", "batch", "record"]
    assert facts[1]["position"] == 0


def test_a_line_of_a_checkpoint_that_lacks_a_field_is_damage(tmp_path):
    path = write(tmp_path / "recovery-point-offset-checkpoint", b"0\n2\norders 0 5\norders 1\n")
    first, damage = shown(path, status=1)
    assert (first["what"], damage["what"]) == ("recovery-point-offset-checkpoint", "damage")
    assert "line 4" in damage["why"]


def test_an_identity_that_is_no_properties_file_is_damage(tmp_path):
    (damage,) = shown(write(tmp_path / "meta.properties", b"node.id=\\u00zz\n"), status=1)
    assert damage["what"] == "damage"


def test_checkpoints_are_shown_up_to_the_damage(tmp_path):
    good = write(tmp_path / "recovery-point-offset-checkpoint", b"0\n2\norders 0 5\norders 1 6\n")
    assert [fact["offset"] for fact in shown(good)] == ["5", "6"]
    short = write(tmp_path / "replication-offset-checkpoint", b"0\n2\norders 0 5\n")
    assert [fact["what"] for fact in shown(short, status=1)] == ["replication-offset-checkpoint", "damage"]
    assert shown(write(tmp_path / "leader-epoch-checkpoint", b"x"), status=1)[0]["what"] == "damage"
    heads = write(tmp_path / "scan-checkpoint", b"0\n1\norders 0 10 25 900 2 1 0 50 170 24\n")
    (head,) = shown(heads)
    assert (head["topic"], head["base_offset"], head["offset"], head["position"]) == (
        "orders",
        "10",
        "25",
        "900",
    )
    (end,) = shown(write(tmp_path / "end-checkpoint", b"0\n1\norders 0 10 900 25 1\n"))
    assert (end["base_offset"], end["size_bytes"], end["offset"], end["was_closed"]) == (
        "10",
        "900",
        "25",
        "1",
    )


def test_a_partition_directory_is_shown_whole(segment):
    directory = segment.parent
    write(directory / "partition.metadata", b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    write(directory / "leader-epoch-checkpoint", b"0\n1\n0 0\n")
    write(directory / f"{0:020}.index", struct.pack(">ii", 2, 90))
    facts = shown(directory)
    assert facts[0] == {"what": "partition", "topic": "orders", "partition": 0, "path": str(directory)}
    assert of(facts, "partition.metadata")[0]["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert of(facts, "leader-epoch-checkpoint")[0]["start_offset"] == "0"
    assert of(facts, "index")[0]["entries"] == 1
    assert len(of(facts, "batch")) == 2


def test_a_data_directory_is_shown_in_summary(segment):
    directory = segment.parent.parent
    claim_directories([str(directory)], node_id=4)
    facts = shown(directory)
    assert of(facts, "meta.properties")[0]["node.id"] == "4"
    (partition,) = of(facts, "partition")
    assert (partition["topic"], partition["partition"]) == ("orders", 0)
    assert (partition["records"], partition["end_offset"], partition["segments"]) == (3, 3, 1)
    assert not of(facts, "batch")


def test_the_partitions_of_a_data_directory_are_shown_by_topic_and_number(tmp_path):
    batch = build_batch([Record(0, 1000, b"k", b"v", ())])
    for name in ("orders-10", "orders-9", "orders-2", "orders-new-1", "bills-0", "bills-11"):
        write(tmp_path / name / f"{0:020}.log", batch)
    found = [(fact["topic"], fact["partition"]) for fact in of(shown(tmp_path), "partition")]
    assert found == [
        ("bills", 0),
        ("bills", 11),
        ("orders", 2),
        ("orders", 9),
        ("orders", 10),
        ("orders-new", 1),
    ]


def test_partitions_without_a_batch_are_counted_and_shown_only_when_asked_for(segment):
    directory = segment.parent.parent
    for name, base_offset in (("orders-1", 0), ("orders-2", 700), ("bills-0", 0)):
        write(directory / name / f"{base_offset:020}.log")
    facts = shown(directory)
    assert [(fact["topic"], fact["partition"]) for fact in of(facts, "partition")] == [("orders", 0)]
    assert of(facts, "empty-partitions") == [{"what": "empty-partitions", "left_out": 3}]
    facts = shown(directory, include_empty=True)
    found = [(fact["topic"], fact["partition"], fact["end_offset"]) for fact in of(facts, "partition")]
    assert found == [("bills", 0, 0), ("orders", 0, 3), ("orders", 1, 0), ("orders", 2, 700)]
    assert not of(facts, "empty-partitions")
    # Who names the directory of a partition wants to see it.
    assert of(shown(directory / "bills-0"), "partition")


def test_a_damaged_partition_without_a_sound_batch_is_not_left_out(segment):
    write(segment, segment.read_bytes()[:50])
    facts = shown(segment.parent.parent, status=1)
    assert [(fact["topic"], fact["batches"]) for fact in of(facts, "partition")] == [("orders", 0)]
    assert of(facts, "damage")


def test_what_waits_in_a_flush_journal_is_shown(tmp_path):
    store = LogStore(OsDisk(), [str(tmp_path)])
    store.open(1000)
    partition = store.create("orders", 0, TOPIC_ID, LogConfig())
    partition.appends.append(build_batch([Record(0, 1000, b"k", b"v")]), now_ms=1000)
    partition.commit()
    partition.flush()
    position = partition.size_bytes
    journal = store.flush_journals[0]
    journal.prepare()
    partition.appends.append(build_batch([Record(0, 1001, b"k", b"v")]), now_ms=1001)
    partition.commit()
    block = journal.begin([partition])
    block.write()
    journal.finish(block, None)
    entry = {
        "what": "flush-journal-entry",
        "partition": "orders-0",
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
        "segment": 0,
        "position": position,
        "size_bytes": partition.size_bytes - position,
        "end_offset": 2,
    }
    assert of(shown(tmp_path), "flush-journal-entry") == [entry]
    found = [of(shown(tmp_path / f"flush-journal.{number}"), "flush-journal-entry") for number in (0, 1)]
    assert sorted(found, key=len) == [[], [entry]]
    store.close(1001)
    assert not of(shown(tmp_path), "flush-journal")


def test_records_of_the_metadata_log_are_shown_without_secrets(tmp_path):
    make_data(tmp_path, **{"retention.ms": "5"})
    records = [
        UserScramCredentialRecord(
            name="u", mechanism=1, salt=b"salt", stored_key=b"key", server_key=b"key", iterations=4096
        ),
        ConfigRecord(resource_type=4, resource_name="1", name="ssl.key.password", value="secret"),
    ]
    with controller_and_log_of(tmp_path) as (controller, log):
        finish(controller.changing(at_once(lambda draft: draft.add_records(records))))
        log.write_snapshot(snapshot_records(controller.state), 33)
    directory = tmp_path / "__cluster_metadata-0"
    for path in (directory, *directory.glob("*.checkpoint")):
        facts = {one["type"]: one for one in of(shown(path, records=True), "metadata-record")}
        assert facts["Topic"]["name"] == "orders"
        assert facts["Topic"]["topic_id"] == uuid_to_text(TOPIC_ID)
        assert (facts["Partition"]["leader"], facts["Partition"]["isr"]) == (1, [1])
        user = facts["UserScramCredential"]
        assert (user["name"], user["salt"], user["stored_key"]) == ("u", "[hidden]", "[hidden]")
        assert "secret" not in str(facts)


def test_a_path_that_is_nothing_of_a_broker_is_no_damage(tmp_path):
    photo = write(tmp_path / "photos" / "photo.jpeg", b"x")
    paths = [tmp_path / "missing", photo, photo.parent]
    out, err = io.StringIO(), io.StringIO()
    assert dump([str(path) for path in paths], records=False, as_json=False, out=out, err=err) == 1
    assert out.getvalue() == ""
    assert err.getvalue().splitlines() == [
        f"odradek: {tmp_path}/missing does not exist",
        f"odradek: {photo} is not a file of a broker",
        f"odradek: {photo.parent} is neither a data directory nor the directory of a partition",
    ]
