"""States of share partitions by way of their APIs, and FindCoordinator for their keys."""

import pytest

from odradek.coordinator.shares.state.keys import share_partition_key
from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.schema import ZERO_UUID, uuid_to_text

SHARE = 2


@pytest.fixture
def share_node(node):
    """A node with a topic `t` of two partitions, whose coordinator of share partitions is there."""
    topic = node.create("t", 2)
    found = find(node, SharePartitionKey("g", topic.topic_id, 0).text)
    assert found.coordinators[0].error_code == 0
    node.loop.turn()
    return node


def find(node, *keys, version=6):
    named = {"key": keys[0]} if version < 4 else {"coordinator_keys": list(keys)}
    request = FindCoordinatorRequest(key_type=SHARE, **named)
    return node.ask(request, version)


def topic_id(node):
    return node.machine.view.topics["t"].topic_id


def initialize(node, *partitions, group="g", of=None, **fields):
    module = initialize_share_group_state
    named = [module.PartitionData(partition=index, **fields) for index in partitions]
    topic = module.InitializeStateData(topic_id=topic_id(node) if of is None else of, partitions=named)
    return node.ask(module.InitializeShareGroupStateRequest(group_id=group, topics=[topic]), 0)


def read(node, *partitions, group="g", **fields):
    module = read_share_group_state
    named = [module.PartitionData(partition=index, **fields) for index in partitions]
    topic = module.ReadStateData(topic_id=topic_id(node), partitions=named)
    return node.ask(module.ReadShareGroupStateRequest(group_id=group, topics=[topic]), 0)


def write(node, *written, group="g", version=1):
    module = write_share_group_state
    topic = module.WriteStateData(topic_id=topic_id(node), partitions=list(written))
    return node.ask(module.WriteShareGroupStateRequest(group_id=group, topics=[topic]), version)


def written(partition, *batches, **fields):
    module = write_share_group_state
    return module.PartitionData(
        partition=partition,
        state_batches=[
            module.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in batches
        ],
        **fields,
    )


def summarize(node, *partitions, group="g", version=1):
    module = read_share_group_state_summary
    named = [module.PartitionData(partition=index, leader_epoch=-1) for index in partitions]
    topic = module.ReadStateSummaryData(topic_id=topic_id(node), partitions=named)
    return node.ask(module.ReadShareGroupStateSummaryRequest(group_id=group, topics=[topic]), version)


def delete(node, *partitions, group="g"):
    module = delete_share_group_state
    named = [module.PartitionData(partition=index) for index in partitions]
    topic = module.DeleteStateData(topic_id=topic_id(node), partitions=named)
    return node.ask(module.DeleteShareGroupStateRequest(group_id=group, topics=[topic]), 0)


def codes(response):
    return {
        one.partition: ErrorCode(one.error_code).name
        for topic in response.results
        for one in topic.partitions
    }


def only(response):
    ((partition,),) = ([*topic.partitions] for topic in response.results)
    return partition


def test_what_is_written_is_read_and_deleted(share_node):
    assert codes(initialize(share_node, 0, 1, state_epoch=3, start_offset=10)) == {0: "NONE", 1: "NONE"}
    change = written(
        0,
        (10, 14, 0, 1),
        (15, 15, 2, 1),
        state_epoch=3,
        leader_epoch=0,
        start_offset=10,
        delivery_complete_count=1,
    )
    assert codes(write(share_node, change)) == {0: "NONE"}
    state = only(read(share_node, 0, leader_epoch=4))
    assert (state.state_epoch, state.start_offset) == (3, 10)
    assert [
        (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in state.state_batches
    ] == [(10, 14, 0, 1), (15, 15, 2, 1)]
    summary = only(summarize(share_node, 0))
    assert (summary.state_epoch, summary.leader_epoch, summary.start_offset) == (3, 4, 10)
    assert summary.delivery_complete_count == 1
    assert codes(delete(share_node, 0)) == {0: "NONE"}
    assert only(summarize(share_node, 0)).start_offset == -1
    assert only(summarize(share_node, 1)).start_offset == 10


def test_a_write_of_version_0_does_not_tell_how_many_are_done(share_node):
    initialize(share_node, 0, state_epoch=0, start_offset=0)
    assert only(summarize(share_node, 0)).delivery_complete_count == 0
    change = written(0, state_epoch=0, leader_epoch=0, start_offset=5)
    write(share_node, change, version=0)
    assert only(summarize(share_node, 0)).delivery_complete_count == -1
    assert only(summarize(share_node, 0, version=0)).start_offset == 5


def test_each_share_partition_has_its_own_result(share_node):
    initialize(share_node, 0, state_epoch=2, start_offset=0)
    changes = [
        written(0, state_epoch=2, leader_epoch=0, start_offset=5),
        written(1, state_epoch=2, leader_epoch=0, start_offset=5),
        written(-1, state_epoch=2, leader_epoch=0, start_offset=5),
    ]
    response = write(share_node, *changes)
    assert codes(response) == {0: "NONE", 1: "INVALID_REQUEST", -1: "INVALID_REQUEST"}
    messages = [one.error_message for one in response.results[0].partitions]
    assert messages[0] is None
    assert all(messages[1:])
    assert codes(initialize(share_node, 0, of=ZERO_UUID)) == {0: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert codes(read(share_node, 1, leader_epoch=0)) == {1: "INVALID_REQUEST"}


def test_one_that_is_named_twice_has_its_last_result(share_node):
    initialize(share_node, 0, state_epoch=2, start_offset=0)
    changes = [written(0, state_epoch=epoch, leader_epoch=0, start_offset=5) for epoch in (2, 1)]
    assert codes(write(share_node, *changes)) == {0: "FENCED_STATE_EPOCH"}


def test_nothing_is_answered_where_a_name_or_a_partition_is_missing(share_node):
    assert initialize(share_node, 0, group="").results == []
    assert read(share_node, group="g").results == []
    assert delete(share_node, 0, group="").results == []
    assert summarize(share_node).results == []
    assert write(share_node).results == []
    # Kafka leaves such a topic out here.
    module = initialize_share_group_state
    topics = [
        module.InitializeStateData(topic_id=ZERO_UUID, partitions=[]),
        module.InitializeStateData(
            topic_id=topic_id(share_node), partitions=[module.PartitionData(partition=0, start_offset=-1)]
        ),
    ]
    request = module.InitializeShareGroupStateRequest(group_id="g", topics=topics)
    assert codes(share_node.ask(request, 0)) == {0: "NONE"}


def test_a_coordinator_that_is_not_there_is_told(node):
    node.create("t", 2)
    assert codes(initialize(node, 0, start_offset=0)) == {0: "NOT_COORDINATOR"}


# FindCoordinator


def test_a_key_finds_its_coordinator_and_the_topic_is_created(node):
    topic = node.create("t")
    response = find(node, f"g:{uuid_to_text(topic.topic_id)}:0", f"a:b:{uuid_to_text(topic.topic_id)}:7")
    assert [one.error_code for one in response.coordinators] == [0, 0]
    assert {one.node_id for one in response.coordinators} == {node.parts.node_id}
    created = node.machine.view.topics["__share_group_state"]
    assert (created.configs["cleanup.policy"], len(created.partitions)) == ("delete", 3)


def test_what_is_no_key_is_refused_and_creates_nothing(node):
    keys = ["", "g", "g:0", ":AAAAAAAAAAAAAAAAAAAAAA:0", "g:short:0", "g:AAAAAAAAAAAAAAAAAAAAAA:x"]
    response = find(node, *keys)
    assert [one.error_code for one in response.coordinators] == [ErrorCode.INVALID_REQUEST] * len(keys)
    assert not node.machine.view.topics


@pytest.mark.parametrize("version", [3, 5])
def test_versions_before_6_know_no_share_partitions(node, version):
    response = find(node, "g:AAAAAAAAAAAAAAAAAAAAAA:0", version=version)
    code = response.error_code if version < 4 else response.coordinators[0].error_code
    assert code == ErrorCode.INVALID_REQUEST
    assert not node.machine.view.topics


def test_a_key_is_read_from_its_end():
    text = "AAAAAAAAAAAAAAAAAAAAAQ"
    one = (1).to_bytes(16, "big")
    assert share_partition_key(f"a:b:{text}:3") == SharePartitionKey("a:b", one, 3)
    assert share_partition_key(f" g:{text}:-1") == SharePartitionKey(" g", one, -1)
    assert share_partition_key(f"g:{text}==:+1") == SharePartitionKey("g", one, 1)
    assert share_partition_key(f" \t:{text}:1") is None
    assert share_partition_key(f"g:{text}:2147483648") is None
    assert share_partition_key(f"g:{text}:") is None
    assert share_partition_key(f"g:{text}:3::") == SharePartitionKey("g", one, 3)
