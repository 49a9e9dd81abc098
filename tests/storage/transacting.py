"""Transactions in a partition as their users have them: a producer, a consumer who reads what is committed,
and a walk through a log that finds out by itself what is open and what was aborted.
"""

import heapq
from typing import NamedTuple

from odradek.storage.log._staging import Appended
from odradek.storage.log.partition import READ_COMMITTED, Partition
from odradek.storage.log.transactions import Verified
from odradek.wire.end_marker import EndMarker
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches, read_end_txn_marker

NOW_MS = 1_700_000_000_000


class Producer:
    """A transactional producer of one partition, whose coordinator says yes to everything."""

    def __init__(self, partition: Partition, producer_id: int, *, version: int = 1) -> None:
        self.partition = partition
        self.producer_id = producer_id
        self.version = version
        self.producer_epoch = 0
        self.sequence = 0
        self.coordinator_epoch = 0

    def batch(self, *values: bytes, transactional: bool = True, now_ms: int = NOW_MS) -> bytearray:
        return build_batch(
            [Record(place, now_ms, b"k", value) for place, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequence,
            transactional=transactional,
        )

    def stage(self, *values: bytes, now_ms: int = NOW_MS) -> Appended:
        batch = self.batch(*values, now_ms=now_ms)
        verification = self.partition.begin_verification(
            self.producer_id, self.producer_epoch, self.sequence, version=self.version
        )
        appended = self.partition.appends.append(
            batch, now_ms=now_ms, transactions=Verified(verification, self.version)
        )
        self.sequence += len(values)
        return appended

    def send(self, *values: bytes, now_ms: int = NOW_MS) -> Appended:
        appended = self.stage(*values, now_ms=now_ms)
        self.partition.commit()
        return appended

    def marker(self, *, commit: bool) -> EndMarker:
        """The next one; from version 2 on it begins a new epoch."""
        if self.version >= 2:
            self.producer_epoch += 1
            self.sequence = 0
        return EndMarker(self.producer_id, self.producer_epoch, self.coordinator_epoch, commit, self.version)

    def end(self, *, commit: bool, now_ms: int = NOW_MS) -> Appended:
        appended = self.partition.appends.append_marker(self.marker(commit=commit), now_ms=now_ms)
        self.partition.commit()
        return appended


def committed(partition: Partition, offset: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """The records that a consumer gets who reads what is committed, by the rules of Kafka's own."""
    found: list[Record] = []
    offset = partition.log_start_offset if offset is None else offset
    while offset < partition.last_stable_offset:
        result = partition.read(offset, max_bytes=max_bytes, isolation=READ_COMMITTED)
        data = memoryview(result.records.tobytes())
        if not data:
            break  # a compacted log may end before its end offset
        assert result.aborted is not None
        to_come = [(first_offset, producer_id) for producer_id, first_offset in result.aborted]
        heapq.heapify(to_come)
        aborted: set[int] = set()
        for position, header in iter_whole_batches(data):
            while to_come and to_come[0][0] <= header.last_offset:
                aborted.add(heapq.heappop(to_come)[1])
            records = list(iter_records(data[position:]))
            if header.is_control:
                if records and not read_end_txn_marker(records[0]).committed:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [record for record in records if record.offset >= offset]
            offset = header.last_offset + 1
    return found


def committed_values(
    partition: Partition, offset: int | None = None, max_bytes: int = 1 << 20
) -> list[bytes]:
    return [record.value for record in committed(partition, offset, max_bytes)]


class Walked(NamedTuple):
    """What the batches of a log say: the offsets of records that are open, aborted and good for everybody,
    and the first offset of each open transaction by its producer.
    """

    open: set[int]
    aborted: set[int]
    stable: set[int]
    begun: dict[int, int]


def walked(partition: Partition) -> Walked:
    """By the headers and markers alone, from the first segment on."""
    walk = Walked(set(), set(), set(), {})
    offsets: dict[int, set[int]] = {}
    for segment in partition.log.segments:
        for batch in segment.batches():
            records = list(iter_records(segment.file.read(batch.position, batch.size_bytes)))
            there = {record.offset for record in records}
            if batch.is_control:
                if records:
                    ended = offsets.pop(batch.producer_id, set())
                    walk.begun.pop(batch.producer_id, None)
                    is_good = read_end_txn_marker(records[0]).committed
                    (walk.stable if is_good else walk.aborted).update(ended)
            elif batch.is_transactional and records:
                offsets.setdefault(batch.producer_id, set()).update(there)
                walk.begun.setdefault(batch.producer_id, batch.base_offset)
            else:
                walk.stable.update(there)
    walk.open.update(*offsets.values())
    return walk


def check_transactions(partition: Partition) -> None:
    """What the partition says of its transactions is what a walk through the log says."""
    walk = walked(partition)
    base_offset = partition.log.segments[0].base_offset
    begun = {
        one.producer_id: one.current_txn_start_offset
        for one in partition.producers()
        if one.current_txn_start_offset >= 0
    }
    for producer_id, first_offset in walk.begun.items():
        # Retention may have taken the first records.
        known = begun.pop(producer_id)
        assert known == first_offset or known < base_offset <= first_offset
        begun[producer_id] = known
    assert all(known < base_offset for one, known in begun.items() if one not in walk.begun)
    stable = min([partition.high_watermark, *begun.values()])
    assert partition.last_stable_offset == max(stable, partition.log_start_offset)
    visible = {record.offset for record in committed(partition)}
    start, end = partition.log_start_offset, partition.last_stable_offset
    assert visible == {offset for offset in walk.stable if start <= offset < end}
