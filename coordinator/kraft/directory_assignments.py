"""The controllers learn in which log directory each replica of a node is (AssignReplicasToDirs, KIP-858).

A record may name no directory of a new replica, or the one from which a replica has been moved. What the disk
has is sent until the controllers have taken it; one request is under way at a time. A later wish for the same
partition takes the place of an earlier one.

Source: AssignmentsManager of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.wire.errors import ErrorCode

ASSIGNMENTS_MAX = 2_250
"""Bound of one request, as in Kafka: the controllers' records of it have to fit into one batch."""
FIRST_RETRY_MS, RETRY_MS_MAX = 100, 10_000
TOLD_AFTER_MS = 120_000
"""Time until a refusal of a partition is reported: its record may be on its way."""

TopicPartition = tuple[bytes, int]
"""Topic id and partition."""


class Assignment(NamedTuple):
    topic_id: bytes
    partition: int
    directory: bytes
    """Id of the directory that has the replica."""


class _Wish(NamedTuple):
    directory: bytes
    since_ms: int


class DirectoryAssignments:
    """Call `next_request` when `due_ms` has come; send what it gives, and hand in the response or
    `failed`."""

    def __init__(self) -> None:
        self.due_ms: int | None = None
        """When the next request is to be sent; None: there is nothing to send, or one is under way."""
        self._wishes: dict[TopicPartition, _Wish] = {}
        self._under_way: dict[TopicPartition, bytes] = {}
        self._failures = 0

    def __len__(self) -> int:
        """Replicas of which the controllers have not taken the directory yet."""
        return len(self._wishes)

    def want(self, assignment: Assignment, now_ms: int) -> None:
        """The replica is in that directory, and its record says another one or none."""
        key = assignment[:2]
        known = self._wishes.get(key)
        if known is None or known.directory != assignment.directory:
            self._wishes[key] = _Wish(assignment.directory, now_ms)
            self._plan(now_ms)

    def forget(self, topic_id: bytes, index: int) -> None:
        """The record agrees with the disk, or the replica has gone."""
        self._wishes.pop((topic_id, index), None)

    def next_request(self, now_ms: int) -> list[Assignment]:
        """Empty where nothing is due."""
        if self._under_way or self.due_ms is None or now_ms < self.due_ms:
            return []
        self.due_ms = None
        chosen = list(self._wishes.items())[:ASSIGNMENTS_MAX]
        self._under_way = {key: wish.directory for key, wish in chosen}
        return [Assignment(*key, wish.directory) for key, wish in chosen]

    def failed(self, now_ms: int) -> None:
        """The request was not answered, or refused as a whole."""
        self._under_way = {}
        self._back_off(now_ms)

    def answered(self, errors: Mapping[TopicPartition, ErrorCode], now_ms: int) -> list[TopicPartition]:
        """Keeps what is refused or not confirmed, to send it again. Returns what has been refused for
        long."""
        sent, self._under_way = self._under_way, {}
        told = []
        is_refused = False
        for key, directory in sent.items():
            wish = self._wishes.get(key)
            if wish is None or wish.directory != directory:
                continue
            if errors.get(key) is ErrorCode.NONE:
                del self._wishes[key]
                continue
            is_refused = True
            # At the end: others are not held up by it.
            self._wishes[key] = self._wishes.pop(key)
            if now_ms - wish.since_ms >= TOLD_AFTER_MS:
                told.append(key)
        if is_refused:
            self._back_off(now_ms)
        else:
            self._failures = 0
            self._plan(now_ms)
        return told

    def _back_off(self, now_ms: int) -> None:
        delay_ms = min(FIRST_RETRY_MS << min(self._failures, 10), RETRY_MS_MAX)
        self._failures += 1
        self.due_ms = now_ms + delay_ms if self._wishes else None

    def _plan(self, now_ms: int) -> None:
        """A retry that is planned keeps its time."""
        if self._wishes and not self._under_way and self.due_ms is None:
            self.due_ms = now_ms
