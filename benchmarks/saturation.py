"""The part `saturated-disk`: how long others wait while producers write more than the disk takes.

The system keeps what is written in memory until a share of it waits for the disk. From then on it stops
whoever writes, for tens of milliseconds at a time: a broker that writes in its event loop would stop all of
its clients with it. Some gigabytes are written before anything is measured, so that this is so from the
start. On a machine with much memory, or a fast disk, it does not come to that: then it shows how long others
wait while eight batches of 1 MB come at a time.
"""

from __future__ import annotations

import contextlib
import pathlib
import time
from dataclasses import dataclass, field

from benchmarks import brokers
from benchmarks.cases import Case
from benchmarks.comparison import Warming, run_case, warm_compiler
from benchmarks.figures import Section
from benchmarks.frames import Frame, batch_of, produce_frame, write_frames
from benchmarks.load import Pinning, finish_load, start_load
from benchmarks.run import Run
from benchmarks.wire_client import WireClient
from odradek.wire.frames import request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest

PRODUCERS = 8
PARTITIONS = 4
SATURATED_AFTER_S = 5.0
"""By then a share of the memory that waits for the disk is full, where it is not too large for that."""
OTHERS, RATE = 8, 200
"""Connections that ask for ApiVersions, and how often a second all of them do: seldom enough that none asks
before its last answer has come, where a broker takes 40 ms."""
MEASURED_S, MEASURED_WHEN_QUICK_S = 8.0, 0.5
BYTES_MAX = 16_000_000_000
"""A limit for one measurement."""
FIGURES = {"p99_us": "p99", "p999_us": "p99.9"}


@dataclass
class SaturatedCase(Case):
    """Latency of ApiVersions on other connections beside producers of batches of 1 MB; or what those
    wrote. One run has all of its figures: the rows that `follows` another have those of its runs."""

    unit: str = "ms"
    lower: bool = True
    figure: str = "p99_us"
    follows: SaturatedCase | None = None
    is_small: bool = False
    runs: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def measure(self, broker: brokers.Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        figures = self._run(broker, work, pinning)
        self.runs.setdefault(broker.name, []).append(figures)
        return figures[self.figure]

    def measured_before(self, rounds: int) -> tuple[bool, dict[str, list[float]]] | None:
        if self.follows is None or not self.follows.runs:
            return None
        return self.follows.is_kafka_warm, {
            broker: [figures[self.figure] for figures in runs[-rounds:]]
            for broker, runs in self.follows.runs.items()
        }

    def _run(self, broker: brokers.Running, work: pathlib.Path, pinning: Pinning) -> dict[str, float]:
        before_s, measured_s = SATURATED_AFTER_S, MEASURED_S
        if self.is_small:
            before_s = measured_s = MEASURED_WHEN_QUICK_S
        topic = f"saturating-{time.monotonic_ns()}"
        bulk, probe = work / f"{broker.name}-bulk.frames", work / f"{broker.name}-probe.frames"
        request = ApiVersionsRequest(client_software_name="benchmark", client_software_version="1")
        write_frames(probe, [Frame(request_frame(request, 3, 0, "benchmark"), error_position=4)])
        with WireClient("127.0.0.1", broker.port) as client:
            ids = client.create_topics([topic], PARTITIONS, at=broker.node_id)
            batch = batch_of(1000, 1000)
            write_frames(
                bulk, [produce_frame(topic, ids[topic], number, batch) for number in range(PARTITIONS)]
            )
            # What asks comes first at the core that both share.
            arguments = ["-c", str(PRODUCERS), "-s", "300"]
            producing = start_load(broker, pinning, bulk, *arguments, is_lowest=True)
            try:
                time.sleep(before_s)
                asking = ["-c", str(OTHERS), "-r", str(RATE), "-s", str(measured_s), "-w", "0.2"]
                asked = finish_load(start_load(broker, pinning, probe, *asking))
            finally:
                written = finish_load(producing, at_once=True)
            client.delete_topics([topic])
        self.watch.add(asked)
        found = {name: asked[name] / 1000 for name in FIGURES}
        found["rate"] = written["bytes_sent"] / written["seconds"] / 1e6
        return found


def all_cases(*, is_small: bool = False) -> list[Case]:
    name = "ApiVersions beside producers that saturate the disk"
    first = SaturatedCase(f"{name}: p99", is_small=is_small)
    later = SaturatedCase(f"{name}: p99.9", figure="p999_us", follows=first)
    rate = SaturatedCase(f"{name}: written", unit="MB/s", lower=False, figure="rate", follows=first)
    return [first, later, rate]


def measure(run: Run, warming: Warming) -> Section:
    """Takes half a minute a round, and Kafka's warming before."""
    run.need_room(BYTES_MAX, "A saturated disk")
    found = Section("Others beside producers that saturate the disk")
    found.notes = [
        f"{run.rounds} rounds, each broker in turn: {PRODUCERS} producers send batches of 1 MB in a closed "
        f"loop to {PARTITIONS} partitions; after {SATURATED_AFTER_S:g} s {OTHERS} other connections "
        f"ask {RATE:,} times a second for ApiVersions, {MEASURED_S:g} s long. Latencies count from "
        "when a request was due.",
    ]
    with run.folder("saturated-disk") as folder, contextlib.ExitStack() as stack:
        running = {
            "kafka": stack.enter_context(brokers.kafka(run.load_program, folder, run.cores.server)),
            "odradek": stack.enter_context(brokers.odradek(run.load_program, folder, run.cores.server)),
        }
        warm_compiler(running["kafka"], folder, run.load_pinning, warming.compile_seconds)
        warming = Warming(rounds=1, compile_seconds=0)
        for case in all_cases(is_small=run.is_quick):
            found.outcomes.append(run_case(case, running, run, run.load_pinning, warming))
    return found
