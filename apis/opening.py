"""Requests for many partitions that were not used since the start.

A partition's files are opened with its first request, which takes 0.25 ms. After a restart one request for a
thousand partitions would stop the event loop for all of them. So they are opened first, a few in each turn of
the event loop, and then the request is handled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from odradek.apis.api import Waiting, WorkResponse
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.leadership import Leadership
    from odradek.apis.turn import WorkQueue
    from odradek.wire.work import Work

OPENED_AT_ONCE_MAX = 16
"""Up to this number is opened within the request: 4 ms."""


def opened_first(
    leadership: Leadership,
    queue: WorkQueue,
    context: RequestContext,
    partitions: Iterable[tuple[str, int]],
    handle: Callable[[], Any],
) -> WorkResponse | None:
    """The later response of `handle()`, which runs when the request's partitions are open; None if they are
    open, or few enough to call it at once. Not for requests of `OPENED_AT_ONCE_MAX` partitions or fewer.
    """
    unopened = leadership.unopened(partitions)
    if len(unopened) <= OPENED_AT_ONCE_MAX:
        return None
    return _OpenedFirst(queue, _opening(leadership, unopened, handle), context)


class _OpenedFirst(WorkResponse):
    """Completes with the handler's response, after its wait if it is a `Waiting`."""

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
            pass  # the handler meets the same error and answers it
        yield None
    return handle()
