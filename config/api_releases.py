"""The last version of each API in the releases of Kafka, from 2.4 to 4.4: what a broker advertises that
stands in for one of them (`odradek.emulate`), and what `odradek.max.versions` may name.

Up to 3.2 they are those of a broker with ZooKeeper, from 3.3 on those of one with controllers. Versions that
a release had marked as unstable are left out. `compat_tests/differential/test_emulated_versions.py` compares
this with the definitions in Kafka's own jars, and with what Kafka's broker advertises.

Source: the definitions of messages in each release (validVersions, latestVersionUnstable, listeners).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.config.config_error import ConfigError
from odradek.config.near_names import did_you_mean
from odradek.wire.messages import api_keys, api_name, versions_of

MAX_VERSIONS: Final = "odradek.max.versions"
NOT_SERVED: Final = "-1"
"""In place of a last version."""
EMULATE: Final = "odradek.emulate"

RELEASES: Final = (
    "2.4", "2.5", "2.6", "2.7", "2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9",
    "4.0", "4.1", "4.2", "4.3", "4.4",
)  # fmt: skip
"""Oldest first."""

_LAST_VERSIONS: Final[Mapping[str, str]] = {
    "Produce": "2.4:8 2.8:9 3.7:10 3.8:11 4.0:12 4.1:13",
    "Fetch": "2.4:11 2.7:12 3.1:13 3.5:15 3.7:16 3.9:17 4.1:18",
    "ListOffsets": "2.4:5 2.8:6 3.0:7 3.5:8 3.9:9 4.0:10 4.2:11",
    "Metadata": "2.4:9 2.8:11 3.1:12 4.0:13",
    "OffsetCommit": "2.4:8 3.7:9 4.2:10",
    "OffsetFetch": "2.4:6 2.5:7 3.0:8 3.7:9 4.2:10",
    "FindCoordinator": "2.4:3 3.0:4 3.8:5 3.9:6",
    "JoinGroup": "2.4:6 2.5:7 3.2:9",
    "Heartbeat": "2.4:4",
    "LeaveGroup": "2.4:4 3.2:5",
    "SyncGroup": "2.4:4 2.5:5",
    "DescribeGroups": "2.4:5 4.0:6",
    "ListGroups": "2.4:3 2.6:4 3.8:5",
    "SaslHandshake": "2.4:1",
    "ApiVersions": "2.4:3 3.9:4 4.4:5",
    "CreateTopics": "2.4:5 2.7:6 2.8:7",
    "DeleteTopics": "2.4:4 2.7:5 2.8:6",
    "DeleteRecords": "2.4:1 2.6:2",
    "InitProducerId": "2.4:2 2.5:3 2.7:4 3.8:5",
    "OffsetForLeaderEpoch": "2.4:3 2.8:4",
    "AddPartitionsToTxn": "2.4:1 2.7:2 2.8:3 3.6:4 3.8:5",
    "AddOffsetsToTxn": "2.4:1 2.7:2 2.8:3 3.8:4",
    "EndTxn": "2.4:1 2.7:2 2.8:3 3.8:4 4.0:5",
    "WriteTxnMarkers": "2.4:0 2.8:1 4.2:2",
    "TxnOffsetCommit": "2.4:2 2.5:3 3.8:4 4.0:5 4.4:6",
    "DescribeAcls": "2.4:1 2.5:2 3.3:3",
    "CreateAcls": "2.4:1 2.5:2 3.3:3",
    "DeleteAcls": "2.4:1 2.5:2 3.3:3",
    "DescribeConfigs": "2.4:2 2.6:3 2.8:4",
    "AlterConfigs": "2.4:1 2.8:2",
    "AlterReplicaLogDirs": "2.4:1 2.8:2",
    "DescribeLogDirs": "2.4:1 2.6:2 3.2:3 3.3:4 4.3:5",
    "SaslAuthenticate": "2.4:1 2.5:2",
    "CreatePartitions": "2.4:1 2.5:2 2.7:3",
    "CreateDelegationToken": "2.4:2 3.3:no 3.6:3",
    "RenewDelegationToken": "2.4:1 2.5:2 3.3:no 3.6:2",
    "ExpireDelegationToken": "2.4:1 2.5:2 3.3:no 3.6:2",
    "DescribeDelegationToken": "2.4:1 2.5:2 3.3:no 3.6:3",
    "DeleteGroups": "2.4:2 4.4:3",
    "ElectLeaders": "2.4:2",
    "IncrementalAlterConfigs": "2.4:1",
    "AlterPartitionReassignments": "2.4:0 4.1:1",
    "ListPartitionReassignments": "2.4:0",
    "OffsetDelete": "2.4:0",
    "DescribeClientQuotas": "2.6:0 2.8:1",
    "AlterClientQuotas": "2.6:0 2.8:1",
    "DescribeUserScramCredentials": "2.7:0 3.3:no 3.5:0",
    "AlterUserScramCredentials": "2.7:0 3.3:no 3.5:0",
    "DescribeQuorum": "3.3:1 3.9:2",
    "UpdateFeatures": "2.7:0 3.3:1 4.0:2",
    "DescribeCluster": "2.8:0 3.7:1 4.0:2",
    "DescribeProducers": "2.8:0",
    "UnregisterBroker": "3.3:0",
    "DescribeTransactions": "3.0:0",
    "ListTransactions": "3.0:0 3.8:1 4.1:2",
    "ConsumerGroupHeartbeat": "3.7:0 4.0:1",
    "ConsumerGroupDescribe": "3.8:0 4.0:1",
    "GetTelemetrySubscriptions": "3.7:0",
    "PushTelemetry": "3.7:0",
    "ListConfigResources": "3.7:0 4.1:1",
    "DescribeTopicPartitions": "3.8:0",
    "ShareGroupHeartbeat": "4.1:1",
    "ShareGroupDescribe": "4.1:1",
    "ShareFetch": "4.1:1 4.2:2",
    "ShareAcknowledge": "4.1:1 4.2:2",
    "AddRaftVoter": "3.9:0 4.2:1",
    "RemoveRaftVoter": "3.9:0",
    "InitializeShareGroupState": "4.1:0",
    "ReadShareGroupState": "4.1:0",
    "WriteShareGroupState": "4.1:0 4.2:1",
    "DeleteShareGroupState": "4.1:0",
    "ReadShareGroupStateSummary": "4.1:0 4.2:1",
    "StreamsGroupHeartbeat": "4.2:0 4.4:1",
    "StreamsGroupDescribe": "4.2:0 4.4:1",
    "DescribeShareGroupOffsets": "4.1:0 4.2:1",
    "AlterShareGroupOffsets": "4.1:0",
    "DeleteShareGroupOffsets": "4.1:0",
    "StreamsGroupTopologyDescriptionUpdate": "4.4:0",
    "UnregisterController": "4.4:0",
}
"""By the name of an API: since which release its last version is which. `no`: it is not served."""


def last_versions(max_versions: str | None, release: str | None) -> dict[int, int]:
    """Last version by the key of an API, -1 for one that is not served: those of the release, unless
    `max_versions` ("Fetch=11,DeleteRecords=-1") says a lower one. ConfigError, a sentence for people, for
    names and versions that there are not."""
    by_name = {} if release is None else _of_release(release)
    for name, last in _asked(max_versions or "").items():
        by_name[name] = min(last, by_name.get(name, last))
    keys = {api_name(key): key for key in api_keys()}
    return {keys[name]: last for name, last in by_name.items()}


def emulated_release(text: str | None) -> str | None:
    """The release in "3.9" or "3.9.2". ConfigError: it is none of `RELEASES`."""
    if not text:
        return None
    release = ".".join(text.strip().split(".")[:2])
    if release not in RELEASES:
        raise ConfigError(f"{EMULATE}={text}: there are {RELEASES[0]} to {RELEASES[-1]}.")
    return release


def broker_api_names() -> list[str]:
    """The APIs that brokers serve to clients and to each other, by their keys."""
    return list(_LAST_VERSIONS)


def _of_release(release: str) -> dict[str, int]:
    place = RELEASES.index(release)
    return {name: _at(place, changes) for name, changes in _LAST_VERSIONS.items()}


def _at(place: int, changes: str) -> int:
    last = -1
    for change in changes.split():
        since, _, version = change.partition(":")
        if RELEASES.index(since) <= place:
            last = -1 if version == "no" else int(version)
    return last


def _asked(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, version = (piece.strip() for piece in item.partition("="))
        if not equals or (version != NOT_SERVED and not (version.isascii() and version.isdecimal())):
            raise ConfigError(f"{MAX_VERSIONS} takes NAME=VERSION, such as Fetch=11, not {item!r}.")
        if name not in _LAST_VERSIONS:
            hint = did_you_mean(name, _LAST_VERSIONS) or "."
            raise ConfigError(f"{MAX_VERSIONS}: brokers have no API {name!r}{hint}")
        if name in found:
            raise ConfigError(f"{MAX_VERSIONS} names {name} twice.")
        if version == NOT_SERVED and name == "ApiVersions":
            raise ConfigError(f"{MAX_VERSIONS}: every broker from Kafka 0.10 on has ApiVersions.")
        found[name] = -1 if version == NOT_SERVED else _checked(name, int(version))
    return found


def _checked(name: str, version: int) -> int:
    key = next(key for key in api_keys() if api_name(key) == name)
    served = versions_of(key)
    if version not in served:
        raise ConfigError(
            f"{MAX_VERSIONS}: {name}={version} is not served; its versions are {served[0]} to {served[-1]}."
        )
    return version
