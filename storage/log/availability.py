"""Whether a partition serves, and its refusals when it does not.

It is offline after an error of the disk until a rescan, or paused while its files are changed, or it has been
closed or deleted for good.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from odradek.storage.log._staging import Appender
from odradek.storage.log.log import Log
from odradek.wire.errors import ErrorCode, KafkaError


class Availability:
    """See the module. `log` may become another. `on_trouble` gets each error of the disk, in the thread that
    met it: with a sentence, which is `failure` when the partition goes offline for it.
    """

    __slots__ = (
        "_appender",
        "_dropped_staged",
        "_name",
        "is_broken",
        "is_paused",
        "is_unreadable",
        "log",
        "on_trouble",
    )

    def __init__(
        self, name: str, log: Log, appender: Appender, on_trouble: Callable[[OSError, str], None]
    ) -> None:
        self._name = name
        self.log = log
        self._appender = appender
        self.on_trouble = on_trouble
        # Offline because of the disk, not because it was deleted or closed: a rescan may bring it back.
        self.is_broken = False
        # Somebody changes the files, and nobody else may.
        self.is_paused = False
        # Readers are refused, too: it is broken, or files have got other names.
        self.is_unreadable = False
        # Something was staged when it went away: the commit has to fail.
        self._dropped_staged = False

    def check_online(self) -> None:
        """Refuse while it cannot be read; a closed or deleted partition can be."""
        if self.is_unreadable:
            raise self.unavailable()

    def check_serving(self) -> None:
        if self._appender.failure is not None:
            raise self.unavailable()

    def unavailable(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._appender.failure)

    def refusal(self, doing: str, error: OSError) -> KafkaError:
        """The client's error for an error of the disk, which is reported, unless somebody is changing the
        files.
        """
        if self.is_paused:
            return self.unavailable()
        sentence = f"{doing} {self.log.files.directory} failed: {error}"
        self.on_trouble(error, sentence)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, sentence)

    @contextmanager
    def reading(self) -> Iterator[None]:
        self.check_online()
        try:
            yield
        except OSError as error:
            raise self.refusal("Reading", error) from error

    def sync_failed(self, error: OSError) -> str:
        """Nobody knows what the disk has. May be called in a flush's thread, so unlike `take_offline` it
        leaves the staged batches to the owner. Returns the failure.
        """
        failure = f"{self._name} is offline: flushing {self.log.files.directory} failed: {error}"
        self._appender.failure = failure
        self.is_broken = self.is_unreadable = True
        return failure

    def take_offline(self, reason: str, *, is_reported: bool = False) -> None:
        """The files are not what we believe, or cannot be reached: answer KAFKA_STORAGE_ERROR to everything
        until `come_back`. No change when it has been deleted or closed. `is_reported`: without
        `on_trouble`.
        """
        if self._appender.failure is None or (self.is_paused and not self.is_broken):
            self._appender.failure = f"{self._name} is offline: {reason}"
            self.is_broken = self.is_unreadable = True
            if not is_reported:
                self.on_trouble(OSError(errno.EIO, reason), self._appender.failure)
        if self.is_broken:
            self.refuse_staged()
            self._appender.high_watermark.fail(self.unavailable())

    def end(self, reason: str) -> None:
        """It serves no more, and no rescan brings it back: refuse appends. Waiting requests go on until
        `fail_waiting`.
        """
        self._appender.failure = f"{self._name} {reason}"
        self.is_broken = self.is_paused = self.is_unreadable = False
        self._dropped_staged = self._dropped_staged or self.log.has_staged

    def fail_waiting(self) -> None:
        """Fail what waits for the high watermark, wake the watchers."""
        self._appender.high_watermark.fail(self.unavailable())

    def come_back(self) -> None:
        """A rescan has made the files whole."""
        assert self.is_broken
        self._appender.failure = None
        self.is_broken = self.is_unreadable = False

    def pause(self, reason: str) -> None:
        """Somebody changes the files: refuse all but readers until `resume`. Whoever needs the files alone
        pauses first, and then waits for the end of a flush that is under way.
        """
        self.check_serving()
        self._appender.failure = f"{self._name}: {reason}"
        self.is_paused = True

    def refuse_readers(self) -> None:
        """Files are about to get other names."""
        assert self.is_paused
        self.is_unreadable = True

    def resume(self) -> None:
        """End the pause, if there is one. What has become offline stays so."""
        if self.is_paused:
            self.is_paused = False
            if not self.is_broken:
                self._appender.failure = None
                self.is_unreadable = False

    def refuse_staged(self) -> None:
        """Take back what is staged: its commit fails."""
        self._dropped_staged = self._dropped_staged or self.log.has_staged
        self.log.rollback()

    def check_nothing_dropped(self) -> None:
        """Refuse the commit of batches that `refuse_staged` has taken back."""
        if self._dropped_staged:
            self._dropped_staged = False
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, self._appender.failure or f"{self._name} was cut."
            )
