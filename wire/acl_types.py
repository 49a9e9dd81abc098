"""Kinds of operations, resources, patterns of names and permissions in ACLs, with Kafka's numbers.

UNKNOWN stands for a number that we do not know; ANY and MATCH are for filters only.

Source: AclOperation, ResourceType, PatternType and AclPermissionType of Kafka's clients.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""
WILDCARD = "*"
"""In a literal pattern: every name. As a host: every host."""


class _Kind(IntEnum):
    __hash__ = int.__hash__
    """An Enum hashes its name, in Python: in a key that costs as much as a decision."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(0)  # UNKNOWN


class Operation(_Kind):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(_Kind):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Kind):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """All patterns that fit a name: for filters."""
    LITERAL = 3
    PREFIXED = 4


class Permission(_Kind):
    """`AclPermissionType`."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3
