"""FetchSnapshot: read a snapshot of the metadata log in parts (KIP-630).

Version 1 adds the directory of the fetching replica, and addresses of leaders (KIP-853).
"""

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


class SnapshotId(Struct):
    end_offset: int = on_wire(INT64)
    """Offset after the snapshot."""
    epoch: int = on_wire(INT32)
    """Leader epoch of the last record in it."""


class PartitionSnapshot(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    current_leader_epoch: int = on_wire(INT32)
    """The replica's leader epoch, -1 if not known."""
    snapshot_id: SnapshotId = on_wire(SnapshotId)
    """Snapshot to read."""
    position: int = on_wire(INT64)
    """Position of the first requested byte of the snapshot."""
    replica_directory_id: bytes = on_wire(UUID, since=1, tag=0, ignorable=True)
    """Id of the log directory of the replica."""


class TopicSnapshot(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[PartitionSnapshot] = on_wire(Array(PartitionSnapshot))
    """Partitions to read snapshots of."""


class FetchSnapshotRequest(Message, api_key=59, versions=(0, 1), flexible_since=0):
    cluster_id: str | None = on_wire(STRING, default=None, nullable=ALL, tag=0)
    """Cluster of the replica, null if not known."""
    replica_id: int = on_wire(INT32, default=-1)
    """Id of the requesting node."""
    max_bytes: int = on_wire(INT32, default=0x7FFFFFFF)
    """The limit of bytes of all snapshots in the response."""
    topics: list[TopicSnapshot] = on_wire(Array(TopicSnapshot))
    """Topics with the partitions to read snapshots of."""


class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32)
    """Node that leads, -1 if not known."""
    leader_epoch: int = on_wire(INT32)
    """Newest leader epoch of the responding node."""


class SnapshotPiece(Struct):
    index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    snapshot_id: SnapshotId = on_wire(SnapshotId)
    """Snapshot that was read."""
    current_leader: LeaderIdAndEpoch | None = on_wire(LeaderIdAndEpoch, tag=0)
    """The current leader; absent if the responding node leads."""
    size: int = on_wire(INT64)
    """Size of the whole snapshot in bytes."""
    position: int = on_wire(INT64)
    """Position of the bytes in the snapshot."""
    unaligned_records: Records = on_wire(RECORDS)
    """Bytes of the snapshot. They may begin and end in the middle of a batch."""


class TopicSnapshotPieces(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[SnapshotPiece] = on_wire(Array(SnapshotPiece))
    """One result for each partition."""


class NodeEndpoint(Struct):
    node_id: int = on_wire(INT32)
    """Id of the node."""
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(UINT16)
    """Port number."""


class FetchSnapshotResponse(Message, api_key=59, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """An error of the whole request, such as another cluster's id."""
    topics: list[TopicSnapshotPieces] = on_wire(Array(TopicSnapshotPieces))
    """One result for each topic."""
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint), since=1, tag=0)
    """Addresses of the leaders in this response."""
