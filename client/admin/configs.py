"""Options of topics, brokers, loggers, groups and subscriptions to clients' metrics; with their sources."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

from odradek.client.admin.asking import controller_of
from odradek.client.client_error import ClientError, refusal
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


class ResourceKind(IntEnum):
    """Source: ConfigResource.Type of Kafka's clients."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value is from. The names are those of Kafka's AdminClient, the numbers those of responses.

    Source: ConfigEntry.ConfigSource and DescribeConfigsResponse.ConfigSource of Kafka's clients.
    """

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Operation(IntEnum):
    """Kind of change; APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Resource:
    """An owner of options. A broker without a name stands for the defaults of all brokers."""

    kind: ResourceKind
    name: str = ""

    def __str__(self) -> str:
        """The form of the command line: "topic:orders"."""
        kind = self.kind.name.lower().replace("_", "-")
        return f"{kind}:{self.name}" if self.name else kind


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that an option would have, if those before it were not there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Config:
    """An option; `value` is None for a secret, which brokers do not tell."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: list[Synonym]
    """The values by their rank, the first one rules; without those in another unit, as log.retention.hours is
    for retention.ms."""

    @property
    def default(self) -> str | None:
        """Kafka's value without any setting; None if the brokers do not tell it."""
        if self.source == ConfigSource.DEFAULT_CONFIG:
            return self.value
        defaults = [one.value for one in self.synonyms if one.source == ConfigSource.DEFAULT_CONFIG]
        return defaults[0] if defaults else None


@dataclass(frozen=True, slots=True)
class Change:
    """Change of an option; `value` is None for DELETE."""

    name: str
    operation: Operation
    value: str | None = None

    def __repr__(self) -> str:
        """Without the value, which may be a secret."""
        return f"Change({self.operation.name} {self.name})"


def describe_configs(
    cluster: Cluster, resource: Resource, names: Collection[str] | None = None
) -> list[Config]:
    """The options of a resource, sorted by name; None: all of them. ClientError for a refusal."""
    wanted = DescribeConfigsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configuration_keys=None if names is None else sorted(set(names)),
    )
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
    (result,) = cluster.ask(_owner(resource, ANY_NODE), request).results
    if result.error_code != ErrorCode.NONE:
        raise refusal(f"describing {resource}", error_of(result.error_code), result.error_message)
    return sorted(map(_config, result.configs), key=lambda one: one.name)


def alter_configs(
    cluster: Cluster, resource: Resource, changes: Sequence[Change], *, only_validate: bool = False
) -> None:
    """Makes all the changes, or none. `only_validate` only checks them. ClientError for a refusal."""
    wanted = [
        AlterableConfig(name=one.name, config_operation=one.operation, value=one.value) for one in changes
    ]
    altered = AlterConfigsResource(resource_type=resource.kind, resource_name=resource.name, configs=wanted)
    request = IncrementalAlterConfigsRequest(resources=[altered], validate_only=only_validate)
    (response,) = cluster.ask(_owner(resource, controller_of(cluster)), request).responses
    if response.error_code != ErrorCode.NONE:
        raise refusal(f"changing {resource}", error_of(response.error_code), response.error_message)


def _owner(resource: Resource, others: int) -> int:
    """Only a broker itself knows its file of options, and its loggers."""
    if resource.kind not in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) or not resource.name:
        return others
    if not resource.name.isascii() or not resource.name.isdecimal() or int(resource.name) > 2**31 - 1:
        raise ClientError(f"{resource} is not a broker: it is the number of one")
    return int(resource.name)


def _config(found: DescribeConfigsResourceResult) -> Config:
    return Config(
        found.name,
        None if found.is_sensitive else found.value,
        _source(found.config_source),
        found.read_only,
        found.is_sensitive,
        [
            Synonym(one.name, None if found.is_sensitive else one.value, _source(one.source))
            for one in found.synonyms
            if _unit(one.name) == _unit(found.name)
        ],
    )


def _unit(name: str) -> str | None:
    last = name.rpartition(".")[2]
    return last if last in ("hours", "minutes", "ms") else None


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in ConfigSource._value2member_map_ else ConfigSource.UNKNOWN
