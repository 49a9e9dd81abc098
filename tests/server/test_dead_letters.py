"""Dead letter queues of share groups at a node alone, over the wire (KIP-1191)."""

import logging
from contextlib import contextmanager

import odradek
from odradek.client.admin.topics import create_topic
from odradek.client.cluster import ANY_NODE, Cluster, coordinator_of
from odradek.client.settings import ClientSettings
from odradek.embedding.free_port import free_port
from odradek.server.metrics.exposition import label_text
from odradek.wire.messages import share_fetch
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek.wire.records import iter_records, iter_whole_batches
from tests.client.topics import ask, produce
from tests.server.scrape import scraped, until

GROUP, BROKER, SET = 32, 4, 0
ACCEPT, REJECT = 1, 3
ENABLE = {"errors.deadletterqueue.group.enable": "true"}
NAME, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
CREATE = "errors.deadletterqueue.auto.create.topics.enable"
METRICS = "kafka_server_sharegroupmetrics_deadletterqueue"
LOST = "odradek_sharegroup_deadletters_lost_total"


class Story:
    """A broker, and a member of a share group."""

    def __init__(self, cluster, port):
        self.cluster, self.port = cluster, port
        self.group, self.epoch = "g", 0

    def set(self, kind, name, **values):
        configs = [
            AlterableConfig(name=key, config_operation=SET, value=value) for key, value in values.items()
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        response = self.cluster.ask(ANY_NODE, IncrementalAlterConfigsRequest(resources=[resource]))
        assert response.responses[0].error_code == 0

    def described(self, topic):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (described,) = ask(self.cluster, ANY_NODE, request).topics
        return described

    def join(self, topic, queue, **values):
        self.set(GROUP, self.group, **{"share.auto.offset.reset": "earliest", NAME: queue, **values})
        beat = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id="m", member_epoch=0, subscribed_topic_names=[topic]
        )
        assert self.cluster.ask(coordinator_of("group", self.group), beat).error_code == 0
        self.topic_id = self.described(topic).topic_id

    def fetch(self, *batches):
        """(first, last, delivery count) of what the member gets."""
        batches = [
            share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in batches
        ]
        partition = share_fetch.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        request = share_fetch.ShareFetchRequest(
            group_id=self.group,
            member_id="m",
            share_session_epoch=self.epoch,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1_000_000,
            max_records=100,
            batch_size=100,
            topics=[share_fetch.FetchTopic(topic_id=self.topic_id, partitions=[partition])],
        )
        response = self.cluster.ask(1, request)
        assert response.error_code == 0
        self.epoch += 1
        partitions = [one for topic in response.responses for one in topic.partitions]
        assert [one.acknowledge_error_code for one in partitions if batches] in ([], [0])
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for partition in partitions
            for one in partition.acquired_records
        ]

    def records(self, topic):
        """(key, value, headers) of all records."""
        described = self.described(topic)
        if described.error_code:
            return []
        one = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic=topic, topic_id=described.topic_id, partitions=[one])],
        )
        content = bytes(self.cluster.ask(1, request).responses[0].partitions[0].records or b"")
        return [
            (record.key, record.value, dict(record.headers))
            for position, header in iter_whole_batches(content)
            for record in iter_records(memoryview(content)[position:], header)
        ]


@contextmanager
def story_of(tmp_path):
    port = free_port()
    options = {"odradek.metrics.listen": f"127.0.0.1:{port}"}
    with (
        odradek.Broker(options=options, data_dir=str(tmp_path)) as running,
        Cluster(ClientSettings(running.bootstrap_servers)) as cluster,
    ):
        yield Story(cluster, port)


def test_rejected_records_go_into_the_queue_and_nobody_gets_them_again(tmp_path):
    with story_of(tmp_path) as story:
        create_topic(story.cluster, "shared", 1, {})
        create_topic(story.cluster, "dlq.shared", 1, {**ENABLE, "compression.type": "zstd"})
        produce(story.cluster, "shared", 0, [b"one", b"two", b"three"])
        story.join("shared", "dlq.shared", **{COPY: "true"})
        assert until(story.fetch, bool) == [(0, 2, 1)]
        assert story.fetch((0, 0, ACCEPT), (1, 2, REJECT)) == []
        letters = until(lambda: story.records("dlq.shared"), lambda found: len(found) == 2)
        assert [value for _, value, _ in letters] == [b"two", b"three"]
        assert letters[1][2]["__dlq.errors.offset"] == b"2"
        assert letters[1][2]["__dlq.errors.delivery.count"] == b"1"
        labels = label_text(group="g")
        samples = until(
            lambda: scraped(story.port),
            lambda one: one["odradek_sharegroup_deadletters_waiting", None] == 0,
        )
        assert samples[f"{METRICS}recordcount_total", labels] == 2
        assert samples[f"{METRICS}totalproducerequests_total", labels] == 1
        assert story.fetch() == []


def test_records_that_no_queue_takes_are_archived_and_the_log_says_so_once(tmp_path, caplog):
    caplog.set_level(logging.ERROR, "odradek.share")
    with story_of(tmp_path) as story:
        create_topic(story.cluster, "shared", 1, {})
        produce(story.cluster, "shared", 0, [b"v"] * 5)
        story.join("shared", "dlq.later")
        assert until(story.fetch, bool) == [(0, 4, 1)]
        for offset in range(3):
            assert story.fetch((offset, offset, REJECT)) == []
        labels = label_text(group="g", reason="missing")
        until(lambda: scraped(story.port), lambda one: one.get((LOST, labels)) == 3)
        (message,) = [one.getMessage() for one in caplog.records if one.name == "odradek.share"]
        assert "share group 'g', dead letter queue 'dlq.later': the topic does not exist" in message
        # From now on it is created.
        story.set(BROKER, "", **{CREATE: "true"})
        assert story.fetch((3, 3, REJECT)) == []
        (letter,) = until(lambda: story.records("dlq.later"), bool)
        assert letter[:2] == (None, None)
        assert letter[2]["__dlq.errors.offset"] == b"3"


def test_a_batch_that_the_topic_refuses_is_given_up(tmp_path):
    """A compacted topic takes no record without a key."""
    with story_of(tmp_path) as story:
        create_topic(story.cluster, "shared", 1, {})
        create_topic(story.cluster, "dlq.shared", 1, {**ENABLE, "cleanup.policy": "compact"})
        produce(story.cluster, "shared", 0, [b"v"])
        story.join("shared", "dlq.shared")
        until(story.fetch, bool)
        story.fetch((0, 0, REJECT))
        labels = label_text(group="g", reason="refused")
        samples = until(lambda: scraped(story.port), lambda one: one.get((LOST, labels)) == 1)
        assert samples[f"{METRICS}failedproducerequests_total", label_text(group="g")] == 1
        assert story.records("dlq.shared") == []
