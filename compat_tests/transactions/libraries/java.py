"""Kafka's own client of 4.3, behind `Transactions.java`."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import defaultdict
from collections.abc import Mapping

from compat_tests import reference
from compat_tests.kit.history import Partition, Records
from compat_tests.kit.java import CLIENTS, compile_java
from compat_tests.kit.programs import JavaFailure, JavaProgram
from compat_tests.transactions.libraries import (
    PATIENCE_SECONDS,
    POLL_SECONDS,
    RECORDS_A_TRANSACTION,
    Aborted,
    Failed,
    Fenced,
    Library,
    Reader,
    Source,
    TransactionalProducer,
)


class JavaProducer(TransactionalProducer):
    """Kafka's own of 4.3, behind `Transactions.java`; one JVM for all of a process."""

    library = "java"
    SETTINGS: Mapping[str, object] = {
        "linger.ms": 2,
        "max.block.ms": int(PATIENCE_SECONDS * 1000),
        "reconnect.backoff.max.ms": 300,
    }
    FENCED = re.compile(r"\.(ProducerFenced|InvalidProducerEpoch|FencedInstanceId)Exception\b")
    _program: JavaProgram | None = None
    _names = itertools.count()

    @classmethod
    def program(cls) -> JavaProgram:
        """The JVM of this process, which ends with it."""
        if cls._program is None:
            class_path = compile_java(reference.client_class_path(), CLIENTS / "Transactions.java")
            cls._program = JavaProgram(class_path, "Transactions")
        return cls._program

    def open(self) -> None:
        self._name = next(JavaProducer._names)
        settings = {
            "bootstrap.servers": self.bootstrap,
            "transactional.id": self.transactional_id,
            "transaction.timeout.ms": self.timeout_ms,
            **self.SETTINGS,
        }
        self.program().ask("open", self._name, *(f"{name}={value}" for name, value in settings.items()))
        self._call("init")

    def _call(self, name: str, *arguments: object) -> None:
        try:
            self._ask(name, *arguments)
        except JavaFailure as failure:
            self._ask("acknowledged")
            if self.FENCED.search(str(failure)):
                raise Fenced(str(failure)) from failure
            raise Failed(str(failure)) from failure

    def _ask(self, name: str, *arguments: object) -> None:
        for line in self.program().ask(name, self._name, *arguments):
            topic, number, offset, value = line.split("\t")
            self.acknowledged[(topic, int(number)), value.encode()] = int(offset)

    def _in_transaction(self, name: str, *arguments: object) -> None:
        """What fails is aborted, as Kafka's documentation has it; or that fails, too, and nothing helps."""
        try:
            self._call(name, *arguments)
        except Fenced:
            raise
        except Failed as failure:
            self._call("abort")
            raise Aborted(*failure.args) from failure

    def begin(self) -> None:
        self._call("begin")

    def send(self, partition: Partition, value: bytes) -> None:
        self._in_transaction("send", *partition, value.decode())

    def flush(self) -> None:
        self._in_transaction("flush")

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        where = [part for partition, offset in offsets.items() for part in (*partition, offset)]
        self._in_transaction("offsets", group, *where)

    def commit(self) -> None:
        self._in_transaction("commit")

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        self._call("close")

    def abandon(self) -> None:
        with contextlib.suppress(Failed):
            self._call("abandon")


class HastyJavaProducer(JavaProducer):
    """Gives up on requests early, and then on the transaction.

    What a connection that hangs still has in it comes late to the broker, when the transaction is aborted and
    perhaps another is open (KAFKA-17754): version 2 is there for that.
    """

    SETTINGS: Mapping[str, object] = {
        **JavaProducer.SETTINGS,
        "request.timeout.ms": 1000,
        "delivery.timeout.ms": 1500,
    }


class JavaReader(Reader):
    failures = (JavaFailure,)

    def open(self) -> None:
        self._ask = JavaProducer.program().ask
        self._ask(
            "consume", self.name, f"bootstrap.servers={self._bootstrap}", f"isolation.level={self._isolation}"
        )
        self._ask("assign", self.name, *(part for where in self._partitions for part in (*where, 0)))

    def poll(self) -> dict[Partition, Records]:
        read: dict[Partition, list[tuple[int, int]]] = defaultdict(list)
        for line in self._ask("poll", self.name, int(POLL_SECONDS * 1000)):
            topic, *numbers = line.split("\t")
            partition, offset, value = map(int, numbers)
            read[topic, partition].append((offset, value))
        return dict(read)

    def close(self) -> None:
        self._ask("leave", self.name)


class JavaSource(Source):
    NAME = "source"

    def __init__(self, bootstrap: str, group: str, partitions: list[Partition]) -> None:
        super().__init__(bootstrap, group, partitions)
        self._ask = JavaProducer.program().ask
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        self._ask("consume", self.NAME, *(f"{name}={value}" for name, value in settings.items()))
        # Without an offset it begins where the group has committed.
        where = [part for partition in partitions for part in (*partition, "-")]
        lines = [line.split("\t") for line in self._ask("assign", self.NAME, *where)]
        self._unread = {int(number): (int(start), int(end)) for _, number, start, end in lines}
        self._ahead: list[tuple[int, int, str, bytes]] = []

    def poll(self) -> tuple[Partition, list[bytes], int] | None:
        # There are no markers in what it reads: the last record is where the partition ends.
        self._unread = {number: (at, end) for number, (at, end) in self._unread.items() if at < end}
        if not self._unread:
            return None
        while not self._ahead:
            for line in self._ask("poll", self.NAME, 200):
                topic, number, offset, value = line.split("\t")
                self._ahead.append((int(number), int(offset), topic, value.encode()))
            self._ahead.sort()
        number, _, topic, _ = self._ahead[0]
        taken = [one for one in self._ahead[:RECORDS_A_TRANSACTION] if one[0] == number]
        del self._ahead[: len(taken)]
        behind = taken[-1][1] + 1
        self._unread[number] = (behind, self._unread[number][1])
        return (topic, number), [value for *_, value in taken], behind


LIBRARY = Library(JavaProducer, JavaReader, JavaSource, hasty=HastyJavaProducer)
