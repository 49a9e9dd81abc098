"""Topics that jobs write copies into: checks them, and creates them like their sources."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from odradek.client.admin.topics import add_partitions, create_topic
from odradek.client.client_error import ClientError
from odradek.client.cluster import ANY_NODE, LATEST, Cluster
from odradek.spark.jobs.errors import JobError
from odradek.spark.jobs.files import read_note
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from odradek.wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from odradek.spark.jobs.files import Files
    from odradek.spark.jobs.topics import Topics

TOPIC_RESOURCE = 2
SET_FOR_TOPIC = 1
"""The `config_source` of a topic's own settings."""
NOT_COPIED = frozenset(
    {
        # They depend on the cluster: the number of its brokers, and the moves of replicas.
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        # A copy has the timestamps of its source, however old.
        "message.timestamp.type",
        "message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    }
)
INTERNAL = "internal."
"""Prefix of the settings of Kafka's own tests: other releases do not know them, and with one of them a
segment may be too small for the batches of a copy."""


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that is a copy. The ids, in hexadecimal, show whether a topic was created again."""

    name: str
    source_id: str
    target_id: str


@dataclass
class Targets:
    """The copies of some topics in another cluster, stored in the file at `path`."""

    source: "Topics"
    target: "Topics"
    """The brokers of the copies; its topics are not used."""
    prefix: str
    files: "Files"
    path: str
    known: dict[str, Target] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    """Number of partitions of the targets, by name."""
    settings_left_out: list[tuple[str, str]] = field(default_factory=list)
    """(topic, setting) that the target's brokers refuse."""

    def check(self) -> list[str]:
        """The sources; JobError for missing topics, and for topics that would be copied into themselves."""
        names = self.source.check()
        with self.source.cluster() as source, self.target.cluster() as target:
            self._check_names(names, _cluster_id(source) in {_cluster_id(target)} - {None})
        return names

    def bring_up(self) -> None:
        """Gives each present source its target: with at least as many partitions, and with the same settings
        if it is new. JobError if that is not possible."""
        names = self.check()
        with self.source.cluster() as cluster, self.target.cluster() as target:
            numbers = cluster.partitions_of(names)
            copies = [self.prefix + name for name in numbers]
            there = target.partitions_of(copies)
            for name, number in numbers.items():
                self._bring_up_one(cluster, target, name, number, there.get(self.prefix + name))
            self.partitions.update(target.partitions_of(copies))
            ids = {
                name: (cluster.topic_id(name).hex(), target.topic_id(self.prefix + name).hex())
                for name in numbers
            }
        self._remember({name: Target(self.prefix + name, *of) for name, of in ids.items()})

    def sum_of_ends(self) -> int:
        with self.target.cluster() as cluster:
            return sum_of_ends(cluster, self.partitions)

    def _check_names(self, names: Sequence[str], is_same_cluster: bool) -> None:
        from odradek.spark.markers import MARKERS_TOPIC

        if MARKERS_TOPIC in names:
            raise JobError(
                f"topic {MARKERS_TOPIC} has the markers of writes at {self.source.bootstrap_servers}, and "
                f"must not be copied: leave it out, in a pattern with (?!{MARKERS_TOPIC})"
            )
        if not is_same_cluster:
            return
        for name in names:
            copy = self.prefix + name
            pattern = self.source.pattern
            if copy in names or (pattern is not None and re.fullmatch(pattern, copy)):
                raise JobError(
                    f"{self.source.bootstrap_servers} and {self.target.bootstrap_servers} are the same "
                    f"cluster, and topic {copy} would be mirrored into topic {self.prefix + copy}, and so "
                    "on: give another target, or a prefix that no source has"
                )

    def _bring_up_one(
        self, source: Cluster, target: Cluster, name: str, partitions: int, there: int | None
    ) -> None:
        copy = self.prefix + name
        if there is None:
            self._create(source, target, name, partitions)
        elif there < partitions:
            add_partitions(target, copy, partitions)
        elif copy in self.partitions:
            return  # from the last metadata
        if there is not None:
            check_timestamps(target, copy)
        # Waits until every partition has its leader.
        target.list_offsets({(copy, partition): LATEST for partition in range(partitions)})

    def _create(self, source: Cluster, target: Cluster, name: str, partitions: int) -> None:
        copy = self.prefix + name
        settings = {
            one.name: one.value
            for one in _settings(source, name)
            if one.config_source == SET_FOR_TOPIC and one.value is not None and _is_copied(one.name)
        }
        refused = []
        if settings and not _takes(target, copy, settings):
            refused = [one for one in settings if not _takes(target, copy, {one: settings[one]})]
        kept = {one: value for one, value in settings.items() if one not in refused}
        create_topic(target, copy, partitions, {**kept, "message.timestamp.type": "CreateTime"})
        self.settings_left_out += [(copy, one) for one in refused]

    def _remember(self, found: Mapping[str, Target]) -> None:
        if not self.known:
            noted = read_note(self.files, self.path) or {}
            self.known = {name: Target(**of) for name, of in noted.items()}
        for name, target in found.items():
            before = self.known.get(name, target)
            for what, then, now in (
                (name, before.source_id, target.source_id),
                (target.name, before.target_id, target.target_id),
            ):
                if then != now:
                    raise JobError(
                        f"topic {what} was made anew since it was mirrored, so that the table of offsets "
                        "does not fit it any more: mirror it with another table"
                    )
        if found.keys() - self.known.keys():
            self.known = {**found, **self.known}
            kept = {name: asdict(target) for name, target in self.known.items()}
            self.files.write_new(self.path, json.dumps(kept))


def check_timestamps(cluster: Cluster, topic: str) -> None:
    """Refuses a topic that sets timestamps itself, because records would lose theirs."""
    for one in _settings(cluster, topic, ["message.timestamp.type"]):
        if one.name == "message.timestamp.type" and one.value == "LogAppendTime":
            raise JobError(
                f"topic {topic} has message.timestamp.type=LogAppendTime and would give all rows new "
                "timestamps: set it to CreateTime meanwhile"
            )


def sum_of_ends(cluster: Cluster, partitions: Mapping[str, int]) -> int:
    """The sum of the log ends of these topics with these numbers of partitions."""
    keys = [(topic, partition) for topic, number in partitions.items() for partition in range(number)]
    return sum(cluster.list_offsets(dict.fromkeys(keys, LATEST)).values())


def _settings(
    cluster: Cluster, topic: str, names: list[str] | None = None
) -> list[DescribeConfigsResourceResult]:
    wanted = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=names
    )
    (response,) = cluster.ask(ANY_NODE, DescribeConfigsRequest(resources=[wanted])).results
    found: list[DescribeConfigsResourceResult] = response.configs
    return found


def _is_copied(setting: str) -> bool:
    return setting not in NOT_COPIED and not setting.startswith(INTERNAL)


def _takes(cluster: Cluster, topic: str, settings: Mapping[str, str]) -> bool:
    """Whether the brokers accept such a topic."""
    try:
        create_topic(cluster, topic, 1, settings, only_validate=True)
    except ClientError as error:
        if error.code != ErrorCode.INVALID_CONFIG:
            raise
        return False
    return True


def _cluster_id(cluster: Cluster) -> str | None:
    found: str | None = cluster.ask(ANY_NODE, MetadataRequest(topics=[])).cluster_id
    return found
