"""ApiVersions: the APIs of the broker; the first request on a connection.

The response has header 0 in every version. An unknown version gets a response in version 0 with
UNSUPPORTED_VERSION, so that a newer client can try again with a supported version.
"""

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class ApiVersionsRequest(Message, api_key=18, versions=(0, 5), flexible_since=3):
    client_software_name: str = on_wire(STRING, since=3, ignorable=True)
    """Name of the client library."""
    client_software_version: str = on_wire(STRING, since=3, ignorable=True)
    """Version of the client library."""
    cluster_id: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """Id of the cluster that the client believes to speak with; null if it does not know."""
    node_id: int = on_wire(INT32, since=5, default=-1, ignorable=True)
    """Id of the node that the client believes to speak with; -1 if it does not know."""


class ApiVersion(Struct):
    api_key: int = on_wire(INT16)
    """API key."""
    min_version: int = on_wire(INT16)
    """Lowest version."""
    max_version: int = on_wire(INT16)
    """Highest version, included."""


class SupportedFeatureKey(Struct):
    name: str = on_wire(STRING)
    """Name of the feature."""
    min_version: int = on_wire(INT16)
    """Lowest version."""
    max_version: int = on_wire(INT16)
    """Highest version, included."""


class FinalizedFeatureKey(Struct):
    name: str = on_wire(STRING)
    """Name of the feature."""
    max_version_level: int = on_wire(INT16)
    """Highest level, included; 0 removes the feature."""
    min_version_level: int = on_wire(INT16)
    """Lowest level."""


class ApiVersionsResponse(Message, api_key=18, versions=(0, 5), flexible_since=3):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    api_keys: list[ApiVersion] = on_wire(Array(ApiVersion))
    """Every API that the broker serves, with its versions."""
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    supported_features: list[SupportedFeatureKey] = on_wire(
        Array(SupportedFeatureKey), since=3, tag=0, ignorable=True
    )
    """Features with the levels that this broker supports."""
    finalized_features_epoch: int = on_wire(INT64, since=3, default=-1, tag=1, ignorable=True)
    """Counts up when finalized features change; -1 while they are not known."""
    finalized_features: list[FinalizedFeatureKey] = on_wire(
        Array(FinalizedFeatureKey), since=3, tag=2, ignorable=True
    )
    """Finalized features of the cluster."""
    zk_migration_ready: bool = on_wire(BOOL, since=3, tag=3, ignorable=True)
    """Whether the migration from ZooKeeper could begin; not used any more."""
