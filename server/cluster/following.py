"""The partitions that this node follows: it fetches from their leaders, appends what comes, and cuts its logs
where they part from the leader's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.apis.turn import until
from odradek.coordinator.cluster.features import METADATA_VERSION, broker_gates
from odradek.coordinator.replication.replica_fetcher import (
    BeginAnew,
    Failed,
    FetcherEffect,
    LogEffect,
    Replicate,
    Truncate,
)
from odradek.coordinator.replication.replica_fetchers import FetcherKey, ReplicaFetchers
from odradek.coordinator.replication.values import ReplicaKey
from odradek.server.cluster.fetch_connection import FetchConnection
from odradek.server.cluster.replica_log import LocalReplicaLog, ReplicationSettings
from odradek.server.network.peers import Peer, PeerLost, SetupTimeout, client_id_of, connect
from odradek.server.network.timers import monotonic_ms
from odradek.storage.log.appends import BatchHoldsStart, Origin
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.replication.replica_fetcher import ReplicaFetcher
    from odradek.coordinator.replication.replication_quota import ReplicationQuota
    from odradek.server.background.schedule import Schedule
    from odradek.storage.directories.store import LogStore
    from odradek.storage.log.partition import Partition
    from odradek.wire.schema import Message
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.replication")

OLDEST_METADATA_VERSION = 21


class Following:
    """`when_free` is called when a log may be given another leader or none again: see `is_busy`;
    `when_offline` when a partition is fetched no more, since its disk has failed.
    """

    def __init__(
        self,
        settings: ReplicationSettings,
        store: LogStore,
        schedule: Schedule,
        current_view: Callable[[], ClusterView],
        broker_epoch: Callable[[], int],
        now_ms: Callable[[], int],
        quota: ReplicationQuota,
        setup: SetupTimeout,
    ) -> None:
        """`quota` is for what this node reads of leaders, `setup` for connections to them."""
        self.settings = settings
        self.setup = setup
        self.when_free: Callable[[ReplicaKey], None] = lambda key: None
        self.when_offline: Callable[[ReplicaKey], None] = lambda key: None
        self.fetchers = ReplicaFetchers(
            settings.node_id,
            broker_epoch,
            settings,
            lambda: settings.fetchers_per_leader,
            quota=quota,
        )
        self._store = store
        self._schedule = schedule
        self._current_view = current_view
        self._now_ms = now_ms
        self._busy: set[ReplicaKey] = set()
        self._failures: dict[ReplicaKey, str] = {}
        """The last one of each, until something has succeeded."""
        self._loops: dict[FetcherKey, _FetcherLoop] = {}

    # Views

    def is_busy(self, key: ReplicaKey) -> bool:
        """Whether its log is being changed just now: views of it have to wait."""
        return key in self._busy

    def follow(
        self, key: ReplicaKey, topic_id: bytes, leader_id: int, leader_epoch: int, partition: Partition
    ) -> None:
        """Fetch it from that leader. `pump` sends the first request."""
        log = LocalReplicaLog(partition)
        self.carry_out(self.fetchers.follow(key, topic_id, leader_id, leader_epoch, log))

    def stop(self, key: ReplicaKey) -> None:
        """Fetch it no more."""
        self.fetchers.stop(key)
        self._failures.pop(key, None)

    def resize(self) -> None:
        """After a change of `num.replica.fetchers`."""
        self.carry_out(self.fetchers.resize())
        self.pump()

    def look_again(self) -> None:
        """Retention may have moved where logs begin: the leaders are told with the next requests."""
        for fetcher in self.fetchers.fetchers.values():
            for key in fetcher.partitions:
                fetcher.log_changed(key)

    def brokers_changed(self, node_ids: Iterable[int]) -> None:
        """Some may have another address."""
        for loop in self._loops.values():
            loop.brokers_changed(node_ids)

    def pump(self) -> None:
        """Each fetcher has a loop, and no other one has."""
        for place in self.fetchers.take_idle():
            loop = self._loops.pop(place, None)
            if loop is not None:
                loop.close()
        for place in self.fetchers.fetchers:
            if place not in self._loops:
                self._loops[place] = _FetcherLoop(self, place)
            self._loops[place].wake()

    def close(self) -> None:
        """Fetches no more."""
        for loop in self._loops.values():
            loop.close()
        self._loops.clear()

    # For the loops

    def endpoint_of(self, node_id: int) -> tuple[str, int] | None:
        """Where other brokers reach that one; None while it is not registered."""
        broker = self._current_view().registrations.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(self.settings.listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def version_of(self, request: Any) -> int:
        """Version of a request among brokers, as the cluster has agreed on it."""
        gates = broker_gates(self._current_view().features.get(METADATA_VERSION, OLDEST_METADATA_VERSION))
        return gates.fetch_version if isinstance(request, FetchRequest) else gates.list_offsets_version

    def connection(self, peer: Peer, fetcher: ReplicaFetcher, client_id: str) -> FetchConnection:
        """Takes over the connection of `peer`."""
        return FetchConnection(peer, fetcher, client_id, self._failures, self._done)

    def carry_out(self, effects: Iterable[FetcherEffect]) -> None:
        """Carries out what a fetcher has decided about logs."""
        for effect in effects:
            key = effect.key
            if isinstance(effect, Failed):
                logger.error("%s-%d is not replicated any more: %s", *key, effect.reason)
                continue
            self._busy.add(key)
            try:
                self._begin(key, effect)
            except Exception as error:
                # The requests of its fetcher wait for each effect's end.
                self._done(key, error)

    def _begin(self, key: ReplicaKey, effect: LogEffect) -> None:
        partition = self._store.get(*key)
        if partition is None:
            self._done(key, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        elif isinstance(effect, Replicate):
            self._replicate(key, partition, effect)
        else:
            self._cut(key, partition, effect)

    def _replicate(self, key: ReplicaKey, partition: Partition, effect: Replicate) -> None:
        if effect.begin_at is not None:
            begins: Work[Any] = self._store.restarting(partition, effect.begin_at)
            # The records may be a view of a receive buffer. It takes records of other partitions as soon as
            # this one is not followed any more.
            rest = effect._replace(begin_at=None, records=bytes(effect.records))
            self._run(key, begins, lambda: self._replicate(key, partition, rest))
            return
        if not len(effect.records):
            self._replicated(key, partition, effect, None)
            return
        followed = self.fetchers.followed(key)
        assert followed is not None
        try:
            appended = partition.appends.append(
                effect.records,
                now_ms=self._now_ms(),
                origin=Origin.REPLICATION,
                leader_epoch_max=followed.leader_epoch,
            )
        except BatchHoldsStart as error:
            again = effect._replace(begin_at=error.offset)
            self._replicate(key, partition, again)
        except Exception as error:
            self._done(key, error)
        else:
            done = partial(self._replicated, key, partition, effect)
            self._schedule.turn.add(partition, done, until(appended.must_flush))

    def _replicated(
        self, key: ReplicaKey, partition: Partition, effect: Replicate, error: KafkaError | None
    ) -> None:
        if error is None:
            try:
                partition.advance_high_watermark(effect.high_watermark)
                if effect.log_start_offset > partition.log_start_offset:
                    partition.retention.follow_start(effect.log_start_offset)
            except KafkaError as refusal:
                error = refusal
        self._done(key, error)

    def _cut(self, key: ReplicaKey, partition: Partition, effect: Truncate | BeginAnew) -> None:
        tell = _told_cut(partition, effect)
        if isinstance(effect, BeginAnew):
            work: Work[Any] = self._store.restarting(partition, effect.offset)
        else:
            work = self._store.truncating(partition, effect.offset)

        def cut() -> None:
            if tell is not None:
                tell()
            self._forget_epochs(key, partition, effect.offset)

        self._run(key, work, cut)

    def _forget_epochs(self, key: ReplicaKey, partition: Partition, offset: int) -> None:
        """Forgets the epochs of a time in which this node led without an append."""
        epochs = partition.log.leader_epochs
        if epochs.starts and epochs.starts[-1] >= offset:
            epochs.truncate_end(offset)
            self._schedule.turn.flushes.save_epochs(partition, partial(self._done, key))
        else:
            self._done(key, None)

    def _run(self, key: ReplicaKey, work: Work[Any], then: Callable[[], None]) -> None:
        def done(result: object) -> None:
            try:
                then()
            except Exception as error:
                self._done(key, error)

        self._schedule.cuts.run(work, done, lambda error: self._done(key, error))

    def _done(self, key: ReplicaKey, error: Exception | None) -> None:
        self._busy.discard(key)
        self.carry_out(self.fetchers.done(key, error, monotonic_ms()))
        if error is not None and self._is_offline(key):
            self.when_offline(key)  # the store has told it
        else:
            self._log_failure_once(key, error)
        if key not in self._busy:
            self.when_free(key)
        self.pump()

    def _log_failure_once(self, key: ReplicaKey, error: Exception | None) -> None:
        """Log a failure once, however often the request is repeated."""
        if error is None:
            self._failures.pop(key, None)
        elif self._failures.get(key) != str(error):
            self._failures[key] = str(error)
            logger.warning("%s-%d: a change of the replica failed: %s", *key, error)

    def _is_offline(self, key: ReplicaKey) -> bool:
        place = self._store.places.by_key.get(key)
        return place is None or place.offline_because is not None


def _told_cut(partition: Partition, effect: Truncate | BeginAnew) -> Callable[[], None] | None:
    """A call that logs the cut once it is done; None where nothing goes."""
    name, offset, high_watermark = partition.name, effect.offset, partition.high_watermark
    if isinstance(effect, BeginAnew):
        return partial(logger.warning, "%s: all of the log is gone, it begins anew at %d", name, offset)
    if offset < high_watermark:
        uncleanly = "%s: cut at %d, before its high watermark %d: the leader was elected uncleanly"
        return partial(logger.warning, uncleanly, name, offset, high_watermark)
    if offset < partition.log_end_offset:
        return partial(logger.info, "%s: cut at %d, as its leader has it", name, offset)
    return None


class _FetcherLoop:
    """The requests of one fetcher over one connection."""

    def __init__(self, following: Following, place: FetcherKey) -> None:
        self._following = following
        self._leader_id = place[0]
        self._fetcher = following.fetchers.fetchers[place]
        self._peer: Peer | None = None
        self._connection: FetchConnection | None = None
        """Has taken over the peer's connection, unless that has to authenticate again and again."""
        self._address: tuple[str, int] | None = None
        self._said = ""
        self._wish = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run_on())

    def wake(self) -> None:
        self._wish.set()

    def brokers_changed(self, node_ids: Iterable[int]) -> None:
        """Its address may be another one."""
        if self._leader_id in node_ids and self._following.endpoint_of(self._leader_id) != self._address:
            self._close_peer()

    def close(self) -> None:
        self._task.cancel()
        self._close_peer()

    def _close_peer(self) -> None:
        peer, self._peer = self._peer, None
        self._connection = None
        if peer is not None:
            peer.close()

    async def _run_on(self) -> None:
        """A bug stops the fetches of no partition."""
        while True:
            try:
                await self._run()
            except Exception:
                logger.exception("fetching from broker %d failed", self._leader_id)
                self._close_peer()
                self._fetcher.give_up(monotonic_ms())

    async def _run(self) -> None:
        fetcher, following = self._fetcher, self._following
        while True:
            self._wish.clear()
            request = fetcher.next_request(monotonic_ms())
            if request is None:
                await self._until(fetcher.wake_at_ms)
                continue
            try:
                peer = self._peer
                if peer is None or not peer.is_open:
                    peer = await self._connect()
                response = await self._ask(peer, request)
            except PeerLost as error:
                self._say(str(error))
                self._close_peer()
                fetcher.failed(request, monotonic_ms())
                continue
            self._said = ""
            if response is None:
                continue  # this one and those after it were carried out by the connection
            now_ms = monotonic_ms()
            if isinstance(request, FetchRequest):
                following.carry_out(fetcher.fetch_answered(request, response, now_ms))
            else:
                following.carry_out(fetcher.offsets_answered(request, response, now_ms))

    async def _ask(self, peer: Peer, request: Message) -> Any:
        following = self._following
        settings, version = following.settings, following.version_of(request)
        timeout_ms = settings.socket_timeout_ms + settings.max_wait_ms
        if self._connection is not None:
            return await self._connection.ask(request, version, timeout_ms)
        # In place: the next request waits until the records of this response are appended.
        return await peer.ask_within(request, version, timeout_ms, is_in_place=True)

    def _say(self, trouble: str) -> None:
        """The same is told once, until there is a response."""
        if trouble != self._said:
            self._said = trouble
            logger.info("fetching from broker %d: %s", self._leader_id, trouble)

    async def _until(self, wake_at_ms: int | None) -> None:
        if wake_at_ms is None:
            await self._wish.wait()
            return
        try:
            async with asyncio.timeout(max(wake_at_ms - monotonic_ms(), 1) / 1000):
                await self._wish.wait()
        except TimeoutError:
            pass

    async def _connect(self) -> Peer:
        """Kafka's brokers do not ask each other for versions: the cluster has agreed on them."""
        following = self._following
        address = following.endpoint_of(self._leader_id)
        if address is None:
            raise PeerLost(f"broker {self._leader_id} is not registered")
        host, port = self._address = address
        client_id = f"{client_id_of(following.settings.node_id)}-fetcher-{self._leader_id}"
        self._peer = await connect(
            host,
            port,
            name=f"broker {self._leader_id}",
            client_id=client_id,
            timeout_ms=following.settings.socket_timeout_ms,
            setup=following.setup,
            asks_versions=False,
            receive_buffer_bytes=following.settings.receive_buffer_bytes,
        )
        if following.setup.login is None and self._peer.is_open:
            self._connection = following.connection(self._peer, self._fetcher, client_id)
        return self._peer
