"""Questions for one offset that follow one another in a receive buffer, answered at once, in plain Python.

`_offsets_questions.pyx` is the compiled twin: the same names, arguments and results. Consumers and readers in
batches ask word for word the same again and again, so a request is looked up as bytes, from its client id to
its end, and its answer is a template with three numbers to fill in. `ListOffsets` (in `offsets_of_logs`) says
what a question means.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.apis.api import ShortcutConnection

LIST_OFFSETS_KEY = 2
FIRST_VERSION, LAST_VERSION = 4, 11
"""The versions whose answer has a leader epoch."""
ANSWERS_MAX = 64
"""Questions that are answered together; what follows is the next call's."""
QUESTION_BYTES_MAX = 256
KNOWN_MAX = 1000
"""Questions of each version that are remembered; with the bytes above a bound for what clients can make us
hold."""

_frame_head = Layout(">ihhi").unpack_from
_FRAME_HEAD_BYTES = 12
_pack_correlation_id = Layout(">i").pack_into
_pack_found = Layout(">qqi").pack_into
_CORRELATION_ID_POSITION = 4


class Known:
    """What one question means, as long as the cluster's view stays the same.

    `look()` gives timestamp, offset and leader epoch, or refuses with KafkaError; they go, one behind the
    other, to `found_at` of `frame`, which is the whole answer with a correlation id of 0.
    """

    __slots__ = ("found_at", "frame", "look", "view")

    def __init__(
        self, view: Any, frame: bytes, found_at: int, look: Callable[[], tuple[int, int, int]]
    ) -> None:
        self.view = view
        self.frame = frame
        self.found_at = found_at
        self.look = look


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

    `learn(version, question)` gives a `Known`, or None for what the ordinary way has to answer.
    """

    __slots__ = ("_current_view", "_known", "_learn")

    def __init__(self, learn: Callable[[int, bytes], Known | None], current_view: Callable[[], Any]) -> None:
        self._learn = learn
        self._current_view = current_view
        self._known: list[dict[bytes, Known]] = [{} for _ in range(LAST_VERSION + 1)]

    def __call__(
        self,
        view: memoryview,
        start: int,
        filled: int,
        frame_bytes_max: int,
        connection: ShortcutConnection,
        now_ms: int,
    ) -> Answers | None:
        cluster = self._current_view()
        answers: list[bytes | bytearray] = []
        while filled - start >= _FRAME_HEAD_BYTES and len(answers) < ANSWERS_MAX:
            length, api_key, version, correlation_id = _frame_head(view, start)
            end = start + 4 + length
            if (
                api_key != LIST_OFFSETS_KEY
                or not FIRST_VERSION <= version <= LAST_VERSION
                or length > frame_bytes_max
                or end > filled
                or not 0 < end - start - _FRAME_HEAD_BYTES <= QUESTION_BYTES_MAX
            ):
                break
            known = self._find(version, bytes(view[start + _FRAME_HEAD_BYTES : end]), cluster)
            if known is None:
                break
            try:
                found = known.look()
            except KafkaError:
                break  # the ordinary way says it
            answer = bytearray(known.frame)
            _pack_correlation_id(answer, _CORRELATION_ID_POSITION, correlation_id)
            _pack_found(answer, known.found_at, *found)
            answers.append(answer)
            start = end
        return Answers(start, answers) if answers else None

    def _find(self, version: int, question: bytes, cluster: Any) -> Known | None:
        questions = self._known[version]
        known = questions.get(question)
        if known is None or known.view is not cluster:
            known = self._learn(version, question)
            if known is None:
                return None
            if len(questions) >= KNOWN_MAX:
                questions.clear()
            questions[question] = known
        return known
