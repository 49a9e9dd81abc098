"""Requests that begin as earlier ones of their connection did, and are answered without being decoded again.

An API whose handler has a `prefix` takes part. The prefix says how far its requests repeat themselves, and
what to make of such a request when it comes for the first time: `learn` gets it decoded and gives what is
remembered on the connection. Later requests with the same bytes are served by that; only what follows the
repeated bytes is read.

Promise: whoever asks so hears what the handler would have said, at that moment and to the byte. What is
remembered is what a request says, not what is true. Whatever is unusual (a refusal, a wait, a shape that
nobody expected) goes to the handler, which alone explains and waits. What is remembered belongs to one
connection, so also to its principal, client id and address, and goes when the cluster's view changes.

`server/_pipeline.pyx` serves them; `wire/prefixes.py` finds where the repeated part ends.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from odradek.apis.turn import COMMITTED
from odradek.wire.frames import Template, response_parts
from odradek.wire.response_errors import errors_of

if TYPE_CHECKING:
    from odradek.wire.errors import KafkaError
    from odradek.wire.schema import Message

RESPONSE_BYTES_MAX = 1024
"""A longer response is not remembered."""


@dataclass(frozen=True, slots=True)
class Ask:
    """For a request that is repeated as a whole. `ask()` gives the response frame, with any correlation id;
    or the numbers (int64, int64, int32) for the template; or None where the handler has to answer.
    """

    ask: Callable[[], bytes | tuple[int, int, int] | None]
    template: Template | None = None


@dataclass(frozen=True, slots=True)
class AppendBatch:
    """For a request that brings one batch for a partition.

    `append(buffer, start, end, now_ms)` stages the batch, or gives None where the handler has to. The three
    numbers of the template (int64 each) are base offset, append time and start of the log. `refuse(error)` is
    the response where the commit failed. The handler takes the request while the partition is in `closed`,
    and also a transactional batch unless `is_transactional`: then the request has a transactional id.
    """

    partition: Any
    append: Callable[[memoryview, int, int, int], Any]
    template: Template
    refuse: Callable[[KafkaError], Message]
    closed: Container[Any]
    is_transactional: bool
    until: int = COMMITTED
    """What the response waits for beside the disk (`apis/turn.py`)."""


@dataclass(frozen=True, slots=True)
class Submit:
    """For a request that brings items for a coordinator.

    `submit(items, ticket)` hands them over; False where the handler has to. The coordinator calls
    `ticket(reply)` once, and `respond(items, reply)` gives the response: as frame with any correlation id
    where all went well, else as message. An item is `sample` with the values that were read at `places`, in
    the order in which they are read (`wire.prefixes.item_fields`); a null text is read as an empty one.
    """

    submit: Callable[[list[Any], Callable[[Any], None]], bool]
    respond: Callable[[list[Any], Any], bytes | Message]
    sample: tuple[Any, ...]
    """A tuple, of which the items have the class."""
    places: tuple[int, ...]


Remembered = Ask | AppendBatch | Submit
R = TypeVar("R", bound="Message")


@dataclass(frozen=True, slots=True)
class Prefix(Generic[R]):
    """How far the requests of an API repeat themselves, and what is remembered of one.

    `until` are the names of the fields that lead to the part that differs each time; none where the whole
    request is repeated. `learn(request, context)`, with the context of `apis/api.py`, gives None where the
    handler has to answer.
    """

    versions: range
    learn: Callable[[R, Any], Remembered | None]
    until: tuple[str, ...] = ()
    is_of_connection: bool = False
    """Whether a request means something else on another connection, to which it is to be learnt anew. What
    other connections may use is looked up instead, when the authorizer allows it to them."""


class RememberedResponse:
    """Asks `ask(command)` each time and gives the response frame; None where that gave None, or an error.

    `respond(reply)` makes the response message; it has to depend on nothing else that changes.
    """

    __slots__ = ("_ask", "_command", "_frame", "_reply", "_respond", "_version")

    def __init__(
        self,
        ask: Callable[[Any], Any],
        command: Any,
        respond: Callable[[Any], Message],
        version: int,
    ) -> None:
        self._ask = ask
        self._command = command
        self._respond = respond
        self._version = version
        self._reply: Any = None
        self._frame = b""

    def __call__(self) -> bytes | None:
        reply = self._ask(self._command)
        if reply is None:
            return None
        if reply is self._reply or reply == self._reply:
            return self._frame
        response = self._respond(reply)
        kind: Any = type(response)
        if errors_of(kind)(response):
            return None  # the handler's response counts among the errors
        frame = b"".join(response_parts(response, self._version, 0))
        if len(frame) <= RESPONSE_BYTES_MAX:
            self._reply, self._frame = reply, frame
        return frame
