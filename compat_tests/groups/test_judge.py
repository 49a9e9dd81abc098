"""The judge finds what it is there to find, and has nothing against a history that is right."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from compat_tests.groups import judge
from compat_tests.groups.judge import Event
from compat_tests.groups.log import shared


@dataclass
class Told:
    """A member that has told this."""

    name: str
    events: list[Event] = field(default_factory=list)
    killed_ms: int | None = None

    @property
    def identity(self) -> str:
        return self.name

    def read(self) -> list[Event]:
        return self.events

    def _tell(self, at_ms: int, name: str, **facts: object) -> Told:
        self.events.append({"timestamp": at_ms, "name": name, **facts})
        return self

    def gets(self, at_ms: int, *partitions: int) -> Told:
        return self._tell(at_ms, "partitions_assigned", partitions=[{"partition": one} for one in partitions])

    def gives(self, at_ms: int, *partitions: int) -> Told:
        return self._tell(at_ms, "partitions_revoked", partitions=[{"partition": one} for one in partitions])

    def reads(self, at_ms: int, first: int, last: int, generation: int | None = None) -> Told:
        """Of partition 0."""
        one = {"partition": 0, "count": last - first + 1, "minOffset": first, "maxOffset": last}
        return self._tell(at_ms, "records_consumed", count=1, generation=generation, partitions=[one])

    def stops(self, at_ms: int) -> Told:
        return self._tell(at_ms, "stopping")


def test_a_partition_that_changes_hands_is_no_fault() -> None:
    one = Told("one").gets(0, 0, 1).reads(1, 0, 4).reads(2, 5, 5).gives(3, 0)
    other = Told("other").gets(3, 0).reads(4, 4, 9).stops(5)
    assert judge.faults([one, other], {0: 10}) == []
    assert judge.owned_after(one.events) == {1}
    assert judge.owned_after(other.events) == frozenset()


def test_what_a_dead_member_has_is_free() -> None:
    one = Told("one", killed_ms=5).gets(0, 0).reads(1, 0, 4, generation=1)
    other = Told("other").gets(7, 0).reads(8, 2, 9, generation=2)
    assert judge.faults([one, other], {0: 10}) == []


@pytest.mark.parametrize(
    ("expected", "members"),
    [
        (
            "two owners at a time",
            [Told("one").gets(0, 0).reads(1, 0, 9).gives(6, 0), Told("other").gets(5, 0).stops(9)],
        ),
        ("2 records of partition 0 lost: [5, 6]", [Told("one").gets(0, 0).reads(1, 0, 4).stops(2),
                                                   Told("other").gets(3, 0).reads(4, 7, 9)]),
        ("is followed by", [Told("one").gets(0, 0).reads(1, 0, 9).reads(2, 9, 9)]),
        ("got records of what it does not have", [Told("one").gets(0, 0).gives(1, 0).reads(2, 0, 9)]),
        (
            "partition 0 in generation 3: one, other",
            [
                Told("one").gets(0, 0).reads(1, 0, 4, generation=3).gives(2, 0),
                Told("other").gets(2, 0).reads(3, 5, 9, generation=3).stops(4),
            ],
        ),
    ],
)  # fmt: skip
def test_a_fault_is_found(expected: str, members: list[Told]) -> None:
    assert any(expected in line for line in judge.faults(members, {0: 10})), judge.faults(members, {0: 10})


def test_a_partition_with_two_owners_in_the_log_is_found() -> None:
    assert list(shared({"one": frozenset({0, 1}), "other": frozenset({2})})) == []
    (line,) = shared({"one": frozenset({0, 1}), "other": frozenset({1, 2})})
    assert line == "partition 1 belongs to one and to other"
