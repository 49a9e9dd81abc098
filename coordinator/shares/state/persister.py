"""Interface of the share coordinator, wherever it is, for share groups and share partitions.

A share partition is one partition of a topic as one share group reads it. Its state has a start offset (all
records before it are done), and batches of offsets after it with their delivery state and count. The state
epoch counts how often the state was initialized or altered from outside; the leader epoch is that of the
partition. Writes with an older one are fenced.

What is written and read is said by the messages of the wire. A `StateWrite` is a change: its batches replace
what was known of their offsets. What is kept comes as a `ShareState`, whose batches are in the order of their
offsets and do not overlap, or as a `StateSummary`. Error codes are of `ErrorCode`.

Each method calls `then` once, perhaps before it returns. The implementation retries what is passing (a
coordinator that moves or loads), and gives up in the end with its code.

Source: KIP-932, Persister and DefaultStatePersister of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from odradek.wire.errors import ErrorCode
from odradek.wire.messages.read_share_group_state import PartitionResult as ShareState
from odradek.wire.messages.read_share_group_state_summary import PartitionResult as StateSummary
from odradek.wire.messages.write_share_group_state import PartitionData as StateWrite
from odradek.wire.schema import uuid_to_text

UNINITIALIZED_OFFSET = -1
"""A start offset that the leader has to find out by `share.auto.offset.reset`."""
NO_DELIVERY_COUNT = -1
"""A number of records that are done, where it is not known."""


class DeliveryState(IntEnum):
    """Delivery state of records."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Never stored."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Until the record is in the dead letter queue (KIP-1191), or that was tried in vain."""
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


class InitialState(NamedTuple):
    partition: SharePartitionKey
    state_epoch: int
    start_offset: int
    """UNINITIALIZED_OFFSET: by `share.auto.offset.reset`."""


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

    def write(
        self, partition: SharePartitionKey, change: StateWrite, then: Callable[[Refusal], None]
    ) -> None:
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
