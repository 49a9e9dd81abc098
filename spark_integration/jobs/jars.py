"""Jars that a job needs and PySpark does not include."""

from typing import TYPE_CHECKING

from odradek.spark.jobs.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def need_jar(spark: "SparkSession", java_class: str, what: str, coordinates: str) -> None:
    """JobError, with the Maven coordinates of the jar, if Spark's driver does not have the class."""
    jvm = spark._jvm
    assert jvm is not None
    loader = jvm.Thread.currentThread().getContextClassLoader()
    try:
        jvm.Class.forName(java_class, False, loader)
    except Exception:
        raise JobError(
            f"{what} needs a jar that this Spark does not have: start it with --conf "
            f"spark.jars.packages={coordinates} (spark-submit: --packages {coordinates})"
        ) from None
