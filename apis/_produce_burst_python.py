"""Produce requests that follow one another in a receive buffer, taken together, in plain Python.

`_produce_burst.pyx` is the compiled twin: the same names, arguments and results. See `produce_shortcut` for
what a request has to be to be taken.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.apis.api import ShortcutConnection
    from odradek.apis.turn import Turn
    from odradek.storage.partition import Appended, Partition
    from odradek.wire.errors import KafkaError

BURST_MAX = 64
"""Requests in one burst: their answers are sent together."""
FIRST_VERSION, LAST_VERSION = 9, 13
FIRST_VERSION_WITH_IDS = 13
KNOWN_MAX = 10_000
"""Beginnings that are remembered; timeouts are in them, so a client could make up any number."""

_frame_head = Layout(">iIih").unpack_from
_FRAME_HEAD_BYTES = 14
_ONE = 2  # a compact array's length is written as length + 1
_NAME_POSITION = 9
_BATCH_BYTES_MIN = 61
_ATTRIBUTES_POSITION = 22
_TRANSACTIONAL = 0x10
_TAGS_BYTES = 3  # no tagged fields: of the partition, of the topic, of the request
_pack_correlation_id = Layout(">i").pack_into
_pack_offsets = Layout(">qqq").pack_into
_CORRELATION_ID_POSITION = 4


class Known:
    """What one beginning of a request means, as long as the cluster's view stays the same.

    `frame` is the answer, with a correlation id of 0 and, from `offsets_at` on, three offsets of 0.
    `refuse(error, correlation_id)` makes the answer of a refusal. `has_id` says whether a transactional id is
    in it: only then the batch may be of a transaction.
    """

    __slots__ = ("frame", "has_id", "log", "offsets_at", "part", "refuse", "view")

    def __init__(
        self,
        log: Partition,
        view: Any,
        frame: bytes,
        offsets_at: int,
        refuse: Callable[[KafkaError, int], bytes],
        has_id: bool,
    ) -> None:
        self.log = log
        self.has_id = has_id
        self.view = view
        self.frame = frame
        self.offsets_at = offsets_at
        self.refuse = refuse
        self.part: BurstPart | None = None
        """The newest part of a burst that is for this partition and not committed yet."""


class BurstPart:
    """What of a burst went to one partition: the turn calls it when that is committed, or has failed."""

    __slots__ = ("burst", "error", "known", "must_flush")

    def __init__(self, burst: Burst, known: Known, must_flush: bool) -> None:
        self.burst = burst
        self.known = known
        self.must_flush = must_flush
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None) -> None:
        self.error = error
        if self.known.part is self:
            self.known.part = None
        self.burst._part_is_done()


class Burst:
    """The answers to requests that came one after the other (see `apis.api.Shortcut`)."""

    __slots__ = ("_connection", "_entries", "_pending", "count", "end", "parts", "size_bytes", "waiting")

    def __init__(self, connection: ShortcutConnection) -> None:
        self._connection = connection
        self._entries: list[tuple[BurstPart, int, Appended]] = []
        self._pending = 0
        self.count = 0
        self.end = 0
        self.parts: Any = None
        self.size_bytes = 0
        self.waiting = None

    def _part_is_done(self) -> None:
        self._pending -= 1
        if self._pending:
            return
        answers: list[bytes | bytearray] = []
        for part, correlation_id, appended in self._entries:
            known = part.known
            if part.error is not None:
                answers.append(known.refuse(part.error, correlation_id))
                continue
            frame = bytearray(known.frame)
            _pack_correlation_id(frame, _CORRELATION_ID_POSITION, correlation_id)
            _pack_offsets(
                frame,
                known.offsets_at,
                appended.base_offset,
                appended.log_append_time_ms,
                appended.log_start_offset,
            )
            answers.append(frame)
        self._entries = []
        self.parts = (b"".join(answers),)
        self.size_bytes = len(self.parts[0])
        self._connection.answered(self)


class Bursts:
    """Takes what is ordinary at the front of a receive buffer; a `apis.api.Shortcut`.

    Of what is for a partition in `gates` nothing is.
    """

    __slots__ = ("_add", "_current_view", "_gates", "_known", "_learn")

    def __init__(
        self,
        learn: Callable[[int, bytes], Known | None],
        current_view: Callable[[], Any],
        turn: Turn,
        gates: dict[Any, Any],
    ) -> None:
        self._learn = learn
        self._current_view = current_view
        self._add = turn.add
        self._gates = gates
        self._known: list[dict[bytes, Known]] = [{} for _ in range(LAST_VERSION + 1)]

    def __call__(
        self,
        view: memoryview,
        start: int,
        filled: int,
        frame_bytes_max: int,
        connection: ShortcutConnection,
        now_ms: int,
    ) -> Burst | None:
        burst = None
        cluster = self._current_view()
        while filled - start >= _FRAME_HEAD_BYTES:
            length, key_and_version, correlation_id, client_id_bytes = _frame_head(view, start)
            end = start + 4 + length
            if (
                not FIRST_VERSION <= key_and_version <= LAST_VERSION
                or length > frame_bytes_max
                or end > filled
            ):
                break
            body = start + _FRAME_HEAD_BYTES + max(client_id_bytes, 0)
            found = self._find(view, body, end, key_and_version, cluster)
            if found is None:
                break
            known, batch_start, batch_end = found
            if self._gates and known.log in self._gates:
                break
            if view[batch_start + _ATTRIBUTES_POSITION] & _TRANSACTIONAL and not known.has_id:
                break
            appended = known.log.append_ordinary(view, batch_start, batch_end, now_ms)
            if appended is None:
                break
            if burst is None:
                burst = Burst(connection)
            part = known.part
            if part is None or part.burst is not burst or part.must_flush is not appended.must_flush:
                part = known.part = BurstPart(burst, known, appended.must_flush)
                burst._pending += 1
                self._add(known.log, part, part.must_flush)
            burst._entries.append((part, correlation_id, appended))
            burst.count += 1
            burst.end = start = end
            if burst.count == BURST_MAX:
                break
        return burst

    def _find(
        self, view: memoryview, body: int, end: int, version: int, cluster: Any
    ) -> tuple[Known, int, int] | None:
        """What the request's beginning means, and where its batch is; None if it is anything unusual."""
        # Tagged fields of the header, transactional id, acks (2), timeout (4), number of topics, name or id.
        if end - body < _BATCH_BYTES_MIN or view[body]:
            return None
        # The length of the id and one; 0 where there is none, and an empty one is nothing for us.
        id_bytes = view[body + 1]
        if id_bytes:
            if id_bytes == 1 or id_bytes >= 0x80:
                return None
            id_bytes -= 1
        fields = body + id_bytes
        if end - fields < _BATCH_BYTES_MIN or view[fields + 8] != _ONE:
            return None
        if version >= FIRST_VERSION_WITH_IDS:
            position = fields + 30
        else:
            name_bytes = view[fields + _NAME_POSITION]
            position = fields + 14 + name_bytes
            if name_bytes >= 0x80:
                return None
        if end - position < _BATCH_BYTES_MIN:
            return None
        size = shift = 0
        batch_start = position
        while True:
            byte = view[batch_start]
            batch_start += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                return None
        batch_end = batch_start + size - 1
        if (
            size <= _BATCH_BYTES_MIN
            or batch_end + _TAGS_BYTES != end
            or view[batch_end] | view[batch_end + 1] | view[batch_end + 2]
        ):
            return None
        known_beginnings = self._known[version]
        beginning = bytes(view[body:position])
        known = known_beginnings.get(beginning)
        if known is None or known.view is not cluster:
            known = self._learn(version, beginning)
            if known is None:
                return None
            if len(known_beginnings) >= KNOWN_MAX:
                known_beginnings.clear()
            known_beginnings[beginning] = known
        return known, batch_start, batch_end
