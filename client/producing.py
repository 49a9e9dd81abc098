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
partition that has acknowledged nothing yet only one batch; a later producer of the same transactional id
fences this one, which is `Fenced`. What is refused for good is a `ClientError` and leaves the producer
unusable.

Here is the way of the batches; `transaction_manager` has the producer id and the transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from odradek.client.client_error import ClientError, Disconnected
from odradek.client.cluster import Cluster, leader_of
from odradek.client.connection import Connection, Pending
from odradek.client.patience import Patience
from odradek.client.transaction_manager import (
    TRANSACTION_TIMEOUT_MS,
    Records,
    TopicPartition,
    TransactionManager,
)
from odradek.client.transaction_manager import (
    Fenced as Fenced,
)
from odradek.wire._records import read_batch_header
from odradek.wire.errors import ErrorCode, error_of, is_retriable
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

REQUESTS_UNDER_WAY = 5
"""On a connection. Brokers recognise a batch that comes again among the last five of its partition."""
REQUEST_BYTES = 1 << 20
"""Batches for one broker are gathered up to this; a larger one goes alone."""
ACKS_ALL = -1
ACKS_LEADER = 1

_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_OUT_OF_ORDER_MAX = 2
"""How often a batch that has nothing unsettled before it may be out of order until that is the end."""


@dataclass(slots=True, eq=False)
class Placement:
    """Where a batch that was handed to `send` is in the log: its records have consecutive offsets."""

    topic: str
    partition: int
    record_count: int
    base_offset: int = -1
    """Offset of the first record, from `flush` on. -1 stays where the broker knows that it has the batch, but
    not any more where: after five younger batches in the partition."""


class _Batch:
    """A batch with its sequence number, until it is acknowledged."""

    __slots__ = ("content", "failure", "key", "number", "out_of_order", "placement")

    def __init__(self, key: TopicPartition, number: int, content: bytearray, placement: Placement) -> None:
        self.key, self.number, self.content, self.placement = key, number, content, placement
        self.failure: ClientError | None = None
        self.out_of_order = 0

    @property
    def record_count(self) -> int:
        return read_batch_header(self.content).record_count


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
        acks: int = ACKS_ALL,
    ) -> None:
        """`acks` may be ACKS_LEADER: then what the leader alone has is acknowledged, and lost with it."""
        assert acks in (ACKS_ALL, ACKS_LEADER)
        self._cluster, self._acks = cluster, acks
        self._transactions = TransactionManager(cluster, transactional_id, transaction_timeout_ms)
        self._sent_batches = 0
        self._gathered: dict[Connection, _Gathered] = {}
        self._under_way: deque[_Sent] = deque()
        self._failed: list[_Batch] = []
        self._patience = Patience(cluster.settings)
        self.written_count = 0
        """Records that were acknowledged."""

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
        """Fences the earlier producer of the transactional id, and aborts its open transaction.

        Returns producer id and epoch. What the earlier producer had committed is committed when this returns.
        """
        return self._transactions.initialize()

    def begin(self) -> None:
        """Begins a transaction; the brokers learn of it with the first write."""
        self._transactions.begin()

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commits offset and metadata of each partition for the group, if the transaction is committed."""
        self._transactions.send_offsets(group, offsets)

    def commit(self) -> None:
        """Flushes and commits; when it returns that is decided, and readers with read_committed see it all as
        soon as each partition has its marker, a moment later."""
        self._transactions.check()
        assert self._transactions.is_open
        self.flush()
        self._transactions.end(committed=True)

    def abort(self) -> None:
        """Aborts what there is of the transaction; what was not flushed is forgotten."""
        assert self._transactions.is_open
        self._gathered.clear()
        while self._under_way:
            self._receive()  # so that nothing of it arrives behind the abort
        self._failed.clear()
        self._transactions.abort()

    # Writing

    def send(self, records: Records) -> Placement:
        """Hands over a batch; it is sent with others for the same broker, and answered for by `flush`, which
        also fills in where it is."""
        key = records.topic, records.partition
        content = self._transactions.make_batch(records)
        self._sent_batches += 1
        placement = Placement(*key, records.record_count)
        self._gather(_Batch(key, self._sent_batches, content, placement))
        self._recover()
        return placement

    def flush(self) -> None:
        """Returns when everything is acknowledged."""
        self._transactions.check()
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
            raise self._transactions.failed(error) from None
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
            self._transactions.add_partitions(gathered.batches.keys())
            request = self._produce_request(gathered.batches.values())
            version = connection.version_of(ProduceRequest, self._transactions.version_max(ProduceRequest))
            pending = connection.send(request, version)
        except Disconnected as error:
            for batch in gathered.batches.values():
                self._fail(batch, error)
            return
        except ClientError as error:
            raise self._transactions.failed(error) from None
        self._under_way.append(_Sent(connection, pending, gathered.batches))

    def _make_room(self, connection: Connection, gathered: _Gathered) -> None:
        """Receives until another request may go out on this connection.

        A broker takes any sequence number from a producer that it does not know: the first batch of a
        partition is settled before the second one goes out.
        """
        first = {key for key in gathered.batches if key not in self._transactions.acknowledged}
        while (
            sum(sent.connection is connection for sent in self._under_way) >= REQUESTS_UNDER_WAY
            or any(first & sent.batches.keys() for sent in self._under_way)
        ) and self._under_way:
            self._receive()

    def _receive(self) -> None:
        """Takes the response to the oldest request."""
        sent = self._under_way.popleft()
        try:
            response = sent.connection.receive(sent.pending)
        except Disconnected as error:
            for batch in sent.batches.values():
                self._fail(batch, error)
            return
        left = dict(sent.batches)
        for topic in response.responses:
            for one in topic.partition_responses:
                key = topic.name, one.index
                if key in left:
                    self._settle(left.pop(key), one)
        for batch in left.values():
            self._fail(batch, ClientError(f"{leader_of(*batch.key)} left it out of its answer"))

    def _settle(self, batch: _Batch, response: Any) -> None:
        code = error_of(response.error_code)
        if code in _WRITTEN:
            # Of a batch that came again among the last five the broker tells where the first one is.
            batch.placement.base_offset = response.base_offset
            self.written_count += batch.record_count
            self._transactions.acknowledged.add(batch.key)
            self._patience.renew()
            return
        doing = f"writing to topic {batch.key[0]}, partition {batch.key[1]}"
        self._fail(batch, self._transactions.refusal(doing, code, response.error_message))

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
                    raise self._transactions.failed(failure)
            elif failure.code is not None and not is_retriable(failure.code):
                raise self._transactions.failed(failure)
            else:
                self._cluster.failed(leader_of(*batch.key), failure)
            seen.add(batch.key)

    def _pause(self, batch: _Batch) -> None:
        assert batch.failure is not None
        try:
            self._patience.pause(f"writing to topic {batch.key[0]}, partition {batch.key[1]}", batch.failure)
        except ClientError as error:
            raise self._transactions.failed(error) from batch.failure

    # Requests

    def _produce_request(self, batches: Any) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topic, partition = batch.key
            one = PartitionProduceData(index=partition, records=batch.content)
            topics.setdefault(topic, []).append(one)
        return ProduceRequest(
            transactional_id=self._transactions.transactional_id,
            acks=self._acks,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )
