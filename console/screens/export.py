"""Records that a filter finds, as a file: `/topics/NAME/export?kind=jsonl&count=1000`, with the fields of a
search.

The file is made while it is sent. It is as long as its bounds allow; one that fails on the way is cut off, so
that no browser takes it for whole.
"""

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable

from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.console.access import Access
from odradek.console.contents import decoders_of
from odradek.console.exporting import BYTES_MAX, RECORDS_MAX, Bound, Export, head_of, lines_of
from odradek.console.filters import chooser
from odradek.console.memory import HOLD, Hold
from odradek.console.screens.message import attachment
from odradek.console.screens.messages import FIELDS, bounds_of
from odradek.console.visit import Screen, Visit

_log = logging.getLogger("odradek.console")
EXPORT_S_MAX = 15 * 60.0
COUNT_DEFAULT = 10_000


async def show(visit: Visit) -> Response:
    """The file."""
    topic, kind = visit.segment("topic"), visit.text("kind", "jsonl")
    query = {name: visit.text(name) for name in FIELDS}
    form = query["as"] if query["as"] not in ("", "auto") else ""
    decoders = decoders_of(form, visit.settings.schemas) if form or kind == "csv" else None
    lines, chooses = lines_of(kind, topic, decoders), chooser(query)
    bound = Bound(visit.whole("count", COUNT_DEFAULT, 1, RECORDS_MAX), BYTES_MAX)
    access = visit.session.access
    assert access is not None
    if not visit.shared.tails.take():
        raise ClientError("so many tails and files are under way that one more would be slow: wait for one")
    try:
        reading = _Reading(access, visit)
    except ClientError:
        visit.shared.tails.give_back()
        raise
    try:
        bounds = await visit.ask(lambda cluster: bounds_of(cluster, topic, query, visit.now_ms))

        def begin(cluster: Cluster) -> Export:
            return Export(
                cluster,
                topic,
                bounds,
                chooses=chooses,
                lines=lines,
                bound=bound,
                read_committed=query["uncommitted"] != "1",
            )

        first = await reading.begin(begin)
    except BaseException:
        reading.close()
        raise
    media_type = "text/csv; charset=utf-8" if kind == "csv" else "application/jsonl"
    return _File(
        reading.pieces(head_of(kind), first), media_type=media_type, headers=attachment(f"{topic}.{kind}")
    )


class _File(StreamingResponse):
    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except ClientError as error:
            # Without the end of the response the browser says that the download failed.
            _log.warning("A file was cut off: %s", error)


class _Reading:
    """An export with its place among the tails and its connections, which are given back once."""

    def __init__(self, access: Access, visit: Visit) -> None:
        self._visit = visit
        self._hold: Hold = visit.request.scope[HOLD]
        self._access = access
        self._cluster = access.own_cluster()
        self._export: Export | None = None
        self._lock, self._is_over = threading.Lock(), False

    async def begin(self, make: Callable[[Cluster], Export]) -> bytes | None:
        """The first lines: what is wrong with the request is told before the file begins."""
        self._export = make(self._cluster)
        return await self._visit.shared.tail_workers.run(self._step)

    def _step(self) -> bytes | None:
        assert self._export is not None
        with self._lock:
            if self._is_over:
                return None
            try:
                with self._hold.used():
                    return self._export.step()
            finally:
                if self._is_over:
                    self._cluster.close()

    async def pieces(self, head: bytes, first: bytes | None) -> AsyncIterator[bytes]:
        """The file. A ClientError on the way ends the connection without the end of the response."""
        ends, piece = time.monotonic() + EXPORT_S_MAX, first
        try:
            yield head
            while piece is not None:
                if piece:
                    yield piece
                if time.monotonic() > ends or self._access.is_closed or self._visit.shared.tails.is_over:
                    raise ClientError("the file took too long, or the session is over")
                piece = await self._visit.shared.tail_workers.run(self._step)
        finally:
            self.close()

    def close(self) -> None:
        """Closes the connections, now or in the thread that uses them, and gives the place back."""
        if self._is_over:
            return
        self._is_over = True
        self._visit.shared.tails.give_back()
        if self._lock.acquire(blocking=False):
            self._cluster.close()
            self._lock.release()


SCREENS = [Screen("/topics/{topic}/export", show)]
