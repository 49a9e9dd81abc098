"""CreateTopics: create topics; version 5 tells the settings of what was created, 7 its id."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class CreatableReplicaAssignment(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    broker_ids: list[int] = on_wire(Array(INT32))
    """Brokers for the replicas, the preferred leader first."""


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfig(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    value: str | None = on_wire(STRING, nullable=ALL)
    """Value as text, null for the default."""


@dataclass(slots=True, kw_only=True)
class CreatableTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the new topic."""
    num_partitions: int = on_wire(INT32)
    """Number of partitions; -1 takes the broker's default."""
    replication_factor: int = on_wire(INT16)
    """Number of replicas; -1 takes the broker's default."""
    assignments: list[CreatableReplicaAssignment] = on_wire(Array(CreatableReplicaAssignment))
    """Brokers for each partition, when the client chooses; else the numbers of partitions and replicas count.
    """
    configs: list[CreatableTopicConfig] = on_wire(Array(CreatableTopicConfig))
    """Settings that differ from the broker's."""


@dataclass(slots=True, kw_only=True)
class CreateTopicsRequest(Message, api_key=19, versions=(0, 7), flexible_since=5):
    topics: list[CreatableTopic] = on_wire(Array(CreatableTopic))
    """Topics to create."""
    timeout_ms: int = on_wire(INT32, default=60000)
    """How long the broker may take."""
    validate_only: bool = on_wire(BOOL, since=1)
    """Whether to check only, and change nothing."""


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfigs(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    value: str | None = on_wire(STRING, nullable=ALL)
    """Value as text, null if it is a secret."""
    read_only: bool = on_wire(BOOL)
    """Whether the value cannot be altered while the broker runs."""
    config_source: int = on_wire(INT8, default=-1, ignorable=True)
    """Where the value comes from, numbered as in DescribeConfigs."""
    is_sensitive: bool = on_wire(BOOL)
    """Whether the value is a secret, which is not told."""


@dataclass(slots=True, kw_only=True)
class CreatableTopicResult(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    topic_id: bytes = on_wire(UUID, since=7, ignorable=True)
    """Id of the topic, zero if not known."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, since=1, nullable=ALL, ignorable=True)
    """More about the error, null if there is none."""
    topic_config_error_code: int = on_wire(INT16, since=5, tag=0, ignorable=True)
    """Why the settings are not told, while the topic was created all the same."""
    num_partitions: int = on_wire(INT32, since=5, default=-1, ignorable=True)
    """Number of partitions, -1 if not told."""
    replication_factor: int = on_wire(INT16, since=5, default=-1, ignorable=True)
    """Number of replicas, -1 if not told."""
    configs: list[CreatableTopicConfigs] | None = on_wire(
        Array(CreatableTopicConfigs), since=5, nullable=ALL, ignorable=True
    )
    """All settings of the new topic."""


@dataclass(slots=True, kw_only=True)
class CreateTopicsResponse(Message, api_key=19, versions=(0, 7), flexible_since=5):
    throttle_time_ms: int = on_wire(INT32, since=2, ignorable=True)
    """How long the client is asked to wait, as it used up a quota."""
    topics: list[CreatableTopicResult] = on_wire(Array(CreatableTopicResult))
    """One answer for each topic."""
