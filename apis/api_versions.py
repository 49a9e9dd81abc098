"""ApiVersions (key 18, versions 0 to 5): what this broker serves, derived from the one table of APIs.

A node of a cluster serves `NODE_FEATURES`, and of the APIs that its controllers carry out (`forwarding.py`)
the versions that they serve as well; as long as it knows none of them, all of its own.

Client metrics (71, 72) are listed while there is a subscription: clients then ask which metrics are wanted.
Kafka lists them if it was started with a reporter that takes them.

From version 5 on a client says which node of which cluster it believes to speak with. If it is wrong, as an
address has gone over to another node, REBOOTSTRAP_REQUIRED tells it to begin anew with its first addresses.
A controller takes any cluster and node, as Kafka's does.

A broker that stands in for a release of Kafka (`odradek.emulate`) tells the features of that release.

A request of an unknown version is answered in version 0 with error 35 and the entry of ApiVersions, so that
the client can choose another version; the connection does that, since the body cannot be decoded.

Source: ApiVersionsRequest, ApiVersionsResponse (intersectForwardableApis) and
KafkaApis.handleApiVersionsRequest of Kafka 4.4; KIP-511
for the client's name, KIP-1242 for the node that it expects, KAFKA-17492 for features that start at level 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.apis.declaration import SharedApi
from odradek.coordinator.cluster.features import FEATURES, NODE_FEATURES
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import is_forwardable
from odradek.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.node import ControllerVersions, SharedApiParts
    from odradek.coordinator.cluster.view import ClusterView

FIRST_VERSION_WITH_CLIENT_NAME = 3
FIRST_VERSION_WITH_LEVEL_ZERO = 4
ANY_NODE = -1
CLIENT_METRICS = frozenset({71, 72})
"""The keys of GetTelemetrySubscriptions and PushTelemetry."""

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions:
    """The handler."""

    def __init__(
        self,
        node_id: int,
        current_view: Callable[[], ClusterView],
        served: Mapping[int, range],
        controller_versions: ControllerVersions | None = None,
        *,
        is_controller: bool = False,
        told_features: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """`served` has the versions of each served API, `controller_versions` those of a cluster's
        controllers; of other features than `told_features` nobody is told, if there are these."""
        self._told_features = told_features
        self._is_controller = is_controller
        self._node_id = node_id
        self._current_view = current_view
        self._controller_versions = controller_versions
        self._served = [
            ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1])
            for key, versions in sorted(served.items())
        ]
        self._served_without_client_metrics = [
            one for one in self._served if one.api_key not in CLIENT_METRICS
        ]

    def __call__(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        version = context.api_version
        if not names_node_whole(request):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if version >= FIRST_VERSION_WITH_CLIENT_NAME:
            name, software_version = request.client_software_name, request.client_software_version
            if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(software_version)):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            context.connection.client_software_name = name
            context.connection.client_software_version = software_version
        view = self._current_view()
        if self._is_of_another(request, view):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        return ApiVersionsResponse(
            api_keys=self._api_keys(with_client_metrics=bool(view.client_metrics_configs)),
            supported_features=[
                SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
                for name, (lowest, highest) in sorted(self._features().items())
                if lowest > 0 or version >= FIRST_VERSION_WITH_LEVEL_ZERO
            ],
            finalized_features_epoch=-1 if self._told_features == {} else view.features_epoch,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in sorted(view.features.items())
                if level > 0 and self._may_tell(name)
            ],
        )

    def _is_of_another(self, request: ApiVersionsRequest, view: ClusterView) -> bool:
        """Whether the client means to speak with another node."""
        if self._is_controller or request.node_id == ANY_NODE:
            return False
        return (request.cluster_id, request.node_id) != (view.cluster_id, self._node_id)

    def _may_tell(self, feature: str) -> bool:
        return self._told_features is None or feature in self._told_features

    def _features(self) -> Mapping[str, tuple[int, int]]:
        """Lowest and highest level by feature."""
        if self._told_features is not None:
            return self._told_features
        if self._controller_versions is not None:
            return NODE_FEATURES
        return {name: (one.lowest, one.highest) for name, one in FEATURES.items()}

    def _api_keys(self, *, with_client_metrics: bool) -> list[ApiVersion]:
        served = self._served if with_client_metrics else self._served_without_client_metrics
        controllers = {} if self._controller_versions is None else self._controller_versions()
        if not controllers:
            return served
        return [
            common
            for one in served
            if (common := _common(one, controllers) if is_forwardable(one.api_key) else one) is not None
        ]


def names_node_whole(request: ApiVersionsRequest) -> bool:
    """Whether the client names both the cluster and the node, or neither."""
    return (request.cluster_id is None) == (request.node_id == ANY_NODE)


def _common(own: ApiVersion, controllers: Mapping[int, tuple[int, int]]) -> ApiVersion | None:
    """None where the two sides have no version in common."""
    first, last = controllers.get(own.api_key, (0, -1))
    first, last = max(first, own.min_version), min(last, own.max_version)
    return None if first > last else ApiVersion(api_key=own.api_key, min_version=first, max_version=last)


def _make(parts: SharedApiParts) -> ApiVersions:
    node = parts.node
    return ApiVersions(
        node.node_id,
        node.current_view,
        parts.versions,
        node.controller_versions,
        is_controller=node.is_controller,
        told_features=parts.settings.told_features,
    )


API = SharedApi(
    ApiVersionsRequest,
    ApiVersionsResponse,
    make=_make,
    needs=(),
)
