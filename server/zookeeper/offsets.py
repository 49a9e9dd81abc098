"""Offsets of the oldest protocol: OffsetCommit 0 and OffsetFetch 0 write and read `/consumers/G/offsets`.

Consumers that keep their offsets in ZooKeeper by themselves use the same nodes, so a group may change from
one way to the other. Metadata are checked and not kept, as in Kafka. Without ZooKeeper the response is an
error.

Source: KafkaApis.handleOffsetCommitRequest and handleOffsetFetchRequest of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.coordinator.asked import Asked, Ticket
from odradek.coordinator.zookeeper import nodes
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.server.zookeeper.session import Session

NO_OFFSET = -1
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class GroupsInZooKeeper:
    """Takes the place of the coordinator for those two requests. `view` gives the newest view."""

    def __init__(
        self,
        session: Session,
        loop: asyncio.AbstractEventLoop,
        view: Callable[[], ClusterView],
        metadata_bytes_max: int,
    ) -> None:
        self._session = session
        self._loop = loop
        self._view = view
        self._metadata_bytes_max = metadata_bytes_max

    def submit(self, group_id: str, asked: Asked[Any, Any]) -> None:
        """An OffsetCommitRequest, or an OffsetFetchRequest with one group and its topics. The ticket gets the
        response on the event loop."""
        if not group_id or "/" in group_id or group_id in (".", ".."):
            asked.ticket.take(asked.ticket.refused(ErrorCode.INVALID_GROUP_ID))
        elif isinstance(asked.request, OffsetCommitRequest):
            self._commit(asked.request, asked.ticket)
        else:
            self._fetch(asked.request.groups[0], asked.ticket)

    def _commit(self, request: OffsetCommitRequest, ticket: Ticket[OffsetCommitResponse]) -> None:
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=ErrorCode.UNKNOWN_SERVER_ERROR
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        wanted = [(topic.name, one) for topic in request.topics for one in topic.partitions]
        results = [result for topic in topics for result in topic.partitions]
        done = _Countdown(len(wanted), self._loop, lambda: ticket.take(OffsetCommitResponse(topics=topics)))
        for (name, one), result in zip(wanted, results, strict=True):

            def written(code: ErrorCode, result: OffsetCommitResponsePartition = result) -> None:
                result.error_code = code
                done()

            if len((one.committed_metadata or "").encode()) > self._metadata_bytes_max:
                written(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            elif not self._session.is_connected:
                done()
            else:
                path = nodes.offset_path(request.group_id, name, one.partition_index)
                self._write(path, str(one.committed_offset).encode(), written)

    def _write(self, path: str, content: bytes, written: Callable[[ErrorCode], None]) -> None:
        from kazoo.exceptions import NoNodeError

        client = self._session.client

        def was_set(result: Any) -> None:
            if isinstance(result.exception, NoNodeError):
                client.create_async(path, content, acl=self._session.access(path), makepath=True).rawlink(
                    was_created
                )
            else:
                was_created(result)

        def was_created(result: Any) -> None:
            written(ErrorCode.NONE if result.exception is None else ErrorCode.UNKNOWN_SERVER_ERROR)

        client.set_async(path, content).rawlink(was_set)

    def _fetch(self, wanted: OffsetFetchRequestGroup, ticket: Ticket[OffsetFetchResponse]) -> None:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=UNKNOWN
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in wanted.topics or ()
        ]
        group = OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics, error_code=ErrorCode.NONE)
        results = [(topic.name, result) for topic in topics for result in topic.partitions]
        done = _Countdown(len(results), self._loop, lambda: ticket.take(OffsetFetchResponse(groups=[group])))
        view = self._view()
        for name, result in results:
            if view.partition(name, result.partition_index) is None:
                done()
            elif not self._session.is_connected:
                result.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
                done()
            else:
                self._read(nodes.offset_path(wanted.group_id, name, result.partition_index), result, done)

    def _read(self, path: str, result: OffsetFetchResponsePartitions, done: Callable[[], None]) -> None:
        from kazoo.exceptions import NoNodeError

        def was_read(found: Any) -> None:
            if found.exception is None:
                try:
                    result.committed_offset = nodes.read_offset(found.value[0] or b"")
                    result.error_code = ErrorCode.NONE
                except ValueError:
                    result.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            elif not isinstance(found.exception, NoNodeError):
                result.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            done()

        self._session.client.get_async(path).rawlink(was_read)


class _Countdown:
    """Called once for each part, in any thread; after the last one `then` runs on the event loop."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop, then: Callable[[], object]) -> None:
        self._left = [None] * count
        self._loop = loop
        self._then = then
        if not count:
            then()

    def __call__(self) -> None:
        # Two threads may both find it empty: the second call of `_finish` does nothing.
        self._left.pop()
        if not self._left:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        then, self._then = self._then, lambda: None
        then()
