"""`OdradekContainer`: a broker in Docker for testcontainers, with the interface of its `KafkaContainer`.

    with OdradekContainer() as kafka:
        producer = KafkaProducer(bootstrap_servers=kafka.get_bootstrap_server())

Docker maps the listener's port to a free one of the host, which no broker can see from inside; so the broker
is started by a script that is put into the container once the port is known, and advertises that. Containers
of the same network reach it at port 9092 of its own address, where it answers with the address they used.
"""

from __future__ import annotations

import io
import shlex
import tarfile
import time
from typing import Any, Self

try:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.waiting_utils import wait_for_logs
except ImportError as error:
    raise ImportError("OdradekContainer needs testcontainers: pip install 'odradek[testing]'") from error

IMAGE = "odradek:latest"
READY_PATTERN = r"odradek .* ready on "
START_SCRIPT = "/tmp/odradek-start.sh"
NETWORK_PORT = 9092


class OdradekContainer(DockerContainer):
    """A broker for tests; settings go in as `with_env("KAFKA_NUM_PARTITIONS", "3")`, as in Kafka's image."""

    def __init__(
        self,
        image: str = IMAGE,
        port: int = 9093,
        wait_strategy_check_string: str = READY_PATTERN,
        listener_name: str = "PLAINTEXT",
        security_protocol: str = "PLAINTEXT",
        **arguments: Any,
    ) -> None:
        if security_protocol != "PLAINTEXT":
            raise ValueError(f"security_protocol={security_protocol!r}: the container serves PLAINTEXT only")
        super().__init__(image, **arguments)
        self.port = port
        self.ready_pattern = wait_strategy_check_string
        self.listener_name = listener_name
        self.with_exposed_ports(port)
        self.with_env("KAFKA_LISTENERS", f"{listener_name}://0.0.0.0:{port},NETWORK://0.0.0.0:{NETWORK_PORT}")
        self.with_env("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", f"{listener_name}:PLAINTEXT,NETWORK:PLAINTEXT")
        self.with_env("KAFKA_INTER_BROKER_LISTENER_NAME", "NETWORK")
        self.with_env("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0")

    def with_kraft(self) -> Self:
        """Nothing to do: there is no ZooKeeper here; for tests that were written for `KafkaContainer`."""
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        self.with_env("CLUSTER_ID", cluster_id)
        return self

    def get_bootstrap_server(self) -> str:
        """`host:port` as seen from the tests."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(self.port)}"

    def start(self, timeout: int = 30) -> Self:
        """Starts the container, then the broker in it; returns when it answers."""
        waiting = f"while [ ! -f {START_SCRIPT} ]; do sleep 0.05; done; exec sh {START_SCRIPT}"
        self.with_kwargs(entrypoint=["sh", "-c", waiting])
        super().start()
        self.create_file(self.start_script(self.get_bootstrap_server()), START_SCRIPT)
        wait_for_logs(self, self.ready_pattern, timeout=timeout)
        return self

    def start_script(self, address: str) -> bytes:
        """The shell script that starts the broker and advertises `address` for the mapped listener."""
        advertised = shlex.quote(f"advertised.listeners={self.listener_name}://{address}")
        return f"exec odradek serve --set {advertised}\n".encode()

    def create_file(self, content: bytes, path: str) -> None:
        """Puts a file into the running container; `path` is absolute."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size = len(content)
            entry.mtime = int(time.time())
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(content))
        self.get_wrapped_container().put_archive("/", archive.getvalue())
