"""What clients were promised, and whether what anybody reads agrees with it.

Every value says whose it is and which one in that producer's order, and the rest of it follows from that, so
a record that is lost, doubled, moved, reordered or damaged is told from every other. Safe to use from all
threads.
"""

from __future__ import annotations

import random
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

FILLER_BYTES_MAX = 1500


@dataclass(frozen=True, slots=True)
class Identity:
    """One record: the `number`th that `producer` sent to `partition`."""

    producer: str
    partition: int
    number: int

    def value(self) -> bytes:
        head = f"{self.producer}/{self.partition}/{self.number}/".encode()
        chance = random.Random(zlib.crc32(head))
        return head + chance.randbytes(8) * chance.randrange(FILLER_BYTES_MAX // 8)

    @classmethod
    def of(cls, value: bytes | None) -> Identity:
        """Whose value this is; AssertionError for one that nobody sent."""
        producer, partition, number, _ = (value or b"").split(b"/", 3)
        identity = cls(producer.decode(), int(partition), int(number))
        assert identity.value() == value, f"the value of {identity} is damaged"
        return identity


Place = tuple[int, int]
"""Partition and offset."""


class Records:
    """Places that were acknowledged, and places that somebody read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acknowledged: dict[Place, Identity] = {}
        self._seen: dict[Place, tuple[Identity, str]] = {}
        self._seen_by: dict[str, set[Place]] = defaultdict(set)
        self.acknowledged_of: Counter[str] = Counter()
        """Producer -> how many of its records were acknowledged."""

    def acknowledge(self, identity: Identity, place: Place) -> None:
        with self._lock:
            other = self._acknowledged.setdefault(place, identity)
            assert other == identity, f"{place} was acknowledged for {other} and for {identity}"
            assert place[0] == identity.partition, f"{identity} was acknowledged at {place}"
            self.acknowledged_of[identity.producer] += 1

    def see(self, reader: str, place: Place, value: bytes | None) -> None:
        """`reader` read this there; AssertionError if anybody ever read something else there."""
        identity = Identity.of(value)
        with self._lock:
            other, by = self._seen.setdefault(place, (identity, reader))
            assert other == identity, f"{place} was {other} for {by} and is {identity} for {reader}"
            self._seen_by[reader].add(place)

    def copy(self) -> Records:
        """What is acknowledged by now."""
        copy = Records()
        with self._lock:
            copy._acknowledged.update(self._acknowledged)
        return copy

    def acknowledged(self) -> int:
        with self._lock:
            return len(self._acknowledged)

    def has_seen_all(self, reader: str) -> bool:
        """Whether `reader` has read every acknowledged place."""
        with self._lock:
            return self._acknowledged.keys() <= self._seen_by[reader]

    def check(self, log: Mapping[int, list[bytes | None]]) -> None:
        """`log` has the values of every partition from offset 0 on, read after the last crash."""
        there = {
            (partition, offset): Identity.of(value)
            for partition, values in log.items()
            for offset, value in enumerate(values)
        }
        with self._lock:
            lost = {p: i for p, i in self._acknowledged.items() if there.get(p) != i}
            assert not lost, f"{len(lost)} acknowledged records are not where they were: {_some(lost, there)}"
            gone = {p: i for p, (i, _) in self._seen.items() if there.get(p) != i}
            assert not gone, f"{len(gone)} records were read and are no longer there: {_some(gone, there)}"


def _some(wrong: Mapping[Place, Identity], there: Mapping[Place, Identity]) -> str:
    return "; ".join(f"{p} was {i}, is {there.get(p)}" for p, i in sorted(wrong.items(), key=str)[:5])


def check_order(log: Mapping[int, list[bytes | None]], producers: Iterable[str]) -> None:
    """Each of the idempotent `producers` wrote 0, 1, 2, ... to each partition: no gap, no double, no swap."""
    orders: dict[tuple[str, int], list[int]] = defaultdict(list)
    for partition, values in log.items():
        for value in values:
            identity = Identity.of(value)
            assert identity.partition == partition, f"{identity} is in partition {partition}"
            orders[identity.producer, partition].append(identity.number)
    for producer in producers:
        for partition in log:
            numbers = orders[producer, partition]
            wrong = next((at for at, number in enumerate(numbers) if at != number), None)
            assert wrong is None, (
                f"{producer} in partition {partition}: {numbers[max(0, wrong - 3) : wrong + 4]} at {wrong}"
            )


class Commits:
    """Offsets that groups committed. A group's commits only ever ascend here, so each one has a floor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acknowledged: dict[tuple[str, int], int] = {}
        self._under_way: list[tuple[str, dict[int, int]]] = []
        self.acknowledged_of: Counter[str] = Counter()
        """Group -> how many of its commits were acknowledged."""
        self.held = False
        """Whether nobody may begin one: between a crash and the look at what it left, or a new commit would
        hide the loss of an old one."""

    def begin(self, group: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """The part of `offsets` that is ahead of what the group has; to be given to `end`."""
        with self._lock:
            ahead = {p: o for p, o in offsets.items() if o > self._acknowledged.get((group, p), 0)}
            if self.held:
                ahead = {}
            self._under_way.append((group, ahead))
            return ahead

    def end(self, group: str, offsets: dict[int, int], *, acknowledged: bool) -> None:
        with self._lock:
            self._under_way.remove((group, offsets))
            if acknowledged and offsets:
                self._acknowledged.update(((group, p), offset) for p, offset in offsets.items())
                self.acknowledged_of[group] += 1

    def floors(self, group: str) -> dict[int, int]:
        """Partition -> the last acknowledged offset, or a lower one that a member has under way right now."""
        with self._lock:
            floors = {p: offset for (name, p), offset in self._acknowledged.items() if name == group}
            for name, offsets in self._under_way:
                if name == group:
                    floors.update({p: min(floors[p], o) for p, o in offsets.items() if p in floors})
            return floors
