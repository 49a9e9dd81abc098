"""Transactions of a node's partitions, written straight to the logs: no coordinator takes part."""

from odradek.storage.log.transactions import Verified
from odradek.wire.end_marker import EndMarker


def write(node, producer_id, *values, topic="t", index=0, epoch=0, sequence=0, timestamp=None):
    """Appends a batch in the producer's transaction, committed to the log."""
    log = node.partition(topic, index)
    verified = Verified(log.begin_verification(producer_id, epoch, sequence, version=0), 0)
    batch = node.batch(
        *values,
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    log.appends.append(batch, now_ms=node.loop.now_ms, transactions=verified)
    log.commit()


def end(node, producer_id, *, commit, topic="t", index=0, epoch=0):
    """Ends the producer's transaction in a partition."""
    log = node.partition(topic, index)
    log.appends.append_marker(EndMarker(producer_id, epoch, 0, commit, 0), now_ms=node.loop.now_ms)
    log.commit()
