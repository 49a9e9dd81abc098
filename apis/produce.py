"""Produce (key 0, versions 0 to 13): record batches into partitions.

Each partition is asked in turn and refuses for itself; what was accepted is staged, and the answer waits
for the commit at the end of the loop's turn. From version 3 on a partition brings exactly one batch of
format v2, stored as it came; versions 0 to 2 may bring message sets of v0 and v1, which are converted.

A request with a transactional id goes by `apis/transaction_verification.py` first, which hands it back with
what the coordinator has said of its partitions. A transactional batch in a request without such an id is
refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Followers do not exist yet, so acks=all waits for this node
only; `min.insync.replicas` is checked against the ISR that the cluster's view has.

Source: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords, ProduceRequest.validateRecords of
Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Layout
from typing import TYPE_CHECKING

from odradek.apis.api import Waiting
from odradek.apis.leadership import Leadership, add_endpoint, leader_hint
from odradek.apis.produce_shortcut import shortcut
from odradek.coordinator.topics import INTERNAL_TOPICS
from odradek.wire.batch_validation import InvalidRecords
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo, RequestContext, Shortcut
    from odradek.apis.transaction_verification import TransactionVerification, Verdicts
    from odradek.apis.turn import Turn
    from odradek.storage.partition import Appended, Partition

ADMIN_CLIENT_ID = "__admin_client"
"""The client id with which Kafka's own tools may write to internal topics."""

FIRST_VERSION_OF_V2_ONLY = 3
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_LEADER = 10
FIRST_VERSION_WITH_IDS = 13

_ACKS = (-1, 1, 0)
_ZSTD = 4
_CODEC_MASK = 0b111
_TRANSACTIONAL = 0b10000
_BATCH_SIZE_AND_ATTRIBUTES = Layout(">i4xb4xh")
_BATCH_SIZE_OFFSET = 8
_SMALLEST_BATCH_BYTES = 61
_SIZE_FIELDS_BYTES = 12
_MAGIC_OFFSET = 16
_SMALLEST_LEGACY_BODY_BYTES = 14
_SAYS_LOG_START = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""The refusals of a log that carry its first offset all the same (ReplicaManager.appendRecordsToLeader)."""


class _NotOneBatch(KafkaError):
    """What came is not one v2 batch; found out before any log was asked."""


class Unverified(KafkaError):
    """A batch of a transaction that its coordinator does not vouch for; found out before any log was asked.

    `explanation` is told to the client, if there is one.
    """

    def __init__(self, code: ErrorCode, explanation: str | None = None) -> None:
        super().__init__(code, explanation)
        self.explanation = explanation


class ProduceAnswer(Waiting):
    """The answer to one request: complete when every partition that staged something has been committed.

    It is itself what the turn calls for the first of them, so that most requests need no other object.
    """

    __slots__ = ("connection", "pending", "response", "single")

    def __init__(self, response: ProduceResponse) -> None:
        # What Waiting.__init__ does, spelt out: this is the hot path.
        self._clean_up = None
        self._deliver = None
        self._response = None
        self._settled = False
        self.response = response
        self.connection: ConnectionInfo | None = None
        """Set when the client expects no answer (acks=0); an error then closes the connection."""
        self.pending = 0
        self.single: PartitionProduceResponse | None = None
        """The first partition that staged something: the one whose commit calls the answer itself."""

    def __call__(self, error: KafkaError | None) -> None:
        assert self.single is not None
        self.settle(self.single, error)

    def settle(self, partition: PartitionProduceResponse, error: KafkaError | None) -> None:
        """One partition's commit went well, or failed with `error`."""
        if error is not None:
            _refuse(partition, error)
            if self.connection is not None:
                self.connection.close(f"produce without acknowledgement failed: {error}")
                self.connection = None
        self.pending -= 1
        if self.pending == 0:
            self.complete(self.response)


class _StagedPartition:
    """One partition among several of a request, called when its commit is done."""

    __slots__ = ("answer", "partition")

    def __init__(self, answer: ProduceAnswer, partition: PartitionProduceResponse) -> None:
        self.answer = answer
        self.partition = partition

    def __call__(self, error: KafkaError | None) -> None:
        self.answer.settle(self.partition, error)


class Produce:
    """The handler. `verification()` is asked when the first transactional request comes."""

    __slots__ = ("_leadership", "_turn", "_verification")

    def __init__(
        self, leadership: Leadership, turn: Turn, verification: Callable[[], TransactionVerification]
    ) -> None:
        self._leadership = leadership
        self._turn = turn
        self._verification = verification

    def shortcut(self) -> Shortcut:
        """The short way of ordinary requests (see `apis/produce_shortcut.py`)."""
        return shortcut(self._leadership, self._turn)

    def __call__(
        self, request: ProduceRequest, context: RequestContext, verdicts: Verdicts | None = None
    ) -> ProduceResponse | Waiting | None:
        """`verdicts` come with a request in a transaction that has been verified."""
        acks = request.acks
        whole_refusal = None
        if acks not in _ACKS:
            whole_refusal = KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        elif request.transactional_id is not None and verdicts is None:
            return self._verification()(request, context, self)
        version = context.api_version
        now_ms = context.now_ms
        response = ProduceResponse(responses=[])
        answer = ProduceAnswer(response)
        append = self._append
        add = self._turn.add
        last_error: KafkaError | None = None
        for topic_data in request.topic_data:
            partitions: list[PartitionProduceResponse] = []
            response.responses.append(
                TopicProduceResponse(
                    name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=partitions
                )
            )
            name = topic_data.name if version < FIRST_VERSION_WITH_IDS else self._name_of(topic_data.topic_id)
            for data in topic_data.partition_data:
                partition = PartitionProduceResponse(index=data.index, error_code=0, base_offset=-1)
                partitions.append(partition)
                if whole_refusal is not None:
                    last_error = whole_refusal
                    _refuse(partition, whole_refusal)
                    continue
                try:
                    log, appended = append(name, data, version, acks, context.client_id, now_ms, verdicts)
                except KafkaError as error:
                    last_error = error
                    self._explain(partition, error, name, response, context)
                    continue
                partition.base_offset = appended.base_offset
                partition.log_append_time_ms = appended.log_append_time_ms
                partition.log_start_offset = appended.log_start_offset
                answer.pending += 1
                if answer.single is None:
                    answer.single = partition
                    add(log, answer, appended.must_flush)
                else:
                    add(log, _StagedPartition(answer, partition), appended.must_flush)
        if acks == 0:
            if last_error is not None:
                context.connection.close(f"a produce request without acknowledgement failed: {last_error}")
            else:
                answer.connection = context.connection
            return None
        return answer if answer.pending else response

    def _append(
        self,
        name: str | None,
        data,
        version: int,
        acks: int,
        client_id: str | None,
        now_ms: int,
        verdicts: Verdicts | None,
    ) -> tuple[Partition, Appended]:
        """Checks what the request's version asks of a batch and stages it."""
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        led = self._leadership.lead(name, data.index)
        records = data.records
        if version >= FIRST_VERSION_OF_V2_ONLY:
            records = _single_v2_batch(records, version, verdicts is not None)
        elif records is None:
            raise _NotOneBatch(ErrorCode.INVALID_RECORD)
        verified = None if verdicts is None else verdicts.of(name, data.index)
        if name in INTERNAL_TOPICS and client_id != ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log = led.log
        if acks == -1 and len(led.view.isr) < min(log.config.min_insync_replicas, len(led.view.replicas)):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        if version < FIRST_VERSION_OF_V2_ONLY:
            return log, log.append(records, now_ms=now_ms, magic_limit=1 if version == 2 else 0)
        if verified is not None:
            return log, log.append(records, now_ms=now_ms, transactions=verified)
        return log, log.append(records, now_ms=now_ms)

    def _name_of(self, topic_id: bytes) -> str | None:
        return self._leadership.view.topic_names.get(topic_id)

    def _explain(
        self,
        partition: PartitionProduceResponse,
        error: KafkaError,
        name: str | None,
        response: ProduceResponse,
        context: RequestContext,
    ) -> None:
        """Fills in a refusal with all that Kafka tells beside its code."""
        _refuse(partition, error)
        code = error.code
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and context.api_version >= FIRST_VERSION_WITH_LEADER:
            hint = leader_hint(self._leadership, name, partition.index, context.connection)
            if hint is not None:
                partition.current_leader = LeaderIdAndEpoch(
                    leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
                )
                add_endpoint(response.node_endpoints, NodeEndpoint, hint)
        if isinstance(error, InvalidRecords):
            partition.error_message = error.message
            partition.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in error.record_errors
            ]
        if isinstance(error, Unverified):
            partition.error_message = error.explanation
            return
        if name is not None and code in _SAYS_LOG_START and not isinstance(error, _NotOneBatch):
            partition.log_start_offset = self._leadership.lead(name, partition.index).log.log_start_offset


def _refuse(partition: PartitionProduceResponse, error: KafkaError) -> None:
    partition.error_code = error.code
    partition.base_offset = -1
    partition.log_append_time_ms = -1
    partition.log_start_offset = -1


def _single_v2_batch(records, version: int, may_be_transactional: bool):
    """From version 3 on a partition brings one batch of format v2; zstd and transactions have limits.

    The common case is one look at three header fields; what they do not explain is looked at again.
    """
    size = 0 if records is None else len(records)
    if size >= _SMALLEST_BATCH_BYTES:
        batch_size, magic, attributes = _BATCH_SIZE_AND_ATTRIBUTES.unpack_from(records, _BATCH_SIZE_OFFSET)
        if magic == 2 and batch_size + _SIZE_FIELDS_BYTES == size:
            if attributes & _CODEC_MASK == _ZSTD and version < FIRST_VERSION_WITH_ZSTD:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if attributes & _TRANSACTIONAL and not may_be_transactional:
                # Of a request without a transactional id Kafka says so.
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return records
    return _single_v2_batch(_without_torn_end(records, size), version, may_be_transactional)


def _without_torn_end(records, size: int):
    """The first batch, if what follows it is too little to be another; refuses all else.

    Kafka's iterator over batches ends where a batch is not whole, and the rest is cut away. Whatever it would
    find wrong is told with its error.
    """
    first_end = _end_of_batch(records, 0, size)
    if first_end is None or records[_MAGIC_OFFSET] < 2:
        raise _NotOneBatch(ErrorCode.INVALID_RECORD)
    if _end_of_batch(records, first_end, size) is not None:
        raise _NotOneBatch(ErrorCode.INVALID_RECORD)
    if first_end < _SMALLEST_BATCH_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
    return records[:first_end]


def _end_of_batch(records, start: int, size: int) -> int | None:
    """Where the batch at `start` ends, None if it is not whole; CORRUPT_MESSAGE if its header is nonsense."""
    if size - start < _SIZE_FIELDS_BYTES:
        return None
    batch_size = int.from_bytes(
        records[start + _BATCH_SIZE_OFFSET : start + _SIZE_FIELDS_BYTES], "big", signed=True
    )
    if batch_size < _SMALLEST_LEGACY_BODY_BYTES:
        raise _unreadable(f"A record batch claims {batch_size} bytes.")
    if size - start <= _MAGIC_OFFSET:
        return None
    if records[start + _MAGIC_OFFSET] > 2:
        raise _unreadable(f"A record batch claims the format {records[start + _MAGIC_OFFSET]}.")
    end = start + _SIZE_FIELDS_BYTES + batch_size
    return end if end <= size else None


def _unreadable(why: str) -> InvalidRecords:
    """Of a nonsensical header Kafka says what is wrong with it; of a wrong checksum it does not."""
    return InvalidRecords(ErrorCode.CORRUPT_MESSAGE, why, ())
