"""`python -m benchmarks.cold_reads [DIR]`: what a consumer of old data costs the producers beside it.

One connection produces records of 100 bytes, one after the other; beside it one fetches a gigabyte, in order,
that is in the system's memory, and then the same when it is not. The server is on one core, both loads are on
the other. A page that is missing and touched in the event loop would stop the producer for as long as the
disk takes.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks import brokers
from benchmarks.__main__ import CorePinning, compile_load
from benchmarks.cases import run_load
from benchmarks.frames import batch_of, fetch_frame, produce_frame, write_frames
from benchmarks.scale import Figure, line
from benchmarks.wire_client import WireClient
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BATCHES = 1000
RECORDS_PER_BATCH = 1000
SECONDS = 3.0


def fill(client: WireClient, topic: str) -> None:
    batch = batch_of(RECORDS_PER_BATCH, 1000)
    for _ in range(BATCHES):
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        answer = client.call(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def drop_from_memory(folder: pathlib.Path) -> None:
    for path in folder.glob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measure(work: pathlib.Path, rounds: int = 5) -> list[Figure]:
    """p99 of a produce in milliseconds: alone, beside a reader of warm data, beside one of cold data."""
    load = compile_load(work)
    pinning = CorePinning(1)
    p99: dict[str, list[float]] = {"alone": [], "in memory": [], "not in memory": []}
    with brokers.odradek(load, work, 0) as broker:
        with WireClient("127.0.0.1", broker.port) as client:
            ids = client.create_topics(["old", "new"], 1)
            fill(client, "old")
        (folder,) = work.glob("odradek-*/old-0")
        produce, fetch = work / "produce.frames", work / "fetch.frames"
        write_frames(produce, [produce_frame("new", ids["new"], 0, batch_of(1, 100))])
        offsets = [RECORDS_PER_BATCH * number for number in range(BATCHES)]
        write_frames(fetch, [fetch_frame("old", 0, offset, max_bytes=1 << 20) for offset in offsets])
        for _ in range(rounds):
            for kind, figures in p99.items():
                drop_from_memory(folder)
                if kind == "in memory":
                    for path in folder.glob("*.log"):
                        path.read_bytes()
                reader = None
                if kind != "alone":
                    command = [str(load), "-p", str(broker.port), "-f", str(fetch), "-c", "1", "-o"]
                    command += ["-s", str(SECONDS), "-w", "0"]
                    reader = subprocess.Popen(pinning.load(command), stdout=subprocess.DEVNULL)
                    time.sleep(0.1)
                result = run_load(broker, pinning, produce, "-c", "1", "-s", str(SECONDS / 2), "-w", "0")
                figures.append(result["p99_us"] / 1000)
                if reader is not None:
                    assert reader.wait() == 0
    return [
        Figure(
            "p99 of a produce" + ("" if kind == "alone" else f" beside a reader of data {kind}"),
            statistics.median(figures),
            "ms",
        )
        for kind, figures in p99.items()
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="odradek-cold-", dir=sys.argv[1] if sys.argv[1:] else None) as d:
        for figure in measure(pathlib.Path(d)):
            print(line(figure))
