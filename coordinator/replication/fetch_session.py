"""The fetch session of a follower with one leader (KIP-227): what it has been told, and what is new.

A request names the partitions that are new or have changed, in anything: offset, log start and leader epoch,
which the session holds, too, and would be fenced by (KAFKA-9338). After an error or a lost response the next
request is a full one, and closes the session before it.

`server/cluster/_fetching.pyx` makes the ordinary requests of a session itself, from what is here.

Source: `FetchSessionHandler` of Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.wire.errors import ErrorCode
from odradek.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION = 0
INITIAL_EPOCH = 0
_MAX_INT32 = 0x7FFFFFFF

PartitionId = tuple[bytes, int]
"""Topic id and number."""


class Asked(NamedTuple):
    """A partition in a request."""

    topic: str
    partition: FetchPartition


class SessionPart(NamedTuple):
    """The part of a Fetch request that the session makes."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class ReplicaFetchSession:
    """See the module. The cost of a request is that of what has changed, not of all partitions."""

    def __init__(self) -> None:
        self.asked: dict[PartitionId, Asked] = {}
        """All that the last request asked for, also by not naming it. What has changed last is the last."""
        self.held: dict[PartitionId, FetchPartition] = {}
        """Partitions as the leader's session has them."""
        self._changed: dict[PartitionId, None] = {}
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        """Epoch of the next request, or of the one under way."""

    def next_part(self, changes: Mapping[PartitionId, Asked | None]) -> SessionPart | None:
        """Part of the next request, with the changes of what is wanted (None: no more). None: nothing is
        wanted, and no request is needed.
        """
        for one, asked in changes.items():
            self.asked.pop(one, None)
            if asked is not None:
                self.asked[one] = asked
            self._changed[one] = None
        if not self.asked:
            return None
        if self.epoch == INITIAL_EPOCH:
            self.held = {}
            self._changed = dict.fromkeys(self.asked)
        told, forgotten = self._news()
        self._changed = {}
        return SessionPart(self.id, self.epoch, _topics(told), _forgotten(forgotten))

    def _news(self) -> tuple[dict[PartitionId, Asked], list[PartitionId]]:
        told, forgotten = {}, []
        for one in self._changed:
            asked, held = self.asked.get(one), self.held.get(one)
            if asked is None:
                if held is not None:
                    forgotten.append(one)
                    del self.held[one]
            elif held is None or self._is_news(held, asked.partition):
                told[one] = asked
                self.held[one] = asked.partition
        return told, forgotten

    def _is_news(self, held: FetchPartition, asked: FetchPartition) -> bool:
        return held != asked

    def answered(self, error_code: int, session_id: int) -> bool:
        """Whether the response counts. Without a session id in it there is no session: all is asked again."""
        if error_code == ErrorCode.NONE:
            has_session = session_id != NO_SESSION
            self.id = session_id
            self.epoch = _next_epoch(self.epoch) if has_session else INITIAL_EPOCH
            return True
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        return False

    def failed(self) -> None:
        """No response came: nobody knows what the leader's session holds."""
        self.epoch = INITIAL_EPOCH


def _next_epoch(epoch: int) -> int:
    return 1 if epoch == _MAX_INT32 else epoch + 1


def _topics(asked: Mapping[PartitionId, Asked]) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for (topic_id, _), one in asked.items():
        topic = topics.setdefault(topic_id, FetchTopic(topic=one.topic, topic_id=topic_id, partitions=[]))
        topic.partitions.append(one.partition)
    return list(topics.values())


def _forgotten(partitions: list[PartitionId]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in partitions:
        topic = topics.setdefault(topic_id, ForgottenTopic(topic="", topic_id=topic_id, partitions=[]))
        topic.partitions.append(index)
    return list(topics.values())
