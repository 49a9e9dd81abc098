"""DescribeAcls (key 29), CreateAcls (30) and DeleteAcls (31), versions 0 to 3: who may do what.

There is no authorizer. The responses are those of a Kafka without one: SECURITY_DISABLED for each ACL of the
request. MirrorMaker then sends no such request again. A request with a code 0, which stands for "unknown" and
which no client sends, closes the connection, as in Kafka.

Source: AclApis.scala and the requests' own classes of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from odradek.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext

UNKNOWN = 0
WITHOUT_AUTHORIZER = "No Authorizer is configured."
"""Kafka's tools show this text, and scripts look for it."""


def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """The handler."""
    _check_filter(request)
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
        resources=[],
    )


def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """The handler."""
    for creation in request.creations:
        _check_creation(creation)
    refusal = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=WITHOUT_AUTHORIZER)
    return CreateAclsResponse(results=[refusal] * len(request.creations))


def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """The handler."""
    for requested in request.filters:
        _check_filter(requested)
    refusal = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=WITHOUT_AUTHORIZER, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))


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


def _check(*codes: int) -> None:
    if UNKNOWN in codes:
        raise MalformedMessage("an ACL with an element that is unknown")
