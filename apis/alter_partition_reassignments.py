"""AlterPartitionReassignments (key 45, versions 0 and 1).

There is no other node to move replicas to, so a request succeeds only if it names the present replicas.
`kafka-reassign-partitions` sends such a request before it moves partitions between directories
(AlterReplicaLogDirs). The request's time-out has no effect: every response is ready at once.

For a node alone; a node of a cluster forwards the request to the controllers.

Source: alterPartitionReassignments of ReplicationControlManager, Kafka 4.3; KIP-455, and KIP-860 for the
replication factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.declaration import Api, Forwarding
from odradek.apis.refusals import Refusal, each_partition
from odradek.coordinator.cluster.topics import check_manual_replicas
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.coordinator.cluster.view import ClusterView


class AlterPartitionReassignments:
    """The handler."""

    def __init__(self, current_view: Callable[[], ClusterView]) -> None:
        self._current_view = current_view

    def __call__(
        self, request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        if not request.topics:
            # Kafka's response before it checks anything: an empty message.
            return _response([], message="")
        view = self._current_view()
        may_change_factor = request.allow_replication_factor_change
        responses = [
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _partition_response(view, topic.name, one, may_change_factor) for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return _response(responses, may_change_factor=may_change_factor)


def _response(
    responses: list[ReassignableTopicResponse], *, may_change_factor: bool = True, message: str | None = None
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=may_change_factor,
        error_code=ErrorCode.NONE,
        error_message=message,
        responses=responses,
    )


def _partition_response(
    view: ClusterView, name: str, wanted: ReassignablePartition, may_change_factor: bool
) -> ReassignablePartitionResponse:
    code, message = ErrorCode.NONE, None
    try:
        _check(view, name, wanted, may_change_factor)
    except KafkaError as error:
        code = error.code
        # Kafka sends no message with this code.
        message = None if code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS else error.message
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=code, error_message=message
    )


def _check(view: ClusterView, name: str, wanted: ReassignablePartition, may_change_factor: bool) -> None:
    """Refuses all replicas but the present ones."""
    if view.topic(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")
    partition = view.partition(name, wanted.partition_index)
    if partition is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic {name!r} has no partition {wanted.partition_index}.",
        )
    if wanted.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = check_manual_replicas(wanted.replicas, view.brokers, None)
    if not may_change_factor and len(replicas) != len(partition.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The partition has {len(partition.replicas)} replica(s); {len(replicas)} would change that.",
        )
    if replicas != partition.replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Replicas of {name}:{wanted.partition_index} are on {list(partition.replicas)}; moving them to "
            "other brokers is not built yet.",
        )


API = Api(
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    make=lambda parts: AlterPartitionReassignments(parts.node.current_view),
    needs=(on_cluster(Operation.ALTER),),
    changes=True,
    forwarded=Forwarding.AS_IT_COMES,
    refusal=Refusal(
        results=(
            "responses",
            each_partition("topics", "partitions", "partition_index", copied={"name": "name"}),
        )
    ),
)
