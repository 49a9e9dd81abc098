"""Requests that are word for word the same again and again: looked up as bytes, and answered at once.

Promise: whoever asks so hears what the ordinary way would have said, at that moment and to the byte. What is
remembered of a request is what it says, decoded. What is true is asked each time, of the very function that
answers it on the ordinary way; an answer that is equal to the last one has its bytes already. Whatever that
function cannot say at once takes the ordinary way, which alone knows how to wait, to write and to explain.

The hot part is the compiled `_questions`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.apis._questions import CachedQuery, Questions
from odradek.wire.codec import decoder
from odradek.wire.errors import MalformedMessage
from odradek.wire.frames import RequestHeader, read_request_header, response_parts

if TYPE_CHECKING:
    from odradek.wire.schema import Message

__all__ = [
    "ANSWER_BYTES_MAX",
    "FEW_KNOWN_MAX",
    "MANY_KNOWN_MAX",
    "CachedQuery",
    "Questions",
    "RememberedAnswer",
    "always",
    "read_question",
]

FEW_KNOWN_MAX = 1_000
"""Questions of each version that are remembered where their askers are few or what they name is long; with
the bytes of a question and of its answer a bound for what clients can make us hold."""
MANY_KNOWN_MAX = 20_000
"""Those of members, of which there may be many: about a kilobyte each."""
ANSWER_BYTES_MAX = 1024
"""A longer answer is not remembered."""

_request_head = Layout(">hhi").pack

R = TypeVar("R", bound="Message")


def read_question(
    request: type[R], version: int, question: bytes
) -> tuple[RequestHeader, R] | tuple[None, None]:
    """A request of which these are the bytes from its client id on; (None, None) if that is none."""
    frame = _request_head(request.api_key, version, 0) + question
    try:
        header, position = read_request_header(frame, 0)
        return header, decoder(request, version)(memoryview(frame), position)[0]
    except MalformedMessage:
        return None, None


def always() -> None:
    """The view for questions whose meaning does not depend on it."""


class RememberedAnswer:
    """Asks `ask(command)` each time and gives the answer's frame, or None where that gave None.

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
        frame = b"".join(response_parts(self._respond(reply), self._version, 0))
        if len(frame) <= ANSWER_BYTES_MAX:
            self._reply, self._frame = reply, frame
        return frame
