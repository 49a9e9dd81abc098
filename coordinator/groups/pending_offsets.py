"""Offsets that transactions have written and not ended yet, of the groups of one machine.

They are in the log, but not visible: with the marker of their producer they become committed offsets, or are
removed. Until then they keep their group alive, and a fetch of stable offsets gets UNSTABLE_OFFSET_COMMIT.

Of two commits for a partition the one that stands later in the log counts, whenever its transaction ends: a
commit that has been overtaken stays pending and then changes nothing. So what a log says does not depend on
when it is read, or on what compaction has left of it.

A commit and an end cost as much as their own producer writes, with any number of producers for a partition:
a number for each partition marks the offsets that a later commit has overtaken, without a visit to them.

Source: OffsetMetadataManager of Kafka 4.3, which compares the offsets of the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek.coordinator.groups.offsets import is_of_another
from odradek.coordinator.groups.record_codec import CommittedOffset


class EndedOffset(NamedTuple):
    """Effect of a committed transaction on one partition of a group."""

    group_id: str
    topic: str
    partition: int
    offset: CommittedOffset


class Written:
    """Offsets of open transactions for one partition of a group. `moment`s ascend with the log."""

    __slots__ = ("by_producer", "decided_at")

    def __init__(self) -> None:
        self.by_producer: dict[int, tuple[int, CommittedOffset]] = {}
        """Producer id -> the moment of its newest commit, and that."""
        self.decided_at = 0
        """Moment before which all that was written has been overtaken by what is committed."""


class PendingOffsets:
    """See the module. A producer has one transaction at a time, so its id stands for it."""

    __slots__ = ("_moment", "_of_producers", "by_group")

    def __init__(self) -> None:
        self._moment = 0
        self.by_group: dict[str, dict[tuple[str, int], Written]] = {}
        """By group, then (topic, partition); to be read only. Without empty entries: false when nothing is
        pending."""
        self._of_producers: dict[int, dict[tuple[str, str, int], None]] = {}
        """(group, topic, partition) of what each producer has written, in that order."""

    def put(
        self, producer_id: int, group_id: str, topic: str, partition: int, offset: CommittedOffset
    ) -> None:
        """A transaction has written an offset, perhaps not its first for this partition."""
        partitions = self.by_group.setdefault(group_id, {})
        written = partitions.get((topic, partition))
        if written is None:
            written = partitions[topic, partition] = Written()
        written.by_producer[producer_id] = self._next_moment(), offset
        self._of_producers.setdefault(producer_id, {})[group_id, topic, partition] = None

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction is open that has written an offset for this partition."""
        of_group = self.by_group.get(group_id)
        return of_group is not None and (topic, partition) in of_group

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """(topic, partition) of every partition of the group with a pending offset."""
        return list(self.by_group.get(group_id, ()))

    def of_topics(self, topics: Mapping[str, bytes | None]) -> Iterator[tuple[str, str, int]]:
        """(group, topic, partition) of every partition with a pending offset of one of these topics that
        `is_of_another` topic than the one with the id given."""
        for group_id, partitions in self.by_group.items():
            for (topic, partition), written in partitions.items():
                if topic not in topics:
                    continue
                topic_id = topics[topic]
                if any(is_of_another(offset, topic_id) for _, offset in written.by_producer.values()):
                    yield group_id, topic, partition

    def topics(self) -> set[str]:
        """The topics of which offsets are pending."""
        return {topic for partitions in self.by_group.values() for topic, _ in partitions}

    def overtake(self, group_id: str, topic: str, partition: int) -> None:
        """A commit outside of transactions stands behind all that is pending for this partition."""
        written = self.by_group.get(group_id, {}).get((topic, partition))
        if written is not None:
            written.decided_at = self._next_moment()

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """The offset has been deleted: what is pending for it will not come back with a marker."""
        written = self.by_group.get(group_id, {}).get((topic, partition))
        for producer_id in () if written is None else written.by_producer:
            self._drop_from_producer(producer_id, (group_id, topic, partition))
        self._drop_partition(group_id, topic, partition)

    def end(self, producer_id: int, commit: bool) -> list[EndedOffset]:
        """The producer's transaction is over: what it wrote is no longer pending. What becomes committed."""
        ended: list[EndedOffset] = []
        for group_id, topic, partition in self._of_producers.pop(producer_id, ()):
            written = self.by_group[group_id][topic, partition]
            moment, offset = written.by_producer.pop(producer_id)
            if commit and moment > written.decided_at:
                written.decided_at = moment
                ended.append(EndedOffset(group_id, topic, partition, offset))
            if not written.by_producer:
                self._drop_partition(group_id, topic, partition)
        return ended

    def _next_moment(self) -> int:
        self._moment += 1
        return self._moment

    def _drop_from_producer(self, producer_id: int, place: tuple[str, str, int]) -> None:
        places = self._of_producers[producer_id]
        del places[place]
        if not places:
            del self._of_producers[producer_id]

    def _drop_partition(self, group_id: str, topic: str, partition: int) -> None:
        partitions = self.by_group.get(group_id)
        if partitions is None or partitions.pop((topic, partition), None) is None:
            return
        if not partitions:
            del self.by_group[group_id]
