"""From options to ranges of offsets: which partitions, from where to where, in which tasks, how much at once.

The arithmetic is the same as in Spark's Kafka source, so a job that changes its format keeps its tasks and
its batches. `Offsets` go into Spark's checkpoints as the same JSON that Spark's source writes there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from odradek.client.client_error import ClientError
from odradek.client.cluster import EARLIEST, LATEST, Cluster
from odradek.client.patience import Patience
from odradek.spark.options import (
    Assigned,
    Bound,
    ByOffset,
    ByTimestamp,
    Everywhere,
    Matching,
    Offsets,
    OptionError,
    ReadOptions,
    check_bound,
)

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The part that one task reads: [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets; compaction and transactions may leave fewer records."""
        return self.end - self.start


# -- in Spark's checkpoints


def to_checkpoint(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets for Spark's checkpoint; sorted, because Spark compares them as text."""
    return {
        topic: {str(partition): offset for partition, offset in sorted(of_topic.items())}
        for topic, of_topic in sorted(offsets.items())
        if of_topic
    }


def from_checkpoint(kept: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {topic: {int(number): offset for number, offset in of.items()} for topic, of in kept.items()}


def to_json(offsets: Offsets) -> str:
    """`{"topic":{"0":23}}`, as Spark's source writes it."""
    return json.dumps(to_checkpoint(offsets), separators=(",", ":"))


def from_json(text: str) -> Offsets:
    return from_checkpoint(json.loads(text))


def flat(offsets: Offsets) -> Iterator[tuple[TopicPartition, int]]:
    """((topic, partition), offset), in order."""
    for topic, of_topic in sorted(offsets.items()):
        for partition, offset in sorted(of_topic.items()):
            yield (topic, partition), offset


def nested(found: Iterable[tuple[TopicPartition, int]]) -> Offsets:
    offsets: Offsets = {}
    for (topic, partition), offset in found:
        offsets.setdefault(topic, {})[partition] = offset
    return offsets


# -- from the cluster


def partitions_read(cluster: Cluster, options: ReadOptions) -> list[TopicPartition]:
    """The present partitions of a read; OptionError for a topic that does not exist."""
    subscription = options.subscription
    if isinstance(subscription, Assigned):
        numbers = _numbers_of(cluster, subscription.partitions)
        wanted = [(topic, n) for topic, of_topic in subscription.partitions.items() for n in of_topic]
        _refuse_unknown(wanted, numbers)
        return wanted
    if isinstance(subscription, Matching):
        names = cluster.topics(subscription.pattern)
        numbers = cluster.partitions_of(names) if names else {}
    else:
        numbers = _numbers_of(cluster, subscription.topics)
        _refuse_unknown([(topic, 0) for topic in subscription.topics], numbers)
    return [(topic, n) for topic, count in sorted(numbers.items()) for n in range(count)]


def _numbers_of(cluster: Cluster, topics: Collection[str]) -> dict[str, int]:
    """The number of partitions of each topic; a broker that has just started may not know it for a moment."""
    patience = Patience(cluster.settings)
    while True:
        numbers = cluster.partitions_of(topics)
        if len(numbers) == len(topics) or patience.waited_ms() >= cluster.settings.unknown_topic_ms:
            return numbers
        patience.pause("looking for topics", ClientError("some are unknown"))


def _refuse_unknown(wanted: list[TopicPartition], numbers: Mapping[str, int]) -> None:
    for topic, partition in wanted:
        if topic not in numbers:
            raise OptionError(f"topic {topic} does not exist: create it, or look for a slip in its name")
        if partition >= numbers[topic]:
            raise OptionError(
                f"assign names {topic}-{partition}, and that topic has {numbers[topic]} partitions"
            )


def latest_offsets(
    cluster: Cluster, options: ReadOptions, partitions: Iterable[TopicPartition] | None = None
) -> Offsets:
    """The end of each partition that is read; with read_committed the last stable offset."""
    wanted = partitions_read(cluster, options) if partitions is None else list(partitions)
    if not wanted:
        return {}
    found = cluster.list_offsets(dict.fromkeys(wanted, LATEST), read_committed=options.read_committed)
    return nested(found.items())


def earliest_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    wanted = dict.fromkeys(partitions, EARLIEST)
    return cluster.list_offsets(wanted) if wanted else {}


def resolve_start(cluster: Cluster, options: ReadOptions, latest: Offsets) -> Offsets:
    """The start of the read in each partition; `latest` has their ends.

    OptionError if a partition is not named, or has no record as late as the given timestamp.
    """
    return _resolve(cluster, options, options.start, latest, options.unmatched_is_latest)


def resolve_end(cluster: Cluster, options: ReadOptions, latest: Offsets) -> Offsets:
    """The end of the read; a partition without a record as late as the given timestamp is read whole."""
    return _resolve(cluster, options, options.end, latest, unmatched_is_latest=True)


def _resolve(
    cluster: Cluster, options: ReadOptions, bound: Bound, latest: Offsets, unmatched_is_latest: bool
) -> Offsets:
    ends = dict(flat(latest))
    check_bound(bound, ends)
    requested = _requested(bound, ends)
    if isinstance(bound, ByTimestamp):
        found = _by_timestamp(cluster, bound, requested, ends, unmatched_is_latest, options.read_committed)
        return nested(found)
    # The ends are known already: a second request could return later ones.
    earliest = earliest_offsets(cluster, [key for key, place in requested.items() if place == EARLIEST])
    return nested(
        (key, ends[key] if place == LATEST else earliest.get(key, place)) for key, place in requested.items()
    )


def _requested(bound: Bound, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The requested offset or timestamp of each partition."""
    if isinstance(bound, Everywhere):
        return dict.fromkeys(partitions, bound.offset)
    given = bound.offsets if isinstance(bound, ByOffset) else bound.timestamp_ms
    if isinstance(given, int):
        return dict.fromkeys(partitions, given)
    return dict(flat(given))


def _by_timestamp(
    cluster: Cluster,
    bound: ByTimestamp,
    requested: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    unmatched_is_latest: bool,
    read_committed: bool,
) -> Iterator[tuple[TopicPartition, int]]:
    if not requested:
        return
    for key, offset in cluster.list_offsets(requested, read_committed).items():
        if offset >= 0:
            # A record that came after the ends were listed belongs to the next read.
            yield key, min(offset, ends[key])
        elif unmatched_is_latest:
            yield key, ends[key]
        else:
            raise OptionError(
                f"No offset matched {bound.option} {requested[key]} in {key[0]}-{key[1]}: it has no record "
                "that late; give an earlier time, or startingOffsetsByTimestampStrategy=latest to start "
                "at its end"
            )


# -- tasks


def plan(ranges: Iterable[OffsetRange], options: ReadOptions) -> list[OffsetRange]:
    """The ranges of the tasks, ordered by topic, partition and offset; empty ones are left out.

    A range of more than `maxRecordsPerPartition` offsets is split evenly; if there are fewer ranges than
    `minPartitions` then, the larger ones are split in proportion to their sizes, which gives about that many.
    """
    split = sorted(one for one in ranges if one.size > 0)
    most = options.max_records_per_partition
    if most is not None:
        split = [part for one in split for part in _divided(one, -(-one.size // most))]
    if options.min_partitions is not None and len(split) < options.min_partitions:
        split = _split_by_size(split, options.min_partitions)
    return split


def _split_by_size(ranges: list[OffsetRange], at_least: int) -> list[OffsetRange]:
    total = sum(one.size for one in ranges)
    # Ranges too small for a second task would make the shares of the others too small, too.
    small = {one for one in ranges if _share(one.size, total, at_least) == 1}
    rest_total = total - sum(one.size for one in small)
    rest_tasks = max(at_least - len(small), 1)
    return [
        part
        for one in ranges
        for part in ([one] if one in small else _divided(one, _share(one.size, rest_total, rest_tasks)))
    ]


def _share(size: int, total: int, tasks: int) -> int:
    # Half up, as Java rounds; Python's round would go to the even one.
    return max(math.floor(size / total * tasks + 0.5), 1)


def _divided(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Even parts of at least one offset, the larger ones last."""
    bounds, start, remaining = [], whole.start, whole.size
    for part in range(parts):
        size = remaining // (parts - part)
        remaining -= size
        bounds.append(OffsetRange(whole.topic, whole.partition, start, start + size))
        start += size
    return [one for one in bounds if one.size > 0]


# -- how much at once


def size_between(start: Offsets, end: Offsets) -> int:
    """Offsets from `start` to `end`; a partition that `start` lacks counts from 0, as in Spark's source."""
    return sum(offset - start.get(topic, {}).get(partition, 0) for (topic, partition), offset in flat(end))


def limited(start: Offsets, latest: Offsets, options: ReadOptions) -> Offsets:
    """The end of a batch from `start` with at most `maxOffsetsPerTrigger` offsets; see `ends_within`."""
    most = options.max_offsets_per_trigger
    return latest if most is None else ends_within(start, latest, most)


def waiting(start: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """The offsets that wait in each partition of `start` that has any."""
    begins = dict(flat(start))
    return {key: end - begins[key] for key, end in flat(latest) if key in begins and end > begins[key]}


def ends_within(
    start: Offsets, latest: Offsets, most: float, sizes: Mapping[TopicPartition, float] | None = None
) -> Offsets:
    """The end of a batch from `start` that is no larger than `most`; `sizes` has the size of an offset in
    each partition, which is 1 otherwise.

    Each partition gets a share by its backlog, and at least one offset if it has a backlog. A partition that
    `start` lacks keeps its offset in `latest`: include its beginning in `start`.
    """
    begins, counts = dict(flat(start)), waiting(start, latest)
    of_one = {key: 1.0 if sizes is None else sizes[key] for key in counts}
    total = sum(count * of_one[key] for key, count in counts.items())
    if not counts:
        return latest
    ends = dict(flat(latest))
    for key, count in counts.items():
        share = most * (count / total)
        ends[key] = begins[key] + min(count, math.ceil(share) if share < 1 else math.floor(share))
    return nested(ends.items())
