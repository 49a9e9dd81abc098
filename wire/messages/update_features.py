"""UpdateFeatures: raise or lower the levels of cluster-wide features."""

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


class FeatureUpdateKey(Struct):
    feature: str = on_wire(STRING)
    """Name of the feature."""
    max_version_level: int = on_wire(INT16)
    """Highest level, included; 0 removes the feature."""
    allow_downgrade: bool = on_wire(BOOL, until=0)
    """Whether the level may go down."""
    upgrade_type: int = on_wire(INT8, since=1, default=1)
    """1 upgrade only, 2 a downgrade that loses nothing, 3 any downgrade."""


class UpdateFeaturesRequest(Message, api_key=57, versions=(0, 2), flexible_since=0):
    timeout_ms: int = on_wire(INT32, default=60000)
    """Time-out of the operation in ms."""
    feature_updates: list[FeatureUpdateKey] = on_wire(Array(FeatureUpdateKey))
    """Features with their new levels."""
    validate_only: bool = on_wire(BOOL, since=1)
    """Whether to validate only, without a change."""


class UpdatableFeatureResult(Struct):
    feature: str = on_wire(STRING)
    """Name of the feature."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""


class UpdateFeaturesResponse(Message, api_key=57, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
    results: list[UpdatableFeatureResult] = on_wire(Array(UpdatableFeatureResult), until=1, ignorable=True)
    """One result for each item of the request."""
