"""BrokerRegistration (key 62, versions 0 to 4), BrokerHeartbeat (63, 0 to 2) and UnregisterBroker (64, 0):
the brokers of a cluster.

Source: ControllerApis of Kafka 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.controller.deciding import Deciding
from odradek.apis.controller.parts import ControllerApi, ControllerParts
from odradek.coordinator.controller.batch import Decision
from odradek.coordinator.controller.brokers import (
    HeartbeatDecision,
    heartbeat,
    register_broker,
    unregister_broker,
)
from odradek.wire.acl_types import Operation
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.controller.parts import ControllerApiParts
    from odradek.coordinator.cluster.view import ClusterView


class _Brokers:
    """Decisions that sessions are part of."""

    def __init__(self, parts: ControllerParts) -> None:
        self._parts = parts

    def register(
        self, view: ClusterView, request: BrokerRegistrationRequest, context: RequestContext
    ) -> Decision[BrokerRegistrationResponse]:
        parts = self._parts
        return register_broker(
            view, parts.defaults, parts.sessions, request, parts.log.end_offset, parts.clock_ms()
        )

    def registered(
        self,
        decision: Decision[BrokerRegistrationResponse],
        request: BrokerRegistrationRequest,
        context: RequestContext,
    ) -> None:
        """The broker has a session from now on."""
        parts = self._parts
        epoch = decision.response.broker_epoch
        for broker in parts.plane.view.registrations.values():
            if broker.epoch == epoch:
                parts.sessions.contact(broker, parts.clock_ms())
        parts.sessions_changed()

    def beat(
        self, view: ClusterView, request: BrokerHeartbeatRequest, context: RequestContext
    ) -> HeartbeatDecision:
        parts = self._parts
        return heartbeat(view, parts.defaults, parts.sessions, request, parts.clock_ms())

    def beaten(
        self, decision: HeartbeatDecision, request: BrokerHeartbeatRequest, context: RequestContext
    ) -> None:
        """A broker in controlled shutdown may end once others have the records that began it."""
        parts = self._parts
        if decision.shutting_down is not None:
            parts.sessions.begin_shutdown(decision.shutting_down, parts.log.end_offset - 1)
        parts.heard(request.broker_id, request.broker_epoch, context.connection)
        parts.sessions_changed()


def _make_registration(parts: ControllerApiParts) -> Deciding:
    controller = parts.node
    brokers = _Brokers(controller)
    return Deciding(controller, REGISTRATION.refuse, brokers.register, brokers.registered)


def _make_heartbeat(parts: ControllerApiParts) -> Deciding:
    controller = parts.node
    brokers = _Brokers(controller)
    return Deciding(controller, HEARTBEAT.refuse, brokers.beat, brokers.beaten)


def _make_unregister(parts: ControllerApiParts) -> Deciding:
    controller = parts.node

    def decide(
        view: ClusterView, request: UnregisterBrokerRequest, context: RequestContext
    ) -> Decision[UnregisterBrokerResponse]:
        return unregister_broker(view, controller.defaults, request)

    return Deciding(controller, UNREGISTER.refuse, decide)


REGISTRATION = ControllerApi(
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    make=_make_registration,
    needs=(on_cluster(Operation.CLUSTER_ACTION),),
)
HEARTBEAT = ControllerApi(
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    make=_make_heartbeat,
    needs=(on_cluster(Operation.CLUSTER_ACTION),),
)
UNREGISTER = ControllerApi(
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    make=_make_unregister,
    needs=(on_cluster(Operation.ALTER),),
    changes=True,
)
APIS = (REGISTRATION, HEARTBEAT, UNREGISTER)
