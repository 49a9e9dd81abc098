"""Transactional producers and consumers of four libraries, said the same way; each does what the unmodified
library does, and of kafka-python besides what a careful user of it has to. Only Java's of 4.3 speaks version
2 of the protocol, where the cluster has it.

Of producers that are idempotent and no more only `open`, `begin`, `send`, `flush`, `close` and `abandon` are
of use.

What a library raises becomes `Fenced` (another producer has the transactional id; this one is done for),
`Failed` (this transaction is; start over with a new producer) or `Aborted` (this transaction is over).
"""

from __future__ import annotations

import abc
import contextlib
import importlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from compat_tests.kit.history import Partition, Records

LIBRARIES = {
    "confluent-kafka": "confluent",
    "aiokafka": "aio",
    "kafka-python": "kafka_python",
    "java": "java",
}
"""Name -> module, which is imported when it is asked for: each of them takes its time."""
IDEMPOTENT = ("confluent-kafka", "aiokafka", "kafka-python")
"""Those with producers that are idempotent and no more."""

PATIENCE_SECONDS = 40.0
"""Longer than any restart takes."""
TIMEOUT_MS = 6000
"""Of a transaction: what a dead producer left open is aborted after that."""
POLL_SECONDS = 0.2
RECORDS_A_TRANSACTION = 7

Tell = Callable[..., None]
"""What is said: a name, and what belongs to it."""


class Failed(Exception):
    """The library gave up on the transaction."""


class Fenced(Failed):
    """Another producer with the transactional id has taken over."""


class Aborted(Failed):
    """The library has aborted the transaction, whatever was asked; the producer is as good as before."""


class TransactionalProducer(abc.ABC):
    """Made by `open`; `acknowledged` has the offset of every value that the broker took."""

    library: str

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self.bootstrap, self.transactional_id, self.timeout_ms = bootstrap, transactional_id, timeout_ms
        self.acknowledged: dict[tuple[Partition, bytes], int] = {}

    @abc.abstractmethod
    def open(self) -> None:
        """Takes the transactional id, which fences whoever had it and ends what that one left open."""

    @abc.abstractmethod
    def begin(self) -> None: ...

    @abc.abstractmethod
    def send(self, partition: Partition, value: bytes) -> None:
        """Hands a value to the library, which sends it when it likes."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Returns when the broker has everything."""

    @abc.abstractmethod
    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None: ...

    @abc.abstractmethod
    def commit(self) -> None: ...

    @abc.abstractmethod
    def abort(self) -> None: ...

    @abc.abstractmethod
    def close(self) -> None:
        """Ends a producer without an open transaction; of no use to one that has failed."""

    @abc.abstractmethod
    def abandon(self) -> None:
        """Lets go of it, without a word to the broker if the library can: its transaction stays open."""


@contextlib.contextmanager
def told(fenced: tuple[type[BaseException], ...], failed: tuple[type[BaseException], ...]) -> Iterator[None]:
    """What the library raises, as ours."""
    try:
        yield
    except fenced as failure:
        raise Fenced(repr(failure)) from failure
    except failed as failure:
        raise Failed(repr(failure)) from failure


class Reader(abc.ABC):
    """Polls all partitions from their start on; a consumer that fails is followed by another.

    Says "read" (session, tick, topic, partition, [[offset, value]]).
    """

    failures: tuple[type[BaseException], ...]

    def __init__(self, tell: Tell, stopping: threading.Event, **about: Any) -> None:
        """`about`: name, library, bootstrap, partitions; `isolation`: name of the level; `life`: how many
        processes it had before."""
        self._tell, self._stopping = tell, stopping
        self.name, self._bootstrap = f"{about['name']}-{about['life']}", about["bootstrap"]
        self._partitions = [(topic, number) for topic, number in about["partitions"]]
        self._isolation = about["isolation"]

    def run(self) -> None:
        """Until it is stopped."""
        for session in itertools.count():
            if self._stopping.is_set():
                return
            self._session(f"{self.name}-{session}")

    def _session(self, name: str) -> None:
        try:
            self.open()
            while not self._stopping.is_set():
                for (topic, number), records in self.poll().items():
                    self._tell("read", name, tick(), topic, number, records)
        except self.failures:
            self._stopping.wait(POLL_SECONDS)
        finally:
            self.close()

    @abc.abstractmethod
    def open(self) -> None: ...

    @abc.abstractmethod
    def poll(self) -> dict[Partition, Records]: ...

    @abc.abstractmethod
    def close(self) -> None: ...


def values_by_partition(batches: Any) -> dict[Partition, Records]:
    return {
        (where.topic, where.partition): [(record.offset, int(record.value)) for record in records]
        for where, records in batches.items()
        if records
    }


class Source(abc.ABC):
    """A library's consumer of committed values, assigned, from where the group has committed."""

    def __init__(self, bootstrap: str, group: str, partitions: list[Partition]) -> None:
        self.bootstrap, self.group, self.partitions = bootstrap, group, partitions

    @abc.abstractmethod
    def poll(self) -> tuple[Partition, list[bytes], int] | None:
        """Some values of one partition and the offset behind them; None at the end of all partitions."""


@dataclass(frozen=True)
class Library:
    """What there is of one library."""

    producer: type[TransactionalProducer]
    reader: type[Reader]
    source: type[Source]
    idempotent: type[TransactionalProducer] | None = None
    hasty: type[TransactionalProducer] | None = None
    """A producer that gives up sooner, where one is needed to see that."""


def load(name: str) -> Library:
    found: Library = importlib.import_module(f"{__name__}.{LIBRARIES[name]}").LIBRARY
    return found


def tick() -> int:
    """Nanoseconds of the machine's one monotonic clock: processes can be compared by it."""
    return time.monotonic_ns()
