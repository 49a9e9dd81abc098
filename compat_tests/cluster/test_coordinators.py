"""Coordinators move with their partitions: groups of every protocol, offsets and transactions go on at the
next node, and nothing that was acknowledged is forgotten."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.cluster.nodes import REPLICAS, Cluster, started
from compat_tests.differential.harness import CLOSED, NO_ANSWER, Side
from compat_tests.groups.members import CONSUMER, Kind, group_of
from compat_tests.groups.test_phases import BEGINS_ANEW, NOTHING
from compat_tests.kit import readers
from compat_tests.kit.history import Partition
from compat_tests.kit.topics import create_topics
from compat_tests.kit.working import Working
from compat_tests.stories import topic_name
from compat_tests.streams.word_count import EXACTLY_ONCE, Application
from compat_tests.transactions.libraries import Failed
from compat_tests.transactions.libraries.confluent import ConfluentProducer
from compat_tests.transactions.test_loops import write_and_commit
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.tiers import NIGHTLY

SESSION_MS = 20_000
"""Longer than a coordinator takes to move on a busy machine."""
ROUNDS = 3 if NIGHTLY else 2
"""So often a coordinator ends while offsets are committed, by each of the two ways."""
KINDS = [
    Kind("kafka-python", "range"),
    Kind("confluent-kafka", "uniform", CONSUMER),
    Kind("java-4.3", "uniform", CONSUMER),
    *(
        pytest.param(Kind(library, "range"), marks=pytest.mark.nightly)
        for library in ("confluent-kafka", "aiokafka")
    ),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started("odradek") as running:
        yield running


@pytest.fixture
def healthy(cluster: Cluster) -> Cluster:
    """Whatever the test before has left behind is mended."""
    cluster.wait_until_healthy()
    return cluster


def strike(cluster: Cluster, node_id: int, how: str) -> None:
    """`kill`, `stop` or `pause`."""
    if how == "pause":
        cluster.pause(node_id)
    else:
        getattr(cluster.nodes[node_id], how)()


def mend(cluster: Cluster, node_id: int, how: str) -> None:
    if how == "pause":
        cluster.resume(node_id)
    else:
        cluster.nodes[node_id].start()


# Groups


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_group_goes_on_at_the_next_node_when_its_coordinator_dies_stops_or_is_paused(
    healthy: Cluster, kind: Kind, tmp_path: pathlib.Path
) -> None:
    with group_of(healthy, tmp_path, kind, session_ms=SESSION_MS, replicas=REPLICAS) as group:
        for _ in range(2):
            group.join()
        group.wait_until_shared()
        where = healthy.offsets_partition(group.name)
        for how in ("kill", "stop", "pause"):
            node_id = healthy.leader(where)
            strike(healthy, node_id, how)
            healthy.wait_until_led_by_another(where, node_id)
            if how == "pause":
                # Longer, and a client that waits for an answer would lose its session.
                mend(healthy, node_id, how)
            group.wait_until_shared()
            if how != "pause":
                mend(healthy, node_id, how)
            healthy.wait_until_healthy()
        group.finish(BEGINS_ANEW if kind.library == "aiokafka" else NOTHING)


class Commits:
    """Commits one offset after the other, for a group without members, at the coordinator of now."""

    def __init__(self, cluster: Cluster, group: str, where: Partition) -> None:
        self._group, self._where = group, where
        address = readers.coordinator_of(cluster.bootstrap, group)
        assert address is not None
        self._side = Side("coordinator", address)
        self.sent = self.acknowledged = 0
        self.last: ErrorCode | None = None
        """The first answer that was none of success; None: the connection was lost."""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, first: int) -> None:
        self.sent = self.acknowledged = first
        self._thread.start()

    def wait_for_some(self) -> None:
        target = self.acknowledged + 50
        wait_until(lambda: self.acknowledged >= target, "offsets are committed")

    def wait(self) -> None:
        """Until one was refused."""
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self.sent += 1
            try:
                answer = self._side.ask(commit_of(self._group, self._where, self.sent), 8)
            except OSError:
                answer = CLOSED
            if answer in (CLOSED, NO_ANSWER):
                return
            code = ErrorCode(answer.topics[0].partitions[0].error_code)
            if code is not ErrorCode.NONE:
                self.last = code
                return
            self.acknowledged = self.sent


def commit_of(group: str, where: Partition, offset: int) -> OffsetCommitRequest:
    committed = OffsetCommitRequestPartition(
        partition_index=where[1], committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name=where[0], partitions=[committed])
    return OffsetCommitRequest(group_id=group, topics=[topic])


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_the_next_coordinator_tells_nothing_older_than_what_was_acknowledged(
    healthy: Cluster, how: str
) -> None:
    """Its high watermark is behind by what the former one did not tell before it died. One that was paused
    finds requests in its sockets when it goes on, and acknowledges none of them."""
    group = topic_name("commits")
    (read,) = create_topics(healthy.bootstrap, {topic_name("read"): 1}, REPLICAS)
    offset = 0
    where = healthy.offsets_partition(group)
    for _ in range(ROUNDS):
        assert readers.committed_offset(healthy.bootstrap, group, read) == offset
        commits = Commits(healthy, group, read)
        node_id = healthy.leader(where)
        commits.start(offset)
        commits.wait_for_some()
        strike(healthy, node_id, how)
        healthy.wait_until_led_by_another(where, node_id)
        if how == "pause":
            mend(healthy, node_id, how)
        commits.wait()
        found = readers.committed_offset(healthy.bootstrap, group, read)
        assert found in (commits.acknowledged, commits.sent)
        offset = found
        if how == "kill":
            assert commits.last is None
            mend(healthy, node_id, how)
        healthy.wait_until_healthy()


class Finding(Working):
    """Asks one node, again and again, who coordinates a group, and whom its view names."""

    def __init__(self, cluster: Cluster, node_id: int, group: str, where: Partition) -> None:
        super().__init__()
        self._address = cluster.nodes[node_id].bootstrap_servers
        self._group, self._where = group, where
        self.named: set[int] = set()
        self.faults: list[str] = []
        self.answers = 0

    def _run(self) -> None:
        view = (MetadataRequest(topics=[MetadataRequestTopic(name=self._where[0])]), 9, True)
        find = (FindCoordinatorRequest(coordinator_keys=[self._group], key_type=0), 4, True)
        while not self._ending.wait(0.01):
            side = Side("node", self._address)
            try:
                before, found, after = side.pipeline([view, find, view])
            except OSError:
                continue
            finally:
                side.close()
            if not {CLOSED, NO_ANSWER} & {one for one in (before, found, after) if isinstance(one, str)}:
                self._judge(self._leader(before), found.coordinators[0], self._leader(after))

    def _leader(self, view: object) -> int:
        (topic,) = view.topics  # type: ignore[attr-defined]
        (found,) = (one for one in topic.partitions if one.partition_index == self._where[1])
        return int(found.leader_id)

    def _judge(self, before: int, found: object, after: int) -> None:
        code, node_id = ErrorCode(found.error_code), int(found.node_id)  # type: ignore[attr-defined]
        self.answers += 1
        self.named.add(node_id)
        if before == after:
            expected = (ErrorCode.NONE, before)
            if before == -1:
                expected = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            if (code, node_id) != expected:
                self.faults.append(f"{self._address} names {node_id} ({code.name}), its view {before}")


def test_every_node_names_the_leader_of_its_view_as_the_coordinator_while_that_moves(
    healthy: Cluster,
) -> None:
    group = topic_name("found")
    where = healthy.offsets_partition(group)
    (read,) = create_topics(healthy.bootstrap, {topic_name("read"): 1}, REPLICAS)
    readers.committed_offset(healthy.bootstrap, group, read)
    first = healthy.leader(where)
    others = [node_id for node_id in healthy.nodes if node_id != first]
    finding = [Finding(healthy, node_id, group, where).start() for node_id in others]
    healthy.nodes[first].kill()
    second = healthy.wait_until_led_by_another(where, first)
    healthy.nodes[first].start()
    healthy.wait_until_healthy()
    third = next(node_id for node_id in healthy.nodes if node_id not in (first, second))
    healthy.move_leader(where, third)
    wait_until(lambda: all(third in one.named for one in finding), "both have heard of it")
    for one in finding:
        one.stop()
    assert [fault for one in finding for fault in one.faults] == []
    assert all(one.named >= {first, second, third} for one in finding)
    assert readers.committed_offset(healthy.bootstrap, group, read) == 0, "the one that is named answers"


def test_an_application_of_kafka_streams_goes_on_when_the_coordinator_of_its_group_dies(
    healthy: Cluster, tmp_path: pathlib.Path
) -> None:
    broker = KillsCoordinator(healthy)
    application = Application(broker, reference.CURRENT, tmp_path, EXACTLY_ONCE)
    broker.group = application.id
    try:
        application.write(30)
        run = application.start("state", "group.protocol=streams")
        run.wait_until_running()
        application.wait_until_counted()
        broker.crash_and_restart()
        application.write(30)
        application.wait_until_counted()
        run.stop()
    finally:
        for run in application.runs:
            run.kill()


class KillsCoordinator:
    """What an application of Streams needs of a broker, of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.group = ""

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def crash_and_restart(self) -> None:
        """Kills the coordinator of the group, and starts it again when another coordinates."""
        where = self._cluster.offsets_partition(self.group)
        node_id = self._cluster.leader(where)
        self._cluster.nodes[node_id].kill()
        self._cluster.wait_until_led_by_another(where, node_id)
        self._cluster.nodes[node_id].start()


# Transactions


def opened(cluster: Cluster, name: str, timeout_ms: int = 60_000) -> ConfluentProducer:
    producer = ConfluentProducer(cluster.bootstrap, name, timeout_ms)
    producer.open()
    return producer


def test_a_transaction_whose_coordinator_dies_between_decision_and_markers_is_ended_by_the_next(
    healthy: Cluster,
) -> None:
    """The leader of its one partition, which has no other replica, is paused: so there is no marker yet."""
    name = topic_name("ended-by-the-next")
    (where,) = create_topics(healthy.bootstrap, {name: 1})
    holder = healthy.leader(where)
    coordinator = next(one for one in healthy.nodes if one != holder)
    decided = healthy.transactions_partition(name)
    producer = opened(healthy, name)
    healthy.move_leader(decided, coordinator)
    producer.begin()
    producer.send(where, b"decided")
    producer.flush()
    healthy.pause(holder)
    try:
        committing = threading.Thread(target=producer.commit, daemon=True)
        committing.start()
        wait_until(lambda: is_prepared(healthy, coordinator, name), "the commit is decided", seconds=60)
        healthy.nodes[coordinator].kill()
    finally:
        healthy.resume(holder)
    other = healthy.wait_until_led_by_another(decided, coordinator)
    assert readers.wait_until_stable(healthy.bootstrap, [where], 60), "nobody ends it"
    assert readers.values_of(healthy.bootstrap, [where]) == {where: [b"decided"]}
    assert healthy.leader(decided) == other, "it was the next coordinator"
    healthy.nodes[coordinator].start()
    committing.join(120)
    assert not committing.is_alive()


def is_prepared(cluster: Cluster, node_id: int, name: str) -> bool:
    """Whether the coordinator has decided, and waits for markers."""
    with readers.asking(cluster.nodes[node_id].bootstrap_servers) as side:
        answer = side.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0)
    return answer not in (CLOSED, NO_ANSWER) and (
        answer.transaction_states[0].transaction_state == "PrepareCommit"
    )


def test_a_producer_is_fenced_by_its_heir_over_a_move_of_the_coordinator(healthy: Cluster) -> None:
    name = topic_name("fenced-over-a-move")
    (where,) = create_topics(healthy.bootstrap, {name: 1}, REPLICAS)
    old = opened(healthy, name)
    old.begin()
    old.send(where, b"old")
    old.flush()
    decided = healthy.transactions_partition(name)
    node_id = healthy.leader(decided)
    healthy.nodes[node_id].kill()
    healthy.wait_until_led_by_another(decided, node_id)
    heir = opened(healthy, name)
    with pytest.raises(Failed):
        write_and_commit(old, where, b"too late")
    heir.begin()
    heir.send(where, b"new")
    heir.commit()
    healthy.nodes[node_id].start()
    assert readers.wait_until_stable(healthy.bootstrap, [where], 60)
    assert readers.values_of(healthy.bootstrap, [where]) == {where: [b"new"]}
    old.abandon()
    heir.close()
