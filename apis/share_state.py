"""The states of share partitions, for other brokers (KIP-932): InitializeShareGroupState (key 83, version 0),
ReadShareGroupState (84, version 0), WriteShareGroupState (85, versions 0 and 1), DeleteShareGroupState (86,
version 0) and ReadShareGroupStateSummary (87, versions 0 and 1).

A request is for one group; each share partition has its own result. As in Kafka nothing is answered where the
group has no name, or a topic no partition. A share partition that is named twice has its last result.

Source: KafkaApis and ShareCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.apis.access import on_cluster
from odradek.apis.coordinators import ask_for_each
from odradek.apis.declaration import Api
from odradek.apis.refusals import Refusal, each_partition
from odradek.wire.acl_types import Operation
from odradek.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from odradek.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from odradek.wire.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)
from odradek.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from odradek.wire.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext, Waiting
    from odradek.apis.coordinators import Shares
    from odradek.wire.schema import Message


class ShareStates:
    """The handler of each of the five: each share partition is asked for at its own coordinator."""

    def __init__(self, shares: Shares, api: Api) -> None:
        self._shares = shares
        self._api = api

    def __call__(self, request: Any, context: RequestContext) -> Waiting:
        return ask_for_each(
            self._parts(request), self._api.refuse, context, self._shares().submit_state, self._merged
        )

    def _parts(self, request: Any) -> list[Any]:
        """The same request for each share partition; none where a topic without partitions empties the
        whole response."""
        lacks_partitions = request.__class__ is not InitializeShareGroupStateRequest and not all(
            topic.partitions for topic in request.topics
        )
        if not request.group_id or lacks_partitions:
            return []
        if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
            return [request]
        return [
            request.__class__(
                group_id=request.group_id,
                topics=[topic.__class__(topic_id=topic.topic_id, partitions=[one])],
            )
            for topic in request.topics
            for one in topic.partitions
        ]

    def _merged(self, responses: Sequence[Any]) -> Any:
        if len(responses) == 1:
            return responses[0]
        topics: dict[bytes, Any] = {}
        partitions: dict[bytes, dict[int, Any]] = {}
        for response in responses:
            (topic,) = response.results
            (one,) = topic.partitions
            topics.setdefault(topic.topic_id, topic)
            partitions.setdefault(topic.topic_id, {})[one.partition] = one
        for topic_id, topic in topics.items():
            topic.partitions = list(partitions[topic_id].values())
        response_class: Any = self._api.response
        return response_class(results=list(topics.values()))


def _api(request: type[Message], response: type[Message]) -> Api:
    api = Api(
        request,
        response,
        make=lambda parts: ShareStates(parts.node.shares, api),
        needs=(on_cluster(Operation.CLUSTER_ACTION),),
        refusal=Refusal(
            results=(
                "results",
                each_partition(
                    "topics",
                    "partitions",
                    "partition",
                    copied={"topic_id": "topic_id"},
                    result_index="partition",
                ),
            )
        ),
    )
    return api


INITIALIZE = _api(InitializeShareGroupStateRequest, InitializeShareGroupStateResponse)
READ = _api(ReadShareGroupStateRequest, ReadShareGroupStateResponse)
WRITE = _api(WriteShareGroupStateRequest, WriteShareGroupStateResponse)
DELETE = _api(DeleteShareGroupStateRequest, DeleteShareGroupStateResponse)
SUMMARIZE = _api(ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse)
APIS = (INITIALIZE, READ, WRITE, DELETE, SUMMARIZE)
