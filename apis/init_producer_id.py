"""InitProducerId (key 22, versions 0 to 5): an id and an epoch for a producer.

An idempotent producer gets a new id, also when it sends the request again (KIP-360). For a transactional one
the coordinator decides: the id, the epoch, and whether an open transaction of the previous producer has to be
aborted first. Versions below 4 get INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.

A client needs the permission to write with the transactional id; without one, to write to any topic, or
IDEMPOTENT_WRITE on the cluster.

Not done: two-phase commit (version 6, KIP-939), which Kafka does not call stable either.

Source: KafkaApis.handleInitProducerIdRequest and TransactionCoordinator.handleInitProducerId of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.apis.access import ANY, Need, the_transactional_id
from odradek.apis.api import Waiting
from odradek.apis.coordinators import asked_by, client_of
from odradek.apis.declaration import Api
from odradek.apis.refusals import Refusal
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Transactions

FIRST_VERSION_WITH_FENCED = 4
NONE = -1
"""In place of a producer's id or epoch."""


class InitProducerId:
    """The handler."""

    def __init__(self, new_producer_id: Callable[[], int], transactions: Transactions) -> None:
        self._new_producer_id = new_producer_id
        self._transactions = transactions

    def __call__(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> InitProducerIdResponse | Waiting:
        if _may_not_be_idempotent(context):
            return _refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if (request.producer_id == NONE) != (request.producer_epoch == NONE):
            return _refusal(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            return self._ask_coordinator(request, request.transactional_id, context)
        try:
            return InitProducerIdResponse(producer_id=self._new_producer_id(), producer_epoch=0)
        except KafkaError as error:
            return _refusal(error.code)

    def _ask_coordinator(
        self, request: InitProducerIdRequest, transactional_id: str, context: RequestContext
    ) -> Waiting:
        waiting = Waiting()
        version = context.api_version

        def initialized(response: InitProducerIdResponse) -> None:
            if response.error_code == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
                response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
            waiting.complete(response)

        asked = asked_by(client_of(context), API.refuse, request, initialized)
        self._transactions().submit(transactional_id, asked)
        return waiting


def _may_not_be_idempotent(context: RequestContext) -> bool:
    """False for a request with a transactional id, which needs nothing on the cluster."""
    if not context.refuses(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME):
        return False
    return bool(
        context.authorizer.hidden(context.connection, {(Operation.WRITE, ResourceType.TOPIC): (ANY,)})
    )


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)


def _cluster_without_transactional_id(request: InitProducerIdRequest) -> Iterable[str]:
    return (CLUSTER_NAME,) if request.transactional_id is None else ()


API = Api(
    InitProducerIdRequest,
    InitProducerIdResponse,
    make=lambda parts: InitProducerId(parts.node.new_producer_id, parts.node.transactions),
    needs=(
        the_transactional_id(Operation.WRITE),
        Need(
            Operation.IDEMPOTENT_WRITE,
            ResourceType.CLUSTER,
            _cluster_without_transactional_id,
            is_quiet=True,
        ),
    ),
    refusal=Refusal(fields=lambda version: {"producer_id": -1, "producer_epoch": -1}),
)
