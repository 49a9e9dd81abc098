"""Apache Kafka from its own image by testcontainers, where a Docker engine answers; else from its Maven jars.

`real_kafka` chooses. Both kinds have `bootstrap_servers` and are context managers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from compat_tests import reference
from compat_tests.broker_host import host_for

PORT = 9092
"""Where the broker listens inside its container."""

IMAGE = "apache/kafka:{version}"


def engine_answers() -> bool:
    """Whether there is a Docker engine that this user may talk to."""
    try:
        import docker
    except ImportError:
        return False
    with contextlib.suppress(Exception):  # it has no common base for "no socket", "no right", "no answer"
        client = docker.from_env(timeout=5)
        try:
            return bool(client.ping())
        finally:
            client.close()
    return False


def environment_of(port: int, properties: Mapping[str, str]) -> dict[str, str]:
    """The image variables of the node that `reference.Kafka` sets up by file; `port` is the host's."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": f"PLAINTEXT://0.0.0.0:{PORT},CONTROLLER://localhost:9093",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **properties,
    }
    return {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in settings.items()}


class KafkaInContainer:
    """One combined node in a container, reached at a free port of this host."""

    def __init__(self, version: str, properties: Mapping[str, str]) -> None:
        self.version = version
        self.port = reference.free_port()
        self._environment = environment_of(self.port, properties)
        self._container: Any = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> KafkaInContainer:
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.waiting_utils import wait_for_logs

        container = DockerContainer(IMAGE.format(version=self.version))
        container.with_bind_ports(PORT, self.port)
        for name, value in self._environment.items():
            container.with_env(name, value)
        self._container = container.start()
        wait_for_logs(container, ".*Kafka Server started.*", timeout=120)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        container, self._container = self._container, None
        if container is not None:
            container.stop()


def real_kafka(version: str, properties: Mapping[str, str]) -> KafkaInContainer | reference.Kafka:
    if engine_answers():
        return KafkaInContainer(version, properties)
    return from_jars(version, properties)


def from_jars(version: str, properties: Mapping[str, str]) -> reference.Kafka:
    """The current version shares a virtual machine with others."""
    return reference.Kafka(version, properties, host=host_for(version))
