"""AlterConfigs (key 33) and IncrementalAlterConfigs (44) of a node of a cluster: checked, then forwarded.

Controllers store what they are told for brokers and do not look at the values. So the broker that is named,
or any of them for all brokers, checks a change before it forwards it; resources that it refuses do not reach
the controllers. For all brokers a setting is forwarded that this node does not know or that is not built
here: others may honour it, and this node says in its log that it does not. Loggers are no matter of the
controllers: this node changes them itself (`apis/alter_configs.py`).

Source: ConfigAdminManager.preprocess and reassembleIncrementalResponse of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.apis.api import Waiting
from odradek.apis.describe_configs import BROKER, BROKER_LOGGER, refusal_of
from odradek.apis.forwarding import Forward, Forwarded
from odradek.config.options import REFUSED, BrokerOptions, honoured
from odradek.wire.acl_types import Operation
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.apis.alter_configs import Altering
    from odradek.apis.api import RequestContext
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.wire.schema import Message

__all__ = ["ForwardedConfigs"]

CheckBroker = Callable[[str, Mapping[str, str]], None]
"""Takes the id of this broker as text, or "" for all brokers, and the settings that it would have; refuses
what it cannot have."""


class ForwardedConfigs(Forwarded):
    """The handler of one of the two. `altering` is the handler of a node alone: it knows what a request wants
    to change."""

    def __init__(
        self,
        altering: Altering,
        api_key: int,
        forward: Forward,
        current_view: Callable[[], ClusterView],
        options: BrokerOptions,
        check_broker: CheckBroker,
    ) -> None:
        super().__init__(api_key, forward)
        self._altering = altering
        self._current_view = current_view
        self._options = options
        self._check_broker = check_broker

    def __call__(self, request: Any, context: RequestContext) -> Waiting | Message:
        resources = list(request.resources)
        own: dict[int, KafkaError | None] = {}
        """What is decided here; None: it is done."""
        for number, one in enumerate(resources):
            refusal = self._refusal(one, context, validate_only=request.validate_only)
            if refusal is not None or one.resource_type == BROKER_LOGGER:
                own[number] = refusal
        if not own:
            return super().__call__(request, context)

        def with_refusals(answer: Any) -> Any:
            forwarded = iter(answer.responses)
            answer.responses = [
                self._altering.result_of(one, own[number]) if number in own else next(forwarded)
                for number, one in enumerate(resources)
            ]
            return answer

        request.resources = [one for number, one in enumerate(resources) if number not in own]
        if not request.resources:
            return with_refusals(self._altering.answer(responses=[]))  # type: ignore[no-any-return]
        return self.send(request, context, with_refusals)

    def _refusal(self, resource: Any, context: RequestContext, *, validate_only: bool) -> KafkaError | None:
        if resource.resource_type not in (BROKER, BROKER_LOGGER):
            return None
        if resource.resource_type == BROKER_LOGGER:
            # No controller sees it, so this node authorizes it.
            code = refusal_of(resource, Operation.ALTER_CONFIGS, context)
            if code is not None:
                return KafkaError(code)
        try:
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
