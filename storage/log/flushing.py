"""Flushing a partition, to its own files or by the flush journal."""

from contextlib import AbstractContextManager

from odradek.storage.disk import SyncFailed
from odradek.storage.log._staging import Tail
from odradek.storage.log.availability import PartitionState
from odradek.storage.log.flush_journal import identity_of
from odradek.wire.errors import ErrorCode, KafkaError

ZERO_UUID = bytes(16)


class Flushing:
    """See the module. Only `flush` may run in a worker thread."""

    __slots__ = (
        "_appender",
        "_availability",
        "_identity",
        "_partition",
        "gate",
        "is_being_journaled",
        "is_running",
    )

    def __init__(self, partition: PartitionState) -> None:
        self._partition = partition
        self._appender = partition.appender
        self._availability = partition.availability
        self._identity: bytes | None = None
        self.is_running = False
        self.is_being_journaled = False
        # Held while the files are changed; a flush waits for it.
        self.gate: AbstractContextManager[object] | None = None

    def flush(self) -> None:
        """Make all records committed so far survive a loss of power. May run in a worker thread, but in one
        thread at a time.

        After a failed sync it is not known which bytes the disk has: the partition is offline until a rescan.
        After other errors a flush can be tried again: on a full disk, when there is space.
        """
        # In this order: an operation that needs the files alone takes the gate first, then checks this flag.
        self.is_running = True
        if self.gate is not None:
            with self.gate:
                pass  # wait while the files are being changed
        try:
            self._availability.check_serving()
            self._partition.log.durability.flush()
        except SyncFailed as error:
            failure = self._availability.sync_failed(error)
            # Before the report, which may start a rescan: the rescan waits for the end of the flush.
            self.is_running = False
            self._partition.report_trouble(error, failure)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, failure) from error
        except OSError as error:
            raise self._availability.refusal("Flushing", error) from error
        finally:
            self.is_running = False

    def wants_flush(self, now_ms: int, previous_ms: int) -> bool:
        """See `Durability.wants_flush`."""
        return self._partition.log.durability.wants_flush(
            now_ms, previous_ms, self._partition.log.config.flush_ms
        )

    def tail(self, size_bytes_max: int) -> Tail | None:
        """See `AppendBuffer.tail`; None also while the partition does not serve."""
        return None if self._appender.failure is not None else self._partition.log.buffer.tail(size_bytes_max)

    @property
    def identity(self) -> bytes:
        """The partition's key in the flush journal; empty if its topic id is not on the disk."""
        if self._identity is None:
            topic_id = self._partition.topic_id
            self._identity = b"" if topic_id == ZERO_UUID else identity_of(topic_id, self._partition.name)
        return self._identity

    def topic_id_changed(self) -> None:
        """The partition has another topic id, also in `partition.metadata`."""
        self._identity = None
        self._partition.log.durability.invalidate_flushed_position()

    def save_leader_epochs(self) -> None:
        """Return when the disk has them. May run in a worker thread, but not beside `flush`; in all else as
        that. Raises KafkaError; then it can be tried again.
        """
        self.is_running = True
        if self.gate is not None:
            with self.gate:
                pass
        try:
            self._availability.check_serving()
            if self._partition.log.leader_epochs.dirty:
                self._partition.log.durability.save_leader_epochs()
        except OSError as error:
            raise self._availability.refusal("Writing the leader epochs of", error) from error
        finally:
            self.is_running = False

    def is_flushed_until(self, offset: int) -> bool:
        """Whether its own files have all before an offset for sure, or nobody needs it any more."""
        log = self._partition.log
        return self.is_deleted or log.durability.recovery_point >= min(offset, log.log_end_offset)

    @property
    def is_deleted(self) -> bool:
        return self._partition.log.active.paths.deleted

    def note_journaled(self, tail: Tail) -> None:
        """The flush journal has the tail: recovery will restore it."""
        self._partition.log.buffer.note_journaled(tail)
