"""Rules that hold after any decisions about brokers and partitions, in any order."""

from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordinator.cluster.view import NO_LEADER
from odradek.coordinator.controller.brokers import fence, fence_expired, unregister_broker
from odradek.coordinator.controller.directories import assign_replicas
from odradek.coordinator.controller.elections import (
    elect_leaders,
    elect_preferred_leaders,
    elect_unclean_leaders,
)
from odradek.coordinator.controller.in_sync import alter_partition
from odradek.coordinator.controller.reassignment import alter_reassignments
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import alter_partition as altering
from odradek.wire.messages import assign_replicas_to_dirs as assigning
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.coordinator.controller.cluster import SESSION_MS, Cluster, T, disk
from tests.tiers import examples

BROKERS = (1, 2, 3, 4, 5)
ASSIGNMENTS = ([1, 2, 3], [2, 3, 4], [5, 1])
BROKER = st.sampled_from(BROKERS)
INDEX = st.integers(0, len(ASSIGNMENTS) - 1)
SOME = st.lists(BROKER, unique=True)
DISK = st.integers(0, 1)


@dataclass
class Driven:
    """A cluster whose decisions come one after the other; each looks at the partitions afterwards."""

    cluster: Cluster
    has_elr: bool
    min_isr: int
    incarnations: int = 100
    had: list = field(default_factory=list)

    @property
    def place(self):
        return self.cluster.view, self.cluster.defaults

    def register(self, broker, is_clean) -> None:
        self.incarnations += 1
        known = self.cluster.view.registrations.get(broker)
        previous = known.epoch if known is not None and is_clean else -1
        lives = known is not None and self.cluster.sessions.is_alive(known, self.cluster.now_ms)
        with pytest.raises(KafkaError, match="DUPLICATE") if lives else nullcontext():
            self.cluster.register(
                broker,
                incarnation_id=self.incarnations.to_bytes(16, "big"),
                previous_broker_epoch=previous,
                log_dirs=[disk(broker), disk(broker, 1)],
            )

    def beat(self, broker, wants_fence, wants_shutdown, failed) -> None:
        if broker in self.cluster.view.registrations:
            self.cluster.beat(
                broker,
                want_fence=wants_fence,
                want_shut_down=wants_shutdown,
                offline_log_dirs=[disk(broker, one) for one in failed],
            )

    def wait(self, milliseconds) -> None:
        self.cluster.now_ms += milliseconds
        self.cluster.append(*fence_expired(*self.place, self.cluster.sessions, self.cluster.now_ms))

    def die(self, broker) -> None:
        known = self.cluster.view.registrations.get(broker)
        if known is not None:
            self.cluster.append(*fence(*self.place, self.cluster.sessions, broker, known.epoch))

    def unregister(self, broker) -> None:
        if broker in self.cluster.view.registrations:
            decision = unregister_broker(*self.place, UnregisterBrokerRequest(broker_id=broker))
            self.cluster.append(*decision.records)

    def alter(self, index, isr) -> None:
        """A request of the leader, twice in one: what is said then is what is."""
        one = self.cluster.partition(index)
        if one.leader == NO_LEADER:
            return
        new = [altering.BrokerState(broker_id=broker) for broker in {one.leader, *isr} & set(one.replicas)]
        data = altering.PartitionData(
            partition_index=index,
            leader_epoch=one.leader_epoch,
            partition_epoch=one.partition_epoch,
            new_isr_with_epochs=new,
        )
        request = altering.AlterPartitionRequest(
            broker_id=one.leader,
            broker_epoch=self.cluster.broker(one.leader).epoch,
            topics=[altering.TopicData(topic_id=T, partitions=[data, data])],
        )
        decision = alter_partition(*self.place, request)
        self.cluster.append(*decision.records)
        first, second = decision.response.topics[0].partitions
        assert second.error_code in (first.error_code, *STALE)
        if first.error_code == ErrorCode.NONE:
            now = self.cluster.partition(index)
            assert tuple(first.isr) == now.isr
            assert (first.leader_id, first.leader_epoch, first.partition_epoch) == now[1:3] + now[6:7]

    def elect(self, index, election_type) -> None:
        request = ElectLeadersRequest(
            election_type=election_type, topic_partitions=[TopicPartitions(topic="t", partitions=[index])]
        )
        self.cluster.append(*elect_leaders(*self.place, request).records)

    def look(self) -> None:
        for elect in (elect_preferred_leaders, elect_unclean_leaders):
            self.cluster.append(*elect(*self.place).records)

    def reassign(self, index, replicas) -> None:
        wanted = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=[wanted])]
        )
        self.cluster.append(*alter_reassignments(*self.place, request).records)

    def assign(self, broker, index, number) -> None:
        known = self.cluster.view.registrations.get(broker)
        if known is None:
            return
        topic = assigning.TopicData(topic_id=T, partitions=[assigning.PartitionData(partition_index=index)])
        request = assigning.AssignReplicasToDirsRequest(
            broker_id=broker,
            broker_epoch=known.epoch,
            directories=[assigning.DirectoryData(id=disk(broker, number), topics=[topic])],
        )
        self.cluster.append(*assign_replicas(*self.place, request).records)

    # Rules

    def judge(self) -> None:
        now = [self.cluster.partition(index) for index in range(len(ASSIGNMENTS))]
        for one in now:
            self.judge_members(one)
            self.judge_leader(one)
        for before, after in zip(self.had, now, strict=True) if self.had else ():
            assert after.leader_epoch >= before.leader_epoch
            assert after.leader_epoch > before.leader_epoch or after.leader == before.leader
            assert after.partition_epoch >= before.partition_epoch
            same = before._replace(offline=after.offline)
            assert after.partition_epoch > before.partition_epoch or after == same
        self.had = now

    def judge_members(self, one) -> None:
        replicas = set(one.replicas)
        for part in (one.replicas, one.isr, one.elr, one.adding, one.removing):
            assert len(set(part)) == len(part)
            assert set(part) <= replicas
        assert set(one.isr).isdisjoint(one.elr)
        assert set(one.adding).isdisjoint(one.removing)
        assert len(one.directories) == len(one.replicas)
        if not self.has_elr:
            assert one.isr
            assert not one.elr
            assert not one.last_known_elr
        if one.elr:
            assert len(one.isr) < self.min_isr

    def judge_leader(self, one) -> None:
        live = [broker for broker in one.replicas if self.may_lead(broker, one.directory_of(broker))]
        if one.leader != NO_LEADER:
            assert one.leader in one.isr
            assert one.leader in live
        else:
            assert set(live).isdisjoint(one.isr)
            assert one.isr or set(live).isdisjoint(one.elr)

    def may_lead(self, broker, directory) -> bool:
        known = self.cluster.view.registrations.get(broker)
        return known is not None and known.is_active and known.is_online(directory)


STALE = (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH)
STEPS = st.one_of(
    st.tuples(st.just(Driven.register), BROKER, st.booleans()),
    st.tuples(st.just(Driven.beat), BROKER, st.just(False), st.just(False), st.just([])),
    st.tuples(st.just(Driven.beat), BROKER, st.booleans(), st.booleans(), st.lists(DISK, max_size=1)),
    st.tuples(st.just(Driven.wait), st.sampled_from((1_000, SESSION_MS + 1))),
    st.tuples(st.just(Driven.die), BROKER),
    st.tuples(st.just(Driven.unregister), BROKER),
    st.tuples(st.just(Driven.alter), INDEX, SOME),
    st.tuples(st.just(Driven.elect), INDEX, st.integers(0, 1)),
    st.tuples(st.just(Driven.look)),
    st.tuples(st.just(Driven.reassign), INDEX, st.one_of(st.none(), SOME)),
    st.tuples(st.just(Driven.assign), BROKER, INDEX, DISK),
)


@settings(max_examples=examples(900), deadline=None)
@given(
    has_elr=st.booleans(),
    min_isr=st.integers(1, 3),
    is_unclean=st.booleans(),
    steps=st.lists(STEPS, min_size=5, max_size=40),
)
def test_rules_hold_after_any_decisions(has_elr, min_isr, is_unclean, steps):
    cluster = Cluster(has_elr=has_elr, min_insync_replicas=min_isr, unclean_leader_election=is_unclean)
    for broker in BROKERS:
        cluster.add_broker(broker, log_dirs=[disk(broker), disk(broker, 1)])
    cluster.sessions.begin(cluster.view.registrations.values(), 0)
    cluster.add_topic(*({"replicas": list(replicas)} for replicas in ASSIGNMENTS))
    driven = Driven(cluster, has_elr, min_isr)
    driven.judge()
    for step, *arguments in steps:
        step(driven, *arguments)
        driven.judge()
