"""GetTelemetrySubscriptions (key 71, version 0) and PushTelemetry (72, version 0): metrics that clients push.

ApiVersions lists them while there is a subscription (`apis/api_versions.py`): clients of Kafka ask for one as
soon as they may. They are served at any time. Metrics are decompressed in a worker, to `telemetry.max.bytes`
at most, and read in steps. What cannot be read is answered with INVALID_RECORD, as Kafka does when its
reporter fails; Kafka itself does not read what is decompressed.

Source: ClientMetricsManager of Kafka 4.3; KIP-714.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Api
from odradek.coordinator.client_metrics.clients import Sender
from odradek.wire.compression import Compression, decompress
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from odradek.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from odradek.wire.otlp import reading_metrics
from odradek.wire.schema import ZERO_UUID, uuid_to_text

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.node import ApiParts
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.client_metrics.clients import ClientMetrics
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.clients")

TAKEN = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""The best first."""
LOGGED_CHARACTERS_MAX = 8192
"""Characters of one push that are logged at most."""


class ClientMetricsApis:
    """The handlers `subscriptions` and `push`."""

    def __init__(
        self,
        metrics: ClientMetrics,
        current_view: Callable[[], ClusterView],
        work: WorkQueue,
        bytes_max: int,
    ) -> None:
        """`work` is a queue with workers; `bytes_max` is `telemetry.max.bytes`."""
        self._metrics = metrics
        self._current_view = current_view
        self._work = work
        self._bytes_max = bytes_max

    def subscriptions(
        self, request: GetTelemetrySubscriptionsRequest, context: RequestContext
    ) -> GetTelemetrySubscriptionsResponse:
        self._metrics.follow(self._configs())
        try:
            wanted = self._metrics.subscribe(request.client_instance_id, _sender(context), context.now_ms)
        except KafkaError as error:
            return GetTelemetrySubscriptionsResponse(error_code=error.code, client_instance_id=ZERO_UUID)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=wanted.instance_id,
            subscription_id=wanted.subscription_id,
            accepted_compression_types=[*TAKEN],
            push_interval_ms=wanted.interval_ms,
            telemetry_max_bytes=self._bytes_max,
            delta_temporality=True,
            requested_metrics=[*wanted.metrics],
        )

    def push(
        self, request: PushTelemetryRequest, context: RequestContext
    ) -> PushTelemetryResponse | WorkResponse:
        self._metrics.follow(self._configs())
        try:
            self._metrics.begin_push(
                request.client_instance_id,
                _sender(context),
                context.now_ms,
                subscription_id=request.subscription_id,
                compression=request.compression_type,
                size_bytes=len(request.metrics),
                bytes_max=self._bytes_max,
                is_last=request.terminating,
            )
        except KafkaError as error:
            return PushTelemetryResponse(error_code=error.code)
        if not request.metrics:
            return PushTelemetryResponse()
        # The work begins when its turn comes, the receive buffer is then used for other requests.
        data = bytes(request.metrics)
        work = self._taking(request.client_instance_id, request.compression_type, data, context.now_ms)
        return WorkResponse(self._work, work, context)

    def _taking(
        self, instance_id: bytes, compression: int, data: bytes, now_ms: int
    ) -> Work[PushTelemetryResponse]:
        limit_bytes = self._bytes_max
        try:
            plain = data
            if compression != Compression.NONE:
                plain = yield lambda: decompress(compression, data, limit_bytes)
            pushed = yield from reading_metrics(plain)
        except KafkaError as error:
            logger.debug("the metrics of %s cannot be read: %s", uuid_to_text(instance_id), error.message)
            self._metrics.fail_push(instance_id)
            return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
        self._metrics.end_push(instance_id, pushed, now_ms)
        if logger.isEnabledFor(logging.DEBUG):
            told = repr({point.name: point.value for point in pushed.points})
            logger.debug("metrics of %s: %s", uuid_to_text(instance_id), told[:LOGGED_CHARACTERS_MAX])
        return PushTelemetryResponse()

    def _configs(self) -> Mapping[str, Mapping[str, str]]:
        return self._current_view().client_metrics_configs


def _sender(context: RequestContext) -> Sender:
    connection = context.connection
    return Sender(
        context.client_id,
        connection.client_software_name,
        connection.client_software_version,
        connection.peer_host,
        connection.peer_port,
    )


def _handlers(parts: ApiParts) -> ClientMetricsApis:
    node, bytes_max = parts.node, parts.settings.telemetry_max_bytes
    return ClientMetricsApis(node.client_metrics(), node.current_view, node.conversions, bytes_max)


APIS = (
    Api(
        GetTelemetrySubscriptionsRequest,
        GetTelemetrySubscriptionsResponse,
        make=lambda parts: parts.shared(_handlers).subscriptions,
        needs=(),
    ),
    Api(
        PushTelemetryRequest,
        PushTelemetryResponse,
        make=lambda parts: parts.shared(_handlers).push,
        needs=(),
    ),
)
