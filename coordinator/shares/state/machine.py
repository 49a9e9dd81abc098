"""The state machine over one partition of `__share_group_state`: the states of share partitions.

A change is a record of type ShareUpdate; after so many of them, and when a state is initialized, comes a
ShareSnapshot, which is the whole state. Durable state changes in `_snapshot`, `_update` and `_forget` only,
which `replay` calls with each record of the log, and a command with the record that it appends.

The topic is not compacted. From time to time all records before the oldest snapshot that counts are deleted
(`DeleteBefore`); so that none stays the oldest for ever, states whose snapshot is old are written again. The
machine knows its records by their position: how many there were before, from the start of loading on. That is
their distance in offsets, or less where the log has records that no machine has written.

Source: ShareCoordinatorShard, ShareGroupOffset and ShareCoordinatorOffsetsManager of Kafka 4.3; KIP-932.
Different here:

- A batch that ends before it begins is refused. Kafka keeps it, or looks for its end for ever.
- A write whose start offset is before the one that is kept does not move it back. A request that was sent
  twice may arrive after later ones, and what had been acknowledged would be delivered again.
- A state that no record can hold is refused with the write that would make it so large, not when a snapshot
  of it is due: then it could never be written again.
- States that are old are written in several batches where one would be too large.
- An update of a state makes old ones be written again. To Kafka nothing has changed until the next snapshot
  of that state: up to so many updates, and all that is before them, stay in its log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from odradek.coordinator.asked import NOBODY, Asked, Ticket
from odradek.coordinator.effects import Append, Effect, LogRecord, Reply, SetTimer
from odradek.coordinator.shares.state import record_codec
from odradek.coordinator.shares.state.keys import partition_in
from odradek.coordinator.shares.state.persister import (
    NO_DELIVERY_COUNT,
    UNINITIALIZED_OFFSET,
    SharePartitionKey,
)
from odradek.coordinator.shares.state.record_codec import SNAPSHOT, UPDATE
from odradek.coordinator.shares.state.settings import ShareStateSettings
from odradek.coordinator.shares.state.state import Kept, State, Update
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from odradek.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
)
from odradek.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
)
from odradek.wire.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
)
from odradek.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from odradek.wire.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from odradek.wire.share_batches import Batch, are_sound, combined

TimerKey = tuple[str, ...]
PRUNE: TimerKey = ("prune",)
SNAPSHOT_COLD: TimerKey = ("snapshot_cold",)
REMOVE_TOPICS: TimerKey = ("remove_topics",)

SNAPSHOTS_PER_TURN = 100
"""Old states that are written again in one turn."""
STATES_PER_TURN = 2_000
"""States whose topic is compared with deleted ones in one turn."""
BATCH_OVERHEAD_BYTES = 61
RECORD_BYTES = 120
"""More than a snapshot takes without the group's id and the batches, with the record's own lengths."""
BATCH_BYTES = 20
"""Size of one state batch."""

NEGATIVE_PARTITION = "A partition number cannot be negative."
NEGATIVE_LEADER_EPOCH = "The leader epoch cannot be a negative number."
NEGATIVE_STATE_EPOCH = "The state epoch cannot be a negative number."
NEVER_INITIALIZED = "The state of this share partition was not initialized."
UNSOUND_BATCH = "A state batch ends before it begins."
TOO_LARGE = "The state would not fit into one record."


@dataclass(slots=True)
class DeleteBefore(Effect):
    """Delete the records before this position. Nothing is lost if it fails: it comes again."""

    waits_for_log: ClassVar[bool] = True
    position: int


@dataclass(slots=True)
class RemoveTopics:
    """Forget the states of topics that were deleted, some in each turn."""

    topic_ids: Collection[bytes]
    ticket: Ticket[ErrorCode] = NOBODY


class _Question(NamedTuple):
    """A kind of request: `carry_out(key, partition of the request, now_ms, out)` gives the result."""

    carry_out: Callable[[SharePartitionKey, Any, int, list[Effect]], Any]
    response: type
    topic: type
    result: type


class ShareMachine:
    """See `coordinator/effects.py` for how to run it. Load: `replay` each record, then `start` once.

    `partition_count_of(topic_id)` is by the newest view; 0 for a topic that is not there.
    """

    def __init__(self, settings: ShareStateSettings, partition_count_of: Callable[[bytes], int]) -> None:
        self.states: dict[SharePartitionKey, Kept] = {}
        """In the order of their snapshots, the oldest first."""
        self._settings = settings
        self._partition_count_of = partition_count_of
        self._position = 0
        """Position of the next record."""
        self._last_tombstone = 0
        self._pruned = 0
        self._rewritten_count = 0
        """States that are old, were written again, and have not changed since."""
        self._cold_until_ms: int | None = None
        """Older snapshots are to be written again; None between two passes."""
        self._removed: set[bytes] = set()
        """Deleted topics."""
        self._removing: Iterator[SharePartitionKey] | None = None
        """States that are still to be compared with them."""
        self._questions = {
            InitializeShareGroupStateRequest: _Question(
                self._initialize,
                InitializeShareGroupStateResponse,
                InitializeStateResult,
                initialize_share_group_state.PartitionResult,
            ),
            ReadShareGroupStateRequest: _Question(
                self._read,
                ReadShareGroupStateResponse,
                ReadStateResult,
                read_share_group_state.PartitionResult,
            ),
            WriteShareGroupStateRequest: _Question(
                self._write,
                WriteShareGroupStateResponse,
                WriteStateResult,
                write_share_group_state.PartitionResult,
            ),
            DeleteShareGroupStateRequest: _Question(
                self._delete,
                DeleteShareGroupStateResponse,
                DeleteStateResult,
                delete_share_group_state.PartitionResult,
            ),
            ReadShareGroupStateSummaryRequest: _Question(
                self._summarize,
                ReadShareGroupStateSummaryResponse,
                ReadStateSummaryResult,
                read_share_group_state_summary.PartitionResult,
            ),
        }

    def handle(self, command: Asked[Any, Any] | RemoveTopics, now_ms: int) -> list[Effect]:
        """Carry out a command. A request names one share partition."""
        out: list[Effect] = []
        if isinstance(command, RemoveTopics):
            self._remove_topics(command, now_ms, out)
            return out
        question = self._questions[command.request.__class__]
        key, asked = partition_in(command.request)
        try:
            result = question.carry_out(key, asked, now_ms, out)
        except KafkaError as error:
            result = question.result(
                partition=key.partition, error_code=error.code, error_message=error.message
            )
        results = [question.topic(topic_id=key.topic_id, partitions=[result])]
        out.append(Reply(command.ticket, question.response(results=results)))
        return out

    def expire(self, timer_key: TimerKey, now_ms: int) -> list[Effect]:
        """A timer is due, at its time or later."""
        out: list[Effect] = []
        if timer_key == PRUNE:
            self._prune(now_ms, out)
        elif timer_key == SNAPSHOT_COLD:
            self._snapshot_cold(now_ms, out)
        elif timer_key == REMOVE_TOPICS:
            self._go_on_removing(now_ms, out)
        return out

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take in one record of the log. Raises MalformedMessage for what cannot be read."""
        position = self._position
        self._position += 1
        found = record_codec.decode_key(key)
        if found is None:
            return
        record_type, partition = found
        if record_type == UPDATE:
            if value is not None:
                self._update(partition, record_codec.decode_update(value), position)
        elif value is None:
            self._forget(partition, position)
        else:
            self._snapshot(partition, record_codec.decode_snapshot(value), position)

    def start(self, now_ms: int) -> list[Effect]:
        """The log has been replayed."""
        return [
            SetTimer(PRUNE, now_ms + self._settings.prune_interval_ms),
            SetTimer(SNAPSHOT_COLD, now_ms + self._settings.cold_snapshot_interval_ms),
        ]

    def refuse_waiting(self, code: ErrorCode) -> list[Effect]:
        """Nothing waits in the machine."""
        return []

    def topic_ids(self) -> set[bytes]:
        """The topics of all states."""
        return {key.topic_id for key in self.states}

    # Durable state

    def _snapshot(self, key: SharePartitionKey, state: State, position: int) -> None:
        kept = self.states.pop(key, None)
        if kept is None:
            kept = Kept(state, position)
        else:
            kept.state, kept.position = state, position
        self._count_rewritten(kept, state.is_rewritten)
        kept.leader_epoch_max = max(kept.leader_epoch_max, state.leader_epoch)
        kept.state_epoch_max = max(kept.state_epoch_max, state.state_epoch)
        if kept.update_count >= self._settings.updates_per_snapshot:
            kept.update_count = 0
        self.states[key] = kept

    def _update(self, key: SharePartitionKey, update: Update, position: int) -> None:
        kept = self.states.get(key)
        if kept is None:
            state = State(
                update.snapshot_epoch,
                0,
                update.leader_epoch,
                update.start_offset,
                update.delivery_complete_count,
                update.batches,
            )
            kept = self.states[key] = Kept(state, position)
        else:
            kept.state = kept.state.updated(update)
            self._count_rewritten(kept, False)
        kept.leader_epoch_max = max(kept.leader_epoch_max, update.leader_epoch)
        kept.update_count += 1

    def _forget(self, key: SharePartitionKey, position: int) -> None:
        self._last_tombstone = position
        kept = self.states.pop(key, None)
        if kept is not None:
            self._rewritten_count -= kept.is_rewritten

    def _count_rewritten(self, kept: Kept, is_rewritten: bool) -> None:
        self._rewritten_count += is_rewritten - kept.is_rewritten
        kept.is_rewritten = is_rewritten

    # Records

    def _append_snapshot(
        self, key: SharePartitionKey, state: State, now_ms: int, records: list[LogRecord]
    ) -> None:
        records.append((record_codec.encode_key(SNAPSHOT, key), record_codec.encode_snapshot(state), now_ms))
        self._snapshot(key, state, self._position)
        self._position += 1

    def _append_tombstone(self, key: SharePartitionKey, now_ms: int, records: list[LogRecord]) -> None:
        records.append((record_codec.encode_key(SNAPSHOT, key), None, now_ms))
        self._forget(key, self._position)
        self._position += 1

    def _fits(self, key: SharePartitionKey, batch_count: int) -> bool:
        """Whether a snapshot of so many batches fits into the log."""
        return BATCH_OVERHEAD_BYTES + _size_max(key, batch_count) <= self._settings.append_max_bytes

    # Requests

    def _initialize(
        self,
        key: SharePartitionKey,
        asked: initialize_share_group_state.PartitionData,
        now_ms: int,
        out: list[Effect],
    ) -> initialize_share_group_state.PartitionResult:
        """Begin anew. INVALID_REQUEST for an epoch below 0, FENCED_STATE_EPOCH; UNKNOWN_SERVER_ERROR for a
        group's id that no record can hold."""
        kept = self.states.get(key)
        _check_number(key)
        if asked.state_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NEGATIVE_STATE_EPOCH)
        if kept is not None:
            _check_state_epoch(kept, asked.state_epoch)
        self._check_topic(key)
        if not (record_codec.fits_key(key.group_id) and self._fits(key, 0)):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, TOO_LARGE)
        start_offset = asked.start_offset
        state = State(
            0 if kept is None else kept.state.snapshot_epoch + 1,
            asked.state_epoch,
            0,
            start_offset,
            # Of an offset that was set, all that comes after it is still to be delivered.
            NO_DELIVERY_COUNT if start_offset == UNINITIALIZED_OFFSET else 0,
            (),
            now_ms,
            now_ms,
        )
        records: list[LogRecord] = []
        self._append_snapshot(key, state, now_ms, records)
        out.append(Append(records))
        return initialize_share_group_state.PartitionResult(partition=key.partition)

    def _read(
        self,
        key: SharePartitionKey,
        asked: read_share_group_state.PartitionData,
        now_ms: int,
        out: list[Effect],
    ) -> read_share_group_state.PartitionResult:
        """Kept state, for the leader with this epoch: earlier ones are fenced from now on. INVALID_REQUEST
        for a state that was not initialized and for an epoch below 0, FENCED_LEADER_EPOCH."""
        _check_number(key)
        if asked.leader_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NEGATIVE_LEADER_EPOCH)
        kept = self._checked(key, asked.leader_epoch)
        self._check_topic(key)
        state = kept.state
        if asked.leader_epoch != kept.leader_epoch_max:
            change = Update(
                state.snapshot_epoch,
                asked.leader_epoch,
                state.start_offset,
                state.delivery_complete_count,
                (),
            )
            self._change(key, kept, change, now_ms, out)
        return read_share_group_state.PartitionResult(
            partition=key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                read_share_group_state.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count
                )
                for first, last, count, delivery_state in state.batches
            ],
        )

    def _write(
        self,
        key: SharePartitionKey,
        asked: write_share_group_state.PartitionData,
        now_ms: int,
        out: list[Effect],
    ) -> write_share_group_state.PartitionResult:
        """Keep changes. INVALID_REQUEST for a state that was not initialized, for an epoch below 0, and for a
        batch that ends before it begins; FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH; UNKNOWN_SERVER_ERROR if the
        state would be more than one record can hold. A start offset of -1 is as before."""
        _check_number(key)
        if asked.leader_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NEGATIVE_LEADER_EPOCH)
        if asked.state_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NEGATIVE_STATE_EPOCH)
        kept = self._checked(key, asked.leader_epoch)
        _check_state_epoch(kept, asked.state_epoch)
        self._check_topic(key)
        batches = [
            Batch(batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state)
            for batch in asked.state_batches
        ]
        if not are_sound(batches):
            raise KafkaError(ErrorCode.INVALID_REQUEST, UNSOUND_BATCH)
        state = kept.state
        # A leader's start only goes on: a lower one was on its way for long, and sent again meanwhile.
        start_offset = max(asked.start_offset, state.start_offset)
        complete_count = asked.delivery_complete_count
        if asked.start_offset == state.start_offset:
            complete_count = max(complete_count, state.delivery_complete_count)
        elif asked.start_offset < state.start_offset:
            complete_count = state.delivery_complete_count
        change = Update(
            state.snapshot_epoch,
            # The epoch of a leader is noted when it reads.
            state.leader_epoch,
            start_offset,
            complete_count,
            combined((), batches, start_offset),
        )
        self._change(key, kept, change, now_ms, out)
        return write_share_group_state.PartitionResult(partition=key.partition)

    def _change(
        self, key: SharePartitionKey, kept: Kept, change: Update, now_ms: int, out: list[Effect]
    ) -> None:
        """Append the change as a snapshot or an update; refuse it if the state would not fit into a
        snapshot."""
        state = kept.state
        if not self._fits(key, len(state.batches) + 2 * len(change.batches)) and not self._fits(
            key, len(state.updated(change).batches)
        ):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, TOO_LARGE)
        records: list[LogRecord] = []
        if kept.update_count >= self._settings.updates_per_snapshot:
            changed = replace(
                state.updated(change),
                snapshot_epoch=state.snapshot_epoch + 1,
                created_ms=now_ms,
                written_ms=now_ms,
            )
            self._append_snapshot(key, changed, now_ms, records)
        else:
            record_key = record_codec.encode_key(UPDATE, key)
            records.append((record_key, record_codec.encode_update(change), now_ms))
            self._update(key, change, self._position)
            self._position += 1
        out.append(Append(records))

    def _delete(
        self,
        key: SharePartitionKey,
        asked: delete_share_group_state.PartitionData,
        now_ms: int,
        out: list[Effect],
    ) -> delete_share_group_state.PartitionResult:
        """Forget it; also done where there is none."""
        _check_number(key)
        self._check_topic(key)
        if key in self.states:
            records: list[LogRecord] = []
            self._append_tombstone(key, now_ms, records)
            out.append(Append(records))
        return delete_share_group_state.PartitionResult(partition=key.partition)

    def _summarize(
        self,
        key: SharePartitionKey,
        asked: read_share_group_state_summary.PartitionData,
        now_ms: int,
        out: list[Effect],
    ) -> read_share_group_state_summary.PartitionResult:
        """Kept state without the batches; where there is none, a start offset of -1."""
        _check_number(key)
        self._check_topic(key)
        kept = self.states.get(key)
        result = read_share_group_state_summary.PartitionResult(
            partition=key.partition, start_offset=UNINITIALIZED_OFFSET
        )
        if kept is not None:
            state = kept.state
            result.state_epoch, result.leader_epoch = state.state_epoch, state.leader_epoch
            result.start_offset = state.start_offset
            result.delivery_complete_count = state.delivery_complete_count
        return result

    def _checked(self, key: SharePartitionKey, leader_epoch: int) -> Kept:
        """The state for a leader with this epoch."""
        _check_number(key)
        kept = self.states.get(key)
        if kept is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NEVER_INITIALIZED)
        _check_leader_epoch(kept, leader_epoch)
        return kept

    def _check_topic(self, key: SharePartitionKey) -> None:
        if key.partition >= self._partition_count_of(key.topic_id):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # Deleted topics

    def _remove_topics(self, command: RemoveTopics, now_ms: int, out: list[Effect]) -> None:
        self._removed.update(command.topic_ids)
        self._removing = iter(list(self.states))
        out += (SetTimer(REMOVE_TOPICS, now_ms), Reply(command.ticket, ErrorCode.NONE))

    def _go_on_removing(self, now_ms: int, out: list[Effect]) -> None:
        if self._removing is None:
            return
        seen = list(islice(self._removing, STATES_PER_TURN))
        records: list[LogRecord] = []
        size = BATCH_OVERHEAD_BYTES
        for key in seen:
            if key.topic_id in self._removed and key in self.states:
                size += _size_max(key)
                if records and size > self._settings.append_max_bytes:
                    out.append(Append(records))
                    records, size = [], BATCH_OVERHEAD_BYTES + _size_max(key)
                self._append_tombstone(key, now_ms, records)
        if records:
            out.append(Append(records))
        if len(seen) < STATES_PER_TURN:
            self._removing = None
            self._removed.clear()
        else:
            out.append(SetTimer(REMOVE_TOPICS, now_ms))

    # Upkeep of the log

    def _snapshot_cold(self, now_ms: int, out: list[Effect]) -> None:
        interval_ms = self._settings.cold_snapshot_interval_ms
        if self._cold_until_ms is None:
            if self._rewritten_count == len(self.states):
                # Nothing has changed since: to write all again would delete no more than it adds.
                out.append(SetTimer(SNAPSHOT_COLD, now_ms + interval_ms))
                return
            self._cold_until_ms = now_ms - interval_ms
        records: list[LogRecord] = []
        size = BATCH_OVERHEAD_BYTES
        is_done = True
        for key, kept in list(islice(self.states.items(), SNAPSHOTS_PER_TURN + 1)):
            state = kept.state
            if state.written_ms > self._cold_until_ms:
                break
            size += _size_max(key, len(state.batches))
            if records and (len(records) == SNAPSHOTS_PER_TURN or size > self._settings.append_max_bytes):
                is_done = False
                break
            again = replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms)
            self._append_snapshot(key, again, now_ms, records)
        if records:
            out.append(Append(records))
        if is_done:
            self._cold_until_ms = None
        out.append(SetTimer(SNAPSHOT_COLD, now_ms + (interval_ms if is_done else 0)))

    def _prune(self, now_ms: int, out: list[Effect]) -> None:
        oldest = next(iter(self.states.values()), None)
        position = self._last_tombstone if oldest is None else oldest.position
        if position > self._pruned:
            self._pruned = position
            out.append(DeleteBefore(position))
        out.append(SetTimer(PRUNE, now_ms + self._settings.prune_interval_ms))


def _check_number(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)


def _check_leader_epoch(kept: Kept, leader_epoch: int) -> None:
    if -1 != leader_epoch < kept.leader_epoch_max:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)


def _check_state_epoch(kept: Kept, state_epoch: int) -> None:
    if -1 != state_epoch < kept.state_epoch_max:
        raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)


def _size_max(key: SharePartitionKey, batch_count: int = 0) -> int:
    """No less than a snapshot takes in a batch."""
    return 4 * len(key.group_id) + RECORD_BYTES + BATCH_BYTES * batch_count
