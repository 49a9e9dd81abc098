"""The order of topics in answers to OffsetCommit and OffsetDelete, as Kafka has it."""

from __future__ import annotations

from typing import Any

from odradek.wire.errors import ErrorCode


def refused_first(topics: list[Any]) -> list[Any]:
    """Topics of an answer that has errors only for unknown topics and partitions so far. As in Kafka, a topic
    that the request names twice is here once; without such errors the answer has it twice.
    """
    merged: dict[Any, Any] = {}
    for topic in topics:
        known = merged.setdefault((topic.name, getattr(topic, "topic_id", None)), topic)
        if known is not topic:
            known.partitions += topic.partitions
    for topic in merged.values():
        topic.partitions.sort(key=_is_open)
    return sorted(merged.values(), key=lambda topic: all(map(_is_open, topic.partitions)))


def _is_open(partition: Any) -> bool:
    return bool(partition.error_code == ErrorCode.NONE)
