"""The states of a transaction, what may follow which, and the values between which it goes.

A `Transaction` is never changed: each step makes a new one, which becomes the state once its record is on the
way to the log. So what is refused has changed nothing, and what failed is undone by loading the log.

Source: TransactionState.java and TransactionMetadata.java of Kafka 4.3; KIP-890 for version 2.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Set
from dataclasses import dataclass

TopicPartition = tuple[str, int]
"""Topic and partition number."""
EPOCH_MAX = 2**15 - 1
LAST_CLIENT_EPOCH = EPOCH_MAX - 1
"""The highest epoch that a producer gets: one more must be left to fence it with."""
EPOCH_BUMP_SINCE = 2
"""Transaction version from which every end gives the producer a new epoch."""
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class TransactionState(enum.IntEnum):
    """By the numbers that records have."""

    EMPTY = 0
    """The producer is initialised; it has no transaction yet."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided; the markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Kafka's, for an id that is being removed; not used here."""
    PREPARE_EPOCH_FENCE = 7
    """Kafka's, for the moment before an abort; not used here."""

    @property
    def label(self) -> str:
        """Name in DescribeTransactions and ListTransactions."""
        return _LABELS[self]

    @property
    def is_settled(self) -> bool:
        """Whether no transaction is open or being ended."""
        return self is _EMPTY or self is _COMPLETE_COMMIT or self is _COMPLETE_ABORT

    @property
    def is_ending(self) -> bool:
        """Whether the end is decided, and markers are to be written."""
        return self is _PREPARE_COMMIT or self is _PREPARE_ABORT


_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
_LABELS = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
_SETTLED = frozenset({_EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT})

STATES_BY_LABEL = {label: state for state, label in _LABELS.items()}

COMES_FROM: dict[TransactionState, Set[TransactionState]] = {
    _EMPTY: _SETTLED,
    _ONGOING: _SETTLED | {_ONGOING},
    _PREPARE_COMMIT: frozenset({_ONGOING}),
    # From version 2 on also without a transaction: its producer need not know whether it has one.
    _PREPARE_ABORT: _SETTLED | {_ONGOING},
    _COMPLETE_COMMIT: frozenset({_PREPARE_COMMIT}),
    _COMPLETE_ABORT: frozenset({_PREPARE_ABORT}),
    TransactionState.DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}
"""From which states each one is reached."""


def unknown_states(labels: Iterable[str]) -> list[str]:
    """Labels that name no state."""
    return sorted(set(labels) - STATES_BY_LABEL.keys())


@dataclass(slots=True)
class Transaction:
    """The state of a transactional id. Immutable."""

    producer_id: int
    previous_producer_id: int = -1
    """The producer id before the last step."""
    next_producer_id: int = -1
    """While it is ended: the next id of the producer, if its epochs are used up."""
    producer_epoch: int = -1
    last_producer_epoch: int = -1
    """The epoch before the producer requested the next one itself, -1 if it did not. No record has it: a
    retry over a restart of the coordinator is refused, as in Kafka."""
    timeout_ms: int = 0
    state: TransactionState = _EMPTY
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_ms: int = -1
    """When the last transaction began."""
    updated_ms: int = -1
    client_version: int = 0
    """The transaction version by which the last one was opened or ended."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer needs another id before it can have another epoch."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    def initialised(
        self, *, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        """A new producer, or the same one again."""
        following = self._following(_EMPTY, now_ms)
        following.producer_id = producer_id
        following.producer_epoch = epoch
        following.last_producer_epoch = last_epoch
        following.timeout_ms = timeout_ms
        following.partitions = NO_PARTITIONS
        following.start_ms = -1
        return following

    def with_partitions(self, added: Set[TopicPartition], version: int, now_ms: int) -> Transaction:
        """In the transaction, or in a new one."""
        following = self._following(_ONGOING, now_ms)
        if self.state is not _ONGOING:
            following.start_ms = now_ms
        following.partitions = self.partitions.union(added)
        following.client_version = version
        return following

    def prepared(self, *, commit: bool, version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """The end is decided. `next_producer_id` is -1 unless the epochs are used up."""
        following = self._following(_PREPARE_COMMIT if commit else _PREPARE_ABORT, now_ms)
        if version >= EPOCH_BUMP_SINCE:
            following.producer_epoch = min(self.producer_epoch + 1, EPOCH_MAX)
            following.last_producer_epoch = self.producer_epoch
        if self.state is not _ONGOING:
            following.start_ms = now_ms
        following.next_producer_id = next_producer_id
        following.client_version = version
        return following

    def fenced(self, now_ms: int) -> Transaction:
        """The coordinator aborts by the rules before version 2: the marker has a higher epoch than the
        producer, and no client gets it."""
        following = self._following(_PREPARE_ABORT, now_ms)
        following.producer_epoch = min(self.producer_epoch + 1, EPOCH_MAX)
        following.last_producer_epoch = -1
        following.next_producer_id = -1
        following.client_version = 0
        return following

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        is_commit = self.state is _PREPARE_COMMIT
        following = self._following(_COMPLETE_COMMIT if is_commit else _COMPLETE_ABORT, now_ms)
        following.producer_id, following.producer_epoch = self.identity_afterwards
        following.next_producer_id = -1
        following.partitions = NO_PARTITIONS
        return following

    @property
    def identity_afterwards(self) -> tuple[int, int]:
        """While it is ended: producer id and epoch once it is complete."""
        if self.client_version >= EPOCH_BUMP_SINCE and self.next_producer_id != -1:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def _following(self, state: TransactionState, now_ms: int) -> Transaction:
        return Transaction(
            self.producer_id,
            self.producer_id,
            self.next_producer_id,
            self.producer_epoch,
            self.last_producer_epoch,
            self.timeout_ms,
            state,
            self.partitions,
            self.start_ms,
            now_ms,
            self.client_version,
        )
