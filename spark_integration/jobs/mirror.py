"""Topics of one cluster go into another: `odradek spark mirror`, or `run`.

    from odradek.spark.jobs import mirror
    mirror.run(spark, bootstrap_servers="localhost:9092", to_bootstrap_servers="localhost:9192",
    topics=["orders"], offsets="/data/orders-offsets")

Keys, values, headers, timestamps, partitions and the order in them stay the same; the target assigns new
offsets. A table maps old to new offsets (`offset_runs`), and translates committed offsets (`translate`, and
`groups` of `run`). Only committed records of the source are copied. Each record is in the target once for
readers with read_committed, and each run of offsets in the table once for every reader, after any kill.

The progress is stored twice, independently. Spark's checkpoint, beside the table, has the offsets of an
epoch. The markers in the target have the delivered offset of each partition, as of its last transaction
(`delivering`), with the runs of the epoch. So if an epoch was delivered but its runs are not in the table
(`publishing`), the next run adds them.
"""

import hashlib
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.client.cluster import LATEST
from odradek.client.progress import Progress
from odradek.spark.jobs import offset_runs
from odradek.spark.jobs.carrying_over import Groups
from odradek.spark.jobs.compaction import Compaction, SizeRules
from odradek.spark.jobs.delivering import (
    COMPRESSIONS,
    Delivery,
    mapping,
    recovering,
    take_over,
)
from odradek.spark.jobs.errors import JobError
from odradek.spark.jobs.files import Files, open_files
from odradek.spark.jobs.offset_runs import Place
from odradek.spark.jobs.publishing import STATE, Publisher
from odradek.spark.jobs.querying import DirectoryTable, Pace, TableQuery
from odradek.spark.jobs.targets import Targets
from odradek.spark.jobs.topics import ARROW_ROWS, Topics, job_session, kafka_options, options_of_other
from odradek.spark.report import Report, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp", "offset")
CODEC = "snappy"
"""Codec of the table's files."""
OPEN_FILES = 16
"""Topics whose runs one task writes at the same time; for more, Spark sorts."""
GROUPS_INTERVAL_S = 60
"""Between two translations of committed offsets in a stream."""
COMPACTION_INTERVAL_S = 3600
NOT_TAKEN = {
    "minpartitions": "a partition is copied by one task",
    "maxrecordsperpartition": "a partition is copied by one task",
    "kafka.isolation.level": "only what is committed is copied",
}
"""Options of the source, in lower case, that would break a promise of the job."""

TopicPartition = tuple[str, int]


def run(
    spark: "SparkSession",
    *,
    bootstrap_servers: str,
    to_bootstrap_servers: str,
    offsets: str,
    topics: Sequence[str] = (),
    topic_pattern: str | None = None,
    prefix: str = "",
    groups: Sequence[str] = (),
    stream: bool = False,
    trigger_seconds: float = 10.0,
    starting_offsets: str = "earliest",
    compression: str = "none",
    max_offsets_per_trigger: int | None = None,
    fail_on_data_loss: bool = True,
    compact: bool = False,
    size_rules: SizeRules | None = None,
    mirror_id: str | None = None,
    options: Mapping[str, str] | None = None,
    to_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Report:
    """Copies the present records; with `stream` continues until `stop` is set.

    A topic's copy has the topic's name after `prefix`, and is created if it is missing. `offsets` is the
    directory of the table of offsets. The offsets that `groups` have committed are translated and committed
    at the target at the end, in a stream every minute as well. `starting_offsets` (Spark's `startingOffsets`)
    is for the first run. The progress belongs to the two topics, source and copy; a mirror with its own
    `mirror_id` copies all of it once more. `options` are more options of the source; those that begin with
    `kafka.` are also for the target's brokers; with `to_options` those for TLS and SASL are not, and these
    are. JobError for any error.
    """
    more = dict(options or {})
    source = Topics(bootstrap_servers, tuple(topics), topic_pattern, options=more)
    target = Topics(to_bootstrap_servers, options=options_of_other(more, to_options))
    pace = Pace(stream, trigger_seconds, max_offsets_per_trigger, starting_offsets, fail_on_data_loss)
    pace.check()
    _check(more, compression)
    carried = Groups(tuple(groups), source, target)
    table = offsets.rstrip("/")
    files = open_files(spark, table)
    targets = Targets(source, target, prefix, files, f"{table}/{STATE}/topics.json")
    targets.check()
    carried.check()
    session = job_session(spark)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS))
    session.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(OPEN_FILES))
    job = _Mirror(session, files, table, targets, carried, pace, compression, mirror_id)
    if compact:
        order = ("partition", "source_start")
        job.compaction = Compaction(session, files, table, size_rules or SizeRules(), CODEC, order)
    progress = progress or Progress("mirror", None)
    query = TableQuery(
        "mirror", session, source, DirectoryTable(files, table), job.take, target.bootstrap_servers
    )
    job.query = query
    try:
        with query.held({"prefix": prefix, "id": mirror_id}):
            job.prepare()
            query.run(pace, lambda lag: job.report_progress(progress, lag), stop or threading.Event())
            job.compact()
            job.carry_over()
    finally:
        progress.clear()
    return job.report(progress)


def translate(
    spark: "SparkSession", *, offsets: str, committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Place]:
    """Translates committed offsets, by topic and partition of the source, into places in the copies.

    A place is the first record that the group has not read. Partitions without mirrored records are left out.
    """
    table = offsets.rstrip("/")
    if not open_files(spark, table).exists(f"{table}/{STATE}/mirror.json"):
        raise JobError(f"{table} is not a table of odradek spark mirror: it has no {STATE}/mirror.json")
    session = job_session(spark)
    return offset_runs.translated(session, _read(session, table), committed)


def _read(session: "SparkSession", path: str) -> "DataFrame":
    return session.read.schema(offset_runs.SCHEMA).parquet(path)


def _check(options: Mapping[str, str], compression: str) -> None:
    if compression not in COMPRESSIONS:
        raise JobError(f"compression {compression!r} is none: it is {', '.join(COMPRESSIONS)}")
    for name in options:
        if name.lower() in NOT_TAKEN:
            raise JobError(f"mirror does not take the option {name}: {NOT_TAKEN[name.lower()]}; remove it")


@dataclass
class _Totals:
    """Totals of this run."""

    rows: int = 0
    found: int = 0
    """Rows that a run before had copied, but whose runs were not in the table."""
    size_bytes: int = 0
    epochs: int = 0
    compacted: int = 0


@dataclass
class _Mirror:
    session: "SparkSession"
    files: Files
    table: str
    targets: Targets
    groups: Groups
    pace: Pace
    compression: str
    id: str | None
    compaction: Compaction | None = None
    totals: _Totals = field(default_factory=_Totals)
    carried: Table | None = None
    begun: int | None = None
    """The epoch that the run before has begun."""
    started: dict[TopicPartition, int] | None = None
    """Start of the present epoch, None if unknown."""
    ends_before: int | None = None
    """Sum of the ends of the copies at the start of the present epoch."""
    next_compaction: float = field(default_factory=lambda: time.monotonic() + COMPACTION_INTERVAL_S)
    next_groups: float = field(default_factory=lambda: time.monotonic() + GROUPS_INTERVAL_S)
    query: TableQuery = field(init=False)

    def prepare(self) -> None:
        """Creates the copies and the markers topic if they are missing."""
        from odradek.spark import markers

        self.begun = self.query.epoch_begun()
        self.targets.bring_up()
        with self.targets.target.cluster() as cluster:
            markers.prepare(cluster)
        if self.compaction is not None:
            self.compaction.remove_leftovers()

    def take(self, batch: "DataFrame", number: int) -> None:
        """One epoch."""
        self.targets.bring_up()  # the epoch may have newer records
        self.started = self.query.offsets_committed() or self._beginnings()
        self.ends_before = self.targets.sum_of_ends()
        publisher = Publisher(self.files, self.table)
        publisher.publish(number, lambda path: self._write(batch, number, path))
        self.ends_before = self.started = None
        self.totals.epochs += 1
        if time.monotonic() > self.next_compaction:
            self.compact()

    def _beginnings(self) -> dict[TopicPartition, int] | None:
        """The start of the first epoch."""
        if self.pace.starting_offsets != "earliest":
            return None
        return {key: start for key, (start, _) in self.targets.source.ranges().items()}

    def _write(self, batch: "DataFrame", number: int, path: str) -> int:
        """Delivers an epoch, and writes its runs below `path`."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        deliveries = self._deliveries(number)
        # The source makes one task of each partition, with its rows in order: no sort is needed.
        runs = batch.select(*COLUMNS).mapInArrow(mapping(deliveries), offset_runs.REPORT_SCHEMA)
        with ExitStack() as stack:
            if number == self.begun:
                take_over(deliveries)
                runs = runs.persist()
                stack.callback(runs.unpersist)
                runs = runs.unionByName(self._runs_of_lost_rows(deliveries, runs))
            observed = Observation()
            runs = runs.observe(
                observed,
                f.sum(f.expr("IF(was_there, 0, rows)")).alias("rows"),
                f.sum(f.expr("IF(was_there, rows, 0)")).alias("found"),
                f.sum("size_bytes").alias("size_bytes"),
            )
            files = runs.drop("was_there", "size_bytes").write.partitionBy("topic")
            files.option("compression", CODEC).parquet(path)
        new, found = int(observed.get["rows"] or 0), int(observed.get["found"] or 0)
        self.totals.rows += new
        self.totals.found += found
        self.totals.size_bytes += int(observed.get["size_bytes"] or 0)
        return new + found

    def _runs_of_lost_rows(self, deliveries: Mapping[str, Delivery], runs: "DataFrame") -> "DataFrame":
        """The runs of a repeated epoch in partitions without a repeated row, because the source has lost
        them."""
        there = {(row.topic, row.partition) for row in runs.select("topic", "partition").distinct().collect()}
        left = [
            (topic, partition)
            for topic, delivery in deliveries.items()
            for partition in range(delivery.partitions)
            if (topic, partition) not in there
        ]
        requested = self.session.createDataFrame(left, "topic STRING, partition INT")
        return requested.mapInArrow(recovering(deliveries), offset_runs.REPORT_SCHEMA)

    def _deliveries(self, epoch: int) -> dict[str, Delivery]:
        target = self.targets.target
        settings = kafka_options(target.bootstrap_servers, target.options)
        return {
            name: Delivery(
                self._delivery_id(name),
                settings,
                copy.name,
                self.targets.partitions[copy.name],
                self.compression,
                epoch=epoch,
            )
            for name, copy in self.targets.known.items()
            if copy.name in self.targets.partitions
        }

    def _delivery_id(self, topic: str) -> str:
        """The same for another table: two of them must not copy the same twice."""
        copy = self.targets.known[topic]
        made = f"{topic} {copy.source_id} {copy.name} {copy.target_id} {self.id or ''}"
        return f"mirror-{hashlib.sha256(made.encode()).hexdigest()[:16]}"

    def report_progress(self, progress: Progress, lag: int | None) -> None:
        """Shows the progress, and sometimes moves the groups. `lag` is the lag between epochs."""
        is_due = self.groups.names and time.monotonic() > self.next_groups
        # Not while an epoch is added to the table, which has to be complete.
        if is_due and self.query.writing.acquire(blocking=False):
            try:
                self.carry_over()
            finally:
                self.query.writing.release()
        if not progress.is_due():
            return
        rows, before, started = self.totals.rows, self.ends_before, self.started
        with suppress(JobError):  # if brokers are away, the epoch raises the error
            if before is not None:
                rows += max(0, self.targets.sum_of_ends() - before)
            if started is not None:
                with self.targets.source.cluster() as cluster:
                    ends = cluster.list_offsets(dict.fromkeys(started, LATEST), read_committed=True)
                begun = rows - self.totals.rows
                lag = max(0, sum(ends.values()) - sum(started.values()) - begun)
        progress.update(rows, self.totals.size_bytes or None, lag=lag)

    def compact(self) -> None:
        """Call it between two epochs or after the last, when nobody adds files to the table."""
        if self.compaction is not None:
            self.totals.compacted += self.compaction.run()
            self.next_compaction = time.monotonic() + COMPACTION_INTERVAL_S

    def carry_over(self) -> None:
        """Moves the groups to the copies."""
        if self.groups.names:
            self.carried = self.groups.carry_over(self.session, _read(self.session, self.table))
            self.next_groups = time.monotonic() + GROUPS_INTERVAL_S

    def report(self, progress: Progress) -> Report:
        """The report of this run."""
        totals, seconds, target = self.totals, progress.seconds, self.targets.target
        report = Report(
            "mirror", f"{totals.rows:,} rows of {self.targets.source} went to {target.bootstrap_servers}"
        )
        report.figures = {
            "rows": totals.rows,
            "rows that were there already": totals.found,
            "epochs": totals.epochs,
            "bytes": totals.size_bytes,
            "seconds": round(seconds, 1),
            "rows a second": round(totals.rows / max(seconds, 1e-9)),
        }
        if self.compaction is not None:
            report.figures["small files merged"] = totals.compacted
        reached = [(*key, offset) for key, offset in sorted(self.query.offsets_committed().items())]
        report.tables = [Table("mirrored up to", ("topic", "partition", "offset"), reached)]
        if self.carried is not None:
            report.tables.append(self.carried)
        if self.targets.settings_left_out:
            columns = ("topic", "setting that its brokers do not take")
            report.tables.append(Table("settings left out", columns, self.targets.settings_left_out))
        return report
