"""Transcripts (`transcript.py`) of groups with members of both protocols.

    topics t=4 u=2
    0 beat n member=n1 epoch=0 topics=t owned=
    ----
    member n1 consumer topics=t
    current n1 epoch=1 stable t:0,1,2,3
    reply n NONE n1@1 t:0,1,2,3

`topics` says what there is. `beat` is a heartbeat of the consumer protocol; `join` takes `owned=t:0,1` (what
the member works on, as cooperative ones say); `assign=c-1=t:0,1;c-2=t:2,3` are assignments as leaders bring
them. Partitions are shown by the names of their topics. A record without anything behind its name is a
tombstone.
"""

from odradek.coordinator.cluster.view import (
    ClusterView,
    PartitionView,
    TopicView,
)
from odradek.coordinator.effects import Append, AppendMarker, CancelTimer, MatchTopics, SetTimer
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups import record_codec
from odradek.coordinator.groups.classic_group import ClassicGroup
from odradek.coordinator.groups.commands import Join, OfferedProtocol, Sync, SyncReply
from odradek.coordinator.groups.consumer_commands import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    TopicsChanged,
)
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.groups.record_codec import Kind
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.messages import consumer_protocol, group_records
from odradek.wire.messages.consumer_protocol import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.coordinator import transcript

STATES = {0: "stable", 1: "unrevoked", 2: "unreleased"}


def topic_id_of(name: str) -> bytes:
    return name.encode().rjust(16, b"\x01")


def view_of(counts: dict[str, int], version: int) -> ClusterView:
    topics = {
        name: TopicView(
            name,
            topic_id_of(name),
            tuple(PartitionView(index, 1, 0, (1,), (1,)) for index in range(count)),
        )
        for name, count in counts.items()
    }
    names = {topic.topic_id: name for name, topic in topics.items()}
    return ClusterView(version=version, topics=topics, topic_names=names)


def partitions_of(text: str) -> list[tuple[str, list[int]]]:
    """`t:0,1+u:0` as topics with partitions."""
    pairs = (word.split(":") for word in filter(None, text.split("+")))
    return [(topic, [int(index) for index in indexes.split(",")]) for topic, indexes in pairs]


def partitions_text(topics) -> str:
    return "+".join(
        f"{topic}:{','.join(map(str, sorted(indexes)))}" for topic, indexes in sorted(topics) if indexes
    )


def metadata_of(options: dict[str, str]) -> bytes:
    text = options.get("topics", "t")
    if text.startswith("!"):
        return text[1:].encode()
    owned = [
        TopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in partitions_of(options.get("owned", ""))
    ]
    subscription = ConsumerProtocolSubscription(
        topics=text.split("+") if text else [], owned_partitions=owned, rack_id=options.get("rack")
    )
    return consumer_protocol.encode(subscription, int(options.get("metadata", 3)))


def join(ticket, group_id, options, rest):
    metadata = metadata_of(options)
    return Join(
        ticket,
        group_id,
        options.get("member", ""),
        options.get("type", "consumer"),
        [OfferedProtocol(name, metadata) for name in options.get("protocols", "range").split(",")],
        round(float(options.get("session", 10)) * 1000),
        round(float(options.get("rebalance", 60)) * 1000),
        options.get("instance"),
        "c",
        "/127.0.0.1",
        int(options.get("version", 9)),
    )


def assignment_of(text: str) -> bytes:
    if text.startswith("!"):
        return text[1:].encode()
    user_data = b"mine" if text.endswith("*") else None
    topics = [
        AssignedTopicPartitions(topic=topic, partitions=indexes)
        for topic, indexes in partitions_of(text.rstrip("*"))
    ]
    return consumer_protocol.encode(
        ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data), 3
    )


def assignment_text(assignment: bytes) -> str:
    try:
        decoded = consumer_protocol.decode_assignment(assignment) if assignment else None
    except MalformedMessage:
        return f"!{bytes(assignment).decode()}"
    topics = [] if decoded is None else decoded.assigned_partitions
    return partitions_text((topic.topic, topic.partitions) for topic in topics) or "-"


def sync(ticket, group_id, options, rest):
    pairs = (pair.split("=") for pair in filter(None, options.get("assign", "").split(";")))
    return Sync(
        ticket,
        group_id,
        int(options["generation"]),
        options["member"],
        options.get("instance"),
        options.get("type", "consumer"),
        options.get("protocol", "range"),
        {member_id: assignment_of(text) for member_id, text in pairs},
    )


def names_of(text: str) -> list[str]:
    return [name for name in text.split("+") if name]


def beat(ticket, group_id, options, rest):
    epoch = int(options["epoch"])
    owned = options.get("owned", "" if epoch == 0 else None)
    return ConsumerHeartbeat(
        ticket,
        group_id,
        options["member"],
        epoch,
        options.get("instance"),
        None,
        60_000 if epoch == 0 else -1,
        names_of(options["topics"]) if "topics" in options else (["t"] if epoch == 0 else None),
        options.get("regex"),
        options.get("assignor"),
        None if owned is None else [(topic_id_of(topic), indexes) for topic, indexes in partitions_of(owned)],
        "n",
        "/127.0.0.1",
    )


COMMANDS = {**transcript.COMMANDS, "join": join, "sync": sync, "beat": beat}


class Stage(transcript.Stage):
    """With topics, and groups of both types."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.view = view_of(self.counts, 0)
        super().__init__()
        self.settings = GroupSettings(
            group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0
        )
        self.machine = self.new_machine()

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.settings, self.new_suffix, lambda: self.view)

    def play(self, line: str) -> list[str]:
        if line.startswith("topics"):
            counts = {name: int(count) for name, count in (word.split("=") for word in line.split()[1:])}
            changed = {
                name
                for name in counts.keys() | self.counts.keys()
                if self.counts.get(name) != counts.get(name)
            }
            self.counts, self.view = counts, view_of(counts, self.view.version + 1)
            self.machine.handle(TopicsChanged(None, frozenset(changed)), self.now_ms)
            return []
        if line.startswith("policy "):
            self.settings.group_consumer_migration_policy = line.split()[1]
            return []
        return super().play(line)

    def command(self, verb, words):
        ticket, options, rest = words[0], {}, []
        for word in words[1:]:
            name, equals, value = word.partition("=")
            if equals and not transcript.is_partition(name):
                options[name] = value
            else:
                rest.append(word)
        return COMMANDS[verb](ticket, options.pop("group", "g"), options, rest)

    def reload(self) -> list[str]:
        before = durable_state(self.machine)
        self.machine = self.new_machine()
        transcript.replay_all(self.machine, self.log)
        after = durable_state(self.machine)
        assert {name: after.get(name) for name in before} == before
        self.timers.clear()
        return self.carry_out(self.machine.start(self.now_ms))

    def describe_state(self, group_id: str) -> str:
        group = self.machine.groups.get(group_id)
        if group is None:
            return f"{group_id} Dead"
        epoch = group.generation if isinstance(group, ClassicGroup) else group.group_epoch
        members = " ".join(group.members)
        return f"{group_id} {group.group_type} {group.state_name} epoch={epoch} members=[{members}]"

    def carry_out(self, effects: list) -> list[str]:
        lines = []
        for effect in effects:
            if isinstance(effect, Append | AppendMarker):
                self.log += transcript.logged(effect)
                if isinstance(effect, Append):
                    lines += [self.record_text(key, value) for key, value, _ in effect.records]
            elif isinstance(effect, SetTimer | CancelTimer | MatchTopics):
                lines += super().carry_out([effect])
            else:
                lines.append(f"reply {effect.ticket} {self.answer(effect.value)}")
        return lines

    def answer(self, value) -> str:
        match value:
            case SyncReply(ErrorCode.NONE):
                return f"NONE {value.protocol_type}/{value.protocol_name} {assignment_text(value.assignment)}"
            case ConsumerHeartbeatReply(ErrorCode.NONE):
                text = f"NONE {value.member_id}@{value.member_epoch}"
                return (
                    text if value.assignment is None else f"{text} {self.partitions(value.assignment) or '-'}"
                )
            case ConsumerHeartbeatReply(code):
                return f"{code.name} {value.error_message or ''}".strip()
        return transcript.answer_text(value)

    def partitions(self, topics) -> str:
        return partitions_text(
            (self.view.topic_names.get(topic_id, "?"), indexes) for topic_id, indexes in topics
        )

    def record_text(self, key: bytes, value: bytes | None) -> str:
        kind, subject = record_codec.decode_key(key)
        if kind is Kind.OFFSET:
            return transcript.record_text(key, value)
        decoded = None if value is None else record_codec.decode_group_value(subject, value)
        member = getattr(subject, "member_id", "")
        name, text = TEXTS[subject.__class__]
        return " ".join(filter(None, (name, member, "" if decoded is None else text(self, decoded))))

    def classic_text(self, value) -> str:
        members = " ".join(
            f"{member.member_id}={assignment_text(member.assignment)}" for member in value.members
        )
        return f"generation={value.generation} protocol={value.protocol} leader={value.leader} [{members}]"

    def member_text(self, value) -> str:
        classic = value.classic_member_metadata
        protocol = "consumer" if classic is None else f"classic session={classic.session_timeout_ms / 1000:g}"
        instance = f" instance={value.instance_id}" if value.instance_id else ""
        regex = f" regex={value.subscribed_topic_regex}" if value.subscribed_topic_regex else ""
        return f"{protocol} topics={'+'.join(value.subscribed_topic_names)}{regex}{instance}"

    def current_text(self, value) -> str:
        has = self.partitions((one.topic_id, one.partitions) for one in value.assigned_partitions)
        gives = self.partitions((one.topic_id, one.partitions) for one in value.partitions_pending_revocation)
        return f"epoch={value.member_epoch} {STATES[value.state]} {has or '-'}" + (
            f" gives {gives}" if gives else ""
        )


TEXTS = {
    group_records.GroupMetadataKey: ("classic-group", Stage.classic_text),
    group_records.ConsumerGroupMetadataKey: ("group", lambda stage, value: f"epoch={value.epoch}"),
    group_records.ConsumerGroupMemberMetadataKey: ("member", Stage.member_text),
    group_records.ConsumerGroupTargetAssignmentMetadataKey: (
        "assignment",
        lambda stage, value: f"epoch={value.assignment_epoch}",
    ),
    group_records.ConsumerGroupTargetAssignmentMemberKey: (
        "target",
        lambda stage, value: (
            stage.partitions((one.topic_id, one.partitions) for one in value.topic_partitions) or "-"
        ),
    ),
    group_records.ConsumerGroupCurrentMemberAssignmentKey: ("current", Stage.current_text),
    group_records.ConsumerGroupRegularExpressionKey: ("pattern", lambda stage, value: "+".join(value.topics)),
    group_records.ConsumerGroupPartitionMetadataKey: ("partition-metadata", lambda stage, value: "?"),
}


def durable_state(machine: GroupMachine):
    """What a log must bring back of groups: consumer groups, and classic ones that are settled."""
    state = {}
    for group_id, group in machine.groups.items():
        if isinstance(group, ConsumerGroup):
            state[group_id] = (
                group.group_epoch,
                group.assignment_epoch,
                group.metadata_hash,
                {member_id: (member.metadata, member.current) for member_id, member in group.members.items()},
                dict(group.static_members),
                dict(group.target),
                group.classic_member_count,
                dict(group._classic_protocol_counts),
                {topic_id: dict(owners) for topic_id, owners in group._owners.items()},
            )
        elif group.state_name in ("Empty", "Stable"):
            state[group_id] = (group.state, group.record(group.state_timestamp_ms or -1))
    return state
