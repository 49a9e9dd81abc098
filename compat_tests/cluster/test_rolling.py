"""All nodes are restarted one by one, and the cluster is upgraded, under clients that see no error."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from compat_tests.broker_host import shared_host
from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.inside import Inside
from compat_tests.cluster.loads import Group, Transactions
from compat_tests.cluster.test_replication import Load, create, isr_of, values_in
from compat_tests.cluster.test_transactions import read_committed
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from compat_tests.reference import kafka_tool
from odradek.coordinator.cluster.features import METADATA_VERSION, NODE_FEATURES, SHARE_VERSION
from odradek.wire.messages.metadata import MetadataRequest

INTERNAL = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
IN_SYNC_SECONDS = 90


Node = OdradekMember | KafkaMember | Inside


def bootstrap_of(nodes: Iterable[Node]) -> str:
    return ",".join(one.bootstrap_servers for one in nodes)


def all_in_sync(bootstrap: str) -> bool:
    """Every partition of every topic, those of the coordinators too."""
    side = Side("broker", bootstrap)
    try:
        topics = side.ask(MetadataRequest(topics=None), 9).topics
    finally:
        side.close()
    partitions = [one for topic in topics for one in topic.partitions]
    return all(set(one.isr_nodes) == set(one.replica_nodes) for one in partitions)


class Loads:
    """All three clients at work. Their topics have a replica on each node; each node leads one of them."""

    def __init__(self, nodes: list[Node], name: str) -> None:
        ids = [one.node_id for one in nodes]
        self.bootstrap = bootstrap_of(nodes)
        self.plain, *self.transactional = (f"{name}-{number}" for number in range(3))
        for number, topic in enumerate((self.plain, *self.transactional)):
            create(nodes[0].bootstrap_servers, topic, [*ids[number:], *ids[:number]], min_insync_replicas="2")
            wait_until(
                lambda topic=topic: isr_of(nodes[0].bootstrap_servers, topic) == set(ids),  # type: ignore[misc]
                "all in sync",
                seconds=DEADLINE_SECONDS,
            )
        self.load = Load(self.bootstrap, self.plain)
        self.transactions = Transactions(self.bootstrap, f"{name}-id", self.transactional)
        self.groups = [
            Group(self.bootstrap, f"{name}-{topic}", topic, protocol)
            for topic, protocol in ((self.plain, "classic"), (self.transactional[0], "consumer"))
        ]

    @contextmanager
    def working(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self.load)
            for one in (self.transactions, *self.groups):
                stack.enter_context(one)
            self.wait_for_more()
            yield
            self.wait_for_more()
        # The producers have ended: what the groups have not read yet is read by others of them.

    def wait_for_more(self) -> None:
        """Each of them has gone on."""
        self.load.wait_for_more()
        for one in (self.transactions, *self.groups):
            one.wait_for_more()

    def check(self) -> None:
        """Nothing is lost, doubled or out of order."""
        acknowledged, committed = self.load.acknowledged, self.transactions.committed
        assert acknowledged == [b"%d" % number for number in range(len(acknowledged))]
        assert values_in(self.bootstrap, self.plain, len(acknowledged)) == acknowledged
        for topic in self.transactional:
            assert read_committed(self.bootstrap, topic, len(committed)) == committed
        for group, values in zip(self.groups, (acknowledged, committed), strict=True):
            assert group.values == values[: len(group.values)]


@pytest.mark.parametrize(
    "with_kafka",
    [
        pytest.param(False, id="three of ours"),
        pytest.param(True, id="two of ours and Kafka", marks=pytest.mark.nightly),
    ],
)
def test_all_nodes_are_restarted_one_after_the_other_and_no_client_has_an_error(with_kafka: bool) -> None:
    with ExitStack() as stack:
        # A cluster of its own: the topics of the coordinators have a replica on each node.
        controllers = stack.enter_context(Controllers(host=shared_host()))
        assert isinstance(controllers, Controllers)
        nodes: list[Node] = [
            stack.enter_context(OdradekMember(controllers, number, INTERNAL))
            for number in range(1, 3 if with_kafka else 4)
        ]
        if with_kafka:
            kafka = stack.enter_context(KafkaMember(controllers, 3, INTERNAL, host=shared_host()))
            assert isinstance(kafka, KafkaMember)
            nodes.append(kafka)
        loads = Loads(nodes, "rolled")
        with loads.working():
            for node in nodes:
                others = next(one for one in nodes if one is not node)
                node.stop()
                loads.wait_for_more()
                node.start()
                wait_until(
                    lambda others=others: all_in_sync(others.bootstrap_servers),  # type: ignore[misc]
                    "all in sync",
                    seconds=IN_SYNC_SECONDS,
                )
                loads.wait_for_more()
        loads.check()


UPGRADE = ("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server")


def upgrade_to_4_3(bootstrap: str) -> tuple[int, str]:
    """All features of that release, share groups among them."""
    finished = kafka_tool(*UPGRADE, bootstrap, "upgrade", "--release-version", "4.3", check=False)
    return finished.returncode, finished.stdout + finished.stderr


def versions(node: Inside, api: str) -> set[int]:
    """Of requests that came."""
    return {version for name, version in node.server.metrics() if name == api}


@pytest.fixture
def older() -> Iterator[Controllers]:
    """Of a cluster that was formatted by Kafka 4.0."""
    with Controllers(release="4.0", host=shared_host()) as started:
        assert isinstance(started, Controllers)
        yield started


def made(folder: pathlib.Path, number: int) -> pathlib.Path:
    path = folder / f"node-{number}"
    path.mkdir()
    return path


@pytest.mark.nightly
def test_a_cluster_is_upgraded_while_its_clients_go_on(older: Controllers, tmp_path: pathlib.Path) -> None:
    """Requests among brokers have the versions that the cluster has agreed on, before and after."""
    with (
        Inside(older, 1, made(tmp_path, 1), properties=INTERNAL) as one,
        Inside(older, 2, made(tmp_path, 2), properties=INTERNAL) as two,
        KafkaMember(older, 3, INTERNAL, host=shared_host()) as kafka,
    ):
        assert isinstance(kafka, KafkaMember)
        nodes: list[Node] = [one, two, kafka]
        loads = Loads(nodes, "upgraded")
        with loads.working():
            for node in (one, two):
                assert node.server.cluster_view.features[METADATA_VERSION] == 25
                assert SHARE_VERSION not in node.server.cluster_view.features
            before = {node.node_id: versions(node, "Fetch") for node in (one, two)}
            assert all(17 in found and 18 not in found for found in before.values()), before
            status, told = upgrade_to_4_3(one.bootstrap_servers)
            assert status == 0, told
            for node in (one, two):
                wait_until(
                    lambda node=node: node.server.cluster_view.features.get(METADATA_VERSION) == 30,  # type: ignore[misc]
                    "the node knows the level",
                    seconds=DEADLINE_SECONDS,
                )
                assert node.server.cluster_view.features[SHARE_VERSION] == 1
                wait_until(
                    lambda node=node: 18 in versions(node, "Fetch"),  # type: ignore[misc]
                    "followers ask in the newer version",
                    seconds=DEADLINE_SECONDS,
                )
            loads.wait_for_more()
            # Whoever comes now comes into the ISRs again.
            two.stop()
            loads.wait_for_more()
            two.start()
            wait_until(lambda: all_in_sync(one.bootstrap_servers), "all in sync", seconds=IN_SYNC_SECONDS)
        loads.check()


def test_an_upgrade_waits_for_the_last_node_of_the_older_release(
    older: Controllers, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that can do less is taken, and the controllers refuse what it cannot do until it is replaced."""
    lowest, _ = NODE_FEATURES[METADATA_VERSION]
    with monkeypatch.context() as patched:
        patched.setattr(
            "odradek.server.cluster.member.NODE_FEATURES", {**NODE_FEATURES, METADATA_VERSION: (lowest, 25)}
        )
        first = Inside(older, 1, made(tmp_path, 1))
        first.start()
    try:
        with Inside(older, 2, made(tmp_path, 2)) as second:
            create(second.bootstrap_servers, "both", [1, 2], min_insync_replicas="2")
            wait_until(
                lambda: isr_of(second.bootstrap_servers, "both") == {1, 2},
                "both in sync",
                seconds=DEADLINE_SECONDS,
            )
            features = first.server.cluster_view.registrations[1].features
            assert features[METADATA_VERSION] == (lowest, 25)
            status, told = upgrade_to_4_3(second.bootstrap_servers)
            assert status != 0
            assert "Broker 1 only supports versions 21-25" in told
            first.stop()
            first.start()
            status, told = upgrade_to_4_3(second.bootstrap_servers)
            assert status == 0, told
            wait_until(
                lambda: isr_of(second.bootstrap_servers, "both") == {1, 2},
                "both in sync",
                seconds=DEADLINE_SECONDS,
            )
    finally:
        first.stop()
