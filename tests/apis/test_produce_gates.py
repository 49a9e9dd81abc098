"""Appends that take long: done elsewhere, while what came after them for their partition waits in order."""

from collections import deque
from functools import partial

import pytest

from odradek.apis import produce_gates
from odradek.apis.api import Waiting
from odradek.wire.compression import Compression, compress
from odradek.wire.errors import ErrorCode
from odradek.wire.legacy_records import build_message
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import (
    HEADER_SIZE_BYTES,
    iter_batches,
    iter_records,
    read_batch_header,
    set_max_timestamp,
)


class HeldConversions:
    """A `WorkQueue` with a worker that does nothing before it is told to."""

    def __init__(self):
        self._held = deque()

    def __len__(self):
        return len(self._held)

    def run(self, work, done, failed):
        self._go_on(work, done, failed, partial(next, work))

    def release(self):
        """The worker does what was asked for first; what that leads to in the event loop happens, too."""
        work, done, failed, function = self._held.popleft()
        try:
            result = function()
        except Exception as error:
            self._go_on(work, done, failed, partial(work.throw, error))
        else:
            self._go_on(work, done, failed, partial(work.send, result))

    def _go_on(self, work, done, failed, step):
        try:
            function = step()
            while function is None:
                function = next(work)
        except StopIteration as end:
            done(end.value)
        except Exception as error:
            failed(error)
        else:
            self._held.append((work, done, failed, function))

    def close(self):
        """The broker stops."""
        while self._held:
            self._held.popleft()[0].close()


@pytest.fixture
def held():
    return HeldConversions()


@pytest.fixture
def node(make_node, held):
    return make_node(conversions=held)


def produce(*batches, topic="t", acks=-1):
    """A request with these records for the partitions from 0 on; None: nothing for that one."""
    data = [PartitionProduceData(index=i, records=one) for i, one in enumerate(batches) if one is not None]
    return ProduceRequest(
        acks=acks, timeout_ms=1, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def long_batch(node, name, **producer):
    """It unpacks to more than is done at once."""
    return node.batch(name, bytes(200_000), compression=Compression.GZIP, **producer)


def outcomes(answer):
    assert answer.was_sent, "the answer has not come"
    (topic,) = answer.response.responses
    return [(one.error_code, one.base_offset) for one in topic.partition_responses]


def names(node, topic="t", index=0):
    """The values in the log, the long ones left out."""
    stored = node.partition(topic, index).read(0, max_bytes=1 << 24).records.tobytes()
    return [
        record.value
        for position, header in iter_batches(stored)
        for record in iter_records(memoryview(stored)[position : position + header.size_bytes])
        if len(record.value) < 1000
    ]


@pytest.mark.parametrize(
    ("settings", "codec", "stored"),
    [
        ({}, Compression.GZIP, Compression.GZIP),
        ({}, Compression.ZSTD, Compression.ZSTD),
        ({"compression_type": "zstd"}, Compression.NONE, Compression.ZSTD),
        ({"compression_type": "lz4"}, Compression.SNAPPY, Compression.LZ4),
        ({"compression_type": "uncompressed"}, Compression.LZ4, Compression.NONE),
        ({"message_timestamp_type": "LogAppendTime"}, Compression.GZIP, Compression.GZIP),
    ],
)
def test_a_batch_that_takes_long_is_stored_and_answered_when_it_is_prepared(
    node, held, settings, codec, stored
):
    node.create("t", **settings)
    answer = node.start(produce(node.batch(b"a", bytes(200_000), compression=codec)), 9)
    arrived_ms = node.loop.now_ms
    node.loop.advance(1000)
    assert not answer.was_sent
    assert node.partition("t").log_end_offset == 0
    held.release()
    assert not answer.was_sent, "it was answered before the commit"
    node.loop.turn()
    assert outcomes(answer) == [(0, 0)]
    (partition,) = answer.response.responses[0].partition_responses
    stamps = "message_timestamp_type" in settings
    assert partition.log_append_time_ms == (arrived_ms if stamps else -1)
    assert partition.log_start_offset == 0
    assert read_batch_header(node.partition("t").read(0, max_bytes=1).records.tobytes()).compression == stored
    assert names(node) == [b"a"]
    assert len(held) == 0


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_message_sets_of_old_clients_are_converted_elsewhere(node, held, magic, codec):
    node.create("t")
    messages = b"".join(build_message(magic, offset=i, key=None, value=b"%d" % i) for i in range(1000))
    if codec:
        wrapped = compress(codec, messages, magic=magic)
        messages = build_message(magic, offset=999, key=None, value=wrapped, attributes=codec)
    answer = node.start(produce(messages), 1 + magic)
    behind = node.start(produce(node.batch(b"behind")), 9)
    held.release()
    node.loop.turn()
    assert outcomes(answer) == [(0, 0)]
    assert outcomes(behind) == [(0, 1000)]
    assert names(node) == [b"%d" % i for i in range(1000)] + [b"behind"]


def test_an_old_clients_few_messages_are_converted_at_once(node):
    node.create("t")
    answer = node.start(produce(build_message(0, key=None, value=b"a")), 1)
    node.loop.turn()
    assert outcomes(answer) == [(0, 0)]


def test_what_comes_later_for_the_partition_waits_and_is_appended_in_order(node, held):
    node.create("t", 2)
    answers = [
        node.start(produce(batch), 9)
        for batch in (
            node.batch(b"before"),
            long_batch(node, b"first"),
            node.batch(b"second"),
            node.batch(b"third"),
            long_batch(node, b"fourth"),
            node.batch(b"fifth"),
        )
    ]
    other = node.start(produce(None, node.batch(b"elsewhere")), 9)
    node.loop.turn()
    assert outcomes(other) == [(0, 0)]
    assert [answer.was_sent for answer in answers] == [True] + 5 * [False]
    held.release()
    node.loop.turn()
    assert [answer.was_sent for answer in answers] == 4 * [True] + 2 * [False]
    answers.append(node.start(produce(node.batch(b"sixth")), 9))
    held.release()
    node.loop.turn()
    assert [outcomes(answer)[0] for answer in answers] == [(0, offset) for offset in (0, 1, 3, 4, 5, 7, 8)]
    assert names(node) == [b"before", b"first", b"second", b"third", b"fourth", b"fifth", b"sixth"]
    assert names(node, index=1) == [b"elsewhere"]
    # Without a gate it is as before.
    unhindered = node.start(produce(node.batch(b"seventh")), 9)
    node.loop.turn()
    assert outcomes(unhindered) == [(0, 9)]


def test_partitions_have_their_long_batches_prepared_by_turns(node, held):
    node.create("t", 2)
    busy = [node.start(produce(long_batch(node, b"%d" % i)), 9) for i in range(3)]
    modest = node.start(produce(None, long_batch(node, b"modest")), 9)
    held.release()
    held.release()
    node.loop.turn()
    assert outcomes(modest) == [(0, 0)]
    assert [answer.was_sent for answer in busy] == [True, False, False]
    held.release()
    held.release()
    node.loop.turn()
    assert names(node) == [b"0", b"1", b"2"]


def test_a_request_is_answered_when_the_last_of_its_partitions_is(node, held):
    node.create("t", 3)
    answer = node.start(
        produce(node.batch(b"a"), long_batch(node, b"b"), node.batch(b"c", producer_id=5, producer_epoch=0)),
        9,
    )
    node.loop.turn()
    assert not answer.was_sent
    assert (names(node, index=0), names(node, index=1)) == ([b"a"], [])
    held.release()
    node.loop.turn()
    assert outcomes(answer) == [(0, 0), (0, 0), (ErrorCode.INVALID_RECORD, -1)]
    assert names(node, index=1) == [b"b"]


def test_sequence_numbers_are_judged_when_their_turn_comes(node, held):
    node.create("t")
    first = long_batch(node, b"0", producer_id=5, producer_epoch=0, base_sequence=0)
    second = node.batch(b"1", producer_id=5, producer_epoch=0, base_sequence=2)
    gap = node.batch(b"gap", producer_id=5, producer_epoch=0, base_sequence=9)
    again = long_batch(node, b"0", producer_id=5, producer_epoch=0, base_sequence=0)
    answers = [node.start(produce(batch), 9) for batch in (first, second, second, gap, again)]
    while held:
        held.release()
    node.loop.turn()
    assert [outcomes(answer)[0] for answer in answers] == [
        (0, 0),
        (0, 2),
        (0, 2),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (0, 0),
    ]
    assert answers[3].response.responses[0].partition_responses[0].log_start_offset == 0
    assert names(node) == [b"0", b"1"]


def corrupt(batch):
    """Its checksum is right, and what it packs cannot be unpacked."""
    batch[HEADER_SIZE_BYTES + 30] ^= 0xFF
    header = read_batch_header(batch)
    set_max_timestamp(batch, 0, header, header.max_timestamp)
    return batch


def test_a_batch_that_turns_out_to_be_corrupt_is_refused_alone(node, held):
    node.create("t")
    batches = (
        long_batch(node, b"before"),
        corrupt(node.batch(b"x", bytes(range(256)) * 800, compression=Compression.GZIP)),
        node.batch(b"behind"),
        corrupt(node.batch(b"x", bytes(range(256)) * 300, compression=Compression.GZIP)),
        node.batch(b"last"),
    )
    answers = [node.start(produce(batch), 9) for batch in batches]
    while held:
        held.release()
    node.loop.turn()
    assert [outcomes(answer)[0] for answer in answers] == [
        (0, 0),
        (ErrorCode.CORRUPT_MESSAGE, -1),
        (0, 2),
        (ErrorCode.CORRUPT_MESSAGE, -1),
        (0, 3),
    ]
    assert names(node) == [b"before", b"behind", b"last"]


def test_a_refusal_that_comes_late_says_as_much_as_any_other(node, held):
    node.create("t", cleanup_policy="compact", compression_type="gzip")
    answer = node.start(produce(node.batch(b"a", bytes(200_000))), 9)
    held.release()
    node.loop.turn()
    (partition,) = answer.response.responses[0].partition_responses
    assert (partition.error_code, partition.log_start_offset) == (ErrorCode.INVALID_RECORD, 0)
    assert [error.batch_index for error in partition.record_errors] == [0, 1]
    assert partition.error_message


def test_a_topic_that_is_deleted_meanwhile_is_unknown_to_what_waits(node, held):
    node.create("t")
    answers = [node.start(produce(batch), 9) for batch in (long_batch(node, b"a"), node.batch(b"b"))]
    node.machine.delete_topics(["t"])
    held.release()
    node.loop.turn()
    for answer in answers:
        assert outcomes(answer) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_a_refusal_of_a_topic_that_is_gone_says_that(node, held):
    node.create("t", cleanup_policy="compact")
    answer = node.start(produce(long_batch(node, b"without a key")), 9)
    node.machine.delete_topics(["t"])
    held.release()
    node.loop.turn()
    assert outcomes(answer) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_a_topic_that_is_made_anew_meanwhile_gets_nothing_of_what_was_for_the_old_one(node, held):
    node.create("t")
    old = [node.start(produce(batch), 9) for batch in (long_batch(node, b"a"), node.batch(b"b"))]
    node.machine.delete_topics(["t"])
    node.create("t")
    new = node.start(produce(node.batch(b"new")), 9)
    held.release()
    node.loop.turn()
    for answer in old:
        assert outcomes(answer) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    assert outcomes(new) == [(0, 0)]
    assert names(node) == [b"new"]


def test_a_partition_that_goes_offline_refuses_what_waits(node, held):
    node.create("t")
    answers = [node.start(produce(batch), 9) for batch in (long_batch(node, b"a"), node.batch(b"b"))]
    node.partition("t").availability.take_offline("its disk has failed")
    held.release()
    node.loop.turn()
    for answer in answers:
        assert outcomes(answer) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]


def test_settings_that_change_meanwhile_are_for_what_comes_after(node, held):
    node.create("t", message_timestamp_type="LogAppendTime")
    arrived_ms = node.loop.now_ms
    waiting = node.start(produce(long_batch(node, b"a")), 9)
    node.set_configs("t", {"message.timestamp.type": "CreateTime"})
    held.release()
    node.loop.turn()
    (partition,) = waiting.response.responses[0].partition_responses
    assert partition.log_append_time_ms == arrived_ms
    header = read_batch_header(node.partition("t").read(0, max_bytes=1).records.tobytes())
    assert (header.uses_log_append_time, header.max_timestamp) == (True, arrived_ms)


def test_what_a_client_that_is_gone_has_sent_is_appended_all_the_same(node, held):
    node.create("t")
    gone = [node.start(produce(batch), 9) for batch in (long_batch(node, b"a"), node.batch(b"b"))]
    behind = node.start(produce(node.batch(b"c")), 9)
    for answer in gone:
        answer.cancel()
    held.release()
    node.loop.turn()
    assert not any(answer.was_sent for answer in gone)
    assert outcomes(behind) == [(0, 3)]
    assert names(node) == [b"a", b"b", b"c"]


def test_what_clients_that_are_gone_make_us_hold_is_bounded(node, held, monkeypatch):
    monkeypatch.setattr(produce_gates, "ABANDONED_BYTES_MAX", 10_000)
    node.create("t", 2)
    for number in range(10):
        for index in (0, 1):
            batch = node.batch(b"%d" % number, bytes(3000))
            request = produce(None, batch) if index else produce(batch)
            if number == 0:
                request = produce(None, long_batch(node, b"0")) if index else produce(long_batch(node, b"0"))
            answer = node.start(request, 9)
            answer.cancel()
    behind = node.start(produce(node.batch(b"behind")), 9)
    while held:
        held.release()
    node.loop.turn()
    assert names(node) == [b"0", b"1", b"behind"]
    assert names(node, index=1) == [b"0"]
    assert outcomes(behind)[0][0] == 0
    # What was dropped or appended is not held any more: there is room for others.
    later = [node.start(produce(batch), 9) for batch in (long_batch(node, b"x"), node.batch(b"y"))]
    for answer in later:
        answer.cancel()
    held.release()
    node.loop.turn()
    assert names(node)[-2:] == [b"x", b"y"]


def test_a_client_that_expects_no_answer_has_its_bytes_counted_until_they_are_stored(node, held):
    node.create("t")
    answer = node.start(produce(long_batch(node, b"a"), acks=0), 9).result
    assert isinstance(answer, Waiting)
    sent = []
    answer.on_complete(sent.append)
    held.release()
    assert sent == []
    node.loop.turn()
    assert sent == [None]
    assert node.connection.closed is None
    assert names(node) == [b"a"]


def test_a_late_refusal_closes_the_connection_of_a_client_that_expects_no_answer(node, held):
    node.create("t", cleanup_policy="compact")
    node.start(produce(long_batch(node, b"without a key"), acks=0), 9)
    held.release()
    node.loop.turn()
    assert "INVALID_RECORD" in node.connection.closed


def test_a_bug_in_a_conversion_is_told_as_such_and_holds_up_nobody(node, held, monkeypatch):
    node.create("t")

    def fail(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr("odradek.storage.log.appends.prepare", fail)
    broken = node.start(produce(long_batch(node, b"a")), 9)
    behind = node.start(produce(node.batch(b"b")), 9)
    held.release()
    node.loop.turn()
    assert outcomes(broken) == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1)]
    assert outcomes(behind) == [(0, 0)]


def test_a_broker_that_stops_drops_what_waits_without_a_word(node, held):
    node.create("t")
    answers = [node.start(produce(batch), 9) for batch in (long_batch(node, b"a"), node.batch(b"b"))]
    held.close()
    node.loop.turn()
    assert not any(answer.was_sent for answer in answers)
    assert names(node) == []
