"""Records of `__consumer_offsets`: the short way for offsets and the declared one say the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.groups.record_codec import (
    CommittedOffset,
    Kind,
    decode_group_value,
    decode_key,
    decode_offset,
    encode_group_record,
    encode_offset,
    encode_offset_key,
    fits_record,
    subscribed_topics,
)
from odradek.wire.errors import MalformedMessage
from odradek.wire.messages import consumer_protocol, group_records
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

KEY = GroupMetadataKey(group="g")

NAMES = st.text(max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPIC_IDS = st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16))
ANY_KEY = OffsetCommitKey(group="", topic="", partition=0)


@given(NAMES, NAMES, INT32)
def test_a_key_is_written_and_read_as_declared(group_id, topic, partition):
    declared = group_records.encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))
    assert encode_offset_key(group_id, topic, partition) == declared
    assert decode_key(declared) == (Kind.OFFSET, (group_id, topic, partition))
    assert decode_key(memoryview(declared)) == (Kind.OFFSET, (group_id, topic, partition))


@given(INT64, INT32, st.one_of(NAMES, st.text(min_size=100, max_size=140)), INT64, TOPIC_IDS)
def test_a_value_is_written_and_read_as_declared(offset, leader_epoch, metadata, timestamp, topic_id):
    committed = CommittedOffset(offset, leader_epoch, metadata, timestamp, topic_id=topic_id)
    declared = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=timestamp,
        topic_id=topic_id,
    )
    assert encode_offset(committed) == group_records.encode_value(declared, 4)
    assert decode_offset(encode_offset(committed)) == committed
    assert decode_offset(memoryview(encode_offset(committed))) == committed


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 128, 129, 32_767])
def test_metadata_of_every_length_comes_back(length):
    committed = CommittedOffset(7, 2, "m" * length, 5, topic_id=b"\x10" * 16)
    assert decode_offset(encode_offset(committed)) == committed


def test_a_metadata_that_is_no_text_is_refused_in_the_short_form_too():
    value = encode_offset(CommittedOffset(7, 2, "mm", 5, topic_id=b"\x10" * 16))
    with pytest.raises(MalformedMessage):
        decode_offset(value.replace(b"mm", b"\xff\xff"))


def test_offsets_of_one_topic_share_its_id():
    value = encode_offset(CommittedOffset(7, 2, "", 5, topic_id=b"\x10" * 16))
    longer = encode_offset(CommittedOffset(7, 2, "m" * 200, 5, topic_id=b"\x10" * 16))
    assert decode_offset(value).topic_id is decode_offset(bytes(value)).topic_id
    assert decode_offset(value).topic_id is decode_offset(longer).topic_id


@given(st.binary(max_size=60), st.sampled_from([b"", b"\x00\x01", b"\x00\x03", b"\x00\x02", b"\x00\x04"]))
def test_damaged_records_are_refused_as_malformed(data, prefix):
    for decode in (decode_key, decode_offset, lambda value: decode_group_value(KEY, value)):
        try:
            decode(prefix + data)
        except MalformedMessage:
            pass


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_an_offset_is_read(version):
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=5)
    decoded = decode_offset(group_records.encode_value(value, version))
    assert decoded == CommittedOffset(7, -1, "m", 5, -1)


def test_an_offset_with_its_own_expiry_is_written_in_the_version_that_has_it():
    committed = CommittedOffset(7, -1, "m", 5, 99)
    assert encode_offset(committed._replace(leader_epoch=3, topic_id=b"i" * 16)) == encode_offset(committed)
    assert encode_offset(committed)[:2] == b"\x00\x01"
    assert decode_offset(encode_offset(committed)) == committed


def test_the_oldest_keys_are_read():
    key = group_records.encode_key(LegacyOffsetCommitKey(group="g", topic="t", partition=3))
    assert decode_key(key) == (Kind.OFFSET, ("g", "t", 3))


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_is_read(version):
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="h", session_timeout=9, subscription=b"s", assignment=b"a"
    )
    group = GroupMetadataValue(
        protocol_type="consumer", generation=4, protocol="range", leader="m", members=[member]
    )
    decoded = decode_group_value(KEY, group_records.encode_value(group, version))
    assert decoded.generation == 4
    assert decoded.members[0].member_id == "m"
    assert decoded.members[0].rebalance_timeout == -1
    key, value = encode_group_record(KEY, group)
    assert value[:2] == b"\x00\x03"
    assert decode_key(key) == (Kind.GROUP, KEY)


def test_texts_that_no_record_can_hold_are_known():
    assert fits_record(None, "", "g" * 32_767, "ü" * 16_383)
    assert not fits_record("g" * 32_768)
    assert not fits_record("", "ü" * 16_384)
    assert len(encode_offset(CommittedOffset(1, -1, "ü" * 16_383, 0))) > 32_000


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_every_version_are_understood(version):
    metadata = consumer_protocol.encode(
        ConsumerProtocolSubscription(topics=["a", "b"], owned_partitions=[]), version
    )
    assert subscribed_topics(metadata) == {"a", "b"}


def test_a_subscription_counts_even_if_what_follows_its_topics_is_missing():
    """Some clients say version 1 and leave its partitions out."""
    metadata = consumer_protocol.encode(ConsumerProtocolSubscription(topics=["a"], owned_partitions=[]), 0)
    assert subscribed_topics(b"\x00\x01" + metadata[2:]) == {"a"}
    assert subscribed_topics(b"") is None
    assert subscribed_topics(b"\x00\x00\xff") is None
