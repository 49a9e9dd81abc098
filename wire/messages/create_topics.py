"""CreateTopics: create topics; version 5 returns the settings of the new topics, 7 their ids."""

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


class CreatableReplicaAssignment(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    broker_ids: list[int] = on_wire(Array(INT32))
    """Brokers for the replicas, the preferred leader first."""


class CreatableTopicConfig(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    value: str | None = on_wire(STRING, nullable=ALL)
    """Value as text, null for the default."""


class CreatableTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the new topic."""
    num_partitions: int = on_wire(INT32)
    """Number of partitions; -1 takes the broker's default."""
    replication_factor: int = on_wire(INT16)
    """Number of replicas; -1 takes the broker's default."""
    assignments: list[CreatableReplicaAssignment] = on_wire(Array(CreatableReplicaAssignment))
    """Brokers for each partition, chosen by the client; else the numbers of partitions and replicas count.
    """
    configs: list[CreatableTopicConfig] = on_wire(Array(CreatableTopicConfig))
    """Settings that differ from the broker's."""


class CreateTopicsRequest(Message, api_key=19, versions=(0, 7), flexible_since=5):
    topics: list[CreatableTopic] = on_wire(Array(CreatableTopic))
    """Topics to create."""
    timeout_ms: int = on_wire(INT32, default=60000)
    """Time-out of the operation in ms."""
    validate_only: bool = on_wire(BOOL, since=1)
    """Whether to validate only, without a change."""


class CreatableTopicConfigs(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    value: str | None = on_wire(STRING, nullable=ALL)
    """Value as text, null if it is a secret."""
    read_only: bool = on_wire(BOOL)
    """Whether the value cannot be altered while the broker runs."""
    config_source: int = on_wire(INT8, default=-1, ignorable=True)
    """Source of the value, numbered as in DescribeConfigs."""
    is_sensitive: bool = on_wire(BOOL)
    """Whether the value is a secret, which is not returned."""


class CreatableTopicResult(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    topic_id: bytes = on_wire(UUID, since=7, ignorable=True)
    """Id of the topic, zero if not known."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, since=1, nullable=ALL, ignorable=True)
    """Message of the error, null for none."""
    topic_config_error_code: int = on_wire(INT16, since=5, tag=0, ignorable=True)
    """Error code why the settings are not returned, although the topic was created."""
    num_partitions: int = on_wire(INT32, since=5, default=-1, ignorable=True)
    """Number of partitions, -1 if not known."""
    replication_factor: int = on_wire(INT16, since=5, default=-1, ignorable=True)
    """Number of replicas, -1 if not known."""
    configs: list[CreatableTopicConfigs] | None = on_wire(
        Array(CreatableTopicConfigs), since=5, nullable=ALL, ignorable=True
    )
    """All settings of the new topic."""


class CreateTopicsResponse(Message, api_key=19, versions=(0, 7), flexible_since=5):
    throttle_time_ms: int = on_wire(INT32, since=2, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    topics: list[CreatableTopicResult] = on_wire(Array(CreatableTopicResult))
    """One result for each topic."""
