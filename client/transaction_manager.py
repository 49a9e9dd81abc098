"""The producer id of a producer, the sequence numbers of its batches, and its transaction.

Both rules of transactions are known: where the brokers' feature transaction.version is 2 (KIP-890) the first
write makes a partition part of the transaction, and the end of a transaction raises the epoch; else a request
adds the partitions (KIP-98).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from odradek.client.client_error import ClientError, refusal
from odradek.client.cluster import ANY_NODE, Cluster, coordinator_of
from odradek.client.connection import SOFTWARE_NAME
from odradek.client.patience import Patience
from odradek.wire.errors import ErrorCode, error_of, is_retriable
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.records import add_to_sequence
from odradek.wire.schema import Message
from odradek.wire.version import __version__

TRANSACTION_TIMEOUT_MS = 900_000
"""The default of the brokers' limit, transaction.max.timeout.ms."""

_V2_VERSIONS: dict[type[Message], int] = {
    ProduceRequest: 12,
    TxnOffsetCommitRequest: 5,
    EndTxnRequest: 5,
}
"""The first version of each request that follows the rules of transaction.version 2."""
_VERSIONS_MAX: dict[type[Message], int] = {ProduceRequest: 12, TxnOffsetCommitRequest: 5}
"""From the next one on topics go by their ids."""
_ADD_PARTITIONS_VERSION_MAX = 3
"""From version 4 on the request is for brokers."""
_FENCED = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)

TopicPartition = tuple[str, int]


class Fenced(ClientError):
    """Another producer has the transactional id now, or the transaction was aborted as it took too long."""


class Records(Protocol):
    """Argument of `send`; `gathering.RecordsOfPartition` is one."""

    topic: str
    partition: int

    @property
    def record_count(self) -> int: ...

    def batch(
        self, *, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
    ) -> bytearray: ...


class TransactionManager:
    """Transactions of one producer; with `transactional_id` None only producer id and sequences."""

    def __init__(self, cluster: Cluster, transactional_id: str | None, transaction_timeout_ms: int) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._coordinator = coordinator_of("transaction", transactional_id or "")
        self._id, self._epoch = -1, -1
        self._is_v2 = False
        self.is_open = False
        """Whether a transaction has begun and not ended."""
        self._is_involved = False
        """Whether the coordinator may know of something in the transaction, so that it has to be ended."""
        self._partitions: set[TopicPartition] = set()
        """Partitions that a request added to the transaction."""
        self._groups: set[str] = set()
        self._sequences: dict[TopicPartition, int] = {}
        self.acknowledged: set[TopicPartition] = set()
        """Partitions that have a batch of this producer id and epoch."""
        self._failure: ClientError | None = None

    def failed(self, failure: ClientError) -> ClientError:
        """From now on the producer is unusable, until it aborts."""
        self._failure = failure
        return failure

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # Producer id and sequence numbers

    def initialize(self) -> tuple[int, int]:
        """Producer id and epoch for the transactional id."""
        assert self.transactional_id is not None
        self._is_v2 = self._has_transactions_v2()
        self._take_id(self._coordinator)
        return self._id, self._epoch

    def make_batch(self, records: Records) -> bytearray:
        """With the next sequence numbers of its partition."""
        self.check()
        assert self.is_open or self.transactional_id is None
        if self._id < 0:
            self._take_id(ANY_NODE)
        key = records.topic, records.partition
        sequence = self._sequences.get(key, 0)
        batch = records.batch(
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=self.is_open,
        )
        self._sequences[key] = add_to_sequence(sequence, records.record_count)
        return batch

    def _take_id(self, target: Any) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._transaction_timeout_ms
        )
        response = self._cluster.ask(target, request)
        if response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise ClientError(
                f"the broker allows no transaction of {self._transaction_timeout_ms} ms: set "
                "kafka.transaction.timeout.ms to no more than its transaction.max.timeout.ms",
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            )
        self._demand(response.error_code, "asking for a producer id")
        self._take_epoch(response.producer_id, response.producer_epoch)

    def _take_epoch(self, producer_id: int, producer_epoch: int) -> None:
        if (producer_id, producer_epoch) != (self._id, self._epoch):
            self._id, self._epoch = producer_id, producer_epoch
            self._sequences.clear()
            self.acknowledged.clear()

    # Transaction

    def begin(self) -> None:
        self.check()
        assert self._id >= 0
        assert not self.is_open
        self.is_open = True

    def add_partitions(self, keys: Any) -> None:
        """To the transaction, where their first batch does not do that."""
        if not self.is_open:
            return
        self._is_involved = True
        new = [key for key in keys if key not in self._partitions]
        if self._is_v2 or not new:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in new:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=self.transactional_id or "",
            v3_and_below_producer_id=self._id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
            ],
        )
        doing = f"adding topic {new[0][0]}, partition {new[0][1]} to the transaction"
        patience = Patience(self._cluster.settings)
        while (code := self._partitions_refused(request)) != ErrorCode.NONE:
            if not is_retriable(code):
                self._demand(code, doing)
            failure = refusal(doing, code)
            self._cluster.failed(self._coordinator, failure)
            patience.pause(doing, failure)
        self._partitions.update(new)

    def _partitions_refused(self, request: AddPartitionsToTxnRequest) -> ErrorCode:
        """The first cause: errors that follow from another partition's error count last."""
        response = self._cluster.ask(self._coordinator, request, version_max=_ADD_PARTITIONS_VERSION_MAX)
        codes = {
            error_of(one.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        } - {ErrorCode.NONE}
        reasons = codes - {ErrorCode.OPERATION_NOT_ATTEMPTED} or codes
        return min(reasons, key=is_retriable, default=ErrorCode.NONE)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        self.check()
        assert self.is_open
        assert self.transactional_id is not None
        if not self._is_v2 and group not in self._groups:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._id,
                producer_epoch=self._epoch,
                group_id=group,
            )
            self._is_involved = True
            response = self._cluster.ask(self._coordinator, request)
            self._demand(response.error_code, f"adding group {group} to the transaction")
            self._groups.add(group)
        self._is_involved = True
        response = self._cluster.ask(
            coordinator_of("group", group),
            self._offsets_request(group, offsets),
            version_max=self.version_max(TxnOffsetCommitRequest),
        )
        for topic in response.topics:
            for one in topic.partitions:
                self._demand(one.error_code, f"committing the offset of group {group} in the transaction")

    def _offsets_request(
        self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]
    ) -> TxnOffsetCommitRequest:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), (offset, metadata) in offsets.items():
            one = TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
            topics.setdefault(topic, []).append(one)
        assert self.transactional_id is not None
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self._id,
            producer_epoch=self._epoch,
            member_id="",
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=of) for name, of in topics.items()],
        )

    def end(self, *, committed: bool) -> None:
        if self._is_involved:
            assert self.transactional_id is not None
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._id,
                producer_epoch=self._epoch,
                committed=committed,
            )
            response = self._cluster.ask(
                self._coordinator, request, version_max=self.version_max(EndTxnRequest)
            )
            self._demand(response.error_code, f"{'committing' if committed else 'aborting'} the transaction")
            if self._is_v2 and response.producer_id >= 0:
                self._take_epoch(response.producer_id, response.producer_epoch)
        self.is_open = self._is_involved = False
        self._partitions.clear()
        self._groups.clear()

    def abort(self) -> None:
        """Also after a failure, which is over then."""
        self._failure = None
        used = self._id, self._epoch
        self.end(committed=False)
        if used == (self._id, self._epoch):
            # The brokers may have missed sequence numbers: begin again, with a new epoch.
            self._take_id(self._coordinator)

    # Versions and refusals

    def _has_transactions_v2(self) -> bool:
        """Whether the brokers have finalized transaction.version 2, and serve its requests."""
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        response = self._cluster.ask(self._coordinator, request)
        levels = {one.name: one.max_version_level for one in response.finalized_features}
        versions = {one.api_key: one.max_version for one in response.api_keys}
        return levels.get("transaction.version", 0) >= 2 and all(
            versions.get(request_class.api_key, -1) >= first for request_class, first in _V2_VERSIONS.items()
        )

    def version_max(self, request_class: type[Message]) -> int | None:
        if self.transactional_id is not None and not self._is_v2:
            return _V2_VERSIONS[request_class] - 1
        return _VERSIONS_MAX.get(request_class)

    def refusal(self, doing: str, code: int, message: str | None = None) -> ClientError:
        error = error_of(code)
        if error in _FENCED and self.transactional_id is not None:
            return Fenced(
                f"{doing} was refused: {error.name}. Another attempt writes as {self.transactional_id} now, "
                f"or the transaction took longer than kafka.transaction.timeout.ms "
                f"({self._transaction_timeout_ms})",
                error,
            )
        if error == ErrorCode.MESSAGE_TOO_LARGE:
            return ClientError(
                f"{doing} was refused: the batch is larger than the topic's max.message.bytes; raise that, "
                "or set kafka.batch.size below it if no single row is as large",
                error,
            )
        return refusal(doing, error, message)

    def _demand(self, code: int, doing: str) -> None:
        if code != ErrorCode.NONE:
            raise self.failed(self.refusal(doing, code))
