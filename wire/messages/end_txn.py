"""EndTxn: commit or abort a transaction; from version 5 on the response has the epoch of the next one."""

from odradek.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    on_wire,
)


class EndTxnRequest(Message, api_key=26, versions=(0, 5), flexible_since=3):
    transactional_id: str = on_wire(STRING)
    """Transactional id of the producer."""
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    producer_epoch: int = on_wire(INT16)
    """Epoch of the producer."""
    committed: bool = on_wire(BOOL)
    """True to commit the transaction, false to abort it."""


class EndTxnResponse(Message, api_key=26, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    producer_id: int = on_wire(INT64, since=5, default=-1, ignorable=True)
    """Producer id of the next transaction, -1 for the current one."""
    producer_epoch: int = on_wire(INT16, since=5, default=-1, ignorable=True)
    """Epoch for the next transaction."""
