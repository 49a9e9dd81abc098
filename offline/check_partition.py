"""Checks a partition's directory: every byte is read once, nothing is changed.

Log files: sizes, checksums and order of every batch (`log_walk.py`), segments that overlap. Beside them: each
entry of the offset and time indexes against the batches, each entry of `.txnindex` against what a broker
makes of the batches and markers in the log, each producer snapshot against a rescan up to its offset,
`leader-epoch-checkpoint` against the epochs in the batches, `partition.metadata`.

A finding is damage when somebody would get something wrong, or something is lost; else a note. What may
rightly be missing is no finding: indexes and snapshots are made anew, an index may have few entries, a
producer may have expired. What no check can see: a base offset that is wrong but falls into a gap that
compaction left, or is that of the very last batch after a crash and too high; what is missing altogether at
the end of a log that no checkpoint speaks of.

`PartitionCheck.steps` is a generator, so that long checks can be shown; memory is bounded by the indexes of
one segment and the producers of the partition.
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
from odradek.storage.log.batches import HEADER_BYTES, StoredBatch
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

__all__ = ["DAMAGE", "NOTE", "Finding", "LostSegment", "PartitionCheck", "SegmentCheck", "lost_logs"]

DAMAGE = "damage"
NOTE = "note"
STRANGERS_MAX = 1000
STEP_BATCHES = 256
"""After so many batches `steps` gives a sign of life."""

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
    """One whose log file is gone, or the end of that. The offsets from `base_offset` to before `end_offset`
    were there, or what compaction had left of them, in `size_bytes_min` bytes at least, as far as its index
    says.
    """

    base_offset: int
    end_offset: int
    size_bytes_min: int
    is_compacted: bool

    @property
    def told(self) -> str:
        what = f"the offsets {self.base_offset} to {self.end_offset - 1} are lost"
        if self.is_compacted:
            what = f"what was there of the offsets {self.base_offset} to {self.end_offset - 1} is lost"
        if self.size_bytes_min:
            return f"{what}, {self.size_bytes_min} bytes at least"
        return f"{what}, how many bytes is not known"


def lost_logs(names: list[str]) -> list[int]:
    """The base offsets of segments of which there are indexes and no log file: nobody leaves that behind.

    Whoever removes a segment renames its log first, and the new name tells so until all of it is gone. What a
    compaction replaces goes without, but not before the `.swap` is there.
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
        """The batches lost at the end of the file, without a trace in it."""
        self.holes: list[Hole] = []
        self.header_repairs: list[HeaderRepair] = []
        self.bad_indexes: set[str] = set()
        """INDEX, TIME_INDEX, TRANSACTION_INDEX: those that are not to be trusted."""
        self.padded_indexes: set[str] = set()
        """The indexes with room after their entries, as after a crash of Kafka."""
        self.aborted: list[AbortedTransaction] = []
        """The right content of a bad TRANSACTION_INDEX."""

    @property
    def is_sound(self) -> bool:
        return not self.holes and not self.header_repairs

    @property
    def is_empty(self) -> bool:
        """Whether it has no batch, or none that is sound."""
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
        """`recovery_point` is the checkpoint's, if there is one; `journal_waits` says that a flush journal
        has bytes for this partition that a start will put back; `is_compacted`, whether compaction may have
        left gaps, as far as anybody knows.
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
        """The last offset before the walk's place that has no record: before the log's start, or in a gap."""
        self.latest_epoch = -1
        self.latest_producer_id = -1
        """The largest of all in the log and in snapshots."""
        self.topic_id: bytes | None = None
        self.epochs_are_bad = False
        self.epochs = LeaderEpochs()
        """As the batches say."""
        self.bad_snapshots: dict[int, bytes | None] = {}
        """By offset; what should stand there instead, if that is known."""
        self.snapshot_at_end: bytes = encode_snapshot({})
        self.unread: list[str] = []
        """Paths of what the disk did not give: nothing is to be repaired by what was found without them."""
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
        # Batches of another epoch than the checkpoint says: segment, name of the file, batch, epoch by the
        # checkpoint. And the first batch whose epoch is older than that of one before it.
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
        """Where those begin that no marker in the log has ended, by the id of their producer."""
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
        """Do it; gives now and then how many bytes of log files were read since the last time."""
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
                "a start after a crash would cut them off; odradek import-log converts them",
            )
            self._legacy_finding = self.findings[-1]

    # Names and small files

    def _say(self, kind: str, name: str, position: int | None, what: str, consequence: str) -> None:
        path = f"{self.path}/{name}" if name else self.path
        self.findings.append(Finding(kind, path, position, what, consequence))

    def _say_unread(self, name: str, error: OSError) -> None:
        self.unread.append(f"{self.path}/{name}")
        self._say(DAMAGE, name, None, _told_of_error(error), _UNREAD_CONSEQUENCE)

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None, and a finding, where the disk does not give it."""
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
                    "a start puts it in its place",
                )
            elif name.endswith(LOG) and base_offset_of(name, LOG) is None:
                self._say(NOTE, name, None, "is not named as a segment is", "it is left alone")
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
                "it does not say the id of a topic",
                "the directory passes for one of whatever topic has its name",
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
            due_end = self._recovery_point  # a clean stop says where the log ends
        for item in walk(file.read, segment.size_bytes, segment.base_offset, due_end):
            if isinstance(item, Hole):
                self._tell_hole(name, item)
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
                f"the segment begins at offset {base_offset}, the one before it ends at {end_offset}",
                "some offsets are there twice",
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
        """A file that was cut between two batches looks whole, but not to its index."""
        end_offset = segment.end_offset
        size_bytes = offsets.least_size_bytes(end_offset, following) - segment.size_bytes
        if size_bytes > 0:
            segment.cut_off = LostSegment(end_offset, following, size_bytes, self._is_compacted)
            self._say(DAMAGE, name, segment.size_bytes, "it was longer by its index", segment.cut_off.told)

    def _judge_lost(self, from_offset: int, end_offset: int) -> int:
        """Tell of the lost segments of an empty stretch; returns where the first of them begins."""
        bases = [base for base in self._lost_logs if from_offset <= base < end_offset]
        for base, following in pairwise([*bases, end_offset]):
            size_bytes_min = _size_bytes_min(self._disk, self.path, base)
            lost = LostSegment(base, following, size_bytes_min, self._is_compacted)
            self.lost_segments.append(lost)
            what = "it is not there, but its indexes are, and a broker removes all files of a segment or none"
            self._say(DAMAGE, file_name(base, LOG), None, what, lost.told)
        self._lost_logs = [base for base in self._lost_logs if base not in bases]
        return bases[0] if bases else end_offset

    def _judge_lost_end(self) -> None:
        """After the end of the log, where only flushed offsets are known to have existed."""
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

    def _tell_hole(self, name: str, hole: Hole) -> None:
        if hole.first_offset == hole.end_offset:
            lost = "no offset is missing for it"
        elif hole.end_offset > hole.first_offset:
            lost = f"the records from offset {hole.first_offset} to {hole.end_offset - 1} cannot be read"
        else:
            lost = f"what was appended from offset {hole.first_offset} on cannot be read"
        if self._journal_waits:
            lost += "; a start puts back what group-log.* has of it"
        size_bytes = hole.size_bytes
        what = f"{hole.why}; {size_bytes} {'byte is' if size_bytes == 1 else 'bytes are'} no sound batch"
        self._say(DAMAGE, name, hole.position, what, lost)

    def _say_header_repair(self, name: str, repair: HeaderRepair) -> None:
        self._say(
            DAMAGE,
            name,
            repair.batch.position,
            repair.what,
            "its records are sound, but cannot be found; the header can be put right",
        )

    def _judge_epochs(self, checkpoint: LeaderEpochs | None, names: list[str]) -> None:
        """The checkpoint against the batches. Where one batch alone says otherwise, or epochs go down, it is
        the batch: its checksum does not cover the epoch. A checkpoint that lacks the newest epochs is brought
        up to date by a start after a crash, if their batches are behind the recovery point.
        """
        self.epochs.truncate_start(self.start_offset)
        strangers = self._strangers
        fell = self._first_fall is not None
        if strangers and (fell or self._stranger_count == 1 < self.batch_count):
            for segment, name, batch, due in strangers:
                what = f"a batch has the leader epoch {batch.leader_epoch} where the checkpoint says {due}"
                consequence = "consumers may think that the log was truncated; the header can be put right"
                self._say(DAMAGE, name, batch.position, what, consequence)
                segment.header_repairs.append(HeaderRepair(batch._replace(leader_epoch=due), what))
            return
        if self._first_fall is not None:
            name, position, epoch, before = self._first_fall
            consequence = "one of the two is wrong; consumers may think that the log was truncated"
            self._say(DAMAGE, name, position, f"leader epoch {epoch} comes after {before}", consequence)
        elif strangers:
            _, _, batch, due = strangers[0]
            has = f"offset {batch.base_offset} has the leader epoch {batch.leader_epoch}"
            self._call_epochs_bad(f"{has}, the checkpoint says {due}")
        elif self.epochs.epochs and self._is_flushed(self.start_offset):
            if LEADER_EPOCHS not in names:
                self._call_epochs_bad("it is missing")
            elif checkpoint is not None and not checkpoint.epochs:
                self._call_epochs_bad("it says no epoch")

    def _call_epochs_bad(self, what: str) -> None:
        self.epochs_are_bad = True
        consequence = "consumers that ask for the end of an epoch are misled; it can be rebuilt"
        self._say(DAMAGE, LEADER_EPOCHS, None, what, consequence)

    def _is_flushed(self, offset: int) -> bool:
        return self._was_clean or self._recovery_point is None or offset < self._recovery_point


def parse_leader_epochs(data: bytes) -> list[tuple[int, int]] | str:
    """(epoch, start offset) of each line, or their damage. Kafka makes an empty file at first."""
    lines = decode_lines(data) if data else []
    if lines is None:
        return "it is not a checkpoint of version 0 with as many lines as it announces"
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


def _told_of_error(error: OSError) -> str:
    return f"it cannot be read: {error.strerror or error}"


_UNREAD_CONSEQUENCE = "what it says was not checked, and nothing beside it is repaired"


# Indexes ----------------------------------------------------------------------------------------------------


def _size_bytes_min(disk: Disk, directory: str, base_offset: int) -> int:
    """How large a log file must have been by its offset index; 0 where that says nothing."""
    index = _OffsetIndexCheck(disk, directory, base_offset, disk.list(directory))
    return index.entries[-1][1] + HEADER_BYTES if index.entries else 0


class _IndexFile:
    """An index beside a segment: its entries, and what was found. The first bad entry is told, and how many
    there are.
    """

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
        # Kafka makes an index at its full size: after a crash it ends in zeros.
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
            self.findings.append(Finding(DAMAGE, self.path, None, _told_of_error(error), _UNREAD_CONSEQUENCE))
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
    """Each entry names the place where a batch begins, and that batch's last offset. Followers of Kafka
    before 3.9 have one entry for all that came with a fetch: the place of the first batch, the last offset of
    a later one before the next entry's place.
    """

    kind = INDEX
    entry = _OFFSET_ENTRY
    consequence = "records are looked for in the wrong place; it can be rebuilt"

    def __init__(self, disk: Disk, directory: str, base_offset: int, names: list[str]) -> None:
        super().__init__(disk, directory, base_offset, names)
        self._next = 0
        # The last offset of the batch where the entry before `_next` points to, until one is met that ends
        # where the entry says.
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
        """How large the log file must be by the entries of these offsets; 0 where there are none."""
        return max(
            (
                position + HEADER_BYTES
                for number, (_, position) in enumerate(self.entries)
                if from_offset <= self._offset(number) < end_offset
            ),
            default=0,
        )

    def _give_up(self) -> None:
        """No batch ends where the last entry says."""
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
    """Each entry is a running maximum: no record until its offset is later, and one is of that very time. The
    last one of a sealed segment says the latest of all.
    """

    kind = TIME_INDEX
    entry = _TIME_ENTRY
    consequence = "look-ups by time and retention go wrong; it can be rebuilt"

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
        """Judge the entries of earlier offsets: all that they speak of has been seen."""
        entries = self.entries
        while self._next < len(entries):
            timestamp, relative_offset = entries[self._next]
            entry_offset = relative_offset + self.base_offset
            if offset is not None and entry_offset >= offset:
                return
            # Within the last batch it may be the offset of the very record: then others of it come later.
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
                end, f"the latest timestamp of the segment is {self._latest}, the last entry says {last}"
            )
        self._conclude()


class _Abort:
    """An abort marker, and what the log says of the transaction that it ends: what its entry must say.

    The log says all of it, save for what went with retention, compaction or a hole before anybody looked:
    `last_missing` bounds that. Offsets; -1 is none.
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
        """The producer was doing something else there: its transaction has begun later."""
        self.last_missing_before = -1
        """Before `first_offset`, or the marker."""
        self.open_from = -1
        """Where the earliest transaction begins that is still open behind the marker."""
        self.next_begin = -1
        """Where the next transaction of the segment begins: unless one is open that is a last stable offset,
        too. A follower of Kafka notes that, when both have come with one fetch (`UnifiedLog.append`).
        """
        self.last_missing_until = -1
        """Before whatever bounds the last stable offset: the marker where one is open, else `next_begin`, or
        the segment's end.
        """

    @property
    def entry(self) -> AbortedTransaction | None:
        """What a broker makes of it that reads the log; None where that has nothing of the transaction."""
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
            return f"{self.name} is said to begin at {first}"
        if stable in (self._last_stable_offset, self.next_begin) and stable >= 0:
            return ""
        # Too low, readers search further; too high, it hides records aborted later.
        if 0 <= stable <= self.last_missing_until and (self.open_from < 0 or stable < self.open_from):
            return ""
        return (
            f"behind {self.name} the last stable offset is said to be {stable}, by the log it is "
            f"{self._last_stable_offset}"
        )


class _Transactions:
    """The transactions of each producer, through all segments. `producers` has applied each batch before."""

    def __init__(self, producers: ProducerState) -> None:
        self._producers = producers
        # By producer: the offset of its last marker or of its last batch in no transaction, and what was
        # missing before the transaction that is open.
        self._done: dict[int, int] = {}
        self._missing: dict[int, int] = {}

    def begins(self, batch: StoredBatch, last_missing: int) -> bool:
        """Whether the next batch, of records, begins a transaction. `last_missing` is before the batch."""
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
        """A marker at `offset` ends what has begun at `first_offset`, -1 for nothing; what an abort says."""
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
    """Each entry belongs to an abort marker in the log and says of it what the log says; each marker that
    ends a transaction has one.
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
        # Behind these no transaction is open, nor has one begun yet.
        self._waiting: list[_Abort] = []

    def take(
        self,
        batch: StoredBatch,
        read: Callable[[int, int], bytes],
        ended: AbortedTransaction | None,
        last_missing: int,
    ) -> None:
        """The next batch, the transaction that it aborts, and the last offset that is missing before it."""
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
        told = set()
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
                what = f"at offset {entry.last_offset} is no abort marker of producer {entry.producer_id}"
                self._call_entry_bad(number, what)
            else:
                previous = entry.last_offset
                told.add(previous)
                if what := abort.difference(entry):
                    self._call_entry_bad(number, what)
                else:
                    sound[previous] = entry
        due = {offset: made for offset, abort in self._aborts.items() if (made := abort.entry) is not None}
        for offset in sorted(due.keys() - told):
            self._call_bad(len(self.entries) * self.entry.size, f"{self._aborts[offset].name} is missing")
        # What only the index knows of was removed by retention or compaction.
        due |= sound
        self.expected = [due[offset] for offset in sorted(due)]
        self._conclude()


# Producers --------------------------------------------------------------------------------------------------


def _transaction_from(offset: int) -> str:
    return "no transaction" if offset < 0 else f"one from offset {offset}"


class _Snapshots:
    """The producer snapshots of a directory, each compared when the walk has come to its offset."""

    def __init__(self, check: PartitionCheck, names: list[str]) -> None:
        self.latest_producer_id = -1
        self._check = check
        self._has_gaps = False
        found = (offset for name in names if (offset := base_offset_of(name, SNAPSHOT)) is not None)
        self._left = sorted(found, reverse=True)

    def reach(self, offset: int, producers: ProducerState, *, has_gaps: bool) -> None:
        """The batches before `offset` have been taken in."""
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
        said = decode_snapshot(content)
        if said is None:
            what = "the checksum or the length of the snapshot does not fit"
            consequence = "a start uses the log instead; it can be rebuilt"
            self._bad(offset, what, consequence, encode_snapshot(rescan))
            return
        self.latest_producer_id = max(self.latest_producer_id, *said, -1)
        if offset <= check.start_offset:
            return  # of batches that are not here any more
        wrong = {
            producer_id: why
            for producer_id, entry in said.items()
            if (why := self._difference(entry, rescan.get(producer_id), offset, check.start_offset))
        }
        for producer_id, entry in rescan.items():
            if producer_id not in said and entry.current_txn_first_offset >= 0:
                wrong[producer_id] = "it says nothing, though its transaction is open"
        if wrong:
            producer_id, why = next(iter(wrong.items()))
            sound = {one: entry for one, entry in said.items() if one not in wrong}
            consequence = "a producer's next batch may be refused, or taken twice; it can be rebuilt"
            what = f"of producer {producer_id} {why}"
            self._bad(offset, what, consequence, encode_snapshot({**sound, **rescan}))

    def _difference(
        self, said: ProducerEntry, found: ProducerEntry | None, offset: int, start_offset: int
    ) -> str:
        """The difference of a snapshot from the log; "" if both can be true."""
        last = said.last_data_offset
        seen = -1 if found is None else found.last_data_offset
        if last >= offset:
            return f"it says the last offset {last}, which is not before its own"
        if why := self._difference_in_transaction(said, found, start_offset):
            return why
        if found is not None and found.batches:
            if said.producer_epoch < found.producer_epoch:
                return f"it says the epoch {said.producer_epoch}, the log {found.producer_epoch}"
            if last == seen and said.last_sequence != found.last_sequence:
                return f"it says the sequence {said.last_sequence}, the log {found.last_sequence}"
        elif found is not None:
            return ""  # the marker of a newer epoch has made its batches forgotten, or not yet
        # A batch later than any in the log: compaction may have removed it, or retention.
        if last == seen or (last > seen and (self._has_gaps or last < start_offset)):
            return ""
        return f"it says the last offset {last}, the log {seen if seen >= 0 else 'none'}"

    def _difference_in_transaction(
        self, said: ProducerEntry, found: ProducerEntry | None, start_offset: int
    ) -> str:
        begun = said.current_txn_first_offset
        seen = -1 if found is None else found.current_txn_first_offset
        # Retention may have taken the first batch of one, compaction those of one that has ended since.
        if begun == seen or self._has_gaps or 0 <= begun < start_offset:
            return ""
        return (
            f"it says that {_transaction_from(begun)} is open where {_transaction_from(seen)} is by the log"
        )

    def _bad(self, offset: int, what: str, consequence: str, content: bytes | None) -> None:
        check = self._check
        check.bad_snapshots[offset] = content
        check._say(DAMAGE, file_name(offset, SNAPSHOT), None, what, consequence)
