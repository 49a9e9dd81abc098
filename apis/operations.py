"""The allowed operations of a principal as bit fields of KIP-430: all, since there is no authorizer yet.

Bit n stands for the ACL operation with code n (AclOperation.java); the operations of a resource type are
those of Kafka's AclEntry.supportedOperations.
"""

from odradek.wire.acl_types import Operation

NOT_ASKED = -(2**31)
"""The field's value for a request without the flag."""


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


_ON_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
ON_TOPIC = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    *_ON_CONFIGS,
)
ON_GROUP = _bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_ON_CONFIGS)
ON_CLUSTER = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    *_ON_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
