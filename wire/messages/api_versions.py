"""ApiVersions: what the broker serves, asked first on a connection.

Its answer has header 0 in every version. A version that the broker does not know is answered in version 0
with UNSUPPORTED_VERSION, so that a newer client can try again.
"""

from dataclasses import dataclass

from odradek.wire.schema import (
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


@dataclass(slots=True, kw_only=True)
class ApiVersionsRequest(Message, api_key=18, versions=(0, 4), flexible_since=3):
    client_software_name: str = on_wire(STRING, since=3, ignorable=True)
    """Name of the client library."""
    client_software_version: str = on_wire(STRING, since=3, ignorable=True)
    """Version of the client library."""


@dataclass(slots=True, kw_only=True)
class ApiVersion(Struct):
    api_key: int = on_wire(INT16)
    """Which API."""
    min_version: int = on_wire(INT16)
    """Lowest version."""
    max_version: int = on_wire(INT16)
    """Highest version, included."""


@dataclass(slots=True, kw_only=True)
class SupportedFeatureKey(Struct):
    name: str = on_wire(STRING)
    """Name of the feature."""
    min_version: int = on_wire(INT16)
    """Lowest version."""
    max_version: int = on_wire(INT16)
    """Highest version, included."""


@dataclass(slots=True, kw_only=True)
class FinalizedFeatureKey(Struct):
    name: str = on_wire(STRING)
    """Name of the feature."""
    max_version_level: int = on_wire(INT16)
    """Highest level, included; 0 removes the feature."""
    min_version_level: int = on_wire(INT16)
    """Lowest level."""


@dataclass(slots=True, kw_only=True)
class ApiVersionsResponse(Message, api_key=18, versions=(0, 4), flexible_since=3):
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    api_keys: list[ApiVersion] = on_wire(Array(ApiVersion))
    """Every API that the broker serves, with its versions."""
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """How long the client is asked to wait, as it used up a quota."""
    supported_features: list[SupportedFeatureKey] = on_wire(
        Array(SupportedFeatureKey), since=3, tag=0, ignorable=True
    )
    """Features that this broker could run."""
    finalized_features_epoch: int = on_wire(INT64, since=3, default=-1, tag=1, ignorable=True)
    """Counts up when finalized features change; -1 while they are not known."""
    finalized_features: list[FinalizedFeatureKey] = on_wire(
        Array(FinalizedFeatureKey), since=3, tag=2, ignorable=True
    )
    """Features as all brokers of the cluster have them now."""
    zk_migration_ready: bool = on_wire(BOOL, since=3, tag=3, ignorable=True)
    """Whether the move away from ZooKeeper could begin; of no meaning any more."""
