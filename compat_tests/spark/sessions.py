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

    With the connector's jars of PySpark's own version, or, where `environment.JARS` has none, without.

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
    name = f"spark-{version}"
    jars = environment.jars(name).glob("*.jar") if name in environment.JARS else ()
    return {
        "spark.jars": ",".join(sorted(map(str, jars))),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "600m",  # on a cluster; its workers have 800m
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={work}",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
