"""The tail of a topic as server-sent events: new records as they come, so many a second at most.

An event is a list of rows as JSON; its id has the places from which a browser that was away goes on. What is
left out is counted and told. Message texts go into the page as texts, never as HTML.
"""

import json
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import Response, StreamingResponse

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.reading import Reader
from odradek.client.stored_records import batches_of
from odradek.console.access import Access
from odradek.console.contents import Contents, Shown, header_texts
from odradek.console.filters import Chooses, chooser
from odradek.console.rendering import iso_text, link, visible
from odradek.console.screens.messages import FIELDS, bounds_of, parse_positions, positions_text
from odradek.console.visit import Screen, Visit, sentence

ROWS_A_SECOND = 50
TAIL_S_MAX = 15 * 60.0
"""The browser connects again after that: a session that is over does not."""
POLL_S = 0.3
WINDOW_S = 1.0


async def show(visit: Visit) -> Response:
    """The stream."""
    topic = visit.segment("topic")
    query = {name: visit.text(name) for name in FIELDS}
    chooses = chooser(query)
    at = visit.request.headers.get("last-event-id", "")
    access = visit.session.access
    assert access is not None
    if not visit.shared.tails.take():
        raise ClientError("so many tails are open that one more would be slow: close one of them")
    try:
        starts = await visit.ask(lambda cluster: _starts(cluster, topic, query, at, visit.now_ms))
    except BaseException:
        visit.shared.tails.give_back()
        raise
    contents = Contents(query["as"], topic, schemas=visit.settings.schemas)
    tail = _Tail(access, topic, starts, chooses, contents, query["uncommitted"] != "1")
    return StreamingResponse(_events(visit, tail), media_type="text/event-stream")


def _starts(cluster: Cluster, topic: str, query: Mapping[str, str], at: str, now_ms: int) -> dict[int, int]:
    bounds = bounds_of(cluster, topic, {**query, "from": "", "until": ""}, now_ms)
    known = parse_positions(at) if at else {}
    return {number: min(max(known.get(number, end), start), end) for number, (start, end) in bounds.items()}


async def _events(visit: Visit, tail: "_Tail") -> AsyncIterator[str]:
    ends, memory = time.monotonic() + TAIL_S_MAX, visit.shared.memory

    def step() -> tuple[list[dict[str, Any]], int]:
        with memory.held() as hold, hold.used():
            return tail.step()

    try:
        yield "retry: 2000\n\n"
        while time.monotonic() < ends and not tail.access.is_closed and not visit.shared.tails.is_over:
            try:
                rows, left_out = await visit.shared.tail_workers.run(step)
            except ClientError as error:
                yield _event("failed", "", json.dumps({"sentence": sentence(error)}))
                return
            if rows or left_out:
                yield _event("rows", tail.places, json.dumps({"rows": rows, "left_out": left_out}))
            else:
                # Also tells that the browser has gone.
                yield ": nothing new\n\n"
    finally:
        visit.shared.tails.give_back()
        tail.close()


def _event(kind: str, number: str, data: str) -> str:
    """`data` is JSON, which has no line ends."""
    return f"event: {kind}\n" + (f"id: {number}\n" if number else "") + f"data: {data}\n\n"


class _Tail:
    """The reading; each step in a thread, one at a time."""

    def __init__(
        self,
        access: Access,
        topic: str,
        starts: Mapping[int, int],
        chooses: Chooses | None,
        contents: Contents,
        read_committed: bool,
    ) -> None:
        self._topic, self._chooses, self._contents = topic, chooses, contents
        self._positions = dict(starts)
        self._read_committed = read_committed
        self.access = access
        self._cluster = access.own_cluster()
        self._reader: Reader | None = None
        self._window_began, self._shown = time.monotonic(), 0
        self._lock = threading.Lock()
        self._is_over = False

    @property
    def places(self) -> str:
        """From where on a browser has not seen the records."""
        return positions_text(self._positions)

    def step(self) -> tuple[list[dict[str, Any]], int]:
        """Rows that have come, and how many others were left out. ClientError."""
        with self._lock:
            if self._is_over:
                return [], 0
            try:
                return self._step()
            finally:
                if self._is_over:
                    self._cluster.close()

    def close(self) -> None:
        """Closes the connections: now, or in the thread that uses them."""
        self._is_over = True
        if self._lock.acquire(blocking=False):
            self._cluster.close()
            self._lock.release()

    def _step(self) -> tuple[list[dict[str, Any]], int]:
        if self._reader is None:
            self._reader = Reader(
                self._cluster,
                {(self._topic, number): (start, None) for number, start in self._positions.items()},
                read_committed=self._read_committed,
                skipped=lambda *_: None,
            )
        rows: list[dict[str, Any]] = []
        left_out = 0
        for fetched in self._reader.poll(POLL_S):
            for batch in batches_of(fetched):
                for record in batch.records:
                    if self._chooses is not None and not self._chooses(record):
                        continue
                    if self._has_room():
                        rows.append(self._row(fetched.partition, record))
                    else:
                        left_out += 1
            self._positions[fetched.partition] = fetched.next_offset
        return rows, left_out

    def _has_room(self) -> bool:
        now = time.monotonic()
        if now - self._window_began >= WINDOW_S:
            self._window_began, self._shown = now, 0
        self._shown += 1
        return self._shown <= ROWS_A_SECOND

    def _row(self, partition: int, record: Any) -> dict[str, Any]:
        key, value = self._contents.both(record)
        return {
            "partition": partition,
            "offset": record.offset,
            "time": iso_text(record.timestamp),
            "key": _text(key),
            "value": _text(value),
            "form": value.form,
            "headers": len(header_texts(record.headers)),
            "url": link(f"/topics/{self._topic}/messages/{partition}/{record.offset}"),
        }


def _text(shown: Shown) -> str:
    return "null" if shown.form == "null" else visible(shown.text) + ("…" if shown.is_cut else "")


SCREENS = [Screen("/topics/{topic}/tail", show)]
