"""The operations of the test kit, by name: `call("faults.add", {...})`.

`odradek.Broker` calls them, and so does whoever speaks HTTP (`server/test_kit/http_api.py`). A part is a
module of this package with a function `make(kit)`. It returns an object whose coroutines in `operations` are
the operations. Arguments and results are what JSON has; a broker in the same process also takes Python
functions. A part is imported with its first operation: a broker that nobody tests has nothing of it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from odradek.server.test_kit.interposing import Interposing
    from odradek.server.test_kit.tested import Tested

PARTS: tuple[str, ...] = ("faults", "clock", "logs", "snapshots", "requests", "state", "wait_for")
"""Each is a module of this package."""


class TestKitError(ValueError):
    """The operation is refused, and nothing has been done; the text is one sentence for people."""

    __test__ = False


class Part(Protocol):
    """Operations about one thing."""

    operations: tuple[str, ...]
    """Names of its coroutines."""

    def close(self) -> None:
        """The broker stops."""


class TestKit:
    """All parts of one broker. On the event loop."""

    __test__ = False

    def __init__(self, server: Tested) -> None:
        self.server = server
        self._parts: dict[str, Part] = {}
        self._calls: set[asyncio.Task[Any]] = set()

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """The result of an operation, such as `faults.add`. TestKitError: there is none of this name, it does
        not take these arguments, or it refuses."""
        part_name, _, name = operation.partition(".")
        if part_name not in PARTS:
            raise TestKitError(f"there is no {part_name!r} in the test kit; there are {', '.join(PARTS)}")
        part = self.part(part_name)
        if name not in part.operations:
            raise TestKitError(f"{part_name} has no {name!r}; it has {', '.join(part.operations)}")
        method = getattr(part, name)
        try:
            inspect.signature(method).bind(**arguments)
        except TypeError as error:
            raise TestKitError(f"{operation}: {error}") from None
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await method(**arguments)
        finally:
            self._calls.discard(task)

    def part(self, name: str) -> Any:
        """One of `PARTS`, made when it is first needed."""
        part = self._parts.get(name)
        if part is None:
            module = import_module(f"odradek.server.test_kit.{name}")
            part = self._parts[name] = module.make(self)
        return part

    @cached_property
    def interposing(self) -> Interposing:
        """For parts that see requests and responses."""
        from odradek.server.test_kit.interposing import Interposing

        return Interposing(self.server.connections.dispatcher.routes)

    def begin_anew(self, kept: Part) -> None:
        """The broker serves other data, by other parts of its own: only this part of the kit goes on, and
        other operations that are under way are cancelled."""
        others = [name for name, part in self._parts.items() if part is not kept]
        for name in others:
            self._parts.pop(name).close()
        for task in self._calls:
            if task is not asyncio.current_task():
                task.cancel()
        self.__dict__.pop("interposing", None)

    def close(self) -> None:
        """The broker stops: operations that are under way are cancelled."""
        for part in self._parts.values():
            part.close()
        for task in self._calls:
            task.cancel()
