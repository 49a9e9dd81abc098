"""A Spark program of its own that a test can kill: one topic into another one by `format("odradek")`.

    python -m compat_tests.spark.sink_program JSON-OF-A-JOB

It is `driver` with our sink, and with tasks that are in trouble: of every epoch the first attempt at one
partition fails when it has handed out all of its rows, and with `slow` the first attempt at another one takes
so long that Spark starts a second one beside it.
"""

from __future__ import annotations

import json
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import odradek.spark
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.spark import sessions
from compat_tests.spark.driver import Job, end_with_standard_input
from compat_tests.spark.topics import KafkaTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = "compat_tests.spark.sink_program"
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
}
SLOW_SECONDS = 8
PIECES = "spark.sql.execution.arrow.maxRecordsPerBatch"
Trouble = Callable[[Iterator[Any]], Iterator[Any]]


def troubled(is_slow: bool) -> Trouble:
    """For mapInArrow."""

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context.attemptNumber() == 0:
            if context.partitionId() == 1:
                raise RuntimeError("this attempt was to fail")
            if context.partitionId() == 2 and is_slow:
                time.sleep(SLOW_SECONDS)

    return rows


def main(job: Job) -> None:
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    is_slow = not job.master.startswith("local")
    settings = SPECULATION if is_slow else {}
    folder = pathlib.Path(job.folder, "spark")
    session = sessions.start(folder, job.master, settings, parts=sessions.CONNECTOR)
    run(session, job, troubled(is_slow))
    session.stop()


def run(session: SparkSession, job: Job, trouble: Trouble = lambda batches: batches) -> None:
    """What the program does, in any session; returns when the query ends."""
    # Rows come to the sink in many pieces, so that an attempt has written when it fails.
    session.conf.set(PIECES, "5")
    odradek.spark.register(session)
    client = KafkaPythonClient(job.bootstrap)
    tables = KafkaTables(session, client)
    stream = tables.stream(job.source, startingOffsets="earliest", **job.options)
    large = stream.selectExpr("key", "CAST(rpad(CAST(value AS STRING), 5000, ' ') AS BINARY) AS value")
    rows = large.mapInArrow(trouble, "key binary, value binary")
    writer = (
        rows.writeStream.format("odradek")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("topic", job.sink)
        .option("kafka.batch.size", "200")
        .option("checkpointLocation", str(job.topic / "checkpoint"))
    )
    try:
        writer.trigger(**job.trigger).start().awaitTermination()
    finally:
        session.conf.unset(PIECES)
        client.close()


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
