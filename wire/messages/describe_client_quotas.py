"""DescribeClientQuotas (API 48)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    FLOAT64,
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
class ComponentData(Struct):
    entity_type: str = on_wire(STRING)
    match_type: int = on_wire(INT8)
    match: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class DescribeClientQuotasRequest(Message, api_key=48, versions=(0, 1), flexible_since=1):
    components: list[ComponentData] = on_wire(Array(ComponentData))
    strict: bool = on_wire(BOOL)


@dataclass(slots=True, kw_only=True)
class EntityData(Struct):
    entity_type: str = on_wire(STRING)
    entity_name: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class ValueData(Struct):
    key: str = on_wire(STRING)
    value: float = on_wire(FLOAT64)


@dataclass(slots=True, kw_only=True)
class EntryData(Struct):
    entity: list[EntityData] = on_wire(Array(EntityData))
    values: list[ValueData] = on_wire(Array(ValueData))


@dataclass(slots=True, kw_only=True)
class DescribeClientQuotasResponse(Message, api_key=48, versions=(0, 1), flexible_since=1):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    entries: list[EntryData] | None = on_wire(Array(EntryData), nullable=ALL)
