"""The commands of a transaction machine and its replies: plain values, one pair per operation.

As in `coordinator/groups/commands.py`: a command's `ticket` is in its reply, too (for the runtime it is
the function to call), every command gets exactly one answer, and `refused(code)` makes the answer of the same
shape that says only `code`.

`version` is the transaction version of the client, known from the version of its request: 2 for EndTxn 5 and
for partitions that are added by producing (KIP-890), else 0 or 1, which do the same.

The codes are those of Kafka's coordinator. What a request version did not know yet is for the handlers to
replace: PRODUCER_FENCED by INVALID_PRODUCER_EPOCH (InitProducerId below 4, AddPartitionsToTxn and
AddOffsetsToTxn and EndTxn below 2), TRANSACTION_ABORTABLE by INVALID_TXN_STATE (AddPartitionsToTxn below 5).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.wire.errors import ErrorCode

__all__ = [
    "AddPartitions",
    "AddPartitionsReply",
    "DescribeTransaction",
    "EndTransaction",
    "EndTransactionReply",
    "InitProducer",
    "InitProducerReply",
    "ListTransactions",
    "ListTransactionsReply",
    "ListedTransaction",
    "MarkersWritten",
    "MarkersWrittenReply",
    "TopicPartition",
    "TransactionCommand",
    "TransactionDescription",
    "VerifyPartitions",
    "VerifyPartitionsReply",
]

NONE = ErrorCode.NONE
TopicPartition = tuple[str, int]
"""Topic and partition number."""


@dataclass(slots=True)
class _OfTransactionalId:
    """How every command begins that goes to the machine of one transactional id."""

    ticket: Any
    transactional_id: str


@dataclass(slots=True)
class _OfProducer(_OfTransactionalId):
    """With the producer that sends it."""

    producer_id: int
    producer_epoch: int


# --- InitProducerId ---


@dataclass(slots=True)
class InitProducer(_OfTransactionalId):
    """Give the transactional id a producer id and a new epoch, which fences the producer before.

    INVALID_REQUEST (an empty id, or one that no record can hold; one of producer id and epoch without the
    other), INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS (its last transaction is being ended: try
    again; an open one is aborted first), PRODUCER_FENCED, or an error of the allocation of producer ids.
    """

    timeout_ms: int
    producer_id: int = -1
    """With the epoch: of a producer that continues with the next epoch after an error (KIP-360). -1: anew."""
    producer_epoch: int = -1
    version: int = 0

    def refused(self, code: ErrorCode) -> InitProducerReply:
        return InitProducerReply(code)


@dataclass(slots=True)
class InitProducerReply:
    error_code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1

    def refused(self, code: ErrorCode) -> InitProducerReply:
        return InitProducerReply(code)


# --- AddPartitionsToTxn, AddOffsetsToTxn ---


@dataclass(slots=True)
class AddPartitions(_OfProducer):
    """Make partitions part of the transaction, and open it if there is none. All or none.

    The caller has checked that the partitions exist. For offsets of a group it is that of
    `__consumer_offsets`.

    INVALID_REQUEST, CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED;
    UNKNOWN_SERVER_ERROR when there are more than one record can hold.
    """

    partitions: Collection[TopicPartition]
    version: int = 0

    def refused(self, code: ErrorCode) -> AddPartitionsReply:
        return AddPartitionsReply(code)


@dataclass(slots=True)
class AddPartitionsReply:
    error_code: ErrorCode
    """Of every partition."""

    def refused(self, code: ErrorCode) -> AddPartitionsReply:
        return AddPartitionsReply(code)


@dataclass(slots=True)
class VerifyPartitions(_OfProducer):
    """Check whether partitions are part of the transaction; changes nothing.

    For each: NONE, or TRANSACTION_ABORTABLE when it is not. For all: INVALID_REQUEST,
    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """

    partitions: Collection[TopicPartition]
    version: int = 0

    def refused(self, code: ErrorCode) -> VerifyPartitionsReply:
        return VerifyPartitionsReply([code] * len(self.partitions))


@dataclass(slots=True)
class VerifyPartitionsReply:
    errors: list[ErrorCode]
    """One for each entry of `VerifyPartitions.partitions`, in its order."""

    def refused(self, code: ErrorCode) -> VerifyPartitionsReply:
        return VerifyPartitionsReply([code] * len(self.errors))


# --- EndTxn ---


@dataclass(slots=True)
class EndTransaction(_OfProducer):
    """Commit or abort. Answered when the decision is in the log; the markers are written afterwards.

    INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (being ended),
    INVALID_TXN_STATE, or an error of the allocation of producer ids.
    """

    commit: bool
    """False aborts."""
    version: int = 0

    def refused(self, code: ErrorCode) -> EndTransactionReply:
        return EndTransactionReply(code)


@dataclass(slots=True)
class EndTransactionReply:
    error_code: ErrorCode
    producer_id: int = -1
    """What the producer has to use from now on; -1 below version 2, where nothing changes."""
    producer_epoch: int = -1

    def refused(self, code: ErrorCode) -> EndTransactionReply:
        return EndTransactionReply(code)


@dataclass(slots=True)
class MarkersWritten(_OfProducer):
    """What became of a `WriteMarkers`: the runtime's own command. Producer id and epoch are the marker's."""

    results: Mapping[TopicPartition, ErrorCode]
    """NONE also for a partition whose topic is deleted: there is nothing left to end."""

    def refused(self, code: ErrorCode) -> MarkersWrittenReply:
        return MarkersWrittenReply(code)


@dataclass(slots=True)
class MarkersWrittenReply:
    error_code: ErrorCode

    def refused(self, code: ErrorCode) -> MarkersWrittenReply:
        return MarkersWrittenReply(code)


# --- Administration ---


@dataclass(slots=True)
class DescribeTransaction(_OfTransactionalId):
    """INVALID_REQUEST (an empty id), TRANSACTIONAL_ID_NOT_FOUND."""

    def refused(self, code: ErrorCode) -> TransactionDescription:
        return TransactionDescription(code, self.transactional_id)


@dataclass(slots=True)
class TransactionDescription:
    error_code: ErrorCode
    transactional_id: str
    state: str = ""
    """As ListTransactions names it."""
    timeout_ms: int = 0
    start_ms: int = 0
    """When the transaction began, -1 if none has since the producer was initialised; 0 on errors."""
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: list[TopicPartition] = field(default_factory=list)
    """Of a transaction that is being ended: those that have no marker yet."""

    def refused(self, code: ErrorCode) -> TransactionDescription:
        return TransactionDescription(code, self.transactional_id)


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


@dataclass(slots=True)
class ListTransactions:
    """List the transactional ids of a machine; `TransactionCoordinator.list_transactions` lists all."""

    ticket: Any
    states: frozenset[str] = frozenset()
    """Wanted states, exactly as they are named; empty for all."""
    producer_ids: frozenset[int] = frozenset()
    """Wanted producer ids; empty for all."""
    duration_ms: int = -1
    """Only those that began longer ago; below 0 for all."""

    def refused(self, code: ErrorCode) -> ListTransactionsReply:
        return ListTransactionsReply(code)


@dataclass(slots=True)
class ListTransactionsReply:
    error_code: ErrorCode
    unknown_states: list[str] = field(default_factory=list)
    """Names of wanted states that are none."""
    transactions: list[ListedTransaction] = field(default_factory=list)

    def refused(self, code: ErrorCode) -> ListTransactionsReply:
        return ListTransactionsReply(code)


TransactionCommand = (
    InitProducer
    | AddPartitions
    | VerifyPartitions
    | EndTransaction
    | MarkersWritten
    | DescribeTransaction
    | ListTransactions
)
