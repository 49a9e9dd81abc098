"""ListConfigResources (key 74, versions 0 and 1): the names of resources that can have settings.

Topics, brokers, subscriptions to client metrics, which are the only type that version 0 lists, and all groups
with settings of their own, whether they exist or not. The loggers of a broker are listed under its name.

Source: KafkaApis.handleListConfigResources of Kafka 4.3; KIP-1142.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.declaration import Api
from odradek.apis.describe_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.coordinator.cluster.view import ClusterView

FIRST_VERSION_WITH_TYPES = 1


class ListConfigResources:
    """The handler."""

    def __init__(self, current_view: Callable[[], ClusterView]) -> None:
        self._current_view = current_view

    def __call__(
        self, request: ListConfigResourcesRequest, context: RequestContext
    ) -> ListConfigResourcesResponse:
        names = self._names()
        if context.api_version < FIRST_VERSION_WITH_TYPES:
            wanted: Iterable[int] = {CLIENT_METRICS}
        else:
            wanted = request.resource_types or names
        if any(kind not in names for kind in wanted):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
        return ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(resource_name=name, resource_type=kind)
                for kind in names
                if kind in wanted
                for name in names[kind]
            ]
        )

    def _names(self) -> dict[int, Iterable[str]]:
        """By type, in Kafka's order."""
        view = self._current_view()
        brokers = [str(node_id) for node_id in sorted(view.brokers)]
        return {
            GROUP: view.group_configs,
            CLIENT_METRICS: view.client_metrics_configs,
            BROKER_LOGGER: brokers,
            BROKER: brokers,
            TOPIC: view.topics,
        }


API = Api(
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    make=lambda parts: ListConfigResources(parts.node.current_view),
    needs=(on_cluster(Operation.DESCRIBE_CONFIGS),),
)
