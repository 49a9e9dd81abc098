"""Batches packed anew in another codec: what changes and what does not."""

import itertools

import pytest

from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.recompression import recompress
from odradek.wire.records import (
    Record,
    build_batch,
    iter_records,
    read_batch_header,
    records_section,
    verify_crc,
)

RECORDS = [
    Record(n, 1_700_000_000_000 + n % 3, b"k%d" % n if n % 2 else None, b"value " * n, (("h", b"x"),))
    for n in range(40)
]
SAME = [
    "base_offset", "leader_epoch", "magic", "last_offset_delta", "base_timestamp", "max_timestamp",
    "producer_id", "producer_epoch", "base_sequence", "record_count", "is_transactional", "is_control",
    "uses_log_append_time",
]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(Compression, 2)))
def test_only_size_codec_and_checksum_change(source, target):
    batch = build_batch(
        RECORDS, compression=source, producer_id=7, producer_epoch=2, base_sequence=11, leader_epoch=3
    )
    before = read_batch_header(batch)
    made = recompress(batch, before, target)
    after = read_batch_header(made)
    verify_crc(made, 0, after)
    assert after.compression == target
    assert after.size_bytes == len(made)
    assert [getattr(after, name) for name in SAME] == [getattr(before, name) for name in SAME]
    assert records_section(made, after) == records_section(batch, before)
    assert list(iter_records(made)) == RECORDS
    assert read_batch_header(batch).compression == source


def test_the_flags_of_a_batch_stay():
    batch = build_batch(
        RECORDS, producer_id=7, producer_epoch=2, base_sequence=1, transactional=True, log_append_time_ms=5
    )
    after = read_batch_header(recompress(batch, read_batch_header(batch), Compression.LZ4))
    assert (after.is_transactional, after.uses_log_append_time, after.max_timestamp) == (True, True, 5)


@pytest.mark.parametrize(
    ("codec", "quick", "thorough"),
    [(Compression.GZIP, 1, 9), (Compression.LZ4, 9, 17), (Compression.ZSTD, -50, 19)],
)
def test_levels_are_taken(codec, quick, thorough):
    records = [Record(n, 0, None, b"%d" % (n * n * 7919 % 104729)) for n in range(3000)]
    batch = build_batch(records)
    sizes = [len(recompress(batch, read_batch_header(batch), codec, level)) for level in (quick, thorough)]
    assert sizes[0] > sizes[1]


def test_what_would_unpack_to_too_much_is_refused():
    batch = build_batch(
        [Record(0, 0, None, bytes(100_000))],
        compression=Compression.GZIP,
    )
    with pytest.raises(KafkaError) as caught:
        recompress(batch, read_batch_header(batch), Compression.ZSTD, limit_bytes=10_000)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
