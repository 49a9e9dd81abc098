"""Records of `__share_group_state`: Kafka's bytes, and the short way to write and read them says the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.coordinator.shares.state.record_codec import (
    SNAPSHOT,
    UPDATE,
    decode_key,
    decode_snapshot,
    decode_update,
    encode_key,
    encode_snapshot,
    encode_update,
    fits_key,
)
from odradek.coordinator.shares.state.state import State, Update
from odradek.wire.errors import MalformedMessage
from odradek.wire.messages import share_state_records
from odradek.wire.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from odradek.wire.readable import internal_reader
from odradek.wire.share_batches import Batch

TOPIC_ID = bytes(range(16))
INT8 = st.integers(-(2**7), 2**7 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
BATCHES = st.lists(st.builds(Batch, INT64, INT64, INT16, INT8), max_size=200)
STATES = st.builds(State, INT32, INT32, INT32, INT64, INT32, BATCHES, INT64, INT64)
UPDATES = st.builds(Update, INT32, INT32, INT64, INT32, BATCHES)
KEYS = st.builds(
    SharePartitionKey,
    st.text(st.characters(codec="utf-8"), max_size=140),
    st.binary(min_size=16, max_size=16),
    INT32,
)


def declared_batches(batches):
    return [
        StateBatch(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.delivery_state,
            delivery_count=batch.delivery_count,
        )
        for batch in batches
    ]


def declared_snapshot(state):
    return ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=declared_batches(state.batches),
    )


def declared_update(update):
    return ShareUpdateValue(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=declared_batches(update.batches),
    )


@given(STATES)
def test_a_snapshot_is_written_as_it_is_declared_and_comes_back(state):
    value = encode_snapshot(state)
    assert value == share_state_records.encode_value(declared_snapshot(state), 0)
    assert decode_snapshot(value) == state


@given(UPDATES)
def test_an_update_is_written_as_it_is_declared_and_comes_back(update):
    value = encode_update(update)
    assert value == share_state_records.encode_value(declared_update(update), 0)
    assert decode_update(value) == update


@given(KEYS)
def test_a_key_is_written_as_it_is_declared_and_comes_back(key):
    fields = {"group_id": key.group_id, "topic_id": key.topic_id, "partition": key.partition}
    for record_type, declared in ((SNAPSHOT, ShareSnapshotKey), (UPDATE, ShareUpdateKey)):
        encoded = encode_key(record_type, key)
        assert encoded == share_state_records.encode_key(declared(**fields))
        assert decode_key(encoded) == (record_type, key)


def test_the_bytes_are_those_of_kafka():
    key = SharePartitionKey("g", TOPIC_ID, 2)
    assert encode_key(UPDATE, key).hex() == "0001000167" + TOPIC_ID.hex() + "00000002"
    state = State(3, 1, 7, 100, 5, [Batch(100, 109, 2, 4)], 1_000, 2_000)
    assert encode_snapshot(state).hex(" ", 1) == (
        "00 00 00 00 00 03 00 00 00 01 00 00 00 07 00 00 00 00 00 00 00 64 "
        "00 00 00 00 00 00 03 e8 00 00 00 00 00 00 07 d0 "
        "02 00 00 00 00 00 00 00 64 00 00 00 00 00 00 00 6d 04 00 02 00 "
        "01 00 04 00 00 00 05"
    )
    update = Update(3, 7, -1, -1, [])
    assert encode_update(update).hex(" ", 1) == "00 00 00 00 00 03 00 00 00 07 ff ff ff ff ff ff ff ff 01 00"


def test_a_value_with_the_tags_of_a_later_broker_is_read():
    state = State(3, 1, 7, 100, 5, [Batch(100, 109, 2, 4)], 1_000, 2_000)
    value = encode_snapshot(state)
    count = value[-7:]
    assert count[:3] == b"\x01\x00\x04"
    assert decode_snapshot(value[:-7] + b"\x02" + count[1:] + b"\x05\x01\xff") == state
    # One in a batch, before the fields at the end.
    assert value[-8:-7] == b"\x00"
    assert decode_snapshot(value[:-8] + b"\x01\x03\x01\xff" + count) == state


@pytest.mark.parametrize("cut", range(1, 20))
def test_what_is_cut_off_is_refused(cut):
    value = encode_snapshot(State(3, 1, 7, 100, 5, [Batch(100, 109, 2, 4)], 1_000, 2_000))
    with pytest.raises(MalformedMessage):
        decode_snapshot(value[:-cut])
    value = encode_update(Update(3, 7, 100, 5, [Batch(100, 109, 2, 4)]))
    with pytest.raises(MalformedMessage):
        decode_update(value[:-cut])


def test_a_value_of_a_later_version_is_refused():
    value = encode_update(Update(3, 7, 100, 5, []))
    with pytest.raises(MalformedMessage):
        decode_update(b"\x00\x01" + value[2:])


def test_another_type_of_record_is_skipped():
    assert decode_key(b"\x00\x02" + bytes(20)) is None


def test_an_id_that_is_too_long_does_not_fit():
    assert fits_key("é" * 16_383)
    assert not fits_key("é" * 16_384)


def test_people_can_read_the_records():
    read = internal_reader("__share_group_state")
    key = SharePartitionKey("g", TOPIC_ID, 2)
    found = read(encode_key(UPDATE, key), encode_update(Update(3, 7, 100, 5, [Batch(100, 109, 2, 4)])))
    assert found.type == "ShareUpdate"
    assert found.key == {"group_id": "g", "topic_id": "AAECAwQFBgcICQoLDA0ODw", "partition": 2}
    assert found.value["state_batches"][0]["last_offset"] == 109
    assert read(encode_key(SNAPSHOT, key), None).value is None
