"""What the broker itself has written of a group to `__consumer_offsets`, as a witness."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from compat_tests.groups.judge import NOTHING, Allowed
from compat_tests.kit import readers
from compat_tests.kit.transaction_brokers import SETTINGS
from odradek.wire.messages import group_records as records
from odradek.wire.messages.consumer_protocol import decode_assignment

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])

Assignment = dict[str, frozenset[int]]
"""Member -> partitions of the topic."""


def _messages(bootstrap: str) -> list[Any]:
    """All of the topic as it is at the moment: groups at work write on and on."""
    where = [(OFFSETS_TOPIC, number) for number in range(OFFSETS_PARTITIONS)]
    ends = {one[1]: end.last_stable_offset for one, end in readers.ends(bootstrap, where).items()}
    unread = {number for number, end in ends.items() if end}
    consumer = readers.new_consumer(bootstrap)
    found = []
    deadline = time.monotonic() + readers.DEADLINE_SECONDS
    try:
        consumer.assign(readers.from_start((OFFSETS_TOPIC, number) for number in unread))
        while unread:
            assert time.monotonic() < deadline, f"not read to the end: {sorted(unread)} of {ends}"
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    found.append(message)
            # The last record may be a marker, which is not given out.
            places = consumer.position(readers.from_start((OFFSETS_TOPIC, number) for number in unread))
            unread -= {one.partition for one in places if one.offset >= ends[one.partition]}
    finally:
        consumer.close()
    return found


class GroupLog:
    """The records of one group, in their order. Nothing of it is compacted yet: segments are active ones."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._topic = topic
        self.records: list[tuple[Any, Any]] = []
        for message in _messages(bootstrap):
            key = records.decode_key(message.key())
            if key is None or getattr(key, "group", getattr(key, "group_id", None)) != group:
                continue
            value = None if message.value() is None else records.decode_value(key, message.value())
            self.records.append((key, value))

    def _values(self, kind: type) -> Iterator[tuple[Any, Any]]:
        return ((key, value) for key, value in self.records if isinstance(key, kind))

    def generations(self) -> list[tuple[int, Assignment]]:
        """Of a classic group: every state that was written with its generation, in order."""
        found = []
        for _, value in self._values(records.GroupMetadataKey):
            if value is not None:
                names = {one.group_instance_id or one.member_id: self._classic(one) for one in value.members}
                found.append((int(value.generation), names))
        return found

    def _classic(self, member: Any) -> frozenset[int]:
        if not member.assignment:
            return frozenset()
        told = decode_assignment(member.assignment).assigned_partitions
        return frozenset(number for one in told if one.topic == self._topic for number in one.partitions)

    def current_assignments(self) -> Iterator[Assignment]:
        """Of a group of the new protocol: who has what, and has not given it up yet, after each change."""
        now: Assignment = {}
        for key, value in self._values(records.ConsumerGroupCurrentMemberAssignmentKey):
            if value is None:
                now.pop(key.member_id, None)
            else:
                parts = [*value.assigned_partitions, *value.partitions_pending_revocation]
                now[key.member_id] = frozenset(number for part in parts for number in part.partitions)
            yield dict(now)

    def committed(self) -> dict[int, list[int]]:
        """Every offset that was committed, by partition; a deletion begins anew."""
        found: dict[int, list[int]] = {}
        for key, value in self._values(records.OffsetCommitKey):
            if key.topic == self._topic:
                if value is None:
                    found.pop(key.partition, None)
                else:
                    found.setdefault(key.partition, []).append(int(value.offset))
        return found

    def faults(self, allowed: Allowed = NOTHING) -> list[str]:
        found = []
        generations = self.generations()
        for number, assignment in generations:
            found += [f"generation {number}: {line}" for line in shared(assignment)]
        numbers = [number for number, _ in generations]
        if numbers != sorted(numbers):
            found.append(f"generations go back: {numbers}")
        for assignment in self.current_assignments():
            found += [f"in the log: {line}" for line in shared(assignment)]
        if not allowed.commits_go_back:
            for partition, offsets in self.committed().items():
                if offsets != sorted(offsets):
                    found.append(f"committed offsets of partition {partition} go back: {offsets}")
        return found


def shared(assignment: Assignment) -> Iterable[str]:
    """A line for each partition that two members have."""
    owners: dict[int, str] = {}
    for member, partitions in assignment.items():
        for number in partitions:
            if (other := owners.setdefault(number, member)) != member:
                yield f"partition {number} belongs to {other} and to {member}"
