"""Sessions of brokers: when each has been heard of, and how far it has applied the metadata.

It is the part of the controller's state that no record has; a start of the controller gives each broker that
is not fenced a fresh session. A session lasts `broker.session.timeout.ms` (`now_ms` is a monotonic clock).
It ends earlier when the broker's process is known to have ended, or has been told that it may.

Source: BrokerHeartbeatTracker and BrokerHeartbeatManager of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek.coordinator.cluster.view import Broker

NO_OFFSET = -1


@dataclass(slots=True)
class _Session:
    broker_epoch: int
    contact_ms: int
    metadata_offset: int = NO_OFFSET
    shutdown_offset: int | None = None
    """End of the records that began the controlled shutdown; None: there is none."""


class BrokerSessions:
    """Sessions by broker id, each for one broker epoch. Callers pass registrations that are current."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._sessions: dict[int, _Session] = {}

    def begin(self, registrations: Iterable[Broker], now_ms: int) -> None:
        """Forget all, and give a session to each broker that is not fenced: the controller has started."""
        self._sessions = {
            broker.node_id: _Session(broker.epoch, now_ms) for broker in registrations if not broker.is_fenced
        }

    def contact(self, broker: Broker, now_ms: int) -> None:
        """A heartbeat of the broker has come; its content may be read later."""
        session = self._of(broker)
        if session is None:
            self._sessions[broker.node_id] = _Session(broker.epoch, now_ms)
        else:
            session.contact_ms = max(session.contact_ms, now_ms)

    def applied(self, broker: Broker, metadata_offset: int) -> None:
        """The broker has applied the metadata up to this offset."""
        session = self._of(broker)
        if session is not None:
            session.metadata_offset = metadata_offset

    def end(self, broker: Broker) -> None:
        """The broker's process has ended, or is about to."""
        if self._of(broker) is not None:
            del self._sessions[broker.node_id]

    def is_alive(self, broker: Broker, now_ms: int) -> bool:
        session = self._of(broker)
        return session is not None and not self._is_over(session, now_ms)

    @property
    def next_expiry_ms(self) -> int | None:
        """When to look for sessions that are over; None: there is no session."""
        contacts = [session.contact_ms for session in self._sessions.values()]
        return min(contacts) + self.timeout_ms + 1 if contacts else None

    def take_expired(self, registrations: Mapping[int, Broker], now_ms: int) -> list[Broker]:
        """End the sessions that are over; returns the brokers that are to be fenced for it."""
        over = [node_id for node_id, one in self._sessions.items() if self._is_over(one, now_ms)]
        expired = []
        for node_id in over:
            session, broker = self._sessions.pop(node_id), registrations.get(node_id)
            if broker is not None and broker.epoch == session.broker_epoch and not broker.is_fenced:
                expired.append(broker)
        return expired

    # Controlled shutdown

    def is_shutting_down(self, broker: Broker) -> bool:
        session = self._of(broker)
        return session is not None and session.shutdown_offset is not None

    def begin_shutdown(self, broker: Broker, end_offset: int) -> None:
        """The records that begin its controlled shutdown end at this offset. Only the first call counts."""
        session = self._of(broker)
        if session is not None and session.shutdown_offset is None:
            session.shutdown_offset = end_offset

    def cancel_shutdown(self, broker: Broker) -> None:
        """The broker is fenced: it leads nothing."""
        session = self._of(broker)
        if session is not None:
            session.shutdown_offset = None

    def have_all_applied(self, leaving: Broker, registrations: Iterable[Broker]) -> bool:
        """Whether all active brokers have applied the records that began the shutdown of one."""
        session = self._of(leaving)
        if session is None or session.shutdown_offset is None:
            return False
        return all(
            self._offset_of(broker) >= session.shutdown_offset
            for broker in registrations
            if broker.is_active and broker.node_id != leaving.node_id
        )

    # Inside

    def _of(self, broker: Broker) -> _Session | None:
        session = self._sessions.get(broker.node_id)
        return None if session is None or session.broker_epoch != broker.epoch else session

    def _offset_of(self, broker: Broker) -> int:
        session = self._of(broker)
        return NO_OFFSET if session is None else session.metadata_offset

    def _is_over(self, session: _Session, now_ms: int) -> bool:
        return session.contact_ms + self.timeout_ms < now_ms
