"""What a reader of the figures has to know of the machine, and of the state of the code."""

from __future__ import annotations

import os
import pathlib
import platform
import statistics
import subprocess
import time

from benchmarks import core_gaps
from benchmarks.run import Cores, Refused
from odradek.embedding.maven_jars import KAFKA_VERSION

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
WRITTEN = (":!benchmarks/RESULTS.md", ":!benchmarks/results*")
"""What a run itself changes."""
WATCHED_S = 4.0
"""Before and after what is measured."""


def facts(work: pathlib.Path) -> dict[str, str]:
    """One line each, by name. Takes about a second."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return {
        "cpu": f"{os.cpu_count()} x {model}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": java_version(),
        "kafka": KAFKA_VERSION,
        "median fdatasync": (
            f"{fdatasync_us(work, grows=False):.0f} us, "
            f"of a file that grows {fdatasync_us(work, grows=True):.0f} us"
        ),
    }


def java_version() -> str:
    try:
        told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    except FileNotFoundError:
        return "none"
    return told.splitlines()[0]


def fdatasync_us(directory: pathlib.Path, *, grows: bool, rounds: int = 200) -> float:
    """Median time of an fdatasync after a write of 4 KiB, in microseconds: at the end of a file, or into one
    that has its blocks already, as the flush journal has.
    """
    path = directory / "fdatasync-probe"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    times = []
    try:
        if not grows:
            os.write(descriptor, bytes(4096 * rounds))
            os.fsync(descriptor)
            os.lseek(descriptor, 0, os.SEEK_SET)
        for _ in range(rounds):
            os.write(descriptor, bytes(4096))
            start = time.perf_counter_ns()
            os.fdatasync(descriptor)
            times.append((time.perf_counter_ns() - start) / 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(times)


class Evenness:
    """How evenly the machine computed while something was measured: what its host took away, how long the
    same loop took before and after, and how often the cores went away from a loop on each of them.
    """

    def __init__(self) -> None:
        cores = Cores.of_machine()
        self._cores = sorted({cores.server, cores.load})
        self._gaps = core_gaps.measure(self._cores, WATCHED_S)
        self._loops_ms = _loops_ms()
        self._ticks = _processor_ticks()

    def told(self) -> str:
        """One sentence for the notes of a part, taken at its end."""
        before, now = self._ticks, _processor_ticks()
        loops_ms = sorted(self._loops_ms + _loops_ms())
        gaps = self._gaps + core_gaps.measure(self._cores, WATCHED_S)
        spent = max(sum(now.values()) - sum(before.values()), 1)
        stolen = (now["steal"] - before["steal"]) / spent
        return (
            f"The machine meanwhile: {stolen:.1%} of the processors' time went to others on its host; a loop "
            f"that is always the same took {loops_ms[0]:.0f} to {loops_ms[-1]:.0f} ms "
            f"(median {statistics.median(loops_ms):.0f}) before and after; from loops on {len(self._cores)} "
            f"cores at once, for {gaps.seconds:g} s, they were taken away {gaps}."
        )


def _processor_ticks() -> dict[str, int]:
    """Of all cores together since the start, by what they did; zeros where the system does not say."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    try:
        first = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0]
    except OSError:
        return dict.fromkeys(names, 0)
    return dict(zip(names, map(int, first.split()[1:]), strict=False))


def _loops_ms(rounds: int = 10, turns: int = 1_000_000) -> list[float]:
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(turns):
            pass
        times.append((time.perf_counter_ns() - start) / 1e6)
    return times


def refuse_memory(directory: pathlib.Path) -> None:
    """What is flushed to memory is no figure of a flush."""
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", str(directory)], capture_output=True, text=True, check=True
    ).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        raise Refused(f"{directory} is on {kind}: name a folder on a disk with --work.")


def state_of_code() -> str:
    """The commit, and whether the checkout differs from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        commit = git("rev-parse", "--short", "HEAD")
        changes = git("status", "--porcelain", "--untracked-files=no", "--", ".", *WRITTEN)
    except (OSError, subprocess.CalledProcessError):
        return "a state of the code that no commit names"
    return f"commit {commit}{' with changes' if changes else ''}"
