"""DeleteRecords, and what retention leaves: the same offsets and the same bytes on both sides."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from compat_tests.differential.harness import SECONDS, Pair, Pauses, Side
from compat_tests.differential.test_records import fetch, produce
from compat_tests.differential.topics import NOW_MS, new_topic
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.records import build_batch

OFFSETS_TOPIC = "__consumer_offsets"
HOUR_MS = 3_600_000
NO_TIME = -1


def batch(timestamp: int, size_bytes: int = 100) -> bytes:
    return bytes(build_batch([(0, timestamp, b"key", b"v" * size_bytes, [])]))


def fill(pair: Pair, topic: str, batches: Sequence[bytes]) -> None:
    version = pair.versions(ProduceRequest)[-1]
    for one in batches:
        pair.ask(lambda side: produce(side, topic, one), version, f"filling {topic}")


def delete_records(*wanted: tuple[str, int, int], timeout_ms: int = 10_000) -> DeleteRecordsRequest:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for topic, index, offset in wanted:
        one = DeleteRecordsPartition(partition_index=index, offset=offset)
        topics.setdefault(topic, []).append(one)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=some) for name, some in topics.items()],
        timeout_ms=timeout_ms,
    )


def offsets(topic: str, timestamp: int) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])


def sizes(topic: str) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])])


def test_delete_records_answers_alike(pair: Pair) -> None:
    pair.ask(
        lambda _: FindCoordinatorRequest(key="group", key_type=0), 1, settle=lambda one: not one.error_code
    )
    for version in pair.versions(DeleteRecordsRequest):
        topic = new_topic(pair, "deletes", 2)
        compacted = new_topic(pair, "deletes", cleanup_policy="compact")
        both = new_topic(pair, "deletes", cleanup_policy="compact,delete")
        neither = new_topic(pair, "deletes", cleanup_policy="")
        for name in (topic, both, neither):
            fill(pair, name, [batch(NOW_MS + n) for n in range(10)])
        for wanted in (
            [(topic, 0, 3)],
            [(topic, 0, 2)],
            [(topic, 0, 10)],
            [(topic, 0, 11)],
            [(topic, 0, -1)],
            [(topic, 0, -2)],
            [(topic, 0, 2**62)],
            [(topic, 1, 0), (topic, 1, -1)],
            [(topic, 2, 0)],
            [(topic, -1, 0)],
            [("not-there", 0, 0)],
            [("", 0, 0)],
            [(compacted, 0, 0)],
            [(compacted, 0, -1)],
            [(both, 0, 4)],
            [(neither, 0, 4)],
            [(OFFSETS_TOPIC, 0, 0)],
            [(OFFSETS_TOPIC, 77, 0)],
            [(both, 0, 5), (both, 0, 6), (topic, 0, 1), (compacted, 0, 0), ("not-there", 1, 1)],
            [],
        ):
            for timeout_ms in (10_000, 0, -1):
                request = delete_records(*wanted, timeout_ms=timeout_ms)
                pair.ask(lambda _: request, version, f"{wanted} in {timeout_ms} ms")


def test_what_is_before_a_new_start_is_gone_for_every_client(pair: Pair) -> None:
    topic = new_topic(pair, "start")
    fill(pair, topic, [batch(NOW_MS + 10 * n) for n in range(10)])
    if not pair.versions(DeleteRecordsRequest):
        return  # the other reference broker serves them all
    newest = pair.versions(DeleteRecordsRequest)[-1]
    for start in (4, 10):
        pair.ask(lambda _: delete_records((topic, 0, start)), newest)
        for version in pair.versions(ListOffsetsRequest)[1:]:
            specials = (-1, -2) if version < 7 else (-1, -2, -3) if version < 8 else (-1, -2, -3, -4)
            for timestamp in (*specials, 0, NOW_MS, NOW_MS + 45, NOW_MS + 90, NOW_MS + 91):
                pair.ask(lambda _: offsets(topic, timestamp), version, f"start {start}, time {timestamp}")
        for version in pair.versions(FetchRequest):
            for offset in (0, start - 1, start, 9, 10, 11):
                note = f"start {start}, from {offset}"
                pair.ask(lambda side: fetch(side, topic, offset), version, note)
        for version in pair.versions(OffsetForLeaderEpochRequest):
            for epoch in (0, 1):
                one = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
                asked = OffsetForLeaderTopic(topic=topic, partitions=[one])
                request = OffsetForLeaderEpochRequest(topics=[asked], replica_id=-1)
                pair.ask(lambda _: request, version, f"start {start}, epoch {epoch}")


def test_the_largest_timestamp_is_found_as_long_as_its_segment_is_there(pair: Pair) -> None:
    if not pair.versions(DeleteRecordsRequest):
        return  # the other reference broker serves them all
    newest = pair.versions(DeleteRecordsRequest)[-1]
    topic = new_topic(pair, "falling")
    fill(pair, topic, [batch(NOW_MS - 10 * n) for n in range(10)])
    for start in (1, 5, 10):
        pair.ask(lambda _: delete_records((topic, 0, start)), newest)
        for version in pair.versions(ListOffsetsRequest)[7:]:
            pair.ask(lambda _: offsets(topic, -3), version, f"start {start}")
    fill(pair, topic, [batch(NOW_MS - 50)])
    for version in pair.versions(ListOffsetsRequest)[7:]:
        pair.ask(lambda _: offsets(topic, -3), version, "a newer record, and an older time")


class Story(NamedTuple):
    """A topic, what is appended, where it is cut, and whether something of it is to go."""

    name: str
    settings: dict[str, str]
    batches: list[bytes]
    delete_before: int | None = None


SEGMENT_BYTES = len(batch(NOW_MS))


def spaced(count: int, *, start: int = NOW_MS, step: int = 2000, size_bytes: int = 100) -> list[bytes]:
    """Batches that are each a segment, where `segment.ms` is a second."""
    return [batch(start + step * n, size_bytes) for n in range(count)]


def at(*timestamps: int, size_bytes: int = 100) -> list[bytes]:
    return [batch(timestamp, size_bytes) for timestamp in timestamps]


ROLLING = {"segment_ms": "1000", "retention_ms": "-1", "file_delete_delay_ms": "0"}
OLD_MS, FUTURE_MS = NOW_MS - 2 * HOUR_MS, NOW_MS + 2 * HOUR_MS
ANY_TIME = {"message_timestamp_after_max_ms": str(2**63 - 1)}
AGED = {**ROLLING, "retention_ms": str(HOUR_MS)}
STORIES = [
    *(
        Story(f"retention.bytes={over}", {**ROLLING, "retention_bytes": str(over)}, spaced(6))
        for over in (0, 1, SEGMENT_BYTES, 2 * SEGMENT_BYTES - 1, 2 * SEGMENT_BYTES, 2 * SEGMENT_BYTES + 1)
    ),
    Story("nothing goes", ROLLING, spaced(6)),
    Story("all is old", AGED, spaced(6, start=OLD_MS)),
    Story("old ones first", AGED, at(OLD_MS, OLD_MS + 2000, NOW_MS, NOW_MS + 2000)),
    Story("a young one before old ones", AGED, at(OLD_MS, NOW_MS, OLD_MS, OLD_MS + HOUR_MS)),
    Story(
        "the size takes the young one that keeps old ones back",
        {**AGED, "retention_bytes": str(4 * SEGMENT_BYTES)},
        at(OLD_MS - HOUR_MS, OLD_MS, NOW_MS, NOW_MS + 2000, NOW_MS + 4000)[1:2]
        + at(NOW_MS, NOW_MS + 2000, NOW_MS + 4000, NOW_MS + 6000),
    ),
    Story(
        "the future keeps all back", {**AGED, **ANY_TIME}, at(FUTURE_MS, FUTURE_MS + 2000, FUTURE_MS + 4000)
    ),
    Story("the future in the middle", {**AGED, **ANY_TIME}, at(OLD_MS, FUTURE_MS, OLD_MS, FUTURE_MS + 2000)),
    Story("no timestamps", {**ROLLING, "retention_ms": "300"}, at(NO_TIME, NO_TIME, NO_TIME)),
    Story("no timestamps, and young", AGED, at(NO_TIME, NO_TIME, NOW_MS, NO_TIME)),
    Story(
        "one segment, old", {"retention_ms": str(HOUR_MS), "file_delete_delay_ms": "0"}, at(OLD_MS, OLD_MS)
    ),
    Story(
        "one segment, with one that is young",
        {"retention_ms": str(HOUR_MS), "file_delete_delay_ms": "0"},
        at(OLD_MS, OLD_MS, NOW_MS, OLD_MS),
    ),
    Story("log append time", {**AGED, "message_timestamp_type": "LogAppendTime"}, at(OLD_MS, OLD_MS + 5000)),
    Story("out of order", AGED, at(*(OLD_MS + 1500 * n for n in (0, 3, 1, 2, 9, 4, 5, 6, 30, 31, 7))), 5),
    *(Story(f"deleted before {n}", ROLLING, spaced(6), n) for n in (0, 1, 3, 5, 6, -1)),
    Story("deleted within a segment", {"retention_ms": "-1"}, spaced(6), 4),
    # Nothing is to be compacted meanwhile: when that begins is each cleaner's own affair.
    Story(
        "compact",
        {**AGED, "cleanup_policy": "compact", "min_compaction_lag_ms": str(2**62)},
        spaced(6, start=OLD_MS),
    ),
    Story(
        "compact and delete",
        {**AGED, "cleanup_policy": "compact,delete", "min_compaction_lag_ms": str(2**62)},
        at(OLD_MS, OLD_MS + 2000, NOW_MS),
    ),
    Story(
        "compact and delete, cut",
        {**ROLLING, "cleanup_policy": "compact,delete", "min_compaction_lag_ms": str(2**62)},
        spaced(6),
        4,
    ),
    Story("no policy", {**AGED, "cleanup_policy": ""}, spaced(6, start=OLD_MS)),
    *(
        Story(
            f"full indexes of {room} bytes, a step of {step} ms",
            {"retention_ms": "-1", "segment_index_bytes": str(room), "index_interval_bytes": "0", **more},
            spaced(24, step=step),
            17,
        )
        for room in (24, 48, 60, 100)
        for step, more in ((0, {}), (1, {}))
    ),
    Story(
        "an index interval",
        {"retention_ms": "-1", "segment_index_bytes": "36", "index_interval_bytes": "400"},
        spaced(40, step=1),
        33,
    ),
]


SETTLED_S = 1.0
"""What has not changed for so long, ten rounds of retention, stays."""


def changed(topic: str, settings: dict[str, str]) -> AlterConfigsResource:
    """Retention as the story wants it."""
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in {"retention_bytes": "-1", **settings}.items()
        if name.startswith("retention")
    ]
    return AlterConfigsResource(resource_type=2, resource_name=topic, configs=configs)


def state_of(side: Side, topic: str, version: int) -> list[Any]:
    """Earliest offset and bytes of a topic."""
    start = side.ask(offsets(topic, -2), 5).topics[0].partitions[0].offset
    bytes_ = [
        partition.partition_size
        for directory in side.ask(sizes(topic), version).results
        for one in directory.topics
        for partition in one.partitions
    ]
    return [start, bytes_]


def settled(pair: Pair, topics: list[str], version: int) -> list[list[Any]]:
    """`state_of` each topic, of each side, when none of them has changed for a while."""
    found: list[list[Any]] = []
    since = time.monotonic()
    deadline = since + SECONDS
    pause = Pauses()
    while time.monotonic() < min(deadline, since + SETTLED_S):
        now = [[state_of(side, topic, version) for topic in topics] for side in pair.sides]
        if now != found:
            found, since = now, time.monotonic()
        pause()
    return found


def look_everywhere(pair: Pair) -> None:
    """Returns when retention has been at every topic on both sides: at this one it has been twice."""
    topic = new_topic(pair, "sentinel", **ROLLING)
    fill(pair, topic, spaced(4))
    for gone in (1, 2):
        resource = changed(topic, {"retention_bytes": str((4 - gone) * SEGMENT_BYTES)})
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        pair.ask(lambda _: request, pair.versions(IncrementalAlterConfigsRequest)[-1])
        for side in pair.sides:
            deadline = time.monotonic() + SECONDS
            pause = Pauses()
            while (start := side.ask(offsets(topic, -2), 5).topics[0].partitions[0].offset) < gone:
                assert time.monotonic() < deadline, f"{side.name} does not look at its topics"
                pause()
            assert start == gone


def test_retention_leaves_the_same(pair: Pair) -> None:
    if not pair.versions(DeleteRecordsRequest):
        return  # the other reference broker serves them all
    log_dirs = pair.versions(DescribeLogDirsRequest)[-1]
    topics, starts = {}, set()
    for story in STORIES:
        # Nothing goes before it is all there.
        quiet = {**story.settings, "retention_ms": "-1", "retention_bytes": "-1"}
        topics[story.name] = new_topic(pair, "retention", **quiet)
        fill(pair, topics[story.name], story.batches)
    # Before there is retention: a round of it in between would answer with its own start of the log.
    for story in STORIES:
        if story.delete_before is not None:
            request = delete_records((topics[story.name], 0, story.delete_before))
            pair.ask(lambda _: request, pair.versions(DeleteRecordsRequest)[-1], story.name)
    resources = [changed(topics[story.name], story.settings) for story in STORIES]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    pair.ask(lambda _: request, pair.versions(IncrementalAlterConfigsRequest)[-1])
    look_everywhere(pair)
    theirs, ours = settled(pair, [topics[story.name] for story in STORIES], log_dirs)
    for story, one, other in zip(STORIES, theirs, ours, strict=True):
        pair.compare(f"(earliest offset, bytes) after retention: {story.name}", one, other)
        starts.add(one[0])
    assert len(starts) > 5, starts
