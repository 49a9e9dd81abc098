"""A node alone that is a controller at a listener of its own, in a process, as Kafka's combined node is."""

from __future__ import annotations

import pathlib
import signal
import sys
from collections.abc import Mapping

from compat_tests.reference import START_SECONDS, free_port
from odradek.config.properties import format_properties
from odradek.embedding.cluster_processes import ChildProcess, wait_until_ready

NODE_ID = 1


class CombinedNode:
    """A node of ours that is broker and controller, as its user starts it: from a server.properties."""

    def __init__(self, directory: pathlib.Path, properties: Mapping[str, str]) -> None:
        self.port, self.controller_port = free_port(), free_port()
        self.data_dir = directory / "data"
        self.config = directory / "server.properties"
        self.config.write_text(
            format_properties(
                {
                    "process.roles": "broker,controller",
                    "node.id": str(NODE_ID),
                    "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
                    "controller.listener.names": "CONTROLLER",
                    "listeners": f"PLAINTEXT://127.0.0.1:{self.port},"
                    f"CONTROLLER://127.0.0.1:{self.controller_port}",
                    "log.dirs": str(self.data_dir),
                    **properties,
                }
            )
        )
        command = [sys.executable, "-m", "odradek", "serve", str(self.config)]
        self.child = ChildProcess("node", command, directory / "log")

    def __enter__(self) -> CombinedNode:
        self.child.begin()
        wait_until_ready([(self.child, lambda: " ready on " in self.child.said())], START_SECONDS)
        return self

    def __exit__(self, *error: object) -> None:
        self.child.end(signal.SIGTERM)
