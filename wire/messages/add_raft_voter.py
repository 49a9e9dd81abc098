"""AddRaftVoter (API 80)."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class Listener(Struct):
    name: str = on_wire(STRING)
    host: str = on_wire(STRING)
    port: int = on_wire(UINT16)


@dataclass(slots=True, kw_only=True)
class AddRaftVoterRequest(Message, api_key=80, versions=(0, 1), flexible_since=0):
    cluster_id: str | None = on_wire(STRING, nullable=ALL)
    timeout_ms: int = on_wire(INT32)
    voter_id: int = on_wire(INT32)
    voter_directory_id: bytes = on_wire(UUID)
    listeners: list[Listener] = on_wire(Array(Listener))
    ack_when_committed: bool = on_wire(BOOL, since=1, default=True)


@dataclass(slots=True, kw_only=True)
class AddRaftVoterResponse(Message, api_key=80, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL, ignorable=True)
