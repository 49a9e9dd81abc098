"""Kinds in ACLs have Kafka's numbers, and a number that nobody knows is UNKNOWN."""

import pytest

from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType


@pytest.mark.parametrize("kind", [Operation, ResourceType, PatternType, Permission])
@pytest.mark.parametrize("number", [-128, -1, 16, 127])
def test_a_number_that_nobody_knows_is_unknown(kind, number):
    assert kind(number) is kind.UNKNOWN


def test_the_numbers_are_kafkas():
    assert [Operation(code).name for code in range(16)] == [
        "UNKNOWN",
        "ANY",
        "ALL",
        "READ",
        "WRITE",
        "CREATE",
        "DELETE",
        "ALTER",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
        "CREATE_TOKENS",
        "DESCRIBE_TOKENS",
        "TWO_PHASE_COMMIT",
    ]
    assert [ResourceType(code).name for code in range(8)] == [
        "UNKNOWN",
        "ANY",
        "TOPIC",
        "GROUP",
        "CLUSTER",
        "TRANSACTIONAL_ID",
        "DELEGATION_TOKEN",
        "USER",
    ]
    assert [PatternType(code).name for code in range(5)] == ["UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"]
    assert [Permission(code).name for code in range(4)] == ["UNKNOWN", "ANY", "DENY", "ALLOW"]
