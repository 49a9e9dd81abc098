"""The parts `pinned` and `free`: the cases of `cases.py`, Apache Kafka and Odradek beside each other.

Both brokers run for the whole table, pinned to one core (the load to another) or with all cores free; the one
that is not being measured is idle. Each case warms Kafka until its rate does not rise any more (`is_warm`),
then alternates which broker goes first for so many rounds.
"""

from __future__ import annotations

import contextlib
import pathlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import brokers, kernel_floor, results
from benchmarks.cases import Case, ProduceCase, all_cases
from benchmarks.figures import Outcome, Section
from benchmarks.load import CorePinning, Pinning
from benchmarks.machine import refuse_memory
from benchmarks.run import Run

LOAD_BUSY_PERCENT = 90
WARM_FIGURES = 3
"""Kafka's rate is the median of so many figures one after the other: that of one is the machine's noise."""
WARM_RISE = 0.03
WARMING_MEASUREMENT_S = 2.0


@dataclass(frozen=True)
class Warming:
    """How Kafka is warmed, and which cases there are."""

    rounds: int
    """Measurements of `WARMING_MEASUREMENT_S` at the most, for each case."""
    compile_seconds: float
    only: str = ""
    """Cases whose name contains this."""

    def told(self) -> str:
        return (
            f"Before the first case Kafka gets {self.compile_seconds:g} s of produces, and before each up "
            f"to {self.rounds} measurements of {WARMING_MEASUREMENT_S:g} s, until it is warm: until the "
            f"median of the last {WARM_FIGURES} is no more than {WARM_RISE:.0%} better than the best median "
            f"of {WARM_FIGURES} in a row before them. (A Java virtual machine that still compiles gets "
            "better all the time; what only goes up and down is the noise of the computer.) Where it did "
            "not get there the last column says so."
        )


def table(run: Run, warming: Warming, *, is_pinned: bool) -> Section:
    """Every case that the table has."""
    cases = [
        case for case in all_cases() if warming.only in case.name and (is_pinned or not case.pinned_only)
    ]
    if any(case.broker == "odradek-flush" for case in cases):
        refuse_memory(run.work)
    found = Section("Server pinned to one core, load to another" if is_pinned else "All cores free")
    found.plot = "pinned" if is_pinned else "free"
    found.notes = [
        f"{run.rounds} measurements of {run.seconds:g} s for each case and broker, who goes first "
        f"alternating. {warming.told()} Both brokers run throughout; the one not measured is idle."
    ]
    if is_pinned and any(isinstance(case, ProduceCase) and case.bulk for case in cases):
        found.notes.append(floor(run, cases))
    server_core = run.cores.server if is_pinned else None
    pinning = CorePinning(run.cores.load if is_pinned else None)
    with contextlib.ExitStack() as stack:
        running = {"kafka": stack.enter_context(brokers.kafka(run.load_program, run.work, server_core))}
        running["odradek"] = stack.enter_context(brokers.odradek(run.load_program, run.work, server_core))
        if any(case.broker == "odradek-flush" for case in cases):
            flushing = brokers.odradek(run.load_program, run.work, server_core, flush=True)
            running["odradek-flush"] = stack.enter_context(flushing)
        warm_compiler(running["kafka"], run.work, pinning, warming.compile_seconds)
        for case in cases:
            found.outcomes.append(run_case(case, running, run, pinning, warming))
    found.notes += trust(cases, found.outcomes)
    return found


def trust(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> list[str]:
    """What tells whether the figures can be believed: a load that is busy measures itself, and a Kafka that
    is not warm flatters us."""
    loaded = [case for case in cases if case.watch.busy_percent]
    notes = []
    if loaded:
        busiest = max(loaded, key=lambda case: case.watch.busy_percent)
        kept_waiting = max(loaded, key=lambda case: case.watch.waiting_percent)
        busy = [case.name for case in loaded if case.watch.busy_percent > LOAD_BUSY_PERCENT]
        notes.append(
            f"The load in C ran for {busiest.watch.busy_percent:.0f} % of a measurement at most "
            f"({busiest.name}), and was ready while its core was taken for "
            f"{kept_waiting.watch.waiting_percent:.1f} % at most ({kept_waiting.name}). "
            f"For more than {LOAD_BUSY_PERCENT} %, where the faster broker may have waited for it: "
            f"{', '.join(busy) or 'in no case'}."
        )
    if cold := [outcome.case for outcome in outcomes if not outcome.is_kafka_warm]:
        notes.append(f"Kafka's rate still rose when its measurements began: {', '.join(cold)}.")
    return notes


def floor(run: Run, cases: Sequence[Case]) -> str:
    """What the kernel alone takes of the bulk produces."""
    sizes = sorted({case.batch_bytes for case in cases if isinstance(case, ProduceCase) and case.bulk})
    said = []
    for piece_bytes in sizes:
        for by_splice in (False, True):
            found = kernel_floor.measure(
                run.work, run.cores.server, run.cores.load, piece_bytes, by_splice=by_splice
            )
            print(f"kernel alone, {found}", flush=True)
            said.append(str(found))
    return (
        f"The kernel alone (wait, read from a socket, write to a file, answer; by splice: into a file, and "
        f"look at it there for a checksum; {kernel_floor.CONNECTIONS} connections), {'; '.join(said)}."
    )


def is_warm(figures: Sequence[float], *, lower: bool = False) -> bool:
    """Whether a rate that was measured so often does not rise any more: see `Warming.told`. `lower`:
    less is better, and a rise is a fall."""
    if len(figures) < 2 * WARM_FIGURES:
        return False
    medians = [
        statistics.median(figures[end - WARM_FIGURES : end]) for end in range(WARM_FIGURES, len(figures) + 1)
    ]
    last, before = medians[-1], medians[:-WARM_FIGURES]
    return last >= (1 - WARM_RISE) * min(before) if lower else last <= (1 + WARM_RISE) * max(before)


def warm(case: Case, broker: brokers.Running, work: pathlib.Path, pinning: Pinning, most: int) -> int | None:
    """Measures until the broker is warm; returns how many measurements it took, None where `most` were too
    few."""
    seen: list[float] = []
    while len(seen) < most:
        seen.append(case.measure(broker, work, pinning, WARMING_MEASUREMENT_S))
        if is_warm(seen, lower=case.lower):
            return len(seen)
    return None


def warm_compiler(kafka: brokers.Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> None:
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
    run: Run,
    pinning: Pinning,
    warming: Warming,
) -> Outcome:
    """Both brokers, Kafka warmed; the outcome says whether it got warm."""
    ours, theirs = running[case.broker], running["kafka"]
    told = "from the runs of the row before"
    if (before := case.measured_before(run.rounds)) is not None:
        is_kafka_warm, figures = before
    else:
        took, figures = measure_in_turn(case, theirs, ours, run, pinning, warming)
        is_kafka_warm = case.is_kafka_warm = took is not None
        told = f"Kafka warm after {took}" if is_kafka_warm else f"Kafka not warm after {warming.rounds}"
    outcome = Outcome(
        case.name,
        case.unit,
        case.lower,
        case.at_least,
        figures[theirs.name],
        figures[ours.name],
        is_kafka_warm,
    )
    print(f"{results.line(outcome)}   ({told})", flush=True)
    return outcome


def measure_in_turn(
    case: Case, theirs: brokers.Running, ours: brokers.Running, run: Run, pinning: Pinning, warming: Warming
) -> tuple[int | None, dict[str, list[float]]]:
    """How many measurements warmed Kafka (None: it was not), and the figures of all rounds by broker."""
    work = run.work
    for broker in (theirs, ours):
        case.prepare(broker, work)
    took = warm(case, theirs, work, pinning, warming.rounds)
    warm(case, ours, work, pinning, min(3, warming.rounds))
    figures: dict[str, list[float]] = {ours.name: [], theirs.name: []}
    for turn in range(run.rounds):
        for broker in (theirs, ours) if turn % 2 == 0 else (ours, theirs):
            figures[broker.name].append(case.measure(broker, work, pinning, run.seconds))
    for broker in (theirs, ours):
        case.clean_up(broker)
    return took, figures
