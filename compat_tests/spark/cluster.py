"""A standalone cluster of Spark on this machine: a master and workers, processes that a test may kill.

They know nothing of the checkout, as on a machine of their own.
"""

from __future__ import annotations

import pathlib
import subprocess
from types import TracebackType
from typing import Self

from compat_tests.clients import wait_until
from compat_tests.outside import clean_environment
from compat_tests.reference import free_port

END_SECONDS = 30
MEMORY = "1g"
"""Of a worker: what an executor asks for by default. A worker with less gets none."""


class Cluster:
    """Runs from the `with` on; `folder` gets what it writes."""

    def __init__(self, folder: pathlib.Path, workers: int = 2) -> None:
        self._folder, self._count = folder, workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = free_port()

    @property
    def master(self) -> str:
        """What a session is told."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        try:
            self._start("master", "master.Master", "--port", str(self._port))
            wait_until(lambda: "I have been elected leader" in self._said("master"), "the master is ready")
            for number in range(self._count):
                sizes = ["--cores", "1", "--memory", MEMORY, "--work-dir", str(self.work(number))]
                self._start(f"worker-{number}", "worker.Worker", *sizes, self.master)
            wait_until(
                lambda: self._said("master").count("Registering worker") == self._count,
                "all workers are registered",
            )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._end()

    def kill_worker(self, number: int) -> None:
        """SIGKILL; its executors end by themselves when they miss it."""
        self._processes[1 + number].kill()
        self._processes[1 + number].wait()

    def work(self, number: int) -> pathlib.Path:
        """Where that worker's executors have their folders."""
        return self._folder / f"work-{number}"

    def executors(self, number: int) -> int:
        """How many that worker was asked to start so far."""
        return self._said(f"worker-{number}").count("Asked to launch executor")

    def _start(self, name: str, main_class: str, *arguments: str) -> None:
        import pyspark

        home = pathlib.Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main_class}"]
        command += ["--host", "127.0.0.1", "--webui-port", "0", *arguments]
        environment = clean_environment(
            SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1", SPARK_DAEMON_MEMORY="256m"
        )
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def _said(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _end(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
