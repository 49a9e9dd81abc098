"""Groups: what there is, members, committed offsets; and deleting them. Brokers since Kafka 3.0."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.client.admin.asking import Outcome, Refused, all_brokers, ask_each, ask_in_batches, outcome
from odradek.client.client_error import refusal
from odradek.client.cluster import Cluster, Coordinator, TopicPartition, coordinator_of
from odradek.wire.errors import ErrorCode, MalformedMessage, error_of
from odradek.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_protocol import decode_assignment
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.schema import Message

OFFSET_FETCH_VERSION_MAX = 9
"""From 10 on topics have ids instead of names, and a topic that is gone has none."""
GROUPS_AT_ONCE = 500
"""In one request; the response has all their members or offsets."""

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group as its coordinator lists it."""

    group: str
    type: str
    """classic, consumer (KIP-848), share or streams."""
    state: str
    """Empty if the brokers do not tell (before Kafka 2.6)."""
    protocol_type: str
    """Protocol type of a classic group: consumer, connect; empty for one that only holds offsets."""
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and the partitions that it has now, sorted."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]

    @property
    def name(self) -> str:
        """For a person."""
        return f"{self.client_id or self.member_id} at {self.host.removeprefix('/')}"


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members, sorted by client and member id."""

    group: str
    type: str
    state: str
    assignor: str
    coordinator: int
    members: list[GroupMember]


def list_groups(cluster: Cluster, silent: list[Refused] | None = None) -> list[ListedGroup]:
    """All that the user may see, sorted by name: each broker tells of those that it coordinates. One that
    does not answer is added to `silent`; without that, ClientError."""
    found: dict[str, ListedGroup] = {}
    for broker, response in ask_each(cluster, all_brokers(cluster), ListGroupsRequest(), silent):
        if response.error_code != ErrorCode.NONE:
            raise refusal(f"listing the groups of broker {broker}", response.error_code)
        for one in response.groups:
            kind = (one.group_type or "classic").lower()
            found[one.group_id] = ListedGroup(one.group_id, kind, one.group_state, one.protocol_type, broker)
    return [found[group] for group in sorted(found)]


# Members ----------------------------------------------------------------------------------------------


def describe_groups(
    cluster: Cluster, groups: Iterable[ListedGroup]
) -> tuple[list[GroupDescription], list[Refused]]:
    """The groups with their members, in the order in which they are given. A group that is gone meanwhile
    is refused."""
    wanted = list(groups)
    described: dict[str, GroupDescription] = {}
    refused: list[Refused] = []
    for kind, (request_of, read) in _KINDS.items():
        listed = [one for one in wanted if one.type == kind]
        for response, one in _of_groups(cluster, listed, request_of, _described):
            code = error_of(response.error_code)
            if code == ErrorCode.NONE and response.group_state == "Dead":
                code = ErrorCode.GROUP_ID_NOT_FOUND
            if code == ErrorCode.NONE:
                described[one.group] = _description(one, response, read(response))
            else:
                failure = refusal(f"describing group {one.group}", code, response.error_message)
                refused.append(Refused(one.group, failure))
    return [described[one.group] for one in wanted if one.group in described], refused


def _described(response: Any) -> Iterator[tuple[str, Any]]:
    return ((one.group_id, one) for one in response.groups)


def _description(listed: ListedGroup, response: Any, members: Iterable[GroupMember]) -> GroupDescription:
    assignor = getattr(response, "assignor_name", "") or getattr(response, "protocol_data", "")
    sorted_members = sorted(members, key=lambda one: (one.client_id, one.member_id))
    return GroupDescription(
        listed.group, listed.type, response.group_state, assignor, listed.coordinator, sorted_members
    )


def _classic_members(group: Any) -> Iterator[GroupMember]:
    for one in group.members:
        partitions = _classic_partitions(one.member_assignment) if group.protocol_type == "consumer" else []
        yield GroupMember(one.member_id, one.group_instance_id, one.client_id, one.client_host, partitions)


def _classic_partitions(assignment: bytes) -> list[TopicPartition]:
    """None while the group rebalances; and none if it is not as consumers write it, as leaders may put
    anything there."""
    try:
        found = decode_assignment(assignment).assigned_partitions if assignment else []
    except MalformedMessage:
        return []
    return sorted((topic.topic, partition) for topic in found for partition in topic.partitions)


def _members(group: Any) -> Iterator[GroupMember]:
    """Members of a group of the consumer protocol, or of a share group."""
    for one in group.members:
        assigned = one.assignment.topic_partitions
        yield GroupMember(
            one.member_id,
            getattr(one, "instance_id", None),
            one.client_id,
            one.client_host,
            sorted((topic.topic_name, partition) for topic in assigned for partition in topic.partitions),
        )


def _streams_members(group: Any) -> Iterator[GroupMember]:
    """An active task reads its partition of every source topic."""
    sources = {
        one.subtopology_id: [*one.source_topics, *(topic.name for topic in one.repartition_source_topics)]
        for one in (group.topology.subtopologies or () if group.topology else ())
    }
    for one in group.members:
        partitions = {
            (topic, partition)
            for task in one.assignment.active_tasks
            for topic in sources.get(task.subtopology_id, ())
            for partition in task.partitions
        }
        yield GroupMember(one.member_id, one.instance_id, one.client_id, one.client_host, sorted(partitions))


_KINDS: dict[str, tuple[Callable[[list[str]], Message], Callable[[Any], Iterator[GroupMember]]]] = {
    "classic": (lambda groups: DescribeGroupsRequest(groups=groups), _classic_members),
    "consumer": (lambda groups: ConsumerGroupDescribeRequest(group_ids=groups), _members),
    "share": (lambda groups: ShareGroupDescribeRequest(group_ids=groups), _members),
    "streams": (lambda groups: StreamsGroupDescribeRequest(group_ids=groups), _streams_members),
}


# Offsets ----------------------------------------------------------------------------------------------


def offsets_of_groups(
    cluster: Cluster, groups: Iterable[ListedGroup]
) -> tuple[dict[str, Offsets], list[Refused]]:
    """The committed offsets of each group, in few requests; of a share group where its records begin that are
    not acknowledged."""
    wanted = list(groups)
    found: dict[str, Offsets] = {one.group: {} for one in wanted}
    refused: list[Refused] = []
    for is_share, request_of, read in (
        (False, _offset_fetch, _committed),
        (True, _share_offsets, _share_starts),
    ):
        listed = [one for one in wanted if (one.type == "share") == is_share]
        version_max = None if is_share else OFFSET_FETCH_VERSION_MAX
        for response, one in _of_groups(cluster, listed, request_of, _described, version_max):
            code = error_of(response.error_code)
            if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                found[one.group] = read(response)
            else:
                doing = f"reading the offsets of group {one.group}"
                refused.append(Refused(one.group, refusal(doing, code)))
    return found, refused


def _offset_fetch(groups: list[str]) -> Message:
    wanted = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    return OffsetFetchRequest(group_id="", topics=[], groups=wanted)


def _committed(group: Any) -> Offsets:
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in group.topics
        for one in topic.partitions
        if one.error_code == ErrorCode.NONE and one.committed_offset >= 0
    }


def _share_offsets(groups: list[str]) -> Message:
    wanted = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None) for group in groups]
    return DescribeShareGroupOffsetsRequest(groups=wanted)


def _share_starts(group: Any) -> Offsets:
    return {
        (topic.topic_name, one.partition_index): one.start_offset
        for topic in group.topics
        for one in topic.partitions
        if one.error_code == ErrorCode.NONE and one.start_offset >= 0
    }


def alter_share_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> Outcome:
    """Lets the records of a share group without members begin at these offsets; returns the refusals. What
    the group has acknowledged from there on comes again. ClientError if all are refused."""
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        wanted = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        topics.setdefault(topic, []).append(wanted)
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=of) for name, of in topics.items()
        ],
    )
    doing = f"moving share group {group}"
    response = cluster.ask(_coordinator(group), request)
    if response.error_code != ErrorCode.NONE:
        raise refusal(doing, response.error_code, response.error_message)
    responses = [
        (f"{topic.topic_name}-{one.partition_index}", one.error_code, one.error_message)
        for topic in response.responses
        for one in topic.partitions
    ]
    return outcome(f"{doing} in", responses)


# Deleting ---------------------------------------------------------------------------------------------


def delete_groups(cluster: Cluster, groups: Iterable[ListedGroup]) -> Outcome:
    """Deletes groups that have no members, with their offsets; returns the refusals."""
    responses = _of_groups(
        cluster,
        list(groups),
        lambda names: DeleteGroupsRequest(groups_names=names),
        lambda response: ((one.group_id, one) for one in response.results),
    )
    return outcome(
        "deleting group",
        [(one.group, response.error_code, response.error_message) for response, one in responses],
    )


def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> Outcome:
    """Deletes the commits of a group for partitions of topics to which no member subscribes; returns the
    refusals. ClientError if all are refused."""
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=partition))
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=of) for name, of in topics.items()],
    )
    response = cluster.ask(_coordinator(group), request)
    if response.error_code != ErrorCode.NONE:
        raise refusal(f"deleting offsets of group {group}", response.error_code)
    responses = [
        (f"{topic.name}-{one.partition_index}", one.error_code, None)
        for topic in response.topics
        for one in topic.partitions
    ]
    return outcome(f"deleting the offset of group {group} for", responses)


def delete_share_offsets(cluster: Cluster, group: str, topics: Iterable[str]) -> Outcome:
    """Lets a share group without members forget where it is in whole topics; returns the refusals, by topic.
    ClientError if all are refused."""
    wanted = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in sorted(topics)]
    request = DeleteShareGroupOffsetsRequest(group_id=group, topics=wanted)
    response = cluster.ask(_coordinator(group), request)
    if response.error_code != ErrorCode.NONE:
        raise refusal(f"deleting offsets of share group {group}", response.error_code, response.error_message)
    responses = [(one.topic_name, one.error_code, one.error_message) for one in response.responses]
    return outcome(f"deleting the offsets of share group {group} for", responses)


def _of_groups(
    cluster: Cluster,
    groups: Sequence[ListedGroup],
    request_of: Callable[[list[str]], Message],
    parts_of: Callable[[Any], Iterable[tuple[str, Any]]],
    version_max: int | None = None,
) -> Iterator[tuple[Any, ListedGroup]]:
    """The response for each group, and the group."""
    for first in range(0, len(groups), GROUPS_AT_ONCE):
        some: Mapping[str, ListedGroup] = {one.group: one for one in groups[first : first + GROUPS_AT_ONCE]}
        nodes = {name: one.coordinator for name, one in some.items()}
        found = ask_in_batches(cluster, nodes, _coordinator, request_of, parts_of, version_max)
        yield from ((found[name], one) for name, one in some.items())


def _coordinator(group: str) -> Coordinator:
    return coordinator_of("group", group)
