"""`python -m benchmarks`: Apache Kafka and Odradek beside each other, case by case.

Both brokers run for the whole table, pinned to one core (the load to the other), and once more with all
cores free; the one that is not being measured is idle. Each case warms Kafka until its rate stands still,
then alternates which broker goes first for `--rounds` rounds, and reports medians, spread and their ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass

from benchmarks import brokers, kernel_floor, results, scale
from benchmarks.cases import Case, ProduceCase, all_cases

HERE = pathlib.Path(__file__).parent
SERVER_CORE, LOAD_CORE = 0, 1


@dataclass
class Outcome:
    """One row of the table."""

    case: str
    unit: str
    lower: bool
    at_least: float | None
    kafka: list[float]
    odradek: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(self.odradek) / statistics.median(self.kafka)

    @property
    def met(self) -> bool | None:
        if self.at_least is None:
            return None
        return self.ratio <= self.at_least if self.lower else self.ratio >= self.at_least


class CorePinning:
    """Where the load runs."""

    def __init__(self, core: int | None) -> None:
        self._core = core

    def load(self, command: list[str]) -> list[str]:
        return brokers.pinned(command, self._core)


def warm(case: Case, broker: brokers.Running, work: pathlib.Path, pinning: CorePinning, most: int) -> int:
    """Measures until the median of three figures is no more than 3 % from that of the three before; returns
    how many it took."""
    seen: list[float] = []
    while len(seen) < most:
        seen.append(case.measure(broker, work, pinning, 2.0))
        if len(seen) >= 6:
            before, last = statistics.median(seen[-6:-3]), statistics.median(seen[-3:])
            if abs(last - before) <= 0.03 * before:
                break
    return len(seen)


def warm_compiler(kafka: brokers.Running, work: pathlib.Path, pinning: CorePinning, seconds: float) -> None:
    """Small produces for so long: on one core a Java virtual machine needs more than a minute until it has
    compiled what they use (measured: 8,600 requests/s after 25 s, 24,000 later)."""
    for varied in (False, True):
        case = ProduceCase(name="before all", varied=varied)
        case.prepare(kafka, work)
        case.measure(kafka, work, pinning, seconds / 2)
        case.clean_up(kafka)


def run_case(
    case: Case,
    running: dict[str, brokers.Running],
    work: pathlib.Path,
    pinning: CorePinning,
    options: argparse.Namespace,
) -> Outcome:
    ours, theirs = running[case.broker], running["kafka"]
    for broker in (theirs, ours):
        case.prepare(broker, work)
    took = warm(case, theirs, work, pinning, options.warm_rounds)
    warm(case, ours, work, pinning, min(3, options.warm_rounds))
    figures: dict[str, list[float]] = {ours.name: [], theirs.name: []}
    for turn in range(options.rounds):
        for broker in (theirs, ours) if turn % 2 == 0 else (ours, theirs):
            figures[broker.name].append(case.measure(broker, work, pinning, options.seconds))
    for broker in (theirs, ours):
        case.clean_up(broker)
    outcome = Outcome(case.name, case.unit, case.lower, case.at_least, figures["kafka"], figures[ours.name])
    print(f"{results.line(outcome)}   (Kafka warm after {took})", flush=True)
    return outcome


def fdatasync_us(directory: pathlib.Path, *, grows: bool, rounds: int = 200) -> float:
    """Median time of an fdatasync after a write of 4 KiB, in microseconds: at the end of a file, or into one
    that has its blocks already, as the group log has.
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


def refuse_memory(directory: pathlib.Path) -> None:
    """What is flushed to memory is no figure of a flush."""
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", str(directory)], capture_output=True, text=True, check=True
    ).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        raise SystemExit(f"{directory} is on {kind}: name a folder on a disk with --work")


def compile_load(work: pathlib.Path) -> pathlib.Path:
    program = work / "load"
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", str(program), str(HERE / "load.c")], check=True)
    return program


def run_table(
    options: argparse.Namespace, work: pathlib.Path, cases: list[Case], core: bool
) -> list[Outcome]:
    load = compile_load(work)
    server_core = SERVER_CORE if core else None
    pinning = CorePinning(LOAD_CORE if core else None)
    outcomes = []
    with contextlib.ExitStack() as stack:
        running = {"kafka": stack.enter_context(brokers.kafka(load, work, server_core))}
        running["odradek"] = stack.enter_context(brokers.odradek(load, work, server_core))
        if any(case.broker == "odradek-flush" for case in cases):
            flushing = brokers.odradek(load, work, server_core, flush=True)
            running["odradek-flush"] = stack.enter_context(flushing)
        warm_compiler(running["kafka"], work, pinning, options.compile_seconds)
        for case in cases:
            outcomes.append(run_case(case, running, work, pinning, options))
    return outcomes


def machine() -> dict[str, str]:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    java = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=False
    ).stderr.splitlines()[0]
    return {
        "cpu": f"{os.cpu_count()} x {model}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": java,
        "kafka": "4.3.1",
    }


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each case and broker")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    parser.add_argument(
        "--warm-rounds", type=int, default=15, help="most measurements (2 s each) spent warming Kafka"
    )
    parser.add_argument(
        "--compile-seconds", type=float, default=100, help="produces to Kafka before the first case"
    )
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--no-free", action="store_true", help="skip the table with all cores free")
    parser.add_argument("--no-scale", action="store_true", help="skip start, memory and growth")
    parser.add_argument("--no-pinned", action="store_true", help="skip the pinned table")
    parser.add_argument(
        "--output", type=pathlib.Path, help="write RESULTS.md and results.svg into this folder"
    )
    parser.add_argument(
        "--work", type=pathlib.Path, help="scratch folder on the disk to measure (never tmpfs)"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    cases = [case for case in all_cases() if options.only in case.name]
    work = pathlib.Path(tempfile.mkdtemp(prefix="odradek-bench-", dir=options.work))
    tables: dict[str, list[Outcome]] = {}
    try:
        if any(case.broker == "odradek-flush" for case in cases):
            refuse_memory(work)
        disk = (
            f"{fdatasync_us(work, grows=False):.0f} us, "
            f"of a file that grows {fdatasync_us(work, grows=True):.0f} us"
        )
        print(f"median fdatasync: {disk}", flush=True)
        facts = {**machine(), "median fdatasync": disk}
        if any(case.unit == "MB/s" and isinstance(case, ProduceCase) for case in cases):
            rate, cpu_seconds = kernel_floor.measure(work, SERVER_CORE, LOAD_CORE)
            facts["kernel alone, 1 MB pieces from a socket into a file"] = (
                f"{cpu_seconds:.2f} s of CPU for each GB, {rate:,.0f} MB/s over one connection"
            )
            print(f"kernel alone: {cpu_seconds:.2f} s/GB, {rate:,.0f} MB/s", flush=True)

        def write(grown: str = "") -> None:
            """After each part: what comes next takes half an hour and may fail."""
            if options.output:
                results.write(options.output, tables, facts, options, grown)

        if not options.no_pinned:
            print("server on one core, load on the other", flush=True)
            tables["pinned"] = run_table(options, work, cases, True)
            write()
        if not options.no_free:
            print("all cores free", flush=True)
            tables["free"] = run_table(
                options, work, [c for c in all_cases() if options.only in c.name and not c.pinned_only], False
            )
            write()
        if not options.no_scale:
            write(scale.table(scale.measure(work)))
        (work.parent / "odradek-bench-last.json").write_text(
            json.dumps({name: [asdict(o) for o in rows] for name, rows in tables.items()})
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    missed = [o.case for rows in tables.values() for o in rows if o.met is False]
    print(f"{len(missed)} targets missed" + "".join(f"\n  {name}" for name in missed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
