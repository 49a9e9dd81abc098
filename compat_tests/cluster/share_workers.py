"""Share consumers at work while a cluster changes, and what they were told, judged.

Each of them acknowledges what it gets, and waits for the result. A record whose acknowledgement has an error,
or no result, may be delivered again or not; every other one counts.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from compat_tests import reference
from compat_tests.cluster.loads import ALLOWED_SECONDS, Working
from compat_tests.share_groups.members import LIBRDKAFKA, ShareMember, Where, program_of

POLL_MS = 200
GRACE_SECONDS = 5.0
"""So long a consumer may have a record that it got from a leader before the last one."""
KINDS = {"ACCEPT": 8, "RELEASE": 1, "REJECT": 1}
"""And how often each comes."""
SETTINGS = {
    LIBRDKAFKA: {"topic.metadata.refresh.interval.ms": "200"},
    reference.CURRENT: {
        "max.poll.records": "50",
        # close() waits for half a minute where it does not know yet that a node of a session is back.
        "metadata.max.age.ms": "1000",
    },
}
"""Of each library."""


class ShareHistory:
    """What all consumers of one group were given and told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.delivered: Counter[Where] = Counter()
        self.done: dict[Where, float] = {}
        """Accepted or rejected, and told so: when."""
        self.unsure: set[Where] = set()
        """It was not told whether the acknowledgement counts."""
        self.complaints: list[str] = []
        self.refusals: Counter[str] = Counter()

    def note_delivered(self, who: str, places: Sequence[Where]) -> None:
        now = time.monotonic()
        with self._lock:
            for place in places:
                self.delivered[place] += 1
                if now - self.done.get(place, now) > GRACE_SECONDS:
                    late = now - self.done[place]
                    self.complaints.append(f"{who} gets {place} {late:.1f} s after it was acknowledged")

    def note_settled(self, kinds: Mapping[Where, str], errors: Mapping[Where, str]) -> None:
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

    def lacks(self, ends: Mapping[str, int]) -> list[Where]:
        """The records before these ends, of partition 0 of topics, that nobody has acknowledged."""
        with self._lock:
            return [
                place
                for topic, end in ends.items()
                for place in (Where(topic, 0, offset) for offset in range(end))
                if place not in self.done and not (place in self.unsure and self.delivered[place])
            ]


class ShareWorker(Working):
    """One share consumer of `library`."""

    def __init__(
        self,
        library: str,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        history: ShareHistory,
        seed: int,
    ) -> None:
        super().__init__()
        self._library, self._bootstrap = library, bootstrap
        self._group, self._topics = group, list(topics)
        self._history = history
        self._chance = random.Random(seed)
        self._count = 0

    def __str__(self) -> str:
        return f"a share consumer of {self._library}"

    @property
    def done(self) -> int:
        return self._count

    def _run(self) -> None:
        program = program_of(self._library, self._bootstrap)
        settings = {"share.acknowledgement.mode": "explicit", "reconnect.backoff.max.ms": "300"}
        settings |= SETTINGS[self._library]
        try:
            member = ShareMember(program, self._group, *self._topics, settings=settings)
            while not self._ending.is_set():
                self._turn(member)
            member.close()
        finally:
            program.kill()

    def _turn(self, member: ShareMember) -> None:
        """Acknowledges what it gets, and waits for the result."""
        deliveries = member.poll(POLL_MS)
        if not deliveries:
            return
        places = [one.where for one in deliveries]
        self._history.note_delivered(str(self), places)
        kinds = self._chance.choices(list(KINDS), list(KINDS.values()), k=len(places))
        member.acknowledge_each(zip(deliveries, kinds, strict=True))
        told = member.commit(ALLOWED_SECONDS * 1000)
        # By what each partition was told; one that was told nothing has no answer.
        found = {place: told.get(place[:2], "no answer") for place in places}
        errors = {place: error for place, error in found.items() if error is not None}
        self._history.note_settled(dict(zip(places, kinds, strict=True)), errors)
        self._count += len(places) - len(errors)
