"""The parts `log-size` and `segments`: what a produce and a fetch cost in a short log and in a very long one.

The cost is the broker's time on the processor for each request, under a closed loop of many: neither the load
nor the disk has a part in it. Logs of all sizes are in one broker and take turns.
"""

from __future__ import annotations

import pathlib
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks import brokers
from benchmarks.figures import Figure, Growth, Section
from benchmarks.frames import batch_of, fetch_frame, produce_frame, write_frames
from benchmarks.load import Watch, run_load
from benchmarks.log_builder import READ_BYTES, BuiltLog, Shape, build, refuse_without_holes
from benchmarks.run import GIGABYTE, MEGABYTE, Run
from benchmarks.wire_client import WireClient

SAMPLED = 100
SEGMENT_BYTES = 1 << 30
SIZES_GB, SMALL_SIZES_GB = (0, 10, 100), (0, 0.1)
SEGMENTS, SMALL_SEGMENTS = (10, 100, 1_000, 3_000), (2, 20)
BATCHES_PER_SEGMENT = 20
PRODUCE_CONNECTIONS, FETCH_CONNECTIONS = 50, 4
WRITTEN_BYTES_PER_S = 20_000_000
"""That the measurements themselves write, at the most: 100,000 produces a second."""
TIMES_SHORTEST_MAX = 1.1

OTHER = "other"
PRODUCE, FETCH_END, FETCH_PLACES = "one-record produce", "fetch at the end", f"fetch at {SAMPLED} places"


@dataclass
class Costs:
    """Of one log."""

    first_question_ms: float = 0.0
    """The first question about it after a start: the broker looks at its files."""
    longest_first_fetch_ms: float = 0.0
    """Of the first fetch at each place, which has to load the index there."""
    memory_mb: float = 0.0
    """By how much the broker has grown when each place has been read once."""
    processor_us: dict[str, list[float]] = field(default_factory=dict)
    per_s: dict[str, list[float]] = field(default_factory=dict)


def log_size(run: Run) -> Section:
    """Takes about three minutes with five rounds."""
    segment_bytes = run.choose(SEGMENT_BYTES, 10 * MEGABYTE)
    shapes = {
        gigabytes: Shape.with_holes(int(gigabytes * GIGABYTE), segment_bytes, SAMPLED)
        for gigabytes in run.choose(SIZES_GB, SMALL_SIZES_GB)
    }
    growth = Growth("log-size", "Cost by the size of the log", "GB in the log")
    found = measure(run, shapes, growth, "GB")
    found.title = "A long log"
    found.notes.insert(
        0,
        f"Logs of one partition in segments of {segment_bytes / GIGABYTE:.2g} GB and a last one of 5 MB. "
        f"Real are the batches at both ends of every segment and at {SAMPLED} places; between them the files "
        "are holes. The indexes are whole, and as dense as those of a log of that size. All together take "
        f"{sum(shape.room_bytes for shape in shapes.values()) / GIGABYTE:.1f} GB of disk.",
    )
    return found


def segments(run: Run) -> Section:
    """Takes about four minutes with five rounds."""
    shapes = {
        count: Shape(count, BATCHES_PER_SEGMENT, SAMPLED, is_whole=True)
        for count in run.choose(SEGMENTS, SMALL_SEGMENTS)
    }
    growth = Growth("segments", "Cost by the number of segments", "segments")
    found = measure(run, shapes, growth, "segments")
    found.title = "A log of many segments"
    found.notes.insert(0, f"Logs of one partition; a segment has {BATCHES_PER_SEGMENT} batches of 5 KB.")
    return found


def measure(run: Run, shapes: Mapping[float, Shape], growth: Growth, unit: str) -> Section:
    room = sum(shape.room_bytes for shape in shapes.values())
    written = int(run.rounds * run.seconds * len(shapes) * WRITTEN_BYTES_PER_S)
    run.need_room(room + written, f"A log of {max(shapes):,g} {unit}")
    watch = Watch()
    costs = {size: Costs() for size in shapes}
    with run.folder("logs") as folder, run.odradek(folder) as node:
        refuse_without_holes(folder)
        with WireClient("127.0.0.1", node.port) as client:
            client.create_topics([OTHER], 1)
        names = {f"log-{number}": shape for number, shape in enumerate(shapes.values())}
        logs = dict(zip(shapes, build(node, names, int(time.time() * 1000)), strict=True))
        starts = restart(node, list(logs.values()))
        for size, log in logs.items():
            touch(node, log, costs[size])
        frames = {size: write_all_frames(folder, log) for size, log in logs.items()}
        for _ in range(run.rounds):
            for size in shapes:
                one_round(run, node.running, frames[size], costs[size], watch)
    return section(run, costs, growth, unit, starts, watch)


def restart(node: brokers.Odradek, logs: list[BuiltLog]) -> dict[str, float]:
    """Seconds of a start after a clean stop, and after a kill with one batch that was not flushed. Leaves the
    broker with nothing of the logs in its memory.
    """
    started = {"a clean stop": node.start()}
    with WireClient("127.0.0.1", node.port) as client:
        for log in logs:
            client.produce([log.topic], batch_of(1, 100))
    node.kill()
    started["a kill"] = node.start()
    # That nothing was cut, and that the logs are what they should be.
    with WireClient("127.0.0.1", node.port) as client:
        for log in logs:
            log.check(client)
    node.stop()
    node.start()
    # The first request of a kind takes longer, whatever the log.
    with WireClient("127.0.0.1", node.port) as client:
        client.wait_for_leaders([OTHER], 1)
        client.produce([OTHER], batch_of(1, 100))
        assert client.fetch(OTHER, 0, READ_BYTES)
    time.sleep(brokers.READY_S)
    return started


def touch(node: brokers.Odradek, log: BuiltLog, costs: Costs) -> None:
    """Asks for the log's end, then reads each place, for the first time since the start."""
    before = node.running.rss_bytes()
    with WireClient("127.0.0.1", node.port) as client:
        began = time.perf_counter()
        client.wait_for_leaders([log.topic], 1)
        costs.first_question_ms = (time.perf_counter() - began) * 1000
        for offset in log.places:
            began = time.perf_counter()
            assert client.fetch(log.topic, offset, READ_BYTES)
            costs.longest_first_fetch_ms = max(
                costs.longest_first_fetch_ms, (time.perf_counter() - began) * 1000
            )
    costs.memory_mb = (node.running.rss_bytes() - before) / 1e6


def write_all_frames(folder: pathlib.Path, log: BuiltLog) -> dict[str, pathlib.Path]:
    frames = {
        PRODUCE: [produce_frame(log.topic, log.topic_id, 0, batch_of(1, 100))],
        FETCH_END: [fetch_frame(log.topic, 0, log.last_place, max_bytes=READ_BYTES)],
        FETCH_PLACES: [fetch_frame(log.topic, 0, offset, max_bytes=READ_BYTES) for offset in log.places],
    }
    paths = {}
    for number, (what, some) in enumerate(frames.items()):
        paths[what] = folder / f"{log.topic}-{number}.frames"
        write_frames(paths[what], some)
    return paths


def one_round(
    run: Run, broker: brokers.Running, frames: Mapping[str, pathlib.Path], costs: Costs, watch: Watch
) -> None:
    for what, path in frames.items():
        connections = PRODUCE_CONNECTIONS if what == PRODUCE else FETCH_CONNECTIONS
        before = broker.cpu_seconds()
        result = run_load(
            broker, run.load_pinning, path, "-c", str(connections), "-s", str(run.seconds), "-w", "0"
        )
        watch.add(result)
        each_us = (broker.cpu_seconds() - before) / result["requests"] * 1e6
        costs.processor_us.setdefault(what, []).append(each_us)
        costs.per_s.setdefault(what, []).append(result["requests"] / result["seconds"])


def section(
    run: Run,
    costs: Mapping[float, Costs],
    growth: Growth,
    unit: str,
    starts: dict[str, float],
    watch: Watch,
) -> Section:
    found = Section("")
    found.notes = [
        f"{run.rounds} rounds of {run.seconds:g} s for each log and kind of request, in turn; the broker is "
        f"on core {run.cores.server}, the load on core {run.cores.load}: {PRODUCE_CONNECTIONS} connections "
        f"produce one record each, or {FETCH_CONNECTIONS} fetch {READ_BYTES / 1000:.0f} KB, all of which "
        "is in memory. A cost is the broker's time on the processor for each request."
    ]
    for size, one in costs.items():
        for what, values in one.processor_us.items():
            growth.add(what, size, values, "us of processor each")
        growth.add("first question after a start", size, [one.first_question_ms], "ms")
        growth.add("longest first fetch at a place", size, [one.longest_first_fetch_ms], "ms")
        growth.add("memory once all places were read", size, [one.memory_mb], "MB")
    found.growths = [growth]
    shortest, longest = min(costs), max(costs)
    for what in (PRODUCE, FETCH_END, FETCH_PLACES):
        for size, one in costs.items():
            title = f"{what}, {size:,g} {unit}"
            found.figures.append(Figure.median(f"{title}: processor", one.processor_us[what], "us"))
            found.figures.append(Figure.median(f"{title}: answered", one.per_s[what], "a second"))
        least = statistics.median(costs[shortest].processor_us[what])
        ratios = [value / least for value in costs[longest].processor_us[what]]
        title = f"{what}: processor with {longest:,g} {unit} in times of {shortest:,g}"
        found.figures.append(Figure.median(title, ratios, "x", TIMES_SHORTEST_MAX))
    for size, one in costs.items():
        having = f"{size:,g} {unit}"
        found.figures += [
            Figure(f"first question after a start, {having}", one.first_question_ms, "ms"),
            Figure(f"longest first fetch at a place, {having}", one.longest_first_fetch_ms, "ms"),
            Figure(f"memory once all places were read, {having}", one.memory_mb, "MB"),
        ]
    for how, seconds in starts.items():
        found.figures.append(Figure(f"start with all of these logs after {how}", seconds, "s"))
    found.figures += watch.figures()
    return found
