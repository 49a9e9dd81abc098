"""StreamsGroupTopologyDescriptionUpdate: the topology of an application, as people read it (KIP-1331)."""

from odradek.wire.schema import (
    ALL,
    INT8,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class TopologyDescriptionNode(Struct):
    name: str = on_wire(STRING)
    """Name of the node."""
    node_type: int = on_wire(INT8)
    """1: source, 2: processor, 3: sink."""
    source_topics: list[str] = on_wire(Array(STRING))
    """Topics that a source reads."""
    sink_topic: str | None = on_wire(STRING, default=None, nullable=ALL)
    """The topic that a sink writes; null for others, and where each record decides."""
    stores: list[str] = on_wire(Array(STRING))
    """State stores of a processor."""
    successors: list[str] = on_wire(Array(STRING))
    """Names of the nodes behind it."""


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = on_wire(STRING)
    """Name of the subtopology."""
    nodes: list[TopologyDescriptionNode] = on_wire(Array(TopologyDescriptionNode))
    """Nodes of the subtopology."""


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = on_wire(TopologyDescriptionNode)
    """The node that reads the topic of the store."""
    processor: TopologyDescriptionNode = on_wire(TopologyDescriptionNode)
    """The node that fills the store."""


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = on_wire(Array(TopologyDescriptionSubtopology))
    """The independent parts of the topology."""
    global_stores: list[TopologyDescriptionGlobalStore] = on_wire(Array(TopologyDescriptionGlobalStore))
    """Stores that each instance fills for itself."""


class StreamsGroupTopologyDescriptionUpdateRequest(Message, api_key=93, versions=(0, 0), flexible_since=0):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""
    topology_epoch: int = on_wire(INT32)
    """Epoch of the topology."""
    topology_description: TopologyDescription = on_wire(TopologyDescription)
    """The description."""


class StreamsGroupTopologyDescriptionUpdateResponse(Message, api_key=93, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
