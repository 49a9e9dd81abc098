"""ApiVersions (API 18)."""

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
    client_software_version: str = on_wire(STRING, since=3, ignorable=True)


@dataclass(slots=True, kw_only=True)
class ApiVersion(Struct):
    api_key: int = on_wire(INT16)
    min_version: int = on_wire(INT16)
    max_version: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class SupportedFeatureKey(Struct):
    name: str = on_wire(STRING)
    min_version: int = on_wire(INT16)
    max_version: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class FinalizedFeatureKey(Struct):
    name: str = on_wire(STRING)
    max_version_level: int = on_wire(INT16)
    min_version_level: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class ApiVersionsResponse(Message, api_key=18, versions=(0, 4), flexible_since=3):
    error_code: int = on_wire(INT16)
    api_keys: list[ApiVersion] = on_wire(Array(ApiVersion))
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = on_wire(
        Array(SupportedFeatureKey), since=3, tag=0, ignorable=True
    )
    finalized_features_epoch: int = on_wire(INT64, since=3, default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = on_wire(
        Array(FinalizedFeatureKey), since=3, tag=2, ignorable=True
    )
    zk_migration_ready: bool = on_wire(BOOL, since=3, tag=3, ignorable=True)
