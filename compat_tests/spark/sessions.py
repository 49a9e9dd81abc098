"""How every Spark session of these tests is made: the one in the test process, and drivers of their own."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tools import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[2]"


def start(work: pathlib.Path, master: str = LOCAL, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session; what it writes aside goes into `work`.

    With the jars of PySpark's own version: the connector's, and those of Avro and Iceberg, as far as
    `environment.JARS` has them. The catalog of Iceberg is `lake`, in a folder of `work`.

    `settings` come after, and in place of, those that the tests want.
    """
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("odradek")
    for name, value in {**_settings(work, pyspark.__version__), **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _settings(work: pathlib.Path, version: str) -> dict[str, str]:
    return {
        "spark.jars": jars(*(f"spark-{version}{part}" for part in ("", "-formats", "-iceberg"))),
        **iceberg_catalog(work / "lake"),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={work}",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }


def jars(*names: str) -> str:
    """For `spark.jars`: what is in these sets, as far as there are such."""
    folders = [environment.jars(name) for name in names if name in environment.JARS]
    # Two sets may have the same jar.
    found = {path.name: path for folder in folders for path in folder.glob("*.jar")}
    return ",".join(sorted(map(str, found.values())))


def iceberg_catalog(warehouse: pathlib.Path) -> dict[str, str]:
    """Settings of the catalog `lake`, which lies in a folder."""
    name = "spark.sql.catalog.lake"
    return {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "hadoop",
        f"{name}.warehouse": str(warehouse),
    }
