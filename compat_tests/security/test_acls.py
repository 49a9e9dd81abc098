"""ACLs with Kafka's own tool, over restarts and kills, and in a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import odradek
from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.differential.harness import CLOSED, Side
from compat_tests.quorum import Controllers, OdradekMember
from compat_tests.reference import kafka_tool
from odradek.wire.acl_types import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.describe_acls import DescribeAclsRequest

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OPEN_AT_FIRST = {"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "true"}
"""So that the first rule can be made without a login; rules then tell two hosts apart."""
ACL_TOOLS = {
    reference.CURRENT: "org.apache.kafka.tools.AclCommand",
    reference.OLDER: "kafka.admin.AclCommand",
}
GUEST = "guest"
REFUSED = 31


def acl_tool(bootstrap: str, *arguments: str, version: str = reference.CURRENT) -> list[str]:
    """What it prints, a line each, sorted: the order is that of a hash table."""
    run = kafka_tool(
        ACL_TOOLS[version],
        "--bootstrap-server",
        bootstrap,
        *arguments,
        version=version,
        timeout_seconds=DEADLINE_SECONDS,
    )
    return sorted(filter(None, map(str.strip, run.stdout.splitlines())))


ALICE = ("--allow-principal", "User:alice")
CHANGES: tuple[Sequence[str], ...] = (
    ("--add", *ALICE, "--operation", "Read", "--operation", "Describe", "--topic", "orders"),
    ("--add", *ALICE, "--producer", "--topic", "pay", "--resource-pattern-type", "prefixed"),
    ("--add", "--deny-principal", "User:*", "--deny-host", "192.0.2.7", "--topic", "*"),
    ("--add", *ALICE, "--consumer", "--topic", "orders", "--group", "*"),
    ("--add", *ALICE, "--cluster", "--operation", "All"),
    ("--remove", "--force", *ALICE, "--operation", "Describe", "--topic", "orders"),
    ("--remove", "--force", "--topic", "*"),
)
LISTS: tuple[Sequence[str], ...] = (
    ("--list",),
    ("--list", "--topic", "pay-1", "--resource-pattern-type", "match"),
    ("--list", "--principal", "User:alice", "--group", "*"),
)
SUPER = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}


@contextlib.contextmanager
def both(settings: dict[str, str]) -> Iterator[tuple[str, str]]:
    with (
        reference.Kafka(properties=settings, host=shared_host()) as kafka,
        odradek.Broker(process=True, options=settings) as ours,
    ):
        yield kafka.bootstrap_servers, ours.bootstrap_servers


def test_the_tool_of_kafka_says_of_us_what_it_says_of_kafka() -> None:
    with both(SUPER) as (kafka, ours):
        for arguments in CHANGES:
            said = [
                # What is listed behind it may be of the moment before.
                [line for line in acl_tool(one, *arguments) if line.startswith(("Adding", "Are you"))]
                for one in (kafka, ours)
            ]
            assert said[0] == said[1], arguments
        for arguments in LISTS:
            mine = acl_tool(ours, *arguments)
            assert len(mine) > 1
            wait_until(
                lambda a=arguments, m=mine: acl_tool(kafka, *a) == m,  # type: ignore[misc]
                f"Kafka lists {mine}",
                seconds=DEADLINE_SECONDS,
            )


def test_the_tool_of_kafka_3_adds_lists_and_removes() -> None:
    with odradek.Broker(process=True, options=SUPER) as ours:
        acl_tool(ours.bootstrap_servers, *CHANGES[0], version=reference.OLDER)
        listed = acl_tool(ours.bootstrap_servers, "--list", version=reference.OLDER)
        assert sum("principal=User:alice, host=*, operation=" in line for line in listed) == 2
        acl_tool(ours.bootstrap_servers, "--remove", "--force", "--topic", "orders", version=reference.OLDER)
        assert acl_tool(ours.bootstrap_servers, "--list", version=reference.OLDER) == []


# By requests, of two hosts


def creation(name: str = CLUSTER_NAME, kind: ResourceType = ResourceType.CLUSTER, **more: Any) -> AclCreation:
    fields: dict[str, Any] = {"principal": "User:ANONYMOUS", "host": "127.0.0.1", "operation": Operation.ALL}
    return AclCreation(
        resource_type=kind, resource_name=name, permission_type=Permission.ALLOW, **{**fields, **more}
    )


def describe(side: Side, connection: str = "main") -> Any:
    """The names of the resources with rules; the code of a refusal."""
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    answer = side.ask(request, 3, connection)
    assert answer != CLOSED
    return answer.error_code or [one.resource_name for one in answer.resources]


def create(side: Side, *creations: AclCreation, connection: str = "main") -> list[int]:
    answer = side.ask(CreateAclsRequest(creations=list(creations)), 3, connection)
    return [one.error_code for one in answer.results]


def delete(side: Side, name: str, connection: str = "main") -> list[int]:
    wanted = DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=name,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    answer = side.ask(DeleteAclsRequest(filters=[wanted]), 3, connection)
    return [one.error_code for one in answer.filter_results]


def side_of(bootstrap: str) -> Side:
    side = Side("odradek", bootstrap)
    side.sources[GUEST] = "127.0.0.2"
    return side


def test_rules_count_at_once_and_are_there_after_a_stop_and_after_a_kill() -> None:
    with odradek.Broker(process=True, options=OPEN_AT_FIRST) as broker:
        side = side_of(broker.bootstrap_servers)
        assert describe(side, GUEST) == []
        assert create(side, creation()) == [0]
        assert (describe(side, GUEST), describe(side)) == (REFUSED, [CLUSTER_NAME])
        for number, end in enumerate((broker.stop, broker.kill)):
            assert create(side, creation(f"t{number}", ResourceType.TOPIC)) == [0]
            side.close()
            end()
            broker.start()
            names = [CLUSTER_NAME] + [f"t{one}" for one in range(number + 1)]
            assert (describe(side, GUEST), sorted(describe(side))) == (REFUSED, sorted(names))
        assert create(side, creation("t2", ResourceType.TOPIC), connection=GUEST) == [REFUSED]
        assert delete(side, "t0", connection=GUEST) == [REFUSED]
        assert delete(side, CLUSTER_NAME) == [0]
        assert sorted(describe(side, GUEST)) == ["t0", "t1"]
        side.close()


@pytest.fixture(scope="module")
def authorizing() -> Iterator[Controllers]:
    with Controllers(OPEN_AT_FIRST, host=shared_host()) as started:
        assert isinstance(started, Controllers)
        yield started


def test_in_a_cluster_the_controllers_keep_the_rules_and_judge_the_client_and_its_host(
    authorizing: Controllers,
) -> None:
    with OdradekMember(authorizing, 1, OPEN_AT_FIRST) as node:
        side = side_of(node.bootstrap_servers)
        assert create(side, creation()) == [0]
        wait_until(lambda: describe(side, GUEST) == REFUSED, "the rule counts", seconds=DEADLINE_SECONDS)
        assert describe(side) == [CLUSTER_NAME]
        # The controllers refuse it: they know the client's principal and address from the envelope.
        assert create(side, creation("t", ResourceType.TOPIC), connection=GUEST) == [REFUSED]
        assert delete(side, CLUSTER_NAME, connection=GUEST) == [REFUSED]
        assert create(side, creation("t", ResourceType.TOPIC), creation("")) == [0, 42]
        wait_until(lambda: len(describe(side)) == 2, "the second rule is there", seconds=DEADLINE_SECONDS)
        side.close()
        node.kill()
        node.start()
        assert (describe(side, GUEST), sorted(describe(side))) == (REFUSED, sorted([CLUSTER_NAME, "t"]))
        assert delete(side, CLUSTER_NAME) == [0]
        wait_until(lambda: describe(side, GUEST) == ["t"], "the rule is gone", seconds=DEADLINE_SECONDS)
        side.close()
        assert "does not enforce" not in node.log
