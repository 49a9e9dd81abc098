"""What tests of a store have in common: opening one, and records that say at which offset they belong."""

from odradek.storage.directories.store import LogStore
from odradek.storage.log.partition import Partition
from odradek.wire.records import Record, build_batch, iter_records
from odradek.wire.work import finish

NOW_MS = 1_700_000_000_000


def open_store(disk, *directories: str, now_ms: int = NOW_MS, **options) -> LogStore:
    """An open store; `options` are those of `LogStore`."""
    store = LogStore(disk, directories or ["data"], **options)
    store.open(now_ms)
    return store


def write_checkpoints(store: LogStore) -> None:
    """All of them, whenever they are due."""
    finish(store.checkpointing.writing())


def value_at(offset: int) -> bytes:
    return b"value %d" % offset


def append(
    partition: Partition, count: int = 1, size_bytes: int = 0, *, timestamp: int = NOW_MS, **of_batch
) -> None:
    """So many batches of one record in one commit; values are filled up to `size_bytes`."""
    for _ in range(count):
        value = value_at(partition.log.next_offset).ljust(size_bytes)
        batch = build_batch([Record(0, timestamp, b"k", value)], **of_batch)
        partition.appends.append(batch, now_ms=timestamp)
    partition.commit()


def offsets_of(partition: Partition, offset: int | None = None) -> list[int]:
    """Of what a reader finds from `offset` on, or from the start; each record has to be the one of its
    offset.
    """
    offset = partition.log_start_offset if offset is None else offset
    found = []
    while offset < partition.high_watermark:
        for record in iter_records(partition.read(offset, max_bytes=1).records.tobytes()):
            assert record.value.rstrip() == value_at(record.offset)
            if record.offset >= offset:
                found.append(record.offset)
                offset = record.offset + 1
    return found
