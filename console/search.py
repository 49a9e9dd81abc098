"""Records of a topic in steps: each ends in time, and says where the next one goes on.

    step = search(cluster, "orders", Wanted(bounds, positions, is_newest_first=True, ...))
    step.hits, step.positions, step.left

A step reads windows of offsets of all partitions, larger ones as long as that is quick. Newest first it goes
back from the ends. What is shown is in the order of the partitions, and between partitions in that of time.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.client.cluster import Cluster
from odradek.client.reading import PARTITION_BYTES, Reader
from odradek.client.stored_records import batches_of
from odradek.console.contents import Contents, Shown, header_texts
from odradek.console.filters import Chooses
from odradek.wire.record_layout import Record

STEP_S = 2.0
"""How long one step takes, with one window more at most."""
QUICK_S = 0.25
"""A window that was read in this time is followed by a larger one."""
SLOW_S = 0.8
FIRST_WINDOW = 4
"""Offsets of each partition: the first records may be large."""
WINDOW_MAX = 1 << 17
WINDOW_RECORD_BYTES = 1 << 10
"""Expected size of a record, for the size of responses."""
DECODE_S = 2.0
"""Bound of the time in which what is shown is decoded, with one record more at most."""
KEPT_BYTES_MAX = 64 << 10
"""Size of a record that waits until it is known whether it is shown."""
FETCH_BYTES_MIN = 32 << 10


@dataclass(frozen=True, slots=True)
class Hit:
    """A record as a list shows it."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: Shown
    value: Shown
    headers: list[tuple[str, str]]


class _Found(NamedTuple):
    """A record that is chosen, and may be shown."""

    partition: int
    timestamp_type: str
    record: Record

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def timestamp_ms(self) -> int:
        return self.record.timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Records that a step looks for."""

    topic: str
    bounds: Mapping[int, tuple[int, int]]
    """First offset and the one after the last, by partition."""
    positions: Mapping[int, int]
    """Where to go on: the next offset, or, newest first, the one after it."""
    is_newest_first: bool
    limit: int
    chooses: Chooses | None
    contents: Contents
    read_committed: bool = True


@dataclass(slots=True)
class Step:
    """The result of a step."""

    hits: list[Hit]
    positions: dict[int, int]
    """Where the next step goes on."""
    left: int
    """Offsets that are left to search."""
    looked_at: int = 0
    """Records that were read."""
    reached_ms: int | None = None
    """The time of the record that was looked at last."""


@dataclass(slots=True)
class _Reached:
    """Hits and places so far."""

    positions: dict[int, int]
    hits: "dict[int, list[Hit | _Found]]"
    """By partition, in the order of the search; one more than the limit at most."""
    looked_at: int = 0
    reached_ms: int | None = None
    window: int = FIRST_WINDOW
    full: set[int] = field(default_factory=set)
    """Partitions with more hits than can be shown."""


def search(cluster: Cluster, wanted: Wanted, clock: Callable[[], float] = time.monotonic) -> Step:
    """One step. ClientError for what cannot be read."""
    reached = _Reached(dict(wanted.positions), {number: [] for number in wanted.positions})
    began = clock()
    while True:
        windows = _windows(wanted, reached)
        if not windows:
            break
        before = clock()
        _read(cluster, wanted, windows, reached)
        after = clock()
        if sum(map(len, reached.hits.values())) >= wanted.limit or after - began >= STEP_S:
            break
        if after - before < QUICK_S:
            reached.window = min(WINDOW_MAX, 4 * reached.window)
        elif after - before > SLOW_S:
            reached.window = max(1, reached.window // 2)
    return _merged(wanted, reached, clock)


def _windows(wanted: Wanted, reached: _Reached) -> dict[int, tuple[int, int]]:
    windows = {}
    for number, position in reached.positions.items():
        start, end = wanted.bounds[number]
        if wanted.is_newest_first:
            window = max(start, position - reached.window), min(position, end)
        else:
            window = max(position, start), min(end, position + reached.window)
        if window[0] < window[1] and number not in reached.full:
            windows[number] = window
    return windows


def _read(
    cluster: Cluster, wanted: Wanted, windows: Mapping[int, tuple[int, int]], reached: _Reached
) -> None:
    found: dict[int, list[Hit | _Found]] = {number: [] for number in windows}
    keeps = wanted.limit + 1
    reader = Reader(
        cluster,
        {(wanted.topic, number): window for number, window in windows.items()},
        read_committed=wanted.read_committed,
        skipped=lambda *_: None,
        partition_bytes=min(PARTITION_BYTES, max(FETCH_BYTES_MIN, reached.window * WINDOW_RECORD_BYTES)),
    )
    for fetched in reader:
        hits = found[fetched.partition]
        for batch in batches_of(fetched):
            for record in batch.records:
                reached.looked_at += 1
                reached.reached_ms = record.timestamp
                if wanted.chooses is not None and not wanted.chooses(record):
                    continue
                if wanted.is_newest_first or len(hits) < keeps:
                    one = _Found(fetched.partition, batch.timestamp_type, record)
                    # A large record does not stay in memory: its beginning is all that is shown.
                    hits.append(_hit(wanted, one) if _size(record) > KEPT_BYTES_MAX else one)
                    if len(hits) > keeps:
                        del hits[0]
    for number, (start, end) in windows.items():
        hits = reached.hits[number]
        hits += reversed(found[number]) if wanted.is_newest_first else found[number]
        reached.positions[number] = start if wanted.is_newest_first else end
        if len(hits) > wanted.limit:
            reached.full.add(number)
            del hits[keeps:]


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")


def _hit(wanted: Wanted, found: "_Found", *, in_time: bool = True) -> Hit:
    record = found.record
    key, value = wanted.contents.both(record) if in_time else wanted.contents.not_decoded(record)
    return Hit(
        found.partition,
        record.offset,
        record.timestamp,
        found.timestamp_type,
        key,
        value,
        header_texts(record.headers),
    )


def _decoded(wanted: Wanted, chosen: "list[Hit | _Found]", clock: Callable[[], float]) -> list[Hit]:
    """Hits of the chosen records, decoded as long as there is time: schemas may come from elsewhere, and a
    content may be slow to decode."""
    until = clock() + DECODE_S
    return [one if isinstance(one, Hit) else _hit(wanted, one, in_time=clock() < until) for one in chosen]


def _merged(wanted: Wanted, reached: _Reached, clock: Callable[[], float]) -> Step:
    """The first hits of all partitions; the others are found again by the next step."""
    queues = {number: hits for number, hits in reached.hits.items() if hits}
    places = dict.fromkeys(queues, 0)
    chosen: list[Hit | _Found] = []
    best = max if wanted.is_newest_first else min
    while queues and len(chosen) < wanted.limit:
        number = best(queues, key=lambda one: (queues[one][places[one]].timestamp_ms, -one))
        chosen.append(queues[number][places[number]])
        places[number] += 1
        if places[number] == len(queues[number]):
            del queues[number]
    positions = dict(reached.positions)
    for number, rest in queues.items():
        following = rest[places[number]].offset
        positions[number] = following + 1 if wanted.is_newest_first else following
    return Step(
        _decoded(wanted, chosen, clock),
        positions,
        _left(wanted, positions),
        reached.looked_at,
        reached.reached_ms,
    )


def _left(wanted: Wanted, positions: Mapping[int, int]) -> int:
    left = 0
    for number, position in positions.items():
        start, end = wanted.bounds[number]
        left += max(0, position - start) if wanted.is_newest_first else max(0, end - position)
    return left
