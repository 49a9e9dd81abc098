"""Requests to share groups, as messages."""

from odradek.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


def beat(group_id, member_id, epoch, topics=None, rack_id=None) -> ShareGroupHeartbeatRequest:
    """`topics` None: as before."""
    return ShareGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        rack_id=rack_id,
        subscribed_topic_names=topics,
    )


def alter(group_id, offsets) -> AlterShareGroupOffsetsRequest:
    """`offsets` are (topic, partition, offset)."""
    topics: dict = {}
    for topic, index, offset in offsets:
        topics.setdefault(topic, []).append(
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        )
    return AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )


def forget(group_id, topics) -> DeleteShareGroupOffsetsRequest:
    return DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    )


def describe(group_id) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=[group_id])


def describe_offsets(group_id) -> DescribeShareGroupOffsetsRequest:
    """All of them."""
    group = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    return DescribeShareGroupOffsetsRequest(groups=[group])


# Responses


def assigned_in(response) -> dict[bytes, list[int]] | None:
    """Partitions by topic id in the response to a heartbeat; None: as before."""
    assignment = response.assignment
    return assignment and {one.topic_id: one.partitions for one in assignment.topic_partitions}


def partitions_in(response) -> dict[bytes, list[int]]:
    """Partitions by topic id in the response to `describe_offsets`."""
    (group,) = response.groups
    return {topic.topic_id: [one.partition_index for one in topic.partitions] for topic in group.topics}
