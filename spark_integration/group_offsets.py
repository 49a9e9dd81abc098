"""The offsets that groups have committed, read and written without being a member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.spark.client import ClientError, Cluster, coordinator_of, error_of, refusal
from odradek.wire.errors import ErrorCode
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

__all__ = ["GroupHasMembers", "commit", "committed"]

_OFFSET_FETCH_VERSION_MAX = 9
"""From 10 on topics go by their ids."""
_OFFSET_COMMIT_VERSION_MAX = 9
_HAS_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""What brokers answer to a commit of nobody's for a group that has members."""

TopicPartition = tuple[str, int]
Committed = tuple[int, str]
"""Offset and metadata."""


class GroupHasMembers(ClientError):
    """Only its members may commit for the group."""


def committed(
    cluster: Cluster,
    group: str,
    partitions: Mapping[str, Iterable[int]] | None,
    *,
    is_stable: bool,
    doing: str | None = None,
) -> dict[TopicPartition, Committed]:
    """What the group has committed for these partitions by topic, or for all; without those where it has not.

    With `is_stable` after the end of transactions that are about to change it. `doing` is what a refusal
    says.
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
    answer = cluster.ask(coordinator_of("group", group), request, version_max=_OFFSET_FETCH_VERSION_MAX)
    (told,) = answer.groups
    for code in (told.error_code, *(one.error_code for of in told.topics for one in of.partitions)):
        if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            raise refusal(doing or f"reading the offsets of group {group}", error_of(code))
    return {
        (of.name, one.partition_index): (one.committed_offset, one.metadata or "")
        for of in told.topics
        for one in of.partitions
        if one.committed_offset >= 0
    }


def commit(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Committed], *, doing: str | None = None
) -> None:
    """Commits for a group that has no members; GroupHasMembers where it has some.

    `doing` is what a refusal says.
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), (offset, metadata) in offsets.items():
        one = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        topics.setdefault(topic, []).append(one)
    request = OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=name, partitions=of) for name, of in topics.items()],
    )
    answer = cluster.ask(coordinator_of("group", group), request, version_max=_OFFSET_COMMIT_VERSION_MAX)
    for of in answer.topics:
        for told in of.partitions:
            code = error_of(told.error_code)
            if code in _HAS_MEMBERS:
                raise GroupHasMembers(f"group {group} has members, who alone commit for it", code)
            if code != ErrorCode.NONE:
                raise refusal(doing or f"committing offsets of group {group}", code)
