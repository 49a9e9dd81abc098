"""The third phase of a broker: clients are served, groups and transactions coordinated, logs maintained."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from odradek.apis.quotas import ClientQuotas
from odradek.config.listeners import OLDEST
from odradek.coordinator.cluster.decisions import Decisions
from odradek.coordinator.cluster.topics import (
    NewTopic,
)
from odradek.server.background.upkeep import Compaction, Upkeep
from odradek.server.network.admission import is_address, is_host
from odradek.server.network.busy_poll import BusyPoll
from odradek.server.network.connections import Connections
from odradek.server.network.routes import Routes
from odradek.server.node_parts import (
    api_settings,
    authorizer_of,
    follow_tls,
    internal_topics,
    new_connections,
    sweep_tokens,
    tell_what_is_open,
)
from odradek.server.security.quota_follower import QuotaFollower
from odradek.server.shutdown import stop_serving
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.apis.access import Authorizer
    from odradek.apis.node import ApiSettings, NodeParts
    from odradek.coordinator.client_metrics.clients import ClientMetrics
    from odradek.server.background.schedule import Schedule
    from odradek.server.cluster.replication import Replication
    from odradek.server.coordination.coordinators import Coordinators
    from odradek.server.node import Node
    from odradek.server.phase_open import Opened

logger = logging.getLogger("odradek.broker")

COORDINATORS_DELAY_MS = 50
"""First the clients that wait for the port, then the loading of groups and transactions."""
WARM_UP_DELAY_MS = 100
"""After those: `server/background/warm_up.py`."""
WARM_UP_MORE_DELAY_MS = 1_000
"""A program that starts a broker for one purpose has achieved it by then."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Serving:
    """See the module."""

    opened: Opened
    coordinators: Coordinators
    connections: Connections
    controller_connections: Connections | None
    """Connections at the listeners for controllers, where a node alone has some."""
    client_metrics: Callable[[], ClientMetrics]
    """The metrics that clients push; made when they are first needed."""
    replication: Replication | None
    """Replication of a node of a cluster."""
    compaction: Compaction | None
    """None where it is switched off."""


async def serve(opened: Opened, ending: AsyncExitStack, replication: Replication | None = None) -> Serving:
    """Returns when every listener answers. `ending` gets what undoes it."""
    from odradek.apis.table import Apis

    node, ports, schedule = opened.bound.node, opened.bound.ports, opened.schedule
    upkeep = Upkeep(opened.bound.store, schedule, node.now_ms)
    coordinators = _new_coordinators(opened)
    quotas = ClientQuotas()
    publisher = opened.plane.publisher
    authorizer = authorizer_of(node, lambda: publisher.view)
    parts = _node_parts(opened, coordinators, upkeep, quotas, authorizer)
    settings = api_settings(node, opened.bound.reconfiguration.live)
    connections = new_connections(
        node,
        ports,
        Apis(parts, settings, node.extensions.apis, last_versions=node.config.last_versions),
        settings,
        authorizer,
        opened.bound.reconfiguration,
        lambda: publisher.view,
        schedule,
        ending,
    )
    if node.polls_before_sleep:
        connections.dispatcher.after_requests = BusyPoll(schedule.loop, lambda: schedule.is_idle)
    ending.push_async_callback(stop_serving, schedule, coordinators, connections)
    controller_connections = _open_controller_listeners(opened, authorizer, settings, ending)
    publisher.subscribe(coordinators.follow)
    _follow_quotas(opened, quotas, connections, ending)
    _open_kafka_07(opened, connections, parts, ending)
    ending.callback(ports.close)
    if node.config.worker is None:
        ports.serve(connections)
    else:
        _serve_with_all_workers(opened, connections, ending)
    tell_what_is_open(node.config, [*ports.listeners, *opened.bound.controller_ports.listeners])
    serving = Serving(
        opened=opened,
        coordinators=coordinators,
        connections=connections,
        controller_connections=controller_connections,
        client_metrics=parts.client_metrics,
        replication=replication,
        compaction=_new_compaction(opened),
    )
    _start_background(serving, upkeep, ending)
    return serving


def _open_controller_listeners(
    opened: Opened, authorizer: Authorizer, settings: ApiSettings, ending: AsyncExitStack
) -> Connections | None:
    """Imports nothing without such listeners."""
    serve = opened.deciding.serve_controllers
    if serve is None:
        return None
    from odradek.server.shutdown import close_connections

    connections = serve(opened.schedule, authorizer, settings, ending)
    ending.push_async_callback(close_connections, connections)
    ending.callback(opened.bound.controller_ports.close)
    return connections


def _serve_with_all_workers(opened: Opened, connections: Connections, ending: AsyncExitStack) -> None:
    from odradek.server.cluster.all_workers import AllWorkers

    config = opened.bound.node.config
    assert config.worker is not None
    first_id = config.node_id - config.worker
    workers = frozenset(range(first_id, first_id + config.values["odradek.workers"]))
    waiting = AllWorkers(workers, opened.bound.ports, connections)
    publisher = opened.plane.publisher
    publisher.subscribe(waiting.view_changed)
    ending.callback(waiting.begin(publisher.view, opened.schedule.timers))


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
        clock_timers=schedule.clock_timers,
        clock=node.clock,
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

    topics = TopicCreation(opened.plane, internal_topics(opened.bound.node.config))
    opened.schedule.changes.run(topics.creating_missing([name]), lambda _: then(), failed)


def _create_queue(opened: Opened, topic: NewTopic, then: Callable[[KafkaError | None], None]) -> None:
    """The dead letter queue of a share group."""
    from odradek.apis.topic_creation import TopicCreation

    def failed(error: Exception) -> None:
        logger.error("topic %s was not created", topic.name, exc_info=error)
        then(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    topics = TopicCreation(opened.plane, internal_topics(opened.bound.node.config))
    opened.schedule.changes.run(
        topics.creating([topic]), lambda refusals: then(refusals.get(topic.name)), failed
    )


def _follow_quotas(
    opened: Opened, quotas: ClientQuotas, connections: Connections, ending: AsyncExitStack
) -> None:
    publisher, schedule = opened.plane.publisher, opened.schedule
    config = opened.bound.node.config
    follower = QuotaFollower(config, quotas, connections, schedule.clock_timers, schedule.reads)
    ending.callback(follower.stop)
    publisher.subscribe(follower.view_changed)
    follower.follow(publisher.view.client_quotas)


def _open_kafka_07(
    opened: Opened, connections: Connections, parts: NodeParts, ending: AsyncExitStack
) -> None:
    """Imports nothing without such a listener."""
    protocols = {one.name: one.protocol for one in opened.bound.node.config.listeners}
    if OLDEST.isdisjoint(protocols.values()):
        return
    from odradek.server.kafka07.listening import open_listeners

    bound, publisher = opened.bound, opened.plane.publisher
    live = bound.reconfiguration.live
    speakers = open_listeners(bound.node, live, publisher, connections, parts.leadership, ending)
    for listener in bound.ports.listeners:
        listener.speaker = speakers.get(protocols[listener.name])


def _node_parts(
    opened: Opened,
    coordinators: Coordinators,
    upkeep: Upkeep,
    quotas: ClientQuotas,
    authorizer: Authorizer,
) -> NodeParts:
    from odradek.apis.node import NodeParts
    from odradek.server.network.timers import steady_clock_ms

    bound, schedule = opened.bound, opened.schedule
    publisher, zookeeper = opened.plane.publisher, bound.node.zookeeper
    metadata_bytes_max = bound.node.config.values["offset.metadata.max.bytes"]
    return NodeParts(
        node_id=bound.node.id,
        plane=opened.plane,
        metadata_log=opened.deciding.metadata_log,
        controller_endpoints=opened.deciding.endpoints,
        forward=opened.deciding.forward,
        controller_versions=opened.deciding.controller_versions,
        store=bound.store,
        leadership=coordinators.leadership,
        groups=coordinators.groups,
        oldest_groups=None
        if zookeeper is None
        else zookeeper.groups(schedule.loop, lambda: publisher.view, metadata_bytes_max),
        transactions=coordinators.transactions,
        shares=coordinators.shares,
        log_ends=lambda: coordinators.log_ends,
        dead_letters=coordinators.dead_letters,
        remote_transactions=lambda: coordinators.remote_transactions,
        new_producer_id=coordinators.new_producer_id,
        now_ms=bound.node.now_ms,
        turn=schedule.turn,
        timers=schedule.timers,
        clock_timers=schedule.clock_timers,
        changes=schedule.changes,
        searches=schedule.searches,
        reads=schedule.reads,
        conversions=schedule.conversions,
        saves=schedule.saves,
        begin_moves=upkeep.move,
        is_address=is_address,
        is_host=is_host,
        quotas=quotas,
        authorizer=authorizer,
        clock_ms=steady_clock_ms(bound.node.clock),
        subscribe=publisher.subscribe,
    )


# Background work


def _start_background(serving: Serving, upkeep: Upkeep, ending: AsyncExitStack) -> None:
    opened, connections = serving.opened, serving.connections
    config, schedule = opened.bound.node.config, opened.schedule
    for end in upkeep.start(config):
        ending.callback(end)
    ending.callback(connections.start_sweeping(schedule.timers, schedule.clock_timers))
    _watch_disks(opened, ending)
    if isinstance(opened.plane, Decisions):
        # In a cluster the controllers do it.
        sweep_tokens(opened.bound.node, opened.plane, schedule, ending)
    follow_tls(config, opened.bound.ports, opened.bound.reconfiguration, schedule, ending)
    loading = schedule.timers.after(COORDINATORS_DELAY_MS, serving.coordinators.load)
    ending.callback(loading.cancel)
    topics = frozenset(opened.plane.view.topics)
    for delay_ms, is_first in ((WARM_UP_DELAY_MS, True), (WARM_UP_MORE_DELAY_MS, False)):
        begin = partial(_warm_up, connections.dispatcher.routes, schedule, topics, is_first)
        ending.callback(schedule.timers.after(delay_ms, begin).cancel)
    if serving.compaction is not None:
        ending.callback(serving.compaction.start())


def _new_compaction(opened: Opened) -> Compaction | None:
    bound = opened.bound
    if not bound.node.config.values["log.cleaner.enable"]:
        return None
    return Compaction(bound.store, opened.schedule, bound.reconfiguration, bound.node.now_ms)


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
