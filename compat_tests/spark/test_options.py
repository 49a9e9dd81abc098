"""Options of the source: how large Spark's partitions are, starts by time, consumer groups."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.clients import Message, wait_until
from compat_tests.spark.admin import TopicAdmin
from compat_tests.spark.topics import KafkaTables, finish, values
from compat_tests.stories import START_MS, topic_name

BY_CONSUMER = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
"""The driver learns of partitions and offsets as a member of a group, not as an admin client. Only then do
group ids reach the broker: tasks assign themselves partitions and commit nothing."""


def needs_spark_4() -> None:
    import pyspark

    if int(pyspark.__version__.split(".")[0]) < 4:
        pytest.skip("an option of Spark 4")


def test_max_records_per_partition_bounds_the_tasks_of_a_stream(
    tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    needs_spark_4()
    topic = tables.new_topic("bounded", 2, range(200))
    stream = tables.stream(topic, startingOffsets="earliest", maxRecordsPerPartition=30)
    finish(tables.to_files(stream, tmp_path))
    assert tables.values_in_files(tmp_path) == list(range(200))
    parts = [path for path in (tmp_path / "files").iterdir() if path.suffix == ".json"]
    assert len(parts) == 8
    assert all(len(path.read_text().splitlines()) <= 30 for path in parts)
    # A table takes the option, too, and makes tasks as without it: that is so in Spark 4.0.
    assert values(tables.read(topic, maxRecordsPerPartition=30)) == list(range(200))


def test_a_stream_whose_start_is_after_the_last_record_fails_or_begins_at_the_end(
    tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("strategy", 2)
    messages = [Message(b"%d" % n, partition=n % 2, timestamp_ms=START_MS + 1000 * n) for n in range(10)]
    tables.client.produce(topic, messages)

    def run(directory: str, **options: Any) -> list[int]:
        finish(tables.to_files(tables.stream(topic, **options), tmp_path / directory))
        return tables.values_in_files(tmp_path / directory)

    late = {"startingTimestamp": START_MS + 9000}  # partition 0 ends before
    with pytest.raises(Exception, match="No offset matched"):
        run("error", **late)
    latest = {**late, "startingOffsetsByTimestampStrategy": "latest"}
    assert run("latest", **latest) == [9]
    tables.produce(topic, range(10, 14), 2)
    assert run("latest", **latest) == list(range(9, 14))
    by_partition = json.dumps({topic: {"0": START_MS + 6000, "1": START_MS + 7_200_000}})
    chosen = {"startingOffsetsByTimestamp": by_partition, "startingOffsetsByTimestampStrategy": "latest"}
    # What was written since has the time of now, an hour after START_MS.
    assert run("chosen", **chosen) == [6, 8, 10, 12]


def test_of_several_starts_the_most_exact_counts(tables: KafkaTables) -> None:
    topic = tables.new_topic("order")
    tables.client.produce(topic, [Message(b"%d" % n, timestamp_ms=START_MS + n) for n in range(20)])
    by_offset = {"startingOffsets": json.dumps({topic: {"0": 3}})}
    by_partition = {"startingOffsetsByTimestamp": json.dumps({topic: {"0": START_MS + 8}}), **by_offset}
    by_time = {"startingTimestamp": START_MS + 15, **by_partition}
    assert values(tables.read(topic, **by_offset)) == list(range(3, 20))
    assert values(tables.read(topic, **by_partition)) == list(range(8, 20))
    assert values(tables.read(topic, **by_time)) == list(range(15, 20))


@pytest.fixture
def driver_is_consumer(tables: KafkaTables) -> Iterator[None]:
    tables.spark.conf.set(BY_CONSUMER, "true")
    yield
    tables.spark.conf.unset(BY_CONSUMER)


@pytest.mark.parametrize(
    "option", ["groupIdPrefix", pytest.param("kafka.group.id", marks=pytest.mark.nightly)]
)
def test_the_driver_is_a_member_of_the_group_that_it_is_told(
    tables: KafkaTables, driver_is_consumer: None, tmp_path: pathlib.Path, option: str
) -> None:
    group = topic_name("group")
    topic = tables.new_topic("grouped", 3, range(30))
    admin = TopicAdmin(tables.client.bootstrap)

    def is_member() -> bool:
        # A prefix is followed by an id of the query, so that no two are in one group.
        ours = [name for name in admin.groups() if name.startswith(group)]
        return bool(ours) and (ours == [group]) == (option == "kafka.group.id")

    stream = tables.stream(topic, startingOffsets="earliest", **{option: group})
    query = tables.to_files(stream, tmp_path).trigger(processingTime="0 seconds").start()
    try:
        wait_until(is_member, "the group has a member")
        tables.produce(topic, range(30, 60), 3)
        query.processAllAvailable()
        assert is_member()
    finally:
        query.stop()
    assert tables.values_in_files(tmp_path) == list(range(60))
    wait_until(lambda: not is_member(), "it has left")
    # Its place is in the checkpoint: no group of Spark's has committed anything.
    assert tables.client.committed(group, topic, range(3)) == dict.fromkeys(range(3))
    assert values(tables.read(topic, **{option: group})) == list(range(60))
