"""Sealed segments written by hand, a round of compaction over them, and what a plain reading of the rules
says that has to stay of them.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field

from odradek.storage.compaction import _cleaning, run
from odradek.storage.compaction.run import CleanedGroup, CleaningJob, JobSegment, cleaning_round
from odradek.storage.log.transaction_index import AbortedTransaction
from odradek.wire.records import (
    Record,
    build_batch,
    iter_batches,
    iter_records,
    verify_crc,
)
from tests.oracles import cleaning as oracle
from tests.storage.memory_disk import MemoryDisk

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
DIRECTORY = "data/t-0"
SEED = bytes(range(16))
BOTH = [_cleaning, oracle]
NAMES = (
    "Copy",
    "OffsetMap",
    "SLOT_BYTES",
    "filter_batches",
    "index_batches",
    "index_section",
    "select_records",
    "shift_timestamps",
)


@contextmanager
def using(module):
    """Let rounds work with this one of the two."""
    before = {name: getattr(run, name) for name in NAMES}
    try:
        for name in NAMES:
            setattr(run, name, getattr(module, name))
        yield
    finally:
        for name, value in before.items():
            setattr(run, name, value)


def room_for(keys: int) -> int:
    """Bytes in which a map has so many slots, with the module that is at work."""
    return keys * run.SLOT_BYTES


@dataclass
class Batch:
    """A batch as the rules see it. `records` are (offset, timestamp, key, value)."""

    base_offset: int
    last_offset: int
    records: list[tuple[int, int, bytes | None, bytes | None]]
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    codec: int = 0
    is_transactional: bool = False
    marker: str | None = None
    horizon_ms: int | None = None
    leader_epoch: int = 0

    def encoded(self) -> bytes:
        records = [
            Record(*record, headers=(("h", b"1"),) if record[0] % 5 == 0 else ()) for record in self.records
        ]
        if self.marker is not None:
            records = [Record(*record) for record in self.records]
        return bytes(
            build_batch(
                records,
                base_offset=self.base_offset,
                last_offset_delta=self.last_offset - self.base_offset,
                compression=self.codec,
                producer_id=self.producer,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
                transactional=self.is_transactional,
                control=self.marker is not None,
                leader_epoch=self.leader_epoch,
                delete_horizon_ms=self.horizon_ms,
            )
        )


def decoded(data: bytes) -> list[Batch]:
    """The batches of a segment file; every checksum is right."""
    found = []
    for position, header in iter_batches(data):
        verify_crc(data, position, header)
        records = list(iter_records(memoryview(data)[position:], header))
        marker = None
        if header.is_control:
            marker = "none"
            if records:
                marker = "commit" if records[0].key == b"\0\0\0\1" else "abort"
        for record in records:
            if not header.is_control:
                assert record.headers == ((("h", b"1"),) if record.offset % 5 == 0 else ())
        found.append(
            Batch(
                header.base_offset,
                header.last_offset,
                [(one.offset, one.timestamp, one.key, one.value) for one in records],
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.compression,
                header.is_transactional,
                marker,
                header.delete_horizon_ms,
                header.leader_epoch,
            )
        )
        if records and not header.uses_log_append_time:
            assert header.max_timestamp == max(one.timestamp for one in records)
    return found


@dataclass
class WrittenLog:
    """Segments of batches on a disk."""

    segments: list[list[Batch]]
    disk: MemoryDisk = field(default_factory=MemoryDisk)

    def __post_init__(self) -> None:
        self.disk.make_directory(DIRECTORY)
        self.ends = []
        for number, batches in enumerate(self.segments):
            self.put(batches[0].base_offset, b"".join(batch.encoded() for batch in batches))
            following = self.segments[number + 1 :]
            self.ends.append(following[0][0].base_offset if following else batches[-1].last_offset + 1)

    @property
    def end_offset(self) -> int:
        return self.ends[-1]

    def put(self, base_offset: int, data: bytes) -> None:
        file = self.disk.open(f"{DIRECTORY}/{base_offset:020d}.log", create=True)
        file.truncate(0)
        file.write(0, [data])

    def job(self, **changes) -> CleaningJob:
        values = {
            "directory": DIRECTORY,
            "segments": tuple(
                JobSegment(
                    batches[0].base_offset,
                    end,
                    self.disk.size(f"{DIRECTORY}/{batches[0].base_offset:020d}.log"),
                )
                for batches, end in zip(self.segments, self.ends, strict=True)
            ),
            "first_dirty": self.segments[0][0].base_offset,
            "end_offset": self.end_offset,
            "now_ms": NOW_MS,
            "token": "token",
            "segment_bytes": 1_000,
            "segment_index_bytes": 10_485_760,
            "index_interval_bytes": 100,
            "delete_retention_ms": DAY_MS,
            "aborted": aborted_in(self.segments),
            "memory_bytes": room_for(1000),
            "buffer_bytes": 300,
        }
        return CleaningJob(**{**values, **changes})

    def cleaned(self, job: CleaningJob):
        """What a round makes of the log: its outcome, the groups, and of each the bytes of its files."""
        groups, files = [], []
        work = cleaning_round(self.disk, job, SEED)
        while True:
            try:
                event = next(work)
            except StopIteration as end:
                return end.value, groups, files
            if isinstance(event, CleanedGroup):
                groups.append(event)
                files.append(
                    {
                        kind: bytes(self.disk.files[path].data)
                        for kind in (".log", ".index", ".timeindex", ".txnindex")
                        if (path := f"{DIRECTORY}/{event.base_offset:020d}{kind}{job.suffix}")
                        in self.disk.files
                    }
                )


def aborted_in(segments: list[list[Batch]]) -> tuple[AbortedTransaction, ...]:
    """As the transaction indexes would say."""
    first: dict[int, int] = {}
    found = []
    for batch in (one for batches in segments for one in batches):
        if batch.marker is None and batch.is_transactional:
            first.setdefault(batch.producer, batch.base_offset)
        elif batch.marker is not None:
            begun = first.pop(batch.producer, None)
            if batch.marker == "abort" and begun is not None:
                found.append(
                    AbortedTransaction(batch.producer, begun, batch.last_offset, batch.last_offset + 1)
                )
    return tuple(found)


def expected(segments: list[list[Batch]], job: CleaningJob, entries_max: int) -> tuple[int, list[Batch]]:
    """How far the log is clean after a round, and what its batches then are, by a plain reading."""
    batches = [batch for one in segments for batch in one]
    # A gap between two segments belongs to the first, as in Kafka: the round is past it with its last batch.
    ends = [*(one[0].base_offset for one in segments[1:]), job.end_offset]
    last_told = {one[-1].base_offset: end - 1 for one, end in zip(segments, ends, strict=True)}

    def is_aborted(batch: Batch) -> bool:
        return batch.is_transactional and any(
            one.producer_id == batch.producer and one.first_offset <= batch.base_offset <= one.last_offset
            for one in job.aborted
        )

    latest: dict[bytes, int] = {}
    told = -1
    is_full = False
    for batch in batches:
        if batch.last_offset < job.first_dirty:
            continue
        if batch.marker is None and not is_aborted(batch):
            for offset, _, key, _ in batch.records:
                if key is not None and offset >= job.first_dirty:
                    if len(latest) >= entries_max:
                        is_full = True
                        break
                    latest[key] = offset
                    told = offset
        if is_full:
            break
        told = last_told.get(batch.base_offset, batch.last_offset)
    if not is_full:
        told = job.end_offset - 1
    covered = [batch for one in segments if one[0].base_offset <= told for batch in one]
    kept_offsets = {offset for _, _, offset in job.producers if offset >= 0}
    marker_epochs = {producer: epoch for producer, epoch, offset in job.producers if offset < 0}
    has_data: set[int] = set()
    found = []
    for batch in covered:
        is_expired = batch.horizon_ms is not None and batch.horizon_ms <= job.now_ms
        wants_horizon = False
        if batch.marker is not None:
            may_go = not batch.records or batch.producer not in has_data
            has_data.discard(batch.producer)
            wants_horizon = may_go
            stays = [] if may_go and is_expired else batch.records
        else:
            if batch.is_transactional:
                has_data.add(batch.producer)
            stays = []
            for record in () if is_aborted(batch) else batch.records:
                offset, _, key, value = record
                if offset > told or (
                    key is not None
                    and offset >= latest.get(key, -1)
                    and (value is not None or not is_expired)
                ):
                    stays.append(record)
            wants_horizon = any(value is None for _, _, _, value in stays)
        is_needed = batch.last_offset + 1 == job.end_offset or (
            batch.producer >= 0
            and (
                batch.last_offset in kept_offsets
                or (batch.marker is not None and marker_epochs.get(batch.producer) == batch.epoch)
            )
        )
        if not stays and not is_needed:
            continue
        horizon_ms = batch.horizon_ms
        if stays and wants_horizon and horizon_ms is None:
            horizon_ms = job.now_ms + job.delete_retention_ms
        changed = {"records": stays, "horizon_ms": horizon_ms}
        if not stays:
            changed |= {"codec": 0, "horizon_ms": None}
            if batch.marker is not None:
                changed["marker"] = "none"
        found.append(Batch(**{**vars(batch), **changed}))
    return told + 1, found
