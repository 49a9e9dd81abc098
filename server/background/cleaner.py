"""Drives compaction: plans with the store, gives the work to worker processes, puts the results in place.

The work is `storage.compaction.run`. It runs in a process of its own at the lowest priority
(`server/background/cleaner_process.py`), one for each of `log.cleaner.threads`, started when a log is to be
compacted and ended when it is idle for a while; it dies with the broker. If no process can be started, the
same work is done between the requests, a millisecond at a time. Everything that touches the store runs in the
broker's queue of upkeep, so that retention and compaction never work on the same log at once.

Failures are logged: a damaged partition is not compacted any more (`LogStore.cleaner.uncleanable`), a process
that dies is started again, later each time, and a partition during which it has died three times is not
compacted any more either.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odradek.server.process.child_python import let_find_package
from odradek.storage.compaction.cleaner import Cleaner, CleanerSettings, Cleaning
from odradek.storage.compaction.run import (
    CleanedGroup,
    CleaningJob,
    CleaningOutcome,
    CleaningStatistics,
    Round,
    cleaning_round,
)
from odradek.storage.disk import Disk
from odradek.storage.throttle import Throttle
from odradek.wire.work import Work, finish

if TYPE_CHECKING:
    from odradek.server.background.work import WorkQueue
    from odradek.server.network.timers import Timer, Timers
    from odradek.storage.log.partition import Partition

logger = logging.getLogger("odradek.cleaner")

DEATHS_MAX = 3
"""Limit of deaths of a process during one partition, and of deaths in a row before its first message."""
RESTART_DELAY_MS = 1_000
RESTART_DELAY_MS_MAX = 60_000
IDLE_S_MAX = 60.0
"""An idle process keeps 25 MB; it starts in a tenth of a second."""
BACKOFF_MS_MIN = 10
"""With `log.cleaner.backoff.ms` 0 the search for work alone would use a whole core."""
STEP_BYTES = 65_536
"""A millisecond of work, if it has to be done between requests."""
PAUSE = 2
"""Then it pauses this many times as long as it worked."""
END_WAIT_S = 2.0
MEGABYTE = 1024 * 1024


@dataclass(slots=True, frozen=True, kw_only=True)
class CleanerOptions:
    """Kafka's options `log.cleaner.*`."""

    threads: int = 1
    backoff_ms: int = 15_000
    bytes_per_second: float = float("inf")
    dedupe_buffer_bytes: int = 134_217_728
    load_factor: float = 0.9
    io_buffer_bytes: int = 524_288

    @property
    def of_one(self) -> CleanerSettings:
        """The share of each worker; half of its buffer is for reading, half for writing."""
        threads = max(self.threads, 1)
        return CleanerSettings(
            memory_bytes=self.dedupe_buffer_bytes // threads,
            load_factor=self.load_factor,
            buffer_bytes=max(self.io_buffer_bytes // threads // 2, 1),
        )


@dataclass(slots=True, frozen=True)
class Done:
    """A round has ended."""

    outcome: CleaningOutcome
    seconds: float


@dataclass(slots=True, frozen=True)
class Failed:
    """A round has failed. `error_number` is the number of an OSError."""

    reason: str
    error_number: int | None = None


@dataclass(slots=True, frozen=True)
class Cancelled:
    """A round was cancelled."""


@dataclass(slots=True, frozen=True)
class Died:
    """The process of the round has died. `has_spoken`: it had started successfully."""

    has_spoken: bool


Event = CleanedGroup | Done | Failed | Cancelled | Died


class Worker(Protocol):
    """Does rounds, one at a time, and reports events: groups, and at last one of the others."""

    def beginning(self, job: CleaningJob, bytes_per_second: float) -> Work[None]:
        """Raises `OSError` if no process can be started."""
        ...

    def pace(self, bytes_per_second: float) -> None:
        """Change the rate of the present round."""
        ...

    def cancel(self) -> None:
        """Cancel the round. Its last event still comes."""
        ...

    def close(self) -> None:
        """End at once, without further events."""
        ...


class ProcessWorker:
    """A process of its own, started for the first round and again after it died."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[Event], None]) -> None:
        self._loop = loop
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._token = ""
        self._text = b""
        self._has_spoken = False
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def beginning(self, job: CleaningJob, bytes_per_second: float) -> Work[None]:
        self._token = job.token
        self._is_closed = False
        if self._process is None:
            yield self._start
            if self._process is None:
                return  # closed meanwhile
            assert self._process.stdout is not None
            self._text, self._has_spoken = b"", False
            self._loop.add_reader(self._process.stdout.fileno(), self._listen)
        yield partial(self._send, {"job": job.as_plain(), "bytes_per_second": _finite(bytes_per_second)})

    def pace(self, bytes_per_second: float) -> None:
        self._send({"pace": self._token, "bytes_per_second": _finite(bytes_per_second)})

    def cancel(self) -> None:
        self._send({"cancel": self._token})

    def close(self) -> None:
        self._is_closed = True
        process, self._process = self._process, None
        if process is not None:
            assert process.stdout is not None
            self._loop.remove_reader(process.stdout.fileno())
            _end(process)

    def _start(self) -> None:
        """May block for some milliseconds; in a worker thread."""
        if not sys.executable or getattr(sys, "frozen", False):
            raise OSError("there is no Python to run it")
        environment = dict(os.environ)
        let_find_package(environment)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "odradek.server.background.cleaner_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            # Ctrl-C in a terminal is for the broker, which then stops its children. Not a session of its own:
            # with # autogroup, Linux gives each session the same share, and the priority of a process counts
            # only within # its session.
            process_group=0,
        )
        self._process = process
        if self._is_closed:
            self._process = None
            _end(process)

    def _send(self, order: dict[str, Any]) -> None:
        """Blocks for as long as the process does not read."""
        process = self._process
        if process is None or process.stdin is None:
            return
        text = json.dumps(order).encode() + b"\n"
        try:
            process.stdin.write(text)
            process.stdin.flush()
        except OSError:
            # It has died: `_listen` notices it, too.
            pass

    def _listen(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        piece = os.read(process.stdout.fileno(), 1 << 16)
        if not piece:
            self.close()
            self._tell(Died(self._has_spoken))
            return
        self._has_spoken = True
        *lines, self._text = (self._text + piece).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message.get("token") == self._token:
                self._tell(_event_of(message))


def _finite(bytes_per_second: float) -> float:
    """JSON has no infinity; this is Kafka's value for no limit."""
    return min(bytes_per_second, sys.float_info.max)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        try:
            pipe.close()
        except OSError:
            pass  # data that was not sent yet
    try:
        process.wait(END_WAIT_S)
    except subprocess.TimeoutExpired:
        logger.warning("the compaction process %d does not end after SIGKILL", process.pid)


def _event_of(message: dict[str, Any]) -> Event:
    if "group" in message:
        group = message["group"]
        return CleanedGroup(**{**group, "old_bases": tuple(group["old_bases"])})
    if "done" in message:
        statistics = CleaningStatistics(**message["done"]["statistics"])
        return Done(CleaningOutcome(message["done"]["first_dirty"], statistics), message["seconds"])
    if "failed" in message:
        return Failed(message["failed"], message["errno"])
    return Cancelled()


class LoopWorker:
    """The same work between the requests: a step, then a pause that is longer than it was."""

    def __init__(
        self, disk: Disk, timers: Timers, loop: asyncio.AbstractEventLoop, tell: Callable[[Event], None]
    ) -> None:
        self._disk = disk
        self._timers = timers
        self._loop = loop
        self._tell = tell
        self._round: Round | None = None
        self._throttle = Throttle(1.0, 0.0)
        self._next_step: Timer | None = None
        self._begun_s = 0.0

    def beginning(self, job: CleaningJob, bytes_per_second: float) -> Work[None]:
        self._begun_s = self._loop.time()
        self._throttle = Throttle(bytes_per_second, self._begun_s)
        small = replace(job, buffer_bytes=min(job.buffer_bytes, STEP_BYTES))
        self._round = cleaning_round(self._disk, small, os.urandom(16))
        self._step_later(self._round, 0.0)
        return
        yield  # a Work

    def pace(self, bytes_per_second: float) -> None:
        if self._round is None:
            return
        rest_s = self._throttle.change(bytes_per_second, self._loop.time())
        if self._next_step is not None:
            self._next_step.cancel()
        self._step_later(self._round, rest_s)

    def cancel(self) -> None:
        if self._round is not None:
            self.close()
            self._loop.call_soon(self._tell, Cancelled())

    def close(self) -> None:
        running, self._round = self._round, None
        if running is not None:
            running.close()

    def _step(self, running: Round) -> None:
        if running is not self._round:
            return
        begun_s = self._loop.time()
        try:
            event = next(running)
        except StopIteration as end:
            self._round = None
            self._tell(Done(end.value, self._loop.time() - self._begun_s))
            return
        except Exception as error:
            self._round = None
            reason = getattr(error, "message", None) or str(error) or type(error).__name__
            self._tell(Failed(reason, getattr(error, "errno", None)))
            return
        now_s = self._loop.time()
        rest_s = PAUSE * (now_s - begun_s)
        if isinstance(event, CleanedGroup):
            self._tell(event)
        else:
            rest_s = max(rest_s, self._throttle.add(event, now_s))
        self._step_later(running, rest_s)

    def _step_later(self, running: Round, rest_s: float) -> None:
        self._next_step = self._timers.after(max(rest_s * 1000, 1), partial(self._step, running))


class LogCleaner:
    """See the module. Lives on the event loop; `start`, then `close`."""

    def __init__(
        self,
        cleaner: Cleaner,
        disk: Disk,
        upkeep: WorkQueue,
        timers: Timers,
        clock_timers: Timers,
        now_ms: Callable[[], int],
        options: CleanerOptions,
    ) -> None:
        """Looks for work come by `clock_timers`, the steps of work between the requests by `timers`."""
        self.cleaner = cleaner
        self.disk = disk
        self.upkeep = upkeep
        self.timers = timers
        self.clock_timers = clock_timers
        self.now_ms = now_ms
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.deaths: dict[Partition, int] = {}
        self.may_start_processes = True
        self._lanes: list[_Lane] = []
        self._waiting: list[Callable[[], None]] = []

    def start(self) -> None:
        """Look for something to do now, whenever something is done, and after each back-off."""
        self.cleaner.on_uncleanable = _tell_of_uncleanable
        self.configure(self.options)

    def configure(self, options: CleanerOptions) -> None:
        """Take new options: the number of workers and the rate at once, the others for later rounds."""
        self.options = options
        self._lanes = [lane for lane in self._lanes if not lane.is_closed]
        going_on = [lane for lane in self._lanes if not lane.is_last]
        for lane in going_on[options.threads :]:
            lane.end()
        for _ in range(options.threads - len(going_on)):
            lane = _Lane(self)
            self._lanes.append(lane)
            lane.look_later(0)
        self.share_rate()

    @property
    def rate_of_one(self) -> float:
        """Bytes per second of each present round: together they keep the configured rate."""
        whole = self.options.bytes_per_second
        return whole if whole >= sys.float_info.max else whole / max(sum(map(_is_at_work, self._lanes)), 1)

    def share_rate(self) -> None:
        """Give every present round its share of the rate."""
        for lane in self._lanes:
            lane.follow_rate()

    @property
    def is_at_work(self) -> bool:
        return any(map(_is_at_work, self._lanes))

    def when_round_ends(self, callback: Callable[[], None]) -> None:
        """Calls it once, when the next of the present rounds has ended."""
        self._waiting.append(callback)

    def round_ended(self) -> None:
        self.share_rate()
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def close(self) -> None:
        """End all work at once and remove incomplete files."""
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        self.round_ended()

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [pid for lane in self._lanes if (pid := getattr(lane.worker, "pid", None)) is not None]

    def new_worker(self, tell: Callable[[Event], None]) -> Worker:
        if self.may_start_processes:
            return ProcessWorker(self.loop, tell)
        return LoopWorker(self.disk, self.timers, self.loop, tell)

    def give_up_processes(self, why: object) -> None:
        if self.may_start_processes:
            self.may_start_processes = False
            logger.warning(
                "no process for compaction can be started; logs are compacted between requests, slower: %s",
                why,
            )


class _Lane:
    """One round after the other, as one of Kafka's cleaner threads."""

    def __init__(self, owner: LogCleaner) -> None:
        self._owner = owner
        self.worker = owner.new_worker(self._hear)
        self._round: Cleaning | None = None
        self._is_given_up = False
        self.is_last = False
        self.is_closed = False
        self._deaths = 0
        self._rate = float("nan")
        self._idle_since_s = owner.loop.time()

    @property
    def is_at_work(self) -> bool:
        return self._round is not None

    def follow_rate(self) -> None:
        """Give the present round its share of the configured rate."""
        rate = self._owner.rate_of_one
        if self.is_at_work and rate != self._rate:
            self._rate = rate
            self.worker.pace(rate)

    def look_later(self, delay_ms: float) -> None:
        self._owner.clock_timers.look_after(delay_ms, self._look)

    def _rest(self) -> None:
        self.look_later(max(self._owner.options.backoff_ms, BACKOFF_MS_MIN))

    def end(self) -> None:
        """No more rounds after this one."""
        self.is_last = True
        if self._round is None:
            self.close()

    def close(self) -> None:
        # Its events may wait in the queue of upkeep and have no effect now: its files are removed.
        self.is_closed = self._is_given_up = True
        self.worker.close()
        if self._round is not None:
            finish(self._owner.cleaner.abandon(self._round))
            self._round = None

    def _look(self) -> None:
        if not self.is_closed:
            self._owner.upkeep.run(self._beginning(), self._have_looked, self._fail_to_look)

    def _fail_to_look(self, error: Exception) -> None:
        logger.error("looking for logs to compact failed", exc_info=error)
        if self._round is None:
            self._rest()
        else:
            self.worker.close()
            self._end_with(self._abandoning(self._round, Cancelled()))

    def _beginning(self) -> Work[bool]:
        """Begin the next round, if there is one to begin."""
        owner = self._owner
        found = yield from owner.cleaner.next_round(owner.now_ms(), owner.options.of_one)
        if found is not None and self.is_closed:
            yield from owner.cleaner.abandon(found)
            found = None
        if found is None:
            return False
        self._round, self._is_given_up = found, False
        rate = self._rate = owner.rate_of_one
        owner.share_rate()
        try:
            yield from self.worker.beginning(found.job, rate)
        except OSError as error:
            owner.give_up_processes(error)
            if self.is_closed:
                return True
            self.worker = owner.new_worker(self._hear)
            yield from self.worker.beginning(found.job, rate)
        # The rate may have changed while the job was started with the old one.
        self._rate = rate
        self.follow_rate()
        return True

    def _have_looked(self, has_begun: bool) -> None:
        owner = self._owner
        if has_begun or self.is_closed:
            return
        if owner.loop.time() - self._idle_since_s > IDLE_S_MAX:
            self.worker.close()
        self._rest()

    # Events of the worker

    def _hear(self, event: Event) -> None:
        if self.is_closed or self._round is None:
            return
        if isinstance(event, CleanedGroup):
            self._owner.upkeep.run(self._swapping(self._round, event), _ignore, self._fail_to_swap)
        elif isinstance(event, Done):
            self._end_with(self._finishing(self._round, event))
        else:
            self._end_with(self._abandoning(self._round, event))

    def _fail_to_swap(self, error: Exception) -> None:
        logger.error("putting compacted segments in place failed", exc_info=error)
        self._give_up()

    def _end_with(self, work: Work[float]) -> None:
        self._owner.upkeep.run(work, self._have_ended, self._fail_to_end)

    def _fail_to_end(self, error: Exception) -> None:
        logger.error("ending a compaction failed", exc_info=error)
        self._have_ended(self._owner.options.backoff_ms)

    def _swapping(self, about: Cleaning, group: CleanedGroup) -> Work[None]:
        if self._is_given_up:
            return
        is_in_place = yield from self._owner.cleaner.swap(about, group, self._owner.now_ms())
        if not is_in_place:
            self._give_up()

    def _give_up(self) -> None:
        """The log has changed."""
        if not self._is_given_up:
            self._is_given_up = True
            self.worker.cancel()

    def _finishing(self, about: Cleaning, event: Done) -> Work[float]:
        """Finish a completed round; returns the pause before the next search, in ms."""
        self._deaths = 0
        if self._is_given_up:
            yield from self._owner.cleaner.abandon(about)
            return BACKOFF_MS_MIN + self._owner.options.backoff_ms
        yield from self._owner.cleaner.finish(about, event.outcome.first_dirty)
        self._owner.cleaner.seconds += event.seconds
        statistics = event.outcome.statistics
        self._owner.cleaner.bytes_read += statistics.bytes_indexed + statistics.bytes_read
        _tell_of(about, event)
        return 0

    def _abandoning(self, about: Cleaning, event: Failed | Cancelled | Died) -> Work[float]:
        """Finish a failed or cancelled round; returns the pause before the next search, in ms."""
        owner, name = self._owner, about.partition.name
        yield from owner.cleaner.abandon(about)
        if isinstance(event, Died):
            return self._bury(about, event)
        self._deaths = 0
        if isinstance(event, Failed) and not self._is_given_up:
            is_hopeless = owner.cleaner.judge(about, event.reason, event.error_number)
            if not is_hopeless:
                logger.warning("the compaction of %s is put off: %s", name, event.reason)
        return BACKOFF_MS_MIN + owner.options.backoff_ms

    def _bury(self, about: Cleaning, event: Died) -> float:
        owner, name = self._owner, about.partition.name
        self._deaths += 1
        if not event.has_spoken and self._deaths >= DEATHS_MAX:
            owner.give_up_processes("it ends as soon as it starts")
            self.worker = owner.new_worker(self._hear)
            return 0
        over_this = owner.deaths[about.partition] = owner.deaths.get(about.partition, 0) + 1
        if event.has_spoken and over_this >= DEATHS_MAX:
            owner.cleaner.judge(about, f"the process that compacts has died {over_this} times over it")
        delay_ms: float = min(RESTART_DELAY_MS * 2 ** (self._deaths - 1), RESTART_DELAY_MS_MAX)
        logger.warning("the process that compacted %s has died; the next one starts in %d ms", name, delay_ms)
        return delay_ms

    def _have_ended(self, delay_ms: float) -> None:
        if isinstance(self._round, Cleaning) and delay_ms == 0:
            self._owner.deaths.pop(self._round.partition, None)
        self._round = None
        self._owner.round_ended()
        self._idle_since_s = self._owner.loop.time()
        if self.is_last:
            self.close()
        elif not self.is_closed:
            self.look_later(max(delay_ms, 0))


def _is_at_work(lane: _Lane) -> bool:
    return lane.is_at_work


def _ignore(result: object) -> None:
    pass


def _tell_of_uncleanable(name: str, reason: str) -> None:
    logger.error("%s cannot be compacted and is left alone until a restart: %s", name, reason)


def _tell_of(about: Cleaning, event: Done) -> None:
    statistics = event.outcome.statistics
    logger.info(
        "compacted %s up to offset %d in %.2f s: %.1f MB read, %d keys; "
        "%.1f of %.1f MB and %d of %d records stay",
        about.partition.name,
        event.outcome.first_dirty,
        event.seconds,
        (statistics.bytes_indexed + statistics.bytes_read) / MEGABYTE,
        statistics.keys,
        statistics.bytes_written / MEGABYTE,
        statistics.bytes_read / MEGABYTE,
        statistics.records_kept,
        statistics.records_read,
    )
