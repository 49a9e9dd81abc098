"""Writes a table back into a topic: `odradek spark replay`, or `run`.

    from odradek.spark.jobs import replay
    replay.run(spark, bootstrap_servers="localhost:9092", table="/data/orders", topic="orders",
    to_topic="orders-2")

Keys, values, headers, timestamps, partitions and the order in them stay the same; the topic assigns new
offsets. Readers with read_committed see every row exactly once: an interrupted replay continues when it is
started again, and a complete replay adds the new rows of the table. The progress belongs to the replay's id,
which is made of table, topic and the id of the target topic unless it is given.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.client.progress import Progress
from odradek.spark.jobs.delivering import COMPRESSIONS, RESULT, Delivery, delivering
from odradek.spark.jobs.errors import JobError, sentence_of
from odradek.spark.jobs.tables import read_table
from odradek.spark.jobs.targets import check_timestamps, sum_of_ends
from odradek.spark.jobs.topics import ARROW_ROWS, Topics, job_session, kafka_options
from odradek.spark.report import Report, Table
from odradek.spark.watching import watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(
    spark: "SparkSession",
    *,
    bootstrap_servers: str,
    table: str,
    table_format: str = "parquet",
    topic: str,
    to_topic: str | None = None,
    replay_id: str | None = None,
    rows_per_second: float | None = None,
    compression: str = "none",
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Replays the rows of `topic` in the table into `to_topic` (default: of the same name), which has to be
    there.

    `table_format` is "parquet" or "iceberg" (whose table is `catalog.namespace.name`). `rows_per_second`
    limits all partitions together. JobError for errors in table, topic or options.
    """
    if compression not in COMPRESSIONS:
        raise JobError(f"compression {compression!r} is none: it is {', '.join(COMPRESSIONS)}")
    if rows_per_second is not None and rows_per_second <= 0:
        raise JobError(f"{rows_per_second:g} rows a second are none: give a number above 0, or nothing")
    progress = progress or Progress("replay", None)
    session = job_session(spark)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS))
    target = Topics(bootstrap_servers, (to_topic or topic,), options=dict(options or {}))
    target.check()
    rows = read_table(session, table, table_format).where(f"topic = {_quoted(topic)}")
    try:
        job = _replay(session, target, rows, table, topic, replay_id, rows_per_second, compression)
        return job.run(progress)
    except JobError:
        raise
    except Exception as error:
        raise JobError(
            f"replaying {table} into topic {target.names[0]} failed: {sentence_of(error)}"
        ) from None
    finally:
        progress.clear()


@dataclass
class _Replay:
    session: "SparkSession"
    target: Topics
    delivery: Delivery
    topic: str
    rows: "DataFrame"
    count: int
    ends: int
    """Sum of the ends of the target's partitions at the start."""
    parallel: int

    def run(self, progress: Progress) -> Report:
        sorted_rows = (
            self.rows.select("key", "value", "headers", "topic", "partition", "timestamp", "offset")
            .repartition(self.parallel, "partition")
            .sortWithinPartitions("partition", "offset")
        )
        deliver = delivering({self.topic: self.delivery})
        results = watched(
            self.session,
            progress,
            "",
            lambda: sorted_rows.mapInArrow(deliver, RESULT).collect(),
            lambda: min(self.count, self._ends() - self.ends),
            self.count,
        )
        written, skipped = sum(r["rows"] for r in results), sum(r["skipped"] for r in results)
        topic = self.target.names[0]
        report = Report("replay", f"{written:,} rows went into topic {topic}")
        report.figures = {
            "rows": written,
            "rows that were there already": skipped,
            "replay id": self.delivery.id,
            "seconds": round(progress.seconds, 1),
            "rows a second": round(written / max(progress.seconds, 1e-9)),
        }
        columns = ("partition", "rows", "there already", "up to the table's offset")
        of_partitions = sorted(
            (r["partition"], r["rows"], r["skipped"], r["next_offset"] - 1) for r in results
        )
        report.tables = [Table("partitions", columns, of_partitions)]
        return report

    def _ends(self) -> int:
        with self.target.cluster() as cluster:
            return sum_of_ends(cluster, {self.delivery.topic: self.delivery.partitions})


def _replay(
    session: "SparkSession",
    target: Topics,
    rows: "DataFrame",
    table: str,
    topic: str,
    replay_id: str | None,
    rows_per_second: float | None,
    compression: str,
) -> _Replay:
    from odradek.spark import markers

    counts = {row["partition"]: row["count"] for row in rows.groupBy("partition").count().collect()}
    if not counts:
        raise JobError(f"the table {table} has no row of topic {topic}")
    name = target.names[0]
    with target.cluster() as cluster:
        partitions = cluster.partitions_of([name])[name]
        if partitions <= max(counts):
            raise JobError(
                f"topic {name} has {partitions} partitions, and the table has rows of partition "
                f"{max(counts)}: create it with {max(counts) + 1} or more"
            )
        check_timestamps(cluster, name)
        markers.prepare(cluster)
        made = f"{table.rstrip('/')} {topic} {name} {cluster.topic_id(name).hex()}"
        ends = sum_of_ends(cluster, {name: partitions})
    delivery_id = replay_id or f"replay-{hashlib.sha256(made.encode()).hexdigest()[:16]}"
    parallel = min(len(counts), session.sparkContext.defaultParallelism)
    delivery = Delivery(
        delivery_id,
        kafka_options(target.bootstrap_servers, target.options),
        name,
        partitions,
        compression,
        None if rows_per_second is None else rows_per_second / parallel,
    )
    return _Replay(session, target, delivery, topic, rows, sum(counts.values()), ends, parallel)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
