"""One directory, two programs in turn: Apache Kafka's combined node and Odradek alone.

Each starts on what the other has left, with its records, committed offsets and settings, and each goes on in
the same files.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

import odradek
from compat_tests.reference import CURRENT, Kafka
from tests.tiers import rest_at_night

GROUP = "g"


class Story:
    """A topic that one program after the other writes to."""

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.partitions = partitions
        self.values: list[list[bytes]] = [[] for _ in range(partitions)]
        self.committed = 0

    def begin(self, bootstrap: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics([NewTopic(self.name, self.partitions, 1, topic_configs={"retention.ms": "-1"})])
        admin.close()
        self.go_on(bootstrap, "begins")

    def go_on(self, bootstrap: str, who: str) -> None:
        """Check that all is there that was there before, and write more."""
        self.check(bootstrap)
        with KafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
            for index, values in enumerate(self.values):
                value = f"{who} {index}".encode()
                sent = producer.send(self.name, value, partition=index).get(timeout=20)
                assert sent.offset == len(values)
                values.append(value)
        self.commit(bootstrap)
        self.check(bootstrap)

    def commit(self, bootstrap: str) -> None:
        place = TopicPartition(self.name, 0)
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest")
        consumer.assign([place])
        assert consumer.position(place) == self.committed
        self.committed += 1
        consumer.seek(place, self.committed)
        consumer.commit()
        consumer.close()

    def check(self, bootstrap: str) -> None:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=20_000)
        for index, values in enumerate(self.values):
            place = TopicPartition(self.name, index)
            consumer.assign([place])
            consumer.seek(place, 0)
            found = []
            while len(found) < len(values):
                found += [one.value for one in consumer.poll(1000).get(place, ())]
            assert found == values
        consumer.close()
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        (topic,) = admin.describe_topics([self.name])
        assert [one["error_code"] for one in topic["partitions"]] == [0] * self.partitions
        described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, self.name)])
        assert described["topic"][self.name]["retention.ms"]["value"] == "-1"
        admin.close()


class _Unformatted(Kafka):
    """A node on a directory that is one already."""

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__()
        self.data_dir = directory

    def _format_directories(self, config: pathlib.Path, arguments: Sequence[str], cluster_id: str) -> None:
        """Nothing is to be done."""


def alone(directories: Sequence[pathlib.Path], *, process: bool = False) -> odradek.Broker:
    logs = ",".join(map(str, directories))
    return odradek.Broker(process=process, log_dirs=logs, node_id=1, offsets_topic_num_partitions=1)


@pytest.mark.parametrize("version", rest_at_night(CURRENT, "4.3.1"))
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_odradek_starts_where_kafka_has_stopped_and_kafka_again(how: str, version: str) -> None:
    story = Story("orders", 3)
    with Kafka(version, properties={"offsets.topic.num.partitions": "1"}) as kafka:
        story.begin(kafka.bootstrap_servers)
        for _ in range(2):
            getattr(kafka, how)()
            with alone([kafka.data_dir], process=True) as broker:
                story.go_on(broker.bootstrap_servers, "Odradek")
                broker.restart()
                story.check(broker.bootstrap_servers)
                assert " ERROR " not in broker.log()
                getattr(broker, how)()
            kafka.start()
            story.go_on(kafka.bootstrap_servers, "Kafka")


def test_kafka_starts_where_odradek_has_begun(tmp_path: pathlib.Path) -> None:
    story = Story("orders", 3)
    data = tmp_path / "data"
    with alone([data]) as broker:
        story.begin(broker.bootstrap_servers)
    with _Unformatted(data) as kafka:
        story.go_on(kafka.bootstrap_servers, "Kafka")
        kafka.stop()
        with alone([data]) as broker:
            story.go_on(broker.bootstrap_servers, "Odradek")
