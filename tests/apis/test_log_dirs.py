"""AlterReplicaLogDirs: what is refused, what DescribeLogDirs shows meanwhile, and where all lies then."""

import pytest

from odradek.coordinator.cluster.features import first_levels
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.wire.work import finish


def alter(*wanted):
    """`wanted`: (directory, topic, partition)."""
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=[index])])
            for path, name, index in wanted
        ]
    )


def code_of(node, path, name="t", index=0, version=2):
    (topic,) = node.ask(alter((path, name, index)), version).results
    assert topic.topic_name == name
    (partition,) = topic.partitions
    assert partition.partition_index == index
    return ErrorCode(partition.error_code)


def described(node):
    """Per directory: (topic, partition, is future, lag) of what lies there."""
    answer = node.ask(DescribeLogDirsRequest(topics=None))
    return {
        one.log_dir: sorted(
            (topic.name, partition.partition_index, partition.is_future_key, partition.offset_lag)
            for topic in one.topics
            for partition in topic.partitions
        )
        for one in answer.results
    }


@pytest.fixture
def paths(tmp_path):
    return [str(tmp_path / "one"), str(tmp_path / "two")]


@pytest.fixture
def node(make_node, paths):
    return make_node(directories=paths)


@pytest.mark.parametrize("version", range(3))
def test_a_partition_is_moved_and_shown_in_both_directories_until_it_is(node, paths, version):
    node.create("t")
    node.fill("t", *[[b"value"]] * 5)
    assert code_of(node, paths[1], version=version) is ErrorCode.NONE
    assert described(node) == {paths[0]: [("t", 0, False, 0)], paths[1]: [("t", 0, True, 5)]}
    finish(node.store.relocation.moving(node.loop.now_ms))
    assert described(node) == {paths[0]: [], paths[1]: [("t", 0, False, 0)]}
    assert node.partition("t").directory == f"{paths[1]}/t-0"


def test_a_move_to_where_it_is_does_nothing_and_ends_another(node, paths):
    node.create("t")
    assert code_of(node, paths[0]) is ErrorCode.NONE
    assert not node.store.relocation.has_moves
    code_of(node, paths[1])
    assert code_of(node, paths[0]) is ErrorCode.NONE
    finish(node.store.relocation.moving(node.loop.now_ms))
    assert described(node) == {paths[0]: [("t", 0, False, 0)], paths[1]: []}


@pytest.mark.parametrize("path", ["", "/nowhere", "one", "/"])
def test_a_directory_that_is_not_in_log_dirs_is_not_found(node, path):
    node.create("t")
    assert code_of(node, path) is ErrorCode.LOG_DIR_NOT_FOUND


def test_what_does_not_exist_is_unknown_and_is_made_in_that_directory_later(node, paths):
    assert code_of(node, paths[1]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    node.create("t", 2)
    assert node.partition("t", 0).directory == f"{paths[1]}/t-0"
    assert code_of(node, paths[1], index=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(node, "/nowhere", name="u") is ErrorCode.LOG_DIR_NOT_FOUND


def test_a_name_for_which_the_copy_would_have_none_is_refused(node, paths):
    name = "n" * 220
    node.create(name)
    assert code_of(node, paths[1], name) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_nothing_is_moved_while_a_directory_is_offline(node, paths):
    node.create("t", 2)
    node.store.failing_disks.fail(node.store.places.homes[paths[1]], "gone")
    index = next(index for index in range(2) if node.partition("t", index).directory.startswith(paths[0]))
    assert code_of(node, paths[1], index=index) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(node, paths[0], index=1 - index) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(node, paths[0], index=index) is ErrorCode.NONE


def test_of_a_partition_that_is_named_twice_the_last_directory_counts(node, paths):
    node.create("t")
    (topic,) = node.ask(alter((paths[1], "t", 0), ("/nowhere", "t", 0))).results
    assert [one.error_code for one in topic.partitions] == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert not node.store.relocation.has_moves


def test_nothing_is_moved_to_a_cordoned_directory_not_even_what_is_there(node, paths):
    node.create("t")
    node.store.creating.cordon([paths[0]])
    for name in ("t", "absent"):
        assert code_of(node, paths[0], name) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code_of(node, paths[0], "n" * 240) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code_of(node, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert code_of(node, paths[1]) is ErrorCode.NONE
    node.store.creating.cordon([])
    assert code_of(node, paths[0]) is ErrorCode.NONE


def test_the_newest_description_tells_which_directories_are_cordoned(node, paths):
    node.store.creating.cordon([paths[1]])
    node.machine.set_features(first_levels())
    told = {
        version: [one.is_cordoned for one in node.ask(DescribeLogDirsRequest(topics=None), version).results]
        for version in (4, 5)
    }
    assert told == {4: [False, False], 5: [False, True]}


def test_a_cluster_that_does_not_know_cordoned_directories_is_told_of_none(node, paths):
    node.machine.set_features(first_levels("4.2"))
    node.store.creating.cordon(paths)
    answer = node.ask(DescribeLogDirsRequest(topics=None))
    assert [one.is_cordoned for one in answer.results] == [False, False]


def test_new_partitions_go_where_nothing_is_cordoned_and_to_the_first_directory_if_all_are(node, paths):
    node.store.creating.cordon([paths[0]])
    node.create("t", 3)
    assert described(node)[paths[0]] == []
    node.store.creating.cordon(paths)
    node.create("u", 2)
    assert [name for name, *_ in described(node)[paths[0]]] == ["u", "u"]
    node.store.creating.cordon([])
    node.create("v")
    assert [name for name, *_ in described(node)[paths[0]]] == ["u", "u", "v"]


def test_a_partition_that_is_wanted_in_a_directory_goes_there_though_it_is_cordoned_since(node, paths):
    code_of(node, paths[1], "later")
    node.store.creating.cordon([paths[1]])
    node.create("later")
    assert node.partition("later").directory == f"{paths[1]}/later-0"
