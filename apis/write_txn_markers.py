"""The markers that end transactions: written for a coordinator of this node, or for the sender of
WriteTxnMarkers (key 27, versions 0 to 2).

A marker is written to each partition of its transaction that this node leads; for a partition of
`__consumer_offsets` the group coordinator writes it and applies or drops the pending offsets. Each partition
has its own result; a refusal does not affect the others. A sender needs ALTER on the cluster, as an
administrator has it (`kafka-transactions abort`), or CLUSTER_ACTION, as brokers have it.

Source: KafkaApis.handleWriteTxnMarkersRequest of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster, or_on_cluster
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api, Charge
from odradek.apis.leadership import check_in_sync
from odradek.apis.refusals import Refusal, each_partition
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups
    from odradek.apis.leadership import Leadership
    from odradek.apis.node import NodeParts
    from odradek.apis.refusals import Item
    from odradek.apis.turn import Timers, Turn

Partition = tuple[str, int]
"""Topic and index."""
Results = dict[Partition, ErrorCode]

_COORDINATOR_IS_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Codes of group coordinators that transaction coordinators do not expect: NOT_LEADER_OR_FOLLOWER for
them."""


class MarkerWriter:
    """Writes markers to partitions that this node leads. `now_ms` is the clock of records."""

    __slots__ = ("_groups", "_leadership", "_now_ms", "_timers", "_turn")

    def __init__(
        self, leadership: Leadership, groups: Groups, turn: Turn, timers: Timers, now_ms: Callable[[], int]
    ) -> None:
        self._leadership = leadership
        self._groups = groups
        self._turn = turn
        self._timers = timers
        self._now_ms = now_ms

    def write(
        self, marker: EndMarker, partitions: Iterable[Partition], then: Callable[[Results], None]
    ) -> None:
        """`then` is called once, with a code for each partition, when all have written or refused the marker;
        never before this returns."""
        wanted = list(dict.fromkeys(partitions))
        writing = _Writing(len(wanted), then)
        for partition in wanted:
            topic, index = partition
            try:
                if topic == OFFSETS_TOPIC:
                    self._leadership.lead(topic, index)
                    self._groups().end_offsets(index, marker, writing.of_offsets(partition))
                else:
                    self._append(marker, topic, index, writing.of_data(partition))
            except KafkaError as error:
                writing.settle(partition, error.code)
        self._timers.after(0, writing.start)

    def _append(
        self, marker: EndMarker, topic: str, index: int, done: Callable[[KafkaError | None], None]
    ) -> None:
        led = self._leadership.lead(topic, index)
        check_in_sync(self._leadership, led)
        appended = led.log.appends.append_marker(marker, now_ms=self._now_ms())
        self._turn.add(led.log, done, led.until(appended.must_flush, True))


def marker_writer(node: NodeParts) -> MarkerWriter:
    """The markers of one node."""
    return MarkerWriter(node.leadership, node.groups, node.turn, node.timers, node.now_ms)


class _Writing:
    """One marker on its way to its partitions."""

    __slots__ = ("_may_tell", "_missing", "_results", "_then")

    def __init__(self, count: int, then: Callable[[Results], None]) -> None:
        self._missing = count
        self._results: Results = {}
        self._then = then
        self._may_tell = False

    def of_data(self, partition: Partition) -> Callable[[KafkaError | None], None]:
        """The function to call after the partition's commit."""
        return lambda error: self.settle(partition, ErrorCode.NONE if error is None else error.code)

    def of_offsets(self, partition: Partition) -> Callable[[ErrorCode], None]:
        """The function to call with the group coordinator's reply."""

        def done(code: ErrorCode) -> None:
            is_ready = code not in _COORDINATOR_IS_NOT_READY
            self.settle(partition, code if is_ready else ErrorCode.NOT_LEADER_OR_FOLLOWER)

        return done

    def settle(self, partition: Partition, code: ErrorCode) -> None:
        self._results[partition] = code
        self._missing -= 1
        self._tell()

    def start(self) -> None:
        """The caller has returned: `then` may be called."""
        self._may_tell = True
        self._tell()

    def _tell(self) -> None:
        if self._may_tell and self._missing == 0:
            self._may_tell = False
            self._then(self._results)


class WriteTxnMarkers:
    """The handler: markers of one request are written together, and the response waits for all."""

    def __init__(self, markers: MarkerWriter) -> None:
        self._markers = markers

    def __call__(
        self, request: WriteTxnMarkersRequest, context: RequestContext
    ) -> WriteTxnMarkersResponse | Waiting:
        if all(
            context.refuses(operation, ResourceType.CLUSTER, CLUSTER_NAME)
            for operation in (Operation.ALTER, Operation.CLUSTER_ACTION)
        ):
            refused: WriteTxnMarkersResponse = API.refuse(
                request, context.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
            return refused
        # A producer that is named twice gets its results in one entry.
        errors: dict[int, Results] = {}
        requested = [(marker, _partitions(marker)) for marker in request.markers]
        missing = len(requested)
        if missing == 0:
            return WriteTxnMarkersResponse(markers=[])
        if any(_is_nobodys(marker) and partitions for marker, partitions in requested):
            for marker, partitions in requested:
                failed = dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
                errors.setdefault(marker.producer_id, {}).update(failed)
            return _response(errors)
        waiting = Waiting()

        def written(producer_id: int, results: Results) -> None:
            nonlocal missing
            if results:
                errors.setdefault(producer_id, {}).update(results)
            missing -= 1
            if missing == 0:
                waiting.complete(_response(errors))

        for marker, partitions in requested:
            self._markers.write(
                EndMarker(
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    marker.transaction_result,
                    marker.transaction_version,
                ),
                partitions,
                partial(written, marker.producer_id),
            )
        return waiting


def _is_nobodys(marker: WritableTxnMarker) -> bool:
    """Whether no marker can have these values: Kafka fails the whole request."""
    return marker.producer_id < 0 or marker.producer_epoch < 0


def _partitions(marker: WritableTxnMarker) -> list[Partition]:
    return [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _response(errors: Mapping[int, Results]) -> WriteTxnMarkersResponse:
    markers = []
    for producer_id, results in errors.items():
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for (name, index), code in results.items():
            topic = topics.setdefault(name, WritableTxnMarkerTopicResult(name=name, partitions=[]))
            topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
        markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values())))
    return WriteTxnMarkersResponse(markers=markers)


_results_of_marker = each_partition("topics", "partition_indexes", "", copied={"name": "name"})


def _results_of_markers(request: WriteTxnMarkersRequest) -> list[Item]:
    return [
        ({"producer_id": marker.producer_id}, ("topics", _results_of_marker(marker)))
        for marker in request.markers
    ]


API = Api(
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    make=lambda parts: WriteTxnMarkers(marker_writer(parts.node)),
    needs=(or_on_cluster(Operation.ALTER), on_cluster(Operation.CLUSTER_ACTION, is_whole=False)),
    refusal=Refusal(results=("markers", _results_of_markers)),
    charge=Charge.BY_HANDLER,  # markers are for other nodes: nobody is charged
)
