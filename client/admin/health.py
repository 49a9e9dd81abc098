"""Whether a cluster is healthy: a fixed list of checks, each with what it found.

for check in check_health(cluster, free_percent_min=5): ...
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from odradek.client.admin.description import (
    ClusterDescription,
    LogDir,
    describe_cluster,
    describe_log_dirs,
)
from odradek.client.admin.topics import PartitionDescription, TopicDescription, describe_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what it looked at, and those that are not well."""

    name: str
    """Such as partitions_under_replicated."""
    of: int
    """How many it looked at."""
    found: list[str]
    """Names of what is not well, such as "orders-3" or "broker 2: why"."""
    sentence: str
    """Fault of what was found, without the number: "have fewer replicas ..."."""
    unknown: str = ""
    """Why it could not be made, if so."""

    @property
    def is_well(self) -> bool:
        """Also where the check could not be made."""
        return not self.found


def check_health(cluster: Cluster, free_percent_min: float) -> Iterator[Check]:
    """Each check as soon as it is made. ClientError if no broker answers."""
    described = describe_cluster(cluster)
    yield _fenced(described)
    yield from _of_partitions(cluster)
    yield from _of_directories(cluster, described, free_percent_min)


def _fenced(described: ClusterDescription) -> Check:
    is_told = all(one.is_fenced is not None for one in described.brokers)
    return Check(
        "brokers_fenced",
        len(described.brokers),
        [f"broker {one.broker}" for one in described.brokers if one.is_fenced],
        "registered, but not in service",
        "" if is_told else "the brokers do not tell (they are older than Kafka 4.0)",
    )


def _of_partitions(cluster: Cluster) -> Iterator[Check]:
    topics, _ = describe_topics(cluster)
    every = [(topic, one) for topic in topics for one in topic.partitions]

    def check(
        name: str, wrong: Iterable[tuple[TopicDescription, PartitionDescription]], sentence: str
    ) -> Check:
        return Check(name, len(every), [f"{topic.name}-{one.partition}" for topic, one in wrong], sentence)

    yield check(
        "partitions_without_leader",
        [(topic, one) for topic, one in every if one.leader < 0],
        "nobody can read or write them",
    )
    yield check(
        "partitions_with_offline_replicas",
        [(topic, one) for topic, one in every if one.offline],
        "a broker or a log directory of theirs is offline",
    )
    yield check(
        "partitions_under_replicated",
        [(topic, one) for topic, one in every if len(one.in_sync) < len(one.replicas)],
        "not all replicas are in sync",
    )


def _of_directories(
    cluster: Cluster, described: ClusterDescription, free_percent_min: float
) -> Iterator[Check]:
    directories: list[LogDir] = []
    silent, unknown = [], ""
    asked = [one.broker for one in described.brokers if not one.is_fenced]
    for broker in asked:
        try:
            directories += describe_log_dirs(cluster, [broker])
        except ClientError as error:
            if error.code is None:
                silent.append(f"broker {broker}: {error}")
            else:
                unknown = str(error)
    yield Check("brokers_that_do_not_answer", len(asked), silent, "their address does not answer from here")
    offline = [one for one in directories if one.error != ErrorCode.NONE]
    yield Check(
        "log_dirs_offline",
        len(directories),
        [f"{_name(one)} ({one.error.name})" for one in offline],
        "the broker cannot use them",
        unknown,
    )
    yield _nearly_full(directories, free_percent_min, unknown)


def _nearly_full(directories: Sequence[LogDir], free_percent_min: float, unknown: str) -> Check:
    known = [
        (one, one.usable_bytes, one.total_bytes)
        for one in directories
        if one.usable_bytes is not None and one.total_bytes
    ]
    return Check(
        "log_dirs_nearly_full",
        len(known),
        [
            f"{_name(one)} ({usable / total:.1%} free)"
            for one, usable, total in known
            if usable / total * 100 < free_percent_min
        ],
        f"less than {free_percent_min:g} % of the volume is free",
        unknown or ("" if known else "the brokers do not tell (they are older than Kafka 3.3)"),
    )


def _name(one: LogDir) -> str:
    return f"broker {one.broker}: {one.path}"
