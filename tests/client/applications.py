"""A member of a streams group that sends the description of its topology, as Kafka Streams does."""

from odradek.client.cluster import coordinator_of
from odradek.config.option_list import DESCRIPTIONS_IN_MEMORY
from odradek.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from odradek.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)

KEEPING = {"group.streams.topology.description.plugin.class": DESCRIPTIONS_IN_MEMORY}
"""The option of a broker that keeps descriptions."""


def node(name, node_type, *successors, **fields):
    lists = {"source_topics": [], "stores": [], **fields}
    return TopologyDescriptionNode(name=name, node_type=node_type, successors=list(successors), **lists)


COUNTING = TopologyDescription(
    subtopologies=[
        TopologyDescriptionSubtopology(
            subtopology_id="0",
            nodes=[
                node("read", 1, "split", source_topics=["lines", "more"]),
                node("split", 2, "keys", "count"),
                node("keys", 3, sink_topic="words"),
                node("count", 2, "any", stores=["counts"]),
                node("any", 3),
            ],
        ),
        TopologyDescriptionSubtopology(subtopology_id="1", nodes=[node("alone", 1, source_topics=["words"])]),
    ],
    global_stores=[
        TopologyDescriptionGlobalStore(
            source=node("rates", 1, "fill", source_topics=["rates"]),
            processor=node("fill", 2, stores=["rates"]),
        )
    ],
)


def start_application(cluster, group, topic, description=COUNTING):
    """Joins a new group, and sends a description unless it is None."""
    part = Subtopology(
        subtopology_id="0",
        source_topics=[topic],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    join = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=60_000,
        topology=Topology(epoch=0, subtopologies=[part]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        client_tags=[],
    )
    joined = cluster.ask(coordinator_of("group", group), join)
    assert joined.error_code == 0, joined
    if description is not None:
        update = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=group, member_id="m", topology_epoch=0, topology_description=description
        )
        assert cluster.ask(coordinator_of("group", group), update).error_code == 0
