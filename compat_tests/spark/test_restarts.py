"""Drivers and brokers that are killed and come back: what is in the tables afterwards."""

from __future__ import annotations

import pathlib
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from compat_tests.brokers import TestBroker
from compat_tests.clients import wait_until
from compat_tests.spark import driver
from compat_tests.spark.driver import Driver, Job
from compat_tests.spark.topics import KafkaTables, batch_sizes, values
from tests.tiers import NIGHTLY

DRIVER_KILLS = 5 if NIGHTLY else 1
BROKER_KILLS = 8
COUNT = 4000
BATCHES_BETWEEN = 3


def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(
    tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    source, sink = tables.new_topic("source", 3, range(COUNT)), tables.new_topic("sink", 2)
    few = {"maxOffsetsPerTrigger": "50"}

    def job(**more: object) -> Job:
        return Job(tables.client.bootstrap, source, sink, str(tmp_path), **more)  # type: ignore[arg-type]

    for _ in range(DRIVER_KILLS):
        before = job().committed()
        with Driver(job(options=few)) as killed:
            wait_until(
                lambda: job().committed() >= before + BATCHES_BETWEEN,  # noqa: B023
                "it works",
                [killed],
                driver.START_SECONDS,
            )
            killed.kill()
    assert len(tables.values_in_files(job().files)) < COUNT
    driver.run(tables.spark, job(ends=True))
    assert tables.values_in_files(job().files) == list(range(COUNT))
    counts = Counter(values(tables.read(sink)))
    assert sorted(counts) == list(range(COUNT))
    # What was not committed when the driver was killed is written again: a batch for each kill at the most.
    assert sum(counts.values()) - COUNT <= 50 * DRIVER_KILLS


def test_a_table_that_is_read_over_a_crash_of_the_broker_is_whole(
    tables: KafkaTables, broker: TestBroker
) -> None:
    topic = tables.new_topic("crash", 2)
    count = 40_000
    value = "CAST(rpad(CAST(id AS STRING), 500, ' ') AS BINARY) AS value"
    tables.write(tables.spark.range(count).selectExpr(value, "CAST(id % 2 AS INT) AS partition"), topic)
    # Small fetches, so that it takes a while.
    read = tables.read(topic, **{"kafka.max.poll.records": 200, "kafka.max.partition.fetch.bytes": 20_000})
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(values, read)
        broker.crash_and_restart()
        found = reading.result()
    assert len(found) == count
    assert all(number == place for place, number in enumerate(found))


@pytest.mark.nightly
def test_a_stream_loses_and_doubles_nothing_over_many_crashes(
    tables: KafkaTables, broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("crashes", 3, range(300))
    stream = tables.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    query = tables.to_files(stream, tmp_path).trigger(processingTime="0 seconds").start()
    try:
        for turn in range(1, BROKER_KILLS + 1):
            seen = len(batch_sizes(query))
            wait_until(lambda: len(batch_sizes(query)) > seen, "the stream goes on")  # noqa: B023
            down = threading.Thread(target=broker.crash_and_restart)
            down.start()
            tables.produce(topic, range(300 * turn, 300 * (turn + 1)), 3)
            down.join()
        query.processAllAvailable()
    finally:
        query.stop()
    assert tables.values_in_files(tmp_path) == list(range(300 * (BROKER_KILLS + 1)))
