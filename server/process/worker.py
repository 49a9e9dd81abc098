"""One of the workers of a broker, as a process: it is forked by `supervisor.py`.

Each is a node of a cluster. The first one is its controller, too, on the same event loop: it starts before the
node and stops after it, and after all other workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from odradek.server.broker import BrokerServer
from odradek.server.controlling.controller_server import ControllerServer
from odradek.storage.disk import OsDisk, OsLock

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.server.network.listeners import Listener

logger = logging.getLogger("odradek.workers")

OTHERS_LEAVE_S = 10.0
"""The controller stops without the workers that have not left by then: one may be paused."""

Sockets = Mapping[str, Sequence[socket.socket]]
"""Bound ones by the name of a listener, or of the option of the metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOfWorkers:
    """The controller in the first worker."""

    config: BrokerConfig
    sockets: Sockets
    deaths: int = -1
    """A pipe with a line for each worker that dies: its node id."""
    dead: Collection[int] | None = None
    """Node ids of workers that have ended before; None: no worker of an earlier run is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker is made of."""

    config: BrokerConfig
    sockets: Sockets
    polls_before_sleep: bool
    controller: ControllerOfWorkers | None = None


def new_worker(parts: WorkerParts, on_end: Callable[[], None]) -> BrokerServer | FirstWorker:
    """For `main_loop.run_server`."""
    if parts.controller is not None:
        return FirstWorker(parts, parts.controller, on_end)
    return _new_broker(parts, on_end)


def _new_broker(parts: WorkerParts, on_end: Callable[[], None], disk: OsDisk | None = None) -> BrokerServer:
    return BrokerServer(
        parts.config,
        after_loading=gc.freeze,
        polls_before_sleep=parts.polls_before_sleep,
        owns_process=True,
        on_end=on_end,
        sockets=parts.sockets,
        disk=disk,
    )


class FirstWorker:
    """A node and its controller. `start` and `stop` run on the event loop."""

    def __init__(
        self, parts: WorkerParts, controller: ControllerOfWorkers, on_end: Callable[[], None]
    ) -> None:
        disk = _OneProcess()
        self._controller_parts = controller
        self._controller = ControllerServer(
            controller.config, owns_process=True, on_end=on_end, sockets=controller.sockets, disk=disk
        )
        self._broker = _new_broker(parts, on_end, disk)
        self._is_started = False

    async def start(self) -> None:
        """Returns when the node is unfenced. Raises ConfigError; a start that fails leaves nothing behind."""
        async with AsyncExitStack() as ending:
            ending.push_async_callback(self._controller.stop)
            await self._controller.start()
            self._tell_of_the_dead()
            ending.callback(self._ignore_deaths)
            ending.push_async_callback(self._broker.stop)
            await self._broker.start()
            ending.pop_all()
        self._is_started = True

    def _tell_of_the_dead(self) -> None:
        """Nobody has reached the new controller yet."""
        if self._controller_parts.dead is None:
            self._controller.no_broker_lives()
        else:
            for node_id in self._controller_parts.dead:
                self._controller.broker_has_died(node_id)
        asyncio.get_running_loop().add_reader(self._controller_parts.deaths, self._read_deaths)

    def _read_deaths(self) -> None:
        try:
            deaths = os.read(self._controller_parts.deaths, 4096)
        except BlockingIOError:
            return
        if not deaths:
            # The parent has ended: so does this process.
            self._ignore_deaths()
        for line in deaths.split():
            self._controller.broker_has_died(int(line))

    def _ignore_deaths(self) -> None:
        asyncio.get_running_loop().remove_reader(self._controller_parts.deaths)

    async def stop(self) -> None:
        """Harmless a second time. The others leave first, since they ask the controller."""
        if not self._is_started:
            return
        self._is_started = False
        await self._broker.stop()
        self._ignore_deaths()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OTHERS_LEAVE_S):
                await self._controller.brokers_have_left()
        await self._controller.stop()

    # Attributes of the node

    @property
    def config(self) -> BrokerConfig:
        return self._broker.config

    @property
    def node_id(self) -> int:
        return self._broker.node_id

    @property
    def cluster_id(self) -> str:
        return self._broker.cluster_id

    @property
    def data_directories(self) -> tuple[str, ...]:
        return self._broker.data_directories

    @property
    def listeners(self) -> list[Listener]:
        return self._broker.listeners

    @property
    def addresses(self) -> list[tuple[str, str, int]]:
        return self._broker.addresses

    @property
    def metrics_port(self) -> int:
        return self._broker.metrics_port


class _OneProcess(OsDisk):
    """The disk of a node and of its controller, which share a directory: a file is locked once for both."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[OsLock, int]] = {}

    def lock(self, path: str) -> OsLock:
        found = self._held.get(path)
        lock, count = (super().lock(path), 0) if found is None else found
        self._held[path] = lock, count + 1
        return _Share(partial(self._release, path))

    def _release(self, path: str) -> None:
        lock, count = self._held.pop(path)
        if count > 1:
            self._held[path] = lock, count - 1
        else:
            lock.release()


class _Share(OsLock):
    """The lock of one of several holders."""

    __slots__ = ("_release",)

    def __init__(self, release: Callable[[], None]) -> None:
        super().__init__(-1)
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Harmless a second time."""
        release, self._release = self._release, None
        if release is not None:
            release()
