"""The log under a state machine, as the coordinator sees it; the server makes one of a storage partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from odradek.coordinator.effects import LogRecord
from odradek.wire.errors import KafkaError

__all__ = ["CoordinatorLog"]


class CoordinatorLog(Protocol):
    """One partition of an internal topic, led by this node."""

    def append(self, records: list[LogRecord], then: Callable[[KafkaError | None], None]) -> None:
        """Write the records as one batch, all or none, in the order of the calls.

        `then` is called exactly once, never before `append` has returned, in the order of the appends: with
        None when the records are as safe as the topic's settings promise, else with the error. It is also the
        way to refuse (a batch over the limit, a full disk): `append` itself raises nothing.
        """

    def read_all(self) -> Iterator[LogRecord]:
        """Every record from the log's start to its end, lazily and in order; raises KafkaError."""
