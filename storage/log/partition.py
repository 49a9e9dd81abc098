"""A partition: what may be appended to it, what has been, and what readers may see.

Appending goes in two steps. `append` judges and stages: offsets are assigned, sequence numbers checked,
nothing is written. `commit` writes all that was staged with one system call and wakes the readers. Between
the two the caller keeps the appended buffers as they are: large batches are written from them without a copy.

A sound v2 batch is stored as the same bytes, save for base offset and leader epoch, which its checksum leaves
out (and, in topics with LogAppendTime or with a wrong latest timestamp, that and the checksum; where a topic
has a codec of its own, it is packed anew). The records inside are looked at, decompressed where need be: what
is stored can be read by every consumer.

When the disk has let it down a partition is offline: everything is answered KAFKA_STORAGE_ERROR until
`rescan.py` has made its files whole again.

Of a transaction that is open here nothing can be read with READ_COMMITTED, nor what follows its first offset
(`transactions.py`); of those that were aborted that read tells.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from odradek.storage.config import LogConfig
from odradek.storage.disk import SyncFailed
from odradek.storage.log._staging import Appender, Tail
from odradek.storage.log.appends import Appends
from odradek.storage.log.flush_journal import identity_of
from odradek.storage.log.log import Log
from odradek.storage.log.retention import segments_to_delete
from odradek.storage.log.scan_checkpoint import ScanCheckpoint
from odradek.storage.log.segment import Segment
from odradek.storage.log.slices import EMPTY, FIRST_TOO_LARGE, Slice
from odradek.storage.log.time_search import Found, finding_first, finding_latest
from odradek.storage.log.transactions import ProducerInfo, Verification
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
READ_LOG_END = -1
"""What is not on all replicas, too: for coordinators, which own what they append, and for followers."""

ZERO_UUID = bytes(16)
SEGMENTS_PER_STEP = 4
"""A few tenths of a millisecond of renaming."""


def _not_told(partition: "Partition", error: OSError, sentence: str) -> None:
    pass


@dataclass(slots=True)
class ReadResult:
    """`aborted` is for READ_COMMITTED: (producer id, first offset) of each aborted transaction in the
    range; None where the first batch was over the limit, as Kafka says null there.
    """

    records: Slice
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None = None


class Partition:
    """See the module. One thread owns it; `flush` alone may run in another.

    `append`, `append_marker` and `preparing` are those of `Appends`, `append_ordinary` and `commit` those of
    `Appender`.
    """

    __slots__ = (
        "_dropped_staged",
        "_identity",
        "_is_broken",
        "append",
        "append_marker",
        "append_ordinary",
        "appender",
        "appends",
        "commit",
        "config",
        "gate",
        "index",
        "is_being_journaled",
        "is_flushing",
        "log",
        "on_trouble",
        "preparing",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        config: LogConfig,
        log: Log,
        *,
        log_start_offset: int = 0,
        leader_epoch: int = 0,
        is_sole_replica: bool = True,
        on_trouble: Callable[["Partition", OSError, str], None] = _not_told,
    ) -> None:
        """Of a sole replica the high watermark is where the log ends. `on_trouble` gets each error of the
        disk, in the thread that met it: with a sentence, which is `failure` when the partition goes offline
        for it.
        """
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self._identity: bytes | None = None
        self.log = log
        self.appender = Appender(log.buffer, self._commit_whole, self._commit_failed)
        self.appender.leader_epoch = leader_epoch
        self.appender.log_start_offset = log_start_offset
        self.appender.is_sole_replica = is_sole_replica
        self.commit = self.appender.commit
        self.appends = Appends(self.name, log, self.appender)
        self.append_ordinary = self.appends.append_ordinary
        self.append = self.appends.append
        self.append_marker = self.appends.append_marker
        self.preparing = self.appends.preparing
        # Offline since the disk has failed, and not since it was deleted or closed.
        self._is_broken = False
        self.is_flushing = False
        self.is_being_journaled = False
        self.gate: AbstractContextManager | None = None
        self.on_trouble = on_trouble
        # Deleted or closed with something staged: its commit has to fail.
        self._dropped_staged = False
        self.set_config(config)
        self._check_order()

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index} [{self.log_start_offset}, {self.log_end_offset}))"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record that can be read."""
        return self.appender.log_start_offset

    @property
    def high_watermark(self) -> int:
        """The offset after the last record that all replicas in sync have."""
        return self.appender.high_watermark.offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record. What is staged does not count."""
        return self.appender.buffer.log_end_offset

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that appends: every batch but a replicated one gets it."""
        return self.appender.leader_epoch

    def follow_leader_epoch(self, leader_epoch: int) -> None:
        """The cluster's view says this epoch. No change by one that is older than ours."""
        self.appender.leader_epoch = max(self.appender.leader_epoch, leader_epoch)

    @property
    def last_stable_offset(self) -> int:
        """Where READ_COMMITTED ends: where the earliest open transaction begins, else the high watermark.

        Retention and DeleteRecords may take the first records of a transaction that is open: then it is where
        the log begins, as in Kafka.
        """
        first_offset = self.log.producers.first_unstable_offset
        if first_offset is None:
            return self.high_watermark
        return min(max(first_offset, self.log_start_offset), self.high_watermark)

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def is_available(self) -> bool:
        return self.appender.failure is None

    @property
    def is_broken(self) -> bool:
        """Offline because of the disk: `rescan` and `reopen` bring it back."""
        return self._is_broken

    @property
    def failure(self) -> str | None:
        """Why it is offline; None while it serves."""
        return self.appender.failure

    def set_config(self, config: LogConfig) -> None:
        """Take new topic settings, from the next append on."""
        self.config = config
        self.appends.set_config(config)
        self.log.set_config(config)

    def _check_order(self) -> None:
        assert (
            0
            <= self.log_start_offset
            <= self.last_stable_offset
            <= self.high_watermark
            <= self.log_end_offset
        ), f"{self!r}: high watermark {self.high_watermark}"

    # Appending

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, version: int
    ) -> Verification | None:
        """Before a producer's transactional batch: what to hand to `append` once the coordinator has said
        that the partition is in its transaction (from version 2 on: has put it there).

        None: the transaction is open here already, nothing has to be asked. Refuses with
        INVALID_PRODUCER_EPOCH.
        """
        self._check_online()
        return self.log.producers.begin_verification(producer_id, producer_epoch, base_sequence, version)

    def producers(self) -> list[ProducerInfo]:
        """The producers that the log knows; of an expired one it knows nothing."""
        self._check_online()
        return [
            ProducerInfo(
                producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
            for producer_id, entry in self.log.producers.producers.items()
        ]

    def _commit_whole(self) -> None:
        """`commit`, with all that it may have to do."""
        if not self.log.has_staged:
            if self._dropped_staged:
                self._dropped_staged = False
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, self.appender.failure or f"{self.name} was cut."
                )
            return
        try:
            self.log.commit()
        except OSError as error:
            self._commit_failed(error)
        self.appender.committed()
        self._check_order()

    def _commit_failed(self, error: OSError) -> NoReturn:
        self.log.rollback()
        raise self._refusal("Writing", error) from error

    def tail(self, size_bytes_max: int) -> Tail | None:
        """See `AppendBuffer.tail`; None also while it is offline."""
        return None if self.appender.failure is not None else self.log.buffer.tail(size_bytes_max)

    def note_journaled(self, tail: Tail) -> None:
        """The flush journal has it: recovery will find it, whatever becomes of the files."""
        self.log.buffer.note_journaled(tail)

    def reading_failed(self, error: OSError) -> KafkaError:
        """For whoever reads what `read` has found: what an error of the disk is to the client then."""
        return self._refusal("Reading", error)

    def _refusal(self, doing: str, error: OSError) -> KafkaError:
        """What an error of the disk is to whoever asked; the operator is told."""
        sentence = f"{doing} {self.log.directory} failed: {error}"
        self.on_trouble(self, error, sentence)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, sentence)

    def flush(self) -> None:
        """Return when everything committed so far will survive a loss of power. May run in a worker thread,
        but in one thread at a time.

        After a failed sync nobody knows what the disk has: the partition is offline from then on, until a
        rescan has looked. A flush that fails otherwise can be tried again: on a full disk, when there is
        room.
        """
        # First this, then the question: whoever wants the files alone asks the other way round.
        self.is_flushing = True
        if self.gate is not None:
            with self.gate:
                pass  # its files are being changed for others, which takes a moment
        try:
            self._check_available()
            self.log.flush()
        except SyncFailed as error:
            # Not `take_offline`: that is for the thread that owns the partition.
            self.appender.failure = f"{self.name} is offline: flushing {self.log.directory} failed: {error}"
            self._is_broken = True
            self.is_flushing = False
            self.on_trouble(self, error, self.appender.failure)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.appender.failure) from error
        except OSError as error:
            raise self._refusal("Flushing", error) from error
        finally:
            self.is_flushing = False

    @property
    def directory(self) -> str:
        return self.log.directory

    @property
    def identity(self) -> bytes:
        """How the flush journal names it; empty when nothing on the disk says whose partition it is."""
        if self._identity is None:
            self._identity = b"" if self.topic_id == ZERO_UUID else identity_of(self.topic_id, self.name)
        return self._identity

    def adopt(self, topic_id: bytes) -> None:
        """It belongs to that topic; `partition.metadata` says so."""
        self.topic_id = topic_id
        self._identity = None
        self.log.invalidate_flushed_position()

    @property
    def is_deleted(self) -> bool:
        return self.log.active.paths.deleted

    # Life of the log

    def expire_producers(self, now_ms: int, expiration_ms: int) -> bool:
        """Forget producers that have been silent for so long; False while something is staged, which may be
        theirs.
        """
        if self.log.has_staged:
            return False
        self.log.producers.expire(now_ms, expiration_ms)
        return True

    def maintaining(self, now_ms: int) -> Work[list[Segment]]:
        """Apply retention, a few segments at a step. Returns segments to remove from the disk in a while; who
        closes the work before its end has to find them in the next start.

        What is old has often left the system's memory: what a step will ask the disk for has been brought
        there by a worker.
        """
        dropped: list[Segment] = []
        # Mostly there is none to go, which the first one tells.
        count = 1
        try:
            while True:
                following = self.log.segments[:count]
                if count > 1 or not following[0].indexes.knows_latest_timestamp:
                    yield partial(_preload, following)
                step = self._drop_oldest(now_ms, count)
                dropped += step
                if len(step) < count:
                    break
                count = SEGMENTS_PER_STEP
                yield None
        except OSError as error:
            # Next time it goes on with those that are left.
            self.on_trouble(self, error, f"Retention in {self.log.directory} failed: {error}")
        return dropped

    def _drop_oldest(self, now_ms: int, count_max: int) -> list[Segment]:
        """The next segments that retention takes, renamed; none when something is staged."""
        log = self.log
        if log.has_staged or self.appender.failure is not None:
            return []
        count = segments_to_delete(
            log.oldest(),
            self.config,
            segment_count=len(log.segments),
            log_bytes=log.size_bytes,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            count_max=count_max,
        )
        if count == 0:
            return []
        dropped = log.drop_segments(count, now_ms)
        if log.segments[0].base_offset > self.log_start_offset:
            self._start_at(log.segments[0].base_offset)
        return dropped

    def _start_at(self, offset: int) -> None:
        self.appender.log_start_offset = offset
        self.log.leader_epochs.truncate_start(offset)
        self._check_order()

    def delete_records(self, offset: int) -> int:
        """Let the log start at `offset` (-1: the high watermark); returns where it starts now.

        Whole segments before it go with the next retention. The disk does not know of it yet:
        `Checkpointing.saving_starts`. Refuses with OFFSET_OUT_OF_RANGE what is after the high watermark, with
        POLICY_VIOLATION in topics that are compacted and no more.
        """
        self._check_online()
        if self.config.is_compacted and not self.config.is_deleted:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"The cleanup.policy of {self.name} has no delete.",
            )
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} ends at {self.high_watermark}; {offset} is not in it.",
            )
        if offset > self.log_start_offset:
            self._start_at(offset)
        return self.log_start_offset

    def wants_flush(self, now_ms: int, asked_ms: int) -> bool:
        """Whether sealed segments are not on the disk yet, or records would have waited for longer than
        `flush.ms` when the next such question comes. The last one came at `asked_ms`.
        """
        log = self.log
        if log.has_unsafe_indexes or log.is_in_unsafe_place:
            return True
        if log.recovery_point >= log.log_end_offset:
            return False
        if log.recovery_point < log.active.base_offset:
            return True
        if log.durable_offset >= log.log_end_offset:
            return False
        next_ms = now_ms + now_ms - asked_ms
        return next_ms - log.unflushed_since_ms(asked_ms) > self.config.flush_ms

    def close(self, scan_checkpoint: ScanCheckpoint | None = None) -> ScanCheckpoint | None:
        """Flush and close; see `Log.close`. What is staged is forgotten. Watchers are woken."""
        self._check_available()
        self.appender.failure = f"{self.name} is closed."
        self._dropped_staged = self.log.has_staged
        scan_checkpoint = self.log.close(scan_checkpoint)
        self.appender.high_watermark.fail(self._unavailable())
        return scan_checkpoint

    def _check_available(self) -> None:
        if self.appender.failure is not None:
            raise self._unavailable()

    def _unavailable(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.appender.failure)

    def _check_online(self) -> None:
        if self._is_broken:
            raise self._unavailable()

    def take_offline(self, reason: str, *, is_reported: bool = False) -> None:
        """The files are not what we believe, or cannot be reached: answer KAFKA_STORAGE_ERROR to everything
        until `reopen`. No change when it has been deleted or closed. `is_reported`: `on_trouble` need not be.
        """
        if self.appender.failure is None:
            self.appender.failure = f"{self.name} is offline: {reason}"
            self._is_broken = True
            if not is_reported:
                self.on_trouble(self, OSError(errno.EIO, reason), self.appender.failure)
        if self._is_broken:
            self.refuse_staged()
            self.appender.high_watermark.fail(self._unavailable())

    def reopen(self, log: Log, log_start_offset: int) -> None:
        """Go on with the log that a rescan has found; records at its end may be gone, so no flush of it is an
        answer to whoever has committed to the one before.
        """
        assert self._is_broken
        self.appender.failure = None
        self._is_broken = False
        self.replace_log(log, log_start_offset)

    def replace_log(self, log: Log, log_start_offset: int) -> None:
        """Go on with another log, which has what this one had or the beginning of it. The high watermark is
        not after its end; who waits for more gets an error, watchers are woken.
        """
        assert not self.log.has_staged
        self.log.release_files()
        self.log = log
        appender, high_watermark = self.appender, self.appender.high_watermark
        appender.buffer = log.buffer
        self.appends.log = log
        appender.log_start_offset = log_start_offset
        self.set_config(self.config)
        high_watermark.lower(
            log.log_end_offset,
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} was cut at {log.log_end_offset}."),
        )
        if appender.is_sole_replica:
            self.advance_high_watermark(log.log_end_offset)
        self._check_order()

    def refuse_staged(self) -> None:
        """Take back what is staged: its commit fails."""
        self._dropped_staged = self._dropped_staged or self.log.has_staged
        self.log.rollback()

    def moved_to_deletion(self, directory: str) -> None:
        """The partition's directory is now `directory` and will soon be gone: refuse appends, wake the
        watchers.
        """
        self.appender.failure = f"{self.name} has been deleted."
        self._is_broken = False
        self.refuse_staged()
        self.log.move_to(directory)
        self.appender.high_watermark.fail(self._unavailable())

    # Reading

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: int = READ_UNCOMMITTED,
        minimum_one_batch: bool = True,
        cut_first_batch: bool = False,
        prompt: bool = False,
    ) -> ReadResult:
        """`max_bytes` of a segment, beginning with the batch that holds `offset`; fewer where it ends.

        As in Kafka the last batch is cut off where the limit is: `wire.records.iter_whole_batches` is for
        who cannot use that. The first one comes whole or not at all: with `minimum_one_batch` even when it
        alone is larger than the limit (KIP-74). `cut_first_batch` cuts that one, too: before Fetch 3 the
        limit was hard. At the end the records are `EMPTY`. Refuses with OFFSET_OUT_OF_RANGE what is before
        the log's start or after its end, and a limit below zero with UNKNOWN_SERVER_ERROR, as Kafka does.

        To find them the headers of batches are read. A `prompt` question raises `WouldWait` where that would
        have to wait for the disk.
        """
        if self._is_broken:
            raise self._unavailable()
        log = self.log
        if offset < self.log_start_offset or offset > log.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is not in the range of {self.topic}-{self.index}: "
                f"[{self.log_start_offset}, {log.log_end_offset}].",
            )
        last_stable_offset = self.last_stable_offset
        if isolation == READ_COMMITTED:
            end_offset = last_stable_offset
        else:
            end_offset = self.high_watermark if isolation == READ_UNCOMMITTED else log.log_end_offset
        if offset >= end_offset:
            records = EMPTY
        elif max_bytes < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{max_bytes} bytes cannot be read.")
        else:
            try:
                records = log.read(offset, end_offset, max_bytes, minimum_one_batch, cut_first_batch, prompt)
            except OSError as error:
                raise self._refusal("Reading", error) from error
        return ReadResult(
            records,
            self.high_watermark,
            last_stable_offset,
            self.log_start_offset,
            self._aborted_in(offset, records, prompt) if isolation == READ_COMMITTED else None,
        )

    def _aborted_in(self, offset: int, records: Slice, prompt: bool) -> list[tuple[int, int]] | None:
        if records is FIRST_TOO_LARGE:
            return None
        if records is EMPTY:
            return []
        with self._reading():
            return self.log.aborted_in(offset, records, prompt)

    def is_behind_stable(self, offset: int) -> bool:
        """Whether it is in a batch behind that of the last stable offset, or the end of the log behind that.
        Refuses with KAFKA_STORAGE_ERROR when the disk does not answer.
        """
        stable = self.last_stable_offset
        if offset <= stable:
            return False
        if offset >= self.log_end_offset:
            return True
        with self._reading():
            begins, found = self.log.locate(stable), self.log.locate(offset)
        return begins is None or found is None or begins[:2] != found[:2]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not after `epoch`; (-1, -1) when it is unknown
        (KIP-101, KIP-279).
        """
        return self.log.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def finding_timestamp(self, timestamp_ms: int) -> Work[Found | None]:
        """(timestamp, offset, leader epoch) of the first record with `timestamp_ms` or later; None when there
        is none.

        Only what READ_UNCOMMITTED sees is looked at. Refuses with KAFKA_STORAGE_ERROR when the disk does
        not answer.
        """
        return self._searching(lambda: finding_first(self.log, timestamp_ms, self.log_start_offset))

    def finding_max_timestamp(self) -> Work[Found | None]:
        """(timestamp, offset, leader epoch) of the first record with the latest timestamp of all; None
        when empty. It may stand before the start of the log.
        """
        return self._searching(lambda: finding_latest(self.log))

    def _searching(self, search: Callable[[], Work[Found | None]]) -> Work[Found | None]:
        """A search that begins anew when a segment that it wants to look into has been removed meanwhile."""
        with self._reading():
            while True:
                segments = list(self.log.segments)
                try:
                    found = yield from search()
                except FileNotFoundError:
                    if segments == self.log.segments:
                        raise
                    continue
                return None if found is None or found[1] >= self.high_watermark else found

    def segments_written(self) -> list[tuple[int, int]]:
        """(base offset, when its file was last written in ms) of every segment.

        Refuses with KAFKA_STORAGE_ERROR when the disk does not answer.
        """
        with self._reading():
            return [(segment.base_offset, segment.paths.modified_ms()) for segment in self.log.segments]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._check_online()
        try:
            yield
        except OSError as error:
            raise self._refusal("Reading", error) from error

    # The high watermark

    def advance_high_watermark(self, offset: int) -> None:
        """All replicas in sync have what is before `offset`, or before the end of this log. No change where
        it is there already. Of a sole replica each commit advances it to the log's end.
        """
        self.appender.high_watermark.advance(min(offset, self.log_end_offset))

    def when_high_watermark(self, offset: int, done: Callable[[KafkaError | None], None]) -> None:
        """Call `done` once the high watermark is at `offset` or after it, perhaps at once; with an error
        where that offset has been cut off, or the partition goes away or offline.
        """
        if self.appender.failure is not None:
            done(self._unavailable())
        else:
            self.appender.high_watermark.when(offset, done)

    def watch(self, wake: Callable[[], None], *, at_log_end: bool = False) -> None:
        """Call `wake` whenever the high watermark or the last stable offset moves, or with `at_log_end` the
        end of the log; also when the partition goes away.
        """
        self.appender.high_watermark.watch(wake, at_log_end)

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Stop that; no error when it was not watching."""
        self.appender.high_watermark.unwatch(wake)

    @property
    def is_watched(self) -> bool:
        return self.appender.high_watermark.is_watched


def _preload(segments: list[Segment]) -> None:
    for segment in segments:
        segment.preload_for_retention()
