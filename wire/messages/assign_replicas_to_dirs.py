"""AssignReplicasToDirs: a broker reports the log directories of its replicas to the controller (KIP-858)."""

from odradek.wire.schema import INT16, INT32, INT64, UUID, Array, Message, Struct, on_wire


class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""


class TopicData(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """Partitions whose replica is in the directory."""


class DirectoryData(Struct):
    id: bytes = on_wire(UUID)
    """Id of the directory."""
    topics: list[TopicData] = on_wire(Array(TopicData))
    """Topics with the partitions in the directory."""


class AssignReplicasToDirsRequest(Message, api_key=73, versions=(0, 0), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Broker that has the directories."""
    broker_epoch: int = on_wire(INT64, default=-1)
    """Epoch of this broker."""
    directories: list[DirectoryData] = on_wire(Array(DirectoryData))
    """Directories with the replicas in them."""


class AssignedPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


class AssignedTopic(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[AssignedPartition] = on_wire(Array(AssignedPartition))
    """One result for each partition."""


class AssignedDirectory(Struct):
    id: bytes = on_wire(UUID)
    """Id of the directory."""
    topics: list[AssignedTopic] = on_wire(Array(AssignedTopic))
    """One result for each topic."""


class AssignReplicasToDirsResponse(Message, api_key=73, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """An error of the whole request, such as an old broker epoch."""
    directories: list[AssignedDirectory] = on_wire(Array(AssignedDirectory))
    """One result for each directory."""
