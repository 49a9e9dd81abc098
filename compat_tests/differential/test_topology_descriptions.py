"""Descriptions of topologies (KIP-1331), kept in memory by both: who is asked, what is refused, what is told
of a group, and which records are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from compat_tests import reference
from compat_tests.differential.conftest import SETTINGS
from compat_tests.differential.harness import Pair
from compat_tests.differential.members import settle_coordinator
from compat_tests.differential.pairs import pair_of
from compat_tests.differential.test_consumer_groups import compare_records
from compat_tests.differential.test_streams_groups import has, join, new_group, stay, subtopology
from compat_tests.differential.topics import new_topic
from compat_tests.kit.group_wire import commit
from odradek.config.option_list import DESCRIPTIONS_IN_MEMORY
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from odradek.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)

SOURCE, PROCESSOR, SINK = 1, 2, 3
NOT_STORED, AVAILABLE = 1, 3


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    keeping = {"group.streams.topology.description.plugin.class": DESCRIPTIONS_IN_MEMORY}
    with pair_of(reference.CURRENT, SETTINGS | keeping) as pair:
        settle_coordinator(pair)
        yield pair


def node(name: str, node_type: int, *successors: str, **fields: Any) -> TopologyDescriptionNode:
    lists: dict[str, Any] = {"source_topics": [], "stores": [], **fields}
    return TopologyDescriptionNode(name=name, node_type=node_type, successors=list(successors), **lists)


def description(
    *nodes: TopologyDescriptionNode, stores: tuple[TopologyDescriptionGlobalStore, ...] = ()
) -> TopologyDescription:
    subtopology = TopologyDescriptionSubtopology(subtopology_id="0", nodes=list(nodes))
    return TopologyDescription(subtopologies=[subtopology], global_stores=list(stores))


CHAIN = description(
    node("KSTREAM-SOURCE-0", SOURCE, "count", source_topics=["in"]),
    node("count", PROCESSOR, "write", "dynamic", stores=["counts", "more"]),
    node("write", SINK, sink_topic="out"),
    node("dynamic", SINK),
    stores=(
        TopologyDescriptionGlobalStore(
            source=node("global-source", SOURCE, "global", source_topics=["all"]),
            processor=node("global", PROCESSOR, stores=["table"]),
        ),
    ),
)
ODD = description(
    node("a", SOURCE, "b", "b", source_topics=["t", "t"], stores=["not mine"], sink_topic="neither"),
    node("a", PROCESSOR, "nowhere", stores=["s", "s"], source_topics=["not mine"]),
    node("", SINK, "behind", sink_topic="", stores=["not mine"]),
)


def update(
    pair: Pair, group: str, note: str, told: TopologyDescription = CHAIN, member: str = "m", epoch: int = 1
) -> int:
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=group, member_id=member, topology_epoch=epoch, topology_description=told
    )
    return int(pair.ask(lambda _: request, 0, note)[1].error_code)


def beat(pair: Pair, request: StreamsGroupHeartbeatRequest, note: str, version: int = 1) -> tuple[int, bool]:
    """The epoch that the member is told, and whether it is asked for a description."""
    response = pair.ask(lambda _: request, version, note)[1]
    return response.member_epoch, response.topology_description_required


def described(pair: Pair, group: str, note: str) -> int:
    request = StreamsGroupDescribeRequest(group_ids=[group], include_topology_description=True)
    found = pair.ask(lambda _: request, 1, note)[1].groups[0]
    pair.ask(lambda _: replace(request, include_topology_description=False), 1, f"{note}, not asked for")
    return int(found.topology_description_status)


def delete(pair: Pair, group: str, note: str) -> None:
    pair.ask(lambda _: DeleteGroupsRequest(groups_names=[group]), 3, note)


def test_one_member_is_asked_and_what_it_sends_is_described_until_the_group_is_deleted(pair: Pair) -> None:
    topic = new_topic(pair, "described", 2)
    group = new_group(pair)
    plain = subtopology("0", [topic])
    epoch, wanted = beat(pair, join(group, "m", plain), "the first member")
    assert wanted
    assert not beat(pair, stay(group, "m", epoch, **has(0, 1)), "it is not asked again")[1]
    assert not beat(pair, join(group, "n", plain), "nor is another one")[1]
    assert described(pair, group, "nothing stored") == NOT_STORED
    assert update(pair, group, "stored") == 0
    assert described(pair, group, "stored") == AVAILABLE
    assert not beat(pair, stay(group, "m", epoch, **has(0)), "nor with one stored")[1]
    assert update(pair, group, "again, by another one", ODD, "n") == 0
    assert described(pair, group, "with much that is odd") == AVAILABLE
    delete(pair, group, "not empty")
    for member in "mn":
        beat(pair, stay(group, member, -1), f"{member} leaves")
    assert described(pair, group, "empty") == AVAILABLE
    delete(pair, group, "empty")
    described(pair, group, "deleted")
    compare_records(pair, group)
    assert beat(pair, join(group, "m", plain), "a new group")[1]
    assert described(pair, group, "of the new group") == NOT_STORED


def test_members_of_version_0_are_not_asked_and_a_leaving_one_neither(pair: Pair) -> None:
    topic = new_topic(pair, "described", 1)
    group = new_group(pair)
    beat(pair, join(group, "m", subtopology("0", [topic])), "version 0", version=0)
    beat(pair, stay(group, "m", -1), "it leaves")
    assert beat(pair, join(group, "m", subtopology("0", [topic])), "version 1")[1]
    compare_records(pair, group)


def test_updates_that_are_refused(pair: Pair) -> None:
    topic = new_topic(pair, "described", 1)
    group = new_group(pair)
    update(pair, group, "no group")
    update(pair, "", "a group without a name")
    update(pair, " ", "a group of blanks")
    update(pair, group, "no member and no group", member="")
    beat(pair, join(group, "m", subtopology("0", [topic])), "a member")
    for note, told in {
        "another member": {"member": "n"},
        "no member": {"member": ""},
        "a member of blanks": {"member": "  "},
        "an epoch to come": {"epoch": 7},
        "an epoch before": {"epoch": 0},
        "another member and an epoch to come": {"member": "n", "epoch": 7},
        "a node of no type": {"told": description(node("a", 0))},
        "a node of an unknown type": {"told": description(node("a", 4))},
        "an unknown type, of another member": {"told": description(node("a", 4)), "member": "n"},
    }.items():
        assert update(pair, group, note, **told) != 0  # type: ignore[arg-type]
    processor = node("p", PROCESSOR)
    for note, store in {
        "no source": TopologyDescriptionGlobalStore(source=processor, processor=processor),
        "no processor": TopologyDescriptionGlobalStore(source=node("s", SOURCE), processor=node("s", SINK)),
        "nothing known": TopologyDescriptionGlobalStore(source=node("s", 9), processor=processor),
    }.items():
        assert update(pair, group, f"a global store with {note}", description(stores=(store,))) != 0
    described(pair, group, "nothing stored")
    nothing = TopologyDescription(subtopologies=[], global_stores=[])
    assert update(pair, group, "an empty description", nothing) == 0
    assert described(pair, group, "an empty one") == AVAILABLE
    compare_records(pair, group)


def test_a_group_of_another_type_and_one_that_is_not_there_have_none(pair: Pair) -> None:
    group = new_group(pair)
    topic = new_topic(pair, "described", 1)
    for side in pair.sides:
        commit(side, group, {(topic, 0): 1})
    update(pair, group, "a classic group")
    described(pair, group, "a classic group")
    described(pair, f"no-{group}", "no group")
