"""UpdateFeatures (API 57)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class FeatureUpdateKey(Struct):
    feature: str = on_wire(STRING)
    max_version_level: int = on_wire(INT16)
    allow_downgrade: bool = on_wire(BOOL, until=0)
    upgrade_type: int = on_wire(INT8, since=1, default=1)


@dataclass(slots=True, kw_only=True)
class UpdateFeaturesRequest(Message, api_key=57, versions=(0, 2), flexible_since=0):
    timeout_ms: int = on_wire(INT32, default=60000)
    feature_updates: list[FeatureUpdateKey] = on_wire(Array(FeatureUpdateKey))
    validate_only: bool = on_wire(BOOL, since=1)


@dataclass(slots=True, kw_only=True)
class UpdatableFeatureResult(Struct):
    feature: str = on_wire(STRING)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class UpdateFeaturesResponse(Message, api_key=57, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    results: list[UpdatableFeatureResult] = on_wire(Array(UpdatableFeatureResult), until=1, ignorable=True)
