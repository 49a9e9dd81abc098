"""Topics become a Parquet or Iceberg table, by topic and day: `odradek spark archive`, or `run`.

    from odradek.spark.jobs import archive
    archive.run(spark, bootstrap_servers="localhost:9092", topics=["orders"], table="/data/orders")

Each run continues where the last one ended. A row is in the table exactly once, also for readers without
Spark, even if jobs are killed and run again (`publishing`, `iceberg`). The checkpoint is in the table, so
that the two stay together. The table has the columns of Spark's Kafka source, `topic` and `day` (of the
timestamp, UTC) as directories; a late record goes to its own day. Values are bytes, or decoded by `decoding`.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from odradek.client.progress import Progress
from odradek.spark.jobs.compaction import Compaction, SizeRules
from odradek.spark.jobs.decoding import UNDECODED, Decoding
from odradek.spark.jobs.errors import JobError
from odradek.spark.jobs.files import open_files
from odradek.spark.jobs.iceberg import IcebergTable
from odradek.spark.jobs.publishing import Epoch, Publisher
from odradek.spark.jobs.querying import DirectoryTable, Pace, TableQuery, Written, offsets_reached
from odradek.spark.jobs.tables import SOURCE_SCHEMA, check_format
from odradek.spark.jobs.topics import ARROW_ROWS, READ_COMMITTED, Topics, job_session
from odradek.spark.report import Report, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY = "date_add(DATE'1970-01-01', CAST(floor(unix_millis(timestamp) / 86400000) AS INT))"
"""The day of a record in UTC, whatever the session's time zone."""

COMPACTION_INTERVAL_S = 3600
"""Between two compactions in a stream."""
OPEN_FILES = 16
"""Days that one task writes at the same time; for more, Spark sorts."""


def run(
    spark: "SparkSession",
    *,
    bootstrap_servers: str,
    table: str,
    topics: Sequence[str] = (),
    topic_pattern: str | None = None,
    stream: bool = False,
    trigger_seconds: float = 10.0,
    starting_offsets: str = "earliest",
    isolation: str = READ_COMMITTED,
    value: str = "binary",
    schema: str | None = None,
    descriptor: bytes | None = None,
    message: str | None = None,
    framing: str = "none",
    decode_mode: str = "permissive",
    decode_options: Mapping[str, str] | None = None,
    keep_raw: bool = False,
    table_format: str = "parquet",
    checkpoint: str | None = None,
    compression: str = "snappy",
    max_offsets_per_trigger: int | None = None,
    fail_on_data_loss: bool = True,
    compact: bool = False,
    size_rules: SizeRules | None = None,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Report:
    """Archives the present records; with `stream` continues until `stop` is set.

    `starting_offsets` (Spark's `startingOffsets`) is for the first run.

    With `value` "json" (and `schema`, in Spark's DDL or JSON form), "avro" (and `schema`, the content of a
    schema file) or "protobuf" (and `descriptor`, a FileDescriptorSet, with the full name of a `message`) the
    column `value` has the decoded value. A value that does not decode keeps its bytes in the column
    `undecoded`, or with `decode_mode="failfast"` ends the job. `framing="confluent"`: values begin with the
    id of a schema, which gets the column `schema_id`. `keep_raw` keeps the bytes of all values in the column
    `raw`. `decode_options` are those of Spark's `from_json` or `from_avro`.

    With `table_format="iceberg"` the table is `catalog.namespace.name`, and `checkpoint` a directory for the
    job's state (default: the location of the table). `options` are more options of the source. JobError for
    errors in topics, options or the table.
    """
    source = Topics(bootstrap_servers, tuple(topics), topic_pattern, isolation, dict(options or {}))
    pace = Pace(stream, trigger_seconds, max_offsets_per_trigger, starting_offsets, fail_on_data_loss)
    pace.check()
    decoding = Decoding(
        value, schema, descriptor, message, framing, decode_mode, keep_raw, dict(decode_options or {})
    )
    decoding.check()
    check_format(table_format)
    source.check()
    session = job_session(spark)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS))
    rules = (size_rules or SizeRules()) if compact else None
    columns = decoding.apply(session.createDataFrame([], SOURCE_SCHEMA))
    target: Target
    if table_format == "iceberg":
        target = IcebergTable(session, table, columns, compression, rules, checkpoint)
    elif checkpoint is not None:
        raise JobError(
            f"the checkpoint {checkpoint} is for a table of Iceberg: that of a Parquet table is in the table"
        )
    else:
        target = ParquetTable(session, table, compression, rules)
    progress = progress or Progress("archive", None)
    job = _Archive(decoding, target)
    query = TableQuery("archive", session, source, target, job.take)
    try:
        with query.held(decoding.about()):
            target.remove_leftovers()
            last = query.run(pace, lambda lag: job.report_progress(progress, lag), stop or threading.Event())
            job.compact()
    finally:
        progress.clear()
    return job.report(source, last, progress)


class Target(Written, Protocol):
    """A table that gets each epoch once."""

    def remove_leftovers(self) -> None:
        """Removes files that a killed run has left."""
        ...

    def has(self, number: int, batch: "DataFrame") -> bool:
        """Whether the table has the whole epoch already."""
        ...

    def publish(self, number: int, rows: "DataFrame", count: Callable[[], int]) -> Epoch | None:
        """Adds the epoch, None if all of it was there; `count` returns the number of rows after the write."""
        ...

    @property
    def is_compacted(self) -> bool:
        """Whether the job merges small files."""
        ...

    def compact(self) -> int:
        """Merges small files; returns how many are gone."""
        ...


class ParquetTable(DirectoryTable):
    """A directory of files."""

    def __init__(self, session: "SparkSession", name: str, compression: str, rules: SizeRules | None) -> None:
        super().__init__(open_files(session, name), name.rstrip("/"))
        session.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(OPEN_FILES))
        self._compression = compression
        self._compaction = (
            None if rules is None else Compaction(session, self.files, self.name, rules, compression)
        )

    @property
    def is_compacted(self) -> bool:
        return self._compaction is not None

    def remove_leftovers(self) -> None:
        if self._compaction is not None:
            self._compaction.remove_leftovers()

    def has(self, number: int, batch: "DataFrame") -> bool:
        """Always False: `publish` completes an epoch that an earlier run has decided."""
        return False

    def publish(self, number: int, rows: "DataFrame", count: Callable[[], int]) -> Epoch | None:
        from pyspark.sql import functions as f

        def write(path: str) -> int:
            writer = rows.withColumn("day", f.expr(DAY)).write.partitionBy("topic", "day")
            writer.option("compression", self._compression).parquet(path)
            return count()

        epoch, has_added = Publisher(self.files, self.name).publish(number, write)
        return epoch if has_added else None

    def compact(self) -> int:
        return 0 if self._compaction is None else self._compaction.run()


@dataclass
class _Totals:
    """Totals of this run."""

    rows: int = 0
    size_bytes: int = 0
    files: int = 0
    epochs: int = 0
    undecoded: int = 0
    compacted: int = 0

    def add(self, epoch: Epoch) -> None:
        self.rows += epoch.rows
        self.size_bytes += epoch.size_bytes
        self.files += len(epoch.files)
        self.epochs += 1


@dataclass
class _Archive:
    decoding: Decoding
    target: Target
    totals: _Totals = field(default_factory=_Totals)
    next_compaction: float = field(default_factory=lambda: time.monotonic() + COMPACTION_INTERVAL_S)

    def take(self, batch: "DataFrame", number: int) -> None:
        """One epoch."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        if self.target.has(number, batch):
            return
        counted = Observation()
        rows = self.decoding.apply(batch)
        undecoded = f.count(UNDECODED) if UNDECODED in rows.columns else f.lit(0)
        rows = rows.observe(counted, f.count(f.lit(1)).alias("rows"), undecoded.alias("undecoded"))

        def count() -> int:
            self.totals.undecoded += int(counted.get["undecoded"])
            return int(counted.get["rows"])

        epoch = self.target.publish(number, rows, count)
        # A run that is stopped between the table and Spark's checkpoint has counted the epoch.
        if epoch is not None:
            self.totals.add(epoch)
        if time.monotonic() > self.next_compaction:
            self.compact()

    def report_progress(self, progress: Progress, lag: int | None) -> None:
        progress.update(self.totals.rows, self.totals.size_bytes, lag=lag)

    def compact(self) -> None:
        """Call it between two epochs or after the last, when nobody adds files to the table."""
        self.totals.compacted += self.target.compact()
        self.next_compaction = time.monotonic() + COMPACTION_INTERVAL_S

    def report(self, topics: Topics, last: Any, progress: Progress) -> Report:
        """The report of this run; `last` is the query's last progress."""
        totals, seconds = self.totals, progress.seconds
        summary = f"{totals.rows:,} rows of {topics} went into {self.target.name}"
        if totals.undecoded:
            summary += f"; {totals.undecoded:,} values did not decode, their bytes are in column {UNDECODED}"
        report = Report("archive", summary)
        report.figures = {
            "rows": totals.rows,
            "epochs": totals.epochs,
            "files": totals.files,
            "bytes of Parquet": totals.size_bytes,
            "seconds": round(seconds, 1),
            "rows a second": round(totals.rows / max(seconds, 1e-9)),
        }
        if self.decoding.value != "binary":
            report.figures["values that did not decode"] = totals.undecoded
        if self.target.is_compacted:
            report.figures["small files merged"] = totals.compacted
        reached = offsets_reached(last)
        if reached:
            report.tables = [Table("archived up to", ("topic", "partition", "offset"), reached)]
        return report
