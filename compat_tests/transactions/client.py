"""One client of a history as a process of its own: a worker, a reader, or whoever reads the log at the end.

    python -m compat_tests.transactions.client '{"role": "worker", ...}'

So that a library that ends its process (librdkafka's assertions do) ends nothing else. It says on its
standard output what it does, a JSON list a line, and always before it does it: what is known of a process
that is gone is what it has said. When it is told "stop", or nobody is there to say so, it ends its
transaction and goes.

`workload.py` starts these and makes a history of what they say.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from compat_tests.kit import readers, telling
from compat_tests.kit.history import Outcome, Partition
from compat_tests.transactions import libraries
from compat_tests.transactions.libraries import (
    PATIENCE_SECONDS,
    Aborted,
    Failed,
    Tell,
    TransactionalProducer,
    tick,
)

SENDS_MAX = 6
ABORTS, ABANDONS, CONSUMES, FLUSHES = 0.15, 0.04, 0.4, 0.3
"""How often a transaction is aborted on purpose or left open; how often it has offsets, or a flush within."""


class Worker:
    """One producer after another under one transactional id.

    Says "opened" (tick) when its first producer is there; then for each transaction "began" (tick), "sends"
    (topic, partition, value) and "consumes" (group, topic, partition, start, end), "commits" (tick) if it
    does, and "ended" (tick, outcome, [[value, offset]] of what was acknowledged).
    """

    def __init__(self, tell: Tell, stopping: threading.Event, **about: Any) -> None:
        """`about`: name, library, bootstrap, seed, the partitions `output` and `own`, its group;
        `first_value` of those that nobody else sends; `life`: how many processes it had before;
        `leaves_open`: whether it goes in the middle of a transaction when it is stopped;
        `pause_seconds` between two transactions, at most."""
        self._tell, self._stopping = tell, stopping
        self.name, self._bootstrap = about["name"], about["bootstrap"]
        library = libraries.load(about["library"])
        self._kind = library.hasty or library.producer
        self._output = [(topic, number) for topic, number in about["output"]]
        self.own, self.group = tuple(about["own"]), about["group"]
        self._is_another, self._leaves_open = about["life"] > 0, about["leaves_open"]
        self._pause_seconds = about["pause_seconds"]
        self._chance = random.Random("/".join([about["seed"], self.name, *["again"] * about["life"]]))
        self._values = itertools.count(about["first_value"])
        self._position = 0

    def run(self) -> None:
        """Until it is stopped. Raises AssertionError; a failure of the library's is none."""
        try:
            self._start_over(None)
            if self._is_another:
                self._position = readers.committed_offset(self._bootstrap, self.group, self.own)
            self._tell("opened", tick())
            while not self._stopping.wait(self._chance.random() * self._pause_seconds):
                self._one()
            if self._leaves_open:
                self._leave()
            else:
                self._producer.close()
        except Failed:
            pass  # in closing: there is nothing left to lose

    def _leave(self) -> None:
        """Begins a transaction that nobody will end."""
        self._tell("began", tick())
        with contextlib.suppress(Failed):
            self._producer.begin()
            for where in self._output:
                self._send(where)
            self._producer.flush()
            self._consume(self._position + 1)
        self._tell("ended", tick(), Outcome.ABORTED.value, [])

    def _start_over(self, old: Any) -> None:
        """A new producer; when it is there, whatever the old one had begun is over."""
        if old is not None:
            old.abandon()
        # Long: brokers are killed all the time, and a busy machine has few moments with a coordinator.
        # Whether clients get on at all is asked at the end.
        deadline = time.monotonic() + 6 * PATIENCE_SECONDS
        while True:
            self._producer = self._kind(self._bootstrap, self.name)
            try:
                self._producer.open()
                return
            except Failed as failure:
                self._producer.abandon()
                if time.monotonic() > deadline:
                    raise AssertionError(f"{self.name} gets no producer: {failure}") from failure

    def _one(self) -> None:
        producer = self._producer
        self._tell("began", tick())
        outcome, position = Outcome.ABORTED, self._position
        is_over = False
        try:
            producer.begin()
            position = self._fill(producer)
            draw = self._chance.random()
            if draw < ABORTS:
                producer.abort()
                is_over = True
            elif draw > ABORTS + ABANDONS:
                outcome = Outcome.UNKNOWN
                self._tell("commits", tick())
                producer.commit()
                is_over, outcome = True, Outcome.COMMITTED
        except Failed as failure:
            if isinstance(failure, Aborted):
                is_over, outcome = True, Outcome.ABORTED
            # How far it came with its offsets is not known.
            position = -1
        if not is_over:
            self._start_over(producer)
        if outcome is Outcome.COMMITTED:
            self._position = position
        elif position != self._position:
            self._position = readers.committed_offset(self._bootstrap, self.group, self.own)
        acknowledged = [[int(value), offset] for (_, value), offset in producer.acknowledged.items()]
        self._tell("ended", tick(), outcome.value, acknowledged)
        producer.acknowledged.clear()

    def _fill(self, producer: TransactionalProducer) -> int:
        """Sends a few values and perhaps offsets; returns where the group is to be after it."""
        chance = self._chance
        for _ in range(chance.randrange(1, SENDS_MAX + 1)):
            self._send(chance.choice(self._output))
            if chance.random() < FLUSHES:
                producer.flush()
        if chance.random() >= CONSUMES:
            return self._position
        end = self._position + chance.randrange(1, 10)
        self._consume(end)
        return end

    def _send(self, where: Partition) -> None:
        value = next(self._values)
        self._tell("sends", *where, value)
        self._producer.send(where, b"%d" % value)

    def _consume(self, end: int) -> None:
        self._tell("consumes", self.group, *self.own, self._position, end)
        self._producer.send_offsets(self.group, {self.own: end})


class Sender:
    """One idempotent producer after another: no transactions, each value is on its own.

    Says "opened" (tick) first, and for a few values at a time "began" (tick), "sends" (topic, partition,
    value), "commits" (tick), and "ended" (tick, outcome, [[value, offset]] of what was acknowledged). What
    was not is perhaps still to come.
    """

    def __init__(self, tell: Tell, stopping: threading.Event, **about: Any) -> None:
        """`about`: as that of a `Worker`, without what transactions need."""
        self._tell, self._stopping = tell, stopping
        self.name, self._bootstrap = about["name"], about["bootstrap"]
        kind = libraries.load(about["library"]).idempotent
        assert kind is not None
        self._kind = kind
        self._output = [(topic, number) for topic, number in about["output"]]
        self._pause_seconds = about["pause_seconds"]
        self._chance = random.Random("/".join([about["seed"], self.name, *["again"] * about["life"]]))
        self._values = itertools.count(about["first_value"])

    def run(self) -> None:
        """Until it is stopped."""
        self._tell("opened", tick())
        producer: TransactionalProducer | None = None
        while not self._stopping.wait(self._chance.random() * self._pause_seconds):
            if producer is None:
                producer = self._kind(self._bootstrap, self.name)
                try:
                    producer.open()
                except Failed:
                    producer = None
                    continue
            if not self._one(producer):
                producer.abandon()
                producer = None
        if producer is not None:
            with contextlib.suppress(Failed):
                producer.close()

    def _one(self, producer: TransactionalProducer) -> bool:
        """Whether everything was acknowledged."""
        self._tell("began", tick())
        self._tell("commits", tick())
        count = self._chance.randrange(1, SENDS_MAX + 1)
        with contextlib.suppress(Failed):
            producer.begin()
            for _ in range(count):
                where, value = self._chance.choice(self._output), next(self._values)
                self._tell("sends", *where, value)
                producer.send(where, b"%d" % value)
            producer.flush()
        acknowledged = [[int(value), offset] for (_, value), offset in producer.acknowledged.items()]
        producer.acknowledged.clear()
        self._tell("ended", tick(), Outcome.UNKNOWN.value, acknowledged)
        return len(acknowledged) == count


def read_log(tell: Tell, stopping: threading.Event, **about: Any) -> None:
    """Says "log" (isolation level, topic, partition, [[offset, value]]) of all `partitions`."""
    partitions = [(topic, number) for topic, number in about["partitions"]]
    for isolation in (readers.READ_COMMITTED, readers.READ_UNCOMMITTED):
        read = readers.read_all(about["bootstrap"], partitions, isolation)
        for (topic, number), records in read.items():
            tell("log", isolation, topic, number, [[offset, int(value)] for offset, value in records])


ROLES: dict[str, Callable[..., None]] = {
    "worker": lambda *where, **about: Worker(*where, **about).run(),
    "sender": lambda *where, **about: Sender(*where, **about).run(),
    "reader": lambda *where, **about: libraries.load(about["library"]).reader(*where, **about).run(),
    "log": read_log,
}


def main(arguments: list[str]) -> None:
    about = json.loads(arguments[0])
    telling.keep_the_output_for_events()
    stopping = telling.told_to_stop()
    role = ROLES[about["role"]]
    telling.end_with(lambda: role(lambda *event: telling.tell(event), stopping, **about))


if __name__ == "__main__":
    main(sys.argv[1:])
