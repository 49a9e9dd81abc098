"""One Spark session for all tests, with the connector's jars from the cache.

Without a JDK or PySpark these tests are skipped on a developer's machine and are errors under CI.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.spark.topics import KafkaTables
from tools import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = "spark-4.0.0"


def refuse_or_skip(missing: str) -> None:
    """An error under CI, where nothing is skipped in silence; else a skip that says why."""
    if os.environ.get("CI"):
        pytest.fail(f"{missing} is missing, and under CI these tests must run", pytrace=False)
    pytest.skip(f"{missing} is missing")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    java_home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{java_home}/bin" if java_home else None) is None:
        refuse_or_skip("a JDK (Debian: openjdk-17-jdk-headless)")
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        refuse_or_skip("PySpark (pip install 'odradek[spark]')")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    work = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("odradek")
    for name, value in _settings(work).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def _settings(work: pathlib.Path) -> dict[str, str]:
    return {
        "spark.jars": ",".join(sorted(str(jar) for jar in environment.jars(JARS).glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={work}",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }


@pytest.fixture(scope="session")
def client(bootstrap: str) -> Iterator[KafkaPythonClient]:
    """The other side: writes what Spark reads and reads what Spark wrote."""
    client = KafkaPythonClient(bootstrap)
    yield client
    client.close()


@pytest.fixture
def tables(spark: SparkSession, client: KafkaPythonClient) -> KafkaTables:
    return KafkaTables(spark, client)
