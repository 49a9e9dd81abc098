"""AllocateProducerIds (key 67, version 0): a block of producer ids for a broker.

Source: ControllerApis and ProducerIdControlManager of Kafka 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.api import WorkResponse
from odradek.apis.controller.parts import ControllerApi, ControllerParts
from odradek.wire.acl_types import Operation
from odradek.wire.errors import KafkaError
from odradek.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.wire.work import Work


class AllocateProducerIds:
    """The handler."""

    def __init__(self, parts: ControllerParts) -> None:
        self._controller = parts.plane
        self._changes = parts.changes

    def __call__(self, request: AllocateProducerIdsRequest, context: RequestContext) -> WorkResponse:
        return WorkResponse(self._changes, self._allocating(request, context), context)

    def _allocating(
        self, request: AllocateProducerIdsRequest, context: RequestContext
    ) -> Work[AllocateProducerIdsResponse]:
        try:
            block = self._controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        except KafkaError as error:
            return AllocateProducerIdsResponse(error_code=error.code)
        return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
        yield None


API = ControllerApi(
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    make=lambda parts: AllocateProducerIds(parts.node),
    needs=(on_cluster(Operation.CLUSTER_ACTION),),
)
