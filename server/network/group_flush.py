"""Flushes for responses that wait for the disk: many at once, and never in the event loop.

Requests that arrive during a flush share the next one, so any number of waiting produces costs one sync. A
flush begins when no request was added for a turn or two, a millisecond later at the most: it costs as much
processor time as several requests, so many small flushes would slow a busy broker. If a partition's tail fits
into the flush journal of its data directory (`storage/log/flush_journal.py`), there is one write and one sync
for all partitions, in a thread of its own. Other partitions are flushed by a few workers, several by each,
and these also write leader epochs of partitions that have a new leader, of many at once.
The flush journal is made with the first waiting response; until it exists, and after it has failed, every
partition is flushed by itself.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

from odradek.apis.turn import Committable
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor
    from queue import SimpleQueue

    from odradek.storage.log.flush_journal import Block, FlushJournal

logger = logging.getLogger("odradek.flush")

FLUSH_THREADS_MAX = 8
RETIRING_AT_ONCE = 8
"""Partitions of a full file that are flushed before waiting responses have their turn."""
EPOCHS_AT_ONCE = 16
"""Partitions whose leader epochs a worker writes before it says so: followers wait for each."""
RETIRE_AGAIN_S = 1.0
"""The pause after a failed flush of a partition whose records are in a full file of the journal. Meanwhile
the disk may have room again, or a rescan may have brought the partition back."""
WRITER_WAIT_S = 1.0
GATHER_S_MAX = 0.001
"""The longest time that a flush waits for more requests."""
QUIET_LOOKS = 2
"""Turns of the loop without a request before a flush: requests of one turn are committed at the end of the
next at the latest."""

TIME_BUCKETS = 28
"""Buckets of `Route.times`: the first ends at 1.024 us, each other one at twice the end of the one before."""

Done = Callable[[KafkaError | None], None]
Waiting = list[tuple[object, Done]]
"""The callbacks that wait for one partition, each with the log of its commit."""


class FlushTimes:
    """How long flushes took in their threads; counted on the event loop."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * TIME_BUCKETS
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """One write to the flush journal, or the sync of some partitions by a worker."""
        place = (int(seconds * 1e9) >> 10).bit_length()
        self.counts[min(place, TIME_BUCKETS - 1)] += 1
        self.seconds += seconds


class Flushes:
    """See the module. One event loop owns it; `add` committed partitions, then `start`."""

    __slots__ = (
        "_added",
        "_epochs",
        "_executor",
        "_flushing",
        "_gathering",
        "_is_looking",
        "_is_retiring",
        "_logs",
        "_look_until_s",
        "_loop",
        "_preparing",
        "_quiet_looks",
        "_retiring",
        "_seen",
        "_thread",
        "_unretired",
        "_writer",
        "_written",
        "times",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.times = FlushTimes()
        self._executor: ThreadPoolExecutor | None = None
        self._logs: dict[str, FlushJournal] = {}
        self._gathering: dict[Any, Waiting] = {}
        self._flushing: dict[Any, Waiting] = {}
        # Partitions with leader epochs to be written, and who waits for that.
        self._epochs: dict[Any, list[Done]] = {}
        # The tails in the blocks that are being written; None while none is.
        self._written: dict[Any, Waiting] | None = None
        self._writer: SimpleQueue[list[tuple[FlushJournal, Block]] | None] | None = None
        self._preparing: Future[None] | None = None
        self._thread: threading.Thread | None = None
        # Partitions with records in a full file, and the ones among them whose flush failed.
        self._retiring: dict[Any, FlushJournal] = {}
        self._unretired: dict[FlushJournal, list[Any]] = {}
        self._is_retiring = False
        # Whether a flush is about to begin, and the additions that it has seen.
        self._is_looking = False
        self._look_until_s = 0.0
        self._added = self._seen = self._quiet_looks = 0

    def use(self, logs: Sequence[FlushJournal]) -> None:
        """The flush journals of the data directories."""
        self._logs = {log.directory: log for log in logs}

    def add(self, partition: Committable, done: Done) -> None:
        """`done` is called after the next flush that begins: with an error if it fails, or if the partition
        has another log by then."""
        self._added += 1
        waiting = self._gathering.get(partition)
        if waiting is None:
            self._gathering[partition] = [(partition.log, done)]
        else:
            waiting.append((partition.log, done))

    def add_background(self, partition: Committable) -> None:
        """Flushes without a response that waits for it; joins the next flush."""
        self._gathering.setdefault(partition, [])
        self.start()

    def save_epochs(self, partition: Committable, done: Done) -> None:
        """Writes the leader epochs of a partition in a worker, not beside a flush of it; then calls `done`,
        with an error if that failed. What is added in one turn of the loop begins together."""
        if partition not in self._epochs:
            self._loop.call_soon(self._start_epochs)
        self._epochs.setdefault(partition, []).append(done)

    def _start_epochs(self) -> None:
        ready = [partition for partition in self._epochs if partition not in self._flushing]
        for start in range(0, len(ready), EPOCHS_AT_ONCE):
            self._save(ready[start : start + EPOCHS_AT_ONCE])

    def _save(self, partitions: list[Any]) -> None:
        waiting = {partition: self._epochs.pop(partition) for partition in partitions}
        for partition in partitions:
            self._flushing[partition] = []

        def saved(partitions: list[Any], errors: list[KafkaError | None]) -> None:
            for partition, error in zip(partitions, errors, strict=True):
                del self._flushing[partition]
                for done in waiting[partition]:
                    _call(done, error)
            self.start()

        self._submit(partitions, saved, save_one)

    @property
    def is_busy(self) -> bool:
        """True while responses wait for the disk."""
        return bool(self._flushing or self._gathering or self._epochs or self._written is not None)

    def close(self) -> None:
        """Ends the threads when they are done; to be called when no response waits any more, before the flush
        journals are closed."""
        self._epochs.clear()
        if self._writer is not None and self._thread is not None:
            self._writer.put(None)
            self._writer = None
            self._thread.join(WRITER_WAIT_S)
        if self._executor is not None:
            for log in self._logs.values():
                log.cancel()
            # Flushes without waiting responses may still run, and so may the making of a flush journal, which
            # stops # soon.
            self._executor.shutdown(wait=True)
            self._executor = None

    def start(self) -> None:
        """Begins a flush of the gathered partitions as soon as no more are added."""
        if self._gathering and self._written is None and not self._is_looking:
            self._is_looking = True
            self._seen, self._quiet_looks = self._added, 0
            self._look_until_s = perf_counter() + GATHER_S_MAX
            self._loop.call_soon(self._look)
        if self._retiring:
            self._retire()
        if self._epochs:
            self._start_epochs()

    def _look(self) -> None:
        """A flush costs as much as several requests: while requests arrive, it waits a moment for them."""
        if self._added != self._seen:
            self._seen, self._quiet_looks = self._added, 0
        else:
            self._quiet_looks += 1
        if self._quiet_looks < QUIET_LOOKS and perf_counter() < self._look_until_s:
            self._loop.call_soon(self._look)
            return
        self._is_looking = False
        if self._logs:
            self._start_group()
        self._start_each()
        if self._retiring:
            self._retire()

    def _start_each(self) -> None:
        gathering, flushing = self._gathering, self._flushing
        ready = [partition for partition in gathering if partition not in flushing]
        if not ready:
            return
        for partition in ready:
            flushing[partition] = gathering.pop(partition)
        # To wake the event loop is the most expensive step, so each worker does it once.
        share = -(-len(ready) // FLUSH_THREADS_MAX)
        for start in range(0, len(ready), share):
            self._submit(ready[start : start + share], self._flushed, flush_one)

    # By the flush journal

    def _start_group(self) -> None:
        """Moves gathered partitions to the flush journals, where they fit."""
        gathering, flushing = self._gathering, self._flushing
        # A waiting flush of the partition itself keeps its turn; one without waiting responses may run
        # meanwhile.
        ready: list[Any] = [one for one in gathering if not flushing.get(one)]
        blocks: list[tuple[FlushJournal, Block]] = []
        for log, partitions in self._by_log(ready):
            if not log.is_usable:
                if any(gathering[partition] for partition in partitions):
                    self._prepare(log)
                continue
            block = log.begin(partitions)
            if retired := log.take_retired():
                self._retiring |= dict.fromkeys(retired, log)
            if block is not None:
                blocks.append((log, block))
        if not blocks:
            return
        self._written = {
            partition: gathering.pop(partition) for _, block in blocks for partition, _ in block.tails
        }
        if self._writer is None:
            self._start_writer()
        assert self._writer is not None
        self._writer.put(blocks)

    def _by_log(self, partitions: list[Any]) -> list[tuple[FlushJournal, list[Any]]]:
        if len(self._logs) == 1:
            return [(log, partitions) for log in self._logs.values()]
        shared: dict[str, list[Any]] = {directory: [] for directory in self._logs}
        for partition in partitions:
            of_directory = shared.get(partition.directory.rpartition("/")[0])
            if of_directory is not None:
                of_directory.append(partition)
        return [(self._logs[directory], some) for directory, some in shared.items() if some]

    def _start_writer(self) -> None:
        from queue import SimpleQueue

        self._writer = SimpleQueue()
        self._thread = threading.Thread(
            target=self._write, args=(self._writer,), name="odradek-flush-journal", daemon=True
        )
        self._thread.start()

    def _write(self, blocks_to_come: SimpleQueue[list[tuple[FlushJournal, Block]] | None]) -> None:
        """The writing thread."""
        while (blocks := blocks_to_come.get()) is not None:
            errors: list[OSError | None] = []
            begun_s = perf_counter()
            for _, block in blocks:
                try:
                    block.write()
                    errors.append(None)
                except OSError as error:
                    errors.append(error)
                except Exception as error:
                    logger.exception("writing the flush journal of %s failed", block)
                    errors.append(OSError(errno.EIO, str(error)))
            try:
                seconds = perf_counter() - begun_s
                self._loop.call_soon_threadsafe(self._blocks_written, blocks, errors, seconds)
            except RuntimeError:
                logger.warning("the event loop closed while the flush journal was written")

    def _blocks_written(
        self, blocks: list[tuple[FlushJournal, Block]], errors: list[OSError | None], seconds: float
    ) -> None:
        self.times.add(seconds)
        waiting, self._written = self._written, None
        assert waiting is not None
        for (log, block), error in zip(blocks, errors, strict=True):
            log.finish(block, error)
            if error is not None:
                logger.error(
                    "writing the flush journal of %s failed, flushing file by file until a restart: %s",
                    log.directory,
                    error,
                )
                for partition, _ in block.tails:
                    # Its own file may have it yet, or say that it has not.
                    self._gathering[partition] = waiting.pop(partition) + self._gathering.get(partition, [])
        for partition, those in waiting.items():
            _tell(partition, those, None)
        self.start()

    def _prepare(self, log: FlushJournal) -> None:
        if self._preparing is not None or log.has_failed:
            return

        def prepare() -> None:
            try:
                log.prepare()
            except OSError as error:
                logger.warning("no flush journal in %s, flushing file by file: %s", log.directory, error)
            try:
                self._loop.call_soon_threadsafe(prepared)
            except RuntimeError:
                pass

        def prepared() -> None:
            self._preparing = None

        self._preparing = self._workers().submit(prepare)

    def _retire(self) -> None:
        """Flushes the next few of those whose records are in a file that is to be used again."""
        if self._is_retiring:
            return
        # A flush that is running may have begun before what the flush journal holds.
        idle = (partition for partition in self._retiring if partition not in self._flushing)
        now = list(islice(idle, RETIRING_AT_ONCE))
        if not now:
            return
        self._is_retiring = True
        for partition in now:
            self._flushing[partition] = []
        self._submit(now, self._retired, flush_one)

    def _retired(self, partitions: list[Any], errors: list[KafkaError | None]) -> None:
        self._is_retiring = False
        logs: dict[FlushJournal, None] = {}
        for partition, error in zip(partitions, errors, strict=True):
            del self._flushing[partition]
            log = self._retiring.pop(partition)
            logs[log] = None
            if error is not None:
                self._unretired.setdefault(log, []).append(partition)
        still = set(self._retiring.values())
        for log in logs:
            if log not in still:
                self._retired_all(log)
        self.start()

    def _retired_all(self, log: FlushJournal) -> None:
        """A flush of each of those has been tried whose records are in a file that is to be used again."""
        failed = [
            partition for partition in self._unretired.pop(log, []) if not partition.flushing.is_deleted
        ]
        if not failed:
            log.retired_is_flushed([])
            return
        logger.warning(
            "the flush journal of %s is full, and flushing %s failed: trying again, flushing file by file",
            log.directory,
            failed,
        )
        # Not told before: with the next block that is wanted the log names them again.
        self._loop.call_later(RETIRE_AGAIN_S, log.retired_is_flushed, failed)

    # By themselves

    def _submit(
        self,
        partitions: list[Committable],
        then: Callable[[list[Any], list[KafkaError | None]], None],
        act: Callable[[Any], KafkaError | None],
    ) -> None:
        def flush() -> None:
            begun_s = perf_counter()
            errors = [act(partition) for partition in partitions]
            try:
                seconds = perf_counter() - begun_s
                self._loop.call_soon_threadsafe(done, errors, seconds)
            except RuntimeError:
                logger.warning("the event loop closed during a flush of %s", partitions)

        def done(errors: list[KafkaError | None], seconds: float) -> None:
            if act is flush_one:
                self.times.add(seconds)
            then(partitions, errors)

        self._workers().submit(flush)

    def _flushed(self, partitions: list[Committable], errors: list[KafkaError | None]) -> None:
        waiting = [self._flushing.pop(partition) for partition in partitions]
        for partition, those, error in zip(partitions, waiting, errors, strict=True):
            _tell(partition, those, error)
        self.start()

    def _workers(self) -> ThreadPoolExecutor:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(FLUSH_THREADS_MAX, "odradek-flush")
        return self._executor


def flush_one(partition: Committable) -> KafkaError | None:
    """Flushes one partition; what it raised, as Kafka's error."""
    try:
        partition.flush()
    except KafkaError as refused:
        return refused
    except Exception:
        logger.exception("flush of %s failed", partition)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    return None


def save_one(partition: Any) -> KafkaError | None:
    """Writes the leader epochs of one partition; what it raised, as Kafka's error."""
    try:
        partition.flushing.save_leader_epochs()
    except KafkaError as refused:
        return refused
    except Exception:
        logger.exception("writing the leader epochs of %s failed", partition)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    return None


def _tell(partition: Committable, waiting: Waiting, error: KafkaError | None) -> None:
    log = partition.log
    for committed_to, done in waiting:
        told = error
        if told is None and committed_to is not log:
            # Of the other one a rescan may have cut it off, and somebody else's records may have its offsets.
            told = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk failed before it had these records.")
        _call(done, told)


def _call(done: Done, error: KafkaError | None) -> None:
    try:
        done(error)
    except Exception:
        logger.exception("a callback after a flush failed")
