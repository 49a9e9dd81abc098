"""Changes of the cluster's metadata, as requests want them, their results, and checks that need no state.

The `Controller` uses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from odradek.coordinator.cluster.features import CORDONS_SINCE, METADATA_VERSION, knows_cordons
from odradek.coordinator.cluster.view import TopicView
from odradek.wire.errors import ErrorCode, KafkaError

PRODUCER_ID_BLOCK_SIZE = 1000
MIN_INSYNC_REPLICAS = "min.insync.replicas"
CORDONED_LOG_DIRS = "cordoned.log.dirs"
NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
_COMMA = re.compile(r"\s*,\s*")


@dataclass(frozen=True, slots=True, eq=False)
class TopicDefaults:
    partition_count: int = 1
    """`num.partitions`"""
    replication_factor: int = 1
    """`default.replication.factor`"""
    min_insync_replicas: int = 1
    """`min.insync.replicas`, as it was given at start."""


DEFAULTS = TopicDefaults()


@dataclass(slots=True, eq=False)
class TopicResult:
    """The outcome for one topic: the topic as it is now (validated only: as it would be), or the refusal."""

    name: str
    topic: TopicView | None = None
    error: KafkaError | None = None


class GroupOwner(NamedTuple):
    """A group, where topics are named by their names alone."""

    group_id: str


class ClientMetricsOwner(NamedTuple):
    """A subscription to client metrics."""

    name: str


Owner = str | GroupOwner | ClientMetricsOwner | int | None
"""Owner of settings: a topic by its name, a group, a subscription, a broker by its id, or None for all
brokers."""


@dataclass(frozen=True, slots=True, eq=False)
class ConfigChange:
    """Change of one owner's overrides."""

    owner: Owner
    change: Callable[[Mapping[str, str]], Mapping[str, str]]
    """Takes the present overrides, returns the new ones; may refuse."""
    names: Collection[str] = ()
    """The settings that are named, also those that stay as they are."""
    is_direct: bool = False
    """Whether a client has asked a controller, and no broker has checked the values."""


ConfigCheck = Callable[[str, Mapping[str, str]], None]
"""Takes a topic's name, a group's id or a broker's id as text and all overrides that it would have; may
refuse."""


def accept_configs(name: str, configs: Mapping[str, str]) -> None:
    """No check: for those who have no settings to check against."""


Charge = Callable[[int], None]
"""Takes a number of partitions that are made or deleted; may refuse."""


def free(partitions: int) -> None:
    """For callers without a quota."""


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """New values, then (None) the keys that are no longer set."""
    yield from ((key, value) for key, value in after.items() if before.get(key) != value)
    yield from ((key, None) for key in before if key not in after)


def check_cordons_are_known(features: Mapping[str, int]) -> None:
    if not knows_cordons(features):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{CORDONED_LOG_DIRS} needs {METADATA_VERSION} {CORDONS_SINCE} or later.",
        )


def check_cordons_are_fewer(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """For a change that no broker has seen: a controller does not know the directories, so what it was told
    before counts. Kafka's words."""
    if not (wanted := after.get(CORDONED_LOG_DIRS, "").strip()):
        return
    if not set(_COMMA.split(wanted)) <= set(_COMMA.split(before.get(CORDONED_LOG_DIRS, "").strip())):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"When updating {CORDONED_LOG_DIRS} via controllers, the new value must be a subset of the "
            "current configuration value.",
        )


def check_min_insync_replicas(
    change: ConfigChange, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """With eligible leader replicas it is one setting for all brokers, and always there. Kafka's words."""
    refusal = None
    if change.owner is not None and MIN_INSYNC_REPLICAS in change.names:
        refusal = f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
    elif change.owner is None and MIN_INSYNC_REPLICAS in before and MIN_INSYNC_REPLICAS not in after:
        refusal = f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
    if refusal is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, refusal)


def without_nulls(configs: Mapping[str, str | None]) -> dict[str, str]:
    nulls = sorted(key for key, value in configs.items() if value is None)
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"A topic's setting cannot be created as null: {', '.join(nulls)}."
        )
    return {key: value for key, value in configs.items() if value is not None}


def unknown_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")
