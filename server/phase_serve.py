"""The third phase of a broker: clients are served, groups and transactions coordinated, logs maintained."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from odradek.apis.access import ALLOW_ALL
from odradek.apis.quotas import ClientQuotas
from odradek.config.listeners import OLDEST
from odradek.coordinator.cluster.topics import (
    OFFSETS_TOPIC,
    OFFSETS_TOPIC_CONFIGS,
    SHARE_STATE_TOPIC,
    SHARE_STATE_TOPIC_CONFIGS,
    TRANSACTIONS_TOPIC,
    TRANSACTIONS_TOPIC_CONFIGS,
    NewTopic,
)
from odradek.coordinator.security.delegation_tokens import TokenRules
from odradek.server.background.upkeep import Compaction, Upkeep
from odradek.server.network.admission import ConnectionLimits, is_address, is_host
from odradek.server.network.busy_poll import BusyPoll
from odradek.server.network.connections import Connections, counts_by_address
from odradek.server.network.routes import Routes
from odradek.server.security.quota_follower import QuotaFollower
from odradek.server.shutdown import stop_serving
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.apis.access import Authorizer
    from odradek.apis.node import ApiSettings, NodeParts
    from odradek.config.broker_config import BrokerConfig
    from odradek.config.live import LiveConfig
    from odradek.coordinator.client_metrics.clients import ClientMetrics
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.security.delegation_tokens import TokenSecret
    from odradek.server.background.schedule import Schedule
    from odradek.server.cluster.replication import Replication
    from odradek.server.coordination.coordinators import Coordinators
    from odradek.server.network.listeners import Listener
    from odradek.server.phase_bind import Node
    from odradek.server.phase_open import Opened
    from odradek.storage.config import LogConfig

logger = logging.getLogger("odradek.broker")

COORDINATORS_DELAY_MS = 50
"""First the clients that wait for the port, then the loading of groups and transactions."""
WARM_UP_DELAY_MS = 100
"""After those: `server/background/warm_up.py`."""
WARM_UP_MORE_DELAY_MS = 1_000
"""A program that starts a broker for one purpose has achieved it by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """See the module."""

    opened: Opened
    coordinators: Coordinators
    connections: Connections
    client_metrics: Callable[[], ClientMetrics]
    """The metrics that clients push; made when they are first needed."""
    replication: Replication | None
    """Replication of a node of a cluster."""


async def serve(opened: Opened, ending: AsyncExitStack, replication: Replication | None = None) -> Serving:
    """Returns when every listener answers. `ending` gets what undoes it."""
    node, ports, schedule = opened.bound.node, opened.bound.ports, opened.schedule
    upkeep = Upkeep(opened.bound.store, schedule, node.now_ms)
    coordinators = _new_coordinators(opened)
    quotas = ClientQuotas()
    publisher = opened.plane.publisher
    authorizer = authorizer_of(node, lambda: publisher.view)
    parts = _node_parts(opened, coordinators, upkeep, quotas, authorizer)
    connections = _new_connections(opened, parts, ending)
    if node.polls_before_sleep:
        connections.dispatcher.after_requests = BusyPoll(schedule.loop, lambda: schedule.is_idle)
    ending.push_async_callback(stop_serving, schedule, coordinators, connections)
    publisher.subscribe(coordinators.follow)
    _follow_quotas(opened, quotas, connections, ending)
    _open_kafka_07(opened, connections, parts, ending)
    ending.callback(ports.close)
    ports.serve(connections)
    _tell_what_is_open(node.config, ports.listeners)
    serving = Serving(
        opened=opened,
        coordinators=coordinators,
        connections=connections,
        client_metrics=parts.client_metrics,
        replication=replication,
    )
    _start_background(serving, upkeep, ending)
    return serving


def _new_coordinators(opened: Opened) -> Coordinators:
    from odradek.apis.leadership import Leadership
    from odradek.coordinator.cluster.producer_ids import ProducerIds
    from odradek.server.coordination.coordinators import Coordinators

    node, store, schedule = opened.bound.node, opened.bound.store, opened.schedule
    publisher = opened.plane.publisher
    return Coordinators(
        config=node.config,
        live=opened.bound.reconfiguration.live,
        leadership=Leadership(lambda: publisher.view, store, node.id),
        store=store,
        turn=schedule.turn,
        timers=schedule.timers,
        now_ms=node.now_ms,
        new_producer_id=ProducerIds(opened.deciding.allocate_producer_ids).next,
        searches=schedule.searches,
        reads=schedule.reads,
        conversions=schedule.conversions,
        saves=schedule.saves,
        create_topic=partial(_create_topic, opened),
        create_queue=partial(_create_queue, opened),
        after_loading=node.after_loading,
        group_types=node.extensions.group_types,
    )


def _create_topic(opened: Opened, name: str, then: Callable[[], None]) -> None:
    """One of a coordinator, as the broker needs it for itself."""
    from odradek.apis.topic_creation import TopicCreation

    def failed(error: Exception) -> None:
        logger.error("topic %s was not created: %s", name, error)
        then()

    topics = TopicCreation(opened.plane, _internal_topics(opened.bound.node.config))
    opened.schedule.changes.run(topics.creating_missing([name]), lambda _: then(), failed)


def _create_queue(opened: Opened, topic: NewTopic, then: Callable[[KafkaError | None], None]) -> None:
    """The dead letter queue of a share group."""
    from odradek.apis.topic_creation import TopicCreation

    def failed(error: Exception) -> None:
        logger.error("topic %s was not created", topic.name, exc_info=error)
        then(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    topics = TopicCreation(opened.plane, _internal_topics(opened.bound.node.config))
    opened.schedule.changes.run(
        topics.creating([topic]), lambda refusals: then(refusals.get(topic.name)), failed
    )


def _follow_quotas(
    opened: Opened, quotas: ClientQuotas, connections: Connections, ending: AsyncExitStack
) -> None:
    publisher, schedule = opened.plane.publisher, opened.schedule
    config = opened.bound.node.config
    follower = QuotaFollower(config, quotas, connections, schedule.timers, schedule.reads)
    ending.callback(follower.stop)
    publisher.subscribe(follower.view_changed)
    follower.follow(publisher.view.client_quotas)


def _new_connections(opened: Opened, parts: NodeParts, ending: AsyncExitStack) -> Connections:
    from odradek.apis.table import Apis

    node, reconfiguration, publisher = opened.bound.node, opened.bound.reconfiguration, opened.plane.publisher
    live = reconfiguration.live
    settings = api_settings(node, live)
    apis = Apis(parts, settings, node.extensions.apis)
    connections = Connections(
        Routes(apis),
        opened.schedule.turn,
        node.now_ms,
        connection_limits(node.config, live),
        lambda: publisher.view,
        node.config.inter_broker_listener if len(node.config.listeners) > 1 else None,
    )

    connections.dispatcher.authorizer = parts.authorizer
    slow_ms = node.config.values["odradek.log.slow.request.ms"]
    if slow_ms >= 0:
        from odradek.server.network.slow_requests import NS_PER_MS, SlowRequests
        from odradek.server.network.timers import monotonic_ms

        connections.dispatcher.watch_slow(slow_ms * NS_PER_MS, SlowRequests(monotonic_ms))

    def follow(live: LiveConfig[LogConfig]) -> None:
        connections.limits = connection_limits(node.config, live)

    reconfiguration.register(follow)
    if any(security.has_sasl for security in node.config.security.values()):
        _open_secured_listeners(opened, settings.token_rules.secret, connections, ending)
    return connections


def _open_kafka_07(
    opened: Opened, connections: Connections, parts: NodeParts, ending: AsyncExitStack
) -> None:
    """Imports nothing without such a listener."""
    protocols = {one.name: one.protocol for one in opened.bound.node.config.listeners}
    if OLDEST.isdisjoint(protocols.values()):
        return
    from odradek.server.kafka07.listening import open_listeners

    speakers = open_listeners(opened.bound, opened.plane.publisher, connections, parts.leadership, ending)
    for listener in opened.bound.ports.listeners:
        listener.speaker = speakers.get(protocols[listener.name])


def _tell_what_is_open(config: BrokerConfig, listeners: Sequence[Listener]) -> None:
    """One line for all listeners without a login, where no ACL decides."""
    unguarded = [one for one in listeners if one.sasl is None and not (one.tls and one.tls.needs_certificate)]
    if config.values["authorizer.class.name"] or not unguarded:
        return
    is_local = all(one.host in ("localhost", "::1") or one.host.startswith("127.") for one in unguarded)
    logger.log(
        logging.INFO if is_local else logging.WARNING,
        "no login and no ACLs: everybody who can connect to %s may do everything (docs/security.md)",
        ", ".join(f"{one.name} ({one.host or '0.0.0.0'}:{one.port})" for one in unguarded),
    )


def authorizer_of(node: Node, current_view: Callable[[], ClusterView]) -> Authorizer:
    """The authorizer of the options, by the rules of the newest view."""
    if not node.config.values["authorizer.class.name"]:
        return ALLOW_ALL
    from odradek.server.security.authorizer import new_authorizer

    return new_authorizer(node.config, current_view, node.now_ms)


def _open_secured_listeners(
    opened: Opened, secret: TokenSecret | None, connections: Connections, ending: AsyncExitStack
) -> None:
    from odradek.server.security.sasl.listeners import open_listeners
    from odradek.server.security.tokens import TokenLogins

    publisher, bound = opened.plane.publisher, opened.bound
    end = open_listeners(
        bound.node.config,
        bound.ports.listeners,
        connections,
        opened.schedule,
        lambda: publisher.view.scram_users,
        None if secret is None else TokenLogins(secret, lambda: publisher.view.delegation_tokens),
    )
    ending.callback(end)


def _node_parts(
    opened: Opened,
    coordinators: Coordinators,
    upkeep: Upkeep,
    quotas: ClientQuotas,
    authorizer: Authorizer,
) -> NodeParts:
    from odradek.apis.node import NodeParts
    from odradek.server.network.timers import steady_clock_ms
    from odradek.wire.schema import uuid_from_text

    bound, schedule = opened.bound, opened.schedule
    directory_id = bound.identity.directory_ids[bound.node.config.data_directories[0]]
    publisher, zookeeper = opened.plane.publisher, bound.node.zookeeper
    metadata_bytes_max = bound.node.config.values["offset.metadata.max.bytes"]
    return NodeParts(
        node_id=bound.node.id,
        plane=opened.plane,
        forward=opened.deciding.forward,
        controller_versions=opened.deciding.controller_versions,
        store=bound.store,
        leadership=coordinators.leadership,
        groups=coordinators.groups,
        oldest_groups=zookeeper
        and zookeeper.groups(schedule.loop, lambda: publisher.view, metadata_bytes_max),
        transactions=coordinators.transactions,
        shares=coordinators.shares,
        log_ends=lambda: coordinators.log_ends,
        dead_letters=coordinators.dead_letters,
        remote_transactions=lambda: coordinators.remote_transactions,
        new_producer_id=coordinators.new_producer_id,
        now_ms=bound.node.now_ms,
        turn=schedule.turn,
        timers=schedule.timers,
        changes=schedule.changes,
        searches=schedule.searches,
        reads=schedule.reads,
        conversions=schedule.conversions,
        saves=schedule.saves,
        begin_moves=upkeep.move,
        is_address=is_address,
        is_host=is_host,
        quotas=quotas,
        directory_id=uuid_from_text(directory_id),
        authorizer=authorizer,
        clock_ms=steady_clock_ms(bound.node.now_ms),
        subscribe=publisher.subscribe,
    )


def api_settings(node: Node, live: LiveConfig[LogConfig]) -> ApiSettings:
    from odradek.apis.node import ApiSettings

    config, values = node.config, node.config.values
    return ApiSettings(
        start_configs=config.layers.start,
        internal_topics=_internal_topics(config),
        controller_listener=next(iter(values["controller.listener.names"] or ()), "CONTROLLER"),
        auto_creates_topics=values["auto.create.topics.enable"],
        deletes_topics=values["delete.topic.enable"],
        fetch_max_bytes=values["fetch.max.bytes"],
        fetch_session_slots=values["max.incremental.fetch.session.cache.slots"],
        share_sessions_max=values["group.share.max.share.sessions"],
        description_partitions_max=values["max.request.partition.size.limit"],
        verifies_transactions=lambda: live.values["transaction.partition.verification.enable"],
        verification_pause_ms_max=values["add.partitions.to.txn.retry.backoff.ms"],
        verification_patience_ms=values["add.partitions.to.txn.retry.backoff.max.ms"],
        broker_options=config.layers.options,
        check_broker_configs=live.check_broker,
        telemetry_max_bytes=values["telemetry.max.bytes"],
        changes_log_levels=node.owns_process,
        token_rules=_token_rules(config),
        security_protocols={one.name: one.protocol for one in config.listeners},
        option_value=live.option_value,
    )


def _token_rules(config: BrokerConfig) -> TokenRules:
    if not config.values["delegation.token.secret.key"]:
        return TokenRules(None)
    from odradek.server.security.tokens import token_rules

    return token_rules(config)


def _internal_topics(config: BrokerConfig) -> tuple[NewTopic, NewTopic, NewTopic]:
    """The topics in which coordinators keep their state, as they are to be created."""
    values = config.values
    return (
        NewTopic(
            OFFSETS_TOPIC,
            partition_count=values["offsets.topic.num.partitions"],
            replication_factor=values["offsets.topic.replication.factor"],
            configs={**OFFSETS_TOPIC_CONFIGS, "segment.bytes": str(values["offsets.topic.segment.bytes"])},
        ),
        NewTopic(
            TRANSACTIONS_TOPIC,
            partition_count=values["transaction.state.log.num.partitions"],
            replication_factor=values["transaction.state.log.replication.factor"],
            configs={
                **TRANSACTIONS_TOPIC_CONFIGS,
                "min.insync.replicas": str(values["transaction.state.log.min.isr"]),
                "segment.bytes": str(values["transaction.state.log.segment.bytes"]),
            },
        ),
        NewTopic(
            SHARE_STATE_TOPIC,
            partition_count=values["share.coordinator.state.topic.num.partitions"],
            replication_factor=values["share.coordinator.state.topic.replication.factor"],
            configs={
                **SHARE_STATE_TOPIC_CONFIGS,
                "min.insync.replicas": str(values["share.coordinator.state.topic.min.isr"]),
                "segment.bytes": str(values["share.coordinator.state.topic.segment.bytes"]),
            },
        ),
    )


def connection_limits(config: BrokerConfig, live: LiveConfig[LogConfig]) -> ConnectionLimits:
    """The limits of connections, as they are set now."""
    return ConnectionLimits(
        request_bytes_max=config.values["socket.request.max.bytes"],
        connections_max=live.values["max.connections"],
        connections_max_of_listeners=live.of_listeners("max.connections"),
        connections_per_ip_max=live.values["max.connections.per.ip"],
        connections_per_ip_overrides=counts_by_address(live.values["max.connections.per.ip.overrides"]),
        creation_rate_max=live.values["max.connection.creation.rate"],
        creation_rate_max_of_listeners=live.of_listeners("max.connection.creation.rate"),
        quota_samples=config.values["quota.window.num"],
        quota_window_ms=config.values["quota.window.size.seconds"] * 1000,
        idle_ms_max=config.values["connections.max.idle.ms"],
    )


# Background work


def _start_background(serving: Serving, upkeep: Upkeep, ending: AsyncExitStack) -> None:
    opened, connections = serving.opened, serving.connections
    config, schedule = opened.bound.node.config, opened.schedule
    for end in upkeep.start(config):
        ending.callback(end)
    ending.callback(connections.start_sweeping(schedule.timers))
    _watch_disks(opened, ending)
    if config.values["delegation.token.secret.key"] and opened.deciding.forward is None:
        _sweep_tokens(opened, ending)
    if opened.bound.ports.tls_acceptors:
        _follow_tls(opened, ending)
    loading = schedule.timers.after(COORDINATORS_DELAY_MS, serving.coordinators.load)
    ending.callback(loading.cancel)
    topics = frozenset(opened.plane.view.topics)
    for delay_ms, is_first in ((WARM_UP_DELAY_MS, True), (WARM_UP_MORE_DELAY_MS, False)):
        begin = partial(_warm_up, connections.dispatcher.routes, schedule, topics, is_first)
        ending.callback(schedule.timers.after(delay_ms, begin).cancel)
    if config.values["log.cleaner.enable"]:
        compaction = Compaction(
            opened.bound.store, schedule, opened.bound.reconfiguration, opened.bound.node.now_ms
        )
        ending.callback(compaction.start())


def _sweep_tokens(opened: Opened, ending: AsyncExitStack) -> None:
    """In a cluster the controllers do it."""
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.server.security.tokens import TokenSweep

    node, schedule = opened.bound.node, opened.schedule
    assert isinstance(opened.plane, Decisions)
    interval_ms = node.config.values["delegation.token.expiry.check.interval.ms"]
    sweep = TokenSweep(opened.plane, schedule.changes, schedule.timers, node.now_ms, interval_ms)
    ending.callback(sweep.stop)


def _follow_tls(opened: Opened, ending: AsyncExitStack) -> None:
    from odradek.server.background.work import Detached
    from odradek.server.network.tls_reload import TlsReload

    config, reconfiguration = opened.bound.node.config, opened.bound.reconfiguration
    acceptors = opened.bound.ports.tls_acceptors
    detached = Detached(opened.schedule.loop)
    reload = TlsReload(
        acceptors,
        {name: config.security[name].protocol for name in acceptors},
        config.layers,
        config.inter_broker_listener,
        opened.schedule.loop.call_soon,
        detached.run,
    )
    ending.callback(detached.close)
    reconfiguration.live.checks.append(reload.check)
    reconfiguration.register(reload.follow)
    ending.callback(reload.start(opened.schedule.timers))
    for acceptor in acceptors.values():
        ending.callback(acceptor.start(opened.schedule.timers))


def _watch_disks(opened: Opened, ending: AsyncExitStack) -> None:
    from odradek.server.background.disks import FailedDisks

    bound = opened.bound
    disks = FailedDisks(
        bound.store,
        opened.schedule,
        bound.node.now_ms,
        opened.topic_logs.report_offline,
        partial(_end_without_disks, bound.node),
    )
    bound.store_events.on_trouble = disks.trouble
    ending.callback(disks.stop)


def _end_without_disks(node: Node, reasons: str) -> None:
    logger.critical("stopping, since no data directory is left that works (%s)", reasons)
    node.on_end()


def _warm_up(routes: Routes, schedule: Schedule, topics: Collection[str], is_first: bool) -> None:
    """For a broker that had these topics when it started."""
    from odradek.server.background.warm_up import parts_at_once, parts_later, warming_up

    parts = parts_at_once(topics) if is_first else parts_later(topics)
    schedule.upkeep.run(warming_up(routes, parts), lambda _: None, _warm_up_failed)


def _warm_up_failed(error: Exception) -> None:
    logger.error("preparing APIs before their first request failed", exc_info=error)
