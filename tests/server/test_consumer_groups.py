"""Consumer groups of KIP-848 on a whole broker: topics by pattern, topics that come, and a restart."""

import time

import odradek
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.schema import uuid_from_text
from tests.raw_client import RawClient

PATIENCE_S = 30
LOADING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
OPTIONS = {"offsets.topic.num.partitions": 1, "group.consumer.assignment.interval.ms": 0}


class Client(RawClient):
    def beat_until(self, condition, version=1, **fields):
        """The first answer to such heartbeats that meets a condition."""
        request = ConsumerGroupHeartbeatRequest(**{"group_id": "g", "member_id": "m", **fields})
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.ask(request, version)
            if answer.error_code not in LOADING and condition(answer):
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.005)

    def create(self, *names: str) -> None:
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        answer = self.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
        assert {topic.error_code for topic in answer.topics} == {0}


def describe(client: Client):
    return client.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups[0]


def test_topics_are_found_by_pattern_and_a_restart_keeps_the_group(tmp_path):
    with odradek.Broker(data_dir=tmp_path, options=OPTIONS) as broker:
        client = Client(broker.port)
        client.create("events.a", "events.b", "others")
        client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        joined = client.beat_until(
            lambda answer: not answer.error_code,
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_regex="events[.].*",
            topic_partitions=[],
        )
        assert joined.member_epoch == 1
        found = client.beat_until(lambda answer: answer.assignment is not None, member_epoch=1)
        assert len(found.assignment.topic_partitions) == 2
        assert found.member_epoch == 2
    with odradek.Broker(data_dir=tmp_path, options=OPTIONS) as broker:
        client = Client(broker.port)
        assert client.beat_until(lambda answer: True, member_epoch=2).error_code == 0
        group = describe(client)
        assert (group.error_code, group.group_state, group.group_epoch) == (0, "Stable", 2)
        (member,) = group.members
        names = {topic.topic_name for topic in member.assignment.topic_partitions}
        assert names == {"events.a", "events.b"}
        assert (member.subscribed_topic_regex, member.member_type) == ("events[.].*", 1)


def test_a_member_that_has_no_id_gets_one_as_kafka_writes_its_ids(tmp_path):
    with odradek.Broker(data_dir=tmp_path, options=OPTIONS) as broker:
        client = Client(broker.port)
        client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        joined = client.beat_until(
            lambda answer: not answer.error_code,
            version=0,
            member_id="",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
    assert len(uuid_from_text(joined.member_id)) == 16
    assert not joined.member_id.startswith("-")


def test_a_topic_that_comes_later_is_assigned_with_the_next_heartbeat(tmp_path):
    with odradek.Broker(data_dir=tmp_path, options=OPTIONS) as broker:
        client = Client(broker.port)
        client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        client.beat_until(
            lambda answer: not answer.error_code,
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        client.create("t")
        given = client.beat_until(lambda answer: True, member_epoch=2)
        assert [topic.partitions for topic in given.assignment.topic_partitions] == [[0]]
        assert given.member_epoch == 3
