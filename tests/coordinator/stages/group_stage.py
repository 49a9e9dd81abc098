"""The machine of groups in transcripts: classic groups, and those of KIP-848.

    topics t=2 u=1
    0 beat a member=m1 epoch=0 names=t+u
    1 beat b member=m1 epoch=2 owned=t:0+1,u:0
    2 matched c REGEX=t+u

The group is `g` and the client id `c` unless said otherwise; member ids are numbered. `state` shows a group.
`write` is a commit of offsets in the transaction of `producer=ID` (its epoch is 0 unless said otherwise),
`end` its marker, which commits unless it says `abort`. `topics` says which topics there are and with how many
partitions (`t=2#2` is another topic of that name). A field of a heartbeat that is not given is null;
`epoch=0` alone brings names (none), a time-out and an empty list of partitions along, `full` a time-out.
Partitions are `t:0+1`, and `t:0@2` where it matters from which epoch on they are held. `matched` is what a
search for topics has found."""

from collections.abc import Iterable
from dataclasses import asdict

from odradek.coordinator.asked import NOBODY
from odradek.coordinator.cluster.view import ClusterView, PartitionView, TopicView
from odradek.coordinator.effects import LoggedRecord, MarkerRecord, MatchTopics, Reply, TransactionalRecord
from odradek.coordinator.group_coordinator import changed_topics
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups import record_codec
from odradek.coordinator.groups.classic_group import GroupState
from odradek.coordinator.groups.commands import EndOffsets, RemoveTopics, TopicsChanged, TopicsMatched
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.groups.pending_offsets import Written
from odradek.coordinator.groups.record_codec import CommittedOffset, Kind
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import consumer_protocol, group_records
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.wire.messages.delete_groups import DeleteGroupsResponse
from odradek.wire.messages.describe_groups import DescribeGroupsResponse
from odradek.wire.messages.join_group import JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupResponse
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.offset_commit import OffsetCommitResponse
from odradek.wire.messages.offset_delete import OffsetDeleteResponse
from odradek.wire.messages.offset_fetch import OffsetFetchResponse
from odradek.wire.messages.sync_group import SyncGroupResponse
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitResponse
from tests.coordinator import group_requests as requests
from tests.kit.transcript import Line, Stage, milliseconds, partition_of, refusal, seconds, split_at

NAMES = {
    group_records.ConsumerGroupMetadataKey: "epoch",
    group_records.ConsumerGroupPartitionMetadataKey: "partition-metadata",
    group_records.ConsumerGroupMemberMetadataKey: "member",
    group_records.ConsumerGroupTargetAssignmentMetadataKey: "target-epoch",
    group_records.ConsumerGroupTargetAssignmentMemberKey: "target",
    group_records.ConsumerGroupCurrentMemberAssignmentKey: "current",
    group_records.ConsumerGroupRegularExpressionKey: "pattern",
}
STATES = {0: "stable", 1: "unrevoked", 2: "unreleased", 127: "unknown"}
OF_THIS_PROCESS = (
    "_topics",
    "_shared_names",
    "topics_may_have_changed",
    "has_new_topics",
    "matching_since_ms",
    "match_failed_at_ms",
)


class Unshown(str):
    """A ticket whose reply is not shown."""


class GroupStage(Stage):
    """A machine whose cluster has topics."""

    folder = "transcripts"
    background = (("expire_offsets",),)
    new_settings = GroupSettings

    def __init__(self) -> None:
        self.member_count = 0
        self.view = ClusterView()
        super().__init__()

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.settings, self.new_suffix, lambda: self.view)

    def new_suffix(self) -> str:
        self.member_count += 1
        return str(self.member_count)

    def prepare(self, verb: str, words: list[str]) -> list[str]:
        if verb == "topics":
            return self.see(view_of_topics(dict(word.split("=") for word in words), self.view.version + 1))
        return super().prepare(verb, words)

    def see(self, view: ClusterView) -> list[str]:
        """Tell the machine which topics there are."""
        before, self.view = self.view, view
        return self.submit(TopicsChanged(changed_topics(before, self.view)))

    def text_of(self, effect) -> list[str]:
        match effect:
            case MatchTopics():
                return [f"match {effect.group_id} {' '.join(sorted(effect.patterns))}"]
            case Reply(ticket) if ticket is NOBODY or isinstance(ticket, Unshown):
                return []
        return super().text_of(effect)

    def durable_state(self):
        return durable_state(self.machine)

    def compare(self, before, after) -> None:
        settled = {group_id for group_id, state in before[0].items() if state is not None}
        assert {name: after[0].get(name) for name in settled} == {name: before[0][name] for name in settled}
        assert after[1:] == before[1:]

    def check_end(self) -> None:
        assert not left_over(self.machine, self.log)

    def describe_state(self, words: list[str]) -> list[str]:
        group_id = words[0] if words else "g"
        group = self.machine.groups.get(group_id)
        return [f"{group_id} {GroupState.DEAD.value if group is None else self.state_text(group)}"]

    def state_text(self, group) -> str:
        members = " ".join(group.members)
        if isinstance(group, ConsumerGroup):
            return f"{group.state_name} epoch={group.group_epoch} members=[{members}]"
        return f"{group.state.value} generation={group.generation} members=[{members}]"

    steps = {"state": describe_state}

    def record_text(self, key: bytes, value: bytes | None) -> str:
        kind, subject = record_codec.decode_key(key)
        if kind is Kind.OFFSET:
            return offset_text(subject, value)
        return self.group_text(
            subject, None if value is None else record_codec.decode_group_value(subject, value)
        )

    def group_text(self, key, value) -> str:
        """`key` and `value` are messages; None is a tombstone."""
        if isinstance(key, group_records.GroupMetadataKey):
            return f"group {key.group} {'tombstone' if value is None else classic_text(value)}"
        subject = getattr(key, "member_id", None) or getattr(key, "regular_expression", None)
        text = f"{NAMES[type(key)]} {key.group_id}" + (f"/{subject}" if subject else "")
        return f"{text} {'tombstone' if value is None else value_text(value)}"

    def answer_text(self, answer) -> str:
        return answer_text(answer)


# State


def left_over(machine: GroupMachine, log: list[LoggedRecord]) -> list[bytes]:
    """The keys of what a log still says of groups that no deletion of a group would take back."""
    last: dict[bytes, bytes | None] = {}
    for record in log:
        match record:
            case MarkerRecord() | TransactionalRecord():
                pass
            case key, value, _ if record_codec.decode_key(key)[0] is Kind.GROUP:
                last[key] = value
    known = {
        record_codec.encode_group_record(key, None)[0]
        for group in machine.groups.values()
        for key in list(group.keys())
    }
    return [key for key, value in last.items() if value is not None and key not in known]


def durable_state(machine: GroupMachine):
    """What a log must bring back: settled groups (None for those in a rebalance), all offsets, and those that
    are pending, in the order in which they were written."""
    groups = {}
    for group_id, group in machine.groups.items():
        if isinstance(group, ConsumerGroup):
            groups[group_id] = durable_state_of(group)
            continue
        is_settled = group.state in (GroupState.EMPTY, GroupState.STABLE)
        groups[group_id] = (group.state, group.record(group.state_timestamp_ms or -1)) if is_settled else None
    offsets = {group_id: machine.offsets.of_group(group_id) for group_id in groups}
    pending = {
        group_id: {place: in_order(written) for place, written in places.items()}
        for group_id, places in machine.pending.by_group.items()
    }
    return groups, {group_id: topics for group_id, topics in offsets.items() if topics}, pending


def durable_state_of(group: ConsumerGroup):
    """All of a group that a log must bring back, and what is counted from it."""
    return {name: value for name, value in vars(group).items() if name not in OF_THIS_PROCESS}


def in_order(written: Written) -> list[tuple[int, CommittedOffset | None]]:
    """Producer ids with their pending offsets; None for what has been overtaken."""
    ordered = sorted(written.by_producer.items(), key=lambda one: one[1][0])
    return [
        (producer_id, offset if moment > written.decided_at else None)
        for producer_id, (moment, offset) in ordered
    ]


# The cluster


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def topic_name(identity: bytes) -> str:
    """`t`, or `t2` for another topic of that name."""
    return identity.rstrip(b"\0").decode()


def view_of_topics(shapes: dict[str, str], version: int = 0, mark: str = "") -> ClusterView:
    """`shapes` says of each topic how many partitions it has; `3#2` is another topic of that name, with `2`
    after the mark in its id."""
    topics = {}
    for name, shape in shapes.items():
        count, _, number = shape.partition("#")
        partitions = tuple(PartitionView(index, 1, 0, (1,), (1,)) for index in range(int(count)))
        identity = topic_id(name + mark * bool(number) + number)
        topics[name] = TopicView(name, identity, partitions)
    names = {topic.topic_id: name for name, topic in topics.items()}
    return ClusterView(version=version, topics=topics, topic_names=names)


# Commands


def subscription(topics: str, owned: str = "", rack: str | None = None, version: int = 3) -> bytes:
    """`t1+t2` as the metadata of a consumer; `!text` as bytes that are none."""
    if topics.startswith("!"):
        return topics[1:].encode()
    partitions = [
        consumer_protocol.TopicPartition(topic=topic_name(identity), partitions=indexes)
        for identity, indexes in partitions_of(owned or "-")
    ]
    said = ConsumerProtocolSubscription(
        topics=split_at(topics, "+"), owned_partitions=partitions, rack_id=rack
    )
    return consumer_protocol.encode(said, version)


def partitions_of(text: str) -> list[tuple[bytes, list[int]]]:
    """`t:0+1,u:2`; `-` for none."""
    topics = [] if text == "-" else [word.partition(":")[::2] for word in text.split(",")]
    return [(topic_id(name), [int(index) for index in indexes.split("+")]) for name, indexes in topics]


def asking(make, default_version=9):
    """Makes the command of a line: `make` makes its request."""

    def command(line: Line):
        version = line.number("version", default_version)
        client_id, host = line.get("client", "c"), line.get("host", "/127.0.0.1")
        return requests.asked(make(line), line.ticket, version, client_id, host)

    return command


def join(line: Line):
    protocols = []
    for offered in split_at(line.get("protocols", "range"), ","):
        name, _, topics = offered.partition(":")
        told = subscription(
            topics or line.get("topics", "t"),
            line.get("owned", ""),
            line.get("rack"),
            line.number("metadata", 3),
        )
        protocols.append((name, told))
    return requests.join(
        line.group,
        line.get("member", ""),
        protocols,
        line.time_ms("session", 10_000),
        line.time_ms("rebalance"),
        line.get("instance"),
        line.get("type", "consumer"),
    )


def sync(line: Line, separators: str = ",:", encoded=str.encode):
    between, within = separators
    assignments = (pair.split(within, 1) for pair in line.names("assign", between))
    return requests.sync(
        line.group,
        line.number("generation"),
        line["member"],
        [(member_id, encoded(assignment)) for member_id, assignment in assignments],
        group_instance_id=line.get("instance"),
        protocol_type=line.get("type"),
        protocol_name=line.get("protocol"),
    )


def leave(line: Line):
    members = []
    for word in line.rest:
        member_id, at, instance_id = word.partition("@")
        members.append((member_id, instance_id if at else None))
    return requests.leave(line.group, *members)


def offsets_of(line: Line) -> list[tuple]:
    """`t-0=OFFSET:EPOCH:METADATA:TIMESTAMP`."""
    found = []
    for name, value in line.pairs:
        offset, *more = value.split(":")
        epoch, metadata, timestamp = [*more, "", "", ""][:3]
        found.append((*partition_of(name), int(offset), int(epoch or -1), metadata, int(timestamp or -1)))
    return found


def commit(line: Line):
    return requests.commit(
        line.group,
        offsets_of(line),
        line.number("generation"),
        line.get("member", ""),
        line.get("instance"),
        line.time_ms("retention"),
    )


def write(line: Line):
    return requests.commit_in_transaction(
        line.group,
        line.number("producer"),
        offsets_of(line),
        line.number("epoch", 0),
        line.get("member", ""),
        line.number("generation"),
        line.get("instance"),
    )


def end(line: Line):
    marker = EndMarker(line.number("producer"), line.number("epoch", 0), 0, line.rest != ["abort"])
    return EndOffsets(marker, ticket=line.ticket)


def fetch(line: Line):
    return requests.fetch(
        line.group, line.partitions or None, line.get("member"), line.number("generation"), "stable" in line
    )


def beat(line: Line):
    epoch = line.number("epoch")
    timeout = line.get("rebalance", "30" if epoch == 0 or "full" in line.rest else "-0.001")
    names = line.get("names", "" if epoch == 0 and "regex" not in line else "null")
    owned = line.get("owned", "-" if epoch == 0 else "null")
    return requests.consumer_beat(
        line.group,
        line.get("member", ""),
        epoch,
        None if owned == "null" else partitions_of(owned),
        instance_id=line.get("instance"),
        rack_id=line.get("rack"),
        rebalance_timeout_ms=milliseconds(timeout),
        subscribed_topic_names=None if names == "null" else split_at(names, "+"),
        subscribed_topic_regex=line.get("regex"),
        server_assignor=line.get("assignor"),
    )


def matched(line: Line):
    topics = {pattern: frozenset(line.names(pattern, "+")) for pattern in line.options}
    found = None if "failed" in line.rest else topics
    return TopicsMatched(line.group, 1, found, ticket=Unshown(line.ticket))


GroupStage.commands = {
    "beat": asking(beat, 1),
    "matched": matched,
    "join": asking(join),
    "sync": asking(sync),
    "leave": asking(leave),
    "commit": asking(commit),
    "write": asking(write),
    "end": end,
    "fetch": asking(fetch),
    "heartbeat": asking(
        lambda line: requests.beat(
            line.group, line.number("generation"), line["member"], line.get("instance")
        )
    ),
    "describe": asking(lambda line: requests.describe(line.group)),
    "describe-consumers": asking(lambda line: requests.describe_consumers(line.group)),
    "delete": asking(lambda line: requests.delete(line.group)),
    "delete-offsets": asking(lambda line: requests.delete_offsets(line.group, line.partitions)),
    "remove-topics": lambda line: RemoveTopics(dict.fromkeys(line.rest), ticket=line.ticket),
    "list": asking(
        lambda line: ListGroupsRequest(states_filter=line.names("states"), types_filter=line.names("types"))
    ),
}


# Records as text


def offset_text(subject, value: bytes | None) -> str:
    group_id, topic, partition = subject
    name = f"offset {group_id} {topic}-{partition}"
    if value is None:
        return f"{name} tombstone"
    offset = record_codec.decode_offset(value)
    epoch = "" if offset.leader_epoch == -1 else f" epoch={offset.leader_epoch}"
    expires = "" if offset.expire_timestamp_ms == -1 else f" expires={seconds(offset.expire_timestamp_ms)}"
    metadata = f" metadata={offset.metadata}" if offset.metadata else ""
    return f"{name} {offset.offset}{epoch}{metadata} at={seconds(offset.commit_timestamp_ms)}{expires}"


def held_text(members) -> str:
    return " ".join(f"{member_id}:{bytes(assignment).decode()}" for member_id, assignment in members)


def classic_text(group) -> str:
    return (
        f"generation={group.generation} type={group.protocol_type} protocol={group.protocol}"
        f" leader={group.leader} at={seconds(group.current_state_timestamp)}"
        f" members=[{held_text((one.member_id, one.assignment) for one in group.members)}]"
    )


def value_text(said) -> str:
    match said:
        case group_records.ConsumerGroupMetadataValue():
            return f"{said.epoch}" + ("" if said.metadata_hash else " without topics")
        case group_records.ConsumerGroupMemberMetadataValue():
            return member_text(said)
        case group_records.ConsumerGroupTargetAssignmentMetadataValue():
            return f"{said.assignment_epoch} at={seconds(said.assignment_timestamp)}"
        case group_records.ConsumerGroupTargetAssignmentMemberValue():
            return parts_text(said.topic_partitions)
        case group_records.ConsumerGroupCurrentMemberAssignmentValue():
            held, revoking = map(epochs_text, (said.assigned_partitions, said.partitions_pending_revocation))
            epochs = f"{said.previous_member_epoch}>{said.member_epoch}"
            given_up = "" if revoking == "-" else f" gives up {revoking}"
            return f"{STATES[said.state]} {epochs} {held}{given_up}"
        case group_records.ConsumerGroupRegularExpressionValue():
            return f"{'+'.join(said.topics) or '-'} at={seconds(said.timestamp)}"
    raise AssertionError(said)


def member_text(said) -> str:
    told = {
        "names": "+".join(said.subscribed_topic_names) or "-",
        "regex": said.subscribed_topic_regex,
        "instance": said.instance_id,
        "rack": said.rack_id,
        "assignor": said.server_assignor,
        "rebalance": seconds(said.rebalance_timeout_ms),
        "client": f"{said.client_id}{said.client_host}",
    }
    return " ".join(f"{name}={one}" for name, one in told.items() if one)


def listed(places: Iterable[tuple[str, Iterable]]) -> str:
    """`t:0+1,u:0`, or `-`."""
    return ",".join(f"{name}:{'+'.join(map(str, indexes))}" for name, indexes in places) or "-"


def topics_text(topics) -> str:
    """Partitions by topic id."""
    return listed((topic_name(one), sorted(indexes)) for one, indexes in sorted(dict(topics).items()))


def parts_text(records) -> str:
    return topics_text({one.topic_id: one.partitions for one in records})


def epochs_text(records) -> str:
    return listed(
        (topic_name(one.topic_id), map("{}@{}".format, one.partitions, one.assignment_epochs))
        for one in sorted(records, key=lambda one: one.topic_id)
    )


# Answers as text


def answer_text(answer) -> str:
    if isinstance(answer, ErrorCode):
        return answer.name
    code = getattr(answer, "error_code", ErrorCode.NONE)
    match answer:
        case JoinGroupResponse():
            text = f"{code.name} member={answer.member_id}"
            return text if code else text + joined_text(answer)
        case SyncGroupResponse(error_code=ErrorCode.NONE):
            assignment = bytes(answer.assignment).decode() or "-"
            return f"NONE {answer.protocol_type}/{answer.protocol_name} {assignment}"
        case LeaveGroupResponse():
            left = [f"{m.member_id}@{m.group_instance_id}:{m.error_code.name}" for m in answer.members]
            return " ".join([code.name, *left])
        case OffsetCommitResponse() | TxnOffsetCommitResponse():
            return " ".join(each.name for each in requests.errors_in(answer))
        case OffsetDeleteResponse():
            return " ".join([code.name, *(each.name for each in requests.errors_in(answer))])
        case OffsetFetchResponse():
            found = [
                f"{topic}-{o.partition_index}="
                + (
                    o.error_code.name
                    if o.error_code
                    else f"{o.committed_offset}:{o.committed_leader_epoch}:{o.metadata}"
                )
                for topic, o in requests.results_in(answer)
            ]
            return " ".join([answer.groups[0].error_code.name, *found])
        case DescribeGroupsResponse(groups=[group]):
            protocol = f"{group.protocol_type or '-'}/{group.protocol_data or '-'}"
            held = held_text((one.member_id, one.member_assignment) for one in group.members)
            return f"{group.error_code.name} {group.group_state} {protocol} members=[{held}]"
        case ListGroupsResponse(groups=groups):
            found = [f"{g.group_id}:{g.protocol_type or '-'}:{g.group_state}" for g in groups]
            return " ".join([code.name, *found])
        case DeleteGroupsResponse(results=[result]):
            return refusal(result)
        case ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NONE):
            told = "" if answer.assignment is None else f" {parts_text(answer.assignment.topic_partitions)}"
            every = (
                "" if answer.heartbeat_interval_ms in (0, 5_000) else seconds(answer.heartbeat_interval_ms)
            )
            return f"NONE {answer.member_id} epoch={answer.member_epoch}{told}{every and f' every {every}'}"
        case ConsumerGroupDescribeResponse(groups=[group]):
            return refusal(group) if group.error_code else description_text(group)
        case _ if code:
            return refusal(answer)
    assert list(asdict(answer)) in (["error_code"], ["throttle_time_ms", "error_code"])
    return code.name


def description_text(group) -> str:
    def shown(assignment) -> str:
        return parts_text(assignment.topic_partitions)

    members = " ".join(
        f"{m.member_id}@{m.member_epoch}({shown(m.assignment)}>{shown(m.target_assignment)})"
        for m in group.members
    )
    epochs = f"{group.group_epoch}/{group.assignment_epoch}"
    return f"NONE {group.group_state} {epochs} {group.assignor_name} [{members}]"


def joined_text(answer) -> str:
    protocol = f"{answer.protocol_type}/{answer.protocol_name}"
    text = f" generation={answer.generation_id} {protocol} leader={answer.leader}"
    if answer.members:
        text += f" members=[{' '.join(member.member_id for member in answer.members)}]"
    return text + (" skip-assignment" if answer.skip_assignment else "")
