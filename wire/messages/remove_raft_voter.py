"""RemoveRaftVoter: remove a voter from the metadata quorum."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    UUID,
    Message,
    on_wire,
)


class RemoveRaftVoterRequest(Message, api_key=81, versions=(0, 0), flexible_since=0):
    cluster_id: str | None = on_wire(STRING, nullable=ALL)
    """Id of the cluster."""
    voter_id: int = on_wire(INT32)
    """Id of the voter."""
    voter_directory_id: bytes = on_wire(UUID)
    """Id of the voter's log directory."""


class RemoveRaftVoterResponse(Message, api_key=81, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL, ignorable=True)
    """Message of the error, null for none."""
