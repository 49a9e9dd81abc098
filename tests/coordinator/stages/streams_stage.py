"""Streams groups in transcripts.

    set topics in:2 r:2
    0 beat a member=m1 epoch=0 topology=words process=p1
    1 beat a member=m1 epoch=2 owned=0:0+1,1:0
    2 leave a member=m1

`set topics` says which topics there are from now on, as for share groups. `owned`, `standby` and `warmup` are
the tasks that a member says it has (`-` for none of them), by subtopology and partition. Topologies have
names (`TOPOLOGIES`); `topology=words@1` has the epoch 1. Tasks are shown as `active|standby|warmup`, active
ones with the epoch at which the member got them where the log has it."""

from collections.abc import Mapping

from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.streams.group import StreamsGroup, tasks_of
from odradek.coordinator.streams.membership import StreamsGroupHeartbeatResult
from odradek.coordinator.streams.reconciliation import MemberState
from odradek.wire.messages import group_records as records
from odradek.wire.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    StreamsGroupDescribeResponse,
)
from odradek.wire.messages.streams_group_heartbeat import (
    Endpoint,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskOffset,
    Topology,
)
from odradek.wire.schema import copied_as
from tests.coordinator import group_requests as requests
from tests.coordinator.stages.group_stage import GroupStage, answer_text, asking, listed
from tests.coordinator.stages.share_stage import NamedRecordsStage
from tests.kit.transcript import Line, refusal, seconds


def topic_info(name: str, count: int = 0) -> records.TopicInfo:
    return records.TopicInfo(name=name, partitions=count, replication_factor=0, topic_configs=[])


def subtopology(
    number: str,
    sources: str = "",
    repartition_sources: tuple = (),
    sinks: str = "",
    changelogs: str = "",
    copartitioned: list | None = None,
) -> records.Subtopology:
    return records.Subtopology(
        subtopology_id=number,
        source_topics=sources.split(),
        source_topic_regex=[],
        state_changelog_topics=[topic_info(name) for name in changelogs.split()],
        repartition_sink_topics=sinks.split(),
        repartition_source_topics=[
            topic_info(*(one if isinstance(one, tuple) else (one,))) for one in repartition_sources
        ],
        copartition_groups=[
            records.CopartitionGroup(
                source_topics=ours, source_topic_regex=[], repartition_source_topics=theirs
            )
            for ours, theirs in copartitioned or []
        ],
    )


TOPOLOGIES = {
    # Stateless.
    "plain": [subtopology("0", "in")],
    # Stateful.
    "counts": [subtopology("0", "in", changelogs="c")],
    # A word count: the second half reads what the first half has written again by key, and keeps a state.
    "words": [subtopology("0", "in", sinks="r"), subtopology("1", "", ("r",), changelogs="c")],
    # A join of two topics.
    "joined": [subtopology("0", "in other", changelogs="c", copartitioned=[([0, 1], [])])],
    # A join of a topic with what was written again by key, as wide as it is to be.
    "wide": [
        subtopology("0", "in", sinks="r"),
        subtopology("1", "other", (("r", 5),), copartitioned=[([0], [0])]),
    ],
    "circular": [subtopology("0", "", ("r",), sinks="q"), subtopology("1", "", ("q",), sinks="r")],
    "unwritten": [subtopology("0", "in", ("r",))],
    "nothing": [subtopology("0")],
    "twice": [subtopology("0", "in"), subtopology("0", "other")],
    "astray": [subtopology("0", "in", copartitioned=[([0, 1], [])])],
}
ROLES = ("active", "standby", "warmup")


class StreamsStage(NamedRecordsStage):
    folder = "streams_transcripts"
    prefix, group_class = "StreamsGroup", StreamsGroup

    def durable_state(self):
        return durable_state(self.machine)

    def member_text(self, member) -> str:
        return f"{member.member_id}:{member.current.member_epoch}:{member.current.state.name}"

    def value_text(self, value) -> str:
        return value_text(value)

    def answer_text(self, answer) -> str:
        match answer:
            case StreamsGroupDescribeResponse(groups=[group]):
                return refusal(group) if group.error_code else description_text(group)
            case StreamsGroupHeartbeatResult(response, topics):
                return refusal(response) if response.error_code else heartbeat_text(response, topics)
        return answer_text(answer)


def durable_state(machine: GroupMachine):
    """What a log must bring back: groups and offsets."""
    groups = {}
    for group_id, group in machine.groups.items():
        if isinstance(group, StreamsGroup):
            groups[group_id] = (
                group.group_epoch,
                group.metadata_hash,
                group.validated_topology_epoch,
                dict(group.assignment_configs),
                group.assignment_epoch,
                group.assigned_at_ms,
                group.topology,
                group.members,
                group.owners._active,
                group.owners._copies,
            )
    return groups, {group_id: machine.offsets.of_group(group_id) for group_id in machine.groups}


# Commands


def heartbeat(line: Line) -> StreamsGroupHeartbeatRequest:
    epoch = -1 if line.verb == "leave" else line.number("epoch")
    owned = None
    if {"owned", "standby", "warmup"} & line.options.keys() or epoch == 0:
        owned = [named_tasks(line.get(role, "-")) for role in ("owned", "standby", "warmup")]
    endpoint = None
    if "endpoint" in line:
        host, _, port = line["endpoint"].partition(":")
        endpoint = Endpoint(host=host, port=int(port))
    return requests.streams_beat(
        line.group,
        line["member"],
        epoch,
        owned,
        endpoint_information_epoch=line.number("endpoints", 0),
        instance_id=line.get("instance"),
        rack_id=line.get("rack"),
        rebalance_timeout_ms=line.time_ms("rebalance", 60_000) if epoch == 0 else -1,
        topology=topology_of(line.get("topology", "plain" if epoch == 0 else "none")),
        process_id=line.get("process", f"p-{line['member']}") if epoch == 0 else None,
        user_endpoint=endpoint,
        client_tags=[] if epoch == 0 else None,
        shutdown_application="shutdown" in line.rest,
        task_offsets=named_offsets(line.get("restored")),
        task_end_offsets=named_offsets(line.get("ends")),
    )


StreamsStage.commands = {
    **GroupStage.commands,
    "beat": asking(heartbeat, 0),
    "leave": asking(heartbeat, 0),
    "describe-streams": asking(lambda line: requests.describe_streams(line.group)),
}


def topology_of(text: str) -> Topology | None:
    name, _, epoch = text.partition("@")
    if name == "none":
        return None
    return topology(TOPOLOGIES[name], int(epoch or 0))


def topology(subtopologies: list[records.Subtopology], epoch: int = 0) -> Topology:
    """As a member brings it."""
    return Topology(epoch=epoch, subtopologies=[copied_as(Subtopology, one) for one in subtopologies])


def named_tasks(text: str) -> dict[str, frozenset[int]]:
    """`0:0+1,1:2`; `-` for none."""
    parts = (part.split(":") for part in text.split(",") if text != "-")
    return {number: frozenset(map(int, partitions.split("+"))) for number, partitions in parts}


def named_offsets(text: str | None) -> list[TaskOffset] | None:
    """`0:0=5,0:1=7`"""
    if text is None:
        return None
    found = []
    for part in text.split(",") if text else ():
        task, _, offset = part.partition("=")
        subtopology_id, _, partition = task.partition(":")
        found.append(TaskOffset(subtopology_id=subtopology_id, partition=int(partition), offset=int(offset)))
    return found


# Effects as text


def value_text(value) -> str:
    match value:
        case records.StreamsGroupMetadataValue():
            configs = " ".join(f"{one.key}={one.value}" for one in value.last_assignment_configs)
            return f"epoch={value.epoch} validated={value.validated_topology_epoch} {configs}"
        case records.StreamsGroupMemberMetadataValue():
            endpoint = value.user_endpoint
            shown = "" if endpoint is None else f" endpoint={endpoint.host}:{endpoint.port}"
            return f"topology={value.topology_epoch} process={value.process_id}{shown}"
        case records.StreamsGroupTopologyValue():
            numbers = "+".join(one.subtopology_id for one in value.subtopologies)
            return f"epoch={value.epoch} subtopologies={numbers}"
        case records.StreamsGroupTargetAssignmentMetadataValue():
            return f"epoch={value.assignment_epoch} at={seconds(value.assignment_timestamp)}"
        case records.StreamsGroupTargetAssignmentMemberValue():
            return ids_text(value)
        case records.StreamsGroupCurrentMemberAssignmentValue():
            revoking = ids_text(value, "_pending_revocation")
            shown = "" if revoking == "-|-|-" else f" revoking {revoking}"
            state = MemberState(value.state).name
            epochs = f"epoch={value.member_epoch} before={value.previous_member_epoch}"
            return f"{epochs} {state} {ids_text(value)}{shown}"
    raise AssertionError(value)


def ids_text(value, suffix: str = "") -> str:
    """Task ids of the three roles, as a record has them."""

    def shown(one):
        epochs = getattr(one, "assignment_epochs", None)
        return one.partitions if epochs is None else map("{}@{}".format, one.partitions, epochs)

    return "|".join(
        listed((one.subtopology_id, shown(one)) for one in getattr(value, f"{role}_tasks{suffix}"))
        for role in ROLES
    )


def tasks_text(assignment: Assignment | StreamsGroupHeartbeatResponse) -> str:
    roles = (tasks_of(getattr(assignment, f"{role}_tasks")) for role in ROLES)
    return "|".join(listed((number, sorted(of)) for number, of in sorted(role.items())) for role in roles)


def description_text(group: DescribedGroup) -> str:
    epoch, subtopologies = -1, []
    if group.topology is not None:
        epoch, subtopologies = group.topology.epoch, group.topology.subtopologies
    counts = " ".join(
        f"{topic.name}:{topic.partitions}"
        for one in subtopologies
        for topic in (*one.repartition_source_topics, *one.state_changelog_topics)
    )
    members = " ".join(
        f"{m.member_id}@{m.member_epoch}={tasks_text(m.assignment)}->{tasks_text(m.target_assignment)}"
        + ("" if m.instance_id is None else f" instance={m.instance_id}")
        + "".join(
            f" {name}=" + ",".join(f"{one.subtopology_id}:{one.partition}={one.offset}" for one in offsets)
            for name, offsets in (("restored", m.task_offsets), ("ends", m.task_end_offsets))
            if offsets
        )
        for m in group.members
    )
    return (
        f"NONE {group.group_state} epoch={group.group_epoch} assigned={group.assignment_epoch} "
        f"topology={epoch} topics=[{counts}] members=[{members}]"
    )


def heartbeat_text(answer: StreamsGroupHeartbeatResponse, topics: Mapping[str, NewTopic]) -> str:
    text = f"NONE epoch={answer.member_epoch}"
    if answer.active_tasks is not None:
        text += f" tasks={tasks_text(answer)}"
    endpoints = answer.partitions_by_user_endpoint
    if answer.endpoint_information_epoch or endpoints is not None:
        text += f" endpoints={answer.endpoint_information_epoch}"
    for one in endpoints or ():
        active, standby = (
            listed((of.topic, of.partitions) for of in role)
            for role in (one.active_partitions, one.standby_partitions)
        )
        text += f" {one.user_endpoint.host}:{one.user_endpoint.port}={active}|{standby}"
    for name, topic in topics.items():
        text += f" create={name}:{topic.partition_count}"
    return text + "".join(f" {one.status_code.name}({one.status_detail})" for one in answer.status)
