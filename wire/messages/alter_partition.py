"""AlterPartition: the leader of partitions requests new sets of in-sync replicas from the controller.

A leader sends it to the controller. Version 2 has topic ids, and an error for a replica that may not join
(KIP-841), 3 has broker epochs (KIP-903).
"""

from odradek.wire.schema import INT8, INT16, INT32, INT64, UUID, Array, Message, Struct, on_wire


class BrokerState(Struct):
    broker_id: int = on_wire(INT32)
    """A broker of the new set."""
    broker_epoch: int = on_wire(INT64, default=-1)
    """Epoch of this broker in its last fetch, -1 to skip the comparison."""


class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    leader_epoch: int = on_wire(INT32)
    """Leader epoch of the requesting leader; an older or newer one is refused."""
    new_isr: list[int] = on_wire(Array(INT32), until=2)
    """Wanted in-sync replicas; from version 3 on they come with their epochs."""
    new_isr_with_epochs: list[BrokerState] = on_wire(Array(BrokerState), since=3)
    """Wanted in-sync replicas."""
    leader_recovery_state: int = on_wire(INT8)
    """1 while the leader recovers from an unclean election, 0 otherwise."""
    partition_epoch: int = on_wire(INT32)
    """Epoch of the partition that the change is based on; any other one is refused."""


class TopicData(Struct):
    topic_id: bytes = on_wire(UUID, ignorable=True)
    """Id of the topic."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """Partitions to change."""


class AlterPartitionRequest(Message, api_key=56, versions=(2, 3), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Id of the requesting broker."""
    broker_epoch: int = on_wire(INT64, default=-1)
    """Epoch of this broker."""
    topics: list[TopicData] = on_wire(Array(TopicData))
    """Topics with the partitions to change."""


class AlteredPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    leader_id: int = on_wire(INT32)
    """Broker that leads now, -1 for none."""
    leader_epoch: int = on_wire(INT32)
    """Epoch of this leader."""
    isr: list[int] = on_wire(Array(INT32))
    """In-sync replicas after the change."""
    leader_recovery_state: int = on_wire(INT8, ignorable=True)
    """1 while the leader recovers from an unclean election, 0 otherwise."""
    partition_epoch: int = on_wire(INT32)
    """Epoch of the partition after the change."""


class AlteredTopic(Struct):
    topic_id: bytes = on_wire(UUID, ignorable=True)
    """Id of the topic."""
    partitions: list[AlteredPartition] = on_wire(Array(AlteredPartition))
    """One result for each partition."""


class AlterPartitionResponse(Message, api_key=56, versions=(2, 3), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """An error of the whole request, such as an old broker epoch."""
    topics: list[AlteredTopic] = on_wire(Array(AlteredTopic))
    """One result for each topic."""
