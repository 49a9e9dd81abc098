"""Share consumers go on while leaders of their partitions and coordinators die, or are moved: no record that
was acknowledged is delivered again, and every other one is delivered."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack

import pytest
from kafka import KafkaProducer

from compat_tests.clients import wait_until
from compat_tests.cluster.nodes import REPLICAS, STATE_PARTITIONS, Cluster
from compat_tests.cluster.share_workers import ShareHistory, ShareWorker
from compat_tests.cluster.test_elections import elect
from compat_tests.cluster.test_replication import Load
from compat_tests.differential.harness import Side
from compat_tests.kit.history import Partition
from compat_tests.kit.topics import create_topics
from compat_tests.quorum import OdradekMember
from compat_tests.reference import CURRENT, SHOWN_LENGTH
from compat_tests.share_groups.members import LIBRDKAFKA
from compat_tests.stories import topic_name
from odradek.coordinator.cluster.topics import SHARE_STATE_TOPIC
from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.partitioner import partition_for
from tests.tiers import NIGHTLY

GROUP, SET = 32, 0
DRAINED_SECONDS = 120
BLOWS = 60 if NIGHTLY else 3


class Story:
    """Two topics of one partition, producers for both, and one group of three share consumers."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.group = topic_name("share")
        self.topics = [f"{self.group}-{letter}" for letter in "ab"]
        create_topics(cluster.bootstrap, dict.fromkeys(self.topics, 1), REPLICAS)
        read_from_the_start(cluster, self.group)
        self.loads = [Load(cluster.bootstrap, topic) for topic in self.topics]
        self.history = ShareHistory()
        self.workers = [
            ShareWorker(library, cluster.bootstrap, self.group, self.topics, self.history, seed + number)
            for number, library in enumerate((LIBRDKAFKA, LIBRDKAFKA, CURRENT))
        ]

    def __enter__(self) -> Story:
        with ExitStack() as stack:
            for worker in self.workers:
                stack.enter_context(worker)
            self._loading = stack.enter_context(ExitStack())
            for load in self.loads:
                self._loading.enter_context(load)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    def go_on(self) -> None:
        """Everybody gets on."""
        for load in self.loads:
            load.wait_for_more()
        for worker in self.workers:
            worker.wait_for_more()

    def data(self, index: int) -> Partition:
        return self.topics[index], 0

    def state_of(self, index: int) -> Partition:
        """The partition of `__share_group_state` that has the state of that share partition."""
        side = Side("node", self.cluster.bootstrap.partition(",")[0])
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=self.topics[index])])
        try:
            topic_id = side.ask(wanted, 12).topics[0].topic_id
        finally:
            side.close()
        text = SharePartitionKey(self.group, topic_id, 0).text
        return SHARE_STATE_TOPIC, partition_for(text, STATE_PARTITIONS)

    def finish(self) -> None:
        """The producers end; what is left is read, and all is judged. Then other leaders begin with what is
        stored, and deliver what is new alone."""
        self._loading.close()
        ends = {load.topic: len(load.acknowledged) for load in self.loads}
        self._wait_until_drained(ends)
        before = dict(self.history.done)
        delivered = Counter(self.history.delivered)
        with KafkaProducer(bootstrap_servers=self.cluster.bootstrap, acks="all") as producer:
            for number, topic in enumerate(self.topics):
                where = self.data(number)
                others = sorted(self.cluster.nodes.keys() - {self.cluster.leader(where)})
                self.cluster.move_leader(where, others[number])
                assert producer.send(topic, b"last", partition=0).get(60).offset == ends[topic]
        self._wait_until_drained({topic: end + 1 for topic, end in ends.items()})
        again = {place for place in before if self.history.delivered[place] != delivered[place]}
        assert not again, sorted(again)[:20]
        assert self.history.complaints == []

    def _wait_until_drained(self, ends: Mapping[str, int]) -> None:
        def is_drained() -> bool:
            for worker in self.workers:
                worker.raise_failure()
            return not self.history.lacks(ends)

        try:
            wait_until(is_drained, "all is acknowledged", seconds=DRAINED_SECONDS)
        except AssertionError as error:
            lacks = self.history.lacks(ends)
            error.add_note(f"{len(lacks)} records, the first are {lacks[:20]}")
            error.add_note(f"refused: {self.history.refusals}")
            for node in self.cluster.nodes.values():
                if isinstance(node, OdradekMember):
                    error.add_note(f"the log of node {node.node_id} ended with:\n{node.log[-SHOWN_LENGTH:]}")
            raise


def read_from_the_start(cluster: Cluster, group: str) -> None:
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=SET, value="earliest")
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[config])
    side = Side("node", cluster.bootstrap.partition(",")[0])
    try:
        answer = side.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1, seconds=30)
    finally:
        side.close()
    assert answer.responses[0].error_code == 0, answer


class Blows:
    """What happens to a cluster under a story; each waits until all is healed."""

    KINDS = (
        "the leader dies",
        "the leader moves",
        "the states' coordinator dies",
        "the group's coordinator dies",
    )

    def __init__(self, story: Story, seed: int) -> None:
        self._story, self._cluster = story, story.cluster
        self._chance = random.Random(seed)
        self.told: list[str] = []

    def strike(self, kind: str) -> None:
        story, index = self._story, self._chance.randrange(2)
        where = {
            "the leader dies": lambda: story.data(index),
            "the leader moves": lambda: story.data(index),
            "the states' coordinator dies": lambda: story.state_of(index),
            "the group's coordinator dies": lambda: self._cluster.offsets_partition(story.group),
        }[kind]()
        leader = self._cluster.leader(where)
        self.told.append(f"{kind}: {where}, node {leader}")
        if kind == "the leader moves":
            others = sorted(self._cluster.nodes.keys() - {leader})
            self._cluster.move_leader(where, self._chance.choice(others))
            story.go_on()
            return
        node = self._cluster.nodes[leader]
        node.kill()
        self._cluster.wait_until_led_by_another(where, leader)
        story.go_on()
        node.start()
        self._cluster.wait_until_healthy()
        if kind == "the leader dies":
            # It gets its leadership back, unless another one is to have it.
            elect(self._cluster.bootstrap, "preferred", where[0])
            preferred = self._cluster.partition(where).replica_nodes[0]
            wait_until(lambda: self._cluster.leader(where) == preferred, "the preferred one leads")
        story.go_on()


@pytest.mark.parametrize(
    "cluster", ["odradek", pytest.param("mixed", marks=pytest.mark.nightly)], indirect=True
)
def test_share_consumers_go_on_while_leaders_and_coordinators_die_and_move(cluster: Cluster) -> None:
    seed = int(time.time()) if NIGHTLY else 1
    cluster.wait_until_healthy()
    story = Story(cluster, seed)
    blows = Blows(story, seed)
    try:
        with story:
            story.go_on()
            for number in range(BLOWS):
                blows.strike(Blows.KINDS[number % len(Blows.KINDS)])
            story.finish()
    except BaseException as error:
        error.add_note(f"seed {seed}:\n" + "\n".join(blows.told))
        raise


@pytest.mark.parametrize("cluster", ["mixed"], indirect=True)
def test_each_leader_has_its_states_from_each_coordinator(cluster: Cluster) -> None:
    """Ours asks Kafka's, and Kafka's asks ours."""
    cluster.wait_until_healthy()
    story = Story(cluster, 2)
    ids = sorted(cluster.nodes)
    first, last = ids[0], ids[-1]
    with story:
        story.go_on()
        for leader, coordinator in ((first, last), (last, first)):
            cluster.move_leader(story.data(0), leader)
            cluster.move_leader(story.state_of(0), coordinator)
            story.go_on()
        story.finish()
