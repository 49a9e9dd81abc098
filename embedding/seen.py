"""The view of a broker, for tests: `broker.requests` and `broker.wait_for`.

broker.requests.record()
mark = broker.requests.mark()
...
(request,) = broker.requests(api="Produce", topic="orders", since=mark)
assert request.response["responses"][0]["partition_responses"][0]["error_code"] == 0
broker.wait_for.lag("shop")
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from odradek.server.test_kit.requests import BYTES_MAX, REQUESTS_MAX
from odradek.server.test_kit.wait_for import ENDED, TIMEOUT_SECONDS

CALL_SECONDS = 10.0
"""A broker that does not answer so long after the end of a wait is no longer there."""


class WaitTimeout(TimeoutError, AssertionError):
    """A wait that has not come true in time; the text says what was there instead."""


class CallKit(Protocol):
    """`Broker.call_kit`."""

    def __call__(self, operation: str, arguments: dict[str, Any], timeout_s: float | None = None) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """A request of a client, and its response. Both are values of JSON: fields by the names of the protocol
    in snake_case, those of the request's version; secrets are "<hidden>"."""

    number: int
    """Its place in the order of arrival, as a mark."""
    api: str
    """Name in the protocol, such as "Produce"."""
    version: int
    client_id: str | None
    principal: str
    address: str
    """HOST:PORT of the client."""
    listener: str
    client_software: str
    """Name and version that the client has told, or "unknown unknown"."""
    correlation_id: int
    arrived_ms: int
    """Milliseconds since 1970 of the broker's clock."""
    duration_ms: float | None
    """From arrival to the response or the end of the connection; None: it waits."""
    outcome: str
    """`answered`; `waiting`: the response is still to come; `none`: the client expects none (acks=0), or its
    connection is closed instead; `closed`: the connection was closed before; `failed`: an error of ours."""
    topics: tuple[str, ...]
    """Topics that are named in it or in its response, also by id."""
    request: dict[str, Any]
    response: dict[str, Any] | None

    @property
    def has_response(self) -> bool:
        """Whether one was sent."""
        return self.outcome == "answered"


class SeenRequests(list[SeenRequest]):
    """Requests in the order of their arrival."""

    dropped: int
    """How many since the mark, or in all, were dropped for newer ones: these are not here."""


class Requests:
    """`broker.requests`. Nothing is recorded before `record`."""

    def __init__(self, call_kit: CallKit) -> None:
        self._call = call_kit

    def __call__(
        self,
        *,
        api: str | None = None,
        topic: str | None = None,
        client_id: str | None = None,
        since: int | None = None,
    ) -> SeenRequests:
        """Recorded requests: of one API, that name a topic, of a client id, that came after a mark.

        TestKitError: nothing is recorded, since `record` was not called, or there is no such API. An
        incremental Fetch names no topic that has not changed: look for its responses.
        """
        wanted = {"api": api, "topic": topic, "client_id": client_id, "since": since}
        result = self._call("requests.all", wanted)
        found = SeenRequests(_seen(one) for one in result["requests"])
        found.dropped = result["dropped"]
        return found

    def record(
        self, *, requests_max: int = REQUESTS_MAX, bytes_max: int = BYTES_MAX, with_records: bool = False
    ) -> Self:
        """Records from now on, so many requests and bytes at most: the oldest are dropped first.
        `with_records`: also keys and values of records, up to a thousand of a request, and up to 4 KiB of
        each. Use it as a context manager to end with `stop`."""
        bounds = {"requests_max": requests_max, "bytes_max": bytes_max}
        self._call("requests.record", {**bounds, "with_records": with_records})
        return self

    def stop(self) -> None:
        """Records no more, and forgets what was recorded."""
        self._call("requests.stop", {})

    def mark(self) -> int:
        """A mark in the order of arrival, for `since`: what came before it is left out."""
        mark: int = self._call("requests.mark", {})
        return mark

    @property
    def is_recording(self) -> bool:
        return bool(self._call("requests.status", {})["recording"])

    @property
    def dropped(self) -> int:
        """Requests that were dropped for newer ones since `record`."""
        return int(self._call("requests.status", {})["dropped"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class WaitFor:
    """`broker.wait_for`. Each method waits up to `timeout` seconds, then raises WaitTimeout, whose text says
    what was there instead. Topics and groups need not exist yet."""

    def __init__(self, call_kit: CallKit) -> None:
        self._call = call_kit

    def records(
        self, topic: str, count: int, *, partition: int | None = None, timeout: float = TIMEOUT_SECONDS
    ) -> int:
        """At least `count` records in the topic, or in one partition of it; returns their number. Counted are
        those that consumers may read without regard to transactions, up to the high watermark."""
        arguments = {"topic": topic, "count": count, "partition": partition}
        found: int = self._until("records", arguments, timeout)
        return found

    def group(
        self,
        group_id: str,
        *,
        state: str | None = "Stable",
        members: int | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """A group in a state of Kafka's ("Stable", "Empty", ...; "Dead": there is none; None: any but that),
        with a number of members. Returns `{"state": ..., "members": [member id, ...]}`."""
        arguments = {"group_id": group_id, "state": state, "members": members}
        found: dict[str, Any] = self._until("group", arguments, timeout)
        return found

    def lag(
        self,
        group_id: str,
        topic: str | None = None,
        *,
        at_most: int = 0,
        timeout: float = TIMEOUT_SECONDS,
    ) -> int:
        """A group that has committed all offsets but `at_most`, in one topic, or in all that it reads;
        returns what is left. A partition without a commit counts with all that is in it."""
        arguments = {"group_id": group_id, "topic": topic, "at_most": at_most}
        found: int = self._until("lag", arguments, timeout)
        return found

    def transaction(
        self, transactional_id: str, *, state: str = ENDED, timeout: float = TIMEOUT_SECONDS
    ) -> str:
        """The end of a transaction (markers included), or one of Kafka's states, such as "CompleteCommit" or
        "Ongoing". Returns the state. The end of an earlier one of this id also counts."""
        arguments = {"transactional_id": transactional_id, "state": state}
        found: str = self._until("transaction", arguments, timeout)
        return found

    def request(
        self,
        *,
        api: str | None = None,
        topic: str | None = None,
        client_id: str | None = None,
        count: int = 1,
        since: int | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> list[SeenRequest]:
        """A number of recorded requests, as `broker.requests(...)` finds them; returns these. They may still
        wait for their responses. TestKitError: nothing is recorded."""
        wanted = {"api": api, "topic": topic, "client_id": client_id, "since": since, "count": count}
        return [_seen(one) for one in self._until("request", wanted, timeout)]

    def _until(self, what: str, arguments: dict[str, Any], timeout: float) -> Any:
        result = self._call(f"wait_for.{what}", {**arguments, "timeout": timeout}, timeout + CALL_SECONDS)
        if not result["reached"]:
            raise WaitTimeout(result["instead"])
        return result["found"]


def _seen(values: dict[str, Any]) -> SeenRequest:
    return SeenRequest(**{**values, "topics": tuple(values["topics"])})
