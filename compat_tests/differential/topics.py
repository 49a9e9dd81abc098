"""Topics that exist on both sides, made the same way."""

from __future__ import annotations

import itertools
import time
from typing import Any

from compat_tests.differential.harness import Pair, Side
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

NOW_MS = int(time.time() * 1000) - 600_000
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
        deadline = time.monotonic() + 30
        while not _led(found := side.ask(metadata_of(name), 12)):
            assert time.monotonic() < deadline, (side.name, found)
            time.sleep(0.02)
        side.remember(f"id of {name}", found.topics[0].topic_id)
    return name


def id_of(side: Side, topic: str) -> bytes:
    value = side[f"id of {topic}"]
    assert isinstance(value, bytes)
    return value
