"""The share partitions that this node leads, with everything around their decisions: their state is read when
they are first needed, their changes are stored, and their locks run out in time.

The changes of one share partition are stored one after the other, so that the share coordinator never gets an
older one behind a newer one. Those that come meanwhile are stored together. A share partition that was
fenced, or whose partition this node does not lead any more, is given up: the next request reads its state
again.

A dead letter is asked for when it is stored that its records are being archived. No client waits for it:
when its writing has ended, another change is stored, which archives the records. Where another leader
follows, the letters that wait are dropped: it finds their records in the state.

Source: SharePartitionManager, SharePartition and ShareFetchUtils of Kafka 4.4.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from odradek.apis.list_offsets import NOT_FOUND, finding
from odradek.coordinator.shares.partitions.reset import LATEST, reset_timestamp
from odradek.coordinator.shares.partitions.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    ShareLimits,
    SharePartition,
)
from odradek.coordinator.shares.partitions.window import Change
from odradek.coordinator.shares.state.persister import (
    UNINITIALIZED_OFFSET,
    Persister,
    Refusal,
    SharePartitionKey,
)
from odradek.storage.log.partition import READ_UNCOMMITTED
from odradek.wire.errors import ErrorCode, KafkaError, error_of
from odradek.wire.messages.read_share_group_state import PartitionResult as ShareState
from odradek.wire.messages.write_share_group_state import PartitionData as StateWrite

if TYPE_CHECKING:
    from odradek.apis.coordinators import DeadLetters
    from odradek.apis.leadership import Leadership, LedPartition
    from odradek.apis.turn import TimerHandle, Timers, WorkQueue
    from odradek.coordinator.groups.settings import GroupConfig
    from odradek.coordinator.shares.dead_letters.letters import DeadLetter
    from odradek.storage.log.partition import Partition
    from odradek.wire.messages.write_share_group_state import StateBatch

logger = logging.getLogger("odradek.share")

_TOLD = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""Code for the client, by the refusal of the share coordinator; UNKNOWN_SERVER_ERROR for any other."""
_GIVEN_UP_WITH = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
Done = Callable[[KafkaError | None], None]


class _WaitingChange(NamedTuple):
    """A change that waits to be stored."""

    batches: list[StateBatch]
    done: Done
    is_alone: bool = False
    """Whether it may overlap with the one before it."""


class LedShare:
    """One share partition; `partition` is None until its state is read."""

    __slots__ = (
        "bytes_per_record",
        "error",
        "event",
        "expired_count",
        "is_given_up",
        "is_leaving",
        "is_storing",
        "key",
        "leader_epoch",
        "letters",
        "log",
        "log_moved",
        "name",
        "partition",
        "seen_offset",
        "timer",
        "watchers",
        "writes",
    )

    def __init__(self, key: SharePartitionKey, name: str, leader_epoch: int) -> None:
        self.key = key
        self.name = name
        self.leader_epoch = leader_epoch
        self.partition: SharePartition | None = None
        self.error: KafkaError | None = None
        """Why its state could not be read."""
        self.expired_count = 0
        """Records whose locks have run out."""
        self.is_given_up = False
        self.is_leaving = False
        """Nobody reads it: it is given up when everything is stored."""
        self.is_storing = False
        self.letters: dict[DeadLetter, Callable[[], None]] = {}
        """Dead letters that are being written, and what cancels each."""
        self.writes: deque[_WaitingChange] = deque()
        self.timer: TimerHandle | None = None
        self.bytes_per_record = 0.0
        """About how many the last records had that a member got."""
        self.event = 0
        """Counts what may have given waiting fetches something."""
        self.watchers: dict[Callable[[], None], int] = {}
        """Fetches that wait for it, the longest first, and up to which event each of them has looked."""
        self.log: Partition | None = None
        """The partition's log, watched while fetches wait."""
        self.log_moved: Callable[[], None] = _nothing
        """Its watcher."""
        self.seen_offset = -1
        """Its high watermark when it was last heard of."""


class SharePartitions:
    """`config_of` gives the settings of a group; `clock_ms` a time that only grows, `now_ms` the time of
    records."""

    def __init__(
        self,
        leadership: Leadership,
        persister: Persister,
        dead_letters: DeadLetters,
        config_of: Callable[[str], GroupConfig],
        timers: Timers,
        searches: WorkQueue,
        clock_ms: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._leadership = leadership
        self._persister = persister
        self._dead_letters = dead_letters
        self._config_of = config_of
        self._timers = timers
        self._searches = searches
        self.clock_ms = clock_ms
        self._now_ms = now_ms
        self._shares: dict[SharePartitionKey, LedShare] = {}
        self._limits: tuple[GroupConfig, ShareLimits] | None = None
        """Limits of the settings that were asked for last, which are another object after each change."""
        self.acknowledged = [0] * len(AcknowledgeType)
        """Records since the start, by the type of their acknowledgement."""

    def loaded(self) -> Iterator[LedShare]:
        """Partitions whose state is read."""
        return (share for share in list(self._shares.values()) if share.partition is not None)

    def __len__(self) -> int:
        return len(self._shares)

    def limits_of(self, group_id: str) -> ShareLimits:
        config, known = self._config_of(group_id), self._limits
        if known is not None and known[0] is config:
            return known[1]
        limits = ShareLimits(
            lock_ms=config.share_record_lock_duration_ms,
            deliveries_max=config.share_delivery_count_limit,
            locks_max=config.share_partition_max_record_locks,
            may_renew=config.share_renew_acknowledge_enable,
            has_dead_letters=self._dead_letters.are_kept(group_id),
        )
        self._limits = config, limits
        return limits

    # Finding

    def is_read(self, key: SharePartitionKey) -> bool:
        """Whether the state of a share partition is in memory."""
        share = self._shares.get(key)
        return share is not None and share.partition is not None

    def find(self, key: SharePartitionKey, name: str) -> tuple[LedShare, LedPartition]:
        """The share partition, whose state may still have to be read, and the partition. Refuses what this
        node does not lead."""
        led = self._leadership.lead(name, key.partition)
        share = self._shares.get(key)
        if share is not None and share.leader_epoch != led.leader_epoch:
            self.give_up(share, is_replaced=True)
            share = None
        if share is None:
            share = self._shares[key] = LedShare(key, name, led.leader_epoch)
            share.log_moved = partial(self._log_moved, share)
            self._persister.read(key, led.leader_epoch, partial(self._read, share))
        share.is_leaving = False
        return share, led

    def known(self, key: SharePartitionKey) -> LedShare | None:
        """One that somebody has fetched from."""
        return self._shares.get(key)

    def give_up(self, share: LedShare, *, is_replaced: bool = False) -> None:
        """Whoever waits for it tries again. `is_replaced`: a leader with another epoch finds in the state
        which dead letters are not written."""
        if share.is_given_up:
            return
        share.is_given_up = True
        if self._shares.get(share.key) is share:
            del self._shares[share.key]
        if share.timer is not None:
            share.timer.cancel()
            share.timer = None
        if is_replaced:
            for cancel in share.letters.values():
                cancel()
            share.letters.clear()
        self._wake_all(share)

    def view_changed(self) -> None:
        """Gives up what this node does not lead any more."""
        for share in list(self._shares.values()):
            view = self._leadership.view
            place = view.partition(share.name, share.key.partition)
            if place is None or view.topics[share.name].topic_id != share.key.topic_id:
                self.give_up(share)
            elif place.leader != self._leadership.node_id or place.leader_epoch != share.leader_epoch:
                self.give_up(share, is_replaced=True)

    def give_up_group(self, group_id: str) -> None:
        """None of its members reads here any more."""
        for share in [one for one in self._shares.values() if one.key.group_id == group_id]:
            share.is_leaving = True
            self._leave_if_done(share)

    def _leave_if_done(self, share: LedShare) -> None:
        if share.is_leaving and not share.is_storing and not share.letters:
            self.give_up(share)

    def give_up_all(self) -> None:
        for share in list(self._shares.values()):
            self.give_up(share, is_replaced=True)

    # Loading

    def _read(self, share: LedShare, state: ShareState) -> None:
        if share.is_given_up:
            return
        if state.error_code:
            self._failed(share, _told(error_of(state.error_code), state.error_message))
        elif state.start_offset != UNINITIALIZED_OFFSET:
            self._begin(share, state, state.start_offset)
        else:
            self._reset(share, state)

    def _reset(self, share: LedShare, state: ShareState) -> None:
        """By `share.auto.offset.reset`."""
        value = self._config_of(share.key.group_id).share_auto_offset_reset
        timestamp = reset_timestamp(value, self._now_ms())
        try:
            led = self._leadership.lead(share.name, share.key.partition)
            replicas = self._leadership.replicas
            place = share.name, share.key.partition
            if timestamp == LATEST and replicas is not None and not replicas.has_offsets(place):
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        except KafkaError as error:
            self._failed(share, error)
            return

        def found(told: tuple[int, int, int]) -> None:
            if share.is_given_up:
                return
            if told == NOT_FOUND:
                message = f"No record of {share.name}-{share.key.partition} is as young as {value} says."
                self._failed(share, KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, message))
                return
            self._begin(share, state, told[1])

        def failed(error: Exception) -> None:
            logger.error("%s: its start was not found: %s", _named(share), error)
            code = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            if not share.is_given_up:
                self._failed(share, code)

        self._searches.run(finding(led, timestamp, READ_UNCOMMITTED), found, failed)

    def _begin(self, share: LedShare, state: ShareState, start: int) -> None:
        try:
            share.partition = SharePartition(state, start)
        except ValueError as error:
            logger.error("%s: its state is damaged: %s", _named(share), error)
            self._failed(share, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._wake_all(share)
        self._write_letters(share, share.partition.unfinished(self.limits_of(share.key.group_id)))

    def _failed(self, share: LedShare, error: KafkaError) -> None:
        share.error = error
        self.give_up(share)

    # Waiting

    def watch(self, share: LedShare, log: Partition, wake: Callable[[], None]) -> None:
        """For a fetch that has found too little: `wake` is called when it is to look again."""
        if share.log is not log:
            self._unwatch_log(share)
            share.log, share.seen_offset = log, log.high_watermark
            log.watch(share.log_moved)
        share.watchers[wake] = share.event

    def unwatch(self, share: LedShare, wake: Callable[[], None]) -> None:
        """No error if it does not wait."""
        if share.watchers.pop(wake, None) is not None and not share.watchers:
            self._unwatch_log(share)

    def pass_on(self, share: LedShare) -> None:
        """Whoever was woken has looked, or looks no more: if there may be something left, the next one is
        woken. So an event wakes as many fetches as find something, and not all that wait."""
        partition = share.partition
        if not share.watchers or partition is None or share.log is None:
            return
        wake, seen = next(iter(share.watchers.items()))
        if (
            seen != share.event
            and partition.next_offset() < share.log.high_watermark
            and partition.can_acquire(self.limits_of(share.key.group_id))
        ):
            wake()

    def _wake(self, share: LedShare) -> None:
        """There may be something to acquire."""
        share.event += 1
        self.pass_on(share)

    def _wake_all(self, share: LedShare) -> None:
        for wake in list(share.watchers):
            wake()

    def _log_moved(self, share: LedShare) -> None:
        assert share.log is not None
        before, share.seen_offset = share.seen_offset, share.log.high_watermark
        if share.seen_offset > before:
            self._wake(share)
        else:
            # It is closed, or offline, or a transaction has ended.
            self._wake_all(share)

    def _unwatch_log(self, share: LedShare) -> None:
        if share.log is not None:
            share.log.unwatch(share.log_moved)
            share.log = None

    # Changes

    def acquired(self, share: LedShare) -> None:
        """A member has acquired records: their locks run from now on."""
        if share.timer is None and share.partition is not None and not share.is_given_up:
            deadline_ms = share.partition.next_deadline_ms
            if deadline_ms is not None:
                delay_ms = max(deadline_ms - self.clock_ms(), 0)
                share.timer = self._timers.after(delay_ms, partial(self._expire, share))

    def _time_again(self, share: LedShare) -> None:
        """Locks that ran while a change was being stored have no timer, or have run out."""
        if share.timer is not None:
            share.timer.cancel()
            share.timer = None
        self.acquired(share)

    def acknowledge(
        self, share: LedShare, member: str, acknowledgements: Sequence[Acknowledgement], done: Done
    ) -> None:
        """Calls `done` when it is stored, or refused."""
        partition, limits = share.partition, self.limits_of(share.key.group_id)
        if partition is None:
            done(KafkaError(ErrorCode.INVALID_RECORD_STATE, "The records are not acquired."))
            return
        try:
            change = partition.acknowledge(member, acknowledgements, limits, self.clock_ms())
        except KafkaError as error:
            done(error)
            return
        for one in acknowledgements:
            if len(one.types) == 1:
                self.acknowledged[one.types[0]] += one.last_offset - one.first_offset + 1
            else:
                for kind in one.types:
                    self.acknowledged[kind] += 1
        self._store_change(share, partition, change, done)

    def release(self, share: LedShare, member: str, done: Done) -> None:
        """Gives back the records that the member has acquired."""
        if share.partition is None:
            done(None)
            return
        change = share.partition.release(member, self.limits_of(share.key.group_id))
        self._store_change(share, share.partition, change, done)

    def _store_change(self, share: LedShare, partition: SharePartition, change: Change, done: Done) -> None:
        def stored(error: KafkaError | None) -> None:
            if error is None:
                partition.stored(change)
            else:
                partition.undo(change, self.limits_of(share.key.group_id), self.clock_ms())
                self._time_again(share)
            self._wake(share)
            done(error)
            if error is None:
                self._write_letters(share, change.dead_letters)

        if not change.batches:
            done(None)
            return
        share.writes.append(_WaitingChange(change.batches, stored))
        self._store(share)

    def _expire(self, share: LedShare) -> None:
        share.timer = None
        if share.partition is None or share.is_given_up:
            return
        lost = share.partition.expire(self.limits_of(share.key.group_id), self.clock_ms())

        def stored(error: KafkaError | None) -> None:
            # If this is lost, the next leader delivers them as well.
            if error is None or error.code not in _GIVEN_UP_WITH:
                self._write_letters(share, lost.dead_letters)

        if lost.batches:
            share.expired_count += sum(batch.last_offset - batch.first_offset + 1 for batch in lost.batches)
            share.writes.append(_WaitingChange(lost.batches, stored, is_alone=True))
            self._store(share)
            self._wake(share)
        self.acquired(share)

    # Dead letters

    def _write_letters(self, share: LedShare, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            if not share.is_given_up:
                self._write_letter(share, letter)

    def _write_letter(self, share: LedShare, letter: DeadLetter) -> None:
        share.letters[letter] = _nothing

        def ended() -> None:
            del share.letters[letter]
            if not share.is_given_up:
                self._archive(share, letter)

        cancel = self._dead_letters.write(share.key, share.name, letter, ended)
        if letter in share.letters:
            share.letters[letter] = cancel

    def _archive(self, share: LedShare, letter: DeadLetter) -> None:
        partition = share.partition
        assert partition is not None
        change = partition.archive(letter)

        def stored(error: KafkaError | None) -> None:
            partition.stored(change)
            self._wake(share)

        if change.batches:
            share.writes.append(_WaitingChange(change.batches, stored))
            self._store(share)
        self._leave_if_done(share)

    def _store(self, share: LedShare) -> None:
        """One write at a time; changes of clients that wait go together, as they never overlap."""
        while share.writes and not share.is_storing:
            batches, done, is_alone = share.writes.popleft()
            dones = [done]
            if not is_alone and share.writes and not share.writes[0].is_alone:
                batches = list(batches)
                while share.writes and not share.writes[0].is_alone:
                    more, done, _ = share.writes.popleft()
                    batches += more
                    dones.append(done)
            assert share.partition is not None
            change = StateWrite(
                partition=share.key.partition,
                state_epoch=share.partition.state_epoch,
                leader_epoch=share.leader_epoch,
                start_offset=share.partition.start,
                delivery_complete_count=share.partition.done_count,
                state_batches=batches,
            )
            share.is_storing = True
            self._persister.write(share.key, change, partial(self._written, share, dones))

    def _written(self, share: LedShare, dones: Iterable[Done], refusal: Refusal) -> None:
        share.is_storing = False
        error = None
        if refusal.error_code:
            error = _told(refusal.error_code, refusal.error_message)
        for done in dones:
            done(error)
        if error is not None and error.code in _GIVEN_UP_WITH:
            self.give_up(share, is_replaced=refusal.error_code is ErrorCode.FENCED_LEADER_EPOCH)
        self._store(share)
        self._leave_if_done(share)


def _nothing() -> None:
    """Nobody watches."""


def _told(code: ErrorCode, message: str | None) -> KafkaError:
    return KafkaError(_TOLD.get(code, ErrorCode.UNKNOWN_SERVER_ERROR), message or "")


def _named(share: LedShare) -> str:
    return f"share group {share.key.group_id!r}, {share.name}-{share.key.partition}"
