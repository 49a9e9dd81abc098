"""The life of a broker as its controllers see it: registration, heartbeats, fencing, controlled shutdown.

    STARTING                      registered, fenced: the node catches up with the metadata log
    RECOVERY                      it has caught up: logs are recovered, partitions are made
    RUNNING                       unfenced at least once; clients are served
    PENDING_CONTROLLED_SHUTDOWN   it asks to be let go, and leads less and less
    SHUTTING_DOWN                 it was let go, or nobody waits for it

One request is under way at a time. A controller that does not hear of a node for `broker.session.timeout.ms`
fences it: the node loses what it leads, and its place in every ISR. It keeps its broker epoch, and is back
with the next heartbeat. While no controller answers a heartbeat is tried at its usual pace: a controller that
is back gives each node one session to be heard of. (Kafka waits up to `broker.session.timeout.ms`, and may
come too late.) A node whose epoch is refused, since another process has registered with its id or it
was unregistered, goes on asking, as in Kafka: were it to register again, two processes would take turns.

Source: KIP-631; BrokerLifecycleManager of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

FIRST_RETRY_MS = 100
REGISTRATION_RETRY_MS_MAX = 1_000
"""A restart waits for the end of the session of the process before it, even after a granted shutdown. With
Kafka's limit, `broker.session.timeout.ms`, the eighth try comes after 12.7 s; the session ends after 9 s."""
STARTING_INTERVAL_MS = 10
"""Between heartbeats until the node has caught up: a start without recovery is short."""
FIRST_SHUTDOWN_INTERVAL_MS = 50
"""A shutdown of a node that leads little is granted soon."""
UNKNOWN_EPOCH = -1


class BrokerState(Enum):
    """See the module."""

    STARTING = "STARTING"
    RECOVERY = "RECOVERY"
    RUNNING = "RUNNING"
    PENDING_CONTROLLED_SHUTDOWN = "PENDING_CONTROLLED_SHUTDOWN"
    SHUTTING_DOWN = "SHUTTING_DOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleSettings:
    """Options of these names, in milliseconds."""

    heartbeat_interval_ms: int = 2_000
    session_timeout_ms: int = 9_000
    initial_registration_timeout_ms: int = 60_000
    directory_failure_timeout_ms: int = 30_000


class Registration(NamedTuple):
    """Ask the controller to register this process."""


class Heartbeat(NamedTuple):
    """Tell the controller that this process lives."""

    broker_epoch: int
    metadata_offset: int
    """The last offset of the metadata log that has been applied, -1 for none."""
    wants_fence: bool
    wants_shutdown: bool
    offline_directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] | None = None
    """None: the controllers do not ask for them, or the node has not caught up with its metadata."""


class HeartbeatResult(NamedTuple):
    """A heartbeat's response without an error."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(slots=True)
class BrokerLifecycle:
    """Call `next_request` when `due_ms` has come; send what it gives, and hand in the response or
    `failed`."""

    settings: LifecycleSettings
    started_ms: int
    state: BrokerState = BrokerState.STARTING
    broker_epoch: int = UNKNOWN_EPOCH
    is_fenced: bool = True
    """Whether the broker is fenced, by the last response."""
    due_ms: int = 0
    """When the next request is to be sent."""
    is_ready: bool = False
    """Whether the node has applied the metadata and recovered its logs: it wants to be unfenced."""
    reported_directories: set[bytes] = field(default_factory=set)
    """Offline directories that a controller has been told of."""
    cordoned_directories: tuple[bytes, ...] | None = None
    """Directories, by id, that take no new partitions; None: they are not to be told."""
    _offline_directories: dict[bytes, int] = field(default_factory=dict)
    """When each has failed."""
    _sent_directories: tuple[bytes, ...] = ()
    _is_registered: bool = False
    _has_been_registered: bool = False
    _is_under_way: bool = False
    _is_next_at_once: bool = False
    _failures: int = 0
    _has_shutdown_response: bool = False

    # Requests

    def next_request(self, now_ms: int, metadata_offset: int) -> Registration | Heartbeat | None:
        """Request to be sent now; None where nothing is due, or the last one has no response yet."""
        if self._is_under_way or now_ms < self.due_ms or self.state is BrokerState.SHUTTING_DOWN:
            return None
        self._is_under_way = True
        if not self._is_registered:
            return Registration()
        self._sent_directories = tuple(self._offline_directories)
        return Heartbeat(
            self.broker_epoch,
            metadata_offset,
            wants_fence=not self.is_ready,
            wants_shutdown=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_directories=self._sent_directories,
            cordoned_directories=self.cordoned_directories,
        )

    def has_given_up(self, now_ms: int) -> bool:
        """Whether the first registration has taken longer than `initial.broker.registration.timeout.ms`."""
        return (
            not self._has_been_registered
            and now_ms - self.started_ms >= self.settings.initial_registration_timeout_ms
        )

    @property
    def look_again_ms(self) -> int:
        """When the next request is due, or the first registration has taken too long."""
        if self._has_been_registered:
            return self.due_ms
        return min(self.due_ms, self.started_ms + self.settings.initial_registration_timeout_ms)

    def has_kept_failures(self, now_ms: int) -> bool:
        """Whether a failed directory could not be reported for `log.dir.failure.timeout.ms`: its partitions
        would stay without a leader, so the node has to end."""
        return any(
            now_ms - since_ms >= self.settings.directory_failure_timeout_ms
            for directory, since_ms in self._offline_directories.items()
            if directory not in self.reported_directories
        )

    # Responses

    def failed(self, now_ms: int) -> None:
        """The request was not answered, or was refused: it is sent again, later each time."""
        self._is_under_way = False
        self._is_next_at_once = False
        delay_ms = FIRST_RETRY_MS << min(self._failures, 20)
        self._failures += 1
        limit_ms = min(self.settings.heartbeat_interval_ms, self.settings.session_timeout_ms)
        if not self._is_registered:
            limit_ms = min(limit_ms, REGISTRATION_RETRY_MS_MAX)
        self.due_ms = now_ms + min(delay_ms, limit_ms)

    def registered(self, broker_epoch: int, now_ms: int) -> None:
        """The registration has been taken."""
        self._answered()
        self._is_registered = self._has_been_registered = True
        self.broker_epoch = broker_epoch
        self._due_in(0, now_ms)

    def heartbeat_answered(self, result: HeartbeatResult, now_ms: int) -> None:
        """The state goes on, by what the controller says."""
        self._answered()
        self.reported_directories.update(self._sent_directories)
        self.is_fenced = result.is_fenced
        delay_ms = self.settings.heartbeat_interval_ms
        if self.state is BrokerState.STARTING:
            if result.is_caught_up:
                self.state = BrokerState.RECOVERY
            delay_ms = STARTING_INTERVAL_MS
        elif self.state is BrokerState.RECOVERY:
            if not result.is_fenced:
                self.state = BrokerState.RUNNING
        elif self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if result.should_shut_down:
                self.state = BrokerState.SHUTTING_DOWN
            elif not self._has_shutdown_response:
                delay_ms = FIRST_SHUTDOWN_INTERVAL_MS
            self._has_shutdown_response = True
        self._due_in(delay_ms, now_ms)

    def leader_found(self, now_ms: int) -> None:
        """A controller leads, where none was known before: a registration that has failed is sent at once."""
        if not self._is_registered and self._failures and not self._is_under_way:
            self._failures = 0
            self.due_ms = now_ms

    # Of the node

    def set_ready(self, now_ms: int) -> None:
        """The node can serve: the next heartbeat asks to unfence it."""
        self.is_ready = True
        self._due_in(0, now_ms)

    def report_offline(self, directories: Collection[bytes], now_ms: int) -> None:
        """Directories, by id, that have failed; the next heartbeats name them."""
        before = len(self._offline_directories)
        for directory in directories:
            self._offline_directories.setdefault(directory, now_ms)
        if self._is_registered and len(self._offline_directories) > before:
            self._due_in(0, now_ms)

    def report_cordoned(self, directories: Collection[bytes] | None, now_ms: int) -> None:
        """All directories, by id, that take no new partitions now; None: the cluster does not know such. The
        next heartbeats name them."""
        before = self.cordoned_directories
        self.cordoned_directories = None if directories is None else tuple(sorted(directories))
        if self._is_registered and self.cordoned_directories not in (before, None):
            self._due_in(0, now_ms)

    def begin_shutdown(self, now_ms: int) -> None:
        """Ask to be let go; a node that has never served goes at once."""
        if self.state is BrokerState.RUNNING:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._due_in(0, now_ms)
        elif self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.state = BrokerState.SHUTTING_DOWN

    # Inside

    def _answered(self) -> None:
        self._is_under_way = False
        self._failures = 0

    def _due_in(self, delay_ms: int, now_ms: int) -> None:
        """While a request is under way only the wish for an immediate one is noted."""
        if self._is_under_way:
            self._is_next_at_once = self._is_next_at_once or delay_ms == 0
            return
        self.due_ms = now_ms + (0 if self._is_next_at_once else delay_ms)
        self._is_next_at_once = False
