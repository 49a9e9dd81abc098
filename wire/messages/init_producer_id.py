"""InitProducerId: an id and epoch for an idempotent or transactional producer.

From version 3 on a producer can move its epoch on.
"""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class InitProducerIdRequest(Message, api_key=22, versions=(0, 5), flexible_since=2):
    transactional_id: str | None = on_wire(STRING, nullable=ALL)
    """Null for a producer that is idempotent only."""
    transaction_timeout_ms: int = on_wire(INT32)
    """The coordinator aborts a transaction that takes longer."""
    producer_id: int = on_wire(INT64, since=3, default=-1)
    """Id that the producer has, to move its epoch on; -1 for a first one."""
    producer_epoch: int = on_wire(INT16, since=3, default=-1)
    """Epoch that the producer has, -1 for none."""


@dataclass(slots=True, kw_only=True)
class InitProducerIdResponse(Message, api_key=22, versions=(0, 5), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32, ignorable=True)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    producer_id: int = on_wire(INT64, default=-1)
    """Id to use, -1 after an error."""
    producer_epoch: int = on_wire(INT16)
    """Epoch of the producer."""
