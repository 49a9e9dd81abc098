"""The subscriptions of a consumer group: topics by name, and patterns with the topics that they matched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.wire.messages.group_records import ConsumerGroupMemberMetadataValue


class ResolvedPattern(NamedTuple):
    """Topics that a regular expression matched."""

    topics: frozenset[str]
    version: int
    """Version of the view of the cluster."""
    resolved_at_ms: int


@dataclass(slots=True)
class Subscriptions:
    """See the module. Counts how many members subscribe to what, so that no question looks at them all."""

    resolved: dict[str, ResolvedPattern] = field(default_factory=dict)
    """By pattern; those that were never resolved are missing."""
    name_counts: dict[str, int] = field(default_factory=dict)
    """By topic, how many members subscribe by name."""
    pattern_counts: dict[str, int] = field(default_factory=dict)
    """By regular expression, how many members subscribe by it; resolved or not."""

    def count(self, metadata: ConsumerGroupMemberMetadataValue, change: int) -> None:
        """A member with this metadata joined (1) or left (-1)."""
        for topic in metadata.subscribed_topic_names:
            add_to_count(self.name_counts, topic, change)
        if metadata.subscribed_topic_regex:
            add_to_count(self.pattern_counts, metadata.subscribed_topic_regex, change)

    def include(self, topic: str) -> bool:
        """Whether members subscribe to a topic."""
        return topic in self.name_counts or any(topic in pattern.topics for pattern in self.resolved.values())

    def topics_with(
        self, before: ConsumerGroupMemberMetadataValue, after: ConsumerGroupMemberMetadataValue
    ) -> set[str]:
        """Topics that members subscribe to, by name or by pattern, when `before` has become `after`. They
        need not exist."""
        names = set(self.name_counts)
        names.difference_update(name for name in before.subscribed_topic_names if self.name_counts[name] == 1)
        names.update(after.subscribed_topic_names)
        old, new = before.subscribed_topic_regex, after.subscribed_topic_regex
        for pattern, resolved in self.resolved.items():
            is_last = pattern == old and self.pattern_counts.get(pattern) == 1
            if not is_last or pattern == new:
                names |= resolved.topics
        return names

    def topics_by(self, patterns: Iterable[ResolvedPattern]) -> set[str]:
        """The topics that members subscribe to, if their patterns match these."""
        return set(self.name_counts).union(*(resolved.topics for resolved in patterns))

    def topics_without(self, metadata: Iterable[ConsumerGroupMemberMetadataValue]) -> set[str]:
        """The topics that are subscribed to without the members with this metadata."""
        counts, pattern_counts = dict(self.name_counts), dict(self.pattern_counts)
        for one in metadata:
            for name in one.subscribed_topic_names:
                add_to_count(counts, name, -1)
            if one.subscribed_topic_regex:
                add_to_count(pattern_counts, one.subscribed_topic_regex, -1)
        kept = (resolved.topics for pattern, resolved in self.resolved.items() if pattern in pattern_counts)
        return set(counts).union(*kept)

    def may_include(self, names: frozenset[str]) -> bool:
        """Whether members subscribe to any of these topics, by name or by a pattern that matched it."""
        return not names.isdisjoint(self.name_counts) or any(
            not names.isdisjoint(resolved.topics) for resolved in self.resolved.values()
        )

    def topics_of(self, metadata: ConsumerGroupMemberMetadataValue) -> frozenset[str] | set[str]:
        """Topics that a member with this metadata subscribes to, as far as its pattern has been resolved."""
        resolved = self.resolved.get(metadata.subscribed_topic_regex or "")
        names = set(metadata.subscribed_topic_names)
        return names if resolved is None else names | resolved.topics

    def count_of(self, pattern: str) -> int:
        """How many members subscribe to it."""
        return self.pattern_counts.get(pattern, 0)


def add_to_count(counts: dict[str, int], name: str, change: int) -> None:
    count = counts.get(name, 0) + change
    if count:
        counts[name] = count
    else:
        del counts[name]
