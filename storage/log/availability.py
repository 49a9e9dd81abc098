"""Whether a partition serves requests, and its refusals if it does not.

It is offline from an error of the disk until a rescan, paused while its files are changed, or closed or
deleted for good.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from odradek.storage.disk import NO_ROOM
from odradek.storage.log._staging import Appender
from odradek.storage.log.log import Log
from odradek.wire.errors import ErrorCode, KafkaError


class DiskFull(KafkaError):
    """The disk has no room, and has not failed; `message` has the directory."""


class PartitionState(Protocol):
    """The state of a partition that its parts share. Only the partition replaces `log`."""

    name: str
    topic_id: bytes
    log: Log
    appender: Appender
    availability: "Availability"

    def report_trouble(self, error: OSError, sentence: str) -> None: ...


class Availability:
    """See the module. The partition reports each error of the disk."""

    __slots__ = (
        "_appender",
        "_dropped_staged",
        "_partition",
        "is_broken",
        "is_paused",
        "is_unreadable",
    )

    def __init__(self, partition: PartitionState) -> None:
        self._partition = partition
        self._appender = partition.appender
        # Offline because of the disk, not deleted or closed: a rescan may bring it back.
        self.is_broken = False
        # One operation changes the files, and excludes all others.
        self.is_paused = False
        # Readers are refused, too: it is broken, or files were renamed.
        self.is_unreadable = False
        # Batches were staged when it went offline: their commit has to fail.
        self._dropped_staged = False

    def check_online(self) -> None:
        """Refuse while the partition cannot be read; a closed or deleted one can be."""
        if self.is_unreadable:
            raise self.unavailable()

    def check_serving(self) -> None:
        if self._appender.failure is not None:
            raise self.unavailable()

    def unavailable(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._appender.failure)

    def refusal(self, doing: str, error: OSError) -> KafkaError:
        """The client's error for a disk error. Reports the disk error, unless the files are being changed."""
        if self.is_paused:
            return self.unavailable()
        directory = self._partition.log.files.directory
        if error.errno in NO_ROOM:
            sentence = f"The disk is full: {doing.lower()} {directory} failed: {error}"
            self._partition.report_trouble(error, sentence)
            return DiskFull(ErrorCode.KAFKA_STORAGE_ERROR, sentence)
        sentence = f"{doing} {directory} failed: {error}"
        self._partition.report_trouble(error, sentence)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, sentence)

    @contextmanager
    def reading(self) -> Iterator[None]:
        self.check_online()
        try:
            yield
        except OSError as error:
            raise self.refusal("Reading", error) from error

    def sync_failed(self, error: OSError) -> str:
        """Take the partition offline after a failed sync: it is not known which bytes the disk has. May be
        called in a flush's thread, so unlike `take_offline` it leaves the staged batches to the owner.
        Returns the failure.
        """
        partition = self._partition
        failure = f"{partition.name} is offline: flushing {partition.log.files.directory} failed: {error}"
        self._appender.failure = failure
        self.is_broken = self.is_unreadable = True
        return failure

    def take_offline(self, reason: str, *, is_reported: bool = False) -> None:
        """The files differ from the log's state, or cannot be reached: refuse everything with
        KAFKA_STORAGE_ERROR until `come_back`. No change after a deletion or close. `is_reported`: do not call
        `report_trouble`.
        """
        if self._appender.failure is None or (self.is_paused and not self.is_broken):
            self._appender.failure = f"{self._partition.name} is offline: {reason}"
            self.is_broken = self.is_unreadable = True
            if not is_reported:
                self._partition.report_trouble(OSError(errno.EIO, reason), self._appender.failure)
        if self.is_broken:
            self.refuse_staged()
            self._appender.high_watermark.fail(self.unavailable())

    def end(self, reason: str) -> None:
        """End the service for good, without a rescan: refuse appends. Waiting requests continue until
        `fail_waiting`.
        """
        self._appender.failure = f"{self._partition.name} {reason}"
        self.is_broken = self.is_paused = self.is_unreadable = False
        self._dropped_staged = self._dropped_staged or self._partition.log.has_staged

    def fail_waiting(self) -> None:
        """Fail the waits for the high watermark, wake the watchers."""
        self._appender.high_watermark.fail(self.unavailable())

    def come_back(self) -> None:
        """A rescan has made the files whole."""
        assert self.is_broken
        self._appender.failure = None
        self.is_broken = self.is_unreadable = False

    def pause(self, reason: str) -> None:
        """Refuse all but readers until `resume`, since an operation changes the files. Such an operation
        pauses first, and then waits for the end of a flush that is under way.
        """
        self.check_serving()
        self._appender.failure = f"{self._partition.name}: {reason}"
        self.is_paused = True

    def refuse_readers(self) -> None:
        """Refuse readers too: files are about to be renamed."""
        assert self.is_paused
        self.is_unreadable = True

    def resume(self) -> None:
        """End the pause, if there is one. A partition that went offline stays offline."""
        if self.is_paused:
            self.is_paused = False
            if not self.is_broken:
                self._appender.failure = None
                self.is_unreadable = False

    def refuse_staged(self) -> None:
        """Take the staged batches back: their commit fails."""
        self._dropped_staged = self._dropped_staged or self._partition.log.has_staged
        self._partition.log.rollback()

    def check_nothing_dropped(self) -> None:
        """Refuse the commit of batches that `refuse_staged` has taken back."""
        if self._dropped_staged:
            self._dropped_staged = False
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                self._appender.failure or f"{self._partition.name} was truncated.",
            )
