"""DescribeAcls (key 29), CreateAcls (30) and DeleteAcls (31), versions 0 to 3: who may do what.

- Without an authorizer the response is SECURITY_DISABLED for each ACL of the request, as from Kafka;
  MirrorMaker then sends no such request again.
- A request with a code 0, which stands for "unknown" and which no client sends, closes the connection, as in
  Kafka.
- CreateAcls refuses an ACL with another unknown code, alone, and the whole request if a code is one that only
  filters have. DeleteAcls refuses a filter with an unknown code, alone. DescribeAcls answers it with an empty
  list.
- Version 0 knows literal patterns only.

A node of a cluster sends 30 and 31 on to its controllers (`apis/forwarding.py`).

Source: AclApis.scala, AclControlManager and the requests' own classes of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Forwarding, SharedApi
from odradek.apis.refusals import Refusal, each_of
from odradek.coordinator.cluster.features import METADATA_VERSION, NETWORKS_SINCE
from odradek.wire.acl_types import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError, MalformedMessage, error_message
from odradek.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from odradek.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.node import SharedApiParts
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.coordinator.cluster.draft import Draft
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.security.acls import Acl, AclFilter, AclRules
    from odradek.wire.work import Work

UNKNOWN = 0
WITHOUT_AUTHORIZER = "No Authorizer is configured."
"""Kafka's tools show this text, and scripts look for it."""


class DescribeAcls:
    """The handler. `searches` is None without an authorizer."""

    def __init__(self, current_view: Callable[[], ClusterView], searches: WorkQueue | None) -> None:
        self._current_view = current_view
        self._searches = searches

    def __call__(
        self, request: DescribeAclsRequest, context: RequestContext
    ) -> DescribeAclsResponse | WorkResponse:
        _check_filter(request)
        if (Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME) in context.refused:
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return _undescribed(code, error_message(code))
        if self._searches is None:
            return _undescribed(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
        return WorkResponse(self._searches, self._find(_filter_of(request)), context)

    def _find(self, wanted: AclFilter) -> Work[DescribeAclsResponse]:
        rules = self._current_view().acls
        found = [] if rules is None else (yield from rules.finding(wanted))
        return DescribeAclsResponse(
            error_code=ErrorCode.NONE,
            error_message="",
            resources=[
                DescribeAclsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    pattern_type=pattern_type,
                    acls=[_described(acl) for acl in acls],
                )
                # Sorted by these three first.
                for (resource_type, name, pattern_type), acls in groupby(found, lambda acl: acl[:3])
            ],
        )


class CreateAcls:
    """The handler of a node that decides itself. `machine` is None without an authorizer."""

    def __init__(self, machine: Decisions | None, changes: WorkQueue) -> None:
        self._machine = machine
        self._changes = changes

    def __call__(
        self, request: CreateAclsRequest, context: RequestContext
    ) -> CreateAclsResponse | WorkResponse:
        for creation in request.creations:
            _check_creation(creation)
        refusal = _refusal_to_change(context, self._machine)
        if refusal is None and any(map(_is_filter, request.creations)):
            # Kafka trips over it, and does none of the others either.
            refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if refusal is not None:
            return CreateAclsResponse(results=[_created(refusal)] * len(request.creations))
        assert self._machine is not None
        return WorkResponse(self._changes, self._create(self._machine, request.creations), context)

    def _create(self, machine: Decisions, creations: list[AclCreation]) -> Work[CreateAclsResponse]:
        def edit(draft: Draft) -> Work[list[KafkaError | None]]:
            rules, wanted = _rules_of(draft), (_acl_of(one) for one in creations)
            takes_networks = draft.features.get(METADATA_VERSION, 0) >= NETWORKS_SINCE
            refusals, added = yield from rules.creating(wanted, machine.new_id, takes_networks=takes_networks)
            draft.change_acls(added)
            return refusals

        try:
            refusals = yield from machine.changing(edit)
        except KafkaError as error:
            refusals = [error] * len(creations)
        return CreateAclsResponse(results=[_created(one) for one in refusals])


class DeleteAcls:
    """The handler of a node that decides itself. `machine` is None without an authorizer."""

    def __init__(self, machine: Decisions | None, changes: WorkQueue) -> None:
        self._machine = machine
        self._changes = changes

    def __call__(
        self, request: DeleteAclsRequest, context: RequestContext
    ) -> DeleteAclsResponse | WorkResponse:
        for requested in request.filters:
            _check_filter(requested)
        refusal = _refusal_to_change(context, self._machine)
        if refusal is not None:
            return DeleteAclsResponse(filter_results=[_deleted(refusal)] * len(request.filters))
        assert self._machine is not None
        return WorkResponse(self._changes, self._delete(self._machine, request.filters), context)

    def _delete(self, machine: Decisions, filters: list[DeleteAclsFilter]) -> Work[DeleteAclsResponse]:
        def edit(draft: Draft) -> Work[list[list[Acl] | KafkaError]]:
            results, removed = yield from _rules_of(draft).deleting(map(_filter_of, filters))
            draft.change_acls({}, removed)
            return results

        try:
            results = yield from machine.changing(edit)
        except KafkaError as error:
            results = [error] * len(filters)
        return DeleteAclsResponse(filter_results=[_deleted(one) for one in results])


def _refusal_to_change(context: RequestContext, machine: Decisions | None) -> KafkaError | None:
    """Refusal of all lines, if there is one."""
    if (Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) in context.refused:
        return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if machine is None:
        return KafkaError(ErrorCode.SECURITY_DISABLED, WITHOUT_AUTHORIZER)
    return None


def _rules_of(draft: Draft) -> AclRules:
    from odradek.coordinator.security.acls import AclRules

    return AclRules() if draft.acls is None else draft.acls


# Fields


def _acl_of(creation: AclCreation) -> Acl:
    from odradek.coordinator.security.acls import Acl

    return Acl(
        ResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        Operation(creation.operation),
        Permission(creation.permission_type),
    )


def _filter_of(requested: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    from odradek.coordinator.security.acls import AclFilter

    return AclFilter(
        ResourceType(requested.resource_type_filter),
        requested.resource_name_filter,
        PatternType(requested.pattern_type_filter),
        requested.principal_filter,
        requested.host_filter,
        Operation(requested.operation),
        Permission(requested.permission_type),
    )


def _undescribed(code: ErrorCode, message: str) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message, resources=[])


def _described(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _created(refusal: KafkaError | None) -> AclCreationResult:
    if refusal is None:
        return AclCreationResult(error_code=ErrorCode.NONE, error_message="")
    message = None if refusal.code is ErrorCode.UNKNOWN_SERVER_ERROR else refusal.message
    return AclCreationResult(error_code=refusal.code, error_message=message)


def _deleted(found: Iterable[Acl] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(found, KafkaError):
        return DeleteAclsFilterResult(error_code=found.code, error_message=found.message, matching_acls=[])
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_code=ErrorCode.NONE,
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in found
        ],
    )


# Codes


def _check_filter(requested: DescribeAclsRequest | DeleteAclsFilter) -> None:
    _check(
        requested.resource_type_filter,
        requested.pattern_type_filter,
        requested.operation,
        requested.permission_type,
    )


def _check_creation(requested: AclCreation) -> None:
    _check(
        requested.resource_type,
        requested.resource_pattern_type,
        requested.operation,
        requested.permission_type,
    )


def _is_filter(requested: AclCreation) -> bool:
    """Whether it stands for several rules."""
    return (
        requested.resource_type == ResourceType.ANY
        or requested.resource_pattern_type in (PatternType.ANY, PatternType.MATCH)
        or requested.operation == Operation.ANY
        or requested.permission_type == Permission.ANY
    )


def _check(*codes: int) -> None:
    if UNKNOWN in codes:
        raise MalformedMessage("an ACL with an element that is unknown")


def _make_describe(parts: SharedApiParts) -> DescribeAcls:
    node = parts.node
    return DescribeAcls(node.current_view, node.searches if node.has_acls else None)


def _make_create(parts: SharedApiParts) -> CreateAcls:
    node = parts.node
    return CreateAcls(node.machine if node.has_acls else None, node.changes)


def _make_delete(parts: SharedApiParts) -> DeleteAcls:
    node = parts.node
    return DeleteAcls(node.machine if node.has_acls else None, node.changes)


# A senseless one of these ends the connection before it is refused.

APIS = (
    SharedApi(
        DescribeAclsRequest,
        DescribeAclsResponse,
        make=_make_describe,
        needs=(on_cluster(Operation.DESCRIBE, is_whole=False),),
    ),
    SharedApi(
        CreateAclsRequest,
        CreateAclsResponse,
        make=_make_create,
        needs=(on_cluster(Operation.ALTER, is_whole=False),),
        changes=True,
        forwarded=Forwarding.AS_IT_COMES,
        refusal=Refusal(results=("results", each_of("creations"))),
    ),
    SharedApi(
        DeleteAclsRequest,
        DeleteAclsResponse,
        make=_make_delete,
        needs=(on_cluster(Operation.ALTER, is_whole=False),),
        changes=True,
        forwarded=Forwarding.AS_IT_COMES,
        refusal=Refusal(results=("filter_results", each_of("filters"))),
    ),
)
