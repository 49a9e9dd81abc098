"""Dead letter queues of share groups (KIP-1191): which records get a letter, what is in it, and the states of
the share partitions afterwards.

Not compared: how letters are gathered in batches, and their times.
"""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests import reference
from compat_tests.differential.conftest import SETTINGS
from compat_tests.differential.harness import SECONDS, Pair, Pauses, Side
from compat_tests.differential.members import settle_coordinator
from compat_tests.differential.pairs import pair_of
from compat_tests.differential.share_state import read
from compat_tests.differential.sharing import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    Member,
    join,
    new_group,
    set_group,
    until,
    wait_for_coordinator,
)
from compat_tests.differential.test_records import batch, fetch, produce
from compat_tests.differential.test_share_state import records_of
from compat_tests.differential.topics import NOW_MS, metadata_of, new_topic
from odradek.coordinator.shares.partitions.window import DONE
from odradek.coordinator.shares.state import record_codec
from odradek.coordinator.shares.state.persister import DeliveryState
from odradek.coordinator.shares.state.record_codec import SNAPSHOT
from odradek.wire.compression import Compression
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.record_layout import HEADER_SIZE_BYTES
from odradek.wire.records import batch_records, build_batch, iter_whole_batches

TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32
SET = 0
LOCK_MS = 1_000
DELIVERIES_MAX = 2
NAME, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
CREATE = "errors.deadletterqueue.auto.create.topics.enable"
PREFIX = "errors.deadletterqueue.topic.name.prefix"
OWN_SETTINGS = ("errors.deadletterqueue.group.enable", "message.timestamp.type", "max.message.bytes")
NOW_OFF_BY_MS = 300_000


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    settings = {"group.share.min.record.lock.duration.ms": str(LOCK_MS)}
    with pair_of(reference.CURRENT, SETTINGS | settings) as pair:
        settle_coordinator(pair)
        yield pair


@pytest.fixture(autouse=True)
def _hang_up(pair: Pair) -> Iterator[None]:
    yield
    for side in pair.sides:
        side.close()


def set_configs(pair: Pair, kind: int, name: str, **values: str) -> None:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=SET, value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    pair.ask(lambda _: IncrementalAlterConfigsRequest(resources=[resource]), 1, f"settings of {name!r}")


def configs_of(side: Side, kind: int, name: str, *keys: str) -> dict[str, Any]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[*keys] or None
    )
    (result,) = side.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    return {one.name: (one.value, one.config_source) for one in result.configs}


def set_broker(pair: Pair, name: str, value: str) -> None:
    """For all brokers; returns when both know it."""
    set_configs(pair, BROKER_RESOURCE, "", **{name: value})
    for side in pair.sides:
        deadline, pause = time.monotonic() + SECONDS, Pauses()
        while configs_of(side, BROKER_RESOURCE, "1", name)[name][0] != value:
            assert time.monotonic() < deadline, side.name
            pause()


def new_queue(pair: Pair, partitions: int = 1, **settings: str) -> str:
    return new_topic(pair, "dlq.letters", partitions, errors_deadletterqueue_group_enable="true", **settings)


def group_of(pair: Pair, topic: str, queue: str, partitions: int = 1, *, copies: bool = False) -> str:
    """Reads the topic from its beginning, with a dead letter queue, a low limit and short locks."""
    group = new_group()
    for side in pair.sides:
        wait_for_coordinator(side, topic)
    set_configs(pair, GROUP_RESOURCE, group, **{NAME: queue, COPY: str(copies).lower()})
    set_group(
        pair,
        group,
        auto_offset_reset="earliest",
        assignment_interval_ms="0",
        delivery_count_limit=str(DELIVERIES_MAX),
        record_lock_duration_ms=str(LOCK_MS * 10),
    )
    join(pair, group, "m", topic, partitions=partitions)
    return group


def fill(pair: Pair, topic: str, records: bytes, partition: int = 0) -> None:
    version = pair.versions(ProduceRequest)[-1]
    pair.ask(lambda side: produce(side, topic, records, partition=partition), version, f"fill {topic}")


def letters(side: Side, queue: str, count: int, partition: int = 0) -> list[Any]:
    """Key, value and headers of the records of a queue, when it has so many, in the order of the offsets
    that they are about; and what their batches are like."""
    deadline, pause = time.monotonic() + SECONDS, Pauses()
    version = 12
    while True:
        answer = side.ask(fetch(side, queue, partition=partition, topic_id=None), version)
        (found,) = answer.responses[0].partitions
        records = bytes(found.records or b"")
        seen: list[Any] = []
        for position, header in iter_whole_batches(records):
            kind = header.attributes, header.producer_id, header.producer_epoch, header.base_sequence
            for _, timestamp, key, value, headers in batch_records(records, position, header):
                assert abs(timestamp / 1000 - time.time()) < NOW_OFF_BY_MS / 1000
                plain = [(name, bytes(content or b"")) for name, content in headers]
                seen.append((int(dict(plain)["__dlq.errors.offset"]), key, value, plain, kind))
        if len(seen) >= count:
            return sorted(seen)
        assert time.monotonic() < deadline, (side.name, len(seen), answer)
        pause()


def compare_letters(
    pair: Pair, queue: str, count: int, partition: int = 0, note: str = "letters"
) -> list[Any]:
    theirs, ours = (letters(side, queue, count, partition) for side in pair.sides)
    pair.compare(note, theirs, ours)
    assert len(ours) == count
    return ours


def compare_states(pair: Pair, topic: str, group: str, partition: int = 0, note: str = "state") -> int:
    """When nothing is being archived any more; returns the start offset."""
    found = []
    for side in pair.sides:
        answer = until(
            side,
            lambda: read(side, topic, group, partition),
            0,
            lambda one: all(
                batch.delivery_state != DeliveryState.ARCHIVING
                for batch in one.results[0].partitions[0].state_batches
            ),
        )
        state = answer.results[0].partitions[0]
        batches = [
            (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in state.state_batches
        ]
        found.append((state.error_code, *_effective(state.start_offset, batches)))
    pair.compare(note, *found)
    return found[1][1]


def _effective(start: int, batches: list[Any]) -> tuple[int, list[Any]]:
    """The start behind what is done: Kafka stores it with the next change."""
    for index, (first, last, state, _) in enumerate(batches):
        if first > start or state not in DONE:
            return start, batches[index:]
        start = last + 1
    return start, []


def test_a_rejected_record_gets_the_same_letter(pair: Pair) -> None:
    topic, queue = new_topic(pair, "shared", 3), new_queue(pair, 2)
    for partition in range(3):
        fill(pair, topic, batch(4), partition)
    group = group_of(pair, topic, queue, 3)
    for partition in range(3):
        one, place = Member(pair, group, f"m{partition}"), (topic, partition)
        one.poll(place, note="gets them")
        one.acknowledge({place: [(0, 3, [ACCEPT, REJECT, REJECT, RELEASE])]}, "rejects two")
        one.poll(place, note="gets one again")
        one.acknowledge({place: [(3, 3, [ACCEPT])]}, "and is done")
        one.close()
    for partition, count in ((0, 4), (1, 2)):
        compare_letters(pair, queue, count, partition)
    for partition in range(3):
        assert compare_states(pair, topic, group, partition) == 4


def test_what_was_delivered_too_often_gets_the_same_letter(pair: Pair) -> None:
    """By releases, and by a lock that runs out; gaps get none."""
    topic, queue = new_topic(pair, "shared"), new_queue(pair)
    fill(pair, topic, batch(3))
    group, place = group_of(pair, topic, queue), (topic, 0)
    one = Member(pair, group)
    one.poll(place, note="gets them")
    one.acknowledge({place: [(0, 0, [GAP]), (1, 2, [RELEASE])]}, "gives back")
    one.poll(place, note="gets them again")
    one.acknowledge({place: [(1, 1, [RELEASE])]}, "gives back one")
    compare_letters(pair, queue, 1, note="after a release")
    # The other one's lock runs out.
    compare_letters(pair, queue, 2, note="after a lock has run out")
    assert compare_states(pair, topic, group) == 3
    one.look(place, note="nothing is left")
    one.close()


def test_what_a_member_leaves_behind_gets_the_same_letter(pair: Pair) -> None:
    topic, queue = new_topic(pair, "shared"), new_queue(pair)
    fill(pair, topic, batch(2))
    group, place = group_of(pair, topic, queue), (topic, 0)
    one = Member(pair, group)
    one.poll(place, note="gets them")
    one.close()
    two = Member(pair, group, "two")
    two.poll(place, note="gets them again")
    two.close()
    compare_letters(pair, queue, 2)
    compare_states(pair, topic, group)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.ZSTD])
def test_copies_have_the_keys_and_values_of_the_originals(pair: Pair, codec: Compression) -> None:
    topic, queue = new_topic(pair, "shared"), new_queue(pair)
    records = [
        (0, NOW_MS, b"key", b"value", [("header", b"h")]),
        (1, NOW_MS, None, b"no key", []),
        (2, NOW_MS, b"no value", None, []),
        (3, NOW_MS, b"", b"", []),
        (4, NOW_MS, b"k" * 300, b"v" * 5_000, []),
    ]
    fill(pair, topic, bytes(build_batch(records, compression=codec)))
    fill(pair, topic, batch(3))
    group, place = group_of(pair, topic, queue, copies=True), (topic, 0)
    one = Member(pair, group)
    one.poll(place, note="gets them")
    one.acknowledge({place: [(0, 7, [REJECT])]}, "rejects all")
    found = compare_letters(pair, queue, 8)
    assert [(key, value) for _, key, value, *_ in found[:5]] == [one[2:4] for one in records]
    compare_states(pair, topic, group)
    one.close()


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_what_is_too_large_to_copy_has_headers_alone(pair: Pair, codec: Compression) -> None:
    """A record that is larger than the queue takes; compressed, the batch that has it."""
    topic, queue = new_topic(pair, "shared"), new_queue(pair, max_message_bytes="2000")
    records = [(0, NOW_MS, b"a", b"small", []), (1, NOW_MS, b"b", b"v" * 3_000, [])]
    fill(pair, topic, bytes(build_batch(records, compression=codec)))
    fill(pair, topic, bytes(build_batch([(n, NOW_MS, b"c", b"w" * 400, []) for n in range(6)])))
    group, place = group_of(pair, topic, queue, copies=True), (topic, 0)
    one = Member(pair, group)
    one.poll(place, note="gets them")
    one.acknowledge({place: [(0, 7, [REJECT])]}, "rejects all")
    found = compare_letters(pair, queue, 8)
    assert found[1][2] is None
    assert [value for _, _, value, *_ in found[2:]] == [b"w" * 400] * 6
    one.close()


@pytest.mark.parametrize("queue", ["not enabled", "missing", "prefix", "reserved characters", "itself"])
def test_a_queue_that_cannot_be_used_loses_the_same_records(pair: Pair, queue: str) -> None:
    """The records are archived, and nobody gets them again."""
    topic = new_topic(pair, "dlq.shared")
    name = {
        "not enabled": lambda: new_topic(pair, "dlq.plain"),
        "missing": lambda: "dlq.missing",
        "prefix": lambda: new_topic(pair, "other", errors_deadletterqueue_group_enable="true"),
        "reserved characters": lambda: "dlq.a b",
        "itself": lambda: topic,
    }[queue]()
    fill(pair, topic, batch(3))
    group, place = group_of(pair, topic, name), (topic, 0)
    one = Member(pair, group)
    one.poll(place, note="gets them")
    one.acknowledge({place: [(0, 2, [REJECT, ACCEPT, REJECT])]}, "rejects two")
    assert compare_states(pair, topic, group) == 3
    one.look(place, note="nothing comes again")
    if name not in ("dlq.missing", "dlq.a b"):
        for side in pair.sides:
            assert len(letters_or_records(side, name)) == (3 if name == topic else 0)
    one.close()


def test_a_letter_has_the_same_bytes_and_its_record_the_same_states(pair: Pair) -> None:
    """But for the time of the letter. That the record is being archived is stored before it is archived."""
    topic, queue = new_topic(pair, "shared"), new_queue(pair)
    fill(pair, topic, batch(2))
    group, place = group_of(pair, topic, queue, copies=True), (topic, 0)
    one = Member(pair, group)
    one.poll(place, note="gets them")
    one.acknowledge({place: [(0, 0, [REJECT]), (1, 1, [ACCEPT])]}, "rejects one")
    compare_letters(pair, queue, 1)
    compare_states(pair, topic, group)
    found, states = [], []
    for side in pair.sides:
        (told,) = side.ask(fetch(side, queue), 12).responses[0].partitions
        records = bytes(told.records)
        ((_, header),) = iter_whole_batches(records)
        found.append((header.attributes, header.record_count, records[HEADER_SIZE_BYTES:]))
        states.append(states_of(side, group, 0))
    pair.compare("the letter", *found)
    pair.compare("the states of the record", *states)
    assert states[1][:2] == [DeliveryState.ARCHIVING, DeliveryState.ARCHIVED]
    one.close()


def states_of(side: Side, group: str, offset: int) -> list[int]:
    """States of the record in the updates and snapshots of `__share_group_state`, as they changed."""
    states: list[int] = []
    for key, value in records_of(side):
        decoded = record_codec.decode_key(key)
        assert decoded is not None
        kind, share = decoded
        if share.group_id != group or value is None:
            continue
        decode = record_codec.decode_snapshot if kind == SNAPSHOT else record_codec.decode_update
        for first, last, _, state in decode(value).batches:
            if first <= offset <= last and states[-1:] != [state]:
                states.append(state)
    return states


def letters_or_records(side: Side, topic: str) -> list[Any]:
    (found,) = side.ask(fetch(side, topic), 12).responses[0].partitions
    records = bytes(found.records or b"")
    return [
        record
        for position, header in iter_whole_batches(records)
        for record in batch_records(records, position, header)
    ]


def test_a_missing_queue_is_created_with_the_same_settings(pair: Pair) -> None:
    topic, queue = new_topic(pair, "shared", 2), "dlq.created"
    fill(pair, topic, batch(2), 1)
    set_broker(pair, CREATE, "true")
    try:
        group, place = group_of(pair, topic, queue, 2), (topic, 1)
        one = Member(pair, group)
        one.poll(place, note="gets them")
        one.acknowledge({place: [(0, 1, [REJECT])]}, "rejects them")
        for side in pair.sides:
            answer = until(
                side,
                lambda: metadata_of(queue),
                12,
                lambda one: one.topics[0].error_code == 0 and one.topics[0].partitions[0].leader_id >= 0,
            )
            side.remember(f"id of {queue}", answer.topics[0].topic_id)
            assert [len(one.replica_nodes) for one in answer.topics[0].partitions] == [1]
        compare_letters(pair, queue, 2)
        pair.compare(
            "settings", *(configs_of(side, TOPIC_RESOURCE, queue, *OWN_SETTINGS) for side in pair.sides)
        )
        compare_states(pair, topic, group, 1)
        one.close()
    finally:
        set_broker(pair, CREATE, "false")


def test_another_prefix_is_obeyed_from_then_on(pair: Pair) -> None:
    topic = new_topic(pair, "shared")
    queue = new_topic(pair, "tot.letters", errors_deadletterqueue_group_enable="true")
    fill(pair, topic, batch(2))
    group, place = group_of(pair, topic, queue), (topic, 0)
    one = Member(pair, group)
    one.poll(place, note="gets them")
    one.acknowledge({place: [(0, 0, [REJECT])]}, "with the wrong prefix")
    compare_states(pair, topic, group, note="lost")
    for prefix in ("tot.", ""):
        set_broker(pair, PREFIX, prefix)
    try:
        one.acknowledge({place: [(1, 1, [REJECT])]}, "with any prefix")
        (found,) = compare_letters(pair, queue, 1)
        assert found[0] == 1
    finally:
        set_broker(pair, PREFIX, "dlq.")
    one.close()


def test_names_of_queues_are_refused_alike(pair: Pair) -> None:
    """Only what begins with two underscores is."""
    for name in ("__letters", "__", "_letters", "", " ", "dlq.a b", "x" * 300, "letters"):
        set_configs(pair, GROUP_RESOURCE, "refused", **{NAME: name})
        pair.compare(
            f"set to {name!r}",
            *(configs_of(side, GROUP_RESOURCE, "refused", NAME, COPY) for side in pair.sides),
        )
    for value in ("true", "false", "TRUE", "maybe", ""):
        set_configs(pair, GROUP_RESOURCE, "refused", **{COPY: value})
    topic = new_topic(pair, "switched")
    for value in ("true", "false", "maybe"):
        set_configs(pair, TOPIC_RESOURCE, topic, **{OWN_SETTINGS[0]: value})


def test_a_group_that_names_no_queue_any_more_archives_the_same(pair: Pair) -> None:
    topic, queue = new_topic(pair, "shared"), new_queue(pair)
    fill(pair, topic, batch(4))
    group, place = group_of(pair, topic, queue), (topic, 0)
    one = Member(pair, group)
    one.poll(place, note="gets them")
    one.acknowledge({place: [(1, 1, [REJECT])]}, "with a queue")
    compare_letters(pair, queue, 1)
    set_configs(pair, GROUP_RESOURCE, group, **{NAME: ""})
    set_group(pair, group, assignment_interval_ms="0")
    one.acknowledge({place: [(2, 2, [REJECT])]}, "without one")
    assert compare_states(pair, topic, group) == 0
    compare_letters(pair, queue, 1)
    one.close()
