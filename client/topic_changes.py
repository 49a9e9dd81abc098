"""Creates topics, and adds partitions to them."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.client.client_error import error_of, refusal
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.schema import Message

__all__ = ["create_topic", "grow_topic"]

_TIMEOUT_MS = 30_000


def create_topic(
    cluster: Cluster,
    topic: str,
    partitions: int,
    settings: Mapping[str, str],
    *,
    only_validate: bool = False,
    doing: str | None = None,
) -> None:
    """Creates a topic with the brokers' default replication factor; an existing topic stays as it is.

    `only_validate` only checks the request. ClientError for a refusal; `doing` begins its sentence.
    """
    wanted = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS, validate_only=only_validate)
    (answer,) = cluster.ask(_controller(cluster), request).topics
    if answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise refusal(doing or f"creating topic {topic}", error_of(answer.error_code), answer.error_message)


def grow_topic(cluster: Cluster, topic: str, partitions: int) -> None:
    """Increases the partitions of a topic to a number; ClientError for a refusal."""
    wanted = CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
    request: Message = CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS, validate_only=False)
    (answer,) = cluster.ask(_controller(cluster), request).results
    if answer.error_code != ErrorCode.NONE:
        doing = f"giving topic {topic} {partitions} partitions"
        raise refusal(doing, error_of(answer.error_code), answer.error_message)


def _controller(cluster: Cluster) -> int:
    controller: int = cluster.ask(ANY_NODE, MetadataRequest(topics=[])).controller_id
    return controller if controller >= 0 else ANY_NODE
