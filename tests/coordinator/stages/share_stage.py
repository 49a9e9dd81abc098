"""Share groups in transcripts.

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
oldest question to the share coordinator that is still open, in which it does all but what is named."""

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.shares.groups.commands import DeleteStates, InitializeStates
from odradek.coordinator.shares.groups.group import ShareGroup
from odradek.coordinator.shares.state.persister import Refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import group_records as records
from odradek.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from odradek.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from odradek.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsResponse
from odradek.wire.messages.share_group_describe import ShareGroupDescribeResponse
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from tests.coordinator.shares import share_requests as requests
from tests.coordinator.stages.group_stage import (
    GroupStage,
    answer_text,
    asking,
    listed,
    parts_text,
    topic_name,
    topics_text,
    view_of_topics,
)
from tests.kit.transcript import Line, partition_of, refusal, seconds, split_at


def view_of(topics: str) -> ClusterView:
    """`name:count`, or `name:count#2` for a topic that was made anew."""
    return view_of_topics(dict(word.split(":") for word in topics.split()), mark="#")


class NamedRecordsStage(GroupStage):
    """Groups whose records are shown by the names of their messages."""

    prefix: str
    group_class: type
    value_text = staticmethod(str)

    def prepare(self, verb: str, words: list[str]) -> list[str]:
        if words[:1] != ["topics"]:
            return super().prepare(verb, words)
        return self.see(view_of(" ".join(words[1:])))

    def group_text(self, key, value) -> str:
        name = type(key).__name__
        if not name.startswith(self.prefix):
            return super().group_text(key, value)
        place = " ".join(filter(None, (key.group_id, getattr(key, "member_id", None))))
        name = name.removeprefix(self.prefix).removesuffix("Key")
        return f"{name} {place} {'tombstone' if value is None else self.value_text(value)}"

    def state_text(self, group) -> str:
        if not isinstance(group, self.group_class):
            return super().state_text(group)
        members = " ".join(map(self.member_text, group.members.values()))
        epochs = f"epoch={group.group_epoch} assigned={group.assignment_epoch}"
        return f"{group.state_name} {epochs} members=[{members}]"

    def member_text(self, member) -> str:
        raise NotImplementedError

    def compare(self, before, after) -> None:
        assert after == before


class ShareStage(NamedRecordsStage):
    """A machine whose cluster has topics, and what it has asked the share coordinator."""

    folder = "share_transcripts"
    prefix, group_class = "ShareGroup", ShareGroup

    def __init__(self) -> None:
        self.asked: list[InitializeStates | DeleteStates] = []
        super().__init__()

    def text_of(self, effect) -> list[str]:
        match effect:
            case InitializeStates():
                self.asked.append(effect)
                states = (f"{place(s.partition)}@{s.state_epoch}={s.start_offset}" for s in effect.states)
                return [f"initialize {effect.command.group_id} {' '.join(states)}"]
            case DeleteStates():
                self.asked.append(effect)
                return [f"delete {effect.command.group_id} {' '.join(map(place, effect.partitions))}"]
        return super().text_of(effect)

    def answered(self, words: list[str], kind: type) -> list[str]:
        effect = self.asked.pop(0)
        assert isinstance(effect, kind)
        refused = dict(word.split("=") for word in words[1:])
        results = {}
        for key in keys_of(effect):
            code = ErrorCode[refused.get(place(key), refused.get("all", "NONE"))]
            results[key] = Refusal(code, "refused" if code else None)
        effect.command.results = results
        return self.submit(effect.command)

    steps = {
        **GroupStage.steps,
        "initialized": lambda stage, words: stage.answered(words, InitializeStates),
        "deleted": lambda stage, words: stage.answered(words, DeleteStates),
    }

    def durable_state(self):
        return durable_state(self.machine)

    def member_text(self, member) -> str:
        return f"{member.member_id}:{member.current.member_epoch}"

    def value_text(self, value) -> str:
        return value_text(value)

    def answer_text(self, answer) -> str:
        return share_answer_text(answer)


def place(key) -> str:
    return f"{topic_name(key.topic_id)}-{key.partition}"


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


def heartbeat(line: Line):
    epoch = -1 if line.verb == "leave" else line.number("epoch")
    topics = split_at(line["topics"], "+") if "topics" in line else None
    return requests.beat(line.group, line["member"], epoch, topics, line.get("rack"))


def alter(line: Line):
    return requests.alter(line.group, [(*partition_of(name), int(offset)) for name, offset in line.pairs])


ShareStage.commands = {
    **GroupStage.commands,
    "beat": asking(heartbeat),
    "leave": asking(heartbeat),
    "alter": asking(alter),
    "forget": asking(lambda line: requests.forget(line.group, line.rest)),
    "describe-share": asking(lambda line: requests.describe(line.group)),
    "partitions": asking(lambda line: requests.describe_offsets(line.group)),
}


def value_text(value) -> str:
    match value:
        case records.ShareGroupMemberMetadataValue():
            rack = "" if value.rack_id is None else f" rack={value.rack_id}"
            return f"client={value.client_id} topics={'+'.join(value.subscribed_topic_names)}{rack}"
        case records.ShareGroupMetadataValue():
            return f"epoch={value.epoch}"
        case records.ShareGroupTargetAssignmentMetadataValue():
            return f"epoch={value.assignment_epoch} at={seconds(value.assignment_timestamp)}"
        case records.ShareGroupTargetAssignmentMemberValue():
            return parts_text(value.topic_partitions)
        case records.ShareGroupCurrentMemberAssignmentValue():
            places = parts_text(value.assigned_partitions)
            return f"epoch={value.member_epoch} before={value.previous_member_epoch} {places}"
        case records.ShareGroupStatePartitionMetadataValue():
            initializing, initialized = map(parts_text, (value.initializing_topics, value.initialized_topics))
            deleting = "+".join(one.topic_name for one in value.deleting_topics) or "-"
            return f"initializing={initializing} initialized={initialized} deleting={deleting}"
    raise AssertionError(value)


def share_answer_text(answer) -> str:
    match answer:
        case ShareGroupHeartbeatResponse(error_code=ErrorCode.NONE):
            partitions = requests.assigned_in(answer)
            told = "" if partitions is None else f" partitions={topics_text(partitions)}"
            return f"NONE epoch={answer.member_epoch}{told}"
        case ShareGroupDescribeResponse(groups=[group]) if group.error_code == ErrorCode.NONE:
            members = " ".join(map(described_text, group.members))
            return (
                f"NONE {group.group_state} epoch={group.group_epoch} assigned={group.assignment_epoch} "
                f"{group.assignor_name} members=[{members}]"
            )
        case ShareGroupDescribeResponse(groups=[group]):
            return refusal(group)
        case DescribeShareGroupOffsetsResponse(groups=[group]) if group.error_code == ErrorCode.NONE:
            return f"NONE {topics_text(requests.partitions_in(answer))}"
        case AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE):
            shown = [
                f"{topic.topic_name}-{one.partition_index}={one.error_code.name}"
                for topic in answer.responses
                for one in topic.partitions
            ]
            return " ".join(["NONE", *shown])
        case DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE):
            return " ".join(
                ["NONE", *(f"{one.topic_name}={one.error_code.name}" for one in answer.responses)]
            )
        case _ if getattr(answer, "error_code", None) is ErrorCode.INVALID_GROUP_ID:
            return "INVALID_GROUP_ID"  # the group is not there that would have more to say
    return answer_text(answer)


def described_text(member) -> str:
    places = listed((one.topic_name, one.partitions) for one in member.assignment.topic_partitions)
    return f"{member.member_id}@{member.member_epoch}={places}"
