"""Requests to the coordinator of groups, as messages."""

from functools import partial
from itertools import groupby
from operator import itemgetter

from odradek.apis import (
    consumer_groups,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    share_groups,
    streams_groups,
    sync_group,
    txn_offset_commit,
)
from odradek.apis.coordinators import asked_by
from odradek.coordinator.asked import Asked, Client, Ticket
from odradek.coordinator.streams.group import listed_tasks
from odradek.coordinator.streams.membership import refused_heartbeat
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskIds
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

MODULES = (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
REFUSE = {
    **{module.API.request: module.API.refuse for module in MODULES},
    **{
        api.request: api.refuse
        for module in (consumer_groups, share_groups, streams_groups)
        for api in module.APIS
    },
    StreamsGroupHeartbeatRequest: lambda request, version, code: refused_heartbeat(code),
}


NOT_READY = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Named(str):
    """A ticket that is known by its name, of a driver that looks at replies."""

    refused = None


def asked(request, take=None, version=9, client_id="c", host="/127.0.0.1") -> Asked:
    """The request on its way; `take` gets the response, or the refusal, or is the name of the ticket."""
    client = Client(client_id, host, version)
    if isinstance(request, OffsetFetchRequest):
        ticket = Ticket(take, partial(refused_fetch, request.groups[0].group_id))
    else:
        ticket = asked_by(client, REFUSE[type(request)], request, take).ticket
    if not callable(take):
        named = Named(take)
        named.refused = ticket.refused
        ticket = named
    return Asked(request, client, ticket)


def refused_fetch(group_id: str, code: ErrorCode) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=code)]
    )


def fetched_now(coordinator, request) -> OffsetFetchResponse | None:
    """The response to an OffsetFetch of one group; None where the coordinator cannot give it at once."""
    responses: list[OffsetFetchResponse] = []
    coordinator.submit(group_of(request), asked(request, responses.append))
    is_ready = responses and responses[0].groups[0].error_code not in NOT_READY
    return responses[0] if is_ready else None


def group_of(request) -> str:
    match request:
        case OffsetFetchRequest():
            return request.groups[0].group_id
        case DescribeGroupsRequest():
            return request.groups[0]
        case ConsumerGroupDescribeRequest() | StreamsGroupDescribeRequest():
            return request.group_ids[0]
        case DeleteGroupsRequest():
            return request.groups_names[0]
    return request.group_id


def join(
    group_id="g",
    member_id="",
    protocols=(),
    session_timeout_ms=10_000,
    rebalance_timeout_ms=-1,
    group_instance_id=None,
    protocol_type="consumer",
) -> JoinGroupRequest:
    """`protocols` are names and metadata."""
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=group_instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
    )


def sync(group_id, generation, member_id, assignments=(), **fields) -> SyncGroupRequest:
    """`assignments` are bytes by member."""
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=assignment)
            for each, assignment in dict(assignments).items()
        ],
        **fields,
    )


def beat(group_id, generation, member_id, group_instance_id=None) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=group_instance_id,
    )


def leave(group_id, *members) -> LeaveGroupRequest:
    """`members` are ids, or pairs of id and instance id."""
    pairs = [(member, None) if isinstance(member, str) else member for member in members]
    identities = [MemberIdentity(member_id=one, group_instance_id=instance) for one, instance in pairs]
    return LeaveGroupRequest(group_id=group_id, members=identities)


def consumer_beat(group_id, member_id, member_epoch, owned=None, **fields) -> ConsumerGroupHeartbeatRequest:
    """`owned` are topic ids and partitions."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=member_epoch,
        topic_partitions=owned
        if owned is None
        else [TopicPartitions(topic_id=topic_id, partitions=list(indexes)) for topic_id, indexes in owned],
        **fields,
    )


def streams_beat(group_id, member_id, member_epoch, owned=None, **fields) -> StreamsGroupHeartbeatRequest:
    """`owned` are active, standby and warm-up tasks, as indexes by subtopology."""
    if owned is not None:
        roles = ("active_tasks", "standby_tasks", "warmup_tasks")
        fields |= {role: listed_tasks(tasks, TaskIds) for role, tasks in zip(roles, owned, strict=True)}
    return StreamsGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=member_epoch, **fields
    )


def by_topic(places) -> list[tuple[str, list]]:
    """(topic, ...) as a list of topics with what else is said of each; neighbours together."""
    return [(topic, [rest for _, *rest in group]) for topic, group in groupby(places, itemgetter(0))]


def commit(
    group_id, offsets, generation=-1, member_id="", group_instance_id=None, retention_time_ms=-1, ids=()
):
    """`offsets` are (topic, partition, offset, epoch, metadata, timestamp), of which three may be left out;
    `ids` are those of topics."""
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=group_instance_id,
        retention_time_ms=retention_time_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=dict(ids).get(topic, bytes(16)),
                partitions=[commit_partition(*one) for one in of_topic],
            )
            for topic, of_topic in by_topic(offsets)
        ],
    )


def commit_partition(index, offset, epoch=-1, metadata="", timestamp_ms=-1):
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        committed_metadata=metadata,
        commit_timestamp=timestamp_ms,
    )


def commit_in_transaction(
    group_id, producer_id, offsets, epoch=0, member_id="", generation=-1, group_instance_id=None
):
    """`offsets` as for `commit`, without a timestamp."""
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic, partitions=[transactional_partition(*one) for one in of_topic]
            )
            for topic, of_topic in by_topic(offsets)
        ],
    )


def transactional_partition(index, offset, epoch=-1, metadata="", timestamp_ms=-1):
    return TxnOffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        committed_metadata=metadata,
    )


def fetch(group_id, places=None, member_id=None, member_epoch=-1, require_stable=False) -> OffsetFetchRequest:
    """`places` are (topic, partition); None for all."""
    topics = None
    if places is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=[index for (index,) in indexes])
            for topic, indexes in by_topic(places)
        ]
    group = OffsetFetchRequestGroup(
        group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=topics
    )
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def delete_offsets(group_id, places) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=index) for (index,) in indexes],
            )
            for topic, indexes in by_topic(places)
        ],
    )


def describe(group_id) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=[group_id])


def describe_consumers(group_id) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=[group_id])


def describe_streams(group_id) -> StreamsGroupDescribeRequest:
    return StreamsGroupDescribeRequest(group_ids=[group_id])


def delete(group_id) -> DeleteGroupsRequest:
    return DeleteGroupsRequest(groups_names=[group_id])


# Responses


def results_in(response) -> list[tuple]:
    """(topic, result of a partition) in a response about offsets, in its order."""
    topics = response.groups[0].topics if isinstance(response, OffsetFetchResponse) else response.topics
    return [(topic.name, one) for topic in topics for one in topic.partitions]


def errors_in(response) -> list[ErrorCode]:
    return [one.error_code for _, one in results_in(response)]
