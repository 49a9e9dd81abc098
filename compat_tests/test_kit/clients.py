"""The same operations by three client libraries, each with a client of its own that goes away at the end.

An operation has one name for all that it works with: its client id, its topic with one partition, its group
and its transactional id are the same. So a fault is for one client id, and many operations run at once.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import multiprocessing
import os
import pathlib
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Protocol

from compat_tests import reference
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import Child

RECORDS = 3
VALUES = [f"v{number}" for number in range(RECORDS)]
GROUP_OPERATIONS = ("group", "consumer", "share")
"""Operations that hold what they have until they are released."""
END_SECONDS = 30.0
"""Time for the ends of clients, and for a busy machine."""
ENDLESS = "Endless"
"""Outcome of a client that was ended by the test."""
PROCESSES = multiprocessing.get_context("forkserver")
"""Processes that begin with the libraries imported, and without threads."""
PROCESSES.set_forkserver_preload(["compat_tests.test_kit.python_clients"])


@dataclass(frozen=True)
class Patience:
    """How long a client waits."""

    request_ms: int = 30_000
    """For a response."""
    api_ms: int = 60_000
    """For the whole operation, with all attempts."""

    @property
    def end_seconds(self) -> float:
        """Time until a client that has not ended is ended. Libraries in Python wait twice as long for their
        futures as for their operations."""
        return 2 * self.api_ms / 1000 + END_SECONDS


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


class Operations(Protocol):
    """An operation of a library in Python."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        patience: Patience,
        released: threading.Event,
        closing: Callable[[], None],
        settings: Mapping[str, str],
    ) -> None:
        """`closing` is called when the work is done, and the client is about to close."""


class InPython(StoryClient):
    """A library in Python: a method an operation, each in a process of its own. So one that never ends takes
    nothing from the next ones."""

    operations: type[Operations]

    def run(
        self,
        bootstrap: str,
        operation: str,
        name: str,
        patience: Patience,
        hold: Callable[[], object] | None = None,
        **settings: str,
    ) -> list[str]:
        ours, theirs = PROCESSES.Pipe()
        arguments = (theirs, type(self), operation, (bootstrap, name, patience), settings)
        process = PROCESSES.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        released_by(hold, lambda: _release(ours))
        phase = "at work"
        deadline = time.monotonic() + patience.end_seconds
        try:
            while ours.poll(deadline - time.monotonic()):
                kind, *rest = ours.recv()
                if kind == CLOSING:
                    phase = "closing"
                elif kind == DONE:
                    return list(rest)
                else:
                    raise Failed(rest[0], rest[1])
        except (EOFError, ConnectionError):
            process.join()
            raise RuntimeError(f"the process of {name} has ended with {process.exitcode}, {phase}") from None
        finally:
            process.kill()
            process.join()
        raise Failed(ENDLESS, f"{name} was still {phase} after {patience.end_seconds:g} s, and was killed")

    @abc.abstractmethod
    def failed(self, failure: Exception) -> Failed: ...


CLOSING, DONE, FAILED = "closing", "done", "failed"
"""Kinds of what an operation tells."""


def _release(pipe: Connection) -> None:
    # One that has ended needs no release.
    with contextlib.suppress(OSError):
        pipe.send(None)


def _serve(
    pipe: Connection,
    library: type[InPython],
    operation: str,
    arguments: tuple[str, str, Patience],
    settings: Mapping[str, str],
) -> None:
    """One operation, in its own process; it ends without waiting for what the library still has."""
    client, released = library(), threading.Event()

    def hear() -> None:
        with contextlib.suppress(EOFError, OSError):
            pipe.recv()
        released.set()

    threading.Thread(target=hear, daemon=True).start()
    one = library.operations(*arguments, released, lambda: pipe.send((CLOSING,)), settings)
    try:
        pipe.send((DONE, *(str(value) for value in getattr(one, operation)() or ())))
    except Exception as failure:
        told = client.failed(failure)
        pipe.send((FAILED, told.name, str(failure)))
    finally:
        os._exit(0)


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
        try:
            return result.result(patience.end_seconds)
        except FutureTimeout:
            # The rest of it ends with the virtual machine.
            text = f"{name} was still at work after {patience.end_seconds:g} s"
            raise Failed(ENDLESS, text) from None

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
        try:
            self._program.close()
        except subprocess.TimeoutExpired:
            self._program.kill()
            raise
