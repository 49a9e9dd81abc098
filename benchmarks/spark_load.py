"""The session of the part `spark`: `python -m benchmarks.spark_load FOLDER`, in the environment `spark`.

Takes an `Ask` as a line of JSON on its standard input, does it, and answers with a line on its standard
output: MARK, then an `Answer` as JSON. Ends with its standard input.
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import odradek.spark
from compat_tests.spark import sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = "measured "
VALUE_BYTES = 100
PARTITIONS = 4
BATCHES = 5
"""Of a stream."""


@dataclass(frozen=True)
class Ask:
    """One measurement. `options` are those of the reader or writer of `format`."""

    work: str
    """A name of `WORKS`."""
    rows: int
    format: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    rows: int
    seconds: float


def count(session: SparkSession, ask: Ask) -> int:
    """The rows of a topic, each made by the source; nothing is done with them."""
    return int(session.read.format(ask.format).options(**ask.options).load().count())


def write(session: SparkSession, ask: Ask) -> int:
    """Rows without keys, each with its partition, by as many tasks as there are partitions."""
    _rows(session, ask.rows).write.format(ask.format).options(**ask.options).mode("append").save()
    return ask.rows


def _rows(session: SparkSession, count: int) -> DataFrame:
    return session.range(0, count, 1, PARTITIONS).selectExpr(
        f"CAST(rpad(CAST(id AS STRING), {VALUE_BYTES}, 'x') AS BINARY) AS value",
        f"CAST(id % {PARTITIONS} AS INT) AS partition",
    )


def stream(session: SparkSession, ask: Ask) -> int:
    """All that there is in a topic, in so many batches, into nothing."""
    options = {**ask.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ask.rows // BATCHES)}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        writer = session.readStream.format(ask.format).options(**options).load().writeStream
        query = (
            writer.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)


WORKS: dict[str, Callable[[Any, Ask], int]] = {"count": count, "write": write, "stream": stream}


def main(folder: pathlib.Path) -> None:
    tempfile.tempdir = str(folder)
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",  # the compiler as users have it
    }
    session = sessions.start(folder, settings=settings, python=sys.executable)  # as users have it, too
    for line in sys.stdin:
        ask = Ask(**json.loads(line))
        if ask.format != "kafka":
            odradek.spark.register(session)
        started = time.perf_counter()
        rows = WORKS[ask.work](session, ask)
        answer = Answer(rows, time.perf_counter() - started)
        print(f"{MARK}{json.dumps(asdict(answer))}", flush=True)
    session.stop()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
