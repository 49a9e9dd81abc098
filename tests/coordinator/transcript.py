"""Plays transcripts against a group machine: what is asked, when, and every effect that must follow.

    # A comment.
    set group_max_size=2
    1.5 join a member=c-1 session=10 protocols=range:t1+t2,roundrobin:t1
    ----
    timer session/g/c-1 at 11.5
    reply a NONE member=c-1 generation=1

A block is one step: `seconds command ticket key=value ...`, a line of dashes, the effects in order, an empty
line. The group is `g` and the client id `c` unless said otherwise; member ids are numbered. `timer KEY` rings
a timer that is set and due; no step may come later than a timer that is due. `reload` replays the log into a
new machine, which must hold the same durable state. `state` shows a group. `write` is a commit of offsets in
the transaction of `producer=ID` (its epoch is 0 unless said otherwise), `end` its marker, which commits
unless it says `abort`. `consumer_transcript.py` says what is asked of consumer groups.

With ODRADEK_WRITE_TRANSCRIPTS=1 pytest writes the effects that follow today into the files, for a person to
read and judge.
"""

import pathlib
from dataclasses import asdict

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import (
    Append,
    AppendMarker,
    CancelTimer,
    LoggedRecord,
    MarkerRecord,
    MatchTopics,
    SetTimer,
    TransactionalRecord,
)
from odradek.coordinator.group_coordinator import changed_topics
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups import record_codec
from odradek.coordinator.groups.classic_group import GroupState
from odradek.coordinator.groups.commands import (
    CommitOffsets,
    CommitOffsetsReply,
    CommitTransactionalOffsets,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsReply,
    DescribeGroup,
    EndOffsets,
    FetchOffsets,
    FetchOffsetsReply,
    GroupDescription,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    LeavingMember,
    ListGroups,
    ListGroupsReply,
    OfferedProtocol,
    OffsetToCommit,
    RemoveTopics,
    Sync,
    SyncReply,
)
from odradek.coordinator.groups.consumer_commands import (
    ConsumerGroupDescription,
    ConsumerHeartbeatReply,
    DescribeConsumerGroup,
    Noted,
    TopicsChanged,
)
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.groups.pending_offsets import Written
from odradek.coordinator.groups.record_codec import CommittedOffset, Kind
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import consumer_protocol
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.wire.messages.group_records import GroupMetadataKey
from tests.coordinator import consumer_transcript

DASHES = "----"
BACKGROUND = ("expire_offsets",)


def subscription(topics: str) -> bytes:
    """`t1+t2` as the metadata of a consumer; `!text` as bytes that are none."""
    if topics.startswith("!"):
        return topics[1:].encode()
    return consumer_protocol.encode(
        ConsumerProtocolSubscription(topics=topics.split("+"), owned_partitions=[]), 1
    )


class Stage:
    """A machine, its clock, its timers and its log."""

    def __init__(self) -> None:
        self.settings = GroupSettings()
        self.member_count = 0
        self.view = ClusterView()
        self.machine = self.new_machine()
        self.timers: dict[tuple, int] = {}
        self.log: list[LoggedRecord] = []
        self.now_ms = 0
        self.carry_out(self.machine.start(0))

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.settings, self.new_suffix, lambda: self.view)

    def new_suffix(self) -> str:
        self.member_count += 1
        return str(self.member_count)

    def play(self, line: str) -> list[str]:
        """Carry out one line; the effects as text."""
        if line.startswith("set "):
            for name, value in (pair.split("=") for pair in line.split()[1:]):
                assert hasattr(self.settings, name), name
                setattr(self.settings, name, int(value))
            return []
        if line.startswith("topics "):
            return self.have_topics(dict(word.split("=") for word in line.split()[1:]))
        at, verb, *words = line.split()
        self.advance(round(float(at) * 1000), None if verb != "timer" else tuple(words[0].split("/")))
        if verb == "timer":
            key = tuple(words[0].split("/"))
            assert self.timers.pop(key, self.now_ms + 1) <= self.now_ms, f"{key} is not due"
            return self.carry_out(self.machine.expire(key, self.now_ms))
        if verb == "reload":
            return self.reload()
        if verb == "state":
            return [self.describe_state(words[0] if words else "g")]
        return self.carry_out(self.machine.handle(self.command(verb, words), self.now_ms))

    def have_topics(self, counts: dict[str, str]) -> list[str]:
        before, self.view = self.view, consumer_transcript.view_of_topics(counts, self.view.version + 1)
        command = TopicsChanged("topics", changed_topics(before, self.view))
        return self.carry_out(self.machine.handle(command, self.now_ms))

    def advance(self, now_ms: int, ringing: tuple | None) -> None:
        assert now_ms >= self.now_ms, "time runs backwards"
        self.now_ms = now_ms
        for key, at_ms in self.timers.items():
            overdue = at_ms < now_ms and key not in (ringing, BACKGROUND)
            assert not overdue, f"{'/'.join(key)} rings at {at_ms / 1000:g}"

    def carry_out(self, effects: list) -> list[str]:
        lines = []
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.key] = effect.at_ms
                if effect.key != BACKGROUND:
                    lines.append(f"timer {'/'.join(effect.key)} at {effect.at_ms / 1000:g}")
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
                lines.append(f"cancel {'/'.join(effect.key)}")
            elif isinstance(effect, Append | AppendMarker):
                self.log += logged(effect)
                lines += appended_text(effect)
            elif isinstance(effect, MatchTopics):
                lines.append(f"match {effect.group_id} {' '.join(sorted(effect.patterns))}")
            elif not isinstance(effect.value, Noted):
                lines.append(f"reply {effect.ticket} {answer_text(effect.value)}")
        return lines

    def reload(self) -> list[str]:
        before = durable_state(self.machine)
        self.machine = self.new_machine()
        replay_all(self.machine, self.log)
        after = durable_state(self.machine)
        settled = {group_id for group_id, state in before[0].items() if state is not None}
        assert {name: after[0].get(name) for name in settled} == {name: before[0][name] for name in settled}
        assert after[1:] == before[1:]
        self.timers.clear()
        return self.carry_out(self.machine.start(self.now_ms))

    def describe_state(self, group_id: str) -> str:
        group = self.machine.groups.get(group_id)
        if group is None:
            return f"{group_id} {GroupState.DEAD.value}"
        members = " ".join(group.members)
        if isinstance(group, ConsumerGroup):
            return f"{group_id} {group.state_name} epoch={group.group_epoch} members=[{members}]"
        return f"{group_id} {group.state.value} generation={group.generation} members=[{members}]"

    def command(self, verb: str, words: list[str]):
        ticket, options, rest = words[0], {}, []
        for word in words[1:]:
            name, equals, value = word.partition("=")
            if equals and not is_partition(name):
                options[name] = value
            else:
                rest.append(word)
        return COMMANDS[verb](ticket, options.pop("group", "g").replace("-", ""), options, rest)


def logged(effect: Append | AppendMarker) -> list[LoggedRecord]:
    """What an append adds to the log, as it will be read back."""
    if isinstance(effect, AppendMarker):
        return [MarkerRecord(effect.marker.producer_id, effect.marker.commit)]
    if effect.producer is None:
        return list(effect.records)
    return [TransactionalRecord(*record, effect.producer[0]) for record in effect.records]


def replay_all(machine: GroupMachine, log: list[LoggedRecord]) -> None:
    for record in log:
        match record:
            case MarkerRecord():
                machine.replay_marker(record.producer_id, record.commit)
            case TransactionalRecord():
                machine.replay_pending(record.key, record.value, record.producer_id)
            case key, value, _:
                machine.replay(key, value)


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
            groups[group_id] = consumer_transcript.durable_state_of(group)
            continue
        is_settled = group.state in (GroupState.EMPTY, GroupState.STABLE)
        groups[group_id] = (group.state, group.record(group.state_timestamp_ms or -1)) if is_settled else None
    offsets = {group_id: machine.offsets.of_group(group_id) for group_id in groups}
    pending = {
        group_id: {place: in_order(written) for place, written in places.items()}
        for group_id, places in machine.pending.by_group.items()
    }
    return groups, {group_id: topics for group_id, topics in offsets.items() if topics}, pending


def in_order(written: Written) -> list[tuple[int, CommittedOffset | None]]:
    """Producer ids with their pending offsets; None for what has been overtaken."""
    ordered = sorted(written.by_producer.items(), key=lambda one: one[1][0])
    return [
        (producer_id, offset if moment > written.decided_at else None)
        for producer_id, (moment, offset) in ordered
    ]


# Commands


def is_partition(text: str) -> bool:
    topic, _, index = text.rpartition("-")
    return bool(topic) and index.isdigit()


def partition_of(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def join(ticket, group_id, options, rest):
    protocols = []
    for offered in filter(None, options.get("protocols", "range:t").split(",")):
        name, _, topics = offered.partition(":")
        protocols.append(OfferedProtocol(name, subscription(topics or "t")))
    return Join(
        ticket,
        group_id,
        options.get("member", ""),
        options.get("type", "consumer"),
        protocols,
        round(float(options.get("session", 10)) * 1000),
        round(float(options["rebalance"]) * 1000) if "rebalance" in options else -1,
        options.get("instance"),
        options.get("client", "c"),
        "/127.0.0.1",
        int(options.get("version", 9)),
    )


def sync(ticket, group_id, options, rest):
    assignments = dict(pair.split(":") for pair in filter(None, options.get("assign", "").split(",")))
    return Sync(
        ticket,
        group_id,
        int(options["generation"]),
        options["member"],
        options.get("instance"),
        options.get("type"),
        options.get("protocol"),
        {member_id: assignment.encode() for member_id, assignment in assignments.items()},
    )


def heartbeat(ticket, group_id, options, rest):
    return Heartbeat(ticket, group_id, int(options["generation"]), options["member"], options.get("instance"))


def leave(ticket, group_id, options, rest):
    members = []
    for word in rest:
        member_id, at, instance_id = word.partition("@")
        members.append(LeavingMember(member_id, instance_id if at else None))
    return Leave(ticket, group_id, members)


def offset_of(word: str) -> OffsetToCommit:
    name, _, value = word.partition("=")
    offset, *more = value.split(":")
    epoch, metadata, timestamp = [*more, "", "", ""][:3]
    return OffsetToCommit(*partition_of(name), int(offset), int(epoch or -1), metadata, int(timestamp or -1))


def commit(ticket, group_id, options, rest):
    return CommitOffsets(
        ticket,
        group_id,
        int(options.get("generation", -1)),
        options.get("member", ""),
        [offset_of(word) for word in rest],
        options.get("instance"),
        round(float(options["retention"]) * 1000) if "retention" in options else -1,
        int(options.get("version", 9)),
    )


def write(ticket, group_id, options, rest):
    return CommitTransactionalOffsets(
        ticket,
        group_id,
        int(options["producer"]),
        int(options.get("epoch", 0)),
        options.get("member", ""),
        int(options.get("generation", -1)),
        options.get("instance"),
        [offset_of(word) for word in rest],
    )


def end(ticket, group_id, options, rest):
    marker = EndMarker(int(options["producer"]), int(options.get("epoch", 0)), 0, rest != ["abort"])
    return EndOffsets(ticket, 0, marker)


COMMANDS = {
    "beat": consumer_transcript.beat,
    "matched": consumer_transcript.matched,
    "describe-consumers": lambda ticket, group_id, options, rest: DescribeConsumerGroup(ticket, group_id),
    "join": join,
    "sync": sync,
    "heartbeat": heartbeat,
    "leave": leave,
    "commit": commit,
    "write": write,
    "end": end,
    "fetch": lambda ticket, group_id, options, rest: FetchOffsets(
        ticket,
        group_id,
        [partition_of(word) for word in rest] or None,
        options.get("member"),
        int(options.get("generation", -1)),
        "stable" in options,
    ),
    "describe": lambda ticket, group_id, options, rest: DescribeGroup(ticket, group_id),
    "delete": lambda ticket, group_id, options, rest: DeleteGroup(ticket, group_id),
    "delete-offsets": lambda ticket, group_id, options, rest: DeleteOffsets(
        ticket, group_id, [partition_of(word) for word in rest]
    ),
    "remove-topics": lambda ticket, group_id, options, rest: RemoveTopics(ticket, dict.fromkeys(rest)),
    "list": lambda ticket, group_id, options, rest: ListGroups(
        ticket,
        frozenset(filter(None, options.get("states", "").split(","))),
        frozenset(filter(None, options.get("types", "").split(","))),
    ),
}


# Effects as text


def appended_text(effect: Append | AppendMarker) -> list[str]:
    if isinstance(effect, AppendMarker):
        marker = effect.marker
        kind = "commit" if marker.commit else "abort"
        return [f"append {kind} of {marker.producer_id}/{marker.producer_epoch}"]
    verb = "append" if effect.producer is None else "append in {}/{}".format(*effect.producer)
    return [f"{verb} {record_text(key, value)}" for key, value, _ in effect.records]


def record_text(key: bytes, value: bytes | None) -> str:
    kind, subject = record_codec.decode_key(key)
    if kind is Kind.OFFSET:
        group_id, topic, partition = subject
        name = f"offset {group_id} {topic}-{partition}"
        if value is None:
            return f"{name} tombstone"
        offset = record_codec.decode_offset(value)
        epoch = "" if offset.leader_epoch == -1 else f" epoch={offset.leader_epoch}"
        expires = (
            "" if offset.expire_timestamp_ms == -1 else f" expires={offset.expire_timestamp_ms / 1000:g}"
        )
        metadata = f" metadata={offset.metadata}" if offset.metadata else ""
        return f"{name} {offset.offset}{epoch}{metadata} at={offset.commit_timestamp_ms / 1000:g}{expires}"
    if not isinstance(subject, GroupMetadataKey):
        return consumer_transcript.record_text(subject, value)
    name = subject.group
    if value is None:
        return f"group {name} tombstone"
    group = record_codec.decode_group_value(subject, value)
    members = " ".join(f"{member.member_id}:{bytes(member.assignment).decode()}" for member in group.members)
    return (
        f"group {name} generation={group.generation} type={group.protocol_type} protocol={group.protocol}"
        f" leader={group.leader} at={group.current_state_timestamp / 1000:g} members=[{members}]"
    )


def answer_text(answer) -> str:
    match answer:
        case ConsumerHeartbeatReply() | ConsumerGroupDescription():
            return consumer_transcript.answer_text(answer)
        case JoinReply(code):
            text = f"{code.name} member={answer.member_id}"
            if code is not ErrorCode.NONE:
                return text
            text += f" generation={answer.generation} {answer.protocol_type}/{answer.protocol_name}"
            text += f" leader={answer.leader}"
            if answer.members:
                names = [member.member_id for member in answer.members]
                text += f" members=[{' '.join(names)}]"
            return text + (" skip-assignment" if answer.skip_assignment else "")
        case SyncReply(code):
            if code is not ErrorCode.NONE:
                return code.name
            assignment = bytes(answer.assignment).decode() or "-"
            return f"NONE {answer.protocol_type}/{answer.protocol_name} {assignment}"
        case LeaveReply(code, members):
            left = [f"{m.member_id}@{m.group_instance_id}:{m.error_code.name}" for m in members]
            return " ".join([code.name, *left])
        case CommitOffsetsReply(errors):
            return " ".join(code.name for code in errors)
        case DeleteOffsetsReply(code, errors):
            return " ".join([code.name, *(each.name for each in errors)])
        case FetchOffsetsReply(code, offsets):
            found = [
                f"{o.topic}-{o.partition}="
                + (o.error_code.name if o.error_code else f"{o.offset}:{o.leader_epoch}:{o.metadata}")
                for o in offsets
            ]
            return " ".join([code.name, *found])
        case GroupDescription(code):
            members = " ".join(f"{m.member_id}:{bytes(m.assignment).decode()}" for m in answer.members)
            return (
                f"{code.name} {answer.state} {answer.protocol_type or '-'}/{answer.protocol_name or '-'}"
                f" members=[{members}]"
            )
        case ListGroupsReply(code, groups):
            return " ".join(
                [code.name, *(f"{g.group_id}:{g.protocol_type or '-'}:{g.state}" for g in groups)]
            )
        case _:
            assert list(asdict(answer)) == ["error_code"]
            return answer.error_code.name


# Files


def rewrite(path: pathlib.Path, stage=None) -> str:
    """The transcript with the effects that follow today, on this stage or that of a group machine."""
    stage = stage or Stage()
    written: list[str] = []
    expecting = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            expecting = False
            if line.strip() or (written and written[-1]):
                written.append(line.rstrip())
        elif line == DASHES:
            expecting = True
        elif not expecting:
            try:
                effects = stage.play(line)
            except AssertionError as error:
                raise AssertionError(f"{path.name}:{number}: {line}: {error}") from error
            if written and written[-1] and not written[-1].startswith(("#", "set ")):
                written.append("")
            written.append(line)
            written += [DASHES, *effects, ""] if not line.startswith("set ") else []
    if isinstance(stage.machine, GroupMachine):
        assert not left_over(stage.machine, stage.log), path.name
    while written and not written[-1]:
        written.pop()
    return "\n".join(written) + "\n"
