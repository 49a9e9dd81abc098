"""The short way of a commit of offsets in one topic, versions 2 to 10.

What the commits of a consumer say before their partitions (group, generation, member, topic) is the same
again and again, so that part is looked up as bytes instead of being decoded; offsets and metadata are read
where they are. What comes of it is the command that the ordinary way in `apis/offsets.py` makes, and it goes
to the same coordinator. The answer has the bytes of the last one if it says the same. Whatever is unusual
(several topics, a topic or a partition that does not exist, unknown tags) takes the ordinary way, which alone
knows how to explain it.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as LayoutError
from typing import TYPE_CHECKING, Any

from odradek.apis.questions import read_question
from odradek.coordinator.commands import CommitOffsets, CommitOffsetsReply, OffsetToCommit
from odradek.wire.frames import response_parts
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.apis.api import ShortcutConnection
    from odradek.coordinator.cluster import ClusterView, TopicView

FIRST_VERSION, LAST_VERSION = 2, 10
FIRST_VERSION_WITHOUT_RETENTION = 5
FIRST_VERSION_WITH_EPOCHS = 6
FIRST_VERSION_WITH_INSTANCES = 7
FIRST_FLEXIBLE_VERSION = 8
FIRST_VERSION_WITH_IDS = 10
PARTITIONS_MAX = 100
"""More take the ordinary way: what is decoded there is little beside what is written for them."""
BEGINNING_BYTES_MAX = 512
KNOWN_MAX = 10_000
"""Beginnings that are remembered."""

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
    """What a request says before its partitions, as long as the cluster's view stays the same."""

    __slots__ = ("_frame", "_partitions", "request", "topic", "version", "view")

    def __init__(
        self, view: ClusterView, topic: TopicView, request: OffsetCommitRequest, version: int
    ) -> None:
        self.view = view
        self.topic = topic
        self.request = request
        """The first that began so, without its partitions."""
        self.version = version
        request.topics[0].partitions = []
        # Those of the last answer without errors, and its bytes.
        self._partitions: Sequence[int] | None = None
        self._frame = b""

    def command(self, offsets: list[OffsetToCommit], ticket: Any) -> CommitOffsets:
        request = self.request
        return CommitOffsets(
            ticket,
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            offsets,
            request.group_instance_id,
            request.retention_time_ms,
            self.version,
        )

    def answer(self, partitions: Sequence[int], reply: CommitOffsetsReply, correlation_id: int) -> bytes:
        has_errors = any(reply.errors)
        if has_errors or partitions != self._partitions:
            frame = self._answer(partitions, reply)
            if not has_errors:
                self._partitions, self._frame = partitions, frame
        else:
            frame = self._frame
        return frame[:4] + _pack_correlation_id(correlation_id) + frame[8:]

    def _answer(self, partitions: Sequence[int], reply: CommitOffsetsReply) -> bytes:
        answers = [
            OffsetCommitResponsePartition(partition_index=index, error_code=code)
            for index, code in zip(partitions, reply.errors, strict=True)
        ]
        asked = self.request.topics[0]
        topic = OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=answers)
        return b"".join(response_parts(OffsetCommitResponse(topics=[topic]), self.version, 0))


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

    `submit(group_id, command)` is that of the coordinator; `find_topic(view, name, topic_id, version)` gives
    the topic that a request names, or None.
    """

    __slots__ = ("_beginnings", "_current_view", "_find_topic", "_submit")

    def __init__(
        self,
        current_view: Callable[[], ClusterView],
        submit: Callable[[str, CommitOffsets], None],
        find_topic: Callable[[ClusterView, str, bytes, int], TopicView | None],
    ) -> None:
        self._current_view = current_view
        self._submit = submit
        self._find_topic = find_topic
        self._beginnings: dict[tuple[int, bytes], Beginning] = {}

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
            api_key != OffsetCommitRequest.api_key
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
            offsets = _read_offsets(view, position, end, count, version, beginning.topic)
        except _EXPECTED:
            return None
        if offsets is None:
            return None
        partitions = [one.partition for one in offsets]
        commit = Commit(connection, beginning, partitions, correlation_id, end)
        self._submit(beginning.request.group_id, beginning.command(offsets, commit))
        commit.is_lined_up = True
        return commit

    def _known(self, view: memoryview, start: int, position: int, end: int, version: int) -> Beginning | None:
        """What the bytes from `start` to `position` mean, at the front of a request that ends at `end`."""
        beginnings = self._beginnings
        key = version, bytes(view[start:position])
        known = beginnings.get(key)
        cluster = self._current_view()
        if known is None or known.view is not cluster:
            _, request = read_question(OffsetCommitRequest, version, bytes(view[start:end]))
            if request is None or len(request.topics) != 1:
                return None
            asked = request.topics[0]
            topic = self._find_topic(cluster, asked.name, asked.topic_id, version)
            if topic is None:
                return None
            known = Beginning(cluster, topic, request, version)
            if len(beginnings) >= KNOWN_MAX:
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
    view: memoryview, position: int, end: int, count: int, version: int, topic: TopicView
) -> list[OffsetToCommit] | None:
    """The partitions of a request, from `position` to its end; None if that is not all, or not all exist."""
    partition_count = len(topic.partitions)
    is_flexible, has_epochs = version >= FIRST_FLEXIBLE_VERSION, version >= FIRST_VERSION_WITH_EPOCHS
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
        offsets.append(OffsetToCommit(topic.name, index, offset, leader_epoch, metadata, -1, topic.topic_id))
    if is_flexible:
        # No tagged fields: of the topic, of the request.
        if view[position] or view[position + 1]:
            return None
        position += 2
    return offsets if position == end else None
