"""The work of one task: a range of offsets of one partition becomes small Arrow batches.

Deleted records (retention, DeleteRecords, a topic that was created again) end the task with `DataLoss`, or
are skipped with `failOnDataLoss=false`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, UnknownTopic
from odradek.client.fetching import Fetcher, OffsetsGone
from odradek.spark.offsets import OffsetRange
from odradek.spark.options import ReadOptions
from odradek.wire.record_layout import LOG_OVERHEAD_BYTES

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from odradek.client.fetching import FetchedRecords
    from odradek.spark.columns import ColumnBuilder

BATCH_ROWS = 32_768
"""The largest number of rows of an Arrow batch; rows are yielded from half of it on."""
BATCH_BYTES = 16 << 20
"""The largest Arrow batch, except for a single row; rows are yielded from half of it on."""
PIECE_BYTES = 512 << 10
"""Unpacked at a time, in bytes of the log; at least one batch."""

_SIZE = struct.Struct(">i")
REMEDY = "set failOnDataLoss to false to continue with the records that are left"


class DataLoss(ClientError):
    """Records of a planned read are deleted."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; {REMEDY}")
        self._what = what

    def __reduce__(self) -> tuple[type[DataLoss], tuple[str]]:
        return type(self), (self._what,)


def read_range(wanted: OffsetRange, options: ReadOptions) -> Iterator[RecordBatch]:
    """The rows of a range, in order; the iterator has its own connection."""
    with Cluster(options.settings) as cluster:
        start: int | None = wanted.start
        while start is not None and start < wanted.end:
            try:
                yield from _read(cluster, wanted, start, options)
                return
            except OffsetsGone as gone:
                start = _start_after_loss(gone, wanted, options)
            except UnknownTopic as unknown:
                if options.fail_on_data_loss:
                    raise DataLoss(str(unknown)) from None
                return


def _read(cluster: Cluster, wanted: OffsetRange, start: int, options: ReadOptions) -> Iterator[RecordBatch]:
    from odradek.spark.columns import ColumnBuilder

    builder = ColumnBuilder(
        options.columns,
        topic=wanted.topic,
        read_committed=options.read_committed,
        start=start,
        end=wanted.end,
    )
    fetcher = Fetcher(
        cluster,
        wanted.topic,
        wanted.partition,
        start,
        wanted.end,
        read_committed=options.read_committed,
        fetch_bytes=options.fetch_bytes,
    )
    try:
        for fetched in fetcher:
            yield from _rows_of(builder, fetched, wanted.partition)
    except (OffsetsGone, UnknownTopic):
        # The records that were fetched before still count.
        yield from _taken(builder)
        raise
    yield from _taken(builder)


def _rows_of(builder: ColumnBuilder, fetched: FetchedRecords, partition: int) -> Iterator[RecordBatch]:
    for piece in pieces(fetched.buffer) if not fetched.aborted else [fetched.buffer]:
        builder.add(piece, partition, fetched.aborted)
        if builder.rows >= BATCH_ROWS // 2 or builder.size_bytes >= BATCH_BYTES // 2:
            yield from _taken(builder)


def _taken(builder: ColumnBuilder) -> Iterator[RecordBatch]:
    while (batch := builder.take()) is not None:
        yield from bounded(batch)


def pieces(buffer: memoryview) -> Iterator[memoryview]:
    """Whole batches of about PIECE_BYTES, so that little is unpacked at once."""
    begin = position = 0
    while len(buffer) - position >= LOG_OVERHEAD_BYTES:
        position += LOG_OVERHEAD_BYTES + _SIZE.unpack_from(buffer, position + 8)[0]
        if position - begin >= PIECE_BYTES:
            yield buffer[begin:position]
            begin = position
    if begin < len(buffer):
        yield buffer[begin:]


def _start_after_loss(gone: OffsetsGone, wanted: OffsetRange, options: ReadOptions) -> int | None:
    """The offset to continue from; None if nothing of the range is left."""
    if options.fail_on_data_loss:
        raise DataLoss(str(gone)) from None
    # Before the log start: continue there. After the log end: nothing of the range is left.
    return gone.earliest if gone.wanted < gone.earliest < wanted.end else None


def bounded(batch: RecordBatch) -> Iterator[RecordBatch]:
    """The same rows in slices within BATCH_ROWS and BATCH_BYTES, not copied."""
    if batch.num_rows == 1 or (batch.num_rows <= BATCH_ROWS and batch.nbytes <= BATCH_BYTES):
        yield batch
        return
    half = batch.num_rows // 2
    yield from bounded(batch.slice(0, half))
    yield from bounded(batch.slice(half))
