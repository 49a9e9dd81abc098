"""The load of `odradek bench`: loops that write and read, and count how long each request takes.

A batch is made once and sent again and again, and what is read is counted by the headers of batches: that
leaves more of the machine to the broker. Nothing is tried again; a failure ends it.
"""

import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from odradek.client.client_error import ClientError, refusal
from odradek.client.cluster import EARLIEST, LATEST, Cluster, leader_of
from odradek.client.connection import Connection, Pending, answered
from odradek.client.reading import Reader
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import build_batch, iter_whole_batches

REQUESTS_UNDER_WAY = 5
"""On a connection, as in Java's producer."""
BY_NAME_VERSION_MAX = 12
"""From Produce 13 on requests name topics by their ids."""
STEPS = 100
"""Buckets of latencies for a factor of e: a percentile is right to one per cent."""
POLL_S = 0.2
TIMEOUT_MS = 30_000
"""How long a write may wait for replicas."""
Progressed = Callable[[int, int], object]
"""Is told the records and the bytes of values so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A load to make. The load ends after so many records or seconds, whichever comes first."""

    records: int | None
    seconds: float | None
    rate: int | None
    """Records a second at most."""
    size_bytes: int
    """Size of a value; keys are null."""
    batch_records: int
    compression: Compression
    acks: int

    def batch(self, count: int) -> bytes:
        """`count` records. Their values are hex digits, which a codec makes about half as large."""
        digits = random.Random(0).randbytes(count * self.size_bytes // 2 + 1).hex().encode()
        size, now_ms = self.size_bytes, time.time_ns() // 1_000_000
        values = (digits[number * size : (number + 1) * size] for number in range(count))
        records = [(number, now_ms, None, value, ()) for number, value in enumerate(values)]
        return bytes(build_batch(records, compression=self.compression))


class Latencies:
    """Counts of latencies in buckets; takes little room for any number of them."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count, self.max_s = 0, 0.0

    def add(self, seconds: float) -> None:
        step = math.ceil(math.log(max(seconds, 1e-9)) * STEPS)
        self._counts[step] = self._counts.get(step, 0) + 1
        self.count += 1
        self.max_s = max(self.max_s, seconds)

    def percentile(self, share: float) -> float | None:
        """In seconds, one per cent too much at most; None without any."""
        left = share * self.count
        for step in sorted(self._counts):
            left -= self._counts[step]
            if left <= 1e-9:
                return min(self.max_s, math.exp(step / STEPS))
        return None


@dataclass(slots=True)
class Result:
    """Records and bytes of a load, and its time."""

    records: int = 0
    size_bytes: int = 0
    """Size of the values, before compression."""
    seconds: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)


# Writing ----------------------------------------------------------------------------------------------


class _Writer:
    """Sends batches to the partitions in turn, several under way."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int, plan: Plan, result: Result) -> None:
        self._topic, self._plan, self._result = topic, plan, result
        self._connections = [cluster.connect(leader_of(topic, partition)) for partition in range(partitions)]
        self._under_way: dict[Connection, deque[tuple[Pending, float, int]]] = {
            connection: deque() for connection in self._connections
        }
        self._batches: dict[int, bytes] = {}
        self._sent = 0
        self.offset = -1
        """After the last record that was acknowledged."""

    def send(self, count: int, due: float) -> None:
        """Sends a batch; its latency counts from `due`."""
        partition = self._sent % len(self._connections)
        connection = self._connections[partition]
        while len(self._under_way[connection]) >= REQUESTS_UNDER_WAY:
            self._receive(connection)
        request = self._request(partition, count)
        version = connection.version_of(ProduceRequest, BY_NAME_VERSION_MAX)
        pending = connection.send(request, version)
        self._under_way[connection].append((pending, due, count))
        self._sent += 1

    def wait(self, until: float) -> None:
        """Takes responses that come before that time."""
        while (left_s := until - time.perf_counter()) > 0:
            waiting = {one: queue[0][0] for one, queue in self._under_way.items() if queue}
            if not waiting:
                time.sleep(left_s)
            for connection in answered(waiting, left_s, in_time=True):
                self._receive(connection)

    def collect(self) -> bool:
        """Takes a response that has come; whether one is missing still."""
        waiting = {one: queue[0][0] for one, queue in self._under_way.items() if queue}
        for connection in answered(waiting, 0.0, in_time=True):
            self._receive(connection)
        return any(self._under_way.values())

    def finish(self) -> None:
        """Takes all responses."""
        for connection, queue in self._under_way.items():
            while queue:
                self._receive(connection)

    def _request(self, partition: int, count: int) -> ProduceRequest:
        batch = self._batches.get(count)
        if batch is None:
            batch = self._batches[count] = self._plan.batch(count)
        data = PartitionProduceData(index=partition, records=batch)
        return ProduceRequest(
            transactional_id=None,
            acks=self._plan.acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )

    def _receive(self, connection: Connection) -> None:
        pending, due, count = self._under_way[connection].popleft()
        response = connection.receive(pending).responses[0].partition_responses[0]
        code = error_of(response.error_code)
        if code != ErrorCode.NONE:
            doing = f"writing to topic {self._topic}, partition {response.index}"
            raise refusal(doing, code, response.error_message)
        self._result.latencies.add(time.perf_counter() - due)
        self._result.records += count
        self._result.size_bytes += count * self._plan.size_bytes
        self.offset = response.base_offset + count


def measure_produce(
    cluster: Cluster, topic: str, partitions: int, plan: Plan, progressed: Progressed
) -> Result:
    """Writes batches, with up to five requests under way on a connection. The latency is that of a request:
    from when it is sent, or, with a rate, from when it is due."""
    result = Result()
    writer = _Writer(cluster, topic, partitions, plan, result)
    began = time.perf_counter()
    for count, due in _turns(plan, began):
        if plan.rate is not None:
            writer.wait(due)
        writer.send(count, due if plan.rate is not None else time.perf_counter())
        progressed(result.records, result.size_bytes)
    writer.finish()
    result.seconds = time.perf_counter() - began
    return result


def fill(cluster: Cluster, topic: str, partitions: int, plan: Plan, records: int) -> None:
    """Writes so many records, unmeasured."""
    writer = _Writer(cluster, topic, partitions, plan, Result())
    for start in range(0, records, plan.batch_records):
        writer.send(min(plan.batch_records, records - start), 0.0)
    writer.finish()


def _turns(plan: Plan, began: float) -> Iterator[tuple[int, float]]:
    """Records of each batch, and when it is due."""
    sent = 0
    while plan.records is None or sent < plan.records:
        due = began if plan.rate is None else began + sent / plan.rate
        if plan.seconds is not None and max(due, time.perf_counter()) >= began + plan.seconds:
            return
        left = plan.batch_records if plan.records is None else plan.records - sent
        count = min(plan.batch_records, left)
        yield count, due
        sent += count


# Reading ----------------------------------------------------------------------------------------------


def measure_consume(
    cluster: Cluster, topic: str, partitions: int, plan: Plan, progressed: Progressed
) -> Result:
    """Reads what the topic has, again and again until the plan has ended; without records it ends at once.
    The latency is how long the reader waits for a response, while the next one is under way already."""
    result = Result()
    keys = [(topic, partition) for partition in range(partitions)]
    firsts = cluster.list_offsets(dict.fromkeys(keys, EARLIEST))
    lasts = cluster.list_offsets(dict.fromkeys(keys, LATEST))
    bounds = {key: (firsts[key], lasts[key]) for key in keys if firsts[key] < lasts[key]}
    began = time.perf_counter()
    while bounds and not _is_over(plan, result, began):
        asked = time.perf_counter()
        for fetched in Reader(cluster, bounds, read_committed=False):
            result.latencies.add(time.perf_counter() - asked)
            _count(fetched.buffer, plan, result)
            progressed(result.records, result.size_bytes)
            if _is_over(plan, result, began):
                break
            if plan.rate is not None:
                time.sleep(max(0.0, began + result.records / plan.rate - time.perf_counter()))
            asked = time.perf_counter()
    result.seconds = time.perf_counter() - began
    return result


def _count(buffer: memoryview, plan: Plan, result: Result) -> None:
    """Batches count whole, and their bytes as they are stored."""
    for _, header in iter_whole_batches(buffer):
        if not header.is_control:
            result.records += header.record_count
    result.size_bytes += len(buffer)


def _is_over(plan: Plan, result: Result, began: float) -> bool:
    is_late = plan.seconds is not None and time.perf_counter() >= began + plan.seconds
    return is_late or (plan.records is not None and result.records >= plan.records)


def measure_roundtrip(clusters: Sequence[Cluster], topic: str, plan: Plan, progressed: Progressed) -> Result:
    """Writes batches into partition 0 one after the other, and reads each: the latency is from when it is
    sent until it has been read by a second client, whose request waits at the broker already."""
    result = Result()
    key = topic, 0
    writing, reading = clusters
    writer = _Writer(writing, topic, 1, plan, result)
    latencies, result.latencies = Latencies(), Latencies()
    reader = Reader(reading, {key: (reading.list_offsets({key: LATEST})[key], None)}, read_committed=False)
    began = time.perf_counter()
    for count, due in _turns(plan, began):
        time.sleep(max(0.0, due - time.perf_counter()))
        for _ in reader.poll(0):
            pass  # others write, too; the next request is under way then
        sent = time.perf_counter()
        writer.send(count, sent)
        until = sent + reading.settings.patience_ms / 1000
        latencies.add(_read_back(reader, writer, until) - sent)
        progressed(result.records, result.size_bytes)
    result.latencies = latencies
    result.seconds = time.perf_counter() - began
    return result


def _read_back(reader: Reader, writer: _Writer, until: float) -> float:
    """When what was sent has been read. Its offset is known with the response, which may come later."""
    arrived: list[tuple[int, float]] = []
    while time.perf_counter() < until:
        for fetched in reader.poll(POLL_S if not arrived else 0.0):
            arrived.append((fetched.next_offset, time.perf_counter()))
        if writer.collect():
            continue
        for offset, moment in arrived:
            if offset >= writer.offset:
                return moment
    raise ClientError("what was written has not come back in time")
