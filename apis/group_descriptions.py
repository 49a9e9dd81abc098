"""Descriptions of groups that have an API of their own for it: those of the consumer, share and streams
protocols.

Each group is described by its own coordinator. Where such groups are switched off all are refused with
UNSUPPORTED_VERSION, before permissions. A group with a topic that the client may not describe is not
described at all.

Source: KafkaApis of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odradek.apis import operations
from odradek.apis.access import each, on_groups, on_topics
from odradek.apis.api import split
from odradek.apis.coordinators import ask_for_each
from odradek.apis.declaration import Api
from odradek.apis.refusals import Item, Refusal
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups
    from odradek.wire.schema import Message

Serves = Callable[["Groups"], bool]
TopicsOf = Callable[[Any], Iterable[str]]


class GroupDescribe:
    """The handler. `serves` tells whether such groups are served, `topics_of` the topics of a description."""

    def __init__(self, groups: Groups, api: Api, serves: Serves, topics_of: TopicsOf) -> None:
        self._groups = groups
        self._api = api
        self._serves = serves
        self._topics_of = topics_of

    def __call__(self, request: Any, context: RequestContext) -> Any:
        refuse, version = self._api.refuse, context.api_version
        if not self._serves(self._groups):
            return refuse(request, version, ErrorCode.UNSUPPORTED_VERSION)
        wants_operations = request.include_authorized_operations
        refused, allowed = split(
            context,
            request.group_ids,
            lambda one: context.refuses(Operation.DESCRIBE, ResourceType.GROUP, one),
        )
        # As in Kafka, refused groups come first.
        described = refuse(replace(request, group_ids=refused), version, ErrorCode.GROUP_AUTHORIZATION_FAILED)

        def merge(responses: list[Any]) -> Any:
            for response in responses:
                (group,) = response.groups
                if wants_operations and group.error_code == ErrorCode.NONE:
                    group.authorized_operations = operations.on_group(context, group.group_id)
                described.groups.append(self._visible(group, context))
            return described

        return ask_for_each(
            [replace(request, group_ids=[group_id]) for group_id in allowed],
            refuse,
            context,
            lambda asked: self._groups().submit(asked.request.group_ids[0], asked),
            merge,
        )

    def _visible(self, group: Any, context: RequestContext) -> Any:
        """The group, or its refusal if it has topics that the client may not describe."""
        topics = set(self._topics_of(group))
        if not context.refused_names(Operation.DESCRIBE, ResourceType.TOPIC, topics):
            return group
        return group.__class__(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has topics that the client may not describe.",
            group_id=group.group_id,
        )


def describe_api(request: type[Message], response: type[Message], serves: Serves, topics_of: TopicsOf) -> Api:
    """The API whose request names `group_ids`, and whose response has `groups`."""
    api = Api(
        request,
        response,
        make=lambda parts: GroupDescribe(parts.node.groups, api, serves, topics_of),
        needs=(on_groups(Operation.DESCRIBE, each("group_ids")), on_topics(Operation.DESCRIBE, None)),
        refusal=Refusal(results=("groups", _each_group), has_message=False),
    )
    return api


def _each_group(request: Any) -> list[Item]:
    return [({"group_id": group_id}, None) for group_id in request.group_ids]
