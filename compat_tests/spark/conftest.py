"""One Spark session for all tests, with the connector's jars from the cache.

Without a JDK or PySpark these tests are skipped on a developer's machine and are errors under CI.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import odradek
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.spark import sessions
from compat_tests.spark.topics import KafkaTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refuse_or_skip(missing: str) -> None:
    """An error under CI, where nothing is skipped in silence; else a skip that says why."""
    if os.environ.get("CI"):
        pytest.fail(f"{missing} is missing, and under CI these tests must run", pytrace=False)
    pytest.skip(f"{missing} is missing")


@pytest.fixture(scope="session")
def spark_is_there() -> None:
    """Java and PySpark, for those who start them by themselves."""
    java_home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{java_home}/bin" if java_home else None) is None:
        refuse_or_skip("a JDK (Debian: openjdk-17-jdk-headless)")
    if importlib.util.find_spec("pyspark") is None:
        refuse_or_skip("PySpark (pip install 'odradek[spark]')")


@pytest.fixture(scope="session")
def spark(
    spark_is_there: None, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    start = sessions.start_small if pytestconfig.option.markexpr == "smoke" else sessions.start
    session = start(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def client(bootstrap: str) -> Iterator[KafkaPythonClient]:
    """The other side: writes what Spark reads and reads what Spark wrote."""
    client = KafkaPythonClient(bootstrap)
    yield client
    client.close()


@pytest.fixture(scope="session")
def target() -> Iterator[str]:
    """Another broker, into which topics are copied: host:port."""
    with odradek.Broker(process=True) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def tables(spark: SparkSession, client: KafkaPythonClient) -> KafkaTables:
    return KafkaTables(spark, client)
