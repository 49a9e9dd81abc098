"""Transactional producers, each in a closed loop, or with a RATE that is not 0 as a steady load.

    python -m benchmarks.transaction_load PORT TOPIC RECORDS PARTITIONS PRODUCERS SECONDS RATE

Speaks transaction.version 2, as Kafka's own client does from 4.0 on: a Produce 12 that adds its partitions by
itself, then an EndTxn 5, whose answer has the epoch of the next transaction. Each producer has a connection
of its own and one request under way. Prints a line of JSON: how many transactions ended in how many seconds
behind the warm-up, and with it (`all_transactions`), and the p50 and p99 in milliseconds of a commit (from
EndTxn to its answer) and of a whole transaction. A steady load is RATE transactions a second, evenly spread;
one that begins late since the one before takes so long counts from when it was due.

The load must not be what is measured: requests are sent from templates, and answers that are no errors are
read at fixed places.
"""

from __future__ import annotations

import heapq
import json
import selectors
import socket
import struct
import sys
import time
from typing import Any

from crc32c import crc32c

from benchmarks.wire_client import WireClient
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, build_batch

CLIENT_ID = "benchmark"
PRODUCE, END = 12, 5
VALUE = bytes(100)
WARM_UP_S = 0.5
PATIENCE_S = 60.0
RETRY_S = 0.001
"""After a refusal because the markers of the transaction before are not written yet."""

CHECKSUM, CHECKED_FROM, PRODUCER_ID = 17, 21, 43
"""Positions in a record batch."""
IDENTITY = struct.Struct(">qh")
"""Producer id and epoch, as they stand in batches, requests and answers."""
SENTINEL = (0x0102030405060708, 0x1112)
ENDED = struct.Struct(">5x4xhqhx")
"""The answer to EndTxn 5: correlation id and tags, throttle time, error code, id and epoch, tags."""

NOT_YET = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS}
NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


def begin(client: WireClient, transactional_id: str) -> tuple[int, int]:
    """Producer id and epoch, once there is a coordinator."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = client.call(FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=1), 4)
        if found.coordinators[0].error_code == 0:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            answer = client.call(request, 4)
            if answer.error_code == 0:
                return answer.producer_id, answer.producer_epoch
            assert answer.error_code in NOT_READY, answer
        assert time.monotonic() < deadline, "there is no transaction coordinator"
        time.sleep(0.02)


class Producer:
    """One transactional id on a connection of its own."""

    def __init__(
        self, port: int, transactional_id: str, topic: str, records: int, partitions: int, step_s: float
    ) -> None:
        with WireClient("127.0.0.1", port) as client:
            self._producer_id, self._epoch = begin(client, transactional_id)
        self._id = transactional_id
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._is_ending = self._is_idle = False
        self._step_s = step_s
        self.due = 0.0
        """Of a steady load: when its next transaction is to begin."""
        self._lay_out(topic, max(1, records // partitions), partitions)
        self._end_frame, self._end_identity_at = self._laid_out_end()
        self._began = self._asked = 0.0
        self.ended: list[tuple[float, float, float]] = []
        """Of each transaction: when it was over, the seconds of its commit, and its own."""

    def _lay_out(self, topic: str, records: int, partitions: int) -> None:
        """The Produce request, of which a transaction changes identity and checksum."""
        now_ms = int(time.time() * 1000)
        self._batch = build_batch(
            [Record(n, now_ms, None, VALUE) for n in range(records)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [PartitionProduceData(index=n, records=bytes(self._batch)) for n in range(partitions)]
        request = ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        self._frame = bytearray(request_frame(request, PRODUCE, 1, CLIENT_ID))
        self._positions: list[int] = []
        position = self._frame.find(self._batch)
        while position >= 0:
            self._positions.append(position)
            position = self._frame.find(self._batch, position + len(self._batch))
        assert len(self._positions) == partitions
        # In the answer: correlation id 4, tags 1, topics 1, name 1 + n, partitions 1; of each partition its
        # index 4, error code 2, three offsets, no record errors 1, no message 1, tags 1; then tags 1,
        # throttle time 4, tags 1.
        first = 8 + len(topic.encode()) + 4
        self._codes_at = range(first, first + 33 * partitions, 33)
        self._produced_bytes = first - 4 + 33 * partitions + 6

    def _laid_out_end(self) -> tuple[bytearray, int]:
        """The EndTxn request, and where its identity goes."""
        producer_id, epoch = SENTINEL
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        frame = bytearray(request_frame(request, END, 1, CLIENT_ID))
        return frame, frame.index(IDENTITY.pack(*SENTINEL))

    def begin(self, since: float | None = None) -> None:
        """Sends the records of the next transaction, whose time counts from now, or `since` then."""
        IDENTITY.pack_into(self._batch, PRODUCER_ID, self._producer_id, self._epoch)
        struct.pack_into(">I", self._batch, CHECKSUM, crc32c(memoryview(self._batch)[CHECKED_FROM:]))
        for position in self._positions:
            self._frame[position : position + len(self._batch)] = self._batch
        self._began = since or time.perf_counter()
        self.due += self._step_s
        self._is_idle = False
        self._send_records()

    def go_on(self) -> None:
        """When the time has come that `take` has told."""
        if self._is_idle:
            self.begin()
        else:
            self._send_records()

    def wait(self) -> float:
        """Begins its next transaction when that is due; when that is."""
        self._is_idle = True
        return self.due

    def _send_records(self) -> None:
        self._is_ending = False
        self.socket.sendall(self._frame)

    def _end(self) -> None:
        self._is_ending = True
        IDENTITY.pack_into(self._end_frame, self._end_identity_at, self._producer_id, self._epoch)
        self._asked = time.perf_counter()
        self.socket.sendall(self._end_frame)

    def take(self) -> float | None:
        """Reads what has come and goes on; when `go_on` is to be called, if there is nothing to do before."""
        self._received += self.socket.recv(65_536)
        if len(self._received) < 4:
            return None
        size = 4 + int.from_bytes(self._received[:4], "big")
        if len(self._received) < size:
            return None
        frame = bytes(self._received[4:size])
        del self._received[:size]
        return self._ended(frame) if self._is_ending else self._produced(frame)

    def _produced(self, frame: bytes) -> float | None:
        if len(frame) == self._produced_bytes and not any(
            frame[at] or frame[at + 1] for at in self._codes_at
        ):
            self._end()
            return None
        _, answer = read_response(frame, ProduceRequest, PRODUCE)
        codes = {one.error_code for topic in answer.responses for one in topic.partition_responses}
        assert codes <= {0, *NOT_YET}, answer
        assert codes != {0}, "an answer in order is not laid out as it should be"
        return time.perf_counter() + RETRY_S

    def _ended(self, frame: bytes) -> float | None:
        code, self._producer_id, self._epoch = ENDED.unpack(frame)
        assert code == 0, ErrorCode(code)
        now = time.perf_counter()
        self.ended.append((now, now - self._asked, now - self._began))
        if not self._step_s:
            self.begin()
        elif self.due <= now:
            self.begin(self.due)
        else:
            return self.wait()
        return None


def run(producers: list[Producer], seconds: float, step_s: float) -> float:
    """Lets all work for so long behind the warm-up, or until one transaction is over where that takes longer;
    when the warm-up was over."""
    start = time.perf_counter()
    warm = start + WARM_UP_S
    deadline = warm + seconds
    again: list[tuple[float, int]] = []
    with selectors.DefaultSelector() as selector:
        for number, producer in enumerate(producers):
            selector.register(producer.socket, selectors.EVENT_READ, number)
            if step_s:
                producer.due = start + step_s * number / len(producers)
                heapq.heappush(again, (producer.wait(), number))
            else:
                producer.begin()
        while (now := time.perf_counter()) < deadline or not any(
            one.ended and one.ended[-1][0] > warm for one in producers
        ):
            assert now < deadline + PATIENCE_S, "no transaction ends"
            while again and again[0][0] <= now:
                producers[heapq.heappop(again)[1]].go_on()
            until = min(deadline, again[0][0]) if again else deadline
            for key, _ in selector.select(max(RETRY_S, until - now)):
                when = producers[key.data].take()
                if when is not None:
                    heapq.heappush(again, (when, key.data))
    return warm


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def measure(
    port: int, topic: str, records: int, partitions: int, producers: int, seconds: float, rate: float
) -> dict[str, Any]:
    """`rate`: transactions a second of all together; 0 for as many as they can, one after the other."""
    name = f"load-{time.time_ns()}"
    step_s = producers / rate if rate else 0.0
    working = [Producer(port, f"{name}-{n}", topic, records, partitions, step_s) for n in range(producers)]
    warm = run(working, seconds, step_s)
    # What is under way at the end is not over.
    counted = [one for producer in working for one in producer.ended if one[0] > warm]
    commits, transactions = [one[1] for one in counted], [one[2] for one in counted]
    for producer in working:
        producer.socket.close()
    return {
        "transactions": len(counted),
        "seconds": max(one[0] for one in counted) - warm,
        "all_transactions": sum(len(producer.ended) for producer in working),
        "commit_p50_ms": quantile(commits, 0.5) * 1000,
        "commit_p99_ms": quantile(commits, 0.99) * 1000,
        "transaction_p50_ms": quantile(transactions, 0.5) * 1000,
        "transaction_p99_ms": quantile(transactions, 0.99) * 1000,
    }


def main(arguments: list[str]) -> None:
    port, topic, records, partitions, producers, seconds, rate = arguments
    shape = (int(records), int(partitions), int(producers))
    print(json.dumps(measure(int(port), topic, *shape, float(seconds), float(rate))))


if __name__ == "__main__":
    main(sys.argv[1:])
