"""From options to rows of segment files: the pieces to read, and a piece as Arrow batches. Without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.spark.log_files import LogPartition, Piece, find_partitions, read_piece
from odradek.spark.log_filters import Narrowed
from odradek.spark.log_options import LogOptions
from odradek.spark.options import (
    Assigned,
    Bound,
    ByOffset,
    ByTimestamp,
    Matching,
    OptionError,
    Subscribed,
    check_bound,
)

if TYPE_CHECKING:
    import pyarrow

_NO_RECORD_IS_BEHIND = 2**63 - 1


def batches_of(options: LogOptions, piece: Piece) -> Iterator[pyarrow.RecordBatch]:
    """The rows of one piece. LogFilesError and CorruptRecords for unsound bytes."""
    from odradek.spark.columns import ColumnBuilder

    builder = ColumnBuilder(
        options.columns,
        topic=piece.topic,
        read_committed=options.read_committed,
        start=piece.start,
        end=piece.end,
        check_crcs=options.check_crcs,
    )
    for records in read_piece(piece):
        builder.add(records.buffer, piece.partition, records.aborted, piece.open_from)
        while (batch := builder.take()) is not None:
            yield batch


# Planning ---------------------------------------------------------------------------------------------


def plan(options: LogOptions, narrowed: Narrowed) -> list[Piece]:
    """The pieces of segments that the options select and `narrowed` leaves."""
    wanted = _wanted(find_partitions(options.paths), options.subscription)
    keys = {(one.topic, one.partition) for one in wanted}
    check_bound(options.start, keys)
    check_bound(options.end, keys)
    pieces = []
    for partition in wanted:
        if narrowed.takes(partition.topic, partition.partition):
            start, end = _range(options, narrowed, partition)
            pieces += partition.pieces(
                start,
                end,
                with_transactions="transactionState" in options.columns,
                read_committed=options.read_committed,
                max_bytes=options.max_bytes_per_partition,
            )
    return pieces


def _wanted(
    found: list[LogPartition], subscription: Subscribed | Matching | Assigned | None
) -> list[LogPartition]:
    if subscription is None:
        return [one for one in found if not one.topic.startswith("__")]
    if isinstance(subscription, Matching):
        matches = re.compile(subscription.pattern).fullmatch
        return [one for one in found if matches(one.topic)]
    there = {(one.topic, one.partition) for one in found}
    topics = {topic for topic, _ in there}
    if isinstance(subscription, Subscribed):
        for name in subscription.topics:
            if name not in topics:
                raise OptionError(
                    f"subscribe names topic {name}, of which path has no partition: {_few(topics)}"
                )
        return [one for one in found if one.topic in subscription.topics]
    for name, numbers in subscription.partitions.items():
        for number in numbers:
            if (name, number) not in there:
                raise OptionError(f"assign names {name}-{number}, which path does not have: {_few(topics)}")
    return [one for one in found if one.partition in subscription.partitions.get(one.topic, ())]


def _few(topics: set[str]) -> str:
    """The existing topics, for a user who has mistyped a name."""
    listed = sorted(topic for topic in topics if not topic.startswith("__"))
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return f"it has {', '.join(listed[:5]) or 'none'}{more}"


def _range(options: LogOptions, narrowed: Narrowed, partition: LogPartition) -> tuple[int, int]:
    """[start, end) as offsets; beyond every offset where there is no bound."""
    start = _offset(options.start, partition)
    if start is None:
        start = _NO_RECORD_IS_BEHIND if isinstance(options.start, ByTimestamp) else 0
    end = _offset(options.end, partition)
    if end is None:
        end = _NO_RECORD_IS_BEHIND
    if narrowed.first_timestamp_ms is not None:
        found = partition.offset_at(narrowed.first_timestamp_ms)
        start = max(start, _NO_RECORD_IS_BEHIND if found is None else found)
    return max(start, narrowed.start), min(end, narrowed.end)


def _offset(bound: Bound, partition: LogPartition) -> int | None:
    """None: no bound, or a timestamp that no record has reached."""
    if isinstance(bound, ByOffset):
        offset = bound.offsets[partition.topic][partition.partition]
        return offset if offset >= 0 else None
    if isinstance(bound, ByTimestamp):
        of_all = bound.timestamp_ms
        if not isinstance(of_all, int):
            of_all = of_all[partition.topic][partition.partition]
        return partition.offset_at(of_all)
    return None
