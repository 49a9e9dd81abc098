"""No bytes make a decoder hang, take memory beyond a multiple of the frame, or raise anything of its own."""

import dataclasses
import random
import tracemalloc

import pytest

from odradek.wire._decoding import ITEMS_MAX
from odradek.wire.codec import decode_message, decoder, encode_message
from odradek.wire.errors import MalformedMessage
from odradek.wire.frames import read_request_header, read_response
from odradek.wire.messages import (
    consumer_protocol,
    find,
    group_records,
    share_state_records,
    transaction_records,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.schema import Array, Primitive, fields_of
from tests.kit.collecting import collected
from tests.tiers import NIGHTLY
from tests.wire.message_samples import Samples, all_classes, all_messages

ROUNDS = 2000 if NIGHTLY else 6

CUTS = 10000 if NIGHTLY else 60

# Bytes of memory for a byte of frame: the worst are arrays of structs that are three empty fields each.
MEMORY_FACTOR = 60
MEMORY_FLOOR = 32 * 1024


def mutations(data, choose):
    """Cut, flipped, overwritten with extreme lengths, spliced."""
    yield data[: choose.randrange(len(data) + 1)]
    changed = bytearray(data or b"\0")
    for _ in range(choose.choice([1, 1, 2, 8])):
        changed[choose.randrange(len(changed))] = choose.choice(
            [0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)]
        )
    yield bytes(changed)
    at = choose.randrange(len(data) + 1)
    lies = [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\x0f",
        b"\x7f\xff",
        b"\x80\x80\x80\x80\x08",
    ]
    lie = choose.choice(lies)
    yield data[:at] + lie + data[at + len(lie) :]
    yield data + choose.randbytes(9)
    yield choose.randbytes(choose.choice([0, 1, 3, 10, 40, 200]))


def takes_less_than(size, decode, data):
    """Whether one of three tries does: the other threads of the test process allocate, too."""
    return any(memory_to_decode(decode, data) < size for _ in range(3))


def memory_to_decode(decode, data):
    tracemalloc.start()
    try:
        decode(data, 0)
    except MalformedMessage:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def all_with_names():
    return [(cls, version, f"{cls.__name__} version {version}") for cls, version in all_messages()]


def first_and_last(versions):
    """The versions whose memory is measured by day: what decoders do is the same in those between."""
    return versions if NIGHTLY else sorted({versions[0], versions[-1]})


def test_a_decoder_refuses_in_one_way_only():
    with collected() as failures:
        for cls, version, name in all_with_names():
            with failures.of(name):
                check_that_it_refuses_in_one_way(cls, version)


def check_that_it_refuses_in_one_way(cls, version):
    choose = random.Random(f"{cls.__name__} {version}")
    samples = Samples((cls.__name__, version, "fuzz"))
    decode = decoder(cls, version)
    for _ in range(ROUNDS):
        data = encode_message(samples.message(cls, version), version)
        for mutated in mutations(data, choose):
            try:
                _, end = decode(memoryview(mutated) if choose.random() < 0.5 else mutated, 0)
                assert end <= len(mutated)
            except MalformedMessage:
                pass


def most_items(cls, version):
    """The message with as many of the smallest possible items as can be had, for every array of its own."""
    for spec in fields_of(cls):
        if spec.exists_in(version) and isinstance(spec.type, Array):
            item = spec.type.item
            one = item.default if isinstance(item, Primitive) else item()
            yield cls(**{spec.name: [one] * 200})


def test_memory_is_a_bounded_multiple_of_the_frame():
    with collected() as failures:
        for cls in all_classes():
            for version in first_and_last(cls.versions):
                for message in most_items(cls, version):
                    data = encode_message(message, version)
                    with failures.of(f"{cls.__name__} version {version}"):
                        size = MEMORY_FLOOR + MEMORY_FACTOR * len(data)
                        assert takes_less_than(size, decoder(cls, version), data)


def test_every_cut_of_a_message_is_malformed():
    with collected() as failures:
        for cls, version, name in all_with_names():
            data = encode_message(Samples((cls.__name__, version, "cut")).message(cls, version), version)
            sizes = range(len(data))
            with failures.of(name):
                for size in sizes if len(data) < CUTS else random.Random(version).sample(sizes, CUTS):
                    with pytest.raises(MalformedMessage):
                        decode_message(cls, version, data[:size])


def test_a_lying_count_allocates_nothing():
    frame = bytes.fromhex("0001 00000000 7fffffff")
    with pytest.raises(MalformedMessage, match="more items than fit"):
        decode_message(ProduceRequest, 0, frame)
    assert takes_less_than(MEMORY_FLOOR, decoder(ProduceRequest, 0), frame)


def uvarint(value):
    return uvarint_of_rest(value) if value > 0x7F else bytes([value])


def uvarint_of_rest(value):
    return bytes([value & 0x7F | 0x80]) + uvarint(value >> 7)


def default_of(cls, name):
    (field,) = [one for one in dataclasses.fields(cls) if one.name == name]
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


TAGS = 2000 if NIGHTLY else 400
UNKNOWN_TAGS = uvarint(TAGS) + b"".join(uvarint(1000 + n) + uvarint(50) + bytes(50) for n in range(TAGS))


def test_unknown_tagged_fields_are_not_kept():
    """CVE-2026-111108 and CVE-2026-111115: Kafka keeps each of them as an object."""
    with collected() as failures:
        for cls in all_classes():
            flexible = [version for version in cls.versions if cls.is_flexible(version)]
            for version in first_and_last(flexible) if flexible else ():
                with failures.of(f"{cls.__name__} version {version}"):
                    check_that_tags_are_not_kept(cls, version)


def check_that_tags_are_not_kept(cls, version):
    message = Samples((cls.__name__, version, "tags")).message(cls, version)
    for spec in fields_of(cls):
        if spec.is_tagged_in(version):
            setattr(message, spec.name, default_of(cls, spec.name))
    data = encode_message(message, version)
    assert data[-1] == 0  # the number of its tagged fields
    decode, extended = decoder(cls, version), data[:-1] + UNKNOWN_TAGS
    assert decode(extended, 0) == (decode(data, 0)[0], len(extended))
    alone = min(memory_to_decode(decode, data) for _ in range(3))
    assert takes_less_than(alone + 2048, decode, extended)


def lookup_of_empty_names(count):
    """FindCoordinatorRequest version 4 with so many keys: an encoder would take long for that."""
    return b"\x00" + uvarint(count + 1) + b"\x01" * count + b"\x00"


def test_a_message_of_too_many_items_is_malformed():
    request = FindCoordinatorRequest(coordinator_keys=[""] * 200)
    assert encode_message(request, 4) == lookup_of_empty_names(200)
    with pytest.raises(MalformedMessage, match="more than 1000000 items"):
        decode_message(FindCoordinatorRequest, 4, lookup_of_empty_names(ITEMS_MAX + 1))
    read = decode_message(FindCoordinatorRequest, 4, lookup_of_empty_names(ITEMS_MAX))
    assert read.coordinator_keys == [""] * ITEMS_MAX


def test_headers_and_responses_refuse_in_one_way_only():
    choose = random.Random("headers")
    for _ in range(ROUNDS * 100):
        data = choose.randbytes(choose.randrange(40))
        for api_key in (0, 3, 18, choose.randrange(-5, 100)):
            frame = api_key.to_bytes(2, "big", signed=True) + data
            try:
                _, position = read_request_header(frame, 0)
                assert position <= len(frame)
            except MalformedMessage:
                pass
        request = find(choose.choice([0, 1, 3, 18]))[0]
        try:
            read_response(data, request, choose.choice(request.versions))
        except MalformedMessage:
            pass


def test_records_of_internal_topics_and_embedded_blobs_refuse_in_one_way_only():
    choose = random.Random("internal topics")
    readers = [
        group_records.decode_key,
        transaction_records.decode_key,
        share_state_records.decode_key,
        lambda data: group_records.decode_value(group_records.GroupMetadataKey(group="g"), data),
        lambda data: transaction_records.decode_value(transaction_records.TransactionLogKey(), data),
        lambda data: share_state_records.decode_value(share_state_records.ShareSnapshotKey(), data),
        consumer_protocol.decode_subscription,
        consumer_protocol.decode_assignment,
    ]
    for _ in range(ROUNDS * 50):
        data = b"\0" + choose.randbytes(choose.randrange(60))
        for read in readers:
            try:
                read(data)
            except MalformedMessage:
                pass
