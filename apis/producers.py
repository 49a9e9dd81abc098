"""InitProducerId (key 22, versions 0 to 5): producer ids for idempotent
producers.

Not done yet: transactions. A request with a transactional id gets INVALID_REQUEST, at which clients stop at
once.

Source: TransactionCoordinator.handleInitProducerId (null transactional id) of Kafka 4.3; blocks of ids as
in KIP-730.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext


class ProducerIds:
    """Hands out producer ids, one durable block after the other; what a restart leaves of a block is lost."""

    def __init__(self, allocate_block: Callable[[], range]) -> None:
        self._allocate_block = allocate_block
        self._left = iter(range(0))

    def next(self) -> int:
        """An id that no producer ever had. KafkaError when the metadata store fails."""
        producer_id = next(self._left, None)
        if producer_id is None:
            self._left = iter(self._allocate_block())
            producer_id = next(self._left)
        return producer_id


class InitProducerId:
    """The handler."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def __call__(self, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
        if request.transactional_id is not None or (request.producer_id == -1) != (
            request.producer_epoch == -1
        ):
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
        try:
            # An idempotent producer that asks again (KIP-360) gets a new id, as in Kafka.
            return InitProducerIdResponse(producer_id=self._producer_ids.next(), producer_epoch=0)
        except KafkaError as error:
            return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
