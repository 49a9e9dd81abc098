"""ApiVersions (key 18, versions 0 to 4): what this broker serves, derived from the one list of APIs.

A request of an unknown version is answered in version 0 with error 35 and the entry of ApiVersions, so that
the client can choose another version; the connection does that, since the body cannot be decoded.

Source: ApiVersionsRequest, ApiVersionsResponse and KafkaApis.handleApiVersionsRequest of Kafka 4.3; KIP-511
for the client's name, KAFKA-17492 for features that start at level 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek.coordinator.cluster.features import FEATURES
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.coordinator.cluster.view import ClusterView

FIRST_VERSION_WITH_CLIENT_NAME = 3
FIRST_VERSION_WITH_LEVEL_ZERO = 4

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions:
    """The handler. It is in the list that it describes, so it gets the list after it was made."""

    def __init__(self, current_view: Callable[[], ClusterView]) -> None:
        self._current_view = current_view
        self._served: list[ApiVersion] = []

    def describe(self, served: Iterable[tuple[int, range]]) -> None:
        """Sets the list of served APIs: pairs of key and versions."""
        self._served = [
            ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1])
            for key, versions in sorted(served, key=lambda pair: pair[0])
        ]

    def __call__(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        version = context.api_version
        if version >= FIRST_VERSION_WITH_CLIENT_NAME:
            name, software_version = request.client_software_name, request.client_software_version
            if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(software_version)):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            context.connection.client_software_name = name
            context.connection.client_software_version = software_version
        view = self._current_view()
        return ApiVersionsResponse(
            api_keys=self._served,
            supported_features=[
                SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
                for name, feature in sorted(FEATURES.items())
                if feature.lowest > 0 or version >= FIRST_VERSION_WITH_LEVEL_ZERO
            ],
            finalized_features_epoch=view.features_epoch,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in sorted(view.features.items())
                if level > 0
            ],
        )
