"""Tables of `archive`, for the other jobs."""

from typing import TYPE_CHECKING

from odradek.spark.jobs.decoding import RAW, UNDECODED
from odradek.spark.jobs.errors import JobError, sentence_of
from odradek.spark.jobs.files import open_files, read_note
from odradek.spark.jobs.iceberg import need_iceberg
from odradek.spark.jobs.publishing import STATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "iceberg")
SOURCE_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
"""Columns of topics, and of an Iceberg table with values as bytes."""
SCHEMA = f"{SOURCE_SCHEMA}, day DATE"
"""Columns of a Parquet table with values as bytes."""


def check_format(table_format: str) -> None:
    """JobError for an unknown format."""
    if table_format not in FORMATS:
        raise JobError(f"table format {table_format!r} is none: it is {' or '.join(FORMATS)}")


def read_table(spark: "SparkSession", table: str, table_format: str = "parquet") -> "DataFrame":
    """The rows of a table with the columns of a topic, values as bytes; JobError for another table."""
    check_format(table_format)
    return _of_iceberg(spark, table) if table_format == "iceberg" else _of_parquet(spark, table)


def _of_parquet(spark: "SparkSession", table: str) -> "DataFrame":
    files = open_files(spark, table)
    made = read_note(files, f"{table.rstrip('/')}/{STATE}/archive.json")
    if made is None:
        raise JobError(f"{table} is not a table of odradek spark archive: it has no {STATE}/archive.json")
    if made.get("value", "binary") == "binary":
        return spark.read.schema(SCHEMA).parquet(table)
    if not made.get("raw"):
        raise _without_bytes(table)
    schema = SCHEMA.replace("value BINARY, topic", f"{RAW} BINARY, topic")
    return spark.read.schema(schema).parquet(table).withColumnRenamed(RAW, "value")


def _of_iceberg(spark: "SparkSession", table: str) -> "DataFrame":
    from pyspark.sql.types import StructType

    need_iceberg(spark)
    try:
        rows = spark.table(table)
    except Exception as error:
        raise JobError(f"the Iceberg table {table} cannot be read: {sentence_of(error)}") from None
    missing = [name for name in StructType.fromDDL(SOURCE_SCHEMA).names if name not in rows.columns]
    if missing:
        raise JobError(f"{table} is not a table of odradek spark archive: it has no column {missing[0]}")
    if RAW in rows.columns:
        return rows.drop("value").withColumnRenamed(RAW, "value")
    if UNDECODED in rows.columns:
        raise _without_bytes(table)
    return rows


def _without_bytes(table: str) -> JobError:
    return JobError(
        f"the values of the table {table} were decoded when it was made, and their bytes are not there: only "
        "a table of --value binary, or one with --keep-raw, can be compared with a topic or replayed"
    )
