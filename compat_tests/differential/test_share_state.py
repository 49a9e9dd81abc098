"""The states of share partitions (KIP-932): the five requests between brokers, with every error, and the
records of `__share_group_state` byte by byte.

Snapshots have the times at which they were made; ids of topics are each broker's own.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.differential.harness import SECONDS, Pair, Pauses, Side
from compat_tests.differential.share_state import (
    SHARE,
    InitializeShareGroupStateRequest,
    delete,
    initialize,
    read,
    summarize,
    wait_for_coordinator,
    write,
)
from compat_tests.differential.topics import id_of, new_topic
from odradek.coordinator.shares.state import record_codec
from odradek.coordinator.shares.state.record_codec import SNAPSHOT
from odradek.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.records import iter_batches, iter_records
from odradek.wire.schema import ZERO_UUID, Message, uuid_to_text

SHARE_STATE_TOPIC = "__share_group_state"
UPDATES_PER_SNAPSHOT = 3
_numbers = itertools.count()


@pytest.fixture
def topic(pair: Pair) -> str:
    """With two partitions, and both coordinators are there."""
    if not pair.versions(InitializeShareGroupStateRequest):
        pytest.skip("this release has no share groups")
    name = new_topic(pair, "shared", 2)
    for side in pair.sides:
        wait_for_coordinator(side, name)
    return name


def new_group() -> str:
    return f"sharers-{next(_numbers)}"


class Story:
    """One group of one topic, asked the same on both sides."""

    def __init__(self, pair: Pair, topic: str, group: str | None = None) -> None:
        self._pair = pair
        self._topic = topic
        self.group = new_group() if group is None else group

    def ask(
        self, make: Callable[..., Message], *partitions: int, of: str | bytes | None = None, **fields: Any
    ) -> None:
        """In every version, and the answers in any order: Kafka's are in that of hash tables."""
        where = self._topic if of is None else of
        note = f"{make.__name__} {partitions} {fields}"
        request = type(make(self._pair.kafka, where, self.group, *partitions, **fields))
        # What changes something is asked once.
        version = self._pair.versions(request)[-1]
        self._pair.ask(
            lambda side: make(side, where, self.group, *partitions, **fields), version, note, any_order=True
        )

    def see(self) -> None:
        """What is kept, and the records."""
        for index in (0, 1):
            self.ask(summarize, index)
            self.ask(read, index)
        self.compare_records()

    def compare_records(self) -> None:
        theirs, ours = (self._records(side) for side in self._pair.sides)
        self._pair.compare(f"records of {self.group}", theirs, ours)

    def _records(self, side: Side) -> list[Any]:
        found = []
        for key, value in records_of(side):
            decoded = record_codec.decode_key(key)
            assert decoded is not None
            kind, place = decoded
            if place.group_id != self.group:
                continue
            # Each byte of it is what we would have written.
            assert record_codec.encode_key(kind, place) == key
            assert place.topic_id == id_of(side, self._topic)
            if value is None:
                found.append([kind, place.partition, None])
            elif kind == SNAPSHOT:
                state = record_codec.decode_snapshot(value)
                assert record_codec.encode_snapshot(state) == value
                assert state.written_ms >= state.created_ms > 0
                times = [state.created_ms.to_bytes(8, "big"), state.written_ms.to_bytes(8, "big")]
                found.append([kind, place.partition, value.replace(b"".join(times), b"", 1).hex()])
            else:
                assert record_codec.encode_update(record_codec.decode_update(value)) == value
                found.append([kind, place.partition, value.hex()])
        return found


def records_of(side: Side) -> list[tuple[bytes, bytes | None]]:
    """All of `__share_group_state`."""
    found: list[tuple[bytes, bytes | None]] = []
    offset = 0
    while True:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic=SHARE_STATE_TOPIC, partitions=[asked])
        answer = side.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic]), 11)
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == 0
        data = bytes(partition.records or b"")
        if not data:
            return found
        for position, header in iter_batches(data):
            for record in iter_records(data[position : position + header.size_bytes]):
                assert record.key is not None
                found.append((bytes(record.key), None if record.value is None else bytes(record.value)))
            offset = header.last_offset + 1


def test_a_state_lives_alike(pair: Pair, topic: str) -> None:
    story = Story(pair, topic)
    story.see()
    story.ask(initialize, 0, 1)
    story.see()
    story.ask(read, 0, 1, leader=3)
    story.ask(write, 0, leader=3, start=10, done=0, batches=[(10, 19, 0, 1)])
    story.ask(write, 0, leader=3, start=10, done=2, batches=[(12, 12, 2, 1), (14, 14, 4, 2)])
    story.see()
    for start in range(12, 20):
        story.ask(write, 0, 1, leader=3, start=start, done=1, batches=[(start, start + 1, 2, 2)])
    story.see()
    story.ask(initialize, 0, state=1, start=100)
    story.see()
    story.ask(write, 0, state=1, leader=3, start=100, done=0)
    story.ask(read, 0, leader=4)
    story.ask(delete, 0)
    story.see()
    story.ask(delete, 0, 1)
    story.see()
    story.ask(initialize, 0, start=5)
    story.see()


def test_refusals_are_alike(pair: Pair, topic: str) -> None:
    story = Story(pair, topic)
    for make in (read, write, delete, summarize):
        story.ask(make, 0)
    makes = (initialize, read, write, delete, summarize)
    for make in makes:
        story.ask(make, -1)
        story.ask(make, 2)
        story.ask(make, 0, 2, -1)
        story.ask(make, 0, of=ZERO_UUID)
        story.ask(make, 0, of=bytes(range(16)))
        story.ask(make)
    story.ask(initialize, 0, state=5, start=7)
    for epoch in (-1, 0, 4, 5, 6):
        story.ask(write, 0, state=epoch)
        story.ask(initialize, 1, state=epoch)
    story.ask(read, 0, leader=6)
    for epoch in (-1, 0, 5, 6, 7):
        story.ask(write, 0, state=5, leader=epoch)
        story.ask(read, 0, leader=epoch)
    story.ask(initialize, 0, state=4)
    story.ask(initialize, 0, state=-1, start=3)
    story.ask(write, 0, state=4, leader=7)
    story.ask(initialize, 0, state=-2)
    story.see()
    nameless = Story(pair, topic, "")
    for make in makes:
        nameless.ask(make, 0)


def test_a_request_without_topics_is_answered_alike(pair: Pair, topic: str) -> None:
    for module, name in (
        (initialize_share_group_state, "Initialize"),
        (read_share_group_state, "Read"),
        (write_share_group_state, "Write"),
        (delete_share_group_state, "Delete"),
    ):
        request = getattr(module, f"{name}ShareGroupStateRequest")
        pair.sweep(
            request, lambda side, version, request=request: request(group_id="g", topics=[]), "nothing"
        )
    request = read_share_group_state_summary.ReadShareGroupStateSummaryRequest
    pair.sweep(request, lambda side, version: request(group_id="g", topics=[]), "nothing")


def test_older_versions_are_answered_alike(pair: Pair, topic: str) -> None:
    story = Story(pair, topic)
    story.ask(initialize, 0, start=0)

    def written(side: Side, version: int) -> Message:
        # Version 0 has no place for the count.
        done = 5 if version else -1
        return write(side, topic, story.group, 0, start=3, done=done, batches=[(4, 4, 2, 1)])

    pair.sweep(write_share_group_state.WriteShareGroupStateRequest, written, "written")
    pair.sweep(
        read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
        lambda side, version: summarize(side, topic, story.group, 0),
        "written",
    )
    story.see()


@pytest.mark.parametrize("seed", range(4))
def test_batches_are_combined_alike(pair: Pair, topic: str, seed: int) -> None:
    choose = random.Random(seed)
    story = Story(pair, topic)
    story.ask(initialize, 0, start=0)
    start = 0
    for _ in range(25):
        start += choose.randrange(3)
        batches = []
        for _ in range(choose.randrange(5)):
            first = start + choose.randrange(-3, 20)
            batches.append(
                (
                    max(first, 0),
                    max(first, 0) + choose.randrange(8),
                    choose.choice([0, 2, 4]),
                    choose.randrange(1, 4),
                )
            )
        story.ask(write, 0, start=choose.choice([-1, start]), done=choose.randrange(9), batches=batches)
        story.ask(read, 0)
    story.see()


def test_the_states_of_a_deleted_topic_get_tombstones_alike(pair: Pair, topic: str) -> None:
    story = Story(pair, topic)
    story.ask(initialize, 0, start=0)
    for side in pair.sides:
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)
        assert side.ask(request, 5).responses[0].error_code == 0
    deadline = time.monotonic() + SECONDS
    pause = Pauses()
    while not all(
        any(value is None and story.group.encode() in key for key, value in records_of(side))
        for side in pair.sides
    ):
        assert time.monotonic() < deadline, "a tombstone is missing"
        pause()
    story.compare_records()


@pytest.mark.parametrize(
    "key",
    ["", ":", "g", "g:0", "g:t:0", "::", " :{id}:0", ":{id}:0", "g:{id}:x", "g:{id}:", "g:{id}", "a:b:{id}:1",
     "g:{id}:-1", "g:{id}:+1", "g:{id}:2147483648", "g:{id}==:0", "g:{id}::0", "g:{id}:0:", "g:{id}:0::",
     "g:{id}: 0"],
)  # fmt: skip
def test_keys_of_share_partitions_are_understood_alike(pair: Pair, topic: str, key: str) -> None:
    def find(side: Side) -> Message:
        text = key.replace("{id}", uuid_to_text(id_of(side, topic)))
        side.remember(f"key {key}", text, "key")
        return FindCoordinatorRequest(coordinator_keys=[text], key_type=SHARE)

    for version in (4, 5, 6):
        pair.ask(find, version, key)
