"""The part `snapshots`: how long a snapshot and a restore of a broker for tests take."""

from __future__ import annotations

import time

import odradek
from benchmarks.figures import Figure, Section
from benchmarks.log_builder import BATCH_BYTES, Shape, build
from benchmarks.run import Run

PARTITIONS, FEW_PARTITIONS = 100, 5
CLOSED_SEGMENTS = 1
BATCHES_PER_SEGMENT = 20
"""A megabyte: no topic has smaller segments."""
RESTORES, FEW_RESTORES = 10, 2
PAUSE_S = 1.0
"""Between two restores, as a test would take: the next one is laid out meanwhile."""
RESTORE_MS_MAX = 100.0


def measure(run: Run) -> Section:
    """Takes about 15 s a round."""
    count, restores = run.choose(PARTITIONS, FEW_PARTITIONS), run.choose(RESTORES, FEW_RESTORES)
    shape = Shape(CLOSED_SEGMENTS + 1, BATCHES_PER_SEGMENT, sampled=0, is_whole=True)
    run.need_room(3 * count * shape.room_bytes, f"Snapshots of {count} partitions")
    taken_ms: list[float] = []
    restored_ms: list[float] = []
    with run.folder("snapshots") as folder, run.odradek(folder) as node:
        build(node, {f"t-{number}": shape for number in range(count)}, int(time.time() * 1000))
        with odradek.Broker(process=True, data_dir=node.data) as broker:
            for _ in range(run.rounds):
                began = time.perf_counter()
                snapshot = broker.snapshot()
                taken_ms.append((time.perf_counter() - began) * 1000)
                for _ in range(restores):
                    time.sleep(PAUSE_S)
                    began = time.perf_counter()
                    broker.restore(snapshot)
                    restored_ms.append((time.perf_counter() - began) * 1000)
                snapshot.close()
    found = Section("Snapshots of a broker for tests")
    found.notes = [
        f"{count} partitions, each with {CLOSED_SEGMENTS} closed segment and an active one of "
        f"{BATCHES_PER_SEGMENT * BATCH_BYTES / 1e6:.1g} MB; {run.rounds} snapshots with {restores} restores "
        f"each, {PAUSE_S:g} s apart."
    ]
    found.figures = [
        Figure.median("restore", restored_ms, "ms", RESTORE_MS_MAX),
        Figure.median("snapshot", taken_ms, "ms"),
    ]
    return found
