"""InitProducerId: an id and epoch for an idempotent or transactional producer.

From version 3 on a producer can get its next epoch.
"""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    on_wire,
)


class InitProducerIdRequest(Message, api_key=22, versions=(0, 5), flexible_since=2):
    transactional_id: str | None = on_wire(STRING, nullable=ALL)
    """Null for a producer that is idempotent only."""
    transaction_timeout_ms: int = on_wire(INT32)
    """The coordinator aborts a transaction that takes longer."""
    producer_id: int = on_wire(INT64, since=3, default=-1)
    """Current id of the producer, to get its next epoch; -1 for a new id."""
    producer_epoch: int = on_wire(INT16, since=3, default=-1)
    """Current epoch of the producer, -1 for none."""


class InitProducerIdResponse(Message, api_key=22, versions=(0, 5), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    producer_id: int = on_wire(INT64, default=-1)
    """Id to use, -1 after an error."""
    producer_epoch: int = on_wire(INT16)
    """Epoch of the producer."""
