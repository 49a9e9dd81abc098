"""Three nodes under one controller, where everything has three replicas, and what is asked of all of them.

Clients of `compat_tests.transactions` and `compat_tests.groups` take them for a broker with three addresses.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.differential.harness import CLOSED, NO_ANSWER, Side
from compat_tests.kit.history import Partition
from compat_tests.kit.transaction_brokers import SETTINGS, TransactionBroker
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from compat_tests.reference import kafka_tool
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest
from odradek.wire.messages.elect_leaders import TopicPartitions as ElectedTopic
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.partitioner import partition_for

REPLICAS, MIN_ISR = 3, 2
SESSION_MS = 3_000
PREFERRED = 0
HEALTHY_SECONDS = 180.0
EQUAL_SECONDS = 60.0
COMMIT_TIMEOUT_MS = 2_000
STATE_PARTITIONS = 3
"""Of share groups."""

CONTROLLER_PROPERTIES = {
    "broker.session.timeout.ms": str(SESSION_MS),
    # Leaders stay where a test has moved them.
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": str(MIN_ISR),
}
NODE_PROPERTIES = {
    **{name: str(value) for name, value in SETTINGS.items()},
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "500",
    "min.insync.replicas": str(MIN_ISR),
    "default.replication.factor": str(REPLICAS),
    "offsets.topic.replication.factor": str(REPLICAS),
    "transaction.state.log.replication.factor": str(REPLICAS),
    "transaction.state.log.min.isr": str(MIN_ISR),
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "12000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
    "share.coordinator.state.topic.replication.factor": str(REPLICAS),
    "share.coordinator.state.topic.min.isr": "2",
    # The lowest that Kafka takes: what a consumer has when its leader dies is free at once at the next one.
    "group.share.record.lock.duration.ms": "15000",
    # A record that is released again and again is archived only after that.
    "group.share.delivery.count.limit": "10",
}
"""A node that is killed is missed soon, and so is a member that is; but not while its coordinator moves."""

Node = OdradekMember | KafkaMember
KAFKA_ID = 7
CLUSTERS = {"odradek": ((1, 2, 3), ()), "mixed": ((1, 2), (KAFKA_ID,))}
"""Nodes of ours, brokers of Kafka."""


class Cluster(TransactionBroker):
    """`nodes` by id. Use as a context manager."""

    def __init__(
        self,
        controllers: Controllers,
        ids: Sequence[int] = (1, 2, 3),
        properties: Mapping[str, str] | None = None,
        *,
        kafka_ids: Iterable[int] = (),
    ) -> None:
        more = {**NODE_PROPERTIES, **(properties or {})}
        self.is_odradek = True
        self._controllers = controllers
        self.nodes: dict[int, Node] = {one: OdradekMember(controllers, one, more) for one in ids}
        self.nodes |= {one: KafkaMember(controllers, one, more) for one in kafka_ids}
        self._stack = ExitStack()

    def __enter__(self) -> Cluster:
        with ExitStack() as stack:
            # Side by side: each waits for the controller most of the time.
            with ThreadPoolExecutor(len(self.nodes)) as pool:
                for node in self.nodes.values():
                    stack.push(node.__exit__)
                list(pool.map(lambda node: node.start(), self.nodes.values()))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    @property
    def bootstrap(self) -> str:
        """Of all nodes."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    @property
    def direct(self) -> str:
        """The same."""
        return self.bootstrap

    @property
    def fenced_as_dead(self) -> int:
        """How often a controller of ours has fenced a node since its process has died; Kafka's never do."""
        return self._controllers.log.count("is dead and is fenced")

    # Who is who

    def metadata(self, node_id: int) -> Any:
        """As that node tells it; None where it does not answer soon."""
        side = Side("node", self.nodes[node_id].bootstrap_servers)
        try:
            answer = side.ask(MetadataRequest(topics=None), 9, seconds=3.0)
        except OSError:
            return None
        finally:
            side.close()
        return None if answer in (CLOSED, NO_ANSWER) else answer

    def partition(self, where: Partition) -> Any:
        """By the newest view that any node has; None while there is none."""
        told = [one for node_id in self.nodes if (one := self.metadata(node_id)) is not None]
        found = [
            partition
            for one in told
            for topic in one.topics
            for partition in topic.partitions
            if (topic.name, partition.partition_index) == where
        ]
        return max(found, key=lambda one: one.leader_epoch, default=None)

    def leader(self, where: Partition) -> int:
        """Waits until there is one."""
        found = -1

        def has_leader() -> bool:
            nonlocal found
            partition = self.partition(where)
            found = -1 if partition is None else int(partition.leader_id)
            return found in self.nodes

        wait_until(has_leader, f"{where} has a leader", seconds=HEALTHY_SECONDS)
        return found

    def offsets_partition(self, group: str) -> Partition:
        return OFFSETS_TOPIC, partition_for(group, int(NODE_PROPERTIES["offsets.topic.num.partitions"]))

    def transactions_partition(self, transactional_id: str) -> Partition:
        count = int(NODE_PROPERTIES["transaction.state.log.num.partitions"])
        return TRANSACTIONS_TOPIC, partition_for(transactional_id, count)

    def lacks(self) -> list[str]:
        """Where a node says that a replica is not in sync, or that a broker is not there."""
        found = []
        for node_id in self.nodes:
            told = self.metadata(node_id)
            if told is None:
                found.append(f"node {node_id} does not answer")
                continue
            if len(told.brokers) < len(self.nodes):
                found.append(f"node {node_id} knows {[one.node_id for one in told.brokers]}")
            found += [
                f"{node_id}: {topic.name}-{one.partition_index} has leader {one.leader_id}, {one.isr_nodes}"
                for topic in told.topics
                for one in topic.partitions
                if one.leader_id not in self.nodes or set(one.isr_nodes) != set(one.replica_nodes)
            ]
        return found

    def wait_until_healthy(self) -> None:
        """Every replica is in sync."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while found := self.lacks():
            assert time.monotonic() < deadline, "\n".join(found)
            time.sleep(0.1)

    def wait_until_led_by_another(self, where: Partition, node_id: int) -> int:
        """The id of the one that leads instead."""
        wait_until(lambda: self.leader(where) != node_id, f"another leads {where}", seconds=HEALTHY_SECONDS)
        return self.leader(where)

    def _ask(self, request: Any, version: int) -> Any:
        """The response of the first node, which forwards what controllers decide."""
        side = Side("node", next(iter(self.nodes.values())).bootstrap_servers)
        try:
            return side.ask(request, version, seconds=60)
        finally:
            side.close()

    def move(self, where: Partition, replicas: Sequence[int]) -> None:
        """Reassigns the partition, and waits until these are its replicas, all of them in sync."""
        partition = ReassignablePartition(partition_index=where[1], replicas=list(replicas))
        topic = ReassignableTopic(name=where[0], partitions=[partition])
        answer = self._ask(AlterPartitionReassignmentsRequest(topics=[topic]), 0)
        codes = [answer.error_code, answer.responses[0].partitions[0].error_code]
        assert not any(codes), answer

        def has_moved() -> bool:
            found = self.partition(where)
            wanted = set(replicas)
            return (
                set(found.replica_nodes) == set(found.isr_nodes) == wanted and found.leader_id in self.nodes
            )

        wait_until(has_moved, f"the replicas of {where} are {replicas}", seconds=HEALTHY_SECONDS)

    def move_leader(self, where: Partition, node_id: int) -> None:
        """To that node; all nodes have replicas. There are never fewer than min.insync.replicas: after
        NOT_ENOUGH_REPLICAS librdkafka may write records again, with a new epoch, whose outcome it does not
        know.
        """
        self.move(where, [node_id, *(one for one in self.nodes if one != node_id)])
        elected = ElectLeadersRequest(
            election_type=PREFERRED,
            topic_partitions=[ElectedTopic(topic=where[0], partitions=[where[1]])],
            timeout_ms=30_000,
        )
        answer = self._ask(elected, 2)
        assert answer.error_code == ErrorCode.NONE, answer
        ((code,),) = [
            [one.error_code for one in topic.partition_result] for topic in answer.replica_election_results
        ]
        assert code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED), answer
        wait_until(lambda: self.leader(where) == node_id, f"{node_id} leads {where}", seconds=HEALTHY_SECONDS)

    # What happens to nodes

    def pause(self, node_id: int) -> None:
        """SIGSTOP."""
        os.kill(self.nodes[node_id].pid, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        os.kill(self.nodes[node_id].pid, signal.SIGCONT)

    # Their logs

    def wait_until_logs_are_equal(self) -> None:
        """Of every partition, batch by batch, as Kafka's tool reads them. Nobody writes any more."""
        self.wait_until_healthy()
        deadline = time.monotonic() + EQUAL_SECONDS
        while found := differences([batches_of(node) for node in self.nodes.values()]):
            assert time.monotonic() < deadline, "\n".join(found)


@contextmanager
def started(kind: str, properties: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """One of `CLUSTERS` under a controller of its own."""
    ours, theirs = CLUSTERS[kind]
    with Controllers(CONTROLLER_PROPERTIES, host=shared_host()) as controllers:
        assert isinstance(controllers, Controllers)
        with Cluster(controllers, ours, properties, kafka_ids=theirs) as cluster:
            yield cluster


def batches_of(node: Node) -> dict[str, list[str]]:
    """The batches of every partition that has some, as Kafka's tool prints them, without their places."""
    paths = sorted(node.data_dir.glob("*/*.log"))
    # A broker of Kafka has the metadata log beside them.
    own = [path for path in paths if path.parent.name != "__cluster_metadata-0" and path.stat().st_size]
    found: dict[str, list[str]] = {}
    # One file after the other: the tool keeps all that it prints, and hundreds of kills make long logs.
    for path in own:
        told = kafka_tool(
            "org.apache.kafka.tools.DumpLogSegments", "--files", str(path), timeout_seconds=120
        ).stdout
        for line in told.splitlines():
            if line.startswith("baseOffset:"):
                before, _, after = line.partition(" position: ")
                found.setdefault(path.parent.name, []).append(before + " " + after.partition(" ")[2])
    return found


def differences(logs: Sequence[Mapping[str, list[str]]]) -> list[str]:
    """A line for each partition whose replicas differ."""
    found = []
    for name in sorted({name for log in logs for name in log}):
        replicas = [log.get(name, []) for log in logs]
        if any(one != replicas[0] for one in replicas):
            at = next(
                (at for at, batches in enumerate(zip(*replicas, strict=False)) if len(set(batches)) > 1),
                min(map(len, replicas)),
            )
            shown = [one[at : at + 1] for one in replicas]
            found.append(f"{name}: {[len(one) for one in replicas]} batches, different at {at}: {shown}")
    return found
