"""The part `retention`: for how long a request waits while a thousand segments of a log go at once."""

from __future__ import annotations

import pathlib
import time

from benchmarks import brokers
from benchmarks.figures import Figure, Section
from benchmarks.frames import batch_of, produce_frame, write_frames
from benchmarks.load import RATE, STEADY, STEADY_SAYS, Watch, finish_load, run_load, start_load
from benchmarks.log_builder import BATCH_BYTES, RECORDS_PER_BATCH, BuiltLog, Shape, build
from benchmarks.run import Run
from benchmarks.wire_client import WireClient
from odradek.storage.directories.upkeep import REMOVED_PER_STEP
from odradek.storage.log.retention import SEGMENTS_PER_STEP
from odradek.storage.log.segment_paths import DELETED, LOG, file_name

SEGMENTS, SMALL_SEGMENTS = 1_000, 30
BATCHES_PER_SEGMENT, BATCHES_PER_SMALL_SEGMENT = 200, 20
"""A megabyte: no topic has smaller segments."""
DAY_MS = 86_400_000
WARM_UP_S = 0.5
PATIENCE_S = 60
WAIT_MS_MAX = 5.0
SETTINGS = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "500"}


def measure(run: Run) -> Section:
    """Takes about 10 s a round."""
    count = run.choose(SEGMENTS, SMALL_SEGMENTS)
    size = run.choose(BATCHES_PER_SEGMENT, BATCHES_PER_SMALL_SEGMENT)
    shape = Shape(count, size, sampled=0, is_whole=True)
    run.need_room(run.rounds * shape.room_bytes, f"Retention of {count:,} segments, {run.rounds} times,")
    idle_ms: list[float] = []
    waits_ms: list[float] = []
    seconds: list[float] = []
    watch = Watch()
    with run.folder("retention") as folder, run.odradek(folder, SETTINGS) as node:
        with WireClient("127.0.0.1", node.port) as client:
            ids = client.create_topics(["probe"], 1)
        names = {f"old-{number}": shape for number in range(run.rounds)}
        logs = build(node, names, int(time.time() * 1000) - DAY_MS)
        node.start()
        time.sleep(brokers.READY_S)
        frames = folder / "produce.frames"
        write_frames(frames, [produce_frame("probe", ids["probe"], 0, batch_of(1, 100))])
        for log in logs:
            arguments = [*STEADY, "-w", str(WARM_UP_S)]
            idle = run_load(node.running, run.load_pinning, frames, *arguments, "-s", str(run.seconds))
            idle_ms.append(watch.add(idle, RATE)["max_us"] / 1000)
            wait_ms, took = let_go(run, node, log, frames, watch)
            waits_ms.append(wait_ms)
            seconds.append(took)
    found = Section("Retention of many segments at once")
    found.notes = [
        f"{run.rounds} rounds, each with a log of its own of {count:,} segments of "
        f"{size * BATCH_BYTES / 1e6:.1g} MB, which a change of its retention.ms makes too old. They go "
        f"{SEGMENTS_PER_STEP} at a step between the requests, and their files {REMOVED_PER_STEP} at a step "
        f"in a thread. The broker is on core {run.cores.server}, the load on core {run.cores.load}. "
        f"{STEADY_SAYS} A measurement lasts until the last file is gone."
    ]
    what = f"longest wait of a produce while {count:,} segments go"
    found.figures = [
        Figure(f"{what}, worst round", max(waits_ms), "ms", WAIT_MS_MAX),
        Figure.median(what, waits_ms, "ms"),
        Figure.median("longest wait of a produce, nothing to do", idle_ms, "ms"),
        Figure.median("from the change of the setting until all files are gone", seconds, "s"),
        *watch.figures(),
    ]
    return found


def let_go(
    run: Run, node: brokers.Odradek, log: BuiltLog, frames: pathlib.Path, watch: Watch
) -> tuple[float, float]:
    """The longest wait in ms while all of a log goes, and how long that took in s."""
    folder = node.data / f"{log.topic}-0"
    last = (log.shape.segments - 1) * log.shape.batches_per_segment * RECORDS_PER_BATCH
    path = folder / file_name(last, LOG)
    assert path.exists()
    arguments = [*STEADY, "-w", str(WARM_UP_S), "-s", str(2 * PATIENCE_S)]
    load = start_load(node.running, run.load_pinning, frames, *arguments)
    try:
        time.sleep(WARM_UP_S + 0.1)
        began = time.perf_counter()
        with WireClient("127.0.0.1", node.port) as client:
            client.configure_topic(log.topic, {"retention.ms": str(DAY_MS // 2)})
        # They go in order; a look at one name costs the load's core nothing.
        while path.exists() or path.with_name(path.name + DELETED).exists():
            assert time.perf_counter() - began < PATIENCE_S, f"the segments of {log.topic} do not go"
            time.sleep(0.05)
        took = time.perf_counter() - began
    finally:
        result = finish_load(load, at_once=True)
    left = [one.name for one in folder.iterdir() if one.name.endswith((LOG, LOG + DELETED))]
    assert len(left) <= 2, left
    return watch.add(result, RATE)["max_us"] / 1000, took
