"""A line of the log for each request that changes something: who, from where, what, and the names of it.

Off by default, since its level is DEBUG: `--log-level odradek.audit=DEBUG`, or the same at run time. What is
refused as a whole by the authorizer does not get here; its own log tells that. Values are never told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from odradek.wire.schema import Struct

if TYPE_CHECKING:
    from odradek.apis.api import Handler, RequestContext

logger = logging.getLogger("odradek.audit")

UNTOLD = frozenset({"value", "error_message"})
NAMES_MAX = 20
NAME_LENGTH_MAX = 250


class Audited:
    """The handler of an API that changes something."""

    def __init__(self, handle: Handler) -> None:
        self._handle = handle

    def __call__(self, request: Any, context: RequestContext) -> Any:
        if logger.isEnabledFor(logging.DEBUG):
            _tell(request, context)
        return self._handle(request, context)


def _tell(request: Any, context: RequestContext) -> None:
    connection = context.connection
    told: list[str] = []
    more = 0
    for name in dict.fromkeys(_names(request)):
        if len(told) < NAMES_MAX:
            told.append(repr(name[:NAME_LENGTH_MAX]))
        else:
            more += 1
    logger.debug(
        "%s at %s:%d with %s %s: %s%s%s",
        connection.principal,
        connection.peer_host,
        connection.peer_port,
        connection.client_software_name,
        connection.client_software_version,
        type(request).__name__.removesuffix("Request"),
        f" of {', '.join(told)}" if told else "",
        f" and {more} more" if more else "",
    )


def _names(value: Any) -> Iterator[str]:
    """Texts of a request, but for values; in their order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _names(one)
    elif isinstance(value, Struct):
        for field in fields(value):
            if field.name not in UNTOLD:
                yield from _names(getattr(value, field.name))
