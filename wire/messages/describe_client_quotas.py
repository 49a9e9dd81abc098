"""DescribeClientQuotas: list quotas of users, clients and addresses."""

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


class ComponentData(Struct):
    entity_type: str = on_wire(STRING)
    """Such as user, client-id or ip."""
    match_type: int = on_wire(INT8)
    """0 exactly this name, 1 the default entity, 2 any name."""
    match: str | None = on_wire(STRING, nullable=ALL)
    """The name to match, null unless the match is exact."""


class DescribeClientQuotasRequest(Message, api_key=48, versions=(0, 1), flexible_since=1):
    components: list[ComponentData] = on_wire(Array(ComponentData))
    """Filters that an entity must match."""
    strict: bool = on_wire(BOOL)
    """Whether entities with more parts than the filter names are left out."""


class EntityData(Struct):
    entity_type: str = on_wire(STRING)
    """Such as user, client-id or ip."""
    entity_name: str | None = on_wire(STRING, nullable=ALL)
    """Its name; null for the default of its type."""


class ValueData(Struct):
    key: str = on_wire(STRING)
    """Name of the quota, such as producer_byte_rate."""
    value: float = on_wire(FLOAT64)
    """The limit."""


class EntryData(Struct):
    entity: list[EntityData] = on_wire(Array(EntityData))
    """The entity of the quota: a user, a client id, an address, or a pair of them."""
    values: list[ValueData] = on_wire(Array(ValueData))
    """Quotas by name."""


class DescribeClientQuotasResponse(Message, api_key=48, versions=(0, 1), flexible_since=1):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
    entries: list[EntryData] | None = on_wire(Array(EntryData), nullable=ALL)
    """The entities, each with its quotas."""
