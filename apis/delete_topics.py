"""DeleteTopics (key 20, versions 0 to 6).

The cluster's machine deletes; this module reads requests, refuses duplicates and fills in the response.
Everything is done when that is sent, as with CreateTopics.

A client learns nothing about a topic that it may not describe: one that it names is refused whether it exists
or not, and an id is refused without the name. Results are shuffled if there was anything to refuse, as their
order would tell which topics exist. Who may delete in the cluster may delete every topic.

Source: ControllerApis and ReplicationControlManager of Kafka 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import shuffle
from typing import TYPE_CHECKING

from odradek.apis.access import on_topics, or_on_cluster
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Forwarding, SharedApi
from odradek.apis.quotas import ClientQuotas, free
from odradek.apis.refusals import Refusal
from odradek.apis.topic_creation import topic_creation
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError, error_message
from odradek.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from odradek.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.node import SharedApiParts
    from odradek.apis.refusals import Item
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.wire.work import Work

FIRST_VERSION_WITH_DELETION_DISABLED = 3
FIRST_STRICT_VERSION = 5
"""From then on topics are refused when the client's quota of partitions is used up (KIP-599)."""
FIRST_VERSION_OF_DELETION_BY_ID = 6
DELETE, TOPIC = Operation.DELETE, ResourceType.TOPIC


class DeleteTopics:
    """The handler. `is_enabled` is `delete.topic.enable`; `announce` gets the names before the deletion."""

    def __init__(
        self,
        machine: Decisions,
        work: WorkQueue,
        announce: Callable[[Iterable[str]], None],
        *,
        is_enabled: bool = True,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._quotas = quotas or ClientQuotas()
        self._machine = machine
        self._work = work
        self._announce = announce
        self._is_enabled = is_enabled

    def __call__(self, request: DeleteTopicsRequest, context: RequestContext) -> WorkResponse:
        return WorkResponse(self._work, self._deleting(request, context), context)

    def _deleting(self, request: DeleteTopicsRequest, context: RequestContext) -> Work[DeleteTopicsResponse]:
        requested: list[tuple[str | None, bytes]]
        if context.api_version < FIRST_VERSION_OF_DELETION_BY_ID:
            requested = [(name, ZERO_UUID) for name in request.topic_names]
        else:
            requested = [(topic.name, topic.topic_id) for topic in request.topics]
        if not self._is_enabled:
            code = ErrorCode.TOPIC_DELETION_DISABLED
            if context.api_version < FIRST_VERSION_WITH_DELETION_DISABLED:
                code = ErrorCode.INVALID_REQUEST
            return DeleteTopicsResponse(
                responses=[_deleted(name, topic_id, code) for name, topic_id in requested]
            )
        requested, unauthorized = self._authorized(requested, context)
        names, responses = self._names(requested)
        if unauthorized:
            responses += unauthorized
            shuffle(responses)
        self._announce(names)
        charge = self._quotas.mutation_charge(context, FIRST_STRICT_VERSION)
        try:
            results = yield from self._machine.deleting_topics(list(names), charge or free)
        except KafkaError as error:
            responses += [_deleted(name, names[name], error.code, error.message) for name in names]
            return DeleteTopicsResponse(responses=responses)
        for result in results:
            if result.topic is not None:
                responses.append(_deleted(result.name, result.topic.topic_id, ErrorCode.NONE))
            else:
                refusal = result.error
                assert refusal is not None, result
                responses.append(_deleted(result.name, ZERO_UUID, refusal.code, refusal.message))
        wait_ms = 0 if charge is None else charge.throttle_ms()
        return DeleteTopicsResponse(responses=responses, throttle_time_ms=wait_ms)

    def _authorized(
        self, requested: list[tuple[str | None, bytes]], context: RequestContext
    ) -> tuple[list[tuple[str | None, bytes]], list[DeletableTopicResult]]:
        """The entries that are left to look at, and the refusals for topics that the client may not delete.
        Invalid entries and unknown ids are refused later, and so are topics that do not exist."""
        if not context.refuses(DELETE, ResourceType.CLUSTER, CLUSTER_NAME):
            return requested, []
        view = self._machine.view
        topic_of: dict[tuple[str | None, bytes], str] = {}
        for entry, count in Counter(requested).items():
            name, topic_id = entry
            known = view.topic_by_id(topic_id) if name is None else None
            if count == 1 and known is not None:
                topic_of[entry] = known.name
            elif count == 1 and name is not None and topic_id == ZERO_UUID:
                topic_of[entry] = name
        unseen = context.refused_names(Operation.DESCRIBE, TOPIC, topic_of.values())
        undeletable = context.refused_names(DELETE, TOPIC, topic_of.values())
        refusals = {}
        for entry, topic in topic_of.items():
            name, topic_id = entry
            if name is None and topic in undeletable:
                refusals[entry] = _unauthorized(None if topic in unseen else topic, topic_id)
            elif name is not None and (topic in unseen or (topic in undeletable and topic in view.topics)):
                refusals[entry] = _unauthorized(name, ZERO_UUID)
        return [entry for entry in requested if entry not in refusals], list(refusals.values())

    def _names(
        self, requested: list[tuple[str | None, bytes]]
    ) -> tuple[dict[str, bytes], list[DeletableTopicResult]]:
        """The topics to delete, ids by name, and the refusals of invalid entries."""
        view = self._machine.view
        wanted: list[tuple[str, str | None, bytes]] = []
        refused = []
        # Two equal entries get one result.
        for name, topic_id in dict.fromkeys(requested):
            if name is not None and topic_id != ZERO_UUID:
                message = "A topic is named by its name or by its id, not by both."
                refused.append(_deleted(name, topic_id, ErrorCode.INVALID_REQUEST, message))
            elif name is not None:
                wanted.append((name, name, topic_id))
            elif topic_id == ZERO_UUID:
                refused.append(_deleted(None, topic_id, ErrorCode.INVALID_REQUEST, "Neither name nor id."))
            elif (known := view.topic_by_id(topic_id)) is None:
                refused.append(
                    _deleted(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic of this id.")
                )
            else:
                wanted.append((known.name, None, topic_id))
        requested_count = Counter(requested)
        names: dict[str, bytes] = {}
        by_id = set()
        for topic, name, topic_id in wanted:
            if name is None:
                by_id.add(topic)
            if requested_count[name, topic_id] > 1:
                refused.append(_deleted(name, topic_id, ErrorCode.INVALID_REQUEST, "Named twice."))
            elif name is None:
                names[topic] = topic_id
        for topic, name, topic_id in wanted:
            if name is None or requested_count[name, topic_id] > 1:
                continue
            if topic in by_id:
                names.pop(topic, None)
                message = "The id of this topic is named, too."
                known_id = view.topics[topic].topic_id
                refused.append(_deleted(name, known_id, ErrorCode.INVALID_REQUEST, message))
            else:
                names[topic] = topic_id
        return names, refused


def _unauthorized(name: str | None, topic_id: bytes) -> DeletableTopicResult:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _deleted(name, topic_id, code, error_message(code))


def _deleted(
    name: str | None, topic_id: bytes, code: ErrorCode, message: str | None = None
) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


def _make(parts: SharedApiParts) -> DeleteTopics:
    node = parts.node
    return DeleteTopics(
        node.machine,
        node.changes,
        parts.shared(topic_creation).will_be_deleted,
        is_enabled=parts.settings.deletes_topics,
        quotas=node.quotas,
    )


def _results_of_topics(request: DeleteTopicsRequest) -> list[Item]:
    named: list[Item] = [({"name": name}, None) for name in request.topic_names]
    return named + [({"name": topic.name, "topic_id": topic.topic_id}, None) for topic in request.topics]


API = SharedApi(
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    make=_make,
    needs=(
        or_on_cluster(Operation.DELETE),
        on_topics(Operation.DESCRIBE, None),
        on_topics(Operation.DELETE, None),
    ),
    changes=True,
    forwarded=Forwarding.AS_IT_COMES,
    refusal=Refusal(results=("responses", _results_of_topics)),
)
