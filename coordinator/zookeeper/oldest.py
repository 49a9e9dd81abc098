"""The nodes of Kafka 0.7 in ZooKeeper.

They have the paths of later releases and other contents, so they are in directories of their own below ours.
A broker's node is `CREATOR:HOST:PORT`. A topic has a node for each broker, with the number of partitions
there. All of them end with the session of the broker. Consumers keep their own nodes beside them.

Source: KafkaZooKeeper, Broker and ZkUtils of Kafka 0.7.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView


def broker_path(folder: str, node_id: int) -> str:
    return f"{folder}/brokers/ids/{node_id}"


def consumers_path(folder: str) -> str:
    return f"{folder}/consumers"


def broker(host: str, port: int, now_ms: int) -> bytes:
    """A host with a colon, an address of IPv6, has no form there, and none of the clients takes it."""
    return f"{host}-{now_ms}:{host}:{port}".encode()


def topic_nodes(view: ClusterView, folder: str, node_id: int) -> dict[str, bytes]:
    """Paths and contents, for each topic that is not internal."""
    return {
        f"{folder}/brokers/topics/{name}/{node_id}": str(len(topic.partitions)).encode()
        for name, topic in view.topics.items()
        if not topic.is_internal
    }
