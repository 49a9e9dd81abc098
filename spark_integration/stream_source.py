"""`spark.readStream.format("odradek")`: micro-batches from the checkpoint, or from the start in the options.

PySpark 4.0 and 4.1 call `latestOffset()` without a start, so the reader remembers the last end that it
returned. Only the order of the calls shows the state of the query: `latestOffset()` comes first on a new
query and `initialOffset()` after it; on a restart `partitions(x, x)` comes first, where x is the last end
in the checkpoint, but with AvailableNow `latestOffset()` comes even before that. An idle query calls
`latestOffset()` about 90 times a second: a request to each leader, and one for metadata unless that takes too
long. From PySpark 4.2 on (`admission.py`) Spark passes a start and a limit, and on a restart no
`partitions(x, x)` comes.

Spark stores the end of the first batch, not its start. So a partition that starts at its end gets an empty
first batch: a query that is killed in its first batch skips nothing afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from odradek.client.cluster import LATEST, Cluster, UnknownTopic
from odradek.client.fetching import Fetcher, OffsetsGone
from odradek.spark.offsets import (
    OffsetRange,
    TopicPartition,
    earliest_offsets,
    ends_within,
    flat,
    from_checkpoint,
    latest_offsets,
    limited,
    nested,
    partitions_read,
    plan,
    resolve_start,
    size_between,
    to_checkpoint,
    waiting,
)
from odradek.spark.options import Offsets, ReadOptions
from odradek.spark.range_reader import DataLoss, read_range

if TYPE_CHECKING:
    from pyarrow import RecordBatch

METADATA_PARTITIONS = 1000
"""Up to so many partitions, metadata are requested for every batch."""
METADATA_SHARE = 20
"""For more partitions, metadata requests may take one part in this many of the time."""
SAMPLE_BYTES = 64 * 1024
"""Bytes of a partition by which the size of its backlog is judged."""
BACKWARDS_ATTEMPTS = 3
BACKWARDS_PAUSE_S = 0.01

CheckpointOffsets = Mapping[str, Mapping[str, int]]
"""Offsets in the form of Spark's checkpoint."""


class StreamReader(DataSourceStreamReader):
    """A stream of PySpark 4.0 and 4.1. Spark makes one for the query, and one for the tasks of a batch."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._view = ClusterView(options)
        self._place: Offsets | None = None
        """The last end that was returned to Spark."""
        self._first: Offsets | None = None
        """The ends as they were when a new query began."""
        self._initial: Offsets | None = None
        self._restarted_at: Offsets | None = None
        self._has_given = False
        """Whether this reader has planned a batch, and not only the run before."""
        self._last_batch_s: float | None = None

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            if self._restarted_at is not None:
                self._initial = self._view.start_of_restarted(self._restarted_at)
            else:
                self._initial = self._view.start_of(self._first_ends())
        return to_checkpoint(self._initial)

    def latestOffset(self) -> dict[str, Any]:
        place, latest = self._place, None
        if place is None:
            latest = self._first_ends()
            # Only where there is a limit: an AvailableNow query may be one that was restarted, and the
            # options do not say where that one starts.
            is_limited = self._options.max_offsets_per_trigger is not None
            place = from_checkpoint(self.initialOffset()) if is_limited else {}
        latest = self._view.latest(place) if latest is None else latest
        self._place = self._next_end(place, latest, self._options)
        self._has_given = True
        return to_checkpoint(self._place)

    def partitions(self, start: CheckpointOffsets, end: CheckpointOffsets) -> Sequence[InputPartition]:
        self._place = from_checkpoint(end)
        if start == end:
            if self._initial is None:
                self._restarted_at = self._place
            return []
        begin, stop = from_checkpoint(start), self._place
        if not self._has_given:
            # The run before planned this batch. Its end may be deleted by now. If it is the first batch, the
            # present `initialOffset` may differ from the start at that time.
            stop = self._view.still_there(stop)
            if begin == self._initial:
                ends = dict(flat(stop))
                begin = nested((key, min(at, ends[key])) for key, at in flat(begin) if key in ends)
        ranges = self._view.ranges(begin, stop)
        return [InputPartition(one) for one in plan(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return read_range(partition.value, self._options)

    def stop(self) -> None:
        self._view.close()

    def _first_ends(self) -> Offsets:
        if self._first is None:
            self._first = self._view.latest({})
        return self._first

    def _next_end(self, start: Offsets, latest: Offsets, options: ReadOptions) -> Offsets:
        """The end of the batch from `start`; `start` itself while the batch has to wait."""
        return start if self._is_to_wait(start, latest, options) else self._limited(start, latest, options)

    def _limited(self, start: Offsets, latest: Offsets, options: ReadOptions) -> Offsets:
        if options.max_offsets_per_trigger is not None:
            return limited(self._view.with_beginnings(start, latest), latest, options)
        if options.max_bytes_per_trigger is not None:
            begin = self._view.with_beginnings(start, latest)
            sizes = self._view.bytes_of_offsets(begin, latest)
            return ends_within(begin, latest, options.max_bytes_per_trigger, sizes)
        return latest

    def _is_to_wait(self, start: Offsets, latest: Offsets, options: ReadOptions) -> bool:
        """Whether `minOffsetsPerTrigger` are missing and `maxTriggerDelay` has not passed."""
        least, now_s = options.min_offsets_per_trigger, time.monotonic()
        if least is None:
            return False
        delay_s = options.max_trigger_delay_ms / 1000
        # The first batch never waits, as in Spark's source.
        is_due = self._last_batch_s is None or now_s - self._last_batch_s >= delay_s
        if not is_due and size_between(start, latest) < least:
            return True
        self._last_batch_s = now_s
        return False

    def __getstate__(self) -> dict[str, Any]:
        """For the tasks, which need only the options."""
        return {"_options": self._options}


class ClusterView:
    """The requests of a query to the cluster, over connections that stay open between its batches."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._cluster = Cluster(options.settings)
        self._partitions: list[TopicPartition] | None = None
        self._next_metadata_s = 0.0

    def close(self) -> None:
        self._cluster.close()

    def latest(self, place: Offsets) -> Offsets:
        """The present end of each partition; not before `place` if the log still reaches it."""
        found = self._listed()
        for _ in range(BACKWARDS_ATTEMPTS):
            behind = _behind(place, found)
            if not behind:
                break
            # The last stable offset may move back, and a new leader's high watermark may be lower for a
            # moment. Only a log end that stays lower means lost records.
            ends = self._cluster.list_offsets(dict.fromkeys(behind, LATEST))
            found = nested([*flat(found), *((key, at) for key, at in behind.items() if ends[key] >= at)])
            time.sleep(BACKWARDS_PAUSE_S)
        return found

    def still_there(self, planned: Offsets) -> Offsets:
        """`planned`, limited to the ends of the logs; DataLoss for a log that ends before, with
        `failOnDataLoss`."""
        there = set(self._current_partitions())
        ends = self._cluster.list_offsets({key: LATEST for key, _ in flat(planned) if key in there})
        for key, end in flat(planned):
            if ends.get(key, end) < end:
                self._report_loss(
                    f"{_name(key)} ends at {ends[key]}, where records up to {end} were to be read"
                )
        return nested((key, min(end, ends[key])) for key, end in flat(planned) if key in ends)

    def start_of_restarted(self, planned: Offsets) -> Offsets:
        """The start of a query whose first batch, up to `planned`, is not complete.

        At most `planned` in each partition, because the ends have moved since.
        """
        there = set(self._current_partitions())
        ends = {key: end for key, end in flat(planned) if key in there}
        start = self.start_of(latest_offsets(self._cluster, self._options, ends))
        return nested((key, min(offset, ends[key])) for key, offset in flat(start))

    def start_of(self, latest: Offsets) -> Offsets:
        return resolve_start(self._cluster, self._options, latest)

    def with_beginnings(self, start: Offsets, latest: Offsets) -> Offsets:
        """`start` with the first offset of each partition that only `latest` has."""
        known = dict(flat(start))
        return nested({**earliest_offsets(self._cluster, _new(known, latest)), **known}.items())

    def bytes_of_offsets(self, start: Offsets, latest: Offsets) -> dict[TopicPartition, float]:
        """The bytes of an offset in each partition with a backlog, as they are stored: the mean of the first
        records, a Fetch for each partition. 1 where these are gone, which the tasks find out."""
        sizes = {}
        for key in waiting(start, latest):
            begin = start[key[0]][key[1]]
            fetcher = Fetcher(
                self._cluster,
                *key,
                begin,
                begin + 1,
                read_committed=self._options.read_committed,
                fetch_bytes=SAMPLE_BYTES,
            )
            try:
                sizes[key] = next(
                    (max(len(one.buffer) / (one.next_offset - begin), 1.0) for one in fetcher), 1.0
                )
            except OffsetsGone:
                sizes[key] = 1.0
        return sizes

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """The ranges from `start` to `end`; DataLoss for deleted records, with `failOnDataLoss`."""
        starts, ends = dict(flat(start)), dict(flat(end))
        gone = sorted(starts.keys() - ends.keys())
        if gone:
            self._report_loss(f"{_names(gone)} were read before and are gone")
        new = _new(starts, end)
        if new:
            starts.update(self._beginnings(new))
        ranges = []
        for key, stop in ends.items():
            if key not in starts:
                continue
            if stop < starts[key]:
                self._report_loss(
                    f"{_name(key)} ends at {stop}, and ended at {starts[key]} before: it was made anew"
                )
            ranges.append(OffsetRange(*key, starts[key], stop))
        return ranges

    def _beginnings(self, new: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets of new partitions: 0 if no record was missed."""
        try:
            beginnings = earliest_offsets(self._cluster, new)
        except UnknownTopic:
            self._report_loss(f"{_names(new)} are gone before they were read")
            return {}
        for key, offset in beginnings.items():
            if offset > 0:
                self._report_loss(f"the new partition {_name(key)} begins at {offset} and not at 0")
        return beginnings

    def _report_loss(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(what)

    def _listed(self) -> Offsets:
        partitions = self._current_partitions()
        try:
            return latest_offsets(self._cluster, self._options, partitions)
        except UnknownTopic:
            # A topic was deleted: request the metadata again.
            self._next_metadata_s = 0.0
            return latest_offsets(self._cluster, self._options, self._current_partitions())

    def _current_partitions(self) -> list[TopicPartition]:
        """The present partitions of the read, or recent ones if there are very many."""
        began_s = time.monotonic()
        known = self._partitions
        if known is not None and len(known) > METADATA_PARTITIONS and began_s < self._next_metadata_s:
            return known
        self._partitions = partitions_read(self._cluster, self._options)
        ended_s = time.monotonic()
        self._next_metadata_s = ended_s + METADATA_SHARE * (ended_s - began_s)
        return self._partitions


def _behind(place: Offsets, found: Offsets) -> dict[TopicPartition, int]:
    """Places after the ends in `found`."""
    ends = dict(flat(found))
    return {key: at for key, at in flat(place) if key in ends and ends[key] < at}


def _new(known: Mapping[TopicPartition, int], end: Offsets) -> list[TopicPartition]:
    return [key for key, _ in flat(end) if key not in known]


def _name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _names(partitions: Sequence[TopicPartition]) -> str:
    more = f" and {len(partitions) - 3} more" if len(partitions) > 3 else ""
    return ", ".join(map(_name, partitions[:3])) + more
