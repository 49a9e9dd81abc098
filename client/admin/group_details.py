"""Share groups and groups of Kafka Streams with all that their coordinators tell of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from odradek.client.client_error import ClientError, refusal
from odradek.client.cluster import Cluster, TopicPartition, coordinator_of
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

# Share groups -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member of a share group; partitions are sorted, and others may have the same ones."""

    member_id: str
    client_id: str
    host: str
    rack: str | None
    epoch: int
    subscribed: list[str]
    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """A share group; members are sorted by client and id."""

    group: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: list[ShareMember]


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """Where a share group is in a partition."""

    topic: str
    partition: int
    start_offset: int | None
    """First offset that is not acknowledged; None: the group has not begun here."""
    lag: int | None
    """Records that are not acknowledged, as the coordinator counts them; None: it does not tell (before Kafka
    4.2)."""
    error: ClientError | None


def describe_share_group(cluster: Cluster, group: str) -> ShareGroup:
    """ClientError for a group that is not there, is of another type, or may not be seen."""
    request = ShareGroupDescribeRequest(group_ids=[group])
    found = _described(cluster, group, request)
    members = [
        ShareMember(
            one.member_id,
            one.client_id,
            one.client_host,
            one.rack_id,
            one.member_epoch,
            sorted(one.subscribed_topic_names),
            sorted(
                (topic.topic_name, number)
                for topic in one.assignment.topic_partitions
                for number in topic.partitions
            ),
        )
        for one in found.members
    ]
    return ShareGroup(
        group,
        found.group_state,
        found.group_epoch,
        found.assignment_epoch,
        found.assignor_name,
        sorted(members, key=lambda one: (one.client_id, one.member_id)),
    )


def describe_share_offsets(cluster: Cluster, group: str) -> list[ShareOffset]:
    """Offsets of the group, sorted by partition. ClientError for a refusal of all."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[wanted])
    (found,) = cluster.ask(coordinator_of("group", group), request).groups
    if found.error_code != ErrorCode.NONE:
        doing = f"reading the offsets of share group {group}"
        raise refusal(doing, error_of(found.error_code), found.error_message)
    return sorted(
        (_share_offset(topic.topic_name, one) for topic in found.topics for one in topic.partitions),
        key=lambda one: (one.topic, one.partition),
    )


def _share_offset(topic: str, one: Any) -> ShareOffset:
    error = None
    if one.error_code != ErrorCode.NONE:
        doing = f"reading the offset of {topic}-{one.partition_index}"
        error = refusal(doing, error_of(one.error_code), one.error_message)
    return ShareOffset(
        topic,
        one.partition_index,
        one.start_offset if one.start_offset >= 0 else None,
        one.lag if one.lag >= 0 else None,
        error,
    )


# Kafka Streams ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member of an application; tasks are SUBTOPOLOGY_PARTITION, as Kafka Streams writes them."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    process_id: str
    endpoint: str | None
    """HOST:PORT for interactive queries."""
    tags: list[tuple[str, str]]
    epoch: int
    topology_epoch: int
    active: list[str]
    standby: list[str]
    warmup: list[str]
    wanted: list[str]
    """Active tasks of the target assignment."""
    restoring: int | None
    """Records that its tasks have still to restore; None: not known."""


@dataclass(frozen=True, slots=True)
class Subtopology:
    """Topics of one part of the topology."""

    subtopology: str
    sources: list[str]
    repartition_sources: list[str]
    repartition_sinks: list[str]
    changelogs: list[str]


@dataclass(frozen=True, slots=True)
class StreamsGroup:
    """A group of Kafka Streams; members are sorted by client and id."""

    group: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str | None
    topology_epoch: int | None
    subtopologies: list[Subtopology]
    members: list[StreamsMember]


def describe_streams_group(cluster: Cluster, group: str) -> StreamsGroup:
    """ClientError for a group that is not there, is of another type, or may not be seen."""
    found = _described(cluster, group, StreamsGroupDescribeRequest(group_ids=[group]))
    topology = found.topology
    return StreamsGroup(
        group,
        found.group_state,
        found.group_epoch,
        found.assignment_epoch,
        found.assignor_name,
        None if topology is None else topology.epoch,
        [] if topology is None else [_subtopology(one) for one in topology.subtopologies or ()],
        sorted(map(_streams_member, found.members), key=lambda one: (one.client_id, one.member_id)),
    )


def _subtopology(one: Any) -> Subtopology:
    return Subtopology(
        one.subtopology_id,
        sorted(one.source_topics),
        sorted(topic.name for topic in one.repartition_source_topics),
        sorted(one.repartition_sink_topics),
        sorted(topic.name for topic in one.state_changelog_topics),
    )


def _streams_member(one: Any) -> StreamsMember:
    ends = {(task.subtopology_id, task.partition): task.offset for task in one.task_end_offsets}
    offsets = {(task.subtopology_id, task.partition): task.offset for task in one.task_offsets}
    known = [max(0, end - offsets[key]) for key, end in ends.items() if key in offsets]
    endpoint = one.user_endpoint
    return StreamsMember(
        one.member_id,
        one.instance_id,
        one.client_id,
        one.client_host,
        one.rack_id,
        one.process_id,
        None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
        sorted((tag.key, tag.value) for tag in one.client_tags),
        one.member_epoch,
        one.topology_epoch,
        _tasks(one.assignment.active_tasks),
        _tasks(one.assignment.standby_tasks),
        _tasks(one.assignment.warmup_tasks),
        _tasks(one.target_assignment.active_tasks),
        sum(known) if known else None,
    )


def _tasks(found: Sequence[Any]) -> list[str]:
    pairs = sorted((one.subtopology_id, number) for one in found for number in one.partitions)
    return [f"{subtopology}_{number}" for subtopology, number in pairs]


def _described(cluster: Cluster, group: str, request: Any) -> Any:
    (found,) = cluster.ask(coordinator_of("group", group), request).groups
    code = error_of(found.error_code)
    if code == ErrorCode.NONE and found.group_state == "Dead":
        code = ErrorCode.GROUP_ID_NOT_FOUND
    if code != ErrorCode.NONE:
        raise refusal(f"describing group {group}", code, found.error_message)
    return found
