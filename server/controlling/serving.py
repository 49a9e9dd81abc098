"""A controller loads the metadata log and serves its APIs.

It has no partitions of clients, so it has not the phases of a broker. Connections, their limits and logins,
and the handlers of requests that change the cluster are the same.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.apis.controller.endpoint import ControllerEndpoint
from odradek.apis.controller.parts import ControllerParts, ReadableLog
from odradek.apis.table import CONTROLLER_MODULES, Apis
from odradek.coordinator.controller.broker_sessions import BrokerSessions
from odradek.coordinator.controller.log import MetadataLog
from odradek.coordinator.controller.machine import Controller
from odradek.coordinator.controller.observers import Observers
from odradek.server.background.schedule import Schedule
from odradek.server.controlling.mutation_quotas import MutationQuotas
from odradek.server.controlling.watching import Watching
from odradek.server.metadata.metadata_log_start import loaded_controller, partition_defaults
from odradek.server.network.admission import is_address, is_host
from odradek.server.network.connections import Connections
from odradek.server.network.timers import steady_clock_ms
from odradek.server.node_parts import (
    add_first_users,
    api_settings,
    authorizer_of,
    follow_tls,
    new_connections,
    sweep_tokens,
    tell_what_is_open,
)
from odradek.server.reconfiguration import Reconfiguration, live_config

if TYPE_CHECKING:
    from odradek.apis.access import Authorizer
    from odradek.apis.api import ConnectionInfo
    from odradek.apis.declaration import Served
    from odradek.apis.node import ApiSettings
    from odradek.server.network.ports import Ports
    from odradek.server.node import Node


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


def serve_controller(
    node: Node, ports: Ports, log: ControllersLog, cluster_id: str, ending: AsyncExitStack
) -> Controlling:
    """Serves when it returns. `ports` are bound, `log` has a metadata.version. `ending` gets what undoes it.
    Raises ConfigError with one sentence."""
    schedule = Schedule(asyncio.get_running_loop(), node.clock)
    ending.callback(schedule.close)
    reconfiguration = Reconfiguration(live_config(node.config))
    controller = loaded_controller(Controller, node.config, log, cluster_id, reconfiguration.live)
    sessions = BrokerSessions(node.config.values["broker.session.timeout.ms"])
    watching = Watching(
        controller,
        sessions,
        partition_defaults(node.config),
        schedule.changes,
        schedule.timers,
        steady_clock_ms(node.clock),
        preferred_interval_ms=_preferred_interval_ms(node),
        unclean_interval_ms=node.config.values["unclean.leader.election.interval.ms"],
    )
    deciding = DecidingHere(
        node=node, schedule=schedule, reconfiguration=reconfiguration, controller=controller, log=log
    )
    brokers = Brokers(sessions, watching.sessions_changed, watching.heard)
    authorizer = authorizer_of(node, lambda: controller.view)
    settings = api_settings(node, reconfiguration.live)
    connections = controller_connections(
        deciding, ports, authorizer, settings, brokers, CONTROLLER_MODULES, ending
    )
    reconfiguration.follow(controller.view)
    controller.publisher.subscribe(reconfiguration.view_changed)
    sweep_tokens(node, controller, schedule, ending)
    follow_tls(node.config, ports, reconfiguration, schedule, ending)
    ending.callback(watching.close)
    ending.callback(connections.start_sweeping(schedule.timers, schedule.clock_timers))
    watching.start()
    ending.callback(ports.close)
    ports.serve(connections)
    tell_what_is_open(node.config, ports.listeners)
    add_first_users(node.config, controller)
    return Controlling(
        node=node,
        ports=ports,
        schedule=schedule,
        controller=controller,
        connections=connections,
        watching=watching,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidingHere:
    """A node and the controller in it."""

    node: Node
    schedule: Schedule
    reconfiguration: Reconfiguration
    controller: Controller
    log: ControllersLog


class Brokers(NamedTuple):
    """The brokers of a controller, as its handlers know them: see `ControllerParts`."""

    sessions: BrokerSessions
    sessions_changed: Callable[[], None]
    heard: Callable[[int, int, ConnectionInfo], None]


def controller_connections(
    deciding: DecidingHere,
    ports: Ports,
    authorizer: Authorizer,
    settings: ApiSettings,
    brokers: Brokers,
    modules: Mapping[int, str],
    ending: AsyncExitStack,
) -> Connections:
    """Connections of those who ask a controller, with the APIs in `modules`; nothing is served before
    `ports.serve`."""
    node, schedule, controller = deciding.node, deciding.schedule, deciding.controller
    mutation = MutationQuotas(node, schedule.clock_timers)
    ending.callback(mutation.stop)
    mutation.follow(controller.view.client_quotas)
    controller.publisher.subscribe(mutation.view_changed)
    parts = ControllerParts(
        node_id=node.id,
        now_ms=node.now_ms,
        timers=schedule.timers,
        changes=schedule.changes,
        searches=schedule.searches,
        reads=schedule.reads,
        is_address=is_address,
        is_host=is_host,
        quotas=mutation.quotas,
        metadata_log=deciding.log,
        authorizer=authorizer,
        clock_ms=steady_clock_ms(node.clock),
        plane=controller,
        log=deciding.log,
        sessions=brokers.sessions,
        observers=Observers(),
        defaults=partition_defaults(node.config),
        endpoints=endpoints_of(ports),
        served=lambda: apis,
        sessions_changed=brokers.sessions_changed,
        heard=brokers.heard,
    )
    apis: Mapping[int, Served] = Apis(parts, settings, (), modules)
    return new_connections(
        node,
        ports,
        apis,
        settings,
        authorizer,
        deciding.reconfiguration,
        lambda: controller.view,
        schedule,
        ending,
    )


def _preferred_interval_ms(node: Node) -> int | None:
    """None: leaders are not moved back."""
    values = node.config.values
    if not values["auto.leader.rebalance.enable"]:
        return None
    return values["leader.imbalance.check.interval.seconds"] * 1000


def endpoints_of(ports: Ports) -> tuple[ControllerEndpoint, ...]:
    """Addresses for others: advertised, else of the listeners, else the name of this machine."""
    found = []
    for listener in ports.listeners:
        host, port = listener.advertised or (listener.host, listener.port)
        found.append(ControllerEndpoint(listener.name, host or socket.gethostname(), port))
    return tuple(found)
