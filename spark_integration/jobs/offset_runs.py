"""Maps offsets of a topic to offsets of its copy, by runs of records with the same distances in both.

A run is a row: records with the offsets from `source_start` up to `source_end` (exclusive) are in the copy
from `target_start` up to `target_end`, `rows` of them, each at its source offset and `target_start -
source_start`. A new run begins where transactions, compaction or retention have left different gaps in the
two logs. So any offset can be translated by arithmetic, and a log without gaps has a row for each transaction
of the copy.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.client.client_error import ClientError

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from odradek.client.producing import Placement

SCHEMA = (
    "topic STRING, partition INT, source_start BIGINT, source_end BIGINT, target_topic STRING, "
    "target_start BIGINT, target_end BIGINT, rows BIGINT"
)
"""Columns of the table. The partition is the same in both topics."""
REPORT_SCHEMA = f"{SCHEMA}, was_there BOOLEAN, size_bytes BIGINT"
"""Rows of tasks: a run, whether an earlier attempt had written its records, and their size (in one row of
each transaction)."""
RUNS_OF_A_TEXT = 10_000
"""A text is a record of the markers topic: with the largest offsets this is below 1 MB."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one partition."""

    source_start: int
    source_end: int
    target_start: int
    rows: int

    @property
    def target_end(self) -> int:
        return self.target_start + self.source_end - self.source_start


@dataclass(frozen=True, slots=True)
class Place:
    """The place in the copy from which a group continues."""

    topic: str
    offset: int
    mirrored_end: int
    """After the last offset of the source that is in the copy: a group that is further has to wait, or reads
    the records between again."""


def runs_of(sources: "pyarrow.Array", placements: "Sequence[Placement]") -> list[Run]:
    """The runs of records with these source offsets, written in this order; placements are flushed.

    ClientError if the broker does not return their offsets.
    """
    import pyarrow
    import pyarrow.compute as pc

    for placement in placements:
        if placement.base_offset < 0:
            raise ClientError(
                f"the broker does not return the offsets of records in topic {placement.topic}, partition "
                f"{placement.partition}: run the job again, and it writes them anew"
            )
    offsets = [
        pyarrow.array(range(one.base_offset, one.base_offset + one.record_count), pyarrow.int64())
        for one in placements
    ]
    targets = pyarrow.concat_arrays(offsets)
    assert len(targets) == len(sources)
    ends = pc.run_end_encode(pc.subtract(targets, sources), run_end_type=pyarrow.int64()).run_ends.to_pylist()
    starts = [0, *ends[:-1]]
    return [
        Run(source_start, source_last + 1, target_start, end - start)
        for source_start, source_last, target_start, start, end in zip(
            sources.take(pyarrow.array(starts)).to_pylist(),
            sources.take(pyarrow.array([end - 1 for end in ends])).to_pylist(),
            targets.take(pyarrow.array(starts)).to_pylist(),
            starts,
            ends,
            strict=True,
        )
    ]


def texts(runs: Sequence[Run]) -> Iterator[str]:
    """Texts to attach to a marker."""
    for start in range(0, len(runs), RUNS_OF_A_TEXT):
        part = runs[start : start + RUNS_OF_A_TEXT]
        rows = [[run.source_start, run.source_end, run.target_start, run.rows] for run in part]
        yield json.dumps(rows, separators=(",", ":"))


def from_text(text: str) -> list[Run]:
    return [Run(*row) for row in json.loads(text)]


def as_rows(
    topic: str, partition: int, target_topic: str, runs: Sequence[Run], *, was_there: bool, size_bytes: int
) -> "pyarrow.RecordBatch":
    """Rows of `REPORT_SCHEMA`."""
    import pyarrow

    number, text = len(runs), pyarrow.string()
    int64 = pyarrow.int64()
    return pyarrow.RecordBatch.from_pydict(
        {
            "topic": pyarrow.repeat(pyarrow.scalar(topic, text), number),
            "partition": pyarrow.repeat(pyarrow.scalar(partition, pyarrow.int32()), number),
            "source_start": pyarrow.array([run.source_start for run in runs], int64),
            "source_end": pyarrow.array([run.source_end for run in runs], int64),
            "target_topic": pyarrow.repeat(pyarrow.scalar(target_topic, text), number),
            "target_start": pyarrow.array([run.target_start for run in runs], int64),
            "target_end": pyarrow.array([run.target_end for run in runs], int64),
            "rows": pyarrow.array([run.rows for run in runs], int64),
            "was_there": pyarrow.repeat(pyarrow.scalar(was_there), number),
            "size_bytes": pyarrow.array([size_bytes, *[0] * (number - 1)], int64),
        }
    )


def translated(
    session: "SparkSession", table: "DataFrame", committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Place]:
    """Translates committed offsets of the source into places in the copy; `table` has rows of `SCHEMA`.

    A place is the first record that the group has not read. Partitions without a run are left out.
    """
    from pyspark.sql import functions as f

    if not committed:
        return {}
    requested = session.createDataFrame(
        [(topic, partition, offset) for (topic, partition), offset in committed.items()],
        "topic STRING, partition INT, committed BIGINT",
    )
    is_ahead = f.col("source_end") > f.col("committed")
    run = f.struct("source_start", "target_start")
    found = (
        table.join(f.broadcast(requested), ["topic", "partition"])
        .groupBy("topic", "partition", "committed")
        .agg(
            f.max("target_topic").alias("target_topic"),
            f.min(f.when(is_ahead, run)).alias("next"),
            f.max("target_end").alias("target_end"),
            f.max("source_end").alias("source_end"),
        )
        .collect()
    )
    return {
        (row.topic, row.partition): Place(row.target_topic, _offset(row), row.source_end) for row in found
    }


def _offset(row: Any) -> int:
    if row.next is None:
        return int(row.target_end)
    # Between two runs nothing was mirrored: the next record is the start of the second run.
    return int(row.next.target_start + max(0, row.committed - row.next.source_start))
