"""CreatePartitions (key 37, versions 0 to 3): adds partitions to topics.

The cluster's machine checks and creates; everything is done when the response is sent, as with CreateTopics.

Source: ControllerApis and ReplicationControlManager of Kafka 4.3.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from odradek.apis.access import each, on_topics
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Forwarding, SharedApi
from odradek.apis.quotas import ClientQuotas, free
from odradek.apis.refusals import Refusal, each_of
from odradek.coordinator.cluster.topics import (
    NewPartitions,
)
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.coordinator.security.client_meters import MutationCharge
    from odradek.wire.work import Work


FIRST_STRICT_VERSION = 3
"""From then on topics are refused when the client's quota of partitions is used up (KIP-599)."""
_WITHOUT_MESSAGE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
"""Codes without a message, as in Kafka."""


class CreatePartitions:
    """The handler."""

    def __init__(self, machine: Decisions, work: WorkQueue, quotas: ClientQuotas | None = None) -> None:
        self._quotas = quotas or ClientQuotas()
        self._machine = machine
        self._work = work

    def __call__(self, request: CreatePartitionsRequest, context: RequestContext) -> WorkResponse:
        charge = self._quotas.mutation_charge(context, FIRST_STRICT_VERSION)
        return WorkResponse(self._work, self._growing(request, context, charge), context)

    def _growing(
        self, request: CreatePartitionsRequest, context: RequestContext, charge: MutationCharge | None
    ) -> Work[CreatePartitionsResponse]:
        counts = Counter(topic.name for topic in request.topics)
        refused = [
            name
            for name, count in counts.items()
            if count == 1 and context.refuses(Operation.ALTER, ResourceType.TOPIC, name)
        ]
        growths = [
            NewPartitions(
                topic.name,
                topic.count,
                None if topic.assignments is None else [tuple(one.broker_ids) for one in topic.assignments],
            )
            for topic in request.topics
            if counts[topic.name] == 1 and topic.name not in refused
        ]
        results = [
            _grown(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            for name, count in counts.items()
            if count > 1
        ]
        results += [_grown(name, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)) for name in refused]
        try:
            grown = yield from self._machine.creating_partitions(
                growths, validate_only=request.validate_only, charge=charge or free
            )
        except KafkaError as error:
            results += [_grown(growth.name, error) for growth in growths]
        else:
            results += [_grown(result.name, result.error) for result in grown]
        wait_ms = 0 if charge is None else charge.throttle_ms()
        return CreatePartitionsResponse(results=results, throttle_time_ms=wait_ms)


def _grown(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name, error_code=0, error_message=None)
    message = None if error.code in _WITHOUT_MESSAGE else error.message
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=message)


API = SharedApi(
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    make=lambda parts: CreatePartitions(parts.node.machine, parts.node.changes, parts.node.quotas),
    needs=(on_topics(Operation.ALTER, each("topics", "name")),),
    changes=True,
    forwarded=Forwarding.AS_IT_COMES,
    refusal=Refusal(results=("results", each_of("topics", "name"))),
)
