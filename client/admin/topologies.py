"""Descriptions of the topologies of Kafka Streams, as their brokers keep them (KIP-1331)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from odradek.client.admin.asking import Refused
from odradek.client.admin.groups import ListedGroup
from odradek.client.client_error import ClientError, refusal
from odradek.client.cluster import Cluster, coordinator_of
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.streams_group_topology_description_update import (
    TopologyDescription,
    TopologyDescriptionNode,
)

AVAILABLE, FAILED = 3, 2
"""Statuses of a description that was asked for; any other: none is stored."""
DESCRIPTIONS_SINCE = 1
"""Version of StreamsGroupDescribe."""
NODE_TYPES = {1: "source", 2: "processor", 3: "sink"}


@dataclass(slots=True)
class TopologyNode:
    """A node, and its neighbours by name."""

    name: str
    type: str
    topics: list[str]
    """Topics that a source reads, or the one that a sink writes; none where each record decides."""
    stores: list[str]
    successors: list[str]
    predecessors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Subtopology:
    """Nodes that work on the same task, in the order of the application."""

    subtopology: str
    is_global: bool
    """Whether it fills a global store: each instance has all of that, and no task does it."""
    nodes: Sequence[TopologyNode]


@dataclass(frozen=True, slots=True)
class GroupTopology:
    group: str
    state: str
    epoch: int
    subtopologies: Sequence[Subtopology]


def describe_topologies(
    cluster: Cluster, groups: Iterable[ListedGroup]
) -> tuple[list[GroupTopology], list[Refused]]:
    """The topologies, in the order of the groups. One that is not described is refused."""
    found: list[GroupTopology] = []
    refused: list[Refused] = []
    for one in groups:
        try:
            found.append(_topology_of(cluster, one))
        except ClientError as error:
            refused.append(Refused(one.group, error))
    return found, refused


def _topology_of(cluster: Cluster, listed: ListedGroup) -> GroupTopology:
    group = listed.group
    if listed.type != "streams":
        raise ClientError(f"group {group} has no topology: it is a {listed.type} group, not of Kafka Streams")
    target = coordinator_of("group", group)
    if cluster.version_of(target, StreamsGroupDescribeRequest) < DESCRIPTIONS_SINCE:
        raise ClientError(
            f"the broker of group {group} keeps no descriptions of topologies: it is older than Kafka 4.4"
        )
    request = StreamsGroupDescribeRequest(group_ids=[group], include_topology_description=True)
    (response,) = cluster.ask(target, request).groups
    code = error_of(response.error_code)
    if code != ErrorCode.NONE:
        raise refusal(f"describing group {group}", code, response.error_message)
    status, description = response.topology_description_status, response.topology_description
    if status == FAILED:
        raise ClientError(f"the broker could not read the description of the topology of group {group}")
    if status != AVAILABLE or description is None:
        raise ClientError(
            f"no description of the topology of group {group} is stored: members of Kafka Streams 4.4 send "
            "one to a broker with group.streams.topology.description.plugin.class"
        )
    return GroupTopology(group, response.group_state, response.topology.epoch, _subtopologies(description))


def _subtopologies(description: TopologyDescription) -> list[Subtopology]:
    found = [Subtopology(one.subtopology_id, False, _linked(one.nodes)) for one in description.subtopologies]
    # Global stores have no names: numbers follow those of the others, as in Kafka's tool.
    for number, store in enumerate(description.global_stores, len(found)):
        found.append(Subtopology(str(number), True, _linked([store.source, store.processor])))
    return found


def _linked(nodes: Sequence[TopologyDescriptionNode]) -> list[TopologyNode]:
    """Nodes with their predecessors, which the protocol leaves to the reader."""
    found = [_node(one) for one in nodes]
    by_name = {one.name: one for one in found}
    for one in found:
        for name in one.successors:
            if name in by_name:
                by_name[name].predecessors.append(one.name)
    for one in found:
        one.predecessors.sort()
    return found


def _node(one: Any) -> TopologyNode:
    topics = sorted(one.source_topics) if one.sink_topic is None else [one.sink_topic]
    kind = NODE_TYPES.get(one.node_type, str(one.node_type))
    return TopologyNode(one.name, kind, topics, sorted(one.stores), sorted(one.successors))
