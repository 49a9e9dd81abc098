"""DescribeQuorum (key 55, versions 0 to 2) and DescribeCluster (60, 0 to 2) of a controller, which is the
only voter.

AddRaftVoter and RemoveRaftVoter refuse as those of a node alone (`apis/quorum.py`), and UpdateRaftVoter is
not served: the voters do not change.

Source: KafkaRaftClient.handleDescribeQuorumRequest and ControllerApis.handleDescribeCluster of Kafka 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis import operations
from odradek.apis.access import on_cluster
from odradek.apis.controller.parts import ControllerApi, ControllerParts
from odradek.apis.metadata import BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS
from odradek.apis.quorum import FIRST_VERSION_WITH_NODES, described, listeners_of, refusal_of_others
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Node,
    PartitionQuorumData,
    ReplicaState,
)
from odradek.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext


class DescribeQuorum:
    """The handler."""

    def __init__(self, parts: ControllerParts) -> None:
        self._parts = parts

    def __call__(self, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
        if (refusal := refusal_of_others(request)) is not None:
            return refusal
        has_nodes = context.api_version >= FIRST_VERSION_WITH_NODES
        partition = self._described(context.now_ms)
        if not has_nodes:
            for replica in (*partition.current_voters, *partition.observers):
                replica.replica_directory_id = ZERO_UUID
        response = described(partition)
        if has_nodes:
            listeners = listeners_of(self._parts.endpoints)
            response.nodes = [Node(node_id=self._parts.node_id, listeners=listeners)]
        return response

    def _described(self, now_ms: int) -> PartitionQuorumData:
        parts, log = self._parts, self._parts.log
        voter = ReplicaState(
            replica_id=parts.node_id,
            replica_directory_id=log.directory_id,
            log_end_offset=log.end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        observers = [
            ReplicaState(
                replica_id=one.node_id,
                replica_directory_id=one.directory_id,
                log_end_offset=one.end_offset,
                last_fetch_timestamp=one.fetched_ms,
                last_caught_up_timestamp=one.caught_up_ms,
            )
            for one in parts.observers.all(now_ms)
        ]
        return PartitionQuorumData(
            partition_index=0,
            error_code=0,
            error_message="",
            leader_id=parts.node_id,
            leader_epoch=log.leader_epoch,
            high_watermark=log.end_offset,
            current_voters=[voter],
            observers=observers,
        )


class DescribeCluster:
    """The handler: how a node finds the controllers, and the id of their cluster."""

    def __init__(self, parts: ControllerParts) -> None:
        self._parts = parts

    def __call__(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        if request.endpoint_type != CONTROLLER_ENDPOINTS:
            return _refused(request.endpoint_type, context.api_version)
        endpoint = self._parts.endpoint_for(context.connection)
        node_id = self._parts.node_id
        return DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            endpoint_type=CONTROLLER_ENDPOINTS,
            cluster_id=self._parts.current_view().cluster_id,
            controller_id=node_id,
            brokers=[DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)],
            cluster_authorized_operations=operations.on_cluster(context)
            if request.include_cluster_authorized_operations
            else operations.NOT_ASKED,
        )


def _refused(endpoint_type: int, version: int) -> DescribeClusterResponse:
    """The response of Kafka's controller to another type of endpoints. Version 0 is for brokers."""
    code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    if endpoint_type == BROKER_ENDPOINTS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if version else ErrorCode.INVALID_REQUEST
        message = (
            "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
        )
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])


APIS = (
    ControllerApi(
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        make=lambda parts: DescribeQuorum(parts.node),
        needs=(on_cluster(Operation.DESCRIBE),),
    ),
    ControllerApi(
        DescribeClusterRequest,
        DescribeClusterResponse,
        make=lambda parts: DescribeCluster(parts.node),
        needs=(),
    ),
)
