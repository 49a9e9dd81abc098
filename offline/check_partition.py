"""Checks a partition's directory: every byte is read once, nothing is changed.

Log files: sizes, checksums and order of every batch (`log_walk.py`), segments that overlap. Beside them: each
entry of the offset and time indexes against the batches, each entry of `.txnindex` against the batches and
markers in the log, each producer snapshot against a rescan up to its offset, `leader-epoch-checkpoint`
against the epochs in the batches, `partition.metadata`.

A finding is damage if a client would get a wrong response, or records are lost; else a note. Missing files
that a start rebuilds are no finding: indexes and snapshots; an index may have few entries, a producer may
have expired. The check cannot detect a wrong base offset in a gap of a compacted log, one that is too high in
the last batch after a crash, or missing records at the end of a log without a checkpoint.

`PartitionCheck.steps` is a generator, for the progress of long checks; it needs memory for the indexes of one
segment and the producers of the partition.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from odradek.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    decode_lines,
    read_partition_metadata,
)
from odradek.storage.disk import Disk, File, read_file
from odradek.storage.log import transaction_index
from odradek.storage.log._staging import ProducerEntry
from odradek.storage.log.batches import StoredBatch
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.producer_state import ProducerState, decode_snapshot, encode_snapshot
from odradek.storage.log.segment_paths import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    base_offset_of,
    file_name,
)
from odradek.storage.log.transaction_index import AbortedTransaction
from odradek.storage.log.transactions import stored_marker
from odradek.storage.recovery.log_walk import HeaderRepair, Hole, batch_of, walk
from odradek.wire.end_marker import EndMarker
from odradek.wire.record_layout import HEADER_SIZE_BYTES

DAMAGE = "damage"
NOTE = "note"
STRANGERS_MAX = 1000
STEP_BATCHES = 256
"""Batches between two values of `steps`."""

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_NO_TIMESTAMP = -1
_INDEX_KINDS = (INDEX, TIME_INDEX, TRANSACTION_INDEX)


class Finding(NamedTuple):
    """One line: the defect, its place (a position in bytes, if there is one), and its consequence."""

    kind: str
    path: str
    position: int | None
    what: str
    consequence: str


class LostSegment(NamedTuple):
    """A missing log file, or the missing end of one. By its index it had the offsets from `base_offset` to
    before `end_offset`, perhaps with gaps by compaction, in at least `size_bytes_min` bytes.
    """

    base_offset: int
    end_offset: int
    size_bytes_min: int
    is_compacted: bool

    @property
    def loss(self) -> str:
        what = f"the offsets {self.base_offset} to {self.end_offset - 1} are lost"
        if self.is_compacted:
            what = (
                f"the remaining records of the offsets {self.base_offset} to {self.end_offset - 1} are lost"
            )
        if self.size_bytes_min:
            return f"{what}, at least {self.size_bytes_min} bytes"
        return f"{what}, the number of bytes is not known"


def lost_logs(names: list[str]) -> list[int]:
    """The base offsets of segments with indexes and no log file, which neither a broker nor a crash leaves.

    A broker renames the log of a segment before it removes the files, so that the new name remains until all
    of them are removed. Segments replaced by compaction are not renamed, but then a `.swap` file exists.
    """
    if any(name.endswith(LOG + SWAP) for name in names):
        return []
    indexes = {
        name[: -len(kind)]
        for name in names
        for kind in _INDEX_KINDS
        if base_offset_of(name, kind) is not None
    }
    logs = {name.partition(LOG)[0] for name in names if name.endswith((LOG, DELETED)) and LOG in name}
    return sorted(map(int, indexes - logs))


class SegmentCheck:
    """The findings of one segment, for the repair."""

    __slots__ = (
        "aborted",
        "bad_indexes",
        "base_offset",
        "cut_off",
        "end_offset",
        "has_legacy",
        "header_repairs",
        "holes",
        "latest_timestamp",
        "padded_indexes",
        "size_bytes",
    )

    def __init__(self, base_offset: int, size_bytes: int) -> None:
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.end_offset = base_offset
        self.latest_timestamp = _NO_TIMESTAMP
        self.has_legacy = False
        self.cut_off: LostSegment | None = None
        """The lost batches at the end of the file, known only from its index."""
        self.holes: list[Hole] = []
        self.header_repairs: list[HeaderRepair] = []
        self.bad_indexes: set[str] = set()
        """INDEX, TIME_INDEX, TRANSACTION_INDEX: the damaged ones."""
        self.padded_indexes: set[str] = set()
        """The indexes with unused space after their entries, as after a crash of Kafka."""
        self.aborted: list[AbortedTransaction] = []
        """The right content of a bad TRANSACTION_INDEX."""

    @property
    def is_sound(self) -> bool:
        return not self.holes and not self.header_repairs

    @property
    def is_empty(self) -> bool:
        """Whether it has no sound batch."""
        return self.end_offset == self.base_offset


class PartitionCheck:
    """The check of one directory: run `steps` to its end, then read the rest."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        *,
        recovery_point: int | None = None,
        was_clean: bool = False,
        journal_waits: bool = False,
        is_compacted: bool = True,
    ) -> None:
        """`recovery_point` is from the checkpoint, if there is one; `journal_waits`: the flush journal has
        bytes of this partition for a replay; `is_compacted`: compaction may have left gaps, as far as is
        known.
        """
        self.path = path
        self.findings: list[Finding] = []
        self.segments: list[SegmentCheck] = []
        self.lost_segments: list[LostSegment] = []
        self.end_offset = 0
        self.batch_count = 0
        self.record_count = 0
        self.legacy_count = 0
        self.has_gaps = False
        self.last_missing = -1
        """The last offset before the current one that has no record: before the log's start, or in a gap."""
        self.latest_epoch = -1
        self.latest_producer_id = -1
        """The largest id in the log and in snapshots."""
        self.topic_id: bytes | None = None
        self.epochs_are_bad = False
        self.epochs = LeaderEpochs()
        """The epochs of the batches."""
        self.bad_snapshots: dict[int, bytes | None] = {}
        """The right content by offset, None if it is not known."""
        self.snapshot_at_end: bytes = encode_snapshot({})
        self.unread: list[str] = []
        """Paths of unreadable files: findings without their content must not be used for repairs."""
        self._disk = disk
        self._recovery_point = recovery_point
        self._was_clean = was_clean
        self._journal_waits = journal_waits
        self._is_compacted = is_compacted
        self._lost_logs: list[int] = []
        self._producers = ProducerState()
        self._transactions = _Transactions(self._producers)
        self._first_legacy: tuple[str, int, int] | None = None
        self._legacy_finding: Finding | None = None
        # Batches with another epoch than in the checkpoint: segment, name of the file, batch, epoch in the
        # checkpoint. And the first batch with an older epoch than a batch before it.
        self._strangers: list[tuple[SegmentCheck, str, StoredBatch, int]] = []
        self._stranger_count = 0
        self._first_fall: tuple[str, int, int, int] | None = None

    @property
    def start_offset(self) -> int:
        """The first segment's base offset."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def open_transactions(self) -> dict[int, int]:
        """The first offset of transactions without a marker in the log, by producer id."""
        return {
            producer_id: entry.current_txn_first_offset
            for producer_id, entry in self._producers.producers.items()
            if entry.current_txn_first_offset >= 0
        }

    @property
    def log_damage(self) -> list[Finding]:
        """The damage of the log files themselves; an old format is no damage."""
        return [
            finding
            for finding in self.findings
            if finding.kind == DAMAGE and finding.path.endswith(LOG) and finding is not self._legacy_finding
        ]

    def steps(self) -> Iterator[int]:
        """Run the check; yields the number of bytes of log files read since the last value."""
        try:
            names = self._disk.list(self.path)
        except OSError as error:
            self._say_unread("", error)
            return
        self._look_at_names(names)
        self._look_at_metadata(names)
        checkpoint = self._read_epochs(names)
        bases = sorted(base for name in names if (base := base_offset_of(name, LOG)) is not None)
        snapshots = _Snapshots(self, names)
        if not bases:
            self._say(NOTE, "", None, "there is no segment", "a start makes an empty one")
            self._judge_lost_end()
            return
        self._judge_lost(0, bases[0])
        self.end_offset = bases[0]
        self.last_missing = bases[0] - 1
        for number, base_offset in enumerate(bases):
            following = bases[number + 1] if number + 1 < len(bases) else None
            yield from self._segment(base_offset, following, names, checkpoint, snapshots)
        self._judge_lost_end()
        if not self.unread:
            snapshots.finish(self.end_offset, self._producers)
        self.snapshot_at_end = encode_snapshot(self._producers.producers)
        self.latest_producer_id = max(snapshots.latest_producer_id, *self._producers.producers, -1)
        self._judge_epochs(checkpoint, names)
        if self._first_legacy is not None:
            path, position, magic = self._first_legacy
            self._say(
                DAMAGE,
                path,
                position,
                f"{self.legacy_count} messages have the old format v{magic}",
                "a start after a crash would cut them; odradek import-log converts them",
            )
            self._legacy_finding = self.findings[-1]

    # Names and small files

    def _say(self, kind: str, name: str, position: int | None, what: str, consequence: str) -> None:
        path = f"{self.path}/{name}" if name else self.path
        self.findings.append(Finding(kind, path, position, what, consequence))

    def _say_unread(self, name: str, error: OSError) -> None:
        self.unread.append(f"{self.path}/{name}")
        self._say(DAMAGE, name, None, _read_error(error), _UNREAD_CONSEQUENCE)

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None, and a finding, after a read error."""
        try:
            return read_file(self._disk, f"{self.path}/{name}")
        except OSError as error:
            self._say_unread(name, error)
            return None

    def _look_at_names(self, names: list[str]) -> None:
        self._lost_logs = lost_logs(names)
        logs = {base for name in names if (base := base_offset_of(name, LOG)) is not None}
        logs.update(self._lost_logs)
        for name in sorted(names):
            if name.endswith((DELETED, CLEANED, ".tmp")):
                self._say(NOTE, name, None, "was left by work that a stop interrupted", "a start removes it")
            elif name.endswith(SWAP):
                self._say(
                    NOTE,
                    name,
                    None,
                    "is a compaction that a stop interrupted",
                    "a start completes it",
                )
            elif name.endswith(LOG) and base_offset_of(name, LOG) is None:
                self._say(NOTE, name, None, "is not named like a segment", "it is not changed")
            else:
                for kind in _INDEX_KINDS:
                    base = base_offset_of(name, kind)
                    if base is not None and base not in logs:
                        self._say(NOTE, name, None, "belongs to no segment", "a start removes it")

    def _look_at_metadata(self, names: list[str]) -> None:
        if PARTITION_METADATA not in names:
            return
        if self.read(PARTITION_METADATA) is None:
            return
        self.topic_id = read_partition_metadata(self._disk, f"{self.path}/{PARTITION_METADATA}")
        if self.topic_id is None:
            self._say(
                DAMAGE,
                PARTITION_METADATA,
                None,
                "it has no topic id",
                "a start uses the directory for any topic of its name",
            )

    def _read_epochs(self, names: list[str]) -> LeaderEpochs | None:
        """The offset in the checkpoint; None if there is none or it cannot be read."""
        if LEADER_EPOCHS not in names:
            return None
        content = self.read(LEADER_EPOCHS)
        if content is None:
            return None
        entries = parse_leader_epochs(content)
        if isinstance(entries, str):
            self._call_epochs_bad(entries)
            return None
        return LeaderEpochs(entries)

    # Segments

    def _segment(
        self,
        base_offset: int,
        following: int | None,
        names: list[str],
        checkpoint: LeaderEpochs | None,
        snapshots: "_Snapshots",
    ) -> Iterator[int]:
        name = file_name(base_offset, LOG)
        try:
            file = self._disk.open(f"{self.path}/{name}")
        except OSError as error:
            self._pass_over(name, following, error)
            return
        try:
            segment = SegmentCheck(base_offset, file.size())
            self.segments.append(segment)
            self._judge_gap(name, base_offset)
            offsets = _OffsetIndexCheck(self._disk, self.path, base_offset, names)
            times = _TimeIndexCheck(self._disk, self.path, base_offset, names)
            aborted = _AbortedCheck(self._disk, self.path, base_offset, names, self._transactions)
            done_bytes = 0
            for number, batch in enumerate(self._batches(segment, name, file, following)):
                snapshots.reach(batch.base_offset, self._producers, has_gaps=self.has_gaps)
                self._take_batch(name, batch, checkpoint)
                offsets.take(batch)
                times.take(batch)
                ended = self._producers.replay(batch, file.read)
                aborted.take(batch, file.read, ended, self.last_missing)
                if number % STEP_BATCHES == 0:
                    yield batch.position - done_bytes
                    done_bytes = batch.position
            self.end_offset = max(segment.end_offset, self.end_offset)
            if following is not None:
                self._judge_end(name, segment, following, offsets)
            offsets.finish()
            times.finish(is_sealed=following is not None)
            aborted.finish(segment.end_offset, self.last_missing)
            segment.aborted = aborted.expected
            for each in (offsets, times, aborted):
                self.findings += each.findings
                if each.is_unread:
                    self.unread.append(each.path)
                elif each.findings:
                    segment.bad_indexes.add(each.kind)
                if each.is_padded:
                    segment.padded_indexes.add(each.kind)
            yield segment.size_bytes - done_bytes
        except OSError as error:
            self._pass_over(name, following, error)
        finally:
            file.close()

    def _pass_over(self, name: str, following: int | None, error: OSError) -> None:
        """A log file with a read error: its content is unknown, not missing."""
        self._say_unread(name, error)
        self.has_gaps = True
        if following is not None:
            self.end_offset = following
            self.last_missing = following - 1

    def _batches(
        self, segment: SegmentCheck, name: str, file: File, following: int | None
    ) -> Iterator[StoredBatch]:
        """The sound batches of a segment, in order; reports damage."""
        due_end = following
        if due_end is None and self._was_clean:
            due_end = self._recovery_point  # after a clean stop it is the log's end
        for item in walk(file.read, segment.size_bytes, segment.base_offset, due_end):
            if isinstance(item, Hole):
                self._say_hole(name, item)
                segment.holes.append(item)
                continue
            if isinstance(item, HeaderRepair):
                self._say_header_repair(name, item)
                segment.header_repairs.append(item)
            batch = batch_of(item)
            if batch.base_offset != segment.end_offset:
                self.last_missing = batch.base_offset - 1
                self.has_gaps = True
            if _has_inner_gaps(batch):
                self.has_gaps = True
                if not batch.record_count:
                    self.last_missing = batch.last_offset
            segment.end_offset = batch.last_offset + 1
            yield batch

    def _judge_gap(self, name: str, base_offset: int) -> None:
        """The gap between a segment and the previous one."""
        end_offset = self.end_offset
        if base_offset < end_offset:
            self._say(
                DAMAGE,
                name,
                None,
                f"the segment begins at offset {base_offset}, the previous one ends at {end_offset}",
                "some offsets exist twice",
            )
        elif base_offset > end_offset:
            self.has_gaps = True
            self.last_missing = base_offset - 1
            until = self._judge_lost(end_offset, base_offset)
            point = self._recovery_point
            if point is not None and not self._was_clean and end_offset >= point:
                kind, consequence = DAMAGE, "a start after a crash takes it for a loss and cuts the log there"
            elif until == end_offset:
                return
            elif self._is_compacted:
                kind, consequence = NOTE, "compaction leaves such gaps, and so does a repair"
            else:
                kind = NOTE
                consequence = (
                    "they are lost, unless a repair has reported them, or the topic was once compacted"
                )
            gap_end = base_offset if kind == DAMAGE else until
            self._say(
                kind, name, None, f"no segment has the offsets {end_offset} to {gap_end - 1}", consequence
            )

    def _judge_end(
        self, name: str, segment: SegmentCheck, following: int, offsets: "_OffsetIndexCheck"
    ) -> None:
        """A file that was cut between two batches is sound, but its index has later entries."""
        end_offset = segment.end_offset
        size_bytes = offsets.least_size_bytes(end_offset, following) - segment.size_bytes
        if size_bytes > 0:
            segment.cut_off = LostSegment(end_offset, following, size_bytes, self._is_compacted)
            self._say(DAMAGE, name, segment.size_bytes, "it was longer, by its index", segment.cut_off.loss)

    def _judge_lost(self, from_offset: int, end_offset: int) -> int:
        """Report the lost segments in a range of offsets; returns the begin of the first one."""
        bases = [base for base in self._lost_logs if from_offset <= base < end_offset]
        for base, following in pairwise([*bases, end_offset]):
            size_bytes_min = _size_bytes_min(self._disk, self.path, base)
            lost = LostSegment(base, following, size_bytes_min, self._is_compacted)
            self.lost_segments.append(lost)
            what = "it is missing, but it has indexes; a broker removes all files of a segment together"
            self._say(DAMAGE, file_name(base, LOG), None, what, lost.loss)
        self._lost_logs = [base for base in self._lost_logs if base not in bases]
        return bases[0] if bases else end_offset

    def _judge_lost_end(self) -> None:
        """Report lost segments after the end of the log, where only flushed offsets are known."""
        if self.unread:
            return
        self._judge_lost(self.end_offset, max(self._recovery_point or 0, self.end_offset))
        for base in self._lost_logs:
            for kind in _INDEX_KINDS:
                name = file_name(base, kind)
                if self._disk.exists(f"{self.path}/{name}"):
                    self._say(NOTE, name, None, "belongs to no segment", "a start removes it")

    def _take_batch(self, name: str, batch: StoredBatch, checkpoint: LeaderEpochs | None) -> None:
        self.batch_count += 1
        self.record_count += batch.record_count
        segment = self.segments[-1]
        segment.latest_timestamp = max(segment.latest_timestamp, batch.max_timestamp)
        if batch.magic < 2:
            self.legacy_count += 1
            segment.has_legacy = True
            if self._first_legacy is None:
                self._first_legacy = (name, batch.position, batch.magic)
            return
        epoch = batch.leader_epoch
        if epoch < 0:
            return
        due = -1 if checkpoint is None else checkpoint.epoch_at(batch.base_offset)
        if due not in (-1, epoch) and self._is_flushed(batch.base_offset):
            self._stranger_count += 1
            if len(self._strangers) < STRANGERS_MAX:
                self._strangers.append((segment, name, batch, due))
        if epoch < self.latest_epoch:
            self._first_fall = self._first_fall or (name, batch.position, epoch, self.latest_epoch)
            return
        self.latest_epoch = epoch
        self.epochs.assign(epoch, batch.base_offset)

    def _say_hole(self, name: str, hole: Hole) -> None:
        if hole.first_offset == hole.end_offset:
            lost = "no offset is missing"
        elif hole.end_offset > hole.first_offset:
            lost = f"the records from offset {hole.first_offset} to {hole.end_offset - 1} cannot be read"
        else:
            lost = f"the records from offset {hole.first_offset} on cannot be read"
        if self._journal_waits:
            lost += "; a start restores the bytes that are in flush-journal.*"
        size_bytes = hole.size_bytes
        what = f"{hole.why}; {size_bytes} {'byte is' if size_bytes == 1 else 'bytes are'} no sound batch"
        self._say(DAMAGE, name, hole.position, what, lost)

    def _say_header_repair(self, name: str, repair: HeaderRepair) -> None:
        self._say(
            DAMAGE,
            name,
            repair.batch.position,
            repair.what,
            "its records are sound, but cannot be found; the header can be repaired",
        )

    def _judge_epochs(self, checkpoint: LeaderEpochs | None, names: list[str]) -> None:
        """The checkpoint against the batches. If only one batch differs, or epochs descend, the batch is
        wrong: its checksum does not cover the epoch. A start after a crash adds missing newest epochs to the
        checkpoint, if their batches are after the recovery point.
        """
        self.epochs.truncate_start(self.start_offset)
        strangers = self._strangers
        fell = self._first_fall is not None
        if strangers and (fell or self._stranger_count == 1 < self.batch_count):
            for segment, name, batch, due in strangers:
                what = f"a batch has the leader epoch {batch.leader_epoch} where the checkpoint has {due}"
                consequence = "consumers may wrongly detect a truncation; the header can be repaired"
                self._say(DAMAGE, name, batch.position, what, consequence)
                segment.header_repairs.append(HeaderRepair(batch._replace(leader_epoch=due), what))
            return
        if self._first_fall is not None:
            name, position, epoch, before = self._first_fall
            consequence = "one of the two is wrong; consumers may wrongly detect a truncation"
            self._say(DAMAGE, name, position, f"leader epoch {epoch} comes after {before}", consequence)
        elif strangers:
            _, _, batch, due = strangers[0]
            has = f"offset {batch.base_offset} has the leader epoch {batch.leader_epoch}"
            self._call_epochs_bad(f"{has}, the checkpoint has {due}")
        elif self.epochs.epochs and self._is_flushed(self.start_offset):
            if LEADER_EPOCHS not in names:
                self._call_epochs_bad("it is missing")
            elif checkpoint is not None and not checkpoint.epochs:
                self._call_epochs_bad("it has no epoch")

    def _call_epochs_bad(self, what: str) -> None:
        self.epochs_are_bad = True
        consequence = "consumers get a wrong end of an epoch; it can be rebuilt"
        self._say(DAMAGE, LEADER_EPOCHS, None, what, consequence)

    def _is_flushed(self, offset: int) -> bool:
        return self._was_clean or self._recovery_point is None or offset < self._recovery_point


def parse_leader_epochs(data: bytes) -> list[tuple[int, int]] | str:
    """(epoch, start offset) of each line, or their damage. Kafka first makes an empty file."""
    lines = decode_lines(data) if data else []
    if lines is None:
        return "it is not a checkpoint of version 0 with as many lines as its count"
    try:
        entries = [(int(epoch), int(start)) for epoch, start in lines]
    except ValueError:
        return "a line is not two numbers"
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if epoch >= next_epoch or start >= next_start:
            return f"epoch {next_epoch} from offset {next_start} on comes after epoch {epoch} from {start} on"
    return entries


def _has_inner_gaps(batch: StoredBatch) -> bool:
    return batch.record_count != batch.last_offset_delta + 1


def _read_error(error: OSError) -> str:
    return f"it cannot be read: {error.strerror or error}"


_UNREAD_CONSEQUENCE = "its content was not checked, and the partition is not repaired"


# Indexes ----------------------------------------------------------------------------------------------------


def _size_bytes_min(disk: Disk, directory: str, base_offset: int) -> int:
    """The minimal size of a log file by its offset index; 0 if it is not known."""
    index = _OffsetIndexCheck(disk, directory, base_offset, disk.list(directory))
    return index.entries[-1][1] + HEADER_SIZE_BYTES if index.entries else 0


class _IndexFile:
    """The check of an index file. It reports the first bad entry, and the number of bad entries."""

    kind = ""
    entry = _OFFSET_ENTRY
    consequence = ""

    def __init__(self, disk: Disk, directory: str, base_offset: int, names: list[str]) -> None:
        self.findings: list[Finding] = []
        self.base_offset = base_offset
        self.name = file_name(base_offset, self.kind)
        self.path = f"{directory}/{self.name}"
        self.is_there = self.name in names
        self.is_unread = False
        self.is_padded = False
        self._bad: tuple[int, str] | None = None
        self._bad_count = 0
        data = self._read(disk) if self.is_there else b""
        size = self.entry.size
        over = len(data) % size
        whole = data[: len(data) - over]
        # Kafka allocates an index at its full size: after a crash it ends in zeros.
        used = len(whole.rstrip(b"\0"))
        used += -used % size
        self.is_padded = used < len(whole)
        self.entries = list(self.entry.iter_unpack(whole[:used]))
        if over:
            self._call_bad(len(data) - over, f"{over} bytes follow the last whole entry")

    def _read(self, disk: Disk) -> bytes:
        try:
            return read_file(disk, self.path)
        except OSError as error:
            self.is_unread = True
            self.findings.append(Finding(DAMAGE, self.path, None, _read_error(error), _UNREAD_CONSEQUENCE))
            return b""

    def _call_bad(self, position: int, what: str) -> None:
        if self._bad is None or position < self._bad[0]:
            self._bad = (position, what)
        self._bad_count += 1

    def _call_entry_bad(self, number: int, what: str) -> None:
        self._call_bad(number * self.entry.size, what)

    def _conclude(self) -> None:
        if self._bad is None or self.is_unread:
            return
        position, what = self._bad
        if self._bad_count > 1:
            what += f" (and {self._bad_count - 1} more)"
        self.findings.append(Finding(DAMAGE, self.path, position, what, self.consequence))

    def _check_ascent(self, column: int, what: str) -> None:
        for number, (one, next_one) in enumerate(pairwise(self.entries), 1):
            if one[column] >= next_one[column]:
                self._call_entry_bad(number, f"{what} {next_one[column]} comes after {one[column]}")


class _OffsetIndexCheck(_IndexFile):
    """Each entry has the position of a batch, and its last offset. Followers of Kafka before 3.9 have one
    entry for each fetch: the position of its first batch, the last offset of a later batch before the next
    entry.
    """

    kind = INDEX
    entry = _OFFSET_ENTRY
    consequence = "reads search at a wrong position; it can be rebuilt"

    def __init__(self, disk: Disk, directory: str, base_offset: int, names: list[str]) -> None:
        super().__init__(disk, directory, base_offset, names)
        self._next = 0
        # The last offset of the batch at the entry before `_next`, until a batch ends at the entry's offset.
        self._sought_from: int | None = None
        self._check_ascent(0, "relative offset")
        self._check_ascent(1, "position")

    def take(self, batch: StoredBatch) -> None:
        entries = self.entries
        while self._next < len(entries) and entries[self._next][1] <= batch.position:
            self._give_up()
            if entries[self._next][1] < batch.position:
                self._call_entry_bad(self._next, f"no batch begins at position {entries[self._next][1]}")
            else:
                self._sought_from = batch.last_offset
            self._next += 1
        if self._sought_from is not None and batch.last_offset >= self._offset(self._next - 1):
            if batch.last_offset == self._offset(self._next - 1):
                self._sought_from = None
            self._give_up()

    def _offset(self, number: int) -> int:
        relative: int = self.entries[number][0]
        return relative + self.base_offset

    def least_size_bytes(self, from_offset: int, end_offset: int) -> int:
        """The minimal size of the log file by the entries of these offsets; 0 without entries."""
        return max(
            (
                position + HEADER_SIZE_BYTES
                for number, (_, position) in enumerate(self.entries)
                if from_offset <= self._offset(number) < end_offset
            ),
            default=0,
        )

    def _give_up(self) -> None:
        """Report that no batch ends at the last entry's offset."""
        if self._sought_from is None:
            return
        number = self._next - 1
        self._call_entry_bad(
            number,
            f"the batch at position {self.entries[number][1]} ends at offset {self._sought_from}, not at "
            f"{self._offset(number)}",
        )
        self._sought_from = None

    def finish(self) -> None:
        self._give_up()
        for number in range(self._next, len(self.entries)):
            self._call_entry_bad(number, f"no batch begins at position {self.entries[number][1]}")
        self._conclude()


class _TimeIndexCheck(_IndexFile):
    """Each entry is a running maximum: no record up to its offset is later, and one record has its timestamp.
    The last entry of a sealed segment has the latest timestamp.
    """

    kind = TIME_INDEX
    entry = _TIME_ENTRY
    consequence = "searches by time and retention may be wrong; it can be rebuilt"

    def __init__(self, disk: Disk, directory: str, base_offset: int, names: list[str]) -> None:
        super().__init__(disk, directory, base_offset, names)
        self._next = 0
        self._latest = self._latest_but_one = _NO_TIMESTAMP
        self._last_offset = base_offset - 1
        self._check_ascent(0, "timestamp")
        self._check_ascent(1, "relative offset")

    def take(self, batch: StoredBatch) -> None:
        self._settle_before(batch.base_offset)
        self._latest_but_one = self._latest
        self._latest = max(self._latest, batch.max_timestamp)
        self._last_offset = batch.last_offset

    def _settle_before(self, offset: int | None) -> None:
        """Check the entries before `offset`: all their records were read."""
        entries = self.entries
        while self._next < len(entries):
            timestamp, relative_offset = entries[self._next]
            entry_offset = relative_offset + self.base_offset
            if offset is not None and entry_offset >= offset:
                return
            # An entry may have the offset of a record within the last batch; then later records of this batch
            # may have later timestamps.
            before = self._latest if entry_offset >= self._last_offset else self._latest_but_one
            if before > timestamp:
                what = f"until offset {entry_offset} the latest timestamp is {before}, not {timestamp}"
                self._call_entry_bad(self._next, what)
            elif self._latest < timestamp:
                what = f"until offset {entry_offset} no record has the timestamp {timestamp}"
                self._call_entry_bad(self._next, what)
            elif offset is None and entry_offset > self._last_offset:
                self._call_entry_bad(self._next, f"there is no offset {entry_offset}")
            self._next += 1

    def finish(self, *, is_sealed: bool) -> None:
        self._settle_before(None)
        last = self.entries[-1][0] if self.entries else _NO_TIMESTAMP
        if self.is_there and is_sealed and self._bad is None and last < self._latest:
            end = len(self.entries) * self.entry.size
            self._call_bad(
                end, f"the latest timestamp of the segment is {self._latest}, the last entry has {last}"
            )
        self._conclude()


class _Abort:
    """An abort marker and its transaction in the log, to compute the right index entry.

    Records removed by retention or compaction, or in a hole, may be missing: `last_missing` is the last such
    offset. Offsets; -1 is none.
    """

    __slots__ = (
        "after_offset",
        "first_offset",
        "last_missing_before",
        "last_missing_until",
        "next_begin",
        "offset",
        "open_from",
        "producer_id",
    )

    def __init__(self, producer_id: int, offset: int) -> None:
        self.producer_id = producer_id
        self.offset = offset
        self.first_offset = -1
        """The offset of the transaction's first present batch."""
        self.after_offset = -1
        """The last offset at which the producer was not in this transaction: it began later."""
        self.last_missing_before = -1
        """The last missing offset before `first_offset`, or before the marker."""
        self.open_from = -1
        """The first offset of the earliest transaction that is open after the marker."""
        self.next_begin = -1
        """The first offset of the next transaction in the segment. Without an open transaction it is a
        possible last stable offset: a follower of Kafka writes it if both came with one fetch
        (`UnifiedLog.append`).
        """
        self.last_missing_until = -1
        """The last missing offset before the limit of the last stable offset: the marker if a transaction is
        open, else `next_begin`, or the segment's end.
        """

    @property
    def entry(self) -> AbortedTransaction | None:
        """The entry that a broker computes from the log; None if the log has no data of the transaction."""
        if self.first_offset < 0:
            return None
        return AbortedTransaction(self.producer_id, self.first_offset, self.offset, self._last_stable_offset)

    @property
    def _last_stable_offset(self) -> int:
        return self.offset + 1 if self.open_from < 0 else self.open_from

    @property
    def name(self) -> str:
        before = "" if self.first_offset < 0 else f"from offset {self.first_offset} "
        return f"the aborted transaction of producer {self.producer_id} {before}to {self.offset}"

    def difference(self, entry: AbortedTransaction) -> str:
        """The difference of an entry from the log; "" if it is right, or may be with missing batches."""
        first, stable = entry.first_offset, entry.last_stable_offset
        if first != self.first_offset and not self.after_offset < first <= self.last_missing_before:
            if self.first_offset < 0 and self.after_offset >= self.last_missing_before:
                return f"at offset {self.offset} no transaction of producer {self.producer_id} is open"
            return f"{self.name} begins at {first} by this entry"
        if stable in (self._last_stable_offset, self.next_begin) and stable >= 0:
            return ""
        # Too low, readers search further; too high, it hides records aborted later.
        if 0 <= stable <= self.last_missing_until and (self.open_from < 0 or stable < self.open_from):
            return ""
        return (
            f"after {self.name} the last stable offset is {stable} by this entry, by the log it is "
            f"{self._last_stable_offset}"
        )


class _Transactions:
    """The transactions of each producer, through all segments. `producers` has applied each batch before."""

    def __init__(self, producers: ProducerState) -> None:
        self._producers = producers
        # By producer: the offset of its last marker or of its last batch without a transaction, and the last
        # missing offset before its open transaction.
        self._done: dict[int, int] = {}
        self._missing: dict[int, int] = {}

    def begins(self, batch: StoredBatch, last_missing: int) -> bool:
        """Whether the next batch, of records, begins a transaction. `last_missing` is the last missing offset
        before the batch."""
        producer_id = batch.producer_id
        if producer_id < 0 or not batch.record_count:
            return False
        if not batch.is_transactional:
            self._done[producer_id] = batch.last_offset
            return False
        if self._producers.producers[producer_id].current_txn_first_offset != batch.base_offset:
            return False
        self._missing[producer_id] = last_missing
        return True

    def end(self, marker: EndMarker, offset: int, first_offset: int, last_missing: int) -> _Abort | None:
        """A marker at `offset` ends the transaction from `first_offset` on, -1 for none; returns the abort,
        if it is one."""
        producer_id = marker.producer_id
        missing_before = self._missing.pop(producer_id, last_missing)
        after_offset = self._done.get(producer_id, -1)
        self._done[producer_id] = offset
        if marker.commit:
            return None
        abort = _Abort(producer_id, offset)
        abort.first_offset, abort.after_offset = first_offset, after_offset
        abort.last_missing_before, abort.last_missing_until = missing_before, last_missing
        open_from = self._producers.first_unstable_offset
        abort.open_from = -1 if open_from is None else open_from
        return abort


class _AbortedCheck(_IndexFile):
    """Each entry has an abort marker in the log and agrees with it; each abort marker of a transaction has an
    entry.
    """

    kind = TRANSACTION_INDEX
    entry = transaction_index.ENTRY
    consequence = "READ_COMMITTED would show aborted records, or hide committed ones; it can be rebuilt"

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        names: list[str],
        transactions: _Transactions,
    ) -> None:
        super().__init__(disk, directory, base_offset, names)
        self.expected: list[AbortedTransaction] = []
        """The right content."""
        self._transactions = transactions
        self._aborts: dict[int, _Abort] = {}
        # Markers after which no transaction is open or has begun yet.
        self._waiting: list[_Abort] = []

    def take(
        self,
        batch: StoredBatch,
        read: Callable[[int, int], bytes],
        ended: AbortedTransaction | None,
        last_missing: int,
    ) -> None:
        """Add the next batch, the transaction that it aborts, and the last missing offset before it."""
        if not batch.is_control:
            if self._transactions.begins(batch, last_missing):
                self._settle(batch.base_offset, last_missing)
        elif (marker := stored_marker(batch, read)) is not None:
            first_offset = -1 if ended is None else ended.first_offset
            abort = self._transactions.end(marker, batch.base_offset, first_offset, last_missing)
            if abort is not None:
                self._aborts[abort.offset] = abort
                if abort.open_from < 0:
                    self._waiting.append(abort)

    def _settle(self, next_begin: int, last_missing: int) -> None:
        for abort in self._waiting:
            abort.next_begin, abort.last_missing_until = next_begin, last_missing
        self._waiting.clear()

    def finish(self, end_offset: int, last_missing: int) -> None:
        self._settle(-1, last_missing)
        sound: dict[int, AbortedTransaction] = {}
        reported = set()
        previous = -1
        for number, (version, *fields) in enumerate(self.entries):
            entry = AbortedTransaction(*fields)
            abort = self._aborts.get(entry.last_offset)
            if version != transaction_index.VERSION:
                self._call_entry_bad(number, f"version {version} is not known")
            elif entry.last_offset <= previous:
                self._call_entry_bad(number, f"last offset {entry.last_offset} comes after {previous}")
            elif not 0 <= entry.first_offset <= entry.last_offset < end_offset:
                what = f"a transaction from offset {entry.first_offset} to {entry.last_offset}"
                self._call_entry_bad(number, f"{what} is not in a segment that ends at {end_offset}")
            elif abort is None or abort.producer_id != entry.producer_id:
                what = f"at offset {entry.last_offset} is not an abort marker of producer {entry.producer_id}"
                self._call_entry_bad(number, what)
            else:
                previous = entry.last_offset
                reported.add(previous)
                if what := abort.difference(entry):
                    self._call_entry_bad(number, what)
                else:
                    sound[previous] = entry
        due = {offset: made for offset, abort in self._aborts.items() if (made := abort.entry) is not None}
        for offset in sorted(due.keys() - reported):
            self._call_bad(len(self.entries) * self.entry.size, f"{self._aborts[offset].name} is missing")
        # Entries without a transaction in the log: it was removed by retention or compaction.
        due |= sound
        self.expected = [due[offset] for offset in sorted(due)]
        self._conclude()


# Producers --------------------------------------------------------------------------------------------------


def _transaction_from(offset: int) -> str:
    return "no transaction" if offset < 0 else f"one from offset {offset} on"


class _Snapshots:
    """The producer snapshots of a directory, each compared when the walk reaches its offset."""

    def __init__(self, check: PartitionCheck, names: list[str]) -> None:
        self.latest_producer_id = -1
        self._check = check
        self._has_gaps = False
        found = (offset for name in names if (offset := base_offset_of(name, SNAPSHOT)) is not None)
        self._left = sorted(found, reverse=True)

    def reach(self, offset: int, producers: ProducerState, *, has_gaps: bool) -> None:
        """Compare the snapshots up to `offset`: `producers` has all batches before it."""
        self._has_gaps = has_gaps
        while self._left and self._left[-1] <= offset:
            self._compare(self._left.pop(), producers)

    def finish(self, end_offset: int, producers: ProducerState) -> None:
        self.reach(end_offset, producers, has_gaps=self._check.has_gaps)
        for offset in self._left:
            what = f"it is of offset {offset}, the log ends at {end_offset}"
            self._bad(offset, what, "a start removes it", None)

    def _compare(self, offset: int, producers: ProducerState) -> None:
        check = self._check
        rescan = producers.producers
        content = check.read(file_name(offset, SNAPSHOT))
        if content is None:
            return
        noted = decode_snapshot(content)
        if noted is None:
            what = "the checksum or the length of the snapshot does not fit"
            consequence = "a start uses the log instead; it can be rebuilt"
            self._bad(offset, what, consequence, encode_snapshot(rescan))
            return
        self.latest_producer_id = max(self.latest_producer_id, *noted, -1)
        if offset <= check.start_offset:
            return  # the batches of this snapshot are deleted
        wrong = {
            producer_id: why
            for producer_id, entry in noted.items()
            if (why := self._difference(entry, rescan.get(producer_id), offset, check.start_offset))
        }
        for producer_id, entry in rescan.items():
            if producer_id not in noted and entry.current_txn_first_offset >= 0:
                wrong[producer_id] = "no entry in the snapshot, but its transaction is open"
        if wrong:
            producer_id, why = next(iter(wrong.items()))
            sound = {one: entry for one, entry in noted.items() if one not in wrong}
            consequence = "a producer's next batch may be refused, or appended twice; it can be rebuilt"
            what = f"producer {producer_id}: {why}"
            self._bad(offset, what, consequence, encode_snapshot({**sound, **rescan}))

    def _difference(
        self, noted: ProducerEntry, found: ProducerEntry | None, offset: int, start_offset: int
    ) -> str:
        """The difference of a snapshot from the log; "" if both can be true."""
        last = noted.last_data_offset
        seen = -1 if found is None else found.last_data_offset
        if last >= offset:
            return f"the last offset {last} is not before the offset of the snapshot"
        if why := self._difference_in_transaction(noted, found, start_offset):
            return why
        if found is not None and found.batches:
            if noted.producer_epoch < found.producer_epoch:
                return f"epoch {noted.producer_epoch} in the snapshot, {found.producer_epoch} in the log"
            if last == seen and noted.last_sequence != found.last_sequence:
                return (
                    f"last sequence {noted.last_sequence} in the snapshot, {found.last_sequence} in the log"
                )
        elif found is not None:
            return ""  # the marker of a newer epoch may have removed its batches
        # The snapshot has a later batch than the log: compaction or retention may have removed it.
        if last == seen or (last > seen and (self._has_gaps or last < start_offset)):
            return ""
        return f"last offset {last} in the snapshot, {seen if seen >= 0 else 'none'} in the log"

    def _difference_in_transaction(
        self, noted: ProducerEntry, found: ProducerEntry | None, start_offset: int
    ) -> str:
        begun = noted.current_txn_first_offset
        seen = -1 if found is None else found.current_txn_first_offset
        # Retention may have removed the first batch of a transaction, compaction the batches of an ended one.
        if begun == seen or self._has_gaps or 0 <= begun < start_offset:
            return ""
        return f"{_transaction_from(begun)} is open in the snapshot, {_transaction_from(seen)} in the log"

    def _bad(self, offset: int, what: str, consequence: str, content: bytes | None) -> None:
        check = self._check
        check.bad_snapshots[offset] = content
        check._say(DAMAGE, file_name(offset, SNAPSHOT), None, what, consequence)
