"""DescribeQuorum (key 55, versions 0 to 2), AddRaftVoter (80, 0 and 1), RemoveRaftVoter (81, 0),
UnregisterController (94, 0) and UnregisterBroker (64, 0): the nodes that keep the cluster's metadata, and the
brokers of the cluster.

The cluster is one node, the only voter of the metadata log: it cannot be removed, and no other can be added.
Without a listener for controllers the endpoint of the voter is the address of this node for the client.

Source: KafkaRaftClient, AddVoterHandler, RemoveVoterHandler, ReplicationControlManager.unregisterBroker and
ClusterControlManager.unregisterController of Kafka 4.4; KIP-595, KIP-853.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from odradek.apis.access import on_cluster
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Api, Forwarding, SharedApi
from odradek.coordinator.cluster.features import METADATA_VERSION, UNREGISTERS_CONTROLLERS_SINCE
from odradek.coordinator.cluster.topics import CLUSTER_METADATA_TOPIC
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionQuorumData,
    ReplicaState,
    TopicQuorumData,
)
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from odradek.wire.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from odradek.wire.schema import ZERO_UUID, uuid_to_text

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo, RequestContext
    from odradek.apis.controller.endpoint import ControllerEndpoint
    from odradek.apis.node import ApiParts, MetadataLogState, SharedApiParts
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.controller.alone import LoneController
    from odradek.wire.work import Work

FIRST_VERSION_WITH_NODES = 2


class DescribeQuorum:
    """The handler."""

    def __init__(
        self, node_id: int, log: MetadataLogState, endpoints: Sequence[ControllerEndpoint] = ()
    ) -> None:
        """`endpoints` are those of the node as a controller, if it has some."""
        self._node_id = node_id
        self._log = log
        self._listeners = listeners_of(endpoints)

    def __call__(self, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
        if (refusal := refusal_of_others(request)) is not None:
            return refusal
        response = described(self._described(context))
        if context.api_version >= FIRST_VERSION_WITH_NODES:
            listeners = self._listeners or [_listener_of(context.connection)]
            response.nodes = [Node(node_id=self._node_id, listeners=listeners)]
        return response

    def _described(self, context: RequestContext) -> PartitionQuorumData:
        log = self._log
        voter = ReplicaState(
            replica_id=self._node_id,
            log_end_offset=log.end_offset,
            last_fetch_timestamp=context.now_ms,
            last_caught_up_timestamp=context.now_ms,
        )
        if context.api_version >= FIRST_VERSION_WITH_NODES:
            voter.replica_directory_id = log.directory_id
        return PartitionQuorumData(
            partition_index=0,
            error_code=0,
            error_message="",
            leader_id=self._node_id,
            leader_epoch=log.leader_epoch,
            high_watermark=log.end_offset,
            current_voters=[voter],
            observers=[],
        )


def listeners_of(endpoints: Iterable[ControllerEndpoint]) -> list[Listener]:
    """The endpoints of a voter, as they are described."""
    return [Listener(name=one.listener, host=one.host, port=one.port) for one in endpoints]


def _listener_of(connection: ConnectionInfo) -> Listener:
    """The listener of a client."""
    return Listener(
        name=connection.listener_name, host=connection.advertised_host, port=connection.advertised_port
    )


def refusal_of_others(request: DescribeQuorumRequest) -> DescribeQuorumResponse | None:
    """The response to a request for anything but the one partition of the metadata log, as in Kafka."""
    requested = [
        (topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in request.topics
    ]
    if requested == [(CLUSTER_METADATA_TOPIC, [0])]:
        return None
    topics = [
        TopicQuorumData(topic_name=name, partitions=[_unknown(index) for index in indexes])
        for name, indexes in requested
    ]
    return DescribeQuorumResponse(error_code=0, error_message="", topics=topics)


def described(partition: PartitionQuorumData) -> DescribeQuorumResponse:
    """The response for that partition."""
    topic = TopicQuorumData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumResponse(error_code=0, error_message="", topics=[topic])


def _unknown(index: int) -> PartitionQuorumData:
    error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return PartitionQuorumData(
        partition_index=index,
        error_code=error.code,
        error_message=error.message,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


class _ChangingVoters:
    """The common part of both handlers."""

    def __init__(self, node_id: int, directory_id: bytes, current_view: Callable[[], ClusterView]) -> None:
        self._node_id = node_id
        self._voters = f"[{_key(node_id, directory_id)}]"
        self._current_view = current_view

    def _check(self, cluster_id: str | None, voter_id: int, directory_id: bytes) -> None:
        ours = self._current_view().cluster_id
        if cluster_id is not None and cluster_id != ours:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID, f"This is the cluster {ours!r}, not {cluster_id!r}."
            )
        if voter_id < 0 or directory_id == ZERO_UUID:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "A voter has an id from 0 on, and the id of its directory."
            )


class AddRaftVoter(_ChangingVoters):
    """The handler."""

    def __init__(
        self,
        node_id: int,
        directory_id: bytes,
        current_view: Callable[[], ClusterView],
        controller_listener: str,
    ) -> None:
        """`controller_listener` is the listener that a voter must have: as in Kafka, the first one of
        `controller.listener.names`.
        """
        super().__init__(node_id, directory_id, current_view)
        self._controller_listener = controller_listener

    def __call__(self, request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
        try:
            self._add(request)
        except KafkaError as error:
            return AddRaftVoterResponse(error_code=error.code, error_message=error.message)

    def _add(self, request: AddRaftVoterRequest) -> NoReturn:
        self._check(request.cluster_id, request.voter_id, request.voter_directory_id)
        if self._controller_listener not in {listener.name for listener in request.listeners}:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"A voter has an endpoint for {self._controller_listener}."
            )
        if request.voter_id == self._node_id:
            raise KafkaError(
                ErrorCode.DUPLICATE_VOTER, f"{request.voter_id} is one of the voters {self._voters} already."
            )
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Odradek is one node: there are no voters but itself, and none are added.",
        )


class RemoveRaftVoter(_ChangingVoters):
    """The handler."""

    def __call__(self, request: RemoveRaftVoterRequest, context: RequestContext) -> RemoveRaftVoterResponse:
        try:
            self._remove(request)
        except KafkaError as error:
            return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)

    def _remove(self, request: RemoveRaftVoterRequest) -> NoReturn:
        self._check(request.cluster_id, request.voter_id, request.voter_directory_id)
        voter = _key(request.voter_id, request.voter_directory_id)
        # The last voter cannot be removed either; Kafka sends the same text.
        raise KafkaError(
            ErrorCode.VOTER_NOT_FOUND, f"Cannot remove voter {voter} from the set of voters {self._voters}"
        )


def _key(voter_id: int, directory_id: bytes) -> str:
    return f"ReplicaKey(id={voter_id}, directoryId={uuid_to_text(directory_id)})"


class UnregisterBroker:
    """The handler."""

    def __init__(self, controller: LoneController, changes: WorkQueue) -> None:
        self._controller = controller
        self._changes = changes

    def __call__(self, request: UnregisterBrokerRequest, context: RequestContext) -> WorkResponse:
        """The running broker stays registered: Kafka's would serve nothing then until it is restarted."""
        return WorkResponse(self._changes, self._unregistering(request), context)

    def _unregistering(self, request: UnregisterBrokerRequest) -> Work[UnregisterBrokerResponse]:
        try:
            return (yield from self._controller.unregistering(request))
        except KafkaError as error:
            return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)


class UnregisterController:
    """The handler."""

    def __init__(self, node_id: int, current_view: Callable[[], ClusterView]) -> None:
        self._node_id = node_id
        self._current_view = current_view

    def __call__(
        self, request: UnregisterControllerRequest, context: RequestContext
    ) -> UnregisterControllerResponse:
        """The one controller is this node, which is the active one."""
        error = self._refusal(request.controller_id)
        return UnregisterControllerResponse(error_code=error.code, error_message=error.message)

    def _refusal(self, controller_id: int) -> KafkaError:
        if controller_id == self._node_id:
            return KafkaError(
                ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."
            )
        if self._current_view().features.get(METADATA_VERSION, 0) < UNREGISTERS_CONTROLLERS_SINCE:
            return KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "The current MetadataVersion is too old to support controller unregistration.",
            )
        return KafkaError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            f"Controller ID {controller_id} is not currently registered.",
        )


def _log_of(parts: SharedApiParts) -> MetadataLogState:
    log = parts.node.metadata_log
    assert log is not None, "the controllers describe the metadata log of a cluster"
    return log


def _make_describe(parts: ApiParts) -> DescribeQuorum:
    return DescribeQuorum(parts.node.node_id, _log_of(parts), parts.node.controller_endpoints)


def _make_add(parts: SharedApiParts) -> AddRaftVoter:
    node, listener = parts.node, parts.settings.controller_listener
    return AddRaftVoter(node.node_id, _log_of(parts).directory_id, node.current_view, listener)


def _make_remove(parts: SharedApiParts) -> RemoveRaftVoter:
    return RemoveRaftVoter(parts.node.node_id, _log_of(parts).directory_id, parts.node.current_view)


def _make_unregister(parts: ApiParts) -> UnregisterBroker:
    from odradek.coordinator.controller.alone import LoneController

    controller = parts.node.machine
    assert isinstance(controller, LoneController)
    return UnregisterBroker(controller, parts.node.changes)


APIS = (
    Api(
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        make=_make_describe,
        needs=(on_cluster(Operation.DESCRIBE),),
        forwarded=Forwarding.AS_IT_COMES,
    ),
    Api(
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
        make=_make_unregister,
        needs=(on_cluster(Operation.ALTER),),
        forwarded=Forwarding.AS_IT_COMES,
    ),
    SharedApi(
        UnregisterControllerRequest,
        UnregisterControllerResponse,
        make=lambda parts: UnregisterController(parts.node.node_id, parts.node.current_view),
        needs=(on_cluster(Operation.ALTER),),
        forwarded=Forwarding.AS_IT_COMES,
    ),
    SharedApi(
        AddRaftVoterRequest,
        AddRaftVoterResponse,
        make=_make_add,
        needs=(on_cluster(Operation.ALTER),),
        forwarded=Forwarding.AS_IT_COMES,
    ),
    SharedApi(
        RemoveRaftVoterRequest,
        RemoveRaftVoterResponse,
        make=_make_remove,
        needs=(on_cluster(Operation.ALTER),),
        forwarded=Forwarding.AS_IT_COMES,
    ),
)
