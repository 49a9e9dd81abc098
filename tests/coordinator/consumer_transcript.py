"""What transcripts say of consumer groups (KIP-848); played by `transcript.py`.

    topics t=2 u=1
    0 beat a member=m1 epoch=0 names=t+u
    1 beat b member=m1 epoch=2 owned=t:0+1,u:0
    2 matched c REGEX=t+u

`topics` says which topics there are and with how many partitions (`t=2#2` is another topic of that name). A
field of a heartbeat that is not given is null; `epoch=0` alone brings names (none), a time-out and an empty
list of partitions along, `full` a time-out. Partitions are `t:0+1`, and `t:0@2` where it matters from which
epoch on they are held. `matched` is what a search for topics has found.
"""

from odradek.coordinator.cluster.view import (
    ClusterView,
    PartitionView,
    TopicView,
)
from odradek.coordinator.groups import record_codec
from odradek.coordinator.groups.consumer_commands import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    TopicsMatched,
)
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

NAMES = {
    ConsumerGroupMetadataKey: "epoch",
    ConsumerGroupPartitionMetadataKey: "partition-metadata",
    ConsumerGroupMemberMetadataKey: "member",
    ConsumerGroupTargetAssignmentMetadataKey: "target-epoch",
    ConsumerGroupTargetAssignmentMemberKey: "target",
    ConsumerGroupCurrentMemberAssignmentKey: "current",
    ConsumerGroupRegularExpressionKey: "pattern",
}
STATES = {0: "stable", 1: "unrevoked", 2: "unreleased", 127: "unknown"}
OF_THIS_PROCESS = (
    "_topics",
    "_shared_names",
    "is_to_look",
    "has_new_topics",
    "matching_since_ms",
    "match_failed_at_ms",
)


# The cluster


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def topic_name(identity: bytes) -> str:
    return identity.rstrip(b"\0").decode()


def view_of_topics(counts: dict[str, str], version: int) -> ClusterView:
    """`counts` says of each topic how many partitions it has."""
    topics = {}
    for name, told in counts.items():
        count, _, generation = told.partition("#")
        partitions = tuple(PartitionView(index, 1, 0, (1,), (1,)) for index in range(int(count)))
        topics[name] = TopicView(name, topic_id(name + generation), partitions)
    return ClusterView(
        version=version,
        topics=topics,
        topic_names={topic.topic_id: name for name, topic in topics.items()},
    )


# Commands


def partitions_of(text: str) -> list[tuple[bytes, list[int]]]:
    """`t:0+1,u:2`; `-` for none."""
    topics = [] if text == "-" else [word.partition(":")[::2] for word in text.split(",")]
    return [(topic_id(name), [int(index) for index in indexes.split("+")]) for name, indexes in topics]


def beat(ticket, group_id, options, rest):
    epoch = int(options["epoch"])
    timeout = options.get("rebalance", "30" if epoch == 0 or "full" in rest else "-0.001")
    names = options.get("names", "" if epoch == 0 and "regex" not in options else "null")
    owned = options.get("owned", "-" if epoch == 0 else "null")
    return ConsumerHeartbeat(
        ticket,
        group_id,
        options.get("member", ""),
        epoch,
        options.get("instance"),
        options.get("rack"),
        round(float(timeout) * 1000),
        None if names == "null" else [name for name in names.split("+") if name],
        options.get("regex"),
        options.get("assignor"),
        None if owned == "null" else partitions_of(owned),
        options.get("client", "c"),
        options.get("host", "/127.0.0.1"),
        int(options.get("version", 1)),
    )


def matched(ticket, group_id, options, rest):
    topics = {pattern: frozenset(filter(None, names.split("+"))) for pattern, names in options.items()}
    return TopicsMatched(ticket, group_id, 1, None if "failed" in rest else topics)


# State


def durable_state_of(group: ConsumerGroup):
    """All of a group that a log must bring back, and what is counted from it."""
    return {name: value for name, value in vars(group).items() if name not in OF_THIS_PROCESS}


# Effects as text


def record_text(key, value: bytes | None) -> str:
    subject = getattr(key, "member_id", None) or getattr(key, "regular_expression", None)
    text = f"{NAMES[type(key)]} {key.group_id}" + (f"/{subject}" if subject else "")
    if value is None:
        return f"{text} tombstone"
    said = record_codec.decode_group_value(key, value)
    match said:
        case ConsumerGroupMetadataValue():
            return f"{text} {said.epoch}" + ("" if said.metadata_hash else " without topics")
        case ConsumerGroupMemberMetadataValue():
            return f"{text} {member_text(said)}"
        case ConsumerGroupTargetAssignmentMetadataValue():
            return f"{text} {said.assignment_epoch} at={said.assignment_timestamp / 1000:g}"
        case ConsumerGroupTargetAssignmentMemberValue():
            return f"{text} {topics_text({t.topic_id: t.partitions for t in said.topic_partitions})}"
        case ConsumerGroupCurrentMemberAssignmentValue():
            held, revoking = map(epochs_text, (said.assigned_partitions, said.partitions_pending_revocation))
            epochs = f"{said.previous_member_epoch}>{said.member_epoch}"
            given_up = "" if revoking == "-" else f" gives up {revoking}"
            return f"{text} {STATES[said.state]} {epochs} {held}{given_up}"
        case ConsumerGroupRegularExpressionValue():
            return f"{text} {'+'.join(said.topics) or '-'} at={said.timestamp / 1000:g}"
    raise AssertionError(said)


def member_text(said: ConsumerGroupMemberMetadataValue) -> str:
    told = {
        "names": "+".join(said.subscribed_topic_names) or "-",
        "regex": said.subscribed_topic_regex,
        "instance": said.instance_id,
        "rack": said.rack_id,
        "assignor": said.server_assignor,
        "rebalance": f"{said.rebalance_timeout_ms / 1000:g}",
        "client": f"{said.client_id}{said.client_host}",
    }
    return " ".join(f"{name}={one}" for name, one in told.items() if one)


def topics_text(topics) -> str:
    texts = [
        f"{topic_name(identity)}:{'+'.join(map(str, partitions))}"
        for identity, partitions in sorted(dict(topics).items())
    ]
    return ",".join(texts) or "-"


def epochs_text(records) -> str:
    return topics_text(
        {
            record.topic_id: [
                f"{index}@{since}"
                for index, since in zip(record.partitions, record.assignment_epochs, strict=True)
            ]
            for record in records
        }
    )


def answer_text(answer: ConsumerHeartbeatReply | ConsumerGroupDescription) -> str:
    code = answer.error_code
    if code is not ErrorCode.NONE:
        return " ".join(filter(None, [code.name, answer.error_message]))
    if isinstance(answer, ConsumerHeartbeatReply):
        told = "" if answer.assignment is None else f" {topics_text(answer.assignment)}"
        interval = answer.heartbeat_interval_ms / 1000
        every = "" if interval in (0, 5) else f" every {interval:g}"
        return f"NONE {answer.member_id} epoch={answer.member_epoch}{told}{every}"
    members = " ".join(
        f"{m.member_id}@{m.member_epoch}({topics_text(m.assignment)}>{topics_text(m.target_assignment)})"
        for m in answer.members
    )
    epochs = f"{answer.group_epoch}/{answer.assignment_epoch}"
    return f"NONE {answer.state} {epochs} {answer.assignor_name} [{members}]"
