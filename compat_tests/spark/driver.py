"""A Spark program of its own that a test can kill: one topic into files and into another topic.

    python -m compat_tests.spark.driver JSON-OF-A-JOB

Each of its two queries has a checkpoint of its own, so that the program goes on where it was when it is
started again. It ends with its standard input, if not before.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.spark import sessions
from compat_tests.spark.topics import KafkaTables
from tools import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = "compat_tests.spark.driver"
START_SECONDS = 240
"""What a driver may take to start and commit some batches on a busy machine."""
END_SECONDS = 240


@dataclass(frozen=True)
class Job:
    """What the program does. `folder` has FILES and TOPIC, where the queries have what is theirs."""

    bootstrap: str
    source: str
    sink: str
    folder: str
    master: str = sessions.LOCAL
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the source."""
    ends: bool = False
    """Whether it ends when it has read all that there is."""

    @property
    def files(self) -> pathlib.Path:
        return pathlib.Path(self.folder, "files")

    @property
    def topic(self) -> pathlib.Path:
        return pathlib.Path(self.folder, "topic")

    @property
    def trigger(self) -> dict[str, Any]:
        return {"availableNow": True} if self.ends else {"processingTime": "0 seconds"}

    def committed(self) -> int:
        """Batches that both queries have committed, the lower number of the two."""
        return min(committed_batches(self.files), committed_batches(self.topic))


def committed_batches(directory: pathlib.Path) -> int:
    """How many batches a query with its checkpoint in `directory` has committed."""
    numbers = [int(path.name) for path in (directory / "checkpoint" / "commits").glob("[0-9]*")]
    return max(numbers, default=-1) + 1


class Driver:
    """The program running, in a process group of its own: Python, the Java virtual machine, and theirs."""

    def __init__(self, job: Job, program: str = PROGRAM) -> None:
        self._log = pathlib.Path(job.folder, "driver.log")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", program, json.dumps(asdict(job))]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=environment.CHECKOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.kill()

    def raise_failure(self) -> None:
        """As `wait_until` asks its members."""
        status = self._process.poll()
        assert not status, f"the driver ended with status {status}:\n{self.said()}"

    def wait(self) -> None:
        """Returns when it has ended by itself; raises when it failed."""
        self._process.wait(END_SECONDS)
        self.raise_failure()

    def kill(self) -> None:
        """SIGKILL to all of it, Java first among equals: nothing is committed, nobody is told."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def main(job: Job) -> None:
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    session = sessions.start(pathlib.Path(job.folder, "spark"), job.master, parts=sessions.CONNECTOR)
    run(session, job)
    session.stop()


def run(session: SparkSession, job: Job) -> None:
    """What the program does, in any session; returns when the queries end."""
    client = KafkaPythonClient(job.bootstrap)
    tables = KafkaTables(session, client)
    stream = tables.stream(job.source, startingOffsets="earliest", **job.options)
    writers = (tables.to_files(stream, job.files), tables.to_topic(stream, job.sink, job.topic))
    queries = [writer.trigger(**job.trigger).start() for writer in writers]
    for query in queries:
        query.awaitTermination()
    client.close()


def end_with_standard_input() -> None:
    # Not sys.stdin, whose lock a thread must not hold when Python ends.
    while os.read(0, 1):
        pass
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
