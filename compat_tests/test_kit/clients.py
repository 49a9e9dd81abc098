"""The same operations by three client libraries, each with a client of its own that goes away at the end.

An operation has one name for all that it works with: its client id, its topic with one partition, its group
and its transactional id are the same. So a fault is for one client id, and many operations run at once.
"""

from __future__ import annotations

import abc
import itertools
import pathlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from compat_tests import reference
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import Child

RECORDS = 3
VALUES = [f"v{number}" for number in range(RECORDS)]
GROUP_OPERATIONS = ("group", "consumer", "share")
"""Operations that hold what they have until they are released."""


@dataclass(frozen=True)
class Patience:
    """How long a client waits."""

    request_ms: int = 30_000
    """For a response."""
    api_ms: int = 90_000
    """For the whole operation, with all attempts."""


class Failed(Exception):
    """The exception of the library; `name` is that of its class, or of its code where it has one class."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class StoryClient(abc.ABC):
    """One library."""

    name: str

    @abc.abstractmethod
    def run(
        self,
        bootstrap: str,
        operation: str,
        name: str,
        patience: Patience,
        hold: Callable[[], object] | None = None,
        **settings: str,
    ) -> list[str]:
        """Values that the operation finds. A member of a group stays one until `hold` returns. `settings` are
        those of a login, with underscores for dots. Failed."""

    def close(self) -> None:  # noqa: B027
        """Ends what the library has for all operations."""


def released_by(hold: Callable[[], object] | None, then: Callable[[], object]) -> None:
    """Calls `then` once `hold` has returned, however it does."""
    if hold is None:
        then()
        return

    def wait() -> None:
        try:
            hold()
        finally:
            then()

    threading.Thread(target=wait, daemon=True).start()


class InPython(StoryClient):
    """A library in this process: a method an operation."""

    operations: Callable[..., Any]

    def run(
        self,
        bootstrap: str,
        operation: str,
        name: str,
        patience: Patience,
        hold: Callable[[], object] | None = None,
        **settings: str,
    ) -> list[str]:
        released = threading.Event()
        released_by(hold, released.set)
        one = self.operations(bootstrap, name, patience, released, settings)
        try:
            return [str(value) for value in getattr(one, operation)() or ()]
        except Exception as failure:
            raise self.failed(failure) from failure

    @abc.abstractmethod
    def failed(self, failure: Exception) -> Failed: ...


class JavaStoryClient(StoryClient):
    """Kafka's client in one virtual machine, behind `StoryClient.java`."""

    name = "java"

    def __init__(self) -> None:
        source = pathlib.Path(__file__).with_name("StoryClient.java")
        class_path = compile_java(reference.client_class_path(), source)
        options = (*reference.SMALL_JVM, *reference.archive_for(class_path))
        self._program = Child(["java", *options, "-cp", class_path, source.stem])
        self._ids = map(str, itertools.count())
        self._running: dict[str, Future[list[str]]] = {}
        self._writing = threading.Lock()
        threading.Thread(target=self._hear, daemon=True).start()

    def run(
        self,
        bootstrap: str,
        operation: str,
        name: str,
        patience: Patience,
        hold: Callable[[], object] | None = None,
        **settings: str,
    ) -> list[str]:
        identity, result = next(self._ids), Future[list[str]]()
        self._running[identity] = result
        pairs = {
            "request.timeout.ms": patience.request_ms,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "enable.metrics.push": "false",
            **self._of_operation(operation, patience),
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        words = [f"{key}={value}" for key, value in pairs.items()]
        self._write("run", identity, bootstrap, operation, name, *words)
        released_by(hold, lambda: self._write("release", identity))
        return result.result(patience.api_ms / 1000 * 3)

    @staticmethod
    def _of_operation(operation: str, patience: Patience) -> dict[str, object]:
        if operation in ("produce", "transact"):
            return {
                "delivery.timeout.ms": patience.api_ms,
                "max.block.ms": patience.api_ms,
                "linger.ms": 0,
            }
        more: dict[str, object] = {"default.api.timeout.ms": patience.api_ms}
        if operation in ("group", "consumer"):
            more["max.poll.interval.ms"] = patience.api_ms
        return more

    def _write(self, *words: str) -> None:
        assert self._program.process.stdin is not None
        with self._writing:
            self._program.process.stdin.write(("\t".join(words) + "\n").encode())
            self._program.process.stdin.flush()

    def _hear(self) -> None:
        assert self._program.process.stdout is not None
        for line in self._program.process.stdout:
            identity, outcome, *rest = line.decode().rstrip("\n").split("\t")
            result = self._running.pop(identity)
            if outcome == "ok":
                result.set_result([word for word in rest if word])
            else:
                result.set_exception(Failed(rest[0], " ".join(rest[1:])))
        for result in self._running.values():
            result.set_exception(RuntimeError(f"the virtual machine has ended: {self._program.errors()}"))

    def close(self) -> None:
        self._program.close()
