"""`odradek groups describe --topology`: what an application of Kafka Streams does, node by node.

For people it is the text of `Topology.describe()`, as Kafka's tool prints it, which programs that draw
topologies read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from odradek.client.admin.topologies import GroupTopology, Subtopology, TopologyNode, describe_topologies
from odradek.client.cluster import Cluster
from odradek.commands.asking import failed
from odradek.commands.group_changes import existing_groups
from odradek.commands.output import Column, Output

_COLUMNS = [
    Column("group"),
    Column("subtopology"),
    Column("node"),
    Column("node_type"),
    Column("topics"),
    Column("stores"),
    Column("successors"),
    Column("predecessors"),
]
_HANGING = 8


def show_topologies(
    cluster: Cluster, patterns: Sequence[str], output: Output, more: Mapping[str, Any]
) -> int:
    """Shows the topologies of these groups; returns the exit status."""
    listed, missing = existing_groups(cluster, patterns)
    described, refused = describe_topologies(cluster, listed)
    if output.is_table:
        for one in described:
            output.heading(f"{one.group}: {one.state}, streams, epoch {one.epoch} of the topology")
            for line in topology_lines(one.subtopologies):
                output.line(line, hanging=_HANGING)
    else:
        output.rows(_COLUMNS, [{**more, **row} for one in described for row in _rows(one)])
    return failed([*missing, *refused])


def _rows(one: GroupTopology) -> list[dict[str, Any]]:
    return [
        {
            "group": one.group,
            "type": "streams",
            "state": one.state,
            "topology_epoch": one.epoch,
            "subtopology": part.subtopology,
            "global": part.is_global,
            "node": node.name,
            "node_type": node.type,
            "topics": node.topics,
            "stores": node.stores,
            "successors": node.successors,
            "predecessors": node.predecessors,
        }
        for part in one.subtopologies
        for node in part.nodes
    ]


def topology_lines(subtopologies: Sequence[Subtopology]) -> list[str]:
    """Lines of Kafka's text."""
    lines = ["Topologies:"]
    for part in subtopologies:
        about = " for global store (will not generate tasks)" if part.is_global else ""
        lines.append(f"   Sub-topology: {part.subtopology}{about}")
        for node in part.nodes:
            lines += _node_lines(node)
        lines.append("")
    return lines


def _node_lines(node: TopologyNode) -> list[str]:
    forth, back = f"      --> {_names(node.successors)}", f"      <-- {_names(node.predecessors)}"
    if node.type == "source":
        return [f"    Source: {node.name} (topics: [{', '.join(node.topics)}])", forth]
    if node.type == "sink":
        # Where each record decides, there is none.
        topic = node.topics[0] if node.topics else "null"
        return [f"    Sink: {node.name} (topic: {topic})", back]
    return [f"    Processor: {node.name} (stores: [{', '.join(node.stores)}])", forth, back]


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
