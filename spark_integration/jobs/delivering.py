"""Rows into a topic, each exactly once, by tasks of Spark that may be killed, retried, or run twice.

A *delivery* has an id. Each partition of it is written by one producer with a transactional id of its own, in
transactions; each transaction also holds the marker (`odradek.spark.markers`) that says up to which offset of
the source the partition is delivered. A task takes the transactional id over, which fences whoever had it and
ends what he left open, reads the marker, and goes on behind it. So what is killed at any point goes on there.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.spark.client import ClientSettings, Cluster

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ARROW_ROWS", "RESULT", "Delivery", "delivering"]

RESULT = "partition INT, rows BIGINT, skipped BIGINT, next_offset BIGINT"
"""What a task tells of each partition: rows that it wrote, rows that were there already, where it ended."""
ARROW_ROWS = 2_000
"""Of one step into Python: a row may be a megabyte."""
TRANSACTION_ROWS = 200_000
TRANSACTION_BYTES = 64 << 20
SLICE_BYTES = 8 << 20
PLACES = ("key", "value", "headers", "partition", "timestamp")
"""What of a row is written."""


@dataclass(frozen=True)
class Delivery:
    """What every task has to know; it goes to the executors as it is."""

    id: str
    settings: Mapping[str, str]
    """Options with Kafka's names behind `kafka.`."""
    topic: str
    partitions: int
    compression: str = "none"
    rows_per_second: float | None = None
    """Of each partition; None for as fast as it goes."""
    transaction_rows: int = TRANSACTION_ROWS
    transaction_bytes: int = TRANSACTION_BYTES


def delivering(
    delivery: Delivery,
) -> "Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]":
    """For `mapInArrow`, on rows that are sorted by partition and offset, each partition in one task."""

    def deliver(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        with Cluster(ClientSettings.from_options(dict(delivery.settings))) as cluster:
            current: _Partition | None = None
            for partition, rows in _by_partition(batches):
                if current is None or current.number != partition:
                    if current is not None:
                        yield current.finish()
                    current = _Partition(delivery, cluster, partition)
                current.add(rows)
            if current is not None:
                yield current.finish()

    return deliver


def _by_partition(
    batches: "Iterator[pyarrow.RecordBatch]",
) -> "Iterator[tuple[int, pyarrow.RecordBatch]]":
    """Pieces of one partition each, in the order of the rows."""
    import pyarrow.compute as pc

    for batch in batches:
        while batch.num_rows:
            numbers = batch.column("partition")
            partition = numbers[0].as_py()
            length = pc.index(pc.equal(numbers, partition), False).as_py()
            length = batch.num_rows if length < 0 else length
            yield partition, batch.slice(0, length)
            batch = batch.slice(length)


@dataclass
class _Partition:
    """One partition of a delivery, in one task."""

    delivery: Delivery
    cluster: Cluster
    number: int
    rows: int = 0
    skipped: int = 0
    _open_rows: int = 0
    _open_bytes: int = 0
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        from odradek.spark import markers
        from odradek.spark.batching import Batches
        from odradek.spark.producing import Producer
        from odradek.wire.compression import compression_named

        delivery = self.delivery
        # A query of its own for each partition, with one task: their markers come and go independently.
        self._query = f"{delivery.id}-{self.number}"
        self._markers = markers
        self._producer = Producer(self.cluster, transactional_id=markers.transactional_id(self._query, 0))
        self._producer.init_transactions()
        marker = markers.read(self.cluster, self._query, 0).get(0)
        self.next_offset = -1 if marker is None else marker.epoch
        self._rows_before = 0 if marker is None else marker.entries[0].rows
        self._batches = Batches(
            lambda _: delivery.partitions,
            topic=delivery.topic,
            compression=compression_named(delivery.compression),
        )

    def add(self, rows: "pyarrow.RecordBatch") -> None:
        """Writes what is not delivered yet."""
        import pyarrow.compute as pc

        fresh = rows.filter(pc.greater_equal(rows.column("offset"), self.next_offset))
        self.skipped += rows.num_rows - fresh.num_rows
        step = max(1, SLICE_BYTES * fresh.num_rows // max(1, fresh.nbytes))
        if self.delivery.rows_per_second is not None:
            step = min(step, max(1, int(self.delivery.rows_per_second)))
        for start in range(0, fresh.num_rows, step):
            self._write(fresh.slice(start, step))

    def finish(self) -> "pyarrow.RecordBatch":
        """Commits what is open; a row of RESULT."""
        import pyarrow

        self._commit()
        self._producer.close()
        return pyarrow.RecordBatch.from_arrays(
            [
                pyarrow.array([self.number], pyarrow.int32()),
                *(pyarrow.array([n], pyarrow.int64()) for n in (self.rows, self.skipped, self.next_offset)),
            ],
            names=["partition", "rows", "skipped", "next_offset"],
        )

    def _write(self, rows: "pyarrow.RecordBatch") -> None:
        if not self._open_rows:
            self._producer.begin()
        for records in self._batches.add(rows.select(list(PLACES))):
            self._producer.send(records)
        self._open_rows += rows.num_rows
        self._open_bytes += rows.nbytes
        self.next_offset = rows.column("offset")[rows.num_rows - 1].as_py() + 1
        limits = self.delivery
        is_paced = limits.rows_per_second is not None
        if (
            is_paced
            or self._open_rows >= limits.transaction_rows
            or self._open_bytes >= limits.transaction_bytes
        ):
            self._commit()

    def _commit(self) -> None:
        if not self._open_rows:
            return
        for records in self._batches.drain():
            self._producer.send(records)
        rows = self.rows + self._open_rows
        told = self._markers.Rows(self.delivery.id, self._rows_before + rows, self._batches.checksum, ())
        marker = self._markers.Marker(self.next_offset, (told,))
        self._markers.write(self._producer, self._query, 0, marker)
        self._producer.commit()
        self.rows, self._open_rows, self._open_bytes = rows, 0, 0
        if self.delivery.rows_per_second is not None:
            ahead = self.rows / self.delivery.rows_per_second - (time.monotonic() - self._began)
            time.sleep(max(0.0, ahead))
