"""Requests to the coordinator of transactions on their way to it, and what is in the responses.

`take` gets the response, or the refusal. `version` is that of transactions, which the coordinator knows by
the version of a request: 2 of EndTxn 5, and of partitions that are added by producing (KIP-890), else 0."""

from odradek.apis import describe_transactions, end_txn, init_producer_id
from odradek.apis.coordinators import asked_by
from odradek.apis.transaction_requests import asked_to_add, request_to_add
from odradek.coordinator.asked import Asked, Client
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest


def client(api_version: int) -> Client:
    return Client("client", "/host", api_version)


def init_producer(take, transactional_id, timeout_ms, producer_id=-1, producer_epoch=-1) -> Asked:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return asked_by(client(5), init_producer_id.API.refuse, request, take)


def add_partitions(
    take, transactional_id, producer_id, producer_epoch, partitions, version=0, *, verify_only=False
) -> Asked:
    producer = producer_id, producer_epoch
    request = request_to_add(transactional_id, producer, partitions, verify_only=verify_only)
    return asked_to_add(request, client(5 if version >= 2 else 3), take)


def verify_partitions(take, *fields) -> Asked:
    """Those of `add_partitions`."""
    return add_partitions(take, *fields, verify_only=True)


def end_transaction(take, transactional_id, producer_id, producer_epoch, commit, version=0) -> Asked:
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=commit,
    )
    return asked_by(client(5 if version >= 2 else 4), end_txn.API.refuse, request, take)


def describe(take, transactional_id) -> Asked:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    return asked_by(client(0), describe_transactions.refused, request, take)


def id_in(asked: Asked) -> str:
    """The transactional id of a request."""
    match asked.request:
        case AddPartitionsToTxnRequest(transactions=[transaction]):
            return transaction.transactional_id
        case DescribeTransactionsRequest(transactional_ids=[transactional_id]):
            return transactional_id
    return asked.request.transactional_id


def codes_in(response) -> dict[tuple[str, int], ErrorCode]:
    """Of partitions that were verified."""
    return {
        (topic.name, one.partition_index): one.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for one in topic.results_by_partition
    }
