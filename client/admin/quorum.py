"""The quorum that keeps the metadata of a cluster (KRaft): its leader, voters and observers."""

from dataclasses import dataclass
from typing import Any

from odradek.client.client_error import ClientError, refusal
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class QuorumNode:
    """A node as the leader of the quorum sees it; times in ms since 1970, None if they are not known."""

    node: int
    is_voter: bool
    is_leader: bool
    log_end_offset: int
    lag: int | None
    """Records of the metadata log that it has not fetched; None if that is not known."""
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    addresses: list[str]
    """HOST:PORT of its listeners for controllers; empty for brokers, and before Kafka 3.9."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum; voters before observers, by id."""

    leader: int | None
    epoch: int
    high_watermark: int
    nodes: list[QuorumNode]


def describe_quorum(cluster: Cluster) -> Quorum:
    """ClientError for a refusal, and for a cluster that keeps its metadata in ZooKeeper."""
    wanted = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
    response = cluster.ask(ANY_NODE, DescribeQuorumRequest(topics=[wanted]))
    _raise_refusal(response)
    found = [one for topic in response.topics for one in topic.partitions]
    if not found:
        raise ClientError("the brokers tell nothing of the quorum")
    _raise_refusal(found[0])
    return _quorum(found[0], response.nodes)


def _raise_refusal(response: Any) -> None:
    code = error_of(response.error_code)
    if code != ErrorCode.NONE:
        raise refusal("describing the quorum", code, response.error_message)


def _quorum(found: Any, nodes: Any) -> Quorum:
    addresses = {
        node.node_id: [
            f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}"
            for one in node.listeners
        ]
        for node in nodes
    }
    every = [(True, one) for one in found.current_voters] + [(False, one) for one in found.observers]
    ends = [one.log_end_offset for _, one in every if one.replica_id == found.leader_id]
    end = ends[0] if ends else found.high_watermark
    return Quorum(
        found.leader_id if found.leader_id >= 0 else None,
        found.leader_epoch,
        found.high_watermark,
        [
            QuorumNode(
                one.replica_id,
                is_voter,
                one.replica_id == found.leader_id,
                one.log_end_offset,
                max(0, end - one.log_end_offset) if one.log_end_offset >= 0 else None,
                _time(one.last_fetch_timestamp),
                _time(one.last_caught_up_timestamp),
                addresses.get(one.replica_id, []),
            )
            for is_voter, one in sorted(every, key=lambda pair: (not pair[0], pair[1].replica_id))
        ],
    )


def _time(timestamp_ms: int) -> int | None:
    return timestamp_ms if timestamp_ms >= 0 else None
