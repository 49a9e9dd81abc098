"""The part `cold-reads`: what a consumer of old data costs the producers beside it.

A page that is missing and touched in the event loop would stop every producer for as long as the disk takes,
and an answer of 50 MB for as long as it takes to copy it, were it written in one call.
"""

from __future__ import annotations

import pathlib
import time

from benchmarks import brokers
from benchmarks.figures import Figure, Section
from benchmarks.frames import batch_of, fetch_frame, produce_frame, write_frames
from benchmarks.load import RATE, STEADY, STEADY_SAYS, Watch, finish_load, start_load
from benchmarks.page_cache import drop_from_memory, resident_share, take_into_memory
from benchmarks.run import Refused, Run
from benchmarks.wire_client import Pipeline

BATCHES, BATCHES_WHEN_QUICK = 2000, 20
"""Of a megabyte each."""
RECORDS_PER_BATCH = 1000
WARM_UP_S = 0.5
LEFT_IN_MEMORY_MAX = 0.05
TIMES_ALONE_MAX = 3.0
ALONE, WARM, COLD = "alone", "data in memory", "data not in memory"
WIDE_PARTITIONS = 50
WIDE = f"{WIDE_PARTITIONS} partitions at once"
PACE = 200
"""Batches a second, of 1 MB: less than the disk gives. Whether it is the disk that makes others wait shows
where both are read as fast."""
PACED_WARM, PACED_COLD = (f"{kind}, {PACE} MB/s" for kind in (WARM, COLD))


def measure(run: Run) -> Section:
    """Takes about 12 s a round."""
    batches = run.choose(BATCHES, BATCHES_WHEN_QUICK)
    batch = batch_of(RECORDS_PER_BATCH, 1000)
    run.need_room(batches * len(batch), "Reading cold data")
    watch = Watch()
    kinds = (ALONE, WARM, COLD, PACED_WARM, PACED_COLD, WIDE)
    p99: dict[str, list[float]] = {kind: [] for kind in kinds}
    rates: dict[str, list[float]] = {kind: [] for kind in kinds if kind != ALONE}
    with run.folder("cold-reads") as folder, run.odradek(folder) as node:
        with Pipeline("127.0.0.1", node.port) as client:
            ids = client.create_topics(["old", "new"], 1)
            client.create_topics(["wide"], WIDE_PARTITIONS)
            for _ in range(batches):
                client.send("old", batch)
            for partition in range(WIDE_PARTITIONS):
                client.send("wide", batch, partition)
        produce, fetch, wide = (folder / f"{name}.frames" for name in ("produce", "fetch", "wide"))
        write_frames(produce, [produce_frame("new", ids["new"], 0, batch_of(1, 100))])
        offsets = [RECORDS_PER_BATCH * number for number in range(batches)]
        write_frames(fetch, [fetch_frame("old", 0, offset, max_bytes=len(batch)) for offset in offsets])
        write_frames(wide, [fetch_frame("wide", 0, 0, max_bytes=len(batch), partitions=WIDE_PARTITIONS)])
        # As many bytes for each consumer, a quarter for those that take their time.
        paced = (fetch, batches // 4, PACE)
        readers = {
            ALONE: (None, 0, None),
            WARM: (fetch, batches, None),
            COLD: (fetch, batches, None),
            PACED_WARM: paced,
            PACED_COLD: paced,
            WIDE: (wide, max(1, batches // WIDE_PARTITIONS), None),
        }
        for _ in range(run.rounds):
            for kind, figures in p99.items():
                prepare(node, kind)
                latency_ms, megabytes_per_s = beside_a_reader(
                    run, node.running, produce, *readers[kind], watch
                )
                figures.append(latency_ms)
                if megabytes_per_s is not None:
                    rates[kind].append(megabytes_per_s)
    return section(run, batches, p99, rates, watch)


def prepare(node: brokers.Odradek, kind: str) -> None:
    """Has the old data in memory or not. The broker starts anew each time: what it has mapped stays."""
    node.stop()
    paths = list((node.data / "old-0").glob("*.log"))
    if kind in (COLD, PACED_COLD):
        drop_from_memory(paths)
        left = max(map(resident_share, paths))
        if left > LEFT_IN_MEMORY_MAX:
            raise Refused(
                f"Reading cold data cannot be measured in {node.data}: {left:.0%} of a file stay in memory, "
                "as on a file system that is memory itself: name a folder on a disk with --work."
            )
    else:
        take_into_memory([*paths, *node.data.glob("wide-*/*.log")])
    node.start()


def beside_a_reader(
    run: Run,
    broker: brokers.Running,
    produce: pathlib.Path,
    fetch: pathlib.Path | None,
    count: int,
    pace: int | None,
    watch: Watch,
) -> tuple[float, float | None]:
    """p99 of a produce in ms while somebody reads `count` answers, `pace` a second or as fast as they come,
    and how fast that was read in MB/s.
    """
    arguments = [*STEADY, "-s", "300", "-w", str(WARM_UP_S)]
    producers = start_load(broker, run.load_pinning, produce, *arguments)
    time.sleep(WARM_UP_S + 0.1)
    rate = None
    if fetch is None:
        time.sleep(run.seconds)
    else:
        # What a consumer does with what it gets takes nothing from the producers' load on the same core.
        order = ["-c", "1", "-o", "-t", "-n", str(count), "-s", "300"]
        if pace is not None:
            order += ["-r", str(pace)]
        # The producers' load shares the core with it, and has to come first.
        reader = start_load(broker, run.load_pinning, fetch, *order, is_lowest=True)
        result = finish_load(reader)
        rate = result["bytes_received"] / result["seconds"] / 1e6
    return watch.add(finish_load(producers, at_once=True), RATE)["p99_us"] / 1000, rate


def section(
    run: Run, batches: int, p99: dict[str, list[float]], rates: dict[str, list[float]], watch: Watch
) -> Section:
    found = Section("Produces beside a consumer of cold data")
    found.notes = [
        f"{run.rounds} rounds, in turn: the producers alone, beside a consumer that reads {batches:,} "
        "batches of 1 MB in order, one after the other, from the system's memory, beside one that reads them "
        f"from the disk, beside each of both that reads a quarter of it at {PACE} a second, and beside one "
        f"that asks for {WIDE_PARTITIONS} partitions at once, from memory, a batch of each in "
        "an answer. The consumers throw the records away unread. The broker is on core "
        f"{run.cores.server}, the loads are on core {run.cores.load}, the consumer's at the lowest priority. "
        f"{STEADY_SAYS}"
    ]
    for kind, figures in p99.items():
        beside = kind if kind == ALONE else f"beside a consumer of {kind}"
        found.figures.append(Figure.median(f"p99 of a produce, {beside}", figures, "ms"))
    alone = found.figures[0].value
    for kind in rates:
        limit = TIMES_ALONE_MAX if kind in (COLD, PACED_COLD) else None
        what = f"p99 beside a consumer of {kind}, in times of alone"
        found.figures.append(Figure.median(what, [one / alone for one in p99[kind]], "x", limit))
    for kind, figures in rates.items():
        found.figures.append(Figure.median(f"read by the consumer of {kind}", figures, "MB/s"))
    found.figures += watch.figures()
    return found
