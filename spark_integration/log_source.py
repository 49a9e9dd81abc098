"""The format "odradek-log" of Spark 4: segment files of data directories as a table, with no broker running.

    spark.read.format("odradek-log").option("subscribe", "orders").load("/var/lib/kafka")

Spark finds it by itself where Odradek's wheel is installed (the top-level module `pyspark_odradek_log`);
`odradek.spark.register(spark)` makes it known by hand. There is one task for each segment, more for one that
is large; the directories have to be there, under the same path, for the driver and for every worker.

With the option `pushFilters` a `where` on topic, partition, offset and timestamp narrows the plan, as the
options do (PySpark 4.1 and later, with `spark.sql.python.filterPushdown.enabled`). It is off by default:
Spark refuses a source that can do it while that setting is off; and Spark 4.1 keeps what was pushed last with
the DataFrame that `load` gave, for whatever else is asked of it, so every `where` needs a `load` of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from odradek.spark.log_files import Piece
from odradek.spark.log_filters import Narrowed, narrow
from odradek.spark.log_options import COLUMNS, FORMAT, LogOptions, read_log_columns, read_log_options
from odradek.spark.log_plan import batches_of, plan
from odradek.spark.options import OptionError

if TYPE_CHECKING:
    import pyarrow


class OdradekLogDataSource(DataSource):
    """What Spark makes of `format("odradek-log")` and its options."""

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


def _check_schema(schema: StructType, columns: tuple[str, ...]) -> None:
    """Spark takes Arrow columns by their place, so that another schema would be other values."""
    expected = [(name, COLUMNS[name].lower().replace(": ", ":").replace(", ", ",")) for name in columns]
    if [(field.name, field.dataType.simpleString()) for field in schema.fields] != expected:
        raise OptionError(
            f"format({FORMAT!r}) has a schema of its own: leave schema(...) out, name the wanted ones with "
            "the option columns, and CAST in the query"
        )


class PiecePartition(InputPartition):
    """What one task reads."""

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
        # Where there is no partition Spark makes one task with None, or with a partition of None.
        piece = None if partition is None else partition.value
        return iter(()) if piece is None else batches_of(self._options, piece)


class FilteringLogReader(LogReader):
    """A reader that Spark asks what it can filter by itself."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Takes what narrows the plan; Spark (from 4.1 on) applies what is left, which is given back."""
        self._narrowed, left = narrow(filters)
        return left
