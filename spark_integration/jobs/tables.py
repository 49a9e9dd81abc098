"""What `archive` has written, as the other jobs read it."""

import json
from typing import TYPE_CHECKING

from odradek.spark.jobs.errors import JobError
from odradek.spark.jobs.files import open_files
from odradek.spark.jobs.publishing import STATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SCHEMA", "read_table"]

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, day DATE"
)
"""Of a table of `archive` whose values are as they were."""


def read_table(spark: "SparkSession", table: str) -> "DataFrame":
    """The rows of a table with the columns of `SCHEMA`; JobError for what is no such table."""
    files = open_files(spark, table)
    about = files.read_text(f"{table.rstrip('/')}/{STATE}/archive.json")
    if about is None:
        raise JobError(f"{table} is no table of odradek spark archive: it has no {STATE}/archive.json")
    if json.loads(about).get("value", "binary") != "binary":
        raise JobError(
            f"the values of the table {table} were decoded when it was made, and their bytes are not there: "
            "only a table of --value binary can be compared with a topic or replayed"
        )
    return spark.read.schema(SCHEMA).parquet(table)
