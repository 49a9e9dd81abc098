"""Committed offsets of one machine: their state, and the commands about them.

Durable state changes in `put`, `remove`, `put_pending` and `end_transaction` alone. Loading calls them with
the records of the log, and a command calls them with the records that it appends: so the state after loading
is the state that wrote the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from odradek.coordinator.effects import Append, AppendMarker, Effect, LogRecord, Reply
from odradek.coordinator.groups import record_codec
from odradek.coordinator.groups.classic_group import ClassicGroup
from odradek.coordinator.groups.commands import (
    CommitOffsets,
    CommitOffsetsReply,
    CommitTransactionalOffsets,
    DeleteOffsets,
    DeleteOffsetsReply,
    EndOffsets,
    EndOffsetsReply,
    FetchedOffset,
    FetchOffsets,
    FetchOffsetsReply,
    OffsetToCommit,
    RemoveTopics,
    RemoveTopicsReply,
)
from odradek.coordinator.groups.group import Group, Membership, TypeOfGroup
from odradek.coordinator.groups.group_type import Handler
from odradek.coordinator.groups.offsets import OffsetTable, TopicOffsets, expired_offsets, is_of_another
from odradek.coordinator.groups.pending_offsets import PendingOffsets
from odradek.coordinator.groups.record_codec import (
    BATCH_OVERHEAD_BYTES,
    LONGEST_STRING_BYTES,
    RECORD_OVERHEAD_BYTES,
    CommittedOffset,
    encode_offset,
    encode_offset_key,
    fits_record,
)
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.schema import ZERO_UUID

__all__ = ["CommittedOffsets", "Delete"]

NONE = ErrorCode.NONE
EXPIRE_MS_MAX = 2**63 - 1
KNOWN_PREFIXES_MAX = 10_000
"""Of keys, while loading."""
GROUP_NOT_FOUND_SINCE = 9
"""OffsetCommit version from which a missing group is named as such."""
_new_tuple = tuple.__new__


class Delete(Protocol):
    def __call__(
        self,
        offsets: Iterable[tuple[str, str, int]],
        group_ids: Iterable[str],
        now_ms: int,
        out: list[Effect],
    ) -> None:
        """Write tombstones for offsets (group, topic, partition), then for groups."""


class CommittedOffsets:
    """`groups` and `memberships` are the machine's; `delete` deletes offsets and groups together."""

    def __init__(
        self,
        groups: dict[str, Group],
        settings: GroupSettings,
        memberships: Mapping[TypeOfGroup, Membership],
        delete: Delete,
    ) -> None:
        self.table = OffsetTable()
        self.pending = PendingOffsets()
        self.replayed: dict[bytes, TopicOffsets] = {}
        """While loading: the offsets of a group and a topic by the beginning of their keys, which saves
        reading it again."""
        self._groups = groups
        self._settings = settings
        self._memberships = memberships
        self._delete = delete
        self.commands: Mapping[type, Handler] = {
            CommitOffsets: self._commit,
            CommitTransactionalOffsets: self._commit_in_transaction,
            EndOffsets: self._end_transaction,
            FetchOffsets: self._fetch,
            DeleteOffsets: self._delete_some,
            RemoveTopics: self._remove_topics,
        }

    # Durable state

    def replay_first(self, key: bytes, subject: tuple[str, str, int], offset: CommittedOffset) -> None:
        """Take in an offset, and remember the beginning of its key for those to come."""
        group_id, topic, partition = subject
        self.put(group_id, [(topic, partition, offset)])
        prefix = record_codec.offset_key_prefix(group_id, topic)
        # Another version's key begins in another way, and is read each time.
        if key[:-4] == prefix:
            if len(self.replayed) >= KNOWN_PREFIXES_MAX:
                self.replayed.clear()
            self.replayed[prefix] = self.table.of_topic(group_id, topic)

    def put(self, group_id: str, commits: Iterable[tuple[str, int, CommittedOffset]]) -> None:
        """Put offsets: topic, partition and offset each. Without a group they make a simple one, which has no
        record of its own."""
        self._group_of(group_id)
        pending, put = self.pending, self.table.put
        for topic, partition, offset in commits:
            if pending.by_group:
                pending.overtake(group_id, topic, partition)
            put(group_id, topic, partition, offset)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        self.replayed.clear()
        self.table.remove(group_id, topic, partition)
        self.pending.remove(group_id, topic, partition)

    def put_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, offset: CommittedOffset
    ) -> None:
        self._group_of(group_id)
        self.pending.put(producer_id, group_id, topic, partition, offset)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        for group_id, topic, partition, offset in self.pending.end(producer_id, commit):
            self._group_of(group_id)
            self.table.put(group_id, topic, partition, offset)

    def _group_of(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ClassicGroup(group_id)
        return group

    # Commands

    def _commit(self, command: CommitOffsets, now_ms: int, out: list[Effect]) -> None:
        group_id = command.group_id
        group = self._groups.get(group_id)
        code = self._check_without_group(command) if group is None else group.check_commit(command)
        if code is not NONE:
            out.append(Reply(command.ticket, command.refused(code)))
            return
        if group is not None:
            self._memberships[group.group_type].offsets_committed(group, command.member_id, now_ms, out)
        retention_ms = command.retention_time_ms
        # Bounded: a retention of 2^63-1 is a client's way to say "for ever".
        expire_ms = -1 if retention_ms == -1 else min(now_ms + retention_ms, EXPIRE_MS_MAX)
        errors, commits, records, size_bytes = self._to_commit(group_id, command.offsets, expire_ms, now_ms)
        if size_bytes > self._settings.append_max_bytes:
            out.append(Reply(command.ticket, command.refused(ErrorCode.UNKNOWN_SERVER_ERROR)))
            return
        if records:
            self.put(group_id, commits)
            out.append(Append(records))
        out.append(Reply(command.ticket, CommitOffsetsReply(errors)))

    def _commit_in_transaction(
        self, command: CommitTransactionalOffsets, now_ms: int, out: list[Effect]
    ) -> None:
        group_id, producer_id = command.group_id, command.producer_id
        group = self._groups.get(group_id)
        code = self._check_without_group(command) if group is None else group.check_commit(command)
        if code is not NONE:
            out.append(Reply(command.ticket, command.refused(code)))
            return
        errors, commits, records, size_bytes = self._to_commit(group_id, command.offsets, -1, now_ms)
        if size_bytes > self._settings.append_max_bytes:
            out.append(Reply(command.ticket, command.refused(ErrorCode.UNKNOWN_SERVER_ERROR)))
            return
        for topic, partition, committed in commits:
            self.put_pending(producer_id, group_id, topic, partition, committed)
        if records:
            out.append(Append(records, (producer_id, command.producer_epoch)))
        out.append(Reply(command.ticket, CommitOffsetsReply(errors)))

    def _end_transaction(self, command: EndOffsets, now_ms: int, out: list[Effect]) -> None:
        """Nothing may be pending: the marker is written all the same, for it ends the transaction in the
        log."""
        self.end_transaction(command.marker.producer_id, command.marker.commit)
        out.append(AppendMarker(command.marker))
        out.append(Reply(command.ticket, EndOffsetsReply(NONE)))

    def _to_commit(
        self, group_id: str, offsets: Iterable[OffsetToCommit], expire_ms: int, now_ms: int
    ) -> tuple[list[ErrorCode], list[tuple[str, int, CommittedOffset]], list[LogRecord], int]:
        """An error for each offset; (topic, partition, offset) and a record for each that has none; at least
        what the records will take as one batch, in bytes."""
        metadata_limit = self._settings.offset_metadata_max_bytes
        errors: list[ErrorCode] = []
        commits: list[tuple[str, int, CommittedOffset]] = []
        records: list[LogRecord] = []
        size_bytes = BATCH_OVERHEAD_BYTES
        for topic, partition, offset, leader_epoch, metadata, commit_ms, topic_id in offsets:
            if metadata and not _fits_metadata(metadata, metadata_limit):
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

    def _fetch(self, command: FetchOffsets, now_ms: int, out: list[Effect]) -> None:
        out.append(Reply(command.ticket, self.fetched(command, now_ms)))

    def fetched(self, command: FetchOffsets, now_ms: int) -> FetchOffsetsReply:
        group = self._groups.get(command.group_id)
        code = NONE if group is None else group.check_fetch(command.member_id, command.member_epoch)
        if code is not NONE:
            return command.refused(code)
        topics = self.table.of_group(command.group_id)
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

    def _delete_some(self, command: DeleteOffsets, now_ms: int, out: list[Effect]) -> None:
        group_id = command.group_id
        group = self._groups.get(group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_deletion()
        if group is None or code is not NONE:
            out.append(Reply(command.ticket, DeleteOffsetsReply(code)))
            return
        errors, deleted = [], []
        for topic, partition in command.partitions:
            if group.is_subscribed_to(topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            else:
                errors.append(NONE)
                if self.table.get(group_id, topic, partition) is not None or self.pending.has(
                    group_id, topic, partition
                ):
                    deleted.append((group_id, topic, partition))
        self._delete(deleted, (), now_ms, out)
        out.append(Reply(command.ticket, DeleteOffsetsReply(NONE, errors)))

    def _remove_topics(self, command: RemoveTopics, now_ms: int, out: list[Effect]) -> None:
        deleted = [*self.table.of_topics(command.topics), *self.pending.of_topics(command.topics)]
        self._delete(dict.fromkeys(deleted), (), now_ms, out)
        out.append(Reply(command.ticket, RemoveTopicsReply(NONE)))

    def expire(self, now_ms: int, out: list[Effect]) -> None:
        """Drop the offsets whose time is over, and empty groups that have none left (KIP-211). What a
        transaction is about to replace stays."""
        retention_ms = self._settings.offsets_retention_ms
        deleted: list[tuple[str, str, int]] = []
        empty_groups: list[str] = []
        for group_id, group in self._groups.items():
            topics = self.table.of_group(group_id)
            expired = expired_offsets(group, topics, now_ms, retention_ms)
            pending = self.pending.by_group.get(group_id)
            if pending:
                expired = [place for place in expired if place not in pending]
            deleted += [(group_id, topic, partition) for topic, partition in expired]
            is_left_over = not pending and len(expired) == sum(map(len, topics.values()))
            if is_left_over and group.is_empty and group.may_expire:
                empty_groups.append(group_id)
        self._delete(deleted, empty_groups, now_ms, out)


def _fetched(topic: str, partition: int, offset: CommittedOffset | None) -> FetchedOffset:
    if offset is None:
        return FetchedOffset(topic, partition, -1, -1, "")
    return FetchedOffset(topic, partition, offset.offset, offset.leader_epoch, offset.metadata)


def _unstable(found: FetchedOffset) -> FetchedOffset:
    return FetchedOffset(found.topic, found.partition, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _fits_metadata(text: str, limit: int) -> bool:
    """Whether it is within `offset.metadata.max.bytes`, which counts UTF-16 units, and fits into a record."""
    if len(text) <= min(limit // 2, LONGEST_STRING_BYTES // 4):
        return True
    return len(text) + sum(character > "\uffff" for character in text) <= limit and fits_record(text)
