"""FindCoordinator (key 10, versions 0 to 6): the coordinators of groups, transactions and share partitions.

A key is refused before anything is created for it. Only brokers ask for the coordinators of share partitions
(KIP-932).

Source: KafkaApis of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.access import CODES, Need, on_groups, on_transactional_ids
from odradek.apis.addresses import address_of
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Api
from odradek.apis.topic_creation import topic_creation
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from odradek.coordinator.shares.state.keys import share_partition_key
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode, error_message
from odradek.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.apis.access import Names
    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups, Shares, Transactions
    from odradek.apis.node import ApiParts
    from odradek.apis.topic_creation import TopicCreation
    from odradek.apis.turn import WorkQueue
    from odradek.wire.work import Work

GROUP_KEY = 0
TRANSACTION_KEY = 1
SHARE_KEY = 2
FIRST_VERSION_WITH_KEY_BATCH = 4
FIRST_VERSION_OF_SHARE_KEYS = 6
MAX_COORDINATOR_KEYS = 100_000
"""The limit of keys in one request; beyond it each key gets INVALID_REQUEST."""
_TOPIC_OF = {
    GROUP_KEY: OFFSETS_TOPIC,
    TRANSACTION_KEY: TRANSACTIONS_TOPIC,
    SHARE_KEY: SHARE_STATE_TOPIC,
}
"""The topics whose partition leaders are the coordinators, by type of key."""
_RESOURCE_OF = {GROUP_KEY: ResourceType.GROUP, TRANSACTION_KEY: ResourceType.TRANSACTIONAL_ID}
_CODE_OF = {key_type: CODES[resource_type] for key_type, resource_type in _RESOURCE_OF.items()}
_NOWHERE = (-1, "", -1)
"""Node id, host and port of an unknown coordinator."""


def _is_refused(key_type: int, key: str, context: RequestContext) -> bool:
    if not context.refused:
        return False
    resource_type = _RESOURCE_OF.get(key_type)
    return resource_type is not None and context.refuses(Operation.DESCRIBE, resource_type, key)


def _has_allowed(request: FindCoordinatorRequest, context: RequestContext) -> bool:
    """Whether the client may have the coordinator of any of the keys."""
    keys = request.coordinator_keys
    if request.key_type == SHARE_KEY:
        return context.api_version >= FIRST_VERSION_OF_SHARE_KEYS and any(map(share_partition_key, keys))
    if context.api_version < FIRST_VERSION_WITH_KEY_BATCH:
        keys = [request.key]
    return not context.refused or any(not _is_refused(request.key_type, key, context) for key in keys)


def _refused(key: str, code: ErrorCode) -> Coordinator:
    node_id, host, port = _NOWHERE
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code)


class FindCoordinator:
    """The handler. The first request for a group creates `__consumer_offsets`, the first request for a
    transactional id `__transaction_state`, the first for a share partition `__share_group_state`.
    """

    def __init__(
        self,
        node_id: int,
        topics: TopicCreation,
        work: WorkQueue,
        groups: Groups,
        transactions: Transactions,
        shares: Shares,
    ) -> None:
        self._node_id = node_id
        self._topics = topics
        self._work = work
        self._groups = groups
        self._transactions = transactions
        self._shares = shares

    def __call__(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> FindCoordinatorResponse | WorkResponse:
        is_of_share = request.key_type == SHARE_KEY and context.api_version >= FIRST_VERSION_OF_SHARE_KEYS
        if is_of_share and context.refuses(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return FindCoordinatorResponse(
                coordinators=[_refused(key, code) for key in request.coordinator_keys]
            )
        topic = _TOPIC_OF.get(request.key_type)
        if topic is not None and self._topics.lacks([topic]) and _has_allowed(request, context):
            return WorkResponse(self._work, self._creating(topic, request, context), context)
        return self._response(request, context)

    def _creating(
        self, topic: str, request: FindCoordinatorRequest, context: RequestContext
    ) -> Work[FindCoordinatorResponse]:
        # If the topic cannot be created, there is no coordinator.
        yield from self._topics.creating_missing([topic])
        return self._response(request, context)

    def _response(self, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        if context.api_version < FIRST_VERSION_WITH_KEY_BATCH:
            code, (node_id, host, port) = (
                (_CODE_OF[request.key_type], _NOWHERE)
                if _is_refused(request.key_type, request.key, context)
                else self._find(request.key_type, request.key, context)
            )
            # Kafka writes the text "NONE" where there is no error.
            message = "NONE" if code is ErrorCode.NONE else error_message(code)
            return FindCoordinatorResponse(
                error_code=code, error_message=message, node_id=node_id, host=host, port=port
            )
        is_too_much = len(request.coordinator_keys) > MAX_COORDINATOR_KEYS
        coordinators = []
        for key in request.coordinator_keys:
            if not is_too_much and _is_refused(request.key_type, key, context):
                coordinators.append(_refused(key, _CODE_OF[request.key_type]))
                continue
            code, (node_id, host, port) = (
                (ErrorCode.INVALID_REQUEST, _NOWHERE)
                if is_too_much
                else self._find(request.key_type, key, context)
            )
            coordinators.append(Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code))
        return FindCoordinatorResponse(coordinators=coordinators)

    def _find(
        self, key_type: int, key: str, context: RequestContext
    ) -> tuple[ErrorCode, tuple[int, str, int]]:
        topic = _TOPIC_OF.get(key_type)
        index = None if topic is None else self._partition_of(key_type, key, context.api_version)
        if topic is None or index is None:
            return ErrorCode.INVALID_REQUEST, _NOWHERE
        view = self._topics.view
        leader = view.brokers.get(view.leader_of(topic, index))
        address = None if leader is None else address_of(leader, context.connection, self._node_id)
        if leader is None or address is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOWHERE
        return ErrorCode.NONE, (leader.node_id, *address)

    def _partition_of(self, key_type: int, key: str, version: int) -> int | None:
        if key_type == GROUP_KEY:
            return self._groups().partition_of(key)
        if key_type == TRANSACTION_KEY:
            return self._transactions().partition_of(key)
        found = share_partition_key(key) if version >= FIRST_VERSION_OF_SHARE_KEYS else None
        return None if found is None else self._shares().partition_of(found.text)


def _make(parts: ApiParts) -> FindCoordinator:
    node = parts.node
    topics = parts.shared(topic_creation)
    return FindCoordinator(node.node_id, topics, node.changes, node.groups, node.transactions, node.shares)


def _keys_of_type(key_type: int) -> Names:
    def names(request: FindCoordinatorRequest) -> Iterable[str]:
        if request.key_type != key_type:
            return ()
        return request.coordinator_keys or (request.key,)

    return names


def _cluster_for_share_keys(request: FindCoordinatorRequest) -> Iterable[str]:
    return (CLUSTER_NAME,) if request.key_type == SHARE_KEY else ()


API = Api(
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    make=_make,
    needs=(
        on_groups(Operation.DESCRIBE, _keys_of_type(GROUP_KEY)),
        on_transactional_ids(Operation.DESCRIBE, _keys_of_type(TRANSACTION_KEY)),
        Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, _cluster_for_share_keys),
    ),
)
