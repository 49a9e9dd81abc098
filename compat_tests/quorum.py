"""A cluster of several processes: Kafka's own controllers, Kafka's brokers, and nodes of Odradek.

`Controllers` is a quorum of one controller, Kafka's or, with `--controllers=odradek`, ours;
`ControllerQuorum` is one of several of Kafka, `KafkaMember` a broker of
Kafka under it, `OdradekMember` a node of ours. Each has `start`, `stop`, `kill` and `restart`; only processes
that were started here are ever signalled.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from compat_tests import reference
from compat_tests.differential.harness import Side
from compat_tests.reference import CURRENT, SHOWN_LENGTH, START_SECONDS, Host, free_port, programs
from odradek.config.properties import format_properties
from odradek.embedding.apache_kafka import (
    CONTROLLER_JVM,
    controller_properties,
    format_directory,
)
from odradek.embedding.cluster_processes import ChildProcess, wait_until_ready
from odradek.server.metadata.meta_properties import new_id
from odradek.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

CONTROLLER_ID = 100
BROKER_JVM = ["-Xms128m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

INTERNAL_TOPICS = {
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def new_cluster_id() -> str:
    return new_id(os.urandom)


class Controllers(reference.Kafka):
    """One controller, of Apache Kafka unless `are_ours`. `features` are the levels that differ from
    those of a new cluster: one of the newest release, or of `release`, such as "4.0". With a `host` it cannot
    be killed.
    `of_members` are properties of its nodes, unless they say otherwise; where controllers `are_shared`, a
    node of ours leaves in order."""

    are_ours = False
    """Whether those of the current version are ours."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        features: Mapping[str, int] | None = None,
        release: str | None = None,
        version: str = CURRENT,
        prefix: Sequence[str] = (),
        parent: pathlib.Path | None = None,
        of_members: Mapping[str, str] | None = None,
        are_shared: bool = False,
        host: Host | None = None,
    ) -> None:
        self.cluster_id = new_cluster_id()
        self.of_members = dict(of_members or {})
        self.are_shared = are_shared
        self.is_ours = self.are_ours and version == CURRENT
        formatting = _levels(features or {})
        if release is not None:
            formatting += ["--release-version", release]
        super().__init__(
            version,
            properties,
            formatting=formatting,
            jvm=CONTROLLER_JVM,
            prefix=prefix,
            parent=parent,
            host=None if self.is_ours else host,
        )

    @property
    def log(self) -> str:
        """Lines of all its runs."""
        return self._log_text()

    def launch(self) -> None:
        if not self.is_ours:
            super().launch()
            return
        self._prepare()
        is_new = not (self.data_dir / "meta.properties").exists()
        command = [*self._prefix, sys.executable, "-m", "odradek", "serve", str(self._config)]
        command += ["--cluster-id", self.cluster_id, *(self._formatting if is_new else ())]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def _format(self, config: pathlib.Path) -> None:
        own = (CONTROLLER_ID, self.port, self.data_dir, self.bootstrap_servers)
        config.write_text(controller_properties(*own, self._properties))
        if not self.is_ours:
            self._format_directories(config, ["--standalone", *self._formatting], self.cluster_id)


class _Voter(reference.Kafka):
    """One controller of a quorum of several."""

    def __init__(self, quorum: ControllerQuorum, node_id: int, properties: Mapping[str, str]) -> None:
        self._quorum = quorum
        self.node_id = node_id
        self.directory_id = new_id(os.urandom)
        super().__init__(quorum.version, properties, jvm=CONTROLLER_JVM)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def _format(self, config: pathlib.Path) -> None:
        own = (self.node_id, self.port, self.data_dir, self._quorum.bootstrap_servers)
        config.write_text(controller_properties(*own, self._properties))
        initial = ",".join(
            f"{one.node_id}@{one.bootstrap_servers}:{one.directory_id}" for one in self._quorum.voters
        )
        arguments = ["--initial-controllers", initial, *self._formatting]
        self._format_directories(config, arguments, self._quorum.cluster_id)


class ControllerQuorum:
    """Several controllers of Apache Kafka, which elect one of them."""

    are_shared = False

    def __init__(
        self,
        count: int = 3,
        properties: Mapping[str, str] | None = None,
        *,
        of_members: Mapping[str, str] | None = None,
    ) -> None:
        self.version = CURRENT
        self.of_members = dict(of_members or {})
        self.cluster_id = new_cluster_id()
        self.voters: list[_Voter] = []
        self.voters += [_Voter(self, CONTROLLER_ID + number, properties or {}) for number in range(count)]

    @property
    def bootstrap_servers(self) -> str:
        """Of all."""
        return ",".join(one.bootstrap_servers for one in self.voters)

    def leader(self) -> _Voter:
        """The one that leads now; waits until one does."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            for one in self.voters:
                found = next((two for two in self.voters if two.node_id == leader_named_by(one)), None)
                if found is not None and found.is_running:
                    return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"no controller leads after {START_SECONDS} s")
            time.sleep(0.1)

    def __enter__(self) -> ControllerQuorum:
        for one in self.voters:
            one.start()
        return self

    def __exit__(self, *error: Any) -> None:
        for one in self.voters:
            one.__exit__(*error)


def leader_named_by(controller: reference.Kafka) -> int:
    """Whom a controller names as the leader of the quorum; -1 where it does not answer."""
    return _described(controller, "leader_id")


def committed_by(controller: reference.Kafka) -> int:
    """The high watermark of the metadata log, as the controller that leads says it."""
    return _described(controller, "high_watermark")


def _described(controller: reference.Kafka, field: str) -> int:
    wanted = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    side = Side("controller", controller.bootstrap_servers)
    try:
        answer = side.ask(DescribeQuorumRequest(topics=[wanted]), 1)
    except OSError:
        return -1
    finally:
        side.close()
    if isinstance(answer, str) or not answer.topics:
        return -1
    return int(getattr(answer.topics[0].partitions[0], field))


def _levels(features: Mapping[str, int]) -> list[str]:
    return [text for name, level in features.items() for text in ("--feature", f"{name}={level}")]


AnyControllers = Controllers | ControllerQuorum


class KafkaMember(reference.Kafka):
    """A broker of Apache Kafka that `controllers` control; the rest is as in `reference.Kafka`."""

    def __init__(
        self,
        controllers: AnyControllers,
        node_id: int,
        properties: Mapping[str, str] | None = None,
        *,
        jvm: Sequence[str] = BROKER_JVM,
        prefix: Sequence[str] = (),
        parent: pathlib.Path | None = None,
        is_fast_to_start: bool = True,
        host: Host | None = None,
        version: str | None = None,
    ) -> None:
        """`version` is its own, if it is not that of the controllers."""
        self._controllers = controllers
        self.node_id = node_id
        more = {**INTERNAL_TOPICS, **(properties or {})}
        super().__init__(
            version or controllers.version,
            more,
            jvm=jvm,
            prefix=prefix,
            parent=parent,
            is_fast_to_start=is_fast_to_start,
            host=host,
        )

    def _format(self, config: pathlib.Path) -> None:
        config.write_text(
            broker_properties(self._controllers, self.node_id, self.port, self.data_dir, self._properties)
        )
        self._format_directories(config, ["--no-initial-controllers"], self._controllers.cluster_id)


ENTERED: set[OdradekMember] = set()
"""The nodes of ours that run now. A test that fails shows their logs."""


class OdradekMember:
    """A node of ours that `controllers` control, started as its user does: from a server.properties. `prefix`
    and `parent` are as in `reference.Kafka`."""

    def __init__(
        self,
        controllers: AnyControllers,
        node_id: int,
        properties: Mapping[str, str] | None = None,
        *,
        prefix: Sequence[str] = (),
        parent: pathlib.Path | None = None,
    ) -> None:
        self._prefix = prefix
        self.node_id = node_id
        self.controllers = controllers
        self.port = free_port()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="odradek-member-", dir=parent))
        self.data_dir = self.directory / "data"
        self._config = self.directory / "server.properties"
        more = {**INTERNAL_TOPICS, **(properties or {})}
        self._config.write_text(broker_properties(controllers, node_id, self.port, self.data_dir, more))
        self._child = ChildProcess(f"node {node_id}", [], self.directory / "broker.log")

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self._child.popen

    @property
    def is_running(self) -> bool:
        return self._child.is_running

    @property
    def log(self) -> str:
        """What the node has printed, in all its runs."""
        return self._child.log.read_text() if self._child.log.exists() else ""

    def __enter__(self) -> OdradekMember:
        ENTERED.add(self)
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        ENTERED.discard(self)
        if self.controllers.are_shared and error is None:
            self.stop()
        else:
            self.kill()
        if error is not None:
            error.add_note(f"the log of node {self.node_id} ended with:\n{self.log[-SHOWN_LENGTH:]}")
        shutil.rmtree(self.directory, ignore_errors=True)

    def add_properties(self, properties: Mapping[str, str]) -> None:
        """For its next start; of two lines for one property the later counts."""
        lines = "".join(f"{name}={value}\n" for name, value in properties.items())
        self._config.write_text(f"{self._config.read_text()}\n{lines}")

    def format(self) -> None:
        """Has Kafka's storage tool format the directory."""
        kafka = programs(self.controllers.version)
        format_directory(kafka, self.controllers.cluster_id, self._config, "--no-initial-controllers")

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts the process and does not wait for it."""
        self._child.command = [
            *self._prefix,
            sys.executable,
            "-m",
            "odradek",
            "serve",
            str(self._config),
            *arguments,
        ]
        self._child.begin()
        return self._child.popen

    def start(self) -> None:
        """Returns when the node is unfenced and answers."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Starts the process and does not wait for it."""
        self.begin()

    def wait_until_ready(self) -> None:
        """Returns when the launched process is unfenced and answers."""
        wait_until_ready([(self._child, lambda: " ready on " in self._child.said())], START_SECONDS)

    def stop(self) -> None:
        """As its operator does; kills it when it has not ended after 30 s."""
        self._child.end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._child.end(signal.SIGKILL)

    def restart(self) -> None:
        """Stops it if it runs, then starts it on the same port and data."""
        self.stop()
        self.start()


def broker_properties(
    controllers: AnyControllers, node_id: int, port: int, data: object, more: Mapping[str, str]
) -> str:
    """A server.properties that either kind of broker takes; `data` is its log directory, or several with
    commas."""
    return format_properties(
        {
            "process.roles": "broker",
            "node.id": str(node_id),
            "controller.quorum.bootstrap.servers": controllers.bootstrap_servers,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(data),
            "group.initial.rebalance.delay.ms": "0",
            **controllers.of_members,
            **more,
        }
    )
