"""`spark.read.format("odradek")`: the ends are listed when a query is planned, and tasks read up to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from odradek.client.cluster import Cluster
from odradek.spark.offsets import OffsetRange, flat, latest_offsets, nested, plan, resolve_end, resolve_start
from odradek.spark.options import Offsets, ReadOptions
from odradek.spark.range_reader import DataLoss, read_range

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class BatchReader(DataSourceReader):
    """The partitions of a batch query, and the rows of each."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(one) for one in planned(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[RecordBatch]:
        # For a query without partitions Spark makes one task with None, or with a partition of None.
        wanted = None if partition is None else partition.value
        return iter(()) if wanted is None else read_range(wanted, self._options)


def planned(options: ReadOptions) -> list[OffsetRange]:
    """The ranges of the tasks, from the present starts and ends of the topics."""
    with Cluster(options.settings) as cluster:
        latest = latest_offsets(cluster, options)
        ends = dict(flat(_reachable(resolve_end(cluster, options, latest), latest, options)))
        starts = flat(resolve_start(cluster, options, latest))
        return plan((OffsetRange(*key, start, ends[key]) for key, start in starts), options)


def _reachable(end: Offsets, latest: Offsets, options: ReadOptions) -> Offsets:
    """`end`, limited to the ends of the logs; DataLoss for a log that ends before, with `failOnDataLoss`."""
    there = dict(flat(latest))
    for (topic, partition), offset in flat(end):
        if offset > there[topic, partition] and options.fail_on_data_loss:
            ends_at = f"ends at {there[topic, partition]}"
            if options.read_committed:
                ends_at += " for readers of what is committed"
            raise DataLoss(f"endingOffsets wants {topic}-{partition} up to {offset}, and it {ends_at}")
    return nested((key, min(offset, there[key])) for key, offset in flat(end))
