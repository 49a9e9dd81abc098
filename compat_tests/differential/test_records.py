"""Produce, Fetch, ListOffsets, OffsetForLeaderEpoch and InitProducerId."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import pytest

from compat_tests.differential.harness import CLOSED, PACKED_OTHERWISE, Pair, Side, messages
from compat_tests.differential.topics import NOW_MS, id_of, new_topic
from odradek.wire.compression import Compression, compress
from odradek.wire.errors import ErrorCode
from odradek.wire.legacy_records import build_message, to_legacy
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import build_batch

UNKNOWN_ID = bytes(range(16))
CODECS = range(5)
NOTHING_CONVERTED = 12
"""A version of Fetch that both of Kafka's lines serve, and that knows topics by name."""
COORDINATOR_LOAD_IN_PROGRESS = 14


def batch(
    count: int = 3, *, start: int = 0, compression: int = 0, key: bytes | None = b"key", **more: Any
) -> bytes:
    records = [
        (n, NOW_MS + start + n, key, b"value %d " % (start + n) * 5, [("header", b"h"), ("null", None)])
        for n in range(count)
    ]
    return bytes(build_batch(records, compression=compression, **more))


def spoilt(good: bytes, position: int, value: bytes) -> bytes:
    """The batch with some of its bytes replaced; its checksum stays what it was."""
    return good[:position] + value + good[position + len(value) :]


def produce(
    side: Side,
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    unknown_id: bool = False,
) -> ProduceRequest:
    topic_id = UNKNOWN_ID if unknown_id else id_of(side, topic)
    data = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)],
    )


def for_version(records: bytes, version: int) -> bytes:
    """What a client of that version would send: message sets below version 3."""
    return records if version >= 3 else bytes(to_legacy(records, 1 if version >= 2 else 0, 0))


def fetch(side: Side, topic: str, offset: int = 0, *, partition: int = 0, **more: Any) -> FetchRequest:
    part_bytes = more.pop("partition_max_bytes", 1 << 20)
    topic_id = more.pop("topic_id", None) or id_of(side, topic)
    one = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=part_bytes,
        current_leader_epoch=more.pop("current_leader_epoch", -1),
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=more.pop("min_bytes", 0),
        max_bytes=more.pop("max_bytes", 1 << 20),
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[one])],
        **more,
    )


@pytest.mark.smoke
def test_sound_batches_get_the_same_answers_and_come_back_as_the_same_bytes(pair: Pair) -> None:
    for version in pair.versions(ProduceRequest):
        topic = new_topic(pair, "produce")
        for codec in codecs_of(version):
            records = for_version(batch(4, start=10 * codec, compression=codec), version)
            pair.ask(lambda side: produce(side, topic, records), version, f"codec {codec}")
        # What old clients produced is stored as new batches: read them as they are, too.
        for fetch_version in {*pair.versions(FetchRequest), NOTHING_CONVERTED}:
            for offset in (0, 1, 5, 19):
                note = f"produced in v{version}, from {offset}"
                pair.ask(lambda side: fetch(side, topic, offset), fetch_version, note)


def codecs_of(produce_version: int) -> list[int]:
    """Those that a version may bring; below 3 without what is packed otherwise, which see below."""
    if produce_version >= 3:
        return list(CODECS if produce_version >= 7 else range(4))
    return [codec for codec in range(4 if produce_version else 3) if codec not in PACKED_OTHERWISE]


def test_what_old_clients_packed_holds_the_same(pair: Pair) -> None:
    """It is packed anew twice, when it comes and when it goes, by each broker's own library."""
    for version in pair.versions(ProduceRequest):
        if version >= 3:
            continue
        topic = new_topic(pair, "packed")
        codecs = sorted(PACKED_OTHERWISE - ({Compression.LZ4} if version == 0 else set()))
        for number, codec in enumerate(codecs + codecs):
            records = for_version(batch(4, start=10 * number, compression=codec), version)
            pair.ask(lambda side: produce(side, topic, records), version)
        for fetch_version in range(4):
            for offset in (0, 2, 4, 7):
                answers = [side.ask(fetch(side, topic, offset), fetch_version) for side in pair.sides]
                held = []
                for answer in answers:
                    partition = answer.responses[0].partitions[0]
                    held.append(messages(bytes(partition.records)))
                    partition.records = b""
                note = f"Fetch v{fetch_version} (packed by v{version}, from {offset})"
                pair.compare(f"{note}.records", *held)
                plain = [
                    side.plain(one, fetch_version) for side, one in zip(pair.sides, answers, strict=True)
                ]
                pair.compare(note, *plain)


@pytest.mark.parametrize("acks", [1, 7])
def test_acks_are_checked(pair: Pair, acks: int) -> None:
    topic = new_topic(pair, "acks")
    pair.sweep(
        ProduceRequest,
        lambda side, v: produce(side, topic, for_version(batch(), v), acks=acks),
        f"acks {acks}",
    )


BAD_BATCHES = {
    "wrong checksum": spoilt(batch(), 30, b"\xff\xff"),
    "spoilt record": spoilt(batch(), 70, b"\xff\xff\xff"),
    "cut off": batch()[:-5],
    "only half a header": batch()[:30],
    "size too small": spoilt(batch(), 8, struct.pack(">i", 10)),
    "size too large": spoilt(batch(), 8, struct.pack(">i", 1000)),
    "size below zero": spoilt(batch(), 8, struct.pack(">i", -5)),
    "magic 3": spoilt(batch(), 16, b"\x03"),
    "magic 1": spoilt(batch(), 16, b"\x01"),
    "two batches": batch() + batch(start=10),
    "bytes after the batch": batch() + b"abc",
    "empty": b"",  # of null records 4.3.1 does not answer at all
    "control batch": batch(control=True),
    "transactional without an id": batch(
        transactional=True, producer_id=5, producer_epoch=0, base_sequence=0
    ),
    "base offset 100": batch(base_offset=0)[:0] + spoilt(batch(), 0, struct.pack(">q", 100)),
}


@pytest.mark.parametrize("what", BAD_BATCHES)
def test_bad_batches_are_refused_alike(pair: Pair, what: str) -> None:
    topic = new_topic(pair, "bad")
    for version in pair.versions(ProduceRequest):
        if version >= 3:
            pair.ask(lambda side: produce(side, topic, BAD_BATCHES[what]), version, what)


def message(magic: int, value: bytes | None = b"value", **more: Any) -> bytes:
    more.setdefault("timestamp", NOW_MS)
    return build_message(magic, key=more.pop("key", b"key"), value=value, **more)


def wrapper(magic: int, inner: bytes, codec: int = Compression.GZIP, **more: Any) -> bytes:
    """A message that holds others: `offset` is that of the last of them, or what a client writes there."""
    packed = compress(codec, inner, magic=more.pop("packed_as", magic))
    return message(magic, packed, key=None, attributes=codec | more.pop("attributes", 0), **more)


def resealed(spoilt_message: bytes) -> bytes:
    """With the checksum of what is there now."""
    return spoilt(spoilt_message, 12, struct.pack(">I", crc32(spoilt_message[16:])))


def sets_of(magic: int) -> dict[str, bytes]:
    """Message sets that are odd or bad, of one format."""
    other = 1 - magic
    one, two = message(magic), message(magic, b"two", offset=1)
    pair = one + two
    packed = wrapper(magic, pair, offset=1)
    value_size = 12 + (14 if magic else 6) + 4 + 3
    stamped = [message(magic, b"%d" % n, offset=n, timestamp=NOW_MS + n) for n in (2, 0, 1)]
    lz4 = compress(Compression.LZ4, pair, magic=magic)
    return {
        "sound": pair,
        "sound and packed": packed,
        "empty": b"",  # of null records 3.9 does not answer at all
        "a byte": b"a",
        "only an offset": one[:8],
        "only offset and size": one[:12],
        "without the magic": one[:16],
        "only a head": one[:20],
        "the only message cut short": one[:-1],
        "the second cut short": pair[:-1],
        "the second cut within its size": pair[: len(one) + 10],
        "the second cut behind its size": pair[: len(one) + 12],
        "the second cut at its magic": pair[: len(one) + 17],
        "a byte behind": pair + b"a",
        "zeros behind": pair + bytes(40),
        "a wrapper cut short": packed[:-1],
        "a wrapper with a byte behind": packed + b"a",
        "wrong checksum": spoilt(one, 13, b"\xff\xff"),
        "second with a wrong checksum": one + spoilt(two, 13, b"\xff\xff"),
        "spoilt value": spoilt(one, len(one) - 2, b"\xff"),
        "size zero": spoilt(one, 8, struct.pack(">i", 0)),
        "size below zero": spoilt(one, 8, struct.pack(">i", -5)),
        "size of less than a message": spoilt(one, 8, struct.pack(">i", 13)),
        "size too small": spoilt(one, 8, struct.pack(">i", len(one) - 13)),
        "size too large": spoilt(one, 8, struct.pack(">i", len(one) - 11)),
        "size of a gigabyte": spoilt(one, 8, struct.pack(">i", 1 << 30)),
        "second with a size below zero": one + spoilt(two, 8, struct.pack(">i", -5)),
        "second with a size too large": one + spoilt(two, 8, struct.pack(">i", 1000)),
        # Kafka takes the byte at 22 for attributes. In a timestamp it has a bit that turns every three days:
        # with it the set is one of a transaction, which is refused by another name.
        "magic 2": resealed(spoilt(spoilt(one, 16, b"\x02"), 22, b"\0")),
        "magic 3": resealed(spoilt(one, 16, b"\x03")),
        "magic below zero": resealed(spoilt(one, 16, b"\xff")),
        "second with magic 3": one + resealed(spoilt(two, 16, b"\x03")),
        "of both formats": one + message(other, offset=1),
        "with a batch behind": one + batch(),
        "behind a batch": batch() + one,
        "a batch": batch(),
        "a packed batch": batch(compression=Compression.GZIP),
        "two batches": batch() + batch(start=10),
        "a batch with a wrong checksum": spoilt(batch(), 30, b"\xff\xff"),
        "a batch cut short": batch()[:-5],
        "a batch with a byte behind": batch() + b"a",
        "a batch with a size below zero": spoilt(batch(), 8, struct.pack(">i", -5)),
        "value's size below zero": resealed(spoilt(one, value_size, struct.pack(">i", -7))),
        "value's size too small": resealed(spoilt(one, value_size, struct.pack(">i", 3))),
        "value's size too large": resealed(spoilt(one, value_size, struct.pack(">i", 9))),
        "key's size below zero": resealed(spoilt(one, value_size - 7, struct.pack(">i", -7))),
        "key's size that leaves no room": resealed(spoilt(one, value_size - 7, struct.pack(">i", 11))),
        "key's size too large": resealed(spoilt(one, value_size - 7, struct.pack(">i", 900))),
        "null key and value": message(magic, None, key=None),
        "offsets that go back": message(magic, offset=7) + message(magic, offset=3),
        "offset below zero": message(magic, offset=-3),
        "a codec that is none": message(magic, attributes=5),
        "another codec that is none": message(magic, attributes=7),
        "attributes that mean nothing": message(magic, attributes=0x70),
        "timestamps that go back": b"".join(stamped),
        "timestamps that go back, packed": wrapper(magic, b"".join(stamped), offset=2),
        "timestamp below zero": message(magic, timestamp=-2),
        "timestamp below zero in a wrapper": wrapper(magic, message(magic, timestamp=-2)),
        "second timestamp below zero": one + message(magic, timestamp=-2),
        "no timestamp": message(magic, timestamp=-1),
        "a timestamp of the future": message(magic, timestamp=NOW_MS + (1 << 42)),
        "log append time": message(magic, attributes=8),
        "log append time of a wrapper": wrapper(magic, pair, offset=1, attributes=8),
        "log append time in a wrapper": wrapper(magic, message(magic, attributes=8)),
        "another timestamp than in the wrapper": wrapper(magic, pair, offset=1, timestamp=NOW_MS + 99),
        "no timestamp of the wrapper": wrapper(magic, pair, offset=1, timestamp=-1),
        "a wrapper in a wrapper": wrapper(magic, packed, offset=1),
        "a wrapper behind another": packed + packed,
        "a message behind a wrapper": packed + one,
        "a wrapper behind a message": one + packed,
        "a wrapper of nothing": wrapper(magic, b""),
        "a wrapper without value": message(magic, None, attributes=1),
        "a wrapper with an empty value": message(magic, b"", attributes=1),
        "a wrapper of what is not packed": message(magic, b"not packed at all", attributes=1),
        "a wrapper whose packing is cut short": message(
            magic, compress(Compression.GZIP, pair, magic=magic)[:-9], attributes=1, offset=1
        ),
        "a wrapper of the other format": wrapper(magic, message(other)),
        "a wrapper of both formats": wrapper(magic, one + message(other, offset=1), offset=1),
        "a wrapper of a codec that is none": message(magic, b"packed", attributes=6),
        "a wrapper of a lying size": wrapper(magic, resealed(spoilt(one, value_size, struct.pack(">i", 9)))),
        "a wrapper of a message cut short": wrapper(magic, pair[:-1], offset=1),
        "a wrapper of a message with a byte behind": wrapper(magic, pair + b"a", offset=1),
        "a wrapper of a wrong checksum": wrapper(magic, one + spoilt(two, 13, b"\xff\xff"), offset=1),
        "a wrapper of a size below zero": wrapper(
            magic, one + spoilt(two, 8, struct.pack(">i", -5)), offset=1
        ),
        "a wrapper of a size too small": wrapper(magic, one + spoilt(two, 8, struct.pack(">i", 3)), offset=1),
        "a wrapper with a key": message(
            magic, compress(Compression.GZIP, pair, magic=magic), attributes=1, offset=1
        ),
        "a wrapper's offset zero": wrapper(magic, pair),
        "a wrapper's offset below the last": wrapper(magic, pair + message(magic, offset=2), offset=1),
        "a wrapper's offset above the last": wrapper(magic, pair, offset=9),
        "a wrapper's offset below zero": wrapper(magic, pair, offset=-4),
        "inner offsets all zero": wrapper(magic, one + message(magic), offset=1),
        "inner offsets that go back": wrapper(
            magic, message(magic, offset=5) + message(magic, offset=2), offset=5
        ),
        "inner offsets with gaps": wrapper(magic, one + message(magic, offset=8), offset=8),
        "inner offset below zero": wrapper(magic, message(magic, offset=-2) + one, offset=1),
        "inner null value": wrapper(magic, message(magic, None, key=None)),
        "snappy": wrapper(magic, pair, Compression.SNAPPY, offset=1),
        "lz4": wrapper(magic, pair, Compression.LZ4, offset=1),
        "lz4 with the other format's checksum": wrapper(
            magic, pair, Compression.LZ4, offset=1, packed_as=1 - magic
        ),
        "lz4 with a wrong checksum of its head": message(
            magic, spoilt(lz4, 6, bytes([lz4[6] ^ 0xFF])), attributes=3, offset=1
        ),
        "zstd": message(magic, compress(Compression.ZSTD, pair), attributes=4, offset=1),
        "gzip that says snappy": message(
            magic, compress(Compression.GZIP, pair, magic=magic), attributes=2, offset=1
        ),
    }


TAKEN, CORRUPT, TRIPPED = 0, 2, -1
STRICTER = {
    "a byte",
    "only an offset",
    "only offset and size",
    "without the magic",
    "only a head",
    "the only message cut short",
    "the second cut short",
    "the second cut within its size",
    "the second cut behind its size",
    "the second cut at its magic",
    "a byte behind",
    "a wrapper cut short",
    "a wrapper with a byte behind",
    "a wrapper of a message cut short",
    "a wrapper of a message with a byte behind",
    "size too large",
    "size of a gigabyte",
    "second with a size too large",
    "value's size below zero",
    "value's size too small",
    "a batch cut short",
    "a batch with a byte behind",
}
"""What Kafka acknowledges though it stores only what is before it, or a value that has lost its end."""


@pytest.mark.parametrize("settings", [{}, {"message_timestamp_type": "LogAppendTime"}], ids=["", "stamped"])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_of_every_kind_are_taken_or_refused_alike(
    pair: Pair, magic: int, settings: dict[str, str]
) -> None:
    versions = [version for version in pair.versions(ProduceRequest) if version < 3]
    if not versions:
        return
    # Kafka 3.9 takes every time of the future, unless it is told not to.
    topic = new_topic(pair, "sets", message_timestamp_after_max_ms="3600000", **settings)
    strict = new_topic(pair, "strict")
    for what, records in sets_of(magic).items():
        note = f"{what}, magic {magic}"
        if what in STRICTER or what == "magic 2":
            codes = [_code_of(side.ask(produce(side, strict, records), versions[-1])) for side in pair.sides]
            # Of a batch without a whole header there is nothing to be lost: only the name is another.
            assert codes == ([TAKEN, CORRUPT] if what in STRICTER else [TRIPPED, CORRUPT]), note
            continue
        bases = []
        for version in versions:
            theirs, _ = pair.ask(lambda side: produce(side, topic, records), version, note)
            bases.append(theirs.responses[0].partition_responses[0].base_offset)
        # Of another one's answers only the stamps differ, by each broker's own clock.
        if max(bases) >= 0 and not settings:
            for version in (1, 3, NOTHING_CONVERTED):
                pair.ask(lambda side: fetch(side, topic, min(bases)), version, note)


def _code_of(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def test_unknown_topics_and_partitions_are_refused_alike(pair: Pair) -> None:
    topic = new_topic(pair, "known")
    for side in pair.sides:
        side.values["id of not-there"] = UNKNOWN_ID
    pair.sweep(
        ProduceRequest, lambda s, v: produce(s, topic, for_version(batch(), v), partition=9), "partition 9"
    )
    pair.sweep(ProduceRequest, lambda s, v: produce(s, "not-there", for_version(batch(), v)), "no such topic")
    pair.sweep(FetchRequest, lambda s, _: fetch(s, topic, partition=9), "partition 9")
    pair.sweep(FetchRequest, lambda s, _: fetch(s, "not-there"), "no such topic")


@pytest.mark.smoke
def test_topic_settings_bind_producers_alike(pair: Pair) -> None:
    small = new_topic(pair, "small", max_message_bytes="200")
    compacted = new_topic(pair, "compacted", cleanup_policy="compact")
    strict = new_topic(pair, "strict", message_timestamp_before_max_ms="1000")
    stamped = new_topic(pair, "stamped", message_timestamp_type="LogAppendTime")
    for version in pair.versions(ProduceRequest):
        big, keyless = for_version(batch(20), version), for_version(batch(key=None), version)
        sound = for_version(batch(), version)
        pair.ask(lambda side: produce(side, small, big), version, "too large")
        pair.ask(lambda side: produce(side, compacted, keyless), version, "no key")
        pair.ask(lambda side: produce(side, strict, sound), version, "too old")
        pair.ask(lambda side: produce(side, stamped, sound), version, "log append time")


def loaded(answer: Any) -> bool:
    """Kafka's first producer id comes from its controller, in a while."""
    return bool(answer.error_code != COORDINATOR_LOAD_IN_PROGRESS)


def seen_producer(side: Side, answer: Any) -> None:
    side.remember("producer", answer.producer_id, "producer_id")


def new_producer(pair: Pair) -> None:
    """Idempotent, its id remembered as `producer`."""
    pair.ask(lambda _: InitProducerIdRequest(transactional_id=None), 4, settle=loaded, see=seen_producer)


def send(
    pair: Pair, topic: str, version: int, sequence: int, *, count: int = 3, epoch: int = 0, note: str = ""
) -> tuple[Any, Any]:
    """The batch of that first sequence number, of the producer made last."""

    def build(side: Side) -> ProduceRequest:
        records = batch(count, producer_id=side["producer"], producer_epoch=epoch, base_sequence=sequence)
        return produce(side, topic, records)

    told = f"epoch {epoch}, sequence {sequence}, {count} records {note}"
    return pair.ask(build, version, told.rstrip())


@pytest.mark.smoke
def test_idempotent_sequences_are_judged_alike(pair: Pair) -> None:
    for version in pair.versions(ProduceRequest):
        if version < 3:
            continue
        topic = new_topic(pair, "sequences")
        new_producer(pair)
        for epoch, sequence in [(0, 0), (0, 3), (0, 3), (0, 0), (0, 9), (1, 3), (1, 0), (0, 6), (1, 3)]:
            send(pair, topic, version, sequence, epoch=epoch)


def test_the_last_five_batches_are_known_again_alike(pair: Pair) -> None:
    """Of the sixth last nobody knows that it has been there."""
    served = [version for version in pair.versions(ProduceRequest) if version >= 3]
    for version in served[:1] + served[-1:]:
        topic = new_topic(pair, "five")
        new_producer(pair)
        sequences = range(0, 18, 3)
        for sequence in sequences:
            send(pair, topic, version, sequence)
        codes = []
        for sequence in sequences:
            theirs, _ = send(pair, topic, version, sequence, note="again")
            codes.append(_code_of(theirs))
        assert codes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] + 5 * [ErrorCode.NONE]
        for sequence, count in [(15, 2), (16, 2), (15, 4), (12, 6), (16, 3), (17, 1), (17, 4)]:
            send(pair, topic, version, sequence, count=count, note="in part")
        for epoch in (-1, 0):
            send(pair, topic, version, -1, epoch=epoch, note="a number or an epoch missing")
        send(pair, topic, version, 3, epoch=2, note="a new epoch with the number of an older batch")
        send(pair, topic, version, 0, epoch=2)
        send(pair, topic, version, 15, epoch=0, note="the last of the old epoch again")
        send(pair, topic, version, 18, epoch=0, note="the next of the old epoch")
        send(pair, topic, version, 0, epoch=2, note="again")


SEQUENCE_MAX = 2**31 - 1


def test_sequence_numbers_go_on_at_0_alike(pair: Pair) -> None:
    for version in pair.versions(ProduceRequest):
        if version < 11:
            continue
        for first in (SEQUENCE_MAX - 2, SEQUENCE_MAX - 1, SEQUENCE_MAX):
            topic = new_topic(pair, "wraps")
            new_producer(pair)
            following = (first + 3) % (SEQUENCE_MAX + 1)
            sent = [_code_of(send(pair, topic, version, first)[0])]
            for sequence in (first, following + 1, following, following + 3, first, following, first - 3):
                sent.append(_code_of(send(pair, topic, version, sequence, note=f"after {first}")[0]))
            assert sent[0] == ErrorCode.NONE
            assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER in sent


def test_producers_that_a_log_does_not_know_begin_alike(pair: Pair) -> None:
    for version in pair.versions(ProduceRequest):
        if version < 11:
            continue
        for epoch, first in [(0, 5), (3, 5), (0, 0)]:
            topic = new_topic(pair, "begins")
            new_producer(pair)
            for sequence in (first, first + 3, first + 9):
                send(pair, topic, version, sequence, epoch=epoch)


def test_producers_are_known_when_their_records_are_deleted_alike(pair: Pair) -> None:
    version = max(pair.versions(ProduceRequest), default=0)
    if version < 11:
        return
    for then in (3, 9):
        topic = new_topic(pair, "deleted")
        new_producer(pair)
        send(pair, topic, version, 0)
        part = DeleteRecordsPartition(partition_index=0, offset=-1)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=10_000
        )
        pair.ask(lambda _: request, 2, "all")
        send(pair, topic, version, 0, note="again, deleted")
        send(pair, topic, version, then, note="after all was deleted")
        send(pair, topic, version, 6, note="then")


def test_producers_are_forgotten_alike(pair: Pair) -> None:
    """After their time any sequence number will do, of any epoch."""
    if 1 not in pair.versions(IncrementalAlterConfigsRequest) or not pair.versions(DescribeProducersRequest):
        return

    def to(operation: int, value: str | None) -> IncrementalAlterConfigsRequest:
        one = AlterableConfig(name="producer.id.expiration.ms", config_operation=operation, value=value)
        whole = AlterConfigsResource(resource_type=4, resource_name="", configs=[one])
        return IncrementalAlterConfigsRequest(resources=[whole])

    version = max(pair.versions(ProduceRequest))
    topics = {then: new_topic(pair, "forgotten") for then in (3, 9)}
    new_producer(pair)
    for topic in topics.values():
        send(pair, topic, version, 0, epoch=1)
    asked = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[0]) for topic in topics.values()]
    )

    def is_forgotten(answer: Any) -> bool:
        return not any(part.active_producers for topic in answer.topics for part in topic.partitions)

    def in_order(side: Side, answer: Any) -> None:
        answer.topics.sort(key=lambda topic: topic.name)

    pair.ask(lambda _: to(0, "1"), 1, "forget soon")
    pair.ask(lambda _: asked, 0, "forgotten", settle=is_forgotten, see=in_order)
    pair.ask(lambda _: to(1, None), 1, "forget later")
    # Kafka answers before its broker has the value.
    setting = DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=["producer.id.expiration.ms"]
    )
    pair.ask(
        lambda _: DescribeConfigsRequest(resources=[setting]),
        4,
        "the value is back",
        settle=lambda answer: answer.results[0].configs[0].value != "1",
    )
    for then, topic in topics.items():
        for sequence, epoch in [(then, 0), (then + 3, 0), (then + 9, 0), (0, 1)]:
            send(pair, topic, version, sequence, epoch=epoch, note=f"forgotten, then {then}")


def test_init_producer_id_answers_alike(pair: Pair) -> None:
    def seen(side: Side, answer: Any) -> None:
        if answer.producer_id >= 0:
            side.remember("producer", answer.producer_id, "producer_id")

    for version in pair.versions(InitProducerIdRequest):
        pair.ask(lambda _: InitProducerIdRequest(transactional_id=None), version, settle=loaded, see=seen)
        if version >= 3:
            pair.ask(
                lambda side: InitProducerIdRequest(
                    transactional_id=None, producer_id=side["producer"], producer_epoch=0
                ),
                version,
                "with a producer id",
                see=seen,
            )


@pytest.mark.smoke
def test_fetch_limits_hold_alike(pair: Pair) -> None:
    topic = new_topic(pair, "limits", 2)
    for start in (0, 10, 20):
        pair.ask(lambda side: produce(side, topic, batch(10, start=start)), 9)
    for version in pair.versions(FetchRequest):
        for part_bytes in (1, 700, 1500):
            pair.ask(
                lambda side: fetch(side, topic, partition_max_bytes=part_bytes),
                version,
                f"{part_bytes} bytes of a partition",
            )
        pair.ask(lambda side: fetch(side, topic, max_bytes=1), version, "1 byte in all")
        pair.ask(lambda side: fetch(side, topic, 30), version, "at the end")
        pair.ask(lambda side: fetch(side, topic, 31), version, "after the end")
        pair.ask(lambda side: fetch(side, topic, -1), version, "before the start")
        pair.ask(lambda side: fetch(side, topic, isolation_level=1), version, "read committed")
        pair.ask(lambda side: fetch(side, topic, current_leader_epoch=0), version, "leader epoch 0")
        pair.ask(lambda side: fetch(side, topic, current_leader_epoch=7), version, "leader epoch 7")


def test_fetch_sessions_run_alike(pair: Pair) -> None:
    topic = new_topic(pair, "session", 2)
    pair.ask(lambda side: produce(side, topic, batch()), 9)

    def seen(side: Side, answer: Any) -> None:
        if answer.session_id:
            side.remember("session", answer.session_id, "session_id")

    def incremental(side: Side, epoch: int, session: int | None = None) -> FetchRequest:
        number = side["session"] if session is None else session
        return FetchRequest(max_wait_ms=0, min_bytes=0, session_id=number, session_epoch=epoch)

    def forget(side: Side) -> FetchRequest:
        request = incremental(side, 4)
        forgotten = ForgottenTopic(topic=topic, topic_id=id_of(side, topic), partitions=[0])
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=request.session_id,
            session_epoch=4,
            forgotten_topics_data=[forgotten],
        )

    for version in pair.versions(FetchRequest):
        if version < 7:
            continue
        pair.ask(lambda side: fetch(side, topic, session_epoch=0), version, "new session", see=seen)
        pair.ask(lambda side: incremental(side, 1), version, "nothing changed but the data is unread")
        moved = lambda side: fetch(side, topic, 3, session_id=side["session"], session_epoch=2)  # noqa: E731
        pair.ask(moved, version, "moved to the end")
        pair.ask(lambda side: incremental(side, 3), version, "nothing new")
        pair.ask(forget, version, "forget a partition")
        pair.ask(lambda side: incremental(side, 9), version, "wrong epoch")
        pair.ask(lambda side: incremental(side, 1, 123456), version, "no such session")
        pair.ask(lambda side: incremental(side, -1), version, "close the session")
        pair.ask(lambda side: incremental(side, 5), version, "after it is closed")


def list_offsets(
    topic: str, timestamp: int, *, partition: int = 0, epoch: int = -1, count: int = 1
) -> ListOffsetsRequest:
    one = ListOffsetsPartition(
        partition_index=partition,
        timestamp=timestamp,
        current_leader_epoch=epoch,
        max_num_offsets=count,
    )
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[one])])


@pytest.mark.smoke
def test_offsets_are_found_alike(pair: Pair) -> None:
    topic, empty = new_topic(pair, "offsets"), new_topic(pair, "offsets")
    for start in (0, 100, 50):
        pair.ask(lambda side: produce(side, topic, batch(10, start=start, compression=1)), 9)
    times = [-1, -2, -3, -4, -5, -6, -7, 0, NOW_MS, NOW_MS + 5, NOW_MS + 60, NOW_MS + 105, NOW_MS + 500]
    for version in pair.versions(ListOffsetsRequest):
        for name in (topic, empty):
            for timestamp in times:
                note = f"{name} at {timestamp if timestamp <= 0 else f'start + {timestamp - NOW_MS}'}"
                pair.ask(lambda _: list_offsets(name, timestamp), version, note)
        pair.ask(lambda _: list_offsets(topic, -1, partition=4), version, "no such partition")
        pair.ask(lambda _: list_offsets("not-there", -1), version, "no such topic")
        pair.ask(lambda _: list_offsets(topic, -1, epoch=0), version, "leader epoch 0")
        pair.ask(lambda _: list_offsets(topic, -1, epoch=9), version, "leader epoch 9")


def test_as_many_offsets_as_are_asked_for_are_found_alike(pair: Pair) -> None:
    """Version 0 asks for the beginnings of segments that were there at a time, the newest first."""
    if 0 not in pair.versions(ListOffsetsRequest):
        return
    topic, empty = new_topic(pair, "counts", segment_bytes=str(1 << 20)), new_topic(pair, "counts")
    large = bytes(build_batch([(n, NOW_MS + n, None, bytes(150_000)) for n in range(3)]))
    for _ in range(9):
        pair.ask(lambda side: produce(side, topic, large), 9)
    found = []
    for name in (topic, empty):
        for count in (0, 1, 2, 3, 4, 5, 6, 100, 1 << 30, -1):
            for timestamp in (-1, -2, -3, -4, 0, 1, NOW_MS, NOW_MS + 1_200_000, (1 << 63) - 1):
                note = f"{count} of {name} at {timestamp}"
                answer, _ = pair.ask(lambda _: list_offsets(name, timestamp, count=count), 0, note)
                if answer != CLOSED:
                    found.append(len(answer.topics[0].partitions[0].old_style_offsets))
    assert max(found) > 3


def test_epochs_end_alike(pair: Pair) -> None:
    topic = new_topic(pair, "epochs")
    pair.ask(lambda side: produce(side, topic, batch()), 9)

    def ask(name: str, partition: int, epoch: int, current: int = -1) -> OffsetForLeaderEpochRequest:
        one = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
        return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=[one])])

    for case in [
        (topic, 0, 0),
        (topic, 0, 5),
        (topic, 0, -1),
        (topic, 7, 0),
        ("not-there", 0, 0),
        (topic, 0, 0, 6),
    ]:
        pair.sweep(OffsetForLeaderEpochRequest, lambda _, __, case=case: ask(*case), str(case[1:]))  # type: ignore[misc]


def test_unasked_for_answers_do_not_come(pair: Pair) -> None:
    topic = new_topic(pair, "silent")
    for version in pair.versions(ProduceRequest):
        for side in pair.sides:
            side.request(produce(side, topic, for_version(batch(), version), acks=0), version)
        pair.ask(
            lambda _: list_offsets(topic, -1), max(pair.versions(ListOffsetsRequest)), f"after v{version}"
        )
    for side in pair.sides:
        side.request(produce(side, topic, batch(), partition=9, acks=0), 9)
    theirs, ours = (side.receive() for side in pair.sides)
    assert (theirs is None, ours is None) == (True, True), CLOSED
