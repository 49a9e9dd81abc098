"""Streams groups whose topologies have descriptions, in transcripts.

    0 push a member=m1 epoch=0
    0 stored
    1 describe-streams a
    2 deleted failure=disk

A heartbeat of version 1 may be asked for a description (`description-wanted`). `stored` and `deleted` bring
the result of the oldest change of the store that is still open: it is made, or fails with what is said, `for
good` where it says so. A description is named by `topology`; its nodes are `NODES`."""

import copy

from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.group_types import group_types
from odradek.coordinator.streams.descriptions import (
    DeleteDescription,
    Failure,
    StoreDescription,
    TopologyDescriptions,
)
from odradek.wire.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeResponse
from odradek.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from odradek.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from tests.coordinator import group_requests as requests
from tests.coordinator.stages.group_stage import asking
from tests.coordinator.stages.streams_stage import (
    StreamsStage,
    description_text,
    durable_state,
    heartbeat,
    heartbeat_text,
    value_text,
)
from tests.kit.transcript import Line, refusal


def node(name: str, node_type: int, successors: str = "", **fields) -> TopologyDescriptionNode:
    lists = {"source_topics": [], "stores": [], **fields}
    return TopologyDescriptionNode(name=name, node_type=node_type, successors=successors.split(), **lists)


SOURCE = node("read", 1, "count", source_topics=["in", "in"], stores=["ignored"])
COUNT = node("count", 2, "write write", stores=["s", "s"], source_topics=["ignored"])
SINK = node("write", 3, sink_topic="out")
TABLE = TopologyDescriptionGlobalStore(
    source=node("table", 1, source_topics=["all"]), processor=node("fill", 2, stores=["table"])
)
DESCRIPTIONS = {
    "chain": ([SOURCE, COUNT, SINK], []),
    "global": ([SOURCE], [TABLE]),
    "foreign": ([node("read", 4)], []),
    "inverted": ([], [TopologyDescriptionGlobalStore(source=TABLE.processor, processor=TABLE.source)]),
}


def description(name: str) -> TopologyDescription:
    nodes, global_stores = copy.deepcopy(DESCRIPTIONS[name])
    return TopologyDescription(
        subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=nodes)],
        global_stores=global_stores,
    )


class DescriptionStage(StreamsStage):
    folder = "description_transcripts"

    def __init__(self) -> None:
        self.descriptions = TopologyDescriptions()
        self.asked: list[StoreDescription | DeleteDescription] = []
        super().__init__()

    def new_machine(self) -> GroupMachine:
        types = group_types(self.descriptions)
        return GroupMachine(self.settings, self.new_suffix, lambda: self.view, types=types)

    def durable_state(self):
        groups = {
            group_id: (group.stored_description_epoch, group.failed_description_epoch)
            for group_id, group in self.machine.groups.items()
            if hasattr(group, "stored_description_epoch")
        }
        return durable_state(self.machine), groups

    def text_of(self, effect) -> list[str]:
        match effect:
            case StoreDescription():
                self.asked.append(effect)
                return [f"store {effect.command.group_id} {nodes_text(effect.description)}"]
            case DeleteDescription():
                self.asked.append(effect)
                return [f"delete {effect.command.group_id}"]
        return super().text_of(effect)

    def changed(self, words: list[str], kind: type) -> list[str]:
        effect = self.asked.pop(0)
        assert isinstance(effect, kind)
        command = effect.command

        def done(failure: Failure | None) -> None:
            command.failure = failure

        if words:
            command.failure = Failure(words[0].removeprefix("failure="), words[1:] == ["for", "good"])
        elif isinstance(effect, StoreDescription):
            self.descriptions.put(command.group_id, command.topology_epoch, effect.description, done)
        else:
            self.descriptions.delete(command.group_id, done)
        return self.submit(command)

    def lose(self, words: list[str]) -> list[str]:
        """The store is a new one, as that of another node."""
        self.descriptions = TopologyDescriptions()
        return self.carry_out(self.reload())

    steps = {
        **StreamsStage.steps,
        "stored": lambda stage, words: stage.changed(words, StoreDescription),
        "deleted": lambda stage, words: stage.changed(words, DeleteDescription),
        "lose": lose,
    }

    def value_text(self, value) -> str:
        text = value_text(value)
        if hasattr(value, "stored_description_topology_epoch"):
            text += f" stored={value.stored_description_topology_epoch}"
            if value.failed_description_topology_epoch != -1:
                text += f" failed={value.failed_description_topology_epoch}"
        return text

    def answer_text(self, answer) -> str:
        match answer:
            case StreamsGroupTopologyDescriptionUpdateResponse():
                return refusal(answer)
            case StreamsGroupDescribeResponse(groups=[DescribedGroup(error_code=0) as group]):
                shown = group.topology_description
                return f"{description_text(group)} description={group.topology_description_status}" + (
                    "" if shown is None else f" {nodes_text(shown)}"
                )
            case (StreamsGroupHeartbeatResponse(error_code=0) as response, topics):
                wanted = " description-wanted" if response.topology_description_required else ""
                return heartbeat_text(response, topics) + wanted
        return super().answer_text(answer)


def push(line: Line) -> StreamsGroupTopologyDescriptionUpdateRequest:
    return StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=line.group,
        member_id=line["member"],
        topology_epoch=line.number("epoch"),
        topology_description=description(line.get("topology", "chain")),
    )


def describe(line: Line):
    request = requests.describe_streams(line.group)
    request.include_topology_description = "without" not in line.rest
    return request


DescriptionStage.commands = {
    **StreamsStage.commands,
    "beat": asking(heartbeat, 1),
    "push": asking(push, 0),
    "describe-streams": asking(describe, 1),
}


def nodes_text(shown: TopologyDescription) -> str:
    parts = [f"{one.subtopology_id}:{'/'.join(map(node_text, one.nodes))}" for one in shown.subtopologies]
    parts += [f"global:{node_text(one.source)}/{node_text(one.processor)}" for one in shown.global_stores]
    return " ".join(parts)


def node_text(one: TopologyDescriptionNode) -> str:
    lists = (one.source_topics, one.stores, [] if one.sink_topic is None else [one.sink_topic])
    return f"{one.name}({'|'.join('+'.join(names) for names in lists)})->{'+'.join(one.successors)}"
