"""Old consumers that read slowly from a whole broker: what is converted for them is never there at once."""

import os
import pathlib
import socket
import struct
import time

import pytest

import odradek
from odradek.wire.down_conversion import down_convert
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages import delete_topics, fetch, metadata, produce
from odradek.wire.records import Record, build_batch, patch_batch

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


class Client:
    def __init__(self, broker):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", broker.port))

    def send(self, request, version):
        self.socket.sendall(request_frame(request, version, 7, "tests"))

    def ask(self, request, version):
        self.send(request, version)
        return read_response(self.read(struct.unpack(">i", self.read(4))[0]), type(request), version)[1]

    def read(self, size_bytes):
        content = bytearray()
        while len(content) < size_bytes:
            more = self.socket.recv(size_bytes - len(content))
            assert more, "the connection was closed"
            content += more
        return bytes(content)


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
    clients = [Client(broker) for _ in range(CLIENTS)]
    stored = filled(clients[0])
    expected = down_convert(stored, 1, 0)
    before = highest = held_bytes(broker)
    answers = [bytearray() for _ in clients]
    for client in clients:
        client.send(fetch_everything(), 2)
    left = [struct.unpack(">i", client.read(4))[0] for client in clients]
    while any(left):
        for number, client in enumerate(clients):
            answers[number] += client.read(min(MEGABYTE, left[number]))
            left[number] = max(left[number] - MEGABYTE, 0)
        highest = max(highest, held_bytes(broker))
    assert highest - before < CLIENTS * 4 * MEGABYTE
    for answer in answers:
        assert answer.endswith(expected)


def test_a_topic_that_is_deleted_while_it_is_converted_comes_whole(broker):
    client, other = Client(broker), Client(broker)
    stored = filled(other)
    client.send(fetch_everything(), 2)
    (size_bytes,) = struct.unpack(">i", client.read(4))
    answer = client.read(MEGABYTE)
    log = broker.data_dir / "t-0"
    deleted = other.ask(delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 3)
    assert deleted.responses[0].error_code == 0
    deadline = time.monotonic() + PATIENCE_S
    while log.exists() or list(broker.data_dir.glob("t*-delete")):
        assert time.monotonic() < deadline, "it is not deleted"
        other.ask(metadata.MetadataRequest(topics=[]), 1)
    answer += client.read(size_bytes - MEGABYTE)
    assert answer.endswith(down_convert(stored, 1, 0))
