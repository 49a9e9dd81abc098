"""The broker settings that transactions obey, with Kafka's defaults; the server fills them in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TransactionSettings:
    """Read at each use, so that a dynamic setting may be changed in place."""

    transaction_version: int = 2
    """Finalized level of the feature `transaction.version`. It says in which form records are written (0: the
    oldest), and by which rules the coordinator itself aborts; a client's own rules come with its requests."""
    transaction_max_timeout_ms: int = 900_000
    """`transaction.max.timeout.ms`"""
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    """`transactional.id.expiration.ms`"""
    abort_timed_out_interval_ms: int = 10_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`"""
    remove_expired_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""
    append_max_bytes: int = 1_048_588
    """The largest batch that `__transaction_state` takes (its `max.message.bytes`)."""
    transaction_topic_num_partitions: int = 50
    """`transaction.state.log.num.partitions`: used until `__transaction_state` exists; then its own number of
    partitions counts."""
