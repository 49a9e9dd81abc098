"""Records of `__transaction_state`: Kafka's bytes, and the short way to write and read them says the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.transactions.record_codec import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    fits_key,
)
from odradek.coordinator.transactions.state import Transaction, TransactionState
from odradek.wire.errors import MalformedMessage
from odradek.wire.messages import transaction_records
from odradek.wire.messages.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
OTHER_STATES = st.sampled_from([state for state in TransactionState if EMPTY < state < TransactionState.DEAD])
PARTITIONS = st.frozensets(st.tuples(st.text(min_size=1, max_size=200), INT32), max_size=300)
TRANSACTIONS = st.builds(
    Transaction,
    producer_id=INT64,
    previous_producer_id=INT64,
    next_producer_id=INT64,
    producer_epoch=INT16,
    timeout_ms=INT32,
    state=OTHER_STATES,
    partitions=PARTITIONS,
    start_ms=INT64,
    updated_ms=INT64,
    client_version=INT16,
)


def bare(state: TransactionState, **changes) -> Transaction:
    values = {
        "producer_id": 4_000,
        "producer_epoch": 7,
        "timeout_ms": 60_000,
        "state": state,
        "start_ms": 1_700_000_000_000,
        "updated_ms": 1_700_000_000_001,
    }
    return Transaction(**{**values, **changes})


HEAD = "0000000000000fa0 0007 0000ea60"
TIMES = "0000018bcfe56801 0000018bcfe56800"


@pytest.mark.parametrize(
    ("transaction", "level", "expected"),
    [
        (bare(EMPTY, start_ms=-1), 0, f"0000 {HEAD} 00 ffffffff 0000018bcfe56801 ffffffffffffffff"),
        (bare(EMPTY, start_ms=-1), 1, f"0001 {HEAD} 00 00 0000018bcfe56801 ffffffffffffffff 00"),
        (bare(TransactionState.COMPLETE_COMMIT), 0, f"0000 {HEAD} 04 00000000 {TIMES}"),
        (
            bare(TransactionState.COMPLETE_ABORT, previous_producer_id=4_000, client_version=2),
            2,
            f"0001 {HEAD} 05 01 {TIMES} 02 00 08 0000000000000fa0 02 02 0002",
        ),
        (
            bare(ONGOING, partitions=frozenset({("t", 1), ("uv", 3), ("t", 0)})),
            0,
            f"0000 {HEAD} 01 00000002 0001 74 00000002 00000000 00000001 0002 7576 00000001 00000003 {TIMES}",
        ),
        (
            bare(
                TransactionState.PREPARE_COMMIT,
                previous_producer_id=4_000,
                next_producer_id=4_001,
                client_version=2,
                partitions=frozenset({("t", 1), ("t", 0)}),
            ),
            2,
            f"0001 {HEAD} 02 02 02 74 03 00000000 00000001 00 {TIMES}"
            " 03 00 08 0000000000000fa0 01 08 0000000000000fa1 02 02 0002",
        ),
    ],
)
def test_values_have_the_bytes_of_kafka(transaction, level, expected):
    """Counted by hand from TransactionLogValue.json."""
    assert encode_value(transaction, level) == bytes.fromhex(expected)
    assert decode_value(bytes.fromhex(expected)) == transaction


def test_a_key_has_the_bytes_of_kafka():
    assert encode_key("abc") == bytes.fromhex("0000 0003 616263")
    assert decode_key(bytes.fromhex("0000 0003 616263")) == "abc"


@given(st.text(max_size=40))
def test_a_key_is_written_and_read_as_declared(transactional_id):
    declared = transaction_records.encode_key(TransactionLogKey(transactional_id=transactional_id))
    assert encode_key(transactional_id) == declared
    assert decode_key(declared) == decode_key(memoryview(declared)) == transactional_id


def declared_value(transaction: Transaction, version: int) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(index)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None
        if transaction.state is EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if version >= 1:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return transaction_records.encode_value(value, version)


@given(TRANSACTIONS)
def test_a_value_is_written_and_read_as_declared(transaction):
    declared = declared_value(transaction, 1)
    assert encode_value(transaction, 1) == encode_value(transaction, 2) == declared
    assert decode_value(declared) == decode_value(memoryview(declared)) == transaction


@given(TRANSACTIONS)
def test_the_oldest_form_has_all_but_the_tagged_fields(transaction):
    declared = declared_value(transaction, 0)
    assert encode_value(transaction, 0) == declared
    read = decode_value(declared)
    assert (read.previous_producer_id, read.next_producer_id, read.client_version) == (-1, -1, 0)
    assert declared_value(read, 0) == declared


@given(INT64, INT16, st.sampled_from([b"", b"\x00\x00", b"\x00\x01", b"\x00\x02"]), st.binary(max_size=60))
def test_damaged_records_are_refused_as_malformed(producer_id, epoch, prefix, data):
    whole = encode_value(bare(ONGOING, producer_id=producer_id, producer_epoch=epoch), 1)
    for damaged in (prefix + data, whole[: len(data)], whole + data, whole[:34] + data):
        for decode in (decode_key, decode_value):
            try:
                decode(damaged)
            except MalformedMessage:
                pass


@pytest.mark.parametrize("status", [6, 7, 8, -1])
def test_a_state_that_no_record_has_is_malformed(status):
    for version in (0, 1):
        value = bytearray(encode_value(bare(TransactionState.COMPLETE_COMMIT), version))
        value[16] = status & 0xFF
        with pytest.raises(MalformedMessage):
            decode_value(bytes(value))


def test_a_field_that_is_not_known_yet_is_passed_over():
    """Kafka 4.3 knows a tag 3, which it does not write; a later one may have more."""
    plain = encode_value(bare(TransactionState.COMPLETE_COMMIT), 1)
    assert plain[-1] == 0
    for tags in ("01 03 02 0005", "02 00 08 0000000000000fa0 07 03 616263"):
        assert decode_value(plain[:-1] + bytes.fromhex(tags)).producer_epoch == 7


def test_records_of_other_types_are_none_of_ours():
    assert decode_key(bytes.fromhex("0063 0003 616263")) is None


def test_ids_that_no_key_can_hold_are_known():
    assert fits_key("i" * 32_767)
    assert fits_key("ü" * 16_383)
    assert not fits_key("i" * 32_768)
    assert not fits_key("ü" * 16_384)
    assert len(encode_key("i" * 32_767)) == 32_771


def test_ids_that_rest_share_what_is_the_same():
    """A hundred thousand of them are a matter of memory."""
    value = encode_value(bare(EMPTY, previous_producer_id=4_000), 1)
    read = decode_value(value)
    assert read.previous_producer_id is read.producer_id
    assert read.partitions is decode_value(value).partitions
