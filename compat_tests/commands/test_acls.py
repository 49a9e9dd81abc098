"""`odradek acls` says what the AdminClient of librdkafka says, and the other way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from compat_tests.clients import wait_until

Rows = list[dict[str, Any]]
Command = Callable[..., Rows]


@pytest.fixture
def admin(authorizing: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": authorizing})


@pytest.fixture
def acls(rows: Command, authorizing: str) -> Command:
    return lambda *arguments: rows("acls", *arguments, bootstrap=authorizing)


def described(admin: AdminClient, **more: Any) -> list[Any]:
    """The rules as a set would have them, sorted."""
    fields: dict[str, Any] = {
        "restype": ResourceType.ANY,
        "name": None,
        "resource_pattern_type": ResourcePatternType.ANY,
        "principal": None,
        "host": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermissionType.ANY,
    }
    found = admin.describe_acls(AclBindingFilter(**{**fields, **more})).result(30)
    return sorted(
        (
            one.principal,
            one.host,
            one.permission_type.name,
            one.operation.name,
            # Kafka's name of BROKER is CLUSTER.
            one.restype.name.replace("BROKER", "CLUSTER"),
            one.name,
            one.resource_pattern_type.name,
        )
        for one in found
    )


def told(rows: Rows) -> list[Any]:
    return sorted(tuple(row.values()) for row in rows)


def test_rules_that_are_added_and_removed_are_those_of_the_admin_client(
    acls: Command, admin: AdminClient
) -> None:
    ann = ("--principal", "User:ann", "--principal", "User:bob c")
    added = acls("add", *ann, "--operation", "read", "--operation", "AlterConfigs", "--topic", "orders")
    added += acls("add", *ann, "--operation", "ALL", "--group", "gö", "--cluster", "--transactional-id", "t")
    added += acls("add", *ann, "--operation", "WRITE", "--topic", "ord", "--prefixed", "--deny")
    added += acls("add", *ann, "--host", "192.0.2.7", "--operation", "WRITE", "--topic", "*")
    assert len(added) == 14
    wait_until(lambda: described(admin) == told(added), "the rules are there")
    assert told(acls("list")) == told(added)
    for options, fields in (
        (
            ["--topic", "orders"],
            {
                "restype": ResourceType.TOPIC,
                "name": "orders",
                "resource_pattern_type": ResourcePatternType.MATCH,
            },
        ),
        (["--principal", "User:ann"], {"principal": "User:ann"}),
        (["--host", "192.0.2.7"], {"host": "192.0.2.7"}),
        (["--deny"], {"permission_type": AclPermissionType.DENY}),
        (["--operation", "READ"], {"operation": AclOperation.READ}),
        (["--prefixed"], {"resource_pattern_type": ResourcePatternType.PREFIXED}),
    ):
        theirs = described(admin, **fields)
        assert 0 < len(theirs) < 14
        assert told(acls("list", *options)) == theirs, options
    planned = acls("remove", "--topic", "orders", "--dry-run")
    assert len(planned) == 4
    assert told(acls("remove", "--topic", "orders")) == told(planned)
    wait_until(lambda: len(described(admin)) == 10, "the rules are gone")
    assert len(acls("remove", "--all")) == 10
    wait_until(lambda: described(admin) == [], "all rules are gone")


def test_a_rule_of_the_admin_client_is_listed(acls: Command, admin: AdminClient) -> None:
    binding = AclBinding(
        ResourceType.GROUP,
        "g",
        ResourcePatternType.PREFIXED,
        "User:eve",
        "*",
        AclOperation.DELETE,
        AclPermissionType.DENY,
    )
    admin.create_acls([binding])[binding].result(30)
    row = {
        "principal": "User:eve",
        "host": "*",
        "permission": "DENY",
        "operation": "DELETE",
        "resource_type": "GROUP",
        "resource_name": "g",
        "pattern_type": "PREFIXED",
    }
    wait_until(lambda: acls("list", "--principal", "User:eve") == [row], "the rule is listed")
    assert acls("remove", "--principal", "User:eve") == [row]
