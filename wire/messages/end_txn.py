"""EndTxn: commit or abort a transaction; from version 5 on the answer holds the epoch of the next one."""

from dataclasses import dataclass

from odradek.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class EndTxnRequest(Message, api_key=26, versions=(0, 5), flexible_since=3):
    transactional_id: str = on_wire(STRING)
    """Transactional id of the producer."""
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    producer_epoch: int = on_wire(INT16)
    """Epoch of the producer."""
    committed: bool = on_wire(BOOL)
    """True to commit the transaction, false to abort it."""


@dataclass(slots=True, kw_only=True)
class EndTxnResponse(Message, api_key=26, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    producer_id: int = on_wire(INT64, since=5, default=-1, ignorable=True)
    """Id for the next transaction, -1 for the present one."""
    producer_epoch: int = on_wire(INT16, since=5, default=-1, ignorable=True)
    """Epoch for the next transaction."""
