"""The frames of the metadata log's records, and what cannot be read is said with its type and version."""

import pytest

from odradek.wire.errors import MalformedMessage
from odradek.wire.messages import metadata_records
from odradek.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    Endpoint,
    EntityData,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    UnknownMetadataRecord,
    Voter,
    VotersRecord,
    VoterWithEndpoints,
    decode_control_record,
    decode_metadata_record,
    encode_control_record,
    encode_metadata_record,
    frame_of,
    records_of_batch,
)
from odradek.wire.records import Record, build_batch
from tests.kit.collecting import collected
from tests.wire.message_samples import Samples

TOPIC_ID = bytes(range(16))


def test_the_types_are_those_of_kafka():
    assert sorted(metadata_records.RECORDS) == [*range(6), *range(7, 13), 14, 15, *range(17, 30)]
    assert sorted(metadata_records.CONTROL_RECORDS) == [2, 3, 4, 5, 6]


def test_a_record_comes_back_from_its_frame():
    with collected() as failures:
        for known in (metadata_records.RECORDS, metadata_records.CONTROL_RECORDS):
            for cls in known.values():
                for version in cls.versions:
                    with failures.of(f"{cls.__name__} version {version}"):
                        check_that_it_comes_back(cls, version)


def check_that_it_comes_back(cls, version):
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
        (bytes([1, 30, 0, 0]), r"type 30 \(version 0\) is unknown"),
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


def test_a_batch_has_control_records_or_others():
    topic = TopicRecord(name="t", topic_id=TOPIC_ID)
    values = [encode_metadata_record(one, 0) for one in (topic, NoOpRecord())]
    batch = build_batch([Record(offset, 1, None, value) for offset, value in enumerate(values)])
    assert list(records_of_batch(memoryview(batch))) == [topic, NoOpRecord()]
    leader = LeaderChangeMessage(leader_id=3)
    batch = build_batch([Record(0, 1, *encode_control_record(leader))], control=True)
    assert list(records_of_batch(batch)) == [leader]


# Bytes that Kafka 4.3.1 wrote

DIRECTORY = bytes.fromhex("07990a6ffd734b9982d92ebb04177389")
PLAIN = bytes.fromhex("72e8d7d658b9433fa45b3ee8a501b46b")
REGISTERED = (
    "010004 00000001 00 16401de26f2d49d28ff6addf98776d54 0000000000000012 02 0a504c41494e54455854"
    "0a3132372e302e302e31 d013 0000 00 08 1073747265616d732e76657273696f6e 0000 0001 00"
    "147472616e73616374696f6e2e76657273696f6e 0000 0002 00"
    "21656c696769626c652e6c65616465722e7265706c696361732e76657273696f6e 0000 0001 00"
    "116d657461646174612e76657273696f6e 0007 001e 00 0e73686172652e76657273696f6e 0000 0001 00"
    "0e6b726166742e76657273696f6e 0000 0001 00 0e67726f75702e76657273696f6e 0000 0001 00"
    "00 01 00 01 00 11 02 07990a6ffd734b9982d92ebb04177389"
)
WRITTEN = [
    (
        "010302 00000000 72e8d7d658b9433fa45b3ee8a501b46b 02 00000001 02 00000001 01 01 00000001 00000000"
        "00000000 02 07990a6ffd734b9982d92ebb04177389 00",
        2,
        PartitionRecord(
            partition_id=0,
            topic_id=PLAIN,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY],
        ),
    ),
    (
        "0105020000000072e8d7d658b9433fa45b3ee8a501b46b04 02 09 03 00000002 00000001 03 05 02 00000001"
        "04 05 02 00000002 08 21 03 00000000000000000000000000000001 07990a6ffd734b9982d92ebb04177389",
        2,
        PartitionChangeRecord(
            partition_id=0,
            topic_id=PLAIN,
            replicas=[2, 1],
            removing_replicas=[1],
            adding_replicas=[2],
            directories=[bytes(15) + b"\x01", DIRECTORY],
        ),
    ),
    (
        "011100 00000001 0000000000000012 01 00 01 ff",
        0,
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=18, fenced=-1),
    ),
    (
        "011103 00000001 0000000000000012 01 03 01 01",
        3,
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=18, cordoned_log_dirs=[]),
    ),
    (
        "010400 04 01 146d696e2e696e73796e632e7265706c69636173 0231 00",
        0,
        ConfigRecord(resource_type=4, name="min.insync.replicas", value="1"),
    ),
    (
        "010e00 03 0a636c69656e742d6964 0262 00 0575736572 00 00 1370726f64756365725f627974655f72617465"
        "4097700000000000 00 00",
        0,
        ClientQuotaRecord(
            entity=[
                EntityData(entity_type="client-id", entity_name="b"),
                EntityData(entity_type="user", entity_name=None),
            ],
            key="producer_byte_rate",
            value=1500.0,
        ),
    ),
]
WRITTEN_CONTROL = [
    (
        "00000002",
        "0000 00000001 02 00000001 00 02 00000001 00 00",
        LeaderChangeMessage(leader_id=1, voters=[Voter(voter_id=1)], granting_voters=[Voter(voter_id=1)]),
    ),
    (
        "00000003",
        "0000 000001a21a090aa5 00",
        SnapshotHeaderRecord(last_contained_log_timestamp=1795733129893),
    ),
    ("00000005", "0000 0001 00", KRaftVersionRecord(kraft_version=1)),
    (
        "00000006",
        "0000 02 00000001 07990a6ffd734b9982d92ebb04177389 02 0b434f4e54524f4c4c4552 0a3132372e302e302e31"
        "a9fb 00 0000 0001 00 00 00",
        VotersRecord(
            voters=[
                VoterWithEndpoints(
                    voter_id=1,
                    voter_directory_id=DIRECTORY,
                    endpoints=[Endpoint(name="CONTROLLER", host="127.0.0.1", port=43515)],
                    kraft_version_feature=KRaftVersionFeature(max_supported_version=1),
                )
            ]
        ),
    ),
]


@pytest.mark.parametrize(("text", "version", "record"), WRITTEN)
def test_a_record_of_kafka_is_read_and_written_alike(text, version, record):
    value = bytes.fromhex(text)
    assert decode_metadata_record(value) == record
    assert encode_metadata_record(record, version) == value


def test_a_registration_of_kafka_is_read_and_written_alike():
    value = bytes.fromhex(REGISTERED)
    record = decode_metadata_record(value)
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.broker_id, record.broker_epoch, record.rack, record.fenced) == (1, 18, None, True)
    assert [(one.name, one.port) for one in record.end_points] == [("PLAINTEXT", 53267)]
    assert {one.name: one.max_supported_version for one in record.features}["metadata.version"] == 30
    assert (record.log_dirs, record.cordoned_log_dirs) == ([DIRECTORY], None)
    assert encode_metadata_record(record, 4) == value


@pytest.mark.parametrize(("key", "value", "record"), WRITTEN_CONTROL)
def test_a_control_record_of_kafka_is_read_and_written_alike(key, value, record):
    pair = bytes.fromhex(key), bytes.fromhex(value)
    assert decode_control_record(*pair) == record
    assert encode_control_record(record) == pair
