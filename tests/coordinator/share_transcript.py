"""Plays transcripts of share groups; `transcript.py` says how a transcript looks.

    set topics a:2 b:1
    0 beat x member=m1 epoch=0 topics=a+b
    1 initialized persister a-0=NOT_COORDINATOR
    1 beat x member=m1 epoch=2
    2 leave x member=m1
    3 alter x a-0=5
    3 forget x a
    4 deleted persister

`set topics` says which topics there are from now on, with their numbers of partitions, and tells the machine
of it; `name:count#2` is a topic that was made anew. `initialized` and `deleted` bring the answer to the
oldest question to the share coordinator that is still open, in which it does all but what is named. The other
commands are those of `transcript.py`.
"""

from odradek.coordinator.cluster.view import ClusterView, PartitionView, TopicView
from odradek.coordinator.effects import Append, AppendMarker, CancelTimer, SetTimer
from odradek.coordinator.group_coordinator import changed_topics
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups.consumer_commands import Noted, TopicsChanged
from odradek.coordinator.groups.record_codec import Kind, decode_group_value, decode_key
from odradek.coordinator.share_groups.commands import (
    AlterShareOffsets,
    AlterShareOffsetsReply,
    DeleteShareOffsets,
    DeleteShareOffsetsReply,
    DeleteStates,
    DescribeShareGroup,
    FindSharePartitions,
    InitializeStates,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatReply,
    SharePartitions,
)
from odradek.coordinator.share_groups.group import ShareGroup
from odradek.coordinator.share_state.persister import Refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import group_records as records
from tests.coordinator import transcript
from tests.coordinator.transcript import Stage, replay_all


def view_of(topics: str) -> ClusterView:
    views = {}
    for word in topics.split():
        name, _, shape = word.partition(":")
        count, _, number = shape.partition("#")
        partitions = tuple(PartitionView(index, 1, 0, (1,), (1,)) for index in range(int(count)))
        views[name] = TopicView(name, f"{name}#{number or 1}".encode().rjust(16, b"\0"), partitions)
    return ClusterView(topics=views, topic_names={topic.topic_id: name for name, topic in views.items()})


def name_of(topic_id: bytes) -> str:
    """`a`, or `a#2` for a topic that was made anew; the ids are made by `view_of`."""
    return topic_id.lstrip(b"\0").decode().removesuffix("#1")


class ShareStage(Stage):
    """A machine whose cluster has topics, and what it has asked the share coordinator."""

    def __init__(self) -> None:
        self.asked: list[InitializeStates | DeleteStates] = []
        super().__init__()

    def play(self, line: str) -> list[str]:
        if line.startswith("set topics"):
            before, self.view = self.view, view_of(line.removeprefix("set topics"))
            command = TopicsChanged("nobody", changed_topics(before, self.view))
            return self.carry_out(self.machine.handle(command, self.now_ms))
        return super().play(line)

    def command(self, verb: str, words: list[str]):
        options = dict(word.split("=", 1) if "=" in word else (word, "") for word in words[1:])
        group_id = options.pop("group", "g").replace("-", "")
        ticket = words[0]
        match verb:
            case "beat" | "leave":
                return heartbeat(ticket, group_id, options, verb == "leave")
            case "describe-share":
                return DescribeShareGroup(ticket, group_id)
            case "partitions":
                return FindSharePartitions(ticket, group_id)
            case "alter":
                offsets: dict[str, dict[int, int]] = {}
                for place, offset in options.items():
                    topic, index = transcript.partition_of(place)
                    offsets.setdefault(topic, {})[index] = int(offset)
                return AlterShareOffsets(ticket, group_id, list(offsets.items()))
            case "forget":
                return DeleteShareOffsets(ticket, group_id, list(options))
            case "initialized" | "deleted":
                return self.answered(verb, options)
        return super().command(verb, words)

    def answered(self, verb: str, refused: dict[str, str]):
        effect = self.asked.pop(0)
        assert isinstance(effect, InitializeStates if verb == "initialized" else DeleteStates)
        results = {}
        for key in keys_of(effect):
            place = f"{name_of(key.topic_id)}-{key.partition}"
            code = ErrorCode[refused.get(place, refused.get("all", "NONE"))]
            results[key] = Refusal(code, None if code is ErrorCode.NONE else "refused")
        effect.command.results = results
        return effect.command

    def carry_out(self, effects: list) -> list[str]:
        lines = []
        for effect in effects:
            match effect:
                case Append(producer=None):
                    self.log += effect.records
                    lines += [f"append {record_text(key, value)}" for key, value, _ in effect.records]
                case Append() | AppendMarker() | SetTimer() | CancelTimer():
                    lines += super().carry_out([effect])
                case InitializeStates():
                    self.asked.append(effect)
                    states = " ".join(
                        f"{name_of(one.partition.topic_id)}-{one.partition.partition}"
                        f"@{one.state_epoch}={one.start_offset}"
                        for one in effect.states
                    )
                    lines.append(f"initialize {effect.command.group_id} {states}")
                case DeleteStates():
                    self.asked.append(effect)
                    places = " ".join(f"{name_of(key.topic_id)}-{key.partition}" for key in effect.partitions)
                    lines.append(f"delete {effect.command.group_id} {places}")
                case _ if not isinstance(effect.value, Noted):
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
        if not isinstance(group, ShareGroup):
            return super().describe_state(group_id)
        members = " ".join(f"{one.member_id}:{one.current.member_epoch}" for one in group.members.values())
        return (
            f"{group_id} {group.state_name} epoch={group.group_epoch} assigned={group.assignment_epoch} "
            f"members=[{members}]"
        )


def keys_of(effect: InitializeStates | DeleteStates):
    if isinstance(effect, DeleteStates):
        return list(effect.partitions)
    return [state.partition for state in effect.states]


def durable_state(machine: GroupMachine):
    """What a log must bring back."""
    return {
        group_id: (
            group.group_epoch,
            group.metadata_hash,
            group.assignment_epoch,
            group.assigned_at_ms,
            group.members,
            group.subscriptions,
            group.recorded_states,
        )
        for group_id, group in machine.groups.items()
        if isinstance(group, ShareGroup)
    }


def heartbeat(ticket: str, group_id: str, options: dict[str, str], leaves: bool) -> ShareHeartbeat:
    topics = options.get("topics")
    return ShareHeartbeat(
        ticket,
        group_id,
        options["member"],
        -1 if leaves else int(options["epoch"]),
        options.get("rack"),
        None if topics is None else [name for name in topics.split("+") if name],
        options.get("client", "c"),
        "/127.0.0.1",
    )


# Effects as text


def record_text(key: bytes, value: bytes | None) -> str:
    kind, subject = decode_key(key)
    name = subject.__class__.__name__
    if kind is Kind.OFFSET or not name.startswith("ShareGroup"):
        return transcript.record_text(key, value)
    place = " ".join(filter(None, (subject.group_id, getattr(subject, "member_id", None))))
    name = name.removeprefix("ShareGroup").removesuffix("Key")
    if value is None:
        return f"{name} {place} tombstone"
    return f"{name} {place} {value_text(decode_group_value(subject, value))}"


def value_text(value) -> str:
    match value:
        case records.ShareGroupMemberMetadataValue():
            rack = "" if value.rack_id is None else f" rack={value.rack_id}"
            return f"client={value.client_id} topics={'+'.join(value.subscribed_topic_names)}{rack}"
        case records.ShareGroupMetadataValue():
            return f"epoch={value.epoch}"
        case records.ShareGroupTargetAssignmentMetadataValue():
            return f"epoch={value.assignment_epoch} at={value.assignment_timestamp / 1000:g}"
        case records.ShareGroupTargetAssignmentMemberValue():
            return places_text({one.topic_id: one.partitions for one in value.topic_partitions})
        case records.ShareGroupCurrentMemberAssignmentValue():
            places = places_text({one.topic_id: one.partitions for one in value.assigned_partitions})
            return f"epoch={value.member_epoch} before={value.previous_member_epoch} {places}"
        case records.ShareGroupStatePartitionMetadataValue():
            initializing, initialized = (
                places_text({one.topic_id: one.partitions for one in part})
                for part in (value.initializing_topics, value.initialized_topics)
            )
            deleting = "+".join(one.topic_name for one in value.deleting_topics) or "-"
            return f"initializing={initializing} initialized={initialized} deleting={deleting}"
    raise AssertionError(value)


def places_text(partitions) -> str:
    shown = [
        f"{name_of(topic_id)}:{'+'.join(map(str, sorted(indexes)))}"
        for topic_id, indexes in sorted(partitions.items())
    ]
    return ",".join(shown) or "-"


def refusal_text(refusal: Refusal) -> str:
    return refusal.error_code.name


def answer_text(answer) -> str:
    match answer:
        case ShareHeartbeatReply(error_code=ErrorCode.NONE):
            text = f"NONE epoch={answer.member_epoch}"
            return (
                text if answer.assignment is None else f"{text} partitions={places_text(answer.assignment)}"
            )
        case ShareGroupDescription(error_code=ErrorCode.NONE):
            members = " ".join(
                f"{one.member_id}@{one.member_epoch}="
                + (
                    ",".join(f"{name}:{'+'.join(map(str, indexes))}" for _, name, indexes in one.assignment)
                    or "-"
                )
                for one in answer.members
            )
            return (
                f"NONE {answer.state} epoch={answer.group_epoch} assigned={answer.assignment_epoch} "
                f"{answer.assignor_name} members=[{members}]"
            )
        case SharePartitions(error_code=ErrorCode.NONE):
            return f"NONE {places_text(answer.partitions)}"
        case AlterShareOffsetsReply(error_code=ErrorCode.NONE):
            shown = [
                f"{topic.name}-{index}={refusal_text(refusal)}"
                for topic in answer.topics
                for index, refusal in topic.partitions.items()
            ]
            return " ".join(["NONE", *shown])
        case DeleteShareOffsetsReply(error_code=ErrorCode.NONE):
            return " ".join(["NONE", *(f"{one.name}={refusal_text(one.refusal)}" for one in answer.topics)])
        case (
            ShareHeartbeatReply()
            | ShareGroupDescription()
            | AlterShareOffsetsReply()
            | DeleteShareOffsetsReply()
        ):
            return " ".join(filter(None, (answer.error_code.name, answer.error_message)))
    return transcript.answer_text(answer)
