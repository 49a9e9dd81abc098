"""ListPartitionReassignments (key 46, version 0): there are no reassignments.

For a node alone; a node of a cluster forwards the request to the controllers.

Source: listPartitionReassignments of ReplicationControlManager, Kafka 4.3; KIP-455.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.declaration import Api, Forwarding
from odradek.apis.refusals import Refusal, each_partition
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext


class ListPartitionReassignments:
    """The handler."""

    def __call__(
        self, request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        # Partitions without a reassignment are left out, whether they exist or not.
        return ListPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, topics=[]
        )


API = Api(
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    make=lambda parts: ListPartitionReassignments(),
    needs=(on_cluster(Operation.DESCRIBE),),
    forwarded=Forwarding.AS_IT_COMES,
    refusal=Refusal(
        results=("topics", each_partition("topics", "partition_indexes", "", copied={"name": "name"}))
    ),
)
