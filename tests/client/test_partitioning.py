"""Partitions of keys, and batches of records."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.gathering import Gatherer
from odradek.client.partitioning import STICKY_RECORDS, Partitioner, murmur2
from odradek.wire.compression import Compression
from odradek.wire.records import TRANSACTIONAL, iter_records, read_batch_header
from tests.oracles import batching


@pytest.mark.parametrize(
    ("content", "signed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)],
)
def test_the_hash_is_that_of_java(content, signed):
    """The figures of Kafka's own test, UtilsTest.testMurmur2."""
    assert murmur2(content) == signed & 0xFFFFFFFF


@given(st.binary(max_size=40))
def test_the_hash_is_that_of_the_spark_sink(content):
    assert murmur2(content) == batching.murmur2(content) & 0xFFFFFFFF


@given(key=st.binary(min_size=1, max_size=10), count=st.integers(1, 50))
def test_a_key_has_one_partition(key, count):
    assert Partitioner("crc", count).partition(key) == crc32(key) % count
    assert Partitioner("murmur2", count).partition(key) == (murmur2(key) & 0x7FFFFFFF) % count


def test_records_without_a_key_stay_together_for_a_while():
    chosen = iter([3, 1])
    partitioner = Partitioner("murmur2", 4, choose=lambda count: next(chosen))
    found = [partitioner.partition(None) for _ in range(STICKY_RECORDS + 1)]
    assert found == [3] * STICKY_RECORDS + [1]
    assert Partitioner("crc", 4, choose=lambda count: 2).partition(b"") == 2, "as librdkafka"
    assert Partitioner("murmur2", 4, choose=lambda count: 2).partition(b"") == (murmur2(b"") & 0x7FFFFFFF) % 4


def test_a_batch_is_full_before_it_is_too_large():
    gatherer = Gatherer(Compression.GZIP, batch_bytes=500)
    full = [gatherer.add("t", 0, 100 + number, b"k", b"v" * 100, [("h", None)]) for number in range(10)]
    batches = [one for one in full if one is not None] + [*gatherer.drain()]
    assert len(batches) > 2
    assert [*gatherer.drain()] == []
    found = []
    for one in batches:
        content = one.batch(producer_id=1, producer_epoch=2, base_sequence=3, transactional=True)
        header = read_batch_header(content)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)
        assert (header.compression, header.attributes & TRANSACTIONAL) == (Compression.GZIP, TRANSACTIONAL)
        assert header.record_count == one.record_count
        found += [(record.timestamp, record.key, record.headers) for record in iter_records(content)]
    assert found == [(100 + number, b"k", (("h", None),)) for number in range(10)]


def test_a_record_that_is_larger_than_a_batch_is_one_alone():
    gatherer = Gatherer(batch_bytes=100)
    assert gatherer.add("t", 0, 1, None, b"v" * 1000, ()) is None
    full = gatherer.add("t", 0, 1, None, b"small", ())
    assert full is not None
    assert full.record_count == 1
