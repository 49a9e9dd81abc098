"""DescribeAcls, CreateAcls and DeleteAcls, beside the comparison with Kafka (`test_acls.py` there)."""

from dataclasses import replace

import pytest

from odradek.coordinator.security import acls
from odradek.coordinator.security.acls import Policy
from odradek.wire.acl_types import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.describe_acls import DescribeAclsRequest
from tests.apis.conftest import FakeConnection

ADMIN, ALICE = "User:ANONYMOUS", "User:alice"
ANY = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


@pytest.fixture
def node(make_node):
    return make_node(policy=Policy(frozenset({ADMIN})))


@pytest.fixture
def alice():
    connection = FakeConnection()
    connection.principal = ALICE
    return connection


def creation(name="orders", kind=ResourceType.TOPIC, **more):
    fields = {
        "resource_type": kind,
        "resource_name": name,
        "principal": ALICE,
        "host": "*",
        "operation": Operation.READ,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(**{**fields, **more})


def create(node, *creations, version=3, **asked):
    answer = node.ask(CreateAclsRequest(creations=list(creations)), version, **asked)
    return [one.error_code for one in answer.results]


def delete(node, *filters, **asked):
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**{**ANY, **one}) for one in filters])
    return node.ask(request, 3, **asked).filter_results


def describe(node, version=3, connection=None, **wanted):
    if not version:
        wanted["pattern_type_filter"] = PatternType.LITERAL  # version 0 knows no other
    return node.ask(DescribeAclsRequest(**{**ANY, **wanted}), version, connection=connection)


def test_rules_are_described_by_resource(node):
    prefixed = {"resource_pattern_type": PatternType.PREFIXED}
    deny = {"permission_type": Permission.DENY, "host": "127.0.0.2"}
    wanted = [creation("b"), creation("a"), creation("a", **prefixed), creation("a", **deny), creation("a")]
    assert create(node, *wanted) == [0] * 5
    answer = describe(node)
    assert [
        (one.resource_name, one.pattern_type, [(acl.host, acl.permission_type) for acl in one.acls])
        for one in answer.resources
    ] == [
        ("a", 3, [("*", 3), ("127.0.0.2", 2)]),
        ("a", 4, [("*", 3)]),
        ("b", 3, [("*", 3)]),
    ]
    assert [one.resource_name for one in describe(node, version=0).resources] == ["a", "b"]
    assert create(node, creation("old", resource_pattern_type=PatternType.LITERAL), version=0) == [0]
    assert describe(node, resource_name_filter="old").resources[0].pattern_type == PatternType.LITERAL


def test_a_rule_counts_with_the_next_request(node, alice):
    assert describe(node, connection=alice).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    asked = {"connection": alice}
    assert create(node, creation(), creation(""), **asked) == [31, 31]
    assert [one.error_code for one in delete(node, {}, {}, **asked)] == [31, 31]
    assert node.machine.view.acls is None
    on_cluster = creation(CLUSTER_NAME, ResourceType.CLUSTER, operation=Operation.ALTER)
    assert create(node, on_cluster) == [0]
    assert create(node, creation(), **asked) == [0]
    assert len(describe(node, connection=alice).resources) == 2  # ALTER implies DESCRIBE
    (result,) = delete(node, {"resource_name_filter": CLUSTER_NAME}, **asked)
    assert [one.resource_name for one in result.matching_acls] == [CLUSTER_NAME]
    assert create(node, creation("x"), **asked) == [31]


def test_wrong_lines_are_refused_and_the_others_are_carried_out(node):
    assert create(node, creation(), creation(operation=99), creation("b")) == [0, 42, 0]
    found = delete(node, {"operation": 99}, {"resource_name_filter": "b"}, {})
    assert [(one.error_code, len(one.matching_acls)) for one in found] == [(42, 0), (0, 1), (0, 2)]
    assert describe(node).resources == []


def test_a_creation_that_is_a_filter_refuses_the_whole_request(node):
    for field in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
        assert create(node, creation(), creation(**{field: 1})) == [-1, -1]
    assert describe(node).resources == []


def test_a_request_that_is_too_large_is_refused_as_a_whole(node, monkeypatch):
    monkeypatch.setattr(acls, "CHANGES_MAX", 2)
    assert create(node, *(creation(f"{one}") for one in range(3))) == [ErrorCode.POLICY_VIOLATION] * 3
    assert create(node, creation("0"), creation("1")) == [0, 0]
    assert create(node, creation("2")) == [0]
    assert [one.error_code for one in delete(node, {}, {})] == [ErrorCode.POLICY_VIOLATION] * 2
    assert len(describe(node).resources) == 3


def test_what_cannot_be_stored_is_told_on_each_line_and_does_not_count(node):
    assert create(node, creation()) == [0]
    node.metadata.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert create(node, creation("a"), creation("b")) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert [one.error_code for one in delete(node, {})] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert [one.resource_name for one in describe(node).resources] == ["orders"]


def test_without_an_authorizer_there_are_no_rules(make_node):
    plain = make_node()
    assert describe(plain).error_code == ErrorCode.SECURITY_DISABLED
    assert create(plain, creation()) == [ErrorCode.SECURITY_DISABLED]
    assert [one.error_code for one in delete(plain, {})] == [ErrorCode.SECURITY_DISABLED]


def test_networks_are_hosts_from_their_metadata_version_on(node):
    network, nowhere = creation(host="10.0.0.0/8"), creation(host="")
    for level, code in ((31, ErrorCode.UNSUPPORTED_VERSION), (32, ErrorCode.NONE)):
        features = {"metadata.version": level}
        node.machine.publisher.view = replace(node.machine.view, features=features)
        assert create(node, network, nowhere) == [code, ErrorCode.INVALID_REQUEST]
