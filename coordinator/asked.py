"""A client's request on its way to a state machine, and the place where its response goes.

A request is the message of the wire, and so is its response: nothing between says them a second time. A
machine reads the request while it handles it and keeps neither it nor its parts, since messages are mutable.
It may keep the ticket, until the response is there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.wire.errors import ErrorCode

Request = TypeVar("Request")
Response = TypeVar("Response")


class Client(NamedTuple):
    """The sender of a request, as coordinators see it."""

    client_id: str
    host: str
    """Address as tools show it: Java's text of an address begins with a slash."""
    version: int
    """Version of the API."""
    hidden_names: Callable[[Collection[str]], Collection[str]] | None = None
    """Tells which topics the client may not describe. None for a client that may describe all, and for a
    request that searches for no topics."""


class Ticket(Generic[Response]):
    """`take` is called with the response, once. `refused(code)` makes the response that refuses all that was
    asked."""

    __slots__ = ("refused", "take")

    def __init__(self, take: Callable[[Response], object], refused: Callable[[ErrorCode], Response]) -> None:
        self.take = take
        self.refused = refused


NOBODY: Ticket[ErrorCode] = Ticket(lambda code: None, lambda code: code)
"""The ticket of a command of the broker's own, whose response is an error code that nobody needs."""


@dataclass(slots=True, eq=False, repr=False)
class Asked(Generic[Request, Response]):
    """The only command that a client can cause. A machine handles it by the class of its request."""

    request: Request
    client: Client
    ticket: Ticket[Response]
    granted: Response | None = None
    """The response if nothing is refused, where whoever asks has it from an earlier request. It is not
    changed."""
    told: Any = None
    """For a machine: the state of which `granted` tells, if this is asked again and again."""


def kind_of(command: Any) -> type:
    """The class by which a machine finds the handler of a command: of the request that a client asks, or of
    the command itself."""
    kind: type = command.request.__class__ if command.__class__ is Asked else command.__class__
    return kind
