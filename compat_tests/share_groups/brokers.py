"""The settings of the brokers of these tests, of their groups, and what is asked by single requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from compat_tests.clients import Message, wait_until
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.differential.harness import Side
from compat_tests.stories import topic_name
from odradek.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

GROUP = 32
"""The type of the resources whose settings are those of groups."""

SETTINGS = {
    "group.share.assignment.interval.ms": 0,
    "group.share.min.heartbeat.interval.ms": 300,
    "group.share.heartbeat.interval.ms": 300,
    "group.share.min.session.timeout.ms": 3000,
    "group.share.min.record.lock.duration.ms": 1000,
    "share.coordinator.state.topic.num.partitions": 3,
}
"""Members know of their partitions soon, and a test may have short locks."""


class Place(NamedTuple):
    """Where a group is in a partition; -1: not known."""

    start: int
    lag: int


@contextmanager
def asking(bootstrap: str) -> Iterator[Side]:
    side = Side("broker", bootstrap)
    try:
        yield side
    finally:
        side.close()


def set_up_group(bootstrap: str, settings: Mapping[str, str] | None = None) -> str:
    """The name of a new group, which begins at the earliest record unless it is set otherwise."""
    group = topic_name("share-group")
    alter_group(bootstrap, group, {"share.auto.offset.reset": "earliest", **(settings or {})})
    return group


def alter_group(bootstrap: str, group: str, settings: Mapping[str, str]) -> None:
    configs = [
        AlterableConfig(name=name, config_operation=0, value=value) for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    with asking(bootstrap) as side:
        (answer,) = side.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer


def new_topic(bootstrap: str, count: int = 0, partitions: int = 1) -> str:
    """A new topic with so many records, whose values are their numbers, one after the other over the
    partitions."""
    topic = topic_name("shared")
    ConfluentClient(bootstrap).create_topic(topic, partitions)
    if count:
        produce(bootstrap, topic, range(count), partitions)
    return topic


def produce(bootstrap: str, topic: str, numbers: range, partitions: int = 1) -> list[tuple[int, int]]:
    """Partition and offset of each record."""
    messages = [Message(b"%d" % number, partition=number % partitions) for number in numbers]
    return ConfluentClient(bootstrap).produce(topic, messages)


def places(bootstrap: str, group: str, topic: str, partitions: int = 1) -> list[Place]:
    """Where the group is in each partition of the topic."""
    asked = DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(range(partitions)))
    named = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=[asked])
    with asking(bootstrap) as side:
        (answer,) = side.ask(DescribeShareGroupOffsetsRequest(groups=[named]), 1).groups
    assert answer.error_code == 0, answer
    found = {one.partition_index: one for told in answer.topics for one in told.partitions}
    return [Place(found[index].start_offset, found[index].lag) for index in range(partitions)]


def wait_until_done(bootstrap: str, group: str, topic: str, partitions: int = 1) -> None:
    """Until the group has no record of the topic left. (Where it begins is told when it next changes.)"""
    wait_until(
        lambda: {one.lag for one in places(bootstrap, group, topic, partitions)} == {0},
        "the group is done with every record",
        seconds=20,
    )
