"""What the tests of bad days have in common: produces and fetches by hand, logs as bytes."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.test_replication import isr_of, partition
from compat_tests.differential.harness import Side
from compat_tests.quorum import OdradekMember
from odradek.server.network.timers import wall_clock_ms
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches

PRODUCE_VERSION = 9
FETCH_VERSION = 11
TIMESTAMP = wall_clock_ms()
"""Retention takes no record of a test."""


def waits(holds: Callable[[], bool], what: str) -> None:
    wait_until(holds, what, seconds=2 * DEADLINE_SECONDS)


def produce_request(topic: str, values: Sequence[bytes], acks: int = -1, timeout_ms: int = 5_000) -> Any:
    """One batch for partition 0."""
    records = [Record(place, TIMESTAMP, None, value) for place, value in enumerate(values)]
    data = PartitionProduceData(index=0, records=build_batch(records))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def produced(answer: Any) -> tuple[ErrorCode, int]:
    """Error and offset of the first record."""
    (one,) = answer.responses[0].partition_responses
    return ErrorCode(one.error_code), one.base_offset


def produce(side: Side, topic: str, *values: bytes, acks: int = -1) -> ErrorCode:
    return produced(side.ask(produce_request(topic, values, acks), PRODUCE_VERSION))[0]


def produce_all(side: Side, topic: str, *values: bytes) -> None:
    """With acks=all, each in a batch of its own; while leaders change it is tried again."""
    for value in values:
        waits(lambda value=value: produce(side, topic, value) is ErrorCode.NONE, "acknowledged")  # type: ignore[misc]


def fetch_request(topic: str, offset: int = 0) -> FetchRequest:
    """Of a consumer, answered at once."""
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10_000_000)
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[asked])], max_bytes=10_000_000
    )


def values_read(answer: Any) -> list[bytes | None]:
    (one,) = answer.responses[0].partitions
    assert one.error_code == 0, ErrorCode(one.error_code).name
    data = memoryview(one.records or b"")
    batches = iter_whole_batches(data)
    return [record.value for position, header in batches for record in iter_records(data[position:], header)]


def values_at(side: Side, topic: str) -> list[bytes | None]:
    """All that a consumer can read there."""
    return values_read(side.ask(fetch_request(topic), FETCH_VERSION))


def leader_of(bootstrap: str, topic: str) -> int:
    found = partition(bootstrap, topic)
    return -1 if found is None else int(found.leader_id)


def wait_for_isr(bootstrap: str, topic: str, *node_ids: int) -> None:
    waits(lambda: isr_of(bootstrap, topic) == set(node_ids), f"the ISR of {topic} is {node_ids}")


def log_of(data_dir: pathlib.Path, topic: str) -> bytes:
    """All segments of partition 0 in a log directory."""
    return b"".join(path.read_bytes() for path in sorted((data_dir / f"{topic}-0").glob("*.log")))


def wait_for_equal_logs(topic: str, *data_dirs: pathlib.Path) -> None:
    """Fails with offset, leader epoch and size of each batch."""

    def logs() -> list[bytes]:
        return [log_of(one, topic) for one in data_dirs]

    try:
        waits(lambda: len(set(logs())) == 1, f"the logs of {topic} are equal")
    except AssertionError as error:
        for path, content in zip(data_dirs, logs(), strict=True):
            found = iter_whole_batches(memoryview(content))
            batches = [(one.base_offset, one.leader_epoch, one.size_bytes) for _, one in found]
            error.add_note(f"{path}: {len(content)} bytes, {batches}")
        raise


def lines_with(node: OdradekMember, *parts: str, since: int = 0) -> list[str]:
    """Of the node's log; `since` is how long it was."""
    return [line for line in node.log[since:].splitlines() if all(part in line for part in parts)]


def wait_for_line(node: OdradekMember, *parts: str) -> None:
    waits(lambda: bool(lines_with(node, *parts)), f"the log has a line with {parts}")
