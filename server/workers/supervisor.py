"""The parent of the workers of a broker: it forks them, and forks each again that dies.

It has imported all that a worker needs, so one is ready in a moment and shares that memory. It has no event
loop and no thread. It keeps the listening sockets: clients of a worker that has died wait for the next one
instead of being refused. So it alone knows that a worker is dead, and tells the controller.

Workers take no signals. Each has a pipe of its own, whose other end closes when it has to stop, or when the
parent ends, whatever ends that. At a stop the first worker is the last one: the others ask its controller.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from odradek.config.config_error import ConfigError
from odradek.config.worker_place import AMONG_WORKERS
from odradek.server.process.log_output import name_process
from odradek.server.process.main_loop import LIFELINE_VARIABLE
from odradek.server.process.systemd import Systemd, systemd_of

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.server.process.main_loop import NodeServer

logger = logging.getLogger("odradek.workers")

FIRST_PAUSE_S, PAUSE_S_MAX = 0.1, 5.0
"""Before a worker that dies at once is forked again; twice as long each time."""
REFUSAL_CHARACTERS_MAX = 2_000
"""A report is written to its pipe as a whole: that has 4,096 bytes at least."""
LIVED_S = 10.0
"""A worker that has lived for so long does not die at once."""


Sockets = Mapping[str, Sequence[socket.socket]]
"""Bound ones by the name of a listener, or of the option of the metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """The configuration and the sockets of a worker; the first one has a controller, too."""

    config: BrokerConfig
    sockets: Sockets
    controller_config: BrokerConfig | None = None
    controller_sockets: Sockets = field(default_factory=dict)

    def all_sockets(self) -> Iterator[socket.socket]:
        """All of both."""
        for by_name in (self.sockets, self.controller_sockets):
            for sockets in by_name.values():
                yield from sockets


class Deaths(NamedTuple):
    """Deaths of workers, for the controller."""

    descriptor: int
    """A pipe with a line for each worker that dies: its node id."""
    before: Sequence[int] | None
    """Node ids of workers that do not live when the controller begins; None: none of an earlier run does."""


BeWorker = Callable[[WorkerParts, Deaths, "Callable[[NodeServer], None]"], int]
"""Serves in the process of a worker, and calls its last argument when it is unfenced; the exit status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyWorkers:
    """Workers that serve, for the line that says so."""

    configs: Sequence[BrokerConfig]
    addresses: Sequence[tuple[str, str, int]]
    """Name, host and real port of the listeners for clients: those of the first worker, of the second, ..."""
    cluster_id: str
    metrics_ports: Sequence[int]
    console_url: str
    """Empty: there is no web console."""

    @property
    def data_directories(self) -> tuple[str, ...]:
        return tuple(path for config in self.configs for path in config.data_directories)


@dataclass(slots=True)
class Pauses:
    """How long a worker that has ended is not forked again: not at all, and longer each time that it has not
    lived for `LIVED_S`."""

    _next_s: float = 0.0

    def after(self, lived_s: float) -> float:
        """Seconds from the end of a process that has lived for so many."""
        pause_s = 0.0 if lived_s >= LIVED_S else self._next_s
        self._next_s = min(max(pause_s * 2, FIRST_PAUSE_S), PAUSE_S_MAX)
        return pause_s


@dataclass(slots=True)
class _Worker:
    """One worker, through all of its processes."""

    parts: WorkerParts
    index: int
    pid: int = 0
    """0: no process runs."""
    lifeline: int = -1
    """The process stops when this end of the pipe closes."""
    is_ready: bool = False
    forked_s: float = 0.0
    pauses: Pauses = field(default_factory=Pauses)
    due_s: float = 0.0
    """When it is to be forked, while no process runs."""

    @property
    def name(self) -> str:
        return f"worker {self.index}"


@dataclass(slots=True)
class _Pipe:
    reading: int
    writing: int

    @classmethod
    def new(cls) -> _Pipe:
        pipe = cls(*os.pipe())
        os.set_blocking(pipe.reading, False)
        os.set_blocking(pipe.writing, False)
        return pipe

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


@dataclass(slots=True)
class _Stop:
    """Whether all has to end, and the sentence why, if it is for a failure at the start."""

    is_wanted: bool = False
    has_begun: bool = False
    refusal: str = ""


class Supervisor:
    """See the module. `folder` has the sockets of the workers, `on_ready` is called once, when all are
    unfenced."""

    def __init__(
        self,
        parts: Sequence[WorkerParts],
        folder: str,
        be_worker: BeWorker,
        on_ready: Callable[[ReadyWorkers], None],
    ) -> None:
        self._be_worker = be_worker
        self._workers = [_Worker(one, index) for index, one in enumerate(parts)]
        self._folder = folder
        self._on_ready = on_ready
        self._pid = os.getpid()
        self._signals = _Pipe.new()
        self._reports = _Pipe.new()
        self._unread = b""
        self._deaths = _Pipe.new()
        self._first_run = True
        self._stop = _Stop()
        self._has_told = False
        self._told: dict[int, Mapping[str, Any]] = {}
        self._systemd: Systemd | None = None
        self._own_lifeline = _own_lifeline()

    def run(self) -> int:
        """Until a stop; the exit status."""
        self._systemd = systemd_of(os.environ)
        with self._signals_to_pipe():
            try:
                while not self._is_over():
                    self._fork_due()
                    self._wait()
                    self._read_reports()
                    self._reap()
                    self._go_on_stopping()
            finally:
                self._end_all()
        if self._stop.refusal:
            raise ConfigError(self._stop.refusal)
        return 0

    def _is_over(self) -> bool:
        return self._stop.is_wanted and not any(worker.pid for worker in self._workers)

    @contextlib.contextmanager
    def _signals_to_pipe(self) -> Iterator[None]:
        def stop(*_: object) -> None:
            self._stop.is_wanted = True

        handlers: dict[signal.Signals, Any] = {
            signal.SIGTERM: stop,
            signal.SIGINT: stop,
            signal.SIGCHLD: lambda *_: None,
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        descriptor = signal.set_wakeup_fd(self._signals.writing, warn_on_full_buffer=False)
        try:
            yield
        finally:
            if os.getpid() == self._pid:
                signal.set_wakeup_fd(descriptor)
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _wait(self) -> None:
        """For a signal, a report, the end of the parent, or the time of the next fork."""
        poll = select.poll()
        for descriptor in (self._signals.reading, self._reports.reading):
            poll.register(descriptor, select.POLLIN)
        if self._own_lifeline is not None and not self._stop.is_wanted:
            poll.register(self._own_lifeline, select.POLLIN)
        found = poll.poll(self._timeout_ms())
        if self._systemd is not None and self._has_told:
            self._systemd.alive()
        with contextlib.suppress(BlockingIOError):
            os.read(self._signals.reading, 4096)
        if any(descriptor == self._own_lifeline for descriptor, _ in found):
            self._stop.is_wanted = True

    def _timeout_ms(self) -> float | None:
        waits = [one.due_s for one in self._workers if not one.pid and self._is_needed(one)]
        seconds = [max(due_s - time.monotonic(), 0) for due_s in waits]
        if self._has_told and self._systemd is not None and self._systemd.pause_s is not None:
            seconds.append(self._systemd.pause_s)
        return min(seconds) * 1000 + 1 if seconds else None

    # A worker's life

    def _fork_due(self) -> None:
        for worker in self._workers:
            if not worker.pid and self._is_needed(worker) and worker.due_s <= time.monotonic():
                self._fork(worker)
        self._first_run = False

    def _is_needed(self, worker: _Worker) -> bool:
        """At a stop the others need the controller as long as there are some."""
        if not self._stop.is_wanted:
            return True
        first, *others = self._workers
        return worker is first and not self._stop.refusal and any(one.pid for one in others)

    def _fork(self, worker: _Worker) -> None:
        if worker.parts.controller_config is not None:
            # The process before it may have read of deaths that it has not decided on.
            self._deaths.close()
            self._deaths = _Pipe.new()
        deaths = Deaths(self._deaths.reading, None if self._first_run else self._unready_ids())
        theirs, worker.lifeline = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError as error:
            logger.error("%s cannot be forked: %s", worker.name, error.strerror or error)
            os.close(theirs)
            self._close_lifeline(worker)
            self._pause(worker)
            return
        if pid == 0:
            self._be(worker, deaths, theirs)
        os.close(theirs)
        worker.pid, worker.forked_s, worker.is_ready = pid, time.monotonic(), False
        logger.info("%s (node %d) runs as process %d", worker.name, worker.parts.config.node_id, pid)

    def _unready_ids(self) -> list[int]:
        return [one.parts.config.node_id for one in self._workers if not one.is_ready]

    def _pause(self, worker: _Worker) -> None:
        """Until it is forked again."""
        now_s = time.monotonic()
        worker.due_s = now_s + worker.pauses.after(now_s - worker.forked_s)

    def _reap(self) -> None:
        for worker in self._workers:
            if not worker.pid:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                # It may have said why just before.
                self._read_reports()
                self._died(worker, os.waitstatus_to_exitcode(status))

    def _died(self, worker: _Worker, status: int) -> None:
        worker.pid, worker.is_ready = 0, False
        self._close_lifeline(worker)
        # The first worker's next process asks who is there (`_unready_ids`).
        with contextlib.suppress(OSError):
            os.write(self._deaths.writing, b"%d\n" % worker.parts.config.node_id)
        if not self._is_needed(worker):
            return
        self._pause(worker)
        how = f"with status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
        logger.error("%s has ended %s, and is started again", worker.name, how)

    def _close_lifeline(self, worker: _Worker) -> None:
        if worker.lifeline >= 0:
            os.close(worker.lifeline)
            worker.lifeline = -1

    # Reports

    def _read_reports(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._unread += os.read(self._reports.reading, 65_536)
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            report = json.loads(line)
            worker = self._workers[report["worker"]]
            if report["pid"] == worker.pid:
                self._take(worker, report)

    def _take(self, worker: _Worker, report: Mapping[str, Any]) -> None:
        if "refusal" in report:
            if self._has_told:
                logger.error("%s does not start: %s", worker.name, report["refusal"])
            elif not self._stop.is_wanted:
                self._stop = _Stop(is_wanted=True, refusal=report["refusal"])
            return
        worker.is_ready = True
        logger.info("%s (node %d) serves, process %d", worker.name, worker.parts.config.node_id, worker.pid)
        self._told[worker.index] = report
        if self._has_told or self._stop.is_wanted or not all(one.is_ready for one in self._workers):
            return
        self._has_told = True
        ready = self._ready()
        self._on_ready(ready)
        if self._systemd is not None:
            first, count = ready.configs[0].node_id, len(ready.configs)
            self._systemd.tell_ready(f"{count} workers, nodes {first} to {first + count - 1}, serve")

    def _ready(self) -> ReadyWorkers:
        told = [self._told[worker.index] for worker in self._workers]
        return ReadyWorkers(
            configs=[worker.parts.config for worker in self._workers],
            addresses=[(name, host, port) for one in told for name, host, port in one["addresses"]],
            cluster_id=told[0]["cluster_id"],
            metrics_ports=[one["metrics_port"] for one in told],
            console_url=told[0]["console_url"],
        )

    # The end

    def _go_on_stopping(self) -> None:
        """The first worker stops when all others have."""
        if not self._stop.is_wanted:
            return
        if self._systemd is not None:
            self._systemd.stopping()
            self._systemd = None
        if not self._stop.has_begun:
            self._stop.has_begun = True
            self._wake_all()
        first, *others = self._workers
        for worker in reversed(others):
            self._close_lifeline(worker)
        self._close_sockets(others)
        if not any(worker.pid for worker in others):
            self._close_lifeline(first)
            self._close_sockets([first])

    def _wake_all(self) -> None:
        """A worker that was paused (SIGSTOP) would never see that it has to stop."""
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, signal.SIGCONT)

    def _close_sockets(self, workers: Sequence[_Worker]) -> None:
        """Clients are refused from now on. Workers may still connect to each other."""
        for worker in workers:
            for name, sockets in worker.parts.sockets.items():
                if name != AMONG_WORKERS:
                    for one in sockets:
                        one.close()

    def _end_all(self) -> None:
        """Whatever has failed here: no process is left behind."""
        for worker in self._workers:
            self._close_lifeline(worker)
        for worker in self._workers:
            if worker.pid:
                os.waitpid(worker.pid, 0)
        for pipe in (self._signals, self._reports, self._deaths):
            pipe.close()

    # In the child

    def _be(self, worker: _Worker, deaths: Deaths, lifeline: int) -> NoReturn:
        """The process of a worker."""
        status = 1
        try:
            self._leave_the_parent(worker)
            os.environ[LIFELINE_VARIABLE] = str(lifeline)
            name_process(worker.name)
            status = self._be_worker(worker.parts, deaths, partial(self._report_ready, worker))
        except ConfigError as error:
            self._report(worker, refusal=str(error)[:REFUSAL_CHARACTERS_MAX])
        except BaseException:
            traceback.print_exc()
        finally:
            self._leave(status)

    def _leave_the_parent(self, worker: _Worker) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # As long as an end is open here, nobody would see the parent close it.
        for other in self._workers:
            self._close_lifeline(other)
        os.close(self._deaths.writing)
        for other in self._workers:
            if other is not worker:
                for one in other.parts.all_sockets():
                    one.close()

    def _report_ready(self, worker: _Worker, server: NodeServer) -> None:
        self._report(
            worker,
            addresses=[one for one in server.addresses if one[0] != AMONG_WORKERS],
            cluster_id=server.cluster_id,
            metrics_port=server.metrics_port,
            console_url=server.console_url,
        )

    def _report(self, worker: _Worker, **content: Any) -> None:
        line = json.dumps({"worker": worker.index, "pid": os.getpid(), **content}).encode() + b"\n"
        with contextlib.suppress(OSError):
            os.write(self._reports.writing, line)

    def _leave(self, status: int) -> NoReturn:
        if os.getppid() != self._pid:
            # Nobody else is left to do it.
            shutil.rmtree(self._folder, ignore_errors=True)
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(status)


def _own_lifeline() -> int | None:
    text = os.environ.pop(LIFELINE_VARIABLE, "")
    return int(text) if text.isdigit() else None
