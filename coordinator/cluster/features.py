"""Feature levels: what a whole cluster has agreed on (KIP-584), which levels there are, and with which a new
cluster begins.

`metadata.version` names a release of Kafka. A new cluster of that release begins with the levels that the
release brought, and a level may need a metadata.version below itself. What a lower metadata.version switches
off here, as a client sees it: SCRAM credentials (below `SCRAM_SINCE`), delegation tokens
(`TOKENS_SINCE`), several data directories
(`DIRECTORIES_SINCE`), changes of `cordoned.log.dirs` (`CORDONS_SINCE`), eligible leader replicas.

A node of a cluster registers `NODE_FEATURES` with the controllers, and cannot serve a cluster that has
finalized other levels (`unserved_features`). The cluster's metadata.version says how its brokers talk to each
other (`BrokerGates`).

Source: MetadataVersion, Feature and the features' own classes, Formatter and FeatureControlManager of Kafka
4.3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from odradek.wire.releases import METADATA_VERSION as METADATA_VERSION
from odradek.wire.releases import RELEASES

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
    begins: Sequence[tuple[int, int]] = ()
    """(metadata.version, level), ascending: from that release on a new cluster begins with the level; before
    the first with 0."""
    needs: Mapping[int, int] = {}
    """The metadata.version that a level needs."""


FEATURES: Mapping[str, Feature] = {
    ELIGIBLE_LEADERS_VERSION: Feature(0, 1, begins=((26, 1),), needs={1: 23}),
    GROUP_VERSION: Feature(0, 1, begins=((22, 1),)),
    KRAFT_VERSION: Feature(0, 1, begins=((7, 1),)),
    METADATA_VERSION: Feature(7, 33),
    SHARE_VERSION: Feature(0, 2, begins=((28, 1), (31, 2))),
    STREAMS_VERSION: Feature(0, 1, begins=((29, 1),)),
    TRANSACTION_VERSION: Feature(0, 2, begins=((24, 2),)),
}

NODE_FEATURES: Mapping[str, tuple[int, int]] = {
    ELIGIBLE_LEADERS_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (21, 33),
    SHARE_VERSION: (0, 2),
    STREAMS_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""Lowest and highest level that a node of a cluster serves. From metadata.version 21 (3.9-IV0) on replicas
name their directories, and fetch with Fetch 17."""

SCRAM_SINCE = 11
TOKENS_SINCE = 14
DIRECTORIES_SINCE = 17
CORDONS_SINCE = 30
NETWORKS_SINCE = 32
"""Hosts of access rules may be networks (CIDR)."""
UNREGISTERS_CONTROLLERS_SINCE = 33

_KRAFT_VERSION_SINCE = 21
"""The first metadata.version of which brokers tell clients kraft.version."""

_NEW_METADATA = frozenset({8, 11, 13, 14, 15, 17, 23, 30, 32, 33})
"""Each brought metadata that the one before it could not read."""


def knows_cordons(features: Mapping[str, int]) -> bool:
    """Whether the cluster's metadata have the cordoned log directories of brokers. Below this level a broker
    keeps new partitions out of its own cordoned directories, and tells nobody of them, as Kafka's does."""
    return features.get(METADATA_VERSION, 0) >= CORDONS_SINCE


def loses_metadata(before: int, after: int) -> bool:
    """Whether a lower metadata.version could not read what the one before may have written."""
    return any(level in _NEW_METADATA for level in range(after + 1, before + 1))


def unmet_need(name: str, level: int, levels: Mapping[str, int]) -> int | None:
    """The metadata.version that a level needs, where `levels` have a lower one."""
    needed = FEATURES[name].needs.get(level)
    return needed if needed is not None and levels.get(METADATA_VERSION, 0) < needed else None


def metadata_version_of(release: str) -> int:
    """Level of "4.0", "4.0.1" or "4.0-IV2"; a release that names none of its versions means the last of them.

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
            levels[name] = requested.get(name, _since(((0, 0), *feature.begins), metadata_version))
    for name, level in levels.items():
        needed = unmet_need(name, level, levels)
        if needed is not None:
            raise ValueError(
                f"{name}={level} needs {METADATA_VERSION} {needed} ({RELEASES[needed]}) or later"
            )
    return levels


def levels_of(release: str | None) -> dict[str, int]:
    """The levels with which a cluster begins that stands in for a release (None: for none). A release before
    controllers had no levels: such a cluster begins as one of the last release with ZooKeeper, 3.9."""
    if release is None or _has_levels(release):
        return first_levels(release)
    return first_levels("3.9")


def features_of(release: str) -> dict[str, tuple[int, int]]:
    """Lowest and highest level of the features that a broker of a release tells its clients; none before
    there were controllers."""
    if not _has_levels(release):
        return {}
    levels = first_levels(release)
    if levels[METADATA_VERSION] < _KRAFT_VERSION_SINCE:
        del levels[KRAFT_VERSION]
    return {name: (FEATURES[name].lowest, level) for name, level in levels.items() if level > 0}


def _has_levels(release: str) -> bool:
    return any(name.partition("-")[0] == release for name in RELEASES.values())


def missing_levels(levels: Mapping[str, int]) -> dict[str, int]:
    """Levels of these features in a cluster that was made before they were known.

    Nothing changes for it: it was made as one of the newest release, and its voters are those of one node.
    An administrator switches eligible leader replicas on, as after an upgrade of Kafka.
    """
    newest = {METADATA_VERSION: FEATURES[METADATA_VERSION].highest, KRAFT_VERSION: 1}
    return {} if METADATA_VERSION in levels else newest


# A node of a cluster


class Unserved(NamedTuple):
    """A finalized feature at a level that this node does not serve."""

    name: str
    level: int
    nearest: int
    """The nearest level that it serves."""


def unserved_features(finalized: Mapping[str, int]) -> list[Unserved]:
    """Finalized features of a cluster that keep this node from serving in it. Controllers refuse its
    registration then (UNSUPPORTED_VERSION)."""
    unserved = []
    for name, level in sorted(finalized.items()):
        lowest, highest = NODE_FEATURES.get(name, (0, 0))
        if not lowest <= level <= highest:
            unserved.append(Unserved(name, level, max(lowest, min(level, highest))))
    return unserved


def refusal_of_features(
    finalized: Mapping[str, int], bootstrap_servers: str = "", controllers: str = ""
) -> str | None:
    """One sentence with what makes it possible to serve in the cluster; None if it is possible.

    `bootstrap_servers` are brokers of the cluster, HOST:PORT; without any the command asks the `controllers`.
    A later metadata.version cannot be lowered: the controllers refuse it where one between has changed the
    metadata, as almost each has.
    """
    unserved = unserved_features(finalized)
    if not unserved:
        return None
    has = ", ".join(f"{one.name}={one.level}" for one in unserved)
    refusal = f"The cluster has finalized {has}, which this node does not serve"
    if any(one.name == METADATA_VERSION and one.level > one.nearest for one in unserved):
        return f"{refusal}, and a metadata.version is not lowered: run a release of Odradek that serves it."
    where = f"--bootstrap-controller {controllers}"
    if bootstrap_servers or not controllers:
        where = f"--bootstrap-server {bootstrap_servers or 'HOST:PORT'}"
    commands = []
    for change in ("upgrade", "downgrade"):
        levels = [one for one in unserved if (one.level < one.nearest) == (change == "upgrade")]
        if levels:
            told = " ".join(f"--feature {one.name}={one.nearest}" for one in levels)
            commands.append(f"kafka-features.sh {where} {change} {told}")
    return f"{refusal}: run {' and '.join(commands)}."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BrokerGates:
    """Abilities that a metadata.version gives the brokers of a cluster and its controllers. Kafka's brokers
    send these versions of requests to each other without asking before (MetadataVersion)."""

    fetch_version: int
    """Version of a Fetch to another broker."""
    list_offsets_version: int
    """Version of a ListOffsets to another broker."""
    partition_record_version: int
    """Version of Partition and PartitionChange records; 2 has eligible leaders."""
    register_broker_record_version: int
    has_directories: bool
    """Replicas name their log directories: LogDirs in the registration, OfflineLogDirs in heartbeats,
    AssignReplicasToDirs."""
    has_eligible_leaders: bool
    """Eligible leader replicas may be switched on (KIP-966)."""
    bumps_leader_epoch_on_shrink: bool
    """A smaller ISR has a new leader epoch."""


_FETCH_SINCE = ((7, 13), (9, 14), (10, 15), (19, 16), (21, 17), (27, 18))
_LIST_OFFSETS_SINCE = ((7, 7), (9, 8), (21, 9), (25, 10), (29, 11))
_PARTITION_RECORD_SINCE = ((7, 0), (17, 1), (23, 2))
_REGISTER_BROKER_SINCE = ((7, 1), (8, 2), (17, 3), (30, 4))
ELIGIBLE_LEADERS_SINCE = 23
_STABLE_LEADER_EPOCH_SINCE = 12
"""Since then a smaller ISR keeps its leader epoch (KAFKA-15021)."""


@lru_cache
def broker_gates(metadata_version: int) -> BrokerGates:
    """`metadata_version` is the finalized level, 7 or more."""
    # Kept, as each fetch of a follower asks for it.
    return BrokerGates(
        fetch_version=_since(_FETCH_SINCE, metadata_version),
        list_offsets_version=_since(_LIST_OFFSETS_SINCE, metadata_version),
        partition_record_version=_since(_PARTITION_RECORD_SINCE, metadata_version),
        register_broker_record_version=_since(_REGISTER_BROKER_SINCE, metadata_version),
        has_directories=metadata_version >= DIRECTORIES_SINCE,
        has_eligible_leaders=metadata_version >= ELIGIBLE_LEADERS_SINCE,
        bumps_leader_epoch_on_shrink=metadata_version < _STABLE_LEADER_EPOCH_SINCE,
    )


def _since(table: Sequence[tuple[int, int]], metadata_version: int) -> int:
    """The value of the last row that begins at this metadata.version or below."""
    return table[bisect_right(table, metadata_version, key=lambda row: row[0]) - 1][1]
