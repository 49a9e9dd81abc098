"""Rules of access: what there is, adding and removing them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from odradek.client.admin.asking import Outcome, Refused, ask_controller
from odradek.client.client_error import refusal
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.describe_acls import DescribeAclsRequest


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """A rule; Kafka calls it a binding."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """For sentences."""
        kind = self.resource_type.name.lower().replace("_", "-")
        ending = "*" if self.pattern_type == PatternType.PREFIXED else ""
        return (
            f"the rule that {self.principal} from {self.host} "
            f"{'may not' if self.permission == Permission.DENY else 'may'} {self.operation.name} "
            f"{kind} {self.resource_name}{ending}"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules are meant; None and ANY stand for all."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY


def describe_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> list[Acl]:
    """The rules that one of the filters matches, sorted. ClientError for a refusal."""
    found: set[Acl] = set()
    for one in filters:
        response = cluster.ask(ANY_NODE, DescribeAclsRequest(**_wanted(one)))
        if response.error_code != ErrorCode.NONE:
            raise refusal("listing ACLs", error_of(response.error_code), response.error_message)
        found.update(_acl(resource, acl) for resource in response.resources for acl in resource.acls)
    return sorted(found)


def add_acls(cluster: Cluster, acls: Sequence[Acl]) -> Outcome:
    """Adds the rules; one that is there already stays. Returns the refusals."""
    creations = [
        AclCreation(
            resource_type=one.resource_type,
            resource_name=one.resource_name,
            resource_pattern_type=one.pattern_type,
            principal=one.principal,
            host=one.host,
            operation=one.operation,
            permission_type=one.permission,
        )
        for one in acls
    ]
    response = ask_controller(cluster, CreateAclsRequest(creations=creations))
    return [
        Refused(str(one), refusal(f"adding {one}", error_of(result.error_code), result.error_message))
        for one, result in zip(acls, response.results, strict=True)
        if result.error_code != ErrorCode.NONE
    ]


def remove_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> tuple[list[Acl], Outcome]:
    """Removes the rules that one of the filters matches. Returns those that were removed, sorted, and the
    refusals."""
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_wanted(one)) for one in filters])
    removed: set[Acl] = set()
    refused: Outcome = []
    for result in ask_controller(cluster, request).filter_results:
        refused += _refusals("removing ACLs", "", result)
        for match in result.matching_acls:
            acl = _acl(match, match)
            refused += _refusals(f"removing {acl}", str(acl), match)
            if match.error_code == ErrorCode.NONE:
                removed.add(acl)
    return sorted(removed), refused


def _refusals(doing: str, name: str, response: Any) -> Outcome:
    if response.error_code == ErrorCode.NONE:
        return []
    return [Refused(name, refusal(doing, error_of(response.error_code), response.error_message))]


def _wanted(one: AclFilter) -> dict[str, Any]:
    """The fields of a filter, in requests."""
    return {
        "resource_type_filter": one.resource_type,
        "resource_name_filter": one.resource_name,
        "pattern_type_filter": one.pattern_type,
        "principal_filter": one.principal,
        "host_filter": one.host,
        "operation": one.operation,
        "permission_type": one.permission,
    }


def _acl(resource: Any, acl: Any) -> Acl:
    return Acl(
        ResourceType(resource.resource_type),
        resource.resource_name,
        PatternType(resource.pattern_type),
        acl.principal,
        acl.host,
        Operation(acl.operation),
        Permission(acl.permission_type),
    )
