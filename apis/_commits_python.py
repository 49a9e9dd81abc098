"""The hot part of the short way of commits (see `apis/offset_commit_shortcut.py`), in plain Python.

`_commits.pyx` is the compiled twin: the same names, arguments and results.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as LayoutError
from typing import TYPE_CHECKING, Any

from odradek.coordinator.commands import CommitOffsets, CommitOffsetsReply, OffsetToCommit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.apis.api import ShortcutConnection
    from odradek.wire.errors import ErrorCode

API_KEY = 8
FIRST_VERSION, LAST_VERSION = 2, 10
FIRST_VERSION_WITHOUT_RETENTION = 5
FIRST_VERSION_WITH_EPOCHS = 6
FIRST_VERSION_WITH_INSTANCES = 7
FIRST_FLEXIBLE_VERSION = 8
FIRST_VERSION_WITH_IDS = 10
PARTITIONS_MAX = 100
"""More take the ordinary way: what is decoded there is little beside what is written for them."""
BEGINNING_BYTES_MAX = 512

_frame_head = Layout(">ihhih").unpack_from
_FRAME_HEAD_BYTES = 14
_QUESTION_POSITION = 12
"""Where the client id is, with its length before it."""
_ONE = 2  # a compact array's length is written as length + 1
_count = Layout(">i").unpack_from
_length = Layout(">h").unpack_from
_place = Layout(">iq").unpack_from
_PLACE_BYTES = 12
_place_and_epoch = Layout(">iqi").unpack_from
_PLACE_AND_EPOCH_BYTES = 16
_pack_correlation_id = Layout(">i").pack
_EXPECTED = (IndexError, LayoutError, UnicodeDecodeError)
"""What reading raises where the bytes are no request that is known here."""


class Beginning:
    """What a request says before its partitions, as long as the cluster's view stays the same.

    The topic has the partitions from 0 to `partition_count`. `encode(partitions, errors)` gives the frame of
    an answer, with any correlation id.
    """

    __slots__ = (
        "_answered",
        "_encode",
        "_frame",
        "generation",
        "group_id",
        "group_instance_id",
        "member_id",
        "partition_count",
        "retention_time_ms",
        "topic",
        "topic_id",
        "version",
        "view",
    )

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
    ) -> None:
        self.view = view
        self.version = version
        self.group_id = group_id
        self.generation = generation
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.retention_time_ms = retention_time_ms
        self.topic = topic
        self.topic_id = topic_id
        self.partition_count = partition_count
        self._encode = encode
        # The partitions of the last answer without errors, and its bytes.
        self._answered: Sequence[int] | None = None
        self._frame = b""

    def answer(self, partitions: Sequence[int], reply: CommitOffsetsReply, correlation_id: int) -> bytes:
        has_errors = any(reply.errors)
        if has_errors or partitions != self._answered:
            frame = self._encode(partitions, reply.errors)
            if not has_errors:
                self._answered, self._frame = partitions, frame
        else:
            frame = self._frame
        return frame[:4] + _pack_correlation_id(correlation_id) + frame[8:]


class Commit:
    """One request under way, and its answer (see `apis.api.Shortcut`); the ticket of its command."""

    __slots__ = (
        "_beginning",
        "_connection",
        "_correlation_id",
        "_partitions",
        "end",
        "is_lined_up",
        "parts",
        "size_bytes",
    )

    count = 1
    waiting = None

    def __init__(
        self,
        connection: ShortcutConnection,
        beginning: Beginning,
        partitions: Sequence[int],
        correlation_id: int,
        end: int,
    ) -> None:
        self._connection = connection
        self._beginning = beginning
        self._partitions = partitions
        self._correlation_id = correlation_id
        self.end = end
        self.is_lined_up = False
        self.parts: tuple[bytes] | None = None
        self.size_bytes = 0

    def __call__(self, reply: CommitOffsetsReply) -> None:
        answer = self._beginning.answer(self._partitions, reply, self._correlation_id)
        self.parts = (answer,)
        self.size_bytes = len(answer)
        if self.is_lined_up:
            self._connection.answered(self)


class Commits:
    """Takes a commit at the front of a receive buffer; a `apis.api.Shortcut`.

    `submit(group_id, command)` is that of the coordinator. `learn(view, version, frame)` gives the
    `Beginning` of a whole frame, or None for what the ordinary way has to answer; up to `known_max` are
    remembered.
    """

    __slots__ = ("_current_view", "_known_max", "_learn", "_submit", "beginnings")

    def __init__(
        self,
        current_view: Callable[[], Any],
        submit: Callable[[str, CommitOffsets], None],
        learn: Callable[[Any, int, bytes], Beginning | None],
        known_max: int,
    ) -> None:
        self._current_view = current_view
        self._submit = submit
        self._learn = learn
        self._known_max = known_max
        self.beginnings: dict[tuple[int, bytes], Beginning] = {}

    def __call__(
        self,
        view: memoryview,
        start: int,
        filled: int,
        frame_bytes_max: int,
        connection: ShortcutConnection,
        now_ms: int,
    ) -> Commit | None:
        if filled - start < _FRAME_HEAD_BYTES:
            return None
        length, api_key, version, correlation_id, client_id_bytes = _frame_head(view, start)
        end = start + 4 + length
        if (
            api_key != API_KEY
            or not FIRST_VERSION <= version <= LAST_VERSION
            or length > frame_bytes_max
            or end > filled
        ):
            return None
        body = start + _FRAME_HEAD_BYTES + max(client_id_bytes, 0)
        try:
            if version >= FIRST_FLEXIBLE_VERSION:
                position, count = _skip_flexible_beginning(view, body, version)
            else:
                position, count = _skip_plain_beginning(view, body, version)
            question = start + _QUESTION_POSITION
            if not 0 < count <= PARTITIONS_MAX or position > end or position - question > BEGINNING_BYTES_MAX:
                return None
            beginning = self._known(view, question, position, end, version)
            if beginning is None:
                return None
            offsets = _read_offsets(view, position, end, count, beginning)
        except _EXPECTED:
            return None
        if offsets is None:
            return None
        partitions = [one.partition for one in offsets]
        commit = Commit(connection, beginning, partitions, correlation_id, end)
        command = CommitOffsets(
            commit,
            beginning.group_id,
            beginning.generation,
            beginning.member_id,
            offsets,
            beginning.group_instance_id,
            beginning.retention_time_ms,
            version,
        )
        self._submit(beginning.group_id, command)
        commit.is_lined_up = True
        return commit

    def _known(self, view: memoryview, start: int, position: int, end: int, version: int) -> Beginning | None:
        """What the bytes from `start` to `position` mean, in a request that ends at `end`."""
        beginnings = self.beginnings
        key = version, bytes(view[start:position])
        known = beginnings.get(key)
        cluster = self._current_view()
        if known is None or known.view is not cluster:
            known = self._learn(cluster, version, bytes(view[start:end]))
            if known is None:
                return None
            if len(beginnings) >= self._known_max:
                beginnings.clear()
            beginnings[key] = known
        return known


def _skip_flexible_beginning(view: memoryview, position: int, version: int) -> tuple[int, int]:
    """Where the first partition begins, and how many there are; no partition for anything unusual.

    Tagged fields of the header, group, generation, member, instance, number of topics, name or id, number.
    """
    if view[position]:
        return 0, 0
    position += 1
    group_bytes = view[position]
    position += group_bytes + 4
    member_bytes = view[position]
    position += member_bytes
    instance_bytes = view[position]
    position += instance_bytes or 1
    if view[position] != _ONE:
        return 0, 0
    position += 1
    name_bytes = 1
    if version >= FIRST_VERSION_WITH_IDS:
        position += 16
    else:
        name_bytes = view[position]
        position += name_bytes
    # Each is one more than it says, in a single byte.
    if (
        not group_bytes
        or not member_bytes
        or not name_bytes
        or (group_bytes | member_bytes | instance_bytes | name_bytes) >= 0x80
    ):
        return 0, 0
    count = view[position]
    return position + 1, count - 1 if count < 0x80 else 0


def _skip_plain_beginning(view: memoryview, position: int, version: int) -> tuple[int, int]:
    """As `_skip_flexible_beginning`, where lengths have two bytes and numbers four."""
    (group_bytes,) = _length(view, position)
    position += 2 + group_bytes + 4
    (member_bytes,) = _length(view, position)
    position += 2 + member_bytes
    if version >= FIRST_VERSION_WITH_INSTANCES:
        (instance_bytes,) = _length(view, position)
        if instance_bytes < -1:
            return 0, 0
        position += 2 + max(instance_bytes, 0)
    elif version < FIRST_VERSION_WITHOUT_RETENTION:
        position += 8
    (topics,) = _count(view, position)
    (name_bytes,) = _length(view, position + 4)
    if topics != 1 or group_bytes < 0 or member_bytes < 0 or name_bytes < 0:
        return 0, 0
    position += 6 + name_bytes
    return position + 4, _count(view, position)[0]


def _read_offsets(
    view: memoryview, position: int, end: int, count: int, beginning: Beginning
) -> list[OffsetToCommit] | None:
    """The partitions of a request, from `position` to its end; None if that is not all, or not all exist."""
    topic, topic_id, partition_count = beginning.topic, beginning.topic_id, beginning.partition_count
    is_flexible = beginning.version >= FIRST_FLEXIBLE_VERSION
    has_epochs = beginning.version >= FIRST_VERSION_WITH_EPOCHS
    offsets: list[OffsetToCommit] = []
    for _ in range(count):
        if has_epochs:
            index, offset, leader_epoch = _place_and_epoch(view, position)
            position += _PLACE_AND_EPOCH_BYTES
        else:
            index, offset = _place(view, position)
            leader_epoch = -1
            position += _PLACE_BYTES
        if not 0 <= index < partition_count:
            return None
        if is_flexible:
            text_bytes = view[position] - 1
            position += 1
            if text_bytes >= 0x7F:
                return None
        else:
            (text_bytes,) = _length(view, position)
            position += 2
            if text_bytes < -1:
                return None
        metadata = ""
        if text_bytes > 0:
            metadata = str(view[position : position + text_bytes], "utf-8")
            position += text_bytes
        if is_flexible:
            if view[position]:
                return None
            position += 1
        offsets.append(OffsetToCommit(topic, index, offset, leader_epoch, metadata, -1, topic_id))
    if is_flexible:
        # No tagged fields: of the topic, of the request.
        if view[position] or view[position + 1]:
            return None
        position += 2
    return offsets if position == end else None
