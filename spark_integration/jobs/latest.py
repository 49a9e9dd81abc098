"""The last value of each key of a changelog topic, as a table: `odradek spark latest`, or `run`.

    from odradek.spark.jobs import latest
    latest.run(spark, bootstrap_servers="localhost:9092", topic="users", table="/data/users")

It is log compaction as a table: a record replaces the row of its key, a record without a value deletes it.
The CRC-32 of the key chooses one of the `bucket=N` directories. An epoch builds the directories with changed
keys anew, and exchanges each in one step, so that a reader sees one row for a key at any moment. An epoch
that runs again changes nothing, because the offset decides; so the table is exact after any kill. If a key is
in more than one partition, the record with the newest timestamp decides. Records without a key are only
counted.
"""

import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.client.progress import Progress
from odradek.spark.jobs.errors import JobError
from odradek.spark.jobs.files import LocalFiles, open_files
from odradek.spark.jobs.publishing import STATE
from odradek.spark.jobs.querying import DirectoryTable, Pace, TableQuery, offsets_reached
from odradek.spark.jobs.topics import READ_COMMITTED, Topics, job_session
from odradek.spark.report import Report, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, bucket INT"
)
"""Schema of the table."""
BUCKETS = 16
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
CONTENT = ("value", "topic", "partition", "offset", "timestamp", "headers")


def run(
    spark: "SparkSession",
    *,
    bootstrap_servers: str,
    topic: str,
    table: str,
    stream: bool = False,
    trigger_seconds: float = 10.0,
    max_offsets_per_trigger: int | None = None,
    isolation: str = READ_COMMITTED,
    buckets: int = BUCKETS,
    compression: str = "snappy",
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Report:
    """Updates the table to the present content of the topic; with `stream` continues until `stop` is set.

    Later runs have to give the same `buckets` as the first. JobError for errors in topic, options or table.
    """
    source = Topics(bootstrap_servers, (topic,), None, isolation, dict(options or {}))
    # Retention and compaction remove only superseded or obsolete records from a changelog.
    pace = Pace(stream, trigger_seconds, max_offsets_per_trigger, fail_on_data_loss=False)
    pace.check()
    if not 1 <= buckets <= 10_000:
        raise JobError(f"{buckets} buckets are none: give 1 to 10,000")
    source.check()
    session = job_session(spark)
    table = table.rstrip("/")
    files = open_files(spark, table)
    if not isinstance(files, LocalFiles):
        raise JobError(
            f"the table {table} cannot be kept up to date while others read it: only local file systems of "
            "Linux "
            "can exchange directories in one step; give a local directory"
        )
    progress = progress or Progress("latest", None)
    job = _Latest(session, files, table, buckets, compression)
    query = TableQuery("latest", session, source, DirectoryTable(files, table), job.take)
    try:
        with query.held({"buckets": buckets}):
            job.remove_leftovers()
            last = query.run(pace, lambda lag: progress.update(job.rows, lag=lag), stop or threading.Event())
            keys = job.count_keys()
    finally:
        progress.clear()
    report = Report("latest", f"{table} has the last values of {keys:,} keys of topic {topic}")
    report.figures = {
        "keys": keys,
        "records read": job.rows,
        "of them without a key": job.without_key,
        "epochs": job.epochs,
        "seconds": round(progress.seconds, 1),
    }
    reached = offsets_reached(last)
    if reached:
        report.tables = [Table("up to", ("topic", "partition", "offset"), reached)]
    return report


@dataclass
class _Latest:
    session: "SparkSession"
    files: LocalFiles
    table: str
    buckets: int
    compression: str
    rows: int = 0
    without_key: int = 0
    epochs: int = 0

    @property
    def work(self) -> str:
        return f"{self.table}/{STATE}/merging"

    def remove_leftovers(self) -> None:
        """Removes new or old directories that a killed run has left."""
        self.files.remove(self.work)

    def count_keys(self) -> int:
        """Rows of the table."""
        names = [name for name in self.files.names(self.table) if name.startswith("bucket=")]
        return self._rows_of(names).count() if names else 0

    def take(self, batch: "DataFrame", number: int) -> None:
        """One epoch."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        # Spark does not coalesce the shuffle partitions of a stream, and with its 200 an epoch of twenty rows
        # takes seconds; a table is written by a task a bucket anyway. Set in each epoch, since the number
        # that a query was begun with stays with its checkpoint.
        parts = self.session.sparkContext.getConf().get(SHUFFLE_PARTITIONS, str(self.buckets))
        batch.sparkSession.conf.set(SHUFFLE_PARTITIONS, parts)
        counted = Observation()
        without_key = f.sum(f.expr("CAST(key IS NULL AS BIGINT)")).alias("without_key")
        changes = _last_of_each_key(
            batch.observe(counted, f.count(f.lit(1)).alias("rows"), without_key).where("key IS NOT NULL")
        )
        changes = changes.withColumn("bucket", f.expr(f"CAST(crc32(key) % {self.buckets} AS INT)")).persist()
        try:
            touched = [row.bucket for row in changes.select("bucket").distinct().collect()]
            self._merge(changes, [f"bucket={bucket}" for bucket in sorted(touched)])
        finally:
            changes.unpersist()
        self.rows += int(counted.get["rows"])
        self.without_key += int(counted.get["without_key"] or 0)
        self.epochs += 1

    def _merge(self, changes: "DataFrame", names: list[str]) -> None:
        """Builds these directories anew from their rows and the changes."""
        work = f"{self.work}/{uuid.uuid4().hex}"
        there = [name for name in names if self.files.exists(f"{self.table}/{name}")]
        rows = changes.unionByName(self._rows_of(there)) if there else changes
        merged = _last_of_each_key(rows, "bucket").where("value IS NOT NULL")
        # One file for a bucket: a small table stays small.
        merged = merged.repartition(len(names) or 1, "bucket").sortWithinPartitions("bucket", "key")
        merged.write.partitionBy("bucket").option("compression", self.compression).parquet(work)
        for name in names:
            self._replace(f"{work}/{name}", f"{self.table}/{name}")
        self.files.remove(self.work)

    def _replace(self, new: str, old: str) -> None:
        self.files.make_directory(new)  # all of its keys are deleted
        try:
            if self.files.exists(old):
                self.files.exchange(new, old)
            else:
                self.files.rename(new, old)
        except OSError as error:
            raise JobError(
                f"{old} cannot be brought up to date: its file system does not exchange directories "
                f"({error.strerror}); give a directory in a local file system of Linux"
            ) from None

    def _rows_of(self, names: list[str]) -> "DataFrame":
        paths = [f"{self.table}/{name}" for name in names]
        return self.session.read.schema(SCHEMA).option("basePath", self.table).parquet(*paths)


def _last_of_each_key(rows: "DataFrame", *more: str) -> "DataFrame":
    """One row for each key, deletions included."""
    from pyspark.sql import functions as f

    row = f.struct(*CONTENT)
    in_partition = rows.groupBy("key", "partition", *more).agg(f.max_by(row, "offset").alias("row"))
    # Only a key that is in two partitions has two rows here.
    newest = f.struct("row.timestamp", "row.partition", "row.offset")
    last = in_partition.groupBy("key", *more).agg(f.max_by("row", newest).alias("row"))
    return last.select("key", *(f.col(f"row.{name}").alias(name) for name in CONTENT), *more)
