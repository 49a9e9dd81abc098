"""Writes rows into a topic exactly once, by tasks of Spark that may be killed, retried, or run twice.

A *delivery* has an id. Each partition of it is written by one producer with a transactional id of its own, in
transactions; each transaction also holds the marker (`odradek.spark.markers`) with the offset of the source
up to which the partition is delivered. A task takes the transactional id over, which fences the task before
and aborts its open transaction, reads the marker, and continues after it. So a killed delivery continues
there.

A delivery with an epoch also maps offsets of the source to offsets of the target (`offset_runs`). The target
offsets are known when rows are acknowledged, and have to outlive the task as the rows do: a task, or a
driver, that finds rows delivered can neither write them again nor guess. So a transaction attaches its runs
to its marker, and the next attempt reads the runs of the same epoch there. The target's content cannot give
them, as it may be compacted since, or have records of others. The driver, or a file before the commit, cannot
keep them, as the process may die between the two. Runs of an epoch stay until the next epoch begins, which is
after the job has stored them.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Self

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.spark.client_options import settings_of
from odradek.spark.jobs import offset_runs

if TYPE_CHECKING:
    import pyarrow

    from odradek.client.producing import Placement
    from odradek.spark.batching import RecordsBuffer
    from odradek.spark.jobs.offset_runs import Run

    Work = Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]

RESULT = "partition INT, rows BIGINT, skipped BIGINT, next_offset BIGINT"
"""The result for a partition: rows that the task wrote, rows that were there already, the next offset."""
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Compressions of the record batches."""
TRANSACTION_ROWS = 200_000
TRANSACTION_BYTES = 64 << 20
SLICE_BYTES = 8 << 20
PLACES = ("key", "value", "headers", "partition", "timestamp")
"""The columns that are written."""


@dataclass(frozen=True)
class Delivery:
    """The delivery of one topic, as all tasks need it; pickled for the executors."""

    id: str
    settings: Mapping[str, str] = field(repr=False)
    """Options with Kafka's names after `kafka.`."""
    topic: str
    partitions: int
    compression: str = "none"
    rows_per_second: float | None = None
    """Limit of each partition; None for no limit."""
    transaction_rows: int = TRANSACTION_ROWS
    transaction_bytes: int = TRANSACTION_BYTES
    epoch: int | None = None
    """The epoch of the rows; None if nobody needs the runs."""

    def query(self, partition: int) -> str:
        """The marker query of a partition: each has its own, with one task, so their markers are
        independent."""
        return f"{self.id}-{partition}"


Deliveries = Mapping[str, Delivery]
"""By topic of the source; all into one cluster."""


def delivering(deliveries: Deliveries) -> "Work":
    """For `mapInArrow`, on rows sorted by topic, partition and offset, each partition in one task; yields
    rows of `RESULT`."""

    def deliver(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        for partition, runs in _delivered(deliveries, batches):
            if runs is None:
                yield partition.result()

    return deliver


def mapping(deliveries: Deliveries) -> "Work":
    """Work of `delivering` for deliveries with an epoch; yields rows of `offset_runs.REPORT_SCHEMA`, also of
    what an earlier attempt at the epoch has delivered of these partitions."""

    def deliver(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        for _, runs in _delivered(deliveries, batches):
            if runs is not None:
                yield runs

    return deliver


def recovering(deliveries: Deliveries) -> "Work":
    """For `mapInArrow`, on rows of topic and partition: the runs of an earlier attempt at the epoch, as
    `mapping` yields them if one of its rows comes again."""

    def recover(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        with _cluster(deliveries) as cluster:
            for batch in batches:
                for row in batch.to_pylist():
                    topic = row["topic"]
                    with _Partition(deliveries[topic], cluster, topic, row["partition"]) as partition:
                        yield from partition.found()

    return recover


def take_over(deliveries: Deliveries) -> None:
    """Aborts open transactions of earlier attempts in all partitions, and fences running attempts.

    So readers need not wait for the next task or for the transactions' timeout."""
    from odradek.client.producing import Producer
    from odradek.spark import markers

    with _cluster(deliveries) as cluster:
        for delivery in deliveries.values():
            for partition in range(delivery.partitions):
                name = markers.transactional_id(delivery.query(partition), 0)
                Producer(cluster, transactional_id=name).init_transactions()


def _cluster(deliveries: Deliveries) -> Cluster:
    """The cluster of all deliveries."""
    delivery = next(iter(deliveries.values()))
    return Cluster(settings_of(delivery.settings))


def _delivered(
    deliveries: Deliveries, batches: "Iterator[pyarrow.RecordBatch]"
) -> "Iterator[tuple[_Partition, pyarrow.RecordBatch | None]]":
    """Each partition with batches of its runs, and once with None at its end."""
    with _cluster(deliveries) as cluster:
        for (topic, number), pieces in groupby(_by_partition(batches), key=itemgetter(0)):
            with _Partition(deliveries[topic], cluster, topic, number) as partition:
                for runs in partition.deliver(rows for _, rows in pieces):
                    yield partition, runs
                yield partition, None


def _by_partition(
    batches: "Iterator[pyarrow.RecordBatch]",
) -> "Iterator[tuple[tuple[str, int], pyarrow.RecordBatch]]":
    """Batches of one partition each, in the order of the rows."""
    import pyarrow.compute as pc

    for batch in batches:
        while batch.num_rows:
            columns = [batch.column(name) for name in ("topic", "partition")]
            topic, partition = (column[0].as_py() for column in columns)
            is_same = pc.and_(pc.equal(columns[0], topic), pc.equal(columns[1], partition))
            length = pc.index(is_same, False).as_py()
            length = batch.num_rows if length < 0 else length
            yield (topic, partition), batch.slice(0, length)
            batch = batch.slice(length)


@dataclass
class _Partition:
    """One partition of a delivery, in one task."""

    delivery: Delivery
    cluster: Cluster
    topic: str
    """Topic of the source."""
    number: int
    rows: int = 0
    skipped: int = 0
    _open_rows: int = 0
    _open_bytes: int = 0
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        from odradek.client.producing import Producer
        from odradek.spark import markers
        from odradek.spark.batching import Batches
        from odradek.wire.compression import compression_named

        delivery = self.delivery
        self._query = delivery.query(self.number)
        self._markers = markers
        self._producer = Producer(self.cluster, transactional_id=markers.transactional_id(self._query, 0))
        self._producer.init_transactions()
        self._marker = markers.read(self.cluster, self._query, 0).get(0)
        self.next_offset = -1 if self._marker is None else self._marker.epoch
        self._rows_before = 0 if self._marker is None else self._marker.entries[0].rows
        self._attached = None if self._marker is None else self._marker.attached
        self._found_from: int | None = None
        """The first offset that an earlier attempt at the epoch has delivered."""
        self._offsets: list[pyarrow.Array] = []
        """Source offsets of the rows of the open transaction."""
        self._placements: list[Placement] = []
        self._batches = Batches(
            lambda _: delivery.partitions,
            topic=delivery.topic,
            compression=compression_named(delivery.compression),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # With a ClientError the broker is in trouble, or has another attempt: the next one cleans up.
        if self._open_rows and error is not None and not isinstance(error, ClientError):
            with suppress(ClientError):
                self._producer.abort()
        self._producer.close()

    def deliver(self, pieces: "Iterable[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        """Writes rows that are not delivered yet; yields rows of `REPORT_SCHEMA` if the delivery has an
        epoch."""
        yield from self.found()
        for rows in pieces:
            yield from self._add(rows)
        yield from self._commit()

    def found(self) -> "Iterator[pyarrow.RecordBatch]":
        """The runs that an earlier attempt at the epoch has delivered."""
        if self._marker is None or self._attached is None or self._attached.epoch != self.delivery.epoch:
            return
        for text in self._markers.attached(self.cluster, self._query, 0, self._marker):
            runs = offset_runs.from_text(text)
            self._found_from = runs[0].source_start
            yield self._report_rows(runs, was_there=True, size_bytes=0)

    def result(self) -> "pyarrow.RecordBatch":
        """A row of RESULT."""
        import pyarrow

        return pyarrow.RecordBatch.from_arrays(
            [
                pyarrow.array([self.number], pyarrow.int32()),
                *(pyarrow.array([n], pyarrow.int64()) for n in (self.rows, self.skipped, self.next_offset)),
            ],
            names=["partition", "rows", "skipped", "next_offset"],
        )

    def _add(self, rows: "pyarrow.RecordBatch") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow.compute as pc

        fresh = rows.filter(pc.greater_equal(rows.column("offset"), self.next_offset))
        if fresh.num_rows < rows.num_rows:
            self._check_found(rows.column("offset")[0].as_py())
        self.skipped += rows.num_rows - fresh.num_rows
        step = max(1, SLICE_BYTES * fresh.num_rows // max(1, fresh.nbytes))
        if self.delivery.rows_per_second is not None:
            step = min(step, max(1, int(self.delivery.rows_per_second)))
        for start in range(0, fresh.num_rows, step):
            yield from self._write(fresh.slice(start, step))

    def _check_found(self, offset: int) -> None:
        """Refuses to skip a delivered row whose target offset is unknown."""
        if self.delivery.epoch is None or (self._found_from is not None and offset >= self._found_from):
            return
        raise ClientError(
            f"topic {self.topic}, partition {self.number} was mirrored into topic {self.delivery.topic} "
            f"before, up to offset {self.next_offset}, with another table of offsets: go on with that one, "
            "or give an id, to mirror it all once more"
        )

    def _write(self, rows: "pyarrow.RecordBatch") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow

        if not self._open_rows:
            self._producer.begin()
        self._open_rows += rows.num_rows
        self._open_bytes += rows.nbytes
        self._send(self._batches.add(rows.select(list(PLACES))))
        offsets = rows.column("offset")
        self.next_offset = offsets[rows.num_rows - 1].as_py() + 1
        limits = self.delivery
        if limits.epoch is not None:
            # A copy: the original shares its memory with the values.
            self._offsets.append(pyarrow.array(offsets.to_pylist(), pyarrow.int64()))
        is_paced = limits.rows_per_second is not None
        if (
            is_paced
            or self._open_rows >= limits.transaction_rows
            or self._open_bytes >= limits.transaction_bytes
        ):
            yield from self._commit()

    def _commit(self) -> "Iterator[pyarrow.RecordBatch]":
        if not self._open_rows:
            return
        self._send(self._batches.drain())
        runs = self._attach_runs()
        rows = self.rows + self._open_rows
        written = self._markers.Rows(self.delivery.id, self._rows_before + rows, self._batches.checksum, ())
        marker = self._markers.Marker(self.next_offset, (written,), self._attached)
        self._markers.write(self._producer, self._query, 0, marker)
        self._producer.commit()
        size_bytes = self._open_bytes
        self.rows, self._open_rows, self._open_bytes = rows, 0, 0
        if self.delivery.rows_per_second is not None:
            ahead = self.rows / self.delivery.rows_per_second - (time.monotonic() - self._began)
            time.sleep(max(0.0, ahead))
        if runs:
            yield self._report_rows(runs, was_there=False, size_bytes=size_bytes)

    def _send(self, batches: "Iterable[RecordsBuffer]") -> None:
        for records in batches:
            placement = self._producer.send(records)
            if self.delivery.epoch is not None:
                self._placements.append(placement)

    def _attach_runs(self) -> "list[Run]":
        """Attaches the runs of the open transaction, after all of it was sent."""
        import pyarrow

        if self.delivery.epoch is None:
            return []
        self._producer.flush()
        runs = offset_runs.runs_of(pyarrow.concat_arrays(self._offsets), self._placements)
        self._offsets, self._placements = [], []
        texts = offset_runs.texts(runs)
        self._attached = self._markers.attach(
            self._producer, self._query, 0, self.delivery.epoch, texts, self._attached
        )
        return runs

    def _report_rows(self, runs: "list[Run]", *, was_there: bool, size_bytes: int) -> "pyarrow.RecordBatch":
        return offset_runs.as_rows(
            self.topic, self.number, self.delivery.topic, runs, was_there=was_there, size_bytes=size_bytes
        )
