"""Contents of a topic: `odradek spark profile`, or `run`.

    from odradek.spark.jobs import profile
    print(profile.run(spark, bootstrap_servers="localhost:9092", topic="orders").text())

Rates over time, sizes of keys and values, keys with most rows, keys that occur more than once, gaps in the
offsets; and of the record batches codecs and their savings (and of other codecs, by a sample), and the
producers. The job reads the log as of its start twice, once as rows and once as batches.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odradek.client.progress import Progress
from odradek.spark.jobs.errors import JobError, sentence_of
from odradek.spark.jobs.scanning import BATCHES, CODECS, scanning
from odradek.spark.jobs.topics import READ_COMMITTED, Ranges, Topics, job_session, kafka_options
from odradek.spark.report import Plot, Report, Table
from odradek.spark.watching import watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME_SLOTS = 100
"""Points of the plot of rates."""
KEYS_SHOWN = 20
PRODUCERS_SHOWN = 50
RANGES_OF_A_PARTITION = 4
SHARES = (0.5, 0.9, 0.99, 1.0)
SHOWN_BYTES = 40


def run(
    spark: "SparkSession",
    *,
    bootstrap_servers: str,
    topic: str,
    isolation: str = READ_COMMITTED,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """A report on the present topic. JobError for a missing topic, and for wrong options."""
    progress = progress or Progress("profile", None)
    session = job_session(spark)
    source = Topics(bootstrap_servers, (topic,), None, isolation, dict(options or {}))
    ranges = source.ranges()
    try:
        rows = source.batch(session, ranges)
        partitions = watched(session, progress, "rows", lambda: _partitions(rows))
        sizes = watched(session, progress, "sizes", lambda: _sizes(rows))
        keys = watched(session, progress, "keys", lambda: _keys(rows))
        times = watched(session, progress, "times", lambda: _times(rows, partitions))
        settings = kafka_options(bootstrap_servers, source.options)
        batches = watched(session, progress, "batches", lambda: _batches(session, settings, topic, ranges))
    except Exception as error:
        raise JobError(f"profiling topic {topic} failed: {sentence_of(error)}") from None
    finally:
        progress.clear()
    return _report(topic, ranges, partitions, sizes, keys, times, batches)


# Spark's part ------------------------------------------------------------------------------------------


def _partitions(rows: "DataFrame") -> list[Any]:
    from pyspark.sql import functions as f

    found: list[Any] = (
        rows.groupBy("partition")
        .agg(
            f.count(f.lit(1)).alias("rows"),
            f.sum(f.expr("coalesce(length(key), 0) + coalesce(length(value), 0)")).alias("bytes"),
            f.sum(f.expr("CAST(key IS NULL AS BIGINT)")).alias("without_key"),
            f.sum(f.expr("CAST(value IS NULL AS BIGINT)")).alias("tombstones"),
            f.sum(f.expr("CAST(coalesce(size(headers), 0) > 0 AS BIGINT)")).alias("with_headers"),
            f.min("offset").alias("first"),
            f.max("offset").alias("last"),
            f.min(f.expr("unix_millis(timestamp)")).alias("first_ms"),
            f.max(f.expr("unix_millis(timestamp)")).alias("last_ms"),
        )
        .orderBy("partition")
        .collect()
    )
    return found


def _sizes(rows: "DataFrame") -> dict[str, list[int] | None]:
    """Bytes at each of SHARES, of keys and values that are not null."""
    shares = ", ".join(map(str, SHARES))
    row = rows.selectExpr(
        *(f"percentile_approx(length({name}), array({shares})) AS {name}" for name in ("key", "value"))
    ).first()
    assert row is not None
    return {name: row[name] for name in ("key", "value")}


def _keys(rows: "DataFrame") -> tuple[int, int, list[Any]]:
    """The number of keys, the number of repeated keys, and the keys with most rows."""
    from pyspark.sql import functions as f

    counts = rows.where("key IS NOT NULL").groupBy("key").count().persist()
    try:
        row = counts.agg(
            f.count(f.lit(1)).alias("keys"), f.sum(f.expr("CAST(count > 1 AS BIGINT)")).alias("again")
        ).first()
        assert row is not None
        top = counts.orderBy(f.desc("count"), "key").limit(KEYS_SHOWN).collect()
    finally:
        counts.unpersist()
    return row["keys"], row["again"] or 0, top


def _times(rows: "DataFrame", partitions: list[Any]) -> list[tuple[int, int, int]]:
    """(start in ms, rows, bytes) of slots of the same length."""
    from pyspark.sql import functions as f

    if not partitions:
        return []
    first = min(row.first_ms for row in partitions)
    slot_ms = _slot_ms(first, max(row.last_ms for row in partitions))
    slots = (
        rows.groupBy(f.expr(f"floor((unix_millis(timestamp) - {first}) / {slot_ms})").alias("slot"))
        .agg(
            f.count(f.lit(1)).alias("rows"),
            f.sum(f.expr("coalesce(length(key), 0) + coalesce(length(value), 0)")).alias("bytes"),
        )
        .collect()
    )
    found = {row.slot: (row["rows"], row["bytes"]) for row in slots}
    # Slots without rows are as much a part of the rate as the others.
    return [(first + slot * slot_ms, *found.get(slot, (0, 0))) for slot in range(max(found) + 1)]


def _slot_ms(first_ms: int, last_ms: int) -> int:
    return max(1, -(-(last_ms - first_ms + 1) // TIME_SLOTS))


def _batches(session: "SparkSession", settings: Mapping[str, str], topic: str, ranges: Ranges) -> list[Any]:
    from pyspark.sql import functions as f

    pieces = [piece for (_, partition), bounds in ranges.items() for piece in _pieces(partition, *bounds)]
    if not pieces:
        return []
    frame = session.createDataFrame(pieces, "partition INT, start BIGINT, end BIGINT").repartition(
        len(pieces)
    )
    keys = ["partition", "codec", "producer_id", "producer_epoch", "is_transactional", "is_control"]
    names = [column.strip().split()[0] for column in BATCHES.split(",")]
    sums = [f.sum(name).alias(name) for name in names if name not in keys]
    scanned = frame.mapInArrow(scanning(settings, topic), BATCHES)
    found: list[Any] = scanned.groupBy(*keys).agg(*sums).collect()
    return found


def _pieces(partition: int, start: int, end: int) -> list[tuple[int, int, int]]:
    step = max(1, -(-(end - start) // RANGES_OF_A_PARTITION))
    return [(partition, at, min(end, at + step)) for at in range(start, end, step)]


# The report --------------------------------------------------------------------------------------------


def _report(
    topic: str,
    ranges: Ranges,
    partitions: list[Any],
    sizes: dict[str, list[int] | None],
    keys: tuple[int, int, list[Any]],
    times: list[tuple[int, int, int]],
    batches: list[Any],
) -> Report:
    rows = sum(row["rows"] for row in partitions)
    with_key = rows - sum(row.without_key for row in partitions)
    number, again, top = keys
    report = Report("profile", f"topic {topic} has {rows:,} rows in {len(ranges)} partitions")
    report.figures = {
        "rows": rows,
        "bytes of keys and values": sum(row.bytes for row in partitions),
        "bytes in the log": sum(row.stored_bytes for row in batches),
        "keys": number,
        "keys with more than one row": again,
        "rows without a key": rows - with_key,
        "rows without a value": sum(row.tombstones for row in partitions),
        "rows with headers": sum(row.with_headers for row in partitions),
        "first timestamp": _time(min((row.first_ms for row in partitions), default=None)),
        "last timestamp": _time(max((row.last_ms for row in partitions), default=None)),
    }
    report.tables = [
        _partition_table(ranges, partitions),
        Table(
            "sizes in bytes",
            ("of", *(f"{share:.0%} have at most" for share in SHARES)),
            [(name, *found) for name, found in sizes.items() if found],
        ),
        Table(
            "keys with most rows",
            ("key", "rows", "% of the rows with a key"),
            [(_shown(row.key), row["count"], 100 * row["count"] / with_key) for row in top],
        ),
        _codec_table(batches),
        _sample_table(batches),
        _producer_table(batches),
    ]
    report.plots = _plots(times, top)
    return report


def _partition_table(ranges: Ranges, partitions: list[Any]) -> Table:
    """Offsets without a row are control records, aborted records, and compacted ones."""
    found = {row.partition: row for row in partitions}
    rows = []
    for (_, partition), (start, end) in sorted(ranges.items()):
        row = found.get(partition)
        number = row["rows"] if row else 0
        rows.append((partition, start, end, number, end - start - number, row.bytes if row else 0))
    return Table(
        "partitions", ("partition", "first offset", "end", "rows", "offsets without a row", "bytes"), rows
    )


def _codec_table(batches: list[Any]) -> Table:
    rows = []
    for codec in sorted({row.codec for row in batches}):
        mine = [row for row in batches if row.codec == codec and not row.is_control]
        stored, plain = sum(row.stored_bytes for row in mine), sum(row.plain_bytes for row in mine)
        count = sum(row.batches for row in mine)
        if count:
            number = sum(row["rows"] for row in mine)
            rows.append((codec, count, number, number / count, stored, plain, plain / stored))
    columns = ("codec", "batches", "rows", "rows a batch", "bytes in the log", "bytes unpacked", "ratio")
    return Table("codecs", columns, rows)


def _sample_table(batches: list[Any]) -> Table:
    sampled = sum(row.sampled_bytes for row in batches)
    rows = []
    for codec in CODECS:
        size_bytes = sum(row[f"as_{codec.name.lower()}"] for row in batches)
        if sampled and size_bytes:
            rows.append((codec.name.lower(), sampled, size_bytes, sampled / size_bytes))
    return Table(
        "a sample of the batches in every codec", ("codec", "bytes unpacked", "packed", "ratio"), rows
    )


def _producer_table(batches: list[Any]) -> Table:
    found: dict[tuple[int, int], list[int]] = {}
    for row in batches:
        sums = found.setdefault((row.producer_id, row.producer_epoch), [0, 0, 0, 0])
        sums[0] += row.batches if not row.is_control else 0
        sums[1] += row["rows"] if not row.is_control else 0
        sums[2] += row["rows"] if row.is_transactional and not row.is_control else 0
        sums[3] += row["rows"] if row.is_control else 0
    rows = [
        (None if producer_id < 0 else producer_id, None if producer_id < 0 else epoch, *sums)
        for (producer_id, epoch), sums in sorted(found.items(), key=lambda item: -item[1][1])
    ]
    columns = ("producer id", "epoch", "batches", "rows", "of them in transactions", "ends of transactions")
    return Table("producers (without an id: not idempotent)", columns, rows[:PRODUCERS_SHOWN])


def _plots(times: list[tuple[int, int, int]], top: list[Any]) -> list[Plot]:
    seconds = (times[1][0] - times[0][0]) / 1000 if len(times) > 1 else 1.0
    rates = {"rows": [(start, rows / seconds) for start, rows, _ in times]}
    volumes = {"bytes": [(start, size_bytes / seconds) for start, _, size_bytes in times]}
    skew = {"rows": [(place + 1, row["count"]) for place, row in enumerate(top)]}
    return [
        Plot("Rows a second, by timestamp (UTC)", "timestamp", "rows/s", dict(rates), x_is_time=True),
        Plot("Bytes a second, by timestamp (UTC)", "timestamp", "bytes/s", dict(volumes), x_is_time=True),
        Plot("Rows of the keys that have most", "place of the key", "rows", dict(skew)),
    ]


def _time(milliseconds: int | None) -> str | None:
    from datetime import UTC, datetime

    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).isoformat(timespec="milliseconds")


def _shown(key: Any) -> str:
    start = repr(bytes(key[:SHOWN_BYTES])).removeprefix("b")
    return start if len(key) <= SHOWN_BYTES else f"{start}… ({len(key):,} bytes)"
