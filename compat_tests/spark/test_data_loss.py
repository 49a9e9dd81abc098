"""`failOnDataLoss` both ways, while retention and deletion take what a query has not read yet."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from compat_tests.broker_host import shared_host
from compat_tests.clients import Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.reference import Kafka
from compat_tests.spark.admin import TopicAdmin
from compat_tests.spark.topics import KafkaTables, batch_sizes, finish, values
from compat_tests.stories import START_MS, topic_name
from odradek.embedding.embedded import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    # A consumer that asks for a topic which is gone must not make it anew.
    "auto.create.topics.enable": "false",
}
HOUR_MS = 3_600_000
LOSS = "failOnDataLoss"
"""What the sentences say of every version of Spark: what to set when that is to be no error."""


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker that is quick to delete."""
    if request.config.getoption("--broker") == "kafka":
        with Kafka(properties=SETTINGS, host=shared_host()) as kafka:
            yield kafka.bootstrap_servers
    else:
        with Broker(process=True, options=SETTINGS) as broker:
            yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[KafkaPythonClient]:
    client = KafkaPythonClient(bootstrap)
    yield client
    client.close()


@pytest.fixture
def admin(bootstrap: str) -> TopicAdmin:
    return TopicAdmin(bootstrap)


@pytest.fixture
def tables(spark: SparkSession, client: KafkaPythonClient) -> KafkaTables:
    return KafkaTables(spark, client)


def test_a_table_whose_first_records_are_gone_fails_or_begins_later(
    tables: KafkaTables, admin: TopicAdmin
) -> None:
    topic = tables.new_topic("gone", 2, range(100))
    admin.delete_records(topic, {0: 30})
    starts = json.dumps({topic: {"0": 10, "1": 40}})
    with pytest.raises(Exception, match=LOSS):
        values(tables.read(topic, startingOffsets=starts))
    found = values(tables.read(topic, startingOffsets=starts, failOnDataLoss="false"))
    assert found == sorted([*range(60, 100, 2), *range(81, 100, 2)])
    # To begin at the earliest is no loss.
    assert values(tables.read(topic)) == sorted([*range(60, 100, 2), *range(1, 100, 2)])


class Run:
    """A stream into files that is run over all that there is, again and again, from its checkpoint."""

    def __init__(self, tables: KafkaTables, directory: pathlib.Path, topic: str, **options: object) -> None:
        self._tables, self._directory, self._topic, self._options = tables, directory, topic, options

    def __call__(self, fail_on_data_loss: bool) -> list[int]:
        fails = {"failOnDataLoss": str(fail_on_data_loss).lower()}
        stream = self._tables.stream(self._topic, startingOffsets="earliest", **self._options, **fails)
        finish(self._tables.to_files(stream, self._directory))
        return self._tables.values_in_files(self._directory)


def test_a_stream_that_retention_overtook_fails_or_goes_on_with_what_is_left(
    tables: KafkaTables, admin: TopicAdmin, tmp_path: pathlib.Path
) -> None:
    topic = topic_name("retention")
    admin.create(topic, 1, {"segment.ms": str(HOUR_MS), "retention.ms": str(100 * HOUR_MS)})

    def produce(numbers: range, hours_ago: int) -> None:
        at_ms = START_MS - hours_ago * HOUR_MS
        tables.client.produce(topic, [Message(b"%d" % n, timestamp_ms=at_ms) for n in numbers])

    run = Run(tables, tmp_path, topic)
    produce(range(20), 3)
    assert run(True) == list(range(20))
    produce(range(20, 50), 3)
    produce(range(50, 100), 0)  # in a segment of their own, so much younger are they
    admin.set(topic, "retention.ms", str(3 * HOUR_MS))
    wait_until(lambda: admin.first_offsets(topic) == {0: 50}, "retention has taken the first segment")
    with pytest.raises(Exception, match=LOSS):
        run(True)
    assert tables.values_in_files(tmp_path) == list(range(20))
    assert run(False) == [*range(20), *range(50, 100)]
    produce(range(100, 120), 0)
    # Nothing is lost any more.
    assert run(True) == [*range(20), *range(50, 120)]


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_records_deleted_under_a_running_stream(
    tables: KafkaTables, admin: TopicAdmin, tmp_path: pathlib.Path, fail_on_data_loss: bool
) -> None:
    topic = tables.new_topic("deleted")
    tables.client.produce(topic, [Message(b"%-500d" % n) for n in range(300)])
    stream = tables.stream(
        topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=10,
        failOnDataLoss=str(fail_on_data_loss).lower(),
        # What a consumer has in its memory is not lost.
        **{"kafka.max.poll.records": 10, "kafka.max.partition.fetch.bytes": 1000},
    )
    query = tables.to_files(stream, tmp_path).trigger(processingTime="0 seconds").start()
    try:
        wait_until(lambda: sum(batch_sizes(query)) >= 20, "the stream runs")
        admin.delete_records(topic, {0: 270})
        if fail_on_data_loss:
            with pytest.raises(Exception, match=LOSS):
                query.processAllAvailable()
        else:
            query.processAllAvailable()
    finally:
        query.stop()
    written = tables.values_in_files(tmp_path)
    before = [value for value in written if value < 270]
    assert 20 <= len(before) < 270
    assert before == list(range(len(before)))
    assert written[len(before) :] == ([] if fail_on_data_loss else list(range(270, 300)))


def test_a_topic_that_was_deleted_fails_the_stream_or_is_left_out(
    tables: KafkaTables, admin: TopicAdmin, tmp_path: pathlib.Path
) -> None:
    prefix = topic_name("doomed")
    for name, start in (("stays", 0), ("goes", 100)):
        admin.create(f"{prefix}-{name}", 2)
        tables.produce(f"{prefix}-{name}", range(start, start + 20), 2)
    run = Run(tables, tmp_path, "", subscribePattern=f"{prefix}-.*")
    before = [*range(20), *range(100, 120)]
    assert run(True) == before
    admin.delete(f"{prefix}-goes")
    tables.produce(f"{prefix}-stays", range(20, 40), 2)
    with pytest.raises(Exception, match=rf"{prefix}-goes-\d.* (gone|been deleted)"):
        run(True)
    assert run(False) == [*range(40), *range(100, 120)]
    assert run(True) == [*range(40), *range(100, 120)]


def test_a_topic_that_was_made_anew_fails_the_stream_or_goes_on_from_its_end(
    tables: KafkaTables, admin: TopicAdmin, tmp_path: pathlib.Path
) -> None:
    topic = topic_name("anew")
    admin.create(topic)
    tables.produce(topic, range(50))
    run = Run(tables, tmp_path, topic, **{"fetchOffset.retryIntervalMs": 50})
    assert run(True) == list(range(50))
    admin.delete(topic)
    admin.create(topic)
    tables.produce(topic, range(100, 120))
    with pytest.raises(Exception, match="offset was changed from 50 to 20"):
        run(True)
    assert run(False) == list(range(50))
    tables.produce(topic, range(120, 130))
    assert run(True) == [*range(50), *range(120, 130)]


def test_a_table_of_a_topic_that_is_made_anew_has_the_new_rows(
    tables: KafkaTables, admin: TopicAdmin
) -> None:
    topic = topic_name("replaced")
    # Consumers of the tasks are kept from one read to the next, with what they know of the topic.
    for start in (0, 1000, 2000):
        admin.create(topic)
        tables.produce(topic, range(start, start + 50))
        assert values(tables.read(topic)) == list(range(start, start + 50))
        admin.delete(topic)
