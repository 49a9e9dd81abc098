"""A controller: binds its listeners, loads the metadata log, and serves its APIs.

It has no partitions of clients, so the phases of a broker are not its own; connections, logins, quotas of
connections and the handlers of requests that change the cluster are the same.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from odradek.apis.access import ALLOW_ALL
from odradek.apis.controller.parts import ControllerEndpoint, ControllerParts, ReadableLog
from odradek.apis.controller.table import CONTROLLER_MODULES
from odradek.apis.table import Apis
from odradek.coordinator.cluster.changes import TopicDefaults
from odradek.coordinator.controller.batch import PartitionDefaults
from odradek.coordinator.controller.broker_sessions import BrokerSessions
from odradek.coordinator.controller.log import MetadataLog
from odradek.coordinator.controller.machine import Controller
from odradek.coordinator.controller.observers import Observers
from odradek.server.background.schedule import Schedule
from odradek.server.controlling.watching import Watching
from odradek.server.network.admission import is_address, is_host
from odradek.server.network.connections import Connections
from odradek.server.network.routes import Routes
from odradek.server.network.timers import steady_clock_ms
from odradek.server.phase_bind import bind_ports, live_config
from odradek.server.phase_serve import api_settings, connection_limits
from odradek.server.reconfiguration import Reconfiguration

if TYPE_CHECKING:
    from odradek.apis.access import Authorizer
    from odradek.apis.declaration import Served
    from odradek.apis.node import NodeParts
    from odradek.server.network.ports import Ports
    from odradek.server.phase_bind import Node


class ControllersLog(MetadataLog, ReadableLog, Protocol):
    """The metadata log of a controller, for it and for those who follow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controlling:
    """A controller that serves."""

    node: Node
    ports: Ports
    schedule: Schedule
    controller: Controller
    connections: Connections
    watching: Watching


def serve_controller(node: Node, log: ControllersLog, cluster_id: str, ending: AsyncExitStack) -> Controlling:
    """Serves when it returns. `ending` gets what undoes it. Raises ConfigError with one sentence."""
    config = node.config
    ports = bind_ports(node, ending)
    schedule = Schedule(asyncio.get_running_loop())
    ending.callback(schedule.close)
    reconfiguration = Reconfiguration(live_config(config))
    live = reconfiguration.live
    controller = Controller(
        log,
        node_id=node.id,
        cluster_id=cluster_id,
        new_id=lambda: os.urandom(16),
        defaults=TopicDefaults(
            config.values["num.partitions"],
            config.values["default.replication.factor"],
            config.values["min.insync.replicas"],
        ),
        check_topic_configs=live.check_topic,
        check_broker_configs=live.check_broker,
        check_group_configs=live.check_group,
    )
    controller.load()
    settings = api_settings(node, live)
    watching: Watching | None = None

    def the_watching() -> Watching:
        assert watching is not None, "no request before the listeners serve"
        return watching

    parts = ControllerParts(
        node_id=node.id,
        now_ms=node.now_ms,
        timers=schedule.timers,
        changes=schedule.changes,
        searches=schedule.searches,
        reads=schedule.reads,
        is_address=is_address,
        is_host=is_host,
        directory_id=log.directory_id,
        authorizer=_authorizer(node, controller),
        clock_ms=steady_clock_ms(node.now_ms),
        controller=controller,
        log=log,
        sessions=BrokerSessions(config.values["broker.session.timeout.ms"]),
        observers=Observers(),
        defaults=PartitionDefaults(
            node_id=node.id,
            min_insync_replicas=config.values["min.insync.replicas"],
            unclean_leader_election=config.values["unclean.leader.election.enable"],
        ),
        endpoints=_endpoints(ports),
        served=lambda: apis,
        sessions_changed=lambda: the_watching().sessions_changed(),
        heard=lambda broker_id, epoch, connection: the_watching().heard(broker_id, epoch, connection),
    )
    apis: Mapping[int, Served] = Apis(cast("NodeParts", parts), settings, (), CONTROLLER_MODULES)
    connections = Connections(
        Routes(apis),
        schedule.turn,
        node.now_ms,
        connection_limits(config, live),
        lambda: controller.view,
    )
    connections.dispatcher.authorizer = parts.authorizer
    watching = Watching(
        parts,
        preferred_interval_ms=config.values["leader.imbalance.check.interval.seconds"] * 1000
        if config.values["auto.leader.rebalance.enable"]
        else None,
        unclean_interval_ms=config.values["unclean.leader.election.interval.ms"],
    )
    ending.callback(watching.close)
    ending.callback(connections.start_sweeping(schedule.timers))
    watching.start()
    ending.callback(ports.close)
    ports.serve(connections)
    return Controlling(
        node=node,
        ports=ports,
        schedule=schedule,
        controller=controller,
        connections=connections,
        watching=watching,
    )


def _authorizer(node: Node, controller: Controller) -> Authorizer:
    if not node.config.values["authorizer.class.name"]:
        return ALLOW_ALL
    from odradek.server.security.authorizer import new_authorizer

    return new_authorizer(node.config, lambda: controller.view, node.now_ms)


def _endpoints(ports: Ports) -> tuple[ControllerEndpoint, ...]:
    """Addresses for others: advertised, else of the listeners, else the name of this machine."""
    found = []
    for listener in ports.listeners:
        host, port = listener.advertised or (listener.host, listener.port)
        found.append(ControllerEndpoint(listener.name, host or socket.gethostname(), port))
    return tuple(found)
