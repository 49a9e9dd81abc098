"""A broker: starts in three phases, serves, and stops.

    bind (`server/phase_bind.py`)       ports are bound, data directories locked
    open_data (`server/phase_open.py`)  metadata and logs are recovered
    serve (`server/phase_serve.py`)     listeners answer, background work runs

Each phase is complete: it has all parts that it needs, and hands them to the next one. What it acquires it
also puts on a stack; a stop, and a start that fails, undo that in the reverse order. So a stop closes the
ports, ends background work, answers what can be answered, closes connections (`server/shutdown.py`), ends
workers, closes the metadata, flushes the logs and marks the directories as cleanly stopped.

A node alone decides for its cluster (`server/standalone.py`). A node that has controllers joins them in place
of `bind` (`server/cluster/member.py`), and replicates (`server/cluster/replication.py`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.server.extensions import NO_EXTENSIONS, Extensions
from odradek.server.network._clock import Clock
from odradek.server.node import Node, do_nothing
from odradek.server.phase_bind import bind
from odradek.server.phase_open import open_data
from odradek.server.phase_serve import Serving, serve
from odradek.server.standalone import decide_alone

if TYPE_CHECKING:
    from concurrent.futures import Future

    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.client_metrics.clients import ClientMetrics
    from odradek.coordinator.cluster.control_plane import ControlPlane
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.server.background.schedule import Schedule
    from odradek.server.background.upkeep import Compaction
    from odradek.server.cluster.replication import Replication
    from odradek.server.coordination.coordinators import Coordinators
    from odradek.server.metrics.broker_metrics import BrokerMetrics
    from odradek.server.network.connections import Connections
    from odradek.server.network.listeners import Listener
    from odradek.server.network.routes import Routes
    from odradek.server.test_kit.kit import TestKit
    from odradek.server.web_console.hosting import Hosting
    from odradek.storage.directories.store import LogStore
    from odradek.storage.disk import Disk
    from odradek.wire.schema import Message

logger = logging.getLogger("odradek.broker")


async def serve_in_zookeeper(node: Node, ending: AsyncExitStack) -> Serving:
    """Start alone or in a cluster, and register in ZooKeeper. A new data directory takes the cluster id from
    ZooKeeper. Clients are served before others find the broker there."""
    from odradek.server.zookeeper.joining import join
    from odradek.server.zookeeper.opening import open_zookeeper

    zookeeper = await open_zookeeper(node.config, ending)
    serves = serve_alone if node.config.cluster is None else serve_in_cluster
    serving = await serves(replace(node, zookeeper=zookeeper), ending)
    await join(zookeeper, serving, ending)
    return serving


async def serve_alone(node: Node, ending: AsyncExitStack) -> Serving:
    """The phases of a node that decides itself."""
    bound = bind(node, ending, _take_workers_over)
    return await serve(open_data(bound, decide_alone(bound, ending), ending), ending)


def _take_workers_over(node: Node) -> None:
    from odradek.server.workers.lone_node import become_lone

    become_lone(node)


async def serve_in_cluster(node: Node, ending: AsyncExitStack) -> Serving:
    """The phases of a node with controllers: it joins them first, and serves when they have unfenced it."""
    from odradek.server.cluster.member import deciding_of, join_cluster, reach_brokers, replicate

    bound, member = await join_cluster(node, ending)
    opened = open_data(bound, deciding_of(member), ending)
    member.follow_with(opened.schedule.views)
    replication = replicate(opened, member, ending)
    serving = await serve(opened, ending, replication)
    serving.coordinators.leadership.replicas = replication.leading
    reach_brokers(opened, serving, member, ending)
    ending.push_async_callback(member.leave)
    await member.serve()
    return serving


class NotServing(RuntimeError):
    """The broker has not been started, or has been stopped."""


class BrokerServer:
    """One node. `start` and `stop` run on the event loop; between them the node serves, and all other
    attributes can be used. Before and after that they raise `NotServing`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        after_loading: Callable[[], object] = do_nothing,
        polls_before_sleep: bool = False,
        owns_process: bool = False,
        on_end: Callable[[], object] = do_nothing,
        extensions: Extensions = NO_EXTENSIONS,
        sockets: Mapping[str, Sequence[socket.socket]] = MappingProxyType({}),
        disk: Disk | None = None,
    ) -> None:
        """`after_loading` is called after each slice of loading groups, and now and then while very many
        partitions are made, for garbage collection by the owner of the process. `polls_before_sleep` switches
        on `server.network.busy_poll`, which is wrong where other threads of the process need the core.
        `owns_process` says that there is no other program in the process: clients may change the levels of
        its loggers. `on_end` is called when every disk has failed and there is nothing left to serve. The
        options of `extensions` are those that `config` was loaded with. `sockets` are bound ones by the name
        of a listener, or of the option of the metrics; `disk` is that of its directories, if another one
        than its own, and `clock` its clock."""
        self.config = config
        self._node = Node(
            config=config,
            clock=clock or Clock(),
            after_loading=after_loading,
            polls_before_sleep=polls_before_sleep,
            owns_process=owns_process,
            on_end=on_end,
            extensions=extensions,
            sockets=sockets,
            disk=disk,
        )
        # The last phase, from start to stop.
        self._running: list[Serving] = []
        # What ends the phases, and what ends all.
        self._serving_ending = AsyncExitStack()
        self._ending = AsyncExitStack()
        self._exchanging = asyncio.Lock()
        self._metrics_port = 0
        self._test_api_ports: list[int] = []
        self._test_kit: TestKit | None = None
        self._console: Hosting | None = None

    async def start(self) -> None:
        """Returns when every listener answers. Raises ConfigError with one sentence for people; a start that
        fails leaves nothing behind."""
        if self.config.controller is not None:
            from odradek.config.config_error import ConfigError

            raise ConfigError("process.roles=controller is for `odradek serve`: this node is to be a broker.")
        if self.config.values["odradek.workers"] > 1 and self.config.worker is None:
            from odradek.config.config_error import ConfigError

            raise ConfigError(
                "odradek.workers is for `odradek serve`, and in Python for odradek.Broker(workers=...): "
                "workers are processes, and this broker is a part of one."
            )
        async with AsyncExitStack() as ending:
            if self.config.console_address is not None:
                # What is wrong with it is told before any data are read.
                self._console = self._new_console(ending)
            ending.push_async_callback(self._end_serving)
            await self._serve(self._node)
            if self.config.metrics_address is not None:
                await self._open_metrics(*self.config.metrics_address, ending)
            if self.config.test_api_addresses:
                await self._open_test_api(ending)
            if self._console is not None:
                await self._console.open(self, ending)
            self._ending = ending.pop_all()

    async def _serve(self, node: Node) -> None:
        if self.config.values["zookeeper.connect"]:
            serves = serve_in_zookeeper
        else:
            serves = serve_alone if self.config.cluster is None else serve_in_cluster
        async with AsyncExitStack() as ending:
            self._running = [await serves(node, ending)]
            self._serving_ending = ending.pop_all()

    async def _end_serving(self) -> None:
        try:
            await self._serving_ending.pop_all().aclose()
        finally:
            self._running = []

    async def serve_other_data(self, exchange: Callable[[], object]) -> None:
        """Serves what is in its data directory after a call of `exchange`, at the same sockets. Connections
        are cut, and the present data are left as a kill would leave them. For a node alone.

        Raises what `exchange` or the start raises; the start's after another call of `exchange`, which has to
        undo the first one, and the former data are served again."""
        async with self._exchanging:
            serving = self.serving
            bound = serving.opened.bound
            sockets = {**bound.ports.duplicates(), **bound.controller_ports.duplicates()}
            try:
                serving.connections.abort_all()
                if serving.controller_connections is not None:
                    serving.controller_connections.abort_all()
                serving.opened.deciding.abandon()
                serving.opened.bound.store.is_abandoned = True
                await self._end_serving()
                await self._exchange_and_serve(exchange, sockets)
            finally:
                for one in chain.from_iterable(sockets.values()):
                    one.close()

    async def _exchange_and_serve(
        self, exchange: Callable[[], object], sockets: Mapping[str, Sequence[socket.socket]]
    ) -> None:
        async def serve() -> None:
            # The phases close what they get.
            own = {name: [one.dup() for one in some] for name, some in sockets.items()}
            await self._serve(replace(self._node, sockets=own))

        try:
            exchange()
        except BaseException:
            await serve()
            raise
        try:
            await serve()
        except BaseException:
            exchange()
            await serve()
            raise

    async def _open_metrics(self, host: str, port: int, ending: AsyncExitStack) -> None:
        from odradek.config.broker_config import METRICS_LISTEN
        from odradek.config.config_error import ConfigError
        from odradek.server.metrics.endpoint import Endpoint
        from odradek.server.network.http_server import listen_reason

        endpoint = Endpoint(self, self._node.now_ms, self.config.values["odradek.metrics.series.max"])
        try:
            self._metrics_port = await endpoint.open(host, port, self._node.sockets.get(METRICS_LISTEN, ()))
        except OSError as error:
            raise ConfigError(
                f"{METRICS_LISTEN}: nothing can listen at {host}:{port}: {listen_reason(error)}."
            ) from None
        ending.push_async_callback(endpoint.close)

    def _new_console(self, ending: AsyncExitStack) -> Hosting:
        from odradek.server.web_console.hosting import hosting_of

        console = hosting_of(self.config, self._node.sockets)
        ending.callback(console.close)
        return console

    async def _open_test_api(self, ending: AsyncExitStack) -> None:
        from odradek.server.test_kit.listening import open_test_api

        self._test_api_ports = await open_test_api(self.test_kit, self.config.test_api_addresses, ending)

    def controllers_have_ended(self, sentence: str) -> None:
        """No controller will answer any more, for the reason in `sentence`: the node has to end, and a stop
        waits for none. Harmless before it serves."""
        from odradek.server.cluster.member import Member

        if self._running and isinstance(self.plane, Member):
            self.plane.link_failed(sentence)

    def hurry(self) -> None:
        """A stop that is under way does not wait for the controllers. Harmless at any other time."""
        from odradek.server.cluster.member import Member

        if self._running and isinstance(self.plane, Member):
            self.plane.hurry()

    async def stop(self) -> None:
        """Stops cleanly; harmless a second time, and after a start that failed."""
        async with self._exchanging:
            stores = [serving.opened.bound.store for serving in self._running]
            if self._test_kit is not None:
                self._test_kit.close()
                self._test_kit = None
            await self._ending.pop_all().aclose()
            self._console = None
        for store in stores:
            if store.left_unclean:
                paths = ", ".join(sorted(store.left_unclean))
                logger.warning(
                    "stopped; the next start recovers %s, which the disk did not let be closed", paths
                )
            else:
                logger.info("stopped cleanly")

    # Attributes of a serving broker

    @property
    def serving(self) -> Serving:
        """All parts."""
        if not self._running:
            raise NotServing("the broker has not been started, or has been stopped")
        return self._running[0]

    @property
    def is_serving(self) -> bool:
        """Whether the attributes of a serving broker can be used."""
        return bool(self._running)

    def metrics(self) -> BrokerMetrics:
        """Counters of its requests, and what its clients have pushed. May be called in any thread."""
        from odradek.server.metrics.broker_metrics import BrokerMetrics

        routes: Routes = self.connections.dispatcher.routes
        clients = self.client_metrics.values(self._node.now_ms())
        return BrokerMetrics(routes.metrics(), clients)

    @property
    def test_kit(self) -> TestKit:
        """Operations of tests on this broker; made when it is first asked for."""
        if self._test_kit is None:
            from odradek.server.test_kit.kit import TestKit

            self._test_kit = TestKit(self)
        return self._test_kit

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def data_directories(self) -> tuple[str, ...]:
        return self.config.data_directories

    @property
    def cluster_id(self) -> str:
        return self.serving.opened.bound.identity.cluster_id

    @property
    def listeners(self) -> list[Listener]:
        """With their real ports."""
        return self.serving.opened.bound.ports.listeners

    @property
    def port(self) -> int:
        """Port of the first listener."""
        return self.listeners[0].port

    @property
    def metrics_port(self) -> int:
        """The real port of the endpoint with metrics; 0: there is none."""
        return self._metrics_port

    @property
    def test_api_ports(self) -> Sequence[int]:
        """The real ports of the test API."""
        return self._test_api_ports

    @property
    def console_url(self) -> str:
        """Where browsers find its web console; empty: it has none, or the first worker has it."""
        return "" if self._console is None else self._console.url

    @property
    def addresses(self) -> list[tuple[str, str, int]]:
        """Name, host and real port of every listener."""
        return [(listener.name, listener.host, listener.port) for listener in self.listeners]

    @property
    def controller_addresses(self) -> Sequence[tuple[str, str, int]]:
        """The same of those at which it is a controller, too."""
        listeners = self.serving.opened.bound.controller_ports.listeners
        return [(listener.name, listener.host, listener.port) for listener in listeners]

    @property
    def store(self) -> LogStore:
        """The logs of its partitions."""
        return self.serving.opened.bound.store

    @property
    def plane(self) -> ControlPlane:
        """The plane that decides for the cluster."""
        return self.serving.opened.plane

    @property
    def cluster_view(self) -> ClusterView:
        """Brokers, topics and partitions in its newest view."""
        return self.plane.view

    @property
    def ask_controllers(self) -> Callable[[Message], Future[Any]] | None:
        """Asks the controllers of its cluster, as a client of administration; None for a node alone."""
        return self.serving.opened.deciding.ask_controllers

    @property
    def coordinators(self) -> Coordinators:
        """The coordinators of groups and of transactions."""
        return self.serving.coordinators

    @property
    def compaction(self) -> Compaction | None:
        """Compaction of its logs; None where it is switched off."""
        return self.serving.compaction

    @property
    def clock(self) -> Clock:
        return self._node.clock

    @property
    def client_metrics(self) -> ClientMetrics:
        """Metrics that clients push about themselves."""
        return self.serving.client_metrics()

    @property
    def replication(self) -> Replication | None:
        """Replication of what it leads and follows; None for a node alone."""
        return self.serving.replication

    @property
    def connections(self) -> Connections:
        """Its clients' connections, and their limits."""
        return self.serving.connections

    @property
    def schedule(self) -> Schedule:
        """Its turn, timers and queues of work."""
        return self.serving.opened.schedule
