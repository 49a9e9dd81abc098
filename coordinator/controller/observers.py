"""Observers of the metadata log: the brokers that follow it, and how far each of them is.

Source: LeaderState of Kafka 4.4 (raft).
"""

from __future__ import annotations

from dataclasses import dataclass

FORGOTTEN_AFTER_MS = 300_000
"""An observer that has not fetched for so long is not described (OBSERVER_SESSION_TIMEOUT_MS)."""
OBSERVERS_MAX = 10_000
"""Bound for ids that a client makes up."""
UNKNOWN = -1


@dataclass(slots=True)
class Observer:
    """Progress of a broker; times are milliseconds since 1970, -1 for never."""

    node_id: int
    directory_id: bytes
    end_offset: int = UNKNOWN
    fetched_ms: int = UNKNOWN
    caught_up_ms: int = UNKNOWN
    """Newest time at which it is known to have had the whole log."""
    seen_end_offset: int = UNKNOWN
    """End of the log at its last fetch."""


class Observers:
    """See the module."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bytes], Observer] = {}

    def fetched(
        self, node_id: int, directory_id: bytes, offset: int, log_end_offset: int, now_ms: int
    ) -> None:
        """A broker fetches from this offset on."""
        key = node_id, directory_id
        one = self._known.get(key)
        if one is None:
            self._forget(now_ms)
            if len(self._known) >= OBSERVERS_MAX:
                return
            one = self._known[key] = Observer(node_id, directory_id)
        if offset >= log_end_offset:
            one.caught_up_ms = max(one.caught_up_ms, now_ms)
        elif one.seen_end_offset != UNKNOWN and offset >= one.seen_end_offset:
            one.caught_up_ms = max(one.caught_up_ms, one.fetched_ms)
        one.end_offset = max(one.end_offset, offset)
        one.fetched_ms = max(one.fetched_ms, now_ms)
        one.seen_end_offset = log_end_offset

    def all(self, now_ms: int) -> list[Observer]:
        """In the order of their ids."""
        self._forget(now_ms)
        return sorted(self._known.values(), key=lambda one: (one.node_id, one.directory_id))

    def _forget(self, now_ms: int) -> None:
        old = [key for key, one in self._known.items() if one.fetched_ms + FORGOTTEN_AFTER_MS <= now_ms]
        for key in old:
            del self._known[key]
