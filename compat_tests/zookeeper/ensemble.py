"""A real ZooKeeper, and the last Kafka that needs one; both from the jars of Kafka 3.9."""

from __future__ import annotations

import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType

from compat_tests import reference
from odradek.config.properties import format_properties
from odradek.embedding.free_port import free_port

TICK_MS = 500
"""Sessions last two ticks at least: a short one lets a test see the end of a session."""

CONFIG = """\
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
tickTime={tick}
maxSessionTimeout=60000
admin.enableServer=false
4lw.commands.whitelist=*
"""
JVM = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class ZooKeeper:
    """One server with a directory of its own; a context manager, or start() and stop(). `settings` are more
    of its own, `jvm` of the virtual machine; both count at the next start."""

    def __init__(self, settings: Mapping[str, str] | None = None, jvm: Sequence[str] = ()) -> None:
        self.port = free_port()
        self.settings, self.jvm = dict(settings or {}), list(jvm)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="zookeeper-"))
        self._log = self.directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        config = self.directory / "zoo.cfg"
        own = CONFIG.format(data=self.directory / "data", port=self.port, tick=TICK_MS)
        more = "".join(f"{name}={value}\n" for name, value in self.settings.items())
        config.write_text(own + more)
        command = ["java", *JVM, *self.jvm, reference.older_logging(self.directory, "WARN")]
        command += ["-cp", reference.class_path(reference.OLDER)]
        command += ["org.apache.zookeeper.server.ZooKeeperServerMain", str(config)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        reference.wait_until_open(self.port, self._process, self._log)

    def stop(self) -> None:
        """What was written is still there at the next start."""
        process, self._process = self._process, None
        if process is not None:
            reference.end_process(process, signal.SIGKILL)

    def __enter__(self) -> ZooKeeper:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.stop()
        if error is not None and self._log.exists():
            error.add_note(f"ZooKeeper's log ended with:\n{self._log.read_text()[-3000:]}")
        shutil.rmtree(self.directory, ignore_errors=True)


class KafkaInZooKeeper(reference.Kafka):
    """A broker of Apache Kafka 3.9 with the id 1; the rest is as in `reference.Kafka`."""

    def __init__(
        self, address: str, properties: Mapping[str, str] | None = None, jvm: Sequence[str] = ()
    ) -> None:
        self._address = address
        super().__init__(reference.OLDER, properties, jvm=[*reference.BROKER_JVM, *jvm])

    def _format(self, config: pathlib.Path) -> None:
        config.write_text(
            format_properties(
                {
                    "broker.id": "1",
                    "zookeeper.connect": self._address,
                    "zookeeper.session.timeout.ms": "4000",
                    "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                    "log.dirs": str(self.data_dir),
                    "offsets.topic.replication.factor": "1",
                    "group.initial.rebalance.delay.ms": "0",
                    **self._properties,
                }
            )
        )
