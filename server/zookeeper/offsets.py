"""Offsets of the oldest protocol: OffsetCommit 0 and OffsetFetch 0 write and read `/consumers/G/offsets`.

Consumers that keep their offsets in ZooKeeper by themselves use the same nodes, so a group may change from
one way to the other. Metadata are checked and not kept, as in Kafka. Without ZooKeeper the answer is an
error.

Source: KafkaApis.handleOffsetCommitRequest and handleOffsetFetchRequest of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.coordinator.groups import commands
from odradek.coordinator.zookeeper import nodes
from odradek.wire.errors import ErrorCode

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

    def submit(self, group_id: str, command: Any) -> None:
        """Of `commands`: CommitOffsets or FetchOffsets, whose ticket gets the reply on the event loop."""
        if not group_id or "/" in group_id or group_id in (".", ".."):
            command.ticket(command.refused(ErrorCode.INVALID_GROUP_ID))
        elif isinstance(command, commands.CommitOffsets):
            self._commit(command)
        else:
            assert isinstance(command, commands.FetchOffsets), command
            self._fetch(command)

    def _commit(self, command: commands.CommitOffsets) -> None:
        errors = [ErrorCode.UNKNOWN_SERVER_ERROR] * len(command.offsets)
        done = _Countdown(
            len(command.offsets), self._loop, lambda: command.ticket(commands.CommitOffsetsReply(errors))
        )
        for number, one in enumerate(command.offsets):

            def written(code: ErrorCode, number: int = number) -> None:
                errors[number] = code
                done()

            if len(one.metadata.encode()) > self._metadata_bytes_max:
                written(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            elif not self._session.is_connected:
                done()
            else:
                path = nodes.offset_path(command.group_id, one.topic, one.partition)
                self._write(path, str(one.offset).encode(), written)

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

    def _fetch(self, command: commands.FetchOffsets) -> None:
        wanted = command.partitions or []
        found = [commands.FetchedOffset(*one, NO_OFFSET, -1, "", UNKNOWN) for one in wanted]
        done = _Countdown(
            len(wanted),
            self._loop,
            lambda: command.ticket(commands.FetchOffsetsReply(ErrorCode.NONE, found)),
        )
        view = self._view()
        for number, (name, index) in enumerate(wanted):
            if view.partition(name, index) is None:
                done()
            elif not self._session.is_connected:
                found[number] = found[number]._replace(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
                done()
            else:
                self._read(command.group_id, found, number, done)

    def _read(
        self, group_id: str, found: list[commands.FetchedOffset], number: int, done: Callable[[], None]
    ) -> None:
        from kazoo.exceptions import NoNodeError

        def was_read(result: Any) -> None:
            one = found[number]
            if result.exception is None:
                try:
                    offset = nodes.read_offset(result.value[0] or b"")
                    found[number] = one._replace(offset=offset, error_code=ErrorCode.NONE)
                except ValueError:
                    found[number] = one._replace(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            elif not isinstance(result.exception, NoNodeError):
                found[number] = one._replace(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            done()

        path = nodes.offset_path(group_id, found[number].topic, found[number].partition)
        self._session.client.get_async(path).rawlink(was_read)


class _Countdown:
    """Called once for each part, in any thread; after the last one `then` runs on the event loop."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> None:
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
