"""DescribeConfigs (key 32, versions 0 to 4): the settings of a topic, a group or this broker, and their
sources.

A group is described whether it exists or not, and so is a subscription to client metrics. Loggers are
Python's, with Kafka's names of levels (`apis/log_levels.py`). `apis/alter_configs.py` changes settings.

Resources that the client may not describe come last in a response.

Source: ConfigHelper.scala of Kafka 4.3; the entries come from `config.options`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.apis.access import CODES, Need, on_groups, on_topics
from odradek.apis.api import split
from odradek.apis.declaration import SharedApi
from odradek.config.options import (
    BrokerLayers,
    BrokerOptions,
    ConfigEntry,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_loggers,
    describe_topic,
)
from odradek.coordinator.cluster.topics import check_name
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError, error_message
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from odradek.apis.access import Names, Needs
    from odradek.apis.api import RequestContext
    from odradek.apis.node import SharedApiParts
    from odradek.coordinator.cluster.view import ClusterView

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = KINDS = 2, 4, 8, 16, 32
DESCRIBE = Operation.DESCRIBE_CONFIGS
_RESOURCE_OF = {TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP}
_CONFIGS_OF_CLUSTER = (BROKER, BROKER_LOGGER, CLIENT_METRICS)
"""The settings of brokers, loggers and client metrics belong to the cluster."""
FIRST_VERSION_WITH_SOURCE = 1
FIRST_VERSION_WITH_TYPE = 3


class Settings:
    """The layers of settings of this node at present."""

    def __init__(
        self,
        node_id: int,
        current_view: Callable[[], ClusterView],
        start_configs: Mapping[str, str],
        options: BrokerOptions,
    ) -> None:
        self.node_id = node_id
        self._current_view = current_view
        self._start_configs = start_configs
        self._options = options

    @property
    def view(self) -> ClusterView:
        return self._current_view()

    def layers(self) -> BrokerLayers:
        overrides = self.view.broker_configs
        return BrokerLayers(
            broker=overrides.get(self.node_id, {}),
            all_brokers=overrides.get(None, {}),
            start=self._start_configs,
            options=self._options,
        )

    def describe_topic(
        self, configs: Mapping[str, str], names: Iterable[str] | None = None
    ) -> list[ConfigEntry]:
        """Every setting of a topic with these overrides."""
        return describe_topic(configs, self.layers(), names)


class DescribeConfigs:
    """The handler."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
        if any(one.resource_type not in KINDS for one in request.resources):
            return _refused(request)
        results = []
        refused, allowed = split(
            context, request.resources, lambda one: refusal_of(one, DESCRIBE, context) is not None
        )
        for resource in allowed:
            result = DescribeConfigsResult(
                error_code=0,
                error_message="",  # not null, as in Kafka
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[],
            )
            try:
                entries = self._entries(resource)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            else:
                result.configs = [_config(entry, request, context.api_version) for entry in entries]
            results.append(result)
        results += [_unauthorized(one, refusal_of(one, DESCRIBE, context)) for one in refused]
        return DescribeConfigsResponse(results=results)

    def _entries(self, resource: DescribeConfigsResource) -> list[ConfigEntry]:
        # An empty list of names asks for all, as null does.
        names = resource.configuration_keys or None
        name = resource.resource_name
        if resource.resource_type == TOPIC:
            check_name(name)
            topic = self._settings.view.topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return self._settings.describe_topic(topic.configs, names)
        if resource.resource_type == GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            own = self._settings.view.group_configs.get(name, {})
            return describe_group(own, self._settings.layers(), names)
        if resource.resource_type == CLIENT_METRICS:
            if not name:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
                )
            return describe_client_metrics(self._settings.view.client_metrics_configs.get(name, {}), names)
        layers = self._settings.layers()
        if name == "" and resource.resource_type == BROKER:
            return describe_all_brokers(layers, names)
        if name != str(self._settings.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"This is broker {self._settings.node_id}, not {name!r}; an empty name asks for all brokers.",
            )
        if resource.resource_type == BROKER_LOGGER:
            from odradek.apis.log_levels import levels

            return describe_loggers(levels(), names)
        return describe_broker(layers, names)


def refusal_of(resource: Any, operation: Operation, context: RequestContext) -> ErrorCode | None:
    """The code for a resource of a request about settings, if the client may not do this with it."""
    resource_type = _RESOURCE_OF.get(resource.resource_type, ResourceType.CLUSTER)
    name = CLUSTER_NAME if resource_type == ResourceType.CLUSTER else resource.resource_name
    return CODES[resource_type] if context.refuses(operation, resource_type, name) else None


def _unauthorized(resource: DescribeConfigsResource, code: ErrorCode | None) -> DescribeConfigsResult:
    assert code is not None
    return DescribeConfigsResult(
        error_code=code,
        error_message=error_message(code),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _refused(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """One resource of an unknown type fails the whole request, as in Kafka."""
    code = ErrorCode.INVALID_REQUEST
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=error_message(code),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[],
            )
            for resource in request.resources
        ]
    )


def _config(
    entry: ConfigEntry, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResourceResult:
    config = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=entry.kind,
        documentation=None,
    )
    if version < FIRST_VERSION_WITH_SOURCE:
        # `is_default` stays false, for a default too: Kafka 3.9 does not fill it either.
        return config
    if request.include_synonyms:
        config.synonyms = [
            DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source)
            for one in entry.synonyms
        ]
    if version >= FIRST_VERSION_WITH_TYPE and request.include_documentation:
        config.documentation = entry.documentation
    return config


def config_layers(parts: SharedApiParts) -> Settings:
    """The settings of a node, for all that describe them."""
    node, settings = parts.node, parts.settings
    return Settings(node.node_id, node.current_view, settings.start_configs, settings.broker_options)


def _configs_of(kind: int) -> Names:
    def names(request: Any) -> Iterable[str]:
        return [one.resource_name for one in request.resources if one.resource_type == kind]

    return names


def _cluster_of_configs(request: Any) -> Iterable[str]:
    return {CLUSTER_NAME for one in request.resources if one.resource_type in _CONFIGS_OF_CLUSTER}


def needs_of_configs(operation: Operation) -> Needs:
    """Needs of a request that does this with settings."""
    return (
        on_topics(operation, _configs_of(TOPIC)),
        on_groups(operation, _configs_of(GROUP)),
        Need(operation, ResourceType.CLUSTER, _cluster_of_configs),
    )


API = SharedApi(
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    make=lambda parts: DescribeConfigs(parts.shared(config_layers)),
    needs=needs_of_configs(DESCRIBE),
)
