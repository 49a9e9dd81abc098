"""AlterClientQuotas (API 49)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    FLOAT64,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class EntityData(Struct):
    entity_type: str = on_wire(STRING)
    entity_name: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class OpData(Struct):
    key: str = on_wire(STRING)
    value: float = on_wire(FLOAT64)
    remove: bool = on_wire(BOOL)


@dataclass(slots=True, kw_only=True)
class EntryData(Struct):
    entity: list[EntityData] = on_wire(Array(EntityData))
    ops: list[OpData] = on_wire(Array(OpData))


@dataclass(slots=True, kw_only=True)
class AlterClientQuotasRequest(Message, api_key=49, versions=(0, 1), flexible_since=1):
    entries: list[EntryData] = on_wire(Array(EntryData))
    validate_only: bool = on_wire(BOOL)


@dataclass(slots=True, kw_only=True)
class EntryDataResult(Struct):
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    entity: list[EntityData] = on_wire(Array(EntityData))


@dataclass(slots=True, kw_only=True)
class AlterClientQuotasResponse(Message, api_key=49, versions=(0, 1), flexible_since=1):
    throttle_time_ms: int = on_wire(INT32)
    entries: list[EntryDataResult] = on_wire(Array(EntryDataResult))
