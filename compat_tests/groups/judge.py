"""What members told of themselves, judged: nothing lost, nothing delivered to two owners of one time.

A member owns a partition from when its library tells it so until it is told otherwise, stops or dies. All
clocks are that of one machine. Within one such time a member gets every offset once and in order, and no
other member owns the partition in any part of it; so no record is delivered twice in one generation. Where a
library tells its generation that is looked at, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Event = dict[str, Any]


class Witness(Protocol):
    """A member, as far as it is judged."""

    name: str
    identity: str
    """As whom the broker knows it: a static member that comes again is the same."""
    killed_ms: int | None

    def read(self) -> list[Event]: ...


@dataclass(frozen=True)
class Allowed:
    """What a library does wrong by itself, against Apache Kafka, too."""

    commits_go_back: bool = False
    gaps: bool = False
    """It begins anew within one ownership."""


NOTHING = Allowed()


@dataclass
class Ownership:
    """A time in which a member has a partition."""

    member: str
    partition: int
    from_ms: int
    until_ms: int | None = None
    deliveries: list[tuple[int, int]] = field(default_factory=list)
    """(first, last) offset."""

    def overlaps(self, other: Ownership) -> bool:
        ends = [10**15 if one.until_ms is None else one.until_ms for one in (self, other)]
        return self.from_ms < ends[1] and other.from_ms < ends[0]

    def __str__(self) -> str:
        return f"{self.member} has partition {self.partition} from {self.from_ms} to {self.until_ms}"


def partitions_of(event: Event) -> list[int]:
    return [int(one["partition"]) for one in event["partitions"]]


def owned_after(events: Iterable[Event]) -> frozenset[int]:
    owned: set[int] = set()
    for event in events:
        if event["name"] == "partitions_assigned":
            owned.update(partitions_of(event))
        elif event["name"] == "partitions_revoked":
            owned.difference_update(partitions_of(event))
        elif event["name"] in ("stopping", "shutdown_complete"):
            owned.clear()
    return frozenset(owned)


def ownerships(member: Witness, found: list[str]) -> list[Ownership]:
    """Of one member, with what was delivered in each; what was delivered outside of any is a fault."""
    now: dict[int, Ownership] = {}
    past: list[Ownership] = []

    def end(partitions: Iterable[int], at_ms: int) -> None:
        for one in partitions:
            if (over := now.pop(one, None)) is not None:
                over.until_ms = at_ms
                past.append(over)

    for event in member.read():
        at_ms = int(event["timestamp"])
        if event["name"] == "partitions_assigned":
            for one in partitions_of(event):
                now.setdefault(one, Ownership(member.name, one, at_ms))
        elif event["name"] == "partitions_revoked":
            end(partitions_of(event), at_ms)
        elif event["name"] in ("stopping", "shutdown_complete"):
            end(list(now), at_ms)
        elif event["name"] == "records_consumed":
            for one in event["partitions"]:
                if (owner := now.get(int(one["partition"]))) is None:
                    found.append(f"{member.name} got records of what it does not have: {event}")
                else:
                    owner.deliveries.append((int(one["minOffset"]), int(one["maxOffset"])))
    if member.killed_ms is not None:
        end(list(now), member.killed_ms)
    return past + list(now.values())


def faults(members: Sequence[Witness], ends: dict[int, int], allowed: Allowed = NOTHING) -> list[str]:
    """A line for each thing that must not be. `ends` are the log ends of the partitions."""
    found: list[str] = []
    each = [one for member in members for one in ownerships(member, found)]
    for partition, end in ends.items():
        owners = sorted((one for one in each if one.partition == partition), key=lambda one: one.from_ms)
        for one, other in itertools.pairwise(owners):
            if one.overlaps(other):
                found.append(f"two owners at a time: {one}, {other}")
        found += _losses(partition, end, owners)
        if not allowed.gaps:
            found += [line for one in owners for line in _disorder(one)]
    found += _shared_generations(members)
    return found


def _losses(partition: int, end: int, owners: Sequence[Ownership]) -> list[str]:
    """Offsets that were delivered to nobody."""
    missing = set(range(end))
    for one in owners:
        for first, last in one.deliveries:
            missing.difference_update(range(first, last + 1))
    return (
        [f"{len(missing)} records of partition {partition} lost: {sorted(missing)[:20]}"] if missing else []
    )


def _disorder(owner: Ownership) -> list[str]:
    """What came twice, or not at all, within one ownership."""
    return [
        f"{owner}: {before[0]} to {before[1]} is followed by {after[0]} to {after[1]}"
        for before, after in itertools.pairwise(owner.deliveries)
        if after[0] != before[1] + 1
    ]


def _shared_generations(members: Sequence[Witness]) -> list[str]:
    """Partitions that two members got records of in one generation, where libraries tell theirs."""
    first: dict[tuple[int, int], str] = {}
    found = []
    for member in members:
        for event in member.read():
            generation = event.get("generation")
            if event["name"] != "records_consumed" or generation is None:
                continue
            for partition in partitions_of(event):
                owner = first.setdefault((generation, partition), member.identity)
                if owner != member.identity:
                    found.append(f"partition {partition} in generation {generation}: {owner}, {member.name}")
    return found
