"""Rules for topics that need no state: legal names, name collisions, assigned replicas.

Rules and error codes are those of Kafka's Topic.java and ReplicationControlManager.java; the words are ours.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from odradek.coordinator.cluster.placement import Candidates, place_replicas
from odradek.wire.errors import ErrorCode, KafkaError

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The log of Kafka's controllers, which clients may not create; to them it is no internal topic."""
CLUSTER_METADATA_TOPIC_ID = bytes(15) + b"\1"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
OFFSETS_TOPIC_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.bytes": "104857600",
    "compression.type": "producer",
}
"""GroupCoordinatorService.groupMetadataTopicConfigs; `segment.bytes` is `offsets.topic.segment.bytes`."""
TRANSACTIONS_TOPIC_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "min.insync.replicas": "2",
    "segment.bytes": "104857600",
    "unclean.leader.election.enable": "false",
}
"""TransactionCoordinator.transactionStateTopicConfigs; `min.insync.replicas` is
`transaction.state.log.min.isr`, `segment.bytes` is `transaction.state.log.segment.bytes`."""
SHARE_STATE_TOPIC_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "min.insync.replicas": "2",
    "retention.ms": "-1",
    "segment.bytes": "104857600",
}
"""ShareCoordinatorService.shareGroupStateTopicConfigs; `min.insync.replicas` is
`share.coordinator.state.topic.min.isr`, `segment.bytes` is `share.coordinator.state.topic.segment.bytes`."""
MAX_NAME_LENGTH = 249
"""Leaves room for "-" and a partition number in a 255-byte file name."""
MAX_PARTITIONS_PER_REQUEST = 10_000
"""Bounds one transaction of the metadata store; Kafka refuses more in one request, too."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(slots=True, eq=False)
class NewTopic:
    """A topic to create. Without `assignments`, -1 stands for the broker's default."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """(partition, broker ids, the preferred leader first); then both numbers have to be -1."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class NewPartitions:
    """A topic to grow to `total_count` partitions; `assignments` (or None) has brokers for each new one."""

    name: str
    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


def is_legal(name: str) -> bool:
    """Whether `check_name` would let it pass."""
    return len(name) <= MAX_NAME_LENGTH and name not in {".", ".."} and bool(_LEGAL_NAME.fullmatch(name))


def check_name(name: str) -> None:
    """Refuse a name that Kafka would refuse (INVALID_TOPIC_EXCEPTION)."""
    if not name:
        reason = "it is empty"
    elif name in {".", ".."}:
        reason = f"{name!r} is a directory's name"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"{len(name)} characters are more than {MAX_NAME_LENGTH}"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = f"{name!r} has characters other than letters, digits, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Illegal topic name: {reason}.")


def collision_key(name: str) -> str:
    """Names with one key cannot live together: metric names turn '.' into '_'."""
    return name.replace(".", "_")


def replicas_of_new_topic(
    topic: NewTopic,
    topic_id: bytes,
    candidates: Candidates,
    default_partition_count: int,
    default_replication_factor: int,
) -> list[tuple[int, ...]]:
    """The replicas of each partition of a topic to create, or the refusal that Kafka gives."""
    if topic.assignments:
        return _manual_replicas(topic, candidates.assignable)
    partition_count, replication_factor = topic.partition_count, topic.replication_factor
    if replication_factor < -1 or replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {replication_factor} is neither positive nor -1 (the broker's default).",
        )
    if partition_count < -1 or partition_count == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Partition count {partition_count} is neither positive nor -1 (the broker's default).",
        )
    if partition_count == -1:
        partition_count = default_partition_count
    if replication_factor == -1:
        replication_factor = default_replication_factor
    check_partition_budget(partition_count)
    return place_replicas(candidates.usable, topic_id, 0, partition_count, replication_factor)


def check_partition_budget(partition_count: int) -> None:
    """Refuse (POLICY_VIOLATION) what is too much for one request."""
    if partition_count > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"One request may create {MAX_PARTITIONS_PER_REQUEST} partitions at most, not {partition_count}.",
        )


def _manual_replicas(topic: NewTopic, brokers: Collection[int]) -> list[tuple[int, ...]]:
    if topic.replication_factor != -1 or topic.partition_count != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "With an assignment of replicas, partition count and replication factor have to be -1.",
        )
    check_partition_budget(len(topic.assignments))
    placed: dict[int, tuple[int, ...]] = {}
    replication_factor = None
    for partition, replicas in topic.assignments:
        if partition in placed:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Partition {partition} is assigned more than once."
            )
        placed[partition] = check_manual_replicas(replicas, brokers, replication_factor)
        replication_factor = len(replicas)
    if sorted(placed) != list(range(len(placed))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The assigned partitions are not numbered 0, 1, 2 and so on.",
        )
    return [placed[partition] for partition in range(len(placed))]


def check_manual_replicas(
    replicas: Sequence[int], brokers: Collection[int], replication_factor: int | None
) -> tuple[int, ...]:
    """Refuse (INVALID_REPLICA_ASSIGNMENT) an empty list, a stranger, a double, or too many or few."""
    if not replicas:
        reason = "a partition has no replica"
    elif strangers := [broker for broker in replicas if broker not in brokers]:
        reason = f"broker {strangers[0]} is not registered or takes no replicas"
    elif len(set(replicas)) != len(replicas):
        reason = f"a broker is named twice in {list(replicas)}"
    elif replication_factor is not None and len(replicas) != replication_factor:
        reason = f"{len(replicas)} replica(s) where the other partitions have {replication_factor}"
    else:
        return tuple(replicas)
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Bad assignment of replicas: {reason}.")
