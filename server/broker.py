"""Builds a broker from its configuration, starts it, keeps its house in order, stops it.

Everything that knows of everything is here: data directories and their identity, metadata, logs, the group
coordinator, the list of APIs, listeners, background work. Start-up does what the first request needs and no
more; a partition's files are looked at when somebody asks for it, unless the last stop was not a clean one.
Ports are bound first, so that a port in use is reported before anything is written; then come the data, the
list of APIs, the serving of connections, and background work.

A clean stop answers what can be answered, closes what waits, flushes, writes checkpoints and marks the
directories, within two seconds on a disk that plays along.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from typing import TYPE_CHECKING

from odradek.config.live import LiveConfig
from odradek.config.options import GROUP_OPTIONS, TOPIC_OPTIONS, Option, without_effect
from odradek.coordinator.cluster.topics import (
    OFFSETS_TOPIC,
    OFFSETS_TOPIC_CONFIGS,
    TRANSACTIONS_TOPIC,
    TRANSACTIONS_TOPIC_CONFIGS,
    NewTopic,
)
from odradek.server.connection import Routes
from odradek.server.connections import ConnectionLimits, Connections, counts_by_address
from odradek.server.lingering import Lingering
from odradek.server.listeners import Listener, SocketOptions, accept, bind_listener
from odradek.server.timers import Timers, wall_clock_ms
from odradek.server.turn import LoopTurn
from odradek.server.work import WorkQueue, WorkQueues
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import finish

if TYPE_CHECKING:
    from odradek.apis.api import Api
    from odradek.apis.node import ApiSettings, NodeParts
    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.cluster.machine import ClusterMachine
    from odradek.coordinator.cluster.view import (
        ClusterChange,
        ClusterView,
        PartitionView,
        TopicView,
    )
    from odradek.server.cleaner import CleanerOptions, LogCleaner
    from odradek.server.coordinators import Coordinators
    from odradek.server.disks import Disks
    from odradek.server.metadata_store import SqliteMetadataStore
    from odradek.storage.config import LogConfig
    from odradek.storage.directories.store import LogStore
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.broker")

COORDINATORS_DELAY_MS = 50
"""First the clients that wait for the port, then the loading of groups and transactions."""
WARM_UP_DELAY_MS = 100
"""Behind those: `server/warm_up.py`."""
WARM_UP_MORE_DELAY_MS = 1_000
"""Who starts a broker for one thing has done it by then."""
MAINTENANCE_INTERVAL_MS_MIN = 10
MAINTENANCE_INTERVAL_MS_MAX = 1_000
EXPIRY_INTERVAL_MS_MIN = 10
FLUSH_LOOK_INTERVAL_MS_MIN = 10
FLUSH_LOOK_INTERVAL_MS_MAX = 1_000
"""With Kafka's default, nobody would ever look, and a `flush.ms` of a topic be without effect."""
MOVE_INTERVAL_MS = 1_000
CLEANER_LOOK_INTERVAL_MS_MIN = 10
COLD_READS_AT_ONCE = 4
"""Fetches that wait for the disk, each in a thread; others wait behind these."""
CONVERSIONS_AT_ONCE_MAX = 4
"""Batches that are packed or unpacked before they are stored, each in a thread; one processor is the event
loop's."""
OPEN_SEGMENTS_MAX = 1024
PARTITIONS_PER_LOAD = 256
"""So many new partitions are as much to keep as a slice of groups."""
PARTITIONS_PER_STEP = 64
"""Of those that take new settings."""
CONVERSIONS_WAIT_S = 0.5
FLUSH_WAIT_S = 1.0
GOODBYE_WAIT_S = 0.5


class BrokerServer:
    """One node. `start` and `stop` run on the event loop; between them the node serves."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        after_loading: Callable[[], object] | None = None,
        lingers: bool = False,
        on_end: Callable[[], object] | None = None,
    ) -> None:
        """`after_loading` is called after each slice of loading groups, and now and then while very many
        partitions are made; only who owns the process can know what is good then. `lingers` is for the owner,
        too: other threads of a process have better use for the moment in which `server.lingering` looks for
        the next request. `on_end` is called when there is nothing left to serve: every disk has failed."""
        self.config = config
        self.node_id = config.node_id
        self.cluster_id = ""
        """Known after `start`."""
        self.listeners: list[Listener] = []
        """With their real ports after `start`."""
        self._now_ms = now_ms
        self._after_loading = after_loading
        self._lingers = lingers
        self._on_end = on_end
        self._bound: list[tuple[Listener, list[socket.socket]]] = []
        self._servers: list[asyncio.Server] = []
        self._background: list[Callable[[], None]] = []
        from odradek.storage.config import LogConfig

        self._live = LiveConfig(config, LogConfig.from_mapping)
        self._metadata: SqliteMetadataStore | None = None
        self._machine: ClusterMachine | None = None
        self._store: LogStore | None = None
        self._disks: Disks | None = None
        # Ids of log directories by path; known after `start`.
        self._directory_ids: Mapping[str, str] = {}
        # Paths by id of log directories that there were, and that may have partitions that are missed.
        self._absent_directories: dict[str, str] = {}
        self._coordinators: Coordinators | None = None
        self._connections: Connections | None = None
        self._turn: LoopTurn | None = None
        self._timers: Timers | None = None
        self._cleaner: LogCleaner | None = None
        self._is_expiring = False
        self._changes: WorkQueue | None = None
        self._chores: WorkQueue | None = None
        self._searches: WorkQueue | None = None
        self._saves: WorkQueue | None = None
        self._moves: WorkQueue | None = None
        self._reads: WorkQueues | None = None
        self._conversions: WorkQueues | None = None

    @property
    def port(self) -> int:
        """Port of the first listener."""
        return self.listeners[0].port

    @property
    def bound(self) -> list[tuple[str, str, int]]:
        """Name, host and real port of every listener."""
        return [(listener.name, listener.host, listener.port) for listener in self.listeners]

    @property
    def data_directories(self) -> tuple[str, ...]:
        return self.config.data_directories

    # What a broker that runs consists of, from `start` to `stop`

    @property
    def store(self) -> LogStore:
        """The logs of its partitions."""
        assert self._store is not None
        return self._store

    @property
    def cluster_view(self) -> ClusterView:
        """Brokers, topics and partitions as its answers have them now."""
        assert self._machine is not None
        return self._machine.view

    @property
    def coordinators(self) -> Coordinators:
        """Those of groups and of transactions."""
        assert self._coordinators is not None
        return self._coordinators

    @property
    def connections(self) -> Connections:
        """Its clients' connections, and the limits that they are held to."""
        assert self._connections is not None
        return self._connections

    # Start

    async def start(self) -> None:
        """Returns when every listener answers. Raises ConfigError with one sentence for people; `stop` cleans
        up after a failed start, too."""
        loop = asyncio.get_running_loop()
        turn = self._turn = LoopTurn(loop)
        self._timers = Timers(loop)
        self._changes = WorkQueue(loop)
        self._chores = WorkQueue(loop)
        self._searches = WorkQueue(loop)
        self._saves = WorkQueue(loop)
        self._moves = WorkQueue(loop)
        self._reads = WorkQueues(loop, COLD_READS_AT_ONCE)
        self._conversions = WorkQueues(loop, _conversions_at_once())
        for asked in self.config.listeners:
            listener = Listener(asked.name, asked.host, asked.port, None, _socket_options(self.config))
            self._bound.append((listener, bind_listener(listener)))
            advertised = self.config.advertised.get(asked.name)
            if advertised is not None and advertised.host:
                listener.advertised = (advertised.host, advertised.port or listener.port)
            self.listeners.append(listener)
        self._open_data()
        self._coordinators = self._new_coordinators()
        self._connections = Connections(
            Routes(self._build_apis()), self._turn, self._now_ms, _limits(self.config, self._live)
        )
        if self._lingers:
            queues: tuple[Sized, ...] = (
                self._changes,
                self._chores,
                self._searches,
                self._saves,
                self._reads,
                self._conversions,
            )
            self._connections.linger = Lingering(loop, lambda: turn.is_idle and not any(map(len, queues)))
        while self._bound:
            listener, sockets = self._bound[0]
            self._servers += await accept(listener, sockets, self._connections)
            del self._bound[0]
        self._start_background()

    def _open_data(self) -> None:
        from odradek.config.broker_config import ConfigError
        from odradek.server.disks import Disks
        from odradek.server.feature_levels import check_levels
        from odradek.server.log_directories import absent_directories, refuse_misplaced
        from odradek.server.meta_properties import claim_directories
        from odradek.server.metadata_store import FILE_NAME
        from odradek.storage.directories.store import DirectoryInUse, LogStore
        from odradek.storage.disk import OsDisk

        config = self.config
        refuse_misplaced(config.data_directories)
        identity = claim_directories(
            config.data_directories, node_id=self.node_id, cluster_id=config.cluster_id
        )
        self.cluster_id = identity.cluster_id
        self._directory_ids = identity.directory_ids
        for path, failure in identity.failures.items():
            if path == config.data_directories[0]:
                raise ConfigError(
                    f"{failure} The metadata of the cluster is there, so it cannot be left out."
                )
            logger.error("going on without the data directory %s: %s", path, failure)
        assert self._timers is not None
        assert self._chores is not None
        self._disks = Disks(
            asyncio.get_running_loop(),
            self._timers,
            self._chores,
            self._now_ms,
            self._tell_offline,
            self._end_without_disks,
        )
        store = LogStore(
            OsDisk(),
            config.data_directories,
            config_for=self._config_of_topic,
            topic_id_for=self._id_of_topic,
            leader_epoch_for=self._leader_epoch_of,
            listener=self._disks,
            checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
            start_checkpoint_interval_ms=config.log_flush_start_offset_checkpoint_interval_ms,
            producer_expiration_ms=config.producer_id_expiration_ms,
            retention_interval_ms=config.log_retention_check_interval_ms,
            open_files_max=_open_files_max(),
            new_lock=threading.Lock,
        )
        self._store = store
        assert self._turn is not None
        self._turn.flushes.use(store.flush_journals)
        try:
            # First of all: what another broker has just written to the metadata looks like what a kill left.
            store.lock()
        except DirectoryInUse as error:
            raise ConfigError(f"log.dirs: {error} Stop it, or name another directory.") from error
        machine = self._machine = self._load_metadata(os.path.join(config.data_directories[0], FILE_NAME))
        check_levels(config, machine.view)
        noted = machine.log_directories.of(self.node_id)
        self._absent_directories = absent_directories(noted, identity.directory_ids, identity.failures)
        self._follow_settings(machine.view)
        _tell_without_effect("topic", _configs_of(machine.view.topics.values()), TOPIC_OPTIONS)
        _tell_without_effect("group", machine.view.group_configs, GROUP_OPTIONS)
        self._register()
        try:
            cut_bytes = store.open(self._now_ms())
        except OSError as error:
            raise ConfigError(
                f"log.dirs: {error.filename or 'the data directories'} cannot be used: "
                f"{error.strerror or error}."
            ) from error
        except KafkaError as error:
            raise ConfigError(f"log.dirs: the data directories cannot be used: {error}") from error
        for (topic, index), size_bytes in cut_bytes.items():
            logger.warning("%s-%d: cut %d bytes after the last sound batch", topic, index, size_bytes)
        if store.opening.restored_bytes:
            logger.info("put back %d bytes that only the group log had", store.opening.restored_bytes)
        self._finalize_features(machine)
        self._finish_deletions(machine.view)
        self._make_missing(machine.view)
        self._note_directories(machine, identity.directory_ids, identity.failures)
        self._tell_offline()
        machine.subscribe(self._apply)

    def _load_metadata(self, path: str) -> ClusterMachine:
        """Damage is not the end: see `metadata_repair`."""
        from odradek.server.metadata_store import DamagedMetadata, SqliteMetadataStore

        try:
            self._metadata = SqliteMetadataStore(path)
            machine = self._new_machine(self._metadata)
            machine.load()
        except (DamagedMetadata, AssertionError, LookupError, ValueError) as error:
            # The latter: rows that are sound, of which others are missing.
            logger.error("the cluster's metadata is damaged: %s", error)
            if self._metadata is not None:
                self._metadata.close()
            from odradek.server.metadata_repair import repair
            from odradek.storage.disk import OsDisk

            self._metadata = repair(
                path,
                OsDisk(),
                self.config.data_directories,
                node_id=self.node_id,
                now_ms=self._now_ms(),
                tell=logger.error,
            )
            machine = self._new_machine(self._metadata)
            machine.load()
        return machine

    def _new_machine(self, metadata: SqliteMetadataStore) -> ClusterMachine:
        from odradek.coordinator.cluster.machine import (
            ClusterMachine,
            TopicDefaults,
        )

        config = self.config
        return ClusterMachine(
            metadata,
            cluster_id=self.cluster_id,
            new_topic_id=_new_topic_id,
            defaults=TopicDefaults(
                config.num_partitions, config.default_replication_factor, config.min_insync_replicas
            ),
            check_topic_configs=self._live.check_topic,
            check_broker_configs=self._live.check_broker,
            check_group_configs=self._live.check_group,
            make_partitions=self._make_partitions,
            remove_partitions=self._remove_partitions,
            apply_configs=self._apply_configs,
            takes_replicas=self._takes_replicas,
        )

    def _takes_replicas(self, node_id: int) -> bool:
        """Whether a broker is one of those among which new partitions are spread."""
        return node_id != self.node_id or self._store is None or self._store.creating.has_uncordoned

    def _register(self) -> None:
        from odradek.coordinator.cluster.view import (
            Broker,
            Endpoint,
        )

        assert self._machine is not None
        endpoints = {}
        for listener in self.listeners:
            host, port = listener.advertised or ("", listener.port)
            endpoints[listener.name] = Endpoint(host, port)
        broker = Broker(self.node_id, endpoints, self.config.broker_rack)
        self._machine.register_broker(broker, is_controller=True)

    def _finalize_features(self, machine: ClusterMachine) -> None:
        """A cluster that has never agreed on levels of features begins with those that were asked for, else
        with the newest."""
        from odradek.coordinator.cluster.features import first_levels, missing_levels

        levels = self.config.first_levels
        if machine.view.features_epoch > 0:
            levels = missing_levels(machine.view.features)
        elif levels is None:
            levels = first_levels()
        if not levels:
            return
        try:
            machine.set_features(levels)
        except KafkaError as error:
            logger.error("the cluster goes on without features until the next start: %s", error)
        self._follow_settings(machine.view)

    def _new_coordinators(self) -> Coordinators:
        from odradek.apis.leadership import Leadership
        from odradek.coordinator.cluster.producer_ids import ProducerIds
        from odradek.server.coordinators import Coordinators

        machine, store, turn, timers = self._machine, self._store, self._turn, self._timers
        assert machine is not None
        assert store is not None
        assert turn is not None
        assert timers is not None
        assert self._searches is not None
        return Coordinators(
            config=self.config,
            live=self._live,
            leadership=Leadership(lambda: machine.view, store, self.node_id),
            store=store,
            turn=turn,
            timers=timers,
            now_ms=self._now_ms,
            new_producer_id=ProducerIds(machine.allocate_producer_ids).next,
            searches=self._searches,
            after_loading=self._after_loading,
        )

    def _build_apis(self) -> Mapping[int, Api]:
        from odradek.apis.table import build_apis

        return build_apis(self._node_parts(), self._api_settings())

    def _node_parts(self) -> NodeParts:
        from odradek.apis.node import NodeParts
        from odradek.wire.schema import uuid_from_text

        coordinators = self._coordinators
        assert coordinators is not None
        assert self._machine is not None
        assert self._store is not None
        assert self._turn is not None
        assert self._timers is not None
        assert self._changes is not None
        assert self._searches is not None
        assert self._saves is not None
        assert self._reads is not None
        assert self._conversions is not None
        return NodeParts(
            node_id=self.node_id,
            machine=self._machine,
            store=self._store,
            leadership=coordinators.leadership,
            groups=coordinators.groups,
            transactions=coordinators.transactions,
            new_producer_id=coordinators.new_producer_id,
            now_ms=self._now_ms,
            turn=self._turn,
            timers=self._timers,
            changes=self._changes,
            searches=self._searches,
            reads=self._reads,
            conversions=self._conversions,
            saves=self._saves,
            begin_moves=self._move,
            directory_id=uuid_from_text(self._directory_ids[self.data_directories[0]]),
        )

    def _api_settings(self) -> ApiSettings:
        from odradek.apis.node import ApiSettings

        config = self.config
        return ApiSettings(
            start_configs=config.layers.start,
            internal_topics=_internal_topics(config),
            controller_listener=next(iter(config["controller.listener.names"] or ()), "CONTROLLER"),
            auto_creates_topics=config.auto_create_topics_enable,
            deletes_topics=config.delete_topic_enable,
            fetch_max_bytes=config.fetch_max_bytes,
            fetch_session_slots=config.max_incremental_fetch_session_cache_slots,
            description_partitions_max=config.max_request_partition_size_limit,
            verifies_transactions=lambda: self._live["transaction.partition.verification.enable"],
            verification_pause_ms_max=config.add_partitions_to_txn_retry_backoff_ms,
            verification_patience_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
        )

    def _start_background(self) -> None:
        assert self._timers is not None
        assert self._connections is not None
        config, every = self.config, self._timers.every
        maintenance_ms = max(
            min(config.log_retention_check_interval_ms, MAINTENANCE_INTERVAL_MS_MAX),
            MAINTENANCE_INTERVAL_MS_MIN,
        )
        expiry_ms = max(config.producer_id_expiration_check_interval_ms, EXPIRY_INTERVAL_MS_MIN)
        self._background = [
            self._later_every(config.log_initial_task_delay_ms, maintenance_ms, self._maintain),
            every(expiry_ms, self._expire_producers),
            every(_flush_look_interval_ms(config), self._flush_due),
            every(MOVE_INTERVAL_MS, self._move),
            self._connections.start_sweeping(self._timers),
        ]
        assert self._disks is not None
        assert self._store is not None
        self._disks.use(self._store)
        assert self._machine is not None
        assert self._coordinators is not None
        self._timers.after(COORDINATORS_DELAY_MS, self._coordinators.load)
        topics = frozenset(self._coordinators.leadership.view.topics)
        for delay_ms, is_first in ((WARM_UP_DELAY_MS, True), (WARM_UP_MORE_DELAY_MS, False)):
            warm_up = partial(self._warm_up, topics, is_first=is_first)
            self._background.append(self._timers.after(delay_ms, warm_up).cancel)
        if config.log_cleaner_enable:
            assert self._chores is not None
            self._background.append(self._start_cleaning(self._timers, self._chores))

    def _warm_up(self, topics: Collection[str], *, is_first: bool) -> None:
        """For a broker that had these topics when it started."""
        from odradek.server.warm_up import parts_at_once, parts_later, warming_up

        assert self._chores is not None
        assert self._connections is not None
        parts = parts_at_once(topics) if is_first else parts_later(topics)
        work = warming_up(self._connections.routes, parts)
        self._chores.run(
            work, lambda _: None, lambda error: logger.error("warming up failed", exc_info=error)
        )

    def _later_every(
        self, delay_ms: float, interval_ms: float, callback: Callable[[], None]
    ) -> Callable[[], None]:
        """`Timers.every`, the first time after `delay_ms`; the returned function ends it."""
        assert self._timers is not None
        timers = self._timers
        stop_repeating: Callable[[], None] | None = None

        def begin() -> None:
            nonlocal stop_repeating
            stop_repeating = timers.every(interval_ms, callback)
            callback()

        first = timers.after(delay_ms, begin)

        def stop() -> None:
            first.cancel()
            if stop_repeating is not None:
                stop_repeating()

        return stop

    # What the machine decides is done to the logs

    def _apply(self, view: ClusterView, change: ClusterChange) -> None:
        """Follows a new view."""
        store = self._store
        assert store is not None
        if change.brokers_configured:
            self._follow_settings(view)
        created = {topic.name: topic for topic, _ in change.created}
        topics = _configs_of([*created.values(), *change.configured])
        _tell_without_effect("topic", topics, TOPIC_OPTIONS)
        groups = {name: view.group_configs.get(name, {}) for name in change.groups_configured}
        _tell_without_effect("group", groups, GROUP_OPTIONS)
        if self._coordinators is not None:
            self._coordinators.follow(view, change)
        is_some_offline = (
            store.failing_disks.failures or store.failing_disks.needs_attention or self._absent_directories
        )
        if is_some_offline and (change.created or change.deleted):
            # Whoever made the new view did not know what is offline by now.
            asyncio.get_running_loop().call_soon(self._tell_offline)

    def _follow_settings(self, view: ClusterView) -> None:
        """Takes what was set at run time to what works by the broker's own settings."""
        live = self._live
        live.follow(view.broker_configs)
        if live.without_effect:
            logger.info("set at run time, but without effect here: %s", ", ".join(live.without_effect))
        if self._store is not None:
            self._store.places.producer_expiration_ms = live["producer.id.expiration.ms"]
            self._store.creating.cordon(live.cordoned_directories)
            self._store.relocation.allowance.change(live["replica.alter.log.dirs.io.max.bytes.per.second"])
        if self._connections is not None:
            self._connections.limits = _limits(self.config, live)
        if self._cleaner is not None:
            self._cleaner.configure(_cleaner_options(live))

    def _apply_configs(self, change: ClusterChange) -> Work[None]:
        """Takes new settings to the logs that are loaded; the others get theirs when they are. There may be
        very many."""
        store, machine = self._store, self._machine
        assert store is not None
        assert machine is not None
        names = {topic.name for topic in change.configured}
        for number, partition in enumerate(store.places.loaded(), 1):
            topic = machine.view.topics.get(partition.topic)
            if topic is not None and (change.brokers_configured or partition.topic in names):
                config = self._live.log_config(topic.configs)
                if partition.config is not config:
                    partition.set_config(config)
            if number % PARTITIONS_PER_STEP == 0:
                yield None

    def _make_partitions(self, created: Sequence[tuple[TopicView, PartitionView]]) -> Work[None]:
        """Partitions are there before anybody can be told of them. What is missing after a kill on the way is
        made at the next start."""
        for number, (topic, partition) in enumerate(created, 1):
            if self.node_id in partition.replicas:
                self._create_partition(topic, partition.index, partition.leader_epoch)
                yield None
            if number % PARTITIONS_PER_LOAD == 0 and self._after_loading is not None:
                self._after_loading()

    def _remove_partitions(self, deleted: Sequence[TopicView]) -> Work[None]:
        """Nobody finds them any more. What is still there after a kill on the way goes at the next start."""
        return self._removing(
            {topic.topic_id: [(topic.name, one.index) for one in topic.partitions] for topic in deleted}
        )

    def _removing(self, partitions_of: Mapping[bytes, Collection[tuple[str, int]]]) -> Work[None]:
        """Deletes partitions, given by the ids of their topics. What cannot be deleted is tried again at the
        next start."""
        store, machine = self._store, self._machine
        assert store is not None
        assert machine is not None
        gone = []
        for topic_id, partitions in partitions_of.items():
            is_done = True
            for name, index in partitions:
                try:
                    store.delete(name, index, sync=False)
                except KafkaError as error:
                    is_done = False
                    logger.error("%s-%d stays on the disk: %s", name, index, error)
                yield None
            if is_done:
                gone.append(topic_id)
        if not gone:
            return
        try:
            yield store.sync_directories
        except OSError as error:
            logger.error("what was deleted may come back after a loss of power: %s", error)
            return
        for topic_id in gone:
            machine.finish_deletion(topic_id)

    def _create_partition(self, topic: TopicView, index: int, leader_epoch: int) -> None:
        """A partition that cannot be made is one that answers KAFKA_STORAGE_ERROR."""
        store = self._store
        assert store is not None
        arguments = (topic.name, index, topic.topic_id, self._live.log_config(topic.configs))
        try:
            store.create(*arguments, leader_epoch=leader_epoch, now_ms=self._now_ms())
        except KafkaError as error:
            if error.code != ErrorCode.INCONSISTENT_TOPIC_ID:
                logger.error("cannot create %s-%d: %s", topic.name, index, error)
                return
            try:
                self._clear_place(topic.name, index)
                store.create(*arguments, leader_epoch=leader_epoch, now_ms=self._now_ms())
            except KafkaError as again:
                logger.error("cannot create %s-%d: %s", topic.name, index, again)

    def _clear_place(self, name: str, index: int) -> None:
        """Takes a directory of another topic of the same name out of the way: one of a deletion that a kill
        interrupted goes; of any other nobody knows what it is worth, and it is kept as Kafka keeps a stray.
        """
        assert self._store is not None
        assert self._machine is not None
        if self._store.places.topic_id_of(name, index) in self._machine.deletions:
            self._store.delete(name, index)
        else:
            path = self._store.set_aside(name, index)
            self._store.listener.stray(name, index, path)

    def _finish_deletions(self, view: ClusterView) -> None:
        """After a kill between the decision to delete a topic and its directories: deletes them now, and
        takes out of the way what another topic of the same name left behind."""
        store, machine = self._store, self._machine
        assert store is not None
        assert machine is not None
        doomed: dict[bytes, list[tuple[str, int]]] = {topic_id: [] for topic_id in machine.deletions}
        strays = []
        for name, index in store.places.names():
            has_topic = view.partition(name, index) is not None
            if has_topic and not doomed and store.places.is_unopened(name, index):
                continue  # looked at when it is loaded
            topic_id = store.places.topic_id_of(name, index)
            if topic_id is not None and topic_id in doomed:
                doomed[topic_id].append((name, index))
            elif not has_topic:
                strays.append(f"{name}-{index}")
            elif topic_id is not None and topic_id != view.topics[name].topic_id:
                try:
                    self._clear_place(name, index)
                except KafkaError as error:
                    logger.error("%s-%d is another topic's and is in the way: %s", name, index, error)
        finish(self._removing(doomed))
        if strays:
            told = ", ".join(sorted(strays)[:20])
            logger.warning("left alone, since no topic has them (odradek import-log takes them in): %s", told)

    def _make_missing(self, view: ClusterView) -> None:
        """After a kill between the decision to create a topic and its directories: makes them now. Not while
        a data directory is offline or not named, which may have them."""
        store = self._store
        assert store is not None
        if store.failing_disks.failures:
            return
        missing = list(self._missing(view))
        if missing and self._absent_directories:
            logger.error(
                "%d partitions are in none of log.dirs, and are offline until what this broker had is named "
                "there again or their topics are deleted: %s",
                len(missing),
                ", ".join(sorted(self._absent_directories.values())),
            )
            return
        self._absent_directories = {}
        for topic, partition in missing:
            self._create_partition(topic, partition.index, partition.leader_epoch)

    def _missing(self, view: ClusterView) -> Iterator[tuple[TopicView, PartitionView]]:
        """The partitions of this node of which the store knows nothing."""
        store = self._store
        assert store is not None
        for topic in view.topics.values():
            for partition in topic.partitions:
                if self.node_id in partition.replicas and (topic.name, partition.index) not in store.places:
                    yield topic, partition

    def _note_directories(
        self, machine: ClusterMachine, directory_ids: Mapping[str, str], failures: Mapping[str, str]
    ) -> None:
        """For the next start. One that is not named any more is forgotten when nothing of it is missed."""
        noted = machine.log_directories.of(self.node_id)
        paths = {id_: path for id_, path in noted.items() if path in failures} | self._absent_directories
        paths |= {id_: path for path, id_ in directory_ids.items()}
        try:
            machine.log_directories.note(self.node_id, paths)
        except KafkaError as error:
            logger.error("the next start will not know which log directories there were: %s", error)

    def _config_of_topic(self, name: str) -> LogConfig:
        assert self._machine is not None
        topic = self._machine.view.topics.get(name)
        return self._live.log_config({} if topic is None else topic.configs)

    def _id_of_topic(self, name: str, index: int) -> bytes | None:
        assert self._machine is not None
        topic = self._machine.view.topics.get(name)
        return None if topic is None or index >= len(topic.partitions) else topic.topic_id

    def _leader_epoch_of(self, name: str, index: int) -> int:
        assert self._machine is not None
        partition = self._machine.view.partition(name, index)
        return 0 if partition is None else partition.leader_epoch

    # Disks that fail

    def _tell_offline(self) -> None:
        """Has the cluster know of which partitions this node's replicas are offline."""
        store, machine = self._store, self._machine
        if store is None or machine is None:
            return
        offline = store.places.offline()
        if store.places.has_unopened or self._absent_directories:
            # Nobody knows what a directory held that could not be opened: it is what no other one has.
            offline |= {(topic.name, one.index) for topic, one in self._missing(machine.view)}
        machine.set_offline(self.node_id, offline)

    def _end_without_disks(self, reasons: str) -> None:
        logger.critical("stopping, since no data directory is left that works (%s)", reasons)
        if self._on_end is not None:
            self._on_end()

    # Background work

    def _maintain(self) -> None:
        assert self._store is not None
        assert self._chores is not None
        if len(self._chores) == 0:
            self._chores.run(self._store.maintaining(self._now_ms()), _ignore, _log_failed_maintenance)

    def _expire_producers(self, *, only_late: bool = False) -> None:
        """Those of partitions in which something is staged at this moment have their turn in the next."""
        assert self._store is not None
        assert self._chores is not None
        if self._is_expiring and not only_late:
            return
        self._is_expiring = True
        work = self._store.upkeep.expiring_producers(self._now_ms(), only_late=only_late)
        self._chores.run(work, self._end_of_expiry, self._failure_of_expiry)

    def _end_of_expiry(self, has_late: bool) -> None:
        assert self._timers is not None
        if has_late:
            self._timers.after(EXPIRY_INTERVAL_MS_MIN, partial(self._expire_producers, only_late=True))
        else:
            self._is_expiring = False

    def _failure_of_expiry(self, error: Exception) -> None:
        self._is_expiring = False
        logger.error("forgetting silent producers failed", exc_info=error)

    def _start_cleaning(self, timers: Timers, chores: WorkQueue) -> Callable[[], None]:
        """Compacts from when there is a log that wants it; the returned function ends it. See
        `server/cleaner.py`, which no start needs."""
        is_ended = False

        def look_later() -> None:
            timers.after(max(self._live["log.cleaner.backoff.ms"], CLEANER_LOOK_INTERVAL_MS_MIN), look)

        def look() -> None:
            if is_ended or self._store is None:
                return
            if any(partition.config.is_compacted for partition in self._store.places.loaded()):
                chores.run(beginning(self._store), _ignore, _log_failed_cleaner)
            else:
                look_later()

        def beginning(store: LogStore) -> Work[None]:
            yield _import_cleaner
            from odradek.server.cleaner import LogCleaner

            self._cleaner = LogCleaner(
                store.cleaner, store.disk, chores, timers, self._now_ms, _cleaner_options(self._live)
            )
            self._cleaner.start()

        def end() -> None:
            nonlocal is_ended
            is_ended = True
            if self._cleaner is not None:
                self._cleaner.close()

        look_later()
        return end

    def _flush_due(self) -> None:
        assert self._store is not None
        assert self._turn is not None
        for partition in self._store.flush_due(self._now_ms()):
            self._turn.flush_in_background(partition)

    def _move(self) -> None:
        """Goes on with what is moved between data directories."""
        assert self._moves is not None
        if self._store is not None and self._store.relocation.has_moves and len(self._moves) == 0:
            self._moves.run(self._store.relocation.moving(self._now_ms()), _ignore, _log_failed_move)

    # Stop

    async def stop(self) -> None:
        """Stops cleanly, however far `start` came; harmless a second time."""
        for server in self._servers:
            server.close()
        for _, sockets in self._bound:
            for bound in sockets:
                bound.close()
        for end in self._background:
            end()
        if self._disks is not None:
            self._disks.stop()
        self._servers, self._bound, self._background = [], [], []
        await self._say_goodbye()
        for queue in (
            self._changes,
            self._chores,
            self._searches,
            self._reads,
            self._conversions,
            self._saves,
            self._moves,
        ):
            if queue is not None:
                queue.close()
        if self._timers is not None:
            self._timers.close()
        if self._turn is not None:
            self._turn.close()
        store, self._store = self._store, None
        if store is not None:
            store.close(self._now_ms())
        metadata, self._metadata = self._metadata, None
        if metadata is not None:
            metadata.close()

    async def _say_goodbye(self) -> None:
        """Commits what is staged, answers what can be answered, closes the connections."""
        coordinators, self._coordinators = self._coordinators, None
        connections, turn = self._connections, self._turn
        if coordinators is not None:
            coordinators.close()
        if turn is None:
            return
        turn.end()
        conversions = self._conversions
        assert conversions is not None
        await _until(lambda: len(conversions) == 0, CONVERSIONS_WAIT_S)
        turn.end()
        await _until(lambda: not turn.is_flushing, FLUSH_WAIT_S)
        turn.end()
        if connections is None:
            return
        connections.close_all()
        await _until(lambda: len(connections) == 0, GOODBYE_WAIT_S)
        connections.abort_all()
        await _until(lambda: len(connections) == 0, GOODBYE_WAIT_S)
        # What came in while we waited: it was not answered, but it must not stay staged.
        turn.end()


def _open_files_max() -> int:
    """How many segments may be open at once: half of what the process may open, the rest is for clients."""
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return OPEN_SEGMENTS_MAX
    return max(min(allowed // 2, OPEN_SEGMENTS_MAX), 16)


def _conversions_at_once() -> int:
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        processors = os.cpu_count() or 1
    return max(1, min(processors - 1, CONVERSIONS_AT_ONCE_MAX))


def _import_cleaner() -> None:
    """In a worker thread: it takes 20 ms."""
    import odradek.server.cleaner  # noqa: F401


def _cleaner_options(live: LiveConfig[LogConfig]) -> CleanerOptions:
    from odradek.server.cleaner import CleanerOptions

    return CleanerOptions(
        threads=live["log.cleaner.threads"],
        backoff_ms=live["log.cleaner.backoff.ms"],
        bytes_per_second=live["log.cleaner.io.max.bytes.per.second"],
        dedupe_buffer_bytes=live["log.cleaner.dedupe.buffer.size"],
        load_factor=live["log.cleaner.io.buffer.load.factor"],
        io_buffer_bytes=live["log.cleaner.io.buffer.size"],
    )


def _log_failed_cleaner(error: Exception) -> None:
    logger.error("compaction cannot be started", exc_info=error)


def _ignore(result: object) -> None:
    pass


def _log_failed_move(error: Exception) -> None:
    logger.error("moving partitions between directories failed", exc_info=error)


def _log_failed_maintenance(error: Exception) -> None:
    logger.error("maintenance failed", exc_info=error)


async def _until(condition: Callable[[], bool], patience_s: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while not condition() and loop.time() < deadline:
        await asyncio.sleep(0.005)


def _socket_options(config: BrokerConfig) -> SocketOptions:
    return SocketOptions(
        config.socket_listen_backlog_size,
        config.socket_send_buffer_bytes,
        config.socket_receive_buffer_bytes,
    )


def _flush_look_interval_ms(config: BrokerConfig) -> int:
    asked = min(config.log_flush_scheduler_interval_ms, FLUSH_LOOK_INTERVAL_MS_MAX)
    return max(asked, FLUSH_LOOK_INTERVAL_MS_MIN)


def _configs_of(topics: Iterable[TopicView]) -> dict[str, Mapping[str, str]]:
    return {topic.name: topic.configs for topic in topics}


def _tell_without_effect(
    kind: str, configs: Mapping[str, Mapping[str, str]], options: Mapping[str, Option]
) -> None:
    """Name what topics or groups have set without effect; of them one, since there may be many."""
    found: dict[str, list[str]] = {}
    for owner, own in configs.items():
        for name in without_effect(own, options):
            found.setdefault(name, []).append(owner)
    for name, owners in found.items():
        more = f" and {len(owners) - 1} more" if len(owners) > 1 else ""
        logger.info("set for %s %s%s, but without effect here: %s", kind, owners[0], more, name)


def _limits(config: BrokerConfig, live: LiveConfig[LogConfig]) -> ConnectionLimits:
    return ConnectionLimits(
        request_bytes_max=config.socket_request_max_bytes,
        connections_max=live["max.connections"],
        connections_max_of_listeners=live.of_listeners("max.connections"),
        connections_per_ip_max=live["max.connections.per.ip"],
        connections_per_ip_overrides=counts_by_address(live["max.connections.per.ip.overrides"]),
        idle_ms_max=config.connections_max_idle_ms,
    )


def _internal_topics(config: BrokerConfig) -> tuple[NewTopic, NewTopic]:
    """The topics in which coordinators keep their state, as they are to be created."""
    return (
        NewTopic(
            OFFSETS_TOPIC,
            partition_count=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs={**OFFSETS_TOPIC_CONFIGS, "segment.bytes": str(config.offsets_topic_segment_bytes)},
        ),
        NewTopic(
            TRANSACTIONS_TOPIC,
            partition_count=config.transaction_state_log_num_partitions,
            replication_factor=config.transaction_state_log_replication_factor,
            configs={
                **TRANSACTIONS_TOPIC_CONFIGS,
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        ),
    )


def _random_uuid() -> bytes:
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)


def _new_topic_id() -> bytes:
    """A random id whose text no command line takes for an option, as Kafka's Uuid.randomUuid."""
    from odradek.wire.schema import uuid_to_text

    while uuid_to_text(topic_id := _random_uuid()).startswith("-"):
        pass
    return topic_id
