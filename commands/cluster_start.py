"""`odradek cluster start`: nodes and a controller on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from odradek.commands.selecting import parse_whole
from odradek.config.command_line import exact

if TYPE_CHECKING:
    from odradek.embedding.embedded_cluster import Cluster

LOOK_EVERY_S = 0.5
NODES_MAX = 100
PORT_MAX = 65_536


def add_start(actions: Any) -> None:
    """The parser of the action."""
    about = "start nodes and a controller on this machine, until Ctrl-C or SIGTERM"
    parser = actions.add_parser("start", help=about, description=about)
    parser.set_defaults(runs_alone=start)
    parser.add_argument("--nodes", default="3", metavar="N", help="how many (default 3)")
    parser.add_argument(
        "--port",
        default="9092",
        metavar="PORT",
        help="of the first node, the others follow it (default 9092; 0: free ones)",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="where the data of all nodes are and stay (default: a temporary directory, deleted at the end)",
    )
    parser.add_argument(
        "--controllers",
        choices=("odradek", "kafka"),
        default="odradek",
        help="whose controller it is; that of Apache Kafka needs Java (default odradek)",
    )
    parser.add_argument(
        "--set",
        type=exact,
        action="append",
        default=[],
        dest="sets",
        metavar="NAME=VALUE",
        help="set one of Kafka's options for all nodes; may be given many times",
    )


def start(options: argparse.Namespace) -> int:
    """Run the cluster; returns the exit status."""
    from odradek.embedding.cluster_processes import ClusterStartError
    from odradek.embedding.embedded_cluster import Cluster

    nodes = parse_whole(options.nodes, "--nodes", 1, NODES_MAX)
    port = parse_whole(options.port, "--port", 0, PORT_MAX - nodes)
    try:
        cluster = Cluster(
            nodes,
            controllers=options.controllers,
            port=port,
            data_dir=options.data_dir,
            options=dict(_option(text) for text in options.sets),
        )
        with _signals_set() as stopping:
            try:
                cluster.start()
                _tell_ready(cluster)
                _watch(cluster, stopping)
            finally:
                cluster.close()
    except (ClusterStartError, ValueError) as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _signals_set() -> Iterator[threading.Event]:
    """Set by SIGTERM and Ctrl-C; afterwards they mean what they meant before."""
    stopping = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"--set takes NAME=VALUE, not {text!r}.")
    return name.strip(), value.strip()


def _tell_ready(cluster: Cluster) -> None:
    """One line that people read and scripts wait for, as that of `odradek serve`."""
    nodes = f"{len(cluster.nodes)} nodes" if len(cluster.nodes) > 1 else "1 node"
    print(
        f"odradek cluster ready on {cluster.bootstrap_servers.replace(',', ', ')} "
        f"({nodes}, cluster {cluster.cluster_id}, data {cluster.data_dir})",
        flush=True,
    )


def _watch(cluster: Cluster, stopping: threading.Event) -> None:
    """Tell of members that end by themselves: the others go on."""
    members = [*cluster.nodes, *cluster.controllers]
    running = dict.fromkeys(members, True)
    while not stopping.wait(LOOK_EVERY_S):
        for member in members:
            if running[member] and not member.is_running:
                running[member] = False
                print(f"odradek: {member.process.name} has ended: {member.process.log}", file=sys.stderr)
