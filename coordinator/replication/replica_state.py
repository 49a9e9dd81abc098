"""The leader's side of one partition: its followers, the high watermark, the ISR, what acks=all waits for.

The high watermark is where the shortest log ends among the leader, the maximal ISR and those followers that
are about to come into the ISR. It never goes down while this node leads, and does not move while the ISR is
smaller than `min.insync.replicas`: a replica that left such an ISR may still be elected (KAFKA-15583,
KIP-966), so nothing may be committed without it.

Each call that can move something returns effects, to be carried out in order before the next call.

Source: `Partition.scala` and `Replica.scala` of Kafka, KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from odradek.coordinator.replication._led import FollowerState
from odradek.coordinator.replication.in_sync import (
    UNKNOWN_BROKER_EPOCH,
    AlteredIsr,
    AlterIsr,
    InSync,
)
from odradek.coordinator.replication.transitions import Known
from odradek.coordinator.replication.values import (
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    Brokers,
    BrokerState,
    PartitionMetadata,
    ReplicaKey,
    ReplicaLog,
)
from odradek.wire.errors import ErrorCode, KafkaError

REJECTED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The change was not made, and the partition is as the leader knows it: what is committed holds."""
AWAITS_VIEW = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Nobody knows whether the change was made, by a request before perhaps: it stays pending."""


class LeaderSettings(Protocol):
    """Read each time, as they may change while the node runs."""

    @property
    def replica_lag_time_max_ms(self) -> int: ...

    @property
    def min_insync_replicas(self) -> int:
        """`min.insync.replicas` of the topic."""


class BeginEpoch(NamedTuple):
    """Note in the leader epochs, durably, that `leader_epoch` begins at `start_offset`. A follower may have
    an epoch that is newer than all records here, and must hear where to cut (KAFKA-7415).
    """

    key: ReplicaKey
    leader_epoch: int
    start_offset: int


class HighWatermark(NamedTuple):
    """The high watermark is now `offset`: wake those who wait for it."""

    key: ReplicaKey
    offset: int


LeaderEffect = BeginEpoch | HighWatermark | AlterIsr
"""An `AlterIsr` goes to the `AlterPartitionQueue`."""


class DivergingEpoch(NamedTuple):
    """Where the follower's log parts from the leader's."""

    epoch: int
    end_offset: int


class FollowerRead(NamedTuple):
    """Range that a follower's fetch may read: nothing where its log diverges, else up to the end of the log.

    `log_end_offset` is the one before the read: appends after it do not keep the follower out of sync.
    """

    log_end_offset: int
    diverging: DivergingEpoch | None = None


class LeaderState:
    """See the module. It leads from the first `lead` to `resign`, and may do so again."""

    def __init__(
        self, key: ReplicaKey, node_id: int, log: ReplicaLog, brokers: Brokers, settings: LeaderSettings
    ) -> None:
        self.key = key
        self.node_id = node_id
        self.log = log
        self.brokers = brokers
        self.settings = settings
        self.leader_epoch = UNKNOWN_EPOCH
        self.partition_epoch = UNKNOWN_EPOCH
        self.epoch_start_offset = UNKNOWN_OFFSET
        self.followers: dict[int, FollowerState] = {}
        self.in_sync = InSync(frozenset())
        self.is_leading = False

    @property
    def known(self) -> Known:
        return Known(self.leader_epoch, self.partition_epoch)

    # Views

    def lead(self, view: PartitionMetadata, now_ms: int) -> list[LeaderEffect]:
        """This node leads by that view: for the first time, in a new epoch, or with another ISR."""
        if view.partition_epoch < self.partition_epoch:
            return []
        effects: list[LeaderEffect] = []
        is_new_epoch = view.leader_epoch > self.leader_epoch
        self._assign(view.replicas)
        if self._replaces_isr(view, is_new_epoch):
            self.in_sync = InSync(frozenset(view.isr))
        if is_new_epoch:
            effects.append(self._begin_epoch(view, now_ms))
        self.partition_epoch = view.partition_epoch
        self.is_leading = True
        return effects + self._advance(now_ms)

    def _replaces_isr(self, view: PartitionMetadata, is_new_epoch: bool) -> bool:
        """A view that came before the pending change, and comes once more, says nothing about it."""
        return is_new_epoch or self.in_sync.pending is None or view.partition_epoch > self.partition_epoch

    def _assign(self, replicas: Iterable[int]) -> None:
        self.followers = {
            replica_id: self.followers.get(replica_id) or FollowerState()
            for replica_id in replicas
            if replica_id != self.node_id
        }

    def _begin_epoch(self, view: PartitionMetadata, now_ms: int) -> BeginEpoch:
        start_offset = self.log.log_end_offset
        self.followers = {
            replica_id: self._follower_of_new_epoch(replica_id, view, now_ms) for replica_id in self.followers
        }
        self.leader_epoch = view.leader_epoch
        self.epoch_start_offset = start_offset
        return BeginEpoch(self.key, view.leader_epoch, start_offset)

    def _follower_of_new_epoch(self, replica_id: int, view: PartitionMetadata, now_ms: int) -> FollowerState:
        """Its log end is unknown, also where this node led before: in an epoch that it has not heard of the
        follower may have been cut. (Kafka keeps the log end there, and may commit what one in sync lacks.)
        Who is in sync is given time to fetch.
        """
        return FollowerState(now_ms) if replica_id in view.isr else FollowerState()

    def resign(self, known: Known) -> None:
        """Another leads, or nobody, by a view with these epochs: nothing of this time is left."""
        self.leader_epoch, self.partition_epoch = known
        self.epoch_start_offset = UNKNOWN_OFFSET
        self.followers = {}
        self.in_sync = InSync(frozenset())
        self.is_leading = False

    # Fetches of followers

    def check_follower(self, replica_id: int, leader_epoch: int) -> None:
        """Refuses with NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH. A replica that
        this leader does not know may be known in a later view: it tries again (KAFKA-13837).
        """
        if not self.is_leading:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if 0 <= leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if leader_epoch > self.leader_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if replica_id not in self.followers:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if leader_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(
                code, f"{replica_id} does not replicate {self.key} in epoch {self.leader_epoch}."
            )

    def read_for_follower(
        self, replica_id: int, leader_epoch: int, fetch_offset: int, last_fetched_epoch: int
    ) -> FollowerRead:
        """Range that this fetch may read. Refuses as `check_follower`, and with OFFSET_OUT_OF_RANGE."""
        self.check_follower(replica_id, leader_epoch)
        log = self.log
        end_offset = log.log_end_offset
        diverging = None
        if last_fetched_epoch >= 0:
            epoch, epoch_end_offset = log.end_offset_for_epoch(last_fetched_epoch)
            if UNKNOWN_EPOCH in (epoch, epoch_end_offset):
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {last_fetched_epoch} is unknown here")
            if epoch < last_fetched_epoch or epoch_end_offset < fetch_offset:
                diverging = DivergingEpoch(epoch, epoch_end_offset)
        if fetch_offset < log.log_start_offset or (diverging is None and fetch_offset > end_offset):
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {fetch_offset} is not in the range of {self.key}: "
                f"[{log.log_start_offset}, {end_offset}].",
            )
        return FollowerRead(end_offset, diverging)

    def fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        read: FollowerRead,
        now_ms: int,
    ) -> list[LeaderEffect]:
        """The follower's log ends at `fetch_offset`: note it when its request comes, not at a second reading
        of a long poll. Only after a read that was good: a failed one (KAFKA-8400) and one of a diverging log
        (KAFKA-13141) say nothing about what the follower has.

        Refuses with NOT_LEADER_OR_FOLLOWER a request of an earlier life of that broker.
        """
        if read.diverging is not None:
            return []
        self._check_broker_epoch(replica_id, broker_epoch)
        self.followers[replica_id].fetched(
            fetch_offset, log_start_offset, broker_epoch, read.log_end_offset, now_ms
        )
        effects = self._expand(replica_id)
        return effects + self._advance(now_ms)

    def _check_broker_epoch(self, replica_id: int, broker_epoch: int) -> None:
        broker = self._live(replica_id)
        if broker is not None and UNKNOWN_BROKER_EPOCH < broker_epoch < broker.epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"A fetch of broker {replica_id} has its epoch {broker_epoch}, now it is {broker.epoch}.",
            )

    def _live(self, replica_id: int) -> BrokerState | None:
        broker = self.brokers(replica_id)
        return None if broker is None or broker.is_fenced else broker

    # The high watermark

    def appended(self, now_ms: int) -> list[LeaderEffect]:
        """The log has grown. With an ISR of one the high watermark is its end."""
        return self._advance(now_ms) if self.is_leading else []

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, at most the number of replicas."""
        return min(self.settings.min_insync_replicas, len(self.followers) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.in_sync.isr) < self.min_isr

    def _advance(self, now_ms: int) -> list[LeaderEffect]:
        if self.is_under_min_isr:
            return []
        offset = end_offset = self.log.log_end_offset
        maximal = self.in_sync.maximal
        for replica_id, follower in self.followers.items():
            if follower.log_end_offset < offset and (
                replica_id in maximal or self._is_joining(replica_id, follower, end_offset, now_ms)
            ):
                offset = follower.log_end_offset
        return [HighWatermark(self.key, offset)] if offset > self.log.high_watermark else []

    def _is_joining(self, replica_id: int, follower: FollowerState, end_offset: int, now_ms: int) -> bool:
        """Whether to wait for it, as else it might run after the high watermark for ever."""
        lag_ms_max = self.settings.replica_lag_time_max_ms
        return follower.is_caught_up(end_offset, now_ms, lag_ms_max) and self._is_eligible(replica_id)

    # The ISR

    def _is_eligible(self, replica_id: int) -> bool:
        """May be in the ISR: neither fenced nor shutting down (KIP-841), and its log end is that of its
        present life (KIP-903).
        """
        broker = self._live(replica_id)
        if broker is None or broker.is_in_shutdown:
            return False
        return self.followers[replica_id].broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.epoch)

    def _expand(self, replica_id: int) -> list[LeaderEffect]:
        in_sync = self.in_sync
        if in_sync.pending is not None or replica_id in in_sync.isr:
            return []
        if not self._is_eligible(replica_id) or not self._has_caught_up(self.followers[replica_id]):
            return []
        return self._alter(in_sync.isr | {replica_id})

    def _has_caught_up(self, follower: FollowerState) -> bool:
        """The high watermark alone does not do: after an election it may be below what is committed, but the
        start of the epoch is not (KAFKA-7128).
        """
        return follower.log_end_offset >= max(self.log.high_watermark, self.epoch_start_offset)

    def shrink(self, now_ms: int) -> list[LeaderEffect]:
        """Remove from the ISR those that lag. To be called every half of `replica.lag.time.max.ms`."""
        if not self.is_leading or self.in_sync.pending is not None:
            return []
        end_offset, lag_ms_max = self.log.log_end_offset, self.settings.replica_lag_time_max_ms
        slow = {
            replica_id
            for replica_id in self.in_sync.isr - {self.node_id}
            if (follower := self.followers.get(replica_id)) is None
            or not follower.is_caught_up(end_offset, now_ms, lag_ms_max)
        }
        return self._alter(self.in_sync.isr - slow) if slow else []

    def _alter(self, isr: frozenset[int]) -> list[LeaderEffect]:
        new_isr = tuple((replica_id, self._broker_epoch_of(replica_id)) for replica_id in sorted(isr))
        change = AlterIsr(self.key, self.leader_epoch, self.partition_epoch, new_isr)
        self.in_sync = InSync(self.in_sync.isr, change)
        return [change]

    def _broker_epoch_of(self, replica_id: int) -> int:
        if replica_id == self.node_id:
            broker = self.brokers(replica_id)
            return UNKNOWN_BROKER_EPOCH if broker is None else broker.epoch
        follower = self.followers.get(replica_id)
        if follower is None or follower.broker_epoch is None:
            return UNKNOWN_BROKER_EPOCH
        return follower.broker_epoch

    def altered(self, change: AlterIsr, result: AlteredIsr | ErrorCode, now_ms: int) -> list[LeaderEffect]:
        """The controller's response. One to a change that a view has overtaken is dropped."""
        if self.in_sync.pending is not change:
            return []
        if isinstance(result, AlteredIsr):
            return self._take(result, now_ms)
        if result in REJECTED:
            self.in_sync = InSync(self.in_sync.isr)
            return self._advance(now_ms)
        return [] if result in AWAITS_VIEW else [change]

    def _take(self, response: AlteredIsr, now_ms: int) -> list[LeaderEffect]:
        """Takes the new ISR. A response of another epoch is ignored: the change stays pending until the view
        that is on its way."""
        if response.leader_epoch != self.leader_epoch or response.partition_epoch < self.partition_epoch:
            return []
        self.in_sync = InSync(frozenset(response.isr))
        self.partition_epoch = response.partition_epoch
        return self._advance(now_ms)

    # Produce

    def check_append(self, *, by_all: bool) -> None:
        """Refuses with NOT_LEADER_OR_FOLLOWER, and with NOT_ENOUGH_REPLICAS an append with acks=all to an ISR
        that is too small.
        """
        if not self.is_leading:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if by_all and self.is_under_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def acknowledgement(self, next_offset: int, leader_epoch: int) -> ErrorCode | None:
        """Error code for a produce with acks=all that was appended in `leader_epoch`, up to `next_offset`;
        None: it still waits for the high watermark. The same for a duplicate: its original, too, may not be
        committed yet. Never NOT_ENOUGH_REPLICAS_AFTER_APPEND: with an ISR that is too small the high
        watermark stands still, and the response comes as soon as it moves.
        """
        if not self.is_leading or leader_epoch != self.leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < next_offset:
            return None
        return ErrorCode.NONE

    # Readers and deletion

    @property
    def has_offsets(self) -> bool:
        """Whether ListOffsets may tell the latest offset. Until the high watermark has come to the start of
        this epoch it may be lower than it was, so the response is OFFSET_NOT_AVAILABLE (KIP-207).
        """
        return self.log.high_watermark >= self.epoch_start_offset

    def low_watermark(self) -> int:
        """Where the records begin on all live replicas: DeleteRecords is done when its offset is not after
        it. -1 while a live one has not fetched.
        """
        starts = [
            follower.log_start_offset
            for replica_id, follower in self.followers.items()
            if self._live(replica_id) is not None
        ]
        return min([self.log.log_start_offset, *starts])
