"""Verification of transactional writes with the coordinator before they are appended (KIP-890).

Records of a transaction must never be in a partition that the coordinator does not know of, since it would
write no marker for them. So for each partition in which the producer's transaction is not open yet, the
coordinator gets a command: up to Produce 11 to check that the producer has added the partition
(AddPartitionsToTxn), from 12 on (transaction.version 2) to add it now. A refused partition is refused to the
client, with a code that the request's version knows; the others are appended.

Mostly no command is needed, or its reply comes at once. If not, later requests of the connection wait, so
that batches keep their order, and the request keeps a copy of its records, since the receive buffer is used
again. While the coordinator still ends the producer's last transaction (CONCURRENT_TRANSACTIONS), the command
is sent again: first after 1 ms, which is mostly enough, then after pauses that double each time, up to
`add.partitions.to.txn.retry.backoff.ms`, for `add.partitions.to.txn.retry.backoff.max.ms` in all.

Of many transactions that begin at the same time, only some begin in one turn of the event loop. With 50
producers in a closed loop this reduces a commit from 1.67 to 0.82 ms (p50) and from 2.7 to 1.5 (p99), and the
transactions a second by 4 % (medians of three runs of `benchmarks.transaction_load`).

Source: AddPartitionsToTxnManager.java, ReplicaManager.handleProduceAppend and
maybeSendPartitionsToTransactionCoordinator of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from odradek.apis.api import HeldBack, Waiting
from odradek.apis.transaction_requests import asked_to_add, request_to_add
from odradek.apis.unverified import Unverified
from odradek.coordinator.asked import Client
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.storage.log.transactions import Verified
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError, error_of
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from odradek.wire.produced_records import transactional_producer

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import RemoteTransactions, Transactions
    from odradek.apis.leadership import Leadership
    from odradek.apis.turn import Timers
    from odradek.wire.messages.produce import ProduceRequest, ProduceResponse

logger = logging.getLogger("odradek.apis")

FIRST_VERSION_WITH_IDS = 13
FIRST_PAUSE_MS = 1
BEGIN_PER_TURN = 4
"""Transactions that begin in one turn if more are waiting; or a quarter of them, if that is more."""
WAITING_BYTES_MAX = 65_536
"""A larger request begins at once, to avoid the copy of its records."""

BROKER = Client("", "", AddPartitionsToTxnRequest.versions[-1])
"""This broker, as it asks the coordinators of its own."""
Partition = tuple[str, int]
"""Topic and index."""


class Support(Enum):
    """The transaction support of a request's sender, by version."""

    VERIFIED = "default"
    """Partitions have to be in the transaction; there is no error code for that."""
    ABORTABLE = "generic"
    """Partitions have to be in the transaction; TRANSACTION_ABORTABLE is known."""
    ADDED = "add"
    """Partitions are added with the first write: transaction.version 2."""

    @property
    def transaction_version(self) -> int:
        return 2 if self is Support.ADDED else 0


def support_of_produce(version: int) -> Support:
    """The support of a Produce request of this version."""
    return Support.ADDED if version > 11 else Support.ABORTABLE if version > 10 else Support.VERIFIED


def support_of_offset_commit(version: int) -> Support:
    """The support of a TxnOffsetCommit request of this version."""
    return Support.ADDED if version > 4 else Support.ABORTABLE if version > 3 else Support.VERIFIED


Errors = Mapping[Partition, ErrorCode]
"""Refusals by partition."""


def ask_coordinator(
    transactions: Transactions,
    remote_transactions: Callable[[], RemoteTransactions | None],
    transactional_id: str,
    producer: tuple[int, int],
    partitions: Collection[Partition],
    support: Support,
    then: Callable[[Errors], None],
) -> None:
    """Adds the partitions to the transaction of `producer` (id and epoch), or checks that they were added.

    `then` is called once with the refusals, perhaps before this returns, with codes for producers (those of
    AddPartitionsToTxnManager).
    """
    wanted = list(partitions)
    request = request_to_add(transactional_id, producer, wanted, verify_only=support is not Support.ADDED)

    def answered(response: AddPartitionsToTxnResponse | None) -> None:
        if response is not None and not response.error_code and not response.results_by_transaction:
            then({})  # all were added
            return
        refused = _refused_in(response, wanted)
        then({partition: _producer_error(code, support) for partition, code in refused.items()})

    coordinator, remote = transactions(), remote_transactions()
    if remote is None or not remote.ask(coordinator.partition_of(transactional_id), request, answered):
        coordinator.submit(transactional_id, asked_to_add(request, BROKER, answered))


def _refused_in(
    response: AddPartitionsToTxnResponse | None, partitions: Collection[Partition]
) -> dict[Partition, ErrorCode]:
    if response is None:
        return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
    if response.error_code:
        return dict.fromkeys(partitions, error_of(response.error_code))
    return {
        (topic.name, one.partition_index): error_of(one.partition_error_code)
        for result in response.results_by_transaction
        for topic in result.topic_results
        for one in topic.results_by_partition
        if one.partition_error_code
    }


def _producer_error(code: ErrorCode, support: Support) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        # The codes that a producer expects for a partition.
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and support is Support.VERIFIED:
        return ErrorCode.INVALID_TXN_STATE
    return code


_ASK_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def _unverified(code: ErrorCode, support: Support) -> Unverified:
    """A refusal for producers. Old ones get NOT_ENOUGH_REPLICAS for codes that they would not retry: they
    retry that code, without a Metadata request."""
    if code is ErrorCode.INVALID_TXN_STATE:
        return Unverified(code, "The partition is not in the transaction.")
    if code in _ASK_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and support is not Support.ADDED):
        why = f"It is not known yet whether the partition is in the transaction: {code.name}."
        return Unverified(ErrorCode.NOT_ENOUGH_REPLICAS, why)
    return Unverified(code)


class Verdicts:
    """The verdicts on the partitions of one transactional request."""

    __slots__ = ("_found", "_refusal")

    def __init__(
        self, found: Mapping[Partition, Verified | KafkaError], refusal: KafkaError | None = None
    ) -> None:
        self._found = found
        self._refusal = refusal

    def of(self, topic: str, index: int) -> Verified | None:
        """The verification for the append of the partition's batch; KafkaError if it was refused."""
        if self._refusal is not None:
            raise self._refusal
        found = self._found.get((topic, index))
        if isinstance(found, KafkaError):
            raise found
        return found


Produce = Callable[["ProduceRequest", "RequestContext", Verdicts], "ProduceResponse | Waiting | None"]
"""Appends the allowed batches: `response | Waiting | None`."""


class TransactionVerification:
    """Takes Produce requests with a transactional id, and passes them back with verdicts."""

    __slots__ = (
        "is_enabled",
        "leadership",
        "line",
        "patience_ms",
        "pause_ms_max",
        "remote_transactions",
        "timers",
        "transactions",
    )

    def __init__(
        self,
        leadership: Leadership,
        transactions: Transactions,
        remote_transactions: Callable[[], RemoteTransactions | None],
        timers: Timers,
        *,
        is_enabled: Callable[[], bool],
        pause_ms_max: int,
        patience_ms: int,
    ) -> None:
        """Kafka's names of the last three: `transaction.partition.verification.enable` (read each time: it
        may change), `add.partitions.to.txn.retry.backoff.ms` and
        `add.partitions.to.txn.retry.backoff.max.ms`.
        """
        self.leadership = leadership
        self.transactions = transactions
        self.remote_transactions = remote_transactions
        self.timers = timers
        self.is_enabled = is_enabled
        self.pause_ms_max = pause_ms_max
        self.patience_ms = patience_ms
        self.line = _Line(timers)

    def __call__(
        self, request: ProduceRequest, context: RequestContext, produce: Produce
    ) -> ProduceResponse | Waiting | None:
        """The response of `produce(request, context, verdicts)`, now or later."""
        batches = self._transactional_batches(request, context)
        producers = {producer for producer, _ in batches.values()}
        if len(producers) > 1:
            why = "The batches of a transactional request are of more than one producer."
            refusal = Unverified(ErrorCode.INVALID_PRODUCER_ID_MAPPING, why)
            return produce(request, context, Verdicts({}, refusal))
        if not producers:
            return produce(request, context, Verdicts({}))
        sequences = {partition: sequence for partition, (_, sequence) in batches.items()}
        question = _Question(self, request, context, produce, producers.pop(), sequences)
        return question.start()

    def _transactional_batches(
        self, request: ProduceRequest, context: RequestContext
    ) -> dict[Partition, tuple[tuple[int, int], int]]:
        """Producer (id and epoch) and base sequence of each partition's batch, if transactional."""
        found = {}
        names = self.leadership.view.topic_names
        for topic in request.topic_data:
            is_named = context.api_version < FIRST_VERSION_WITH_IDS
            name = topic.name if is_named else names.get(topic.topic_id)
            if name is None or name in INTERNAL_TOPICS:
                continue  # refused by the append
            if context.refuses(Operation.WRITE, ResourceType.TOPIC, topic.name or topic.topic_id):
                continue  # likewise
            for data in topic.partition_data:
                producer = transactional_producer(data.records)
                if producer is not None:
                    found[name, data.index] = producer[:2], producer.base_sequence
        return found


class _Line:
    """Lets a few transactions begin in a turn of the event loop, the others in later ones.

    Requests that arrive meanwhile are served between the turns, so that a transaction that ends does not wait
    for all beginning ones, which would only wait for each other.
    """

    __slots__ = ("_is_busy", "_timers", "_waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_busy = False

    def must_wait(self) -> bool:
        """False for the first call in a turn."""
        if self._is_busy:
            return True
        self._is_busy = True
        self._timers.after(0, self._go_on)
        return False

    def wait(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)

    def _go_on(self) -> None:
        waiting = self._waiting
        if not waiting:
            self._is_busy = False
            return
        self._timers.after(0, self._go_on)
        for _ in range(min(len(waiting), max(BEGIN_PER_TURN, len(waiting) // 4))):
            waiting.popleft()()


class _Question:
    """One request that may have to wait for its coordinator."""

    __slots__ = (
        "_context",
        "_found",
        "_is_done",
        "_is_in_turn",
        "_patience_ms",
        "_pause_ms",
        "_produce",
        "_producer",
        "_request",
        "_response",
        "_sequences",
        "_support",
        "_verification",
        "_waiting",
    )

    def __init__(
        self,
        verification: TransactionVerification,
        request: ProduceRequest,
        context: RequestContext,
        produce: Produce,
        producer: tuple[int, int],
        sequences: Mapping[Partition, int],
    ) -> None:
        self._verification = verification
        self._request = request
        self._context = context
        self._produce = produce
        self._producer = producer
        self._sequences = sequences
        self._support = support_of_produce(context.api_version)
        self._pause_ms = FIRST_PAUSE_MS
        self._patience_ms = verification.patience_ms
        self._found: dict[Partition, Verified | KafkaError] = {}
        self._is_done = self._is_in_turn = False
        self._response: ProduceResponse | Waiting | None = None
        self._waiting: HeldBack | None = None

    def start(self) -> ProduceResponse | Waiting | None:
        """The response, or a `Waiting` for it."""
        self._ask()
        if self._is_done:
            return self._response
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = memoryview(bytearray(data.records))
        self._waiting = HeldBack()
        return self._waiting

    def _ask(self) -> None:
        """Checks every partition, and sends those without an open transaction to the coordinator."""
        verification, support = self._verification, self._support
        version = support.transaction_version
        found = self._found = {}
        unknown = []
        for partition, sequence in self._sequences.items():
            try:
                log = verification.leadership.lead(*partition).log
                begun = log.begin_verification(*self._producer, sequence, version=version)
            except KafkaError as error:
                found[partition] = _unverified(error.code, support)
                continue
            found[partition] = Verified(begun, version)
            if begun is not None:
                unknown.append(partition)
        if not unknown or not (support is Support.ADDED or verification.is_enabled()):
            self._append({})
            return
        if support is Support.ADDED and not self._is_in_turn:
            # Partitions may be checked a second time then; no check has an effect before.
            self._is_in_turn = True
            if verification.line.must_wait() and self._size_bytes() <= WAITING_BYTES_MAX:
                verification.line.wait(self._ask)
                return
        transactional_id = self._request.transactional_id
        assert transactional_id is not None
        ask_coordinator(
            verification.transactions,
            verification.remote_transactions,
            transactional_id,
            self._producer,
            unknown,
            support,
            self._retry_or_append,
        )

    def _size_bytes(self) -> int:
        topics = self._request.topic_data
        return sum(len(data.records or b"") for topic in topics for data in topic.partition_data)

    def _retry_or_append(self, errors: Errors) -> None:
        if ErrorCode.CONCURRENT_TRANSACTIONS in errors.values() and self._patience_ms > 0:
            pause_ms = min(self._pause_ms, self._patience_ms)
            self._patience_ms -= pause_ms
            self._pause_ms = min(2 * pause_ms, self._verification.pause_ms_max)
            self._verification.timers.after(pause_ms, self._ask)
            return
        self._append(errors)

    def _append(self, errors: Errors) -> None:
        """Goes on with the request, also if its connection has closed, since it was sent."""
        for partition, code in errors.items():
            self._found[partition] = _unverified(code, self._support)
        waiting = self._waiting
        if waiting is None:
            self._response = self._produce(self._request, self._context, Verdicts(self._found))
            self._is_done = True
            return
        try:
            response = self._produce(self._request, self._context, Verdicts(self._found))
        except Exception:
            logger.exception("a produce request that had waited for its coordinator failed")
            self._context.connection.close("internal error")
            response = None
        if isinstance(response, Waiting):
            waiting.leave_to(response)
        else:
            waiting.complete(response)
