"""The compiled part of a partition's leader: what followers have, and their ordinary fetches."""

from collections.abc import Callable, Container
from typing import Protocol

from odradek.coordinator.replication.in_sync import InSync
from odradek.coordinator.replication.values import Brokers, ReplicaKey, ReplicaLog

class FollowerState:
    """State of one follower, by its fetches."""

    log_end_offset: int
    log_start_offset: int
    broker_epoch: int | None
    """-1 of a follower that does not know its own; None: it has not fetched yet."""
    fetched_ms: int
    leader_end_offset: int
    """The leader's log end at that fetch."""
    caught_up_ms: int
    """The latest time at which it had all that the leader had."""
    def __init__(self, caught_up_ms: int = ...) -> None:
        """One that has not fetched. Without a time it has not been caught up, ever."""
    def fetched(
        self,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> None: ...
    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        """With an equal log it is, however long ago that was noticed (KAFKA-7152)."""

class LogEnd(Protocol):
    """An `AppendBuffer`. Another one is in its place when the log was replaced."""

    @property
    def log_end_offset(self) -> int: ...

class Watermark(Protocol):
    """A `HighWatermark`."""

    @property
    def offset(self) -> int: ...

class LedLog(Protocol):
    """The log as `LedReplica` reads it: an `Appender`."""

    @property
    def buffer(self) -> LogEnd: ...
    @property
    def high_watermark(self) -> Watermark: ...
    @property
    def log_start_offset(self) -> int: ...

class Reader(Protocol):
    """One that is told of the log."""

    def note(self, has_grown: bool) -> None:
        """The log has grown or has failed; else, only the high watermark may have moved."""

class LagSettings(Protocol):
    """See `replica_state.LeaderSettings`."""

    @property
    def replica_lag_time_max_ms(self) -> int: ...
    @property
    def min_insync_replicas(self) -> int: ...

class Leader(Protocol):
    """The state of a `LeaderState`. After a change of the view, the ISR or the epoch it has other objects."""

    key: ReplicaKey
    log: ReplicaLog
    brokers: Brokers
    leader_epoch: int
    followers: dict[int, FollowerState]
    in_sync: InSync
    is_leading: bool
    @property
    def settings(self) -> LagSettings: ...

class LedReplica:
    """The ordinary fetches of followers, decided as `LeaderState` decides them, in a fraction of its time.

    It reads `LeaderState`, and reads it again after each change: of the view, the ISR, the followers. It
    writes nothing but `FollowerState`. A fetch that is not ordinary is for `LeaderState`: of a follower that
    is not in the ISR, of another epoch, with a log that may diverge or begins elsewhere than before, of
    another life of its broker; and any of a throttled partition, and while the ISR is being changed or the
    leader epoch is not on the disk.
    """

    @property
    def key(self) -> ReplicaKey: ...
    @property
    def is_ended(self) -> bool:
        """This node has ceased to lead the partition."""
    def __init__(
        self,
        state: Leader,
        log: LedLog,
        unsaved: Container[ReplicaKey],
        is_throttled: Callable[[ReplicaKey], bool],
    ) -> None:
        """`unsaved` has the partitions whose leader epochs may not be on the disk yet; `is_throttled` is
        asked once for each view."""
    def is_plain(self, view: object) -> bool:
        """Whether neither the ISR is being changed nor the epoch being saved, and nothing is throttled.
        `view` is the newest one."""
    def is_ordinary(
        self,
        view: object,
        replica_id: int,
        broker_epoch: int,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        log_start_offset: int,
    ) -> bool:
        """Whether `LeaderState` would refuse nothing and change nothing but what the follower has, and the
        high watermark."""
    def fetched(self, replica_id: int, fetch_offset: int, now_ms: int) -> int:
        """Notes what the follower has by an ordinary fetch: see `LeaderState.fetched`. Returns the high
        watermark as it is now to be."""
    def appended(self, view: object, now_ms: int) -> int | None:
        """The high watermark as it is to be after the log has grown; None: `LeaderState` has to say it."""
    def committed(self, now_ms: int) -> int:
        """The high watermark as it is to be: the lowest log end in the ISR, and of who is about to come into
        it."""
    def is_under_min_isr(self) -> bool:
        """See `LeaderState`."""
    def kept_up(self, replica_id: int, offset: int, at_ms: int) -> None:
        """Notes late that the follower has fetched at the end of the log, at `offset`, until `at_ms`."""
    def join(self, reader: Reader) -> None:
        """`reader` is told of the log from now on."""
    def leave(self, reader: Reader) -> None: ...
    def tell(self, has_grown: bool) -> None:
        """Tells all readers."""
    def end(self) -> None:
        """This node does not lead any more. Readers are told."""
