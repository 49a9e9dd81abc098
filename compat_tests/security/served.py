"""A broker in this process, so that a test sees which principals its clients have."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TypeVar

import uvloop

from odradek.config.broker_config import load
from odradek.server.broker import BrokerServer

T = TypeVar("T")
STARTING_SECONDS = 60


class Served:
    """A broker on an event loop of its own, in a thread."""

    def __init__(
        self,
        directory: pathlib.Path,
        options: Mapping[str, str],
        new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
    ) -> None:
        sets = [f"{name}={value}" for name, value in options.items()]
        self.server = BrokerServer(load(sets=sets, data_dir=directory))
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Served:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result(STARTING_SECONDS)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(STARTING_SECONDS)
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def port(self, listener: str) -> int:
        return next(port for name, _, port in self.server.addresses if name == listener)

    def address(self, listener: str) -> str:
        return f"localhost:{self.port(listener)}"

    def call(self, function: Callable[[], T]) -> T:
        """On the broker's event loop."""

        async def called() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(STARTING_SECONDS)

    def principals(self, listener: str) -> set[str]:
        """Of the clients that are connected there."""
        return self.call(
            lambda: {one.principal for one in self.server.connections if one.listener_name == listener}
        )
