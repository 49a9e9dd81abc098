"""The hot part of the short way of commits; see `offset_commit_shortcut.py`."""

from collections.abc import Callable, Sequence
from typing import Any

from odradek.apis.api import ShortcutConnection
from odradek.coordinator.groups.commands import CommitOffsets, CommitOffsetsReply
from odradek.wire.errors import ErrorCode

class Beginning:
    """What a request says before its partitions, as long as the cluster's view stays the same.

    The topic has the partitions from 0 to `partition_count`. `encode(partitions, errors)` gives the frame of
    an answer, with any correlation id.
    """

    def __init__(
        self,
        view: Any,
        version: int,
        group_id: str,
        generation: int,
        member_id: str,
        group_instance_id: str | None,
        retention_time_ms: int,
        topic: str,
        topic_id: bytes,
        partition_count: int,
        encode: Callable[[Sequence[int], Sequence[ErrorCode]], bytes],
    ) -> None: ...

class Commit:
    """One request under way, and its answer (see `apis.api.Shortcut`); the ticket of its command."""

    @property
    def count(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def parts(self) -> tuple[bytes] | None: ...
    @property
    def size_bytes(self) -> int: ...
    waiting: Any
    def __call__(self, reply: CommitOffsetsReply) -> None: ...

class Commits:
    """Takes a commit at the front of a receive buffer; a `apis.api.Shortcut`.

    `submit(group_id, command)` is that of the coordinator. `learn(view, version, frame)` gives the
    `Beginning` of a whole frame, or None for what the ordinary way has to answer; up to `known_max` are
    remembered.
    """

    @property
    def beginnings(self) -> dict[tuple[int, bytes], Beginning]: ...
    def __init__(
        self,
        current_view: Callable[[], Any],
        submit: Callable[[str, CommitOffsets], None],
        learn: Callable[[Any, int, bytes], Beginning | None],
        known_max: int,
    ) -> None: ...
    def __call__(
        self,
        view: memoryview,
        start: int,
        filled: int,
        frame_bytes_max: int,
        connection: ShortcutConnection,
        now_ms: int,
    ) -> Commit | None: ...
