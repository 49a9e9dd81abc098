"""Leaders and coordinators of an `odradek.Cluster`: who they are, and how a test moves them to another node.

A move is that of an administrator, as with the fault `leader_moved` (`server/test_kit/moves.py`): clients see
what they see when a leader moves in production.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from odradek.embedding.cluster_files import HOST
from odradek.server.test_kit.kit import TestKitError
from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.schema import Message

VERSIONS: dict[type[Message], int] = {
    MetadataRequest: 9,
    FindCoordinatorRequest: 3,
}
KEY_TYPES = {"group": 0, "transactional_id": 1}
ASK_TIMEOUT_S = 5.0
TURN_S = 10.0
POLL_S = 0.05


class Process(Protocol):
    """A process of a node."""

    @property
    def is_paused(self) -> bool: ...


class Node(Protocol):
    """A node of a cluster, as `embedding/embedded_cluster.py` has it."""

    node_id: int
    port: int

    @property
    def process(self) -> Process: ...
    @property
    def is_running(self) -> bool: ...
    def call_kit(
        self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None = None
    ) -> Any: ...


class Cluster(Protocol):
    """A cluster with its nodes."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    def node(self, node_id: int) -> Node: ...


def asked(node: Node, request: Message) -> Any:
    """The response of a node; None where it does not answer."""
    if not node.is_running or node.process.is_paused:
        return None
    version = VERSIONS[type(request)]
    try:
        with socket.create_connection((HOST, node.port), ASK_TIMEOUT_S) as connection:
            connection.sendall(request_frame(request, version, 1, "odradek.Cluster"))
            with connection.makefile("rb") as responses:
                frame = responses.read(int.from_bytes(responses.read(4), "big"))
        return read_response(frame, type(request), version)[1]
    except (OSError, MalformedMessage):
        return None


def described(nodes: Iterable[Node], topic: str, partition: int) -> Any:
    """The partition as its leader describes it, or else whoever knows of the latest leader; None where nobody
    knows it."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    found = []
    for node in nodes:
        response = asked(node, request)
        for one in () if response is None else response.topics[0].partitions:
            if one.partition_index == partition:
                found.append((one.leader_epoch, one.leader_id == node.node_id, one))
    return max(found, key=lambda one: one[:2])[2] if found else None


def move_leader(cluster: Cluster, topic: str, partition: int, to: int, timeout_s: float) -> None:
    """Returns when the node of this id leads the partition and each node that runs knows it. The test kit of
    a node moves it; of the next one if it does not come to that within `TURN_S`. TimeoutError."""
    target = cluster.node(to)
    step = _Steps(f"{target} does not lead {topic}-{partition}", timeout_s)
    while not all(_leader_by(node, topic, partition) == to for node in _running(cluster)):
        for node in _running(cluster):
            turn_s = min(TURN_S, step.seconds_left)
            given = {"topic": topic, "partition": partition, "to": to, "timeout": turn_s}
            try:
                node.call_kit("faults.move_leader", given, turn_s + ASK_TIMEOUT_S)
                break
            except (OSError, RuntimeError, TestKitError) as error:
                # A node that has just ended, or knows less than others.
                step.tried(str(error))
        step.wait()


def coordinator_of(cluster: Cluster, key_type: str, key: str, timeout_s: float) -> int:
    """The id of the node that coordinates a group or a transactional id. TimeoutError: none that runs."""
    step = _Steps(f"nobody coordinates {key!r}", timeout_s)
    while True:
        for node in _running(cluster):
            response = asked(node, FindCoordinatorRequest(key=key, key_type=KEY_TYPES[key_type]))
            if response is None:
                continue
            if response.error_code == ErrorCode.NONE and cluster.node(response.node_id).is_running:
                return int(response.node_id)
            step.tried(ErrorCode(response.error_code).name)
        step.wait()


def coordinating_partition(cluster: Cluster, key_type: str, key: str) -> tuple[str, int]:
    """The partition whose leader is the coordinator. The topic is there once there is a coordinator."""
    node = next(iter(_running(cluster)))
    found = node.call_kit("state.coordinating_partition", {key_type: key})
    return found["topic"], found["partition"]


class _Steps:
    """Repeats steps until a deadline."""

    def __init__(self, trouble: str, timeout_s: float) -> None:
        self._trouble, self._last = trouble, ""
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s

    def tried(self, outcome: str) -> None:
        self._last = f": the last thing that was said is {outcome}"

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def wait(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"{self._trouble} after {self._timeout_s:g} s{self._last}")
        time.sleep(POLL_S)


def _running(cluster: Cluster) -> list[Node]:
    return [node for node in cluster.nodes if node.is_running and not node.process.is_paused]


def _leader_by(node: Node, topic: str, partition: int) -> int | None:
    """The leader as a node knows it."""
    one = described([node], topic, partition)
    return None if one is None else int(one.leader_id)
