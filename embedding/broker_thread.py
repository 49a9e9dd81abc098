"""A broker in a thread of the program, with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.embedding.broker_form import STOP_TIMEOUT_S, BrokerStartError, address_of
from odradek.server.extensions import Extensions
from odradek.server.process.main_loop import new_event_loop

if TYPE_CHECKING:
    from odradek.server.broker import BrokerServer
    from odradek.server.metrics.broker_metrics import BrokerMetrics


class BrokerThread:
    """A broker on an event loop in a thread of its own."""

    def __init__(
        self, host: str, data_dir: Path, settings: Mapping[str, Any], extensions: Extensions
    ) -> None:
        self._host, self._data_dir, self._settings = host, data_dir, settings
        self._extensions = extensions
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._port = 0
        self._failure: BaseException | None = None
        self._server: BrokerServer | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def pid(self) -> int | None:
        return None

    def log(self) -> bytes:
        return b""

    @property
    def console_url(self) -> str:
        return "" if self._server is None else self._server.console_url

    def start(self, port: int, timeout_s: float) -> int:
        from odradek.config.broker_config import load
        from odradek.config.config_error import ConfigError

        try:
            config = load(
                listen=address_of(self._host, port),
                data_dir=self._data_dir,
                keywords=self._settings,
                more_options=self._extensions.options,
            )
        except ConfigError as error:
            raise BrokerStartError(str(error)) from error
        self._ready.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(config,), name="odradek-broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(timeout_s):
            raise BrokerStartError(f"the broker was not ready within {timeout_s:g} s")
        if self._failure is not None:
            self._thread.join()
            raise BrokerStartError(str(self._failure)) from self._failure
        return self._port

    def metrics(self) -> BrokerMetrics:
        if self._server is None:
            raise RuntimeError("the broker does not run")
        return self._server.metrics()

    def call(self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None) -> Any:
        server, loop = self._server, self._loop
        if server is None or loop is None:
            raise RuntimeError("the broker does not run")
        calling = asyncio.run_coroutine_threadsafe(server.test_kit.call(operation, arguments), loop)
        try:
            return calling.result(timeout_s)
        except CancelledError:
            raise RuntimeError(f"{operation}: the broker has stopped, or was restored, meanwhile") from None

    def stop(self) -> None:
        thread, loop = self._thread, self._loop
        if thread is None:
            return
        if thread.is_alive() and loop is not None and self._stopping is not None:
            try:
                loop.call_soon_threadsafe(self._stopping.set)
            except RuntimeError:
                pass  # it has ended by itself in this moment
        thread.join(STOP_TIMEOUT_S)
        if thread.is_alive():
            raise RuntimeError(f"the broker did not stop within {STOP_TIMEOUT_S:g} s")
        self._thread = self._loop = None

    def _run(self, config: Any) -> None:
        loop = self._loop = new_event_loop()
        try:
            loop.run_until_complete(self._serve(config))
        except BaseException as error:
            self._failure = error
        finally:
            loop.close()
            self._ready.set()

    async def _serve(self, config: Any) -> None:
        from odradek.server.broker import BrokerServer

        self._stopping = asyncio.Event()
        server = BrokerServer(config, extensions=self._extensions)
        try:
            await server.start()
            self._server = server
            self._port = server.port
            self._ready.set()
            await self._stopping.wait()
        finally:
            self._server = None
            await server.stop()
