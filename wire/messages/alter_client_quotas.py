"""AlterClientQuotas: set or remove quotas of users, clients and addresses."""

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


class EntityData(Struct):
    entity_type: str = on_wire(STRING)
    """Such as user, client-id or ip."""
    entity_name: str | None = on_wire(STRING, nullable=ALL)
    """Its name; null for the default of its type."""


class OpData(Struct):
    key: str = on_wire(STRING)
    """Name of the quota, such as producer_byte_rate."""
    value: float = on_wire(FLOAT64)
    """New limit; ignored for a removal."""
    remove: bool = on_wire(BOOL)
    """True to remove the quota, false to set it."""


class EntryData(Struct):
    entity: list[EntityData] = on_wire(Array(EntityData))
    """The entity of the quota: a user, a client id, an address, or a pair of them."""
    ops: list[OpData] = on_wire(Array(OpData))
    """Quotas to set or to remove."""


class AlterClientQuotasRequest(Message, api_key=49, versions=(0, 1), flexible_since=1):
    entries: list[EntryData] = on_wire(Array(EntryData))
    """The entities, each with its quotas."""
    validate_only: bool = on_wire(BOOL)
    """Whether to validate only, without a change."""


class EntryDataResult(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
    entity: list[EntityData] = on_wire(Array(EntityData))
    """The entity of the quota: a user, a client id, an address, or a pair of them."""


class AlterClientQuotasResponse(Message, api_key=49, versions=(0, 1), flexible_since=1):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    entries: list[EntryDataResult] = on_wire(Array(EntryDataResult))
    """The entities, each with its quotas."""
