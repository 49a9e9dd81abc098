"""FetchSnapshot: read a snapshot of the metadata log, piece by piece (KIP-630).

Version 1 brings the directory of the replica that fetches, and addresses of leaders in the answer (KIP-853).
"""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Array,
    Message,
    Records,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class SnapshotId(Struct):
    end_offset: int = on_wire(INT64)
    """Offset after the snapshot."""
    epoch: int = on_wire(INT32)
    """Leader epoch of the last record in it."""


@dataclass(slots=True, kw_only=True)
class PartitionSnapshot(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    current_leader_epoch: int = on_wire(INT32)
    """Epoch of the leader that the replica believes in, -1 if not known."""
    snapshot_id: SnapshotId = on_wire(SnapshotId)
    """Snapshot to read."""
    position: int = on_wire(INT64)
    """First byte of the snapshot that is wanted."""
    replica_directory_id: bytes = on_wire(UUID, since=1, tag=0, ignorable=True)
    """Id of the log directory of the replica."""


@dataclass(slots=True, kw_only=True)
class TopicSnapshot(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[PartitionSnapshot] = on_wire(Array(PartitionSnapshot))
    """Partitions to read snapshots of."""


@dataclass(slots=True, kw_only=True)
class FetchSnapshotRequest(Message, api_key=59, versions=(0, 1), flexible_since=0):
    cluster_id: str | None = on_wire(STRING, default=None, nullable=ALL, tag=0)
    """Cluster that the replica belongs to, null if it does not know."""
    replica_id: int = on_wire(INT32, default=-1)
    """Node that asks."""
    max_bytes: int = on_wire(INT32, default=0x7FFFFFFF)
    """The answer should hold no more than this of all snapshots."""
    topics: list[TopicSnapshot] = on_wire(Array(TopicSnapshot))
    """Topics with the partitions to read snapshots of."""


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32)
    """Node that leads, -1 if not known."""
    leader_epoch: int = on_wire(INT32)
    """Newest leader epoch that the answering node knows."""


@dataclass(slots=True, kw_only=True)
class SnapshotPiece(Struct):
    index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    snapshot_id: SnapshotId = on_wire(SnapshotId)
    """Snapshot that was read."""
    current_leader: LeaderIdAndEpoch | None = on_wire(LeaderIdAndEpoch, tag=0)
    """Leader to turn to; absent while the answering node is it."""
    size: int = on_wire(INT64)
    """Size of the whole snapshot in bytes."""
    position: int = on_wire(INT64)
    """Where in the snapshot the bytes begin."""
    unaligned_records: Records = on_wire(RECORDS)
    """Bytes of the snapshot. They may begin and end in the middle of a batch."""


@dataclass(slots=True, kw_only=True)
class TopicSnapshotPieces(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[SnapshotPiece] = on_wire(Array(SnapshotPiece))
    """One answer for each partition."""


@dataclass(slots=True, kw_only=True)
class NodeEndpoint(Struct):
    node_id: int = on_wire(INT32)
    """Id of the node."""
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(UINT16)
    """Port number."""


@dataclass(slots=True, kw_only=True)
class FetchSnapshotResponse(Message, api_key=59, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32, ignorable=True)
    """How long the replica is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """An error of the whole request, such as another cluster's id."""
    topics: list[TopicSnapshotPieces] = on_wire(Array(TopicSnapshotPieces))
    """One answer for each topic."""
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint), since=1, tag=0)
    """Addresses of the leaders that the answer names."""
