"""Which partitions the members of a share group read: the assignor `simple` of KIP-932.

A function of values, like those of consumer groups (`groups/assignors.py`). Unlike there, several members may
have one partition.

- Every partition is with somebody who subscribes to its topic. Where there are more members than partitions,
  each partition is with as many of them as the others, rounded up.
- The numbers of partitions of two members differ by one at most, as far as they subscribe to the same topics;
  otherwise this holds for each topic by itself.
- What a member has stays with it as far as that allows.

Kafka: SimpleAssignor and its two builders (group-coordinator), whose choice among equals is that of Java's
hash tables; here it is the order of members and partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

SIMPLE = "simple"
"""Its name."""

Partitions = Mapping[bytes, frozenset[int]]
"""By topic id, without empty sets. Never changed in place."""
NO_PARTITIONS: Partitions = {}

_Place = tuple[bytes, int]


class Reader(NamedTuple):
    """A member as the assignor sees it."""

    topics: Collection[bytes]
    """Ids of the topics that it subscribes to."""
    target: Partitions
    """Target of the member so far."""


def assign_partitions(
    readers: Mapping[str, Reader], assignable: Mapping[bytes, Collection[int]]
) -> dict[str, Partitions]:
    """The partitions of every member. `readers` is by member id, `assignable` has partitions by topic id."""
    member_ids = sorted(readers)
    of_topic: dict[bytes, list[str]] = {}
    for member_id in member_ids:
        for topic_id in readers[member_id].topics:
            of_topic.setdefault(topic_id, []).append(member_id)
    if all(len(subscribers) == len(member_ids) for subscribers in of_topic.values()):
        parts = [(member_ids, _places(of_topic, assignable))]
    else:
        parts = [(of_topic[topic_id], _places((topic_id,), assignable)) for topic_id in sorted(of_topic)]
    shares: dict[str, list[_Place]] = {member_id: [] for member_id in member_ids}
    for subscribers, places in parts:
        for member_id, share in _share_out(subscribers, places, readers).items():
            shares[member_id] += share
    return {member_id: _by_topic(share) for member_id, share in shares.items()}


def _places(topic_ids: Iterable[bytes], assignable: Mapping[bytes, Collection[int]]) -> list[_Place]:
    return [
        (topic_id, index) for topic_id in sorted(topic_ids) for index in sorted(assignable.get(topic_id, ()))
    ]


def _share_out(
    member_ids: Sequence[str], places: Sequence[_Place], readers: Mapping[str, Reader]
) -> dict[str, set[_Place]]:
    """Targets of members that all may have every one of these partitions."""
    count = len(member_ids)
    shares: dict[str, set[_Place]] = {member_id: set() for member_id in member_ids}
    if not places:
        return shares
    sharing = -(-count // len(places))
    """How many members are to have a partition."""
    holders: dict[_Place, set[str]] = {place: set() for place in places}
    wanted: dict[str, int] = {}
    for number, member_id in enumerate(member_ids):
        # So that all of them together are `sharing` times the partitions.
        total = sharing * len(places)
        wanted[member_id] = -(-total * (number + 1) // count) + (-total * number // count)
        _keep(member_id, readers[member_id].target, wanted[member_id], sharing, holders, shares[member_id])
    lacking = deque(member_id for member_id in member_ids if len(shares[member_id]) < wanted[member_id])
    for place, having in holders.items():
        for _ in range(len(lacking)):
            if len(having) >= sharing:
                break
            member_id = lacking.popleft()
            if member_id not in having:
                having.add(member_id)
                shares[member_id].add(place)
            if len(shares[member_id]) < wanted[member_id]:
                lacking.append(member_id)
    return shares


def _keep(
    member_id: str,
    target: Partitions,
    wanted: int,
    sharing: int,
    holders: Mapping[_Place, set[str]],
    share: set[_Place],
) -> None:
    """Partitions that a member has and may keep."""
    for topic_id in sorted(target):
        for index in sorted(target[topic_id]):
            having = holders.get((topic_id, index))
            if having is not None and len(having) < sharing and len(share) < wanted:
                having.add(member_id)
                share.add((topic_id, index))


def _by_topic(places: Iterable[_Place]) -> Partitions:
    partitions: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(places):
        partitions.setdefault(topic_id, []).append(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}
