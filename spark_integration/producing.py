"""A blocking producer: idempotent, pipelined, transactional.

    with Producer(cluster, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin()
        placed = producer.send(records)  # RecordsBuffer, see `batching`
        producer.send_offsets("group", {("topic", 0): (7, "text")})
        producer.commit()
        placed.base_offset              # where they are in the log

Promises: what was flushed or committed is in the log once, in the order of `send` within a partition, however
often connections broke and leaders moved; at most five requests are under way on a connection, and of a
partition that has acknowledged nothing yet only one batch; whoever takes the transactional id over fences
this one, which is `Fenced`. What is refused for good is a `ClientError` and leaves the producer unusable.

Both rules of transactions are spoken: where the brokers' feature transaction.version is 2 (KIP-890) the first
write makes a partition part of the transaction and every end of one moves the epoch on; else partitions are
added by hand (KIP-98).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from odradek import __version__
from odradek.spark.client import (
    ANY_NODE,
    Cluster,
    Patience,
    coordinator_of,
    error_of,
    leader_of,
    refusal,
)
from odradek.spark.connection import SOFTWARE_NAME, ClientError, Connection, Disconnected, Pending
from odradek.wire.errors import ErrorCode, is_retriable
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.records import add_to_sequence
from odradek.wire.schema import Message

__all__ = ["Fenced", "Placement", "Producer", "Records"]

REQUESTS_UNDER_WAY = 5
"""On a connection. Brokers recognise a batch that comes again among the last five of its partition."""
REQUEST_BYTES = 1 << 20
"""Batches for one broker are gathered up to this; a larger one goes alone."""
TRANSACTION_TIMEOUT_MS = 900_000
"""What brokers allow at most unless told otherwise (transaction.max.timeout.ms)."""
ACKS_ALL = -1

_V2_VERSIONS: dict[type[Message], int] = {
    ProduceRequest: 12,
    TxnOffsetCommitRequest: 5,
    EndTxnRequest: 5,
}
"""The first version of each request that follows the rules of transaction.version 2."""
_PRODUCE_VERSION_MAX = 12
"""From 13 on topics go by their ids."""
_ADD_PARTITIONS_VERSION_MAX = 3
"""From 4 on it is a broker that asks."""
_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_FENCED = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_OUT_OF_ORDER_MAX = 2
"""How often a batch that has nothing unsettled before it may be out of order until that is the end."""

TopicPartition = tuple[str, int]


class Fenced(ClientError):
    """Another producer has the transactional id now, or the transaction was aborted as it took too long."""


class Records(Protocol):
    """What `send` takes; `batching.RecordsBuffer` is one."""

    topic: str
    partition: int
    record_count: int

    def batch(
        self, *, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
    ) -> bytearray: ...


@dataclass(slots=True, eq=False)
class Placement:
    """Where a batch that was handed to `send` is in the log: its records have consecutive offsets."""

    topic: str
    partition: int
    record_count: int
    base_offset: int = -1
    """Of the first record, from `flush` on. It stays -1 where the broker knows that it has the batch and not
    any more where, which takes five younger ones in the partition."""


class _Batch:
    """A batch with its sequence number, until it is acknowledged."""

    __slots__ = ("content", "failure", "key", "number", "out_of_order", "placement")

    def __init__(self, key: TopicPartition, number: int, content: bytearray, placement: Placement) -> None:
        self.key, self.number, self.content, self.placement = key, number, content, placement
        self.failure: ClientError | None = None
        self.out_of_order = 0


class _Gathered:
    """The next request to one broker."""

    __slots__ = ("batches", "size_bytes")

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, _Batch] = {}
        self.size_bytes = 0

    def has_room_for(self, batch: _Batch) -> bool:
        fits = self.size_bytes + len(batch.content) <= REQUEST_BYTES
        return batch.key not in self.batches and (fits or not self.batches)

    def add(self, batch: _Batch) -> None:
        self.batches[batch.key] = batch
        self.size_bytes += len(batch.content)


class _Sent:
    """A request under way."""

    __slots__ = ("batches", "connection", "pending")

    def __init__(self, connection: Connection, pending: Pending, batches: dict[TopicPartition, _Batch]):
        self.connection, self.pending, self.batches = connection, pending, batches


class Producer:
    """One producer of one task; see the module. `close` leaves an open transaction to whoever comes next."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._coordinator = coordinator_of("transaction", transactional_id or "")
        self._id, self._epoch = -1, -1
        self._is_v2 = False
        self._in_transaction = False
        self._is_involved = False
        """Whether the coordinator may know of something in the transaction, so that it has to be ended."""
        self._partitions: set[TopicPartition] = set()
        """Those that were added to the transaction by hand."""
        self._groups: set[str] = set()
        self._sequences: dict[TopicPartition, int] = {}
        self._acknowledged: set[TopicPartition] = set()
        self._sent_batches = 0
        self._gathered: dict[Connection, _Gathered] = {}
        self._under_way: deque[_Sent] = deque()
        self._failed: list[_Batch] = []
        self._patience = Patience(cluster.settings)
        self._broken: ClientError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forgets what was not flushed. The connections belong to the cluster."""
        self._gathered.clear()
        self._under_way.clear()
        self._failed.clear()

    @property
    def requests_in_flight(self) -> int:
        """Requests that are sent and not answered yet."""
        return len(self._under_way)

    # Transactions

    def init_transactions(self) -> tuple[int, int]:
        """Takes the transactional id over: fences who had it, and aborts what he left open.

        Returns producer id and epoch. What he had committed is committed when this returns.
        """
        assert self._transactional_id is not None
        self._is_v2 = self._has_transactions_v2()
        self._take_id(self._coordinator)
        return self._id, self._epoch

    def begin(self) -> None:
        """Begins a transaction; the brokers hear of it with the first write."""
        self._check()
        assert self._id >= 0
        assert not self._in_transaction
        self._in_transaction = True

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commits offset and metadata of each partition for the group, if the transaction is committed."""
        self._check()
        assert self._in_transaction
        assert self._transactional_id is not None
        if not self._is_v2 and group not in self._groups:
            request = AddOffsetsToTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self._id,
                producer_epoch=self._epoch,
                group_id=group,
            )
            self._is_involved = True
            answer = self._cluster.ask(self._coordinator, request)
            self._demand(answer.error_code, f"adding group {group} to the transaction")
            self._groups.add(group)
        self._is_involved = True
        answer = self._cluster.ask(
            coordinator_of("group", group),
            self._offsets_request(group, offsets),
            version_max=self._version_max(TxnOffsetCommitRequest),
        )
        for topic in answer.topics:
            for one in topic.partitions:
                self._demand(one.error_code, f"committing the offset of group {group} in the transaction")

    def commit(self) -> None:
        """Flushes and commits; when it returns that is decided, and readers with read_committed see it all as
        soon as each partition has its marker, a moment later."""
        self._check()
        assert self._in_transaction
        self.flush()
        self._end(committed=True)

    def abort(self) -> None:
        """Aborts what there is of the transaction; what was not flushed is forgotten."""
        assert self._in_transaction
        self._gathered.clear()
        while self._under_way:
            self._receive()  # so that nothing of it arrives behind the abort
        self._failed.clear()
        self._broken = None
        used = self._id, self._epoch
        self._end(committed=False)
        if used == (self._id, self._epoch):
            # Sequence numbers may have gone by that the brokers never saw: begin anew, with an epoch.
            self._take_id(self._coordinator)

    # Writing

    def send(self, records: Records) -> Placement:
        """Hands over a batch; it is sent with others for the same broker, and answered for by `flush`, which
        also fills in where it is."""
        self._check()
        assert self._in_transaction or self._transactional_id is None
        if self._id < 0:
            self._take_id(ANY_NODE)
        key = records.topic, records.partition
        sequence = self._sequences.get(key, 0)
        content = records.batch(
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=self._in_transaction,
        )
        self._sequences[key] = add_to_sequence(sequence, records.record_count)
        self._sent_batches += 1
        placement = Placement(*key, records.record_count)
        self._gather(_Batch(key, self._sent_batches, content, placement))
        self._recover()
        return placement

    def flush(self) -> None:
        """Returns when everything is acknowledged."""
        self._check()
        self._dispatch_all()
        while self._under_way:
            self._receive()
        self._recover()

    def _gather(self, batch: _Batch) -> None:
        """Into the next request to the partition's leader, which is sent where it has no room."""
        batch.failure = None
        try:
            connection = self._cluster.connect(leader_of(*batch.key))
        except Disconnected as error:
            self._fail(batch, error)
            return
        except ClientError as error:
            raise self._break(error) from None
        gathered = self._gathered.setdefault(connection, _Gathered())
        if not gathered.has_room_for(batch):
            self._dispatch(connection)
            gathered = self._gathered.setdefault(connection, _Gathered())
        gathered.add(batch)

    def _dispatch_all(self) -> None:
        for connection in [*self._gathered]:
            self._dispatch(connection)

    def _dispatch(self, connection: Connection) -> None:
        gathered = self._gathered.pop(connection)
        self._make_room(connection, gathered)
        if self._failed:
            # One of them may lie before these in a partition: all go again, in order.
            self._failed += gathered.batches.values()
            return
        try:
            self._add_partitions(gathered.batches.keys())
            request = self._produce_request(gathered.batches.values())
            version = connection.version_of(ProduceRequest, self._version_max(ProduceRequest))
            pending = connection.send(request, version)
        except Disconnected as error:
            for batch in gathered.batches.values():
                self._fail(batch, error)
            return
        except ClientError as error:
            raise self._break(error) from None
        self._under_way.append(_Sent(connection, pending, gathered.batches))

    def _make_room(self, connection: Connection, gathered: _Gathered) -> None:
        """Receives until another request may go out on this connection.

        A broker takes any sequence number from a producer that it does not know: the first batch of a
        partition is settled before the second one goes out.
        """
        first = {key for key in gathered.batches if key not in self._acknowledged}
        while (
            sum(sent.connection is connection for sent in self._under_way) >= REQUESTS_UNDER_WAY
            or any(first & sent.batches.keys() for sent in self._under_way)
        ) and self._under_way:
            self._receive()

    def _receive(self) -> None:
        """Takes the answer to the oldest request."""
        sent = self._under_way.popleft()
        try:
            answer = sent.connection.receive(sent.pending)
        except Disconnected as error:
            for batch in sent.batches.values():
                self._fail(batch, error)
            return
        left = dict(sent.batches)
        for topic in answer.responses:
            for one in topic.partition_responses:
                key = topic.name, one.index
                if key in left:
                    self._settle(left.pop(key), one)
        for batch in left.values():
            self._fail(batch, ClientError(f"{leader_of(*batch.key)} left it out of its answer"))

    def _settle(self, batch: _Batch, answer: Any) -> None:
        code = error_of(answer.error_code)
        if code in _WRITTEN:
            # Of a batch that came again among the last five the broker tells where the first one is.
            batch.placement.base_offset = answer.base_offset
            self._acknowledged.add(batch.key)
            self._patience.renew()
            return
        doing = f"writing to topic {batch.key[0]}, partition {batch.key[1]}"
        self._fail(batch, self._refusal(doing, code, answer.error_message))

    def _fail(self, batch: _Batch, failure: ClientError) -> None:
        batch.failure = failure
        self._failed.append(batch)

    # Trying again

    def _recover(self) -> None:
        """Sends what failed again, of each partition one batch after the other, until all is written."""
        if self._failed:
            self._patience.renew()
        while self._failed:
            while self._under_way:
                self._receive()
            for gathered in self._gathered.values():
                self._failed += gathered.batches.values()
            self._gathered.clear()
            waiting = sorted(self._failed, key=lambda batch: batch.number)
            self._failed = []
            self._judge(waiting)
            self._pause(next(batch for batch in waiting if batch.failure is not None))
            self._send_again(waiting)

    def _send_again(self, waiting: list[_Batch]) -> None:
        while waiting and not self._failed:
            first = {batch.key: batch for batch in reversed(waiting)}
            waiting = [batch for batch in waiting if first[batch.key] is not batch]
            for batch in sorted(first.values(), key=lambda batch: batch.number):
                self._gather(batch)
            self._dispatch_all()
            while self._under_way:
                self._receive()
        self._failed += waiting

    def _judge(self, waiting: list[_Batch]) -> None:
        """Raises what cannot become better, and forgets leaders that are none any more."""
        seen: set[TopicPartition] = set()
        for batch in waiting:
            failure = batch.failure
            if failure is None:
                pass  # it only waits for others
            elif failure.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                # Behind one that failed that is what has to be; without one, records are missing in the log.
                batch.out_of_order += batch.key not in seen
                if batch.out_of_order >= _OUT_OF_ORDER_MAX:
                    raise self._break(failure)
            elif failure.code is not None and not is_retriable(failure.code):
                raise self._break(failure)
            else:
                self._cluster.failed(leader_of(*batch.key), failure)
            seen.add(batch.key)

    def _pause(self, batch: _Batch) -> None:
        assert batch.failure is not None
        try:
            self._patience.pause(f"writing to topic {batch.key[0]}, partition {batch.key[1]}", batch.failure)
        except ClientError as error:
            raise self._break(error) from batch.failure

    # Requests

    def _produce_request(self, batches: Any) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topic, partition = batch.key
            one = PartitionProduceData(index=partition, records=batch.content)
            topics.setdefault(topic, []).append(one)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=ACKS_ALL,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )

    def _offsets_request(
        self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]
    ) -> TxnOffsetCommitRequest:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), (offset, metadata) in offsets.items():
            one = TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
            topics.setdefault(topic, []).append(one)
        assert self._transactional_id is not None
        return TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group,
            producer_id=self._id,
            producer_epoch=self._epoch,
            member_id="",
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=of) for name, of in topics.items()],
        )

    def _take_id(self, target: Any) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=self._transaction_timeout_ms
        )
        answer = self._cluster.ask(target, request)
        if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise ClientError(
                f"the broker allows no transaction of {self._transaction_timeout_ms} ms: set "
                "kafka.transaction.timeout.ms to no more than its transaction.max.timeout.ms",
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            )
        self._demand(answer.error_code, "asking for a producer id")
        self._take_epoch(answer.producer_id, answer.producer_epoch)

    def _take_epoch(self, producer_id: int, producer_epoch: int) -> None:
        if (producer_id, producer_epoch) != (self._id, self._epoch):
            self._id, self._epoch = producer_id, producer_epoch
            self._sequences.clear()
            self._acknowledged.clear()

    def _add_partitions(self, keys: Any) -> None:
        """Makes partitions part of the transaction, where their first batch does not do that."""
        if not self._in_transaction:
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
            v3_and_below_transactional_id=self._transactional_id or "",
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
        """The error that says why; one that the others share because of it counts last."""
        answer = self._cluster.ask(self._coordinator, request, version_max=_ADD_PARTITIONS_VERSION_MAX)
        codes = {
            error_of(one.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        } - {ErrorCode.NONE}
        reasons = codes - {ErrorCode.OPERATION_NOT_ATTEMPTED} or codes
        return min(reasons, key=is_retriable, default=ErrorCode.NONE)

    def _end(self, *, committed: bool) -> None:
        if self._is_involved:
            assert self._transactional_id is not None
            request = EndTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self._id,
                producer_epoch=self._epoch,
                committed=committed,
            )
            answer = self._cluster.ask(
                self._coordinator, request, version_max=self._version_max(EndTxnRequest)
            )
            self._demand(answer.error_code, f"{'committing' if committed else 'aborting'} the transaction")
            if self._is_v2 and answer.producer_id >= 0:
                self._take_epoch(answer.producer_id, answer.producer_epoch)
        self._in_transaction = self._is_involved = False
        self._partitions.clear()
        self._groups.clear()

    # Versions and refusals

    def _has_transactions_v2(self) -> bool:
        """Whether the brokers have finalized transaction.version 2, and speak it."""
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        answer = self._cluster.ask(self._coordinator, request)
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        versions = {one.api_key: one.max_version for one in answer.api_keys}
        return levels.get("transaction.version", 0) >= 2 and all(
            versions.get(request_class.api_key, -1) >= first for request_class, first in _V2_VERSIONS.items()
        )

    def _version_max(self, request_class: type[Message]) -> int | None:
        if self._transactional_id is not None and not self._is_v2:
            return _V2_VERSIONS[request_class] - 1
        return _PRODUCE_VERSION_MAX if request_class is ProduceRequest else None

    def _refusal(self, doing: str, code: int, message: str | None = None) -> ClientError:
        error = error_of(code)
        if error in _FENCED and self._transactional_id is not None:
            return Fenced(
                f"{doing} was refused: {error.name}. Another attempt writes as {self._transactional_id} now, "
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
            raise self._break(self._refusal(doing, code))

    def _break(self, failure: ClientError) -> ClientError:
        self._broken = failure
        return failure

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken
