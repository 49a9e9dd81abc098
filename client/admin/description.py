"""The cluster: its brokers, features and log directories."""

from collections.abc import Sequence
from dataclasses import dataclass

from odradek.client.admin.asking import all_brokers
from odradek.client.client_error import ClientError, refusal
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.client.connection import SOFTWARE_NAME
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.version import __version__


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as it is registered."""

    broker: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool | None
    """Registered, but not in service; None: the cluster does not tell."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster and its brokers, sorted by id."""

    cluster_id: str | None
    controller: int
    """The broker to which changes go, -1 for none. With KRaft it is any that passes them on."""
    brokers: list[Broker]


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a broker: (lowest, highest) level by name."""

    supported: dict[str, tuple[int, int]]
    finalized: dict[str, tuple[int, int]]
    """Levels of the whole cluster."""
    epoch: int
    """Counts the changes of `finalized`; -1: not known."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker; sizes in bytes, None if the broker does not tell."""

    broker: int
    path: str
    error: ErrorCode
    """Other than NONE: the directory is offline."""
    replicas: int
    size_bytes: int
    """Size of all replicas."""
    total_bytes: int | None
    """Size of the volume."""
    usable_bytes: int | None
    """Free space of the volume."""
    is_cordoned: bool
    """Whether the directory takes no new partitions."""


def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """With the brokers that are fenced, where the cluster tells of them. ClientError for a refusal."""
    try:
        # One that every broker is likely to have, as a request may go to another than the last one.
        version = cluster.version_of(ANY_NODE, DescribeClusterRequest)
    except ClientError as error:
        if error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        return _of_metadata(cluster)
    response = cluster.ask(
        ANY_NODE, DescribeClusterRequest(include_fenced_brokers=version >= 2), version_max=version
    )
    if response.error_code != ErrorCode.NONE:
        raise refusal("describing the cluster", error_of(response.error_code), response.error_message)
    brokers = [
        Broker(one.broker_id, one.host, one.port, one.rack, one.is_fenced if version >= 2 else None)
        for one in response.brokers
    ]
    return ClusterDescription(
        response.cluster_id, response.controller_id, sorted(brokers, key=lambda one: one.broker)
    )


def _of_metadata(cluster: Cluster) -> ClusterDescription:
    """For brokers before Kafka 2.8."""
    response = cluster.ask(ANY_NODE, MetadataRequest(topics=[]))
    brokers = [Broker(one.node_id, one.host, one.port, one.rack, None) for one in response.brokers]
    return ClusterDescription(
        response.cluster_id, response.controller_id, sorted(brokers, key=lambda one: one.broker)
    )


def describe_features(cluster: Cluster, broker: int = ANY_NODE) -> Features:
    """Features as one broker describes them."""
    request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
    response = cluster.ask(broker, request)
    return Features(
        {one.name: (one.min_version, one.max_version) for one in response.supported_features},
        {one.name: (one.min_version_level, one.max_version_level) for one in response.finalized_features},
        response.finalized_features_epoch,
    )


def describe_log_dirs(
    cluster: Cluster, brokers: Sequence[int] | None = None, *, has_replicas: bool = True
) -> list[LogDir]:
    """The directories of the brokers (None: of all), sorted. Without `has_replicas` there are 0 of
    them in each. ClientError for a refusal, and for a broker that does not answer."""
    found: list[LogDir] = []
    for broker in all_brokers(cluster) if brokers is None else brokers:
        response = cluster.ask(broker, DescribeLogDirsRequest(topics=None if has_replicas else []))
        if response.error_code != ErrorCode.NONE:
            raise refusal(f"describing the log directories of broker {broker}", error_of(response.error_code))
        found += sorted((_log_dir(broker, one) for one in response.results), key=lambda one: one.path)
    return found


def _log_dir(broker: int, found: DescribeLogDirsResult) -> LogDir:
    replicas = [one for topic in found.topics for one in topic.partitions]
    return LogDir(
        broker,
        found.log_dir,
        error_of(found.error_code),
        len(replicas),
        sum(one.partition_size for one in replicas),
        found.total_bytes if found.total_bytes >= 0 else None,
        found.usable_bytes if found.usable_bytes >= 0 else None,
        found.is_cordoned,
    )
