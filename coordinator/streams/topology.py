"""The topology of a Kafka Streams application, compared with the existing topics (KIP-1071).

A topology is a `StreamsGroupTopologyValue`, as a member brings it and as the log keeps it: subtopologies,
each with the topics that it reads, writes and keeps its state in. `configure` decides how many partitions
internal topics have, which of them have to be created, how many tasks each subtopology has, and what is
missing (`Status`). Functions of values: no group, no time.

Source: the package streams.topics of Kafka's group coordinator, release 4.3. Where that raises for a
topology (a subtopology twice, an index out of range) this refuses it with STREAMS_INVALID_TOPOLOGY; so it
does one of more than TASKS_MAX tasks, which Kafka does not bound. Patterns of source topics are refused
before, as in Kafka 4.3.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.cluster.view import TopicView
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.group_records import (
    StreamsGroupTopologyValue,
    Subtopology,
    TopicInfo,
)
from odradek.wire.messages.streams_group_heartbeat import Status

TASKS_MAX = 20_000
"""Tasks of one topology: to assign them takes half a second, in which no other request is served."""
NAMES_SHOWN = 3
BROKER_DEFAULT = -1
_NOTHING_DECIDED: Mapping[str, int] = {}


class StatusCode(enum.IntEnum):
    """The status of a group, sent with the tasks, as StreamsGroupHeartbeatResponse numbers it."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology whose topics' numbers of partitions are decided."""

    task_count: int
    """One for each partition of the widest topic that it reads."""
    source_topics: tuple[str, ...]
    """All that it reads, internal ones too."""
    is_stateful: bool
    described: Subtopology
    """Form in which the group is described: internal topics have their number of partitions."""


def _nothing() -> Mapping[Any, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """Result of a topology, at one state of the cluster."""

    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """By id, in order; None when a source topic is missing or numbers of partitions do not fit."""
    topics_to_create: Mapping[str, NewTopic] = field(default_factory=_nothing)
    problem: Status | None = None
    """Why there can be no tasks yet. Not to be changed: responses have it."""

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _Problem(Exception):
    """The topology itself is sound; its topics have to be created or changed."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(status_code=code, status_detail=detail)


Topics = Mapping[str, TopicView]
CountOf = Callable[[str], int | None]
"""Number of partitions of a topic, None while it is not known."""


# Questions about a topology alone


def check_topology(topology: StreamsGroupTopologyValue) -> None:
    """Refuse what no application can mean (STREAMS_INVALID_TOPOLOGY)."""
    if has_doubles(subtopology.subtopology_id for subtopology in topology.subtopologies):
        raise _invalid("Two subtopologies have the same id.")
    for subtopology in topology.subtopologies:
        sources, repartitions = subtopology.source_topics, subtopology.repartition_source_topics
        for topics in (repartitions, subtopology.state_changelog_topics):
            if has_doubles(topic.name for topic in topics):
                raise _invalid(f"Subtopology {subtopology.subtopology_id} names an internal topic twice.")
            if any(has_doubles(config.key for config in topic.topic_configs) for topic in topics):
                raise _invalid("A setting of an internal topic is named twice.")
        if any(topic.partitions < 0 for topic in repartitions):
            raise _invalid("A topic has a negative number of partitions.")
        for group in subtopology.copartition_groups:
            if not _are_indexes(group.source_topics, sources) or not _are_indexes(
                group.repartition_source_topics, repartitions
            ):
                raise _invalid(
                    f"A copartition group of subtopology {subtopology.subtopology_id} has no such topic."
                )


def has_doubles(names: Iterable[str]) -> bool:
    """Whether any of them comes twice."""
    names = list(names)
    return len(set(names)) < len(names)


def is_same_topology(one: StreamsGroupTopologyValue, other: StreamsGroupTopologyValue) -> bool:
    """Whether two are equal; the order of subtopologies says nothing."""
    return one.epoch == other.epoch and _by_id(one) == _by_id(other)


def required_topics(topology: StreamsGroupTopologyValue) -> frozenset[str]:
    """Every topic that has to be there."""
    names: set[str] = set()
    for subtopology in topology.subtopologies:
        names.update(_sources(subtopology))
        names.update(topic.name for topic in subtopology.state_changelog_topics)
    return frozenset(names)


def subtopology_by_source(topology: StreamsGroupTopologyValue) -> dict[str, str]:
    """The id of the subtopology that reads a topic, by the topic's name."""
    return {
        name: subtopology.subtopology_id
        for subtopology in topology.subtopologies
        for name in _sources(subtopology)
    }


# Configuration


def configure(topology: StreamsGroupTopologyValue, topics: Topics) -> ConfiguredTopology:
    """Hold a topology against the topics of a cluster.

    Refuses with STREAMS_INVALID_TOPOLOGY what cannot be put right by making topics.
    """
    try:
        _check_sources(topology, topics)
        decided = _decide_counts(topology, topics)
        subtopologies = {
            subtopology_id: _configured(subtopology, _count_of(topics, decided), decided)
            for subtopology_id, subtopology in sorted(_by_id(topology).items())
        }
        missing = _missing_topics(subtopologies.values(), topics)
    except _Problem as problem:
        return ConfiguredTopology(None, problem=problem.status)
    if sum(subtopology.task_count for subtopology in subtopologies.values()) > TASKS_MAX:
        raise _invalid(f"The topology has more than {TASKS_MAX} tasks.")
    if not missing:
        return ConfiguredTopology(subtopologies)
    status = Status(
        status_code=StatusCode.MISSING_INTERNAL_TOPICS,
        status_detail=f"Internal topics are missing: {_summary(missing)}",
    )
    return ConfiguredTopology(subtopologies, missing, status)


def _check_sources(topology: StreamsGroupTopologyValue, topics: Topics) -> None:
    missing = {
        name
        for subtopology in topology.subtopologies
        for name in subtopology.source_topics
        if name not in topics
    }
    if missing:
        detail = f"Source topics {_summary(missing)} are missing."
        raise _Problem(StatusCode.MISSING_SOURCE_TOPICS, detail)


def _decide_counts(topology: StreamsGroupTopologyValue, topics: Topics) -> dict[str, int]:
    """Numbers of partitions of the internal topics, by name; a topic that exists keeps its own meanwhile."""
    decided = _repartition_counts(topology, _count_of(topics, {}))
    repartition_topics = {
        topic.name: topic
        for subtopology in topology.subtopologies
        for topic in subtopology.repartition_source_topics
    }
    count_of = _count_of(topics, decided)
    for subtopology in topology.subtopologies:
        for group in subtopology.copartition_groups:
            names = {subtopology.source_topics[index] for index in group.source_topics}
            names |= {
                subtopology.repartition_source_topics[index].name for index in group.repartition_source_topics
            }
            decided.update(_copartitioned(names, repartition_topics, count_of))
    for subtopology in topology.subtopologies:
        count = _most_partitions(_sources(subtopology), count_of)
        if count is None:
            raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
        decided.update((topic.name, count) for topic in subtopology.state_changelog_topics)
    return decided


def _repartition_counts(topology: StreamsGroupTopologyValue, count_of: CountOf) -> dict[str, int]:
    """A repartition topic without a number has as many partitions as the largest source of its writers."""
    counts = {
        topic.name: topic.partitions
        for subtopology in topology.subtopologies
        for topic in subtopology.repartition_source_topics
        if topic.partitions
    }
    open_sinks = [
        (subtopology, name)
        for subtopology in topology.subtopologies
        for name in subtopology.repartition_sink_topics
        if name not in counts
    ]
    while open_sinks:
        still_open = []
        for subtopology, name in open_sinks:
            if name in counts:
                continue
            count = _most_partitions(subtopology.source_topics, count_of)
            known = _most_partitions(
                (topic.name for topic in subtopology.repartition_source_topics), counts.get
            )
            if count is None and known is None:
                still_open.append((subtopology, name))
            else:
                counts[name] = max(count or 0, known or 0)
        if len(still_open) == len(open_sinks):
            raise _invalid(
                f"The topology runs in circles: nothing says how wide {open_sinks[0][1]} is to be."
            )
        open_sinks = still_open
    for subtopology in topology.subtopologies:
        for topic in subtopology.repartition_source_topics:
            if topic.name not in counts:
                raise _invalid(f"Nothing writes to the repartition topic {topic.name}.")
    return counts


def _copartitioned(
    names: Collection[str], repartition_topics: Mapping[str, TopicInfo], count_of: CountOf
) -> dict[str, int]:
    """The partitions of the repartition topics in a group of joined topics, by name."""
    counts: dict[str, int] = {}
    for name in names:
        count = count_of(name)
        if count is None:
            raise _invalid(f"Number of partitions is not set for topic: {name}")
        counts[name] = count
    internal = {name: count for name, count in counts.items() if name in repartition_topics}
    fixed = {name: count for name, count in internal.items() if repartition_topics[name].partitions}
    leading = {name: count for name, count in counts.items() if name not in internal} or fixed or internal
    if not leading:
        return {}
    if leading is not internal and len(set(leading.values())) > 1:
        shown = ", ".join(f"{name}={count}" for name, count in sorted(leading.items()))
        detail = f"Following topics do not have the same number of partitions: [{{{shown}}}]"
        raise _Problem(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    wanted = max(leading.values())
    for name, count in sorted(fixed.items()):
        if count != wanted:
            raise _Problem(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{count}] of repartition topic [{name}] doesn't match number of "
                f"partitions [{wanted}] of the source topic.",
            )
    return dict.fromkeys(internal, wanted)


def _configured(
    subtopology: Subtopology, count_of: CountOf, decided: Mapping[str, int]
) -> ConfiguredSubtopology:
    sources = tuple(dict.fromkeys(_sources(subtopology)))
    count = _most_partitions(sources, count_of)
    assert count is not None  # every source was asked for before
    return ConfiguredSubtopology(
        task_count=count,
        source_topics=sources,
        is_stateful=bool(subtopology.state_changelog_topics),
        described=described(subtopology, decided),
    )


def described(subtopology: Subtopology, decided: Mapping[str, int] = _NOTHING_DECIDED) -> Subtopology:
    """The same in order of names, with the numbers of partitions that were decided."""
    return replace(
        subtopology,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=_sized(subtopology.state_changelog_topics, decided),
        repartition_source_topics=_sized(subtopology.repartition_source_topics, decided),
    )


def _sized(infos: Iterable[TopicInfo], decided: Mapping[str, int]) -> list[TopicInfo]:
    sized = [replace(info, partitions=info.partitions or decided.get(info.name, 0)) for info in infos]
    return sorted(sized, key=lambda info: info.name)


def _missing_topics(subtopologies: Iterable[ConfiguredSubtopology], topics: Topics) -> dict[str, NewTopic]:
    """The internal topics that are not there; those that are have to have the right number of partitions."""
    missing: dict[str, NewTopic] = {}
    for subtopology in subtopologies:
        described = subtopology.described
        for info in (*described.repartition_source_topics, *described.state_changelog_topics):
            topic = topics.get(info.name)
            if topic is None:
                missing[info.name] = _new_topic(info)
            elif len(topic.partitions) != info.partitions:
                raise _Problem(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {info.name} has different number of partitions: expected "
                    f"{info.partitions}, found {len(topic.partitions)}",
                )
    return missing


def _new_topic(info: TopicInfo) -> NewTopic:
    return NewTopic(
        info.name,
        info.partitions,
        info.replication_factor or BROKER_DEFAULT,
        configs={config.key: config.value for config in info.topic_configs},
    )


# Small things


def _sources(subtopology: Subtopology) -> Iterator[str]:
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def _by_id(topology: StreamsGroupTopologyValue) -> dict[str, Subtopology]:
    return {subtopology.subtopology_id: subtopology for subtopology in topology.subtopologies}


def _are_indexes(indexes: Iterable[int], of: Collection[Any]) -> bool:
    return all(0 <= index < len(of) for index in indexes)


def _count_of(topics: Topics, decided: Mapping[str, int]) -> CountOf:
    """Partitions that exist count, whatever was decided."""

    def count_of(name: str) -> int | None:
        topic = topics.get(name)
        return decided.get(name) if topic is None else len(topic.partitions)

    return count_of


def _most_partitions(names: Iterable[str], count_of: CountOf) -> int | None:
    return max((count for name in names if (count := count_of(name)) is not None), default=None)


def _summary(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} additional topics" if more > 0 else shown


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)
