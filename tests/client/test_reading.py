"""Reading many partitions at once: all of each in order, whatever happens in the middle."""

import struct

import pytest

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.fetching import OffsetsGone
from odradek.client.reading import PartitionRecords, Reader
from odradek.client.settings import ClientSettings
from odradek.client.stored_records import batches_of
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode
from odradek.wire.legacy_records import build_message, to_legacy
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.records import Record, build_batch
from tests.client.proxy import CUT
from tests.client.topics import create_topic, delete_records, produce


def filled(cluster, partitions=3, batches=4):
    topic = create_topic(cluster, partitions)
    for number in range(batches):
        for partition in range(partitions):
            produce(cluster, topic, partition, [b"%d-%d" % (number, index) for index in range(3)])
    return topic, [b"%d-%d" % (number, index) for number in range(batches) for index in range(3)]


def read(reader):
    found = {}
    for fetched in reader:
        for batch in batches_of(fetched):
            found.setdefault(fetched.partition, []).extend(record.value for record in batch.records)
    return found


def bounds(topic, partitions=3, start=0, end=12):
    return {(topic, number): (start, end) for number in range(partitions)}


def test_every_partition_comes_whole_and_in_order(cluster):
    topic, values = filled(cluster)
    assert read(Reader(cluster, bounds(topic), read_committed=True)) == dict.fromkeys(range(3), values)


def test_only_what_is_wanted_is_read(cluster):
    topic, values = filled(cluster)
    wanted = {(topic, 0): (4, 8), (topic, 1): (0, 0), (topic, 2): (11, 12)}
    assert read(Reader(cluster, wanted, read_committed=True)) == {0: values[4:8], 2: values[11:]}
    assert read(Reader(cluster, {}, read_committed=True)) == {}


def test_one_request_asks_for_all_partitions_of_a_broker(through_proxy, cluster, proxy):
    topic, values = filled(cluster)
    proxy.asked.clear()
    assert read(Reader(through_proxy, bounds(topic), read_committed=True)) == dict.fromkeys(range(3), values)
    assert proxy.asked[FetchRequest] == 1


def test_what_a_response_has_no_room_for_comes_next_and_partitions_take_turns(cluster, monkeypatch):
    topic, values = filled(cluster)
    monkeypatch.setattr("odradek.client.reading.FETCH_BYTES", 120)
    order = [(one.partition, one.next_offset) for one in Reader(cluster, bounds(topic), read_committed=True)]
    assert len(order) == 12, "a batch each"
    assert [partition for partition, _ in order] == [0, 1, 2] * 4
    assert read(Reader(cluster, bounds(topic), read_committed=True)) == dict.fromkeys(range(3), values)


def test_a_lost_connection_loses_and_repeats_nothing(through_proxy, cluster, proxy, monkeypatch):
    topic, values = filled(cluster)
    monkeypatch.setattr("odradek.client.reading.FETCH_BYTES", 120)
    found = {}
    for number, fetched in enumerate(Reader(through_proxy, bounds(topic), read_committed=True)):
        for batch in batches_of(fetched):
            found.setdefault(fetched.partition, []).extend(record.value for record in batch.records)
        if number % 4 == 1:
            proxy.change_once(FetchRequest, lambda answer: CUT)
    assert found == dict.fromkeys(range(3), values)


@pytest.mark.parametrize("whole", [True, False])
def test_a_retriable_refusal_is_asked_again(through_proxy, cluster, proxy, whole):
    topic, values = filled(cluster)

    def refused(answer):
        if whole:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        for of in answer.responses:
            of.partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            of.partitions[0].records = b""
        return answer

    proxy.change_once(FetchRequest, refused)
    assert read(Reader(through_proxy, bounds(topic), read_committed=True)) == dict.fromkeys(range(3), values)
    assert proxy.asked[FetchRequest] > 1


def test_another_refusal_is_the_end(through_proxy, cluster, proxy):
    topic, _ = filled(cluster)

    def refused(answer):
        for of in answer.responses:
            of.partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return answer

    proxy.change_once(FetchRequest, refused)
    with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
        read(Reader(through_proxy, bounds(topic), read_committed=True))


def test_records_that_were_deleted_are_skipped_and_told_of(cluster):
    topic, values = filled(cluster)
    delete_records(cluster, topic, 1, 5)
    told = []
    reader = Reader(cluster, bounds(topic), read_committed=True, skipped=lambda *what: told.append(what))
    assert read(reader) == {0: values, 1: values[5:], 2: values}
    assert told == [(topic, 1, 0, 5)]
    with pytest.raises(OffsetsGone):
        read(Reader(cluster, bounds(topic), read_committed=True))


def test_a_place_after_the_end_is_no_gap(cluster):
    topic, _ = filled(cluster)
    with pytest.raises(OffsetsGone):
        read(Reader(cluster, bounds(topic, start=99, end=100), read_committed=True, skipped=print))


def test_records_that_never_come_are_told_of(broker, cluster):
    topic, _ = filled(cluster)
    settings = ClientSettings(broker.bootstrap_servers, patience_ms=10, request_timeout_ms=100)
    with (
        Cluster(settings) as hasty,
        pytest.raises(ClientError, match=r"partition \d gave nothing from offset 12 on"),
    ):
        read(Reader(hasty, bounds(topic, end=13), read_committed=True))


def test_without_an_end_reading_goes_on(through_proxy, cluster):
    topic, values = filled(cluster)
    found = []
    for fetched in Reader(through_proxy, {(topic, 0): (0, None)}, read_committed=True):
        found += [record.value for batch in batches_of(fetched) for record in batch.records]
        if len(found) == 12:
            produce(cluster, topic, 0, [b"new"])
        if found[-1] == b"new":
            break
    assert found == [*values, b"new"]


# Buffers ----------------------------------------------------------------------------------------------


def fetched(buffer, start=0, end=None, aborted=()):
    return PartitionRecords("t", 0, start, end, memoryview(bytes(buffer)), aborted, 10)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.LZ4])
def test_old_formats_are_read(magic, codec):
    records = [Record(4 + number, 1000 + number, b"k", b"%d" % number) for number in range(3)]
    buffer = to_legacy(build_batch(records, compression=codec), magic, 0)
    found = list(batches_of(fetched(buffer, 5, 7)))
    shown = [record for batch in found for record in batch.records]
    assert [(one.offset, one.key, one.value) for one in shown] == [(5, b"k", b"1"), (6, b"k", b"2")]
    assert {batch.timestamp_type for batch in found} == {"create" if magic else "none"}
    assert [one.timestamp for one in shown] == ([1001, 1002] if magic else [-1, -1])


def test_log_append_time_rules_over_the_timestamps_of_records():
    records = [Record(0, 5, None, b"v"), Record(1, 6, None, b"v")]
    (batch,) = batches_of(fetched(build_batch(records, log_append_time_ms=77)))
    assert (batch.timestamp_type, [one.timestamp for one in batch.records]) == ("append", [77, 77])


def test_old_messages_and_batches_may_follow_each_other():
    old = build_message(1, offset=0, key=None, value=b"old", timestamp=1)
    buffer = bytes(old) + bytes(build_batch([(1, 1, None, b"new", ())]))
    found = [record.value for batch in batches_of(fetched(buffer)) for record in batch.records]
    assert found == [b"old", b"new"]


def test_a_damaged_batch_is_named_after_the_sound_ones():
    good, bad = build_batch([(0, 1, None, b"good", ())]), build_batch([(1, 1, None, b"bad", ())])
    bad[-2] ^= 1
    batches = batches_of(fetched(good + bad))
    assert next(batches).records[0].value == b"good"
    with pytest.raises(ClientError, match="topic t, partition 0, the batch at offset 1 cannot be read"):
        next(batches)


def test_a_batch_that_claims_too_much_is_refused():
    batch = build_batch([(0, 1, None, b"v" * 50, ())])
    struct.pack_into(">i", batch, 57, 1 << 30)
    with pytest.raises(ClientError, match="cannot be read"):
        list(batches_of(fetched(batch)))
