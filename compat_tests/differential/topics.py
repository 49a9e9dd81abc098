"""Topics that exist on both sides, made the same way."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from compat_tests.differential.harness import SECONDS, STARTED_MS, Pair, Pauses, Side
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.schema import Message

NOW_MS = STARTED_MS - 600_000
"""Timestamps of records: the same bytes go to both, and retention leaves them alone."""

_numbers = itertools.count()


def metadata_of(*names: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )


def _led(answer: Any) -> bool:
    return all(
        topic.error_code == 0 and all(p.error_code == 0 and p.leader_id >= 0 for p in topic.partitions)
        for topic in answer.topics
    )


def _ask_until(side: Side, request: Message, version: int, done: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + SECONDS
    pause = Pauses()
    while not done(answer := side.ask(request, version)):
        assert time.monotonic() < deadline, (side.name, answer)
        pause()
    return answer


def _readable(answer: Any) -> bool:
    return all(partition.error_code == 0 for partition in answer.topics[0].partitions)


def _end_offsets(name: str, partitions: int) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])


def new_topic(pair: Pair, prefix: str, partitions: int = 1, **settings: str) -> str:
    """A topic of the same name on both sides, with its id remembered as `id of NAME`."""
    name = f"{prefix}-{next(_numbers)}"
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()
    ]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    for side in pair.sides:
        answer = side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 2)
        assert answer.topics[0].error_code == 0, (side.name, answer)
        side.remember(f"id of {name}", wait_until_readable(side, name, partitions).topics[0].topic_id)
    return name


def wait_until_readable(side: Side, name: str, partitions: int) -> Any:
    """Returns the Metadata. Kafka's names a leader a little before that one has opened its logs."""
    found = _ask_until(side, metadata_of(name), 12, _led)
    _ask_until(side, _end_offsets(name, partitions), 5, _readable)
    return found


def id_of(side: Side, topic: str) -> bytes:
    value = side[f"id of {topic}"]
    assert isinstance(value, bytes)
    return value
