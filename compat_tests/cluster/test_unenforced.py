"""A node without an authorizer refuses a cluster with ACLs, unless it is told to ignore them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.broker_host import shared_host
from compat_tests.clients import DEADLINE_SECONDS
from compat_tests.differential.harness import CLOSED, Side
from compat_tests.quorum import Controllers, OdradekMember
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3


@pytest.fixture(scope="module")
def protected() -> Iterator[Controllers]:
    with Controllers(AUTHORIZED, host=shared_host()) as started:
        assert isinstance(started, Controllers)
        yield started


def create_acl(node: OdradekMember) -> None:
    side = Side("odradek", node.bootstrap_servers)
    creation = AclCreation(
        resource_type=TOPIC,
        resource_name="secret",
        resource_pattern_type=LITERAL,
        principal="User:alice",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    answer = side.ask(CreateAclsRequest(creations=[creation]), 3)
    # The node that is asked may end at just this one, before it can answer.
    assert answer == CLOSED or [one.error_code for one in answer.results] == [0]
    side.close()


def test_acls_that_come_end_a_node_and_refuse_its_start_unless_it_is_told_to_ignore_them(
    protected: Controllers,
) -> None:
    with OdradekMember(protected, 1) as node:
        process = node.process
        create_acl(node)
        assert process.wait(DEADLINE_SECONDS) == 1
        assert "stopping: The cluster has ACLs, and this node does not enforce them" in node.log
        told = len(node.log)
        assert node.begin().wait(DEADLINE_SECONDS) == 1
        assert "odradek.ignore.acls=true" in node.log[told:]
        with OdradekMember(protected, 2, {"odradek.ignore.acls": "true"}) as unprotected:
            assert unprotected.log.count("the cluster has ACLs, which this node does not enforce") == 1
