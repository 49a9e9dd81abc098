"""Changes of ISRs on their way to the controller: one request at a time, for all partitions, tried for ever.

A partition has one change here; a later one takes its place. What has become of the former change while it
was under way is judged by the leader, which drops the response to a change that it does not wait for
(`LeaderState.altered`).

Source: `DefaultAlterPartitionManager` of Kafka, which refuses the later change where this replaces the
former.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.coordinator.replication.in_sync import AlteredIsr, AlterIsr
from odradek.coordinator.replication.values import ReplicaKey
from odradek.wire.errors import ErrorCode

RETRY_MS = 50

AlterPartitionRequest = tuple[AlterIsr, ...]


class Altered(NamedTuple):
    """The controller's response to one change, for the leader of the partition."""

    change: AlterIsr
    result: AlteredIsr | ErrorCode


class AlterPartitionQueue:
    """See the module. Call `next_request` after each other call, and at `wake_at_ms`."""

    def __init__(self) -> None:
        self._waiting: dict[ReplicaKey, AlterIsr] = {}
        self._in_flight: AlterPartitionRequest | None = None
        self._retry_at_ms: int | None = None

    @property
    def wake_at_ms(self) -> int | None:
        """When a failed request is tried again."""
        return self._retry_at_ms if self._waiting and self._in_flight is None else None

    def submit(self, change: AlterIsr) -> None:
        self._waiting[change.key] = change

    def forget(self, key: ReplicaKey) -> None:
        """This node leads the partition no more."""
        self._waiting.pop(key, None)

    def next_request(self, now_ms: int) -> AlterPartitionRequest | None:
        """All changes that wait, once the request before has been answered."""
        is_early = self._retry_at_ms is not None and now_ms < self._retry_at_ms
        if self._in_flight is not None or not self._waiting or is_early:
            return None
        self._retry_at_ms = None
        self._in_flight = tuple(self._waiting.values())
        return self._in_flight

    def answered(
        self, request: AlterPartitionRequest, results: Mapping[ReplicaKey, AlteredIsr | ErrorCode]
    ) -> list[Altered]:
        """Results for the leaders. A partition that the response leaves out is asked for again."""
        if request is not self._in_flight:
            return []
        self._in_flight = None
        found = [Altered(change, results[change.key]) for change in request if change.key in results]
        for change, _ in found:
            if self._waiting.get(change.key) is change:
                del self._waiting[change.key]
        return found

    def failed(self, request: AlterPartitionRequest, now_ms: int) -> None:
        """No response, or an error for all of it, such as STALE_BROKER_EPOCH: the same again a little
        later."""
        if request is self._in_flight:
            self._in_flight = None
            self._retry_at_ms = now_ms + RETRY_MS
