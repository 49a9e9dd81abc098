"""Transactions: the same requests in every state, sound and unsound, to both brokers."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from compat_tests.differential.harness import (
    CLIENT_ID,
    CLOSED,
    NO_ANSWER,
    SECONDS,
    Pair,
    Pauses,
    Settled,
    Side,
)
from compat_tests.differential.members import Named, classic_situations, consumer_situations, named
from compat_tests.differential.topics import NOW_MS, id_of, new_topic
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import request_frame
from odradek.wire.messages import find
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.wire.records import build_batch
from odradek.wire.schema import Message
from tests.tiers import NIGHTLY

YEAR_MS = 2**31 - 1
"""The longest time-out that there is room for: 24 days. A year is more than that."""
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}

_numbers = itertools.count()


def new_id(prefix: str = "txn") -> str:
    return f"{prefix}-{next(_numbers)}"


def ready(answer: Any) -> bool:
    """Whether no coordinator is busy: loading, or ending the transaction before."""
    return answer in (CLOSED, NO_ANSWER) or answer.error_code not in NOT_YET


@pytest.fixture(autouse=True)
def _coordinators(pair: Pair) -> None:
    """Both have loaded their coordinators. With 3.9 only what 4.3 no longer serves is compared."""
    if not pair.versions(InitProducerIdRequest) and not pair.versions(WriteTxnMarkersRequest):
        pytest.skip("nothing of transactions is compared with this version")
    wait_for_coordinators(pair)


def wait_for_coordinators(pair: Pair) -> None:
    """Of groups and of transactions: their topics are made when they are first asked for."""
    for side in pair.sides:
        for kind in (0, 1):
            _until(side, FindCoordinatorRequest(coordinator_keys=["any"], key_type=kind), 4, _found)
        _until(side, InitProducerIdRequest(transactional_id="any", transaction_timeout_ms=600_000), 4, ready)


def _found(answer: Any) -> bool:
    return bool(answer.coordinators[0].error_code == 0)


def _until(side: Side, request: Message, version: int, done: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + SECONDS
    pause = Pauses()
    while not done(answer := side.ask(request, version)):
        assert time.monotonic() < deadline, (side.name, answer)
        pause()
    return answer


# -- requests


def init(name: str | None, timeout_ms: int = 600_000, **more: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **more)


def begun(pair: Pair, name: str, *, timeout_ms: int = 600_000, settle: Settled | None = ready) -> None:
    """Both have a producer of that name, remembered as `NAME` with its epoch as `epoch of NAME`; without
    `settle` also where no coordinator gives one."""

    def seen(side: Side, answer: Any) -> None:
        side.remember(name, answer.producer_id, "producer_id")
        side.values[f"epoch of {name}"] = answer.producer_epoch

    pair.ask(lambda _: init(name, timeout_ms), 4, f"new producer {name}", settle=settle, see=seen)


def identity(side: Side, name: str, *, other_id: int = 0, epoch: int = 0) -> dict[str, int]:
    """Id and epoch as fields, moved by so much."""
    return {
        "producer_id": side[name] + other_id,
        "producer_epoch": side[f"epoch of {name}"] + epoch,
    }


def add(
    side: Side, name: str, topics: dict[str, list[int]], *, known_as: str | None = None, **moved: int
) -> Any:
    one = identity(side, name, **moved)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name if known_as is None else known_as,
        v3_and_below_producer_id=one["producer_id"],
        v3_and_below_producer_epoch=one["producer_epoch"],
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in topics.items()
        ],
    )


def add_many(side: Side, entries: Iterable[tuple[str, dict[str, list[int]], dict[str, int], bool]]) -> Any:
    """What brokers send: (name, partitions, moved identity, only to be verified)."""
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                verify_only=verify,
                topics=[AddPartitionsToTxnTopic(name=t, partitions=p) for t, p in topics.items()],
                **identity(side, name, **moved),
            )
            for name, topics, moved, verify in entries
        ]
    )


def end(side: Side, name: str, *, commit: bool, known_as: str | None = None, **moved: int) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name if known_as is None else known_as,
        committed=commit,
        **identity(side, name, **moved),
    )


def batch(side: Side, name: str, sequence: int = 0, *, transactional: bool = True, **moved: int) -> bytes:
    one = identity(side, name, **moved)
    records = [(n, NOW_MS + n, b"key", b"value %d" % n, []) for n in range(3)]
    return bytes(
        build_batch(
            records,
            producer_id=one["producer_id"],
            producer_epoch=one["producer_epoch"],
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def produce(side: Side, topic: str, name: str | None, *records: bytes, first: int = 0) -> ProduceRequest:
    """One batch to each partition, from `first` on."""
    data = [PartitionProduceData(index=first + n, records=one) for n, one in enumerate(records)]
    return ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, topic_id=id_of(side, topic), partition_data=data)],
    )


def offset_commit(
    side: Side,
    name: str,
    group: str,
    topic: str,
    *,
    offset: int = 5,
    partitions: Iterable[int] = (0,),
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "note",
    known_as: str | None = None,
    **moved: int,
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=name if known_as is None else known_as,
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        group_instance_id=instance,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                topic_id=side.values.get(f"id of {topic}", bytes(range(1, 17))),
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset, committed_metadata=metadata
                    )
                    for number in partitions
                ],
            )
        ],
        **identity(side, name, **moved),
    )


def offset_fetch(group: str, topic: str, *, stable: bool) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable
    )


def fetch(side: Side, topic: str, offset: int = 0, *, isolation: int = 1) -> FetchRequest:
    one = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, topic_id=id_of(side, topic), partitions=[one])],
    )


def list_offsets(topic: str, timestamp: int, isolation: int) -> ListOffsetsRequest:
    one = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=[one])]
    )


def without_times(side: Side, answer: Any) -> None:
    """Times differ; whether there is one does not."""
    for one in getattr(answer, "transaction_states", ()):
        if hasattr(one, "transaction_start_time_ms"):
            one.transaction_start_time_ms = min(one.transaction_start_time_ms, 1)
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partitions:
            partition.active_producers.sort(key=lambda one: one.producer_id)
            for producer in partition.active_producers:
                # Of records it is the batch's, the same on both sides; of a marker the broker's clock.
                if producer.last_timestamp > NOW_MS + 60_000:
                    producer.last_timestamp = 1


def describe(pair: Pair, *names: str, note: str = "") -> None:
    def seen(side: Side, answer: Any) -> None:
        without_times(side, answer)
        for one in answer.transaction_states:
            one.topics.sort(key=lambda topic: topic.topic)
            for topic in one.topics:
                topic.partitions.sort()

    pair.ask(
        lambda _: DescribeTransactionsRequest(transactional_ids=list(names)),
        0,
        note or names[0][:40],
        see=seen,
    )


def describe_producers(pair: Pair, topic: str, note: str = "", partitions: tuple[int, ...] = (0,)) -> None:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(partitions))])
    pair.ask(lambda _: request, 0, note, see=without_times)


def settled(pair: Pair, name: str) -> None:
    """Both have written the markers of what was decided."""
    for side in pair.sides:

        def is_over(answer: Any) -> bool:
            one = answer.transaction_states[0]
            return one.error_code == 0 and one.transaction_state in (
                "Empty",
                "CompleteCommit",
                "CompleteAbort",
            )

        _until(side, DescribeTransactionsRequest(transactional_ids=[name]), 0, is_over)


def opened(pair: Pair, topic: str, name: str | None = None, *, records: bool = True) -> str:
    """A producer with an open transaction in partition 0, in the protocol of version 1."""
    name = name or new_id()
    begun(pair, name)
    pair.ask(lambda side: add(side, name, {topic: [0]}), 3)
    if records:
        pair.ask(lambda side: produce(side, topic, name, batch(side, name)), 11)
    return name


# -- who coordinates, and who produces


def test_transaction_coordinators_are_found_alike(pair: Pair) -> None:
    for version in pair.versions(FindCoordinatorRequest):
        for key in ("one", "", "x" * 32_767):
            if version >= 4:
                request = FindCoordinatorRequest(coordinator_keys=[key, "two"], key_type=1)
            elif version >= 1:
                request = FindCoordinatorRequest(key=key, key_type=1)
            else:
                continue
            pair.ask(lambda _: request, version, f"{len(key)} characters")


@pytest.mark.smoke
def test_producers_are_begun_alike_in_every_version(pair: Pair) -> None:
    for version in pair.versions(InitProducerIdRequest):
        name = new_id()

        def seen(side: Side, answer: Any) -> None:
            if answer.producer_id >= 0:
                side.remember(name, answer.producer_id, "producer_id")
                side.values[f"epoch of {name}"] = answer.producer_epoch

        for turn in ("first", "second", "third"):
            pair.ask(lambda _: init(name), version, turn, settle=ready, see=seen)
        if version < 3:
            continue
        for moved in ({}, {}, {"epoch": -1}, {"epoch": -2}, {"epoch": 1}, {"other_id": 1}, {}):
            pair.ask(
                lambda side: init(name, **identity(side, name, **moved)),
                version,
                f"with its identity, {moved}",
                settle=ready,
                see=seen,
            )
        pair.ask(lambda side: init(name, producer_id=side[name]), version, "an id without an epoch")
        pair.ask(lambda side: init(name, producer_epoch=0), version, "an epoch without an id")
        pair.ask(
            lambda side: init(new_id("never"), producer_id=123_456, producer_epoch=3),
            version,
            "an identity that nobody has",
            settle=ready,
        )


def test_ids_and_time_outs_are_bounded_alike(pair: Pair) -> None:
    for version in pair.versions(InitProducerIdRequest):
        pair.ask(lambda _: init(""), version, "an empty id")
        for timeout_ms in (0, -1, 1, 900_000, 900_001, YEAR_MS):
            name = new_id()

            def seen(side: Side, answer: Any) -> None:
                side.remember(name, answer.producer_id, "producer_id")

            pair.ask(lambda _: init(name, timeout_ms), version, f"{timeout_ms} ms", settle=ready, see=seen)
        long = f"{new_id()}-".ljust(32_767, "x")

        def seen_long(side: Side, answer: Any) -> None:
            side.remember("long", answer.producer_id, "producer_id")

        pair.ask(lambda _: init(long), version, "32,767 characters", settle=ready, see=seen_long)


# -- the end of the epochs

LAST_EPOCH = 32_766
"""The last one that a producer gets; then it needs another id."""
takes_long = pytest.mark.skipif(not NIGHTLY, reason="65,000 requests")


def begun_with_an_old_epoch(pair: Pair, name: str, *, left: int) -> None:
    """As `begun`, with so many epochs before the last one."""
    begun(pair, name)
    for side in pair.sides:
        while (missing := LAST_EPOCH - left - side[f"epoch of {name}"]) > 0:
            count = min(500, missing)
            for _ in range(count):
                side.send(request_frame(init(name), 4, 1, CLIENT_ID))
            answers = [side.answer(InitProducerIdRequest, 4) for _ in range(count)]
            assert {answer.error_code for answer in answers} <= {0, *NOT_YET}, (side.name, answers)
            side.values[f"epoch of {name}"] = max(answer.producer_epoch for answer in answers)


def following(name: str) -> Callable[[Side, Any], None]:
    """Remembers with what id and epoch the producer of that name goes on."""

    def seen(side: Side, answer: Any) -> None:
        if answer.error_code:
            return
        if answer.producer_id != side[name]:
            side.remember(f"successor of {name}", answer.producer_id, "producer_id")
            side.values[name] = answer.producer_id
        side.values[f"epoch of {name}"] = answer.producer_epoch

    return seen


@takes_long
def test_epochs_run_out_alike(pair: Pair) -> None:
    if not pair.versions(InitProducerIdRequest):
        return
    name = new_id()
    begun_with_an_old_epoch(pair, name, left=2)
    for turn in range(5):
        pair.ask(lambda _: init(name), 4, f"near the end, {turn}", settle=ready, see=following(name))
        describe(pair, name, note=f"near the end, {turn}")


@takes_long
def test_transactions_of_version_2_run_out_of_epochs_alike(pair: Pair) -> None:
    """The end of a transaction brings the next id."""
    if 5 not in pair.versions(EndTxnRequest):
        return
    topic, name = new_topic(pair, "last-epochs"), new_id()
    begun_with_an_old_epoch(pair, name, left=2)
    for turn, commit in enumerate((True, False, True, True)):
        pair.ask(lambda side: produce(side, topic, name, batch(side, name)), 12, f"{turn}", settle=_appended)
        pair.ask(lambda side: end(side, name, commit=commit), 5, f"{turn}", settle=ready, see=following(name))
        settled(pair, name)
        describe(pair, name, note=f"near the end, {turn}")
        describe_producers(pair, topic, f"near the end, {turn}")
    read_back(pair, topic, "over the end of the epochs")


@takes_long
def test_a_producer_of_the_last_epoch_is_fenced_alike(pair: Pair) -> None:
    """Its transaction is aborted with the epoch behind the last one."""
    if not pair.versions(EndTxnRequest):
        return
    topic, name = new_topic(pair, "fenced-at-last"), new_id()
    begun_with_an_old_epoch(pair, name, left=0)
    pair.ask(lambda side: add(side, name, {topic: [0]}), 3)
    pair.ask(lambda side: produce(side, topic, name, batch(side, name)), 11, settle=_appended)
    pair.ask(lambda _: init(name), 4, "another takes over", settle=ready, see=following(name))
    describe(pair, name, note="taken over")
    describe_producers(pair, topic, "taken over")
    read_back(pair, topic, "taken over")


# -- partitions and offsets in a transaction


@pytest.mark.smoke
def test_partitions_are_added_alike(pair: Pair) -> None:
    topic = new_topic(pair, "adds", 4)
    name = new_id()
    begun(pair, name)
    cases: list[tuple[str, dict[str, list[int]], dict[str, Any]]] = [
        ("one", {topic: [0]}, {}),
        ("again", {topic: [0]}, {}),
        ("more", {topic: [0, 1, 2]}, {}),
        ("an unknown partition in the middle", {topic: [1, 77, 3]}, {}),
        ("an unknown topic", {"not-there": [0], topic: [3]}, {}),
        ("an unknown topic alone", {"not-there": [0]}, {}),
        ("a negative partition", {topic: [-1]}, {}),
        ("an internal topic", {"__consumer_offsets": [0]}, {}),
        ("none", {}, {}),
        ("no partitions of a topic", {topic: []}, {}),
        ("twice the same", {topic: [1, 1]}, {}),
        ("another's id", {topic: [0]}, {"other_id": 1}),
        ("an older epoch", {topic: [0]}, {"epoch": -1}),
        ("a newer epoch", {topic: [0]}, {"epoch": 1}),
        ("an unknown transactional id", {topic: [0]}, {"known_as": "nobody"}),
        ("an empty transactional id", {topic: [0]}, {"known_as": ""}),
    ]
    for version in pair.versions(AddPartitionsToTxnRequest):
        for note, topics, moved in cases:
            if version <= 3:
                pair.ask(lambda side: add(side, name, topics, **moved), version, note, see=_sorted_results)
            elif "known_as" not in moved:
                for verify in (False, True):
                    entries = [(name, topics, moved, verify)]
                    what = f"{note}, to be {'verified' if verify else 'added'}"
                    pair.ask(lambda side: add_many(side, entries), version, what, see=_sorted_results)
        describe(pair, name, note=f"after AddPartitionsToTxn v{version}")


def _sorted_results(side: Side, answer: Any) -> None:
    """Kafka answers in the order of a hash table."""
    groups = [one.topic_results for one in answer.results_by_transaction]
    for topics in (*groups, answer.results_by_topic_v3_and_below):
        topics.sort(key=lambda topic: topic.name)
        for topic in topics:
            topic.results_by_partition.sort(key=lambda one: one.partition_index)
    answer.results_by_transaction.sort(key=lambda one: one.transactional_id)


def test_several_transactions_are_added_to_at_once_alike(pair: Pair) -> None:
    topic = new_topic(pair, "adds", 3)
    names = [new_id() for _ in range(3)]
    for name in names:
        begun(pair, name)
    for version in pair.versions(AddPartitionsToTxnRequest):
        if version < 4:
            continue
        entries: list[tuple[str, dict[str, list[int]], dict[str, int], bool]] = [
            (names[0], {topic: [0, 1]}, {}, False),
            (names[1], {topic: [0], "not-there": [1]}, {}, False),
            (names[2], {topic: [2]}, {"epoch": -1}, False),
        ]
        pair.ask(lambda side: add_many(side, entries), version, "three producers", see=_sorted_results)
        verified = [(name, topics, moved, True) for name, topics, moved, _ in entries]
        pair.ask(lambda side: add_many(side, verified), version, "three verified", see=_sorted_results)
        # Of no transactions at all Kafka 4.3 never answers.
        for name in names:
            describe(pair, name)


def test_offsets_are_added_alike(pair: Pair) -> None:
    name = new_id()
    begun(pair, name)
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("sound", "group", {}),
        ("again", "group", {}),
        ("another group", "other-group", {}),
        ("no group", "", {}),
        ("another's id", "group", {"other_id": 1}),
        ("an older epoch", "group", {"epoch": -1}),
        ("a newer epoch", "group", {"epoch": 1}),
        ("an unknown transactional id", "group", {"known_as": "nobody"}),
        ("an empty transactional id", "group", {"known_as": ""}),
    ]
    for version in pair.versions(AddOffsetsToTxnRequest):
        for note, group, moved in cases:

            def request(side: Side) -> AddOffsetsToTxnRequest:
                more = dict(moved)
                known_as = more.pop("known_as", name)
                return AddOffsetsToTxnRequest(
                    transactional_id=known_as, group_id=group, **identity(side, name, **more)
                )

            pair.ask(request, version, note)
        describe(pair, name, note=f"after AddOffsetsToTxn v{version}")


@pytest.mark.smoke
def test_offsets_wait_for_the_end_alike(pair: Pair) -> None:
    topic = new_topic(pair, "pending", 2)
    for version in pair.versions(TxnOffsetCommitRequest):
        for commit in (True, False):
            name, group = new_id(), new_id("group")
            begun(pair, name)
            if version < 5:
                pair.ask(
                    lambda side: AddOffsetsToTxnRequest(
                        transactional_id=name, group_id=group, **identity(side, name)
                    ),
                    3,
                )
            pair.ask(
                lambda side: offset_commit(side, name, group, topic, partitions=(0, 1)), version, "sound"
            )
            for stable in (True, False):
                note = f"pending from v{version}, stable {stable}"
                pair.ask(lambda _: offset_fetch(group, topic, stable=stable), 8, note)
            pair.ask(lambda side: end(side, name, commit=commit), 4)
            settled(pair, name)
            for stable in (True, False):
                note = f"after commit={commit} in v{version}, stable {stable}"
                pair.ask(lambda _: offset_fetch(group, topic, stable=stable), 8, note)


def test_bad_offsets_in_transactions_are_refused_alike(pair: Pair) -> None:
    topic = new_topic(pair, "offsets", 2)
    for version in pair.versions(TxnOffsetCommitRequest):
        name, group = new_id(), new_id("group")
        begun(pair, name)
        pair.ask(
            lambda side: AddOffsetsToTxnRequest(
                transactional_id=name, group_id=group, **identity(side, name)
            ),
            3,
        )
        cases: list[tuple[str, dict[str, Any]]] = [
            ("an unknown partition in the middle", {"partitions": (0, 77, 1)}),
            ("an unknown topic", {"topic": "not-there"}),
            ("no group", {"group": ""}),
            ("a group that was not added", {"group": new_id("stranger")}),
            ("too much metadata", {"metadata": "x" * 5000}),
            ("no metadata", {"metadata": None}),
            ("an offset below zero", {"offset": -7}),
            ("another's id", {"other_id": 1}),
            ("an older epoch", {"epoch": -1}),
            ("a newer epoch", {"epoch": 1}),
            ("an unknown transactional id", {"known_as": "nobody"}),
        ]
        if version >= 3:
            cases += [
                ("an unknown member", {"member": "who", "generation": 1}),
                ("a generation without a member", {"generation": 3}),
            ]
        for note, changes in cases:
            more = {"group": group, "topic": topic, **changes}
            pair.ask(lambda side: offset_commit(side, name, **more), version, note)
        describe(pair, name, note=f"after TxnOffsetCommit v{version}")
        pair.ask(lambda side: end(side, name, commit=False), 4, settle=ready)


def offsets_of_members(pair: Pair, group: str, topic: str, cases: Iterable[Named], note: str) -> None:
    """Each in a transaction of its own version, and what is committed when that is over."""
    for version in (3, 4, 5, 6):
        if version not in pair.versions(TxnOffsetCommitRequest):
            continue
        name = new_id()
        begun(pair, name)
        if version < 5:
            pair.ask(
                lambda side: AddOffsetsToTxnRequest(
                    transactional_id=name, group_id=group, **identity(side, name)
                ),
                3,
            )
        for number, (what, member, generation, instance) in enumerate(cases):
            for partitions in ((0,), (1,), (0, 1)):

                def request(side: Side) -> TxnOffsetCommitRequest:
                    return offset_commit(
                        side,
                        name,
                        group,
                        topic,
                        offset=10 * number + len(partitions),
                        partitions=partitions,
                        member=named(side, member),
                        generation=generation,
                        instance=instance,
                    )

                pair.ask(request, version, f"{note}: {what}, partitions {partitions}", settle=_committed)
        pair.ask(lambda side: end(side, name, commit=True), 4, settle=ready)
        settled(pair, name)
        pair.ask(lambda _: offset_fetch(group, topic, stable=True), 8, f"{note}, v{version}")


def _committed(answer: Any) -> bool:
    if answer in (CLOSED, NO_ANSWER):
        return True
    return not {one.error_code for topic in answer.topics for one in topic.partitions} & NOT_YET


def test_offsets_of_classic_members_in_transactions_are_fenced_alike(pair: Pair) -> None:
    if not pair.versions(TxnOffsetCommitRequest):
        return
    topic, group = new_topic(pair, "fenced", 2), new_id("group")
    for note, cases in classic_situations(pair, group, topic):
        offsets_of_members(pair, group, topic, cases, note)


def test_offsets_of_consumers_in_transactions_are_fenced_alike(pair: Pair) -> None:
    if not pair.versions(TxnOffsetCommitRequest) or not pair.versions(ConsumerGroupHeartbeatRequest):
        return
    topic, group = new_topic(pair, "fenced", 2), new_id("group")
    for note, cases in consumer_situations(pair, group, topic):
        offsets_of_members(pair, group, topic, cases, note)


# -- the end


@pytest.mark.smoke
def test_transactions_end_alike_in_every_version(pair: Pair) -> None:
    topic = new_topic(pair, "ends")
    for version in pair.versions(EndTxnRequest):
        for first, then in itertools.product((True, False), repeat=2):
            name = opened(pair, topic)
            note = f"{'commit' if first else 'abort'}"
            for moved in ({"other_id": 1}, {"epoch": -1}, {"epoch": 1}):
                pair.ask(lambda side: end(side, name, commit=first, **moved), version, f"{note}, {moved}")
            pair.ask(lambda side: end(side, name, commit=first), version, note, see=_seen_successor)
            settled(pair, name)
            describe(pair, name, note=f"after {note} in v{version}")
            then_note = f"{note}, then {'commit' if then else 'abort'}"
            pair.ask(
                lambda side: end(side, name, commit=then),
                version,
                then_note,
                settle=ready,
                see=_seen_successor,
            )
            settled(pair, name)
            for epoch in (1, 2):
                pair.ask(
                    lambda side: end(side, name, commit=then, epoch=epoch),
                    version,
                    f"{then_note}, epoch + {epoch}",
                    settle=ready,
                    see=_seen_successor,
                )
                settled(pair, name)
            describe(pair, name, note=f"after {then_note} in v{version}")
        describe_producers(pair, topic, f"after EndTxn v{version}")


def _seen_successor(side: Side, answer: Any) -> None:
    """A producer that ends gets its identity of the next transaction, its own id or a new one."""
    if answer.producer_id >= 0 and answer.producer_id not in side.values.values():
        side.remember("a new id", answer.producer_id, "producer_id")


def test_a_transaction_that_was_never_begun_ends_alike(pair: Pair) -> None:
    for version in pair.versions(EndTxnRequest):
        for commit in (True, False):
            name = new_id()
            begun(pair, name)
            for turn in ("first", "again"):
                pair.ask(
                    lambda side: end(side, name, commit=commit),
                    version,
                    turn,
                    settle=ready,
                    see=_seen_successor,
                )
                settled(pair, name)
            pair.ask(lambda side: end(side, name, commit=commit, known_as="nobody"), version, "unknown id")
            pair.ask(lambda side: end(side, name, commit=commit, known_as=""), version, "empty id")
            describe(pair, name, note=f"after EndTxn v{version}")


@pytest.mark.smoke
def test_time_outs_end_transactions_alike(pair: Pair) -> None:
    if not pair.versions(EndTxnRequest):
        return
    topic, name = new_topic(pair, "times-out"), new_id()
    begun(pair, name, timeout_ms=1500)
    pair.ask(lambda side: add(side, name, {topic: [0]}), 3)
    pair.ask(lambda side: produce(side, topic, name, batch(side, name)), 11)
    settled(pair, name)
    describe(pair, name, note="timed out")
    describe_producers(pair, topic, "timed out")
    for version in pair.versions(EndTxnRequest):
        pair.ask(lambda side: end(side, name, commit=True), version, "after the time-out")
    pair.ask(lambda side: add(side, name, {topic: [0]}), 3, "after the time-out")
    pair.ask(lambda side: produce(side, topic, name, batch(side, name, 3)), 11, "after the time-out")

    def seen(side: Side, answer: Any) -> None:
        side.values[f"epoch of {name}"] = answer.producer_epoch

    pair.ask(lambda side: init(name, **identity(side, name)), 4, "recovers", settle=ready, see=seen)
    pair.ask(lambda _: init(name), 4, "begins again", settle=ready, see=seen)


# -- records


def test_transactional_batches_are_judged_alike(pair: Pair) -> None:
    for version in pair.versions(ProduceRequest):
        if version < 3:
            continue
        topic = new_topic(pair, "batches", 3)
        name, stranger = new_id(), new_id()
        begun(pair, name)
        begun(pair, stranger)
        pair.ask(lambda side: add(side, name, {topic: [0, 1]}), 3)
        cases: list[tuple[str, Callable[[Side], ProduceRequest]]] = [
            ("sound", lambda side: produce(side, topic, name, batch(side, name))),
            ("the same again", lambda side: produce(side, topic, name, batch(side, name))),
            ("the next", lambda side: produce(side, topic, name, batch(side, name, 3))),
            ("a gap", lambda side: produce(side, topic, name, batch(side, name, 60))),
            (
                "not transactional within",
                lambda side: produce(side, topic, None, batch(side, name, 6, transactional=False)),
            ),
            ("without the id in the request", lambda side: produce(side, topic, None, batch(side, name, 6))),
            ("under another id", lambda side: produce(side, topic, stranger, batch(side, name, 6))),
            (
                "under an id that nobody has",
                lambda side: produce(side, topic, "nobody", batch(side, name, 6)),
            ),
            ("an older epoch", lambda side: produce(side, topic, name, batch(side, name, 6, epoch=-1))),
            ("a newer epoch", lambda side: produce(side, topic, name, batch(side, name, 0, epoch=1))),
            (
                "a partition that was not added",
                lambda side: produce(side, topic, name, batch(side, name), first=2),
            ),
            (
                "one that was, and one that was not",
                lambda side: produce(side, topic, name, batch(side, name), batch(side, name), first=1),
            ),
            (
                "two producers in a request",
                lambda side: produce(side, topic, name, batch(side, name, 6), batch(side, stranger)),
            ),
            ("an unknown partition", lambda side: produce(side, topic, name, batch(side, name), first=9)),
        ]
        for note, build in cases:
            pair.ask(build, version, note, settle=_appended, see=_sorted_partitions)
        describe(pair, name, stranger, note=f"after Produce v{version}")
        describe_producers(pair, topic, f"after Produce v{version}", (0, 1, 2))
        pair.ask(lambda side: end(side, name, commit=True), 4, f"after Produce v{version}", settle=ready)
        settled(pair, name)
        read_back(pair, topic, f"after Produce v{version}")


def _sorted_partitions(side: Side, answer: Any) -> None:
    """Kafka answers in the order of a hash table."""
    for topic in answer.responses:
        topic.partition_responses.sort(key=lambda one: one.index)


def _appended(answer: Any) -> bool:
    """A partition may wait for the coordinator's verification."""
    if answer in (CLOSED, NO_ANSWER):
        return True
    codes = {one.error_code for topic in answer.responses for one in topic.partition_responses}
    return ErrorCode.NOT_ENOUGH_REPLICAS not in codes and ErrorCode.CONCURRENT_TRANSACTIONS not in codes


@pytest.mark.smoke
def test_a_transaction_of_version_2_runs_alike(pair: Pair) -> None:
    """Partitions and offsets add themselves; every end moves the epoch."""
    for version in pair.versions(ProduceRequest):
        if version < 12:
            continue
        topic, name, group = new_topic(pair, "newer", 2), new_id(), new_id("group")
        begun(pair, name)

        def seen(side: Side, answer: Any) -> None:
            if answer.error_code == 0:
                side.values[f"epoch of {name}"] = answer.producer_epoch

        for commit in (True, False, True):
            for sequence in (0, 3):
                pair.ask(
                    lambda side: produce(
                        side, topic, name, batch(side, name, sequence), batch(side, name, sequence)
                    ),
                    version,
                    f"sequence {sequence}",
                    settle=_appended,
                    see=_sorted_partitions,
                )
            pair.ask(lambda side: offset_commit(side, name, group, topic), 5)
            describe(pair, name, note=f"open, Produce v{version}")
            describe_producers(pair, topic, f"open, Produce v{version}")
            pair.ask(lambda side: end(side, name, commit=commit), 5, "ends", settle=ready, see=seen)
            settled(pair, name)
            describe(pair, name, note=f"ended, Produce v{version}")
            describe_producers(pair, topic, f"ended, Produce v{version}")
            read_back(pair, topic, f"Produce v{version}")
            pair.ask(lambda _: offset_fetch(group, topic, stable=True), 8, f"commit={commit}")
        pair.ask(
            lambda side: produce(side, topic, name, batch(side, name, 5)),
            version,
            "a new epoch does not begin at 0",
            settle=_appended,
        )


def test_transactions_begin_with_their_first_sequence_number_alike(pair: Pair) -> None:
    for version in pair.versions(ProduceRequest):
        if version < 11:
            continue
        topic, name = new_topic(pair, "first"), new_id()
        begun(pair, name)
        if version == 11:
            pair.ask(lambda side: add(side, name, {topic: [0]}), 3)
        for sequence in (5, 5, 2, 0, 8, 3, 0):
            pair.ask(
                lambda side: produce(side, topic, name, batch(side, name, sequence)),
                version,
                f"begins with {sequence}",
                settle=_appended,
            )
        describe_producers(pair, topic, f"begun by Produce v{version}")
        read_back(pair, topic, f"begun by Produce v{version}")


def test_an_abort_of_an_empty_transaction_moves_the_epoch_alike(pair: Pair) -> None:
    if 5 not in pair.versions(EndTxnRequest):
        return
    name = new_id()
    begun(pair, name)

    def seen(side: Side, answer: Any) -> None:
        if answer.error_code == 0:
            side.values[f"epoch of {name}"] = answer.producer_epoch

    for turn in range(3):
        pair.ask(lambda side: end(side, name, commit=False), 5, f"abort {turn}", settle=ready, see=seen)
        settled(pair, name)
        describe(pair, name, note=f"abort {turn}")


def read_back(pair: Pair, topic: str, note: str) -> None:
    """The batches with their places, the aborted list, and the ends. A marker has the broker's time."""

    def markers_blanked(side: Side, answer: Any) -> None:
        for response in answer.responses:
            for partition in response.partitions:
                partition.records = _without_marker_times(bytes(partition.records or b""))

    versions = [v for v in (4, 11, 12, 13, 17, 18) if v in pair.versions(FetchRequest)]
    for version in versions:
        for isolation in (0, 1):
            pair.ask(
                lambda side: fetch(side, topic, isolation=isolation),
                version,
                f"{note}, isolation {isolation}",
                see=markers_blanked,
            )
    for version in pair.versions(ListOffsetsRequest):
        for isolation in (0, 1) if version >= 2 else (0,):
            for timestamp in (-1, -2, NOW_MS):
                pair.ask(
                    lambda _: list_offsets(topic, timestamp, isolation),
                    version,
                    f"{note}, {timestamp}, isolation {isolation}",
                )


CONTROL = 0x20


def _without_marker_times(records: bytes) -> bytes:
    """Producer ids are each broker's own, and so are checksums over them; the times of markers are, too."""
    whole, at = bytearray(records), 0
    while at + 61 <= len(whole):
        whole[at + 17 : at + 21] = bytes(4)  # checksum
        whole[at + 43 : at + 51] = bytes(8)  # producer id
        if int.from_bytes(whole[at + 21 : at + 23], "big") & CONTROL:
            whole[at + 27 : at + 43] = bytes(16)
        at += 12 + int.from_bytes(whole[at + 8 : at + 12], "big")
    return bytes(whole)


# -- markers that anybody may send


def marker(
    side: Side,
    name: str,
    topics: dict[str, list[int]],
    *,
    commit: bool,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    **moved: int,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=[WritableTxnMarkerTopic(name=t, partition_indexes=p) for t, p in topics.items()],
        **identity(side, name, **moved),
    )


def test_markers_are_written_or_refused_alike(pair: Pair) -> None:
    def in_order(side: Side, answer: Any) -> None:
        answer.markers.sort(key=lambda one: one.producer_id)
        for one in answer.markers:
            one.topics.sort(key=lambda topic: topic.name)
            for topic in one.topics:
                topic.partitions.sort(key=lambda partition: partition.partition_index)

    for version in pair.versions(WriteTxnMarkersRequest):
        for commit in (False, True):
            topic = new_topic(pair, "markers", 2)
            name = opened(pair, topic)
            cases: list[tuple[str, dict[str, list[int]], dict[str, int]]] = [
                ("an unknown partition in the middle", {topic: [77]}, {}),
                ("an unknown topic", {"not-there": [0]}, {}),
                ("an older epoch", {topic: [0]}, {"epoch": -1}),
                ("a coordinator's epoch below zero", {topic: [0]}, {"coordinator_epoch": -1}),
                ("a producer that nobody knows", {topic: [1]}, {"other_id": 50_000}),
                ("a partition where nothing is open", {topic: [1]}, {}),
                ("a later coordinator", {topic: [0]}, {"coordinator_epoch": 7}),
                ("an older coordinator", {topic: [0]}, {"coordinator_epoch": 3}),
                ("the same again", {topic: [0]}, {"coordinator_epoch": 7}),
                ("a newer epoch", {topic: [0]}, {"coordinator_epoch": 7, "epoch": 3}),
                ("the old epoch again", {topic: [0]}, {"coordinator_epoch": 7}),
                ("partly unknown", {topic: [0, 9, 1]}, {"coordinator_epoch": 8, "epoch": 3}),
                ("no partitions", {}, {}),
            ]
            for note, topics, more in cases:
                pair.ask(
                    lambda side: WriteTxnMarkersRequest(
                        markers=[marker(side, name, topics, commit=commit, **more)]
                    ),
                    version,
                    f"{note}, {'commit' if commit else 'abort'}",
                    see=in_order,
                )
                describe_producers(pair, topic, f"after {note} in v{version}", (0, 1))
            pair.ask(lambda _: WriteTxnMarkersRequest(markers=[]), version, "none at all")
            read_back(pair, topic, f"WriteTxnMarkers v{version}")


@pytest.mark.parametrize("commit", [False, True], ids=["abort", "commit"])
def test_markers_of_version_2_need_an_epoch_of_their_own_alike(pair: Pair, commit: bool) -> None:
    """What says `transaction_version` 2 has the producer's next epoch: its own ends nothing (KIP-890)."""
    if 2 not in pair.versions(WriteTxnMarkersRequest):
        return

    def written(topic: str, name: str, note: str, said: int, epoch: int, coordinator: int = 0) -> int:
        def request(side: Side) -> WriteTxnMarkersRequest:
            told = {"transaction_version": said, "coordinator_epoch": coordinator, "epoch": epoch}
            return WriteTxnMarkersRequest(markers=[marker(side, name, {topic: [0]}, commit=commit, **told)])

        theirs, _ = pair.ask(
            request,
            2,
            f"{note}, epoch + {epoch}, of version {said}",
        )
        describe_producers(pair, topic, f"after {note}, epoch + {epoch}, of version {said}")
        return int(theirs.markers[0].topics[0].partitions[0].error_code)

    fenced, none = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE
    for said in (2, 3, 1, -1, -2):
        topic = new_topic(pair, "markers-2")
        name = opened(pair, topic)
        older, same, following = (written(topic, name, "open", said, epoch) for epoch in (-1, 0, 1))
        # A producer's first epoch is 0, and none is older.
        assert older != none
        if said != -1:
            assert (same, following) == (fenced if said >= 2 else none, none)
        for epoch in (1, 0, 2, 1):
            written(topic, name, "nothing open", said, epoch)
        written(topic, name, "ended by one of version 0", 0, 2)
        written(topic, name, "older", said, 0)
        written(topic, name, "an older coordinator", said, 3, coordinator=-1)
        late = lambda side: produce(side, topic, name, batch(side, name, 3))  # noqa: E731
        pair.ask(late, 11, "a late batch", settle=_appended)
        read_back(pair, topic, f"markers of version {said}")


def test_a_marker_that_trips_spoils_no_other_alike(pair: Pair) -> None:
    if 2 not in pair.versions(WriteTxnMarkersRequest):
        return
    topic, sound, tripped = new_topic(pair, "markers-2", 2), new_id(), new_id()
    for name in (sound, tripped):
        begun(pair, name)

    def both(side: Side) -> WriteTxnMarkersRequest:
        cases = [(sound, 0, 0), (tripped, 1, -1), (tripped, 0, 2)]
        return WriteTxnMarkersRequest(
            markers=[
                marker(side, name, {topic: [index]}, commit=True, transaction_version=said)
                for name, index, said in cases
            ]
        )

    def in_order(side: Side, answer: Any) -> None:
        answer.markers.sort(key=lambda one: one.producer_id)
        for one in answer.markers:
            for told in one.topics:
                told.partitions.sort(key=lambda partition: partition.partition_index)

    pair.ask(both, 2, "one of no version between others", see=in_order)
    describe_producers(pair, topic, "one of no version between others", (0, 1))


def test_a_transaction_stays_alike_where_a_later_coordinator_has_been(pair: Pair) -> None:
    """Its markers are refused there (TRANSACTION_COORDINATOR_FENCED), and its coordinator lets it be."""
    if not pair.versions(EndTxnRequest):
        return
    topic, name, later = new_topic(pair, "later", 2), new_id(), 2**31 - 1
    version = max(pair.versions(WriteTxnMarkersRequest))

    def marked_by_the_later(side: Side) -> WriteTxnMarkersRequest:
        ended = marker(side, name, {topic: [0]}, commit=False, coordinator_epoch=later)
        return WriteTxnMarkersRequest(markers=[ended])

    begun(pair, name)
    pair.ask(lambda side: add(side, name, {topic: [0, 1]}), 3, see=_sorted_results)
    pair.ask(
        lambda side: produce(side, topic, name, batch(side, name), batch(side, name)),
        11,
        settle=_appended,
        see=_sorted_partitions,
    )
    pair.ask(marked_by_the_later, version, "the later coordinator")
    pair.ask(lambda side: produce(side, topic, name, batch(side, name, 3)), 11, settle=_appended)
    pair.ask(lambda side: end(side, name, commit=True), 4)
    for side in pair.sides:

        def has_one_marker(answer: Any) -> bool:
            topics = answer.transaction_states[0].topics
            return [one.partitions for one in topics] == [[0]]

        _until(side, DescribeTransactionsRequest(transactional_ids=[name]), 0, has_one_marker)
    describe(pair, name, note="without its last marker")
    describe_producers(pair, topic, "without its last marker", (0, 1))
    pair.ask(lambda _: init(name), 4, "begins again")
    read_back(pair, topic, "without its last marker")
    pair.ask(marked_by_the_later, version, "the later coordinator again")
    read_back(pair, topic, "ended by the later coordinator")


# -- what is told of transactions


def test_transactions_are_described_alike(pair: Pair) -> None:
    if not pair.versions(DescribeTransactionsRequest):
        return
    topic = new_topic(pair, "told", 3)
    name = opened(pair, topic)
    describe(pair, name, note="open")
    describe(pair, "nobody", note="unknown")
    describe(pair, "", note="empty")
    describe(pair, name, "nobody", note="one of two")
    describe(pair, "x" * 32_767, note="long")
    pair.ask(lambda _: DescribeTransactionsRequest(transactional_ids=[]), 0, "none")
    describe_producers(pair, topic, "three partitions", (0, 1, 2))
    describe_producers(pair, topic, "an unknown partition", (0, 9))
    describe_producers(pair, "not-there", "an unknown topic")


def test_transactions_are_listed_alike(pair: Pair) -> None:
    topic = new_topic(pair, "listed")
    prefix = new_id("listed")
    ongoing, ended = f"{prefix}-ongoing", f"{prefix}-ended"
    for name in (ongoing, ended):
        if pair.versions(ListTransactionsRequest):
            opened(pair, topic, name)
    for version in pair.versions(ListTransactionsRequest):
        if version == min(pair.versions(ListTransactionsRequest)):
            pair.ask(lambda side: end(side, ended, commit=True), 4)
            settled(pair, ended)
        both = lambda side: [side[ongoing], side[ended]]  # noqa: E731
        cases: list[tuple[str, dict[str, Any]]] = [
            ("all", {}),
            ("ongoing", {"state_filters": ["Ongoing"]}),
            ("complete", {"state_filters": ["CompleteCommit", "CompleteAbort"]}),
            ("no such state", {"state_filters": ["Sleeping"]}),
            ("a state and none", {"state_filters": ["Ongoing", "Sleeping", "ongoing"]}),
            ("dead", {"state_filters": ["Dead", "PrepareEpochFence"]}),
        ]
        if version >= 1:
            cases += [("long", {"duration_filter": 3_600_000}), ("any length", {"duration_filter": 0})]
        if version >= 2:
            patterns = (f"{prefix}-.*", f"{prefix}-o", "", "[", "(?<name>listed).*", ".*ended")
            cases += [(f"pattern {one}", {"transactional_id_pattern": one}) for one in patterns]
        for note, more in cases:

            def request(side: Side) -> ListTransactionsRequest:
                return ListTransactionsRequest(
                    **{"state_filters": [], "producer_id_filters": both(side), **more}
                )

            pair.ask(request, version, note, see=_sorted_listing)
        nobody = ListTransactionsRequest(state_filters=[], producer_id_filters=[1 << 40])
        pair.ask(lambda _: nobody, version, "nobody's id")


def _sorted_listing(side: Side, answer: Any) -> None:
    answer.transaction_states.sort(key=lambda one: one.transactional_id)
    answer.unknown_state_filters.sort()


# -- many partitions, and levels


def test_a_thousand_open_partitions_end_alike(pair: Pair) -> None:
    if not pair.versions(EndTxnRequest):
        return
    count = 1000
    topic, name = new_topic(pair, "thousand", count), new_id()
    begun(pair, name, timeout_ms=10_000)
    pair.ask(lambda side: add(side, name, {topic: list(range(count))}), 3, see=_sorted_results)
    pair.ask(
        lambda side: produce(side, topic, name, *[batch(side, name) for _ in range(count)]),
        11,
        settle=_appended,
        see=_sorted_partitions,
    )
    # Its producer vanishes.
    settled(pair, name)
    describe(pair, name, note="vanished")
    asked = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(count)]
    for isolation in (0, 1):
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=topic, partitions=asked)],
        )

        def in_order(side: Side, answer: Any) -> None:
            answer.topics[0].partitions.sort(key=lambda one: one.partition_index)

        answers = pair.ask(lambda _: request, 5, f"isolation {isolation}", see=in_order)
        assert {one.offset for one in answers[0].topics[0].partitions} == {4}


FEATURE = "transaction.version"


def test_the_level_of_transactions_is_changed_alike(pair: Pair) -> None:
    def levels(note: str) -> None:
        request, _ = find(18)

        def only_ours(side: Side, answer: Any) -> None:
            answer.api_keys = []
            answer.finalized_features_epoch = 0
            for name in ("supported_features", "finalized_features"):
                kept = [one for one in getattr(answer, name) if one.name == FEATURE]
                setattr(answer, name, kept)

        for version in (3, 4):
            pair.ask(
                lambda _: request(client_software_name="differential", client_software_version="1"),
                version,
                note,
                see=only_ours,
            )

    if not pair.versions(UpdateFeaturesRequest):
        return
    levels("at first")
    for version in pair.versions(UpdateFeaturesRequest):
        kinds: list[dict[str, Any]] = (
            [{"allow_downgrade": False}, {"allow_downgrade": True}]
            if version == 0
            else [{"upgrade_type": one} for one in (1, 2, 3, 0, 9)]
        )
        for level, kind in itertools.product((1, 3, 99, -1, 0, 2, 2), kinds):
            for name in (FEATURE, "no.such.feature", ""):
                for dry in (True, False) if version >= 1 else (False,):
                    if not dry and name != FEATURE:
                        continue
                    update = FeatureUpdateKey(feature=name, max_version_level=level, **kind)
                    more = {"validate_only": dry} if version >= 1 else {}
                    note = f"{name!r} to {level}, {kind}, dry {dry}"
                    pair.ask(lambda _: UpdateFeaturesRequest(feature_updates=[update], **more), version, note)
        levels(f"after UpdateFeatures v{version}")
        twice = [FeatureUpdateKey(feature=FEATURE, max_version_level=n) for n in (1, 2)]
        pair.ask(lambda _: UpdateFeaturesRequest(feature_updates=twice), version, "twice the same")
        pair.ask(lambda _: UpdateFeaturesRequest(feature_updates=[]), version, "none")
        raised = FeatureUpdateKey(feature=FEATURE, max_version_level=2)
        pair.ask(lambda _: UpdateFeaturesRequest(feature_updates=[raised]), version, "back to 2")
    levels("at last")


def test_at_level_1_transactions_run_alike(pair: Pair) -> None:
    """Markers of the older kind, also for what asks in the newer versions."""
    if 1 not in pair.versions(UpdateFeaturesRequest):
        return

    def to(level: int) -> None:
        kind = 1 if level == 2 else 3
        update = FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=kind)
        pair.ask(lambda _: UpdateFeaturesRequest(feature_updates=[update]), 1, f"to {level}")
        request, _ = find(18)
        for side in pair.sides:
            _until(
                side,
                request(client_software_name="differential", client_software_version="1"),
                3,
                lambda answer: (
                    level
                    in [one.max_version_level for one in answer.finalized_features if one.name == FEATURE]
                ),
            )

    to(1)
    try:
        topic = new_topic(pair, "level-1", 2)
        for version in (4, 5):
            name = opened(pair, topic)
            pair.ask(lambda side: end(side, name, commit=True), version, see=_seen_successor)
            settled(pair, name)
            describe(pair, name, note=f"at level 1, EndTxn v{version}")
            describe_producers(pair, topic, f"at level 1, EndTxn v{version}")
        name = new_id()
        begun(pair, name)
        pair.ask(
            lambda side: produce(side, topic, name, batch(side, name)), 12, "at level 1", settle=_appended
        )
        describe(pair, name, note="at level 1, Produce v12")
    finally:
        to(2)
