"""Committed offsets of the groups of one machine, and when they expire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.coordinator.groups.group import Group
from odradek.coordinator.groups.record_codec import CommittedOffset
from odradek.wire.schema import ZERO_UUID

TopicOffsets = dict[int, CommittedOffset]


class OffsetTable:
    """Offsets by group, topic and partition; nested, so that a name is kept once for all its offsets."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, TopicOffsets]] = {}

    def put(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        offsets = topics.get(topic)
        if offsets is None:
            offsets = topics[topic] = {}
        offsets[partition] = offset

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Forget an offset; no harm when there is none."""
        topics = self._groups.get(group_id)
        offsets = None if topics is None else topics.get(topic)
        if topics is None or offsets is None or offsets.pop(partition, None) is None:
            return
        if not offsets:
            del topics[topic]
        if not topics:
            del self._groups[group_id]

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.of_topic(group_id, topic).get(partition)

    def of_topic(self, group_id: str, topic: str) -> TopicOffsets:
        """By partition; to be read only."""
        return self.of_group(group_id).get(topic, {})

    def of_group(self, group_id: str) -> dict[str, TopicOffsets]:
        """By topic, then partition; to be read only."""
        return self._groups.get(group_id, {})

    def topics(self) -> set[str]:
        """The topics of which there are offsets."""
        return set().union(*self._groups.values())

    def of_topics(self, topics: Mapping[str, bytes | None]) -> Iterator[tuple[str, str, int]]:
        """(group, topic, partition) of every offset of topics with these names that `is_of_another` topic
        than the one with the id given."""
        for group_id, of_group in self._groups.items():
            for topic in topics.keys() & of_group.keys():
                topic_id = topics[topic]
                for partition, offset in of_group[topic].items():
                    if is_of_another(offset, topic_id):
                        yield group_id, topic, partition


def is_of_another(offset: CommittedOffset, topic_id: bytes | None) -> bool:
    """Whether an offset was committed for another topic than the one that has the name now; None: there is no
    such topic. An offset that does not say for which is taken for one of the present topic, as in Kafka."""
    return topic_id is None or (offset.topic_id != topic_id and offset.topic_id != ZERO_UUID)


def is_expired(offset: CommittedOffset, empty_since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    """Whether an offset's time is over: its own (commits of versions 2 to 4), or `retention_ms` after its
    group became empty, or (`empty_since_ms` None) after its commit."""
    if offset.expire_timestamp_ms != -1:
        return now_ms >= offset.expire_timestamp_ms
    since_ms = offset.commit_timestamp_ms if empty_since_ms is None else empty_since_ms
    return now_ms - since_ms >= retention_ms


def expired_offsets(
    group: Group, topics: dict[str, TopicOffsets], now_ms: int, retention_ms: int
) -> list[tuple[str, int]]:
    """(topic, partition) of the offsets to drop. Kafka's rules (KIP-211): a simple group's from their commit
    on, an empty group's from the time it became empty, others' from their commit on where subscriptions are
    known; never while a member subscribes to the topic."""
    if not group.offsets_may_expire:
        return []
    empty_since_ms = group.empty_since_ms
    expired = []
    for topic, offsets in topics.items():
        if not group.is_subscribed_to(topic):
            for partition, offset in offsets.items():
                if is_expired(offset, empty_since_ms, now_ms, retention_ms):
                    expired.append((topic, partition))
    return expired
