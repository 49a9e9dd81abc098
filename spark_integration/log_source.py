"""The format "odradek-log" of Spark 4: segment files of data directories as a table, with no broker running.

    spark.read.format("odradek-log").option("subscribe", "orders").load("/var/lib/kafka")

Spark finds it by itself where Odradek's wheel is installed (the top-level module `pyspark_odradek_log`);
`odradek.spark.register(spark)` registers it by hand. Each segment has one task, a large one several. The
driver and every worker need the directories under the same path.

With the option `pushFilters` a `where` on topic, partition, offset and timestamp narrows the plan, as the
options do (PySpark 4.1 and later, with `spark.sql.python.filterPushdown.enabled`). It is off by default:
Spark refuses a source with filters while that setting is off; and Spark 4.1 keeps the last pushed filters
with the DataFrame of `load` for all later queries on it, so every `where` needs a `load` of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from odradek.spark.log_files import Piece
from odradek.spark.log_filters import Narrowed, narrow
from odradek.spark.log_options import COLUMNS, FORMAT, LogOptions, read_log_columns, read_log_options
from odradek.spark.log_plan import batches_of, plan
from odradek.spark.options import OptionError

if TYPE_CHECKING:
    import pyarrow


class OdradekLogDataSource(DataSource):
    """`format("odradek-log")` with its options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """Spark's DDL for the columns of a read."""
        return ", ".join(f"`{name}` {COLUMNS[name]}" for name in read_log_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_log_options(self.options)
        _check_schema(schema, options.columns)
        if not options.push_filters:
            return LogReader(options)
        if not hasattr(DataSourceReader, "pushFilters"):
            raise OptionError(
                "pushFilters needs PySpark 4.1 or later: leave it out, and name ranges as options"
            )
        return FilteringLogReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NoStream()


def _check_schema(schema: StructType, columns: tuple[str, ...]) -> None:
    """Spark matches Arrow columns by position, so another schema would give wrong values."""
    expected = [(name, COLUMNS[name].lower().replace(": ", ":").replace(", ", ",")) for name in columns]
    if [(field.name, field.dataType.simpleString()) for field in schema.fields] != expected:
        raise OptionError(
            f"format({FORMAT!r}) has a schema of its own: leave schema(...) out, name the wanted ones with "
            "the option columns, and CAST in the query"
        )


class NoStream(DataSourceStreamReader):
    """The sentence for a stream of files. Spark 4.3 hides a refusal of `streamReader` behind an error of its
    own: so it comes with the first call."""

    def initialOffset(self) -> dict[str, Any]:
        raise OptionError(
            f"format({FORMAT!r}) has no streams: files are read as they are. Use spark.read, or "
            "spark.readStream.format('odradek') with a broker"
        )

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # as Spark 4.0 has it
        return self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return iter(())


class PiecePartition(InputPartition):
    """The piece of one task."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(piece)


class LogReader(DataSourceReader):
    """Plans the pieces in the driver, and reads one in each task."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._narrowed = Narrowed()

    def partitions(self) -> list[InputPartition]:
        return [PiecePartition(piece) for piece in plan(self._options, self._narrowed)]

    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        # For a query without partitions Spark makes one task with None, or with a partition of None.
        piece = None if partition is None else partition.value
        return iter(()) if piece is None else batches_of(self._options, piece)


class FilteringLogReader(LogReader):
    """A reader to which Spark pushes filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Narrows the plan; returns the filters that Spark (from 4.1 on) still has to apply."""
        self._narrowed, left = narrow(filters)
        return left
