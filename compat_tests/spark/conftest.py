"""One Spark session for all tests; it takes seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tools import environment


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    jars = ",".join(str(path) for path in sorted(environment.jars("spark-4.0.0").glob("*.jar")))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("compat")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
