"""Requests of brokers at the listener for controllers of a node alone: BrokerRegistration (key 62, versions 0
to 4), BrokerHeartbeat (63, 0 to 2), AlterPartition (56, 2 and 3), AllocateProducerIds (67, 0) and
AssignReplicasToDirs (73, 0) are refused. UnregisterBroker (64, 0) is that of the node (`apis/quorum.py`).

A node alone replicates nothing, so no broker joins it, and its own one asks it inside the process. Kafka's
combined node takes other brokers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from odradek.apis.access import on_cluster
from odradek.apis.controller.parts import ControllerApi
from odradek.apis.quorum import UnregisterBroker
from odradek.coordinator.controller.alone import LoneController
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from odradek.apis.api import Handler, RequestContext
    from odradek.apis.controller.parts import ControllerApiParts
    from odradek.wire.schema import Message

logger = logging.getLogger("odradek.controller")


class _RefusedRegistrations:
    """The handler of BrokerRegistration. Each broker is told of once: it tries again and again."""

    def __init__(self) -> None:
        self._told = -1

    def __call__(
        self, request: BrokerRegistrationRequest, context: RequestContext
    ) -> BrokerRegistrationResponse:
        if request.broker_id != self._told:
            self._told = request.broker_id
            logger.error(
                "broker %d at %s is refused: this is a node alone, which takes no other brokers: a cluster "
                "has a controller of its own (docs/cluster.md)",
                request.broker_id,
                context.connection.peer_host,
            )
        return BrokerRegistrationResponse(error_code=ErrorCode.INVALID_REGISTRATION)


def _refused(request: type[Message], response: type[Message]) -> ControllerApi:
    """An API of registered brokers: there are no others."""

    def make(parts: ControllerApiParts) -> Handler:
        def handle(request: Any, context: RequestContext) -> Any:
            return api.refuse(request, context.api_version, ErrorCode.STALE_BROKER_EPOCH)

        return handle

    api: ControllerApi = ControllerApi(request, response, make=make, needs=OF_BROKERS)
    return api


def _make_unregister(parts: ControllerApiParts) -> UnregisterBroker:
    assert isinstance(parts.node.plane, LoneController)
    return UnregisterBroker(parts.node.plane, parts.node.changes)


OF_BROKERS = (on_cluster(Operation.CLUSTER_ACTION),)
APIS = (
    ControllerApi(
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
        make=lambda parts: _RefusedRegistrations(),
        needs=OF_BROKERS,
    ),
    _refused(BrokerHeartbeatRequest, BrokerHeartbeatResponse),
    _refused(AlterPartitionRequest, AlterPartitionResponse),
    _refused(AllocateProducerIdsRequest, AllocateProducerIdsResponse),
    _refused(AssignReplicasToDirsRequest, AssignReplicasToDirsResponse),
    ControllerApi(
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
        make=_make_unregister,
        needs=(on_cluster(Operation.ALTER),),
        changes=True,
    ),
)
