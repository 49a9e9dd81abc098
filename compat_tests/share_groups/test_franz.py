"""The share consumers of franz-go: as it fetches ahead and sends by itself, it has stories of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from compat_tests.kit.programs import Program
from compat_tests.share_groups.brokers import new_topic, produce, set_up_group, wait_until_done
from compat_tests.share_groups.members import (
    ACCEPT,
    FRANZ,
    REJECT,
    RELEASE,
    RENEW,
    Delivery,
    ShareMember,
    program_of,
)

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def program(bootstrap: str) -> Iterator[Program]:
    program = program_of(FRANZ, bootstrap)
    yield program
    program.close()


def test_acknowledgements_of_each_kind(bootstrap: str, program: Program) -> None:
    group, topic = set_up_group(bootstrap), new_topic(bootstrap, 12)
    member = ShareMember(program, group, topic)
    got = member.poll_until(12)
    assert [(one.where.offset, one.count, one.value) for one in got] == [(n, 1, f"{n}") for n in range(12)]
    member.acknowledge_each(zip(got, [ACCEPT, RELEASE, REJECT, RENEW] * 3, strict=True))
    assert member.commit() == {(topic, 0): None}
    member.acknowledge([one for one in got if one.where.offset % 4 == 3])
    assert member.commit() == {(topic, 0): None}
    again = member.poll_until(3)
    assert [(one.where.offset, one.count) for one in again] == [(1, 2), (5, 2), (9, 2)]
    member.acknowledge(again)
    assert member.commit() == {(topic, 0): None}
    member.close()
    wait_until_done(bootstrap, group, topic)


def test_poison_is_archived_at_the_limit_of_deliveries(bootstrap: str, program: Program) -> None:
    group = set_up_group(bootstrap, {"share.delivery.count.limit": "3"})
    topic = new_topic(bootstrap, 1)
    member = ShareMember(program, group, topic)
    counts = []
    while len(counts) < 3:
        got = member.poll_until(1)
        counts += [one.count for one in got]
        member.acknowledge(got, RELEASE)
        assert member.commit() == {(topic, 0): None}
    assert counts == [1, 2, 3]
    wait_until_done(bootstrap, group, topic)
    member.close()


def test_a_strict_limit_of_records(bootstrap: str, program: Program) -> None:
    group, topic = set_up_group(bootstrap), new_topic(bootstrap, 30)
    settings = {"max.poll.records": "4", "share.acquire.mode": "record_limit"}
    member = ShareMember(program, group, topic, settings=settings)
    sizes: list[int] = []
    while sum(sizes) < 30:
        got = member.poll_until(1)
        sizes.append(len(got))
        member.acknowledge(got)
    assert max(sizes) <= 4, sizes
    member.commit()
    member.close()
    wait_until_done(bootstrap, group, topic)


def test_two_consumers_share_a_partition(bootstrap: str, program: Program) -> None:
    group, topic = set_up_group(bootstrap), new_topic(bootstrap)
    both = [ShareMember(program, group, topic) for _ in range(2)]
    seen: list[list[Delivery]] = [[], []]
    sent, deadline = 0, time.monotonic() + 60
    while not all(seen) or sum(map(len, seen)) < sent:
        assert time.monotonic() < deadline, seen
        if not all(seen):
            produce(bootstrap, topic, range(sent, sent + 1))
            sent += 1
        for member, got in zip(both, seen, strict=True):
            more = member.poll(200)
            member.acknowledge(more)
            got += more
    for member in both:
        member.commit()
        member.close()
    everything = sorted([*seen[0], *seen[1]])
    assert [(one.where.offset, one.count) for one in everything] == [(n, 1) for n in range(sent)]
    wait_until_done(bootstrap, group, topic)
