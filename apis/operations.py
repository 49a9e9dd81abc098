"""The allowed operations of a principal as bit fields of KIP-430.

Bit n stands for the ACL operation with code n (AclOperation.java); the operations of a resource type are
those of Kafka's AclEntry.supportedOperations. A topic or group is described to who may describe it; the field
of the cluster is 0 for who may not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.apis.access import ALLOW_ALL
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext

NOT_ASKED = -(2**31)
"""The field's value for a request without the flag."""

_ON_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
_OPERATIONS = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        *_ON_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_ON_CONFIGS),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        *_ON_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


ON_TOPIC, ON_GROUP, ON_CLUSTER = (
    _bits(_OPERATIONS[kind]) for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
)
"""All of them."""


def on_topic(context: RequestContext, name: str) -> int:
    if context.authorizer is ALLOW_ALL:
        return ON_TOPIC
    return ON_TOPIC & ~_refused(context, ResourceType.TOPIC, name)


def on_group(context: RequestContext, name: str) -> int:
    if context.authorizer is ALLOW_ALL:
        return ON_GROUP
    return ON_GROUP & ~_refused(context, ResourceType.GROUP, name)


def on_cluster(context: RequestContext) -> int:
    if context.authorizer is ALLOW_ALL:
        return ON_CLUSTER
    if context.refused_names(Operation.DESCRIBE, ResourceType.CLUSTER, (CLUSTER_NAME,)):
        return 0
    return ON_CLUSTER & ~_refused(context, ResourceType.CLUSTER, CLUSTER_NAME)


def _refused(context: RequestContext, resource_type: ResourceType, name: str) -> int:
    """The bits of the operations that the client may not do."""
    wanted = {(operation, resource_type): (name,) for operation in _OPERATIONS[resource_type]}
    return _bits(operation for operation, _, _ in context.authorizer.hidden(context.connection, wanted))
