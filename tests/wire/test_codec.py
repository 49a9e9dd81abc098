"""The traps of the encoding, byte by byte; what decoders refuse; what encoders refuse to say."""

import struct

import pytest

from odradek.wire._decoding import COLLECTION_MAX, TAGS_MAX
from odradek.wire.codec import decode_message, decoder, encode_message, encoder, source_of
from odradek.wire.errors import MalformedMessage
from odradek.wire.frames import skip_tags
from odradek.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from odradek.wire.messages.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.schema import ZERO_UUID, uuid_from_text, uuid_to_text


def produce(records, topic="t"):
    partition = PartitionProduceData(index=7, records=records)
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )


def fetched(*records):
    partitions = [PartitionData(partition_index=index, records=one) for index, one in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


class RecordSource:
    """Stands for a storage slice: a length and no buffer."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


# Bytes.


def test_the_older_encoding_has_fixed_lengths():
    expected = "ffff ffff 000003e8 00000001 0001 74 00000001 00000007 00000002 6869"
    assert encode_message(produce(b"hi"), 3) == bytes.fromhex(expected)


def test_the_flexible_encoding_has_lengths_plus_one_and_tags_after_every_struct():
    expected = "00 ffff 000003e8 02 02 74 02 00000007 03 6869 00 00 00"
    assert encode_message(produce(b"hi"), 9) == bytes.fromhex(expected)


@pytest.mark.parametrize(
    ("version", "topics", "expected"),
    [
        (0, [], "00000000"),
        (1, None, "ffffffff"),
        (1, [], "00000000"),
        (9, None, "00 00 00 00 00"),
        (9, [], "01 00 00 00 00"),
    ],
)
def test_null_and_empty_are_told_apart(version, topics, expected):
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4)
    data = bytes.fromhex(expected)
    assert encode_message(request, version) == data
    assert decode_message(MetadataRequest, version, data) == request


def test_a_long_string_has_a_varint_of_two_bytes():
    for length, prefix in ((126, "7f"), (127, "8001"), (128, "8101"), (16383, "808001")):
        name = "a" * length
        data = encode_message(produce(b"", topic=name), 9)
        assert data[8 : 8 + len(prefix) // 2] == bytes.fromhex(prefix)
        assert decode_message(ProduceRequest, 9, data).topic_data[0].name == name


def test_a_nullable_struct_has_a_marker_of_one_byte():
    request = DescribeTopicPartitionsRequest(response_partition_limit=9)
    assert encode_message(request, 0) == bytes.fromhex("01 00000009 ff 00")
    request.cursor = Cursor(topic_name="t", partition_index=2)
    data = bytes.fromhex("01 00000009 01 0274 00000002 00 00")
    assert encode_message(request, 0) == data
    assert decode_message(DescribeTopicPartitionsRequest, 0, data) == request


def test_a_nullable_struct_in_a_tag_has_a_varint_for_a_marker():
    value = ConsumerGroupMemberMetadataValue(instance_id=None, rack_id=None, server_assignor=None)
    plain = encode_message(value, 0)
    assert plain.endswith(b"\x00")
    assert decode_message(ConsumerGroupMemberMetadataValue, 0, plain) == value
    value.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=5)
    tagged = bytes.fromhex("01 00 07 01 00000005 01 00")
    assert encode_message(value, 0) == plain[:-1] + tagged
    assert decode_message(ConsumerGroupMemberMetadataValue, 0, plain[:-1] + tagged) == value
    null = plain[:-1] + bytes.fromhex("01 00 01 00")
    assert decode_message(ConsumerGroupMemberMetadataValue, 0, null).classic_member_metadata is None


def test_tags_are_ascending_and_only_there_when_they_say_something():
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    head = "0000 02 0012 0000 0004 00 00000000"
    assert encode_message(response, 3) == bytes.fromhex(head + "00")
    response.finalized_features_epoch = 1
    response.supported_features = [SupportedFeatureKey(name="f", min_version=1, max_version=2)]
    response.finalized_features = [FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)]
    tags = "03 00 08 02 0266 0001 0002 00 01 08 0000000000000001 02 08 02 0266 0002 0001 00"
    assert encode_message(response, 3) == bytes.fromhex(head + tags)
    assert decode_message(ApiVersionsResponse, 3, bytes.fromhex(head + tags)) == response


def test_a_tagged_struct_that_equals_its_default_is_left_out():
    response = fetched(b"")
    absent = encode_message(response, 12)
    response.responses[0].partitions[0].current_leader = LeaderIdAndEpoch()
    assert encode_message(response, 12) == absent
    response.responses[0].partitions[0].current_leader = LeaderIdAndEpoch(leader_id=3)
    present = encode_message(response, 12)
    assert bytes.fromhex("01 01 09 00000003 ffffffff 00") in present
    assert decode_message(FetchResponse, 12, present).responses == response.responses


def test_any_byte_but_zero_is_true():
    data = bytes.fromhex("00000000 02")
    assert decode_message(MetadataRequest, 4, data).allow_auto_topic_creation is True


def test_a_field_that_the_version_lacks_has_its_default_after_decoding():
    data = encode_message(FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])]), 0)
    request = decode_message(FetchRequest, 0, data)
    assert (request.max_bytes, request.session_epoch, request.rack_id) == (0x7FFFFFFF, -1, "")
    assert request.forgotten_topics_data == []
    assert request.replica_state is None
    assert request.topics[0].topic_id == ZERO_UUID
    assert request.topics[0].partitions[0].high_watermark == 2**63 - 1


# Records.


def test_decoded_records_are_a_view_of_the_frame():
    frame = encode_message(produce(b"r" * 100), 9)
    for buffer in (frame, bytearray(frame), memoryview(frame)):
        message, _ = decoder(ProduceRequest, 9)(buffer, 0)
        records = message.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert records == b"r" * 100
        assert records.obj is (frame if isinstance(buffer, memoryview) else buffer)


def test_a_record_source_becomes_a_part_of_its_own():
    first, second = RecordSource(300), RecordSource(70000)
    for version in (4, 12):
        parts = []
        encoder(FetchResponse, version)(fetched(first, b"small", second), parts)
        assert parts[1] is first
        assert parts[3] is second
        assert len(parts) in (4, 5)
        same = encode_message(fetched(bytes(300), b"small", bytes(70000)), version)
        assert (
            b"".join(bytes(len(part)) if isinstance(part, RecordSource) else part for part in parts) == same
        )


def test_large_record_buffers_are_not_copied_and_small_ones_are():
    large, small = memoryview(bytes(5000)), memoryview(bytes(50))
    parts = []
    encoder(FetchResponse, 12)(fetched(large, small), parts)
    assert parts[1] is large
    assert len(parts) == 3


def test_null_records_are_written_where_they_are_given():
    assert b"\xff\xff\xff\xff" in encode_message(fetched(None), 4)
    assert decode_message(FetchResponse, 4, encode_message(fetched(None), 4)) == fetched(None)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("0002 c328", "\ufffd("),
        ("0007 6d fc 6c 6c 65 72 ff", "m\ufffdller\ufffd"),
        ("0005 ed a0 80 2d ed", "\ufffd-\ufffd"),
    ],
)
def test_a_text_that_is_not_utf_8_is_read_with_replacements(data, text):
    assert decode_message(SaslHandshakeRequest, 0, bytes.fromhex(data)).mechanism == text


# What decoders refuse.


def test_an_array_has_a_million_items_at_most():
    def message(count):
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0] * count)
        return encode_message(OffsetFetchRequest(group_id="g", topics=[topic]), 1)

    assert decode_message(OffsetFetchRequest, 1, message(COLLECTION_MAX)).topics
    with pytest.raises(MalformedMessage, match="more than 1000000 items"):
        decode_message(OffsetFetchRequest, 1, message(COLLECTION_MAX + 1))


def test_a_struct_and_a_header_have_ten_thousand_tagged_fields_at_most():
    def tags(count):
        return uvarint(count) + b"".join(uvarint(100 + number) + b"\0" for number in range(count))

    topics = b"\1\0\0\0"
    assert decode_message(MetadataRequest, 9, topics + tags(TAGS_MAX)).topics == []
    assert skip_tags(tags(TAGS_MAX), 0) == len(tags(TAGS_MAX))
    with pytest.raises(MalformedMessage, match="more than 10000 tagged fields"):
        decode_message(MetadataRequest, 9, topics + tags(TAGS_MAX + 1))
    with pytest.raises(MalformedMessage, match="10000 is the limit"):
        skip_tags(tags(TAGS_MAX + 1), 0)


def uvarint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + uvarint(value >> 7)


@pytest.mark.parametrize(
    ("cls", "version", "data", "complaint"),
    [
        (MetadataRequest, 0, "ffffffff", "topics must not be null"),
        (SaslHandshakeRequest, 0, "ffff", "mechanism must not be null"),
        (SaslHandshakeRequest, 0, "0005 6162", "mechanism ends after the message"),
        (SaslHandshakeRequest, 0, "0001 61 62", "1 bytes follow"),
        (MetadataRequest, 0, "7fffffff", "more items than fit"),
        (MetadataRequest, 9, "ffffffff0f 00", "more items than fit"),
        (MetadataRequest, 9, "ffffffff1f", "more than 32 bits"),
        (MetadataRequest, 9, "ffffffffff01", "more than five bytes"),
        (MetadataRequest, 9, "01 00 00 00 01 05 09", "tagged field ends after"),
        (FetchRequest, 11, "", "unpack_from"),
    ],
)
def test_what_is_not_sound_is_malformed(cls, version, data, complaint):
    with pytest.raises(MalformedMessage, match=complaint):
        decode_message(cls, version, bytes.fromhex(data))


def test_unknown_tags_are_passed_over():
    data = encode_message(produce(b"hi"), 9)
    extended = data[:-1] + bytes.fromhex("02 05 03 aabbcc 8001 00")
    assert encode_message(decode_message(ProduceRequest, 9, extended), 9) == data


def test_a_known_tag_of_another_version_is_malformed():
    request = FetchRequest(topics=[FetchTopic(topic_id=bytes(range(16)), partitions=[FetchPartition()])])
    data = encode_message(request, 15)
    assert decode_message(FetchRequest, 15, data) == request
    partition_end = data.index(bytes(range(16))) + 17 + 32
    tagged = data[:partition_end] + bytes.fromhex("01 00 10") + bytes(16) + data[partition_end + 1 :]
    decode_message(FetchRequest, 17, tagged)
    with pytest.raises(MalformedMessage, match="does not exist in this version"):
        decode_message(FetchRequest, 15, tagged)


def test_a_tag_whose_size_is_wrong_is_malformed():
    data = encode_message(FetchRequest(), 12)
    with pytest.raises(MalformedMessage, match="cluster_id does not have the size"):
        decode_message(FetchRequest, 12, data[:-1] + bytes.fromhex("01 00 04 02 61 00 00"))


def test_a_string_may_not_be_longer_in_the_flexible_encoding():
    tail = encode_message(produce(b"", topic="x"), 9)[10:]
    for length, sound in ((0x7FFF, True), (0x8000, False)):
        size = length + 1
        prefix = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
        data = bytes.fromhex("00 ffff 000003e8 02") + prefix + b"x" * length + tail
        if sound:
            decode_message(ProduceRequest, 9, data)
        else:
            with pytest.raises(MalformedMessage, match="too long"):
                decode_message(ProduceRequest, 9, data)


# What encoders refuse.


@pytest.mark.parametrize(
    ("message", "version", "complaint"),
    [
        (FetchRequest(forgotten_topics_data=[FetchTopic()]), 6, "forgotten_topics_data"),
        (ProduceRequest(transactional_id="tx"), 2, "transactional_id"),
        (MetadataRequest(topics=None), 0, "topics must not be null"),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9, "name must not be null"),
        (ProduceRequest(acks=70000), 9, "h"),
        (SaslHandshakeRequest(mechanism="x" * 40000), 0, "h"),
        (produce(b"", topic="x" * 40000), 9, "too long"),
        (FetchRequest(topics=[FetchTopic(topic_id=b"short")]), 13, "topic_id is not 16 bytes"),
        (JoinGroupRequest(protocol_type=5), 0, "encode"),
        (ConsumerGroupHeartbeatRequest(subscribed_topic_regex="a.*"), 0, "subscribed_topic_regex"),
    ],
)
def test_what_a_version_cannot_say_is_a_value_error(message, version, complaint):
    with pytest.raises(ValueError, match=complaint):
        encode_message(message, version)


def test_ignorable_fields_are_left_out_where_the_version_lacks_them():
    request = FetchRequest(rack_id="r", session_id=5, max_bytes=10, isolation_level=1)
    assert encode_message(request, 0) == encode_message(FetchRequest(), 0)


def test_a_version_that_does_not_exist_is_a_value_error():
    for make in (decoder, encoder):
        for version in (-1, 14):
            with pytest.raises(ValueError, match="ProduceRequest has versions 0 to 13"):
                make(ProduceRequest, version)


# The generated code.


def test_code_is_generated_once():
    assert decoder(ProduceRequest, 9) is decoder(ProduceRequest, 9)
    assert encoder(ProduceRequest, 9) is encoder(ProduceRequest, 9)


def test_neighbours_of_fixed_width_are_read_at_once():
    source = source_of("decode", FetchRequest, 4)
    assert "unpack_iiiibi(buffer, position)" in source
    assert source.count("unpack_") == 4


def test_the_source_of_generated_code_is_in_tracebacks():
    try:
        decoder(SaslHandshakeRequest, 0)(b"\x00", 0)
    except MalformedMessage as error:
        cause = error.__cause__
    assert isinstance(cause, struct.error)
    assert cause.__traceback__.tb_frame.f_code.co_filename == "<decode SaslHandshakeRequest version 0>"


# Ids.


def test_ids_have_a_text_form_of_22_characters():
    uuid = bytes(range(240, 256))
    assert uuid_to_text(uuid) == "8PHy8_T19vf4-fr7_P3-_w"
    assert uuid_from_text(uuid_to_text(uuid)) == uuid
    assert uuid_to_text(ZERO_UUID) == "A" * 22


@pytest.mark.parametrize(
    "text", ["", "short", "8PHy8_T19vf4-fr7_P3-_w==", "8PHy8+T19vf4/fr7/P3+/w", "ä" * 22]
)
def test_other_text_is_no_id(text):
    with pytest.raises(ValueError, match="id"):
        uuid_from_text(text)
