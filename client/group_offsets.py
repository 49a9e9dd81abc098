"""The committed offsets of groups, read without membership, and written with it or without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.client.client_error import ClientError, refusal
from odradek.client.cluster import Cluster, coordinator_of
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

_OFFSET_FETCH_VERSION_MAX = 9
"""From 10 on requests name topics by their ids."""
_OFFSET_COMMIT_VERSION_MAX = 9
_HAS_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""The errors of a commit without a member id for a group that has members, and of one by a member that the
group does not know any more, or not in this generation."""

TopicPartition = tuple[str, int]
Committed = tuple[int, str]
"""Offset and metadata."""


class GroupHasMembers(ClientError):
    """The group has members, and only they may commit: who has asked is none of them, or not any more."""


class Committer(NamedTuple):
    """The member of the group that commits."""

    member_id: str
    epoch: int
    """The generation, or the member epoch (KIP-848)."""
    instance_id: str | None


_NOBODY = Committer("", -1, None)


def committed(
    cluster: Cluster,
    group: str,
    partitions: Mapping[str, Iterable[int]] | None,
    *,
    is_stable: bool,
    doing: str | None = None,
) -> dict[TopicPartition, Committed]:
    """The committed offsets of the group for these partitions by topic, or for all; without those that have
    none.

    `is_stable` waits for the end of open transactions with offsets. `doing` begins the sentence of a refusal.
    """
    wanted = None
    if partitions is not None:
        wanted = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=list(numbers))
            for topic, numbers in partitions.items()
        ]
    request = OffsetFetchRequest(
        group_id="",
        topics=[],
        groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)],
        require_stable=is_stable,
    )
    response = cluster.ask(coordinator_of("group", group), request, version_max=_OFFSET_FETCH_VERSION_MAX)
    (group_response,) = response.groups
    for code in (
        group_response.error_code,
        *(one.error_code for of in group_response.topics for one in of.partitions),
    ):
        if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            raise refusal(doing or f"reading the offsets of group {group}", error_of(code))
    return {
        (of.name, one.partition_index): (one.committed_offset, one.metadata or "")
        for of in group_response.topics
        for one in of.partitions
        if one.committed_offset >= 0
    }


def commit(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    *,
    doing: str | None = None,
    by: Committer | None = None,
) -> None:
    """Commits for a group without members, or `by` one of them; else GroupHasMembers.

    `doing` begins the sentence of a refusal.
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), (offset, metadata) in offsets.items():
        one = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        topics.setdefault(topic, []).append(one)
    request = OffsetCommitRequest(
        group_id=group,
        member_id=(by or _NOBODY).member_id,
        generation_id_or_member_epoch=(by or _NOBODY).epoch,
        group_instance_id=(by or _NOBODY).instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=of) for name, of in topics.items()],
    )
    response = cluster.ask(coordinator_of("group", group), request, version_max=_OFFSET_COMMIT_VERSION_MAX)
    for of in response.topics:
        for result in of.partitions:
            code = error_of(result.error_code)
            if code in _HAS_MEMBERS and by is not None:
                is_early = code == ErrorCode.REBALANCE_IN_PROGRESS
                what = "is in a rebalance" if is_early else "has gone on without this member"
                raise GroupHasMembers(f"group {group} {what} ({code.name})", code)
            if code in _HAS_MEMBERS:
                raise GroupHasMembers(f"group {group} has members, and only they may commit for it", code)
            if code != ErrorCode.NONE:
                raise refusal(doing or f"committing offsets of group {group}", code)
