"""A node alone at its listeners for controllers, as Kafka's `process.roles=broker,controller` has them:
requests there go to the controller that it has anyway, and its log is read there.

Its connections have limits and logins of their own. Other brokers cannot join it: `apis/controller/alone.py`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from odradek.apis.table import LONE_CONTROLLER_MODULES
from odradek.coordinator.controller.broker_sessions import BrokerSessions
from odradek.server.controlling.serving import Brokers, DecidingHere, controller_connections
from odradek.server.node import do_nothing
from odradek.server.node_parts import follow_tls

if TYPE_CHECKING:
    from odradek.apis.access import Authorizer
    from odradek.apis.api import ConnectionInfo
    from odradek.apis.node import ApiSettings
    from odradek.server.network.connections import Connections
    from odradek.server.network.ports import Ports


def serve_beside_broker(
    deciding: DecidingHere,
    ports: Ports,
    authorizer: Authorizer,
    settings: ApiSettings,
    ending: AsyncExitStack,
) -> Connections:
    """Serves when it returns; the caller closes ports and connections. `ports` are bound, `ending` gets what
    undoes the rest. Raises ConfigError with one sentence."""
    node, schedule = deciding.node, deciding.schedule
    brokers = Brokers(BrokerSessions(node.config.values["broker.session.timeout.ms"]), do_nothing, _unheard)
    connections = controller_connections(
        deciding, ports, authorizer, settings, brokers, LONE_CONTROLLER_MODULES, ending
    )
    follow_tls(node.config, ports, deciding.reconfiguration, schedule, ending)
    ending.callback(connections.start_sweeping(schedule.timers, schedule.clock_timers))
    ports.serve(connections)
    return connections


def _unheard(broker_id: int, broker_epoch: int, connection: ConnectionInfo) -> None:
    """No broker sends heartbeats here."""
