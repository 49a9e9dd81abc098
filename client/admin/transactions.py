"""Transactions and producers: what is open, who writes, and ending a transaction that nobody ends."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.client.admin.asking import Refused, all_brokers, ask_each, ask_in_batches
from odradek.client.admin.topics import TopicDescription
from odradek.client.client_error import ClientError, refusal
from odradek.client.cluster import Cluster, Coordinator, Leader, TopicPartition, coordinator_of, leader_of
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
HANGING_SECONDS = 900
"""The longest time that brokers let a transaction take, as they come (transaction.max.timeout.ms)."""
AT_ONCE = 500
"""Transactions or partitions in one request."""


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its open transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    """None: no transaction is open."""
    partitions: list[TopicPartition]
    """Partitions in the open transaction, sorted."""
    coordinator: int | None
    """None: it was not looked for."""


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as the leader of a partition has it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    """Timestamp of the last record, -1 for none."""
    coordinator_epoch: int
    """Coordinator epoch of the last marker; -1: there was none."""
    transaction_start_offset: int | None
    """None: it has no open transaction here."""


# Transactional ids ------------------------------------------------------------------------------------


def list_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Collection[int] = (),
    silent: list[Refused] | None = None,
) -> list[ListedTransaction]:
    """Transactions that the user may see, sorted: each broker lists those that it coordinates. One that does
    not answer is added to `silent`; without that, ClientError."""
    found: list[ListedTransaction] = []
    request = ListTransactionsRequest(state_filters=[*states], producer_id_filters=sorted(producer_ids))
    for broker, response in ask_each(cluster, all_brokers(cluster), request, silent):
        if response.error_code != ErrorCode.NONE:
            raise refusal(f"listing the transactions of broker {broker}", response.error_code)
        found += [
            ListedTransaction(one.transactional_id, one.producer_id, one.transaction_state, broker)
            for one in response.transaction_states
        ]
    return sorted(found, key=lambda one: one.transactional_id)


def describe_transactions(
    cluster: Cluster, transactions: Iterable[ListedTransaction | str]
) -> tuple[list[TransactionDescription], list[Refused]]:
    """The transactions, in the order given; ids that are no more, or that may not be seen, are refused."""
    found: list[TransactionDescription] = []
    refused: list[Refused] = []
    for name, (response, coordinator) in _described(cluster, [*transactions]).items():
        code = error_of(response.error_code)
        if code == ErrorCode.NONE:
            found.append(_transaction(response, coordinator))
        else:
            refused.append(Refused(name, refusal(f"describing transaction {name}", code)))
    return found, refused


def _described(
    cluster: Cluster, transactions: Sequence[ListedTransaction | str]
) -> dict[str, tuple[Any, int | None]]:
    """The response for each id, and its coordinator. Where that is not known it is looked up, one by one."""
    found: dict[str, tuple[Any, int | None]] = {}
    for first in range(0, len(transactions), AT_ONCE):
        some = transactions[first : first + AT_ONCE]
        nodes = {one.transactional_id: one.coordinator for one in some if isinstance(one, ListedTransaction)}
        responses = ask_in_batches(cluster, nodes, _coordinator, _request, _states)
        for one in some:
            if isinstance(one, ListedTransaction):
                found[one.transactional_id] = responses[one.transactional_id], one.coordinator
            else:
                (response,) = cluster.ask(_coordinator(one), _request([one])).transaction_states
                found[one] = response, None
    return found


def _request(transactional_ids: list[str]) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=transactional_ids)


def _states(response: Any) -> Iterator[tuple[str, Any]]:
    return ((one.transactional_id, one) for one in response.transaction_states)


def _coordinator(transactional_id: str) -> Coordinator:
    return coordinator_of("transaction", transactional_id)


def _transaction(one: Any, coordinator: int | None) -> TransactionDescription:
    # One that has ended keeps the time at which it began.
    is_open = one.transaction_state in OPEN_STATES and one.transaction_start_time_ms >= 0
    return TransactionDescription(
        one.transactional_id,
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        one.transaction_timeout_ms,
        one.transaction_start_time_ms if is_open else None,
        sorted((topic.topic, partition) for topic in one.topics for partition in topic.partitions),
        coordinator,
    )


# Producers --------------------------------------------------------------------------------------------


def leaders_of(topics: Iterable[TopicDescription]) -> dict[TopicPartition, int]:
    """The leader of each partition, for `describe_producers`; -1 for none."""
    return {(topic.name, one.partition): one.leader for topic in topics for one in topic.partitions}


def describe_producers(
    cluster: Cluster, leaders: Mapping[TopicPartition, int]
) -> tuple[list[ProducerState], list[Refused]]:
    """The producers of each partition, sorted by partition and id. Partitions without a leader, or that the
    user may not read, are refused."""
    refused = [
        Refused(f"{topic}-{partition}", ClientError(f"{topic}-{partition} has no leader at the moment"))
        for (topic, partition), leader in leaders.items()
        if leader < 0
    ]
    led = [(key, leader) for key, leader in sorted(leaders.items()) if leader >= 0]
    found: list[ProducerState] = []
    for first in range(0, len(led), AT_ONCE):
        nodes = dict(led[first : first + AT_ONCE])
        responses = ask_in_batches(cluster, nodes, _leader, _producers_request, _producers)
        for (topic, partition), response in responses.items():
            name = f"{topic}-{partition}"
            if response.error_code != ErrorCode.NONE:
                failure = refusal(
                    f"reading the producers of {name}", response.error_code, response.error_message
                )
                refused.append(Refused(name, failure))
            found += sorted(
                (_producer(topic, partition, one) for one in response.active_producers),
                key=lambda one: one.producer_id,
            )
    return found, refused


def _leader(key: TopicPartition) -> Leader:
    return leader_of(*key)


def _producers_request(partitions: list[TopicPartition]) -> DescribeProducersRequest:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
    )


def _producers(response: Any) -> Iterator[tuple[TopicPartition, Any]]:
    return (((topic.name, one.partition_index), one) for topic in response.topics for one in topic.partitions)


def _producer(topic: str, partition: int, one: Any) -> ProducerState:
    start = one.current_txn_start_offset
    return ProducerState(
        topic,
        partition,
        one.producer_id,
        one.producer_epoch,
        one.last_sequence,
        one.last_timestamp,
        one.coordinator_epoch,
        start if start >= 0 else None,
    )


# Transactions that nobody ends ------------------------------------------------------------------------


def hanging(
    cluster: Cluster, producers: Iterable[ProducerState]
) -> tuple[list[tuple[ProducerState, str | None]], list[Refused]]:
    """Producers whose transaction in the partition is unknown to its coordinator, so that it will never end;
    with the transactional id, if one has this producer id."""
    suspects = [one for one in producers if one.transaction_start_offset is not None]
    if not suspects:
        return [], []
    listed = list_transactions(cluster, producer_ids={one.producer_id for one in suspects})
    described, refused = describe_transactions(cluster, listed)
    by_producer = {one.producer_id: one for one in described}
    not_told = {one.name for one in refused}
    unknown = {one.producer_id for one in listed if one.transactional_id in not_told}
    found = []
    for one in suspects:
        if one.producer_id in unknown:
            continue
        known = by_producer.get(one.producer_id)
        if known is None or (one.topic, one.partition) not in known.partitions:
            found.append((one, known.transactional_id if known else None))
    return found, refused


def abort_transaction(cluster: Cluster, producer: ProducerState) -> None:
    """Ends the transaction of the producer in this one partition, as if its coordinator had said so: its
    records there are those of an aborted transaction. ClientError for a refusal."""
    topic = WritableTxnMarkerTopic(name=producer.topic, partition_indexes=[producer.partition])
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[topic],
        # A leader takes no marker of an older coordinator than that of the last one.
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )
    target = leader_of(producer.topic, producer.partition)
    response = cluster.ask(target, WriteTxnMarkersRequest(markers=[marker]))
    for result in response.markers:
        for of in result.topics:
            for one in of.partitions:
                if one.error_code != ErrorCode.NONE:
                    doing = f"aborting the transaction of producer {producer.producer_id} in {target}"
                    raise refusal(doing, one.error_code)
