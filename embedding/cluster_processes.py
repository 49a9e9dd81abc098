"""The processes of `odradek.Cluster`: each has a log, may be killed or paused, and ends with this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from odradek.embedding import lifeline

STOP_TIMEOUT_S = 30.0
POLL_S = 0.02
SHOWN_LENGTH = 3_000
"""Characters of a log, its last ones."""
SENTENCE = "odradek: "
"""Begins the line in which `odradek serve` says why it does not start."""


class ClusterStartError(RuntimeError):
    """A cluster or one of its nodes could not start; the text is the reason."""


class ChildProcess:
    """One program, which may be started again and again; `log` gets what it prints."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.is_paused = False
        self._environment = None if environment is None else dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._log_start_bytes = 0

    @property
    def popen(self) -> subprocess.Popen[bytes]:
        """Process of the present run. RuntimeError when there is none."""
        if self._process is None:
            raise RuntimeError(f"{self.name} does not run")
        return self._process

    @property
    def is_running(self) -> bool:
        """Also while it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self.is_running and self._process is not None else None

    def said(self) -> str:
        """Output of the present run so far, or of the last one."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(self._log_start_bytes)
            return file.read().decode(errors="replace")

    def begin(self) -> None:
        """Starts it and does not wait."""
        assert not self.is_running
        self.finish()  # of a run that has ended by itself
        theirs, self._lifeline = os.pipe()
        starter = [sys.executable, "-I", "-S", lifeline.__file__, str(theirs)]
        try:
            with self.log.open("ab") as log:
                self._log_start_bytes = log.tell()
                self._process = subprocess.Popen(
                    [*starter, *self.command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(theirs,),
                    env=self._environment,
                    # Ctrl-C is for the parent, which stops its children in order.
                    start_new_session=True,
                )
        finally:
            os.close(theirs)

    def pause(self) -> None:
        """SIGSTOP."""
        self.popen.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self.popen.send_signal(signal.SIGCONT)
        self.is_paused = False

    def send(self, number: signal.Signals) -> None:
        """The signal, also to a paused process; `finish` has to follow. Harmless when it does not run."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        """Returns when it has ended; kills it when it has not after a while."""
        process, self._process, self.is_paused = self._process, None, False
        if process is not None:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def end(self, number: signal.Signals) -> None:
        """Both. SIGTERM asks it to stop, SIGKILL does not ask."""
        self.send(number)
        self.finish()


def wait_until_ready(
    waiting: Iterable[tuple[ChildProcess, Callable[[], bool]]],
    timeout_s: float,
    others: Iterable[ChildProcess] = (),
) -> None:
    """Returns when each of the processes is ready. ClusterStartError when one of them or of `others` has
    ended, or when it takes longer than `timeout_s`."""
    left = list(waiting)
    needed = [process for process, _ in left] + list(others)
    deadline = time.monotonic() + timeout_s
    while left:
        left = [(process, is_ready) for process, is_ready in left if not is_ready()]
        for process in needed:
            if not process.is_running:
                raise ClusterStartError(_why_ended(process))
        if left and time.monotonic() > deadline:
            slow = left[0][0]
            raise ClusterStartError(f"{slow.name} was not ready within {timeout_s:g} s{_last_lines(slow)}")
        if left:
            time.sleep(POLL_S)


def _why_ended(process: ChildProcess) -> str:
    """The sentence of a node of ours; of others the end of the log."""
    sentences = [line for line in process.said().splitlines() if line.startswith(SENTENCE)]
    if sentences:
        return f"{process.name}: {sentences[-1].removeprefix(SENTENCE)}"
    status = process.popen.returncode
    return f"{process.name} ended with status {status}{_last_lines(process)}"


def _last_lines(process: ChildProcess) -> str:
    text = process.said().strip()[-SHOWN_LENGTH:]
    return f":\n{text}" if text else ""
