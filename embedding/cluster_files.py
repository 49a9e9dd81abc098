"""The directory of `odradek.Cluster`: which members there are, at which ports, and with which options.

cluster.json                  ids and ports, which stay the same over restarts
node-1/server.properties      of each node, beside its `log` and its `data`
controller-1001/...           of each controller; those of Kafka are formatted by its storage tool
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from odradek.config.broker_config import TEST_API_LISTEN, load
from odradek.config.config_error import ConfigError
from odradek.config.properties import format_properties
from odradek.embedding.apache_kafka import (
    KafkaPrograms,
    controller_properties,
    format_directory,
)
from odradek.embedding.cluster_processes import ClusterStartError
from odradek.embedding.free_port import free_port
from odradek.server.metadata.meta_properties import new_id

HOST = "127.0.0.1"
FIRST_CONTROLLER_ID = 1001
PLAN_FILE = "cluster.json"
REPLICAS_MAX, IN_SYNC_MIN = 3, 2
OF_EVERY_NODE = {
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "REPLICATION",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
}
"""Clients come to the listener PLAINTEXT, other nodes to REPLICATION."""
OF_ONE_NODE = (
    *("node.id", "broker.id", "controller.quorum.bootstrap.servers", "controller.quorum.voters"),
    *("listeners", "advertised.listeners", "log.dir", "log.dirs"),
)


@dataclass
class Plan:
    """By the ids of members their ports."""

    cluster_id: str
    nodes: dict[int, list[int]]
    """Ports for clients, for other nodes, and of the link in front of the second."""
    controllers: dict[int, list[int]]
    """Port, and that of the link in front of it."""
    with_kafka: bool = True
    """Whether the controllers are Kafka's, as all were before there were others."""


class ClusterFiles:
    """`options` are of all members, `node_options` of single nodes. ClusterStartError where the directory has
    another cluster."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int,
        controllers: int,
        with_kafka: bool,
        port: int,
        options: Mapping[str, Any],
        node_options: Mapping[int, Mapping[str, Any]],
    ) -> None:
        self._folder = folder
        self._options = {**_defaults(nodes), **options}
        self._node_options = node_options
        self.plan = _planned(folder, nodes, controllers, with_kafka, port)

    def links(self) -> list[tuple[int, int, int]]:
        """For `Links`."""
        nodes = [(node, link, inner) for node, (_, inner, link) in self.plan.nodes.items()]
        return nodes + [(one, link, port) for one, (port, link) in self.plan.controllers.items()]

    def folder_of(self, member: int) -> Path:
        """Directory of a node or a controller."""
        return self._folder / f"{'node' if member in self.plan.nodes else 'controller'}-{member}"

    def config_of(self, member: int) -> Path:
        return self.folder_of(member) / "server.properties"

    def data_of(self, member: int) -> Path:
        return self.folder_of(member) / "data"

    def test_api_of(self, node: int) -> Any:
        """Addresses that the options of a node name, or None."""
        return {**self._options, **self._node_options.get(node, {})}.get(TEST_API_LISTEN)

    def write(self) -> None:
        """All files. ClusterStartError for an option that a node does not take."""
        self._refuse_own_options()
        texts = {node: self._options_of(node) for node in self.plan.nodes}
        shared = {name: text for name, text in texts[1].items() if name in self._options}
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / PLAN_FILE).write_text(json.dumps(asdict(self.plan)))
        for node, given in texts.items():
            self._write(node, format_properties(given))
        # An option that Kafka does not know would be a warning in its log.
        of_kafka = {name: text for name, text in shared.items() if not name.startswith("odradek.")}
        for controller, (port, link) in self.plan.controllers.items():
            data = self.data_of(controller)
            servers = self._controllers
            text = controller_properties(controller, port, data, servers, of_kafka, advertised_port=link)
            self._write(controller, text)

    def format(self, kafka: KafkaPrograms) -> None:
        """The directories of new controllers of Kafka, all at once."""
        new = [one for one in self.plan.controllers if not (self.data_of(one) / "meta.properties").exists()]
        if not new:
            return
        arguments = self._quorum()
        with ThreadPoolExecutor(len(new)) as pool:
            formatting = [
                pool.submit(format_directory, kafka, self.plan.cluster_id, self.config_of(one), *arguments)
                for one in new
            ]
        for one in formatting:
            one.result()

    @property
    def _controllers(self) -> str:
        return ",".join(f"{HOST}:{link}" for _, link in self.plan.controllers.values())

    def _quorum(self) -> tuple[str, ...]:
        if len(self.plan.controllers) == 1:
            return ("--standalone",)
        voters = (
            f"{one}@{HOST}:{link}:{new_id(os.urandom)}" for one, (_, link) in self.plan.controllers.items()
        )
        return ("--initial-controllers", ",".join(voters))

    def _write(self, member: int, text: str) -> None:
        self.folder_of(member).mkdir(exist_ok=True)
        self.config_of(member).write_text(text)

    def _refuse_own_options(self) -> None:
        for name in (*self._options, *(name for of in self._node_options.values() for name in of)):
            if name in OF_EVERY_NODE or name in OF_ONE_NODE:
                raise ClusterStartError(f"odradek.Cluster sets {name} by itself: leave it out of the options")
        unknown = sorted(self._node_options.keys() - self.plan.nodes.keys())
        if unknown:
            raise ClusterStartError(
                f"node_options has node {unknown[0]}, and there are nodes 1 to {len(self.plan.nodes)}"
            )

    def _options_of(self, node: int) -> dict[str, str]:
        """A node's options, as the texts of its server.properties."""
        port, inner, link = self.plan.nodes[node]
        own = {
            "node.id": node,
            "controller.quorum.bootstrap.servers": self._controllers,
            "listeners": f"PLAINTEXT://{HOST}:{port},REPLICATION://{HOST}:{inner}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port},REPLICATION://{HOST}:{link}",
            "log.dirs": self.data_of(node),
        }
        try:
            keywords = {**self._options, **self._node_options.get(node, {}), **OF_EVERY_NODE, **own}
            return dict(load(keywords=keywords).layers.start)
        except ConfigError as error:
            raise ClusterStartError(str(error)) from error


def _defaults(nodes: int) -> dict[str, Any]:
    """Default options for a cluster of this many nodes."""
    replicas = min(REPLICAS_MAX, nodes)
    in_sync = max(min(IN_SYNC_MIN, replicas - 1), 1)
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _planned(folder: Path, nodes: int, controllers: int, with_kafka: bool, port: int) -> Plan:
    """That of the directory, or a new one."""
    file = folder / PLAN_FILE
    plan = _read(file) if file.exists() else _new_plan(nodes, controllers)
    if (len(plan.nodes), len(plan.controllers)) != (nodes, controllers):
        raise ClusterStartError(
            f"{folder} has a cluster of {len(plan.nodes)} nodes and {len(plan.controllers)} controllers, not "
            f"of {nodes} and {controllers}"
        )
    # One controller of Kafka and one of ours take each other's directory as it is.
    plan.with_kafka = with_kafka
    if port:
        for number, ports in enumerate(plan.nodes.values()):
            ports[0] = port + number
    return plan


def _read(file: Path) -> Plan:
    found = json.loads(file.read_text())
    nodes, controllers = (_by_number(found[kind].items()) for kind in ("nodes", "controllers"))
    return Plan(found["cluster_id"], nodes, controllers, found.get("with_kafka", True))


def _by_number(ports: Iterable[tuple[str, list[int]]]) -> dict[int, list[int]]:
    return {int(member): of_member for member, of_member in ports}


def _new_plan(nodes: int, controllers: int) -> Plan:
    return Plan(
        cluster_id=new_id(os.urandom),
        nodes={node: [free_port(), free_port(), free_port()] for node in range(1, nodes + 1)},
        controllers={FIRST_CONTROLLER_ID + at: [free_port(), free_port()] for at in range(controllers)},
    )
