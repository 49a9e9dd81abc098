"""How fast segment files become Arrow batches, without Spark: records a second of one core, median of three.

PYTHONPATH=build/links python -m benchmarks.spark_walker [--records N] [--value-bytes N] [--codec NAME]
"""

import argparse
import os
import pathlib
import statistics
import tempfile
import time

from odradek.spark.columns import COLUMNS, ColumnBuilder
from odradek.spark.log_files import Piece, find_partitions, read_piece
from odradek.wire.compression import compression_named
from odradek.wire.records import build_batch, patch_batch

BATCH_BYTES = 16_384
"""As a producer fills them by default."""
KEY_BYTES = 8
ROUNDS = 3
NOW_MS = 1_700_000_000_000
READS = {
    "all columns": COLUMNS,
    "all but headers": tuple(name for name in COLUMNS if name != "headers"),
    "key, value, offset, timestamp": ("key", "value", "offset", "timestamp"),
    "value": ("value",),
}


def write_segment(folder: pathlib.Path, records: int, value_bytes: int, codec: int) -> None:
    """One segment with so many records or a few more, each batch with the same content at its own offset."""
    per_batch = max(1, BATCH_BYTES // (KEY_BYTES + value_bytes + 8))
    rows = [(at, NOW_MS + at, os.urandom(KEY_BYTES), os.urandom(value_bytes), ()) for at in range(per_batch)]
    batch = build_batch(rows, compression=codec)
    folder.mkdir()
    with open(folder / f"{0:020d}.log", "wb") as file:
        for first in range(0, records, per_batch):
            patch_batch(batch, 0, first, 0)
            file.write(batch)


def read(piece: Piece, columns: tuple[str, ...]) -> int:
    """How many records there were."""
    builder = ColumnBuilder(columns, topic=piece.topic, read_committed=False)
    rows = 0
    for records in read_piece(piece):
        builder.add(records.buffer, piece.partition)
        while (batch := builder.take()) is not None:
            rows += batch.num_rows
    return rows


def figures(piece: Piece, columns: tuple[str, ...]) -> tuple[float, float]:
    """Records a second, by the clock and by the processor's time."""
    walls, processors = [], []
    for _ in range(ROUNDS):
        wall, processor = time.perf_counter(), time.process_time()
        rows = read(piece, columns)
        walls.append(rows / (time.perf_counter() - wall))
        processors.append(rows / (time.process_time() - processor))
    return statistics.median(walls), statistics.median(processors)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--codec", default="none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-walker-") as name:
        folder = pathlib.Path(name) / "t-0"
        write_segment(folder, options.records, options.value_bytes, compression_named(options.codec))
        ((piece,),) = (one.pieces(with_transactions=False) for one in find_partitions([name]))
        for label, columns in READS.items():
            wall, processor = figures(piece, columns)
            print(f"{label:32} {wall / 1e6:6.2f} M records/s, {processor / 1e6:6.2f} M of processor time")


if __name__ == "__main__":
    main()
