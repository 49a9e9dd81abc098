"""Replicas and log directories: the controllers know where each is; what is not the node's is put aside."""

from __future__ import annotations

import errno
import pathlib
from collections.abc import Callable

import pytest

from compat_tests.broker_host import shared_host
from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.inside import Inside
from compat_tests.cluster.test_membership import create_on
from compat_tests.cluster.test_replication import isr_of
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, KafkaMember
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.wire.schema import uuid_from_text


def waits(holds: Callable[[], bool], what: str) -> None:
    wait_until(holds, what, seconds=DEADLINE_SECONDS)


def recorded(node: Inside, topic: str, index: int = 0) -> bytes:
    """Id of the log directory that the metadata name."""
    found = node.server.cluster_view.partition(topic, index)
    assert found is not None, f"{topic}-{index} is unknown"
    return found.directory_of(node.node_id)


def ids_of(node: Inside) -> dict[str, bytes]:
    identity = node.server.serving.opened.bound.identity
    return {path: uuid_from_text(text) for path, text in identity.directory_ids.items()}


def home_of(node: Inside, topic: str, index: int = 0) -> str:
    found = [one for one in node.directories if (one / f"{topic}-{index}").is_dir()]
    assert len(found) == 1, found
    return str(found[0])


def leader_of(node: Inside, topic: str, index: int = 0) -> int:
    return node.server.cluster_view.leader_of(topic, index)


def append(node: Inside, topic: str, value: bytes) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=node.bootstrap_servers, acks="all")
    producer.send(topic, value, partition=0).get(DEADLINE_SECONDS)
    producer.close()


def log_bytes(directory: str | pathlib.Path, topic: str, index: int = 0) -> int:
    return sum(one.stat().st_size for one in pathlib.Path(directory, f"{topic}-{index}").glob("*.log"))


def move(side: Side, topic: str, directory: str) -> None:
    """Begins to move partition 0."""
    moved = AlterReplicaLogDirTopic(name=topic, partitions=[0])
    wanted = AlterReplicaLogDir(path=directory, topics=[moved])
    answer = side.ask(AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
    assert answer.results[0].partitions[0].error_code == 0


def cordon(side: Side, node_id: int, value: str | None) -> None:
    setting = AlterableConfig(name="cordoned.log.dirs", config_operation=int(value is None), value=value)
    broker = AlterConfigsResource(resource_type=4, resource_name=str(node_id), configs=[setting])
    answer = side.ask(IncrementalAlterConfigsRequest(resources=[broker]), 1)
    assert answer.responses[0].error_code == 0, answer


def cordoned_by_record(node: Inside) -> set[bytes] | None:
    found = node.server.cluster_view.brokers[node.node_id].cordoned_directories
    return None if found is None else set(found)


def test_the_controllers_learn_which_directories_are_cordoned(tmp_path: pathlib.Path) -> None:
    """From the level of metadata.version that knows them: at the start, by a level, by a setting."""
    first = tmp_path / "data-0"
    properties = {"cordoned.log.dirs": str(first)}
    with (
        Controllers(release="4.2", host=shared_host()) as controllers,
        Inside(controllers, 54, tmp_path, directories=2, properties=properties) as node,
    ):
        side = Side("odradek", node.bootstrap_servers)
        ids = ids_of(node)
        assert cordoned_by_record(node) is None
        level = FeatureUpdateKey(feature="metadata.version", max_version_level=30, upgrade_type=1)
        answer = side.ask(UpdateFeaturesRequest(feature_updates=[level], timeout_ms=30_000), 2)
        assert answer.error_code == 0, answer
        waits(lambda: cordoned_by_record(node) == {ids[str(first)]}, "the level brings them")
        cordon(side, 54, "*")
        waits(lambda: cordoned_by_record(node) == set(ids.values()), "all are cordoned")
        topic = CreatableTopic(name="nowhere", num_partitions=1, replication_factor=1)
        answer = side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR, answer
        cordon(side, 54, None)
        waits(lambda: cordoned_by_record(node) == {ids[str(first)]}, "as the file says")
        cordon(side, 54, "")
        waits(lambda: cordoned_by_record(node) == set(), "none is cordoned")
        cordon(side, 54, None)
        node.stop()
        node.start()
        waits(lambda: cordoned_by_record(node) == {ids[str(first)]}, "a start tells them")
        side.close()


def test_the_controllers_learn_where_new_and_moved_replicas_are(
    controllers: Controllers, tmp_path: pathlib.Path
) -> None:
    with Inside(controllers, 51, tmp_path, directories=2) as node:
        side = Side("odradek", node.bootstrap_servers)
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=[51]) for index in range(6)
        ]
        topic = CreatableTopic(
            name="spread", num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        assert side.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0

        def agrees() -> bool:
            return all(
                recorded(node, "spread", index) == ids_of(node)[home_of(node, "spread", index)]
                for index in range(6)
            )

        waits(lambda: node.server.cluster_view.topic("spread") is not None, "the topic is there")
        waits(agrees, "all records name the directories")
        assert {home_of(node, "spread", index) for index in range(6)} == set(map(str, node.directories))
        append(node, "spread", b"kept")
        before = home_of(node, "spread")
        (other,) = [str(one) for one in node.directories if str(one) != before]
        move(side, "spread", other)
        waits(lambda: recorded(node, "spread") == ids_of(node)[other], "the record follows the move")
        node.stop()
        node.start()
        assert agrees()
        side.close()


def test_a_failed_directory_is_told_and_the_others_go_on(
    controllers: Controllers, tmp_path: pathlib.Path
) -> None:
    with Inside(controllers, 52, tmp_path, directories=2) as node:
        side = Side("odradek", node.bootstrap_servers)
        for name in ("fails-a", "fails-b"):
            create_on(side, name, 52)
            append(node, name, b"before")
        failing, living = home_of(node, "fails-a"), home_of(node, "fails-b")
        assert failing != living
        pathlib.Path(failing).rename(failing + ".away")
        places = node.server.store.places
        node.call(lambda: places.suspect(failing, OSError(errno.EIO, "broken")))
        waits(lambda: leader_of(node, "fails-a") == -1, "the partition has no leader")
        registered = node.server.cluster_view.registrations[52]
        assert registered.directories == (ids_of(node)[living],)
        append(node, "fails-b", b"after")
        pathlib.Path(failing + ".away").rename(failing)
        create_on(side, "fails-c", 52)
        assert home_of(node, "fails-c") == living
        side.close()
        node.stop()
        node.start()
        waits(lambda: leader_of(node, "fails-a") == 52, "the partition is back with the next start")
        assert log_bytes(failing, "fails-a") > 0


@pytest.mark.nightly
def test_a_directory_that_is_left_out_keeps_what_no_other_replica_has(
    controllers: Controllers, tmp_path: pathlib.Path
) -> None:
    node = Inside(controllers, 53, tmp_path, directories=2)
    with node:
        side = Side("odradek", node.bootstrap_servers)
        for name in ("left-a", "left-b"):
            create_on(side, name, 53)
            append(node, name, b"kept")
        side.close()
        homes = {name: home_of(node, name) for name in ("left-a", "left-b")}
    left = node.directories.pop()
    (absent,) = [name for name, home in homes.items() if home == str(left)]
    (present,) = set(homes) - {absent}
    for is_named in (False, True):
        if is_named:
            # Its disk is broken.
            left.rename(left.with_suffix(".away"))
            left.write_text("no directory")
            node.directories.append(left)
        with node:
            waits(lambda: leader_of(node, present) == 53, "the other directory is served")
            assert leader_of(node, absent) == -1
            assert not (node.directories[0] / f"{absent}-0").exists()
    left.unlink()
    left.with_suffix(".away").rename(left)
    with node:
        waits(lambda: leader_of(node, absent) == 53, "it is back with its directory")
        assert log_bytes(left, absent) > 0


def reassign(side: Side, topic: str, *node_ids: int) -> None:
    wanted = ReassignablePartition(partition_index=0, replicas=list(node_ids))
    topics = [ReassignableTopic(name=topic, partitions=[wanted])]
    answer = side.ask(AlterPartitionReassignmentsRequest(topics=topics), 0)
    assert answer.error_code == ErrorCode.NONE, answer
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE, answer


def test_deleted_topics_are_strays_for_a_node_that_was_away(
    controllers: Controllers, kafka: KafkaMember, tmp_path: pathlib.Path
) -> None:
    with Inside(controllers, 54, tmp_path) as node:
        theirs = Side("kafka", kafka.bootstrap_servers)
        for name in ("goes", "stays", "again"):
            create_on(theirs, name, 54)
            waits(lambda one=name: leader_of(node, one) == 54, "it is led")  # type: ignore[misc]
            append(node, name, b"old")
        node.stop()
        states = [DeleteTopicState(name=name) for name in ("goes", "again")]
        answer = theirs.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6)
        assert {one.error_code for one in answer.responses} == {0}
        node.start()
        (directory,) = node.directories
        assert [one.name.split(".")[0] for one in sorted(directory.glob("*-stray"))] == ["again-0", "goes-0"]
        assert (directory / "stays-0").is_dir()
        create_on(theirs, "again", 54)
        waits(lambda: leader_of(node, "again") == 54, "the new topic is led")
        assert log_bytes(directory, "again") == 0
        answer = theirs.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="again")], timeout_ms=10_000), 6
        )
        waits(lambda: not (directory / "again-0").exists(), "a topic deleted meanwhile goes at once")
        theirs.close()


def test_a_replica_that_is_moved_away_goes_from_the_disk_and_comes_back_anew(
    controllers: Controllers, kafka: KafkaMember, tmp_path: pathlib.Path
) -> None:
    with Inside(controllers, 55, tmp_path) as node:
        side = Side("odradek", node.bootstrap_servers)
        both = [CreatableReplicaAssignment(partition_index=0, broker_ids=[55, kafka.node_id])]
        topic = CreatableTopic(name="moves", num_partitions=-1, replication_factor=-1, assignments=both)
        assert side.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
        waits(lambda: leader_of(node, "moves") == 55, "it is led here")
        (directory,) = node.directories
        marker = directory / "moves-0" / "marker"
        marker.write_text("of the first replica")
        reassign(side, "moves", kafka.node_id)
        waits(lambda: not (directory / "moves-0").exists(), "the replica is off the disk")
        assert leader_of(node, "moves") == kafka.node_id
        reassign(side, "moves", 55, kafka.node_id)
        waits((directory / "moves-0").is_dir, "the replica is made anew")
        assert not marker.exists()
        # A move that is under way keeps Kafka's tool from another one (test_throttles).
        both_ids = {55, kafka.node_id}
        waits(lambda: isr_of(node.bootstrap_servers, "moves") == both_ids, "the move is over")
        side.close()
