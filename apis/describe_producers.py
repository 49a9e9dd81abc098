"""DescribeProducers (key 61, version 0): the producer state of partitions.

For each producer: epoch, last sequence number, time of the last batch, coordinator epoch of the last marker,
and first offset of the open transaction. `kafka-transactions` finds hanging transactions with it. A follower
tells what its own log has.

Source: KafkaApis.handleDescribeProducersRequest and Partition.activeProducerState of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import each, on_topics
from odradek.apis.declaration import Api
from odradek.coordinator.cluster.topics import check_name
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.leadership import Leadership


class DescribeProducers:
    """The handler."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    def __call__(
        self, request: DescribeProducersRequest, context: RequestContext
    ) -> DescribeProducersResponse:
        response = DescribeProducersResponse(topics=[])
        for topic in request.topics:
            refusal = self._refusal_of_topic(topic.name, context)
            response.topics.append(
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        self._describe(topic.name, index) if refusal is None else _refused(index, refusal)
                        for index in topic.partition_indexes
                    ],
                )
            )
        return response

    def _refusal_of_topic(self, name: str, context: RequestContext) -> KafkaError | None:
        try:
            check_name(name)
        except KafkaError as error:
            return error
        if context.refuses(Operation.READ, ResourceType.TOPIC, name):
            return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self._leadership.view.topic(name) is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return None

    def _describe(self, name: str, index: int) -> PartitionResponse:
        try:
            producers = self._leadership.hold(name, index).log.producers()
        except KafkaError as error:
            # Partitions have an error code but no message.
            return PartitionResponse(partition_index=index, error_code=error.code, active_producers=[])
        return PartitionResponse(
            partition_index=index,
            error_code=0,
            active_producers=[
                ProducerState(
                    producer_id=one.producer_id,
                    producer_epoch=one.producer_epoch,
                    last_sequence=one.last_sequence,
                    last_timestamp=one.last_timestamp,
                    coordinator_epoch=one.coordinator_epoch,
                    current_txn_start_offset=one.current_txn_start_offset,
                )
                for one in producers
            ],
        )


def _refused(index: int, refusal: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        error_code=refusal.code,
        error_message=refusal.message,
        active_producers=[],
    )


API = Api(
    DescribeProducersRequest,
    DescribeProducersResponse,
    make=lambda parts: DescribeProducers(parts.node.leadership),
    needs=(on_topics(Operation.READ, each("topics", "name")),),
)
