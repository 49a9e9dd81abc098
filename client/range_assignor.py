"""The strategy `range` of classic groups, as Java's RangeAssignor has it without racks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Subscriber(NamedTuple):
    """A member as the strategy sees it."""

    member_id: str
    instance_id: str | None
    topics: Collection[str]


def assign_range(
    subscribers: Collection[Subscriber], partitions: Mapping[str, int]
) -> dict[str, dict[str, range]]:
    """By member id and topic: neighbouring partitions of each topic, longer runs first, for static members
    (by instance id), then the others (by member id). Topics without a number of partitions are left out."""
    assigned: dict[str, dict[str, range]] = {one.member_id: {} for one in subscribers}
    by_topic: dict[str, list[Subscriber]] = {}
    for one in sorted(subscribers, key=_order):
        for topic in {*one.topics}:
            by_topic.setdefault(topic, []).append(one)
    for topic in sorted(by_topic):
        members = by_topic[topic]
        size, longer = divmod(partitions.get(topic, 0), len(members))
        start = 0
        for turn, one in enumerate(members):
            end = start + size + (turn < longer)
            if end > start:
                assigned[one.member_id][topic] = range(start, end)
            start = end
    return assigned


def _order(one: Subscriber) -> tuple[bool, bytes]:
    name = one.member_id if one.instance_id is None else one.instance_id
    # Java compares strings by their UTF-16 units.
    return one.instance_id is None, name.encode("utf-16-be", "surrogatepass")
