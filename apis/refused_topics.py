"""The topics of a request about offsets: those that its group decides on, and those refused before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odradek.wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import TopicView


class CheckedTopics:
    """`known` are the topics of a request, with the partitions that exist. `find(topic)` is the topic of the
    cluster, or its refusal; `topic_result(topic, partitions)` and `partition_result` make the results.

    As in Kafka, results of refused topics and partitions come first in a response, and a topic that the
    request names twice is there once; if none is refused, it is there as often as in the request. A topic
    without partitions is there only if it is refused.
    """

    __slots__ = ("_partition_result", "_refused", "_topic_result", "known")

    def __init__(
        self,
        topics: Iterable[Any],
        find: Callable[[Any], TopicView | ErrorCode],
        topic_result: Callable[[Any, list[Any]], Any],
        partition_result: Callable[..., Any],
    ) -> None:
        self.known: list[Any] = []
        self._refused: dict[Any, Any] = {}
        self._topic_result = topic_result
        self._partition_result = partition_result
        for topic in topics:
            found = find(topic)
            if isinstance(found, ErrorCode):
                self._refuse(topic, topic.partitions, found)
                continue
            count = len(found.partitions)
            partitions = [one for one in topic.partitions if 0 <= one.partition_index < count]
            if partitions:
                self.known.append(replace(topic, partitions=partitions))
            if len(partitions) < len(topic.partitions):
                missing = [one for one in topic.partitions if not 0 <= one.partition_index < count]
                self._refuse(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def with_refused(self, response: Any) -> Any:
        """The response, with the results of what is refused before the others."""
        if self._refused:
            for topic in response.topics:
                self._add(topic)
            response.topics = list(self._refused.values())
        return response

    def _refuse(self, topic: Any, partitions: Iterable[Any], code: ErrorCode) -> None:
        result = self._partition_result
        results = [result(partition_index=one.partition_index, error_code=code) for one in partitions]
        self._add(self._topic_result(topic, results))

    def _add(self, result: Any) -> None:
        first = self._refused.setdefault((result.name, getattr(result, "topic_id", None)), result)
        if first is not result:
            first.partitions += result.partitions
