"""Groups with members of both protocols in transcripts.

    topics t=4 u=2
    0 beat n member=n1 epoch=0 topics=t owned=
    ----
    member n1 consumer topics=t
    current n1 epoch=1 stable t:0,1,2,3
    reply n NONE n1@1 t:0,1,2,3

`beat` is a heartbeat of the consumer protocol; `join` takes `owned=t:0,1` (what the member works on, as
cooperative ones say); `assign=c-1=t:0,1;c-2=t:2,3` are assignments as leaders bring them. `policy` is that of
migrations. A record without anything behind its name is a tombstone; markers are not shown.
"""

from odradek.coordinator.effects import Append, AppendMarker, Reply
from odradek.coordinator.groups.classic_group import ClassicGroup
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.messages import consumer_protocol, group_records
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from odradek.wire.messages.consumer_protocol import AssignedTopicPartitions, ConsumerProtocolAssignment
from odradek.wire.messages.sync_group import SyncGroupResponse
from tests.coordinator.stages import group_stage
from tests.coordinator.stages.group_stage import STATES, GroupStage, Unshown, parts_text, topics_text
from tests.kit.transcript import Line, seconds

SWAPPED = str.maketrans(",+", "+,")
"""What is `t:0+1,u:0` elsewhere is `t:0,1+u:0` here."""


class MigrationStage(GroupStage):
    folder = "migration_transcripts"
    defaults = {
        "beat": {"client": "n"},
        "join": {"rebalance": "60"},
        "sync": {"type": "consumer", "protocol": "range"},
    }

    def new_settings(self) -> GroupSettings:
        return GroupSettings(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0)

    def prepare(self, verb: str, words: list[str]) -> list[str]:
        if verb == "policy":
            (self.settings.group_consumer_migration_policy,) = words
            return []
        return super().prepare(verb, words)

    def text_of(self, effect) -> list[str]:
        match effect:
            case AppendMarker():
                return []
            case Reply(Unshown() as ticket, code):
                return [f"reply {ticket} {code.name}"]
            case Append():
                return [self.record_text(key, value) for key, value, _ in effect.records]
        return super().text_of(effect)

    def state_text(self, group) -> str:
        epoch = group.generation if isinstance(group, ClassicGroup) else group.group_epoch
        return f"{group.group_type} {group.state_name} epoch={epoch} members=[{' '.join(group.members)}]"

    def group_text(self, key, value) -> str:
        name, text = TEXTS[type(key)]
        return " ".join(filter(None, (name, getattr(key, "member_id", ""), value and text(value))))

    def answer_text(self, answer) -> str:
        match answer:
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                given = assignment_text(answer.assignment)
                return f"NONE {answer.protocol_type}/{answer.protocol_name} {given}"
            case ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NONE):
                parts = None if answer.assignment is None else answer.assignment.topic_partitions
                told = (
                    ""
                    if parts is None
                    else f" {swapped_text({one.topic_id: one.partitions for one in parts})}"
                )
                return f"NONE {answer.member_id}@{answer.member_epoch}{told}"
        return super().answer_text(answer)


# Commands


def beat(line: Line):
    if line.number("epoch") == 0:
        line.options = {"topics": "t", "rebalance": "60", **line.options}
    if "topics" in line:
        line.options["names"] = line["topics"]
    if "owned" in line:
        line.options["owned"] = line["owned"].translate(SWAPPED) or "-"
    return group_stage.beat(line)


def join(line: Line):
    line.options["owned"] = line.get("owned", "").translate(SWAPPED)
    return group_stage.join(line)


def assignment_of(text: str) -> bytes:
    """`t:0,1+u:0`; with user data if it ends with `*`; `!text` as bytes that are no assignment."""
    if text.startswith("!"):
        return text[1:].encode()
    topics = [
        AssignedTopicPartitions(topic=group_stage.topic_name(identity), partitions=indexes)
        for identity, indexes in group_stage.partitions_of(text.rstrip("*").translate(SWAPPED) or "-")
    ]
    user_data = b"mine" if text.endswith("*") else None
    said = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data)
    return consumer_protocol.encode(said, 3)


MigrationStage.commands = {
    **GroupStage.commands,
    "beat": group_stage.asking(beat, 1),
    "join": group_stage.asking(join),
    "sync": group_stage.asking(lambda line: group_stage.sync(line, ";=", assignment_of)),
}


# Effects as text


def swapped_text(topics) -> str:
    return topics_text({one: indexes for one, indexes in topics.items() if indexes}).translate(SWAPPED)


def assignment_text(assignment: bytes) -> str:
    try:
        decoded = consumer_protocol.decode_assignment(assignment) if assignment else None
    except MalformedMessage:
        return f"!{bytes(assignment).decode()}"
    topics = [] if decoded is None else decoded.assigned_partitions
    return swapped_text({group_stage.topic_id(topic.topic): topic.partitions for topic in topics})


def classic_text(value) -> str:
    members = " ".join(f"{one.member_id}={assignment_text(one.assignment)}" for one in value.members)
    return f"generation={value.generation} protocol={value.protocol} leader={value.leader} [{members}]"


def member_text(value) -> str:
    classic = value.classic_member_metadata
    protocol = "consumer" if classic is None else f"classic session={seconds(classic.session_timeout_ms)}"
    instance = f" instance={value.instance_id}" if value.instance_id else ""
    regex = f" regex={value.subscribed_topic_regex}" if value.subscribed_topic_regex else ""
    return f"{protocol} topics={'+'.join(value.subscribed_topic_names)}{regex}{instance}"


def current_text(value) -> str:
    has, gives = (
        parts_text(one for one in part if one.partitions).translate(SWAPPED)
        for part in (value.assigned_partitions, value.partitions_pending_revocation)
    )
    return f"epoch={value.member_epoch} {STATES[value.state]} {has}" + (
        f" gives {gives}" if gives != "-" else ""
    )


TEXTS = {
    group_records.GroupMetadataKey: ("classic-group", classic_text),
    group_records.ConsumerGroupMetadataKey: ("group", lambda value: f"epoch={value.epoch}"),
    group_records.ConsumerGroupMemberMetadataKey: ("member", member_text),
    group_records.ConsumerGroupTargetAssignmentMetadataKey: (
        "assignment",
        lambda value: f"epoch={value.assignment_epoch}",
    ),
    group_records.ConsumerGroupTargetAssignmentMemberKey: (
        "target",
        lambda value: parts_text(one for one in value.topic_partitions if one.partitions).translate(SWAPPED),
    ),
    group_records.ConsumerGroupCurrentMemberAssignmentKey: ("current", current_text),
    group_records.ConsumerGroupRegularExpressionKey: ("pattern", lambda value: "+".join(value.topics)),
    group_records.ConsumerGroupPartitionMetadataKey: ("partition-metadata", lambda value: "?"),
}
