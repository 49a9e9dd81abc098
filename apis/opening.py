"""Requests for many partitions that nobody has asked for since the start.

A partition's files are looked at when it is first asked for, which takes a quarter of a millisecond. A
consumer of a thousand that comes back after a restart would stop everybody for as long as all of them take.
So they are opened first, a few in each turn of the event loop, and then the request is handled as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from odradek.apis.api import Waiting, WorkAnswer
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.leadership import Leadership
    from odradek.apis.turn import WorkQueue
    from odradek.wire.work import Work

OPENED_AT_ONCE_MAX = 16
"""So many are opened where they are asked for: 4 ms."""


def opened_first(
    leadership: Leadership,
    queue: WorkQueue,
    context: RequestContext,
    partitions: Iterable[tuple[str, int]],
    handle: Callable[[], Any],
) -> WorkAnswer | None:
    """The answer that `handle()` gives when the request's partitions are open; None when they are, or are so
    few that it may be called at once. Not to be asked for `OPENED_AT_ONCE_MAX` partitions or fewer.
    """
    unopened = leadership.unopened(partitions)
    if len(unopened) <= OPENED_AT_ONCE_MAX:
        return None
    return _OpenedFirst(queue, _opening(leadership, unopened, handle), context)


class _OpenedFirst(WorkAnswer):
    """Ends with the answer that the handler gives at last, which may have to be waited for."""

    __slots__ = ()

    def complete(self, response: Any) -> None:
        if not isinstance(response, Waiting):
            super().complete(response)
        elif self._settled:
            response.cancel()
        else:
            self._clean_up = response.cancel
            response.on_complete(super().complete)


def _opening(
    leadership: Leadership, unopened: Sequence[tuple[str, int]], handle: Callable[[], Any]
) -> Work[Any]:
    for topic, index in unopened:
        try:
            leadership.lead(topic, index)
        except KafkaError:
            pass  # the handler will meet it, too, and knows how to tell it
        yield None
    return handle()
