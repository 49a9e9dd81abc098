"""A node of ours in the process of the test, so that the test can look into it and break its disks."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from compat_tests.quorum import INTERNAL_TOPICS, AnyControllers, broker_properties
from compat_tests.reference import free_port
from odradek.config.broker_config import load
from odradek.server.broker import BrokerServer
from odradek.server.network._clock import Clock
from odradek.server.network.timers import wall_clock_ms

T = TypeVar("T")
SECONDS = 60


class Inside:
    """`directories` are its log directories, under `folder`; `now_ms` is its wall clock. Runs from `start` to
    `stop`, and again."""

    def __init__(
        self,
        controllers: AnyControllers,
        node_id: int,
        folder: pathlib.Path,
        *,
        directories: int = 1,
        properties: Mapping[str, str] | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.node_id = node_id
        self._now_ms = now_ms
        self.directories = [folder / f"data-{number}" for number in range(directories)]
        self.port = free_port()
        self._controllers = controllers
        self._config = folder / "server.properties"
        self._properties = {**INTERNAL_TOPICS, **(properties or {})}
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None
        self.server: BrokerServer

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Inside:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the node is unfenced."""
        data = ",".join(map(str, self.directories))
        text = broker_properties(self._controllers, self.node_id, self.port, data, self._properties)
        self._config.write_text(text)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.server = BrokerServer(
            load(self._config, cluster_id=self._controllers.cluster_id), clock=Clock(self._now_ms)
        )
        try:
            self._run(self.server.start())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Harmless a second time."""
        if self._thread is not None:
            self._run(self.server.stop())
            self._end()

    def call(self, function: Callable[[], T]) -> T:
        """Calls it on the node's event loop."""

        async def calling() -> T:
            return function()

        return self._run(calling())

    def begin(self, function: Callable[[], object]) -> None:
        """As `call`, and does not wait."""
        self._loop.call_soon_threadsafe(function)

    def _run(self, running: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(running, self._loop).result(SECONDS)

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        assert thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join(10)
        self._loop.close()
