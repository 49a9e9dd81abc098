"""How every Spark session of these tests is made: the one in the test process, and drivers of their own.

python -m compat_tests.spark.sessions       makes what lets them start fast, if it is not there yet
"""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from compat_tests.class_data import class_data
from tools import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[2]"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
CONNECTOR = ("",)
ALL_PARTS = (*CONNECTOR, "-formats", "-iceberg")
"""What the names of sets of jars have behind the version of Spark."""
ENDED_WORKER = "java.nio.channels.ClosedChannelException"
ENDED_WORKERS_MAX = 5


def past_ended_workers(action: Callable[[], None]) -> None:
    """Runs an action of Spark, again while it fails at a Python process that was ending.

    After a task that failed Spark may give the next one the same process, whose channel closes then: seen
    with 4.0.0 on a busy machine. Where a master allows a task a second attempt nobody sees it; the session
    of these tests allows none.
    """
    for _ in range(ENDED_WORKERS_MAX):
        try:
            action()
        except Exception as error:
            if ENDED_WORKER not in str(error):
                raise
        else:
            return
    action()


def start(
    work: pathlib.Path,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    parts: Sequence[str] = ALL_PARTS,
    python: str | None = None,
) -> SparkSession:
    """A session; what it writes aside goes into `work`.

    With the jars of PySpark's own version: the connector's, and those of Avro and Iceberg, as far as `parts`
    and `environment.JARS` have them. The catalog of Iceberg is `lake`, in a folder of `work`.

    `settings` come after, and in place of, those that the tests want. `python` runs the Python of Spark,
    in place of the program that `python_of_tasks` makes.
    """
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = python or str(python_of_tasks(work))
    builder = SparkSession.builder.master(master).appName("odradek")
    own = dict(settings or {})
    if JAVA_OPTIONS not in own:
        own[JAVA_OPTIONS] = " ".join((QUICK_COMPILER, f"-Dderby.system.home={work}", *fast_start()))
    own.setdefault("spark.jars", jars(*(f"spark-{pyspark.__version__}{part}" for part in parts)))
    for name, value in {**_settings(work), **own}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _settings(work: pathlib.Path) -> dict[str, str]:
    return {
        **iceberg_catalog(work / "lake"),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }


PYTHON_OF_TASKS = """\
#!/bin/sh
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
    {home}/*.zip | {home}/*.jar) ;;
    *) kept=$kept:$entry ;;
    esac
done
PYTHONPATH=${{kept#:}} exec {python} "$@"
"""


def python_of_tasks(work: pathlib.Path) -> pathlib.Path:
    """A program in `work`: this Python, which imports PySpark from its own packages.

    Spark hands it archives of the same code. Whatever has been imported from archives, a worker reads their
    directories anew for each task, 17 times with thousands of names: more than all else that it does.
    """
    import pyspark

    work.mkdir(parents=True, exist_ok=True)
    program = work / "python"
    home = pathlib.Path(pyspark.__file__).parent
    program.write_text(PYTHON_OF_TASKS.format(home=home, python=sys.executable))
    program.chmod(0o755)
    return program


@functools.cache
def fast_start() -> tuple[str, ...]:
    """Options of the driver's virtual machine. With them a session and its first query need 9 s of processor
    time instead of 17."""
    import pyspark

    def run(options: tuple[str, ...]) -> None:
        with tempfile.TemporaryDirectory() as work:
            command = [sys.executable, "-m", "compat_tests.spark.sessions", work, " ".join(options)]
            # Until nobody has its outputs any more: the virtual machine, which ends last, has them as well.
            subprocess.run(command, check=True, capture_output=True)

    return class_data(f"spark-{pyspark.__version__}", str(pathlib.Path(pyspark.__file__).parent), run)


def start_small(work: pathlib.Path) -> SparkSession:
    """A session for a few queries on a machine that has nothing yet: with the connector's jars alone, and
    without what would have to be made first to start fast."""
    return start(
        work, settings={JAVA_OPTIONS: f"{QUICK_COMPILER} -Dderby.system.home={work}"}, parts=CONNECTOR
    )


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


def _use_all(work: pathlib.Path, java_options: str) -> None:
    """What nearly every test does. The virtual machine ends by itself after this process. Classes of jars
    that a session adds are in no archive."""
    session = start(work, settings={JAVA_OPTIONS: f"{QUICK_COMPILER} {java_options}"}, parts=())
    table, copied, checkpoint = (str(work / name) for name in ("table", "copied", "checkpoint"))
    rows = session.range(100).selectExpr("id", "id % 7 AS k", "CAST(id AS STRING) AS value")
    rows.write.partitionBy("k").parquet(table)
    session.read.parquet(table).groupBy("k").count().orderBy("k").collect()
    stream = session.readStream.schema(rows.schema).parquet(table).writeStream
    stream = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    stream.start(copied, format="parquet").awaitTermination()
    session.stop()


if __name__ == "__main__":
    if sys.argv[1:]:
        _use_all(pathlib.Path(sys.argv[1]), sys.argv[2])
    else:
        fast_start()
