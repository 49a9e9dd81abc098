"""RemoveRaftVoter (API 81)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    UUID,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class RemoveRaftVoterRequest(Message, api_key=81, versions=(0, 0), flexible_since=0):
    cluster_id: str | None = on_wire(STRING, nullable=ALL)
    voter_id: int = on_wire(INT32)
    voter_directory_id: bytes = on_wire(UUID)


@dataclass(slots=True, kw_only=True)
class RemoveRaftVoterResponse(Message, api_key=81, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL, ignorable=True)
