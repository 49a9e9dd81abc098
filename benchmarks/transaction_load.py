"""Closed-loop transactional producers.

    python -m benchmarks.transaction_load PORT TOPIC RECORDS PARTITIONS PRODUCERS SECONDS

Speaks transaction.version 2, as Kafka's own client does from 4.0 on: a Produce 12 that adds its partitions by
itself, then an EndTxn 5, whose answer has the epoch of the next transaction. Each producer has a connection
of its own and one request under way. Prints a line of JSON: transactions, seconds, and the p50 and p99 in
milliseconds of a commit (from EndTxn to its answer) and of a whole transaction.
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

CHECKSUM, CHECKED_FROM, PRODUCER_ID, PRODUCER_EPOCH = 17, 21, 43, 51
"""Positions in a record batch."""

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

    def __init__(self, port: int, transactional_id: str, topic: str, records: int, partitions: int) -> None:
        with WireClient("127.0.0.1", port) as client:
            self._producer_id, self._epoch = begin(client, transactional_id)
        self._id = transactional_id
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._is_ending = False
        self._lay_out(topic, max(1, records // partitions), partitions)
        self._began = self._asked = 0.0
        self.commits_s: list[float] = []
        self.transactions_s: list[float] = []

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

    def begin(self) -> None:
        """Sends the records of the next transaction."""
        struct.pack_into(">qh", self._batch, PRODUCER_ID, self._producer_id, self._epoch)
        struct.pack_into(">I", self._batch, CHECKSUM, crc32c(memoryview(self._batch)[CHECKED_FROM:]))
        for position in self._positions:
            self._frame[position : position + len(self._batch)] = self._batch
        self._began = time.perf_counter()
        self.send_records()

    def send_records(self) -> None:
        self._is_ending = False
        self.socket.sendall(self._frame)

    def _end(self) -> None:
        self._is_ending = True
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        self._asked = time.perf_counter()
        self.socket.sendall(request_frame(request, END, 1, CLIENT_ID))

    def take(self) -> bool:
        """Reads what has come and goes on; false when the same records are to be sent again in a while."""
        self._received += self.socket.recv(65_536)
        if len(self._received) < 4:
            return True
        size = 4 + int.from_bytes(self._received[:4], "big")
        if len(self._received) < size:
            return True
        frame = bytes(self._received[4:size])
        del self._received[:size]
        return self._ended(frame) if self._is_ending else self._produced(frame)

    def _produced(self, frame: bytes) -> bool:
        _, answer = read_response(frame, ProduceRequest, PRODUCE)
        codes = {one.error_code for topic in answer.responses for one in topic.partition_responses}
        if codes == {0}:
            self._end()
            return True
        assert codes <= {0, *NOT_YET}, answer
        return False

    def _ended(self, frame: bytes) -> bool:
        _, answer = read_response(frame, EndTxnRequest, END)
        assert answer.error_code == 0, answer
        now = time.perf_counter()
        self.commits_s.append(now - self._asked)
        self.transactions_s.append(now - self._began)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self.begin()
        return True


def run(producers: list[Producer], seconds: float) -> None:
    """Lets all work for so long, or until one transaction is over where that takes longer."""
    deadline = time.perf_counter() + seconds
    again: list[tuple[float, int]] = []
    with selectors.DefaultSelector() as selector:
        for number, producer in enumerate(producers):
            selector.register(producer.socket, selectors.EVENT_READ, number)
            producer.begin()
        while (now := time.perf_counter()) < deadline or not any(one.commits_s for one in producers):
            assert now < deadline + PATIENCE_S, "no transaction ends"
            while again and again[0][0] <= now:
                producers[heapq.heappop(again)[1]].send_records()
            until = min(deadline, again[0][0]) if again else deadline
            for key, _ in selector.select(max(RETRY_S, until - now)):
                if not producers[key.data].take():
                    heapq.heappush(again, (time.perf_counter() + RETRY_S, key.data))


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def measure(
    port: int, topic: str, records: int, partitions: int, producers: int, seconds: float
) -> dict[str, Any]:
    name = f"load-{time.time_ns()}"
    working = [Producer(port, f"{name}-{n}", topic, records, partitions) for n in range(producers)]
    began = time.perf_counter()
    run(working, WARM_UP_S + seconds)
    # What was begun in the warm-up does not count; what is under way at the end is not over.
    commits, transactions = [], []
    for producer in working:
        skipped = int(len(producer.commits_s) * WARM_UP_S / (WARM_UP_S + seconds))
        commits += producer.commits_s[skipped:]
        transactions += producer.transactions_s[skipped:]
    took = time.perf_counter() - began
    count = sum(len(producer.commits_s) for producer in working)
    for producer in working:
        producer.socket.close()
    return {
        "transactions": count,
        "seconds": took,
        "commit_p50_ms": quantile(commits, 0.5) * 1000,
        "commit_p99_ms": quantile(commits, 0.99) * 1000,
        "transaction_p50_ms": quantile(transactions, 0.5) * 1000,
        "transaction_p99_ms": quantile(transactions, 0.99) * 1000,
    }


def main(arguments: list[str]) -> None:
    port, topic, records, partitions, producers, seconds = arguments
    print(
        json.dumps(measure(int(port), topic, int(records), int(partitions), int(producers), float(seconds)))
    )


if __name__ == "__main__":
    main(sys.argv[1:])
