"""Whatever bytes come as a batch: a KafkaError or records, soon, and without much memory."""

import struct
import tracemalloc

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire.batch_validation import BatchRules, validate_batch
from odradek.wire.compression import Compression
from odradek.wire.down_conversion import down_convert
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import is_legacy, to_legacy, to_v2
from odradek.wire.records import (
    Record,
    build_batch,
    iter_batches,
    iter_records,
    read_batch_header,
    read_client_batch,
    verify_crc,
)
from tests.kit.collecting import collected
from tests.tiers import examples

NOW = 1_700_000_000_000
LIMIT_BYTES = 20_000
RULES = [BatchRules(), BatchRules(compacted=True), BatchRules(timestamp_before_max_ms=5)]
SOUND = [
    bytes(
        build_batch(
            [Record(i, NOW + i, b"key", b"value" * i, (("h", b"x"),) * (i % 3)) for i in range(6)],
            compression=compression,
            producer_id=5,
            producer_epoch=1,
            base_sequence=7,
        )
    )
    for compression in Compression
]


def everything_that_is_done_with_bytes(data):
    """Every way from untrusted bytes into the broker; returns the codes of the refusals."""
    codes = []
    ways = [
        lambda: read_client_batch(data, 0, len(data)),
        lambda: [
            list(iter_records(data[at : at + header.size_bytes], header, limit_bytes=LIMIT_BYTES))
            for at, header in iter_batches(data)
        ],
        lambda: verify_crc(data, 0, read_batch_header(data)),
        lambda: to_v2(data, now_ms=NOW, limit_bytes=LIMIT_BYTES) if is_legacy(data) else None,
        lambda: to_legacy(data, 1, 0, limit_bytes=LIMIT_BYTES),
        lambda: down_convert(data, 1, 0, limit_bytes=LIMIT_BYTES),
    ]
    ways += [
        lambda rules=rules: validate_batch(data, read_batch_header(data), rules, NOW, limit_bytes=LIMIT_BYTES)
        for rules in RULES
    ]
    for way in ways:
        try:
            way()
        except KafkaError as error:
            codes.append(error.code)
    return codes


@settings(max_examples=examples(200))
@given(st.binary(max_size=300))
def test_random_bytes(data):
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in everything_that_is_done_with_bytes(data)


@settings(max_examples=examples(300))
@given(
    st.sampled_from(SOUND),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 6), st.binary(max_size=10)), max_size=3),
    st.booleans(),
)
def test_mutated_batches_with_and_without_a_right_checksum(sound, edits, sealed):
    data = bytearray(sound)
    for position, cut, noise in edits:
        data[position : position + cut] = noise
    if sealed and len(data) > 21:
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in everything_that_is_done_with_bytes(bytes(data))


def test_a_header_of_extremes_costs_no_memory():
    with collected() as failures:
        for number, sound in enumerate(SOUND):
            for position in range(0, 61, 4):
                for value in (b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"\xff" * 8):
                    with failures.of(f"batch {number} with {value.hex()} at {position}"):
                        check_that_it_costs_no_memory(sound, position, value)


def check_that_it_costs_no_memory(sound, position, value):
    data = bytearray(sound)
    size = min(8, 61 - position)
    data[position : position + size] = value[:size]
    tracemalloc.start()
    try:
        everything_that_is_done_with_bytes(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
