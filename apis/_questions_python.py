"""Requests that follow one another in a receive buffer and are answered at once, in plain Python.

`_questions.pyx` is the compiled twin: the same names, arguments and results. Clients ask word for word the
same again and again (where does this log end, am I still a member, what is committed), so a request is looked
up as bytes, from its client id to its end. `apis/questions.py` says what is remembered of it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo

ANSWERS_MAX = 64
"""Questions that are answered together; what follows is the next call's."""
QUESTION_BYTES_MAX = 512

_frame_head = Layout(">ihhi").unpack_from
_FRAME_HEAD_BYTES = 12
_pack_correlation_id = Layout(">i").pack_into
_pack_found = Layout(">qqi").pack_into
_CORRELATION_ID_POSITION = 4


class Known:
    """What one question means, as long as the cluster's view stays the same, and from this host only if one
    is given.

    `look()` gives the answer, a whole frame with a correlation id of 0; or three numbers (int64, int64,
    int32) that go, one behind the other, to `found_at` of `frame`, which is such a frame. Where it gives None
    or refuses with KafkaError the ordinary way has to answer.
    """

    __slots__ = ("found_at", "frame", "host", "look", "view")

    def __init__(
        self,
        view: Any,
        look: Callable[[], bytes | tuple[int, int, int] | None],
        host: str | None = None,
        frame: bytes = b"",
        found_at: int = 0,
    ) -> None:
        self.view = view
        self.look = look
        self.host = host
        self.frame = frame
        self.found_at = found_at


class Answers:
    """The answers to questions that came one after the other, ready (see `apis.api.Shortcut`)."""

    __slots__ = ("count", "end", "parts", "size_bytes", "waiting")

    def __init__(self, end: int, answers: list[bytes | bytearray]) -> None:
        self.count = len(answers)
        self.end = end
        self.parts = (bytes(answers[0]) if len(answers) == 1 else b"".join(answers),)
        self.size_bytes = len(self.parts[0])
        self.waiting = None


class Questions:
    """Answers what it knows at the front of a receive buffer; a `apis.api.Shortcut`.

    For requests of one API in `versions`, of which up to `known_max` are remembered. `learn(version,
    question, connection)` gives a `Known`, or None for what the ordinary way has to answer.
    """

    __slots__ = ("_api_key", "_current_view", "_known", "_known_max", "_learn", "_versions")

    def __init__(
        self,
        api_key: int,
        versions: range,
        learn: Callable[[int, bytes, Any], Known | None],
        current_view: Callable[[], Any],
        known_max: int,
    ) -> None:
        self._api_key = api_key
        self._versions = versions
        self._learn = learn
        self._current_view = current_view
        self._known_max = known_max
        self._known: dict[int, dict[bytes, Known]] = {version: {} for version in versions}

    def __call__(
        self,
        view: memoryview,
        start: int,
        filled: int,
        frame_bytes_max: int,
        connection: ConnectionInfo,
        now_ms: int,
    ) -> Answers | None:
        cluster = self._current_view()
        answers: list[bytes | bytearray] = []
        while filled - start >= _FRAME_HEAD_BYTES and len(answers) < ANSWERS_MAX:
            length, api_key, version, correlation_id = _frame_head(view, start)
            end = start + 4 + length
            if (
                api_key != self._api_key
                or version not in self._versions
                or length > frame_bytes_max
                or end > filled
                or not 0 < end - start - _FRAME_HEAD_BYTES <= QUESTION_BYTES_MAX
            ):
                break
            known = self._find(version, bytes(view[start + _FRAME_HEAD_BYTES : end]), cluster, connection)
            if known is None:
                break
            try:
                found = known.look()
            except KafkaError:
                break  # the ordinary way says it
            if found is None:
                break
            if type(found) is bytes:
                answer = bytearray(found)
            else:
                answer = bytearray(known.frame)
                _pack_found(answer, known.found_at, *found)
            _pack_correlation_id(answer, _CORRELATION_ID_POSITION, correlation_id)
            answers.append(answer)
            start = end
        return Answers(start, answers) if answers else None

    def _find(self, version: int, question: bytes, cluster: Any, connection: Any) -> Known | None:
        questions = self._known[version]
        known = questions.get(question)
        if (
            known is None
            or known.view is not cluster
            or (known.host is not None and known.host != connection.peer_host)
        ):
            known = self._learn(version, question, connection)
            if known is None:
                return None
            if len(questions) >= self._known_max:
                questions.clear()
            questions[question] = known
        return known
