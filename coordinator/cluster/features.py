"""Feature levels: what a whole cluster has agreed on (KIP-584), which levels there are, and with which a new
cluster begins.

`metadata.version` names a release of Kafka. A new cluster of that release begins with the levels that the
release brought, and a level may need a metadata.version below itself. What a lower metadata.version switches
off here, as a client sees it: SCRAM credentials (below `SCRAM_SINCE`), several data directories
(`DIRECTORIES_SINCE`), changes of `cordoned.log.dirs` (`CORDONS_SINCE`), eligible leader replicas.

Share groups are not built. Their feature is known, so that an upgrade of all features to a release goes
through as with Kafka; a new cluster begins with level 0, and at no level a share API is served.

Source: MetadataVersion, Feature and the features' own classes, Formatter and FeatureControlManager of Kafka
4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELIGIBLE_LEADERS_VERSION = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
TRANSACTION_VERSION = "transaction.version"


class Feature(NamedTuple):
    """One feature: its levels, and what they have to do with metadata.version."""

    lowest: int
    highest: int
    begins: tuple[int, int] | None = None
    """(metadata.version, level): from that release on a new cluster begins with the level, else with 0."""
    needs: Mapping[int, int] = {}
    """The metadata.version that a level needs."""


FEATURES: Mapping[str, Feature] = {
    ELIGIBLE_LEADERS_VERSION: Feature(0, 1, begins=(26, 1), needs={1: 23}),
    GROUP_VERSION: Feature(0, 1, begins=(22, 1)),
    KRAFT_VERSION: Feature(0, 1, begins=(7, 1)),
    METADATA_VERSION: Feature(7, 30),
    SHARE_VERSION: Feature(0, 1),
    STREAMS_VERSION: Feature(0, 1, begins=(29, 1)),
    TRANSACTION_VERSION: Feature(0, 2, begins=(24, 2)),
}

SCRAM_SINCE = 11
DIRECTORIES_SINCE = 17
CORDONS_SINCE = 30

_RELEASES = (
    "3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 "
    "3.8-IV0 3.9-IV0 4.0-IV0 4.0-IV1 4.0-IV2 4.0-IV3 4.1-IV0 4.1-IV1 4.2-IV0 4.2-IV1 4.3-IV0"
)
RELEASES: Mapping[int, str] = dict(enumerate(_RELEASES.split(), FEATURES[METADATA_VERSION].lowest))
"""Name by metadata.version."""

_NEW_METADATA = frozenset({8, 11, 13, 14, 15, 17, 23, 30})
"""Each brought metadata that the one before it could not read."""


def loses_metadata(before: int, after: int) -> bool:
    """Whether a lower metadata.version could not read what the one before may have written."""
    return any(level in _NEW_METADATA for level in range(after + 1, before + 1))


def unmet_need(name: str, level: int, levels: Mapping[str, int]) -> int | None:
    """The metadata.version that a level needs, where `levels` have a lower one."""
    needed = FEATURES[name].needs.get(level)
    return needed if needed is not None and levels.get(METADATA_VERSION, 0) < needed else None


def metadata_version_of(release: str) -> int:
    """Of "4.0", "4.0.1" or "4.0-IV2"; a release that names none of its versions means the last of them.

    ValueError: there is no such release.
    """
    wanted = ".".join(release.split(".")[:2])
    for level, name in reversed(list(RELEASES.items())):
        if wanted in (name, name.partition("-")[0]):
            return level
    raise ValueError(f"there is no release {release!r}: name one of {', '.join(RELEASES.values())}")


def first_levels(release: str | None = None, requested: Mapping[str, int] = {}) -> dict[str, int]:
    """The levels with which a cluster begins: the requested ones, for the others those of the release
    (None: the newest).

    ValueError, a clause for people: no such release, feature or level, or levels that do not go together.
    """
    for name, level in requested.items():
        if name not in FEATURES:
            raise ValueError(f"there is no feature {name!r}: name one of {', '.join(FEATURES)}")
        lowest, highest = FEATURES[name][:2]
        if not lowest <= level <= highest:
            raise ValueError(f"{name}={level}: its levels are {lowest} to {highest}")
    if release is not None and METADATA_VERSION in requested:
        raise ValueError(f"a release and {METADATA_VERSION} are two ways to say the same: give one of them")
    metadata_version = requested.get(METADATA_VERSION, FEATURES[METADATA_VERSION].highest)
    if release is not None:
        metadata_version = metadata_version_of(release)
    levels = {METADATA_VERSION: metadata_version}
    for name, feature in FEATURES.items():
        if name != METADATA_VERSION:
            since, level = feature.begins or (metadata_version, 0)
            levels[name] = requested.get(name, level if metadata_version >= since else 0)
    for name, level in levels.items():
        needed = unmet_need(name, level, levels)
        if needed is not None:
            raise ValueError(
                f"{name}={level} needs {METADATA_VERSION} {needed} ({RELEASES[needed]}) or later"
            )
    return levels


def missing_levels(levels: Mapping[str, int]) -> dict[str, int]:
    """What a cluster that was made before these features were known has of them.

    Nothing changes for it: it was made as one of the newest release, and its voters are those of one node.
    An administrator switches eligible leader replicas on, as after an upgrade of Kafka.
    """
    newest = {METADATA_VERSION: FEATURES[METADATA_VERSION].highest, KRAFT_VERSION: 1}
    return {} if METADATA_VERSION in levels else newest
