"""Streams groups in transcripts.

    set topics in:2 r:2
    0 beat a member=m1 epoch=0 topology=words process=p1
    1 beat a member=m1 epoch=2 owned=0:0+1,1:0
    2 leave a member=m1

`set topics` says which topics there are from now on, as for share groups. `owned`, `standby` and `warmup` are
the tasks that a member says it has (`-` for none of them), by subtopology and partition. Topologies have
names (`TOPOLOGIES`); `topology=words@1` has the epoch 1. Tasks are shown as `active|standby|warmup`, active
ones with the epoch at which the member got them where the log has it."""

from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.streams.assignor import TaskAssignment
from odradek.coordinator.streams.commands import (
    DescribeStreamsGroup,
    StreamsGroupDescription,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    UserEndpoint,
)
from odradek.coordinator.streams.group import StreamsGroup
from odradek.coordinator.streams.reconciliation import MemberState
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import group_records as records
from tests.coordinator.stages.group_stage import GroupStage, answer_text, listed
from tests.coordinator.stages.share_stage import NamedRecordsStage
from tests.kit.transcript import Line, seconds


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
        return f"{member.member_id}:{member.tasks.member_epoch}:{member.tasks.state.name}"

    def value_text(self, value) -> str:
        return value_text(value)

    def answer_text(self, answer) -> str:
        match answer:
            case StreamsGroupDescription(error_code=ErrorCode.NONE):
                return description_text(answer)
            case StreamsHeartbeatReply(error_code=ErrorCode.NONE):
                return heartbeat_text(answer)
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


def heartbeat(line: Line) -> StreamsHeartbeat:
    epoch = -1 if line.verb == "leave" else line.number("epoch")
    owned = None
    if {"owned", "standby", "warmup"} & line.options.keys() or epoch == 0:
        owned = TaskAssignment(*(tasks_of(line.get(role, "-")) for role in ("owned", "standby", "warmup")))
    endpoint = None
    if "endpoint" in line:
        host, _, port = line["endpoint"].partition(":")
        endpoint = UserEndpoint(host, int(port))
    return StreamsHeartbeat(
        line.ticket,
        line.group,
        line["member"],
        epoch,
        endpoint_epoch=line.number("endpoints", 0),
        instance_id=line.get("instance"),
        rack_id=line.get("rack"),
        rebalance_timeout_ms=line.time_ms("rebalance", 60_000) if epoch == 0 else -1,
        topology=topology_of(line.get("topology", "plain" if epoch == 0 else "none")),
        owned=owned,
        process_id=line.get("process", f"p-{line['member']}") if epoch == 0 else None,
        user_endpoint=endpoint,
        client_tags={} if epoch == 0 else None,
        shutdown_application="shutdown" in line.rest,
        client_id="c",
        client_host="/127.0.0.1",
    )


StreamsStage.commands = {
    **GroupStage.commands,
    "beat": heartbeat,
    "leave": heartbeat,
    "describe-streams": lambda line: DescribeStreamsGroup(line.ticket, line.group),
}


def topology_of(text: str) -> records.StreamsGroupTopologyValue | None:
    name, _, epoch = text.partition("@")
    if name == "none":
        return None
    return records.StreamsGroupTopologyValue(epoch=int(epoch or 0), subtopologies=TOPOLOGIES[name])


def tasks_of(text: str) -> dict[str, frozenset[int]]:
    """`0:0+1,1:2`; `-` for none."""
    parts = (part.split(":") for part in text.split(",") if text != "-")
    return {number: frozenset(map(int, partitions.split("+"))) for number, partitions in parts}


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


def tasks_text(assignment: TaskAssignment) -> str:
    roles = (getattr(assignment, role) for role in ROLES)
    return "|".join(listed((number, sorted(of)) for number, of in sorted(role.items())) for role in roles)


def description_text(answer: StreamsGroupDescription) -> str:
    counts = " ".join(
        f"{topic.name}:{topic.partitions}"
        for one in answer.subtopologies or ()
        for topic in (*one.repartition_source_topics, *one.state_changelog_topics)
    )
    members = " ".join(
        f"{m.member_id}@{m.member_epoch}={tasks_text(m.assignment)}->{tasks_text(m.target_assignment)}"
        for m in answer.members
    )
    return (
        f"NONE {answer.state} epoch={answer.group_epoch} assigned={answer.assignment_epoch} "
        f"topology={answer.topology_epoch} topics=[{counts}] members=[{members}]"
    )


def heartbeat_text(answer: StreamsHeartbeatReply) -> str:
    text = f"NONE epoch={answer.member_epoch}"
    if answer.assignment is not None:
        text += f" tasks={tasks_text(answer.assignment)}"
    if answer.endpoint_epoch or answer.endpoints is not None:
        text += f" endpoints={answer.endpoint_epoch}"
    for one in answer.endpoints or ():
        text += f" {one.endpoint.host}:{one.endpoint.port}={listed(one.active)}|{listed(one.standby)}"
    for name, topic in answer.topics_to_create.items():
        text += f" create={name}:{topic.partition_count}"
    return text + "".join(f" {status.code.name}({status.detail})" for status in answer.statuses)
