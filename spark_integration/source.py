"""The format "odradek" of Spark 4: topics as tables and as streams, without a jar.

Spark finds it by itself where Odradek's wheel is installed (the top-level module `pyspark_odradek`);
`odradek.spark.register(spark)` registers it by hand. Options and columns are those of Spark's Kafka source.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from odradek.spark.options import COLUMNS, OptionError, read_columns, read_options


class OdradekDataSource(DataSource):
    """`format("odradek")` with its options."""

    @classmethod
    def name(cls) -> str:
        return "odradek"

    def schema(self) -> str:
        """Spark's DDL for the columns of a read."""
        return ", ".join(f"`{name}` {COLUMNS[name]}" for name in read_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from odradek.spark.batch_source import BatchReader

        options = read_options(self.options, is_stream=False)
        _check_schema(schema, options.columns)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from odradek.spark.stream_readers import stream_reader

        options = read_options(self.options, is_stream=True)
        _check_schema(schema, options.columns)
        return stream_reader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from odradek.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from odradek.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _check_schema(schema: StructType, columns: tuple[str, ...]) -> None:
    """Spark matches Arrow columns by position, so another schema would give wrong values."""
    expected = [(name, COLUMNS[name].lower().replace(": ", ":").replace(", ", ",")) for name in columns]
    if [(field.name, field.dataType.simpleString()) for field in schema.fields] != expected:
        raise OptionError(
            "format('odradek') has a schema of its own: leave schema(...) out, name the wanted ones with the "
            "option columns, and CAST in the query"
        )
