"""What share consumers saw and were told, in its order, and which of it cannot be.

The moments are numbers that grow. A consumer may return what it has fetched long before, so a delivery counts
against the broker in two cases only: the consumer began after the moment in question, or the broker has taken
its acknowledgement, which it does only from who holds the record.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from compat_tests.share_groups.members import ACCEPT, REJECT, RELEASE, RENEW, Delivery, Where

FINAL = (ACCEPT, REJECT)
UNSEEN_MAX = 2
"""As often in a row, at most, a record goes to consumers that end before they have shown it."""


@dataclass(slots=True)
class Answer:
    """An acknowledgement that was sent at the moment `asked`. `told` is when the client was told that the
    broker has taken it; None as long as it was told nothing, or of an error."""

    kind: str
    count: int
    asked: int
    told: int | None = None


@dataclass(slots=True)
class Seen:
    """A delivery: its count, its moment, and when its consumer began."""

    count: int
    moment: int
    began: int


@dataclass(slots=True)
class Record:
    """All about one record."""

    value: str | None = None
    seen: list[Seen] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


class Ledger:
    """Written by the threads of all consumers and producers; `faults` judges it at the end."""

    def __init__(self, limit: int) -> None:
        """`limit` is the group's limit of deliveries."""
        self._limit = limit
        self._lock = threading.Lock()
        self._moments = itertools.count(1)
        self._now = 0
        self._records: defaultdict[Where, Record] = defaultdict(Record)
        self._sent: set[str] = set()
        self._ends: list[int] = []
        self._libraries: dict[int, str] = {}
        """By the moment at which a consumer began."""
        self._faults: list[str] = []
        self.kept: dict[Where, str] = {}
        """Records whose producer was told where they are."""
        self.confirmed = 0
        """Acknowledgements that the broker has taken."""

    def _moment(self) -> int:
        self._now = next(self._moments)
        return self._now

    # producers

    def send(self, value: str) -> None:
        """Before it is sent."""
        with self._lock:
            self._sent.add(value)

    def keep(self, where: Where, value: str) -> None:
        """Its producer was told that the broker has it."""
        with self._lock:
            self.kept[where] = value

    # consumers

    def begin(self, library: str = "some client") -> int:
        """A new consumer; the moment is to be given with its deliveries."""
        with self._lock:
            began = self._moment()
            self._libraries[began] = library
            return began

    def end(self) -> None:
        """A consumer is about to go: it may have records that nobody has seen, and that it had them counts.
        (What the broker's own end cuts short does not count.)"""
        with self._lock:
            self._ends.append(self._moment())

    def deliver(self, deliveries: Iterable[Delivery], began: int) -> None:
        with self._lock:
            for one in deliveries:
                record = self._records[one.where]
                if one.value not in self._sent:
                    self._faults.append(f"{one} was never sent")
                if record.value not in (None, one.value):
                    self._faults.append(f"{one} had the value {record.value} before")
                record.value = one.value
                record.seen.append(Seen(one.count, self._moment(), began))

    def acknowledge(self, delivery: Delivery, kind: str) -> Answer:
        """Before it is sent."""
        with self._lock:
            answer = Answer(kind, delivery.count, self._moment())
            self._records[delivery.where].answers.append(answer)
            return answer

    def confirm(self, answer: Answer) -> None:
        """The client was told that the broker has taken it."""
        with self._lock:
            answer.told = self._moment()
            self.confirmed += 1

    # the judge

    def is_done_with(self, where: Where) -> bool:
        """Whether a record may never come again: an answer for it may be final, or it came as often as a
        record may."""
        record = self._records[where]
        if any(one.kind in FINAL for one in record.answers):
            return True
        if not record.seen:
            return False
        last = max(record.seen, key=lambda one: (one.count, one.moment))
        unseen = sum(moment > last.moment for moment in self._ends)
        return last.count + min(unseen, UNSEEN_MAX) >= self._limit

    def open_records(self) -> list[Where]:
        """Those kept that have to come still."""
        with self._lock:
            return sorted(where for where in self.kept if not self.is_done_with(where))

    def faults(self, *, is_drained: bool = True) -> list[str]:
        """What cannot be. `is_drained`: the group has read everything."""
        faults = list(self._faults)
        for where, value in self.kept.items():
            if self._records[where].value not in (None, value):
                faults.append(f"{where} was kept as {value} and came as {self._records[where].value}")
        if is_drained:
            faults += [f"{where} is lost: {self._records[where]}" for where in self.open_records()]
        for where, record in self._records.items():
            for said in (*self._of_counts(record), *_of_answers(record)):
                who = {seen.began: self._libraries[seen.began] for seen in record.seen}
                faults.append(f"{where}: {said}: {record}, consumers by their begin: {who}")
        return faults

    def _of_counts(self, record: Record) -> Iterable[str]:
        for number, one in enumerate(record.seen):
            if not 1 <= one.count <= self._limit:
                yield f"the count {one.count} is not possible"
            unseen = sum(moment <= one.moment for moment in self._ends)
            if one.count > number + 1 + unseen:
                yield f"the count {one.count} is more than there can have been deliveries"

    def summary(self) -> Mapping[str, int]:
        """How much there was of what, for whoever reads a test's output."""
        records = self._records.values()
        answers = [one for record in records for one in record.answers]
        return {
            "kept": len(self.kept),
            "deliveries": sum(len(record.seen) for record in records),
            "acknowledgements": len(answers),
            **{kind: sum(one.told is not None and one.kind == kind for one in answers) for kind in KINDS},
            "redelivered": sum(any(one.count > 1 for one in record.seen) for record in records),
        }


KINDS = (ACCEPT, RELEASE, REJECT, RENEW)


def _of_answers(record: Record) -> Iterable[str]:
    """Nothing comes after the last word on a record, and a release makes the next count higher."""
    taken = sorted((one for one in record.answers if one.told is not None), key=lambda one: one.told or 0)
    for first in taken:
        assert first.told is not None
        if first.kind == RENEW:
            continue
        later = [one for one in taken if one.asked > first.told]
        fresh = [one for one in record.seen if one.began > first.told]
        if first.kind in FINAL:
            if later:
                yield f"{later[0]} was taken after {first}"
            if fresh:
                yield f"it came again ({fresh[0]}) after {first}"
        else:
            lower = [one for one in (*later, *fresh) if one.count <= first.count]
            if lower:
                yield f"the count did not grow ({lower[0]}) after {first}"
