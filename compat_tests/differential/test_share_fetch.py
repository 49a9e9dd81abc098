"""ShareFetch and ShareAcknowledge (KIP-932): share sessions, which records a member acquires, and what
becomes of them.

A member has a connection of its own, since its share session belongs to that. What a member gives back when
its session ends is stored behind the answer, so whoever fetches next waits for it.
"""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from compat_tests import reference
from compat_tests.differential.conftest import SETTINGS
from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.members import settle_coordinator
from compat_tests.differential.pairs import pair_of
from compat_tests.differential.sharing import (
    ACCEPT,
    FINAL,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    acknowledge_request,
    describe_offsets,
    fetch_request,
    join,
    readers,
    until,
)
from compat_tests.differential.test_deletes import HOUR_MS, changed, delete_records, offsets
from compat_tests.differential.test_records import CODECS, batch, produce
from compat_tests.differential.test_transactional_reads import (
    end,
    new_producers,
    said,
    wait_until_stable,
    write,
    write_plain,
)
from compat_tests.differential.topics import metadata_of, new_topic
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from odradek.wire.messages.share_fetch import ShareFetchRequest
from tests.tiers import NIGHTLY, rest_at_night

STRANGE = bytes(range(16))
"""A topic id that nobody has."""
STRICT = 1
EARLIEST = -2
UNKNOWN_SERVER_ERROR, INVALID_REQUEST = -1, 42
SESSIONS_MAX = 20
LOCK_MS = 1_000
"""The shortest that a broker permits."""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Of Kafka 4.3; with short locks and few sessions."""
    settings = {
        "group.share.min.record.lock.duration.ms": str(LOCK_MS),
        "group.share.max.size": "10",
        "group.share.max.share.sessions": str(SESSIONS_MAX),
    }
    with pair_of(reference.CURRENT, SETTINGS | settings) as pair:
        settle_coordinator(pair)
        yield pair


@pytest.fixture(autouse=True)
def _hang_up(pair: Pair) -> Iterator[None]:
    """Sessions end with their connections."""
    yield
    for side in pair.sides:
        side.close()


def fill(pair: Pair, topic: str, *counts: int, partition: int = 0, first: int = 0, **more: Any) -> None:
    """A batch of so many records each."""
    version = pair.versions(ProduceRequest)[-1]
    for count in counts:
        records = batch(count, start=first, **more)
        pair.ask(lambda side: produce(side, topic, records, partition=partition), version, f"fill {topic}")
        first += count


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    return [
        (one.first_offset, one.last_offset, one.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for one in partition.acquired_records
    ]


def test_a_first_fetch_of_a_group_brings_one_partition_alike(pair: Pair) -> None:
    """One whose state is read; the next fetch brings the other, and later ones both. Which is first is chance
    in Kafka."""
    topic = new_topic(pair, "first", 2)
    for partition in range(2):
        fill(pair, topic, 50, partition=partition)
    group, places = readers(pair, topic, 2), [(topic, 0), (topic, 1)]
    found = []
    for side in pair.sides:
        counts = []
        for epoch in range(3):
            if epoch == 2:
                for partition in range(2):
                    side.ask(produce(side, topic, batch(3), partition=partition), 9)
            request = fetch_request(side, group, "m", epoch, () if epoch else places)
            answer = side.ask(request, 2)
            assert answer.error_code == 0, answer
            counts.append(sum(last - first + 1 for first, last, _ in acquired(answer)))
        # Three records may come alone, or in one fetch with those of the other partition.
        assert counts[2] in (3, 6), counts
        found.append(counts[:2])
    pair.compare("records of the first two fetches", *found)
    assert found[0] == [50, 50]


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_read_and_acknowledged_alike(pair: Pair, version: int) -> None:
    topic = new_topic(pair, "shared")
    fill(pair, topic, 3, 2, 5, 4)
    group, place = readers(pair, topic), (topic, 0)

    def offsets(note: str) -> None:
        # One after the other: Kafka takes seconds to read the same state twice at once.
        describe_offsets(pair, (group, {topic: [0]}), note=note)
        describe_offsets(pair, (group, None), note=f"{note}, all")

    offsets("nothing read")
    one = Member(pair, group)
    answers = one.fetch(place, note="opens a session", version=version)
    assert acquired(answers[1])[-1][1] == 13
    offsets("acquired")
    one.look(note="nothing left", version=version)
    one.acknowledge({place: [(0, 2, [ACCEPT])]}, "a batch", version=version)
    offsets("a batch accepted")
    one.acknowledge({place: [(3, 4, [RELEASE, ACCEPT])]}, "one by one", version=version)
    offsets("one given back")
    one.fetch(note="gets it again", version=version)
    one.acknowledge({place: [(3, 3, [REJECT]), (5, 6, [GAP])]}, "rejected, and a gap", version=version)
    offsets("rejected")
    acknowledged = {place: [(7, 9, [ACCEPT, RELEASE, RELEASE]), (10, 13, [RELEASE])]}
    one.fetch(acknowledged=acknowledged, note="with acknowledgements", version=version)
    offsets("released")
    one.acknowledge({place: [(8, 13, [ACCEPT])]}, "across batches", version=version)
    offsets("all done")
    fill(pair, topic, 2)
    one.fetch(note="new ones", version=version)
    one.close()
    offsets("closed")
    other = Member(pair, group, "other")
    other.fetch(place, note="given back at the end", version=version)
    other.close()


def test_members_and_groups_without_a_name_are_refused_alike(pair: Pair) -> None:
    for version in pair.versions(ShareFetchRequest):
        for group in (None, "", " ", "not-there"):
            for member in (None, "", " ", "m" * 36, "m" * 37, "\u00e9" * 36):
                for epoch in (FINAL, 1, 0, 1, 7, -2, FINAL, FINAL):
                    note, connection = f"{group!r} {member!r} {epoch}", f"{version} {group!r} {member!r}"
                    pair.ask(
                        lambda side: fetch_request(side, group, member, epoch, max_wait_ms=0),
                        version,
                        note,
                        connection=connection,
                    )
                    pair.ask(
                        lambda side: acknowledge_request(side, group, member, epoch, {}),
                        version,
                        note,
                        connection=connection,
                    )


def test_share_sessions_go_on_alike(pair: Pair) -> None:
    topic = new_topic(pair, "shared", 2)
    fill(pair, topic, 2)
    fill(pair, topic, 2, partition=1)
    group, first, second = readers(pair, topic, 2), (topic, 0), (topic, 1)
    one = Member(pair, group)
    for epoch in (1, 2, FINAL):
        one.look(first, note="before it begins", epoch=epoch)
        one.acknowledge({}, "before it begins", epoch=epoch)
    one.acknowledge({}, "cannot begin with that", epoch=0)
    one.look(first, note="begins with an acknowledgement", acknowledged={first: [(0, 0, [ACCEPT])]})
    one.fetch(first, note="begins")
    for epoch in (2, 7, -2, 2**31 - 1):
        one.look(note="out of order", epoch=epoch)
        one.acknowledge({}, "out of order", epoch=epoch)
    one.fetch(second, note="another partition")
    one.acknowledge({}, "nothing")
    one.acknowledge({first: []}, "no batches")
    one.look(first, note="named again")
    one.look(forget=[first], note="without the first")
    fill(pair, topic, 1, first=2)
    one.look(note="nothing of the first")
    one.look(first, forget=[first], note="added and taken away")
    one.look(note="added and taken away, after")
    one.fetch(first, note="the first again")
    one.look(forget=[(STRANGE, 0), (topic, 9)], note="never had it")
    one.look(second, acknowledged={first: [(2, 2, [ACCEPT])]}, note="one acknowledged, one named")
    one.acknowledge({first: [(0, 1, [ACCEPT])], second: [(0, 1, [ACCEPT])]}, "all done")
    one.look(first, note="ends", epoch=FINAL)
    one.look(note="has ended", epoch=FINAL)
    one.acknowledge({}, "has ended", epoch=FINAL)
    one.epoch = 0
    fill(pair, topic, 2, first=2, partition=1)
    one.fetch(second, note="begins again")
    one.epoch = 0
    one.look(first, note="begins anew without an end")
    one.look(note="goes on")
    ends = {second: [(2, 3, [ACCEPT])]}
    one.look(acknowledged=ends, note="ends with an acknowledgement", epoch=FINAL)
    one.acknowledge({}, "has ended", epoch=FINAL)


def test_partitions_that_are_not_there_are_refused_alike(pair: Pair) -> None:
    topic = new_topic(pair, "shared")
    group, place = readers(pair, topic), (topic, 0)
    cases = itertools.product(pair.versions(ShareFetchRequest), (1, -1, 2**31 - 1))
    for start, (version, index) in zip(itertools.count(step=3), cases, strict=False):
        fill(pair, topic, 3)
        one, wrong, note = Member(pair, group), (topic, index), str(index)
        one.look(wrong, note=note, version=version)
        one.look(note=f"{note} again", version=version)
        one.acknowledge({wrong: [(0, 0, [ACCEPT])]}, note, version=version)
        one.acknowledge({wrong: []}, f"{note}, no batches", version=version)
        one.look(wrong, acknowledged={wrong: [(0, 0, [ACCEPT])]}, note=f"{note} both", version=version)
        one.fetch(place, note=f"beside {note}", version=version)
        told = {place: [(start, start, [ACCEPT])], wrong: [(0, 0, [ACCEPT])]}
        one.acknowledge(told, f"beside {note}", version=version)
        one.acknowledge({place: [], wrong: [(0, 0, [ACCEPT])]}, f"{note} alone", version=version)
        told = {place: [(start + 1, start + 2, [ACCEPT])], wrong: []}
        one.look(acknowledged=told, note=f"beside {note}", version=version)
        one.close()


@pytest.mark.parametrize("topic_id", [STRANGE, bytes(16)])
def test_topic_ids_that_nobody_has_are_refused_alike(pair: Pair, topic_id: bytes) -> None:
    topic = new_topic(pair, "shared", 2)
    fill(pair, topic, 4)
    group, place, wrong = readers(pair, topic, 2), (topic, 0), (topic_id, 0)
    one = Member(pair, group)
    one.look(wrong, note="the only one")
    one.look(note="it stays")
    one.look(forget=[wrong], note="is forgotten")
    one.fetch(place, (topic, 1), max_records=1, note="others")
    one.look(wrong, note="beside another")
    one.acknowledge({wrong: [(0, 0, [ACCEPT])]}, "unknown")
    one.acknowledge({wrong: []}, "unknown, no batches")
    one.acknowledge({place: [(0, 0, [ACCEPT])], wrong: [(0, 0, [ACCEPT])]}, "beside another")
    one.look(forget=[wrong], acknowledged={place: [(1, 1, [ACCEPT])], (topic, 1): []}, note="is forgotten")
    one.look(acknowledged={place: [(2, 2, [5])], (topic, 1): []}, note="bad ones and none")
    one.look(acknowledged={place: [(2, 2, [ACCEPT])], (topic, 1): []}, note="sound ones and none")
    one.close()


BAD = {
    "not acquired": [(5, 5, [ACCEPT])],
    "behind the end": [(0, 99, [ACCEPT])],
    "far behind the end": [(500, 501, [ACCEPT])],
    "before the start": [(-1, 0, [ACCEPT])],
    "far before the start": [(-7, -5, [ACCEPT])],
    "the last first": [(2, 0, [ACCEPT])],
    "no types": [(0, 1, [])],
    "too few types": [(0, 2, [ACCEPT, ACCEPT])],
    "too many types": [(0, 1, [ACCEPT, ACCEPT, ACCEPT])],
    "two types for one": [(0, 0, [ACCEPT, ACCEPT])],
    "type 5": [(0, 1, [5])],
    "type -1": [(0, 1, [-1])],
    "type 5 of several": [(0, 1, [ACCEPT, 5])],
    "a renewal that is not announced": [(0, 1, [RENEW])],
    "a renewal among others": [(0, 1, [ACCEPT, RENEW])],
    "out of order": [(2, 2, [ACCEPT]), (0, 0, [ACCEPT])],
    "the same twice": [(0, 0, [ACCEPT]), (0, 0, [ACCEPT])],
    "overlapping": [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
    "one sound, one not": [(0, 0, [ACCEPT]), (5, 9, [ACCEPT])],
    "one sound, one without types": [(0, 0, [ACCEPT]), (1, 1, [])],
}


@pytest.mark.parametrize("what", BAD)
def test_bad_acknowledgements_are_refused_alike(pair: Pair, what: str) -> None:
    """With offsets from the first one on that the member has: it has three of six."""
    topic = new_topic(pair, "shared")
    group, place = readers(pair, topic), (topic, 0)
    one = Member(pair, group)
    start = 0

    def told(*, piggybacked: bool, version: int, renews: bool) -> None:
        nonlocal start
        fill(pair, topic, 3, 3)
        note = f"{what}, renewal {renews}, with a fetch {piggybacked}"
        one.fetch(place, max_records=1, note=note, version=version)
        bad = {place: [(start + first, start + last, types) for first, last, types in BAD[what]]}
        if not piggybacked:
            one.acknowledge(bad, note, version=version, renews=renews)
        elif renews:
            nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
            one.fetch(note=note, acknowledged=bad, is_renew_ack=True, **nothing)
        else:
            # It has no room for more.
            one.look(note=note, acknowledged=bad, version=version, max_records=0)
        for at in range(start, start + 3):
            one.acknowledge({place: [(at, at, [ACCEPT])]}, f"{note}, {at}", version=version)
        one.fetch(note=f"{note}, the rest", max_records=1, version=version)
        one.acknowledge({place: [(start + 3, start + 5, [ACCEPT])]}, note, version=version)
        start += 6

    for version in pair.versions(ShareAcknowledgeRequest):
        for renews in (False, True) if version >= 2 else (False,):
            for piggybacked in (False, True):
                told(piggybacked=piggybacked, version=version, renews=renews)
    one.close()


def test_partitions_without_records_are_told_of_alike(pair: Pair) -> None:
    """Once, when the member begins to read them."""
    topic = new_topic(pair, "shared", 3)
    group, places = readers(pair, topic, 3), [(topic, index) for index in range(3)]
    one = Member(pair, group)
    one.fetch(*places, note="nothing there", max_wait_ms=500)
    one.look(note="nothing is new")
    fill(pair, topic, 3, partition=1)
    one.fetch(note="one has some")
    one.look(note="nothing left")
    one.look(forget=places, note="without any")
    one.look(places[2], note="one again")
    one.look(note="nothing is new")
    one.look(*places, note="all again")
    one.acknowledge({places[1]: [(0, 1, [RELEASE])]}, "some are given back")
    one.fetch(note="some again")
    one.close()


def test_strange_limits_hold_alike(pair: Pair) -> None:
    """Not compared: a batch size below 1, for which Kafka tells of ranges that end before they begin, and a
    limit of bytes below 0, over which it trips."""
    limits = [
        {"max_records": 0},
        {"max_records": -1},
        {"max_bytes": 0},
        {"max_bytes": 1},
        {"min_bytes": 1 << 20},
        {"min_bytes": -1},
        {"max_wait_ms": -1},
    ]
    topic = new_topic(pair, "shared")
    group, place = readers(pair, topic), (topic, 0)
    one = Member(pair, group)
    one.fetch(place, note="it has its state", max_wait_ms=500)
    for version in pair.versions(ShareFetchRequest):
        for number, limit in enumerate(limits):
            fill(pair, topic, 3, 3, 3)
            for _ in range(3):
                fields = {"max_wait_ms": 200, "version": version, **limit}
                answers = one.fetch(note=f"{number}: {limit}", **fields)
                if held := acquired(answers[0]):
                    one.acknowledge({place: [(first, last, [ACCEPT]) for first, last, _ in held]}, "done")
            while held := acquired(one.look(note=f"after {limit}")[0]):
                one.acknowledge({place: [(first, last, [ACCEPT]) for first, last, _ in held]}, "done")
    one.close()


def test_modes_that_there_are_not_are_refused_by_both(pair: Pair) -> None:
    """Kafka trips over them, and we say what is wrong."""
    topic = new_topic(pair, "shared")
    fill(pair, topic, 3)
    group = readers(pair, topic)
    for mode in (-1, 2):
        theirs, ours = (
            side.ask(
                fetch_request(side, group, "m", 0, [(topic, 0)], share_acquire_mode=mode), 2, f"mode {mode}"
            )
            for side in pair.sides
        )
        assert (theirs.error_code, ours.error_code) == (UNKNOWN_SERVER_ERROR, INVALID_REQUEST)


@pytest.mark.parametrize("strict", [0, STRICT])
@pytest.mark.parametrize("batch_size", [1, 4, 500])
@pytest.mark.parametrize("max_records", rest_at_night(5, 1, 2, 7, 500))
def test_ranges_are_acquired_alike(pair: Pair, max_records: int, batch_size: int, strict: int) -> None:
    topic = new_topic(pair, "shared")
    fill(pair, topic, 3, 1, 5, 2, 2)
    group, place = readers(pair, topic, delivery_count_limit="10"), (topic, 0)
    how = {"max_records": max_records, "batch_size": batch_size, "share_acquire_mode": strict}
    one, other = Member(pair, group), Member(pair, group, "other")
    kept: list[tuple[int, int]] = []
    answers = one.fetch(place, note="first", **how)
    for round_ in range(4):
        offsets = [at for first, last, _ in acquired(answers[0]) for at in range(first, last + 1)]
        # Every third record stays with the member.
        kept += [(at, at) for at in offsets if not at % 3]
        if given := [(at, at, [RELEASE]) for at in offsets if at % 3]:
            one.acknowledge({place: given}, f"round {round_}")
        answers = one.look(note=f"round {round_}", **how)
    for answer in (answers[0], other.look(place, note="another", **how)[0]):
        held = [(first, last, [RELEASE]) for first, last, _ in acquired(answer)]
        if held:
            (one if answer is answers[0] else other).acknowledge({place: held}, "given back")
    one.acknowledge({place: [(*both, [RELEASE]) for both in sorted(kept)]}, "all given back")
    other.fetch(note="all are there", **how)
    other.fetch(note="more of them", **{**how, "max_wait_ms": 0})
    other.close()
    one.close()


@pytest.mark.parametrize("limit", [2, *rest_at_night(5, 3, 10)])
@pytest.mark.parametrize("strict", [0, STRICT])
def test_records_are_archived_after_the_last_delivery_alike(pair: Pair, strict: int, limit: int) -> None:
    """Before that, fewer and fewer of them come together."""
    topic = new_topic(pair, "shared")
    fill(pair, topic, 12, 5)
    group, place = readers(pair, topic, delivery_count_limit=str(limit)), (topic, 0)
    one = Member(pair, group)
    how = {"share_acquire_mode": strict, "max_records": 8}
    answers = one.fetch(place, note="first", **how)
    for round_ in range(40):
        held = acquired(answers[0])
        if not held:
            break
        kinds = [RELEASE, RELEASE, RELEASE, ACCEPT if round_ % 4 == 3 else RELEASE]
        given = [(first, last, [kinds[at % 4] for at in range(first, last + 1)]) for first, last, _ in held]
        one.acknowledge({place: given}, f"round {round_}")
        if round_ % 5 == 4:
            describe_offsets(pair, (group, {topic: [0]}), note=f"round {round_}")
        answers = one.look(note=f"round {round_}", **how)
    describe_offsets(pair, (group, {topic: [0]}), note="at the end")
    one.close()


def test_renewals_are_alike(pair: Pair) -> None:
    topic = new_topic(pair, "shared")
    fill(pair, topic, 3, 3)
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    renewal = {"is_renew_ack": True, **nothing}
    for enabled in ("true", "false"):
        group, place = readers(pair, topic, renew_acknowledge_enable=enabled), (topic, 0)
        one, other = Member(pair, group), Member(pair, group, "other")
        for name in nothing:
            one.fetch(place, note=f"with {name}", **{**renewal, name: 1})
        one.fetch(place, note="begins with a renewal", **renewal)
        one.fetch(note="reads", max_records=3)
        one.acknowledge({place: [(0, 2, [RENEW])]}, "all", renews=True)
        one.acknowledge({place: [(0, 2, [ACCEPT, RENEW, RENEW])]}, "among others", renews=True)
        one.acknowledge({place: [(1, 1, [RENEW]), (2, 2, [RELEASE])]}, "two batches", renews=True)
        one.acknowledge({place: [(2, 2, [RENEW])]}, "given back before", renews=True)
        one.acknowledge({place: [(0, 0, [RENEW])]}, "accepted before", renews=True)
        one.acknowledge({place: [(1, 1, [RENEW])]}, "not announced")
        one.acknowledge({place: [(1, 1, [ACCEPT])]}, "announced and not there", renews=True)
        other.fetch(place, note="reads the rest")
        other.acknowledge({place: [(1, 1, [RENEW])]}, "of another member", renews=True)
        one.fetch(acknowledged={place: [(1, 2, [RENEW])]}, note="with a fetch", **renewal)
        one.fetch(acknowledged={place: [(1, 1, [RENEW])]}, note="with a fetch", **renewal)
        one.fetch(note="nothing to renew", **renewal)
        one.fetch(acknowledged={place: [(1, 1, [ACCEPT])]}, note="announced and not there", **renewal)
        one.look(acknowledged={place: [(1, 1, [RENEW])]}, note="not announced")
        one.fetch(acknowledged={place: [(1, 1, [RENEW])]}, note="at the end", epoch=FINAL, **renewal)
        other.close()
        one.hang_up()


def look_up_a_lag(pair: Pair) -> None:
    """Kafka needs up to two seconds for its first lag, and for one after a long pause."""
    topic = new_topic(pair, "done")
    fill(pair, topic, 1)
    group, place = readers(pair, topic), (topic, 0)
    member = Member(pair, group)
    member.fetch(place, note="acquires")
    member.acknowledge({place: [(0, 0, [ACCEPT])]}, "has a state now")
    describe_offsets(pair, (group, {topic: [0]}), note="has a lag")
    member.close()


def test_locks_run_out_alike(pair: Pair) -> None:
    """Not compared: the start that is told right after the locks have run out. Kafka stores that a record is
    archived then, and the start that follows from it with the next change; we store both."""
    look_up_a_lag(pair)  # Else it may take longer than a lock lasts.
    topic = new_topic(pair, "shared", 2)
    fill(pair, topic, 2, 2)
    settings = {"record_lock_duration_ms": str(LOCK_MS), "delivery_count_limit": "2"}
    group, place, clock = readers(pair, topic, 2, **settings), (topic, 0), (topic, 1)
    one, other = Member(pair, group), Member(pair, group, "other")
    one.fetch(place, note="acquires")
    other.fetch(place, note="waits for the locks to run out")
    one.acknowledge({place: [(0, 0, [ACCEPT])]}, "too late")
    other.acknowledge({place: [(0, 0, [ACCEPT])]}, "in time")
    describe_offsets(pair, (group, {topic: [0]}), note="one is done")
    # These locks begin later, so those before have run out when somebody else gets the record.
    fill(pair, topic, 1, partition=1)
    one.fetch(clock, forget=[place], note="another partition")
    other.fetch(clock, forget=[place], note="waits for another lock to run out")
    fill(pair, topic, 1)
    one.fetch(place, forget=[clock], note="the others are archived")
    one.acknowledge({place: [(4, 4, [ACCEPT])]}, "accepted")
    describe_offsets(pair, (group, {topic: [0]}), note="all done")
    other.close()
    one.close()


def test_a_lost_connection_gives_back_alike(pair: Pair) -> None:
    topic = new_topic(pair, "shared")
    fill(pair, topic, 3)
    group, place = readers(pair, topic), (topic, 0)
    for number in range(2):
        one = Member(pair, group, f"m{number}")
        one.fetch(place, note=f"connection {number}")
        one.hang_up()


def test_no_more_sessions_than_allowed_alike(pair: Pair) -> None:
    """Sessions of tests before end a little after their connections."""
    topic = new_topic(pair, "shared")
    group, place = readers(pair, topic), (topic, 0)
    first = Member(pair, group, "first")
    first.fetch(place, note="it has its state", max_wait_ms=500)
    members = [Member(pair, group, f"m{number}") for number in range(1, SESSIONS_MAX)]
    for one in members:
        one.look(place, note=one.member, settle=lambda answer: answer.error_code == 0)
    late = Member(pair, group, "late")
    late.look(place, note="one too many")
    late.fetch(place, note="one too many, and waits", max_wait_ms=300)
    late.acknowledge({}, "has no session", epoch=1)
    members[0].epoch = 0
    members[0].look(place, note="one that has a session begins anew")
    members[1].close()
    late.look(place, note="there is room")
    for one in (first, late, *members):
        one.hang_up()


def test_no_more_records_than_locks_alike(pair: Pair) -> None:
    topic = new_topic(pair, "shared")
    fill(pair, topic, *[30] * 5)
    fill(pair, topic, 20)
    group, place = readers(pair, topic, partition_max_record_locks="100"), (topic, 0)
    one, other = Member(pair, group), Member(pair, group, "other")
    one.fetch(place, note="as many as there are locks")
    other.look(place, note="none left")
    one.look(note="none left")
    one.acknowledge({place: [(40, 49, [RELEASE])]}, "some in the middle given back")
    other.fetch(note="those")
    one.acknowledge({place: [(0, 29, [ACCEPT])]}, "the first are done")
    other.fetch(note="room for more")
    one.acknowledge({place: [(30, 39, [REJECT])]}, "more are done")
    other.look(note="no room yet, strictly", share_acquire_mode=STRICT)
    one.acknowledge({place: [(50, 79, [ACCEPT])]}, "yet more are done")
    other.look(note="some are still there", share_acquire_mode=STRICT)
    other.acknowledge({place: [(40, 49, [ACCEPT])]}, "all at the front are done")
    other.fetch(note="room for more, strictly", share_acquire_mode=STRICT)
    describe_offsets(pair, (group, {topic: [0]}), note="in the middle")
    other.close()
    one.close()


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions_are_read_alike(pair: Pair, level: str) -> None:
    topic = new_topic(pair, "shared")
    group, place = readers(pair, topic, isolation_level=level), (topic, 0)
    producers = new_producers(pair, "sharing")
    sequence = 0
    for is_committed in (True, False, True):
        for side in pair.sides:
            producer = producers[side.name]
            write_plain(side, topic, b"before")
            write(side, producer, topic, b"one", b"two", sequence=sequence)
            write_plain(side, topic, b"between")
            write(side, producer, topic, b"three", sequence=sequence + 2)
            end(side, producer, is_committed)
            wait_until_stable(side, topic, 2 * (sequence + 3))
        sequence += 3
    for side in pair.sides:
        write(side, producers[side.name], topic, b"open", sequence=sequence)
        write_plain(side, topic, b"behind the open one")
    one = Member(pair, group)
    answers = one.fetch(place, note="up to four", max_records=4, see=say)
    while held := acquired(answers[0]):
        one.acknowledge({place: [(first, last, [ACCEPT]) for first, last, _ in held]}, str(held))
        describe_offsets(pair, (group, {topic: [0]}), note=str(held))
        answers = one.look(note=f"after {held}", max_records=4, see=say)
    for side in pair.sides:
        end(side, producers[side.name], committed=True)
        wait_until_stable(side, topic, 21)
    answers = one.look(note="the last is committed", see=say)
    held = acquired(answers[0])
    one.acknowledge({place: [(first, last, [ACCEPT]) for first, last, _ in held]}, str(held))
    describe_offsets(pair, (group, {topic: [0]}), note="all done")
    one.close()


def say(side: Side, answer: Any) -> None:
    """Batches by what they say: producers and the times of markers are each broker's own."""
    for topic in answer.responses:
        for one in topic.partitions:
            one.records = said(side, bytes(one.records or b""))


def test_records_that_are_deleted_are_passed_over_alike(pair: Pair) -> None:
    """Kafka's next answer has no records then, so both are asked until they have some."""
    topic = new_topic(pair, "shared")
    fill(pair, topic, 4, 4, 4, 4)
    group, place = readers(pair, topic), (topic, 0)
    one = Member(pair, group)
    for side in pair.sides:
        side.ask(delete_records((topic, 0, 2)), 2)
    one.poll(place, note="before anybody reads", max_records=4)
    one.acknowledge({place: [(2, 3, [RELEASE])]}, "given back")
    for side in pair.sides:
        side.ask(delete_records((topic, 0, 6)), 2)
    one.poll(note="given back and deleted", max_records=4)
    for side in pair.sides:
        side.ask(delete_records((topic, 0, 10)), 2)
    one.acknowledge({place: [(6, 7, [ACCEPT])]}, "acquired and deleted")
    one.poll(note="behind what was deleted", max_records=4)
    one.acknowledge({place: [(10, 11, [ACCEPT])]}, "acquired and left")
    for side in pair.sides:
        side.ask(delete_records((topic, 0, 16)), 2)
    fill(pair, topic, 2)
    one.poll(note="all deleted, and new ones")
    one.acknowledge({place: [(16, 17, [ACCEPT])]}, "all done")
    describe_offsets(pair, (group, {topic: [0]}), note="all done")
    one.close()


def test_records_that_retention_deletes_are_passed_over_alike(pair: Pair) -> None:
    """Whole segments under what is read: the first when it is acquired, the second when it was given back,
    the third before anybody has read it."""
    topic = new_topic(pair, "shared", segment_ms="1000", retention_ms="-1", file_delete_delay_ms="0")
    for hours in (8, 6, 4, 2, 0):
        fill(pair, topic, 4, first=-hours * HOUR_MS)
    group, place = readers(pair, topic), (topic, 0)
    one = Member(pair, group)

    def keep(hours: int, start: int) -> None:
        resource = changed(topic, {"retention_ms": str(hours * HOUR_MS)})
        pair.ask(lambda _: IncrementalAlterConfigsRequest(resources=[resource]), 1)
        for side in pair.sides:
            until(
                side,
                lambda: offsets(topic, EARLIEST),
                5,
                lambda answer: answer.topics[0].partitions[0].offset == start,
            )

    one.poll(place, note="the first segment", max_records=4)
    keep(7, 4)
    one.acknowledge({place: [(0, 1, [ACCEPT])]}, "of the first, which is gone")
    one.poll(note="the second", max_records=4)
    one.acknowledge({place: [(4, 4, [ACCEPT]), (5, 7, [RELEASE])]}, "a part is given back")
    keep(5, 8)
    keep(3, 12)
    one.poll(note="the fourth", max_records=4)
    one.acknowledge({place: [(12, 15, [ACCEPT])]}, "done with the fourth")
    one.poll(note="the last", max_records=4)
    one.acknowledge({place: [(16, 19, [ACCEPT])]}, "all done")
    describe_offsets(pair, (group, {topic: [0]}), note="all done")
    one.close()


def test_a_deleted_topic_is_told_of_alike(pair: Pair) -> None:
    topic, other = new_topic(pair, "shared"), new_topic(pair, "shared")
    fill(pair, topic, 3)
    group, place = readers(pair, topic), (topic, 0)
    join(pair, group, "m", topic, other, partitions=2)
    one = Member(pair, group)
    one.fetch((other, 0), note="nothing yet", max_wait_ms=500)
    one.fetch(place, note="both are there")
    gone = DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)
    pair.ask(lambda _: gone, 5, "deleted")
    for side in pair.sides:
        until(side, lambda: metadata_of(topic), 12, lambda answer: answer.topics[0].error_code == 3)
    one.acknowledge({place: [(0, 0, [ACCEPT])]}, "deleted")
    one.look(note="deleted")
    fill(pair, other, 2)
    one.fetch(forget=[place], note="forgotten")
    # Kafka's group coordinator hears of the deletion last. If it is asked earlier, it may never answer.
    join(pair, group, "m", topic, other, partitions=1)
    describe_offsets(pair, (group, {topic: [0]}), (group, None), note="deleted")
    one.close()


@pytest.mark.parametrize(
    "reset", ["earliest", "latest", "by_duration:PT1H", *rest_at_night("by_duration:P1D", "by_duration:P7D")]
)
def test_groups_begin_where_their_settings_say_alike(pair: Pair, reset: str) -> None:
    """Not compared: a time behind the newest record, where Kafka and we begin when one comes."""
    topic = new_topic(pair, "shared")
    for hours in (48, 2):
        fill(pair, topic, 2, first=-hours * HOUR_MS)
    fill(pair, topic, 3)
    group, place = readers(pair, topic, auto_offset_reset=reset), (topic, 0)
    one = Member(pair, group)
    answers = one.fetch(place, note="begins", max_wait_ms=500)
    one.acknowledge({place: [(first, last, [ACCEPT]) for first, last, _ in acquired(answers[0])]}, "done")
    fill(pair, topic, 1)
    answers = one.fetch(note="goes on")
    one.acknowledge({place: [(first, last, [ACCEPT]) for first, last, _ in acquired(answers[0])]}, "done")
    describe_offsets(pair, (group, {topic: [0]}), note="all done")
    one.close()


@pytest.mark.parametrize("seed", range(100 if NIGHTLY else 6))
def test_histories_go_alike(pair: Pair, seed: int) -> None:
    """Two members of a group over batches of any size, with requests as they come."""
    choose = random.Random(seed)
    topic = new_topic(pair, "shared")
    limit = choose.choice(["2", "3", "5", "10"])
    group, place = readers(pair, topic, delivery_count_limit=limit), (topic, 0)
    members = [Member(pair, group, name) for name in ("a", "b")]
    for one in members:
        one.fetch(place, note="begins", max_wait_ms=500)
    held: dict[str, list[int]] = {"a": [], "b": []}
    for step in range(30):
        one, note = choose.choice(members), f"seed {seed}, step {step}"
        of_it = held[one.member]
        what = choose.choice(["fill", "fetch", "fetch", "acknowledge", "acknowledge", "wrong"])
        if what == "fill":
            fill(pair, topic, *[choose.choice([1, 2, 5, 12]) for _ in range(choose.randrange(1, 4))])
        elif what == "fetch":
            answers = one.look(
                note=note,
                max_records=choose.choice([1, 3, 10, 500]),
                batch_size=choose.choice([1, 4, 500]),
                share_acquire_mode=choose.choice([0, STRICT]),
            )
            of_it += [at for first, last, _ in acquired(answers[0]) for at in range(first, last + 1)]
        elif what == "acknowledge" and of_it:
            settled = sorted(choose.sample(of_it, choose.randint(1, len(of_it))))
            for at in settled:
                of_it.remove(at)
            kinds = choose.choice([[ACCEPT], [RELEASE], [ACCEPT, RELEASE, REJECT, GAP]])
            one.acknowledge({place: in_runs(settled, lambda: choose.choice(kinds))}, note)
        elif what == "wrong":
            first = choose.randrange(0, 30)
            told = {place: [(first, first + choose.randrange(4), [ACCEPT])]}
            if not any(first - 4 <= at <= first + 4 for at in of_it):
                one.acknowledge(told, note)
        if step % 10 == 9:
            describe_offsets(pair, (group, {topic: [0]}), note=note)
    for one in members:
        one.close()


def in_runs(offsets: Iterable[int], kind: Callable[[], int]) -> list[tuple[int, int, list[int]]]:
    """Acknowledgements of these offsets, a batch for each run of them."""
    batches: list[tuple[int, int, list[int]]] = []
    for at in offsets:
        if batches and batches[-1][1] == at - 1:
            first, _, kinds = batches.pop()
            batches.append((first, at, [*kinds, kind()]))
        else:
            batches.append((at, at, [kind()]))
    return batches


def test_compressed_batches_are_read_alike(pair: Pair) -> None:
    topic = new_topic(pair, "shared")
    for codec in CODECS:
        fill(pair, topic, 4, first=4 * codec, compression=codec)
    group, place = readers(pair, topic), (topic, 0)
    one = Member(pair, group)
    answers = one.fetch(place, note="first", max_records=3, share_acquire_mode=STRICT)
    while held := acquired(answers[0]):
        one.acknowledge({place: [(first, last, [ACCEPT]) for first, last, _ in held]}, str(held))
        answers = one.look(note=f"after {held}", max_records=3, share_acquire_mode=STRICT)
    describe_offsets(pair, (group, {topic: [0]}), note="all done")
    one.close()
