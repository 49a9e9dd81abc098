"""The first worker: a node and the controller of all workers, in one process and on one event loop.

The controller starts before the node and stops after it, and after all other workers. Both have the same id
and share a directory, as with `process.roles=broker,controller` in Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek.server.process.main_loop import NodeServer
from odradek.storage.disk import OsDisk, OsLock

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.server.process.main_loop import NodeListener
    from odradek.server.workers.supervisor import Deaths

OTHERS_LEAVE_S = 10.0
"""The controller stops without the workers that have not left by then: one may be paused."""


class WorkersBroker(NodeServer, Protocol):
    """The node; `BrokerServer`."""

    def controllers_have_ended(self, sentence: str) -> None:
        """No controller will answer any more."""


class WorkersController(Protocol):
    """The controller; `ControllerServer`."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def broker_has_died(self, broker_id: int) -> None:
        """The process of a broker has ended."""

    def no_broker_lives(self) -> None:
        """No process of a broker of an earlier run is left."""

    async def brokers_have_left(self) -> None:
        """Returns when no broker is connected any more."""


class FirstWorker:
    """See the module; a `NodeServer`."""

    def __init__(
        self,
        broker: WorkersBroker,
        controller: WorkersController,
        deaths: Deaths,
        take_over: Callable[[], None],
    ) -> None:
        """`take_over` is called when the controller has its metadata, and before any worker has them. It may
        raise ConfigError."""
        self._take_over = take_over
        self._broker = broker
        self._controller = controller
        self._deaths = deaths
        self._is_started = False
        self._has_controller = True

    def has_failed(self) -> None:
        """The disk of both takes nothing any more: the node cannot ask the controller to be let go."""
        if not self._has_controller:
            return
        self._has_controller = False
        self._broker.controllers_have_ended("the controller in this process has failed")

    async def start(self) -> None:
        """Returns when the node is unfenced. Raises ConfigError; a start that fails leaves nothing behind."""
        async with AsyncExitStack() as ending:
            ending.push_async_callback(self._controller.stop)
            await self._controller.start()
            # Nobody has reached it yet: nothing is awaited in between.
            self._take_over()
            self._tell_of_the_dead()
            ending.callback(self._ignore_deaths)
            ending.push_async_callback(self._broker.stop)
            await self._broker.start()
            ending.pop_all()
        self._is_started = True

    def _tell_of_the_dead(self) -> None:
        """Nobody has reached the new controller yet."""
        if self._deaths.before is None:
            self._controller.no_broker_lives()
        else:
            for node_id in self._deaths.before:
                self._controller.broker_has_died(node_id)
        asyncio.get_running_loop().add_reader(self._deaths.descriptor, self._read_deaths)

    def _read_deaths(self) -> None:
        try:
            lines = os.read(self._deaths.descriptor, 4096)
        except BlockingIOError:
            return
        if not lines:
            # The parent has ended: so does this process.
            self._ignore_deaths()
        for line in lines.split():
            self._controller.broker_has_died(int(line))

    def _ignore_deaths(self) -> None:
        asyncio.get_running_loop().remove_reader(self._deaths.descriptor)

    async def stop(self) -> None:
        """Harmless a second time. The others leave before the controller stops, since they ask it."""
        if not self._is_started:
            return
        self._is_started = False
        await self._broker.stop()
        self._ignore_deaths()
        if self._has_controller:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OTHERS_LEAVE_S):
                    await self._controller.brokers_have_left()
        await self._controller.stop()

    def hurry(self) -> None:
        """The parent's signals do not come here."""
        self._broker.hurry()

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
    def listeners(self) -> Sequence[NodeListener]:
        return self._broker.listeners

    @property
    def addresses(self) -> list[tuple[str, str, int]]:
        return self._broker.addresses

    @property
    def controller_addresses(self) -> Sequence[tuple[str, str, int]]:
        return self._broker.controller_addresses

    @property
    def metrics_port(self) -> int:
        return self._broker.metrics_port

    @property
    def test_api_ports(self) -> Sequence[int]:
        return self._broker.test_api_ports

    @property
    def console_url(self) -> str:
        return self._broker.console_url


class OneProcess(OsDisk):
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

    __slots__ = ("_give_back",)

    def __init__(self, give_back: Callable[[], None]) -> None:
        super().__init__(-1)
        self._give_back: Callable[[], None] | None = give_back

    def release(self) -> None:
        """Harmless a second time."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()
