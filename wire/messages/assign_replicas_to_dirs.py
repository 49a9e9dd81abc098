"""AssignReplicasToDirs: a broker reports the log directories of its replicas to the controller (KIP-858)."""

from dataclasses import dataclass

from odradek.wire.schema import INT16, INT32, INT64, UUID, Array, Message, Struct, on_wire


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class TopicData(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """Partitions whose replica is in the directory."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class DirectoryData(Struct):
    id: bytes = on_wire(UUID)
    """Id of the directory."""
    topics: list[TopicData] = on_wire(Array(TopicData))
    """Topics with the partitions in the directory."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class AssignReplicasToDirsRequest(Message, api_key=73, versions=(0, 0), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Broker that has the directories."""
    broker_epoch: int = on_wire(INT64, default=-1)
    """Epoch of this broker."""
    directories: list[DirectoryData] = on_wire(Array(DirectoryData))
    """Directories with the replicas in them."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class AssignedPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class AssignedTopic(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[AssignedPartition] = on_wire(Array(AssignedPartition))
    """One result for each partition."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class AssignedDirectory(Struct):
    id: bytes = on_wire(UUID)
    """Id of the directory."""
    topics: list[AssignedTopic] = on_wire(Array(AssignedTopic))
    """One result for each topic."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class AssignReplicasToDirsResponse(Message, api_key=73, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """An error of the whole request, such as an old broker epoch."""
    directories: list[AssignedDirectory] = on_wire(Array(AssignedDirectory))
    """One result for each directory."""
