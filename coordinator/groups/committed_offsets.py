"""Committed offsets of one machine: their state, and the requests about them.

Durable state changes in `put`, `remove`, `put_pending` and `end_transaction` alone. Loading calls them with
the records of the log, and a command calls them with the records that it appends: so the state after loading
is the state that wrote the log.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Protocol

from odradek.coordinator.asked import Asked
from odradek.coordinator.effects import Append, AppendMarker, Effect, LogRecord, Reply
from odradek.coordinator.groups import record_codec
from odradek.coordinator.groups.classic_group import ClassicGroup
from odradek.coordinator.groups.commands import EndOffsets, RemoveTopics
from odradek.coordinator.groups.group import (
    EPOCHS_IN_TRANSACTION_SINCE,
    CommitRequest,
    Group,
    Membership,
    TypeOfGroup,
    known_in_transaction,
)
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
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.wire.schema import ZERO_UUID

NONE = ErrorCode.NONE
EXPIRE_MS_MAX = 2**63 - 1
NO_OFFSETS: TopicOffsets = {}
KNOWN_PREFIXES_MAX = 10_000
"""Memory of keys, while loading."""
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
        self.handlers: Mapping[type, Handler] = {
            OffsetCommitRequest: self._commit,
            TxnOffsetCommitRequest: self._commit_in_transaction,
            EndOffsets: self._end_transaction,
            OffsetFetchRequest: self._fetch,
            OffsetDeleteRequest: self._delete_some,
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

    # Requests

    def _commit(
        self, asked: Asked[OffsetCommitRequest, OffsetCommitResponse], now_ms: int, out: list[Effect]
    ) -> None:
        """Commit in topics with name and id. An offset with the id zero may be of any topic of the name."""
        request, ticket, version = asked.request, asked.ticket, asked.client.version
        group_id, generation = request.group_id, request.generation_id_or_member_epoch
        group = self._groups.get(group_id)
        if group is None:
            code = _check_without_group(group_id, generation, version >= GROUP_NOT_FOUND_SINCE)
        else:
            code = group.check_commit(request, generation, version)
        if code is not NONE:
            out.append(Reply(ticket, ticket.refused(code)))
            return
        if group is not None:
            self._memberships[group.group_type].offsets_committed(group, request.member_id, now_ms, out)
        retention_ms = request.retention_time_ms
        # Bounded: a retention of 2^63-1 is a client's way to say "for ever".
        expire_ms = -1 if retention_ms == -1 else min(now_ms + retention_ms, EXPIRE_MS_MAX)
        errors, commits, records, size_bytes = self._to_commit(request, expire_ms, now_ms)
        if size_bytes > self._settings.append_max_bytes:
            out.append(Reply(ticket, ticket.refused(ErrorCode.UNKNOWN_SERVER_ERROR)))
            return
        if records:
            self.put(group_id, commits)
            out.append(Append(records))
        if asked.granted is not None and not any(errors):
            out.append(Reply(ticket, asked.granted))
            return
        codes = iter(errors)
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=next(codes))
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        out.append(Reply(ticket, OffsetCommitResponse(topics=topics)))

    def _commit_in_transaction(
        self, asked: Asked[TxnOffsetCommitRequest, TxnOffsetCommitResponse], now_ms: int, out: list[Effect]
    ) -> None:
        """The offsets count once the marker of the transaction has come (`EndOffsets`). Member and generation
        are empty and below 0 in versions below 3 and of a producer that knows no member."""
        request, ticket, version = asked.request, asked.ticket, asked.client.version
        group_id, producer_id = request.group_id, request.producer_id
        generation = request.generation_id_or_member_epoch
        group = self._groups.get(group_id)
        if group is None:
            code = _check_without_group(group_id, generation, version >= EPOCHS_IN_TRANSACTION_SINCE)
        else:
            code = known_in_transaction(group.check_commit(request, generation, None), version)
        if code is not NONE:
            out.append(Reply(ticket, ticket.refused(code)))
            return
        errors, commits, records, size_bytes = self._to_commit(request, -1, now_ms)
        if size_bytes > self._settings.append_max_bytes:
            out.append(Reply(ticket, ticket.refused(ErrorCode.UNKNOWN_SERVER_ERROR)))
            return
        for topic, partition, committed in commits:
            self.put_pending(producer_id, group_id, topic, partition, committed)
        if records:
            out.append(Append(records, (producer_id, request.producer_epoch)))
        codes = iter(errors)
        topics = [
            TxnOffsetCommitResponseTopic(
                name=named.name,
                topic_id=named.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=next(codes)
                    )
                    for one in named.partitions
                ],
            )
            for named in request.topics
        ]
        out.append(Reply(ticket, TxnOffsetCommitResponse(topics=topics)))

    def _end_transaction(self, command: EndOffsets, now_ms: int, out: list[Effect]) -> None:
        """Nothing may be pending: the marker is written all the same, for it ends the transaction in the
        log."""
        self.end_transaction(command.marker.producer_id, command.marker.commit)
        out.append(AppendMarker(command.marker))
        out.append(Reply(command.ticket, NONE))

    def _to_commit(
        self, request: CommitRequest, expire_ms: int, now_ms: int
    ) -> tuple[list[ErrorCode], list[tuple[str, int, CommittedOffset]], list[LogRecord], int]:
        """An error for each offset; (topic, partition, offset) and a record for each that has none; at least
        what the records will take as one batch, in bytes."""
        group_id, metadata_limit = request.group_id, self._settings.offset_metadata_max_bytes
        errors: list[ErrorCode] = []
        commits: list[tuple[str, int, CommittedOffset]] = []
        records: list[LogRecord] = []
        size_bytes = BATCH_OVERHEAD_BYTES
        in_transaction = request.__class__ is TxnOffsetCommitRequest
        topic: Any
        for topic in request.topics:
            name = topic.name
            # A record with an own expiry has no room for it; clients that send one do not know it.
            topic_id = topic.topic_id if expire_ms == -1 else ZERO_UUID
            for partition in topic.partitions:
                metadata = partition.committed_metadata or ""
                if metadata and not _fits_metadata(metadata, metadata_limit):
                    errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                    continue
                errors.append(NONE)
                leader_epoch = partition.committed_leader_epoch if expire_ms == -1 else -1
                commit_ms = -1 if in_transaction else partition.commit_timestamp
                committed_ms = now_ms if commit_ms == -1 else commit_ms
                committed = _new_tuple(
                    CommittedOffset,
                    (partition.committed_offset, leader_epoch, metadata, committed_ms, expire_ms, topic_id),
                )
                index = partition.partition_index
                key, value = encode_offset_key(group_id, name, index), encode_offset(committed)
                size_bytes += RECORD_OVERHEAD_BYTES + len(key) + len(value)
                records.append((key, value, now_ms))
                commits.append((name, index, committed))
        return errors, commits, records, size_bytes

    def _fetch(
        self, asked: Asked[OffsetFetchRequest, OffsetFetchResponse], now_ms: int, out: list[Effect]
    ) -> None:
        out.append(Reply(asked.ticket, self.fetched(asked, now_ms)))

    def fetched(
        self, asked: Asked[OffsetFetchRequest, OffsetFetchResponse], now_ms: int
    ) -> OffsetFetchResponse:
        """The offsets of the one group of the request, in its order. A topic with an id has none of an
        earlier topic of its name."""
        (requested,) = asked.request.groups
        group_id = requested.group_id
        group = self._groups.get(group_id)
        code = NONE if group is None else group.check_fetch(requested.member_id, requested.member_epoch)
        told: list[CommittedOffset | None] | None = None
        found: list[OffsetFetchResponseTopics] = []
        if code is NONE:
            unstable = self.pending.by_group.get(group_id, ()) if asked.request.require_stable else ()
            offsets = self.table.of_group(group_id)
            wanted: Iterable[OffsetFetchRequestTopics] | None = requested.topics
            if wanted is not None and not unstable:
                told = []
                for topic in wanted:
                    told += map(offsets.get(topic.name, NO_OFFSETS).get, topic.partition_indexes)
                if asked.granted is not None and told == asked.told:
                    return asked.granted
            if wanted is None:
                wanted = [
                    OffsetFetchRequestTopics(name=name, partition_indexes=list(of_topic))
                    for name, of_topic in offsets.items()
                ]
            found = [_fetched(topic, offsets.get(topic.name, NO_OFFSETS), unstable) for topic in wanted]
        of_group = OffsetFetchResponseGroup(group_id=group_id, topics=found, error_code=code)
        asked.granted, asked.told = OffsetFetchResponse(groups=[of_group]), told
        return asked.granted

    def _delete_some(
        self, asked: Asked[OffsetDeleteRequest, OffsetDeleteResponse], now_ms: int, out: list[Effect]
    ) -> None:
        group_id = asked.request.group_id
        group = self._groups.get(group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_deletion()
        if group is None or code is not NONE:
            out.append(Reply(asked.ticket, OffsetDeleteResponse(error_code=code)))
            return
        deleted: list[tuple[str, str, int]] = []
        topics: list[OffsetDeleteResponseTopic] = []
        for topic in asked.request.topics:
            name = topic.name
            indexes = [one.partition_index for one in topic.partitions]
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(name) else NONE
            if code is NONE:
                deleted += [
                    (group_id, name, index)
                    for index in indexes
                    if self.table.get(group_id, name, index) is not None
                    or self.pending.has(group_id, name, index)
                ]
            results = [OffsetDeleteResponsePartition(partition_index=one, error_code=code) for one in indexes]
            topics.append(OffsetDeleteResponseTopic(name=name, partitions=results))
        self._delete(deleted, (), now_ms, out)
        out.append(Reply(asked.ticket, OffsetDeleteResponse(error_code=NONE, topics=topics)))

    def _remove_topics(self, command: RemoveTopics, now_ms: int, out: list[Effect]) -> None:
        deleted = [*self.table.of_topics(command.topics), *self.pending.of_topics(command.topics)]
        self._delete(dict.fromkeys(deleted), (), now_ms, out)
        out.append(Reply(command.ticket, NONE))

    def expire(self, now_ms: int, out: list[Effect]) -> None:
        """Drop the offsets whose time is over, and empty groups that have none left (KIP-211). What a
        transaction is about to replace stays."""
        retention_ms = self._settings.offsets_retention_ms
        deleted: list[tuple[str, str, int]] = []
        empty_groups: list[str] = []
        for group_id, group in self._groups.items():
            topics = self.table.of_group(group_id)
            expired = expired_offsets(group, topics, now_ms, retention_ms)
            if topics and not expired:
                continue
            pending = self.pending.by_group.get(group_id)
            if pending:
                expired = [place for place in expired if place not in pending]
            deleted += [(group_id, topic, partition) for topic, partition in expired]
            is_left_over = not pending and len(expired) == sum(map(len, topics.values()))
            if is_left_over and group.is_empty and group.may_expire:
                empty_groups.append(group_id)
        self._delete(deleted, empty_groups, now_ms, out)


def _check_without_group(group_id: str, generation: int, is_named: bool) -> ErrorCode:
    """A commit to a group that is not there; `is_named` where the client knows an error for that."""
    if generation < 0:
        return NONE if fits_record(group_id) else ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.GROUP_ID_NOT_FOUND if is_named else ErrorCode.ILLEGAL_GENERATION


def _fetched(
    topic: OffsetFetchRequestTopics, offsets: TopicOffsets, unstable: Container[tuple[str, int]]
) -> OffsetFetchResponseTopics:
    name, topic_id = topic.name, topic.topic_id
    partitions = []
    for index in topic.partition_indexes:
        offset = offsets.get(index)
        if unstable and (name, index) in unstable:
            found = _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        elif offset is None or (topic_id != ZERO_UUID and is_of_another(offset, topic_id)):
            found = _no_offset(index, NONE)
        else:
            found = OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
                error_code=NONE,
            )
        partitions.append(found)
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)


def _no_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
    )


def _fits_metadata(text: str, limit: int) -> bool:
    """Whether it is within `offset.metadata.max.bytes`, which counts UTF-16 units, and fits into a record."""
    if len(text) <= min(limit // 2, LONGEST_STRING_BYTES // 4):
        return True
    return len(text) + sum(character > "\uffff" for character in text) <= limit and fits_record(text)
