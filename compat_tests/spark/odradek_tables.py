"""Topics as `format("odradek")` reads them, beside Spark's own connector where that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import odradek.spark
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.spark.topics import KafkaTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

PLACE = ("topic", "partition", "offset")


class OdradekTables(KafkaTables):
    """`KafkaTables` whose reads and streams are ours; `by_connector` has Spark's, None without its jars."""

    def __init__(self, spark: SparkSession, client: KafkaPythonClient) -> None:
        super().__init__(spark, client)
        odradek.spark.register(spark)
        has_connector = bool(spark.sparkContext.getConf().get("spark.jars", ""))
        self.by_connector = KafkaTables(spark, client) if has_connector else None

    def read(self, topic: str, **options: Any) -> DataFrame:
        return self.reading(self.spark.read.format("odradek"), topic, options).load()

    def stream(self, topic: str, **options: Any) -> DataFrame:
        return self.reading(self.spark.readStream.format("odradek"), topic, options).load()

    def rows_as_by_connector(self, topic: str, **options: Any) -> list[Row]:
        """All rows in order, after a look whether Spark's connector gives the same for the same options."""
        ours = self.read(topic, **options)
        rows = ours.orderBy(*PLACE).collect()
        if self.by_connector is not None:
            theirs = self.by_connector.read(topic, **options)
            assert ours.schema == theirs.schema
            assert rows == theirs.orderBy(*PLACE).collect()
        return rows


def numbers(rows: list[Row]) -> list[int]:
    return sorted(int(row.value) for row in rows)


def last_line(error: BaseException) -> str:
    """What a person reads who looks at the end of a Python error of Spark's."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return [line for line in lines if "SQLSTATE" not in line][-1]
