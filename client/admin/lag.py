"""How far readers are behind: in offsets and in seconds.

offsets, _ = offsets_of_groups(cluster, groups)
bounds = partition_bounds(cluster, partitions)  # after the offsets, so that nothing is negative
seconds = seconds_behind(cluster, {(("orders", 0), 42)}, bounds)
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from odradek.client.admin.topics import describe_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from odradek.client.reading import PARTITION_BYTES, PartitionRecords, Reader
from odradek.client.stored_records import batches_of

FIRST_BYTES = 16 << 10
"""Size of the first request for each partition: most batches are smaller, and only one is looked at."""
MORE_TIMES = 4
"""Larger in each further request, up to the usual size."""

Bounds = tuple[int, int]
"""The first offset, and the one after the last that is replicated."""
Place = tuple[TopicPartition, int]
"""Where a group is in a partition."""


def partition_bounds(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Bounds]:
    """Bounds of the partitions that exist and have a leader; the others are left out, as are topics that the
    user may not describe."""
    topics = {topic for topic, _ in partitions}
    if not topics:
        return {}
    found, _ = describe_topics(cluster, topics)
    led = {(topic.name, one.partition) for topic in found for one in topic.partitions if one.leader >= 0}
    return offset_bounds(cluster, sorted(led.intersection(partitions)))


def offset_bounds(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """Bounds of partitions that all have to exist; ClientError else."""
    if not partitions:
        return {}
    starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    # Records may be deleted between the two responses.
    return {key: (starts[key], max(starts[key], ends[key])) for key in partitions}


def lag_of(offset: int | None, bounds: Bounds | None) -> int | None:
    """Lag in offsets, as Kafka's tools count it, not in records. 0 past the end; None without commit or
    end."""
    return None if offset is None or bounds is None else max(0, bounds[1] - offset)


def seconds_behind(
    cluster: Cluster, places: Iterable[Place], bounds: Mapping[TopicPartition, Bounds], now_ms: int
) -> dict[Place, float]:
    """How old the first record from each place on is: 0 where there is none. Places of which it cannot be
    said are left out: records without a time, partitions without bounds, or that the user may not read."""
    wanted = [place for place in places if place[0] in bounds]
    times = _first_times(cluster, wanted, bounds)
    return {
        place: 0.0 if time is None else max(0, now_ms - time) / 1000
        for place, time in times.items()
        if time is None or time >= 0
    }


def first_times(
    cluster: Cluster, places: Iterable[Place], bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    """The timestamp (ms) of the first record from each place on, one in a partition. Left out is where there
    is none, and where it cannot be said."""
    times = _first_times(cluster, places, bounds)
    return {key: time for (key, _), time in times.items() if time is not None and time >= 0}


def _first_times(
    cluster: Cluster, places: Iterable[Place], bounds: Mapping[TopicPartition, Bounds]
) -> dict[Place, int | None]:
    """Timestamps; None where no record is to come."""
    times: dict[Place, int | None] = {}
    left: dict[TopicPartition, dict[int, list[Place]]] = defaultdict(dict)
    for place in places:
        key, offset = place
        position = max(offset, bounds[key][0])
        if position >= bounds[key][1]:
            times[place] = None
        else:
            left[key].setdefault(position, []).append(place)
    while left:
        left = _look(cluster, left, bounds, times)
    return times


def _look(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, dict[int, list[Place]]],
    bounds: Mapping[TopicPartition, Bounds],
    times: dict[Place, int | None],
) -> dict[TopicPartition, dict[int, list[Place]]]:
    """Reads once in each partition, from the first position on; returns the positions that are left."""
    left: dict[TopicPartition, dict[int, list[Place]]] = {}
    firsts = {key: min(positions) for key, positions in wanted.items()}
    reader = Reader(
        cluster,
        {key: (first, first + 1) for key, first in firsts.items()},
        read_committed=False,
        skipped=lambda *_: None,
        refused=lambda *_: None,
        partition_bytes=FIRST_BYTES,
    )
    for fetched in reader:
        reader.partition_bytes = min(PARTITION_BYTES, reader.partition_bytes * MORE_TIMES)
        key = fetched.topic, fetched.partition
        rest = _take(fetched, wanted[key], bounds[key][1], times)
        if rest:
            left[key] = rest
    return left


def _take(
    fetched: PartitionRecords,
    positions: Mapping[int, list[Place]],
    end: int,
    times: dict[Place, int | None],
) -> dict[int, list[Place]]:
    """Puts what is known now into `times`; returns the positions from where to look on."""
    rest: dict[int, list[Place]] = {}
    for position, places in positions.items():
        time = _first_time(fetched, position) if position < fetched.next_offset else None
        if time is not None or fetched.next_offset >= end:
            times.update(dict.fromkeys(places, time))
        else:
            rest.setdefault(max(position, fetched.next_offset), []).extend(places)
    return rest


def _first_time(fetched: PartitionRecords, position: int) -> int | None:
    """The timestamp of the first record from the position on; -1 if it cannot be read or has none. Markers
    of transactions are no records."""
    try:
        for batch in batches_of(fetched._replace(start=position, end=None)):
            return batch.records[0].timestamp
    except ClientError:
        return -1
    return None
