"""Share consumers that acknowledge as chance has it, each in a process that may be killed at any moment."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from compat_tests.kit.programs import JavaFailure, Program
from compat_tests.kit.working import Working
from compat_tests.share_groups.ledger import Answer, Ledger
from compat_tests.share_groups.members import (
    ACCEPT,
    FRANZ,
    JAVA,
    REJECT,
    RELEASE,
    RENEW,
    Delivery,
    ShareMember,
    Where,
    program_of,
)

EXPLICIT = {"share.acknowledgement.mode": "explicit"}
MAX_RECORDS = 20
KINDS = [(ACCEPT, 60), (RELEASE, 30), (REJECT, 7), (RENEW, 3)]
"""With their weights."""
CLOSES_OF_100 = 2
"""Polls after which a consumer closes, and a new one begins."""
SYNC_OF_100 = 70


class Worker(Working):
    """One thread with one consumer of `library`. All that it sees and is told goes into the ledger.

    `accepts_all`: it does nothing else, as who reads what is left."""

    def __init__(
        self,
        ledger: Ledger,
        library: str,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        chance: random.Random,
        accepts_all: bool = False,
    ) -> None:
        super().__init__()
        self.library = library
        self.ledger, self.bootstrap, self.group, self.topic = ledger, bootstrap, group, topic
        self.chance, self.accepts_all = chance, accepts_all
        self.may_renew = library in (*JAVA, FRANZ) and not library.startswith("4.1")
        self._program: Program | None = None
        self.troubles: deque[str] = deque(maxlen=20)
        """What the library said lately of requests that failed; a broker that is killed makes some."""
        self.start()

    def __str__(self) -> str:
        return f"{self.library}: {list(self.troubles)}"

    def kill(self) -> None:
        """SIGKILL for the process; the thread begins anew with another one."""
        if (program := self._program) is not None:
            self.ledger.end()
            program.kill()

    def _run(self) -> None:
        while not self.is_stopping:
            program = self._program = program_of(self.library, self.bootstrap)
            try:
                while not self.is_stopping:
                    _Consumer(self, program).work()
            except RuntimeError as ended:
                if isinstance(ended, JavaFailure):
                    raise
                self.troubles.append(f"it has ended: {ended}")
            finally:
                program.kill()

    @property
    def is_stopping(self) -> bool:
        return self._ending.is_set()


class _Consumer:
    """One consumer from its beginning to its end, whichever that is."""

    def __init__(self, worker: Worker, program: Program) -> None:
        self._worker, self._ledger, self._chance = worker, worker.ledger, worker.chance
        self._is_franz = worker.library == FRANZ
        self._is_implicit = not self._is_franz and self._chance.randrange(5) == 0
        settings = {"max.poll.records": f"{MAX_RECORDS}", **({} if self._is_implicit else EXPLICIT)}
        self._began = self._ledger.begin(worker.library)
        self._member = ShareMember(program, worker.group, worker.topic, settings=settings)
        self._pending: defaultdict[Where, deque[Answer]] = defaultdict(deque)
        """Acknowledgements of which the callback has not told."""

    def work(self) -> None:
        while not self._worker.is_stopping:
            try:
                self._turn()
            except JavaFailure as failure:
                self._worker.troubles.append(str(failure)[:300])
                break
            if self._chance.randrange(100) < CLOSES_OF_100:
                break
        self._ledger.end()
        try:
            self._take(self._member.close())
        except JavaFailure as failure:
            self._worker.troubles.append(str(failure)[:300])

    def _turn(self) -> None:
        deliveries = self._member.poll(200)
        self._ledger.deliver(deliveries, self._began)
        if not self._is_franz:
            self._take(self._member.told())
        if not deliveries:
            return
        asked = [(one, self._kind()) for one in deliveries]
        answers = [(one.where, self._ledger.acknowledge(one, kind)) for one, kind in asked]
        if not self._is_implicit:
            self._member.acknowledge_each(asked)
        if self._is_franz:
            self._confirm(answers, self._member.commit())
            # Java's consumer returns what it has renewed once more; franz-go's next poll would accept it.
            if renewed := [one for one, kind in asked if kind == RENEW]:
                self._accept(renewed)
            return
        for where, answer in answers:
            self._pending[where].append(answer)
        if self._chance.randrange(100) < SYNC_OF_100:
            results = self._member.commit()
            self._confirm([one for one in answers if len(self._pending[one[0]]) == 1], results)
        elif self._chance.randrange(2):
            self._member.commit_async()
        # Else the next poll carries them.

    def _accept(self, deliveries: Sequence[Delivery]) -> None:
        answers = [(one.where, self._ledger.acknowledge(one, ACCEPT)) for one in deliveries]
        self._member.acknowledge(deliveries)
        self._confirm(answers, self._member.commit())

    def _confirm(
        self, answers: Iterable[tuple[Where, Answer]], results: dict[tuple[str, int], str | None]
    ) -> None:
        for where, answer in answers:
            if results.get((where.topic, where.partition), "no result") is None:
                self._ledger.confirm(answer)
        self._worker.troubles += [error for error in results.values() if error is not None]

    def _take(self, told: Iterable[tuple[Where, str | None]]) -> None:
        """What the callback says. Which of two acknowledgements of one record it means is not known."""
        for where, error in told:
            waiting = self._pending[where]
            if not waiting:
                continue
            is_clear = len(waiting) == 1
            answer = waiting.popleft()
            if not is_clear:
                waiting.clear()
            elif error is not None:
                self._worker.troubles.append(error)
            elif answer.told is None:
                self._ledger.confirm(answer)

    def _kind(self) -> str:
        if self._is_implicit or self._worker.accepts_all:
            return ACCEPT
        names, weights = zip(*KINDS, strict=True)
        kind = self._chance.choices(names, weights)[0]
        return kind if kind != RENEW or self._worker.may_renew else ACCEPT
