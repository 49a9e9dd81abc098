"""`python -m benchmarks.storage [DIR]`: what the log itself costs, without network and protocol.

Append and commit of one-record batches by how many share a commit, reads at the tail and in bulk, opening
a store of many partitions. Best of several rounds, in one thread; the data goes to DIR (default: a
temporary one).
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.storage.log.partition import Partition
from odradek.wire.records import Record, build_batch

NOW_MS = 1_700_000_000_000
ROUNDS = 5
APPENDS = 16_000
BATCH_BYTES = 100


@contextlib.contextmanager
def opened(directory: str) -> Iterator[LogStore]:
    store = LogStore(OsDisk(), [directory])
    store.open(NOW_MS)
    try:
        yield store
    finally:
        store.close(NOW_MS)


def best_seconds(work: Callable[[], object]) -> float:
    """The shortest of some runs: what is above it is the machine's other work."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def batch_of(sequence: int) -> memoryview:
    """One record, of producer 1 when `sequence` is not -1."""
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
    batch = build_batch([Record(0, NOW_MS, b"key", b"v" * 29)], **producer)
    assert len(batch) == BATCH_BYTES
    return memoryview(batch)


def append(partition: Partition, staged: int, *, idempotent: bool) -> float:
    """Seconds for one append of a 100-byte batch with its share of the commit."""
    plain = [batch_of(-1)] * APPENDS
    times = []
    for number in range(ROUNDS):
        first = number * APPENDS
        batches = [batch_of(sequence) for sequence in range(first, first + APPENDS)] if idempotent else plain
        start = time.perf_counter()
        for begin in range(0, APPENDS, staged):
            for batch in batches[begin : begin + staged]:
                partition.appends.append(batch, now_ms=NOW_MS)
            partition.commit()
        times.append(time.perf_counter() - start)
    return min(times) / APPENDS


def read_tail(partition: Partition) -> float:
    """Seconds for reading the last 100-byte batch, bytes included."""
    offset = partition.log_end_offset - 1

    def work() -> None:
        for _ in range(1000):
            partition.read(offset, max_bytes=1_048_576).records.buffers()

    return best_seconds(work) / 1000


def read_bulk(partition: Partition) -> float:
    """Seconds for the slice of each megabyte, from the first to the last."""
    reads = [0]

    def work() -> None:
        offset = reads[0] = 0
        while offset < partition.log_end_offset:
            records = partition.read(offset, max_bytes=1_048_576).records
            records.buffers()
            offset += len(records) // BATCH_BYTES
            reads[0] += 1

    return best_seconds(work) / reads[0]


def open_many(directory: str, count: int) -> tuple[float, float, float]:
    """Seconds to create `count` partitions, to open them after a clean stop, and then to load one of them."""
    start = time.perf_counter()
    with opened(directory) as store:
        for index in range(count):
            store.create("many", index, bytes(16), LogConfig())
        created = time.perf_counter() - start
    start = time.perf_counter()
    with opened(directory) as store:
        opened_after = time.perf_counter() - start
        start = time.perf_counter()
        for index in range(0, count, 10):
            store.get("many", index)
        loaded = (time.perf_counter() - start) / len(range(0, count, 10))
    return created, opened_after, loaded


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "directory", nargs="?", help="where the data goes; a temporary directory by default"
    )
    arguments.add_argument("--partitions", type=int, default=10_000)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        with opened(f"{directory}/appends") as store:
            for staged in (1, 16, 800):
                plain = store.create("plain", staged, bytes(16), LogConfig())
                idempotent = store.create("idempotent", staged, bytes(16), LogConfig())
                print(
                    f"append, {staged:3} a commit: {append(plain, staged, idempotent=False) * 1e6:6.2f} us, "
                    f"idempotent {append(idempotent, staged, idempotent=True) * 1e6:6.2f} us"
                )
            print(f"read of the last batch:   {read_tail(plain) * 1e6:6.2f} us")
            print(f"read of 1 MB, mapped:     {read_bulk(plain) * 1e6:6.2f} us")
        created, opened_after, loaded = open_many(f"{directory}/many", options.partitions)
        print(
            f"{options.partitions} partitions: created in {created:.2f} s, opened after a clean stop in ",
            end="",
        )
        print(f"{opened_after * 1e3:.0f} ms, first use of one {loaded * 1e6:.0f} us")


if __name__ == "__main__":
    main()
