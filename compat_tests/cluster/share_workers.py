"""Share consumers at work while a cluster changes, and what they were told, judged.

Each of them acknowledges what it gets, and waits for the result. A record whose acknowledgement has an error,
or no result, may be delivered again or not; every other one counts.
"""

from __future__ import annotations

import abc
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from compat_tests import reference
from compat_tests.clients.java import SOURCE
from compat_tests.cluster.loads import ALLOWED_SECONDS, Working
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import JavaProgram

POLL_SECONDS = 0.2
GRACE_SECONDS = 5.0
"""So long a consumer may have a record that it got from a leader before the last one."""
KINDS = {"ACCEPT": 8, "RELEASE": 1, "REJECT": 1}
"""And how often each comes."""


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


class ShareHistory:
    """What all consumers of one group were given and told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.delivered: Counter[Place] = Counter()
        self.done: dict[Place, float] = {}
        """Accepted or rejected, and told so: when."""
        self.unsure: set[Place] = set()
        """It was not told whether the acknowledgement counts."""
        self.complaints: list[str] = []
        self.refusals: Counter[str] = Counter()

    def note_delivered(self, who: str, places: Sequence[Place]) -> None:
        now = time.monotonic()
        with self._lock:
            for place in places:
                self.delivered[place] += 1
                if now - self.done.get(place, now) > GRACE_SECONDS:
                    late = now - self.done[place]
                    self.complaints.append(f"{who} gets {place} {late:.1f} s after it was acknowledged")

    def note_settled(self, kinds: Mapping[Place, str], errors: Mapping[Place, str]) -> None:
        """`errors` has those whose acknowledgement was refused or not answered."""
        with self._lock:
            for place, kind in kinds.items():
                if place in errors:
                    self.refusals[errors[place]] += 1
                    if kind != "RELEASE":
                        self.unsure.add(place)
                    continue
                if kind == "RELEASE":
                    continue
                # A late one of somebody else is answered as if it counted.
                self.done.setdefault(place, time.monotonic())

    def lacks(self, ends: Mapping[str, int]) -> list[Place]:
        """The records before these ends, of partition 0 of topics, that nobody has acknowledged."""
        with self._lock:
            return [
                place
                for topic, end in ends.items()
                for place in (Place(topic, 0, offset) for offset in range(end))
                if place not in self.done and not (place in self.unsure and self.delivered[place])
            ]


class ShareWorker(Working):
    """One share consumer."""

    library: str

    def __init__(
        self, bootstrap: str, group: str, topics: Sequence[str], history: ShareHistory, seed: int
    ) -> None:
        super().__init__()
        self._bootstrap, self._group, self._topics = bootstrap, group, list(topics)
        self._history = history
        self._chance = random.Random(seed)
        self._count = 0

    def __str__(self) -> str:
        return f"a share consumer of {self.library}"

    @property
    def done(self) -> int:
        return self._count

    def _run(self) -> None:
        self._open()
        try:
            while not self._ending.is_set():
                places = self._poll()
                if not places:
                    continue
                self._history.note_delivered(str(self), places)
                kinds = dict(zip(places, self._drawn(len(places)), strict=True))
                errors = self._settle(kinds)
                self._history.note_settled(kinds, errors)
                self._count += len(kinds) - len(errors)
        finally:
            self._close()

    def _drawn(self, count: int) -> list[str]:
        return self._chance.choices(list(KINDS), list(KINDS.values()), k=count)

    @abc.abstractmethod
    def _open(self) -> None: ...

    @abc.abstractmethod
    def _poll(self) -> list[Place]: ...

    @abc.abstractmethod
    def _settle(self, kinds: Mapping[Place, str]) -> dict[Place, str]:
        """Acknowledges, and waits for the result; the errors."""

    @abc.abstractmethod
    def _close(self) -> None: ...


def _errors(kinds: Mapping[Place, str], told: Mapping[tuple[str, int], str | None]) -> dict[Place, str]:
    """By what each partition was told; one that was told nothing has no answer."""
    found = {place: told.get(place[:2], "no answer") for place in kinds}
    return {place: error for place, error in found.items() if error is not None}


class ConfluentShareWorker(ShareWorker):
    library = "confluent-kafka"

    def _open(self) -> None:
        from confluent_kafka import ShareConsumer

        self._consumer = ShareConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "share.acknowledgement.mode": "explicit",
                "topic.metadata.refresh.interval.ms": 200,
                "reconnect.backoff.max.ms": 300,
            }
        )
        self._consumer.subscribe(self._topics)

    def _poll(self) -> list[Place]:
        messages = list(self._consumer.poll(POLL_SECONDS))
        for one in messages:
            assert one.error() is None, one.error()
        return [Place(one.topic(), one.partition(), one.offset()) for one in messages]

    def _settle(self, kinds: Mapping[Place, str]) -> dict[Place, str]:
        from confluent_kafka import AcknowledgeType

        for place, kind in kinds.items():
            self._consumer.acknowledge_offset(*place, getattr(AcknowledgeType, kind))
        told = self._consumer.commit_sync(float(ALLOWED_SECONDS))
        return _errors(
            kinds,
            {
                (where.topic, where.partition): None if error is None else str(error)
                for where, error in told.items()
            },
        )

    def _close(self) -> None:
        self._consumer.close()


class JavaShareWorker(ShareWorker):
    library = "Java"

    def _open(self) -> None:
        class_path = compile_java(reference.client_class_path(), SOURCE.with_name("ShareWorker.java"))
        self._program = JavaProgram(class_path, "ShareWorker", self._bootstrap, self._group, *self._topics)

    def _poll(self) -> list[Place]:
        lines = [line.split("\t") for line in self._program.ask("poll", int(POLL_SECONDS * 1000))]
        return [Place(topic, int(partition), int(offset)) for topic, partition, offset, *_ in lines]

    def _settle(self, kinds: Mapping[Place, str]) -> dict[Place, str]:
        told: dict[tuple[str, int], str | None] = {}
        for line in self._program.ask("settle", *kinds.values()):
            topic, partition, error = line.split("\t")
            told[topic, int(partition)] = error or None
        return _errors(kinds, told)

    def _close(self) -> None:
        self._program.close()


WORKERS: Mapping[str, type[ShareWorker]] = {
    "confluent-kafka": ConfluentShareWorker,
    "java": JavaShareWorker,
}
