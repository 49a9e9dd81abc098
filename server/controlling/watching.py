"""Decisions of a controller that nobody asks for: brokers whose sessions are over, brokers that are dead, and
elections by the clock.

A broker is fenced at once when the connection of its heartbeats has closed and nothing listens any more where
it was reached: its process is dead. A paused broker, or one behind a broken network, keeps its connection or
leaves its connections unanswered; it is fenced when its session is over. A refused connection counts only at
an address at which the controller has reached the broker before in this registration: a wrong or translated
address refuses those who live, too. A parent of brokers knows for sure that one has ended (`died`).
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
    from odradek.apis.turn import TimerHandle, Timers, WorkQueue
    from odradek.coordinator.cluster.view import Broker, ClusterView
    from odradek.coordinator.controller.batch import PartitionDefaults
    from odradek.coordinator.controller.broker_sessions import BrokerSessions
    from odradek.coordinator.controller.draft import RecordDraft
    from odradek.coordinator.controller.elections import Elections
    from odradek.coordinator.controller.machine import Controller
    from odradek.wire.messages.metadata_records import MetadataRecord
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.controller")

KNOCKS = 5
KNOCK_AGAIN_S = 0.02
KNOCK_TIMEOUT_S = 1.0
MORE_ELECTIONS_MS = 10
"""Pause before the next elections, where there may be more than one decision can change."""


Elect = Callable[["ClusterView", "PartitionDefaults"], "Elections"]


class Watching:
    """See the module."""

    def __init__(
        self,
        controller: Controller,
        sessions: BrokerSessions,
        defaults: PartitionDefaults,
        changes: WorkQueue,
        timers: Timers,
        clock_ms: Callable[[], int],
        *,
        preferred_interval_ms: int | None,
        unclean_interval_ms: int,
    ) -> None:
        """`preferred_interval_ms`: None if leaders are not moved back to the first replicas."""
        self._controller = controller
        self._sessions = sessions
        self._defaults = defaults
        self._changes = changes
        self._timers = timers
        self._clock_ms = clock_ms
        self._preferred_interval_ms = preferred_interval_ms
        self._unclean_interval_ms = unclean_interval_ms
        self._session_timer: TimerHandle | None = None
        self._election_timers: dict[str, TimerHandle] = {}
        self._connections: dict[int, ConnectionInfo] = {}
        """Connection of the newest heartbeat, by broker."""
        self._reached: dict[int, int] = {}
        """Epoch of a broker in which it was reached at its listener."""
        self._dead: dict[int, int] = {}
        """Epochs of brokers whose process has ended, and whose connection has not been seen to close yet."""
        self._are_gone = asyncio.Event()
        self._are_gone.set()
        self._knocking: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def start(self) -> None:
        """Every unfenced broker has a whole session from now on."""
        self._sessions.begin(self._controller.view.registrations.values(), self._clock_ms())
        self.sessions_changed()
        if (interval_ms := self._preferred_interval_ms) is not None:
            what = "leaders are elected: the first replicas"
            self._elect_after(interval_ms, what, elect_preferred_leaders, interval_ms)
        interval_ms = self._unclean_interval_ms
        self._elect_after(interval_ms, "leaders are elected uncleanly", elect_unclean_leaders, interval_ms)

    def close(self) -> None:
        self._is_closed = True
        for timer in (self._session_timer, *self._election_timers.values()):
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
        due_ms = self._sessions.next_expiry_ms
        if due_ms is not None:
            self._session_timer = self._timers.after(max(due_ms - self._clock_ms(), 1), self._expire)

    def _expire(self) -> None:
        self._session_timer = None

        def decide() -> list[MetadataRecord]:
            # Heartbeats that have come before this are decided on: they are earlier in the queue.
            return fence_expired(self._controller.view, self._defaults, self._sessions, self._clock_ms())

        self._run("brokers without a session are fenced", decide, self.sessions_changed)

    # Dead brokers

    def heard(self, broker_id: int, broker_epoch: int, connection: ConnectionInfo) -> None:
        """A heartbeat of a broker has come."""
        if self._connections.get(broker_id) is not connection:
            self._connections[broker_id] = connection
            self._are_gone.clear()
            connection.when_closed(lambda closed: self._lost(broker_id, broker_epoch, connection))
        if self._reached.get(broker_id) != broker_epoch:
            broker = self._registered(broker_id, broker_epoch)
            if broker is not None and not broker.is_fenced:
                self._reached[broker_id] = broker_epoch
                self._knock(self._reach(broker))

    def died(self, broker_id: int) -> None:
        """The process that is registered as this broker has ended. What it has sent before counts: it is
        fenced, and its session ends, when its connection has closed, too."""
        broker = self._controller.view.registrations.get(broker_id)
        if broker is None:
            return
        if broker_id in self._connections:
            self._dead[broker_id] = broker.epoch
        else:
            self._fence(broker)

    async def brokers_have_left(self) -> None:
        """Returns when no broker that sends heartbeats is connected."""
        await self._are_gone.wait()

    def _registered(self, broker_id: int, broker_epoch: int) -> Broker | None:
        broker = self._controller.view.registrations.get(broker_id)
        return None if broker is None or broker.epoch != broker_epoch else broker

    def _lost(self, broker_id: int, broker_epoch: int, connection: ConnectionInfo) -> None:
        if self._connections.get(broker_id) is not connection:
            return
        del self._connections[broker_id]
        if not self._connections:
            self._are_gone.set()
        broker = self._registered(broker_id, broker_epoch)
        if self._dead.pop(broker_id, None) == broker_epoch and broker is not None:
            self._fence(broker)
            return
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
        def decide() -> list[MetadataRecord]:
            if broker.node_id in self._connections:
                return []
            view = self._controller.view
            return fence(view, self._defaults, self._sessions, broker.node_id, broker.epoch)

        self._run(f"broker {broker.node_id} is dead and is fenced", decide)

    # Elections

    def _elect_after(self, delay_ms: int, what: str, elect: Elect, interval_ms: int) -> None:
        if self._is_closed:
            return
        pause_ms = interval_ms

        def decide() -> list[MetadataRecord]:
            nonlocal pause_ms
            found = elect(self._controller.view, self._defaults)
            pause_ms = MORE_ELECTIONS_MS if found.has_more else interval_ms
            return found.records

        def begin() -> None:
            self._run(what, decide, lambda: self._elect_after(pause_ms, what, elect, interval_ms))

        self._election_timers[what] = self._timers.after(delay_ms, begin)

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

        self._changes.run(self._controller.changing(edit), done, failed)


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
