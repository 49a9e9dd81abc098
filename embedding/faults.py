"""The faults of a broker, for tests in Python.

with broker.faults.add(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
    ...
    fault.wait(2)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from odradek.server.test_kit.fault_rules import ChangeResponse, Predicate, Respond

Call = Callable[..., Any]
"""`Broker.call_kit`."""
CALL_S = 10.0
"""More than a wait in the broker."""


class Fault:
    """One fault. As a context manager it is removed at the end."""

    def __init__(self, call: Call, id: int) -> None:
        self._call = call
        self.id = id

    @property
    def fired(self) -> int:
        """How often it has fired."""
        return int(self._told()["fired"])

    @property
    def seen(self) -> int:
        """How many requests it was for, whether it fired or not."""
        return int(self._told()["seen"])

    def _told(self) -> dict[str, Any]:
        found: dict[str, Any] = self._call("faults.one", {"id": self.id})
        return found

    def wait(self, count: int = 1, timeout: float = 30.0) -> int:
        """How often it has fired, once that is `count`. TestKitError: not within `timeout` seconds."""
        arguments = {"id": self.id, "count": count, "timeout": timeout}
        return int(self._call("faults.wait", arguments, timeout + CALL_S))

    def release(self) -> int:
        """Lets go on what it holds now (`hold`, `hold_response`); how many there were."""
        return int(self._call("faults.release", {"id": self.id}))

    def remove(self) -> None:
        """Ends it, and lets go on what it holds. Harmless a second time."""
        self._call("faults.end", {"id": self.id})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Fault {self.id}>"


class Faults:
    """`broker.faults`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def add(
        self,
        api: str | None = None,
        *,
        version: int | Iterable[int] | None = None,
        client_id: str | None = None,
        principal: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        listener: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        every: int = 1,
        probability: float = 1.0,
        seed: int = 0,
        predicate: Predicate | None = None,
        times: int | None = None,
        error: str | None = None,
        delay_ms: int = 0,
        delay_after_ms: int = 0,
        lose_response: bool = False,
        cut_response_after_bytes: int | None = None,
        never_respond: bool = False,
        disconnect: bool = False,
        hold: bool = False,
        hold_response: bool = False,
        respond: Respond | None = None,
        change_response: ChangeResponse | None = None,
        response_fields: Mapping[str, Any] | None = None,
        throttle_ms: int | None = None,
        leader_moved: bool = False,
        coordinator_moved: bool = False,
        refuse_connection: bool = False,
        fail_login: bool = False,
        disk_error: str | None = None,
    ) -> Fault:
        """Adds a fault for the requests that all of the first ones describe; without `times` it lasts until
        it is removed. TestKitError, a ValueError: it could never fire.

        `api` is Kafka's name, such as "OffsetCommit"; without it the fault is for all APIs that can have it.
        `every=3` fires at each third request, `probability=0.1` at a tenth, chosen by `seed`.
        `predicate(request, context)` is a function for a broker in this process: the decoded request
        (`odradek.wire.messages`) and its `RequestContext`.

        `error`: Kafka's name of the error for the partition, the topic, the group or the whole request; no
        effect happens. `lose_response`: the effect happens, and the connection is closed.
        `cut_response_after_bytes`: likewise, behind so many bytes. `never_respond`: nothing happens, and the
        connection stays open. `disconnect`: nothing happens, and it is closed. `throttle_ms`: the response
        says it, and the connection is not read for so long. `leader_moved`: NOT_LEADER_OR_FOLLOWER for
        requests that only leaders serve, `coordinator_moved`: NOT_COORDINATOR for those that only
        coordinators do. `delay_ms` before the effect and `delay_after_ms` behind it may be
        added to any of these, or stand alone; so may `hold` and `hold_response`, which last until `release`
        of the fault.

        `response_fields={"topics.partitions.leader_id": 2}`: the effect happens, and fields of the response
        have these values, where it is about the topic and so on of the fault.

        For a broker in this process: `respond(request, context)` returns the response, and no effect happens,
        or None for that of the broker. `change_response(response, context)` changes that of the broker, after
        the effect. Both are messages (`odradek.wire.messages`).

        On a node of a cluster `leader_moved` and `coordinator_moved` are real, for all clients, and done when
        this returns: another replica in sync leads the `partition` of a `topic`, another node coordinates a
        `group` or a `transactional_id`; `times=3`: three moves, one after the other. At the end of the fault
        the preferred leader leads again.

        Not of requests are: `refuse_connection`: a new connection, at a `listener` if one is named, is reset.
        `fail_login`: a client with SASL is refused, whatever its password, of a `principal` if one is named.
        `disk_error="ENOSPC"` or `"EIO"`: what is written below a data `directory`, or to the partition of a
        `topic`, fails, as on a full or a broken disk; with EIO what is read, too. `every`, `probability` and
        `times` count operations of the disk then.
        """
        arguments = {name: value for name, value in locals().items() if name != "self" and value is not None}
        if isinstance(version, Iterable):
            arguments["version"] = list(version)
        if directory is not None:
            arguments["directory"] = os.fspath(directory)
        return Fault(self._call, self._call("faults.add", arguments))

    def all(self) -> list[dict[str, Any]]:
        """Every fault that was added and not cleared: what it is for and does, and how often it fired."""
        found: list[dict[str, Any]] = self._call("faults.all", {})
        return found

    def clear(self) -> None:
        """Removes all."""
        self._call("faults.remove", {})
