"""The short way of a commit of offsets in one topic, versions 2 to 10.

What the commits of a consumer say before their partitions (group, generation, member, topic) is the same
again and again, so that part is looked up as bytes instead of being decoded; offsets and metadata are read
where they are. What comes of it is the command that the ordinary way in `apis/offset_commit.py` makes, and it
goes to the same coordinator. The answer has the bytes of the last one if it says the same. Whatever is
unusual (several topics, a topic or a partition that does not exist, unknown tags) takes the ordinary way,
which alone knows how to explain it.

The hot part is the compiled `_commits`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from odradek.apis._commits import Beginning, Commits
from odradek.apis.questions import read_question
from odradek.wire.frames import response_parts
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.coordinator.cluster.view import (
        ClusterView,
        TopicView,
    )
    from odradek.coordinator.groups.commands import CommitOffsets
    from odradek.wire.errors import ErrorCode

__all__ = ["KNOWN_MAX", "commits"]

KNOWN_MAX = 10_000
"""Beginnings that are remembered."""


def commits(
    current_view: Callable[[], ClusterView],
    submit: Callable[[str, CommitOffsets], None],
    find_topic: Callable[[ClusterView, str, bytes, int], TopicView | None],
) -> Commits:
    """The shortcut. `find_topic(view, name, topic_id, version)` gives the topic that a request names."""
    return Commits(current_view, submit, partial(_learn, find_topic), KNOWN_MAX)


def _learn(
    find_topic: Callable[[ClusterView, str, bytes, int], TopicView | None],
    view: ClusterView,
    version: int,
    question: bytes,
) -> Beginning | None:
    """What a request says that begins with its client id."""
    _, request = read_question(OffsetCommitRequest, version, question)
    if request is None or len(request.topics) != 1:
        return None
    requested = request.topics[0]
    topic = find_topic(view, requested.name, requested.topic_id, version)
    if topic is None:
        return None
    return Beginning(
        view,
        version,
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        request.retention_time_ms,
        topic.name,
        topic.topic_id,
        len(topic.partitions),
        partial(_encode, version, requested.name, requested.topic_id),
    )


def _encode(
    version: int, name: str, topic_id: bytes, partitions: Sequence[int], errors: Sequence[ErrorCode]
) -> bytes:
    answers = [
        OffsetCommitResponsePartition(partition_index=index, error_code=code)
        for index, code in zip(partitions, errors, strict=True)
    ]
    topic = OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=answers)
    return b"".join(response_parts(OffsetCommitResponse(topics=[topic]), version, 0))
