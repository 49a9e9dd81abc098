"""Odradek and Spark: topics of any Kafka broker as sources for Spark 4, without jars.

    odradek.spark.register(spark)
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
    orders = spark.read.format("odradek").options(**options).load()

Neither pyspark nor pyarrow is imported before something of theirs is used.

The modules, in reading order. Requests to brokers: `client`, `connection`, `fetching`, `transaction_manager`,
`producing`, `group_offsets`, `topic_changes`. Records and Arrow: `columns` (from records), `batching` (to
records). What users write: `options`, `write_options`, `log_options`. Reading topics: `offsets`,
`range_reader`, `source` with `batch_source`, `stream_source` and `admission`. Reading files: `log_files`,
`log_filters`, `log_plan`, `log_source`. Writing: `writing`, `markers` (exactly once), `sink`. Jobs: `jobs`,
`cli`, `report`, `progress`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes our formats known to a session; harmless where Spark has found them by itself.

    It finds them in an environment into which Odradek was installed as a wheel; not in an editable install,
    nor where the package comes by `--py-files`.
    """
    from pyspark.errors import AnalysisException

    from odradek.spark.log_source import OdradekLogDataSource
    from odradek.spark.source import OdradekDataSource

    with _active(spark):
        for source in (OdradekDataSource, OdradekLogDataSource):
            try:
                spark.dataSource.register(source)
            except AnalysisException as error:
                if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                    raise


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Makes it the session that Spark asks whether a format is there already. That is the active one, which
    a `newSession()` is not: where the other has the format, this one could not get it."""
    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is None:  # of Spark Connect
        yield
        return
    sessions = type(spark)._get_j_spark_session_class(spark._jvm)  # type: ignore[attr-defined]
    before = sessions.getActiveSession()
    sessions.setActiveSession(java_session)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
