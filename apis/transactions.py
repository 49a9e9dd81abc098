"""Transactions as clients ask for them: AddPartitionsToTxn (key 24, versions 0 to 5), AddOffsetsToTxn (25,
0-4), EndTxn (26, 0-5), DescribeTransactions (65, 0), ListTransactions (66, 0-2).

A request becomes a command for the coordinator of its transactional id, and the coordinator's answer becomes
the response; what a producer may do is decided there. AddPartitionsToTxn has two forms: of one client up to
version 3, of a broker that asks for several transactions at once from 4 on, which may also only want to know
whether partitions are in (`verify_only`). EndTxn from version 5 on is transaction.version 2 (KIP-890): its
answer says with which id and epoch the producer goes on.

A producer that begins its next transaction while the partitions of the last one still get their markers is
told CONCURRENT_TRANSACTIONS, and pauses for 20 ms, or 100, before it asks again. Mostly it is a matter of
one: so its question is put again after 1, 2 and 4 ms before it is told.

What old versions cannot understand is told in their words: PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before
version 2 of the first three.

Source: KafkaApis and TransactionCoordinator of Kafka 4.3, TransactionVersion.java for what the version of a
request says of its sender.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek.apis.api import Waiting, WorkAnswer
from odradek.apis.groups import Gathering, Groups
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from odradek.coordinator.transactions import commands
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import describe_transactions, list_transactions
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.turn import Timers, WorkQueue
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.groups.regular_expression import RegularExpression
    from odradek.wire.work import Work

FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_OF_BROKERS = 4
FIRST_VERSION_WITH_EPOCH_BUMP = 5
PAUSES_MS = (1, 2, 4)
"""Before a client is told that its last transaction is still being ended."""

Partition = tuple[str, int]
"""Topic and index."""

MATCHED_PER_STEP = 1_000
"""Transactional ids that are held against a pattern at once: a millisecond or so."""


class Transactions(Protocol):
    """What the handlers need of `coordinator.transactions.coordinator.TransactionCoordinator`."""

    def partition_of(self, transactional_id: str) -> int: ...

    def submit(self, transactional_id: str, command: commands.TransactionCommand) -> None: ...

    def list_transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
    ) -> commands.ListTransactionsReply: ...


def _add_patiently(transactions: Transactions, timers: Timers, command: commands.AddPartitions) -> None:
    """Carries out the command, again if the transaction before is still being ended."""
    told, pauses_ms = command.ticket, iter(PAUSES_MS)

    def submit() -> None:
        transactions.submit(command.transactional_id, command)

    def hear(reply: commands.AddPartitionsReply) -> None:
        if reply.error_code is ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_ms = next(pauses_ms, None)
            if pause_ms is not None:
                timers.after(pause_ms, submit)
                return
        told(reply)

    command.ticket = hear
    submit()


class AddPartitionsToTxn:
    """The handler. One partition that does not exist keeps all of its transaction's from being added."""

    def __init__(
        self, current_view: Callable[[], ClusterView], transactions: Transactions, timers: Timers
    ) -> None:
        self._current_view = current_view
        self._transactions = transactions
        self._timers = timers

    def __call__(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> Waiting:
        version = context.api_version
        if version >= FIRST_VERSION_OF_BROKERS:
            asked = request.transactions
            gathering = Gathering(
                len(asked), lambda results: AddPartitionsToTxnResponse(results_by_transaction=results)
            )
        else:
            asked = [_of_client(request)]
            gathering = Gathering(1, _told_to_client)
        # Of an id that is named twice, Kafka adds the last partitions twice, and tells of the first twice.
        told = {transaction.transactional_id: transaction.topics for transaction in reversed(asked)}
        added = {transaction.transactional_id: transaction.topics for transaction in asked}
        for number, transaction in enumerate(asked):
            name = transaction.transactional_id
            self._ask(transaction, added[name], told[name], version, gathering.ticket(number))
        return gathering.waiting

    def _ask(
        self,
        transaction: AddPartitionsToTxnTransaction,
        topics: list[AddPartitionsToTxnTopic],
        told_topics: list[AddPartitionsToTxnTopic],
        version: int,
        answer: Callable[[AddPartitionsToTxnResult], None],
    ) -> None:
        named = ((topic.name, index) for topic in topics for index in topic.partitions)
        partitions = list(dict.fromkeys(named))
        refused = self._refused(partitions, version)
        if refused:
            not_attempted = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
            answer(_result_by_partition(transaction.transactional_id, {**not_attempted, **refused}))
            return

        def added(reply: commands.AddPartitionsReply) -> None:
            answer(_result(transactional_id, told_topics, _told(reply.error_code, version)))

        def verified(reply: commands.VerifyPartitionsReply) -> None:
            errors = dict(zip(partitions, reply.errors, strict=True))
            answer(_result_by_partition(transactional_id, errors))

        transactional_id = transaction.transactional_id
        fields = (
            transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions,
            2 if version >= FIRST_VERSION_OF_BROKERS else 0,
        )
        if transaction.verify_only:
            self._transactions.submit(transactional_id, commands.VerifyPartitions(verified, *fields))
        elif version >= FIRST_VERSION_OF_BROKERS:
            self._transactions.submit(transactional_id, commands.AddPartitions(added, *fields))
        else:
            _add_patiently(self._transactions, self._timers, commands.AddPartitions(added, *fields))

    def _refused(self, partitions: Sequence[Partition], version: int) -> dict[Partition, ErrorCode]:
        """What cannot be in a transaction. A client may write to no internal topic; its offsets come by
        AddOffsetsToTxn."""
        view = self._current_view()
        refused = {}
        for topic, index in partitions:
            if version < FIRST_VERSION_OF_BROKERS and topic in INTERNAL_TOPICS:
                refused[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif view.partition(topic, index) is None:
                refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )


def _told_to_client(results: Sequence[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _result_by_partition(
    transactional_id: str, errors: Mapping[Partition, ErrorCode]
) -> AddPartitionsToTxnResult:
    """Each partition once, with its code."""
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), code in errors.items():
        topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name, results_by_partition=[]))
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        )
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=list(topics.values()))


def _result(
    transactional_id: str, topics: list[AddPartitionsToTxnTopic], code: ErrorCode
) -> AddPartitionsToTxnResult:
    """The transaction's partitions as they were asked for, all with one code."""
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


class AddOffsetsToTxn:
    """The handler: the partition of `__consumer_offsets` that looks after the group joins the transaction."""

    def __init__(self, groups: Groups, transactions: Transactions, timers: Timers) -> None:
        self._groups = groups
        self._transactions = transactions
        self._timers = timers

    def __call__(self, request: AddOffsetsToTxnRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        version = context.api_version

        def added(reply: commands.AddPartitionsReply) -> None:
            waiting.complete(AddOffsetsToTxnResponse(error_code=_told(reply.error_code, version)))

        command = commands.AddPartitions(
            ticket=added,
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=[(OFFSETS_TOPIC, self._groups.partition_of(request.group_id))],
            version=0,
        )
        _add_patiently(self._transactions, self._timers, command)
        return waiting


class EndTxn:
    """The handler; answered when the decision is in the log, before the partitions have their markers."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __call__(self, request: EndTxnRequest, context: RequestContext) -> Waiting:
        waiting = Waiting()
        version = context.api_version

        def ended(reply: commands.EndTransactionReply) -> None:
            waiting.complete(
                EndTxnResponse(
                    error_code=_told(reply.error_code, version),
                    producer_id=reply.producer_id,
                    producer_epoch=reply.producer_epoch,
                )
            )

        command = commands.EndTransaction(
            ticket=ended,
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            commit=request.committed,
            version=2 if version >= FIRST_VERSION_WITH_EPOCH_BUMP else 0,
        )
        self._transactions.submit(request.transactional_id, command)
        return waiting


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """What a client of this version of AddPartitionsToTxn, AddOffsetsToTxn or EndTxn is told."""
    if code is ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


class DescribeTransactions:
    """The handler: each transactional id is asked of its own coordinator."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __call__(self, request: DescribeTransactionsRequest, context: RequestContext) -> Waiting:
        asked = request.transactional_ids
        gathering = Gathering(
            len(asked),
            lambda replies: DescribeTransactionsResponse(
                transaction_states=[_described(*pair) for pair in zip(asked, replies, strict=True)]
            ),
        )
        for number, transactional_id in enumerate(asked):
            command = commands.DescribeTransaction(
                ticket=gathering.ticket(number), transactional_id=transactional_id
            )
            self._transactions.submit(transactional_id, command)
        return gathering.waiting


def _described(
    transactional_id: str, reply: commands.TransactionDescription
) -> describe_transactions.TransactionState:
    topics: dict[str, TopicData] = {}
    for topic, index in sorted(reply.partitions):
        topics.setdefault(topic, TopicData(topic=topic, partitions=[])).partitions.append(index)
    return describe_transactions.TransactionState(
        error_code=reply.error_code,
        transactional_id=transactional_id,
        transaction_state=reply.state,
        transaction_timeout_ms=reply.timeout_ms,
        transaction_start_time_ms=reply.start_ms,
        producer_id=reply.producer_id,
        producer_epoch=reply.producer_epoch,
        topics=list(topics.values()),
    )


class ListTransactions:
    """The handler: the transactional ids whose coordinator this node is; `searches` is for their patterns."""

    def __init__(self, transactions: Transactions, searches: WorkQueue) -> None:
        self._transactions = transactions
        self._searches = searches

    def __call__(
        self, request: ListTransactionsRequest, context: RequestContext
    ) -> ListTransactionsResponse | WorkAnswer:
        reply = self._transactions.list_transactions(
            states=list(dict.fromkeys(request.state_filters)),
            producer_ids=frozenset(request.producer_id_filters),
            duration_ms=request.duration_filter,
        )
        pattern = request.transactional_id_pattern
        if reply.error_code is ErrorCode.NONE and pattern:
            return WorkAnswer(self._searches, self._selecting(pattern, reply), context)
        return self._response(reply)

    def _selecting(
        self, pattern: str, reply: commands.ListTransactionsReply
    ) -> Work[ListTransactionsResponse]:
        from odradek.coordinator.groups.regular_expression import RegularExpression

        try:
            expression = RegularExpression(pattern)
        except KafkaError as error:
            return ListTransactionsResponse(error_code=error.code)
        listed, reply.transactions = reply.transactions, []
        for start in range(0, len(listed), MATCHED_PER_STEP):
            some = listed[start : start + MATCHED_PER_STEP]
            reply.transactions += yield partial(_matching, expression, some)
        return self._response(reply)

    @staticmethod
    def _response(reply: commands.ListTransactionsReply) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            error_code=reply.error_code,
            unknown_state_filters=list(reply.unknown_states),
            transaction_states=[
                list_transactions.TransactionState(
                    transactional_id=one.transactional_id,
                    producer_id=one.producer_id,
                    transaction_state=one.state,
                )
                for one in reply.transactions
            ],
        )


def _matching(
    expression: RegularExpression, listed: Sequence[commands.ListedTransaction]
) -> list[commands.ListedTransaction]:
    """Those whose whole id matches. In a worker thread."""
    return [one for one in listed if expression.matches(one.transactional_id)]
