"""Requests of clients as the broker saw them, with its responses: `requests.record`, `mark`, `all`, `stop`.

Nothing is kept until a test asks for it. Then each request that is served is kept, in the order of arrival,
up to a number and a size; the oldest go first. `requests.keep` has the last few kept besides, for the report
of a failed test: only `requests.last` finds these. Requests of a client that has not logged in yet are not
seen: they are none of the APIs' handlers. A quota's throttle time is put into a response later, and is 0
here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from odradek.apis.api import Waiting
from odradek.config.near_names import did_you_mean
from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.message_values import MessageValues
from odradek.wire.messages import api_name

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.declaration import AnyApi
    from odradek.server.test_kit.interposing import Proceed
    from odradek.server.test_kit.kit import TestKit

REQUESTS_MAX = 10_000
BYTES_MAX = 64 * 1024 * 1024
FOLLOW_SECONDS = 10.0
_ENTRY_BYTES = 500
"""Memory of an entry besides its texts."""

WAITING, ANSWERED, NONE, CLOSED, FAILED = "waiting", "answered", "none", "closed", "failed"
"""Fate of the response: it is still to come; it was given to the connection; the client expects none,
or its connection is closed instead; the connection was closed before; the handler failed."""


def make(kit: TestKit) -> Recorder:
    return Recorder(kit)


class _Entry:
    """A request, with texts of JSON instead of objects: their sizes are known."""

    __slots__ = (
        "api",
        "began_ns",
        "client_id",
        "duration_ms",
        "ended",
        "head",
        "number",
        "outcome",
        "request",
        "response",
        "topics",
        "version",
    )

    def __init__(self, number: int, api: str, context: RequestContext) -> None:
        connection = context.connection
        self.number = number
        self.api = api
        self.version = context.api_version
        self.client_id = context.client_id
        self.topics: set[str] = set()
        self.outcome = WAITING
        self.ended: int | None = None
        """Place in the order in which requests end; None: it waits."""
        self.duration_ms: float | None = None
        self.request = self.response = "null"
        self.head = {
            "number": number,
            "api": api,
            "version": context.api_version,
            "client_id": context.client_id,
            "principal": connection.principal,
            "address": f"{connection.peer_host}:{connection.peer_port}",
            "listener": connection.listener_name,
            "client_software": f"{connection.client_software_name} {connection.client_software_version}",
            "correlation_id": context.correlation_id,
            "arrived_ms": context.now_ms,
        }
        self.began_ns = time.perf_counter_ns()

    @property
    def size_bytes(self) -> int:
        return _ENTRY_BYTES + len(self.request) + len(self.response)

    def is_wanted(self, api: str | None, topic: str | None, client_id: str | None) -> bool:
        """None: any."""
        return (
            (api is None or api == self.api)
            and (topic is None or topic in self.topics)
            and (client_id is None or client_id == self.client_id)
        )

    def value(self) -> dict[str, Any]:
        """All of it, as values of JSON."""
        return self.head | {
            "duration_ms": self.duration_ms,
            "outcome": self.outcome,
            "topics": sorted(self.topics),
            "request": json.loads(self.request),
            "response": json.loads(self.response),
        }


class Recorder:
    """The part of the test kit; it is interposed at all APIs while it records."""

    operations = ("record", "stop", "mark", "all", "follow", "status", "keep", "last")

    def __init__(self, kit: TestKit) -> None:
        self._kit = kit
        self._entries: deque[_Entry] = deque()
        self._last: deque[_Entry] = deque(maxlen=0)
        self._begun = self._ended = 0
        self._size_bytes = self._dropped = 0
        self._requests_max, self._bytes_max = REQUESTS_MAX, BYTES_MAX
        self._with_records = False
        self._watchers: dict[Callable[[], None], None] = {}
        self.is_recording = self._is_closed = self._is_interposed = False

    # Operations

    async def record(
        self, requests_max: int = REQUESTS_MAX, bytes_max: int = BYTES_MAX, with_records: bool = False
    ) -> dict[str, Any]:
        """Keep requests from now on. Again: other bounds; what is kept stays. `with_records`: also keys and
        values of records. Returns the same as `status`."""
        for name, value in (("requests_max", requests_max), ("bytes_max", bytes_max)):
            if not isinstance(value, int) or value < 1:
                raise TestKitError(f"requests.record: {name} is a number from 1 on, not {value!r}")
        self._requests_max, self._bytes_max, self._with_records = requests_max, bytes_max, with_records
        self.is_recording = True
        self._follow()
        self._drop()
        return self._status()

    async def stop(self) -> dict[str, Any]:
        """Keep none any more, and forget those that were kept."""
        self.is_recording = False
        self._follow()
        self._entries.clear()
        self._size_bytes = self._dropped = 0
        return self._status()

    async def keep(self, count: int) -> None:
        """Keep the last so many besides, whether anybody records or not; 0: none any more."""
        if not isinstance(count, int) or count < 0:
            raise TestKitError(f"requests.keep: count is a number from 0 on, not {count!r}")
        self._last = deque(self._last, maxlen=count)
        self._follow()

    async def last(self, since: int | None = None) -> list[dict[str, Any]] | None:
        """The last ones that are kept by `keep`, of those after a mark; None: none are."""
        if not self._last.maxlen:
            return None
        return [entry.value() for entry in self._last if entry.number >= (since or 0)]

    async def mark(self) -> int:
        """The number of the next request, for `since`."""
        return self._begun

    async def status(self) -> dict[str, Any]:
        """Whether requests are kept, how many are, and how many were dropped for newer ones; `ended` is the
        present mark for `follow`."""
        return self._status()

    async def all(
        self,
        api: str | None = None,
        topic: str | None = None,
        client_id: str | None = None,
        since: int | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """Kept requests in their order, the newest `limit` of those that are asked for; and how many since
        the mark `since` were dropped."""
        wanted = self.found(api=api, topic=topic, client_id=client_id, since=since)
        shown = wanted if limit is None else wanted[max(0, len(wanted) - limit) :]
        return {
            "requests": [entry.value() for entry in shown],
            "dropped": max(0, self._oldest - since) if since is not None else self._dropped,
            "next": self._begun,
        }

    async def follow(
        self,
        api: str | None = None,
        topic: str | None = None,
        client_id: str | None = None,
        since: int | None = None,
        timeout: float = FOLLOW_SECONDS,
    ) -> dict[str, Any]:
        """Requests in the order in which they end: those after `next` of the result before, or from now on.
        It waits up to `timeout` seconds for the first of them."""
        first = self._ended if since is None else since
        came = asyncio.Event()
        deadline = asyncio.get_running_loop().time() + timeout
        self.watch(came.set)
        try:
            while True:
                wanted = self.found(api=api, topic=topic, client_id=client_id)
                ended = [entry for entry in wanted if entry.ended is not None and entry.ended >= first]
                left = deadline - asyncio.get_running_loop().time()
                if ended or left <= 0 or self._is_closed:
                    break
                came.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await came.wait()
        finally:
            self.unwatch(came.set)
        ended.sort(key=lambda entry: entry.ended or 0)
        return {
            "requests": [entry.value() for entry in ended],
            "dropped": self._dropped,
            "next": self._ended,
        }

    def close(self) -> None:
        """The broker stops."""
        self._is_closed = True
        self._wake()

    # For waits

    def found(
        self,
        *,
        api: str | None = None,
        topic: str | None = None,
        client_id: str | None = None,
        since: int | None = None,
    ) -> Sequence[_Entry]:
        """Kept requests. TestKitError: nobody has asked to keep any, or there is no such API."""
        if not self.is_recording:
            raise TestKitError(
                "no requests are recorded: call requests.record() before those that you look for"
            )
        self._check_api(api)
        first = since or 0
        return [
            entry
            for entry in self._entries
            if entry.number >= first and entry.is_wanted(api, topic, client_id)
        ]

    def watch(self, wake: Callable[[], None]) -> None:
        """Calls `wake` when a request comes, and when one is answered."""
        self._watchers[wake] = None

    def unwatch(self, wake: Callable[[], None]) -> None:
        self._watchers.pop(wake, None)

    # Requests

    def _follow(self) -> None:
        """Stands before the handlers while requests are kept for anybody."""
        if not self.is_recording and not self._last.maxlen:
            if self._is_interposed:
                self._kit.interposing.put(self, ())
        elif not self._is_interposed:
            # Before faults: what these answer is also seen.
            keys = self._kit.server.connections.dispatcher.routes.api_keys
            self._kit.interposing.put(self, keys, before_others=True)
        self._is_interposed = self.is_recording or bool(self._last.maxlen)

    def serve(self, api: AnyApi, request: Any, context: RequestContext, proceed: Proceed) -> Any:
        """See `Interposer`."""
        entry = self._begin(api, request, context)
        try:
            response = proceed(request, context)
        except Exception:
            self._end(entry, FAILED)
            raise
        if isinstance(response, Waiting):
            watched = _WatchedWork if response.holds_back else _Watched
            return watched(response, lambda outcome, late: self._end(entry, outcome, late))
        self._end(entry, NONE if response is None else ANSWERED, response)
        return response

    def sent(self, response: Any, parts: list[Any], size_bytes: int) -> tuple[list[Any], int]:
        """See `Interposer`."""
        return parts, size_bytes

    def _begin(self, api: AnyApi, request: Any, context: RequestContext) -> _Entry:
        entry = _Entry(self._begun, api.request.__name__.removesuffix("Request"), context)
        self._begun += 1
        entry.request = self._text(request, context.api_version, entry.topics)
        self._last.append(entry)
        if self.is_recording:
            self._entries.append(entry)
            self._size_bytes += entry.size_bytes
            self._drop()
        self._wake()
        # The copy is not a part of the request's time.
        entry.began_ns = time.perf_counter_ns()
        return entry

    def _end(self, entry: _Entry, outcome: str, response: Any = None) -> None:
        entry.duration_ms = round((time.perf_counter_ns() - entry.began_ns) / 1e6, 3)
        entry.outcome, entry.ended = outcome, self._ended
        self._ended += 1
        is_recorded = bool(self._entries) and entry.number >= self._oldest
        if response is not None and (is_recorded or entry in self._last):
            size_bytes = entry.size_bytes
            entry.response = self._text(response, entry.version, entry.topics)
            if is_recorded:
                self._size_bytes += entry.size_bytes - size_bytes
                self._drop()
        self._wake()

    def _text(self, message: Any, version: int, topics: set[str]) -> str:
        """The message as JSON; adds the topics that it names."""
        values = MessageValues(version, self._topic_name, with_records=self._with_records)
        text = json.dumps(values.read(message), default=str)
        topics |= values.topics
        return text

    def _topic_name(self, topic_id: bytes) -> str | None:
        topic = self._kit.server.cluster_view.topic_by_id(topic_id)
        return None if topic is None else topic.name

    @property
    def _oldest(self) -> int:
        """The number of the oldest that is kept, or of the next one."""
        return self._entries[0].number if self._entries else self._begun

    def _drop(self) -> None:
        entries = self._entries
        while entries and (len(entries) > self._requests_max or self._size_bytes > self._bytes_max):
            self._size_bytes -= entries.popleft().size_bytes
            self._dropped += 1

    def _wake(self) -> None:
        for wake in tuple(self._watchers):
            wake()

    def _status(self) -> dict[str, Any]:
        return {
            "recording": self.is_recording,
            "recorded": len(self._entries),
            "dropped": self._dropped,
            "size_bytes": self._size_bytes,
            "ended": self._ended,
        }

    def _check_api(self, api: str | None) -> None:
        if api is None:
            return
        names = set(_names(self._kit.server.connections.dispatcher.routes.api_keys))
        if api not in names and not any(entry.api == api for entry in self._entries):
            raise TestKitError(f"there is no API {api!r} here{did_you_mean(api, names)}")


class _Watched(Waiting):
    """A response that comes later, and is seen when it comes."""

    __slots__ = ("_note",)

    def __init__(self, inner: Waiting, note: Callable[[str, Any], None]) -> None:
        def closed() -> None:
            note(CLOSED, None)
            inner.cancel()

        super().__init__(closed)
        self._note = note
        inner.on_complete(self._done)

    def _done(self, response: Any) -> None:
        self._note(NONE if response is None else ANSWERED, response)
        self.complete(response)


class _WatchedWork(_Watched):
    __slots__ = ()

    holds_back = True


def _names(api_keys: Iterable[int]) -> Iterable[str]:
    for key in api_keys:
        try:
            yield api_name(key)
        except KeyError:
            # Not one of Kafka's: its name is known with its first request.
            continue
