"""The states of share partitions, for other brokers (KIP-932): InitializeShareGroupState (key 83, version 0),
ReadShareGroupState (84, version 0), WriteShareGroupState (85, versions 0 and 1), DeleteShareGroupState (86,
version 0) and ReadShareGroupStateSummary (87, versions 0 and 1).

A request is for one group; each share partition has its own result. As in Kafka nothing is answered where the
group has no name, or a topic no partition. A share partition that is named twice has its last result.

Source: KafkaApis and ShareCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from odradek.apis.access import on_cluster
from odradek.apis.coordinators import Gathering
from odradek.apis.declaration import Api
from odradek.apis.refusals import Refusal, each_partition
from odradek.coordinator.share_state import commands
from odradek.coordinator.share_state.batches import Batch
from odradek.coordinator.share_state.persister import SharePartitionKey
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

if TYPE_CHECKING:
    from odradek.apis.api import Handler, RequestContext, Waiting
    from odradek.apis.coordinators import Shares
    from odradek.wire.schema import Message

Ticket = Callable[[Any], None]


class _Handler:
    """What the five have in common: a command for each partition, and the replies as one response."""

    response_class: ClassVar[Any]
    topic_class: ClassVar[Any]
    partition_class: ClassVar[Any]
    needs_partitions: ClassVar[bool] = True
    """Whether a topic without partitions empties the whole answer."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares

    def __call__(self, request: Any, context: RequestContext) -> Waiting:
        asked = [
            (SharePartitionKey(request.group_id, topic.topic_id, one.partition), one)
            for topic in request.topics
            for one in topic.partitions
        ]
        lacks_partitions = self.needs_partitions and not all(topic.partitions for topic in request.topics)
        if not request.group_id or lacks_partitions:
            asked = []
        keys = [key for key, _ in asked]
        gathering = Gathering(len(asked), lambda replies: self._response(keys, replies))
        for number, (key, one) in enumerate(asked):
            self._shares.submit_state(self.command(gathering.ticket(number), key, one))
        return gathering.waiting

    def command(self, ticket: Ticket, key: SharePartitionKey, asked: Any) -> commands.ShareCommand:
        """The command for a partition of the request."""
        raise NotImplementedError

    def fields(self, reply: Any) -> dict[str, Any]:
        """Those of a partition's result besides its error."""
        return {}

    def _response(self, keys: Sequence[SharePartitionKey], replies: Sequence[Any]) -> Any:
        topics: dict[bytes, dict[int, Any]] = {}
        for key, reply in zip(keys, replies, strict=True):
            topics.setdefault(key.topic_id, {})[key.partition] = self.partition_class(
                partition=key.partition,
                error_code=reply.error_code,
                error_message=None if reply.error_code is ErrorCode.NONE else reply.error_message,
                **self.fields(reply),
            )
        return self.response_class(
            results=[
                self.topic_class(topic_id=topic_id, partitions=list(partitions.values()))
                for topic_id, partitions in topics.items()
            ]
        )


class InitializeShareGroupState(_Handler):
    response_class = initialize_share_group_state.InitializeShareGroupStateResponse
    topic_class = initialize_share_group_state.InitializeStateResult
    partition_class = initialize_share_group_state.PartitionResult
    needs_partitions = False

    def command(self, ticket: Ticket, key: SharePartitionKey, asked: Any) -> commands.InitializeState:
        return commands.InitializeState(ticket, key, asked.state_epoch, asked.start_offset)


class ReadShareGroupState(_Handler):
    response_class = read_share_group_state.ReadShareGroupStateResponse
    topic_class = read_share_group_state.ReadStateResult
    partition_class = read_share_group_state.PartitionResult

    def command(self, ticket: Ticket, key: SharePartitionKey, asked: Any) -> commands.ReadState:
        return commands.ReadState(ticket, key, asked.leader_epoch)

    def fields(self, reply: Any) -> dict[str, Any]:
        batches = [
            read_share_group_state.StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in reply.batches
        ]
        return {
            "state_epoch": reply.state_epoch,
            "start_offset": reply.start_offset,
            "state_batches": batches,
        }


class WriteShareGroupState(_Handler):
    response_class = write_share_group_state.WriteShareGroupStateResponse
    topic_class = write_share_group_state.WriteStateResult
    partition_class = write_share_group_state.PartitionResult

    def command(self, ticket: Ticket, key: SharePartitionKey, asked: Any) -> commands.WriteState:
        batches = [
            Batch(batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state)
            for batch in asked.state_batches
        ]
        return commands.WriteState(
            ticket,
            key,
            asked.state_epoch,
            asked.leader_epoch,
            asked.start_offset,
            asked.delivery_complete_count,
            batches,
        )


class DeleteShareGroupState(_Handler):
    response_class = delete_share_group_state.DeleteShareGroupStateResponse
    topic_class = delete_share_group_state.DeleteStateResult
    partition_class = delete_share_group_state.PartitionResult

    def command(self, ticket: Ticket, key: SharePartitionKey, asked: Any) -> commands.DeleteState:
        return commands.DeleteState(ticket, key)


class ReadShareGroupStateSummary(_Handler):
    response_class = read_share_group_state_summary.ReadShareGroupStateSummaryResponse
    topic_class = read_share_group_state_summary.ReadStateSummaryResult
    partition_class = read_share_group_state_summary.PartitionResult

    def command(self, ticket: Ticket, key: SharePartitionKey, asked: Any) -> commands.SummarizeState:
        return commands.SummarizeState(ticket, key)

    def fields(self, reply: Any) -> dict[str, Any]:
        return {
            "state_epoch": reply.state_epoch,
            "leader_epoch": reply.leader_epoch,
            "start_offset": reply.start_offset,
            "delivery_complete_count": reply.delivery_complete_count,
        }


def _api(request: type[Message], response: type[Message], handler: Callable[[Shares], Handler]) -> Api:
    return Api(
        request,
        response,
        make=lambda parts: handler(parts.node.shares),
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


APIS = (
    _api(
        initialize_share_group_state.InitializeShareGroupStateRequest,
        initialize_share_group_state.InitializeShareGroupStateResponse,
        InitializeShareGroupState,
    ),
    _api(
        read_share_group_state.ReadShareGroupStateRequest,
        read_share_group_state.ReadShareGroupStateResponse,
        ReadShareGroupState,
    ),
    _api(
        write_share_group_state.WriteShareGroupStateRequest,
        write_share_group_state.WriteShareGroupStateResponse,
        WriteShareGroupState,
    ),
    _api(
        delete_share_group_state.DeleteShareGroupStateRequest,
        delete_share_group_state.DeleteShareGroupStateResponse,
        DeleteShareGroupState,
    ),
    _api(
        read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
        ReadShareGroupStateSummary,
    ),
)
