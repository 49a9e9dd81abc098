"""What a partition refuses from clients, with which code, and that nothing of it stays behind."""

import pytest
from crc32c import crc32c
from memory_disk import MemoryDisk

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.log.appends import Origin
from odradek.storage.log.partition import Partition
from odradek.wire.compression import Compression, compress
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import build_message
from odradek.wire.records import HEADER_SIZE_BYTES, Record, build_batch, iter_batches, iter_records
from odradek.wire.work import finish

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def partition_with(**settings) -> Partition:
    store = LogStore(MemoryDisk(), ["data"])
    store.open(NOW_MS)
    return store.create("t", 0, bytes(16), LogConfig(**settings))


def batch_of(*records: Record, **kwargs) -> bytearray:
    return build_batch(records or [Record(0, NOW_MS, b"k", b"v")], **kwargs)


def refused(partition: Partition, records: bytes, **kwargs) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        partition.appends.append(records, now_ms=NOW_MS, **kwargs)
    assert not partition.log.has_staged
    assert not partition.log.producers.producers
    return raised.value


def changed(batch: bytearray, position: int, *values: int) -> bytearray:
    batch[position : position + len(values)] = bytes(values)
    return batch


def test_damaged_batches_are_corrupt_messages():
    partition = partition_with()
    for damage in (
        batch_of()[:40],
        batch_of()[:-1],
        changed(batch_of(), 60, 2),
        changed(batch_of(), 69, 1),
        changed(batch_of(), 17, 0, 0, 0, 0),
        changed(batch_of(), 8, 0, 0, 0, 1),
        changed(batch_of(), 8, 0x7F, 0xFF, 0xFF, 0xFF),
        changed(batch_of(), 8, 0x80, 0, 0, 0),
        changed(batch_of(), 16, 3),
        b"",
        bytes(1000),
    ):
        assert refused(partition, damage).code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert refused(partition, changed(batch_of(), 69, 1)).code is ErrorCode.CORRUPT_MESSAGE


def test_a_produce_request_brings_one_batch():
    assert refused(partition_with(), batch_of() + batch_of()).code is ErrorCode.INVALID_RECORD


def test_the_beginning_of_a_second_batch_is_cut_off():
    partition = partition_with()
    whole = batch_of()
    assert partition.appends.append(whole + whole[:-1], now_ms=NOW_MS).last_offset == 0
    partition.commit()
    assert len(partition.read(0, max_bytes=1000).records) == len(whole)
    assert refused(partition_with(), whole[:-1]).code is ErrorCode.INVALID_RECORD


def test_old_formats_are_refused_where_the_request_is_a_new_one():
    message = build_message(1, key=b"k", value=b"v", timestamp=NOW_MS)
    assert refused(partition_with(), message).code is ErrorCode.INVALID_RECORD


def test_clients_write_no_control_batches():
    assert refused(partition_with(), batch_of(control=True)).code is ErrorCode.INVALID_RECORD


def test_a_base_offset_is_for_the_broker_to_give():
    assert refused(partition_with(), changed(batch_of(), 7, 1)).code is ErrorCode.INVALID_RECORD


def test_a_single_record_that_does_not_fill_its_batch_is_refused():
    two = batch_of(Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, b"k", b"v"))
    one = build_batch([Record(0, NOW_MS, b"k", b"v")], last_offset_delta=0)
    lying = bytearray(one[:61]) + two[61:]
    lying[8:12] = (len(lying) - 12).to_bytes(4, "big")
    lying[17:21] = crc32c(bytes(lying[21:])).to_bytes(4, "big")
    partition = partition_with()
    with pytest.raises(KafkaError) as raised:
        partition.appends.append(lying, now_ms=NOW_MS)
    assert raised.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("size", [0, 50, 70, 8000, 9000, 900_000])
def test_a_single_record_of_any_size_is_taken_without_a_second_look(size, monkeypatch):
    batch = batch_of(Record(0, NOW_MS, None, b"v" * size))
    partition = partition_with()
    for offset in range(2):  # the beginning of a segment is not ordinary
        assert partition.appends.append(batch, now_ms=NOW_MS).last_offset == offset
    monkeypatch.setattr("odradek.storage.log.appends.prepare", None)
    assert partition.appends.append(batch, now_ms=NOW_MS).last_offset == 2


def test_max_message_bytes_bounds_a_batch_and_segment_bytes_too():
    batch = batch_of()
    assert partition_with(max_message_bytes=len(batch)).appends.append(batch, now_ms=NOW_MS).base_offset == 0
    assert (
        refused(partition_with(max_message_bytes=len(batch) - 1), batch).code is ErrorCode.MESSAGE_TOO_LARGE
    )
    assert partition_with(segment_bytes=len(batch)).appends.append(batch, now_ms=NOW_MS).base_offset == 0
    assert (
        refused(partition_with(segment_bytes=len(batch) - 1), batch).code is ErrorCode.RECORD_LIST_TOO_LARGE
    )


def test_compacted_topics_take_no_record_without_a_key():
    partition = partition_with(cleanup_policy=frozenset({"compact"}))
    batch = batch_of(Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, None, b"v"))
    error = refused(partition, batch)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [place for place, _ in error.record_errors] == [1]


def test_timestamps_far_from_now_are_refused_on_both_sides():
    late = batch_of(Record(0, NOW_MS + HOUR_MS + 1, b"k", b"v"))
    assert refused(partition_with(), late).code is ErrorCode.INVALID_TIMESTAMP
    edge = batch_of(Record(0, NOW_MS + HOUR_MS, b"k", b"v"))
    assert partition_with().appends.append(edge, now_ms=NOW_MS).base_offset == 0
    early = batch_of(Record(0, NOW_MS - 1001, b"k", b"v"), Record(1, NOW_MS, b"k", b"v"))
    partition = partition_with(message_timestamp_before_max_ms=1000)
    assert refused(partition, early).code is ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_stamps_the_batch_and_says_so():
    partition = partition_with(message_timestamp_type="LogAppendTime")
    appended = partition.appends.append(
        batch_of(Record(0, 5, b"k", b"v"), Record(1, 6, b"k", b"v")), now_ms=NOW_MS
    )
    assert appended.log_append_time_ms == NOW_MS
    partition.commit()
    data = memoryview(partition.read(0, max_bytes=1000).records.tobytes())
    assert [record.timestamp for record in iter_records(data)] == [NOW_MS, NOW_MS]
    assert finish(partition.search.finding_timestamp(NOW_MS)) == (NOW_MS, 0, 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_of_old_requests_are_stored_as_batches(magic):
    partition = partition_with()
    timestamp = {"timestamp": NOW_MS} if magic else {}
    messages = b"".join(
        build_message(magic, offset=place, key=b"k%d" % place, value=b"v", **timestamp) for place in range(3)
    )
    appended = partition.appends.append(messages, now_ms=NOW_MS, magic_limit=magic)
    assert (appended.base_offset, appended.last_offset) == (0, 2)
    partition.commit()
    data = memoryview(partition.read(0, max_bytes=1000).records.tobytes())
    assert [record.key for _ in iter_batches(data) for record in iter_records(data)] == [b"k0", b"k1", b"k2"]


def test_a_new_batch_in_an_old_request_comes_alone():
    whole = batch_of()
    for behind, code in (
        (whole, ErrorCode.INVALID_RECORD),
        (build_message(1, key=b"k", value=b"v", timestamp=NOW_MS), ErrorCode.INVALID_RECORD),
        (whole[:-1], ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(KafkaError) as raised:
            partition_with().appends.append(whole + behind, now_ms=NOW_MS, magic_limit=1)
        assert raised.value.code is code


def test_an_empty_message_set_of_an_old_request_is_nothing():
    partition = partition_with()
    assert partition.appends.append(b"", now_ms=NOW_MS, magic_limit=1).base_offset == -1
    assert not partition.log.has_staged


def test_a_coordinator_may_append_many_batches_at_once():
    partition = partition_with()
    appended = partition.appends.append(batch_of() + batch_of(), now_ms=NOW_MS, origin=Origin.COORDINATOR)
    assert (appended.base_offset, appended.last_offset) == (0, 1)


def test_a_leaders_batches_keep_their_offsets_and_epochs():
    partition = partition_with(cleanup_policy=frozenset({"compact"}))
    batches = batch_of(Record(7, NOW_MS, b"k", b"v"), leader_epoch=3) + batch_of(
        Record(9, NOW_MS, b"k", b"v"), leader_epoch=5, compression=Compression.GZIP
    )
    partition.appends.append(batches, now_ms=NOW_MS, origin=Origin.REPLICATION)
    partition.commit()
    data = partition.read(0, max_bytes=1000).records.tobytes()
    assert data == batches
    assert partition.log_end_offset == 10
    assert partition.log.leader_epochs.end_offset_for(4, partition.log_end_offset) == (3, 9)
    with pytest.raises(KafkaError):
        partition.appends.append(batches, now_ms=NOW_MS, origin=Origin.REPLICATION)


@pytest.mark.parametrize("codec", list(Compression))
def test_records_that_no_consumer_could_read_are_refused_in_every_codec(codec):
    three = [Record(index, NOW_MS, b"k%d" % index, b"v" * 50) for index in range(3)]
    sound = build_batch(three)
    # One byte each of the records section: the first record's size, offset, key size and value size, and the
    # number of headers of the last.
    for position in (0, 3, 4, 7, len(sound) - HEADER_SIZE_BYTES - 1):
        lying = bytearray(sound[HEADER_SIZE_BYTES:])
        lying[position] += 2
        assert refused(partition_with(), sealed(lying, codec)).code is ErrorCode.INVALID_RECORD
    assert refused(partition_with(), sealed(sound[HEADER_SIZE_BYTES:], codec, count=2)).code in (
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
    )


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_a_compressed_section_that_cannot_be_decompressed_is_refused(codec):
    batch = sealed(b"", codec)
    batch[HEADER_SIZE_BYTES:] = b"this is not compressed by anything"
    error = refused(partition_with(), resealed(batch))
    assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def sealed(section: bytes, codec: int, count: int = 3) -> bytearray:
    """A batch that claims `count` records around any records section, with a sound header and checksum."""
    header = build_batch([Record(index, NOW_MS, b"", b"") for index in range(count)])[:HEADER_SIZE_BYTES]
    header[22] |= codec
    return resealed(header + (compress(codec, bytes(section)) if codec else section))


def resealed(batch: bytearray) -> bytearray:
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch
