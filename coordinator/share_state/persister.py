"""What share groups and share partitions ask the share coordinator, wherever it is.

A share partition is one partition of a topic as one share group reads it. Its state has a start offset (all
records before it are done), and batches of offsets after it with their delivery state and count. The state
epoch counts how often the state was initialized or altered from outside; the leader epoch is that of the
partition. Writes with an older one are fenced.

Each method calls `then` once, perhaps before it returns. The implementation retries what is passing (a
coordinator that moves or loads), and gives up in the end with its code.

Source: KIP-932, Persister and DefaultStatePersister of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from odradek.wire.errors import ErrorCode
from odradek.wire.schema import uuid_to_text

__all__ = [
    "NO_DELIVERY_COUNT",
    "UNINITIALIZED_OFFSET",
    "DeliveryState",
    "InitialState",
    "Persister",
    "Refusal",
    "Results",
    "SharePartitionKey",
    "ShareState",
    "StateBatch",
    "StateSummary",
    "StateWrite",
]

UNINITIALIZED_OFFSET = -1
"""A start offset that the leader has to find out by `share.auto.offset.reset`."""
NO_DELIVERY_COUNT = -1
"""A number of records that are done, where it is not known."""


class DeliveryState(IntEnum):
    """Of records. 3 is reserved by KIP-1191."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Never stored."""
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class SharePartitionKey(NamedTuple):
    """One partition as one share group reads it."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def text(self) -> str:
        """The key by which its share coordinator is found, in Kafka's form GROUP:TOPIC-ID:PARTITION."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Both offsets belong to it."""

    first_offset: int
    last_offset: int
    delivery_state: DeliveryState
    delivery_count: int


class InitialState(NamedTuple):
    partition: SharePartitionKey
    state_epoch: int
    start_offset: int
    """UNINITIALIZED_OFFSET: by `share.auto.offset.reset`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWrite:
    """A change: `batches` replace what was known of their offsets."""

    partition: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = NO_DELIVERY_COUNT
    """Of the records from the start offset on, how many are acknowledged or archived."""
    batches: Sequence[StateBatch] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """What is kept, or an error."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state_epoch: int = 0
    start_offset: int = UNINITIALIZED_OFFSET
    batches: Sequence[StateBatch] = ()
    """In the order of their offsets; none overlaps another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSummary:
    """Without the batches, or an error."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNINITIALIZED_OFFSET
    delivery_complete_count: int = NO_DELIVERY_COUNT


class Refusal(NamedTuple):
    """NONE: it was done."""

    error_code: ErrorCode
    error_message: str | None = None


Results = Mapping[SharePartitionKey, Refusal]


class Persister(Protocol):
    def initialize(self, states: Sequence[InitialState], then: Callable[[Results], None]) -> None:
        """Forgets what was there. FENCED_STATE_EPOCH: the epoch is older than the one that is kept."""

    def read(
        self, partition: SharePartitionKey, leader_epoch: int, then: Callable[[ShareState], None]
    ) -> None:
        """For a new leader: the coordinator keeps the leader epoch, and refuses older ones from now on with
        FENCED_LEADER_EPOCH."""

    def write(self, write: StateWrite, then: Callable[[Refusal], None]) -> None:
        """FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH: somebody else has gone on."""

    def delete(self, partitions: Sequence[SharePartitionKey], then: Callable[[Results], None]) -> None:
        """A state that is not there counts as deleted."""

    def summaries(
        self,
        partitions: Mapping[SharePartitionKey, int],
        then: Callable[[Mapping[SharePartitionKey, StateSummary]], None],
    ) -> None:
        """`partitions` has the leader epoch that the asker knows (-1: none). One without a state has
        UNINITIALIZED_OFFSET."""
