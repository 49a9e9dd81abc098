"""What Apache Kafka writes of a share group to `__consumer_offsets` is read and written again, byte for byte;
and its answers to members are those that the machine of tests/coordinator/share_transcripts gives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from compat_tests.broker_host import shared_host
from compat_tests.differential.conftest import SETTINGS
from compat_tests.differential.harness import Pauses, Side
from compat_tests.differential.topics import metadata_of
from compat_tests.reference import Kafka
from odradek.wire.messages import group_records
from odradek.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek.wire.records import batch_records, iter_whole_batches

SECONDS = 60


def until(ask: Callable[[], Any], done: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + SECONDS
    pause = Pauses()
    while not done(answer := ask()):
        assert time.monotonic() < deadline, answer
        pause()
    return answer


def test_the_records_of_a_share_group_are_those_of_kafka() -> None:
    with Kafka(properties=SETTINGS, host=shared_host()) as kafka:
        side = Side("kafka", kafka.bootstrap_servers)
        topic = CreatableTopic(name="in", num_partitions=3, replication_factor=1)
        side.ask(CreateTopicsRequest(topics=[topic]), 7)
        until(
            lambda: side.ask(metadata_of("in"), 12),
            lambda answer: [one.leader_id for one in answer.topics[0].partitions] == [1, 1, 1],
        )
        find = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
        until(lambda: side.ask(find, 6), lambda answer: answer.coordinators[0].error_code == 0)
        join = ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, rack_id="r", subscribed_topic_names=["in"]
        )
        joined = until(lambda: side.ask(join, 1), lambda answer: answer.error_code == 0)
        assert (joined.member_epoch, joined.assignment.topic_partitions) == (2, [])
        stay = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=2)
        told = until(lambda: side.ask(stay, 1), lambda answer: answer.member_epoch == 3)
        (assigned,) = told.assignment.topic_partitions
        assert sorted(assigned.partitions) == [0, 1, 2]
        (group,) = side.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1).groups
        assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 3, "simple")
        refused = side.ask(ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=9), 1)
        assert refused.error_message == (
            "The share group member has a greater member epoch (9) than the one known by the group "
            "coordinator (3). The member must abandon all its partitions and rejoin."
        )
        side.ask(ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1), 1)
        place = AlterShareGroupOffsetsRequestPartition(partition_index=1, start_offset=0)
        alter = AlterShareGroupOffsetsRequest(
            group_id="new", topics=[AlterShareGroupOffsetsRequestTopic(topic_name="in", partitions=[place])]
        )
        assert side.ask(alter, 0).responses[0].partitions[0].error_code == 0
        (deleted,) = side.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
        assert deleted.error_code == 0
        side.close()
        data = (kafka.data_dir / "__consumer_offsets-0" / f"{0:020}.log").read_bytes()
    seen: list[tuple[int, bool]] = []
    for position, header in iter_whole_batches(data):
        for record in batch_records(data, position, header):
            assert record.key is not None
            key = group_records.decode_key(bytes(record.key))
            assert group_records.encode_key(key) == record.key
            if not type(key).__name__.startswith("ShareGroup"):
                continue
            seen.append((key.record_type, record.value is None))
            if record.value is not None:
                value = group_records.decode_value(key, bytes(record.value))
                assert group_records.encode_value(value, 0) == record.value
    assert {number for number, _ in seen} == set(range(10, 16))
    # A new group, its states, its assignment; then the member and the group go.
    assert seen[:6] == [(10, False), (11, False), (13, False), (12, False), (14, False), (15, False)]
    assert seen[-4:] == [(15, False), (12, True), (15, True), (11, True)]
