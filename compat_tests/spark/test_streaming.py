"""Structured streaming: where it starts, how much it takes at once, that crashes lose and double nothing."""

from __future__ import annotations

import json
import pathlib
import threading
from collections import Counter

import pytest

from compat_tests.brokers import TestBroker
from compat_tests.clients import Message, wait_until
from compat_tests.spark.topics import KafkaTables, batch_sizes, finish, values
from compat_tests.stories import START_MS


def test_a_checkpoint_goes_on_where_it_was_over_a_broker_restart(
    tables: KafkaTables, broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("checkpoint", 3, range(100))

    def run() -> list[int]:
        stream = tables.stream(topic, startingOffsets="earliest")
        query = finish(tables.to_files(stream, tmp_path))
        return batch_sizes(query)

    assert run() == [100]
    assert run() == []
    broker.crash_and_restart()
    assert run() == []
    tables.produce(topic, range(100, 150), 3)
    assert run() == [50]
    assert tables.values_in_files(tmp_path) == list(range(150))


def test_a_running_stream_into_files_loses_and_doubles_nothing_over_a_crash(
    tables: KafkaTables, broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("running", 3, range(300))
    stream = tables.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=150)
    query = tables.to_files(stream, tmp_path).trigger(processingTime="0 seconds").start()
    try:
        wait_until(lambda: sum(batch_sizes(query)) >= 150, "the stream runs")
        down = threading.Thread(target=broker.crash_and_restart)
        down.start()
        tables.produce(topic, range(300, 900), 3)
        down.join()
        tables.produce(topic, range(900, 1200), 3)
        query.processAllAvailable()
    finally:
        query.stop()
    written = tables.values_in_files(tmp_path)
    # The producer is not transactional, but idempotent: what it retries is there once.
    assert written == list(range(1200))
    assert max(batch_sizes(query)) <= 150


def test_a_running_stream_into_a_topic_loses_nothing_over_a_crash(
    tables: KafkaTables, broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    source, sink = tables.new_topic("source", 2, range(200)), tables.new_topic("sink", 2)

    def start() -> object:
        stream = tables.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=100)
        return tables.to_topic(stream, sink, tmp_path).start()

    query = start()
    try:
        wait_until(lambda: sum(batch_sizes(query)) >= 100, "the stream runs")
        down = threading.Thread(target=broker.crash_and_restart)
        down.start()
        tables.produce(source, range(200, 500), 2)
        down.join()
        query.processAllAvailable()
        query.stop()
        tables.produce(source, range(500, 600), 2)
        query = start()
        query.processAllAvailable()
    finally:
        query.stop()
    counts = Counter(values(tables.read(sink)))
    assert sorted(counts) == list(range(600))


def collected(tables: KafkaTables, directory: pathlib.Path, topic: str, **options: object) -> list[int]:
    """What a stream with these options has written when all that there is has gone through."""
    finish(tables.to_files(tables.stream(topic, **options), directory))
    return tables.values_in_files(directory)


def test_a_stream_starts_where_it_is_told_to(tables: KafkaTables, tmp_path: pathlib.Path) -> None:
    topic = tables.new_topic("starts", 2)
    messages = [Message(b"%d" % n, partition=n % 2, timestamp_ms=START_MS + 1000 * n) for n in range(20)]
    tables.client.produce(topic, messages)
    cases: list[tuple[dict[str, object], list[int]]] = [
        ({"startingOffsets": "earliest"}, list(range(20))),
        ({"startingOffsets": json.dumps({topic: {"0": 8, "1": -2}})}, [16, 18, *range(1, 20, 2)]),
        ({"startingOffsets": json.dumps({topic: {"0": -1, "1": 9}})}, [19]),
        ({"startingTimestamp": START_MS + 15_000}, list(range(15, 20))),
        (
            {
                "startingOffsetsByTimestamp": json.dumps(
                    {topic: {"0": START_MS + 17_000, "1": START_MS + 13_000}}
                )
            },
            [18, 13, 15, 17, 19],
        ),
    ]
    for number, (options, expected) in enumerate(cases):
        directory = tmp_path / str(number)
        assert collected(tables, directory, topic, **options) == sorted(expected), options


def test_latest_is_what_comes_after_the_start(tables: KafkaTables, tmp_path: pathlib.Path) -> None:
    topic = tables.new_topic("latest", 2, range(30))
    query = tables.to_files(tables.stream(topic, startingOffsets="latest"), tmp_path).start()
    try:
        query.processAllAvailable()
        tables.produce(topic, range(30, 40), 2)
        query.processAllAvailable()
    finally:
        query.stop()
    assert tables.values_in_files(tmp_path) == list(range(30, 40))


def test_max_offsets_per_trigger_bounds_every_batch(tables: KafkaTables, tmp_path: pathlib.Path) -> None:
    topic = tables.new_topic("bounded", 2, range(100))
    stream = tables.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    query = finish(tables.to_files(stream, tmp_path))
    assert batch_sizes(query) == [30, 30, 30, 10]
    assert tables.values_in_files(tmp_path) == list(range(100))


def test_min_partitions_split_a_stream_and_change_no_row(tables: KafkaTables, tmp_path: pathlib.Path) -> None:
    topic = tables.new_topic("split", 1, range(200))
    assert collected(tables, tmp_path, topic, startingOffsets="earliest", minPartitions=4) == list(range(200))
    parts = [path for path in (tmp_path / "files").iterdir() if path.suffix == ".json"]
    assert len(parts) == 4


def test_a_stream_finds_partitions_that_are_added(tables: KafkaTables, tmp_path: pathlib.Path) -> None:
    from kafka import KafkaAdminClient

    topic = tables.new_topic("grows", 1, range(10))
    assert collected(tables, tmp_path, topic, startingOffsets="earliest") == list(range(10))
    with KafkaAdminClient(bootstrap_servers=tables.client.bootstrap) as admin:
        admin.create_partitions({topic: 3})
    tables.produce(topic, range(10, 40), 3)
    assert collected(tables, tmp_path, topic, startingOffsets="earliest") == list(range(40))


@pytest.mark.parametrize("include", [False, True])
def test_a_stream_carries_keys_nulls_and_headers_from_topic_to_topic(
    tables: KafkaTables, tmp_path: pathlib.Path, include: bool
) -> None:
    source, sink = tables.new_topic("source"), tables.new_topic("sink")
    headers = (("h", b"1"), ("h", b""))
    sent = [Message(b"v", b"k", headers), Message(None, b"tombstone"), Message(b"", None), Message(b"x", b"")]
    tables.client.produce(source, sent)
    stream = tables.stream(source, startingOffsets="earliest", includeHeaders=str(include).lower())
    columns = ["key", "value", "headers"] if include else ["key", "value"]
    finish(tables.to_topic(stream, sink, tmp_path, *columns))
    read = tables.client.read(sink, {0: 0}, len(sent))
    assert [record.content() for record in read] == [
        (message.key, message.value, message.headers if include else ()) for message in sent
    ]
