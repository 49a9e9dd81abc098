"""Produce: what is stored, what is refused and how, when it is answered."""

from dataclasses import replace

import pytest

from odradek.coordinator.cluster.view import (
    Broker,
    Endpoint,
)
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import request_frame
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import iter_batches, iter_records
from tests.wired import Wire, from_prefix, wired


def produce(topic, *records, acks=-1, topic_id=None, transactional_id=None):
    """A request with one batch for each partition, from partition 0 on."""
    data = TopicProduceData(
        name=topic or "",
        partition_data=[
            PartitionProduceData(index=index, records=batch) for index, batch in enumerate(records)
        ],
    )
    if topic_id is not None:
        data.topic_id = topic_id
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[data])


def only(response):
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


def values(log):
    stored = log.read(0, max_bytes=1 << 20).records.tobytes()
    return [
        bytes(record.value)
        for position, header in iter_batches(stored)
        for record in iter_records(memoryview(stored)[position : position + header.size_bytes])
    ]


@pytest.mark.parametrize("version", range(3, 13))
def test_a_batch_is_stored_and_its_offset_answered_in_every_version(node, version):
    node.create("t")
    node.fill("t", [b"before"])
    answer = only(node.ask(produce("t", node.batch(b"a", b"b")), version))
    assert (answer.error_code, answer.base_offset) == (0, 1)
    assert answer.log_append_time_ms == -1
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert values(node.partition("t")) == [b"before", b"a", b"b"]


def test_version_13_names_topics_by_id(node):
    topic = node.create("t")
    response = node.ask(produce(None, node.batch(b"a"), topic_id=topic.topic_id), 13)
    assert response.responses[0].topic_id == topic.topic_id
    assert only(response).error_code == ErrorCode.NONE
    assert values(node.partition("t")) == [b"a"]
    unknown = node.ask(produce(None, node.batch(b"a"), topic_id=b"\x09" * 16), 13)
    assert only(unknown).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_answer_waits_for_the_commit_of_the_turn(node):
    node.create("t")
    answer = node.start(produce("t", node.batch(b"a")), 9)
    assert not answer.was_sent
    assert node.partition("t").log_end_offset == 0
    node.loop.turn()
    assert only(answer.response).base_offset == 0
    assert node.partition("t").high_watermark == 1


def test_every_partition_is_judged_for_itself(node):
    node.create("t", 2)
    broken = node.batch(b"x")
    broken[-1] ^= 1
    (topic,) = node.ask(produce("t", node.batch(b"a"), broken, node.batch(b"b")), 9).responses
    assert [one.error_code for one in topic.partition_responses] == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [one.base_offset for one in topic.partition_responses] == [0, -1, -1]


def test_two_partitions_are_answered_together(node):
    node.create("t", 2)
    (topic,) = node.ask(produce("t", node.batch(b"a"), node.batch(b"b", b"c")), 9).responses
    assert [(one.index, one.error_code, one.base_offset) for one in topic.partition_responses] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert node.partition("t", 1).log_end_offset == 2


@pytest.mark.parametrize("acks", [-1, 0])
def test_of_a_partition_that_is_named_twice_the_last_records_are_stored_and_answered_once(node, acks):
    node.create("t", 2)
    node.create("u")
    request = produce("t", node.batch(b"first"), node.batch(b"beside"), acks=acks)
    request.topic_data += produce("u", node.batch(b"other")).topic_data
    request.topic_data[0].partition_data.append(PartitionProduceData(index=0, records=node.batch(b"second")))
    request.topic_data += produce("t", node.batch(b"last")).topic_data
    answer = node.start(request, 12)
    node.loop.turn()
    if acks:
        told = [
            (topic.name, [(one.index, one.base_offset) for one in topic.partition_responses])
            for topic in answer.response.responses
        ]
        assert told == [("t", [(0, 0), (1, 0)]), ("u", [(0, 0)])]
    assert values(node.partition("t")) == [b"last"]
    assert values(node.partition("t", 1)) == [b"beside"]
    assert values(node.partition("u")) == [b"other"]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(node, acks):
    node.create("t")
    answer = only(node.ask(produce("t", node.batch(b"a"), acks=acks), 9))
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert node.partition("t").log_end_offset == 0


def test_acks_0_gets_no_answer(node):
    node.create("t")
    answer = node.start(produce("t", node.batch(b"a"), acks=0), 9)
    assert not answer.result.settled, "what comes after it would not see it"
    node.loop.turn()
    assert answer.result.settled
    assert answer.response is None
    assert node.connection.closed is None
    assert values(node.partition("t")) == [b"a"]


def test_a_refusal_with_acks_0_closes_the_connection(node):
    answer = node.start(produce("unknown", node.batch(b"a"), acks=0), 9)
    assert answer.result is None
    assert "UNKNOWN_TOPIC_OR_PARTITION" in node.connection.closed


def test_a_failed_commit_with_acks_0_closes_the_connection(node, monkeypatch):
    node.create("t")
    monkeypatch.setattr(type(node.partition("t")), "commit", _fail)
    node.start(produce("t", node.batch(b"a"), acks=0), 9)
    node.loop.turn()
    assert "KAFKA_STORAGE_ERROR" in node.connection.closed


def _fail(partition):
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")


def test_a_failed_commit_is_told_to_the_producer(node, monkeypatch):
    node.create("t", 2)
    monkeypatch.setattr(type(node.partition("t")), "commit", _fail)
    (topic,) = node.ask(produce("t", node.batch(b"a"), node.batch(b"b")), 9).responses
    for answer in topic.partition_responses:
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (answer.base_offset, answer.log_start_offset) == (-1, -1)


def test_clients_may_not_write_to_internal_topics_but_the_admin_tools_may(node):
    node.create("__consumer_offsets")
    request = produce("__consumer_offsets", node.batch(b"a"))
    assert only(node.ask(request, 9)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert only(node.ask(request, 9, client_id="__admin_client")).error_code == ErrorCode.NONE


def test_too_few_replicas_in_sync_refuse_acks_all_and_nothing_else(node):
    node.create("t", min_insync_replicas=2)
    # One replica is all that there are: more cannot be asked for (Partition.effectiveMinIsr).
    assert only(node.ask(produce("t", node.batch(b"a")), 9)).error_code == ErrorCode.NONE
    view = node.machine.view
    topic = view.topics["t"]
    two = tuple(partition._replace(replicas=(1, 2), isr=(1,)) for partition in topic.partitions)
    node.machine.publisher.view = replace(view, topics={"t": replace(topic, partitions=two)})
    refused = only(node.ask(produce("t", node.batch(b"a")), 9))
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    assert only(node.ask(produce("t", node.batch(b"a"), acks=1), 9)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("remembers", [False, True])
def test_with_acks_all_the_answer_waits_until_the_replicas_have_it(node, remembers):
    node.create("t")
    for _ in range(2):
        node.fill("t", [b"before"])  # the first batches of a log are never served by a prefix
    view = node.machine.view
    topic = view.topics["t"]
    two = tuple(partition._replace(replicas=(1, 2), isr=(1, 2)) for partition in topic.partitions)
    node.machine.publisher.view = replace(view, topics={"t": replace(topic, partitions=two)})
    log = node.partition("t")
    log.set_replicated(True)
    now_ms = node.loop.now_ms
    connections = wired(
        node.apis, node.loop, lambda: now_ms, lambda: node.machine.view, with_prefixes=remembers
    )
    wires = [Wire(connections) for _ in range(3)]
    for wire, acks in zip(wires, (-1, 1, -1), strict=True):
        wire.send(request_frame(produce("t", node.batch(b"a"), acks=acks), 9, 1, "me"))
    node.loop.turn()
    assert [len(wire.frames) for wire in wires] == [0, 1, 0]
    log.advance_high_watermark(4)
    connections.dispatcher.turn.end()
    assert [len(wire.frames) for wire in wires] == [0, 1, 0]
    log.advance_high_watermark(5)
    connections.dispatcher.turn.end()
    assert [len(wire.frames) for wire in wires] == [1, 1, 1]
    assert from_prefix(connections) == (3 if remembers else 0)


@pytest.mark.parametrize("version", [9, 10, 13])
def test_a_partition_led_elsewhere_names_its_leader_from_version_10_on(node, version):
    topic = node.create("t")
    lead_elsewhere(node, "t")
    request = produce("t", node.batch(b"a"))
    if version == 13:
        request = produce(None, node.batch(b"a"), topic_id=topic.topic_id)
    response = node.ask(request, version)
    answer = only(response)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version < 10:
        assert answer.current_leader is None
        return
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 4)
    (endpoint,) = response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, "other.example", 9093)


def lead_elsewhere(node, name):
    """Publishes a view in which another broker leads."""
    node.machine.register_broker(Broker(2, {"PLAINTEXT": Endpoint("other.example", 9093)}))
    view = node.machine.view
    topic = view.topics[name]
    moved = tuple(partition._replace(leader=2, leader_epoch=4) for partition in topic.partitions)
    topics = {**view.topics, name: replace(topic, partitions=moved)}
    node.machine.publisher.view = replace(view, topics=topics)


def test_a_sequence_gap_says_so_and_a_duplicate_gets_the_first_offset_again(node):
    node.create("t")
    first = node.batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    assert only(node.ask(produce("t", first), 9)).base_offset == 0
    assert only(node.ask(produce("t", first), 9)).base_offset == 0
    gap = node.batch(b"c", producer_id=5, producer_epoch=0, base_sequence=7)
    refused = only(node.ask(produce("t", gap), 9))
    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused.log_start_offset == 0
    assert values(node.partition("t")) == [b"a", b"b"]


def test_log_append_time_is_answered_where_the_topic_has_it(node):
    node.create("t", message_timestamp_type="LogAppendTime")
    answer = only(node.ask(produce("t", node.batch(b"a", timestamp=1)), 9))
    assert answer.log_append_time_ms == node.loop.now_ms


def test_a_durable_topic_is_flushed_before_the_answer(node):
    node.create("t", flush_messages=1)
    assert only(node.ask(produce("t", node.batch(b"a")), 9)).error_code == ErrorCode.NONE
    assert node.loop.flushes == 1


def test_records_that_are_too_large_or_too_far_in_the_future_are_refused(node):
    node.create("t", max_message_bytes=1000)
    large = only(node.ask(produce("t", node.batch(b"x" * 1000)), 9))
    assert (large.error_code, large.log_start_offset) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    future = node.batch(b"a", timestamp=node.loop.now_ms + 3_700_000)
    refused = only(node.ask(produce("t", future), 9))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert refused.log_start_offset == 0
    assert refused.record_errors[0].batch_index == 0
    assert refused.error_message


def test_a_compacted_topic_refuses_records_without_a_key(node):
    node.create("t", cleanup_policy="compact")
    refused = only(node.ask(produce("t", node.batch(b"a")), 9))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert refused.error_message


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda batch: b"", ErrorCode.INVALID_RECORD),
        (lambda batch: None, ErrorCode.INVALID_RECORD),
        (lambda batch: batch[:40], ErrorCode.INVALID_RECORD),
        (lambda batch: batch + batch, ErrorCode.INVALID_RECORD),
        (lambda batch: batch + b"\0" * 17, ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: batch[:8] + b"\0\0\0\1" + batch[12:], ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: batch[:8] + b"\0\0\0\x20" + batch[12:], ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: batch[:16] + b"\3" + batch[17:], ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: batch[:16] + b"\1" + batch[17:], ErrorCode.INVALID_RECORD),
        (lambda batch: batch[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_what_is_not_one_sound_v2_batch_is_refused(node, damage, code):
    node.create("t")
    answer = only(node.ask(produce("t", damage(bytes(node.batch(b"a")))), 9))
    assert answer.error_code == code
    assert node.partition("t").log_end_offset == 0


def test_a_torn_batch_behind_the_first_is_cut_away(node):
    node.create("t")
    batch = bytes(node.batch(b"a"))
    for end in (b"xx", batch[:-1]):
        assert only(node.ask(produce("t", batch + end), 9)).error_code == ErrorCode.NONE
    assert values(node.partition("t")) == [b"a", b"a"]


@pytest.mark.parametrize("version", [3, 6, 7])
def test_zstd_needs_version_7(node, version):
    node.create("t")
    batch = node.batch(b"a" * 100, compression=Compression.ZSTD)
    expected = ErrorCode.NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert only(node.ask(produce("t", batch), version)).error_code == expected


def test_a_transactional_batch_needs_a_transactional_id(node):
    node.create("t")
    batch = node.batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    without_id = only(node.ask(produce("t", batch), 9))
    assert without_id.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_client_that_is_gone_costs_nothing(node):
    node.create("t")
    answer = node.start(produce("t", node.batch(b"a")), 9)
    answer.cancel()
    node.loop.turn()
    assert not answer.was_sent
    assert values(node.partition("t")) == [b"a"]
