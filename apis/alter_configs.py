"""AlterConfigs (key 33, versions 0 to 2) and IncrementalAlterConfigs (44, 0 and 1): settings changed live.

AlterConfigs replaces all settings of a resource, IncrementalAlterConfigs changes some of them. Resources are
topics, groups, this broker, and under the empty name all brokers. The changes are stored in one transaction;
when the response is sent, logs, connections and groups follow them. One bad setting refuses all changes of
its resource; the other resources of the request are changed.

A group need not exist to have settings, and keeps them when it is deleted. A subscription to client metrics
(KIP-714) exists while it has a setting. IncrementalAlterConfigs also changes the levels of this node's
loggers, which are not stored, if the broker is a process of its own (`apis/log_levels.py`).

In a cluster both are checked, then forwarded. Controllers store what they are told for brokers and do not
look at the values. So the broker that is named, or any of them for all brokers, checks a change before it
forwards it; resources that it refuses do not reach the controllers. For all brokers a setting is forwarded
that this node does not know or that is not built here: others may honour it, and this node says in its log
that it does not. Loggers are no matter of the controllers: this node changes them itself.

Source: ConfigAdminManager (preprocess, reassembleIncrementalResponse), ControllerApis and
ConfigurationControlManager of Kafka 4.4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Forwarding, SharedApi
from odradek.apis.describe_configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    needs_of_configs,
    refusal_of,
)
from odradek.apis.refusals import Refusal, each_of
from odradek.config.changes import DELETE, SUBTRACT, ConfigOperation, changed
from odradek.config.option import REFUSED
from odradek.config.options import GROUP_OPTIONS, TOPIC_OPTIONS, BrokerOptions, honoured
from odradek.coordinator.cluster.changes import ClientMetricsOwner, ConfigChange, GroupOwner, Owner
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import alter_configs, incremental_alter_configs

if TYPE_CHECKING:
    from odradek.apis.api import Handler, RequestContext, Waiting
    from odradek.apis.declaration import AnyApi
    from odradek.apis.forwarding import Forwarded
    from odradek.apis.node import SharedApiParts
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.wire.schema import Message
    from odradek.wire.work import Work

    AlterableConfig = alter_configs.AlterableConfig | incremental_alter_configs.AlterableConfig
    Resource = alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource

Change = Callable[[Mapping[str, str]], Mapping[str, str]]
CheckBroker = Callable[[str, Mapping[str, str]], None]
"""Takes the id of this broker as text, or "" for all brokers, and the settings that it would have; refuses
what it cannot have."""


_NODE_ID = re.compile(r"[0-9]{1,9}")


class Altering:
    """The common part of both handlers."""

    response: type[Any]
    result: type[Any]

    def __init__(
        self,
        node_id: int,
        machine: Decisions | None,
        work: WorkQueue,
        broker_options: BrokerOptions,
        *,
        changes_log_levels: bool = False,
        is_controller: bool = False,
    ) -> None:
        """Without `machine`, in a cluster, no request is carried out here. A controller changes settings of
        all nodes, a broker its own."""
        self._node_id = node_id
        self._machine = machine
        self._work = work
        self._changes_log_levels = changes_log_levels
        self._is_controller = is_controller
        # Kafka takes no setting of client metrics for a list that can be appended to.
        self._options = {
            TOPIC: TOPIC_OPTIONS,
            BROKER: broker_options,
            GROUP: GROUP_OPTIONS,
            CLIENT_METRICS: {},
        }

    def __call__(self, request: Any, context: RequestContext) -> WorkResponse:
        return WorkResponse(self._work, self._altering(request, context), context)

    def _altering(self, request: Any, context: RequestContext) -> Work[Any]:
        resources: Sequence[Resource] = request.resources
        counts = Counter((one.resource_type, one.resource_name) for one in resources)
        refusals: dict[int, KafkaError] = {}
        changes: dict[int, ConfigChange] = {}
        for number, resource in enumerate(resources):
            try:
                if counts[resource.resource_type, resource.resource_name] > 1:
                    raise _bad("A resource may be named once in a request.")
                self.authorize(resource, context)
                if resource.resource_type == BROKER_LOGGER:
                    self.change_log_levels(resource, validate_only=request.validate_only)
                    continue
                is_direct = self._is_controller and not context.is_forwarded
                changes[number] = self.change_of(resource, is_direct=is_direct)
            except KafkaError as error:
                refusals[number] = error
        try:
            assert self._machine is not None
            done = yield from self._machine.changing_configs(
                list(changes.values()), validate_only=request.validate_only
            )
        except KafkaError as error:
            refusals.update(dict.fromkeys(changes, error))
        else:
            pairs = zip(changes, done, strict=True)
            refusals.update((number, refusal) for number, refusal in pairs if refusal is not None)
        return self.response(
            responses=[
                self.result_of(resource, refusals.get(number)) for number, resource in enumerate(resources)
            ]
        )

    def authorize(self, resource: Resource, context: RequestContext) -> None:
        """Refuses what the client may not change: the code of the type of resource. As in Kafka 4.4 faults in
        the list of a broker's settings count before that, faults in their values after it."""
        if resource.resource_type == BROKER:
            self._check_settings(resource.configs)
        code = refusal_of(resource, Operation.ALTER_CONFIGS, context)
        if code is not None:
            raise KafkaError(code)

    def change_of(self, resource: Resource, *, is_direct: bool = False) -> ConfigChange:
        """The wanted change of a resource; `is_direct` as in `ConfigChange`. Refuses with
        KafkaError(INVALID_REQUEST) what makes no sense."""
        self._check_settings(resource.configs)
        names = [config.name for config in resource.configs]
        return ConfigChange(self._owner(resource), self._change(resource), names, is_direct)

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
        if self._is_controller:
            if not _NODE_ID.fullmatch(name):
                raise _bad(f"{name!r} is not the id of a node; an empty name means all brokers.")
            assert self._machine is not None
            # Kafka's brokers have looked at the values before: here this comes first.
            self._machine.check_node(int(name))
            return int(name)
        if name != str(self._node_id):
            raise _bad(f"This is broker {self._node_id}, not {name!r}; an empty name means all brokers.")
        return self._node_id

    def result_of(self, resource: Resource, refusal: KafkaError | None) -> Any:
        """The part of the response about a resource."""
        message = None if refusal is None else refusal.message
        if refusal is not None and refusal.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            message = refusal.own_message
        return self.result(
            error_code=0 if refusal is None else refusal.code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    def _needs_value(self, config: Any) -> bool:
        raise NotImplementedError

    def _change(self, resource: Any) -> Change:
        raise NotImplementedError


class AlterConfigs(Altering):
    """The handler."""

    response = alter_configs.AlterConfigsResponse
    result = alter_configs.AlterConfigsResourceResponse

    def _needs_value(self, config: alter_configs.AlterableConfig) -> bool:
        return True

    def _change(self, resource: alter_configs.AlterConfigsResource) -> Change:
        wanted = {config.name: config.value or "" for config in resource.configs}
        return lambda _: wanted


class IncrementalAlterConfigs(Altering):
    """The handler."""

    response = incremental_alter_configs.IncrementalAlterConfigsResponse
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


class ForwardedConfigs:
    """The handler of one of the two in a cluster. `altering` is the handler of a node alone: it knows what a
    request wants to change."""

    def __init__(
        self,
        altering: Altering,
        forwarded: Forwarded,
        current_view: Callable[[], ClusterView],
        options: BrokerOptions,
        check_broker: CheckBroker,
    ) -> None:
        self._altering = altering
        self._forwarded = forwarded
        self._current_view = current_view
        self._options = options
        self._check_broker = check_broker

    def __call__(self, request: Any, context: RequestContext) -> Waiting | Message:
        resources = list(request.resources)
        own: dict[int, KafkaError | None] = {}
        """Results that are decided here, by the number of the resource; None: it is done."""
        for number, one in enumerate(resources):
            refusal = self._refusal(one, context, validate_only=request.validate_only)
            if refusal is not None or one.resource_type == BROKER_LOGGER:
                own[number] = refusal
        if not own:
            return self._forwarded(request, context)

        def with_refusals(response: Any) -> Any:
            forwarded = iter(response.responses)
            response.responses = [
                self._altering.result_of(one, own[number]) if number in own else next(forwarded)
                for number, one in enumerate(resources)
            ]
            return response

        request.resources = [one for number, one in enumerate(resources) if number not in own]
        if not request.resources:
            return with_refusals(self._altering.response(responses=[]))  # type: ignore[no-any-return]
        return self._forwarded.send(request, context, with_refusals)

    def _refusal(self, resource: Any, context: RequestContext, *, validate_only: bool) -> KafkaError | None:
        if resource.resource_type not in (BROKER, BROKER_LOGGER):
            return None
        try:
            self._altering.authorize(resource, context)
            if resource.resource_type == BROKER_LOGGER:
                self._altering.change_log_levels(resource, validate_only=validate_only)
                return None
            wanted = self._altering.change_of(resource)
            owner = wanted.owner
            assert owner is None or isinstance(owner, int)
            now, _ = honoured(self._current_view().broker_configs.get(owner, {}), self._options)
            after = wanted.change(now)
            if owner is None:
                after = {name: text for name, text in after.items() if self._is_built(name)}
            self._check_broker("" if owner is None else str(owner), after)
        except KafkaError as error:
            return error
        return None

    def _is_built(self, name: str) -> bool:
        option = self._options.get(name)
        return option is not None and option.standing != REFUSED


def _operations(resource: incremental_alter_configs.AlterConfigsResource) -> list[ConfigOperation]:
    operations = []
    for config in resource.configs:
        if not 0 <= config.config_operation <= SUBTRACT:
            raise _bad(f"There is no operation {config.config_operation}.")
        operations.append(ConfigOperation(config.name, config.config_operation, config.value))
    return operations


def _unknown_type(resource: Resource) -> KafkaError:
    return _bad(f"Resources of the type {resource.resource_type} cannot be changed here.")


def _bad(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


def _altering(parts: SharedApiParts, api: AnyApi, kind: type[Altering]) -> Handler:
    """The handler of a node alone or of a cluster."""
    node, settings = parts.node, parts.settings
    options = settings.broker_options
    altering = kind(
        node.node_id,
        node.machine if node.forward is None else None,
        node.changes,
        options,
        changes_log_levels=settings.changes_log_levels,
        is_controller=node.is_controller,
    )
    if node.forward is None:
        return altering
    from odradek.apis.forwarding import Forwarded

    check = settings.check_broker_configs
    return ForwardedConfigs(altering, Forwarded(api, node.forward), node.current_view, options, check)


def _make(parts: SharedApiParts) -> Handler:
    return _altering(parts, ALTER, AlterConfigs)


def _make_incremental(parts: SharedApiParts) -> Handler:
    return _altering(parts, ALTER_INCREMENTALLY, IncrementalAlterConfigs)


_REFUSAL = Refusal(results=("responses", each_of("resources", "resource_type", "resource_name")))
ALTER = SharedApi(
    alter_configs.AlterConfigsRequest,
    alter_configs.AlterConfigsResponse,
    make=_make,
    needs=needs_of_configs(Operation.ALTER_CONFIGS),
    changes=True,
    forwarded=Forwarding.AFTER_CHECKS,
    refusal=_REFUSAL,
)
ALTER_INCREMENTALLY = SharedApi(
    incremental_alter_configs.IncrementalAlterConfigsRequest,
    incremental_alter_configs.IncrementalAlterConfigsResponse,
    make=_make_incremental,
    needs=needs_of_configs(Operation.ALTER_CONFIGS),
    changes=True,
    forwarded=Forwarding.AFTER_CHECKS,
    refusal=_REFUSAL,
)
APIS = (ALTER, ALTER_INCREMENTALLY)
