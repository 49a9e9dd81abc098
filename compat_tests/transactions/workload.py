"""Producers and readers of four libraries that leave a `History` behind, and what is done to them meanwhile.

Workers run random transactions: a few values to random partitions, sometimes the offsets of a group, then a
commit, an abort, or nothing at all, with a new producer under the old name. Senders are idempotent producers
without transactions. Readers poll every partition. All go on through crashes of the broker and lost
connections; whatever a library tells them is written down, and what it does not tell is unknown.

Each is a process (`client.py`). librdkafka guards its states by assertions that end the process: what such a
one had begun is an operation without an answer, as after any crash of a client, and another process goes on
in its place. That is told, and no promise of the broker's. Any other end of a process fails the test.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from compat_tests.kit import readers
from compat_tests.kit.chance import Blows, told_seed
from compat_tests.kit.history import (
    Consumed,
    History,
    Outcome,
    Partition,
    Read,
    Send,
    Transaction,
)
from compat_tests.kit.programs import Teller
from compat_tests.kit.proxy import Verdict
from compat_tests.kit.transaction_brokers import TransactionBroker
from compat_tests.kit.working import Working
from compat_tests.transactions.checker import check, summary
from compat_tests.transactions.libraries import IDEMPOTENT, LIBRARIES, PATIENCE_SECONDS, TIMEOUT_MS
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tools import environment

JOIN_SECONDS = 120.0
GOES_ON_SECONDS = 300
"""Until a worker has another transaction behind it: a library may need its patience several times."""
HANGS_SECONDS = 2 * PATIENCE_SECONDS + 10
"""The same for a library that may wait for ever, before its process is ended."""
MAY_CRASH = {"confluent-kafka": {signal.SIGABRT, signal.SIGSEGV}}
"""Library -> the signals by which its processes may end; the others are Python, or a JVM behind Python."""
SHOWN = 20
"""Anomalies of a history, at most."""
CRASHES_MAX = 5
"""Of one client: more are no accident."""
VALUES_OF_A_PROCESS = 1_000_000
"""No value is ever sent twice: each process has numbers of its own."""
NEVER = sys.maxsize
"""When something is over of which nobody hears any more."""
PAUSE_SECONDS = 0.02


class Client(Working):
    """A process that says what it does, and its successor if its library ends it."""

    patience_seconds = JOIN_SECONDS

    def __init__(self, name: str, library: str, **about: Any) -> None:
        super().__init__()
        self.name = name
        self._library, self._about = library, {"name": name, "library": library, **about}
        self.crashes: list[str] = []
        self._is_stopping = self._is_killed = False
        self._process: Teller | None = None
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return self.name

    @property
    def may_crash(self) -> bool:
        """Whether its library ends processes: see `MAY_CRASH`."""
        return self._library in MAY_CRASH

    def hear(self, name: str, *what: Any) -> None:
        """Take in what the process has said."""
        getattr(self, f"_{name}")(*what)

    def let_end(self) -> None:
        """Lets it come to its end. Returns at once."""
        with self._lock:
            self._is_stopping = True
            if self._process is not None:
                self._process.ask_to_stop()

    def stop(self) -> None:
        self.let_end()
        super().stop()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """SIGKILL ends it for good, another signal as if it had brought that upon itself."""
        with self._lock:
            if number is not signal.SIGKILL:
                if self._process is not None:
                    self._process.process.send_signal(number)
                return
            self._is_killed = True
        self._signal_all(number)

    def stall(self, seconds: float) -> None:
        """Lets it do nothing for so long, it and the processes that it has. Returns at once."""
        self._signal_all(signal.SIGSTOP)
        going_on = threading.Timer(seconds, self._signal_all, (signal.SIGCONT,))
        going_on.daemon = True
        going_on.start()

    def _signal_all(self, number: signal.Signals) -> None:
        with self._lock:
            if self._process is not None:
                self._process.signal_all(number)

    def stacks(self) -> str:
        """Ends it and gives where its threads were, as `faulthandler` tells it."""
        self.kill(signal.SIGABRT)
        self._thread.join(JOIN_SECONDS)
        return self.crashes[-1] if self._failure is None else str(self._failure)

    def _run(self) -> None:
        while not self._live():
            assert len(self.crashes) <= CRASHES_MAX, "\n".join(self.crashes)

    def _live(self) -> bool:
        """One process from start to end. Returns whether it has done all that it had to do."""
        with self._lock:
            if self._is_killed:
                return True
            process = self._process = self._started()
            if self._is_stopping:
                process.ask_to_stop()
        for event in process.events(b"["):
            self.hear(*event)
        status = process.process.returncode
        if status == 0 or self._is_killed:
            return True
        text = process.complaints()
        assert -status in MAY_CRASH.get(self._library, ()), f"{self.name} ended with {status}: {text}"
        self.crashes.append(f"{self.name} was ended by {signal.Signals(-status).name}: {text}")
        return False

    def _started(self) -> Teller:
        about = {**self._about, "life": len(self.crashes)}
        about["first_value"] = self._about.get("first_value", 0) + len(self.crashes) * VALUES_OF_A_PROCESS
        command = [sys.executable, "-X", "faulthandler", "-m", "compat_tests.transactions.client"]
        return Teller(
            [*command, json.dumps(about)],
            cwd=environment.CHECKOUT,
            # Of its own, so that a JVM that it has is stalled with it.
            process_group=0,
            # Bugs are planted in brokers only.
            env={name: value for name, value in os.environ.items() if name != "ODRADEK_PLANTED_BUG"},
        )


@dataclass
class _Begun:
    """What a worker has said of its transaction so far."""

    began: int
    commit_asked: int | None = None
    sends: list[tuple[Partition, int]] = field(default_factory=list)
    consumed: list[Consumed] = field(default_factory=list)


class Sender(Client):
    """Sends with idempotent producers. What was acknowledged together is a transaction in the history, and
    each value that was not is another, which may still come after all others."""

    role = "sender"

    def __init__(self, name: str, library: str, *, output: Iterable[Partition], **about: Any) -> None:
        super().__init__(name, library, role=self.role, output=list(output), **about)
        self.transactions: list[Transaction] = []
        self._begun: _Begun | None = None

    def _opened(self, at: int) -> None:
        """Whatever the process before this one had begun has no answer."""
        if self._begun is not None:
            self._ended(at, Outcome.UNKNOWN.value, [])

    def _began(self, at: int) -> None:
        self._begun = _Begun(at)

    def _sends(self, topic: str, number: int, value: int) -> None:
        assert self._begun is not None
        self._begun.sends.append(((topic, number), value))

    def _commits(self, at: int) -> None:
        assert self._begun is not None
        self._begun.commit_asked = at

    def _ended(self, at: int, outcome: str, acknowledged: list[list[int]]) -> None:
        begun, self._begun = self._begun, None
        assert begun is not None
        offsets: dict[int, int] = dict(acknowledged)
        sends = [Send(where, value, offsets.get(value)) for where, value in begun.sends]
        parts = [(Outcome.COMMITTED, at, tuple(one for one in sends if one.offset is not None))]
        parts += [(Outcome.UNKNOWN, NEVER, (one,)) for one in sends if one.offset is None]
        self.transactions += [
            Transaction(
                process=self.name,
                outcome=how,
                began=begun.began,
                ended=ended,
                commit_asked=begun.commit_asked,
                sends=some,
            )
            for how, ended, some in parts
            if some
        ]


class Worker(Sender):
    """Runs transactions under one transactional id."""

    role = "worker"

    def __init__(self, name: str, library: str, *, own: Partition, **about: Any) -> None:
        self.own, self.group = own, f"group-of-{name}"
        super().__init__(name, library, own=own, group=self.group, **about)

    def _opened(self, at: int) -> None:
        """Whatever the process before this one had begun is over."""
        begun = self._begun
        if begun is not None:
            is_asked = begun.commit_asked is not None
            self._ended(at, (Outcome.UNKNOWN if is_asked else Outcome.ABORTED).value, [])

    def _consumes(self, group: str, topic: str, number: int, start: int, end: int) -> None:
        assert self._begun is not None
        self._begun.consumed.append(Consumed(group, (topic, number), start, end))

    def _ended(self, at: int, outcome: str, acknowledged: list[list[int]]) -> None:
        begun, self._begun = self._begun, None
        assert begun is not None
        offsets: dict[int, int] = dict(acknowledged)
        self.transactions.append(
            Transaction(
                process=self.name,
                outcome=Outcome(outcome),
                began=begun.began,
                ended=at,
                commit_asked=begun.commit_asked,
                sends=tuple(Send(where, value, offsets.get(value)) for where, value in begun.sends),
                consumed=tuple(begun.consumed),
            )
        )


class Reader(Client):
    """Reads all partitions, at isolation level read_committed unless it says otherwise."""

    def __init__(self, library: str, *, isolation: int = readers.READ_COMMITTED, **about: Any) -> None:
        self.isolation = isolation
        name = "reader" if isolation == readers.READ_COMMITTED else "uncommitted-reader"
        level = readers.ISOLATION[isolation]
        super().__init__(f"{name}-of-{library}", library, role="reader", isolation=level, **about)
        self.reads: list[Read] = []
        self._next: dict[Partition, int] = {}

    def has_read(self, last: dict[Partition, int]) -> bool:
        """Whether the last record of each partition has been seen."""
        return all(self._next.get(partition, 0) > offset for partition, offset in last.items())

    def _read(self, session: str, at: int, topic: str, number: int, records: list[list[int]]) -> None:
        partition = (topic, number)
        is_committed = self.isolation == readers.READ_COMMITTED
        values = [(offset, value) for offset, value in records]
        self.reads.append(Read(session, at, partition, values, is_committed))
        self._next[partition] = max(records[-1][0] + 1, self._next.get(partition, 0))


class LogReader(Client):
    """Reads every partition to its end of now, for both kinds of readers."""

    def __init__(self, **about: Any) -> None:
        super().__init__("the last reader", "confluent-kafka", role="log", **about)
        self.logs: dict[int, dict[Partition, list[tuple[int, int]]]] = {
            readers.READ_COMMITTED: {},
            readers.READ_UNCOMMITTED: {},
        }

    def _log(self, isolation: int, topic: str, number: int, records: list[list[int]]) -> None:
        self.logs[isolation][topic, number] = [(offset, value) for offset, value in records]


class Workload:
    """Workers and readers of every library on one broker, and its topics."""

    def __init__(
        self,
        broker: TransactionBroker,
        seed: int,
        topics: dict[str, int],
        *,
        libraries: Iterable[str] = tuple(LIBRARIES),
        workers_each: int = 2,
        senders_each: int = 0,
        uncommitted: Iterable[str] = (),
        pause_seconds: float = PAUSE_SECONDS,
        leaves_open: bool = False,
    ) -> None:
        """`topics`: name -> partitions; the last is for the groups' offsets, a partition for each worker.
        `senders_each`: of libraries that have them; `uncommitted`: those with a reader at read_uncommitted;
        `pause_seconds`: of workers and senders between two transactions, at most; `leaves_open`: whether
        workers go in the middle of a transaction at the end."""
        self.broker, self.seed = broker, seed
        *outputs, source = topics
        self.partitions = [(topic, number) for topic in outputs for number in range(topics[topic])]
        self.workers: list[Worker] = []
        self.senders: list[Sender] = []
        self.readers: list[Reader] = []
        self._last_reader = LogReader(bootstrap=broker.bootstrap, partitions=self.partitions)
        about: dict[str, Any] = {
            "bootstrap": broker.bootstrap,
            "seed": str(seed),
            "pause_seconds": pause_seconds,
        }
        numbers = itertools.count()

        def who(library: str) -> dict[str, Any]:
            number = next(numbers)
            first_value = number * VALUES_OF_A_PROCESS * 100 + 1
            name = f"{outputs[0]}-{library}-{number}"
            return {"name": name, "library": library, "output": self.partitions, "first_value": first_value}

        for library in libraries:
            for _ in range(workers_each):
                own = (source, len(self.workers))
                self.workers.append(Worker(**who(library), **about, own=own, leaves_open=leaves_open))
            for _ in range(senders_each if library in IDEMPOTENT else 0):
                self.senders.append(Sender(**who(library), **about))
            self.readers.append(Reader(library, bootstrap=broker.bootstrap, partitions=self.partitions))
        for library in uncommitted:
            isolation = readers.READ_UNCOMMITTED
            self.readers.append(
                Reader(library, isolation=isolation, bootstrap=broker.bootstrap, partitions=self.partitions)
            )
        assert len(self.workers) <= topics[source], "every worker needs a partition of the last topic"

    @property
    def clients(self) -> tuple[Client, ...]:
        """All that run until the end."""
        return (*self.readers, *self.workers, *self.senders)

    def __enter__(self) -> Workload:
        """Starts all of them; none is left when the block ends, however it does."""
        for one in self.clients:
            one.start()
        return self

    def __exit__(self, *failure: object) -> None:
        for one in (*self.clients, self._last_reader):
            one.kill()

    def raise_failure(self) -> None:
        for one in self.clients:
            one.raise_failure()

    def crashes(self) -> list[str]:
        """Of libraries that have ended their process, and what they said to it."""
        return [crash for client in (*self.clients, self._last_reader) for crash in client.crashes]

    def count(self) -> int:
        """Transactions that are over."""
        return sum(len(worker.transactions) for worker in self.workers)

    def go_on(self) -> None:
        """They get over the last blow, too. A library that ends processes may also wait for ever (librdkafka,
        for a group coordinator): then the process is ended, once, and its successor has to go on under the
        same names, at the same coordinators."""
        before = [(one, len(one.transactions)) for one in (*self.workers, *self.senders)]
        began = time.monotonic()
        for one, count in before:
            has_successor = not one.may_crash
            deadline = began + (GOES_ON_SECONDS if has_successor else HANGS_SECONDS)
            while len(one.transactions) <= count + 1:
                self.raise_failure()
                if time.monotonic() > deadline:
                    assert not has_successor, f"{one.name} does not go on: {one.stacks()}"
                    has_successor = True
                    one.kill(signal.SIGABRT)
                    deadline = time.monotonic() + GOES_ON_SECONDS
                time.sleep(0.05)

    def run(self, seconds: float, trouble: Callable[[], None] | None = None) -> None:
        """Lets all work for so long, with `trouble` again and again."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if trouble is not None:
                trouble()
            time.sleep(0.2)
            self.raise_failure()

    def finish(self, stable_seconds: float = TIMEOUT_MS / 1000 + 15) -> History:
        """Lets workers end their transactions and readers see the last record, then reads everything back.
        What was left open is aborted by its time-out; longer than `stable_seconds` that may not take.
        """
        producing = (*self.workers, *self.senders)
        for one in producing:
            one.let_end()
        for one in producing:
            one.stop()
        bootstrap = self.broker.bootstrap
        is_stable = readers.wait_until_stable(bootstrap, self.partitions, stable_seconds)
        ends = readers.ends(bootstrap, self.partitions)
        self._last_reader.start().stop()
        log = self._last_reader.logs[readers.READ_COMMITTED]
        self._wait_for_readers(log)
        return History(
            transactions=[one for client in producing for one in client.transactions],
            reads=[read for reader in self.readers for read in reader.reads],
            log=log,
            everything=self._last_reader.logs[readers.READ_UNCOMMITTED],
            ends=ends,
            # Where a group stands is not told while a transaction has offsets for it.
            committed={
                (worker.group, worker.own): readers.committed_offset(bootstrap, worker.group, worker.own)
                for worker in (self.workers if is_stable else ())
            },
        )

    def _wait_for_readers(self, log: dict[Partition, list[tuple[int, int]]]) -> None:
        last = {partition: records[-1][0] for partition, records in log.items() if records}
        deadline = time.monotonic() + PATIENCE_SECONDS
        for reader in self.readers:
            while not reader.has_read(last):
                reader.raise_failure()
                assert time.monotonic() < deadline, f"{reader.name} does not come to the end"
                time.sleep(0.05)
        for reader in self.readers:
            reader.let_end()
        for reader in self.readers:
            reader.stop()


def a_seed(capsys: pytest.CaptureFixture[str]) -> int:
    return told_seed(capsys, "ODRADEK_HISTORY_SEED")


def verdict(history: History) -> str:
    """What is wrong with it, for the reader of a failed test."""
    anomalies = check(history)
    shown = [str(anomaly) for anomaly in anomalies[:SHOWN]]
    return f"{len(anomalies)} anomalies in {summary(history)}:\n" + "\n".join(shown)


class Nemesis:
    """What happens to broker, connections and workers, at random moments. Sits in the proxy for it."""

    BLOWS = {"kill": 2, "cut": 2, "lose": 3, "pause": 1, "stall": 1}
    """And how often each comes."""
    LOST = (
        ProduceRequest,
        InitProducerIdRequest,
        AddPartitionsToTxnRequest,
        TxnOffsetCommitRequest,
        EndTxnRequest,
    )
    """Those whose answers get lost."""

    STALL_SECONDS = TIMEOUT_MS / 1000 + 1
    """Who goes on then finds that its transaction was aborted; meanwhile other things happen."""

    def __init__(self, broker: TransactionBroker, seed: int, workers: Sequence[Worker]) -> None:
        self._broker, self._workers = broker, workers
        self._chance = random.Random(f"{seed}/nemesis")
        self._blows = Blows(self.BLOWS, self._chance)
        self.kills = self.cuts = self.losses = self.pauses = self.stalls = 0
        self._unwanted: int | None = None
        self.versions: dict[int, set[int]] = defaultdict(set)
        """API key -> the versions of all requests that came by."""
        broker.proxy.judge, broker.proxy.answer_lost = self._judge, self._lost

    def strike(self) -> None:
        """Waits a while, then does one of these things."""
        time.sleep(self._chance.uniform(0.3, 2.5))
        match self._blows.next():
            case "kill":
                self._broker.kill()
                time.sleep(self._chance.random() * 0.5)
                self._broker.start()
                if not self._broker.is_odradek:
                    # Its port is open long before it can do anything: killed again and again before that, it
                    # would never get there.
                    self._broker.wait_until_coordinating()
                self.kills += 1
            case "cut":
                self.cuts += self._broker.proxy.drop_connections()
            case "lose":
                self._unwanted = self._chance.choice(self.LOST).api_key
            case "pause":
                self._broker.proxy.cut()
                time.sleep(self._chance.uniform(0.1, 1.5))
                self._broker.proxy.mend()
                self.pauses += 1
            case "stall":
                self._chance.choice(self._workers).stall(self.STALL_SECONDS)
                self.stalls += 1

    def _judge(self, api_key: int, frame: bytes) -> Verdict:
        self.versions[api_key].add(struct.unpack_from(">h", frame, 2)[0])
        if api_key != self._unwanted:
            return Verdict.PASS
        self._unwanted = None
        return Verdict.LOSE_ANSWER

    def _lost(self, api_key: int) -> None:
        # Or the client would wait for it, some of them for half a minute.
        self._broker.proxy.drop_connections()
        self.losses += 1

    def __str__(self) -> str:
        counts = (self.kills, self.cuts, self.losses, self.pauses, self.stalls)
        return "{} kills, {} connections cut, {} answers lost, {} pauses, {} stalls".format(*counts)
