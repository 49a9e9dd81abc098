"""Plays transcripts of streams groups; `transcript.py` says how a transcript looks.

    set topics in:2 r:2
    0 beat a member=m1 epoch=0 topology=words process=p1
    1 beat a member=m1 epoch=2 owned=0:0+1,1:0
    2 leave a member=m1

`set topics` says which topics there are from now on, with their numbers of partitions, and tells the machine
of it; `name:count#2` is a topic that was made anew. `owned`, `standby` and `warmup` are the tasks that a
member says it has (`-` for none of them), by subtopology and partition. Topologies have names (`TOPOLOGIES`);
`topology=words@1` has the epoch 1. Tasks are shown as `active|standby|warmup`, active ones with the epoch at
which the member got them where the log has it. The other commands are those of `transcript.py`.
"""

from odradek.coordinator.cluster.view import (
    ClusterView,
    PartitionView,
    TopicView,
)
from odradek.coordinator.effects import Append, AppendMarker, CancelTimer, SetTimer
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups.consumer_commands import TopicsChanged
from odradek.coordinator.groups.record_codec import Kind, decode_group_value, decode_key
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
from tests.coordinator import transcript
from tests.coordinator.transcript import Stage, replay_all


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


def topology_of(text: str) -> records.StreamsGroupTopologyValue:
    name, _, epoch = text.partition("@")
    return records.StreamsGroupTopologyValue(epoch=int(epoch or 0), subtopologies=TOPOLOGIES[name])


def view_of(topics: str) -> ClusterView:
    views = {}
    for word in topics.split():
        name, _, shape = word.partition(":")
        count, _, number = shape.partition("#")
        partitions = tuple(PartitionView(index, 1, 0, (1,), (1,)) for index in range(int(count)))
        views[name] = TopicView(name, f"{name}#{number or 1}".encode().rjust(16, b"\0"), partitions)
    return ClusterView(topics=views)


class StreamsStage(Stage):
    """A machine whose cluster has topics."""

    def __init__(self) -> None:
        self.view = ClusterView()
        super().__init__()
        self.machine = self.new_machine()
        self.carry_out(self.machine.start(0))

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.settings, self.new_suffix, lambda: self.view)

    def play(self, line: str) -> list[str]:
        if line.startswith("set topics"):
            before, self.view = self.view, view_of(line.removeprefix("set topics"))
            names = {
                name
                for name in {*before.topics, *self.view.topics}
                if before.topics.get(name) != self.view.topics.get(name)
            }
            self.carry_out(self.machine.handle(TopicsChanged("nobody", frozenset(names)), self.now_ms))
            return []
        return super().play(line)

    def command(self, verb: str, words: list[str]):
        if verb not in ("beat", "leave", "describe-streams"):
            return super().command(verb, words)
        options = dict(word.split("=", 1) if "=" in word else (word, "") for word in words[1:])
        group_id = options.get("group", "g")
        if verb == "describe-streams":
            return DescribeStreamsGroup(words[0], group_id)
        return heartbeat(words[0], group_id, options, -1 if verb == "leave" else int(options["epoch"]))

    def carry_out(self, effects: list) -> list[str]:
        lines = []
        for effect in effects:
            if isinstance(effect, Append) and effect.producer is None:
                self.log += effect.records
                lines += [f"append {record_text(key, value)}" for key, value, _ in effect.records]
            elif isinstance(effect, Append | AppendMarker | SetTimer | CancelTimer):
                lines += super().carry_out([effect])
            else:
                lines.append(f"reply {effect.ticket} {answer_text(effect.value)}")
        return lines

    def reload(self) -> list[str]:
        before = durable_state(self.machine)
        self.machine = self.new_machine()
        replay_all(self.machine, self.log)
        assert durable_state(self.machine) == before
        self.timers.clear()
        return self.carry_out(self.machine.start(self.now_ms))

    def describe_state(self, group_id: str) -> str:
        group = self.machine.groups.get(group_id)
        if not isinstance(group, StreamsGroup):
            return super().describe_state(group_id)
        members = " ".join(
            f"{member.member_id}:{member.tasks.member_epoch}:{member.tasks.state.name}"
            for member in group.members.values()
        )
        return (
            f"{group_id} {group.state_name} epoch={group.group_epoch} assigned={group.assignment_epoch} "
            f"members=[{members}]"
        )


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


def heartbeat(ticket: str, group_id: str, options: dict[str, str], epoch: int) -> StreamsHeartbeat:
    owned = None
    if {"owned", "standby", "warmup"} & options.keys() or epoch == 0:
        owned = TaskAssignment(*(tasks_of(options.get(role, "-")) for role in ("owned", "standby", "warmup")))
    endpoint = None
    if "endpoint" in options:
        host, _, port = options["endpoint"].partition(":")
        endpoint = UserEndpoint(host, int(port))
    topology = options.get("topology", "plain" if epoch == 0 else None)
    return StreamsHeartbeat(
        ticket,
        group_id,
        options["member"],
        epoch,
        endpoint_epoch=int(options.get("endpoints", 0)),
        instance_id=options.get("instance"),
        rack_id=options.get("rack"),
        rebalance_timeout_ms=round(float(options.get("rebalance", 60)) * 1000) if epoch == 0 else -1,
        topology=None if topology in (None, "none") else topology_of(topology),
        owned=owned,
        process_id=options.get("process", f"p-{options['member']}") if epoch == 0 else None,
        user_endpoint=endpoint,
        client_tags={} if epoch == 0 else None,
        shutdown_application="shutdown" in options,
        client_id="c",
        client_host="/127.0.0.1",
    )


def tasks_of(text: str) -> dict[str, frozenset[int]]:
    """`0:0+1,1:2`; `-` for none."""
    tasks = {}
    for part in text.split(",") if text != "-" else ():
        number, _, partitions = part.partition(":")
        tasks[number] = frozenset(map(int, partitions.split("+")))
    return tasks


# Effects as text


def record_text(key: bytes, value: bytes | None) -> str:
    kind, subject = decode_key(key)
    if kind is Kind.OFFSET or isinstance(subject, records.GroupMetadataKey):
        return transcript.record_text(key, value)
    name = subject.__class__.__name__.removeprefix("StreamsGroup").removesuffix("Key")
    place = " ".join(filter(None, (subject.group_id, getattr(subject, "member_id", None))))
    if value is None:
        return f"{name} {place} tombstone"
    return f"{name} {place} {value_text(decode_group_value(subject, value))}"


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
            return f"epoch={value.assignment_epoch} at={value.assignment_timestamp / 1000:g}"
        case records.StreamsGroupTargetAssignmentMemberValue():
            return ids_text(value.active_tasks, value.standby_tasks, value.warmup_tasks)
        case records.StreamsGroupCurrentMemberAssignmentValue():
            tasks = ids_text(value.active_tasks, value.standby_tasks, value.warmup_tasks)
            revoking = ids_text(
                value.active_tasks_pending_revocation,
                value.standby_tasks_pending_revocation,
                value.warmup_tasks_pending_revocation,
            )
            state = MemberState(value.state).name
            shown = "" if revoking == "-|-|-" else f" revoking {revoking}"
            return f"epoch={value.member_epoch} before={value.previous_member_epoch} {state} {tasks}{shown}"
    raise AssertionError(value)


def ids_text(*roles) -> str:
    """Task ids of the three roles, as records have them."""
    texts = []
    for role in roles:
        parts = []
        for one in role:
            epochs = getattr(one, "assignment_epochs", None)
            shown = [f"{index}" for index in one.partitions]
            if epochs is not None:
                shown = [f"{index}@{epoch}" for index, epoch in zip(one.partitions, epochs, strict=True)]
            parts.append(f"{one.subtopology_id}:{'+'.join(shown)}")
        texts.append(",".join(parts) or "-")
    return "|".join(texts)


def tasks_text(assignment: TaskAssignment) -> str:
    roles = (assignment.active, assignment.standby, assignment.warmup)
    return "|".join(
        ",".join(f"{number}:{'+'.join(map(str, sorted(of)))}" for number, of in sorted(role.items())) or "-"
        for role in roles
    )


def answer_text(answer) -> str:
    if isinstance(answer, StreamsGroupDescription):
        if answer.error_code is not ErrorCode.NONE:
            return f"{answer.error_code.name} {answer.error_message}"
        counts = " ".join(
            f"{topic.name}:{topic.partitions}"
            for one in answer.subtopologies or ()
            for topic in (*one.repartition_source_topics, *one.state_changelog_topics)
        )
        members = " ".join(
            f"{one.member_id}@{one.member_epoch}={tasks_text(one.assignment)}->{tasks_text(one.target_assignment)}"
            for one in answer.members
        )
        return (
            f"NONE {answer.state} epoch={answer.group_epoch} assigned={answer.assignment_epoch} "
            f"topology={answer.topology_epoch} topics=[{counts}] members=[{members}]"
        )
    if not isinstance(answer, StreamsHeartbeatReply):
        return transcript.answer_text(answer)
    if answer.error_code is not ErrorCode.NONE:
        return " ".join(filter(None, (answer.error_code.name, answer.error_message)))
    text = f"NONE epoch={answer.member_epoch}"
    if answer.assignment is not None:
        text += f" tasks={tasks_text(answer.assignment)}"
    if answer.endpoint_epoch or answer.endpoints is not None:
        text += f" endpoints={answer.endpoint_epoch}"
    for one in answer.endpoints or ():
        parts = (partitions_text(one.active), partitions_text(one.standby))
        text += f" {one.endpoint.host}:{one.endpoint.port}={'|'.join(parts)}"
    for name, topic in answer.topics_to_create.items():
        text += f" create={name}:{topic.partition_count}"
    return text + "".join(f" {status.code.name}({status.detail})" for status in answer.statuses)


def partitions_text(partitions: list[tuple[str, list[int]]]) -> str:
    return ",".join(f"{topic}:{'+'.join(map(str, indexes))}" for topic, indexes in partitions) or "-"
