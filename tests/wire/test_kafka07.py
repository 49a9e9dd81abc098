"""The formats of Kafka 0.7: requests, message sets, and stored records as messages."""

import gzip
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.compression import Compression, compress
from odradek.wire.kafka07 import Unreadable, requests
from odradek.wire.kafka07.messages import (
    TooLarge,
    check_set,
    encode_message,
    encode_set,
    has_compressed,
    iter_messages,
    payloads,
)
from odradek.wire.kafka07.requests import (
    Error,
    Fetch,
    MultiFetch,
    MultiProduce,
    Offsets,
    Produce,
    encode_request,
    read_request,
)
from odradek.wire.kafka07.served import Form, encode, filler, served_bytes, served_bytes_of_batch, values_of
from odradek.wire.records import Record, build_batch, read_batch_header

ENOUGH = 1 << 20

topics = st.none() | st.text(max_size=20).filter(lambda text: text.isprintable())
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
fetches = st.builds(Fetch, topics, int32, int64, int32)
produces = st.builds(Produce, topics, int32, st.binary(max_size=50))
anything = st.one_of(
    fetches,
    produces,
    st.builds(Offsets, topics, int32, int64, int32),
    st.builds(MultiFetch, st.lists(fetches, max_size=4)),
    st.builds(MultiProduce, st.lists(produces, max_size=4)),
)


def contents(data):
    return [bytes(content) for message in iter_messages(data) for content in payloads(message)]


# Requests


@given(anything)
def test_a_request_is_read_as_it_was_written(request):
    assert read_request(encode_request(request)[4:]) == request


@given(anything, st.data())
def test_a_request_that_is_cut_anywhere_is_refused(request, data):
    frame = encode_request(request)[4:]
    with pytest.raises(Unreadable):
        read_request(frame[: data.draw(st.integers(0, len(frame) - 1))])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_unreadable(frame):
    try:
        request = read_request(frame)
    except Unreadable:
        return
    assert frame.startswith(encode_request(request)[4:]) or "�" in repr(request)


def test_bytes_behind_a_request_are_ignored():
    request = Fetch("t", 0, 1, 2)
    assert read_request(encode_request(request)[4:] + b"more") == request


def test_the_bytes_of_a_fetch_are_those_of_the_document():
    assert encode_request(Fetch("dogs", 1, 7, 300)) == bytes.fromhex(
        "00000018 0001 0004 646f6773 00000001 0000000000000007 0000012c"
    )


def test_the_bytes_of_an_answer_with_offsets_are_those_of_the_document():
    assert requests.response_of_offsets([5, 0]) == bytes.fromhex(
        "00000016 0000 00000002 0000000000000005 0000000000000000"
    )
    assert requests.response_head(0, Error.WRONG_PARTITION) == bytes.fromhex("00000002 0003")


# Message sets


@given(
    st.lists(st.binary(max_size=30), max_size=8),
    st.sampled_from([0, 1]),
    st.sampled_from([Compression.NONE, Compression.GZIP, Compression.SNAPPY]),
)
def test_a_set_is_read_as_it_was_written(values, magic, codec):
    data = encode_set(values, magic, codec)
    check_set(data, ENOUGH)
    assert contents(data) == values


def test_a_compressed_message_is_seen_wherever_it_is():
    plain, packed = encode_message(b"one"), encode_set([b"two"], codec=Compression.GZIP)
    assert has_compressed(plain + packed)
    assert not has_compressed(plain + plain)
    assert not has_compressed(b"\0\0\0\1\7" + packed)


def test_the_bytes_of_messages_are_those_of_the_document():
    checksum = zlib.crc32(b"hello")
    assert encode_message(b"hello", 0) == struct.pack(">iBI", 10, 0, checksum) + b"hello"
    assert encode_message(b"hello", 1) == struct.pack(">iBBI", 11, 1, 0, checksum) + b"hello"


@given(st.binary(max_size=300))
def test_any_bytes_are_a_set_or_refused(data):
    try:
        check_set(data, 100, 10_000)
        contents(data)
    except (Unreadable, TooLarge):
        pass


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.data())
def test_a_message_with_a_flipped_bit_in_its_payload_is_refused(values, data):
    whole = bytearray(encode_set([b"x", *values]))
    whole[10] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Unreadable, match="checksum"):
        check_set(whole, ENOUGH)


def test_an_incomplete_message_is_ignored_behind_a_whole_one_and_refused_as_the_first():
    whole = encode_message(b"one")
    assert contents(whole + encode_message(b"two")[:-1]) == [b"one"]
    assert contents(whole + b"\0\0") == [b"one"]
    with pytest.raises(Unreadable):
        check_set(whole[:-1], ENOUGH)
    with pytest.raises(Unreadable):
        check_set(whole + struct.pack(">i", -1), ENOUGH)


@pytest.mark.parametrize("content", [b"", b"\1", b"\0" * 4, b"\1" * 5, b"\2" + b"\0" * 9])
def test_a_message_shorter_than_its_head_or_of_another_magic_is_refused(content):
    with pytest.raises(Unreadable):
        check_set(struct.pack(">i", len(content)) + content, ENOUGH)


def test_what_comes_first_in_a_set_counts():
    too_large, wrong = encode_message(b"x" * 101), bytearray(encode_message(b"one"))
    wrong[-1] ^= 1
    with pytest.raises(TooLarge):
        check_set(too_large + wrong, 100)
    with pytest.raises(Unreadable):
        check_set(bytes(wrong) + too_large, 100)


def test_the_limit_of_a_payload_is_for_what_is_sent():
    packed = encode_set([b"x" * 1000], codec=Compression.GZIP)
    check_set(packed, 100)
    with pytest.raises(TooLarge):
        check_set(packed, 10)


def test_a_wrong_checksum_within_a_compressed_set_is_refused():
    inner = bytearray(encode_message(b"one"))
    inner[-1] ^= 1
    packed = encode_message(compress(Compression.GZIP, inner), codec=Compression.GZIP)
    with pytest.raises(Unreadable, match="checksum"):
        check_set(packed, ENOUGH)


def test_compression_has_limits():
    packed = encode_set([b"x" * 10_000], codec=Compression.GZIP)
    with pytest.raises(Unreadable):
        check_set(packed, ENOUGH, limit_bytes=5000)
    for _ in range(4):
        packed = encode_message(compress(Compression.GZIP, packed), codec=Compression.GZIP)
    with pytest.raises(Unreadable, match="within each other"):
        check_set(packed, ENOUGH)
    with pytest.raises(Unreadable, match="codec 3"):
        check_set(encode_message(b"", codec=3), ENOUGH)


# Stored records


def batch_of(values, **more):
    records = [Record(100 + n, 1_700_000_000_000, b"key", value) for n, value in enumerate(values)]
    batch = build_batch(records, **more)
    return batch, read_batch_header(batch)


@given(st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=6), st.sampled_from([0, 1, 2]))
def test_records_become_messages_whose_sizes_are_known(values, codec):
    batch, header = batch_of(values, compression=codec)
    found = list(values_of(batch, header))
    assert [(one.offset, bytes(one.content)) for one in found] == [
        (100 + n, value or b"") for n, value in enumerate(values)
    ]
    for form in Form:
        encoded = [encode(form, one.content) for one in found]
        assert [len(one) for one in encoded] == [served_bytes(form, len(one.content)) for one in found]
        assert contents(b"".join(encoded)) == [value or b"" for value in values]
    for skipped in range(len(values) + 1):
        for form, head_bytes in ((Form.PLAIN, 10), (Form.MAGIC_0, 9)):
            expected = sum(head_bytes + len(value or b"") for value in values[skipped:])
            assert served_bytes_of_batch(form, batch, header, 100 + skipped) == expected


def test_control_records_are_no_messages():
    batch, header = batch_of([b"marker"], control=True)
    assert list(values_of(batch, header)) == []
    assert served_bytes_of_batch(Form.PLAIN, batch, header, 0) == 0


@pytest.mark.parametrize("size", [0, 1, 65_524, 65_525, 65_526, 200_000])
def test_a_wrapped_record_is_a_gzip_stream_of_a_known_size(size):
    encoded = encode(Form.WRAPPED, b"x" * size)
    assert len(encoded) == served_bytes(Form.WRAPPED, size)
    (message,) = iter_messages(encoded)
    assert message.codec == Compression.GZIP
    assert gzip.decompress(message.payload) == encode_message(b"x" * size)


@pytest.mark.parametrize("size", [0, 1, 5, 1000, 65_526, 200_000])
def test_a_filler_has_the_size_of_any_record_and_no_content(size):
    wanted = served_bytes(Form.WRAPPED, size)
    (message,) = iter_messages(filler(wanted))
    assert len(filler(wanted)) == wanted
    assert message.codec == Compression.GZIP
    assert gzip.decompress(message.payload) == b""
    assert contents(filler(wanted) + encode(Form.WRAPPED, b"next")) == [b"next"]
