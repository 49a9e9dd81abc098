"""Topics become a Parquet table, partitioned by topic and day: `odradek spark archive`, or `run`.

    from odradek.spark.jobs import archive
    archive.run(spark, bootstrap_servers="localhost:9092", topics=["orders"], table="/data/orders")

Each run goes on where the last one ended. A row is in the table exactly once, also for readers that know
nothing of Spark's streams, whatever was killed and run again (`publishing`). The checkpoint lies in the
table, so that the two cannot part. The table has the columns of Spark's Kafka source, `topic` and `day` (of
the timestamp, UTC) as directories; a record that comes late goes to its own day.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.spark.jobs.compaction import Compaction, SizeRules
from odradek.spark.jobs.errors import JobError, sentence_of
from odradek.spark.jobs.files import Files, open_files
from odradek.spark.jobs.publishing import Epoch, Publisher
from odradek.spark.jobs.querying import Pace, TableQuery, offsets_reached
from odradek.spark.jobs.topics import READ_COMMITTED, Topics, job_session
from odradek.spark.progress import Progress
from odradek.spark.report import Report, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DAY", "run"]

DAY = "date_add(DATE'1970-01-01', CAST(floor(unix_millis(timestamp) / 86400000) AS INT))"
"""The day of a record in UTC, whatever the session's time zone."""

VALUES = ("binary", "json")
BROKEN = "_corrupt_record"
"""Where `from_json` puts a text that does not fit the schema, if the schema has it."""
COMPACTION_INTERVAL_S = 3600
"""Between two looks at the small files of a stream."""
OPEN_FILES = 16
"""Days that one task writes at the same time; beyond that Spark sorts."""


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
    compression: str = "snappy",
    max_offsets_per_trigger: int | None = None,
    fail_on_data_loss: bool = True,
    compact: bool = False,
    size_rules: SizeRules | None = None,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Report:
    """Archives what is there now; with `stream` goes on until `stop` is set.

    `starting_offsets` (Spark's `startingOffsets`) counts for the first run. With `value="json"` and `schema`
    (Spark's DDL or JSON form) the column `value` is a struct; a value that is none keeps its bytes in the
    column `undecoded`. `options` are more options of the source. JobError for whatever is wrong with topics,
    options or the table.
    """
    source = Topics(bootstrap_servers, tuple(topics), topic_pattern, isolation, dict(options or {}))
    pace = Pace(stream, trigger_seconds, max_offsets_per_trigger, starting_offsets, fail_on_data_loss)
    pace.check()
    _check_value(value, schema)
    source.check()
    session = job_session(spark)
    session.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(OPEN_FILES))
    table = table.rstrip("/")
    files = open_files(spark, table)
    progress = progress or Progress("archive", None)
    job = _Archive(session, files, table, value, schema, compression)
    if compact:
        job.compaction = Compaction(session, files, table, size_rules or SizeRules(), compression)
    query = TableQuery("archive", session, files, source, table, job.take)
    try:
        with query.held({"value": value, "schema": schema}):
            if job.compaction is not None:
                job.compaction.remove_leftovers()
            last = query.run(pace, lambda lag: job.tell(progress, lag), stop or threading.Event())
            job.compact()
    finally:
        progress.clear()
    return job.report(source, last, progress)


def _check_value(value: str, schema: str | None) -> None:
    if value not in VALUES:
        raise JobError(f"value {value!r} is none: it is {' or '.join(VALUES)}")
    if (value == "json") != (schema is not None):
        raise JobError("value json needs a schema, and a schema needs value json: give both or neither")
    if schema is not None:
        _with_field(schema, BROKEN)


def _with_field(schema: str, name: str) -> Any:
    """The schema of a struct, from Spark's DDL or JSON form, and one more field of text."""
    from pyspark.sql.types import StringType, StructType

    try:
        is_json = schema.lstrip().startswith("{")
        fields = StructType.fromJson(json.loads(schema)) if is_json else StructType.fromDDL(schema)
        return StructType([*fields.fields, StructType().add(name, StringType())[name]])
    except Exception as error:
        raise JobError(
            f"the schema {schema[:60]!r} is none in Spark's DDL or JSON form ({sentence_of(error)}): write "
            "for example 'id BIGINT, name STRING'"
        ) from None


@dataclass
class _Done:
    """What this run has put into the table."""

    rows: int = 0
    size_bytes: int = 0
    files: int = 0
    epochs: int = 0
    compacted: int = 0

    def add(self, epoch: Epoch) -> None:
        self.rows += epoch.rows
        self.size_bytes += epoch.size_bytes
        self.files += len(epoch.files)
        self.epochs += 1


@dataclass
class _Archive:
    session: "SparkSession"
    files: Files
    table: str
    value: str
    schema: str | None
    compression: str
    compaction: Compaction | None = None
    done: _Done = field(default_factory=_Done)
    next_compaction: float = field(default_factory=lambda: time.monotonic() + COMPACTION_INTERVAL_S)

    def take(self, batch: "DataFrame", number: int) -> None:
        """One epoch."""
        publisher = Publisher(self.files, self.table)
        epoch, _ = publisher.publish(number, lambda path: self._write(batch, path))
        self.done.add(epoch)
        if time.monotonic() > self.next_compaction:
            self.compact()

    def tell(self, progress: Progress, lag: int | None) -> None:
        progress.update(self.done.rows, self.done.size_bytes, lag=lag)

    def compact(self) -> None:
        """Between two epochs, or behind the last one: nobody else puts files into the table meanwhile."""
        if self.compaction is not None:
            self.done.compacted += self.compaction.run()
            self.next_compaction = time.monotonic() + COMPACTION_INTERVAL_S

    def _write(self, batch: "DataFrame", path: str) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        counted = Observation()
        rows = (
            self._decoded(batch)
            .withColumn("day", f.expr(DAY))
            .observe(counted, f.count(f.lit(1)).alias("rows"))
        )
        rows.write.partitionBy("topic", "day").option("compression", self.compression).parquet(path)
        return int(counted.get["rows"])

    def _decoded(self, batch: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as f

        if self.value == "binary":
            return batch
        assert self.schema is not None
        wanted = f.from_json(f.col("value").cast("string"), _with_field(self.schema, BROKEN))
        is_broken = f.col("value").isNotNull() & (
            f.col("decoded").isNull() | f.col(f"decoded.{BROKEN}").isNotNull()
        )
        return (
            batch.withColumn("decoded", wanted)
            .withColumn("undecoded", f.when(is_broken, f.col("value")))
            .withColumn("value", f.when(~is_broken, f.col("decoded").dropFields(BROKEN)))
            .drop("decoded")
        )

    def report(self, topics: Topics, last: Any, progress: Progress) -> Report:
        """What this run did; `last` is the query's last progress."""
        done, seconds = self.done, progress.seconds
        report = Report("archive", f"{done.rows:,} rows of {topics} went into {self.table}")
        report.figures = {
            "rows": done.rows,
            "epochs": done.epochs,
            "files": done.files,
            "bytes of Parquet": done.size_bytes,
            "seconds": round(seconds, 1),
            "rows a second": round(done.rows / max(seconds, 1e-9)),
        }
        if self.compaction is not None:
            report.figures["small files merged"] = done.compacted
        reached = offsets_reached(last)
        if reached:
            report.tables = [Table("archived up to", ("topic", "partition", "offset"), reached)]
        return report
