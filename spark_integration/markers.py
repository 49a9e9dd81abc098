"""Exactly once for the sink: a task writes a marker in the transaction of its rows.

The marker of a task (query, number of the task in the plan) holds the epoch, how many rows it wrote, their
checksum and a sample of their hashes. It is written twice in the same transaction: as a committed offset of
the group `odradek-spark-QUERY`, which is fast to read, and as a record of the markers topic, which is
compacted and outlives `offsets.retention.minutes`.

A task compares its rows with all markers of its query, not only with its own: Spark's Kafka source may assign
the same offsets to other tasks when an epoch runs again. Rows that a task of any number has written are not
written again. `judge` refuses rows that differ from the written ones. At the end the driver checks what no
task can see: all written rows have to come again (`settle`).

A task has place NUMBER modulo 16 in the markers topic and in the offsets of the group; tasks from 16 on have
groups of their own, `odradek-spark-QUERY-1` for 16 to 31 and so on. Place 16 is the driver's: once all tasks
are done it writes their number there. Nothing new is written for a complete epoch.
"""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow

from odradek.client import group_offsets
from odradek.client.admin.topics import create_topic
from odradek.client.client_error import ClientError
from odradek.client.cluster import EARLIEST, LATEST, Cluster
from odradek.client.fetching import FetchedRecords, Fetcher
from odradek.client.producing import Placement, Producer
from odradek.spark.batching import Batches
from odradek.wire.compression import Compression
from odradek.wire.record_layout import Record
from odradek.wire.records import iter_batches, iter_records

MARKERS_TOPIC = "odradek-spark-markers"
PLACES = 16
"""Number of the places for tasks. Never another number: it decides where a marker is looked for."""
DRIVER_PLACE = PLACES
PARTITIONS = PLACES + 1
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    # Small segments, cleaned often: a new query reads a partition of it from its start.
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
REMEDY = (
    "run the epoch with the same query, input and number of partitions as before, or begin a new query with "
    "a new checkpoint (a batch write: with another writeId)"
)


class MarkerError(ClientError):
    """The epoch cannot be written without losing or doubling rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that one attempt at a task has written, or would write."""

    run: str
    """The id of a run of the epoch, the same for all its tasks."""
    rows: int
    checksum: int
    sample: tuple[int, ...]
    """Some hashes of the rows, see `Batches.sample`."""

    def is_same(self, other: Rows) -> bool:
        return (self.rows, self.checksum, self.sample) == (other.rows, other.checksum, other.sample)

    def overlaps(self, other: Rows) -> bool:
        """Whether both certainly have a row in common."""
        return not set(self.sample).isdisjoint(other.sample)


@dataclass(frozen=True, slots=True)
class Attached:
    """Place of the texts that a task's transactions have attached to its marker (`attach`)."""

    epoch: int
    """Epoch of the job; the texts of one epoch belong together."""
    count: int
    last_offset: int
    """Offset of the last text in the task's partition of the markers topic. Each text has the offset
    before."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The rows that tasks of one number have written in an epoch: mostly one entry, more if the epoch ran
    again and Spark assigned its input to the tasks anew."""

    epoch: int
    entries: tuple[Rows, ...]
    attached: Attached | None = None

    def to_json(self) -> str:
        entries = [
            {
                "run": entry.run,
                "rows": entry.rows,
                "checksum": f"{entry.checksum:016x}",
                "sample": base64.b64encode(struct.pack(f">{len(entry.sample)}Q", *entry.sample)).decode(),
            }
            for entry in self.entries
        ]
        fields: dict[str, Any] = {"epoch": self.epoch, "written": entries}
        if self.attached is not None:
            fields["attached"] = [*astuple(self.attached)]
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Marker:
        try:
            fields = json.loads(text)
            attached = Attached(*map(int, fields["attached"])) if "attached" in fields else None
            return cls(int(fields["epoch"]), tuple(map(_entry, fields["written"])), attached)
        except (ValueError, KeyError, TypeError, struct.error) as error:
            raise MarkerError(f"{text[:100]!r} is not a marker of format odradek: {error}") from None


def _entry(fields: dict[str, Any]) -> Rows:
    sample = base64.b64decode(fields["sample"], validate=True)
    hashes = struct.unpack(f">{len(sample) // 8}Q", sample)
    return Rows(str(fields["run"]), int(fields["rows"]), int(fields["checksum"], 16), hashes)


def transactional_id(query: str, number: int) -> str:
    """The transactional id of a task of a query."""
    return f"odradek-spark-{query}-{number}"


def group(query: str, number: int) -> str:
    """The group that holds the task's marker."""
    more = number // PLACES
    return f"odradek-spark-{query}" + (f"-{more}" if more else "")


def judge(
    markers: Mapping[int, Marker],
    sealed: tuple[int, int] | None,
    epoch: int,
    number: int,
    rows: Rows,
    of: str,
) -> int | None:
    """The number of the task that has written the rows of task `number`; None if they have to be written.

    `markers` by number and `sealed` belong to the task's query. MarkerError, which names the task as `of`, if
    the epoch was written with other rows, or if there is a later epoch.
    """
    newest = max((marker.epoch for marker in markers.values()), default=-1)
    if max(newest, sealed[0] if sealed else -1) > epoch:
        raise MarkerError(
            f"{of} comes with epoch {epoch}, and a later one is written: its checkpoint is older than "
            "what is in the topic; continue from the newest checkpoint, or begin a new query with a new one"
        )
    there = {other: marker.entries for other, marker in markers.items() if marker.epoch == epoch}
    own = there.pop(number, ())
    if any(entry.is_same(rows) for entry in own):
        return number
    for other, entries in there.items():
        if any(entry.is_same(rows) and entry.run != rows.run for entry in entries):
            return other
    if sealed is not None and sealed[0] == epoch:
        raise _differ(of, f"has been written in {sealed[1]} tasks, none of which had", epoch, rows)
    if any(entry.run == rows.run for entry in own):
        raise _differ(of, "has been written by another attempt, which had not", epoch, rows)
    if own and any(entry.overlaps(rows) for entries in (own, *there.values()) for entry in entries):
        raise _differ(of, "has been written in part, with some of", epoch, rows)
    return None


def _differ(of: str, what: str, epoch: int, rows: Rows) -> MarkerError:
    return MarkerError(
        f"{of} comes with {rows.rows} rows for epoch {epoch}, which {what} these rows: writing them would "
        f"lose or double rows; {REMEDY}"
    )


def settle(
    markers: Mapping[int, Marker], epoch: int, run: str, claims: Iterable[tuple[int, Rows]], of: str
) -> None:
    """For the driver: refuses an epoch with written rows that no task of this run has found again, or more
    than one. `claims` are the rows that tasks have found, with the number of the task that wrote them."""
    claimed = Counter((number, rows.rows, rows.checksum) for number, rows in claims)
    for number, marker in markers.items():
        for entry in marker.entries:
            if marker.epoch != epoch or entry.run == run or not entry.rows:
                continue
            times = claimed[number, entry.rows, entry.checksum]
            if times != 1:
                raise MarkerError(
                    f"{of} had written epoch {epoch} before, and {entry.rows} rows of it by a task {number}, "
                    f"with which {'no task' if not times else 'more than one task'} comes now: rows are lost "
                    f"or doubled; {REMEDY}"
                )


# -- the topic


def prepare(cluster: Cluster, topic: str = MARKERS_TOPIC) -> None:
    """Creates the markers topic if it is missing; refuses a topic that cannot keep markers."""
    count = cluster.partitions_of([topic]).get(topic)
    if count is None:
        doing = f"creating the markers topic {topic}"
        create_topic(cluster, topic, PARTITIONS, TOPIC_SETTINGS, doing=doing)
    elif count < PARTITIONS:
        raise ClientError(
            f"the markers topic {topic} has {count} partitions and needs {PARTITIONS}: name another one with "
            "the option markersTopic, and it is created"
        )


# -- writing


def write(producer: Producer, query: str, number: int, marker: Marker, topic: str = MARKERS_TOPIC) -> None:
    """Writes the marker of a task into the producer's open transaction, as offset and as record."""
    place = number % PLACES
    _send(producer, topic, place, _key(query, number), marker.to_json())
    producer.send_offsets(group(query, number), {(topic, place): (marker.epoch, marker.to_json())})


def attach(
    producer: Producer,
    query: str,
    number: int,
    epoch: int,
    texts: Iterable[str],
    before: Attached | None,
    topic: str = MARKERS_TOPIC,
) -> Attached | None:
    """Writes texts into the open transaction, and flushes. The result belongs into its marker.

    `before` comes from the task's last marker; these texts replace texts of an earlier epoch. A text is a
    record of the markers topic, and has to fit into a batch of it.

    Each record has the offset of the one before, and the marker the offset of the last. So records are found
    by offset, and all records of a committed marker are committed: a reader need not read the topic from its
    start, nor wait for open transactions of others. Their keys are numbers, the same in each epoch, so that
    compaction leaves at most the texts of the longest epoch.
    """
    if before is not None and before.epoch != epoch:
        before = None
    for text in texts:
        count, last_offset = (before.count, before.last_offset) if before is not None else (0, -1)
        key = _key(query, number) + f"/{count}".encode()
        placements = _send(producer, topic, number % PLACES, key, f"{last_offset} {text}", Compression.GZIP)
        producer.flush()
        (placement,) = placements
        if placement.base_offset < 0:
            raise ClientError(
                f"the broker does not return the offset of a record in topic {topic}: try again"
            )
        before = Attached(epoch, count + 1, placement.base_offset)
    return before


def _send(
    producer: Producer,
    topic: str,
    place: int,
    key: bytes,
    value: str,
    compression: Compression = Compression.NONE,
) -> list[Placement]:
    row = pyarrow.record_batch(
        {
            "key": pyarrow.array([key]),
            "value": pyarrow.array([value.encode()]),
            "partition": pyarrow.array([place], pyarrow.int32()),
        }
    )
    batches = Batches(lambda _: PARTITIONS, topic=topic, compression=compression)
    return [producer.send(records) for records in (*batches.add(row), *batches.drain())]


def _key(query: str, number: int) -> bytes:
    return f"{query}/{number}".encode()


def seal(cluster: Cluster, query: str, epoch: int, tasks: int, topic: str = MARKERS_TOPIC) -> None:
    """The driver notes that the epoch is complete, with the number of its tasks."""
    group_id = group(query, 0)
    offsets = {(topic, DRIVER_PLACE): (epoch, str(tasks))}
    group_offsets.commit(cluster, group_id, offsets, doing=f"writing the markers of group {group_id}")


# -- reading


def read(
    cluster: Cluster,
    query: str,
    number: int | None = None,
    topic: str = MARKERS_TOPIC,
    *,
    may_be_expired: bool = True,
) -> dict[int, Marker]:
    """The markers of all tasks of a query, by their numbers.

    The marker of task `number` is exact, if its transactional id has been taken over; the others may change.
    They come from the group's offsets, or, if those have expired, from the topic, which takes longer; not
    without `may_be_expired`.
    """
    markers: dict[int, Marker] = {}
    for start in range(0, 1 << 20, PLACES):
        there = _markers(cluster, group(query, start), topic, range(PLACES), is_stable=False)
        markers.update({start + place: marker for place, marker in there.items()})
        if not there and start >= (number or 0):
            break
    if number is not None:
        place = number % PLACES
        own = _markers(cluster, group(query, number), topic, [place], is_stable=True)
        markers.update(zip([number], own.values(), strict=False))
    return markers or (_read_topic(cluster, query, topic) if may_be_expired else {})


def sealed(cluster: Cluster, query: str, topic: str = MARKERS_TOPIC) -> tuple[int, int] | None:
    """The last epoch that the driver has sealed, and the number of its tasks; None if it is unknown or
    expired."""
    epoch, tasks = _committed(cluster, group(query, 0), topic, [DRIVER_PLACE], is_stable=False).get(
        DRIVER_PLACE, (-1, "")
    )
    return (epoch, int(tasks)) if tasks.isdecimal() else None


def attached(
    cluster: Cluster, query: str, number: int, marker: Marker, topic: str = MARKERS_TOPIC
) -> Iterator[str]:
    """The texts that are attached to a marker, the last one first."""
    if marker.attached is None:
        return
    prefix, place, at = _key(query, number) + b"/", number % PLACES, marker.attached.last_offset
    while at >= 0:
        record = _record_at(cluster, topic, place, at)
        if record is None or not (record.key or b"").startswith(prefix) or record.value is None:
            raise MarkerError(
                f"topic {topic}, partition {place} has at offset {at} no record of query {query}: "
                "the query cannot continue without it"
            )
        before, _, text = record.value.decode().partition(" ")
        at = int(before)
        yield text


def _record_at(cluster: Cluster, topic: str, place: int, offset: int) -> Record | None:
    # The smallest fetch returns only the batch with the record.
    for fetched in Fetcher(cluster, topic, place, offset, offset + 1, read_committed=False, fetch_bytes=1):
        for position, header in iter_batches(fetched.buffer):
            if header.base_offset <= offset <= header.last_offset:
                records = iter_records(fetched.buffer[position:], header)
                return next((record for record in records if record.offset == offset), None)
    return None


def _markers(
    cluster: Cluster, group_id: str, topic: str, places: Iterable[int], *, is_stable: bool
) -> dict[int, Marker]:
    found = _committed(cluster, group_id, topic, places, is_stable=is_stable)
    return {place: Marker.from_json(text) for place, (_, text) in found.items()}


def _committed(
    cluster: Cluster, group_id: str, topic: str, places: Iterable[int], *, is_stable: bool
) -> dict[int, tuple[int, str]]:
    """The committed offset and metadata of the group by place; `is_stable` waits for open transactions."""
    doing = f"reading the markers of group {group_id}"
    found = group_offsets.committed(cluster, group_id, {topic: places}, is_stable=is_stable, doing=doing)
    return {place: committed for (_, place), committed in found.items()}


def _read_topic(cluster: Cluster, query: str, topic: str) -> dict[int, Marker]:
    """Markers as from `read`, from the records of the topic.

    Reads to the log end, not only to the last stable offset: a marker may be after another task's open
    transaction, and the read waits for its end.
    """
    places = [(topic, place) for place in range(PLACES)]
    starts = cluster.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(places, LATEST))
    prefix = _key(query, 0)[:-1]
    found: dict[int, Marker] = {}
    for key in places:
        for fetched in Fetcher(cluster, *key, starts[key], ends[key], read_committed=True):
            for record in _committed_records(fetched, prefix):
                number = (record.key or b"").removeprefix(prefix)
                if number.isdigit() and record.value is not None:
                    found[int(number)] = Marker.from_json(record.value.decode())
    return found


def _committed_records(fetched: FetchedRecords, prefix: bytes) -> Iterator[Record]:
    """The records whose keys begin with the prefix, without aborted ones."""
    aborted: set[int] = set()
    ahead = deque(sorted(fetched.aborted, key=lambda transaction: transaction[1]))
    for position, header in iter_batches(fetched.buffer):
        while ahead and ahead[0][1] <= header.last_offset:
            aborted.add(ahead.popleft()[0])
        if header.is_control:
            aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            for record in iter_records(fetched.buffer[position:], header):
                if record.key is not None and record.key.startswith(prefix):
                    yield record
