"""Decisions of a controller that nobody asks for: brokers whose sessions are over, brokers that are dead, and
elections by the clock.

A broker is fenced at once when the connection of its heartbeats has closed and nothing listens any more where
it was reached: its process is dead. A paused broker, or one behind a broken network, keeps its connection or
leaves its connections unanswered; it is fenced when its session is over. A refused connection counts only at
an address at which the controller has reached the broker before in this registration: a wrong or translated
address refuses those who live, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from odradek.coordinator.controller.brokers import fence, fence_expired
from odradek.coordinator.controller.elections import elect_preferred_leaders, elect_unclean_leaders

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo
    from odradek.apis.controller.parts import ControllerParts
    from odradek.apis.turn import TimerHandle
    from odradek.coordinator.cluster.view import Broker
    from odradek.coordinator.controller.draft import RecordDraft
    from odradek.wire.messages.metadata_records import MetadataRecord
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.controller")

KNOCKS = 5
KNOCK_AGAIN_S = 0.02
KNOCK_TIMEOUT_S = 1.0
MORE_ELECTIONS_MS = 10
"""Pause before the next elections, where there may be more than one decision can change."""


class Watching:
    """See the module."""

    def __init__(
        self, parts: ControllerParts, *, preferred_interval_ms: int | None, unclean_interval_ms: int
    ) -> None:
        """`preferred_interval_ms`: None if leaders are not moved back to the first replicas."""
        self._parts = parts
        self._preferred_interval_ms = preferred_interval_ms
        self._unclean_interval_ms = unclean_interval_ms
        self._session_timer: TimerHandle | None = None
        self._timers: dict[str, TimerHandle] = {}
        self._connections: dict[int, ConnectionInfo] = {}
        """Connection of the newest heartbeat, by broker."""
        self._reached: dict[int, int] = {}
        """Epoch of a broker in which it was reached at its listener."""
        self._knocking: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def start(self) -> None:
        """Every unfenced broker has a whole session from now on."""
        parts = self._parts
        parts.sessions.begin(parts.controller.view.registrations.values(), parts.clock_ms())
        self.sessions_changed()
        if self._preferred_interval_ms is not None:
            self._after("preferred", self._preferred_interval_ms, self._elect_preferred)
        self._after("unclean", self._unclean_interval_ms, self._elect_unclean)

    def close(self) -> None:
        self._is_closed = True
        for timer in (self._session_timer, *self._timers.values()):
            if timer is not None:
                timer.cancel()
        for task in list(self._knocking):
            task.cancel()

    @property
    def is_knocking(self) -> bool:
        """Whether it is looking whether brokers are there."""
        return bool(self._knocking)

    # Sessions

    def sessions_changed(self) -> None:
        """Looks again when the next session may be over."""
        if self._session_timer is not None or self._is_closed:
            return
        due_ms = self._parts.sessions.next_expiry_ms
        if due_ms is not None:
            delay_ms = max(due_ms - self._parts.clock_ms(), 1)
            self._session_timer = self._parts.timers.after(delay_ms, self._expire)

    def _expire(self) -> None:
        self._session_timer = None
        parts = self._parts

        def decide() -> list[MetadataRecord]:
            # Heartbeats that have come before this are decided on: they are earlier in the queue.
            return fence_expired(parts.controller.view, parts.defaults, parts.sessions, parts.clock_ms())

        self._run("brokers without a session are fenced", decide, self.sessions_changed)

    # Dead brokers

    def heard(self, broker_id: int, broker_epoch: int, connection: ConnectionInfo) -> None:
        """A heartbeat of a broker has come."""
        if self._connections.get(broker_id) is not connection:
            self._connections[broker_id] = connection
            connection.when_closed(lambda closed: self._lost(broker_id, broker_epoch, connection))
        if self._reached.get(broker_id) != broker_epoch:
            broker = self._registered(broker_id, broker_epoch)
            if broker is not None and not broker.is_fenced:
                self._reached[broker_id] = broker_epoch
                self._knock(self._reach(broker))

    def _registered(self, broker_id: int, broker_epoch: int) -> Broker | None:
        broker = self._parts.controller.view.registrations.get(broker_id)
        return None if broker is None or broker.epoch != broker_epoch else broker

    def _lost(self, broker_id: int, broker_epoch: int, connection: ConnectionInfo) -> None:
        if self._connections.get(broker_id) is not connection:
            return
        del self._connections[broker_id]
        broker = self._registered(broker_id, broker_epoch)
        if broker is None or broker.is_fenced or self._reached.get(broker_id) != broker_epoch:
            return
        self._knock(self._see_after(broker))

    def _knock(self, task: Any) -> None:
        if self._is_closed:
            task.close()
            return
        running = asyncio.get_running_loop().create_task(task)
        self._knocking.add(running)
        running.add_done_callback(self._knocking.discard)

    async def _reach(self, broker: Broker) -> None:
        """Whether a refused connection at the broker's address would mean anything."""
        if await _is_refused(broker) is not False and self._reached.get(broker.node_id) == broker.epoch:
            del self._reached[broker.node_id]

    async def _see_after(self, broker: Broker) -> None:
        for _ in range(KNOCKS):
            if broker.node_id in self._connections:
                return
            refused = await _is_refused(broker)
            if refused is None:
                return
            if refused:
                self._fence(broker)
                return
            await asyncio.sleep(KNOCK_AGAIN_S)

    def _fence(self, broker: Broker) -> None:
        parts = self._parts

        def decide() -> list[MetadataRecord]:
            if broker.node_id in self._connections:
                return []
            return fence(parts.controller.view, parts.defaults, parts.sessions, broker.node_id, broker.epoch)

        self._run(f"broker {broker.node_id} is dead and is fenced", decide)

    # Elections

    def _after(self, name: str, delay_ms: int, callback: Callable[[], None]) -> None:
        if not self._is_closed:
            self._timers[name] = self._parts.timers.after(delay_ms, callback)

    def _elect_preferred(self) -> None:
        assert self._preferred_interval_ms is not None
        found = elect_preferred_leaders(self._parts.controller.view, self._parts.defaults)
        delay_ms = MORE_ELECTIONS_MS if found.has_more else self._preferred_interval_ms
        self._after("preferred", delay_ms, self._elect_preferred)
        if found.records:
            self._run(
                "leaders are elected: the first replicas",
                lambda: elect_preferred_leaders(self._parts.controller.view, self._parts.defaults).records,
            )

    def _elect_unclean(self) -> None:
        found = elect_unclean_leaders(self._parts.controller.view, self._parts.defaults)
        delay_ms = MORE_ELECTIONS_MS if found.has_more else self._unclean_interval_ms
        self._after("unclean", delay_ms, self._elect_unclean)
        if found.records:
            self._run(
                "leaders are elected uncleanly",
                lambda: elect_unclean_leaders(self._parts.controller.view, self._parts.defaults).records,
            )

    # Inside

    def _run(
        self,
        what: str,
        decide: Callable[[], Iterable[MetadataRecord]],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """In the queue of changes: the decision sees the effect of all before it."""

        def edit(draft: RecordDraft) -> Work[bool]:
            records = list(decide())
            draft.add_records(records)
            return bool(records)
            yield None

        def done(is_changed: bool) -> None:
            if is_changed:
                logger.info("%s", what)
            then()

        def failed(error: Exception) -> None:
            logger.error("%s: failed", what, exc_info=error)
            then()

        self._parts.changes.run(self._parts.controller.changing(edit), done, failed)


async def _is_refused(broker: Broker) -> bool | None:
    """Whether nothing listens where the broker is reached; None: it is not known."""
    if not broker.endpoints:
        return None
    endpoint = next(iter(broker.endpoints.values()))
    try:
        async with asyncio.timeout(KNOCK_TIMEOUT_S):
            _, writer = await asyncio.open_connection(endpoint.host or "localhost", endpoint.port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return None
    writer.close()
    return False
