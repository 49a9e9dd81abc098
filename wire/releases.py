"""Releases of Kafka by the level of the feature metadata.version.

Source: MetadataVersion of Kafka 4.4.
"""

from collections.abc import Mapping

_NAMES = (
    "3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 "
    "3.8-IV0 3.9-IV0 4.0-IV0 4.0-IV1 4.0-IV2 4.0-IV3 4.1-IV0 4.1-IV1 4.2-IV0 4.2-IV1 4.3-IV0 "
    "4.4-IV0 4.4-IV1 4.4-IV2"
)
RELEASES: Mapping[int, str] = dict(enumerate(_NAMES.split(), 7))
"""Name by level, such as "4.3-IV0"; the release is what stands before the hyphen."""
METADATA_VERSION = "metadata.version"


def level_name(feature: str, level: int) -> str:
    """A level as Kafka's tools show it: only those of metadata.version have names."""
    return RELEASES.get(level, str(level)) if feature == METADATA_VERSION else str(level)
