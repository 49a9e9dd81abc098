"""ACLs are created, described and deleted as Kafka does it, line by line, in every version."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from compat_tests import reference
from compat_tests.differential.harness import CLOSED, Pair, Side
from compat_tests.differential.pairs import pair_of
from compat_tests.differential.test_settings import is_older
from odradek.wire.acl_types import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.describe_acls import DescribeAclsRequest
from tests.tiers import rest_at_night

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN, GUEST = "main", "guest"
"""Connections: from 127.0.0.1, which may do everything, and from 127.0.0.2. Both are `User:ANONYMOUS`."""


@pytest.fixture(scope="module", params=rest_at_night(reference.CURRENT, reference.OLDER))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    settings = {"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "true"}
    with pair_of(request.param, settings) as pair:
        admin = creation(
            resource_type=ResourceType.CLUSTER,
            resource_name=CLUSTER_NAME,
            principal="User:ANONYMOUS",
            host="127.0.0.1",
            operation=Operation.ALL,
        )
        for side in pair.sides:
            side.sources[GUEST] = "127.0.0.2"
            create(side, admin)
            # Each broker takes its rules in by itself.
            wait_for(side, GUEST, 31)
        yield pair


def wait_for(side: Side, connection: str, code: int) -> None:
    for _ in range(1000):
        answer = side.ask(DescribeAclsRequest(**FILTER), 1, connection)
        if answer.error_code == code:
            return
    raise AssertionError(f"{side.name} never answered {code}")


def creation(**fields: Any) -> AclCreation:
    defaults: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "t",
        "principal": "User:alice",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(**{**defaults, **fields})


def create(side: Side, *creations: AclCreation) -> None:
    answer = side.ask(CreateAclsRequest(creations=list(creations)), 1)
    assert [one.error_code for one in answer.results] == [0] * len(creations)


FILTER: dict[str, Any] = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}
V0 = {"pattern_type_filter": PatternType.LITERAL}
"""What a request of version 0 cannot say otherwise."""


def describe(version: int, **fields: Any) -> DescribeAclsRequest:
    return DescribeAclsRequest(**{**FILTER, **fields, **({} if version else V0)})


def deletion(version: int, **fields: Any) -> DeleteAclsFilter:
    return DeleteAclsFilter(**{**FILTER, **fields, **({} if version else V0)})


def same_acls(pair: Pair, note: str = "") -> None:
    """Both have the same rules: the order of an answer is that of a hash table."""
    for version in pair.versions(DescribeAclsRequest):
        # Kafka's broker learns of a change a moment after the controller has made it.
        count = _count(pair.odradek.ask(describe(version), version))
        settled = partial(_has_so_many, count)
        pair.ask(lambda _, v=version: describe(v), version, note, settle=settled, any_order=True)  # type: ignore[misc]


def _count(answer: Any) -> int:
    return sum(len(one.acls) for one in answer.resources)


def _has_so_many(count: int, answer: Any) -> bool:
    return _count(answer) == count


LINES: dict[str, dict[str, Any]] = {
    "plain": {},
    "the same again": {},
    "prefixed": {"resource_pattern_type": PatternType.PREFIXED},
    "wildcard": {"resource_name": "*"},
    "prefixed star": {"resource_name": "*", "resource_pattern_type": PatternType.PREFIXED},
    "deny": {"permission_type": Permission.DENY},
    "group": {"resource_type": ResourceType.GROUP, "resource_name": "g"},
    "cluster": {"resource_type": ResourceType.CLUSTER, "resource_name": CLUSTER_NAME},
    "cluster of another name": {"resource_type": ResourceType.CLUSTER},
    "user": {"resource_type": ResourceType.USER, "resource_name": "User:bob"},
    "token": {"resource_type": ResourceType.DELEGATION_TOKEN, "operation": Operation.DESCRIBE},
    "operation of another type": {"operation": Operation.IDEMPOTENT_WRITE},
    "all": {"operation": Operation.ALL},
    "no name": {"resource_name": ""},
    "any type": {"resource_type": ResourceType.ANY},
    "unknown type": {"resource_type": 99},
    "negative type": {"resource_type": -1},
    "any pattern": {"resource_pattern_type": PatternType.ANY},
    "match": {"resource_pattern_type": PatternType.MATCH},
    "unknown pattern": {"resource_pattern_type": 99},
    "any operation": {"operation": Operation.ANY},
    "unknown operation": {"operation": 99},
    "any permission": {"permission_type": Permission.ANY},
    "unknown permission": {"permission_type": 99},
    "principal without type": {"principal": "alice"},
    "principal without name": {"principal": "User:"},
    "principal of a type of its own": {"principal": "Group:one:two"},
    "no principal": {"principal": ""},
    "no host": {"host": ""},
    "host that is no address": {"host": "somewhere"},
    "long name": {"resource_name": "x" * 1000},
    "name of spaces": {"resource_name": " "},
}


def test_each_line_of_a_creation_is_judged_alike(pair: Pair) -> None:
    with pair.collecting():
        _create_each_line(pair)
    same_acls(pair)


def _create_each_line(pair: Pair) -> None:
    for version in pair.versions(CreateAclsRequest):
        for note, fields in LINES.items():
            if note == "no host" and is_older(pair):
                # 3.9 takes it, and the rule is of no use.
                continue
            if not version:
                fields = {name: one for name, one in fields.items() if name != "resource_pattern_type"}
            request = CreateAclsRequest(creations=[creation(**fields)])
            pair.ask(lambda _, r=request: r, version, note)  # type: ignore[misc]
        several = [creation(resource_name="any"), creation(operation=Operation.ANY)]
        pair.ask(lambda _, s=several: CreateAclsRequest(creations=s), version, "a filter")  # type: ignore[misc]
        several = [creation(resource_name=""), creation(resource_name="other"), creation(operation=99)]
        pair.ask(lambda _, s=several: CreateAclsRequest(creations=s), version, "several")  # type: ignore[misc]


NETWORKS = [
    *("10.0.0.0/8", "10.1.2.3/16", "10.0.0.0/0", "10.0.0.1/32", "10.0.0.0/33", "10.0.0.0/08", "010.0.0.0/8"),
    *("300.0.0.0/8", "10.0.0/8", "10.0.0.0/", "/8", "/", "10.0.0.0/8/8", "10.0.0.0/-1", "10.0.0.0/255.0.0.0"),
    *(" 10.0.0.0/8", "10.0.0.0 /8", "no/slash", "*/8", "10.0.0.0/\u0668"),
    *("::/0", "::1/128", "2001:db8::/32", "2001:db8::1/32", "2001:DB8::/32", "::1/129", "::1/-1", "::1/x"),
    *("::1/", "::1/+64", "::1/ 64", "::1/6_4", "::1/064", "::1/64/64", "::1/99999999999", "::1/\u0666\u0664"),
    *("::g/64", "1:2:3/64", "1::2::3/64", ":/64", "::1.2.3.4/64", "::ffff:10.0.0.0/104", "::ffff:a00:0/104"),
    *("0:0:0:0:0:ffff:a00:0/104", "::FFFF:10.0.0.0/128", "::ffff:0:10.0.0.0/96", "64:ff9b::10.0.0.0/96"),
    *("[::1]/64", "[::1/64", "::1]/64", "[]/64:", "[::ffff:10.0.0.0]/104", "[10.0.0.0]/8", "[2001:db8::]/32"),
    *("fe80::1%1/64", "fe80::1%/64", "fe80::1%no-interface/64", "[fe80::1%1]/64", "::ffff:10.0.0.0%1/104"),
    *(
        "a:b/64",
        "1:2:3:4:5:6:7:8/64",
        "1:2:3:4:5:6:7:8:9/64",
        "00001::/64",
        "::00ffff/64",
        "::10000/64",
        " ::1/64",
    ),
    *("1:2:3:4:5:6:7::/64", "1:2:3:4:5:6:7:8::/64", "::2:3:4:5:6:7:8/64", "1:2:3:4:5:6:1.2.3.4/64"),
    *("::1.2.3/64", "::1.2.3.400/64", "::01.2.3.4/64", "::1.2.3.4:5/64", ":1::/64", "1:::2/64", "::1:/64"),
]


def test_networks_are_taken_and_refused_alike(pair: Pair) -> None:
    """Hosts with a slash (CIDR)."""
    if is_older(pair):
        pytest.skip("Kafka 3.9 takes any text")
    version = max(pair.versions(CreateAclsRequest))
    with pair.collecting():
        for host in NETWORKS:
            request = CreateAclsRequest(creations=[creation(resource_name="networks", host=host)])
            pair.ask(lambda _, request=request: request, version, repr(host))
    same_acls(pair)


def test_a_network_is_where_its_addresses_are(pair: Pair) -> None:
    """Rules for the guest, who is at 127.0.0.2."""
    if is_older(pair):
        pytest.skip("Kafka 3.9 knows no networks")
    inside = ["127.0.0.0/8", "127.0.0.2/32", "127.0.0.3/31", "127.255.255.255/8", "1.2.3.4/0"]
    outside = ["127.0.0.0/31", "127.0.0.3/32", "128.0.0.0/8", "::/0", "[::1]/0", "::127.0.0.2/96"]
    of_guest = {
        "resource_type": ResourceType.CLUSTER,
        "resource_name": CLUSTER_NAME,
        "principal": "User:ANONYMOUS",
        "operation": Operation.DESCRIBE,
    }
    for side in pair.sides:
        create(side, *(creation(**of_guest, host=host) for host in outside))
        for host in inside:
            create(side, creation(**of_guest, host=host))
            wait_for(side, GUEST, 0)
            found = {**FILTER, "resource_type_filter": ResourceType.CLUSTER, "host_filter": host}
            side.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**found)]), 1)
            wait_for(side, GUEST, 31)
    same_acls(pair)


UNKNOWN_FIELDS = ("resource_type", "operation", "permission_type")


@pytest.mark.parametrize("field", [*UNKNOWN_FIELDS, "resource_pattern_type"])
def test_a_creation_with_a_zero_ends_the_connection(pair: Pair, field: str) -> None:
    for version in pair.versions(CreateAclsRequest):
        if not version and field == "resource_pattern_type":
            continue
        request = CreateAclsRequest(creations=[creation(), creation(**{field: 0})])
        answers = pair.ask(lambda _, r=request: r, version, field)  # type: ignore[misc]
        assert answers == (CLOSED, CLOSED)


FILTERS: list[dict[str, Any]] = [
    {"resource_type_filter": kind, "resource_name_filter": name, "pattern_type_filter": pattern}
    for kind, name, pattern in itertools.product(
        (ResourceType.ANY, ResourceType.TOPIC, ResourceType.GROUP),
        (None, "", "ab", "abc", "*", "nothing"),
        (PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED),
    )
] + [
    {"principal_filter": "User:bob"},
    {"principal_filter": "User:*"},
    {"principal_filter": "bob"},
    {"principal_filter": ""},
    {"host_filter": "*"},
    {"host_filter": "127.0.0.3"},
    {"operation": Operation.ALL},
    {"operation": Operation.READ},
    {"operation": Operation.DESCRIBE},
    {"permission_type": Permission.DENY},
    {"permission_type": Permission.ALLOW},
    {"resource_type_filter": 99},
    {"pattern_type_filter": 99},
    {"operation": 99},
    {"permission_type": 99},
]
STOCK = [
    creation(resource_name="ab"),
    creation(resource_name="ab", resource_pattern_type=PatternType.PREFIXED),
    creation(resource_name="a", resource_pattern_type=PatternType.PREFIXED, principal="User:bob"),
    creation(resource_name="abc", host="127.0.0.3", operation=Operation.ALL),
    creation(resource_name="*", principal="User:*", permission_type=Permission.DENY),
    creation(resource_name="*", resource_pattern_type=PatternType.PREFIXED, operation=Operation.WRITE),
    creation(resource_type=ResourceType.GROUP, resource_name="ab", operation=Operation.DELETE),
]


def test_filters_find_the_same_rules(pair: Pair) -> None:
    for side in pair.sides:
        create(side, *STOCK)
    same_acls(pair, "stock")
    for version in pair.versions(DescribeAclsRequest):
        for number, fields in enumerate(FILTERS):
            pair.ask(lambda _, v=version, f=fields: describe(v, **f), version, f"{number}", any_order=True)  # type: ignore[misc]


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", *UNKNOWN_FIELDS[1:]])
def test_a_filter_with_a_zero_ends_the_connection(pair: Pair, field: str) -> None:
    for version in pair.versions(DescribeAclsRequest):
        if not version and field == "pattern_type_filter":
            continue
        request = describe(version, **{field: 0})
        assert pair.ask(lambda _, r=request: r, version, field) == (CLOSED, CLOSED)  # type: ignore[misc]
        filters = [deletion(version, principal_filter="User:nobody"), deletion(version, **{field: 0})]
        deleting = DeleteAclsRequest(filters=filters)
        assert pair.ask(lambda _, r=deleting: r, version, field) == (CLOSED, CLOSED)  # type: ignore[misc]


def test_deletions_delete_the_same_rules_and_tell_them(pair: Pair) -> None:
    for version in pair.versions(DeleteAclsRequest):
        for number, fields in enumerate(FILTERS):
            if not {"principal_filter", "host_filter"} & fields.keys():
                # What the client itself needs stays.
                fields = {**fields, "principal_filter": "User:alice"}
            for side in pair.sides:
                create(side, *STOCK)
            same_acls(pair, f"before {number}")
            several = [deletion(version, **fields), deletion(version, **fields)]
            request = DeleteAclsRequest(filters=several)
            pair.ask(lambda _, r=request: r, version, f"{number}", any_order=True)  # type: ignore[misc]
            same_acls(pair, f"after {number}")


def test_who_may_not_alter_or_describe_the_cluster_is_told_so_on_each_line(pair: Pair) -> None:
    for version in pair.versions(DescribeAclsRequest):
        pair.ask(lambda _, v=version: describe(v), version, "denied", connection=GUEST)  # type: ignore[misc]
        creating = CreateAclsRequest(
            creations=[creation(), creation(resource_name=""), creation(operation=99)]
        )
        deleting = DeleteAclsRequest(filters=[deletion(version), deletion(version, operation=99)])
        for request in (creating, deleting, CreateAclsRequest(creations=[])):
            pair.ask(lambda _, r=request: r, version, "denied", connection=GUEST)  # type: ignore[misc]
    same_acls(pair)
