"""Members of share groups that say nothing any more: when the group lets them go, and what becomes of the
records that they had."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.differential.conftest import SETTINGS
from compat_tests.differential.harness import Pair, Pauses
from compat_tests.differential.members import settle_coordinator
from compat_tests.differential.pairs import pair_of
from compat_tests.differential.sharing import (
    ACCEPT,
    RELEASE,
    SECONDS,
    Member,
    beat,
    describe,
    describe_offsets,
    heartbeat,
    join,
    readers,
    without_partitions,
)
from compat_tests.differential.test_share_fetch import fill
from compat_tests.differential.topics import new_topic
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest

SESSION_MS = 6_000
"""Longer than the shortest interval between heartbeats."""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    settings = {"group.share.min.session.timeout.ms": "1000"}
    with pair_of(reference.CURRENT, SETTINGS | settings) as pair:
        settle_coordinator(pair)
        yield pair


def test_a_silent_member_is_let_go_alike(pair: Pair) -> None:
    topic = new_topic(pair, "shares", 2)
    fill(pair, topic, 4)
    group, place = readers(pair, topic, 2, session_timeout_ms=str(SESSION_MS)), (topic, 0)
    silent_epoch = beat(pair, heartbeat(group, "silent", 0, [topic]), "joins", see=without_partitions)
    silent, other = Member(pair, group, "silent"), Member(pair, group)
    silent.fetch(place, note="acquires", max_records=2, batch_size=2)

    # The other member keeps its session on both sides until both have let the silent one go.
    begin = time.monotonic()
    epochs = dict.fromkeys(pair.sides, 0)  # It joins again first.
    seconds: dict[str, float] = {}
    pause = Pauses()
    while len(seconds) < len(pair.sides):
        assert time.monotonic() < begin + SECONDS, seconds
        for side in pair.sides:
            answer = side.ask(heartbeat(group, "m", epochs[side], [topic]), 1)
            assert answer.error_code == 0, (side.name, answer)
            epochs[side] = answer.member_epoch
            (now,) = side.ask(ShareGroupDescribeRequest(group_ids=[group]), 1).groups
            if len(now.members) == 1:
                seconds.setdefault(side.name, time.monotonic() - begin)
        pause()
    assert all(0.9 * SESSION_MS < 1000 * took < 2 * SESSION_MS for took in seconds.values()), seconds

    epoch = join(pair, group, "m", topic, partitions=2)
    describe(pair, group, note="one is left")
    beat(pair, heartbeat(group, "silent", silent_epoch), "comes back")
    beat(pair, heartbeat(group, "m", epoch), "goes on")
    # The records stay locked as long as the connection of the silent member is open.
    other.fetch(place, note="what the silent one left")
    other.acknowledge({place: [(2, 3, [ACCEPT])]}, "done with it")
    silent.acknowledge({place: [(0, 0, [ACCEPT]), (1, 1, [RELEASE])]}, "the silent one speaks")
    other.fetch(note="what it gave back")
    other.acknowledge({place: [(1, 1, [ACCEPT])]}, "all done")
    describe_offsets(pair, (group, {topic: [0]}), note="all done")
    beat(pair, heartbeat(group, "silent", 0, [topic]), "joins again", see=without_partitions)
    for member in (silent, other):
        member.close()
