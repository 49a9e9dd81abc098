"""Requests that follow one another in a receive buffer and are answered at once."""

from collections.abc import Callable
from typing import Any

from odradek.apis.api import ConnectionInfo

QUESTION_BYTES_MAX: int

class CachedQuery:
    """What one question means, as long as the cluster's view stays the same, and from this host only if one
    is given.

    `look()` gives the answer, a whole frame with a correlation id of 0; or three numbers (int64, int64,
    int32) that go, one behind the other, to `found_at` of `frame`, which is such a frame. Where it gives None
    or refuses with KafkaError the ordinary way has to answer.
    """

    def __init__(
        self,
        view: Any,
        look: Callable[[], bytes | tuple[int, int, int] | None],
        host: str | None = None,
        frame: bytes = b"",
        found_at: int = 0,
    ) -> None: ...

class Answers:
    """The answers to questions that came one after the other, ready (see `apis.api.Shortcut`)."""

    @property
    def count(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def parts(self) -> tuple[bytes]: ...
    @property
    def size_bytes(self) -> int: ...
    waiting: Any

class Questions:
    """Answers what it knows at the front of a receive buffer; a `apis.api.Shortcut`.

    For requests of one API in `versions`, of which up to `known_max` are remembered. `learn(version,
    question, connection)` gives a `CachedQuery`, or None for what the ordinary way has to answer.
    """

    def __init__(
        self,
        api_key: int,
        versions: range,
        learn: Callable[[int, bytes, Any], CachedQuery | None],
        current_view: Callable[[], Any],
        known_max: int,
    ) -> None: ...
    def __call__(
        self,
        view: memoryview,
        start: int,
        filled: int,
        frame_bytes_max: int,
        connection: ConnectionInfo,
        now_ms: int,
    ) -> Answers | None: ...
