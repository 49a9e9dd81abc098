"""ElectLeaders (key 43, versions 0 to 2): elects the preferred replica, or any replica, as leader.

With one node there is nothing to elect: a partition has its leader, or its disk failed and it has no other
replica. For all partitions (null) the response has every topic, with only the partitions that have no leader.

Source: ReplicationControlManager.electLeaders of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.declaration import Api, Forwarding
from odradek.apis.refusals import Refusal, each_partition
from odradek.coordinator.cluster.view import NO_LEADER
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.coordinator.cluster.view import (
        ClusterView,
        PartitionView,
    )

PREFERRED, UNCLEAN = 0, 1


class ElectLeaders:
    """The handler."""

    def __init__(self, current_view: Callable[[], ClusterView]) -> None:
        self._current_view = current_view

    def __call__(self, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
        if request.topic_partitions == []:
            return ElectLeadersResponse(replica_election_results=[])
        if request.election_type not in (PREFERRED, UNCLEAN):
            return _refused(request)
        view = self._current_view()
        if request.topic_partitions is None:
            requested = [
                TopicPartitions(topic=name, partitions=list(range(len(topic.partitions))))
                for name, topic in view.topics.items()
            ]
        else:
            requested = request.topic_partitions
        results = []
        for topic in requested:
            found = [_elected(view, topic.topic, index, request.election_type) for index in topic.partitions]
            if request.topic_partitions is None:
                found = [one for one in found if one.error_code != ErrorCode.ELECTION_NOT_NEEDED]
            results.append(ReplicaElectionResult(topic=topic.topic, partition_result=found))
        return ElectLeadersResponse(replica_election_results=results)


def _elected(view: ClusterView, name: str, index: int, election_type: int) -> PartitionResult:
    partition = view.partition(name, index)
    if partition is None:
        what = f"partition as {name}-{index}" if name in view.topics else f"topic as {name}"
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {what}")
    else:
        error = KafkaError(_judged(partition, election_type))
    return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)


def _judged(partition: PartitionView, election_type: int) -> ErrorCode:
    leader = NO_LEADER if partition.leader in partition.offline else partition.leader
    if leader == partition.replicas[0] or (election_type == UNCLEAN and leader != NO_LEADER):
        return ErrorCode.ELECTION_NOT_NEEDED
    if election_type == PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def _refused(request: ElectLeadersRequest) -> ElectLeadersResponse:
    message = f"Unknown election type {request.election_type}"
    return ElectLeadersResponse(
        error_code=ErrorCode.INVALID_REQUEST,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(
                        partition_id=index, error_code=ErrorCode.INVALID_REQUEST, error_message=message
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


API = Api(
    ElectLeadersRequest,
    ElectLeadersResponse,
    make=lambda parts: ElectLeaders(parts.node.current_view),
    needs=(on_cluster(Operation.ALTER),),
    changes=True,
    forwarded=Forwarding.AS_IT_COMES,
    refusal=Refusal(
        results=(
            "replica_election_results",
            each_partition(
                "topic_partitions",
                "partitions",
                "",
                copied={"topic": "topic"},
                results="partition_result",
                result_index="partition_id",
            ),
        )
    ),
)
