"""AddRaftVoter: make a node a voter of the metadata quorum."""

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


class Listener(Struct):
    name: str = on_wire(STRING)
    """Name of the listener."""
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(UINT16)
    """Port number."""


class AddRaftVoterRequest(Message, api_key=80, versions=(0, 1), flexible_since=0):
    cluster_id: str | None = on_wire(STRING, nullable=ALL)
    """Id of the cluster."""
    timeout_ms: int = on_wire(INT32)
    """Time-out of the operation in ms."""
    voter_id: int = on_wire(INT32)
    """Id of the voter."""
    voter_directory_id: bytes = on_wire(UUID)
    """Id of the voter's log directory."""
    listeners: list[Listener] = on_wire(Array(Listener))
    """Addresses of the node."""
    ack_when_committed: bool = on_wire(BOOL, since=1, default=True)
    """Whether to answer only once the new set of voters is committed."""


class AddRaftVoterResponse(Message, api_key=80, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL, ignorable=True)
    """Message of the error, null for none."""
