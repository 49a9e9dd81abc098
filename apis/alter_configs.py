"""AlterConfigs (key 33, versions 0 to 2) and IncrementalAlterConfigs (44, 0 and 1): settings changed live.

AlterConfigs replaces all settings of a resource, IncrementalAlterConfigs changes some of them. Resources are
topics, groups, this broker, and under the empty name all brokers. The changes are stored in one transaction;
when the answer is sent, logs, connections and groups follow them. One bad setting refuses all changes of its
resource; the other resources of the request are changed.

A group need not exist to have settings, and keeps them when it is deleted. A subscription to client metrics
(KIP-714) exists while it has a setting. IncrementalAlterConfigs also changes the levels of this node's
loggers, which are not stored, if the broker is a process of its own (`apis/log_levels.py`).

Source: ConfigAdminManager, ControllerApis and ConfigurationControlManager of Kafka 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.apis.api import WorkAnswer
from odradek.apis.describe_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, refusal_of
from odradek.config.changes import DELETE, SUBTRACT, ConfigOperation, changed
from odradek.config.options import GROUP_OPTIONS, TOPIC_OPTIONS, BrokerOptions
from odradek.coordinator.cluster.machine import (
    ClientMetricsOwner,
    ConfigChange,
    GroupOwner,
    Owner,
)
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import alter_configs, incremental_alter_configs

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.machine import ClusterMachine
    from odradek.wire.work import Work

    AlterableConfig = alter_configs.AlterableConfig | incremental_alter_configs.AlterableConfig
    Resource = alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource

Change = Callable[[Mapping[str, str]], Mapping[str, str]]


class Altering:
    """The common part of both handlers."""

    answer: type[Any]
    result: type[Any]

    def __init__(
        self,
        node_id: int,
        machine: ClusterMachine,
        work: WorkQueue,
        broker_options: BrokerOptions,
        *,
        changes_log_levels: bool = False,
    ) -> None:
        self._node_id = node_id
        self._machine = machine
        self._work = work
        self._changes_log_levels = changes_log_levels
        # Kafka takes no setting of client metrics for a list that can be appended to.
        self._options = {
            TOPIC: TOPIC_OPTIONS,
            BROKER: broker_options,
            GROUP: GROUP_OPTIONS,
            CLIENT_METRICS: {},
        }

    def __call__(self, request: Any, context: RequestContext) -> WorkAnswer:
        return WorkAnswer(self._work, self._altering(request, context), context)

    def _altering(self, request: Any, context: RequestContext) -> Work[Any]:
        resources: Sequence[Resource] = request.resources
        counts = Counter((one.resource_type, one.resource_name) for one in resources)
        refusals: dict[int, KafkaError] = {}
        changes: dict[int, ConfigChange] = {}
        unauthorized: dict[int, tuple[ConfigChange, ErrorCode]] = {}
        for number, resource in enumerate(resources):
            try:
                if counts[resource.resource_type, resource.resource_name] > 1:
                    raise _bad("A resource may be named once in a request.")
                code = refusal_of(resource, Operation.ALTER_CONFIGS, context)
                if code is not None and not _is_of_one_broker(resource):
                    raise KafkaError(code)
                if resource.resource_type == BROKER_LOGGER:
                    self.change_log_levels(resource, validate_only=request.validate_only)
                    continue
                change = self.change_of(resource)
            except KafkaError as error:
                refusals[number] = error
            else:
                if code is None:
                    changes[number] = change
                else:
                    unauthorized[number] = change, code
        if unauthorized:
            refusals |= yield from self._refusing(unauthorized)
        try:
            done = yield from self._machine.changing_configs(
                list(changes.values()), validate_only=request.validate_only
            )
        except KafkaError as error:
            refusals.update(dict.fromkeys(changes, error))
        else:
            pairs = zip(changes, done, strict=True)
            refusals.update((number, refusal) for number, refusal in pairs if refusal is not None)
        return self.answer(
            responses=[
                self.result_of(resource, refusals.get(number)) for number, resource in enumerate(resources)
            ]
        )

    def _refusing(
        self, unauthorized: Mapping[int, tuple[ConfigChange, ErrorCode]]
    ) -> Work[dict[int, KafkaError]]:
        """As in Kafka, what is wrong with the settings of one broker counts before the permission."""
        changes = [change for change, _ in unauthorized.values()]
        judged: Sequence[KafkaError | None]
        try:
            judged = yield from self._machine.changing_configs(changes, validate_only=True)
        except KafkaError:
            judged = [None] * len(changes)
        return {
            number: refusal or KafkaError(code)
            for (number, (_, code)), refusal in zip(unauthorized.items(), judged, strict=True)
        }

    def change_of(self, resource: Resource) -> ConfigChange:
        """What is wanted of a resource. Refuses with KafkaError(INVALID_REQUEST) what makes no sense."""
        self._check_settings(resource.configs)
        names = {config.name for config in resource.configs}
        return ConfigChange(self._owner(resource), self._change(resource), names=names)

    def _check_settings(self, configs: Sequence[AlterableConfig]) -> None:
        names = Counter(config.name for config in configs)
        if twice := [name for name, count in names.items() if count > 1]:
            raise _bad(f"A setting may be named once for a resource, and not so {twice[0]}.")
        if missing := [
            config.name for config in configs if config.value is None and self._needs_value(config)
        ]:
            raise _bad(f"A value of null is none: {', '.join(missing)}.")

    def change_log_levels(self, resource: Resource, *, validate_only: bool) -> None:
        """Changes all named loggers. Refuses with KafkaError: none is changed."""
        raise _unknown_type(resource)

    def _owner(self, resource: Resource) -> Owner:
        kind, name = resource.resource_type, resource.resource_name
        if kind == TOPIC:
            return name
        if kind == GROUP:
            return GroupOwner(name)
        if kind == CLIENT_METRICS:
            return ClientMetricsOwner(name)
        if kind != BROKER:
            raise _unknown_type(resource)
        if name == "":
            return None
        if name != str(self._node_id):
            raise _bad(f"This is broker {self._node_id}, not {name!r}; an empty name means all brokers.")
        return self._node_id

    def result_of(self, resource: Resource, refusal: KafkaError | None) -> Any:
        """The part of the answer about a resource."""
        return self.result(
            error_code=0 if refusal is None else refusal.code,
            error_message=None if refusal is None else refusal.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    def _needs_value(self, config: Any) -> bool:
        raise NotImplementedError

    def _change(self, resource: Any) -> Change:
        raise NotImplementedError


class AlterConfigs(Altering):
    """The handler."""

    answer = alter_configs.AlterConfigsResponse
    result = alter_configs.AlterConfigsResourceResponse

    def _needs_value(self, config: alter_configs.AlterableConfig) -> bool:
        return True

    def _change(self, resource: alter_configs.AlterConfigsResource) -> Change:
        wanted = {config.name: config.value or "" for config in resource.configs}
        return lambda _: wanted


class IncrementalAlterConfigs(Altering):
    """The handler."""

    answer = incremental_alter_configs.IncrementalAlterConfigsResponse
    result = incremental_alter_configs.AlterConfigsResourceResponse

    def _needs_value(self, config: incremental_alter_configs.AlterableConfig) -> bool:
        return config.config_operation != DELETE

    def _change(self, resource: incremental_alter_configs.AlterConfigsResource) -> Change:
        operations = _operations(resource)
        options = self._options[resource.resource_type]
        return lambda configs: changed(configs, operations, options)

    def change_log_levels(self, resource: Any, *, validate_only: bool) -> None:
        from odradek.apis.log_levels import change_levels, check_levels

        if not self._changes_log_levels:
            raise _bad("This broker is part of a program, to which the levels of loggers belong.")
        if resource.resource_name != str(self._node_id):
            raise _bad(f"This is broker {self._node_id}, not {resource.resource_name!r}.")
        self._check_settings(resource.configs)
        operations = _operations(resource)
        check_levels(operations)
        if not validate_only:
            change_levels(operations)


def _operations(resource: incremental_alter_configs.AlterConfigsResource) -> list[ConfigOperation]:
    operations = []
    for config in resource.configs:
        if not 0 <= config.config_operation <= SUBTRACT:
            raise _bad(f"There is no operation {config.config_operation}.")
        operations.append(ConfigOperation(config.name, config.config_operation, config.value))
    return operations


def _unknown_type(resource: Resource) -> KafkaError:
    return _bad(f"Resources of the type {resource.resource_type} cannot be changed here.")


def _is_of_one_broker(resource: Resource) -> bool:
    return resource.resource_type == BROKER and resource.resource_name != ""


def _bad(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
