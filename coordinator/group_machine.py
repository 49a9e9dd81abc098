"""The state machine over one partition of `__consumer_offsets`: its groups of all types and their offsets.

Durable state changes in five places only: `_apply_group`, `_apply_offsets`, `_remove_offset`,
`_apply_pending` and `_apply_end`. `replay`, `replay_pending` and `replay_marker` call them with what the log
says, and so does a command that appends that very record: the state after loading a log is the state that
wrote it.

What the members of a group may do is decided by the membership of its type; here commands, timers and records
find their way there, and what a membership decides is written (`store`). Share groups are not built: their
records are left alone in the log.

The log is compacted, so the last records of two keys may stand in another order than they were written: what
`apply` makes of a group must not depend on the order of records of different keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Append, AppendMarker, Effect, LogRecord, Reply, SetTimer
from odradek.coordinator.groups import record_codec
from odradek.coordinator.groups.classic_group import RULES, ClassicGroup, GroupState
from odradek.coordinator.groups.classic_membership import Membership
from odradek.coordinator.groups.commands import (
    Command,
    CommitOffsets,
    CommitOffsetsReply,
    CommitTransactionalOffsets,
    DeleteGroup,
    DeleteGroupReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    DescribedMember,
    DescribeGroup,
    EndOffsets,
    EndOffsetsReply,
    FetchedOffset,
    FetchOffsets,
    FetchOffsetsReply,
    GroupDescription,
    Heartbeat,
    Join,
    Leave,
    ListedGroup,
    ListGroups,
    ListGroupsReply,
    OffsetToCommit,
    RemoveTopics,
    RemoveTopicsReply,
    Sync,
)
from odradek.coordinator.groups.consumer_commands import (
    ConsumerHeartbeat,
    DescribeConsumerGroup,
    Noted,
    TopicsChanged,
    TopicsMatched,
)
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.groups.consumer_membership import ConsumerMembership
from odradek.coordinator.groups.group import CLASSIC, CONSUMER, STREAMS, Group, GroupRecord, TypeOfGroup
from odradek.coordinator.groups.group import Membership as AnyMembership
from odradek.coordinator.groups.migration import Migration
from odradek.coordinator.groups.offsets import OffsetTable, TopicOffsets, expired_offsets, is_of_another
from odradek.coordinator.groups.pending_offsets import PendingOffsets
from odradek.coordinator.groups.record_codec import (
    LONGEST_STRING_BYTES,
    CommittedOffset,
    Kind,
    encode_offset,
    encode_offset_key,
    fits_record,
)
from odradek.coordinator.groups.request_checks import check
from odradek.coordinator.groups.settings import GroupSettings
from odradek.coordinator.streams.commands import DescribeStreamsGroup, StreamsHeartbeat
from odradek.coordinator.streams.group import StreamsGroup
from odradek.coordinator.streams.membership import TIMERS as STREAMS_TIMERS
from odradek.coordinator.streams.membership import StreamsMembership
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import group_records
from odradek.wire.schema import ZERO_UUID

__all__ = ["GroupMachine", "TimerKey"]

NONE = ErrorCode.NONE
TimerKey = tuple[str, ...]
"""What a timer is for, then the group, then the member."""
EXPIRE_OFFSETS: TimerKey = ("expire_offsets",)
EXPIRE_MS_MAX = 2**63 - 1
KNOWN_PREFIXES_MAX = 10_000
"""Of keys, while loading."""
RECORDS_PER_APPEND = 1_000
"""Tombstones of one big deletion are spread over batches of this many."""
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 30
"""More than a record's own lengths, deltas and attributes ever take."""
_new_tuple = tuple.__new__
GROUP_NOT_FOUND_SINCE = 9
"""OffsetCommit version from which a missing group is named as such."""


_TYPE_OF_KEY: dict[type, TypeOfGroup] = {
    group_records.GroupMetadataKey: CLASSIC,
    group_records.ConsumerGroupMetadataKey: CONSUMER,
    group_records.ConsumerGroupPartitionMetadataKey: CONSUMER,
    group_records.ConsumerGroupMemberMetadataKey: CONSUMER,
    group_records.ConsumerGroupTargetAssignmentMetadataKey: CONSUMER,
    group_records.ConsumerGroupTargetAssignmentMemberKey: CONSUMER,
    group_records.ConsumerGroupCurrentMemberAssignmentKey: CONSUMER,
    group_records.ConsumerGroupRegularExpressionKey: CONSUMER,
    group_records.StreamsGroupMetadataKey: STREAMS,
    group_records.StreamsGroupMemberMetadataKey: STREAMS,
    group_records.StreamsGroupTargetAssignmentMetadataKey: STREAMS,
    group_records.StreamsGroupTargetAssignmentMemberKey: STREAMS,
    group_records.StreamsGroupCurrentMemberAssignmentKey: STREAMS,
    group_records.StreamsGroupTopologyKey: STREAMS,
}
"""Of a group that has a record with such a key."""


class GroupMachine:
    """See `coordinator/effects.py` for how to run it. Load: `replay` each record, then `start` once.

    `topics` gives the newest view of the cluster. `new_member_suffix` makes the random part of the id of a
    member of a classic group, `new_member_id` a whole id for a member of any other that has none (the same
    again where it is not given).
    """

    def __init__(
        self,
        settings: GroupSettings,
        new_member_suffix: Callable[[], str],
        topics: Callable[[], ClusterView] = ClusterView,
        new_member_id: Callable[[], str] | None = None,
    ) -> None:
        new_id = new_member_suffix if new_member_id is None else new_member_id
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetTable()
        self.pending = PendingOffsets()
        self._replayed: dict[bytes, TopicOffsets] = {}
        """While loading: where offsets go by what their keys begin with, which saves reading it again."""
        self._settings = settings
        membership = Membership(self.groups, settings, new_member_suffix, self.store)
        consumers = ConsumerMembership(self.groups, settings, new_id, topics, self.store)
        migration = Migration(self.groups, settings, new_id, topics, self.store, membership, consumers)
        consumers.migration = migration
        streams = StreamsMembership(self.groups, settings, topics, self.store)
        self._classic = membership
        self._new_group: dict[TypeOfGroup, Callable[[str], Group]] = {
            CLASSIC: ClassicGroup,
            CONSUMER: lambda group_id: ConsumerGroup(group_id, topics),
            STREAMS: StreamsGroup,
        }
        self._memberships: dict[TypeOfGroup, AnyMembership] = {
            CLASSIC: membership,
            CONSUMER: consumers,
            STREAMS: streams,
        }
        self._timers: dict[str, TypeOfGroup] = {
            "session": CLASSIC,
            "join": CLASSIC,
            "sync": CLASSIC,
            "consumer-session": CONSUMER,
            "consumer-rebalance": CONSUMER,
            "classic-join": CONSUMER,
            "classic-sync": CONSUMER,
            **dict.fromkeys(STREAMS_TIMERS, STREAMS),
        }
        self._handlers: dict[type, Callable[[Any, int, list[Effect]], None]] = {
            Heartbeat: migration.heartbeat,
            ConsumerHeartbeat: consumers.heartbeat,
            CommitOffsets: self._commit_offsets,
            CommitTransactionalOffsets: self._commit_transactional_offsets,
            EndOffsets: self._end_offsets,
            FetchOffsets: self._fetch_offsets,
            Join: migration.join,
            Sync: migration.sync,
            Leave: migration.leave,
            DeleteOffsets: self._delete_offsets,
            RemoveTopics: self._remove_topics,
            DescribeGroup: self._describe_group,
            ListGroups: self._list_groups,
            DeleteGroup: self._delete_group,
            DescribeConsumerGroup: consumers.describe,
            StreamsHeartbeat: streams.heartbeat,
            DescribeStreamsGroup: streams.describe,
            TopicsChanged: self._topics_changed,
            TopicsMatched: consumers.topics_matched,
        }
        self._prompt: dict[type, Callable[[Any, int], Any]] = {
            Heartbeat: membership.beat,
            ConsumerHeartbeat: consumers.beat,
            FetchOffsets: self._fetched_offsets,
        }

    def handle(self, command: Command, now_ms: int) -> list[Effect]:
        refusal = check(command, self._settings)
        if refusal is not None:
            return [Reply(command.ticket, refusal)]
        out: list[Effect] = []
        self._handlers[command.__class__](command, now_ms, out)
        return out

    def ask(self, command: Command, now_ms: int) -> Any:
        """The answer to a `Heartbeat`, `ConsumerHeartbeat` or `FetchOffsets` that has no effect but its
        answer: the same that `handle` gives. None, and nothing done, where it may have another."""
        return self._prompt[command.__class__](command, now_ms)

    def expire(self, timer_key: TimerKey, now_ms: int) -> list[Effect]:
        """A timer that was set has rung, at its time or later."""
        out: list[Effect] = []
        if timer_key == EXPIRE_OFFSETS:
            self._expire_offsets(now_ms, out)
            return out
        group = self.groups.get(timer_key[1])
        group_type = self._timers[timer_key[0]]
        # It may have become a group of another type, which has timers of its own.
        if group is not None and group.group_type == group_type:
            self._memberships[group_type].expire(group, timer_key, now_ms, out)
        return out

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take in one record of the log; a value of None deletes. Raises MalformedMessage."""
        if value is not None:
            offsets = self._replayed.get(key[:-4])
            if offsets is not None:
                offsets[record_codec.partition_of_offset_key(key)] = record_codec.decode_offset(value)
                if self.pending.by_group:
                    self.pending.overtake(*record_codec.decode_key(key)[1])
                return
        kind, subject = record_codec.decode_key(key)
        if kind is Kind.OFFSET:
            if value is None:
                self._remove_offset(*subject)
            else:
                self._replay_first_offset(key, subject, record_codec.decode_offset(value))
        elif kind is Kind.GROUP:
            decoded = None if value is None else record_codec.decode_group_value(subject, value)
            self._apply_group(subject, decoded)

    def replay_pending(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Take in one record that a transaction has written. Raises MalformedMessage.

        Only offsets wait for its end: whatever else stands in such a batch, deletions too, counts at once,
        as in Kafka.
        """
        kind, subject = record_codec.decode_key(key)
        if kind is Kind.OFFSET and value is not None:
            group_id, topic, partition = subject
            self._apply_pending(producer_id, group_id, topic, partition, record_codec.decode_offset(value))
        else:
            self.replay(key, value)

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """Take in the end of a producer's transaction."""
        self._apply_end(producer_id, commit)

    def _replay_first_offset(
        self, key: bytes, subject: tuple[str, str, int], offset: CommittedOffset
    ) -> None:
        """Take in an offset, and remember the beginning of its key for those to come."""
        group_id, topic, partition = subject
        self._apply_offsets(group_id, [(topic, partition, offset)])
        prefix = record_codec.offset_key_prefix(group_id, topic)
        # Another version's key begins in another way, and is read each time.
        if key[:-4] == prefix:
            if len(self._replayed) >= KNOWN_PREFIXES_MAX:
                self._replayed.clear()
            self._replayed[prefix] = self.offsets.of_topic(group_id, topic)

    def start(self, now_ms: int) -> list[Effect]:
        """The log has been replayed: start the timers of what it held."""
        self._replayed.clear()
        out: list[Effect] = []
        for group in list(self.groups.values()):
            self._memberships[group.group_type].start(group, now_ms, out)
        out.append(SetTimer(EXPIRE_OFFSETS, now_ms + self._settings.offsets_retention_check_interval_ms))
        return out

    def topics(self) -> set[str]:
        """The topics of which there are offsets, pending ones too."""
        return self.offsets.topics() | self.pending.topics()

    def refuse_waiting(self, code: ErrorCode) -> list[Effect]:
        """Answers to all that is parked, for a machine that is given up."""
        out: list[Effect] = []
        for group in self.groups.values():
            self._memberships[group.group_type].refuse_waiting(group, code, out)
        return out

    # Durable state

    def store(self, group_id: str, records: Iterable[GroupRecord], now_ms: int, out: list[Effect]) -> bool:
        """Apply and append records of a group (`coordinator/groups/group.py`, `Store`). What makes it a group
        of another type begins with tombstones for the old one's keys."""
        pairs = list(records)
        encoded: list[LogRecord] = [
            (*record_codec.encode_group_record(key, value), now_ms) for key, value in pairs
        ]
        if _batch_size(encoded) > self._settings.append_max_bytes:
            return False
        for key, value in pairs:
            assert record_codec.group_of(key) == group_id
            self._apply_group(key, value)
        if encoded:
            out.append(Append(encoded))
        return True

    def _apply_group(self, key: Any, value: Any) -> None:
        group_id, group_type = record_codec.group_of(key), _TYPE_OF_KEY[key.__class__]
        group = self.groups.get(group_id)
        if group is None or group.group_type != group_type:
            if value is None:
                return
            # Over a classic one there stood no tombstone if it only kept offsets.
            group = self.groups[group_id] = self._new_group[group_type](group_id)
        if not group.apply(key, value):
            self._replayed.clear()
            del self.groups[group_id]

    def _apply_offsets(self, group_id: str, commits: Iterable[tuple[str, int, CommittedOffset]]) -> None:
        """Put offsets: topic, partition and offset each. Those without a group are of a simple one, which has
        no record of its own."""
        self._group_of(group_id)
        pending, put = self.pending, self.offsets.put
        for topic, partition, offset in commits:
            if pending.by_group:
                pending.overtake(group_id, topic, partition)
            put(group_id, topic, partition, offset)

    def _remove_offset(self, group_id: str, topic: str, partition: int) -> None:
        self._replayed.clear()
        self.offsets.remove(group_id, topic, partition)
        self.pending.remove(group_id, topic, partition)

    def _apply_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, offset: CommittedOffset
    ) -> None:
        self._group_of(group_id)
        self.pending.put(producer_id, group_id, topic, partition, offset)

    def _apply_end(self, producer_id: int, commit: bool) -> None:
        for group_id, topic, partition, offset in self.pending.end(producer_id, commit):
            self._group_of(group_id)
            self.offsets.put(group_id, topic, partition, offset)

    def _group_of(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id)
        return group

    def _delete_all(
        self,
        offsets: Iterable[tuple[str, str, int]],
        group_ids: Iterable[str],
        now_ms: int,
        out: list[Effect],
    ) -> None:
        """Write tombstones for offsets (group, topic, partition), then for groups."""
        records: list[LogRecord] = []
        for group_id, topic, partition in offsets:
            records.append((encode_offset_key(group_id, topic, partition), None, now_ms))
            self._remove_offset(group_id, topic, partition)
        for group_id in group_ids:
            keys = self.groups[group_id].keys()
            for key in keys:
                records.append((*record_codec.encode_group_record(key, None), now_ms))
                self._apply_group(key, None)
        for first in range(0, len(records), RECORDS_PER_APPEND):
            out.append(Append(records[first : first + RECORDS_PER_APPEND]))

    # Offsets

    def _commit_offsets(self, command: CommitOffsets, now_ms: int, out: list[Effect]) -> None:
        group_id = command.group_id
        group = self.groups.get(group_id)
        code = self._check_without_group(command) if group is None else group.check_commit(command)
        if code is not NONE:
            out.append(Reply(command.ticket, command.refused(code)))
            return
        if isinstance(group, ClassicGroup) and group.rules.commit_keeps_session:
            self._classic.keep_session(group, command.member_id, now_ms, out)
        retention_ms = command.retention_time_ms
        # Bounded: a retention of 2^63-1 is a client's way to say "for ever".
        expire_ms = -1 if retention_ms == -1 else min(now_ms + retention_ms, EXPIRE_MS_MAX)
        errors, commits, records, size_bytes = self._to_commit(group_id, command.offsets, expire_ms, now_ms)
        if size_bytes > self._settings.append_max_bytes:
            out.append(Reply(command.ticket, command.refused(ErrorCode.UNKNOWN_SERVER_ERROR)))
            return
        if records:
            self._apply_offsets(group_id, commits)
            out.append(Append(records))
        out.append(Reply(command.ticket, CommitOffsetsReply(errors)))

    def _commit_transactional_offsets(
        self, command: CommitTransactionalOffsets, now_ms: int, out: list[Effect]
    ) -> None:
        group_id, producer_id = command.group_id, command.producer_id
        group = self.groups.get(group_id)
        code = self._check_without_group(command) if group is None else group.check_commit(command)
        if code is not NONE:
            out.append(Reply(command.ticket, command.refused(code)))
            return
        errors, commits, records, size_bytes = self._to_commit(group_id, command.offsets, -1, now_ms)
        if size_bytes > self._settings.append_max_bytes:
            out.append(Reply(command.ticket, command.refused(ErrorCode.UNKNOWN_SERVER_ERROR)))
            return
        for topic, partition, committed in commits:
            self._apply_pending(producer_id, group_id, topic, partition, committed)
        if records:
            out.append(Append(records, (producer_id, command.producer_epoch)))
        out.append(Reply(command.ticket, CommitOffsetsReply(errors)))

    def _end_offsets(self, command: EndOffsets, now_ms: int, out: list[Effect]) -> None:
        """Nothing may be pending: the marker is written all the same, for it ends the transaction in the
        log."""
        self._apply_end(command.marker.producer_id, command.marker.commit)
        out.append(AppendMarker(command.marker))
        out.append(Reply(command.ticket, EndOffsetsReply(NONE)))

    def _to_commit(
        self, group_id: str, offsets: Iterable[OffsetToCommit], expire_ms: int, now_ms: int
    ) -> tuple[list[ErrorCode], list[tuple[str, int, CommittedOffset]], list[LogRecord], int]:
        """An error for each offset; (topic, partition, offset) and a record for each that has none; at least
        what the records will take as one batch, in bytes."""
        metadata_limit = self._settings.offset_metadata_max_bytes
        unchecked_length = min(metadata_limit // 2, LONGEST_STRING_BYTES // 4)
        errors: list[ErrorCode] = []
        commits: list[tuple[str, int, CommittedOffset]] = []
        records: list[LogRecord] = []
        size_bytes = BATCH_OVERHEAD_BYTES
        for topic, partition, offset, leader_epoch, metadata, commit_ms, topic_id in offsets:
            if len(metadata) > unchecked_length and not _fits_metadata(metadata, metadata_limit):
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(NONE)
            if expire_ms != -1:
                # A record with an own expiry has no room for these; clients that send one know neither.
                leader_epoch, topic_id = -1, ZERO_UUID
            committed_ms = now_ms if commit_ms == -1 else commit_ms
            committed = _new_tuple(
                CommittedOffset, (offset, leader_epoch, metadata, committed_ms, expire_ms, topic_id)
            )
            key, value = encode_offset_key(group_id, topic, partition), encode_offset(committed)
            size_bytes += RECORD_OVERHEAD_BYTES + len(key) + len(value)
            records.append((key, value, now_ms))
            commits.append((topic, partition, committed))
        return errors, commits, records, size_bytes

    def _check_without_group(self, command: CommitOffsets | CommitTransactionalOffsets) -> ErrorCode:
        if command.generation < 0:
            return NONE if fits_record(command.group_id) else ErrorCode.UNKNOWN_SERVER_ERROR
        is_named = isinstance(command, CommitOffsets) and command.version >= GROUP_NOT_FOUND_SINCE
        return ErrorCode.GROUP_ID_NOT_FOUND if is_named else ErrorCode.ILLEGAL_GENERATION

    def _fetch_offsets(self, command: FetchOffsets, now_ms: int, out: list[Effect]) -> None:
        out.append(Reply(command.ticket, self._fetched_offsets(command, now_ms)))

    def _fetched_offsets(self, command: FetchOffsets, now_ms: int) -> FetchOffsetsReply:
        group = self.groups.get(command.group_id)
        code = NONE if group is None else group.check_fetch(command.member_id, command.member_epoch)
        if code is not NONE:
            return command.refused(code)
        topics = self.offsets.of_group(command.group_id)
        found: list[FetchedOffset] = []
        if command.partitions is None:
            for topic, offsets in topics.items():
                found += [_fetched(topic, partition, offset) for partition, offset in offsets.items()]
        else:
            topic_ids = command.topic_ids
            for topic, partition in command.partitions:
                of_topic = topics.get(topic)
                offset = None if of_topic is None else of_topic.get(partition)
                if offset is not None and topic in topic_ids and is_of_another(offset, topic_ids[topic]):
                    offset = None
                found.append(_fetched(topic, partition, offset))
        if command.require_stable and command.group_id in self.pending.by_group:
            unstable = self.pending.by_group[command.group_id]
            found = [_unstable(one) if (one.topic, one.partition) in unstable else one for one in found]
        return FetchOffsetsReply(NONE, found)

    def _delete_offsets(self, command: DeleteOffsets, now_ms: int, out: list[Effect]) -> None:
        group_id = command.group_id
        group = self.groups.get(group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_deletion()
        if group is None or code is not NONE:
            out.append(Reply(command.ticket, DeleteOffsetsReply(code)))
            return
        errors, doomed = [], []
        for topic, partition in command.partitions:
            if group.is_subscribed_to(topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            else:
                errors.append(NONE)
                if self.offsets.get(group_id, topic, partition) is not None or self.pending.has(
                    group_id, topic, partition
                ):
                    doomed.append((group_id, topic, partition))
        self._delete_all(doomed, (), now_ms, out)
        out.append(Reply(command.ticket, DeleteOffsetsReply(NONE, errors)))

    def _remove_topics(self, command: RemoveTopics, now_ms: int, out: list[Effect]) -> None:
        doomed = [*self.offsets.of_topics(command.topics), *self.pending.of_topics(command.topics)]
        self._delete_all(dict.fromkeys(doomed), (), now_ms, out)
        out.append(Reply(command.ticket, RemoveTopicsReply(NONE)))

    def _expire_offsets(self, now_ms: int, out: list[Effect]) -> None:
        """Drop the offsets whose time is over, and empty groups that have none left (KIP-211). What a
        transaction is about to replace stays."""
        retention_ms = self._settings.offsets_retention_ms
        doomed: list[tuple[str, str, int]] = []
        empty_groups: list[str] = []
        for group_id, group in self.groups.items():
            topics = self.offsets.of_group(group_id)
            expired = expired_offsets(group, topics, now_ms, retention_ms)
            pending = self.pending.by_group.get(group_id)
            if pending:
                expired = [place for place in expired if place not in pending]
            doomed += [(group_id, topic, partition) for topic, partition in expired]
            is_left_over = not pending and len(expired) == sum(map(len, topics.values()))
            if is_left_over and group.is_empty:
                empty_groups.append(group_id)
        self._delete_all(doomed, empty_groups, now_ms, out)
        out.append(SetTimer(EXPIRE_OFFSETS, now_ms + self._settings.offsets_retention_check_interval_ms))

    # Topics

    def _topics_changed(self, command: TopicsChanged, now_ms: int, out: list[Effect]) -> None:
        for group in list(self.groups.values()):
            self._memberships[group.group_type].topics_changed(group, command.names, now_ms, out)
        out.append(Reply(command.ticket, Noted(NONE)))

    # Administration

    def _describe_group(self, command: DescribeGroup, now_ms: int, out: list[Effect]) -> None:
        group = self.groups.get(command.group_id)
        if not isinstance(group, ClassicGroup):
            # Tools look for these words: they are Kafka's.
            problem = "not found." if group is None else "is not a classic group."
            description = GroupDescription(
                ErrorCode.GROUP_ID_NOT_FOUND,
                command.group_id,
                KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} {problem}").own_message,
                GroupState.DEAD.value,
            )
        else:
            description = _describe(group)
        out.append(Reply(command.ticket, description))

    def _list_groups(self, command: ListGroups, now_ms: int, out: list[Effect]) -> None:
        states = {state.strip().lower() for state in command.states}
        types = {group_type.lower() for group_type in command.types}
        listed = [
            ListedGroup(group_id, group.protocol_type or "", group.state_name, group.group_type)
            for group_id, group in self.groups.items()
            if (not types or group.group_type in types) and (not states or group.state_name.lower() in states)
        ]
        out.append(Reply(command.ticket, ListGroupsReply(NONE, listed)))

    def _delete_group(self, command: DeleteGroup, now_ms: int, out: list[Effect]) -> None:
        group_id = command.group_id
        group = self.groups.get(group_id)
        code = RULES[GroupState.DEAD].delete if group is None else group.check_deletion()
        if code is NONE:
            doomed = [
                (group_id, topic, partition)
                for topic, offsets in self.offsets.of_group(group_id).items()
                for partition in offsets
            ]
            doomed += [(group_id, *place) for place in self.pending.of_group(group_id)]
            self._delete_all(dict.fromkeys(doomed), (group_id,), now_ms, out)
        out.append(Reply(command.ticket, DeleteGroupReply(code)))


def _describe(group: ClassicGroup) -> GroupDescription:
    is_stable = group.state is GroupState.STABLE
    members = [
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol) if is_stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    ]
    return GroupDescription(
        NONE,
        group.group_id,
        None,
        group.state.value,
        group.protocol_type or "",
        group.protocol or "" if is_stable else "",
        members,
    )


def _fetched(topic: str, partition: int, offset: CommittedOffset | None) -> FetchedOffset:
    if offset is None:
        return FetchedOffset(topic, partition, -1, -1, "")
    return FetchedOffset(topic, partition, offset.offset, offset.leader_epoch, offset.metadata)


def _unstable(found: FetchedOffset) -> FetchedOffset:
    return FetchedOffset(found.topic, found.partition, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _batch_size(records: list[LogRecord]) -> int:
    """At least what the records will take as one batch, in bytes."""
    size = BATCH_OVERHEAD_BYTES
    for key, value, _ in records:
        size += RECORD_OVERHEAD_BYTES + len(key) + (0 if value is None else len(value))
    return size


def _fits_metadata(text: str, limit: int) -> bool:
    """Whether it is within `offset.metadata.max.bytes`, which counts UTF-16 units, and fits into a record."""
    return len(text) + sum(character > "\uffff" for character in text) <= limit and fits_record(text)
