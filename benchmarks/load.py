"""Starting `load.c`, the client that the requests come from, and whether its figures can be believed.

A load that has no time for its own work measures itself. So it tells how much of its core it used, and how
long it had to wait for that core; `Watch` makes figures of it that stand beside what was measured.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import signal
import subprocess
from collections.abc import Sequence
from typing import Protocol

from benchmarks.brokers import Cores, Running, pinned
from benchmarks.figures import Figure
from tools import environment

HERE = pathlib.Path(__file__).parent
PATIENCE_S = 300
LOWEST_PRIORITY = 19

CONNECTIONS = 50
RATE = 5_000
"""Requests a second: a tenth of what a broker with a core of its own can answer."""
STEADY = ("-c", str(CONNECTIONS), "-r", str(RATE))
STEADY_SAYS = (
    f"The load is steady: {CONNECTIONS} connections on which {RATE:,} produces of one record of 100 bytes "
    "become due each second, evenly spread; latencies count from when a request was due, sent or not, until "
    "the kernel had its answer. What the load itself sent late counts from when it was sent, and half a "
    "millisecond late not at all: it comes in a crowd that no client would send."
)


class Pinning(Protocol):
    """Turns a command into one that runs on the load's core, or leaves it alone."""

    def load(self, command: list[str]) -> list[str]: ...


class CorePinning:
    """The load on one core, on several, or on all of them for None."""

    def __init__(self, cores: Cores) -> None:
        self._cores = cores

    def load(self, command: list[str]) -> list[str]:
        return pinned(command, self._cores)


def compile_load(work: pathlib.Path) -> pathlib.Path:
    program = work / "load"
    variables = {**os.environ, **environment.compiler()}
    compiler = shlex.split(variables.get("CC", "cc"))
    subprocess.run([*compiler, "-O2", "-o", str(program), str(HERE / "load.c")], check=True, env=variables)
    return program


def start_load(
    broker: Running, pinning: Pinning, frames: pathlib.Path, *arguments: str, is_lowest: bool = False
) -> subprocess.Popen[str]:
    """To be ended by `finish_load`. `is_lowest`: whatever else runs on its core goes first."""
    command = [str(broker.load_program), "-p", str(broker.port), "-f", str(frames), *arguments]
    if is_lowest:
        command = ["nice", "-n", str(LOWEST_PRIORITY), *command]
    return subprocess.Popen(pinning.load(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish_load(process: subprocess.Popen[str], *, at_once: bool = False) -> dict[str, float]:
    """What the load says at its end, which is now or when its time is over. RuntimeError when it failed, or
    an answer carried an error."""
    if at_once:
        process.send_signal(signal.SIGINT)
    try:
        output, complaints = process.communicate(timeout=PATIENCE_S)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        raise RuntimeError(f"load failed: {complaints.strip()}")
    result: dict[str, float] = json.loads(output)
    if result["errors"]:
        raise RuntimeError(f"{result['errors']} answers carried an error: {complaints.strip()}")
    return result


def run_load(broker: Running, pinning: Pinning, frames: pathlib.Path, *arguments: str) -> dict[str, float]:
    return finish_load(start_load(broker, pinning, frames, *arguments))


class Watch:
    """Keeps the worst that was seen of a load."""

    def __init__(self) -> None:
        self._busy = self._waiting = 0.0
        self._answered: float | None = None
        self._late = 0.0

    def add(self, result: dict[str, float], rate: float | None = None) -> dict[str, float]:
        """Returns the result. `rate` is how many requests a second a steady load was to send."""
        seconds = result["seconds"]
        self._busy = max(self._busy, result["cpu_seconds"] / seconds)
        self._waiting = max(self._waiting, result["waited_seconds"] / seconds)
        if rate is not None:
            answered = result["requests"] / (rate * seconds)
            self._answered = answered if self._answered is None else min(self._answered, answered)
            self._late = max(self._late, result["sent_late"] / (rate * seconds))
        return result

    def add_together(self, others: Sequence[Watch]) -> None:
        """Adds loads that have run at the same time: how long all of them ran together, and how long the one
        waited that waited most."""
        self._busy = max(self._busy, sum(one._busy for one in others))
        self._waiting = max([self._waiting, *(one._waiting for one in others)])

    @property
    def busy_percent(self) -> float:
        """For how much of a measurement the load ran, at most; 0 where none was added."""
        return self._busy * 100

    @property
    def waiting_percent(self) -> float:
        """For how much of one it was ready and its core taken, at most."""
        return self._waiting * 100

    def figures(self) -> list[Figure]:
        figures = [
            Figure("of the load's time: running, at most", self.busy_percent, "%"),
            Figure("of the load's time: ready, but its core was taken, at most", self.waiting_percent, "%"),
        ]
        if self._answered is not None:
            what = "of the steady load: answered while it ran, at least"
            figures.append(Figure(what, self._answered * 100, "%"))
            what = "of the steady load: not counted, since the load was late, at most"
            figures.append(Figure(what, self._late * 100, "%"))
        return figures
