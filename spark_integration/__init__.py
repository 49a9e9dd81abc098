"""Odradek and Spark: topics of any Kafka broker as sources for Spark 4, without jars.

    odradek.spark.register(spark)
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
    orders = spark.read.format("odradek").options(**options).load()

pyspark and pyarrow are imported only when they are used.

The modules, in reading order. Requests to brokers go by `odradek.client`. Records and Arrow: `columns` (from
records), `batching` (to records). Options of users: `client_options`, `options`, `write_options`,
`log_options`. Reading topics: `offsets`, `range_reader`, `source` with `batch_source`, `stream_source` and
`admission`. Reading files: `log_files`, `log_filters`, `log_plan`, `log_source`. Writing: `writing`,
`markers` (exactly once), `sink`. Jobs: `jobs`, `cli`, `report`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Registers our formats with a session; harmless where Spark has found them by itself.

    Spark finds them where Odradek was installed from a wheel, but not in an editable install, and not where
    the package comes with `--py-files`.
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
    """Makes `spark` the active session, in which Spark looks for an existing format before it registers one.

    A `newSession()` is not active: it could not get a format that the active session has."""
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
