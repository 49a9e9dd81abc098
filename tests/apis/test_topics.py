"""CreateTopics, DeleteTopics, CreatePartitions: what changes, what is refused, what is told."""

import pytest

from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.schema import ZERO_UUID


def topic(name, partitions=1, factor=1, assignments=(), **configs):
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in assignments
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def create(node, *topics, version=7, validate_only=False):
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return {one.name: one for one in node.ask(request, version).topics}


@pytest.mark.parametrize("version", range(8))
def test_a_topic_is_there_when_it_is_answered(node, version):
    answer = create(node, topic("t", 3, retention_ms="1000"), version=version)["t"]
    assert (answer.error_code, answer.error_message) == (0, None if version >= 1 else "")
    created = node.machine.view.topics["t"]
    assert len(created.partitions) == 3
    assert node.partition("t", 2).config.retention_ms == 1000
    assert answer.topic_id == (created.topic_id if version >= 7 else ZERO_UUID)
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        configs = {one.name: one for one in answer.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
        assert configs["segment.bytes"].config_source == 5


def test_defaults_stand_for_minus_one(node):
    answer = create(node, topic("t", -1, -1))["t"]
    assert (answer.num_partitions, answer.replication_factor) == (1, 1)


def test_an_assignment_names_the_brokers(node):
    good = topic("good", -1, -1, assignments=[(0, [1]), (1, [1])])
    both = topic("both", 2, -1, assignments=[(0, [1])])
    stranger = topic("stranger", -1, -1, assignments=[(0, [7])])
    gap = topic("gap", -1, -1, assignments=[(1, [1])])
    answers = create(node, good, both, stranger, gap)
    assert {name: one.error_code for name, one in answers.items()} == {
        "good": ErrorCode.NONE,
        "both": ErrorCode.INVALID_REQUEST,
        "stranger": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "gap": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("no good"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("t", no_such_thing="1"), ErrorCode.INVALID_CONFIG),
        (topic("t", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_created_says_why_and_leaves_the_others_alone(node, refused, code):
    node.create("there")
    node.create("a.b")
    answers = create(node, refused, topic("fine"))
    answer = answers[refused.name]
    assert answer.error_code == code
    assert answer.error_message
    assert (answer.topic_id, answer.num_partitions, answer.configs) == (ZERO_UUID, -1, [])
    assert answers["fine"].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("values", "kept"),
    [(["5000", "6000"], "6000"), (["5000", None], None), ([None, "6000"], None)],
)
def test_of_a_setting_that_is_named_twice_the_last_value_counts_and_null_is_refused(node, values, kept):
    asked = topic("t")
    asked.configs = [CreatableTopicConfig(name="retention.ms", value=value) for value in values]
    code = create(node, asked)["t"].error_code
    assert code == (ErrorCode.NONE if kept else ErrorCode.INVALID_CONFIG)
    if kept:
        assert node.machine.view.topics["t"].configs["retention.ms"] == kept


def test_a_name_twice_is_refused_once(node):
    answers = create(node, topic("t"), topic("t"), topic("u"))
    assert {name: one.error_code for name, one in answers.items()} == {"t": 42, "u": 0}
    assert "t" not in node.machine.view.topics


def test_validation_creates_nothing(node):
    answers = create(node, topic("t"), topic("no good"), validate_only=True)
    assert {name: one.error_code for name, one in answers.items()} == {"t": 0, "no good": 17}
    assert not node.machine.view.topics


def test_a_failing_store_is_told_for_each_topic(node):
    node.metadata.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    answers = create(node, topic("t"), topic("u"))
    assert {name: one.error_code for name, one in answers.items()} == {"t": 56, "u": 56}
    assert not node.machine.view.topics


# Deletion


def delete(node, *names, ids=(), version=6):
    if version < 6:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)
    else:
        states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
        states += [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
        request = DeleteTopicsRequest(topics=states, timeout_ms=1000)
    return [(one.name, one.topic_id, one.error_code) for one in node.ask(request, version).responses]


@pytest.mark.parametrize("version", range(7))
def test_a_topic_is_deleted_by_name_and_may_come_again(node, version):
    created = node.create("t")
    node.fill("t", [b"old"])
    topic_id = created.topic_id if version >= 6 else ZERO_UUID
    answers = sorted(delete(node, "t", "u", version=version))
    assert answers == [("t", topic_id, 0), ("u", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert node.partition("t") is None
    node.create("t")
    assert node.partition("t").log_end_offset == 0


def test_a_topic_is_deleted_by_id(node):
    created = node.create("t")
    assert delete(node, ids=[created.topic_id, b"\x09" * 16]) == [
        (None, b"\x09" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        ("t", created.topic_id, ErrorCode.NONE),
    ]


def test_what_is_named_twice_is_not_deleted(node):
    created = node.create("t")
    assert delete(node, "t", "t") == [("t", ZERO_UUID, ErrorCode.INVALID_REQUEST)]
    answers = delete(node, ids=[created.topic_id] * 2)
    assert {code for _, _, code in answers} == {ErrorCode.INVALID_REQUEST}
    answers = delete(node, "t", ids=[created.topic_id])
    assert answers == [("t", created.topic_id, ErrorCode.INVALID_REQUEST)]
    answers = delete(node, "t", ids=[created.topic_id] * 2)
    assert {code for _, _, code in answers} == {ErrorCode.INVALID_REQUEST}
    assert "t" in node.machine.view.topics


def test_name_and_id_together_or_neither_are_refused(node):
    created = node.create("t")
    both = DeleteTopicState(name="t", topic_id=created.topic_id)
    neither = DeleteTopicState(name=None, topic_id=ZERO_UUID)
    response = node.ask(DeleteTopicsRequest(topics=[both, neither], timeout_ms=1), 6)
    assert [one.error_code for one in response.responses] == [42, 42]
    assert "t" in node.machine.view.topics


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73), (6, 73)])
def test_deletion_can_be_disabled(make_node, version, code):
    node = make_node(deletes_topics=False)
    node.create("t")
    assert [answer[2] for answer in delete(node, "t", version=version)] == [code]
    assert "t" in node.machine.view.topics


def test_a_failing_store_deletes_nothing(node):
    node.create("t")
    node.metadata.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert [answer[2] for answer in delete(node, "t")] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert "t" in node.machine.view.topics


# Growth


def grow(node, *growths, version=3, validate_only=False):
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assigned is None
                else [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assigned],
            )
            for name, count, assigned in growths
        ],
        timeout_ms=1000,
        validate_only=validate_only,
    )
    return {one.name: (one.error_code, bool(one.error_message)) for one in node.ask(request, version).results}


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows(node, version):
    node.create("t")
    assert grow(node, ("t", 3, None), version=version) == {"t": (0, False)}
    assert node.partition("t", 2) is not None


def test_what_cannot_grow_says_why(node):
    node.create("t", 2)
    for growth, code in (
        (("u", 3, None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 2, None), ErrorCode.INVALID_PARTITIONS),
        (("t", 1, None), ErrorCode.INVALID_PARTITIONS),
        (("t", 3, [[7]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("t", 3, [[1], [1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ):
        # Kafka says nothing beside the code of an unknown topic.
        says = code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert grow(node, growth) == {growth[0]: (code, says)}
    assert grow(node, ("t", 3, None), ("t", 4, None)) == {"t": (ErrorCode.INVALID_REQUEST, True)}
    assert grow(node, ("t", 3, [[1]]), validate_only=True) == {"t": (0, False)}
    assert len(node.machine.view.topics["t"].partitions) == 2
    node.metadata.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert grow(node, ("t", 3, None)) == {"t": (ErrorCode.KAFKA_STORAGE_ERROR, True)}


def test_too_many_new_partitions_are_refused_for_all_topics_of_the_request(node):
    node.create("small")
    node.create("large")
    growths = [("small", 2), ("large", 10_001), ("absent", 3)]
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in growths],
        timeout_ms=1,
        validate_only=False,
    )
    codes = {one.name: one.error_code for one in node.ask(request, 3).results}
    assert set(codes.values()) == {ErrorCode.POLICY_VIOLATION}
    assert len(node.machine.view.topics["small"].partitions) == 1
    request.topics[1].count = 10_000
    codes = {one.name: one.error_code for one in node.ask(request, 3).results}
    assert codes == {"small": 0, "large": 0, "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
