"""The part `cold-reads`: what a consumer of old data costs the producers beside it, beside Apache Kafka.

A page that is missing and touched in the event loop would stop every producer for as long as the disk takes,
and an answer of 50 MB for as long as it takes to copy it, were it written in one call.

The host of a virtual machine takes its cores away now and then for some milliseconds, and the more often the
more is read from its disk. That is felt by some in a hundred requests, so the p99 of a measurement says more
about such moments than about a broker. The median of the p99s of its tenths of a second does not: there what
happens all the time counts, and what happens now and then does not. Both are told, of both brokers.
"""

from __future__ import annotations

import contextlib
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks import brokers
from benchmarks.comparison import Warming, warm_compiler
from benchmarks.figures import Figure, Outcome, Section
from benchmarks.frames import batch_of, fetch_frame, produce_frame, write_frames
from benchmarks.load import RATE, STEADY, STEADY_SAYS, Watch, finish_load, run_load, start_load
from benchmarks.page_cache import drop_from_memory, fill_page_cache, resident_share, take_into_memory
from benchmarks.run import Refused, Run
from benchmarks.wire_client import Pipeline

BATCHES, BATCHES_WHEN_QUICK = 2000, 20
"""Of a megabyte each."""
RECORDS_PER_BATCH = 1000
WARM_UP_S = 0.5
WARM_FETCHES_S = 10.0
"""Of fetches in a row that Kafka gets to become warm, besides its produces."""
LEFT_IN_MEMORY_MAX = 0.05
TIMES_ALONE_MAX = 3.0
ALONE, WARM, COLD = "alone", "data in memory", "data not in memory"
WIDE_PARTITIONS = 50
WIDE = f"{WIDE_PARTITIONS} partitions at once"
PACE = 200
"""Batches a second, of 1 MB: less than the disk gives. Whether it is the disk that makes others wait shows
where both are read as fast."""
PACED_WARM, PACED_COLD = (f"{kind}, {PACE} MB/s" for kind in (WARM, COLD))
KINDS = (ALONE, WARM, COLD, PACED_WARM, PACED_COLD, WIDE)
FIGURES = {"p99": "p99_us", "median p99 of tenths of a second": "median_window_p99_us"}
"""As they are told, and as the load prints them."""


@dataclass
class Reader:
    """The consumer of one kind: which requests, how many, and how many a second at most."""

    frames: pathlib.Path
    count: int
    pace: int | None = None


@dataclass
class Subject:
    """A broker that has the old data, and what was measured of it, by kind."""

    running: Callable[[], brokers.Running]
    data: pathlib.Path
    """Somewhere below are the directories of its partitions."""
    restart: Callable[[Callable[[], None]], None]
    """Has something done while nothing of the broker keeps files in memory."""
    produce: pathlib.Path = pathlib.Path()
    readers: dict[str, Reader] = field(default_factory=dict)
    latencies_ms: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: {figure: {kind: [] for kind in KINDS} for figure in FIGURES}
    )
    rates: dict[str, list[float]] = field(
        default_factory=lambda: {kind: [] for kind in KINDS if kind != ALONE}
    )


def measure(run: Run, warming: Warming) -> Section:
    """Takes about 25 s a round, and two minutes before."""
    batches = run.choose(BATCHES, BATCHES_WHEN_QUICK)
    run.need_room(2 * batches * len(batch_of(RECORDS_PER_BATCH, 1000)), "Reading cold data")
    watch = Watch()
    with run.folder("cold-reads") as folder, contextlib.ExitStack() as stack:
        node = stack.enter_context(run.odradek(folder))
        kafka = stack.enter_context(brokers.kafka(run.load_program, folder, run.cores.server))

        def restart(between: Callable[[], None]) -> None:
            node.stop()
            between()
            node.start()
            # It is about a broker that has run for a while.
            time.sleep(brokers.READY_S)

        subjects = {
            "kafka": Subject(lambda: kafka, kafka.log.parent, lambda between: between()),
            "odradek": Subject(lambda: node.running, node.data, restart),
        }
        for name, subject in subjects.items():
            write_old_data(subject, folder / name, batches)
        warm_compiler(kafka, folder, run.load_pinning, warming.compile_seconds)
        fetches = subjects["kafka"].readers[WARM].frames
        run_load(
            kafka, run.load_pinning, fetches, "-c", "4", "-t", "-s", str(run.choose(WARM_FETCHES_S, 0.2))
        )
        for number in range(run.rounds):
            for kind in KINDS:
                for name in sorted(subjects, reverse=number % 2 == 0):
                    prepare(run, subjects[name], kind)
                    measure_kind(run, subjects[name], kind, watch)
    return section(run, batches, subjects, watch)


def write_old_data(subject: Subject, folder: pathlib.Path, batches: int) -> None:
    """And the requests for it."""
    folder.mkdir()
    batch = batch_of(RECORDS_PER_BATCH, 1000)
    with Pipeline("127.0.0.1", subject.running().port) as client:
        ids = client.create_topics(["old", "new"], 1)
        client.create_topics(["wide"], WIDE_PARTITIONS)
        for _ in range(batches):
            client.write("old", batch)
        for partition in range(WIDE_PARTITIONS):
            client.write("wide", batch, partition)
    subject.produce, fetch, wide = (folder / f"{name}.frames" for name in ("produce", "fetch", "wide"))
    write_frames(subject.produce, [produce_frame("new", ids["new"], 0, batch_of(1, 100))])
    offsets = [RECORDS_PER_BATCH * number for number in range(batches)]
    write_frames(fetch, [fetch_frame("old", 0, offset, max_bytes=len(batch)) for offset in offsets])
    write_frames(wide, [fetch_frame("wide", 0, 0, max_bytes=len(batch), partitions=WIDE_PARTITIONS)])
    # As many bytes for each consumer, a quarter for those that take their time.
    paced = Reader(fetch, batches // 4, PACE)
    subject.readers = {
        WARM: Reader(fetch, batches),
        COLD: Reader(fetch, batches),
        PACED_WARM: paced,
        PACED_COLD: paced,
        WIDE: Reader(wide, max(1, batches // WIDE_PARTITIONS)),
    }


def prepare(run: Run, subject: Subject, kind: str) -> None:
    """Has the old data in memory or not, and the rest of memory in use, as it is on a machine that has run
    for a while. Ours starts anew each time: what it has mapped stays."""
    subject.restart(lambda: _take_or_drop(subject, kind))
    fill_page_cache(subject.produce.parent)


def _take_or_drop(subject: Subject, kind: str) -> None:
    paths = list(subject.data.glob("**/old-0/*.log"))
    assert paths, f"no log below {subject.data}"
    if kind not in (COLD, PACED_COLD):
        take_into_memory([*paths, *subject.data.glob("**/wide-*/*.log")])
        return
    drop_from_memory(paths)
    left = max(map(resident_share, paths))
    if left > LEFT_IN_MEMORY_MAX:
        raise Refused(
            f"Reading cold data cannot be measured in {subject.data}: {left:.0%} of a file stay in memory, "
            "as on a file system that is memory itself: name a folder on a disk with --work."
        )


def measure_kind(run: Run, subject: Subject, kind: str, watch: Watch) -> None:
    """The latencies of produces while somebody reads, and how fast that was read."""
    broker, reader = subject.running(), subject.readers.get(kind)
    arguments = [*STEADY, "-s", "300", "-w", str(WARM_UP_S)]
    producers = start_load(broker, run.load_pinning, subject.produce, *arguments)
    time.sleep(WARM_UP_S + 0.1)
    if reader is None:
        time.sleep(run.seconds)
    else:
        # What a consumer does with what it gets takes nothing from the producers' load on the same core.
        order = ["-c", "1", "-o", "-t", "-n", str(reader.count), "-s", "300"]
        if reader.pace is not None:
            order += ["-r", str(reader.pace)]
        # The producers' load shares the core with it, and has to come first.
        result = finish_load(start_load(broker, run.load_pinning, reader.frames, *order, is_lowest=True))
        subject.rates[kind].append(result["bytes_received"] / result["seconds"] / 1e6)
    found = watch.add(finish_load(producers, at_once=True), RATE)
    for figure, name in FIGURES.items():
        subject.latencies_ms[figure][kind].append(found[name] / 1000)


def section(run: Run, batches: int, subjects: Mapping[str, Subject], watch: Watch) -> Section:
    found = Section("Produces beside a consumer of cold data")
    found.notes = [
        f"{run.rounds} rounds, each broker in turn: the producers alone, beside a consumer that reads "
        f"{batches:,} batches of 1 MB in order, one after the other, from the system's memory, beside one "
        f"that reads them from the disk, beside each of both that reads a quarter of it at {PACE} a second, "
        f"and beside one that asks for {WIDE_PARTITIONS} partitions at once, from memory, a batch of each in "
        "an answer. The consumers throw the records away unread. The broker is on core "
        f"{run.cores.server}, the loads are on core {run.cores.load}, the consumer's at the lowest priority. "
        f"{STEADY_SAYS}",
        "Some in a hundred requests meet a moment in which the machine's host has taken a core away, so the "
        "p99 of a whole measurement goes with the host. In most tenths of a second there is none: the median "
        "of their p99s shows what happens all the time.",
    ]
    ours, kafkas = subjects["odradek"], subjects["kafka"]
    for figure in FIGURES:
        for kind in KINDS:
            beside = kind if kind == ALONE else f"beside a consumer of {kind}"
            both = kafkas.latencies_ms[figure][kind], ours.latencies_ms[figure][kind]
            found.outcomes.append(Outcome(f"produce {beside}: {figure}", "ms", True, None, *both))
    for kind in ours.rates:
        title = f"read by the consumer of {kind}"
        found.outcomes.append(Outcome(title, "MB/s", False, None, kafkas.rates[kind], ours.rates[kind]))
    for figure in FIGURES:
        for kind in ours.rates:
            what = f"produce beside a consumer of {kind}: {figure} in times of alone"
            limit = TIMES_ALONE_MAX if kind in (COLD, PACED_COLD) else None
            found.figures.append(Figure.median(what, in_times_of_alone(ours, figure, kind), "x", limit))
            theirs = in_times_of_alone(kafkas, figure, kind)
            found.figures.append(Figure.median(f"{what}, Kafka", theirs, "x"))
    found.figures += watch.figures()
    return found


def in_times_of_alone(subject: Subject, figure: str, kind: str) -> Sequence[float]:
    """By the median of what it was alone."""
    latencies = subject.latencies_ms[figure]
    alone = statistics.median(latencies[ALONE])
    return [one / alone for one in latencies[kind]]
