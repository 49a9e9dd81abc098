"""A cluster of several nodes inside a Python program: `odradek.Cluster`, on this machine.

    with odradek.Cluster(nodes=3) as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
        producer.send("orders", b"one").get(30)
        leader = cluster.leader_of("orders")
        leader.kill()                               # SIGKILL: the controller elects another one at once
        leader.restart()                            # same port, same data
        leader.partition_from(*cluster.nodes)       # nothing passes between them, and nobody is told
        leader.heal()
        cluster.move_leader("orders", to=2)         # as an administrator does it

Each node is a process of its own, and so is the controller. With `controllers="kafka"` it is Apache Kafka's,
which needs Java 17 and Kafka's jars (`apache_kafka`), and elects after 9 s; several are always Kafka's. All
processes end with this one, whatever ends that.

Nodes and controllers reach each other through `links`, so that they can be cut off from each other. Clients
connect to the nodes directly: no cut is between a client and a node.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from odradek.embedding.apache_kafka import CONTROLLER_JVM, KafkaPrograms, find_kafka
from odradek.embedding.cluster_files import HOST, ClusterFiles
from odradek.embedding.cluster_moves import (
    asked,
    coordinating_partition,
    coordinator_of,
    described,
    move_leader,
)
from odradek.embedding.cluster_processes import ChildProcess, wait_until_ready
from odradek.embedding.defaults import EMBEDDED_OPTIONS
from odradek.embedding.kit_calls import KitSocket, WithTestKit
from odradek.embedding.links import Cut, Links
from odradek.server.process.child_python import child_environment
from odradek.wire.messages.metadata import MetadataRequest

Direction = Literal["both", "to", "from"]
Controllers = Literal["odradek", "kafka"]

READY_MARK = " ready on "
CONNECT_TIMEOUT_S = 5.0
POLL_S = 0.05


class Cluster:
    """A running cluster as a context manager; `start` and `stop` do the same by hand.

    The `nodes` nodes have the ids 1, 2, ..., the controllers 1001, 1002, ... `controllers` is "odradek" for
    one of ours, "kafka" for one of Apache Kafka's, or the number of Kafka's. With a `port` the nodes listen
    at it and at those after it, else at free ones, all on 127.0.0.1.
    `data_dir` is kept, a temporary directory is deleted by `close` (and by leaving the `with`).

    `options` are Kafka's options by their own names, for nodes and controllers alike; keywords do the same
    with underscores for dots. `node_options` are those of single nodes, by id: `{1: {"broker.rack": "a"}}`.
    Groups start without a delay. With three nodes or more, topics have three replicas of which two have to be
    in sync, unless options say otherwise.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        controllers: Controllers | int = "odradek",
        port: int = 0,
        data_dir: str | os.PathLike[str] | None = None,
        start_timeout_s: float = 90.0,
        options: Mapping[str, Any] | None = None,
        node_options: Mapping[int, Mapping[str, Any]] | None = None,
        **keywords: Any,
    ) -> None:
        if controllers not in ("odradek", "kafka") and not isinstance(controllers, int):
            raise ValueError(f'controllers is "odradek", "kafka" or a number of those, not {controllers!r}')
        count = controllers if isinstance(controllers, int) else 1
        if nodes < 1 or count < 1:
            raise ValueError("a cluster has one node and one controller at least")
        self._with_kafka = controllers != "odradek"
        self.start_timeout_s = start_timeout_s
        """Limit for the start of the whole cluster, and of a member that starts again."""
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="odradek-cluster-")
            data_dir = self._temporary.name
        self.data_dir = Path(data_dir).absolute()
        """Has a directory for each member: its server.properties, its log, and its data."""
        self._files = ClusterFiles(
            self.data_dir,
            nodes=nodes,
            controllers=count,
            with_kafka=self._with_kafka,
            port=port,
            options=_by_name({**EMBEDDED_OPTIONS, **(options or {}), **keywords}),
            node_options={node: _by_name(of_node) for node, of_node in (node_options or {}).items()},
        )
        self._links = Links(self._files.links(), self.data_dir / "links.log")
        self._cuts: set[Cut] = set()
        plan = self._files.plan
        self.nodes = [self._node(node, port) for node, (port, _, _) in plan.nodes.items()]
        """By ascending id."""
        self.controllers = [self._controller(one, port) for one, (port, _) in plan.controllers.items()]

    @property
    def cluster_id(self) -> str:
        return self._files.plan.cluster_id

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes, also of those that do not run: the clients' option of this name."""
        return ",".join(node.bootstrap_servers for node in self.nodes)

    @property
    def is_running(self) -> bool:
        """Whether every node and every controller runs."""
        return all(one.is_running for one in self._members)

    @property
    def links_pid(self) -> int | None:
        """Id of the process that has the links among the members; None when it does not run."""
        return self._links.pid

    def node(self, node_id: int) -> Node:
        """KeyError where there is none."""
        return {one.node_id: one for one in self.nodes}[node_id]

    def leader_of(self, topic: str, partition: int = 0, *, timeout_s: float = 60.0) -> Node:
        """The node that leads the partition. Waits while none does, or while one that does not run is named;
        then TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = described(self.nodes, topic, partition)
            if found is not None and found.leader_id >= 0 and self.node(found.leader_id).is_running:
                return self.node(found.leader_id)
            if time.monotonic() > deadline:
                raise TimeoutError(f"no node that runs leads {topic}-{partition} after {timeout_s:g} s")
            time.sleep(POLL_S)

    def move_leader(self, topic: str, partition: int = 0, *, to: Node | int, timeout_s: float = 60.0) -> None:
        """Has a node, or the one of this id, lead the partition: it becomes the first of the replicas, in
        place of the last one if it was none, and is elected once it is in sync. Returns when all nodes that
        run know it; TimeoutError with what was said last."""
        move_leader(self, topic, partition, _id(to), timeout_s)

    def coordinator_of(
        self, group: str | None = None, *, transactional_id: str | None = None, timeout_s: float = 60.0
    ) -> Node:
        """The node that coordinates a group or a transactional id. TimeoutError: none that runs."""
        return self.node(coordinator_of(self, *_key(group, transactional_id), timeout_s))

    def move_coordinator(
        self,
        group: str | None = None,
        *,
        transactional_id: str | None = None,
        to: Node | int,
        timeout_s: float = 60.0,
    ) -> None:
        """Has a node coordinate a group or a transactional id, and all others of the same partition of
        `__consumer_offsets` or `__transaction_state`, whose leader it becomes; as `move_leader`."""
        key = _key(group, transactional_id)
        coordinator_of(self, *key, timeout_s)
        move_leader(self, *coordinating_partition(self, *key), _id(to), timeout_s)

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """The ids of the replicas in sync (ISR), as far as the nodes know; empty: none knows it."""
        found = described(self.nodes, topic, partition)
        return set() if found is None else set(found.isr_nodes)

    def start(self) -> Self:
        """Starts what does not run, and returns when every node serves and knows of the others.
        ClusterStartError with the reason if that fails."""
        try:
            self._files.write()
            self._start()
        except BaseException:
            self._kill()
            raise
        return self

    def stop(self) -> None:
        """Stops the nodes cleanly, then the controllers; the data stays. Harmless when it does not run."""
        _end(self.nodes, signal.SIGTERM)
        _end(self.controllers, signal.SIGTERM)
        self._links.close()

    def close(self) -> None:
        """Stops it; if its directory is a temporary one, it is killed, and the directory deleted."""
        if self._temporary is None:
            self.stop()
        else:
            self._kill()
            self._temporary.cleanup()
        for node in self.nodes:
            node.kit.close()

    def heal(self) -> None:
        """Undoes every `partition_from`."""
        self.cut_only(())

    @property
    def cuts(self) -> frozenset[Cut]:
        """Cuts in force: from one member to another, by their ids."""
        return frozenset(self._cuts)

    def cut_only(self, cuts: Iterable[Cut]) -> None:
        """From now on, or from the start on, just these are cut. See `partition_from` of a node."""
        self._cuts = set(cuts)
        if self._links.pid is not None:
            self._links.cut(self._cuts)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        running = sum(node.is_running for node in self.nodes)
        return f"<odradek.Cluster of {len(self.nodes)} nodes, {running} of them running>"

    # Inside

    @property
    def _members(self) -> list[Node | Controller]:
        return [*self.controllers, *self.nodes]

    def _start(self) -> None:
        kafka = find_kafka() if self._with_kafka else None
        self._links.start()
        self._links.cut(self._cuts)
        if kafka is not None:
            self._files.format(kafka)
        starting = [member for member in self._members if not member.is_running]
        for member in starting:
            if isinstance(member, Controller) and kafka is not None:
                member.use(kafka, self._files.config_of(member.node_id))
            member.process.begin()
        wait_until_ready(
            [(member.process, partial(self._is_ready, member)) for member in starting],
            self.start_timeout_s,
            [member.process for member in self._members],
        )
        for member in starting:
            if isinstance(member, Node):
                member.tell_started()

    def _is_ready(self, member: Node | Controller) -> bool:
        """A node is once it knows of all others that run."""
        if not member.is_ready() or isinstance(member, Controller):
            return member.is_ready()
        response = asked(member, MetadataRequest(topics=[], allow_auto_topic_creation=False))
        named = set() if response is None else {broker.node_id for broker in response.brokers}
        return named >= {node.node_id for node in self.nodes if not node.process.is_paused}

    def _kill(self) -> None:
        _end(self._members, signal.SIGKILL)
        self._links.close()

    def _node(self, node_id: int, port: int) -> Node:
        kit = KitSocket()
        process = self._process("node", node_id, "--set", kit.setting(self._files.test_api_of(node_id)))
        return Node(self, node_id, process, port, self._files.data_of(node_id), kit)

    def _controller(self, node_id: int, port: int) -> Controller:
        if not self._with_kafka:
            return Controller(self, node_id, self._process("controller", node_id), port)
        # Its command is known once Java is found.
        process = ChildProcess(f"controller {node_id}", [], self._files.folder_of(node_id) / "log")
        return Controller(self, node_id, process, port)

    def _process(self, kind: str, node_id: int, *more: str) -> ChildProcess:
        command = [sys.executable, "-m", "odradek", "serve", str(self._files.config_of(node_id))]
        command += ["--cluster-id", self.cluster_id, *more]
        log = self._files.folder_of(node_id) / "log"
        return ChildProcess(f"{kind} {node_id}", command, log, child_environment())


class _Member:
    """A process of the cluster."""

    def __init__(self, cluster: Cluster, node_id: int, process: ChildProcess) -> None:
        self.node_id = node_id
        self.process = process
        self._cluster = cluster

    @property
    def pid(self) -> int | None:
        """None when it does not run."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Also while it is paused."""
        return self.process.is_running

    @property
    def log(self) -> str:
        """Output of the present or the last run."""
        return self.process.said()

    def is_ready(self) -> bool:
        """Whether it serves; of a node, whether its present run has ever done so."""
        raise NotImplementedError

    def start(self) -> Self:
        """Returns when it serves: after a kill, once the controllers have ended its session.
        ClusterStartError when it does not start."""
        if not self.is_running:
            self.process.begin()
            try:
                wait_until_ready([(self.process, self.is_ready)], self._cluster.start_timeout_s)
            except BaseException:
                self.kill()
                raise
        return self

    def stop(self) -> None:
        """A clean stop. Harmless when it does not run."""
        self.process.end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        self.process.end(signal.SIGKILL)

    def restart(self) -> Self:
        """Starts it again with the same port and data, after a clean stop if it still runs."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """SIGSTOP: it does nothing, its connections stay open. RuntimeError when it does not run."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT: it goes on, and does not know that time has passed."""
        self.process.resume()

    def partition_from(
        self, *others: Node | Controller | int, controllers: bool = False, direction: Direction = "both"
    ) -> None:
        """Cuts it off from other members (or their ids), and with `controllers` from all controllers.

        With direction "to" nothing that it sends reaches them; with "from" nothing that they send reaches it.
        What is sent waits until `heal`; no connection is reset. Clients reach it as before.
        """
        if direction not in ("both", "to", "from"):
            raise ValueError(f'direction is "both", "to" or "from", not {direction!r}')
        cuts = self._cuts_from(self._ids(others, controllers), direction)
        self._cluster.cut_only({*self._cluster.cuts, *cuts})

    def heal(self) -> None:
        """Connects it with everybody again."""
        self._cluster.cut_only(cut for cut in self._cluster.cuts if self.node_id not in cut)

    def _ids(self, others: Iterable[Node | Controller | int], controllers: bool) -> set[int]:
        ids = {one if isinstance(one, int) else one.node_id for one in others}
        if controllers:
            ids |= {one.node_id for one in self._cluster.controllers}
        unknown = ids - {one.node_id for one in (*self._cluster.nodes, *self._cluster.controllers)}
        ids.discard(self.node_id)
        if unknown or not ids:
            raise ValueError("name other members of the cluster, or controllers=True")
        return ids

    def _cuts_from(self, others: Iterable[int], direction: Direction) -> Iterator[Cut]:
        for other in others:
            if direction != "from":
                yield self.node_id, other
            if direction != "to":
                yield other, self.node_id

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.is_running else "stopped"
        return f"<{type(self).__name__} {self.node_id} of odradek.Cluster, {state}>"


class Node(_Member, WithTestKit):
    """A node of ours. `data_dir` has its logs, `port` is for clients."""

    def __init__(
        self,
        cluster: Cluster,
        node_id: int,
        process: ChildProcess,
        port: int,
        data_dir: Path,
        kit: KitSocket,
    ) -> None:
        super().__init__(cluster, node_id, process)
        self.port = port
        self.data_dir = data_dir
        self.kit = kit

    @property
    def bootstrap_servers(self) -> str:
        """Its own address, `host:port`."""
        return f"{HOST}:{self.port}"

    def is_ready(self) -> bool:
        return READY_MARK in self.process.said()

    def start(self) -> Self:
        begins = not self.is_running
        super().start()
        if begins:
            self.tell_started()
        return self

    def call_kit(self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        if not self.is_running:
            raise RuntimeError(f"node {self.node_id} does not run")
        return self.tell_called(operation, self.kit.call(operation, arguments, timeout_s))


class Controller(_Member):
    """A controller, of ours or of Apache Kafka."""

    def __init__(self, cluster: Cluster, node_id: int, process: ChildProcess, port: int) -> None:
        super().__init__(cluster, node_id, process)
        self._port = port

    @property
    def bootstrap_controllers(self) -> str:
        """HOST:PORT, for `--bootstrap-controller` of tools."""
        return f"{HOST}:{self._port}"

    def use(self, kafka: KafkaPrograms, config: Path) -> None:
        """Kafka's programs, with which it starts from now on."""
        jvm = (*CONTROLLER_JVM, "-Dlog4j2.level=WARN")
        self.process.command = kafka.command("kafka.Kafka", str(config), jvm=jvm)

    def is_ready(self) -> bool:
        try:
            with socket.create_connection((HOST, self._port), CONNECT_TIMEOUT_S):
                return True
        except OSError:
            return False


def _by_name(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in options.items()}


def _id(member: Node | int) -> int:
    return member if isinstance(member, int) else member.node_id


def _key(group: str | None, transactional_id: str | None) -> tuple[str, str]:
    """Kind and value of the one that is given."""
    given = {"group": group, "transactional_id": transactional_id}
    found = [(kind, value) for kind, value in given.items() if value is not None]
    if len(found) != 1:
        raise ValueError("name a group or a transactional_id")
    return found[0]


def _end(members: Sequence[Node | Controller], number: signal.Signals) -> None:
    """All at once."""
    for member in members:
        member.process.send(number)
    for member in members:
        member.process.finish()
