"""FindCoordinator (API 10)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    INT8,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class FindCoordinatorRequest(Message, api_key=10, versions=(0, 6), flexible_since=3):
    key: str = on_wire(STRING, until=3)
    key_type: int = on_wire(INT8, since=1)
    coordinator_keys: list[str] = on_wire(Array(STRING), since=4)


@dataclass(slots=True, kw_only=True)
class Coordinator(Struct):
    key: str = on_wire(STRING)
    node_id: int = on_wire(INT32)
    host: str = on_wire(STRING)
    port: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL, ignorable=True)


@dataclass(slots=True, kw_only=True)
class FindCoordinatorResponse(Message, api_key=10, versions=(0, 6), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    error_code: int = on_wire(INT16, until=3)
    error_message: str | None = on_wire(STRING, since=1, until=3, nullable=ALL, ignorable=True)
    node_id: int = on_wire(INT32, until=3)
    host: str = on_wire(STRING, until=3)
    port: int = on_wire(INT32, until=3)
    coordinators: list[Coordinator] = on_wire(Array(Coordinator), since=4)
