"""Produce (key 0, versions 0 to 13): appends record batches to partitions.

Each partition is accepted or refused separately: for its topic id, for permission, for all else. Accepted
batches are staged, and the response waits for the commit at the end of the loop's turn. From version 3 on a
partition has exactly one batch of format v2, stored unchanged unless the topic's settings need a conversion;
versions 0 to 2 may have message sets of v0 and v1, which are converted. Long conversions run in a worker
thread, and all later appends to the partition wait for them: see `produce_gates.py`.

A request with a transactional id goes to `apis/transaction_verification.py` first, which passes it back with
the coordinator's verdict for each partition. A transactional batch in a request without such an id is refused
with TRANSACTIONAL_ID_AUTHORIZATION_FAILED; so is every partition of a request with a transactional batch and
an id that the client may not use. `min.insync.replicas` is checked against the ISR in the cluster's view.

Source: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords, ProduceRequest.validateRecords of
Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from odradek.apis.access import each, on_topics, on_transactional_ids, only
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api, Charge
from odradek.apis.leadership import (
    Leadership,
    LedPartition,
    add_endpoint,
    check_in_sync,
    leader_hint,
)
from odradek.apis.prefixes import AppendBatch, Prefix
from odradek.apis.produce_gates import Gates
from odradek.apis.refusals import Refusal, each_partition
from odradek.apis.unverified import Unverified
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.storage.log.availability import DiskFull
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.batch_validation import InvalidRecords, TakesLong
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import PLACEHOLDERS, response_template
from odradek.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.wire.produced_records import NotOneBatch, is_transactional, single_batch

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo, RequestContext
    from odradek.apis.node import ApiParts
    from odradek.apis.produce_gates import Preparation
    from odradek.apis.transaction_verification import TransactionVerification, Verdicts
    from odradek.apis.turn import Turn, WorkQueue
    from odradek.storage.log._staging import Appended
    from odradek.storage.log.partition import Partition
    from odradek.storage.log.preparation import Batch
    from odradek.storage.log.transactions import Verified

ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics: Kafka's own tools use it."""

FIRST_VERSION_OF_V1 = 2
FIRST_VERSION_OF_V2_ONLY = 3
FIRST_VERSION_WITH_LEADER = 10
FIRST_VERSION_WITH_IDS = 13
REPEATED_VERSIONS = range(9, 14)
"""Versions whose requests are remembered."""

WRITE, TOPIC = Operation.WRITE, ResourceType.TOPIC
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
_ACKS = (-1, 1, 0)
_SAYS_LOG_START = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""Refusals that include the log start offset (ReplicaManager.appendRecordsToLeader)."""


class PendingProduce(Waiting):
    """The response to one request: complete when every staged partition is committed.

    It is also the callback for the commit of the first partition, so that most requests need no other object.
    """

    __slots__ = ("acks", "connection", "leave", "pending", "response", "single", "timeout_ms")

    @property
    def holds_back(self) -> bool:  # type: ignore[override]
        """True with acks=0 at a gate: a refusal closes the connection, and Kafka would not handle later
        requests."""
        return self.response is None and self.leave is not None

    def __init__(self, response: ProduceResponse, acks: int, timeout_ms: int) -> None:
        # Repeats Waiting.__init__ for speed: every produce request comes here.
        self._clean_up = None
        self._deliver = None
        self._response = None
        self._settled = False
        self.response: ProduceResponse | None = response
        self.acks = acks
        self.timeout_ms = timeout_ms
        """Timeout of a response that waits for the replicas."""
        self.connection: ConnectionInfo | None = None
        """Set if the client expects no response (acks=0); an error then closes the connection."""
        self.pending = 1
        """The number of partitions without a result, plus one while the handler is still running."""
        self.single: PartitionProduceResponse | None = None
        """The first staged partition, whose commit calls this object itself."""
        self.leave: list[Callable[[], None]] | None = None
        """Functions of the gates to call when the connection closes."""

    def __call__(self, error: KafkaError | None) -> None:
        assert self.single is not None
        self.settle(self.single, error)

    def settle(self, partition: PartitionProduceResponse, error: KafkaError | None) -> None:
        """One partition was committed, or its commit failed with `error`."""
        if error is not None:
            _refuse(partition, error)
            self.report(error)
        self.pending -= 1
        if self.pending == 0:
            self.complete(self.response)

    def report(self, error: KafkaError) -> None:
        """A refusal after the handler has returned: with acks=0 it closes the connection."""
        if self.connection is not None:
            self.connection.close(f"produce without acknowledgement failed: {error}")
            self.connection = None

    def wait_at_gate(self, leave: Callable[[], None]) -> None:
        """Calls `leave` if the connection closes before the response."""
        if self.leave is None:
            self.leave = []
            self._clean_up = self._leave_gates
        self.leave.append(leave)

    def _leave_gates(self) -> None:
        self.connection = None
        for leave in self.leave or ():
            leave()


class _StagedPartition:
    """One partition of a request with several; called after its commit."""

    __slots__ = ("partition", "waiting")

    def __init__(self, waiting: PendingProduce, partition: PartitionProduceResponse) -> None:
        self.waiting = waiting
        self.partition = partition

    def __call__(self, error: KafkaError | None) -> None:
        self.waiting.settle(self.partition, error)


class _LateAppend:
    """A request's records for one partition while they wait at a gate; see `produce_gates.LateAppend`."""

    __slots__ = (
        "_context",
        "_log",
        "_magic_limit",
        "_name",
        "_now_ms",
        "_partition",
        "_produce",
        "_records",
        "_response",
        "_verified",
        "_waiting",
        "size_bytes",
    )

    def __init__(
        self,
        produce: Produce,
        waiting: PendingProduce,
        context: RequestContext,
        log: Partition,
        name: str,
        partition: PartitionProduceResponse,
        records: bytes,
        verified: Verified | None,
    ) -> None:
        assert waiting.response is not None
        self._produce = produce
        self._waiting = waiting
        self._response = waiting.response
        self._context: RequestContext | None = context
        self._now_ms = context.now_ms
        self._magic_limit = _magic_limit(context.api_version)
        self._log = log
        self._name = name
        self._partition = partition
        self._records = records
        self._verified = verified
        self.size_bytes = len(records)

    def preparation(self) -> Preparation:
        return self._log.appends.preparing(self._records, now_ms=self._now_ms, magic_limit=self._magic_limit)

    def attempt(self) -> Preparation | None:
        led = self._lead()
        try:
            appended = self._log.appends.append(
                self._records,
                now_ms=self._now_ms,
                magic_limit=self._magic_limit,
                transactions=self._verified,
                prompt=True,
            )
        except TakesLong:
            return self.preparation()
        self._produce.take(self._waiting, self._partition, led, appended)
        return None

    def make(self, prepared: list[Batch]) -> None:
        led = self._lead()
        appended = self._log.appends.append(prepared, now_ms=self._now_ms, transactions=self._verified)
        self._produce.take(self._waiting, self._partition, led, appended)

    def refuse(self, error: KafkaError) -> None:
        try:
            self._lead()
        except KafkaError as gone:
            error = gone
        if self._context is not None:
            self._produce.explain(self._partition, error, self._name, self._response, self._context)
        self._waiting.report(error)
        self._waiting.settle(self._partition, None)

    def abandon(self) -> None:
        self._context = None

    def _lead(self) -> LedPartition:
        """The topic may have been deleted meanwhile. A new topic of that name does not count: the log knows
        that it was deleted.
        """
        return self._produce.leadership.lead(self._name, self._partition.index)


class Produce:
    """The handler. `conversions` is the queue for long preparations; `verification()` is called with the
    first transactional request.
    """

    __slots__ = ("_gates", "_turn", "_verification", "leadership")

    def __init__(
        self,
        leadership: Leadership,
        turn: Turn,
        conversions: WorkQueue,
        verification: Callable[[], TransactionVerification],
    ) -> None:
        self.leadership = leadership
        self._turn = turn
        self._gates = Gates(conversions)
        self._verification = verification

    @property
    def prefix(self) -> Prefix[ProduceRequest]:
        """A producer's requests have the same bytes before each batch of a partition."""
        return Prefix(REPEATED_VERSIONS, self._learn, ("topic_data", "partition_data", "records"))

    def _learn(self, request: ProduceRequest, context: RequestContext) -> AppendBatch | None:
        """One batch for one partition is ordinary unless it has to be refused, converted, or put behind
        others at a gate. A transactional batch is ordinary if its transaction is open in the partition: it
        needs no verification.
        """
        version, topic = context.api_version, request.topic_data[0]
        name = topic.name if version < FIRST_VERSION_WITH_IDS else self._name_of(topic.topic_id)
        if request.acks not in (-1, 1) or request.transactional_id == "":
            return None
        if name is None or name in INTERNAL_TOPICS:
            return None
        index = topic.partition_data[0].index
        try:
            led = self.leadership.lead(name, index)
            if request.acks == -1:
                check_in_sync(self.leadership, led)
        except KafkaError:
            return None
        topic_name, topic_id = topic.name, topic.topic_id

        def respond(error_code: int, offsets: tuple[int, int, int]) -> ProduceResponse:
            base_offset, append_time_ms, log_start_offset = offsets
            partition = PartitionProduceResponse(
                index=index,
                error_code=error_code,
                base_offset=base_offset,
                log_append_time_ms=append_time_ms,
                log_start_offset=log_start_offset,
            )
            answered = TopicProduceResponse(
                name=topic_name, topic_id=topic_id, partition_responses=[partition]
            )
            return ProduceResponse(responses=[answered])

        return AppendBatch(
            led.log,
            led.log.appender.append_ordinary,
            response_template(respond(0, PLACEHOLDERS), version, PLACEHOLDERS),
            lambda error: respond(int(error.code), (-1, -1, -1)),
            self._gates.open,
            request.transactional_id is not None,
            led.until(False, request.acks == -1, request.timeout_ms),
        )

    def __call__(
        self, request: ProduceRequest, context: RequestContext, verdicts: Verdicts | None = None
    ) -> ProduceResponse | Waiting | None:
        """`verdicts` are given for a verified transactional request."""
        acks = request.acks
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) > 1:
            _keep_last_of_each(request)
        if request.transactional_id is not None and verdicts is None:
            if _may_not_use_id(request, context):
                return _refuse_all(request, context)
            if acks in _ACKS:
                verification: TransactionVerification = self._verification()
                return verification(request, context, self)
        is_refusing = context.refused or acks not in _ACKS
        version = context.api_version
        now_ms = context.now_ms
        response = ProduceResponse(responses=[])
        waiting = PendingProduce(response, acks, request.timeout_ms)
        judge, take, gates = self._judge, self.take, self._gates.open
        magic_limit = _magic_limit(version)
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
                try:
                    if is_refusing:
                        self._check_refusal(name, topic_data, data, request, context)
                    appended = None
                    led, records, verified = judge(name, data, version, acks, context.client_id, verdicts)
                    log = led.log
                    if not gates or log not in gates:
                        appended = log.appends.append(
                            records,
                            now_ms=now_ms,
                            magic_limit=magic_limit,
                            transactions=verified,
                            prompt=True,
                        )
                except TakesLong:
                    pass
                except KafkaError as error:
                    last_error = error
                    if _lacks_id(request, data):
                        last_error = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                    self.explain(partition, last_error, name, response, context)
                    continue
                waiting.pending += 1
                if appended is not None:
                    take(waiting, partition, led, appended)
                else:
                    self._wait(waiting, context, log, name, partition, records, verified)
        waiting.pending -= 1
        if acks == 0:
            waiting.response = None
            if last_error is not None:
                context.connection.close(f"a produce request without acknowledgement failed: {last_error}")
            else:
                waiting.connection = context.connection
            # Later requests of the connection wait for it, though no response is sent.
            return waiting if waiting.pending else None
        return waiting if waiting.pending else response

    def _check_refusal(
        self,
        name: str | None,
        topic: TopicProduceData,
        data: PartitionProduceData,
        request: ProduceRequest,
        context: RequestContext,
    ) -> None:
        """Refuses a request with refused resources or impossible acks, in Kafka's order."""
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if context.refuses(WRITE, TOPIC, topic.name or topic.topic_id):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if request.acks not in _ACKS:
            if self.leadership.view.partition(name, data.index) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)

    def _judge(
        self,
        name: str | None,
        data: PartitionProduceData,
        version: int,
        acks: int,
        client_id: str | None,
        verdicts: Verdicts | None,
    ) -> tuple[LedPartition, memoryview, Verified | None]:
        """Checks a batch by the rules of the request's version. Returns the partition, the records to append,
        and the verification of their transaction.
        """
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        led = self.leadership.lead(name, data.index)
        records = data.records
        if version >= FIRST_VERSION_OF_V2_ONLY:
            records = single_batch(records, version, verdicts is not None)
        elif records is None:
            raise NotOneBatch(ErrorCode.INVALID_RECORD)
        verified = None if verdicts is None else verdicts.of(name, data.index)
        if name in INTERNAL_TOPICS and client_id != ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if acks == -1 and led.has_followers:
            check_in_sync(self.leadership, led)
        return led, records, verified

    def take(
        self,
        waiting: PendingProduce,
        partition: PartitionProduceResponse,
        led: LedPartition,
        appended: Appended,
    ) -> None:
        """Fills in the response for a staged append; the response waits for the commit."""
        partition.base_offset = appended.base_offset
        partition.log_append_time_ms = appended.log_append_time_ms
        partition.log_start_offset = appended.log_start_offset
        until = led.until(appended.must_flush, waiting.acks == -1, waiting.timeout_ms)
        if waiting.single is None:
            waiting.single = partition
            self._turn.add(led.log, waiting, until)
        else:
            self._turn.add(led.log, _StagedPartition(waiting, partition), until)

    def _wait(
        self,
        waiting: PendingProduce,
        context: RequestContext,
        log: Partition,
        name: str | None,
        partition: PartitionProduceResponse,
        records: memoryview,
        verified: Verified | None,
    ) -> None:
        """Leaves an append to the gate of its partition."""
        assert name is not None
        # A copy: later requests overwrite the receive buffer.
        append = _LateAppend(self, waiting, context, log, name, partition, bytes(records), verified)
        preparation = None if log in self._gates.open else append.preparation()
        waiting.wait_at_gate(self._gates.wait(log, append, preparation))

    def _name_of(self, topic_id: bytes) -> str | None:
        return self.leadership.view.topic_names.get(topic_id)

    def explain(
        self,
        partition: PartitionProduceResponse,
        error: KafkaError,
        name: str | None,
        response: ProduceResponse,
        context: RequestContext,
    ) -> None:
        """Fills in a refusal with the fields that Kafka sends with its code."""
        _refuse(partition, error)
        code = error.code
        self.leadership.note_refused_produce(name, partition.index, code)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and context.api_version >= FIRST_VERSION_WITH_LEADER:
            hint = leader_hint(self.leadership, name, partition.index, context.connection)
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
        if name is not None and code in _SAYS_LOG_START and not isinstance(error, NotOneBatch):
            partition.log_start_offset = self.leadership.lead(name, partition.index).log.log_start_offset


def _may_not_use_id(request: ProduceRequest, context: RequestContext) -> bool:
    """Whether there is a transactional batch, and the client may not use the transactional id."""
    return context.refuses(WRITE, TRANSACTIONAL_ID, request.transactional_id) and any(
        is_transactional(data.records) for topic in request.topic_data for data in topic.partition_data
    )


def _lacks_id(request: ProduceRequest, data: PartitionProduceData) -> bool:
    """Whether a transactional batch came without a transactional id: that counts before all else."""
    return request.transactional_id is None and is_transactional(data.records)


def _refuse_all(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """The client may not use the transactional id."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.acks == 0:
        context.connection.close(f"a produce request without acknowledgement failed: {KafkaError(code)}")
        return None
    response: ProduceResponse = API.refuse(request, context.api_version, code)
    return response


def _keep_last_of_each(request: ProduceRequest) -> None:
    """If a partition is named more than once, the last counts, as in Kafka; each has one result."""
    partitions: dict[tuple[str, bytes, int], PartitionProduceData] = {}
    count = 0
    for topic in request.topic_data:
        name, topic_id = topic.name, topic.topic_id
        for data in topic.partition_data:
            partitions[name, topic_id, data.index] = data
        count += len(topic.partition_data)
    topics = {(topic.name, topic.topic_id): topic for topic in request.topic_data}
    if len(partitions) == count and len(topics) == len(request.topic_data):
        return
    for topic in topics.values():
        topic.partition_data = []
    for (name, topic_id, _), data in partitions.items():
        topics[name, topic_id].partition_data.append(data)
    request.topic_data = list(topics.values())


def _magic_limit(version: int) -> int:
    """The newest record format of a request; see `Appends.append`."""
    return 2 if version >= FIRST_VERSION_OF_V2_ONLY else version // FIRST_VERSION_OF_V1


def _refuse(partition: PartitionProduceResponse, error: KafkaError) -> None:
    partition.error_code = error.code
    if isinstance(error, DiskFull):
        # Null in Kafka. Who reads it knows that nothing has to be repaired.
        partition.error_message = "The disk of the broker is full."
    partition.base_offset = -1
    partition.log_append_time_ms = -1
    partition.log_start_offset = -1


def _make(parts: ApiParts) -> Produce:
    node, settings = parts.node, parts.settings

    @cache
    def verification() -> TransactionVerification:
        from odradek.apis.transaction_verification import TransactionVerification

        return TransactionVerification(
            node.leadership,
            node.transactions,
            node.remote_transactions,
            node.timers,
            is_enabled=settings.verifies_transactions,
            pause_ms_max=settings.verification_pause_ms_max,
            patience_ms=settings.verification_patience_ms,
        )

    return Produce(node.leadership, node.turn, node.conversions, verification)


API = Api(
    ProduceRequest,
    ProduceResponse,
    make=_make,
    needs=(
        on_transactional_ids(Operation.WRITE, only("transactional_id")),  # if there is a transactional batch
        on_topics(Operation.WRITE, each("topic_data", "name", "topic_id")),
    ),
    # Offsets, sequence numbers and duplicates are decided when a request is staged, in the order of the
    # requests, and what is staged for a partition is committed together. Producers have five of them under
    # way. (One that waits for its coordinator holds back all others, and so does one with acks=0 that waits
    # for its preparation: its refusal would close the connection.)
    overlaps=(ProduceRequest,),
    refusal=Refusal(
        results=(
            "responses",
            each_partition(
                "topic_data",
                "partition_data",
                "index",
                copied={"name": "name", "topic_id": "topic_id"},
                results="partition_responses",
                result_index="index",
                more={"base_offset": -1},
            ),
        ),
        has_message=False,
    ),
    charge=Charge.WHEN_HANDLED,
)
