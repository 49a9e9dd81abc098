"""The end of a producer's transaction in a partition, for coordinators and logs."""

from __future__ import annotations

from typing import NamedTuple


class EndMarker(NamedTuple):
    """The content of a control record, and the other fields of WriteTxnMarkers for the log."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Leader epoch of the coordinator's partition of `__transaction_state`; logs refuse an older one."""
    commit: bool
    """False aborts."""
    transaction_version: int = 0
    """From 2 on the epoch of the marker has to be above the epoch of the records (KIP-890)."""
