"""Old consumers that read slowly from a whole broker: what is converted for them is never there at once."""

import os
import pathlib
import time

import pytest

import odradek
from odradek.wire.down_conversion import down_convert
from odradek.wire.messages import delete_topics, fetch, metadata, produce
from odradek.wire.records import Record, build_batch, patch_batch
from tests.raw_client import RawClient, frame_size, read_exactly

MEGABYTE = 1024 * 1024
LOG_BYTES = 24 * MEGABYTE
CLIENTS = 4
PATIENCE_S = 20
OPTIONS = {
    "log.segment.delete.delay.ms": 0,
    "log.initial.task.delay.ms": 0,
    "auto.create.topics.enable": "true",
}


@pytest.fixture
def broker():
    with odradek.Broker(process=True, options=OPTIONS) as running:
        yield running


def connect(broker):
    return RawClient(broker.port, timeout_s=PATIENCE_S, receive_buffer_bytes=65_536)


def filled(client):
    """A topic with a log of many batches; its content."""
    client.ask(metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")]), 1)
    one = build_batch([Record(n, 1_700_000_000_000, b"key", os.urandom(6000)) for n in range(10)])
    stored = bytearray()
    while len(stored) < LOG_BYTES:
        data = [produce.PartitionProduceData(index=0, records=bytes(one))]
        topics = [produce.TopicProduceData(name="t", partition_data=data)]
        answer = client.ask(produce.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9)
        (partition,) = answer.responses[0].partition_responses
        assert partition.error_code == 0
        patched = bytearray(one)
        patch_batch(patched, 0, partition.base_offset, 0)
        stored += patched
    return bytes(stored)


def fetch_everything():
    asked = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2 * LOG_BYTES)
    topics = [fetch.FetchTopic(topic="t", partitions=[asked])]
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)


def held_bytes(broker):
    """Memory of the broker's own: mapped segments do not count."""
    status = pathlib.Path(f"/proc/{broker.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:"))


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks /proc for a process's memory")
def test_old_fetches_that_are_read_slowly_hold_a_few_megabytes_each(broker):
    clients = [connect(broker) for _ in range(CLIENTS)]
    stored = filled(clients[0])
    expected = down_convert(stored, 1, 0)
    before = highest = held_bytes(broker)
    answers = [bytearray() for _ in clients]
    for client in clients:
        client.send_request(fetch_everything(), 2)
    left = [frame_size(read_exactly(client.socket, 4)) for client in clients]
    while any(left):
        for number, client in enumerate(clients):
            answers[number] += read_exactly(client.socket, min(MEGABYTE, left[number]))
            left[number] = max(left[number] - MEGABYTE, 0)
        highest = max(highest, held_bytes(broker))
    assert highest - before < CLIENTS * 4 * MEGABYTE
    for answer in answers:
        assert answer.endswith(expected)


def test_a_topic_that_is_deleted_while_it_is_converted_comes_whole(broker):
    client, other = connect(broker), connect(broker)
    stored = filled(other)
    client.send_request(fetch_everything(), 2)
    size_bytes = frame_size(read_exactly(client.socket, 4))
    answer = read_exactly(client.socket, MEGABYTE)
    log = broker.data_dir / "t-0"
    deleted = other.ask(delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 3)
    assert deleted.responses[0].error_code == 0
    deadline = time.monotonic() + PATIENCE_S
    while log.exists() or list(broker.data_dir.glob("t*-delete")):
        assert time.monotonic() < deadline, "it is not deleted"
        other.ask(metadata.MetadataRequest(topics=[]), 1)
    answer += read_exactly(client.socket, size_bytes - MEGABYTE)
    assert answer.endswith(down_convert(stored, 1, 0))
