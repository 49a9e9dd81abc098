"""Compares two logs: sums per partition and window, then the rows of windows that differ.

A *side* is a table of Spark with the columns `topic, partition, place, offset, timestamp, key, value,
headers`. `place` identifies a row: the offset, or the position in the partition where offsets may differ.
Windows are ranges of places. Spark computes a row of sums for each window; only windows that differ are
compared row by row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN_BYTES = 40
SHOWN_PARTS = ("timestamp", "key", "value", "headers")

Window = tuple[str, int, int]
"""Topic, partition, number of the window."""


def _netstring(column: str) -> str:
    """Length and bytes, so that different rows have different texts; a null is not an empty text."""
    return f"coalesce(concat(encode(concat(length({column}), ':'), 'UTF-8'), {column}), X'2D')"


_HEADER = (_netstring("encode(header.key, 'UTF-8')"), _netstring("header.value"))
HEADERS = (
    "CASE WHEN headers IS NULL THEN X'' ELSE aggregate(headers, X'', (sum, header) -> concat(sum, "
    f"{_HEADER[0]}, {_HEADER[1]})) END"
)
"""Names and values in their order."""


def checksum() -> str:
    """Spark's expression for the CRC-32 of a row: place, timestamp in ms, key, value and headers."""
    numbers = "encode(concat(place, ':', unix_millis(timestamp), ':'), 'UTF-8')"
    return f"crc32(concat({numbers}, {_netstring('key')}, {_netstring('value')}, {HEADERS}))"


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of one window of one side."""

    rows: int
    crc_sum: int
    crc_xor: int
    first_offset: int
    last_offset: int
    first_place: int
    last_place: int
    first_ms: int

    @property
    def content(self) -> tuple[int, int, int]:
        return self.rows, self.crc_sum, self.crc_xor

    @property
    def missing(self) -> int:
        """Offsets without a row between the first and the last."""
        return max(0, self.last_offset - self.first_offset + 1 - self.rows)


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that is not the same on both sides."""

    topic: str
    partition: int
    place: int
    text: str


def with_positions(rows: "DataFrame") -> "DataFrame":
    """`place` is the position of a row in its partition, by offset."""
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as f

    by_offset = Over.partitionBy("topic", "partition").orderBy("offset")
    return rows.withColumn("place", (f.row_number().over(by_offset) - 1).cast("long"))


def sums(side: "DataFrame", window_rows: int) -> dict[Window, Sums]:
    """The sums of each window that has rows."""
    from pyspark.sql import functions as f

    crc = f.expr(checksum())
    found = (
        side.select(
            "topic",
            "partition",
            "place",
            "offset",
            f.expr("unix_millis(timestamp)").alias("ms"),
            f.floor(f.col("place") / window_rows).alias("window"),
            crc.alias("crc"),
        )
        .groupBy("topic", "partition", "window")
        .agg(
            f.count(f.lit(1)).alias("rows"),
            f.sum("crc").alias("crc_sum"),
            f.expr("bit_xor(crc)").alias("crc_xor"),
            f.min("offset").alias("first_offset"),
            f.max("offset").alias("last_offset"),
            f.min("place").alias("first_place"),
            f.max("place").alias("last_place"),
            f.min("ms").alias("first_ms"),
        )
        .collect()
    )
    return {
        (row.topic, row.partition, row.window): Sums(
            **{name: row[name] for name in Sums.__dataclass_fields__}
        )
        for row in found
    }


def compared(one: Mapping[Window, Sums], other: Mapping[Window, Sums]) -> list[Window]:
    """The windows that differ, in order."""
    return [
        window
        for window in sorted(one.keys() | other.keys())
        if window not in one or window not in other or one[window].content != other[window].content
    ]


def differences(
    one: "DataFrame",
    other: "DataFrame",
    names: tuple[str, str],
    windows: Sequence[Window],
    window_rows: int,
    limit: int,
) -> list[Difference]:
    """The first rows of these windows that differ, from one side or both."""
    from pyspark.sql import functions as f

    in_windows = f.lit(False)
    for topic, partition, window in windows:
        in_windows |= (
            (f.col("topic") == topic)
            & (f.col("partition") == partition)
            & f.col("place").between(window * window_rows, (window + 1) * window_rows - 1)
        )

    def grouped(side: "DataFrame") -> "DataFrame":
        rows = f.sort_array(f.collect_list(f.struct("crc", "timestamp", "key", "value", "headers"))).alias(
            "rows"
        )
        return (
            side.where(in_windows)
            .withColumn("crc", f.expr(checksum()))
            .withColumn("timestamp", f.expr("unix_millis(timestamp)"))
            .groupBy("topic", "partition", "place")
            .agg(rows)
        )

    keys = ["topic", "partition", "place"]
    left, right = (
        grouped(one).withColumnRenamed("rows", "one"),
        grouped(other).withColumnRenamed("rows", "other"),
    )
    found = (
        left.join(right, keys, "full_outer")
        .where(~f.expr("transform(one, r -> r.crc)").eqNullSafe(f.expr("transform(other, r -> r.crc)")))
        .orderBy(*keys)
        .limit(limit)
        .collect()
    )
    return [
        Difference(row.topic, row.partition, row.place, _sentence(names, row.one or [], row.other or []))
        for row in found
    ]


def _sentence(names: tuple[str, str], one: Sequence[Any], other: Sequence[Any]) -> str:
    for name, rows, others in ((names[0], one, other), (names[1], other, one)):
        if not others:
            times = "" if len(rows) == 1 else f" ({len(rows)} times)"
            return f"only in {name}{times}: key {_shown(rows[0].key)}, value {_shown(rows[0].value)}"
    if len(one) != len(other):
        return f"{len(one)} times in {names[0]}, {len(other)} times in {names[1]}"
    for left, right in zip(one, other, strict=True):
        for part in SHOWN_PARTS:
            if left[part] != right[part]:
                return (
                    f"{part} is {_shown(left[part])} in {names[0]}, and {_shown(right[part])} in {names[1]}"
                )
    return "the rows differ"


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes | bytearray):
        start = repr(bytes(value[:SHOWN_BYTES])).removeprefix("b")
        return start if len(value) <= SHOWN_BYTES else f"{start}… ({len(value):,} bytes)"
    if isinstance(value, list):
        return "[" + ", ".join(f"{header.key}: {_shown(header.value)}" for header in value) + "]"
    return str(value)
