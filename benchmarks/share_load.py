"""Members of a share group that read one partition, each in a closed loop, or, with a RATE that is not 0,
beside a producer of so many records a second.

    python -m benchmarks.share_load PORT PID TOPIC LAST CONSUMERS SECONDS RATE MODE VALUE_BYTES

Speaks ShareFetch 2 as Kafka's own client does with `share.acknowledgement.mode=implicit`: each fetch accepts
what the one before has brought. Each member has a connection of its own and one fetch under way. The topic
has one partition; LAST is its last offset, at which a closed loop ends if its time is not over before. MODE
is that of acquiring: `batch_optimized` or `record_limit`. PID is that of the broker, whose processor time is
read. Each run has a group of its own that begins with the first record.

Prints a line of JSON: `records` that were delivered and accepted in so many `seconds` behind the warm-up, the
`cpu_us` of the broker for each of them, `load_busy`, the share of the time for which this process ran, and
with a RATE `p50_ms` and `p99_ms` from the moment when a record was sent until it was delivered.

The load must not be what is measured: requests are sent from templates, and answers that are no errors are
read at fixed places; records are received and not looked at.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.brokers import cpu_seconds
from benchmarks.frames import batch_of
from benchmarks.group_load import NOT_READY
from benchmarks.transaction_load import quantile
from benchmarks.wire_client import PRODUCE_VERSION, WireClient, produce_request
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

CLIENT_ID = "benchmark"
HEARTBEAT, SHARE_FETCH, METADATA = 1, 2, 12
"""Versions."""
MODES = {"batch_optimized": 0, "record_limit": 1}
RECORDS_MAX, BATCH_SIZE, BYTES_MAX, WAIT_MS = 500, 500, 52_428_800, 500
"""What Kafka's client has by default (max.poll.records, fetch.max.bytes, fetch.max.wait.ms)."""
WARM_UP_S = 0.3
PATIENCE_S = 60.0
ACCEPT = 1

ACCEPTED = struct.Struct(">qqBBB")
"""A batch of acknowledgements: its offsets, an array of one type, no tags."""
ACQUIRED = struct.Struct(">qqhx")
SENTINEL_EPOCH, SENTINEL_OFFSETS = 0x01020304, (0x0102030405060708, 0x1112131415161718)

# The answer to ShareFetch 2 behind its length: correlation id 4, tags 1, throttle time 4, error code 2, no
# message 1, time of locks 4, topics 1; then id 16, partitions 1, index 4, error code 2, no message 1, error
# code of acknowledgements 2, no message 1, leader 8, tags 1, records.
CODE_AT, TOPICS_AT, PARTITION_CODES_AT, RECORDS_AT = 9, 16, 38, 53
NO_CODES = b"\x00\x00\x00\x00\x00\x00"
NONE, ONE = 1, 2
"""Lengths of compact arrays."""


def wait_for_coordinator(client: WireClient, group: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = client.call(FindCoordinatorRequest(coordinator_keys=[group], key_type=0), 4)
        if found.coordinators[0].error_code == 0:
            return
        assert time.monotonic() < deadline, "there is no group coordinator"
        time.sleep(0.02)


def join(client: WireClient, group: str, topic: str, members: Sequence[str]) -> None:
    """Returns when all members of the new group are assigned a partition."""
    wait_for_coordinator(client, group)
    epochs = dict.fromkeys(members, 0)
    assigned: set[str] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(assigned) < len(members):
        assert time.monotonic() < deadline, f"{len(assigned)} of {len(members)} members have a partition"
        for member in members:
            if member in assigned:
                continue
            request = ShareGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=epochs[member],
                subscribed_topic_names=None if epochs[member] else [topic],
            )
            answer = client.call(request, HEARTBEAT)
            if answer.error_code in NOT_READY:
                time.sleep(0.02)
                continue
            assert answer.error_code == 0, (ErrorCode(answer.error_code).name, answer.error_message)
            epochs[member] = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                assigned.add(member)
        if len(assigned) < len(members):
            time.sleep(0.01)


def leave(client: WireClient, group: str, members: Sequence[str]) -> None:
    for member in members:
        client.call(ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=-1), HEARTBEAT)


def topic_id_of(client: WireClient, topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return bytes(client.call(request, METADATA).topics[0].topic_id)


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class Consumer:
    """A member that has joined."""

    def __init__(self, port: int, group: str, member: str, topic_id: bytes, mode: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._epoch = 0
        self._is_heard = False
        """Whether its partition has been answered without an error."""
        offsets = AcknowledgementBatch(
            first_offset=SENTINEL_OFFSETS[0], last_offset=SENTINEL_OFFSETS[1], acknowledge_types=[ACCEPT]
        )

        def frame(epoch: int, acknowledged: Sequence[AcknowledgementBatch] | None) -> bytes:
            topics = []
            if acknowledged is not None:
                partition = FetchPartition(partition_index=0, acknowledgement_batches=list(acknowledged))
                topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
            request = ShareFetchRequest(
                group_id=group,
                member_id=member,
                share_session_epoch=epoch,
                max_wait_ms=WAIT_MS,
                min_bytes=1,
                max_bytes=BYTES_MAX,
                max_records=RECORDS_MAX,
                batch_size=BATCH_SIZE,
                share_acquire_mode=MODES[mode],
                is_renew_ack=False,
                topics=topics,
                forgotten_topics_data=[],
            )
            return request_frame(request, SHARE_FETCH, 1, CLIENT_ID)

        self._first = frame(0, ())
        self._empty = bytearray(frame(SENTINEL_EPOCH, None))
        full = frame(SENTINEL_EPOCH, [offsets])
        at = full.index(ACCEPTED.pack(*SENTINEL_OFFSETS, ONE, ACCEPT, 0))
        self._head, self._tail = bytearray(full[: at - 1]), full[at + ACCEPTED.size :]
        self._epoch_at = full.index(struct.pack(">i", SENTINEL_EPOCH))

    def ask(self, accepted: Sequence[tuple[int, int, int]]) -> None:
        """The next fetch."""
        if not self._epoch:
            self._epoch = 1
            self.socket.sendall(self._first)
            return
        if accepted:
            head = self._head
            count = varint(len(accepted) + 1)
            body = b"".join(ACCEPTED.pack(first, last, ONE, ACCEPT, 0) for first, last, _ in accepted)
            size = len(head) + len(count) + len(body) + len(self._tail) - 4
            struct.pack_into(">i", head, 0, size)
            struct.pack_into(">i", head, self._epoch_at, self._epoch)
            self.socket.sendall(b"".join((head, count, body, self._tail)))
        else:
            struct.pack_into(">i", self._empty, self._epoch_at, self._epoch)
            self.socket.sendall(self._empty)
        self._epoch += 1

    def take(self) -> list[tuple[int, int, int]] | None:
        """Reads what has come. First and last offset and number of deliveries of each range that it has
        acquired; None while the answer is not whole."""
        if self._filled == len(self._buffer):
            self._view.release()
            self._buffer += bytes(len(self._buffer))
            self._view = memoryview(self._buffer)
        received = self.socket.recv_into(self._view[self._filled :])
        assert received, "the broker closed a connection"
        self._filled += received
        if self._filled < 4 or self._filled < 4 + int.from_bytes(self._view[:4], "big"):
            return None
        size = int.from_bytes(self._view[:4], "big")
        assert self._filled == 4 + size
        self._filled = 0
        return self._acquired(self._view[4 : 4 + size])

    def _acquired(self, frame: memoryview) -> list[tuple[int, int, int]]:
        if frame[CODE_AT : CODE_AT + 3] == b"\x00\x00\x00":
            if frame[TOPICS_AT] == NONE:
                return []
            if frame[PARTITION_CODES_AT : PARTITION_CODES_AT + len(NO_CODES)] == NO_CODES:
                self._is_heard = True
                size, at = read_varint(frame, RECORDS_AT)
                count, at = read_varint(frame, at + max(size - 1, 0))
                return list(ACQUIRED.iter_unpack(frame[at : at + (count - 1) * ACQUIRED.size]))
        _, answer = read_response(bytes(frame), ShareFetchRequest, SHARE_FETCH)
        # A broker that has not found the state of a share partition yet may say so, and is asked again.
        partition = answer.responses[0].partitions[0] if answer.responses else None
        is_passing = partition is not None and not partition.acknowledge_error_code and not self._is_heard
        assert answer.error_code == 0, answer
        assert is_passing, answer
        return []


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """The value, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


class Producer:
    """Records of its own, one in a request, at a fixed rate. Its partition has to be empty before."""

    def __init__(self, port: int, topic: str, rate: float, value_bytes: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = produce_request([topic], batch_of(1, value_bytes), [0])
        self._frame = request_frame(request, PRODUCE_VERSION, 1, CLIENT_ID)
        self._step_s = 1 / rate
        self.due = 0.0
        self.sent: list[float] = []
        """When, by offset."""

    def send(self, now: float) -> None:
        """What is due by now."""
        while self.due <= now:
            self.due += self._step_s
            self.sent.append(time.perf_counter())
            self.socket.sendall(self._frame)

    def take(self) -> None:
        """Answers are not looked at: a record that was refused is missed when it is not delivered."""
        assert self.socket.recv(65_536), "the broker closed a connection"


class Load:
    """One run; see the module."""

    def __init__(self, broker_pid: int, consumers: Sequence[Consumer], producer: Producer | None) -> None:
        self._pid = broker_pid
        self._consumers = consumers
        self._producer = producer
        self._records = 0
        self._last_offset = -1
        self._delays: list[float] = []

    def run(self, seconds: float, last_offset: int) -> dict[str, Any]:
        start = time.perf_counter()
        with selectors.DefaultSelector() as selector:
            for consumer in self._consumers:
                selector.register(consumer.socket, selectors.EVENT_READ, self._taking(consumer))
                consumer.ask(())
            if self._producer is not None:
                selector.register(self._producer.socket, selectors.EVENT_READ, self._producer.take)
                self._producer.due = start + WARM_UP_S
            while not self._last_offset >= 0:
                assert time.perf_counter() < start + PATIENCE_S, "nothing is delivered"
                self._turn(selector, start + PATIENCE_S)
            self._until(selector, time.perf_counter() + WARM_UP_S, last_offset // 4)
            self._records, self._delays = 0, []
            before = self._state()
            self._until(selector, before[0] + seconds, last_offset)
            while not self._records and (self._last_offset < last_offset or self._producer):
                # A broker that has had no time for so long.
                assert time.perf_counter() < start + PATIENCE_S, "nothing is delivered any more"
                self._turn(selector, start + PATIENCE_S)
            after = self._state()
        assert self._records, "nothing is delivered"
        took_s, cpu_s, own_s = (now - then for now, then in zip(after, before, strict=True))
        result = {
            "records": self._records,
            "seconds": took_s,
            "rate": self._records / took_s,
            "cpu_us": cpu_s / self._records * 1e6,
            "load_busy": own_s / took_s,
        }
        if self._producer is not None:
            result["p50_ms"] = quantile(self._delays, 0.5) * 1000
            result["p99_ms"] = quantile(self._delays, 0.99) * 1000
        return result

    def _state(self) -> tuple[float, float, float]:
        return time.perf_counter(), cpu_seconds(self._pid), time.process_time()

    def _until(self, selector: selectors.BaseSelector, deadline: float, last_offset: int) -> None:
        """Until then, or until that offset is delivered."""
        while time.perf_counter() < deadline and (self._last_offset < last_offset or self._producer):
            self._turn(selector, deadline)

    def _turn(self, selector: selectors.BaseSelector, deadline: float) -> None:
        now = time.perf_counter()
        until = deadline
        if self._producer is not None:
            self._producer.send(now)
            until = min(deadline, self._producer.due)
        for key, _ in selector.select(max(0.0, until - now)):
            key.data()

    def _taking(self, consumer: Consumer) -> Callable[[], None]:
        def take() -> None:
            acquired = consumer.take()
            if acquired is None:
                return
            consumer.ask(acquired)
            if self._producer is not None:
                self._note_delays(acquired, self._producer.sent)
            for first, last, _ in acquired:
                self._records += last - first + 1
                self._last_offset = max(self._last_offset, last)

        return take

    def _note_delays(self, acquired: Sequence[tuple[int, int, int]], sent: Sequence[float]) -> None:
        now = time.perf_counter()
        self._delays += [
            now - sent[offset] for first, last, _ in acquired for offset in range(first, last + 1)
        ]


def measure(
    port: int,
    pid: int,
    topic: str,
    last_offset: int,
    consumers: int,
    seconds: float,
    rate: float,
    mode: str,
    value_bytes: int,
) -> dict[str, Any]:
    group = f"load-{time.time_ns()}"
    members = [str(uuid.uuid4()) for _ in range(consumers)]
    with WireClient("127.0.0.1", port) as client:
        client.configure_group(group, {"share.auto.offset.reset": "earliest"})
        topic_id = topic_id_of(client, topic)
        join(client, group, topic, members)
        working = [Consumer(port, group, member, topic_id, mode) for member in members]
        producer = Producer(port, topic, rate, value_bytes) if rate else None
        result = Load(pid, working, producer).run(seconds, last_offset)
        for consumer in working:
            consumer.socket.close()
        if producer is not None:
            producer.socket.close()
        leave(client, group, members)
    return result


def main(arguments: list[str]) -> None:
    port, pid, topic, last, consumers, seconds, rate, mode, value_bytes = arguments
    numbers = (int(last), int(consumers), float(seconds), float(rate))
    print(json.dumps(measure(int(port), int(pid), topic, *numbers, mode, int(value_bytes))))


if __name__ == "__main__":
    main(sys.argv[1:])
