"""Waits for the thing itself: records in a topic, a group in a state, no lag, the end of a transaction, a
request (`wait_for.records`, `group`, `lag`, `transaction`, `request`).

Each returns {"reached": true, "found": ...}, or after its time {"reached": false, "instead": a sentence}. A
topic or a group need not exist yet. Logs and recorded requests wake a wait; for all else it looks each
`LOOK_SECONDS`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from odradek.config.near_names import did_you_mean
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.state import (
    GroupLag,
    RecordCount,
    logs_of,
    machine_of,
    member_ids,
    refuse_remote_coordinator,
    refuse_remote_replicas,
    transaction_state,
)
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.server.test_kit.kit import TestKit
    from odradek.server.test_kit.requests import Recorder
    from odradek.server.test_kit.tested import Tested
    from odradek.storage.log.partition import Partition

LOOK_SECONDS = 0.01
TIMEOUT_SECONDS = 30.0
ABSENT = "Dead"
"""Kafka's state of a group that there is not."""
GROUP_STATES = (
    "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady", "Stable", "Empty",
    ABSENT,
)  # fmt: skip
ENDED = "ended"
TRANSACTION_STATES = (
    ENDED, "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
)  # fmt: skip
_NAMES_SHOWN = 5


def make(kit: TestKit) -> Waits:
    return Waits(kit)


class Waits:
    """The part of the test kit."""

    operations = ("records", "group", "lag", "transaction", "request", "waiting")

    def __init__(self, kit: TestKit) -> None:
        self._kit = kit
        self._server = kit.server
        self._is_closed = False
        self._events: set[asyncio.Event] = set()

    async def records(
        self, topic: str, count: int, partition: int | None = None, timeout: float = TIMEOUT_SECONDS
    ) -> dict[str, Any]:
        """At least so many records in a topic, or in one partition: those up to the high watermark, without
        those that end transactions. Found is their number."""
        return await self._until(_Records(self._server, topic, count, partition), timeout)

    async def group(
        self,
        group_id: str,
        state: str | None = "Stable",
        members: int | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """A group in a state of Kafka's (None: in any), with so many members. Found are the state and the ids
        of the members."""
        if state is not None and state not in GROUP_STATES:
            raise TestKitError(
                f"wait_for.group: a group is never {state!r}{did_you_mean(state, GROUP_STATES)}"
            )
        return await self._until(_Group(self._server, group_id, state, members), timeout)

    async def lag(
        self,
        group_id: str,
        topic: str | None = None,
        at_most: int = 0,
        timeout: float = TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """A group that is behind by no more offsets, in all topics that it reads or in one. Found is the
        number."""
        return await self._until(_Lag(self._server, group_id, topic, at_most), timeout)

    async def transaction(
        self, transactional_id: str, state: str = ENDED, timeout: float = TIMEOUT_SECONDS
    ) -> dict[str, Any]:
        """A transaction in a state of Kafka's; `ended` is CompleteCommit or CompleteAbort. Found is the
        state."""
        if state not in TRANSACTION_STATES:
            raise TestKitError(
                f"wait_for.transaction: a transaction is never {state!r}"
                f"{did_you_mean(state, TRANSACTION_STATES)}"
            )
        return await self._until(_Transaction(self._server, transactional_id, state), timeout)

    async def request(
        self,
        api: str | None = None,
        topic: str | None = None,
        client_id: str | None = None,
        count: int = 1,
        since: int | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        """A number of recorded requests, as `requests.all` finds them. Found are these."""
        recorder: Recorder = self._kit.part("requests")
        wanted = {"api": api, "topic": topic, "client_id": client_id, "since": since}
        return await self._until(_Request(recorder, wanted, count), timeout)

    async def waiting(self) -> int:
        """How many waits there are now."""
        return len(self._events)

    def close(self) -> None:
        """The broker stops; the kit cancels what is under way."""
        self._is_closed = True

    async def _until(self, condition: Condition, timeout: float) -> dict[str, Any]:
        if not isinstance(timeout, int | float) or timeout < 0:
            raise TestKitError(f"timeout is a number of seconds from 0 on, not {timeout!r}")
        deadline = asyncio.get_running_loop().time() + timeout
        event = asyncio.Event()
        self._events.add(event)
        try:
            return await self._look(condition, event, deadline, timeout)
        except asyncio.CancelledError:
            if not self._is_closed:
                raise
            raise TestKitError(
                f"the broker has stopped, or was restored, before there was {condition.wanted}"
            ) from None
        finally:
            self._events.discard(event)
            condition.unwatch(event.set)

    async def _look(
        self, condition: Condition, event: asyncio.Event, deadline: float, timeout: float
    ) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        while True:
            # Before the look: what comes after it is not missed.
            condition.watch(event.set)
            event.clear()
            if condition.look():
                return {"reached": True, "found": condition.found}
            left = deadline - loop.time()
            if left <= 0:
                waited = f"waited {timeout:g} s for {condition.wanted}"
                return {"reached": False, "instead": f"{waited}: {condition.instead}"}
            try:
                async with asyncio.timeout(min(left, LOOK_SECONDS)):
                    await event.wait()
            except TimeoutError:
                pass


class Condition(ABC):
    """Something to wait for. On the event loop. A look raises TestKitError: this node cannot know it."""

    found: Any = None
    """The value for who waits, after a look that was true."""

    @property
    @abstractmethod
    def wanted(self) -> str:
        """A noun phrase for people."""

    @property
    @abstractmethod
    def instead(self) -> str:
        """A clause for people: what the last look has seen."""

    @abstractmethod
    def look(self) -> bool:
        """Whether it is so now."""

    def watch(self, wake: Callable[[], None]) -> None:
        """Has `wake` called when it may have come true; may be called again and again. Nothing here: it is
        looked at in time."""
        return

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Ends it."""
        return


class _WithLogs(Condition):
    """Wakes when the high watermark of one of its logs moves."""

    def __init__(self) -> None:
        self._watched: dict[Partition, None] = {}

    def logs(self) -> Iterable[Partition]:
        """Logs that there are now."""
        raise NotImplementedError

    def watch(self, wake: Callable[[], None]) -> None:
        for log in self.logs():
            if log not in self._watched:
                self._watched[log] = None
                log.watch(wake)

    def unwatch(self, wake: Callable[[], None]) -> None:
        for log in self._watched:
            log.unwatch(wake)
        self._watched.clear()


class _Records(_WithLogs):
    def __init__(self, server: Tested, topic: str, count: int, partition: int | None) -> None:
        super().__init__()
        self._server = server
        self._topic, self._count, self._partition = topic, count, partition
        self._counts: dict[int, RecordCount] = {}
        self._seen: dict[int, int] = {}

    @property
    def wanted(self) -> str:
        place = self._topic if self._partition is None else f"{self._topic}-{self._partition}"
        return f"{_plural(self._count, 'record')} in {place!r}"

    @property
    def instead(self) -> str:
        if self._topic not in self._server.cluster_view.topics:
            return f"there is no topic {self._topic!r}{_others(self._server.cluster_view.topics)}"
        if self._partition is not None and self._partition not in self._seen:
            return f"it has no partition {self._partition} here"
        by_partition = _list([f"{index}: {count}" for index, count in self._seen.items()])
        return f"it has {sum(self._seen.values())} (by partition {by_partition})"

    def logs(self) -> Iterable[Partition]:
        return self._logs().values()

    def _logs(self) -> dict[int, Partition]:
        logs = logs_of(self._server, self._topic)
        return {index: log for index, log in logs.items() if self._partition in (None, index)}

    def look(self) -> bool:
        refuse_remote_replicas(self._server, self._topic, self._partition)
        logs = self._logs()
        self._seen = {}
        for index, log in logs.items():
            count = self._counts.setdefault(index, RecordCount())
            try:
                self._seen[index] = count.of(log)
            except (KafkaError, OSError):
                # Deleted, or its disk fails in this moment.
                self._seen[index] = 0
        self.found = sum(self._seen.values())
        return bool(self._seen) and bool(self._count <= self.found)


class _Group(Condition):
    def __init__(self, server: Tested, group_id: str, state: str | None, members: int | None) -> None:
        self._server = server
        self._group_id, self._state, self._members = group_id, state, members

    @property
    def wanted(self) -> str:
        if self._members is None:
            return f"group {self._group_id!r} to be {self._state or 'there'}"
        state = "" if self._state is None else f" ({self._state})"
        return f"{_plural(self._members, 'member')} in group {self._group_id!r}{state}"

    @property
    def instead(self) -> str:
        machine = machine_of(self._server, self._group_id)
        if machine is None:
            return f"there is no such group{_others(_group_ids(self._server))}"
        group = machine.groups[self._group_id]
        ids = member_ids(group)
        shown = f" ({_list(ids)})" if ids else ""
        return f"it is {group.state_name} with {len(ids) or 'no members'}{shown}"

    def look(self) -> bool:
        refuse_remote_coordinator(self._server, OFFSETS_TOPIC, self._group_id)
        machine = machine_of(self._server, self._group_id)
        state, ids = ABSENT, list[str]()
        if machine is not None:
            group = machine.groups[self._group_id]
            state, ids = group.state_name, member_ids(group)
        self.found = {"state": state, "members": ids}
        is_in_state = self._state == state or (self._state is None and machine is not None)
        return is_in_state and self._members in (None, len(ids))


class _Lag(_WithLogs):
    def __init__(self, server: Tested, group_id: str, topic: str | None, at_most: int) -> None:
        super().__init__()
        self._server = server
        self._group_id, self._topic, self._at_most = group_id, topic, at_most
        self._seen = GroupLag(server, group_id, topic)

    @property
    def wanted(self) -> str:
        where = "" if self._topic is None else f" in {self._topic!r}"
        return f"a lag of at most {self._at_most} of group {self._group_id!r}{where}"

    @property
    def instead(self) -> str:
        if not self._seen.has_group:
            return f"there is no such group{_others(_group_ids(self._server))}"
        if not self._seen.by_partition:
            return "it reads nothing that is here"
        behind = [f"{topic}-{index}: {lag}" for (topic, index), lag in self._seen.by_partition.items() if lag]
        return f"it is behind by {self._seen.total} ({_list(behind)})"

    def logs(self) -> Iterable[Partition]:
        return () if self._topic is None else logs_of(self._server, self._topic).values()

    def look(self) -> bool:
        refuse_remote_coordinator(self._server, OFFSETS_TOPIC, self._group_id)
        self._seen = GroupLag(self._server, self._group_id, self._topic)
        for topic in self._seen.topics:
            refuse_remote_replicas(self._server, topic, None)
        self.found = self._seen.total
        return bool(self._seen.by_partition) and self.found <= self._at_most


class _Transaction(Condition):
    def __init__(self, server: Tested, transactional_id: str, state: str) -> None:
        self._server = server
        self._transactional_id, self._state = transactional_id, state

    @property
    def wanted(self) -> str:
        what = "the end" if self._state == ENDED else self._state
        return f"{what} of transaction {self._transactional_id!r}"

    @property
    def instead(self) -> str:
        if self.found is None:
            return "there is no such transactional id"
        return f"it is {self.found}"

    def look(self) -> bool:
        refuse_remote_coordinator(self._server, TRANSACTIONS_TOPIC, self._transactional_id)
        self.found = transaction_state(self._server, self._transactional_id)
        if self._state == ENDED:
            return self.found in ("CompleteCommit", "CompleteAbort")
        return bool(self.found == self._state)


class _Request(Condition):
    def __init__(self, recorder: Recorder, wanted: dict[str, Any], count: int) -> None:
        self._recorder, self._wanted, self._count = recorder, wanted, count
        self._seen = 0

    @property
    def wanted(self) -> str:
        given = [f"{name} {value!r}" for name, value in self._wanted.items() if value is not None]
        return f"{_plural(self._count, 'request')}{' with ' if given else ''}{', '.join(given)}"

    @property
    def instead(self) -> str:
        since = self._wanted["since"]
        others: dict[str, int] = {}
        for entry in self._recorder.found(since=since):
            others[entry.api] = others.get(entry.api, 0) + 1
        seen = _list([f"{number} {api}" for api, number in sorted(others.items())]) or "none"
        return (
            f"there {'was' if self._seen == 1 else 'were'} {self._seen or 'none'}; of all that came: {seen}"
        )

    def look(self) -> bool:
        entries = self._recorder.found(**self._wanted)
        self._seen = len(entries)
        if self._seen < self._count:
            return False
        self.found = [entry.value() for entry in entries]
        return True

    def watch(self, wake: Callable[[], None]) -> None:
        self._recorder.watch(wake)

    def unwatch(self, wake: Callable[[], None]) -> None:
        self._recorder.unwatch(wake)


def _group_ids(server: Tested) -> list[str]:
    coordinator = server.coordinators.groups
    machines = list(coordinator().partitions.values()) if coordinator.is_made else []
    return sorted(group_id for one in machines if one.machine is not None for group_id in one.machine.groups)


def _others(names: Iterable[str]) -> str:
    others = [name for name in names if not name.startswith("__")]
    if not others:
        return ""
    return f"; there {'is' if len(others) == 1 else 'are'} {_list(others)}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _list(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
