"""A partition: its log, the appends to it, and the part that readers may see.

An append has two steps. `appends.append` checks and stages: it assigns offsets and checks sequence numbers,
and writes nothing. `commit` writes all staged batches with one system call and wakes the readers. In between
the caller must not change the appended buffers: large batches are written from them without a copy.

A sound v2 batch is stored as the same bytes, except base offset and leader epoch, which are outside of its
checksum. With LogAppendTime or a wrong latest timestamp, the timestamp and the checksum change too; a topic
with a codec of its own compresses the batch again. The records in the batch are checked, decompressed if need
be, so that every consumer can read the stored batches.

After an error of the disk a partition is offline: all requests get KAFKA_STORAGE_ERROR until `rescan.py` has
repaired its files.

A READ_COMMITTED read ends at the first offset of the earliest open transaction (`transactions.py`); it also
lists the aborted transactions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from odradek.storage.config import LogConfig
from odradek.storage.log._staging import Appender
from odradek.storage.log.appends import Appends
from odradek.storage.log.availability import Availability
from odradek.storage.log.flushing import Flushing
from odradek.storage.log.log import Log
from odradek.storage.log.retention import Retention
from odradek.storage.log.scan_checkpoint import ScanCheckpoint
from odradek.storage.log.slices import EMPTY, FIRST_TOO_LARGE, Slice
from odradek.storage.log.time_search import TimestampSearch
from odradek.storage.log.transactions import ProducerInfo, Verification
from odradek.wire.errors import ErrorCode, KafkaError

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
READ_LOG_END = -1
"""Reads up to the log end, after the high watermark: for coordinators, which own their records, and for
followers."""


def _unreported(partition: "Partition", error: OSError, sentence: str) -> None:
    pass


@dataclass(slots=True, eq=False)
class ReadResult:
    """`aborted` is for READ_COMMITTED: (producer id, first offset) of each aborted transaction in the range;
    None if the first batch was over the limit, where Kafka has null.
    """

    records: Slice
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None = None


def _check_order(partition: "Partition") -> None:
    assert (
        0
        <= partition.log_start_offset
        <= partition.last_stable_offset
        <= partition.high_watermark
        <= partition.log_end_offset
    ), f"{partition!r}: high watermark {partition.high_watermark}"


class Partition:
    """See the module. One thread owns it; `flush` alone may run in another.

    Its parts: `appends` checks and stages, `appender` has the compiled appends and the high watermark;
    `flushing`, `availability`, `retention`, `search`.
    """

    __slots__ = (
        "appender",
        "appends",
        "availability",
        "commit",
        "config",
        "flushing",
        "index",
        "log",
        "name",
        "on_trouble",
        "retention",
        "search",
        "topic",
        "topic_id",
        "traffic",
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
        high_watermark: int | None = None,
        on_trouble: Callable[["Partition", OSError, str], None] = _unreported,
    ) -> None:
        """`high_watermark` is for a partition with other replicas; it is moved into the range of the log.
        None: there are no other replicas (`set_replicated`). `on_trouble`: see `report_trouble`.
        """
        self.topic = topic
        self.index = index
        self.name = f"{topic}-{index}"
        self.topic_id = topic_id
        self.log = log
        if high_watermark is not None:
            high_watermark = min(max(high_watermark, log_start_offset), log.log_end_offset)
        self.appender = Appender(log.buffer, self._commit_whole, self._commit_failed, high_watermark)
        self.commit: Callable[[], None] = self.appender.commit
        """Write the staged batches and make them visible to readers: see `Appender.commit`."""
        self.traffic = self.appender.traffic
        self.appender.leader_epoch = leader_epoch
        self.appender.log_start_offset = log_start_offset
        self.on_trouble = on_trouble
        self.availability = Availability(self)
        self.appends = Appends(self)
        self.flushing = Flushing(self)
        self.retention = Retention(self)
        self.search = TimestampSearch(self)
        self.set_config(config)
        log.producers.set_replicated(high_watermark is not None)
        _check_order(self)

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index} [{self.log_start_offset}, {self.log_end_offset}))"

    @property
    def log_start_offset(self) -> int:
        """The offset of the first readable record."""
        return self.appender.log_start_offset

    @property
    def high_watermark(self) -> int:
        """The offset after the last record that all replicas in sync have."""
        return self.appender.high_watermark.offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record, without staged batches."""
        return self.appender.buffer.log_end_offset

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch: every batch except a replicated one gets it."""
        return self.appender.leader_epoch

    def follow_leader_epoch(self, leader_epoch: int) -> None:
        """Take the leader epoch of the cluster's view; an older one is ignored."""
        self.appender.leader_epoch = max(self.appender.leader_epoch, leader_epoch)

    @property
    def last_stable_offset(self) -> int:
        """The end of READ_COMMITTED reads: the begin of the earliest open transaction, else the high
        watermark. A transaction is open until its marker is on all replicas in sync, as in Kafka.

        If retention or DeleteRecords removed the first records of an open transaction, it is the log start,
        as in Kafka.
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
    def failure(self) -> str | None:
        """The reason why it is offline; None while it serves."""
        return self.appender.failure

    def set_config(self, config: LogConfig) -> None:
        """Use new topic settings, from the next append on."""
        self.config = config
        self.appends.set_config(config)
        self.log.set_config(config)

    # Appending

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, version: int
    ) -> Verification | None:
        """Called before a producer's transactional batch. Returns the verification for `append`, to be used
        once the coordinator has confirmed that the partition is in the transaction (from version 2 on: has
        added it).

        None: the transaction is open here already, and no request is needed. Refuses with
        INVALID_PRODUCER_EPOCH.
        """
        if self.availability.is_unreadable:
            self.availability.check_online()
        return self.log.producers.begin_verification(producer_id, producer_epoch, base_sequence, version)

    def producers(self) -> list[ProducerInfo]:
        """The producers of the log, without the expired ones."""
        self.availability.check_online()
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

    def flush(self) -> None:
        """Make all records committed so far survive a loss of power: see `Flushing.flush`."""
        self.flushing.flush()

    def _commit_whole(self) -> None:
        """The complete `Appender.commit`, with rolls of segments."""
        if not self.log.has_staged:
            self.availability.check_nothing_dropped()
            return
        try:
            self.log.commit()
        except OSError as error:
            self._commit_failed(error)
        self.appender.committed()
        _check_order(self)

    def _commit_failed(self, error: OSError) -> NoReturn:
        self.log.rollback()
        raise self.availability.refusal("Writing", error) from error

    def report_trouble(self, error: OSError, sentence: str) -> None:
        """Tell of an error of the disk, in its thread; if the partition goes offline, the sentence is its
        `failure`."""
        self.on_trouble(self, error, sentence)

    @property
    def directory(self) -> str:
        return self.log.files.directory

    def adopt(self, topic_id: bytes) -> None:
        """Assign the partition to a topic, also in `partition.metadata`."""
        self.topic_id = topic_id
        self.flushing.topic_id_changed()

    # Life of the log

    def close(self, scan_checkpoint: ScanCheckpoint | None = None) -> ScanCheckpoint | None:
        """Flush and close; see `Log.close`. Staged batches are removed, watchers are woken."""
        self.availability.check_serving()
        self.availability.end("is closed.")
        scan_checkpoint = self.log.close(scan_checkpoint)
        self.availability.fail_waiting()
        return scan_checkpoint

    def replace_log(self, log: Log, log_start_offset: int) -> None:
        """Continue with another log, which has the same records, the first part of them, or none. The high
        watermark is moved into its range; waits for later offsets get an error, watchers are woken.
        """
        assert not self.log.has_staged
        self.log.files.close()
        appender, high_watermark = self.appender, self.appender.high_watermark
        self.log = log
        appender.buffer = log.buffer
        appender.log_start_offset = log_start_offset
        log.producers.set_replicated(appender.is_replicated)
        self.set_config(self.config)
        # If the log begins after the high watermark, all waits fail.
        is_before_start = high_watermark.offset < log_start_offset
        high_watermark.lower(
            high_watermark.offset if is_before_start else log.log_end_offset,
            KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} was truncated at {log.log_end_offset}."
            ),
        )
        high_watermark.advance(log_start_offset if appender.is_replicated else log.log_end_offset)
        _check_order(self)

    def moved_to_deletion(self, directory: str) -> None:
        """The partition's directory was renamed to `directory` and will be removed: refuse appends, wake the
        watchers.
        """
        self.availability.end("has been deleted.")
        self.log.rollback()
        self.log.files.move_to_deletion(directory)
        self.availability.fail_waiting()

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
        """Up to `max_bytes` of a segment, from the batch that holds `offset` on.

        As in Kafka the last batch is cut at the limit; `wire.records.iter_whole_batches` leaves it out. The
        first batch is returned whole or not at all: with `minimum_one_batch` even if it is larger than the
        limit (KIP-74). `cut_first_batch` cuts it, too: before Fetch 3 the limit was hard. At the end the
        records are `EMPTY`. Refuses with OFFSET_OUT_OF_RANGE an offset before the log's start or after its
        end, and with UNKNOWN_SERVER_ERROR a limit below zero, as Kafka does.

        The search reads headers of batches. With `prompt` it raises `WouldWait` instead of waiting for the
        disk.
        """
        if self.availability.is_unreadable:
            raise self.availability.unavailable()
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
                records = log.reader.read(
                    offset, end_offset, max_bytes, minimum_one_batch, cut_first_batch, prompt
                )
            except OSError as error:
                raise self.availability.refusal("Reading", error) from error
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
        with self.availability.reading():
            return self.log.reader.aborted_in(offset, records, prompt)

    def is_behind_stable(self, offset: int) -> bool:
        """Whether `offset` is in a later batch than the last stable offset, or at the log end after this
        batch. Refuses with KAFKA_STORAGE_ERROR after an error of the disk.
        """
        stable = self.last_stable_offset
        if offset <= stable:
            return False
        if offset >= self.log_end_offset:
            return True
        with self.availability.reading():
            begins, found = self.log.reader.locate(stable), self.log.reader.locate(offset)
        return begins is None or found is None or begins[:2] != found[:2]

    # The high watermark

    @property
    def is_replicated(self) -> bool:
        """Whether there are other replicas: see `set_replicated`."""
        return self.appender.is_replicated

    def set_replicated(self, is_replicated: bool) -> None:
        """Set whether there are other replicas. If so, only `advance_high_watermark` moves the high
        watermark; if not, it is the end of the log, now and after each commit.
        """
        if self.appender.is_replicated and not is_replicated:
            # A start after a crash takes missing offsets after the recovery point for a loss, unless the log
            # may have batches from a leader.
            self.log.durability.want_flush()
        self.appender.is_replicated = is_replicated
        self.log.producers.set_replicated(is_replicated)
        if not is_replicated:
            self.advance_high_watermark(self.log_end_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Advance it to `offset`, up to which all replicas in sync have the records, at most to the end of
        this log. It never goes back. Without other replicas each commit advances it to the end of the log.
        """
        offset = min(offset, self.appender.buffer.log_end_offset)
        self.log.producers.replicated_until(offset)
        self.appender.high_watermark.advance(offset)

    def when_high_watermark(self, offset: int, done: Callable[[KafkaError | None], None]) -> None:
        """Call `done` once the high watermark is at `offset` or later, perhaps at once; with an error if the
        offset is truncated, or the partition is closed, deleted or offline.
        """
        if self.appender.failure is not None:
            done(self.availability.unavailable())
        else:
            self.appender.high_watermark.when(offset, done)

    def watch(self, wake: Callable[[], None], *, at_log_end: bool = False) -> None:
        """Call `wake` whenever the high watermark or the last stable offset moves, or with `at_log_end` the
        end or the start of the log; also when the partition is closed, deleted or offline.
        """
        self.appender.high_watermark.watch(wake, at_log_end)

    def forget_high_watermark(self, offset: int, done: Callable[[KafkaError | None], None]) -> None:
        """Remove a `when_high_watermark` of that offset."""
        self.appender.high_watermark.cancel(offset, done)

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Remove a watcher; no error if it is not there."""
        self.appender.high_watermark.unwatch(wake)
