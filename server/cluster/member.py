"""A node of a cluster: it joins its controllers, and follows what they decide.

It registers, replays the metadata log, and opens its data once it has caught up. Then it asks to be unfenced.
Each later view makes, configures and removes the partitions of this node before the next one is taken in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.coordinator.cluster.features import NODE_FEATURES, knows_cordons, refusal_of_features
from odradek.coordinator.cluster.metadata_image import SECURITY_PROTOCOLS
from odradek.coordinator.cluster.publishing import Publisher
from odradek.coordinator.cluster.view import ClusterChange, ClusterView
from odradek.coordinator.kraft.broker_lifecycle import BrokerState, LifecycleSettings
from odradek.coordinator.kraft.metadata_fetcher import Controller, FetcherSettings
from odradek.server.cluster.controller_link import ControllerLink, LinkSettings, find_cluster_id
from odradek.server.cluster.home_reporter import HomeReporter
from odradek.server.cluster.new_topics import NewTopicResult, NewTopics, given_numbers
from odradek.server.cluster.replica_homes import ReplicaHomes
from odradek.server.controller import Deciding
from odradek.server.metadata.unenforced_acls import refusal_of_acls
from odradek.server.network.peers import SetupTimeout
from odradek.server.network.ports import bind_ports
from odradek.server.phase_bind import Bound, lock_store
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from odradek.wire.schema import uuid_from_text
from odradek.wire.work import finish

if TYPE_CHECKING:
    from concurrent.futures import Future

    from odradek.apis.node import Answered
    from odradek.config.broker_config import BrokerConfig
    from odradek.config.cluster_config import ClusterConfig
    from odradek.config.credentials import Credentials
    from odradek.coordinator.cluster.topics import NewTopic
    from odradek.server.background.work import WorkQueue
    from odradek.server.cluster.replication import Replication
    from odradek.server.network.ports import Ports
    from odradek.server.node import Node
    from odradek.server.phase_open import Opened
    from odradek.server.phase_serve import Serving
    from odradek.server.security.outgoing import OutgoingTls
    from odradek.server.security.sasl.client import PeerLogin
    from odradek.wire.messages.alter_partition import AlterPartitionRequest
    from odradek.wire.messages.envelope import EnvelopeRequest
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.cluster")

OWN_RECORD_S = 5.0
LEAVE_S = 300.0
"""A controlled shutdown takes no longer: as in Kafka, whose BrokerServer.shutdown waits five minutes."""


class Member:
    """The control plane of a node of a cluster (`ControlPlane`), and the link's listener."""

    def __init__(
        self,
        settings: LinkSettings,
        config: BrokerConfig,
        homes: ReplicaHomes,
        on_end: Callable[[], object],
    ) -> None:
        """`homes` are where replicas of this node are."""
        self.publisher = Publisher(ClusterView(cluster_id=settings.cluster_id))
        self.deletions: set[bytes] = set()
        self.state = BrokerState.STARTING
        self.broker_epoch = -1
        self.is_fenced = True
        self.controller_versions: Mapping[int, tuple[int, int]] = {}
        """First and last version by API key that the leading controller serves; empty: none has answered."""
        self.when_registered: Callable[[int], object] = lambda broker_epoch: None
        """Called with each new broker epoch."""
        self.when_leaving: Callable[[], object] = lambda: None
        """Called when a controlled shutdown begins."""
        self._settings = settings
        assert config.cluster is not None
        self._values = config.values
        self._controllers = config.cluster.bootstrap_text
        self.homes = homes
        self._has_named_acls = False
        self._on_end = on_end
        self._changes: WorkQueue | None = None
        self._states = asyncio.Condition()
        self._failure: str | None = None
        self._has_link = True
        """Whether the controllers may still hear of this node."""
        self._is_in_a_hurry = False
        self._is_closed = False
        self._cordoned: list[bytes] | None = None
        """Cordoned directories that the link was told."""
        self._producer_ids: range | None = None
        self._is_asking_producer_ids = False
        self.link = ControllerLink(settings, self)
        partition_count, replication_factor = given_numbers(config)
        self._new_topics = NewTopics(
            self.link.ask,
            lambda: self.view,
            partition_count=partition_count,
            replication_factor=replication_factor,
        )
        self.reporter = HomeReporter(
            settings.node_id, homes, self.link.ask, lambda: self.broker_epoch, lambda: self.view
        )

    @property
    def view(self) -> ClusterView:
        return self.publisher.view

    # Start and end

    async def join(self) -> None:
        """Returns when the metadata log has been replayed. Raises ConfigError with one sentence."""
        self.publisher.subscribe(lambda view, change: self._check_view(view))
        self.publisher.subscribe(lambda view, change: self._new_topics.view_changed(view))
        self.publisher.subscribe(self._brokers_changed)
        self.link.start()
        await self._until(lambda: self.state is not BrokerState.STARTING)

    def follow_with(self, changes: WorkQueue) -> None:
        """From now on the node has logs: views are taken in by works of that queue."""
        self._changes = changes
        self.publisher.subscribe(self.reporter.view_changed)
        self.reporter.check_all()

    async def serve(self) -> None:
        """The listeners answer. Returns when the controllers have unfenced the node, and it tells so itself:
        the record of that comes a moment after the response to the heartbeat."""
        self._ask_producer_ids()
        self.link.set_ready()
        await self._until(lambda: self.state is not BrokerState.RECOVERY)
        with contextlib.suppress(TimeoutError):  # without controllers it may never come: serve all the same
            async with asyncio.timeout(OWN_RECORD_S):
                await self._until(lambda: self._settings.node_id in self.view.brokers)
        logger.info("node %d is unfenced, broker epoch %d", self._settings.node_id, self.broker_epoch)

    async def leave(self, within_s: float = LEAVE_S) -> None:
        """Controlled shutdown: returns when nothing is led here any more, nobody waits for it, or the time is
        over. Controllers that have ended never grant it."""
        if self._values["controlled.shutdown.enable"] and self._has_link:
            self.when_leaving()
            self.link.begin_shutdown()
            try:
                async with asyncio.timeout(within_s), self._states:
                    await self._states.wait_for(self._is_let_go)
            except TimeoutError:
                logger.error("the controllers have not let this node go within %g s: stopping", within_s)
            else:
                if self._is_in_a_hurry:
                    logger.warning("stopping before the controllers have let this node go")
        self.close()

    def _is_let_go(self) -> bool:
        return not self._has_link or self._is_in_a_hurry or self.state is BrokerState.SHUTTING_DOWN

    def hurry(self) -> None:
        """A controlled shutdown that is under way, or begins, does not wait. Harmless a second time."""
        self._is_in_a_hurry = True
        self._wake()

    def close(self) -> None:
        """Views that are on their way are not taken in any more. Harmless a second time."""
        self._is_closed = True
        self.reporter.close()
        self.link.close()

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with self._states:
            await self._states.wait_for(lambda: self._failure is not None or holds())
        if self._failure is not None:
            from odradek.config.config_error import ConfigError

            raise ConfigError(self._failure)

    async def _notify(self) -> None:
        async with self._states:
            self._states.notify_all()

    # From the link

    def view_made(self, view: ClusterView, change: ClusterChange, offset: int) -> None:
        if self._is_closed:
            return
        self.deletions.update(topic.topic_id for topic in change.deleted)
        publishing = self.publisher.publishing(lambda _: view, change)
        if self._changes is None:
            finish(publishing)
            self.link.applied(offset)
            return

        def failed(error: Exception) -> None:
            logger.critical("a change of the cluster could not be taken in", exc_info=error)
            self.link.applied(offset)

        self._changes.run(publishing, lambda _: self.link.applied(offset), failed)

    def state_changed(self, state: BrokerState, broker_epoch: int, is_fenced: bool) -> None:
        if state is not self.state:
            logger.info("broker state %s, epoch %d", state.value, broker_epoch)
        elif is_fenced != self.is_fenced and state is BrokerState.RUNNING:
            logger.warning("this node is %s", "fenced by the controllers" if is_fenced else "unfenced again")
        if broker_epoch != self.broker_epoch:
            self.when_registered(broker_epoch)
        self.state, self.broker_epoch, self.is_fenced = state, broker_epoch, is_fenced
        self._wake()

    def controller_versions_told(self, versions: Mapping[int, tuple[int, int]]) -> None:
        self.controller_versions = versions

    def link_failed(self, sentence: str) -> None:
        self._has_link = False
        self._end(sentence)

    def _end(self, sentence: str) -> None:
        """Said once: the node is on its way to its end then."""
        if self._failure is not None:
            self._wake()
            return
        is_running = self.state is BrokerState.RUNNING
        self._failure = sentence
        self._wake()
        if is_running:
            logger.critical("stopping: %s", sentence)
            self._on_end()

    def _wake(self) -> None:
        self._waking = asyncio.get_running_loop().create_task(self._notify())

    def _brokers_changed(self, view: ClusterView, change: ClusterChange) -> None:
        if change.brokers:
            self._wake()

    def _check_view(self, view: ClusterView) -> None:
        """A cluster with a feature that this node does not serve ends it, and so do ACLs."""
        refusal = refusal_of_features(view.features, "", self._controllers)
        if refusal is not None:
            self._end(refusal)
        if self._values["authorizer.class.name"] or not view.has_acls:
            return
        of_acls = refusal_of_acls(self._values, view)
        if refusal is None and of_acls is not None:
            self._end(of_acls)
        if not self._has_named_acls:
            self._has_named_acls = True
            logger.warning("the cluster has ACLs, which this node does not enforce")

    # For the node

    def finish_deletion(self, topic_id: bytes) -> None:
        """The metadata log has no deleted topics: what a kill leaves of one is a stray at the next start."""
        self.deletions.discard(topic_id)

    def set_offline(
        self, node_id: int, partitions: Iterable[tuple[str, int]], directories: Iterable[str]
    ) -> None:
        """The controllers learn which directories are offline, and elect other leaders."""
        failed = self.homes.ids_of(directories)
        if failed:
            self.link.report_offline(failed)

    def set_cordoned(self, directories: Iterable[str]) -> None:
        """The controllers learn which directories take no new partitions, if their level knows of such: they
        place none on a node that has no others. To be called when either changes; harmless otherwise."""
        cordoned = self.homes.ids_of(directories) if knows_cordons(self.view.features) else None
        if cordoned != self._cordoned:
            self._cordoned = cordoned
            self.link.report_cordoned(cordoned)

    def creating_topics(
        self, new_topics: Sequence[NewTopic], *, charge: Callable[[int], None]
    ) -> Work[Sequence[NewTopicResult]]:
        """See `server/cluster/new_topics.py`."""
        return self._new_topics.creating(new_topics)

    def ask_for_isr(self, request: AlterPartitionRequest, answered: Callable[[Any], None]) -> None:
        """See `server.cluster.leading.Ask`."""
        self._call_back(self.link.ask_for_isr(request), answered)

    def forward(self, envelope: EnvelopeRequest, answered: Answered) -> None:
        """See `apis.node.Forward`."""
        self._call_back(self.link.ask(envelope), answered)

    def _call_back(self, asked: Future[Any], answered: Callable[[Any], None]) -> None:
        """On the node's event loop: with None where no controller has answered."""
        loop = asyncio.get_running_loop()

        def done(future: Future[Any]) -> None:
            response = None if future.cancelled() or future.exception() else future.result()
            _call_on(loop, partial(answered, response))

        asked.add_done_callback(done)

    def allocate_producer_ids(self) -> range:
        """The block that was asked for ahead. COORDINATOR_LOAD_IN_PROGRESS while there is none."""
        block, self._producer_ids = self._producer_ids, None
        self._ask_producer_ids()
        if block is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The next producer ids have not come yet."
            )
        return block

    def _ask_producer_ids(self) -> None:
        if self._is_asking_producer_ids:
            return
        self._is_asking_producer_ids = True
        request = AllocateProducerIdsRequest(broker_id=self._settings.node_id, broker_epoch=self.broker_epoch)

        def take(response: Any) -> None:
            self._is_asking_producer_ids = False
            if response is None:
                return
            if response.error_code:
                logger.warning("no producer ids: %s", ErrorCode(response.error_code).name)
                return
            first = response.producer_id_start
            self._producer_ids = range(first, first + response.producer_id_len)

        self._call_back(self.link.ask(request), take)


async def join_cluster(node: Node, ending: AsyncExitStack) -> tuple[Bound, Member]:
    """In place of `bind`; `ending` gets what undoes it. Raises ConfigError with one sentence for people."""
    from odradek.server.metadata.log_directories import refuse_misplaced
    from odradek.server.metadata.member_directories import claim_member_directories

    config, cluster = node.config, node.config.cluster
    assert cluster is not None
    ports = bind_ports(config, node.sockets, ending)
    _check_brokers_tls(ports, cluster)
    has_metadata = config.metadata_directory in config.data_directories
    refuse_misplaced(config.data_directories, config.metadata_directory if has_metadata else None)
    claimed = claim_member_directories(config.data_directories, node_id=node.id, cluster_id=config.cluster_id)
    for path, failure in claimed.failures.items():
        logger.error("the data directory %s is left out, its partitions are offline: %s", path, failure)
    store, events, topics, reconfiguration = lock_store(node, ending)
    controllers = [Controller(one.id, one.host, one.port) for one in cluster.controllers]
    cluster_id = claimed.cluster_id
    if cluster_id is None:
        timeout_ms = config.values["controller.quorum.request.timeout.ms"]
        setup = _setup_timeout(config, config.controller_login, _controllers_tls(config))
        cluster_id = await find_cluster_id(controllers, timeout_ms, setup, node.id)
    previous_epoch = claimed.previous_broker_epoch()
    bound = Bound(
        node=node,
        ports=ports,
        identity=claimed.settle(cluster_id),
        store=store,
        store_events=events,
        topics=topics,
        reconfiguration=reconfiguration,
    )
    directory_ids = {path: uuid_from_text(text) for path, text in bound.identity.directory_ids.items()}
    settings = _link_settings(bound, cluster, controllers, previous_epoch)
    homes = ReplicaHomes(node.id, directory_ids, store)
    member = Member(settings, config, homes, node.on_end)
    member.when_registered = partial(setattr, store, "broker_epoch")
    events.on_moved = member.reporter.moved
    store.failing_disks.are_given_up = True
    ending.callback(member.close)
    await member.join()
    return bound, member


def replicate(opened: Opened, member: Member, ending: AsyncExitStack) -> Replication:
    """Replication begins before clients are served. `ending` gets what ends it."""
    from odradek.config.option_list import RACK_AWARE_SELECTOR
    from odradek.server.cluster.following import Following
    from odradek.server.cluster.leading import Altering, Leading
    from odradek.server.cluster.replica_log import ReplicationSettings
    from odradek.server.cluster.replication import Replication
    from odradek.server.cluster.throttles import Throttles

    node, store, schedule = opened.bound.node, opened.bound.store, opened.schedule
    values, cluster = node.config.values, node.config.cluster
    assert cluster is not None
    settings = ReplicationSettings(
        node_id=node.id,
        listener=cluster.inter_broker_listener.name,
        replica_lag_time_max_ms=values["replica.lag.time.max.ms"],
        max_wait_ms=values["replica.fetch.wait.max.ms"],
        min_bytes=values["replica.fetch.min.bytes"],
        max_bytes=values["replica.fetch.response.max.bytes"],
        partition_max_bytes=values["replica.fetch.max.bytes"],
        backoff_ms=values["replica.fetch.backoff.ms"],
        socket_timeout_ms=values["replica.socket.timeout.ms"],
        receive_buffer_bytes=values["replica.socket.receive.buffer.bytes"],
        fetchers_per_leader=values["num.replica.fetchers"],
        selects_by_rack=values["replica.selector.class"] == RACK_AWARE_SELECTOR,
    )

    def current_view() -> ClusterView:
        return member.view

    def broker_epoch() -> int:
        return member.broker_epoch

    _follow_cordons(opened, member)
    throttles = Throttles(
        node.id,
        values["replication.quota.window.num"],
        values["replication.quota.window.size.seconds"] * 1000,
    )
    opened.bound.reconfiguration.register(throttles.follow)
    throttles.begin(member.view)
    member.publisher.subscribe(throttles.view_changed)
    altering = Altering(node.id, broker_epoch, current_view, member.ask_for_isr, schedule.timers)
    replication = Replication(
        settings,
        store,
        schedule.timers,
        Leading(
            settings,
            store,
            current_view,
            altering,
            throttles.leader,
            schedule.timers,
            schedule.turn.flushes.save_epochs,
            schedule.turn,
        ),
        Following(
            settings,
            store,
            schedule,
            current_view,
            broker_epoch,
            node.now_ms,
            throttles.follower,
            _brokers_setup(opened, cluster),
        ),
    )
    ending.callback(replication.close)
    opened.bound.reconfiguration.register(replication.configure)
    replication.begin(member.view)
    member.publisher.subscribe(replication.view_changed)
    member.when_leaving = partial(setattr, replication, "is_in_shutdown", True)
    return replication


def _follow_cordons(opened: Opened, member: Member) -> None:
    creating = opened.bound.store.creating
    opened.bound.reconfiguration.register(lambda live: member.set_cordoned(creating.cordoned))
    member.publisher.subscribe(lambda view, change: member.set_cordoned(creating.cordoned))


def reach_brokers(opened: Opened, serving: Serving, member: Member, ending: AsyncExitStack) -> None:
    """Coordinators and leaders here ask those of other brokers. `ending` gets what ends it."""
    from odradek.server.coordination.remote_log_ends import RemoteLogEnds
    from odradek.server.coordination.remote_transactions import RemoteTransactions
    from odradek.server.network.broker_peers import BrokerPeers

    node = opened.bound.node
    values, cluster = node.config.values, node.config.cluster
    assert cluster is not None

    def current_view() -> ClusterView:
        return member.view

    listener, timeout_ms = cluster.inter_broker_listener.name, values["request.timeout.ms"]
    setup = _brokers_setup(opened, cluster)
    peers = BrokerPeers(node.id, listener, timeout_ms, setup, current_view)
    ending.callback(peers.close)
    serving.coordinators.peers = peers
    serving.coordinators.remote_transactions = RemoteTransactions(node.id, peers, current_view)
    serving.coordinators.log_ends = RemoteLogEnds(peers, current_view, opened.schedule.timers)


def deciding_of(member: Member) -> Deciding:
    """How the later phases see it."""
    return Deciding(
        plane=member,
        allocate_producer_ids=member.allocate_producer_ids,
        when_open=lambda schedule: None,
        forward=member.forward,
        homes=member.homes,
        ask_controllers=member.link.ask,
        controller_versions=lambda: member.controller_versions,
    )


def _controllers_tls(config: BrokerConfig) -> OutgoingTls | None:
    """Raises ConfigError."""
    security = config.controller_security
    if security is None or not security.has_tls:
        return None
    from odradek.server.security.outgoing import OutgoingTls, following_files

    return OutgoingTls(following_files(security))


def _brokers_tls(ports: Ports, cluster: ClusterConfig) -> OutgoingTls | None:
    """Other brokers have the settings of this node's own listener. Raises ConfigError."""
    acceptor = ports.tls_acceptors.get(cluster.inter_broker_listener.name)
    if acceptor is None:
        return None
    from odradek.server.security.outgoing import OutgoingTls

    return OutgoingTls(lambda: acceptor.settings)


def _check_brokers_tls(ports: Ports, cluster: ClusterConfig) -> None:
    """Refuses with ConfigError a listener among brokers at which they would not trust each other."""
    acceptor = ports.tls_acceptors.get(cluster.inter_broker_listener.name)
    if acceptor is not None:
        from odradek.server.network.tls_reload import check_talks_to_itself

        check_talks_to_itself(acceptor.settings)


def _brokers_setup(opened: Opened, cluster: ClusterConfig) -> SetupTimeout:
    config = opened.bound.node.config
    return _setup_timeout(config, config.inter_broker_login, _brokers_tls(opened.bound.ports, cluster))


def _setup_timeout(config: BrokerConfig, login: Credentials | None, tls: OutgoingTls | None) -> SetupTimeout:
    return SetupTimeout(
        config.values["socket.connection.setup.timeout.ms"],
        config.values["socket.connection.setup.timeout.max.ms"],
        login=None if login is None else _peer_login(login),
        tls=tls,
    )


def _peer_login(login: Credentials) -> PeerLogin:
    from odradek.server.security.sasl.client import PeerLogin

    return PeerLogin(login)


def _link_settings(
    bound: Bound, cluster: ClusterConfig, controllers: Sequence[Controller], previous_epoch: int
) -> LinkSettings:
    node, config, identity = bound.node, bound.node.config, bound.identity
    values = config.values
    directory_ids = [uuid_from_text(text) for text in identity.directory_ids.values()]
    registration = BrokerRegistrationRequest(
        broker_id=node.id,
        cluster_id=identity.cluster_id,
        incarnation_id=os.urandom(16),
        listeners=_registered_listeners(bound.ports, cluster),
        features=[
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in NODE_FEATURES.items()
        ],
        rack=values["broker.rack"],
        log_dirs=sorted(directory_ids),
        previous_broker_epoch=previous_epoch,
    )
    return LinkSettings(
        bootstrap=controllers,
        cluster_id=identity.cluster_id,
        node_id=node.id,
        registration=registration,
        directory_id=directory_ids[0],
        lifecycle=LifecycleSettings(
            heartbeat_interval_ms=cluster.heartbeat_interval_ms,
            session_timeout_ms=values["broker.session.timeout.ms"],
            initial_registration_timeout_ms=values["initial.broker.registration.timeout.ms"],
            directory_failure_timeout_ms=values["log.dir.failure.timeout.ms"],
        ),
        fetcher=FetcherSettings(
            fetch_timeout_ms=values["controller.quorum.fetch.timeout.ms"],
            retry_backoff_ms=values["controller.quorum.retry.backoff.ms"],
        ),
        request_timeout_ms=values["controller.quorum.request.timeout.ms"],
        socket_timeout_ms=values["controller.socket.timeout.ms"],
        fetch_max_bytes=values["controller.quorum.fetch.max.bytes"],
        snapshot_max_bytes=values["controller.quorum.fetch.snapshot.max.bytes"],
        setup=_setup_timeout(config, config.controller_login, _controllers_tls(config)),
    )


def _registered_listeners(ports: Ports, cluster: ClusterConfig) -> list[Listener]:
    real_ports = {listener.name: listener.port for listener in ports.listeners}
    return [
        Listener(
            name=one.name,
            host=one.host or socket.gethostname(),
            port=one.port or real_ports[one.name],
            security_protocol=SECURITY_PROTOCOLS.index(one.protocol),
        )
        for one in cluster.advertised
    ]


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """In any thread; nothing where the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)
