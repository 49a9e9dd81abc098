"""The state machine over one partition of `__transaction_state`: transactional ids and their transactions.

Durable state changes in one place only, `_apply`. `replay` calls it with each record of the log, and a
command calls it with the record that it appends: the state after loading a log is the state that wrote it
(but for `Transaction.last_producer_epoch`, which no record has).

The end of a transaction has two records. The first decides it, and is what the client waits for; then the
markers are written, and once each partition has its own the second is written. In between requests are
refused with CONCURRENT_TRANSACTIONS, as in Kafka. A coordinator that is loaded in between writes all markers
again, which does no harm. A marker that cannot be written is tried again for as long as its topic exists,
less and less often. But where a partition has seen a later coordinator (TRANSACTION_COORDINATOR_FENCED),
nothing more is written for this transaction until it is loaded again, with the coordinator's new epoch.

Source: TransactionCoordinator.scala, TransactionStateManager.scala and
TransactionMarkerRequestCompletionHandler.scala of Kafka 4.3; KIP-98, KIP-360, KIP-890. Different here:

- A partition that answers a marker with INVALID_PRODUCER_EPOCH is past this transaction, and counts as done.
  Kafka leaves the transaction as it is until the coordinator is loaded again.
- An InitProducerId that is repeated after its response was lost (KIP-360) is recognised each time, also where
  the epochs were used up; Kafka knows it once, or not at all.
- A transaction with the longest possible time-out also times out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from odradek.coordinator.asked import Asked
from odradek.coordinator.effects import Append, Effect, LogRecord, Reply, SetTimer, WriteMarkers
from odradek.coordinator.transactions import record_codec
from odradek.coordinator.transactions.endings import RETRY_MARKERS, Ending, MarkerRetries, MarkersWritten
from odradek.coordinator.transactions.queries import TransactionQueries
from odradek.coordinator.transactions.settings import TransactionSettings
from odradek.coordinator.transactions.state import (
    COMES_FROM,
    EPOCH_BUMP_SINCE,
    EPOCH_MAX,
    LAST_CLIENT_EPOCH,
    TopicPartition,
    Transaction,
    TransactionState,
)
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.list_transactions import ListTransactionsRequest

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, COMPLETE_COMMIT = TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT
COMPLETE = (COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

TimerKey = tuple[str, ...]
ABORT_TIMED_OUT: TimerKey = ("abort_timed_out",)
REMOVE_EXPIRED: TimerKey = ("remove_expired",)

ADDED_BY_BROKERS_SINCE = 4
"""Version of AddPartitionsToTxn from which only brokers send it, for transaction version 2."""
ENDED_WITH_BUMP_SINCE = 5
"""Version of EndTxn of clients with transaction version 2."""
ABORTS_PER_TURN = 200
"""Transactions past their time-out that are ended in one turn."""
IDS_PER_TURN = 5_000
"""Ids that are looked at for expiration in one turn."""
TOMBSTONES_PER_APPEND = 1_000
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 30
"""More than a record's own lengths, deltas and attributes ever take."""
LATER_FIELDS_BYTES = 32
"""More than a transaction's record grows by when it is ended."""
MARKER_DONE = frozenset(
    {
        NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        # The producer cannot have written there.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Responses after which a partition needs no marker any more."""

logger = logging.getLogger("odradek.coordinator")


class TransactionMachine:
    """See `coordinator/effects.py` for how to run it. Load: `replay` each record, then `start` once.

    `leader_epoch` is that of the partition: partitions refuse the markers of an older coordinator.
    `new_producer_id` gives an id that no producer ever had, or raises KafkaError.
    """

    def __init__(
        self, settings: TransactionSettings, leader_epoch: int, new_producer_id: Callable[[], int]
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        """By transactional id."""
        self._settings = settings
        self._leader_epoch = leader_epoch
        self._new_producer_id = new_producer_id
        self._ongoing: dict[str, None] = {}
        """The ids with an open transaction: those that can time out."""
        self._ending: dict[str, Ending] = {}
        self._retries = MarkerRetries()
        self._expiring: Iterator[str] | None = None
        """The ids that the search for expired ones has still to look at."""
        self._queries = queries = TransactionQueries(self.transactions, self._ending)
        self._handlers: dict[type, Callable[[Any, int, list[Effect]], None]] = {
            AddPartitionsToTxnRequest: self._add_partitions,
            EndTxnRequest: self._end_transaction,
            InitProducerIdRequest: self._init_producer,
            DescribeTransactionsRequest: queries.describe,
            ListTransactionsRequest: queries.list_all,
        }

    def handle(self, command: Asked[Any, Any] | MarkersWritten, now_ms: int) -> list[Effect]:
        """Carry out a command. A request is about one transactional id, but for ListTransactions."""
        out: list[Effect] = []
        if isinstance(command, MarkersWritten):
            self._markers_written(command, now_ms, out)
        else:
            self._handlers[command.request.__class__](command, now_ms, out)
        return out

    def expire(self, timer_key: TimerKey, now_ms: int) -> list[Effect]:
        """A timer is due, at its time or later."""
        out: list[Effect] = []
        if timer_key == ABORT_TIMED_OUT:
            self._abort_timed_out(now_ms, out)
        elif timer_key == RETRY_MARKERS:
            self._retry_markers(now_ms, out)
        else:
            assert timer_key == REMOVE_EXPIRED, timer_key
            self._remove_expired(now_ms, out)
        return out

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take in one record of the log; a value of None deletes. Raises MalformedMessage."""
        transactional_id = record_codec.decode_key(key)
        if transactional_id is not None:
            self._apply(transactional_id, None if value is None else record_codec.decode_value(value))

    def start(self, now_ms: int) -> list[Effect]:
        """The log has been replayed: continue the ends of transactions, and start the timers."""
        out: list[Effect] = []
        for transactional_id in list(self._ending):
            self._continue_ending(transactional_id, now_ms, out)
        out.append(SetTimer(ABORT_TIMED_OUT, now_ms + self._settings.abort_timed_out_interval_ms))
        out.append(SetTimer(REMOVE_EXPIRED, now_ms + self._settings.remove_expired_interval_ms))
        return out

    def refuse_waiting(self, code: ErrorCode) -> list[Effect]:
        """No ticket waits without a record."""
        return []

    # Durable state

    def _apply(self, transactional_id: str, transaction: Transaction | None) -> None:
        """Put or (None) remove an id."""
        self._ongoing.pop(transactional_id, None)
        if self._ending.pop(transactional_id, None) is not None:
            self._retries.forget(transactional_id)
        if transaction is None:
            self.transactions.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = transaction
        if transaction.state is ONGOING:
            self._ongoing[transactional_id] = None
        elif transaction.state.is_ending:
            self._ending[transactional_id] = Ending(transaction.partitions)

    def _record(self, transactional_id: str, transaction: Transaction, now_ms: int) -> LogRecord:
        value = record_codec.encode_value(transaction, self._settings.transaction_version)
        return record_codec.encode_key(transactional_id), value, now_ms

    def _fits(self, record: LogRecord) -> bool:
        """Whether the log takes the record, and those that end what it begins."""
        key, value, _ = record
        size = len(key) + len(value or b"") + LATER_FIELDS_BYTES
        return size + BATCH_OVERHEAD_BYTES + RECORD_OVERHEAD_BYTES <= self._settings.append_max_bytes

    def _store(
        self, transactional_id: str, transaction: Transaction, record: LogRecord, out: list[Effect]
    ) -> None:
        before = self.transactions.get(transactional_id)
        state = EMPTY if before is None else before.state
        assert state in COMES_FROM[transaction.state], (transactional_id, state, transaction.state)
        self._apply(transactional_id, transaction)
        out.append(Append([record]))

    # InitProducerId

    def _init_producer(
        self, asked: Asked[InitProducerIdRequest, InitProducerIdResponse], now_ms: int, out: list[Effect]
    ) -> None:
        try:
            following = self._initialise(asked.request, now_ms, out)
        except KafkaError as error:
            response = InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
        else:
            response = InitProducerIdResponse(
                error_code=NONE, producer_id=following.producer_id, producer_epoch=following.producer_epoch
            )
        out.append(Reply(asked.ticket, response))

    def _initialise(self, asked: InitProducerIdRequest, now_ms: int, out: list[Effect]) -> Transaction:
        """Give the transactional id a producer id and a new epoch, which fences the producer before.

        INVALID_REQUEST (an empty id, or one that no record can hold; one of producer id and epoch without the
        other), INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS (its last transaction is being ended: try
        again; an open one is aborted first), PRODUCER_FENCED, or an error of the allocation of producer ids.
        """
        transactional_id, timeout_ms = asked.transactional_id, asked.transaction_timeout_ms
        assert transactional_id is not None
        if not _is_usable(transactional_id) or (asked.producer_id == -1) != (asked.producer_epoch == -1):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            # Also for a producer that had an id: the id has expired, and it gets a new one.
            producer_id = self._new_producer_id()
            following = Transaction(producer_id).initialised(
                producer_id=producer_id, epoch=0, last_epoch=-1, timeout_ms=timeout_ms, now_ms=now_ms
            )
        else:
            code = _refusal_to_initialise(transaction, asked)
            if code is NONE and transaction.state is ONGOING:
                # Its producer is fenced at once; the client tries again, and gets an epoch above that.
                self._abort(transactional_id, transaction, now_ms, out)
                code = CONCURRENT
            if code is not NONE:
                raise KafkaError(code)
            following = self._successor(transaction, asked, now_ms)
        record = self._record(transactional_id, following, now_ms)
        if not self._fits(record):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._store(transactional_id, following, record, out)
        return following

    def _successor(self, transaction: Transaction, asked: InitProducerIdRequest, now_ms: int) -> Transaction:
        """The next epoch, or the first one of a new producer id, or those of a response that was lost."""
        goes_on = asked.producer_id != -1
        if goes_on and asked.producer_epoch != transaction.producer_epoch:
            again = transaction.initialised(
                producer_id=transaction.producer_id,
                epoch=transaction.producer_epoch,
                last_epoch=transaction.last_producer_epoch,
                timeout_ms=asked.transaction_timeout_ms,
                now_ms=now_ms,
            )
            again.previous_producer_id = transaction.previous_producer_id
            return again
        is_exhausted = transaction.is_epoch_exhausted
        return transaction.initialised(
            producer_id=self._new_producer_id() if is_exhausted else transaction.producer_id,
            epoch=0 if is_exhausted else transaction.producer_epoch + 1,
            last_epoch=transaction.producer_epoch if goes_on else -1,
            timeout_ms=asked.transaction_timeout_ms,
            now_ms=now_ms,
        )

    # Partitions

    def _add_partitions(
        self,
        asked: Asked[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse],
        now_ms: int,
        out: list[Effect],
    ) -> None:
        """Add or verify the partitions of one transaction, in the form of versions 4 and later. What is said
        of all partitions is the error code of the response, which has no results then."""
        (transaction,) = asked.request.transactions
        if transaction.verify_only:
            response = self._queries.verify(transaction)
        else:
            version = 2 if asked.client.version >= ADDED_BY_BROKERS_SINCE else 0
            response = AddPartitionsToTxnResponse(error_code=self._add(transaction, version, now_ms, out))
        out.append(Reply(asked.ticket, response))

    def _add(
        self, asked: AddPartitionsToTxnTransaction, version: int, now_ms: int, out: list[Effect]
    ) -> ErrorCode:
        """Make partitions part of the transaction, and open it if there is none. All or none.

        The caller has checked that the partitions exist. For offsets of a group it is that of
        `__consumer_offsets`.

        INVALID_REQUEST, CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED;
        UNKNOWN_SERVER_ERROR when there are more than one record can hold.
        """
        transactional_id = asked.transactional_id
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.state.is_ending:
            # Before all else: the producer may already have the id of its next transaction (version 2).
            return CONCURRENT
        if transaction.producer_id != asked.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.producer_epoch != asked.producer_epoch:
            return FENCED
        added = frozenset([(topic.name, index) for topic in asked.topics for index in topic.partitions])
        if transaction.state is ONGOING and added <= transaction.partitions:
            return NONE
        following = transaction.with_partitions(added, version, now_ms)
        record = self._record(transactional_id, following, now_ms)
        if not self._fits(record):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        self._store(transactional_id, following, record, out)
        return NONE

    # EndTxn

    def _end_transaction(
        self, asked: Asked[EndTxnRequest, EndTxnResponse], now_ms: int, out: list[Effect]
    ) -> None:
        """Commit or abort. Answered when the decision is in the log; the markers are written afterwards.

        INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (being ended),
        INVALID_TXN_STATE, or an error of the allocation of producer ids.
        """
        request = asked.request
        version = 2 if asked.client.version >= ENDED_WITH_BUMP_SINCE else 0
        transaction = self.transactions.get(request.transactional_id)
        response = EndTxnResponse()
        if not request.transactional_id:
            response.error_code = ErrorCode.INVALID_REQUEST
        elif transaction is None:
            response.error_code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            judge = _check_end if version < EPOCH_BUMP_SINCE else _check_end_with_bump
            code = judge(transaction, request)
            if code is None:
                self._prepare(asked, version, transaction, now_ms, out)
                return
            response.error_code = code
            if code is NONE and version >= EPOCH_BUMP_SINCE:
                # A retry: the response that it had, or would have had.
                response.producer_id = transaction.producer_id
                response.producer_epoch = transaction.producer_epoch
        out.append(Reply(asked.ticket, response))

    def _prepare(
        self,
        asked: Asked[EndTxnRequest, EndTxnResponse],
        version: int,
        transaction: Transaction,
        now_ms: int,
        out: list[Effect],
    ) -> None:
        try:
            next_producer_id = self._next_producer_id(transaction, version)
        except KafkaError as error:
            out.append(Reply(asked.ticket, EndTxnResponse(error_code=error.code)))
            return
        request = asked.request
        prepared = transaction.prepared(
            commit=request.committed, version=version, next_producer_id=next_producer_id, now_ms=now_ms
        )
        response = EndTxnResponse(error_code=NONE)
        if version >= EPOCH_BUMP_SINCE:
            response.producer_id, response.producer_epoch = prepared.identity_afterwards
        reply = Reply(asked.ticket, response)
        self._begin_ending(request.transactional_id, prepared, now_ms, out, reply)

    def _next_producer_id(self, transaction: Transaction, version: int) -> int:
        """A new producer id if the end would use up the epochs of the present one, else -1."""
        if version >= EPOCH_BUMP_SINCE and transaction.is_epoch_exhausted:
            return self._new_producer_id()
        return -1

    def _abort(self, transactional_id: str, transaction: Transaction, now_ms: int, out: list[Effect]) -> None:
        """End an open transaction without its producer, and fence that. KafkaError."""
        version = self._settings.transaction_version
        if version < EPOCH_BUMP_SINCE:
            prepared = transaction.fenced(now_ms)
        else:
            prepared = transaction.prepared(
                commit=False,
                version=version,
                next_producer_id=self._next_producer_id(transaction, version),
                now_ms=now_ms,
            )
        self._begin_ending(transactional_id, prepared, now_ms, out)

    def _begin_ending(
        self, transactional_id: str, prepared: Transaction, now_ms: int, out: list[Effect], *replies: Reply
    ) -> None:
        self._store(transactional_id, prepared, self._record(transactional_id, prepared, now_ms), out)
        out += replies
        self._continue_ending(transactional_id, now_ms, out)

    # Markers

    def _continue_ending(self, transactional_id: str, now_ms: int, out: list[Effect]) -> None:
        """Have the markers written that are missing, or say that none is."""
        transaction, ending = self.transactions[transactional_id], self._ending[transactional_id]
        if not ending.remaining:
            completed = transaction.completed(now_ms)
            self._store(transactional_id, completed, self._record(transactional_id, completed, now_ms), out)
            return
        epoch = transaction.producer_epoch
        marker = EndMarker(
            transaction.producer_id,
            epoch,
            self._leader_epoch,
            transaction.state is PREPARE_COMMIT,
            # No epoch is above the last: it has to do where records have it already, or they would stay open.
            transaction.client_version if epoch < EPOCH_MAX else 0,
        )
        out.append(WriteMarkers(transactional_id, marker, sorted(ending.remaining)))

    def _markers_written(self, command: MarkersWritten, now_ms: int, out: list[Effect]) -> None:
        transactional_id = command.transactional_id
        ending = self._ending.get(transactional_id)
        transaction = self.transactions.get(transactional_id)
        if (
            ending is not None
            and transaction is not None
            and transaction.producer_id == command.producer_id
            and transaction.producer_epoch == command.producer_epoch
        ):
            self._count_markers(transactional_id, ending, command.results)
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in command.results.values():
                _report_given_up(transactional_id, ending)
            elif ending.remaining:
                self._retries.add(transactional_id, ending, now_ms)
                self._retries.set_timer(out)
            else:
                self._continue_ending(transactional_id, now_ms, out)
        out.append(Reply(command.ticket, NONE))

    def _count_markers(
        self, transactional_id: str, ending: Ending, results: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        for partition, code in results.items():
            if code in MARKER_DONE:
                ending.remaining.discard(partition)
            if code is not NONE:
                logger.info(
                    "transaction %.255s: marker for %s-%d refused: %s",
                    transactional_id,
                    *partition,
                    code.name,
                )

    def _retry_markers(self, now_ms: int, out: list[Effect]) -> None:
        for transactional_id in self._retries.take_due(now_ms):
            self._continue_ending(transactional_id, now_ms, out)
        self._retries.set_timer(out)

    # Time-outs

    def _abort_timed_out(self, now_ms: int, out: list[Effect]) -> None:
        due = [
            transactional_id
            for transactional_id in self._ongoing
            if _is_timed_out(self.transactions[transactional_id], now_ms)
        ]
        again_in_ms = self._settings.abort_timed_out_interval_ms
        for transactional_id in due[:ABORTS_PER_TURN]:
            try:
                self._abort(transactional_id, self.transactions[transactional_id], now_ms, out)
            except KafkaError as error:
                logger.warning(
                    "transaction %.255s has timed out, abort postponed: %s", transactional_id, error
                )
                break
        else:
            if len(due) > ABORTS_PER_TURN:
                again_in_ms = 0
        out.append(SetTimer(ABORT_TIMED_OUT, now_ms + again_in_ms))

    def _remove_expired(self, now_ms: int, out: list[Effect]) -> None:
        """Remove ids that were not used for long; some thousands are looked at in a turn."""
        if self._expiring is None:
            self._expiring = iter(list(self.transactions))
        horizon_ms = now_ms - self._settings.transactional_id_expiration_ms
        expired = []
        seen = list(islice(self._expiring, IDS_PER_TURN))
        for transactional_id in seen:
            transaction = self.transactions.get(transactional_id)
            if (
                transaction is not None
                and transaction.updated_ms <= horizon_ms
                and transaction.state.is_settled
            ):
                expired.append(transactional_id)
        self._forget(expired, now_ms, out)
        again_in_ms = 0
        if len(seen) < IDS_PER_TURN:
            self._expiring = None
            again_in_ms = self._settings.remove_expired_interval_ms
        out.append(SetTimer(REMOVE_EXPIRED, now_ms + again_in_ms))

    def _forget(self, transactional_ids: list[str], now_ms: int, out: list[Effect]) -> None:
        """Write tombstones, in batches that the log takes."""
        records: list[LogRecord] = []
        size = BATCH_OVERHEAD_BYTES
        for transactional_id in transactional_ids:
            self._apply(transactional_id, None)
            key = record_codec.encode_key(transactional_id)
            size += len(key) + RECORD_OVERHEAD_BYTES
            if records and (size > self._settings.append_max_bytes or len(records) >= TOMBSTONES_PER_APPEND):
                out.append(Append(records))
                records = []
                size = BATCH_OVERHEAD_BYTES + len(key) + RECORD_OVERHEAD_BYTES
            records.append((key, None, now_ms))
        if records:
            out.append(Append(records))


def _report_given_up(transactional_id: str, ending: Ending) -> None:
    """No record: the later coordinator ends it, or this one when it is loaded again."""
    logger.warning(
        "transaction %.255s: a partition has a marker of a later coordinator, which has to write the missing "
        "markers of %d partitions",
        transactional_id,
        len(ending.remaining),
    )


def _is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    return transaction.start_ms + transaction.timeout_ms < now_ms


def _is_usable(transactional_id: str) -> bool:
    return bool(transactional_id) and record_codec.fits_key(transactional_id)


def _refusal_to_initialise(transaction: Transaction, asked: InitProducerIdRequest) -> ErrorCode:
    """NONE if the producer may have the next epoch, after an abort if a transaction is open."""
    if transaction.state.is_ending:
        return CONCURRENT
    producer_id, epoch = asked.producer_id, asked.producer_epoch
    if producer_id == -1:
        return NONE
    # The previous id counts only where its epochs were used up: the response with the new id may be lost.
    if producer_id != transaction.producer_id and (
        producer_id != transaction.previous_producer_id or epoch < LAST_CLIENT_EPOCH
    ):
        return FENCED
    if transaction.state is ONGOING or epoch in (transaction.producer_epoch, transaction.last_producer_epoch):
        return NONE
    return FENCED


def _check_end(transaction: Transaction, asked: EndTxnRequest) -> ErrorCode | None:
    """By the rules before version 2: None if the transaction is to be ended, else the error code."""
    if transaction.producer_id != asked.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != asked.producer_epoch:
        return FENCED
    state = transaction.state
    if state.is_ending:
        return CONCURRENT
    if state is ONGOING:
        return None
    if state is EMPTY or (state is COMPLETE_COMMIT) is not asked.committed:
        return ErrorCode.INVALID_TXN_STATE
    return NONE


def _check_end_with_bump(transaction: Transaction, asked: EndTxnRequest) -> ErrorCode | None:
    """By version 2, where each end gives the producer a new epoch: an old epoch is a retry."""
    state = transaction.state
    if state.is_ending:
        return CONCURRENT
    producer_id, epoch = asked.producer_id, asked.producer_epoch
    has_old_id = (
        producer_id == transaction.previous_producer_id
        and epoch == LAST_CLIENT_EPOCH
        and transaction.producer_epoch == 0
    )
    if producer_id != transaction.producer_id and not has_old_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if state in COMPLETE and (has_old_id or epoch == transaction.producer_epoch - 1 < LAST_CLIENT_EPOCH):
        # A retry, whose response was lost.
        return NONE if (state is COMPLETE_COMMIT) is asked.committed else ErrorCode.INVALID_TXN_STATE
    if epoch != transaction.producer_epoch:
        return FENCED
    # A producer may abort without knowing whether it has a transaction at all.
    return None if state is ONGOING or not asked.committed else ErrorCode.INVALID_TXN_STATE
