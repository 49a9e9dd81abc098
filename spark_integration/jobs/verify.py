"""Compares a topic with a table or with a second topic: `odradek spark verify`, or `run`.

    from odradek.spark.jobs import verify
    report = verify.run(spark, bootstrap_servers="localhost:9092", topic="orders", table="/data/orders")
    assert report.ok, report.differences

Per partition and window the numbers of rows, the missing offsets and a sum of the CRC-32 of each row (key,
value, headers, timestamp, place) are compared, and the first rows that differ are shown. With a table the
place of a row is its offset. With a topic it is its position in the partition, because transactions and
compaction leave gaps in one log and not in the other.

Rows that retention has removed from the topic are counted, and are not a difference. Rows that the table does
not have yet are a difference, unless a lag is allowed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.client.progress import Progress
from odradek.spark.jobs import sides
from odradek.spark.jobs.errors import JobError, sentence_of
from odradek.spark.jobs.tables import read_table
from odradek.spark.jobs.topics import READ_COMMITTED, Ranges, Topics, job_session, options_of_other
from odradek.spark.report import Plot, Report, Table
from odradek.spark.watching import watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOW_ROWS = 10_000
WINDOWS_MAX = 20_000
"""The most windows of all partitions together: their sums are in the driver's memory."""
SHOWN = 10
WINDOWS_COMPARED = 20
"""The most windows that are compared row by row."""


def run(
    spark: "SparkSession",
    *,
    bootstrap_servers: str,
    topic: str,
    table: str | None = None,
    table_format: str = "parquet",
    other_topic: str | None = None,
    other_bootstrap_servers: str | None = None,
    isolation: str = READ_COMMITTED,
    window_rows: int = WINDOW_ROWS,
    allow_lag: bool = False,
    options: Mapping[str, str] | None = None,
    other_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Compares the topic with `table`, or with `other_topic` (of other brokers, if given).

    `table_format` is "parquet" or "iceberg" (whose table is `catalog.namespace.name`). `report.ok` is true if
    all is the same. Windows have `window_rows` offsets or positions, or more if there would be too many
    windows. `options` are more options of the source, for both topics; with `other_options` those for TLS and
    SASL are for the first one alone, and these for the other. JobError if the two cannot be compared.
    """
    if (table is None) == (other_topic is None):
        raise JobError("there is nothing to compare with: name a table, or another topic, and not both")
    if window_rows < 1:
        raise JobError(f"a window of {window_rows} rows is none: it is 1 or more")
    progress = progress or Progress("verify", None)
    session = job_session(spark)
    source = Topics(bootstrap_servers, (topic,), None, isolation, dict(options or {}))
    ranges = source.ranges()
    try:
        if table is not None:
            job = _against_table(session, source, ranges, table, table_format, allow_lag)
        else:
            assert other_topic is not None
            servers = other_bootstrap_servers or bootstrap_servers
            more = options_of_other(options or {}, other_options)
            other = Topics(servers, (other_topic,), None, isolation, more)
            job = _against_topic(session, source, ranges, other)
        rows = sum(end - start for start, end in ranges.values())
        job.window_rows = max(window_rows, -(-rows // WINDOWS_MAX))
        return job.report(progress)
    except JobError:
        raise
    except Exception as error:
        raise JobError(f"verifying topic {topic} failed: {sentence_of(error)}") from None
    finally:
        progress.clear()


@dataclass
class _Verification:
    session: "SparkSession"
    names: tuple[str, str]
    one: "DataFrame"
    other: "DataFrame"
    ranges: Ranges
    by_offset: bool
    older: int = 0
    """Rows of the table that the topic no longer has."""
    lag: int | None = None
    """Offsets of the topic after the table's last ones, if a lag is allowed."""
    window_rows: int = WINDOW_ROWS

    def report(self, progress: Progress) -> Report:
        ones = watched(self.session, progress, self.names[0], lambda: sides.sums(self.one, self.window_rows))
        others = watched(
            self.session, progress, self.names[1], lambda: sides.sums(self.other, self.window_rows)
        )
        different = sides.compared(ones, others)
        found = []
        if different:
            looked_at = different[:WINDOWS_COMPARED]
            found = watched(
                self.session,
                progress,
                "differences",
                lambda: sides.differences(
                    self.one, self.other, self.names, looked_at, self.window_rows, SHOWN
                ),
            )
        return self._report(ones, others, different, found)

    def _report(
        self,
        ones: dict[sides.Window, sides.Sums],
        others: dict[sides.Window, sides.Sums],
        different: list[sides.Window],
        found: list[sides.Difference],
    ) -> Report:
        rows = [sum(sums.rows for sums in side.values()) for side in (ones, others)]
        same = f"{self.names[0]} and {self.names[1]} have the same {rows[0]:,} rows"
        summary = same if not different else f"{self.names[0]} and {self.names[1]} differ"
        report = Report("verify", summary, ok=not different)
        report.figures = {
            f"rows in {self.names[0]}": rows[0],
            f"rows in {self.names[1]}": rows[1],
            "partitions": len(self.ranges),
            "windows": len(ones.keys() | others.keys()),
            "windows that differ": len(different),
            "rows of a window": self.window_rows,
        }
        if self.by_offset:
            report.figures["rows that the topic has no more"] = self.older
        if self.lag is not None:
            report.figures["offsets that the table has not reached"] = self.lag
        place = "offset" if self.by_offset else "position"
        report.differences = [
            f"partition {one.partition}, {place} {one.place:,}: {one.text}" for one in found
        ]
        report.tables = [
            self._partitions(ones, others, different),
            *([self._windows(ones, others, different)] if different else []),
        ]
        report.plots = [_plot(self.names, ones, others)]
        return report

    def _partitions(
        self,
        ones: dict[sides.Window, sides.Sums],
        others: dict[sides.Window, sides.Sums],
        different: list[sides.Window],
    ) -> Table:
        """One row for each partition."""
        partitions = sorted({(topic, partition) for topic, partition, _ in (ones.keys() | others.keys())})
        rows = []
        for key in sorted({*partitions, *self.ranges}):
            mine = [[sums for window, sums in side.items() if window[:2] == key] for side in (ones, others)]
            counts = [sum(sums.rows for sums in side) for side in mine]
            missing = [_missing(side) for side in mine]
            crcs = [f"{sum(sums.crc_sum for sums in side) & 0xFFFFFFFF:08x}" for side in mine]
            number = sum(window[:2] == key for window in different)
            rows.append((key[1], *counts, *missing, *crcs, number))
        one, other = ("topic", "table") if self.by_offset else self.names
        columns: tuple[str, ...] = ("partition", f"rows, {one}", f"rows, {other}", f"missing offsets, {one}")
        columns += (f"missing offsets, {other}", f"CRC, {one}", f"CRC, {other}", "windows that differ")
        return Table("partitions", columns, rows)

    def _windows(
        self,
        ones: dict[sides.Window, sides.Sums],
        others: dict[sides.Window, sides.Sums],
        different: list[sides.Window],
    ) -> Table:
        rows = []
        for window in different:
            first = window[2] * self.window_rows
            mine = [side.get(window) for side in (ones, others)]
            counts = [sums.rows if sums else 0 for sums in mine]
            crcs = [f"{sums.crc_sum & 0xFFFFFFFF:08x}" if sums else None for sums in mine]
            rows.append((window[1], first, first + self.window_rows - 1, *counts, *crcs))
        place = "offset" if self.by_offset else "position"
        columns: tuple[str, ...] = ("partition", f"first {place}", f"last {place}")
        columns += (f"rows, {self.names[0]}", f"rows, {self.names[1]}")
        return Table(
            "windows that differ", (*columns, f"CRC, {self.names[0]}", f"CRC, {self.names[1]}"), rows
        )


def _missing(side: list[sides.Sums]) -> int:
    """Offsets between the first row and the last that no row has."""
    if not side:
        return 0
    span = max(sums.last_offset for sums in side) - min(sums.first_offset for sums in side) + 1
    return max(0, span - sum(sums.rows for sums in side))


def _plot(
    names: tuple[str, str], ones: dict[sides.Window, sides.Sums], others: dict[sides.Window, sides.Sums]
) -> Plot:
    """Rows by window, all partitions together."""
    series: dict[str, Any] = {}
    for name, side in zip(names, (ones, others), strict=True):
        points: dict[int, int] = {}
        for (_, _, window), sums in side.items():
            points[window] = points.get(window, 0) + sums.rows
        series[name] = sorted(points.items())
    return Plot("Rows by window, all partitions together", "window", "rows", series)


def _against_table(
    session: "SparkSession",
    source: Topics,
    ranges: Ranges,
    table: str,
    table_format: str,
    allow_lag: bool,
) -> _Verification:
    from pyspark.sql import functions as f

    topic = source.names[0]
    # `day` is not compared: a wrong directory does not change the content.
    rows = read_table(session, table, table_format).where(f.col("topic") == topic).drop("day")
    ends = f.lit(None).cast("long")
    starts = f.lit(None).cast("long")
    for (_, partition), (start, end) in ranges.items():
        starts = f.when(f.col("partition") == partition, f.lit(start)).otherwise(starts)
        ends = f.when(f.col("partition") == partition, f.lit(end)).otherwise(ends)
    older = rows.where(f.col("offset") < starts).count()
    lag = None
    if allow_lag:
        last = {
            row.partition: row["last"]
            for row in rows.groupBy("partition").agg(f.max("offset").alias("last")).collect()
        }
        whole, ranges = ranges, {}
        for (name, partition), (start, end) in whole.items():
            ranges[name, partition] = start, min(end, max(start, last.get(partition, -1) + 1))
        lag = sum(whole[key][1] - ranges[key][1] for key in whole)
    # A partition that the topic does not have is a difference; rows since the start are not.
    rows = rows.where(f.coalesce((f.col("offset") >= starts) & (f.col("offset") < ends), f.lit(True)))
    places = f.col("offset").alias("place")
    one = source.batch(session, ranges).select("*", places)
    names = (f"topic {topic}", f"table {table}")
    return _Verification(session, names, one, rows.select("*", places), ranges, True, older, lag)


def _against_topic(session: "SparkSession", source: Topics, ranges: Ranges, other: Topics) -> _Verification:
    from pyspark.sql import functions as f

    other_ranges = other.ranges()
    if len(ranges) != len(other_ranges):
        raise JobError(
            f"topic {source.names[0]} has {len(ranges)} partitions and topic {other.names[0]} "
            f"{len(other_ranges)}: they cannot be compared partition by partition"
        )
    one = sides.with_positions(source.batch(session, ranges))
    two = sides.with_positions(other.batch(session, other_ranges)).withColumn("topic", f.lit(source.names[0]))
    names = (f"topic {source.names[0]}", f"topic {other.names[0]}")
    if names[0] == names[1]:
        names = (f"{names[0]} at {source.bootstrap_servers}", f"{names[1]} at {other.bootstrap_servers}")
    return _Verification(session, names, one, two, ranges, False)
