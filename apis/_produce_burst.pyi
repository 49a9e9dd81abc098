"""Produce requests that follow one another in a receive buffer, taken together."""

from collections.abc import Callable
from typing import Any

from odradek.apis.api import ShortcutConnection
from odradek.apis.turn import Turn
from odradek.storage.log.partition import Partition
from odradek.wire.errors import KafkaError

KNOWN_MAX: int
"""Beginnings that are remembered; timeouts are in them, so a client could make up any number."""

class ProducePrefix:
    """What one beginning of a request means, as long as the cluster's view stays the same.

    `frame` is the answer, with a correlation id of 0 and, from `offsets_at` on, three offsets of 0.
    `refuse(error, correlation_id)` makes the answer of a refusal. `has_id` says whether a transactional id is
    in it: only then the batch may be of a transaction.
    """

    def __init__(
        self,
        log: Partition,
        view: Any,
        frame: bytes,
        offsets_at: int,
        refuse: Callable[[KafkaError, int], bytes],
        has_id: bool,
    ) -> None: ...

class BurstPart:
    """What of a burst went to one partition: the turn calls it when that is committed, or has failed."""

    def __call__(self, error: KafkaError | None) -> None: ...

class Burst:
    """The answers to requests that came one after the other (see `apis.api.Shortcut`)."""

    @property
    def count(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def parts(self) -> tuple[bytes] | None: ...
    @property
    def size_bytes(self) -> int: ...
    waiting: Any

class Bursts:
    """Takes what is ordinary at the front of a receive buffer; a `apis.api.Shortcut`.

    Of what is for a partition in `gates` nothing is.
    """

    def __init__(
        self,
        learn: Callable[[int, bytes], ProducePrefix | None],
        current_view: Callable[[], Any],
        turn: Turn,
        gates: dict[Any, Any],
    ) -> None: ...
    def __call__(
        self,
        view: memoryview,
        start: int,
        filled: int,
        frame_bytes_max: int,
        connection: ShortcutConnection,
        now_ms: int,
    ) -> Burst | None: ...
