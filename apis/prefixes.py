"""Requests that begin like earlier ones of their connection, and are answered without decoding.

An API whose handler has a `prefix` takes part. The prefix declares which part of its requests is repeated.
For the first such request, `learn` gets the decoded request and returns an object that the connection
remembers. Later requests with the same bytes are served by this object; only the bytes after the prefix are
read.

Promise: the response has the same bytes as the handler's at the same moment. Only the meaning of a request is
remembered, never a result. Every unusual case (a refusal, a wait, an unexpected form) goes to the handler,
which alone refuses and waits.

Each connection has a table of the prefixes that it may use. A connection that sends the bytes of another one
gets the same object, if the authorizer allows its own principal the resources; unless the meaning depends on
the connection (`is_of_connection`). All tables are dropped when the cluster's view changes.

Six APIs have one, since each saves more than 3 % of a case that users have. Processor time of the broker for
a request, beside the handler alone (paired, 2026-11-29): Produce of a record 0.41; OffsetCommit of a client
that commits each record 0.66; Heartbeat 0.55 and ConsumerGroupHeartbeat 0.48, which is 20 % of a core with
ten thousand members; ListOffsets 0.43, of which Spark sends two for every 500 records: 70 us of 490.
OffsetFetch of a tool that watches the same partitions has 2.8 times the rate with one.

`server/network/requests.pxi` serves them; `wire/prefixes.py` finds where the repeated part ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from odradek.apis.turn import COMMITTED, Until
from odradek.wire.frames import Template, response_parts
from odradek.wire.response_errors import errors_of

if TYPE_CHECKING:
    from odradek.wire.errors import KafkaError
    from odradek.wire.schema import Message

RESPONSE_BYTES_MAX = 1024
"""Longer responses are not remembered."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ask:
    """For a request that is repeated as a whole. `ask()` returns the response frame, with any correlation id;
    or the numbers (int64, int64, int32) for the template; or None if the handler has to answer.
    """

    ask: Callable[[], bytes | tuple[int, int, int] | None]
    template: Template | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AppendBatch:
    """For a request that brings one batch for a partition.

    `append(buffer, start, end, now_ms)` stages the batch, or returns None if the handler has to. The three
    numbers of the template (int64 each) are base offset, append time and log start offset. `refuse(error)` is
    the response if the commit failed. The handler takes the request while the partition is in `closed`, and
    also a transactional batch unless `is_transactional`: then the request has a transactional id.
    """

    partition: Any
    append: Callable[[memoryview, int, int, int], Any]
    template: Template
    refuse: Callable[[KafkaError], Message]
    closed: dict[Any, Any]
    is_transactional: bool
    until: Until = COMMITTED
    """Further conditions of the response, beside the commit (`apis/turn.py`)."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Submit:
    """For a request that brings items for a coordinator.

    `submit(items, ticket)` sends them to the coordinator; False if the handler has to. `ticket(response)` is
    called once, and `respond(items, response)` makes the response: without an error a frame with any
    correlation id, else a message. An item is `sample` with the values read for `places`, in the order of
    reading (`wire.prefixes.item_fields`); a null string is read as an empty one.
    """

    submit: Callable[[list[Any], Callable[[Any], None]], bool]
    respond: Callable[[list[Any], Any], bytes | Message]
    sample: tuple[Any, ...]
    """A tuple, whose class the items have."""
    places: tuple[int, ...]


Remembered = Ask | AppendBatch | Submit
R = TypeVar("R", bound="Message")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prefix(Generic[R]):
    """The repeated part of an API's requests, and how one is remembered.

    `until` are the names of the fields that lead to the part that differs each time; empty if the whole
    request is repeated. `learn(request, context)`, with the context of `apis/api.py`, returns None if the
    handler has to answer.
    """

    versions: range
    learn: Callable[[R, Any], Remembered | None]
    until: tuple[str, ...] = ()
    is_of_connection: bool = False
    """Whether the meaning of a request depends on the connection. If not, other connections may use it after
    the authorizer has allowed the request to them."""


class RememberedResponse:
    """Calls `ask()` each time. Returns the frame of its response; None if there is none, or an error in it.

    The response of `ask` is not changed. `respond` makes another message of it, if the client gets another;
    it depends on nothing else that changes.
    """

    __slots__ = ("_ask", "_frame", "_respond", "_response", "_version")

    def __init__(
        self, ask: Callable[[], Any], version: int, respond: Callable[[Any], Message] | None = None
    ) -> None:
        self._ask = ask
        self._respond = respond
        self._version = version
        self._response: Any = None
        self._frame = b""

    def __call__(self) -> bytes | None:
        response = self._ask()
        if response is None:
            return None
        if response is self._response or response == self._response:
            return self._frame
        message = response if self._respond is None else self._respond(response)
        kind: Any = type(message)
        if errors_of(kind)(message):
            return None  # the handler's response is counted as an error
        frame = b"".join(response_parts(message, self._version, 0))
        if len(frame) <= RESPONSE_BYTES_MAX:
            self._response, self._frame = response, frame
        return frame
