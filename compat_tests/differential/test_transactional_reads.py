"""What readers see of transactions: Fetch and ListOffsets by isolation level, TxnOffsetCommit, OffsetFetch.

Each broker gives out its own producer ids and stamps markers by its own clock, so stored batches are compared
by what they say and not as bytes (save for Fetch 0 to 3, whose converted records hold neither).
"""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from compat_tests.differential.harness import SECONDS, Pair, Pauses, Side, messages, sorted_lists
from compat_tests.differential.test_records import UNKNOWN_ID, fetch, produce
from compat_tests.differential.topics import NOW_MS, id_of, new_topic
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.wire.records import build_batch, iter_records, iter_whole_batches, read_end_txn_marker

RETRIABLE = {14, 15, 16, 51}
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS."""
FIRST_FETCH_OF_V2 = 4
COMMITTED, UNCOMMITTED = 1, 0
WAIT_MS = 3000
"""Long beside an answer that comes at once, on a busy machine too."""

_numbers = itertools.count()


class Producer(NamedTuple):
    name: str
    """Its transactional id; its producer id is remembered by this."""
    id: int
    epoch: int


def until(side: Side, ask: Callable[[], Any], done: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + SECONDS
    pause = Pauses()
    while not done(answer := ask()):
        assert time.monotonic() < deadline, (side.name, answer)
        pause()
    return answer


def new_producers(pair: Pair, prefix: str) -> dict[str, Producer]:
    """One for each side, by the side's name."""
    name = f"{prefix}-{next(_numbers)}"
    producers = {}
    for side in pair.sides:
        until(
            side,
            lambda: side.ask(FindCoordinatorRequest(key=name, key_type=1), 1),
            lambda answer: answer.error_code == 0,
        )
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000)
        answer = until(side, lambda: side.ask(request, 4), lambda found: found.error_code not in RETRIABLE)
        assert answer.error_code == 0, (side.name, answer)
        side.remember(name, answer.producer_id, "producer_id")
        producers[side.name] = Producer(name, answer.producer_id, answer.producer_epoch)
    return producers


def write(
    side: Side, producer: Producer, topic: str, *values: bytes, sequence: int = 0, partition: int = 0
) -> None:
    """Adds the partition to the transaction and appends a batch to it."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.name,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
    )

    def codes(answer: Any) -> set[int]:
        results = answer.results_by_topic_v3_and_below
        return {one.partition_error_code for topic in results for one in topic.results_by_partition}

    added = until(side, lambda: side.ask(request, 3), lambda answer: not codes(answer) & RETRIABLE)
    assert codes(added) == {0}, (side.name, added)
    records = build_batch(
        [(number, NOW_MS + number, b"key", value, ()) for number, value in enumerate(values)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    data = produce(side, topic, bytes(records), partition=partition)
    data.transactional_id = producer.name
    answer = side.ask(data, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0, (side.name, answer)


def write_plain(side: Side, topic: str, *values: bytes, timestamp: int = NOW_MS, partition: int = 0) -> None:
    records = build_batch([(number, timestamp, None, value, ()) for number, value in enumerate(values)])
    answer = side.ask(produce(side, topic, bytes(records), partition=partition), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0, (side.name, answer)


def end(side: Side, producer: Producer, committed: bool) -> None:
    request = EndTxnRequest(
        transactional_id=producer.name,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=committed,
    )
    answer = until(side, lambda: side.ask(request, 3), lambda found: found.error_code not in RETRIABLE)
    assert answer.error_code == 0, (side.name, answer)


def offsets_of(topic: str, timestamp: int, isolation: int, partition: int = 0) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )


def wait_until_stable(side: Side, topic: str, offset: int, partition: int = 0) -> None:
    """Markers are written after EndTxn has been answered."""
    until(
        side,
        lambda: side.ask(offsets_of(topic, -1, COMMITTED, partition), 5),
        lambda answer: answer.topics[0].partitions[0].offset == offset,
    )


def said(side: Side, records: bytes) -> list[str]:
    """What stored batches say, a line each, without what each broker makes up for itself; then their size,
    with what may be cut off at the end."""
    lines = []
    for position, header in iter_whole_batches(records):
        found = iter_records(records[position : position + header.size_bytes])
        if header.is_control:
            held = [str(read_end_txn_marker(record)) for record in found]
        else:
            held = [f"{one.offset} {one.timestamp} {one.key!r} {one.value!r}" for one in found]
        producer = side.plain(header.producer_id, 0, "producer_id")
        lines.append(
            f"{header.base_offset}: {header.size_bytes} bytes, leader epoch {header.leader_epoch}, "
            f"attributes {header.attributes:#x}, "
            f"producer {producer}/{header.producer_epoch}/{header.base_sequence}: {held}"
        )
    return [*lines, f"{len(records)} bytes"]


def compare_fetches(
    pair: Pair, build: Callable[[Side], FetchRequest], version: int, note: str, connection: str = "main"
) -> list[Any]:
    """Asks both and compares, batches by what they say."""
    answers, plain = [], []
    for side in pair.sides:
        answer = side.ask(build(side), version, connection)
        answers.append(answer)
        if version >= FIRST_FETCH_OF_V2:
            for topic in answer.responses:
                for partition in topic.partitions:
                    if partition.records is not None:
                        partition.records = said(side, bytes(partition.records))
        plain.append(side.plain(answer, version))
    pair.compare(f"Fetch v{version} ({note})", *plain)
    return answers


def compare_messages(pair: Pair, build: Callable[[Side], FetchRequest], version: int, note: str) -> None:
    """Of an old format, from where a marker stands: it has none, and Kafka sends the first batch behind it
    twice, so that the last ones are cut off. That slip is not taken over (`wire/down_conversion.py`).
    """
    theirs, ours = (
        messages(bytes(side.ask(build(side), version).responses[0].partitions[0].records))
        for side in pair.sides
    )
    theirs = list(dict.fromkeys(theirs))
    assert len(theirs) <= len(ours)
    pair.compare(f"Fetch v{version} ({note}), messages", theirs, ours[: len(theirs)])


@pytest.fixture(autouse=True)
def _transactions_are_served(pair: Pair) -> None:
    for side in pair.sides:
        until(
            side,
            lambda: side.ask(FindCoordinatorRequest(key="group", key_type=0), 1),
            lambda answer: answer.error_code == 0,
        )


# Fetch and ListOffsets


MARKERS = (5, 6, 8, 12, 14)
"""Offsets of `story` at which markers stand and other records follow."""


@pytest.fixture
def story(pair: Pair) -> tuple[str, list[int]]:
    """A log with every kind of transaction, the last one open; and places in it from which to read.

    0 plain, 1-2 aborted (marker 5), 3 committed (marker 6), 4 aborted (marker 8), 7 plain, 9-10 committed
    (marker 12), 11 plain, 13 aborted (marker 14), 15 plain, 16-17 open, 18 plain, 19 aborted (marker 20).
    """
    topic = new_topic(pair, "transactions")
    first, second, third = (new_producers(pair, name) for name in ("first", "second", "third"))
    for side in pair.sides:
        one, two, three = (each[side.name] for each in (first, second, third))
        write_plain(side, topic, b"plain 0")
        write(side, one, topic, b"aborted 1", b"aborted 2")
        write(side, two, topic, b"committed 3")
        write(side, three, topic, b"aborted 4")
        end(side, one, False)
        wait_for_end(side, topic, 6)
        end(side, two, True)
        wait_for_end(side, topic, 7)
        write_plain(side, topic, b"plain 7")
        end(side, three, False)
        wait_until_stable(side, topic, 9)
        write(side, one, topic, b"committed 9", b"committed 10", sequence=2)
        write_plain(side, topic, b"plain 11", timestamp=NOW_MS + 50_000)
        end(side, one, True)
        wait_until_stable(side, topic, 13)
        write(side, two, topic, b"aborted 13", sequence=1)
        end(side, two, False)
        wait_until_stable(side, topic, 15)
        write_plain(side, topic, b"plain 15")
        write(side, three, topic, b"open 16", b"open 17", sequence=1)
        write_plain(side, topic, b"plain 18", timestamp=NOW_MS + 90_000)
        write(side, two, topic, b"aborted 19", sequence=2)
        end(side, two, False)
        wait_for_end(side, topic, 21)
    return topic, list(range(22))


def wait_for_end(side: Side, topic: str, offset: int) -> None:
    until(
        side,
        lambda: side.ask(offsets_of(topic, -1, UNCOMMITTED), 5),
        lambda answer: answer.topics[0].partitions[0].offset == offset,
    )


def test_fetches_of_both_isolation_levels_are_answered_alike(
    pair: Pair, story: tuple[str, list[int]]
) -> None:
    topic, places = story
    for version in pair.versions(FetchRequest):
        levels = (UNCOMMITTED, COMMITTED) if version >= FIRST_FETCH_OF_V2 else (UNCOMMITTED,)
        for level, place in itertools.product(levels, places):
            more = {"isolation_level": level} if level else {}
            note = f"isolation {level} from {place}"
            if version < FIRST_FETCH_OF_V2 and place in MARKERS:
                compare_messages(pair, lambda side: fetch(side, topic, place), version, note)
            else:
                compare_fetches(pair, lambda side: fetch(side, topic, place, **more), version, note)


@pytest.mark.parametrize("limit", [-1, 0, 1, 61, 200, 400, 1000])
def test_the_list_of_the_aborted_is_that_of_what_was_read(
    pair: Pair, story: tuple[str, list[int]], limit: int
) -> None:
    topic, places = story
    versions = [version for version in pair.versions(FetchRequest) if version >= FIRST_FETCH_OF_V2]
    for version in {*versions[:1], *versions[-1:]}:
        for place in places:
            compare_fetches(
                pair,
                lambda side: fetch(side, topic, place, isolation_level=1, partition_max_bytes=limit),
                version,
                f"{limit} bytes from {place}",
            )


@pytest.mark.parametrize(("level", "place"), [(1, 15), (1, 16), (1, 17), (1, 18), (1, 20), (1, 21), (0, 21)])
def test_fetches_wait_alike_at_the_end_of_what_may_be_read_and_behind_it(
    pair: Pair, story: tuple[str, list[int]], level: int, place: int
) -> None:
    """What may be read at level 1 ends before the batch of 16 and 17, the log at 21."""
    topic, _ = story
    version = max(pair.versions(FetchRequest), default=0)
    if version < FIRST_FETCH_OF_V2:
        pytest.skip("compared with the other version of Kafka")
    waits = []
    for side in pair.sides:
        request = fetch(side, topic, place, isolation_level=level, min_bytes=1)
        request.max_wait_ms = WAIT_MS
        began = time.monotonic()
        answer = side.ask(request, version)
        waits.append((time.monotonic() - began) * 1000 >= WAIT_MS * 0.95)
        assert answer.responses[0].partitions[0].error_code == 0, (side.name, answer)
    pair.compare(f"Fetch v{version} (isolation {level} from {place}), whether it waits", *waits)


def test_sessions_tell_alike_what_a_marker_has_moved(pair: Pair) -> None:
    topic = new_topic(pair, "sessions", 2)
    producers = new_producers(pair, "session")
    for side in pair.sides:
        write_plain(side, topic, b"plain")
        write(side, producers[side.name], topic, b"open")
        write(side, producers[side.name], topic, b"open", partition=1)

    def request(side: Side, epoch: int, *asked: tuple[int, int]) -> FetchRequest:
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in asked
        ]
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=1,
            session_id=side.values.get("session", 0) if epoch else 0,
            session_epoch=epoch,
            topics=[FetchTopic(topic=topic, topic_id=id_of(side, topic), partitions=partitions)],
        )

    for version in pair.versions(FetchRequest):
        if version < 7:
            continue
        for side in pair.sides:
            side.values.pop("session", None)
        full = []
        for side in pair.sides:
            answer = side.ask(request(side, 0, (0, 0), (1, 0)), version)
            side.remember("session", answer.session_id, "session_id")
            full.append(answer)
        compare_fetches(pair, lambda side: request(side, 1), version, "nothing is new")
        compare_fetches(pair, lambda side: request(side, 2, (0, 1)), version, "from behind what it has")
    for side in pair.sides:
        end(side, producers[side.name], False)
        wait_until_stable(side, topic, 3)
        wait_until_stable(side, topic, 2, partition=1)
    version = max(pair.versions(FetchRequest), default=0)
    if version >= 7:
        compare_fetches(pair, lambda side: request(side, 3), version, "the markers have come")
        compare_fetches(pair, lambda side: request(side, 4, (0, 3), (1, 2)), version, "behind the markers")


def test_offsets_of_both_isolation_levels_are_listed_alike(pair: Pair, story: tuple[str, list[int]]) -> None:
    topic, _ = story
    times = [-1, -2, 0, NOW_MS, NOW_MS + 1, NOW_MS + 2, NOW_MS + 50_000, NOW_MS + 80_000]
    for version in pair.versions(ListOffsetsRequest):
        levels = (UNCOMMITTED, COMMITTED) if version >= 2 else (UNCOMMITTED,)
        special = [-3] if version >= 7 else []
        for level, timestamp in itertools.product(levels, times + special):
            found = []
            for side in pair.sides:
                answer = side.ask(offsets_of(topic, timestamp, level), version)
                for partition in answer.topics[0].partitions:
                    # That of a marker is each broker's own time.
                    partition.timestamp = min(partition.timestamp, NOW_MS + 100_000)
                found.append(side.plain(answer, version))
            pair.compare(f"ListOffsets v{version} ({timestamp}, isolation {level})", *found)


@pytest.mark.parametrize("level", [-1, 2, 127])
def test_an_isolation_level_that_is_none_is_refused_alike(pair: Pair, level: int) -> None:
    topic = new_topic(pair, "levels")
    for side in pair.sides:
        write_plain(side, topic, b"plain")
    for version in pair.versions(FetchRequest):
        if version >= FIRST_FETCH_OF_V2:
            pair.ask(lambda side: fetch(side, topic, isolation_level=level), version, f"isolation {level}")
    for version in pair.versions(ListOffsetsRequest):
        if version >= 2:
            pair.ask(lambda _: offsets_of(topic, -1, level), version, f"isolation {level}")


def test_markers_that_nobody_waits_for_are_answered_alike(pair: Pair) -> None:
    """Anybody may send them; so does `kafka-transactions abort`."""
    topic = new_topic(pair, "markers", 2)
    producer_id = 1 << 41
    cases: list[tuple[str, dict[str, Any]]] = [
        ("an unknown producer", {}),
        ("no producer", {"producer_id": -1}),
        ("no epoch", {"producer_epoch": -1}),
        ("no coordinator epoch", {"coordinator_epoch": -1}),
        ("later epochs", {"producer_epoch": 5, "coordinator_epoch": 5}),
        ("an earlier epoch", {"producer_epoch": 4, "coordinator_epoch": 5}),
        ("an earlier coordinator", {"producer_epoch": 5, "coordinator_epoch": 4}),
        ("the same epochs", {"producer_epoch": 5, "coordinator_epoch": 5}),
        ("an abort", {"producer_epoch": 5, "coordinator_epoch": 5, "transaction_result": False}),
    ]
    for version in pair.versions(WriteTxnMarkersRequest):
        producer_id += 1
        for note, more in cases:
            names = [(topic, [0, 1, 7]), ("__consumer_offsets", [0, 99]), ("not-there", [0])]
            topics = [WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in names]
            fields = {"producer_id": producer_id, "producer_epoch": 0, "coordinator_epoch": 0, **more}
            marker = WritableTxnMarker(topics=topics, **{"transaction_result": True, **fields})
            answers = [
                sorted_lists(
                    side.plain(side.ask(WriteTxnMarkersRequest(markers=[marker]), version), version),
                    {"topics": "name", "partitions": "partition_index"},
                )
                for side in pair.sides
            ]
            pair.compare(f"WriteTxnMarkers v{version} ({note})", *answers)
    for side in pair.sides:
        wait_until_stable(side, topic, side.ask(offsets_of(topic, -1, 0), 5).topics[0].partitions[0].offset)


# Offsets


def commit_in(
    producer: Producer,
    group: str,
    *asked: tuple[str, int, int],
    side: Side | None = None,
    metadata: str | None = "note",
    **more: Any,
) -> TxnOffsetCommitRequest:
    """For versions from 6 on the side is needed, whose topics have ids."""
    ids = {} if side is None else side.values
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for topic, partition, offset in asked:
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=more.pop("transactional_id", producer.name),
        group_id=group,
        producer_id=more.pop("producer_id", producer.id),
        producer_epoch=more.pop("producer_epoch", producer.epoch),
        member_id=more.pop("member_id", ""),
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name, topic_id=ids.get(f"id of {name}", UNKNOWN_ID), partitions=partitions
            )
            for name, partitions in topics.items()
        ],
        **more,
    )


def add_group(side: Side, producer: Producer, group: str) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.name,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        group_id=group,
    )
    answer = until(side, lambda: side.ask(request, 3), lambda found: found.error_code not in RETRIABLE)
    assert answer.error_code == 0, (side.name, answer)


def committed(side: Side, group: str, topic: str | None, version: int, *, stable: bool) -> OffsetFetchRequest:
    more = {"require_stable": stable} if version >= 7 else {}
    partitions = [0, 1, 2]
    if version >= 8:
        topic_id = bytes(16) if topic is None or version < 10 else id_of(side, topic)
        topics = (
            None
            if topic is None
            else [OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=partitions)]
        )
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], **more)
    plain = None if topic is None else [OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)]
    return OffsetFetchRequest(group_id=group, topics=plain, **more)


def sweep_committed(pair: Pair, group: str, topic: str, note: str) -> None:
    for version in pair.versions(OffsetFetchRequest):
        for stable in (False, True) if version >= 7 else (False,):
            what = f"{note}{', stable' if stable else ''}"
            pair.ask(lambda side: committed(side, group, topic, version, stable=stable), version, what)
            if version >= 2:
                compare_all(pair, group, version, what, stable=stable)


def compare_all(pair: Pair, group: str, version: int, note: str, *, stable: bool) -> None:
    """Everything that a group has; Kafka tells that in the order of a hash table."""
    found = []
    for side in pair.sides:
        answer = side.ask(committed(side, group, None, version, stable=stable), version)
        found.append(sorted_lists(side.plain(answer, version), {"partitions": "partition_index"}))
    pair.compare(f"OffsetFetch v{version} ({note}, all)", *found)


def wait_until_settled(side: Side, group: str, topic: str) -> None:
    """No transaction is about to replace an offset of the group any more."""
    until(
        side,
        lambda: side.ask(committed(side, group, topic, 7, stable=True), 7),
        lambda answer: all(one.error_code == 0 for one in answer.topics[0].partitions),
    )


def commit_plainly(side: Side, group: str, topic: str, partition: int, offset: int) -> None:
    one = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata="plain"
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[one])],
    )
    answer = side.ask(request, 8)
    assert answer.topics[0].partitions[0].error_code == 0, (side.name, answer)


@pytest.mark.parametrize("is_committed", [True, False])
def test_offsets_of_a_transaction_are_seen_alike_before_and_after_its_end(
    pair: Pair, is_committed: bool
) -> None:
    for version in pair.versions(TxnOffsetCommitRequest):
        topic, group = new_topic(pair, "offsets", 3), f"transactional-{next(_numbers)}"
        producers = new_producers(pair, "offsets")
        for side in pair.sides:
            commit_plainly(side, group, topic, 0, 1)
            if version < 5:
                add_group(side, producers[side.name], group)
        pair.ask(
            lambda side: commit_in(
                producers[side.name],
                group,
                (topic, 0, 10),
                (topic, 1, 11),
                (topic, 9, 1),
                ("not-there", 0, 1),
                side=side,
            ),
            version,
            "with what does not exist",
        )
        sweep_committed(pair, group, topic, f"open, by v{version}")
        for side in pair.sides:
            end(side, producers[side.name], is_committed)
            wait_until_settled(side, group, topic)
        sweep_committed(pair, group, topic, f"ended, by v{version}")


def test_of_two_commits_the_later_one_counts_alike(pair: Pair) -> None:
    if not pair.versions(TxnOffsetCommitRequest):
        pytest.skip("compared with the other version of Kafka")
    topic, group = new_topic(pair, "race", 3), f"race-{next(_numbers)}"
    first, second = new_producers(pair, "first"), new_producers(pair, "second")
    for side in pair.sides:
        one, two = first[side.name], second[side.name]
        add_group(side, one, group)
        add_group(side, two, group)
        side.ask(commit_in(one, group, (topic, 0, 10), (topic, 1, 11), (topic, 2, 12)), 3)
        side.ask(commit_in(two, group, (topic, 0, 20)), 3)
        commit_plainly(side, group, topic, 1, 31)
        end(side, two, True)
        wait_until_seen(side, group, topic, 0, 20)
    sweep_committed(pair, group, topic, "the later one has ended")
    for side in pair.sides:
        end(side, first[side.name], True)
        wait_until_settled(side, group, topic)
    sweep_committed(pair, group, topic, "both have ended")


def wait_until_seen(side: Side, group: str, topic: str, partition: int, offset: int) -> None:
    until(
        side,
        lambda: side.ask(committed(side, group, topic, 7, stable=False), 7),
        lambda answer: answer.topics[0].partitions[partition].committed_offset == offset,
    )


def test_commits_in_transactions_are_refused_alike(pair: Pair) -> None:
    for version in pair.versions(TxnOffsetCommitRequest):
        topic, group = new_topic(pair, "refused", 3), f"refused-{next(_numbers)}"
        producers = new_producers(pair, "refused")
        cases: list[tuple[str, dict[str, Any]]] = [
            ("not in the transaction", {}),
            ("another transactional id", {"transactional_id": "nobody"}),
            ("no transactional id", {"transactional_id": ""}),
            ("another producer", {"producer_id": 1 << 40}),
            ("no producer", {"producer_id": -1}),
            ("a later epoch", {"producer_epoch": 9}),
            ("no epoch", {"producer_epoch": -1}),
            ("no group", {"group": ""}),
        ]
        if version >= 5:
            del cases[0]  # it is added
        for note, more in cases:

            def request(side: Side, more: dict[str, Any] = more) -> TxnOffsetCommitRequest:
                given = {"group": group, **more}
                return commit_in(producers[side.name], given.pop("group"), (topic, 0, 1), side=side, **given)

            pair.ask(request, version, note)
        for side in pair.sides:
            add_group(side, producers[side.name], group)
        cases = [
            ("sound", {}),
            ("null metadata", {"metadata": None}),
            ("too much metadata", {"metadata": "x" * 5000}),
            ("an earlier epoch", {"producer_epoch": -1}),
        ]
        if version >= 3:
            cases += [
                ("unknown member", {"member_id": "x", "generation_id_or_member_epoch": 1}),
                ("a member without a generation", {"member_id": "x"}),
                ("unknown instance", {"group_instance_id": "x"}),
                (
                    "unknown instance with a generation",
                    {"group_instance_id": "x", "generation_id_or_member_epoch": 0},
                ),
            ]
        for note, more in cases:
            pair.ask(
                lambda side: commit_in(producers[side.name], group, (topic, 0, 1), side=side, **more),
                version,
                note,
            )
        for side in pair.sides:
            end(side, producers[side.name], True)
            wait_until_settled(side, group, topic)
        sweep_committed(pair, group, topic, f"after refusals of v{version}")


def test_what_is_deleted_beside_a_transaction_is_gone_alike(pair: Pair) -> None:
    if not pair.versions(TxnOffsetCommitRequest):
        pytest.skip("compared with the other version of Kafka")
    topic, group = new_topic(pair, "deleted", 3), f"deleted-{next(_numbers)}"
    producers = new_producers(pair, "deleted")
    for side in pair.sides:
        commit_plainly(side, group, topic, 0, 1)
        add_group(side, producers[side.name], group)
        side.ask(
            commit_in(producers[side.name], group, *[(topic, index, 10 + index) for index in range(3)]), 3
        )
    doomed = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1)],
            )
        ],
    )
    pair.ask(lambda _: doomed, 0, "pending ones")
    sweep_committed(pair, group, topic, "some are deleted")
    for side in pair.sides:
        end(side, producers[side.name], True)
        wait_until_settled(side, group, topic)
    sweep_committed(pair, group, topic, "the transaction has ended")
    for side in pair.sides:
        add_group(side, producers[side.name], group)
        side.ask(commit_in(producers[side.name], group, (topic, 0, 50)), 3)
    pair.ask(lambda _: DeleteGroupsRequest(groups_names=[group]), 2, "with a pending offset")
    sweep_committed(pair, group, topic, "the group is deleted")
    for side in pair.sides:
        end(side, producers[side.name], True)
        wait_until_settled(side, group, topic)
    sweep_committed(pair, group, topic, "the group was deleted")


def test_offset_fetches_of_what_does_not_exist_are_stable_alike(pair: Pair) -> None:
    for version in pair.versions(OffsetFetchRequest):
        if version >= 7:
            topic = new_topic(pair, "nothing", 3)
            pair.ask(lambda side: committed(side, "nobody", topic, version, stable=True), version)
            if version >= 10:
                topics = [OffsetFetchRequestTopics(name="", topic_id=UNKNOWN_ID, partition_indexes=[0])]
                unknown = OffsetFetchRequest(
                    groups=[OffsetFetchRequestGroup(group_id="nobody", topics=topics)], require_stable=True
                )
                pair.ask(lambda _: unknown, version, "unknown id")
