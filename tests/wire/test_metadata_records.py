"""The frames of the metadata log's records, and what cannot be read is said with its type and version."""

import pytest

from odradek.wire.errors import MalformedMessage
from odradek.wire.messages import metadata_records
from odradek.wire.messages.metadata_records import (
    LeaderChangeMessage,
    NoOpRecord,
    PartitionChangeRecord,
    TopicRecord,
    UnknownMetadataRecord,
    VotersRecord,
    decode_control_record,
    decode_metadata_record,
    encode_control_record,
    encode_metadata_record,
    frame_of,
)
from tests.wire.message_samples import Samples

TOPIC_ID = bytes(range(16))
ALL = [
    (cls, version)
    for known in (metadata_records.RECORDS, metadata_records.CONTROL_RECORDS)
    for cls in known.values()
    for version in cls.versions
]


def test_the_types_are_those_of_kafka():
    assert sorted(metadata_records.RECORDS) == [*range(6), *range(7, 13), 14, 15, *range(17, 29)]
    assert sorted(metadata_records.CONTROL_RECORDS) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(("cls", "version"), ALL, ids=str)
def test_a_record_comes_back_from_its_frame(cls, version):
    record = Samples((cls.__name__, version)).message(cls, version)
    if cls.__base__ is metadata_records.ControlRecord:
        record.version = version
        assert decode_control_record(*encode_control_record(record)) == record
    else:
        value = encode_metadata_record(record, version)
        assert frame_of(value) == (cls.record_type, version, 3)
        assert decode_metadata_record(value) == record


def test_the_frame_is_three_numbers():
    assert encode_metadata_record(NoOpRecord(), 0) == bytes([1, 20, 0, 0])
    value = bytes([1, 2, 0, 4]) + b"abc" + TOPIC_ID + b"\0"
    assert decode_metadata_record(value) == TopicRecord(name="abc", topic_id=TOPIC_ID)
    assert encode_metadata_record(TopicRecord(name="abc", topic_id=TOPIC_ID), 0) == value


def test_a_change_that_says_nothing_leaves_everything():
    change = PartitionChangeRecord(partition_id=3, topic_id=TOPIC_ID)
    again = decode_metadata_record(encode_metadata_record(change, 2))
    assert (again.isr, again.leader, again.replicas, again.leader_recovery_state) == (None, -2, None, -1)
    assert (again.directories, again.eligible_leader_replicas) == (None, None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (bytes([1, 29, 0, 0]), r"type 29 \(version 0\) is unknown"),
        (bytes([1, 0xAC, 0x02, 5, 0]), r"type 300 \(version 5\) is unknown"),
        (bytes([1, 13, 0, 0]), r"type 13 \(version 0\) is unknown"),
        (bytes([1, 2, 1, 0]), r"TopicRecord \(metadata record of type 2\) has no version 1"),
        (bytes([1, 0, 5, 0]), r"RegisterBrokerRecord .* has no version 5"),
    ],
)
def test_a_record_of_a_newer_cluster_is_named(value, words):
    with pytest.raises(UnknownMetadataRecord, match=words):
        decode_metadata_record(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "cut short"),
        (bytes([1, 2]), "cut short"),
        (bytes([2, 20, 0, 0]), r"unknown version \(2\)"),
        (bytes([0x80] * 6), "too long"),
        (bytes([1, 20, 0, 0, 0]), "1 bytes follow NoOpRecord"),
        (bytes([1, 2, 0, 4]), "TopicRecord version 0: name ends after the message"),
    ],
)
def test_bytes_that_are_no_record_are_malformed(value, words):
    with pytest.raises(MalformedMessage, match=words) as raised:
        decode_metadata_record(value)
    assert not isinstance(raised.value, UnknownMetadataRecord)


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        (bytes([0, 0, 0, 7]), bytes(3), UnknownMetadataRecord, "type 7 is unknown"),
        (bytes([0, 0, 0, 0]), bytes(6), UnknownMetadataRecord, "type 0 is unknown"),
        (
            bytes([0, 0, 0, 5]),
            bytes([0, 1, 0, 1, 0]),
            UnknownMetadataRecord,
            "KRaftVersionRecord .* version 1",
        ),
        (bytes([0, 0]), bytes(6), MalformedMessage, "a control record"),
        (bytes([0, 0, 0, 6]), b"\0", MalformedMessage, "a control record"),
    ],
)
def test_a_control_record_that_cannot_be_read_is_named(key, value, error, words):
    with pytest.raises(error, match=words):
        decode_control_record(key, value)


def test_control_records_say_their_type_in_the_key():
    assert encode_control_record(LeaderChangeMessage(leader_id=3))[0] == bytes([0, 0, 0, 2])
    assert encode_control_record(VotersRecord())[0] == bytes([0, 0, 0, 6])
