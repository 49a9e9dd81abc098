"""Fetch (key 1, versions 12 to 18) and FetchSnapshot (59, 0 and 1) of the metadata log.

The log has one voter: its end is its high watermark. A fetch waits for records, or for a high watermark that
the follower does not have (KIP-1166).

Source: KafkaRaftClient.handleFetchRequest and handleFetchSnapshotRequest, KafkaRaftLog.validateOffsetAndEpoch
of Kafka 4.4; KIP-595, KIP-630.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.api import Waiting
from odradek.apis.controller.parts import ControllerApi, ControllerParts
from odradek.coordinator.cluster.topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from odradek.coordinator.controller import log as log_types
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import fetch_snapshot
from odradek.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from odradek.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext

RESPONSE_BYTES_MAX = 8_388_608
"""Bound of one response; `controller.quorum.fetch.max.bytes` of the follower is 1 MB."""
WAIT_MS_MAX = 60_000
FIRST_VERSION_WITH_ENDPOINTS = 17
"""Kafka sends them from this version on; version 16 has room for them, too."""


class FetchMetadata:
    """The handler of Fetch."""

    def __init__(self, parts: ControllerParts) -> None:
        self._parts = parts

    def __call__(self, request: FetchRequest, context: RequestContext) -> FetchResponse | Waiting:
        cluster_id = self._parts.current_view().cluster_id
        if request.cluster_id is not None and request.cluster_id != cluster_id:
            return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        asked = _the_partition(request)
        if asked is None or request.max_wait_ms < 0:
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        self._note(request, asked, context)
        found = self._found(request, asked)
        is_final = found.error_code or found.diverging_epoch is not None or found.snapshot_id is not None
        is_news = bool(found.records) or asked.high_watermark < found.high_watermark
        if is_final or is_news or not request.max_wait_ms:
            return self._response(found, context)
        return self._waiting(request, asked, context)

    def _note(self, request: FetchRequest, asked: FetchPartition, context: RequestContext) -> None:
        state = request.replica_state
        node_id = request.replica_id if state is None else state.replica_id
        # The broker in the process of the controller has its id, and in Kafka reads the log of the voter.
        is_observer = node_id >= 0 and node_id != self._parts.node_id
        if is_observer and asked.fetch_offset >= 0:
            self._parts.observers.fetched(
                node_id,
                asked.replica_directory_id,
                asked.fetch_offset,
                self._parts.log.end_offset,
                context.now_ms,
            )

    def _found(self, request: FetchRequest, asked: FetchPartition) -> PartitionData:
        log = self._parts.log
        data = PartitionData(
            partition_index=0,
            error_code=ErrorCode.NONE,
            high_watermark=log.end_offset,
            log_start_offset=log.start_offset,
            current_leader=LeaderIdAndEpoch(leader_id=self._parts.node_id, leader_epoch=log.leader_epoch),
            aborted_transactions=None,
            records=b"",
        )
        epoch, last_epoch = asked.current_leader_epoch, asked.last_fetched_epoch
        if asked.fetch_offset < 0 or last_epoch < 0 or epoch < 0:
            return replace(data, error_code=ErrorCode.INVALID_REQUEST)
        if epoch != log.leader_epoch:
            is_old = epoch < log.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            return replace(data, error_code=code)
        wanted = log.snapshot_for(asked.fetch_offset, last_epoch)
        if wanted is not None:
            return replace(data, snapshot_id=SnapshotId(end_offset=wanted.end_offset, epoch=wanted.epoch))
        end = log.diverging_epoch(asked.fetch_offset, last_epoch)
        if end is not None:
            return replace(data, diverging_epoch=EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset))
        if asked.fetch_offset < log.end_offset:
            limit = min(request.max_bytes, asked.partition_max_bytes, RESPONSE_BYTES_MAX)
            try:
                return replace(data, records=log.read(asked.fetch_offset, max(limit, 1)))
            except KafkaError as error:
                return replace(data, error_code=error.code)
        return data

    def _waiting(self, request: FetchRequest, asked: FetchPartition, context: RequestContext) -> Waiting:
        log = self._parts.log

        def look() -> None:
            timer.cancel()
            log.unwatch(look)
            waiting.complete(self._response(self._found(request, asked), context))

        def forget() -> None:
            timer.cancel()
            log.unwatch(look)

        waiting = Waiting(forget)
        timer = self._parts.timers.after(min(request.max_wait_ms, WAIT_MS_MAX), look)
        log.watch(look)
        return waiting

    def _response(self, data: PartitionData, context: RequestContext) -> FetchResponse:
        topic = FetchableTopicResponse(
            topic=CLUSTER_METADATA_TOPIC, topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=[data]
        )
        response = FetchResponse(error_code=ErrorCode.NONE, session_id=0, responses=[topic])
        if context.api_version >= FIRST_VERSION_WITH_ENDPOINTS:
            _, host, port = self._parts.endpoint_for(context.connection)
            response.node_endpoints = [NodeEndpoint(node_id=self._parts.node_id, host=host, port=port)]
        return response


def _the_partition(request: FetchRequest) -> FetchPartition | None:
    """The partition of the metadata log, if the request names it alone."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    (topic,) = request.topics
    (partition,) = topic.partitions
    is_named = topic.topic == CLUSTER_METADATA_TOPIC or topic.topic_id == CLUSTER_METADATA_TOPIC_ID
    return partition if is_named and partition.partition == 0 else None


class FetchSnapshot:
    """The handler of FetchSnapshot."""

    def __init__(self, parts: ControllerParts) -> None:
        self._parts = parts

    def __call__(self, request: FetchSnapshotRequest, context: RequestContext) -> FetchSnapshotResponse:
        cluster_id = self._parts.current_view().cluster_id
        if request.cluster_id is not None and request.cluster_id != cluster_id:
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        (topic,) = request.topics
        (asked,) = topic.partitions
        piece = self._piece(request, topic.name, asked)
        response = FetchSnapshotResponse(
            error_code=ErrorCode.NONE,
            topics=[fetch_snapshot.TopicSnapshotPieces(name=topic.name, partitions=[piece])],
        )
        if context.api_version >= 1:
            _, host, port = self._parts.endpoint_for(context.connection)
            response.node_endpoints = [
                fetch_snapshot.NodeEndpoint(node_id=self._parts.node_id, host=host, port=port)
            ]
        return response

    def _piece(
        self, request: FetchSnapshotRequest, name: str, asked: fetch_snapshot.PartitionSnapshot
    ) -> fetch_snapshot.SnapshotPiece:
        log = self._parts.log
        piece = fetch_snapshot.SnapshotPiece(
            index=asked.partition,
            error_code=ErrorCode.NONE,
            snapshot_id=asked.snapshot_id,
            current_leader=fetch_snapshot.LeaderIdAndEpoch(
                leader_id=self._parts.node_id, leader_epoch=log.leader_epoch
            ),
            size=0,
            position=asked.position,
            unaligned_records=b"",
        )
        if name != CLUSTER_METADATA_TOPIC or asked.partition != 0:
            return replace(piece, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if asked.current_leader_epoch != log.leader_epoch:
            is_old = asked.current_leader_epoch < log.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            return replace(piece, error_code=code)
        wanted = log_types.SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        limit = min(max(request.max_bytes, 1), RESPONSE_BYTES_MAX)
        try:
            size_bytes, data = log.read_snapshot(wanted, asked.position, limit)
        except KafkaError as error:
            return replace(piece, error_code=error.code)
        return replace(piece, size=size_bytes, unaligned_records=data)


APIS = (
    ControllerApi(
        FetchRequest,
        FetchResponse,
        make=lambda parts: FetchMetadata(parts.node),
        needs=(on_cluster(Operation.CLUSTER_ACTION),),
    ),
    ControllerApi(
        FetchSnapshotRequest,
        FetchSnapshotResponse,
        make=lambda parts: FetchSnapshot(parts.node),
        needs=(on_cluster(Operation.CLUSTER_ACTION),),
    ),
)
