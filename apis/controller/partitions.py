"""AlterPartition (key 56, versions 2 and 3), AssignReplicasToDirs (73, 0), ElectLeaders (43, 0 to 2),
AlterPartitionReassignments (45, 0 and 1) and ListPartitionReassignments (46, 0): leaders and replicas.

Source: ControllerApis of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.apis.access import on_cluster
from odradek.apis.controller.deciding import Deciding
from odradek.apis.controller.parts import ControllerApi
from odradek.coordinator.controller.directories import assign_replicas
from odradek.coordinator.controller.elections import elect_leaders
from odradek.coordinator.controller.in_sync import alter_partition
from odradek.coordinator.controller.reassignment import alter_reassignments, list_reassignments
from odradek.wire.acl_types import Operation
from odradek.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import Handler, RequestContext
    from odradek.apis.controller.parts import ControllerApiParts
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.controller.batch import Decision, PartitionDefaults


def _deciding(
    api: Callable[[], ControllerApi], decide: Callable[[ClusterView, PartitionDefaults, Any], Decision[Any]]
) -> Callable[[ControllerApiParts], Deciding]:
    """Makes the handler of an API whose decision needs no more than the view."""

    def make(parts: ControllerApiParts) -> Deciding:
        controller = parts.node
        return Deciding(
            controller,
            api().refuse,
            lambda view, request, context: decide(view, controller.defaults, request),
        )

    return make


def _make_list(parts: ControllerApiParts) -> Handler:
    current_view = parts.node.current_view

    def handle(
        request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        return list_reassignments(current_view(), request)

    return handle


ALTER_PARTITION: ControllerApi = ControllerApi(
    AlterPartitionRequest,
    AlterPartitionResponse,
    make=_deciding(lambda: ALTER_PARTITION, alter_partition),
    needs=(on_cluster(Operation.CLUSTER_ACTION),),
)
ASSIGN_REPLICAS: ControllerApi = ControllerApi(
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    make=_deciding(lambda: ASSIGN_REPLICAS, assign_replicas),
    needs=(on_cluster(Operation.CLUSTER_ACTION),),
)
ELECT_LEADERS: ControllerApi = ControllerApi(
    ElectLeadersRequest,
    ElectLeadersResponse,
    make=_deciding(lambda: ELECT_LEADERS, elect_leaders),
    needs=(on_cluster(Operation.ALTER),),
    changes=True,
)
ALTER_REASSIGNMENTS: ControllerApi = ControllerApi(
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    make=_deciding(lambda: ALTER_REASSIGNMENTS, alter_reassignments),
    needs=(on_cluster(Operation.ALTER),),
    changes=True,
)
LIST_REASSIGNMENTS = ControllerApi(
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    make=_make_list,
    needs=(on_cluster(Operation.DESCRIBE),),
)
APIS = (ALTER_PARTITION, ASSIGN_REPLICAS, ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS)
