"""Parts that brokers and controllers have alike: settings of APIs, connections, logins, certificates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from odradek.apis.access import ALLOW_ALL
from odradek.coordinator.cluster.features import features_of
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
from odradek.server.network.admission import ConnectionLimits
from odradek.server.network.connections import Connections, counts_by_address
from odradek.server.network.routes import Routes
from odradek.wire.work import finish

if TYPE_CHECKING:
    from odradek.apis.access import Authorizer
    from odradek.apis.declaration import Served
    from odradek.apis.node import ApiSettings
    from odradek.config.broker_config import BrokerConfig
    from odradek.config.live import LiveConfig
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.server.background.schedule import Schedule
    from odradek.server.network.listeners import Listener
    from odradek.server.network.ports import Ports
    from odradek.server.node import Node
    from odradek.server.reconfiguration import Reconfiguration
    from odradek.storage.config import LogConfig

logger = logging.getLogger("odradek.broker")


def api_settings(node: Node, live: LiveConfig[LogConfig]) -> ApiSettings:
    from odradek.apis.node import ApiSettings

    config, values = node.config, node.config.values
    return ApiSettings(
        start_configs=config.layers.start,
        internal_topics=internal_topics(config),
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
        security_protocols={
            one.name: one.protocol for one in (*config.listeners, *config.controller_listeners)
        },
        told_features=None if config.emulated is None else features_of(config.emulated),
        option_value=live.option_value,
    )


def _token_rules(config: BrokerConfig) -> TokenRules:
    if not config.values["delegation.token.secret.key"]:
        return TokenRules(None)
    from odradek.server.security.tokens import token_rules

    return token_rules(config)


def internal_topics(config: BrokerConfig) -> tuple[NewTopic, NewTopic, NewTopic]:
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


def authorizer_of(node: Node, current_view: Callable[[], ClusterView]) -> Authorizer:
    """The authorizer of the options, by the rules of the newest view."""
    if not node.config.values["authorizer.class.name"]:
        return ALLOW_ALL
    from odradek.server.security.authorizer import new_authorizer

    return new_authorizer(node.config, current_view, node.now_ms)


def new_connections(
    node: Node,
    ports: Ports,
    apis: Mapping[int, Served],
    settings: ApiSettings,
    authorizer: Authorizer,
    reconfiguration: Reconfiguration,
    current_view: Callable[[], ClusterView],
    schedule: Schedule,
    ending: AsyncExitStack,
) -> Connections:
    """Connections with their limits and logins; nothing is served before `ports.serve`."""
    connections = Connections(
        Routes(apis),
        schedule.turn,
        node.clock,
        connection_limits(node.config, reconfiguration.live),
        current_view,
        node.config.inter_broker_listener if len(node.config.listeners) > 1 else None,
    )
    connections.dispatcher.authorizer = authorizer
    slow_ms = node.config.values["odradek.log.slow.request.ms"]
    if slow_ms >= 0:
        from odradek.server.network.slow_requests import NS_PER_MS, SlowRequests
        from odradek.server.network.timers import monotonic_ms

        connections.dispatcher.watch_slow(slow_ms * NS_PER_MS, SlowRequests(monotonic_ms))

    def follow(live: LiveConfig[LogConfig]) -> None:
        connections.limits = connection_limits(node.config, live)

    reconfiguration.register(follow)
    if any(security.has_sasl for security in node.config.security.values()):
        _open_secured_listeners(node.config, ports, settings, current_view, connections, schedule, ending)
    return connections


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


def _open_secured_listeners(
    config: BrokerConfig,
    ports: Ports,
    settings: ApiSettings,
    current_view: Callable[[], ClusterView],
    connections: Connections,
    schedule: Schedule,
    ending: AsyncExitStack,
) -> None:
    from odradek.server.security.sasl.listeners import open_listeners
    from odradek.server.security.tokens import TokenLogins

    secret = settings.token_rules.secret
    end = open_listeners(
        config,
        ports.listeners,
        connections,
        schedule,
        lambda: current_view().scram_users,
        None if secret is None else TokenLogins(secret, lambda: current_view().delegation_tokens),
    )
    ending.callback(end)


def tell_what_is_open(config: BrokerConfig, listeners: Sequence[Listener]) -> None:
    """One line for all listeners without a login, where no ACL decides."""
    unguarded = [
        one
        for one in listeners
        if one.principal is None and one.sasl is None and not (one.tls and one.tls.needs_certificate)
    ]
    if config.values["authorizer.class.name"] or not unguarded:
        return
    is_local = all(one.host in ("localhost", "::1") or one.host.startswith("127.") for one in unguarded)
    logger.log(
        logging.INFO if is_local else logging.WARNING,
        "no login and no ACLs: everybody who can connect to %s may do everything (docs/security.md)",
        ", ".join(f"{one.name} ({one.host or '0.0.0.0'}:{one.port})" for one in unguarded),
    )


def add_first_users(config: BrokerConfig, plane: Decisions) -> None:
    """Make users of the environment that the cluster does not have yet."""
    if not config.first_users:
        return
    from odradek.coordinator.cluster.draft import at_once
    from odradek.server.security.users import missing_credentials
    from odradek.wire.scram import MECHANISM_NAMES

    credentials = missing_credentials(config.first_users, plane.view.scram_users)
    finish(plane.changing(at_once(lambda draft: draft.change_scram_users(credentials))))
    for user, mechanism in credentials:
        logger.info("user %r was made for %s, as the environment asks for", user, MECHANISM_NAMES[mechanism])


def sweep_tokens(node: Node, plane: Decisions, schedule: Schedule, ending: AsyncExitStack) -> None:
    """Remove expired delegation tokens from time to time, where they can be made."""
    if not node.config.values["delegation.token.secret.key"]:
        return
    from odradek.server.security.tokens import TokenSweep

    interval_ms = node.config.values["delegation.token.expiry.check.interval.ms"]
    ending.callback(TokenSweep(plane, schedule.changes, schedule.clock_timers, node.now_ms, interval_ms).stop)


def follow_tls(
    config: BrokerConfig,
    ports: Ports,
    reconfiguration: Reconfiguration,
    schedule: Schedule,
    ending: AsyncExitStack,
) -> None:
    """Take in new certificates of listeners that have some."""
    acceptors = ports.tls_acceptors
    if not acceptors:
        return
    from odradek.server.background.work import Detached
    from odradek.server.network.tls_reload import TlsReload

    detached = Detached(schedule.loop)
    reload = TlsReload(
        acceptors,
        {name: config.security[name].protocol for name in acceptors},
        config.layers,
        config.inter_broker_listener,
        schedule.loop.call_soon,
        detached.run,
    )
    ending.callback(detached.close)
    reconfiguration.live.checks.append(reload.check)
    reconfiguration.register(reload.follow)
    ending.callback(reload.start(schedule.timers))
    for acceptor in acceptors.values():
        ending.callback(acceptor.start(schedule.timers))
