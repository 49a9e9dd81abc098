"""Dead letter queues of share groups over several nodes: queues that other nodes lead, ours and Kafka's, and
leaders that die between the rejection of a record and its letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from compat_tests.clients import Message, wait_until
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.cluster.nodes import KAFKA_ID, Cluster
from compat_tests.differential.harness import Side
from compat_tests.kit.programs import Program
from compat_tests.reference import CURRENT
from compat_tests.share_groups.brokers import alter_group
from compat_tests.share_groups.members import ACCEPT, REJECT, Delivery, ShareMember, program_of
from compat_tests.stories import topic_name
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

EXPLICIT = {"share.acknowledgement.mode": "explicit"}
ENABLE = {"errors.deadletterqueue.group.enable": "true"}
NAME, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
CREATE = "errors.deadletterqueue.auto.create.topics.enable"
BROKER, SET = 4, 0
ONE_IS_ENOUGH = {"min.insync.replicas": "1"}
SECONDS = 180


@pytest.fixture
def program(cluster: Cluster) -> Iterator[Program]:
    cluster.wait_until_healthy()
    program = program_of(CURRENT, cluster.bootstrap)
    yield program
    program.close()


class Story:
    """A topic and a queue of one partition each, on the nodes that a test names, and a group with both."""

    def __init__(
        self, cluster: Cluster, topic_on: Sequence[int], queue_on: Sequence[int] | None, count: int
    ) -> None:
        self.cluster = cluster
        self.topic, self.queue = topic_name("shared"), topic_name("dlq.letters")
        self.group = topic_name("share")
        self._create(self.topic, topic_on, ONE_IS_ENOUGH)
        if queue_on is not None:
            self._create(self.queue, queue_on, ENABLE | ONE_IS_ENOUGH)
        settings = {"share.auto.offset.reset": "earliest", NAME: self.queue, COPY: "true"}
        alter_group(self.first, self.group, settings)
        self.load = ConfluentClient(cluster.bootstrap)
        self.load.produce(self.topic, [Message(b"%d" % number) for number in range(count)])

    @property
    def first(self) -> str:
        return self.cluster.bootstrap.partition(",")[0]

    def _create(self, name: str, nodes: Sequence[int], configs: dict[str, str]) -> None:
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(nodes))
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[assignment],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        side = Side("node", self.first)
        try:
            answer = side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, seconds=60)
        finally:
            side.close()
        assert answer.topics[0].error_code == 0, answer
        assert self.cluster.leader((name, 0)) == nodes[0]

    def letters(self, count: int) -> Counter[int]:
        """How often each offset has a letter, when there are at least so many."""
        found: Counter[int] = Counter()

        def are_there() -> bool:
            nonlocal found
            found = Counter()
            for letter in self.load.read(self.queue, {0: 0}, count):
                headers = dict(letter.headers)
                offset = int(headers["__dlq.errors.offset"] or b"")
                assert letter.value == b"%d" % offset
                found[offset] += 1
            return len(found) >= count

        wait_until(are_there, f"{count} letters are in {self.queue}", seconds=SECONDS)
        return found


def reject(member: ShareMember, deliveries: Sequence[Delivery], story: Story) -> None:
    member.acknowledge(deliveries, REJECT)
    assert member.commit() == {(story.topic, 0): None}


@pytest.mark.parametrize("cluster", ["mixed"], indirect=True)
def test_a_queue_may_be_led_by_any_node(cluster: Cluster, program: Program) -> None:
    """A node of ours writes into a queue that it leads itself, that another one of ours leads, and that Kafka
    leads; and Kafka's broker into one of ours."""
    for topic_on, queue_on in ((1, 1), (1, 2), (1, KAFKA_ID), (KAFKA_ID, 1)):
        story = Story(cluster, [topic_on], [queue_on], 10)
        member = ShareMember(program, story.group, story.topic, settings=EXPLICIT)
        reject(member, member.poll_until(10), story)
        assert story.letters(10) == dict.fromkeys(range(10), 1), (topic_on, queue_on)
        assert member.poll() == []
        member.close()


@pytest.mark.parametrize("cluster", ["mixed"], indirect=True)
def test_a_missing_queue_is_created_by_the_controllers(cluster: Cluster, program: Program) -> None:
    def set_creation(value: str) -> None:
        setting = AlterableConfig(name=CREATE, config_operation=SET, value=value)
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[setting])
        side = Side("node", story.first)
        try:
            answer = side.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1, seconds=30)
        finally:
            side.close()
        assert answer.responses[0].error_code == 0, answer

    story = Story(cluster, [1], None, 10)
    set_creation("true")
    try:
        member = ShareMember(program, story.group, story.topic, settings=EXPLICIT)
        # The settings reach the node before its member gets anything.
        reject(member, member.poll_until(10), story)
        wait_until(
            lambda: cluster.partition((story.queue, 0)) is not None, "the queue is there", seconds=SECONDS
        )
        assert story.letters(10) == dict.fromkeys(range(10), 1)
        member.close()
    finally:
        set_creation("false")


@pytest.mark.parametrize(
    ("cluster", "old", "new", "queue_on"),
    [
        ("odradek", 1, 2, 3),
        pytest.param("mixed", 1, KAFKA_ID, 2, marks=pytest.mark.nightly),
        pytest.param("mixed", KAFKA_ID, 1, 2, marks=pytest.mark.nightly),
    ],
    indirect=["cluster"],
)
def test_a_new_leader_writes_the_letters_that_the_old_one_could_not(
    cluster: Cluster, program: Program, old: int, new: int, queue_on: int
) -> None:
    """The leader of the queue dies, then that of the topic, with records that are being archived."""
    story = Story(cluster, [old, new], [queue_on], 30)
    member = ShareMember(program, story.group, story.topic, settings=EXPLICIT)
    queue_leader, topic_leader = cluster.nodes[queue_on], cluster.nodes[old]
    queue_leader.kill()
    wait_until(
        lambda: cluster.partition((story.queue, 0)).leader_id == -1, "nobody leads it", seconds=SECONDS
    )
    got = member.poll_until(30)
    member.acknowledge(got[:20], REJECT)
    member.acknowledge(got[20:], ACCEPT)
    # The acknowledgement does not wait for the queue.
    assert member.commit() == {(story.topic, 0): None}
    topic_leader.kill()
    queue_leader.start()
    topic_leader.start()
    cluster.wait_until_healthy()
    assert cluster.leader((story.topic, 0)) == new
    # The new leader has the state from when somebody first reads.
    story.load.produce(story.topic, [Message(b"30")])
    (last,) = member.poll_until(1)
    assert last.where.offset == 30, "nothing that was rejected or accepted comes again"
    found = story.letters(20)
    assert set(found) == set(range(20))
    member.acknowledge([last])
    assert member.commit() == {(story.topic, 0): None}
    assert member.poll() == []
    member.close()
