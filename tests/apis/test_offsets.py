"""OffsetCommit, OffsetFetch, OffsetDelete: positions of groups, by name and by topic id."""

import pytest

from odradek.wire.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

UNKNOWN_ID = b"\x09" * 16
NOWHERE = (-1, -1, "", 0)


@pytest.fixture
def topic(node):
    """A topic `t` of two partitions, on a node whose coordinator is ready."""
    node.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
    return node.create("t", 2)


def commit(node, version, *positions, group_id="g", **fields):
    """Commits (topic or id, partition, offset) triples; the error of each by (topic or id, partition)."""
    topics = {}
    for topic, index, offset in positions:
        asked = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=f"at {offset}"
        )
        topics.setdefault(topic, []).append(asked)
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(**name_of(topic), partitions=asked) for topic, asked in topics.items()
        ],
        **fields,
    )
    response = node.ask(request, version)
    return {
        (one.topic_id if version >= 10 else one.name, partition.partition_index): partition.error_code
        for one in response.topics
        for partition in one.partitions
    }


def name_of(topic):
    return {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}


def fetch_one(node, version, *partitions, group_id="g", **fields):
    """Versions 0 to 7: (offset, epoch, metadata, error) by (topic, partition)."""
    topics = None
    if partitions != (None,):
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[index]) for name, index in partitions]
    response = node.ask(OffsetFetchRequest(group_id=group_id, topics=topics, **fields), version)
    return response.error_code, positions_of(response.topics)


def positions_of(topics, by_id=False):
    return {
        (topic.topic_id if by_id else topic.name, one.partition_index): (
            one.committed_offset,
            one.committed_leader_epoch,
            one.metadata,
            one.error_code,
        )
        for topic in topics
        for one in topic.partitions
    }


def fetch_many(node, version, **groups):
    """Versions 8 to 10: (error, positions) by group."""
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=None
                if topics is None
                else [
                    OffsetFetchRequestTopics(**name_of(topic), partition_indexes=indexes)
                    for topic, indexes in topics.items()
                ],
            )
            for group_id, topics in groups.items()
        ]
    )
    return {
        group.group_id: (group.error_code, positions_of(group.topics, by_id=version >= 10))
        for group in node.ask(request, version).groups
    }


def test_a_topic_that_is_named_twice_is_told_twice_unless_something_does_not_exist(node, topic):
    def told(*indexes):
        topics = [
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=5, committed_metadata=""
                    )
                ],
            )
            for index in indexes
        ]
        response = node.ask(OffsetCommitRequest(group_id="g", topics=topics), 9)
        return [[one.partition_index for one in topic.partitions] for topic in response.topics]

    assert told(0, 1, 0) == [[0], [1], [0]]
    assert told(0, 1, 7) == [[7, 0, 1]]


def test_the_old_versions_fetch_a_topic_as_often_as_it_is_named(node, topic):
    commit(node, 7, ("t", 0, 5))
    named = [OffsetFetchRequestTopic(name="t", partition_indexes=indexes) for indexes in ([0, 0], [1], [0])]
    topics = node.ask(OffsetFetchRequest(group_id="g", topics=named), 7).topics
    told = [[(one.partition_index, one.committed_offset) for one in topic.partitions] for topic in topics]
    assert told == [[(0, 5), (0, 5)], [(1, -1)], [(0, 5)]]


@pytest.mark.parametrize("version", [0, 1, 7])
def test_what_was_committed_is_fetched_in_the_old_versions(node, topic, version):
    assert commit(node, version, ("t", 0, 5), ("t", 1, 7)) == {("t", 0): 0, ("t", 1): 0}
    error, fetched = fetch_one(node, version, ("t", 0), ("t", 1), ("t", 2), ("u", 0))
    assert error == 0
    assert fetched == {
        ("t", 0): (5, -1, "at 5", 0),
        ("t", 1): (7, -1, "at 7", 0),
        ("t", 2): NOWHERE,
        ("u", 0): NOWHERE,
    }


def test_several_groups_are_fetched_at_once(node, topic):
    commit(node, 9, ("t", 0, 5), group_id="g")
    commit(node, 9, ("t", 1, 6), group_id="h")
    assert fetch_many(node, 9, g={"t": [0, 1]}, h=None, nobody={"u": [3]}) == {
        "g": (0, {("t", 0): (5, -1, "at 5", 0), ("t", 1): NOWHERE}),
        "h": (0, {("t", 1): (6, -1, "at 6", 0)}),
        "nobody": (0, {("u", 3): NOWHERE}),
    }


def test_version_10_names_topics_by_id(node, topic):
    known = topic.topic_id
    assert commit(node, 10, (known, 0, 5), (UNKNOWN_ID, 0, 5)) == {
        (known, 0): 0,
        (UNKNOWN_ID, 0): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    unknown = (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
    assert fetch_many(node, 10, g={known: [0, 1], UNKNOWN_ID: [2]}, h=None) == {
        "g": (0, {(known, 0): (5, -1, "at 5", 0), (known, 1): NOWHERE, (UNKNOWN_ID, 2): unknown}),
        "h": (0, {}),
    }
    assert fetch_many(node, 10, g=None) == {"g": (0, {(known, 0): (5, -1, "at 5", 0)})}


def test_null_asks_for_every_topic(node, topic):
    commit(node, 7, ("t", 1, 7))
    assert fetch_one(node, 7, None) == (0, {("t", 1): (7, -1, "at 7", 0)})


def test_leader_epochs_are_kept(node, topic):
    asked = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=3, committed_metadata=None
    )
    topics = [OffsetCommitRequestTopic(name="t", partitions=[asked])]
    node.ask(OffsetCommitRequest(group_id="g", topics=topics), 9)
    assert fetch_many(node, 9, g={"t": [0]}) == {"g": (0, {("t", 0): (5, 3, "", 0)})}


def test_what_does_not_exist_stands_first_in_the_answer_to_a_commit(node, topic):
    """As Kafka has it; nobody should care, but who compares answers does."""
    asked = [("t", 0, 5), ("a", 0, 5), ("t", 2, 5), ("t", 1, 5)]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(commit(node, 9, *asked).items()) == [
        (("t", 2), unknown),
        (("t", 0), 0),
        (("t", 1), 0),
        (("a", 0), unknown),
    ]


@pytest.mark.parametrize("version", [9, 10])
def test_a_commit_is_kept_with_the_id_of_its_topic_whether_it_named_it_or_not(node, topic, version):
    key = topic.topic_id if version >= 10 else "t"
    assert commit(node, version, (key, 0, 5)) == {(key, 0): 0}
    machine = node.groups.partitions[node.groups.partition_of("g")].machine
    assert machine.offsets.get("g", "t", 0).topic_id == topic.topic_id


def test_an_offset_of_a_topic_is_none_of_another_one_with_its_name(node, topic):
    commit(node, 9, ("t", 0, 5))
    commit(node, 9, ("t", 1, 6))
    machine = node.groups.partitions[node.groups.partition_of("g")].machine
    offsets = machine.offsets.of_topic("g", "t")
    offsets[0] = offsets[0]._replace(topic_id=UNKNOWN_ID)
    offsets[1] = offsets[1]._replace(topic_id=bytes(16))
    key = topic.topic_id
    assert fetch_many(node, 10, g={key: [0, 1]}) == {
        "g": (0, {(key, 0): NOWHERE, (key, 1): (6, -1, "at 6", 0)})
    }
    assert fetch_many(node, 9, g={"t": [0]}) == {"g": (0, {("t", 0): (5, -1, "at 5", 0)})}


def test_only_unknown_topics_do_not_reach_the_group(node, topic):
    errors = commit(node, 9, ("u", 0, 5), generation_id_or_member_epoch=5, member_id="stranger")
    assert errors == {("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_the_group_judges_who_commits(node, topic):
    as_member = {"generation_id_or_member_epoch": 5, "member_id": "stranger"}
    assert commit(node, 8, ("t", 0, 5), **as_member) == {("t", 0): ErrorCode.ILLEGAL_GENERATION}
    assert commit(node, 9, ("t", 0, 5), **as_member) == {("t", 0): ErrorCode.GROUP_ID_NOT_FOUND}


@pytest.mark.parametrize("version", [1, 2, 8, 10])
def test_an_unready_coordinator_is_told_where_each_version_looks(node, version):
    """There is no `__consumer_offsets` yet."""
    created = node.create("t")
    if version < 8:
        error, fetched = fetch_one(node, version, ("t", 0))
        told = fetched["t", 0][3] if version < 2 else error
        assert (fetched == {}) is (version >= 2)
    else:
        key = created.topic_id if version >= 10 else "t"
        told, fetched = fetch_many(node, version, g={key: [0]})["g"]
        assert fetched == {}
    assert told in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_a_commit_is_answered_after_its_write_and_where_asked_after_the_flush(node):
    node.create("__consumer_offsets", 5, cleanup_policy="compact", flush_messages=1)
    node.create("t")
    node.loop.turn()
    asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[asked])]
    )
    answer = node.start(request, 9)
    assert not answer.was_sent
    assert node.loop.flushes == 0
    node.loop.turn()
    assert answer.was_sent
    assert node.loop.flushes == 1
    log = node.partition("__consumer_offsets", node.groups.partition_of("g"))
    assert (log.log_end_offset, log.high_watermark) == (1, 1)


def test_offsets_are_deleted(node, topic):
    commit(node, 9, ("t", 0, 5), ("t", 1, 6))

    def delete(group_id="g"):
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
            )
            for name, index in (("t", 0), ("u", 0))
        ]
        response = node.ask(OffsetDeleteRequest(group_id=group_id, topics=topics), 0)
        return response.error_code, [
            (one.name, partition.error_code) for one in response.topics for partition in one.partitions
        ]

    assert delete("nobody") == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert delete() == (0, [("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("t", 0)])
    assert fetch_many(node, 9, g=None) == {"g": (0, {("t", 1): (6, -1, "at 6", 0)})}
