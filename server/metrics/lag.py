"""How far groups are behind: in records, and in seconds.

The committed offset and the end of the log are read in one turn of the event loop, so a lag is exact and
never below 0. It counts offsets from the commit on, as Kafka's tools do, also those that retention has
deleted. In seconds it is the age of the batch at the committed offset, by the timestamp in its header;
a reader who catches up brings it down. A batch is read once for an offset.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.coordinator.groups.group import CLASSIC
from odradek.storage.log.slices import WouldWait
from odradek.wire._records import read_batch_header
from odradek.wire.errors import KafkaError
from odradek.wire.record_layout import HEADER_SIZE_BYTES, LOG_APPEND_TIME

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.group_machine import GroupMachine
    from odradek.storage.log.partition import Partition

STEP_COMMITS = 250
"""Commits that are read without a pause."""
LOOKS_MAX = 2_000
"""Batches that are read in one scrape; the ages of others are those of the scrape before."""


@dataclass(slots=True)
class PartitionLag:
    """Lag of one group in one partition."""

    topic: str
    partition: int
    committed: int
    lag: int
    is_past_end: bool
    timestamp_ms: int
    """Timestamp of the batch at the committed offset; -1: nothing is left to read, or it is not known."""


@dataclass(slots=True)
class GroupLag:
    """Lag of one group."""

    group: str
    members: int
    state: str
    is_classic: bool = True
    offset_count: int = 0
    """Committed offsets, also of partitions that are led elsewhere."""
    partitions: list[PartitionLag] = field(default_factory=list)
    without_commit: int = 0
    """Partitions that members have, and of which the group has no commit."""


class AgeCache:
    """Timestamps of batches by partition and offset; `begin` once a scrape."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], int] = {}
        self._before: dict[tuple[str, int, int], int] = {}
        self._left = 0

    def begin(self) -> None:
        """Forgets what the scrape before did not need."""
        self._before, self._known = self._known, {}
        self._left = LOOKS_MAX

    def timestamp_ms(self, partition: "Partition", offset: int) -> int:
        """Timestamp of the batch that has the offset; -1 if it cannot be read without a wait, or not now."""
        key = partition.topic, partition.index, offset
        found = self._known.get(key, self._before.get(key))
        if found is None and self._left > 0:
            self._left -= 1
            found = _timestamp_ms(partition, offset)
        if found is None:
            return -1
        self._known[key] = found
        return found


def lags_of(
    machine: "GroupMachine",
    view: "ClusterView",
    find: Callable[[str, int], "Partition | None"],
    ages: AgeCache,
) -> Iterator[GroupLag | None]:
    """The lags of the groups of a machine. None is a place for a pause; after it groups may have changed.

    Partitions that are not led here have no lag: another node knows their ends.
    """
    seen = 0
    for group_id in list(machine.groups):
        group = machine.groups.get(group_id)
        if group is None:
            continue
        member_count = len(getattr(group, "members", ()))
        found = GroupLag(group_id, member_count, group.state_name, group.group_type == CLASSIC)
        for topic, offsets in list(machine.offsets.of_group(group_id).items()):
            for index, committed in list(offsets.items()):
                partition = find(topic, index)
                if partition is not None:
                    found.partitions.append(_lag(partition, committed.offset, ages))
                found.offset_count += 1
                seen += 1
                if seen % STEP_COMMITS == 0:
                    yield None
        looked = 0
        for topic, indexes in machine.owned(group, view):
            known = view.topics.get(topic)
            if known is not None:
                commits = machine.offsets.of_topic(group_id, topic)
                # A topic may have got smaller: it was deleted and made again.
                of_topic = [index for index in indexes if index < len(known.partitions)]
                found.without_commit += sum(index not in commits for index in of_topic)
            looked += len(indexes) + 1
            if looked >= STEP_COMMITS:
                looked = 0
                yield None
        yield found


def _lag(partition: "Partition", committed: int, ages: AgeCache) -> PartitionLag:
    end = partition.high_watermark
    # Records before the start are gone: the next that comes is the first one.
    position = max(committed, partition.log_start_offset)
    timestamp_ms = ages.timestamp_ms(partition, position) if position < end else -1
    return PartitionLag(
        partition.topic, partition.index, committed, max(end - committed, 0), committed > end, timestamp_ms
    )


def _timestamp_ms(partition: "Partition", offset: int) -> int | None:
    try:
        records = partition.read(
            offset, max_bytes=HEADER_SIZE_BYTES, cut_first_batch=True, prompt=True
        ).records
        if len(records) < HEADER_SIZE_BYTES or records.would_wait():
            return None
        header = read_batch_header(b"".join(records.buffers()))
    except (KafkaError, OSError, WouldWait):
        return None
    # The first record of the batch: those after it may be what is left.
    return header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp
