"""A node of ours joins a cluster of Kafka's controllers, serves in it, and leaves it again."""

from __future__ import annotations

import contextlib
import re

import pytest

from compat_tests.broker_host import host_for
from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember, new_cluster_id
from compat_tests.reference import CURRENT, OLDER, PREVIOUS, kafka_tool
from odradek.coordinator.cluster.features import SHARE_VERSION
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


def brokers_named_by(bootstrap: str) -> set[int]:
    side = Side("broker", bootstrap)
    try:
        return {one.node_id for one in side.ask(MetadataRequest(topics=[]), 9).brokers}
    finally:
        side.close()


def create_on(side: Side, name: str, node_id: int) -> None:
    """A topic of one partition on that node; returns when `side` knows its leader."""
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[node_id])
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    answer = side.ask(CreateTopicsRequest(topics=[topic]), 7)
    assert answer.topics[0].error_code == 0, answer

    def is_led() -> bool:
        found = side.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9).topics[0]
        return not found.error_code and found.partitions[0].leader_id == node_id

    wait_until(is_led, f"{name} is led by {node_id}", seconds=DEADLINE_SECONDS)


def test_a_node_and_a_broker_of_kafka_are_named_by_each_other(
    odradek: OdradekMember, kafka: KafkaMember
) -> None:
    for bootstrap in (odradek.bootstrap_servers, kafka.bootstrap_servers):
        wait_until(
            lambda where=bootstrap: brokers_named_by(where) >= {odradek.node_id, kafka.node_id},  # type: ignore[misc]
            "both are named",
            seconds=DEADLINE_SECONDS,
        )


def test_clients_produce_to_both_and_read_both(odradek: OdradekMember, kafka: KafkaMember) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    side = Side("broker", odradek.bootstrap_servers)
    for node_id in (odradek.node_id, kafka.node_id):
        create_on(side, f"on-{node_id}", node_id)
    side.close()
    names = [f"on-{node_id}" for node_id in (odradek.node_id, kafka.node_id)]
    producer = KafkaProducer(bootstrap_servers=odradek.bootstrap_servers, acks="all")
    for number in range(50):
        for name in names:
            producer.send(name, b"%d" % number)
    producer.close()
    consumer = KafkaConsumer(
        *names,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(DEADLINE_SECONDS * 1000),
    )
    found: dict[str, list[bytes]] = {name: [] for name in names}
    for record in consumer:
        found[record.topic].append(record.value)
        if all(len(values) == 50 for values in found.values()):
            break
    consumer.close()
    assert found == {name: [b"%d" % number for number in range(50)] for name in names}


def test_a_restart_finds_the_records_and_a_stop_is_a_controlled_shutdown(controllers: Controllers) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    with OdradekMember(controllers, 21) as node:
        side = Side("broker", node.bootstrap_servers)
        create_on(side, "kept", 21)
        side.close()
        producer = KafkaProducer(bootstrap_servers=node.bootstrap_servers, acks="all")
        producer.send("kept", b"one").get(DEADLINE_SECONDS)
        producer.close()
        node.stop()
        assert "broker state PENDING_CONTROLLED_SHUTDOWN" in node.log
        assert "broker state SHUTTING_DOWN" in node.log
        node.start()
        consumer = KafkaConsumer(
            "kept",
            bootstrap_servers=node.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=int(DEADLINE_SECONDS * 1000),
        )
        assert next(consumer).value == b"one"
        consumer.close()


def test_a_node_that_comes_while_the_former_one_lives_is_in_when_that_is_killed_and_its_session_over(
    controllers: Controllers,
) -> None:
    """With the same number, as a node that is started again at once after a kill."""
    node = OdradekMember(controllers, 22)
    with OdradekMember(controllers, 22) as former, contextlib.ExitStack() as stack:
        stack.push(node.__exit__)
        node.launch()
        wait_until(
            lambda: "another process is registered as node 22" in node.log,
            "it is refused",
            seconds=DEADLINE_SECONDS,
        )
        assert "DUPLICATE_BROKER_REGISTRATION" in node.log
        former.kill()
        node.wait_until_ready()


def test_a_node_of_another_cluster_is_refused_with_both_ids(controllers: Controllers) -> None:
    other = new_cluster_id()
    node = OdradekMember(controllers, 23)
    process = node.begin("--cluster-id", other)
    assert process.wait(DEADLINE_SECONDS) == 1
    assert "INCONSISTENT_CLUSTER_ID" in node.log or other in node.log
    node.kill()


def test_a_directory_that_kafkas_tool_has_formatted_is_taken(controllers: Controllers) -> None:
    node = OdradekMember(controllers, 24)
    node.format()
    with node:
        assert f"cluster {controllers.cluster_id}" in node.log


@pytest.mark.parametrize(
    ("version", "release", "level"),
    [
        (OLDER, None, None),
        pytest.param(CURRENT, "3.9", None, marks=pytest.mark.nightly),
        pytest.param(CURRENT, "4.0", None, marks=pytest.mark.nightly),
        pytest.param(CURRENT, "4.1", None, marks=pytest.mark.nightly),
        (PREVIOUS, None, 1),
        (CURRENT, None, 2),
    ],
    ids=["controllers of 3.9", "formatted by 3.9", "formatted by 4.0", "formatted by 4.1", "of 4.3", "new"],
)
def test_a_node_serves_share_groups_where_the_cluster_has_them(
    version: str, release: str | None, level: int | None
) -> None:
    """It registers that it could, which controllers that know nothing of them take as well."""
    with Controllers(version=version, release=release, host=host_for(version)) as older:
        assert isinstance(older, Controllers)
        with OdradekMember(older, 1) as node:
            side = Side("broker", node.bootstrap_servers)
            told = side.ask(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 4)
            assert SHARE_VERSION in {one.name for one in told.supported_features}
            assert {one.name: one.max_version_level for one in told.finalized_features}.get(
                SHARE_VERSION
            ) == level
            create_on(side, "on-one", 1)
            beat = ShareGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["on-one"]
            )
            find = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
            wait_until(
                lambda: not side.ask(find, 4).coordinators[0].error_code,
                "the coordinator is there",
                seconds=DEADLINE_SECONDS,
            )
            wanted = ErrorCode.NONE if level else ErrorCode.UNSUPPORTED_VERSION
            wait_until(lambda: side.ask(beat, 1).error_code == wanted, wanted.name, seconds=DEADLINE_SECONDS)
            side.close()


def test_a_node_without_controllers_waits_says_for_what_and_can_be_stopped() -> None:
    controllers = Controllers()
    node = OdradekMember(controllers, 1)
    process = node.begin()
    wait_until(lambda: "waiting for the controllers at" in node.log, "it says so", seconds=DEADLINE_SECONDS)
    process.terminate()
    assert process.wait(10) == 0
    node.kill()


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("org.apache.kafka.tools.MetadataQuorumCommand", ["describe", "--status"], r"LeaderId:\s+100"),
        ("org.apache.kafka.tools.MetadataQuorumCommand", ["describe", "--replication"], r"\n1\s.*Observer"),
        ("org.apache.kafka.tools.ClusterTool", ["cluster-id"], r"Cluster ID: \S+"),
        ("org.apache.kafka.tools.FeatureCommand", ["describe"], r"metadata.version.*FinalizedVersionLevel"),
    ],
)
def test_kafkas_tools_work_through_a_node_of_ours(
    odradek: OdradekMember, tool: str, arguments: list[str], expected: str
) -> None:
    bootstrap = ["--bootstrap-server", odradek.bootstrap_servers]
    ordered = [*arguments, *bootstrap] if "ClusterTool" in tool else [*bootstrap, *arguments]
    assert re.search(expected, kafka_tool(tool, *ordered).stdout)
