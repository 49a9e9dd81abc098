"""What makes the sink exactly once: in the transaction of its rows a task says that they are written.

The marker of a task (query, number of the task in the plan) holds the epoch, how many rows it wrote, their
checksum and a sample of their hashes. It is written twice in the same transaction: as a committed offset of
the group `odradek-spark-QUERY`, which is quickly read, and as a record of the markers topic, which is
compacted and outlives `offsets.retention.minutes`.

A task finds out whether its rows are in by all markers of its query, and not by its own alone: Spark's Kafka
source may deal out the same offsets to the tasks in another order when an epoch comes again. Rows that are in
under whatever number are not written again. Where rows differ from what is in, `judge` refuses them; what no
task can see the driver finds out at the end, who demands that all that was in has come again (`settle`).

A task has place NUMBER modulo 16 in the markers topic and in the offsets of the group; tasks from 16 on have
groups of their own, `odradek-spark-QUERY-1` for 16 to 31 and so on. Place 16 is the driver's: once all tasks
are done it says there how many they were. Of an epoch that is whole nothing new is written.
"""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow

from odradek.spark.batching import Batches
from odradek.spark.client import (
    ANY_NODE,
    EARLIEST,
    LATEST,
    ClientError,
    Cluster,
    coordinator_of,
    error_of,
    refusal,
)
from odradek.spark.fetching import FetchedRecords, Fetcher
from odradek.spark.producing import Producer
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.wire.records import Record, iter_batches, iter_records

__all__ = [
    "MARKERS_TOPIC",
    "Marker",
    "MarkerError",
    "Rows",
    "group",
    "judge",
    "prepare",
    "read",
    "seal",
    "sealed",
    "settle",
    "transactional_id",
    "write",
]

MARKERS_TOPIC = "odradek-spark-markers"
PLACES = 16
"""Of the tasks. Never another number: it decides where a marker is looked for."""
DRIVER_PLACE = PLACES
PARTITIONS = PLACES + 1
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    # Small segments, cleaned often: a new query reads a partition of it from its start.
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_OFFSET_FETCH_VERSION_MAX = 9
"""From 10 on topics go by their ids."""
_OFFSET_COMMIT_VERSION_MAX = 9
_CREATE_TIMEOUT_MS = 30_000
REMEDY = (
    "run the epoch with the same query, input and number of partitions as before, or begin a new query with "
    "a new checkpoint (a batch write: with another writeId)"
)


class MarkerError(ClientError):
    """The epoch cannot be written as asked, without losing or doubling rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What one attempt at a task has written, or would write."""

    run: str
    """Of all tasks of one run of the epoch the same."""
    rows: int
    checksum: int
    sample: tuple[int, ...]
    """Some of the hashes of the rows, see `Batches.sample`."""

    def is_same(self, other: Rows) -> bool:
        return (self.rows, self.checksum, self.sample) == (other.rows, other.checksum, other.sample)

    def overlaps(self, other: Rows) -> bool:
        """Whether a row is certainly in both."""
        return not set(self.sample).isdisjoint(other.sample)


@dataclass(frozen=True, slots=True)
class Marker:
    """What is in of one epoch by the tasks of one number: mostly one entry, more where an epoch has come
    again and Spark had dealt out its input to the tasks anew."""

    epoch: int
    entries: tuple[Rows, ...]

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
        return json.dumps({"epoch": self.epoch, "written": entries}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Marker:
        try:
            fields = json.loads(text)
            return cls(int(fields["epoch"]), tuple(_entry(entry) for entry in fields["written"]))
        except (ValueError, KeyError, TypeError, struct.error) as error:
            raise MarkerError(f"{text[:100]!r} is no marker of format odradek: {error}") from None


def _entry(fields: dict[str, Any]) -> Rows:
    sample = base64.b64decode(fields["sample"], validate=True)
    hashes = struct.unpack(f">{len(sample) // 8}Q", sample)
    return Rows(str(fields["run"]), int(fields["rows"]), int(fields["checksum"], 16), hashes)


def transactional_id(query: str, number: int) -> str:
    """As whom the task of a query writes."""
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
    """The number under which the rows of task `number` are in already, None where they are to be written.

    `markers` by number and `sealed` are those of the task's query. MarkerError, which names the task as `of`,
    where the epoch has been written with other rows or a later one is there.
    """
    newest = max((marker.epoch for marker in markers.values()), default=-1)
    if max(newest, sealed[0] if sealed else -1) > epoch:
        raise MarkerError(
            f"{of} is asked for epoch {epoch}, and a later one is written: its checkpoint is older than "
            "what is in the topic; go on from the newest checkpoint, or begin a new query with a new one"
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
    """For the driver: refuses an epoch of which something is in that no task of this run has come with, or
    more than one. `claims` are the rows that tasks have found, and under which number."""
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
    """Creates the markers topic where it is not there; refuses one that cannot keep markers."""
    count = cluster.partitions_of([topic]).get(topic)
    if count is None:
        _create(cluster, topic)
    elif count < PARTITIONS:
        raise ClientError(
            f"the markers topic {topic} has {count} partitions and needs {PARTITIONS}: name another one with "
            "the option markersTopic, and it is created"
        )


def _create(cluster: Cluster, topic: str) -> None:
    wanted = CreatableTopic(
        name=topic,
        num_partitions=PARTITIONS,
        replication_factor=-1,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in TOPIC_SETTINGS.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=_CREATE_TIMEOUT_MS)
    controller = cluster.ask(ANY_NODE, MetadataRequest(topics=[])).controller_id
    (answer,) = cluster.ask(controller if controller >= 0 else ANY_NODE, request).topics
    if answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise refusal(f"creating the markers topic {topic}", answer.error_code, answer.error_message)


# -- writing


def write(producer: Producer, query: str, number: int, marker: Marker, topic: str = MARKERS_TOPIC) -> None:
    """Puts the marker of a task into the producer's open transaction, both ways."""
    place = number % PLACES
    row = pyarrow.record_batch(
        {
            "key": pyarrow.array([_key(query, number)]),
            "value": pyarrow.array([marker.to_json().encode()]),
            "partition": pyarrow.array([place], pyarrow.int32()),
        }
    )
    batches = Batches(lambda _: PARTITIONS, topic=topic)
    for records in (*batches.add(row), *batches.drain()):
        producer.send(records)
    producer.send_offsets(group(query, number), {(topic, place): (marker.epoch, marker.to_json())})


def _key(query: str, number: int) -> bytes:
    return f"{query}/{number}".encode()


def seal(cluster: Cluster, query: str, epoch: int, tasks: int, topic: str = MARKERS_TOPIC) -> None:
    """The driver's word that the epoch is whole, and of how many tasks."""
    group_id = group(query, 0)
    said = OffsetCommitRequestPartition(
        partition_index=DRIVER_PLACE, committed_offset=epoch, committed_metadata=str(tasks)
    )
    request = OffsetCommitRequest(
        group_id=group_id, member_id="", topics=[OffsetCommitRequestTopic(name=topic, partitions=[said])]
    )
    answer = cluster.ask(coordinator_of("group", group_id), request, version_max=_OFFSET_COMMIT_VERSION_MAX)
    for of in answer.topics:
        for one in of.partitions:
            if one.error_code != ErrorCode.NONE:
                raise refusal(f"writing the markers of group {group_id}", error_of(one.error_code))


# -- reading


def read(
    cluster: Cluster, query: str, number: int | None = None, topic: str = MARKERS_TOPIC
) -> dict[int, Marker]:
    """The markers of all tasks of a query, by their numbers.

    That of task `number` is exact, if its transactional id has been taken over; the others are as they are at
    the moment. The group's offsets say it, or where those have expired the topic.
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
    return markers or _read_topic(cluster, query, topic)


def sealed(cluster: Cluster, query: str, topic: str = MARKERS_TOPIC) -> tuple[int, int] | None:
    """The last epoch that the driver has called whole and the number of its tasks; None where that is not
    known (any more)."""
    epoch, tasks = _committed(cluster, group(query, 0), topic, [DRIVER_PLACE], is_stable=False).get(
        DRIVER_PLACE, (-1, "")
    )
    return (epoch, int(tasks)) if tasks.isdecimal() else None


def _markers(
    cluster: Cluster, group_id: str, topic: str, places: Iterable[int], *, is_stable: bool
) -> dict[int, Marker]:
    found = _committed(cluster, group_id, topic, places, is_stable=is_stable)
    return {place: Marker.from_json(text) for place, (_, text) in found.items()}


def _committed(
    cluster: Cluster, group_id: str, topic: str, places: Iterable[int], *, is_stable: bool
) -> dict[int, tuple[int, str]]:
    """Offset and metadata that the group has committed, where it has; if wanted after the end of transactions
    that are about to change them."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=list(places))
    request = OffsetFetchRequest(
        group_id="",
        topics=[],
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[wanted])],
        require_stable=is_stable,
    )
    answer = cluster.ask(coordinator_of("group", group_id), request, version_max=_OFFSET_FETCH_VERSION_MAX)
    (told,) = answer.groups
    for code in (told.error_code, *(one.error_code for of in told.topics for one in of.partitions)):
        if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            raise refusal(f"reading the markers of group {group_id}", error_of(code))
    return {
        one.partition_index: (one.committed_offset, one.metadata or "")
        for of in told.topics
        for one in of.partitions
        if one.committed_offset >= 0
    }


def _read_topic(cluster: Cluster, query: str, topic: str) -> dict[int, Marker]:
    """As `read`, of the records.

    The end is that of all records and not of the committed ones: what is looked for may lie behind another
    task's open transaction, whose end is waited for.
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
    """The records whose keys begin with the prefix, but for those of aborted transactions."""
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
