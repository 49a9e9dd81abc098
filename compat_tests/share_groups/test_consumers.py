"""The share consumers of Java, 4.1 to 4.4, and of librdkafka: what each call and each setting does.

The client of 4.1 was a preview: it does not renew locks and knows no modes of acquiring. Neither does
librdkafka 2.16, whose share consumer is one as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from compat_tests import reference
from compat_tests.clients import Message
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.kit.programs import JavaFailure, Program
from compat_tests.share_groups.brokers import (
    new_topic,
    produce,
    set_up_group,
    wait_until_done,
)
from compat_tests.share_groups.members import (
    ACCEPT,
    CONTROLLED,
    JAVA,
    LIBRDKAFKA,
    REJECT,
    RELEASE,
    RENEW,
    Delivery,
    ShareMember,
    program_of,
)

EXPLICIT = {"share.acknowledgement.mode": "explicit"}
LOCK_MS = 1000
SHORT_LOCKS = {"share.record.lock.duration.ms": f"{LOCK_MS}"}


BY_DAY = [reference.CURRENT, "4.1.2", LIBRDKAFKA]
BY_NIGHT = [one for one in CONTROLLED if one not in BY_DAY]


@pytest.fixture(
    scope="module", params=[*BY_DAY, *(pytest.param(one, marks=pytest.mark.nightly) for one in BY_NIGHT)]
)
def library(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def program(bootstrap: str, library: str) -> Iterator[Program]:
    program = program_of(library, bootstrap)
    yield program
    program.close()


def offsets(deliveries: list[Delivery]) -> list[int]:
    return [one.where.offset for one in deliveries]


def test_implicit_acknowledgements_go_with_the_next_poll(bootstrap: str, program: Program) -> None:
    group, topic = set_up_group(bootstrap), new_topic(bootstrap, 20)
    member = ShareMember(program, group, topic)
    got = member.poll_until(20)
    assert offsets(got) == list(range(20))
    assert [one.value for one in got] == [f"{number}" for number in range(20)]
    assert {one.count for one in got} == {1}
    told = member.told_until(20)
    assert sorted(told) == [(one.where, None) for one in got]
    member.close()
    wait_until_done(bootstrap, group, topic)
    again = ShareMember(program, group, topic)
    produce(bootstrap, topic, range(20, 21))
    assert offsets(again.poll_until(1)) == [20]
    again.close()


def test_explicit_acknowledgements_of_each_kind(bootstrap: str, program: Program, library: str) -> None:
    group, topic = set_up_group(bootstrap), new_topic(bootstrap, 9)
    member = ShareMember(program, group, topic, settings=EXPLICIT)
    got = member.poll_until(9)
    kinds = [ACCEPT, RELEASE, REJECT] * 3
    member.acknowledge_each(zip(got, kinds, strict=True))
    assert member.commit() == {(topic, 0): None}
    again = member.poll_until(3)
    assert [(one.where.offset, one.count) for one in again] == [(1, 2), (4, 2), (7, 2)]
    assert [one.value for one in again] == ["1", "4", "7"]
    member.acknowledge(again)
    member.commit_async()
    told = member.told_until(12)
    assert sorted(told) == sorted([(one.where, None) for one in got] + [(one.where, None) for one in again])
    assert member.close() == []
    wait_until_done(bootstrap, group, topic)


def test_a_poll_waits_for_every_acknowledgement(bootstrap: str, program: Program) -> None:
    group, topic = set_up_group(bootstrap), new_topic(bootstrap, 3)
    member = ShareMember(program, group, topic, settings=EXPLICIT)
    got = member.poll_until(3)
    member.acknowledge(got[:2])
    with pytest.raises(JavaFailure, match="IllegalState"):
        member.poll()
    member.acknowledge(got[2:], REJECT)
    assert member.poll(100) == []
    assert len(member.told_until(3)) == 3
    member.close()


def test_what_is_open_when_a_consumer_closes_is_for_others(bootstrap: str, program: Program) -> None:
    group, topic = set_up_group(bootstrap), new_topic(bootstrap, 4)
    first = ShareMember(program, group, topic, settings=EXPLICIT)
    got = first.poll_until(4)
    first.acknowledge(got[:1])
    told = first.close()
    assert [(one.where, None) for one in got[:1]] == told
    second = ShareMember(program, group, topic, settings=EXPLICIT)
    again = second.poll_until(3)
    # A consumer that goes gives its records back, and that it had them counts.
    assert [(one.where.offset, one.count) for one in again] == [(1, 2), (2, 2), (3, 2)]
    second.acknowledge(again)
    assert second.commit() == {(topic, 0): None}
    second.close()


def test_two_consumers_share_a_partition(bootstrap: str, program: Program) -> None:
    group, topic = set_up_group(bootstrap), new_topic(bootstrap)
    both = [ShareMember(program, group, topic, settings={"max.poll.records": "5"}) for _ in range(2)]
    seen: list[list[Delivery]] = [[], []]
    sent, deadline = 0, time.monotonic() + 60
    while not all(seen) or sum(map(len, seen)) < sent:
        assert time.monotonic() < deadline, seen
        if not all(seen):
            # One record in a batch: none has to be taken with others.
            for _ in range(4):
                produce(bootstrap, topic, range(sent, sent + 1))
                sent += 1
        for member, got in zip(both, seen, strict=True):
            got += member.poll(200)
    for member in both:
        member.commit()
        member.close()
    everything = sorted([*seen[0], *seen[1]])
    assert offsets(everything) == list(range(sent))
    assert {one.count for one in everything} == {1}
    wait_until_done(bootstrap, group, topic)


def test_poison_is_archived_at_the_limit_of_deliveries(bootstrap: str, program: Program) -> None:
    limit = 3
    group = set_up_group(bootstrap, {"share.delivery.count.limit": f"{limit}"})
    topic = new_topic(bootstrap, 5)
    member = ShareMember(program, group, topic, settings=EXPLICIT)
    got = member.poll_until(5)
    counts = []
    for _ in range(limit):
        poison = [one for one in got if one.where.offset == 2]
        counts += [one.count for one in poison]
        member.acknowledge([one for one in got if one.where.offset != 2])
        member.acknowledge(poison, RELEASE)
        assert member.commit() == {(topic, 0): None}
        if len(counts) < limit:
            got = member.poll_until(1)
    assert counts == [1, 2, 3]
    wait_until_done(bootstrap, group, topic)
    produce(bootstrap, topic, range(5, 6))
    last = member.poll_until(1)
    assert offsets(last) == [5]
    member.acknowledge(last)
    member.close()


def test_a_lock_ends_and_the_record_comes_again(bootstrap: str, program: Program) -> None:
    group, topic = set_up_group(bootstrap, SHORT_LOCKS), new_topic(bootstrap, 2)
    first = ShareMember(program, group, topic, settings=EXPLICIT)
    got = first.poll_until(2)
    second = ShareMember(program, group, topic, settings=EXPLICIT)
    again = second.poll_until(2)
    assert [(one.where.offset, one.count) for one in again] == [(0, 2), (1, 2)]
    first.acknowledge(got)
    (error,) = first.commit().values()
    assert error is not None
    second.acknowledge(again)
    assert second.commit() == {(topic, 0): None}
    first.close()
    second.close()
    wait_until_done(bootstrap, group, topic)


def test_a_renewed_lock_does_not_end(bootstrap: str, program: Program, library: str) -> None:
    if library not in JAVA or library.startswith("4.1"):
        pytest.skip(f"{library} does not renew")
    lock_ms = 2 * LOCK_MS
    group = set_up_group(bootstrap, {"share.record.lock.duration.ms": f"{lock_ms}"})
    topic = new_topic(bootstrap, 1)
    first, second = (ShareMember(program, group, topic, settings=EXPLICIT) for _ in range(2))
    (held,) = first.poll_until(1)
    assert first.lock_timeout() == f"{lock_ms}"
    begun = time.monotonic()
    while time.monotonic() - begun < 2.2 * lock_ms / 1000:
        first.acknowledge([held], RENEW)
        assert first.commit() == {(topic, 0): None}
        # A record whose lock was renewed comes from the next poll once more, out of the client's memory.
        (held,) = first.poll_until(1)
        assert (held.where.offset, held.count) == (0, 1)
        assert second.poll(50) == []
    first.acknowledge([held])
    assert first.commit() == {(topic, 0): None}
    first.close()
    second.close()
    wait_until_done(bootstrap, group, topic)


def test_renewals_may_be_forbidden(bootstrap: str, program: Program, library: str) -> None:
    if library not in JAVA or library.startswith("4.1"):
        pytest.skip(f"{library} does not renew")
    group = set_up_group(bootstrap, {"share.renew.acknowledge.enable": "false"})
    topic = new_topic(bootstrap, 1)
    member = ShareMember(program, group, topic, settings=EXPLICIT)
    member.acknowledge(member.poll_until(1), RENEW)
    assert member.commit() == {(topic, 0): "InvalidRecordStateException"}
    member.close()


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
def test_the_acquire_modes_count_batches_or_records(
    bootstrap: str, program: Program, library: str, mode: str
) -> None:
    if library.startswith("4.1") or (library == LIBRDKAFKA and mode == "record_limit"):
        pytest.skip(f"{library} has no such mode")
    group, topic = set_up_group(bootstrap), new_topic(bootstrap, 30)
    more = {} if library == LIBRDKAFKA else {"share.acquire.mode": mode}
    member = ShareMember(program, group, topic, settings={"max.poll.records": "4", **EXPLICIT, **more})
    got = member.poll_until(1)
    assert offsets(got) == list(range(30 if mode == "batch_optimized" else 4))
    seen = list(got)
    while len(seen) < 30:
        member.acknowledge(got)
        got = member.poll_until(1)
        assert len(got) <= 4
        seen += got
    member.acknowledge(got)
    member.close()
    assert offsets(seen) == list(range(30))
    wait_until_done(bootstrap, group, topic)


def test_a_group_begins_where_it_is_set_to(bootstrap: str, program: Program) -> None:
    topic = new_topic(bootstrap)
    old_ms = int(time.time() * 1000) - 7_200_000
    old = [Message(b"old", timestamp_ms=old_ms + number) for number in range(3)]
    ConfluentClient(bootstrap).produce(topic, [*old, Message(b"new"), Message(b"new")])
    begins = {"earliest": 0, "latest": None, "by_duration:PT1H": 3, "by_duration:PT3H": 0}
    groups = {reset: set_up_group(bootstrap, {"share.auto.offset.reset": reset}) for reset in begins}
    members = {reset: ShareMember(program, group, topic) for reset, group in groups.items()}
    seen: dict[str, list[int]] = {reset: [] for reset in members}
    sent, deadline = 5, time.monotonic() + 40
    # Where a group begins at the end of a topic, nothing tells when it has begun but what it gets.
    while not all(got and got[-1] >= 5 for got in seen.values()):
        assert time.monotonic() < deadline, seen
        produce(bootstrap, topic, range(sent, sent + 1))
        sent += 1
        for reset, member in members.items():
            seen[reset] += offsets(member.poll(100))
    for reset, member in members.items():
        while seen[reset][-1] < sent - 1:
            seen[reset] += offsets(member.poll_until(1))
        member.close()
    for reset, got in seen.items():
        assert got == list(range(got[0], sent)), reset
        begin = begins[reset]
        assert got[0] >= 5 if begin is None else got[0] == begin, reset


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_records_of_aborted_transactions(bootstrap: str, program: Program, level: str) -> None:
    group = set_up_group(bootstrap, {"share.isolation.level": level})
    topic = new_topic(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for part in range(2):
            producer.produce(topic, f"{number}-{part}", partition=0)
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    wanted = [
        f"{number}-{part}"
        for number in range(4)
        for part in range(2)
        if level[5:] != "committed" or number % 2 == 0
    ]
    member = ShareMember(program, group, topic)
    got = member.poll_until(len(wanted))
    assert [one.value for one in got] == wanted
    assert {one.count for one in got} == {1}
    member.told_until(len(wanted))
    member.close()
    wait_until_done(bootstrap, group, topic)


def test_an_open_transaction_holds_readers_of_what_is_committed(bootstrap: str, program: Program) -> None:
    group = set_up_group(bootstrap, {"share.isolation.level": "read_committed"})
    topic = new_topic(bootstrap, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush()
    produce(bootstrap, topic, range(2, 3))
    member = ShareMember(program, group, topic)
    assert offsets(member.poll_until(1)) == [0]
    assert member.poll() == []
    producer.commit_transaction()
    assert [one.value for one in member.poll_until(2)] == ["open", "2"]
    member.close()


def test_a_consumer_that_is_woken_goes_on(bootstrap: str, program: Program, library: str) -> None:
    if library not in JAVA:
        pytest.skip(f"{library} cannot be woken")
    group, topic = set_up_group(bootstrap), new_topic(bootstrap, 1)
    member = ShareMember(program, group, topic)
    member.wake()
    with pytest.raises(JavaFailure, match="WakeupException"):
        member.poll()
    assert offsets(member.poll_until(1)) == [0]
    member.close()


def test_a_consumer_without_a_subscription_has_nothing(bootstrap: str, program: Program) -> None:
    group, topic = set_up_group(bootstrap), new_topic(bootstrap, 1)
    member = ShareMember(program, group, topic)
    assert len(member.poll_until(1)) == 1
    member.told_until(1)
    member.unsubscribe()
    with pytest.raises(JavaFailure, match="IllegalState"):
        member.poll()
    member.close()


def test_many_partitions_among_three_consumers(bootstrap: str, program: Program) -> None:
    group, topic = set_up_group(bootstrap), new_topic(bootstrap, 120, partitions=6)
    three = [ShareMember(program, group, topic) for _ in range(3)]
    got: list[Delivery] = []
    deadline = time.monotonic() + 60
    while len(got) < 120:
        assert time.monotonic() < deadline, len(got)
        for member in three:
            got += member.poll(100)
    for member in three:
        member.commit()
        member.close()
    assert sorted(int(one.value) for one in got) == list(range(120))
    wait_until_done(bootstrap, group, topic, 6)
