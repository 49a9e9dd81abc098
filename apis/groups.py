"""Classic consumer groups: FindCoordinator (key 10, versions 0 to 6), JoinGroup (11, 0-9), Heartbeat (12,
0-4), LeaveGroup (13, 0-5), SyncGroup (14, 0-5), DescribeGroups (15, 0-6), ListGroups (16, 0-5),
DeleteGroups (42, 0-2).

A request becomes a command for the group's coordinator and the coordinator's answer becomes the response;
what a group may do is decided there. A member's connection may close at any time: that alone changes
nothing.

FindCoordinator finds coordinators of transactions, too. Not done yet: those of share groups, which it answers
with INVALID_REQUEST, at which clients stop at once. Consumer groups of KIP-848 have APIs of their own
(`consumer_groups.py`); ListGroups and DeleteGroups are for groups of all types.

Source: KafkaApis and GroupCoordinatorService of Kafka 4.3, and its response classes for what old versions
see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from odradek.apis import operations
from odradek.apis.addresses import address_of
from odradek.apis.api import Waiting, WorkAnswer
from odradek.apis.questions import (
    MANY_KNOWN_MAX,
    Known,
    Questions,
    RememberedAnswer,
    always,
    read_question,
)
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.coordinator.groups import commands
from odradek.wire.errors import ErrorCode, error_message
from odradek.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo, RequestContext
    from odradek.apis.topic_creation import TopicCreation
    from odradek.apis.transactions import Transactions
    from odradek.apis.turn import WorkQueue
    from odradek.wire.end_marker import EndMarker
    from odradek.wire.work import Work

GROUP_KEY = 0
TRANSACTION_KEY = 1
FIRST_VERSION_WITH_KEY_BATCH = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_OF_SYNC_WITH_PROTOCOL = 5
FIRST_VERSION_WITH_LEAVING_MEMBERS = 3
FIRST_VERSION_WITH_GROUP_NOT_FOUND = 6
FIRST_VERSION_WITH_OPERATIONS = 3
MAX_COORDINATOR_KEYS = 100_000
"""Of one request; more is INVALID_REQUEST for each."""
_TOPIC_OF = {GROUP_KEY: OFFSETS_TOPIC, TRANSACTION_KEY: TRANSACTIONS_TOPIC}
"""Whose partitions' leaders are the coordinators, by type of key."""
_NOWHERE = (-1, "", -1)
"""Node id, host and port of a coordinator that is not known."""


class Groups(Protocol):
    """What the handlers need of `coordinator.group_coordinator.GroupCoordinator`."""

    @property
    def serves_consumer_groups(self) -> bool: ...

    @property
    def serves_streams_groups(self) -> bool: ...

    def partition_of(self, group_id: str) -> int: ...

    def submit(self, group_id: str, command: commands.Command) -> None: ...

    def ask(self, command: Any) -> Any: ...

    def commit_in_transaction(
        self, command: commands.CommitTransactionalOffsets, verified: Any = None
    ) -> None: ...

    def end_offsets(self, index: int, marker: EndMarker, then: Callable[[ErrorCode], None]) -> None: ...

    def list_groups(self, states, types) -> commands.ListGroupsReply: ...


class Gathering:
    """Several answers of coordinators that become one response, in the order in which they were asked for."""

    __slots__ = ("_answers", "_make_response", "_missing", "waiting")

    def __init__(self, count: int, make_response: Callable[[list], Any]) -> None:
        self.waiting = Waiting()
        self._answers: list = [None] * count
        self._missing = count
        self._make_response = make_response
        if count == 0:
            self.waiting.complete(make_response([]))

    def ticket(self, index: int) -> Callable[[Any], None]:
        """What to call with the answer to question `index`."""

        def take(answer: Any) -> None:
            self._answers[index] = answer
            self._missing -= 1
            if self._missing == 0:
                self.waiting.complete(self._make_response(self._answers))

        return take


class FindCoordinator:
    """The handler. The first question for a group's coordinator creates `__consumer_offsets`, that for a
    transactional id's `__transaction_state`.
    """

    def __init__(
        self,
        node_id: int,
        topics: TopicCreation,
        work: WorkQueue,
        groups: Groups,
        transactions: Transactions,
    ) -> None:
        self._node_id = node_id
        self._topics = topics
        self._work = work
        self._groups = groups
        self._transactions = transactions

    def __call__(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> FindCoordinatorResponse | WorkAnswer:
        topic = _TOPIC_OF.get(request.key_type)
        if topic is not None and self._topics.lacks([topic]):
            return WorkAnswer(self._work, self._creating(topic, request, context), context)
        return self._response(request, context)

    def _creating(
        self, topic: str, request: FindCoordinatorRequest, context: RequestContext
    ) -> Work[FindCoordinatorResponse]:
        # If it cannot be created, it is not there, and so is no coordinator.
        yield from self._topics.creating_missing([topic])
        return self._response(request, context)

    def _response(self, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        connection = context.connection
        if context.api_version < FIRST_VERSION_WITH_KEY_BATCH:
            code, (node_id, host, port) = self._find(request.key_type, request.key, connection)
            # Kafka writes the text "NONE" where there is no error.
            message = "NONE" if code is ErrorCode.NONE else error_message(code)
            return FindCoordinatorResponse(
                error_code=code, error_message=message, node_id=node_id, host=host, port=port
            )
        is_too_much = len(request.coordinator_keys) > MAX_COORDINATOR_KEYS
        coordinators = []
        for key in request.coordinator_keys:
            code, (node_id, host, port) = (
                (ErrorCode.INVALID_REQUEST, _NOWHERE)
                if is_too_much
                else self._find(request.key_type, key, connection)
            )
            coordinators.append(Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code))
        return FindCoordinatorResponse(coordinators=coordinators)

    def _find(
        self, key_type: int, key: str, connection: ConnectionInfo
    ) -> tuple[ErrorCode, tuple[int, str, int]]:
        topic = _TOPIC_OF.get(key_type)
        if topic is None:
            return ErrorCode.INVALID_REQUEST, _NOWHERE
        coordinators = self._groups if key_type == GROUP_KEY else self._transactions
        view = self._topics.view
        leader = view.brokers.get(view.leader_of(topic, coordinators.partition_of(key)))
        address = None if leader is None else address_of(leader, connection, self._node_id)
        if leader is None or address is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOWHERE
        return ErrorCode.NONE, (leader.node_id, *address)


class JoinGroup:
    """The handler; answered when the rebalance is complete."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: JoinGroupRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        version = context.api_version
        command = commands.Join(
            ticket=lambda reply: waiting.complete(_joined(reply, version)),
            group_id=request.group_id,
            member_id=request.member_id,
            protocol_type=request.protocol_type,
            protocols=[commands.OfferedProtocol(one.name, one.metadata) for one in request.protocols],
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            group_instance_id=request.group_instance_id,
            client_id=context.client_id or "",
            client_host=client_host(context.connection),
            version=version,
            reason=request.reason,
        )
        self._groups.submit(request.group_id, command)
        return waiting


def client_host(connection: ConnectionInfo) -> str:
    """The member's address as group tools show it: Java's text of an address begins with a slash."""
    return f"/{connection.peer_host}"


def _joined(reply: commands.JoinReply, version: int) -> JoinGroupResponse:
    protocol_name = reply.protocol_name
    if version < FIRST_VERSION_WITH_NULL_PROTOCOL:
        protocol_name = protocol_name or ""
    else:
        protocol_name = protocol_name or None
    return JoinGroupResponse(
        error_code=reply.error_code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in reply.members
        ],
    )


class SyncGroup:
    """The handler; answered when the leader has brought the assignment."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse | Waiting:
        if context.api_version >= FIRST_VERSION_OF_SYNC_WITH_PROTOCOL and (
            request.protocol_type is None or request.protocol_name is None
        ):
            # Nullable for the sake of older versions; whoever has the fields has to fill them in (KIP-559).
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        waiting = Waiting()
        command = commands.Sync(
            ticket=lambda reply: waiting.complete(_synced(reply)),
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={one.member_id: one.assignment for one in request.assignments},
        )
        self._groups.submit(request.group_id, command)
        return waiting


def _synced(reply: commands.SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=reply.error_code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


class Heartbeat:
    """The handler."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def shortcut(self) -> Questions:
        """The short way of members that are where they believe to be (see `apis/questions.py`)."""
        request = HeartbeatRequest
        return Questions(request.api_key, request.versions, self._learn, always, MANY_KNOWN_MAX)

    def _learn(self, version: int, question: bytes, connection: ConnectionInfo) -> Known | None:
        _, request = read_question(HeartbeatRequest, version, question)
        if request is None:
            return None
        look = RememberedAnswer(self._groups.ask, _heartbeat(request, None), _heard, version)
        # Only of members: their number is a bound for what is worth to be remembered.
        return None if look() is None else Known(None, look)

    def __call__(self, request: HeartbeatRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        command = _heartbeat(request, lambda reply: waiting.complete(_heard(reply)))
        self._groups.submit(request.group_id, command)
        return waiting


def _heartbeat(request: HeartbeatRequest, ticket: Callable[[Any], None] | None) -> commands.Heartbeat:
    return commands.Heartbeat(
        ticket=ticket,
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )


def _heard(reply: commands.HeartbeatReply) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=reply.error_code)


class LeaveGroup:
    """The handler: one member before version 3, any number of them from then on."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: LeaveGroupRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        has_members = context.api_version >= FIRST_VERSION_WITH_LEAVING_MEMBERS
        if has_members:
            members = [
                commands.LeavingMember(one.member_id, one.group_instance_id, one.reason)
                for one in request.members
            ]
        else:
            members = [commands.LeavingMember(request.member_id)]
        command = commands.Leave(
            ticket=lambda reply: waiting.complete(_left(reply, has_members)),
            group_id=request.group_id,
            members=members,
        )
        self._groups.submit(request.group_id, command)
        return waiting


def _left(reply: commands.LeaveReply, has_members: bool) -> LeaveGroupResponse:
    if not has_members:
        return LeaveGroupResponse(error_code=reply.single_error)
    return LeaveGroupResponse(
        error_code=reply.error_code,
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=member.error_code,
            )
            for member in reply.members
        ],
    )


class DescribeGroups:
    """The handler: each group is asked of its own coordinator."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: DescribeGroupsRequest, context: RequestContext) -> Waiting:
        version = context.api_version
        wants_operations = version >= FIRST_VERSION_WITH_OPERATIONS and request.include_authorized_operations
        gathering = Gathering(
            len(request.groups),
            lambda replies: DescribeGroupsResponse(
                groups=[_described(reply, version, wants_operations) for reply in replies]
            ),
        )
        for index, group_id in enumerate(request.groups):
            self._groups.submit(group_id, commands.DescribeGroup(gathering.ticket(index), group_id))
        return gathering.waiting


def _described(reply: commands.GroupDescription, version: int, wants_operations: bool) -> DescribedGroup:
    group = DescribedGroup(
        error_code=reply.error_code,
        group_id=reply.group_id,
        group_state=reply.state,
        protocol_type=reply.protocol_type,
        protocol_data=reply.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in reply.members
        ],
    )
    if version >= FIRST_VERSION_WITH_GROUP_NOT_FOUND:
        group.error_message = reply.error_message
    elif reply.error_code is ErrorCode.GROUP_ID_NOT_FOUND:
        # A group that is not there was a dead group, until KIP-1043.
        group.error_code = ErrorCode.NONE
    if wants_operations and group.error_code is ErrorCode.NONE:
        group.authorized_operations = operations.ON_GROUP
    return group


class ListGroups:
    """The handler: the groups whose coordinator this node is."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        reply = self._groups.list_groups(frozenset(request.states_filter), frozenset(request.types_filter))
        return ListGroupsResponse(
            error_code=reply.error_code,
            groups=[
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type,
                )
                for group in reply.groups
            ],
        )


class DeleteGroups:
    """The handler."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: DeleteGroupsRequest, context: RequestContext) -> Waiting:
        # A group that is named twice is deleted once and told once.
        names = list(dict.fromkeys(request.groups_names))
        gathering = Gathering(
            len(names),
            lambda replies: DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(group_id=name, error_code=reply.error_code)
                    for name, reply in zip(names, replies, strict=True)
                ]
            ),
        )
        for index, group_id in enumerate(names):
            self._groups.submit(group_id, commands.DeleteGroup(gathering.ticket(index), group_id))
        return gathering.waiting
