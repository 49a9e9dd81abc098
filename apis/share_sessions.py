"""The share sessions of a node (KIP-932): which partitions a member of a share group reads here.

A session belongs to a connection and ends with it: then the member gives back what it has acquired. It counts
its requests: 0 opens one, -1 ends it, and any other number has to be the one that follows.

Source: ShareSessionCache, ShareSession and SharePartitionManager.newContext of Kafka 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
PartitionId = tuple[bytes, int]
"""Id of the topic, and index."""


class ShareSession:
    """`connection` has opened it."""

    __slots__ = ("_quiet", "connection", "epoch", "group_id", "member_id", "partitions")

    def __init__(
        self, group_id: str, member_id: str, partitions: Iterable[PartitionId], connection: ConnectionInfo
    ) -> None:
        self.group_id, self.member_id = group_id, member_id
        self.connection = connection
        self.epoch = INITIAL_EPOCH + 1
        """Epoch of the next request."""
        self.partitions: dict[PartitionId, bool] = dict.fromkeys(partitions, False)
        """Whether a fetch has found the topic, in the order in which they are read."""
        self._quiet: set[PartitionId] = set(self.partitions)
        """Partitions whose last state the client knows: they are left out of responses without records."""

    def change(self, added: Iterable[PartitionId], forgotten: Iterable[PartitionId]) -> None:
        for one in added:
            self.partitions.setdefault(one, False)
        for one in forgotten:
            self.partitions.pop(one, None)
            self._quiet.discard(one)

    def is_news(self, partition: PartitionId, *, has_records: bool, error_code: int) -> bool:
        """Whether the response has to have the partition; it is told then."""
        was_quiet = partition in self._quiet
        if error_code:
            self._quiet.discard(partition)
            return True
        if partition in self.partitions:
            self._quiet.add(partition)
        return has_records or not was_quiet

    def serve_later(self, partition: PartitionId) -> None:
        """One that had records: the next requests look at others first."""
        if partition in self.partitions:
            self.partitions[partition] = self.partitions.pop(partition)


class ShareSessions:
    """`sessions_max` is `group.share.max.share.sessions`."""

    def __init__(self, sessions_max: int) -> None:
        self._max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of_group: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def partition_count(self) -> int:
        """Number of partitions in all sessions."""
        return sum(len(one.partitions) for one in self._sessions.values())

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def has_group(self, group_id: str) -> bool:
        """Whether any member of the group reads here."""
        return group_id in self._of_group

    def open(
        self, group_id: str, member_id: str, partitions: Iterable[PartitionId], connection: ConnectionInfo
    ) -> ShareSession:
        """A new one, in the place of the member's former one. SHARE_SESSION_LIMIT_REACHED."""
        self.remove(group_id, member_id)
        if len(self._sessions) >= self._max:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(group_id, member_id, partitions, connection)
        self._sessions[group_id, member_id] = session
        self._of_group[group_id] += 1
        return session

    def resume(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """For a request that is not the first one. The session waits for the next epoch then, or, at the
        final epoch, to be removed. SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH."""
        session = self.get(group_id, member_id)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def remove(self, group_id: str, member_id: str) -> ShareSession | None:
        session = self._sessions.pop((group_id, member_id), None)
        if session is not None:
            self._of_group[group_id] -= 1
            if not self._of_group[group_id]:
                del self._of_group[group_id]
        return session

    def of_connection(self, connection: ConnectionInfo) -> list[ShareSession]:
        return [one for one in self._sessions.values() if one.connection is connection]

    def clear(self) -> list[ShareSession]:
        """Removes all sessions, and returns them."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        self._of_group.clear()
        return sessions
