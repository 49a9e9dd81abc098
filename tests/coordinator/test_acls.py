"""ACLs: who may do what, compared with a model that looks at every rule."""

import itertools
import json
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordinator.security import acls
from odradek.coordinator.security.acls import (
    Acl,
    AclFilter,
    AclRules,
    Policy,
    acl_from_text,
    host_text,
    identities_of,
)
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import finish
from tests.tiers import examples

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED, MATCH, ANY = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH, PatternType.ANY
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
NAMES = ["a", "ab", "abc", "b", "ba", "*", "*a", "hard", "hardcode"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:alice"]
HOSTS = ["*", "127.0.0.1", "0:0:0:0:0:0:0:1"]
KINDS = [TOPIC, GROUP, ResourceType.USER]
OPERATIONS = [operation for operation in Operation if operation > Operation.ANY]


def rule(
    name="orders",
    operation=READ,
    permission=ALLOW,
    *,
    kind=TOPIC,
    pattern=LITERAL,
    principal="User:alice",
    host="*",
):
    return Acl(kind, name, pattern, principal, host, operation, permission)


def of(*given):
    return AclRules().changed({bytes([0, *divmod(n, 256)]): acl for n, acl in enumerate(given)})


def may(
    rules, operation=READ, name="orders", *, kind=TOPIC, principal="User:alice", host="127.0.0.1", **policy
):
    return Policy(**policy).allows(rules, identities_of(principal, host), operation, kind, name)


# --- The model: a loop over all rules, as the semantics are told ---

IMPLYING = {
    DESCRIBE: {DESCRIBE, READ, WRITE, Operation.DELETE, Operation.ALTER},
    DESCRIBE_CONFIGS: {DESCRIBE_CONFIGS, ALTER_CONFIGS},
}


@dataclass
class Model:
    rules: dict = field(default_factory=dict)
    super_users: frozenset = frozenset()
    allows_without_rules: bool = False

    def fits(self, acl, kind, name):
        if acl.resource_type != kind:
            return False
        if acl.pattern_type == PREFIXED:
            return name.startswith(acl.name)
        return acl.name in (name, "*")

    def is_for(self, acl, principal, host):
        return acl.principal in (principal, "User:*") and acl.host in (host, "*")

    def allows(self, principal, host, operation, kind, name):
        if principal in self.super_users:
            return True
        fitting = [acl for acl in self.rules.values() if self.fits(acl, kind, name)]
        if not fitting:
            return self.allows_without_rules
        mine = [acl for acl in fitting if self.is_for(acl, principal, host)]
        if any(acl.permission == DENY and acl.operation in (operation, ALL) for acl in mine):
            return False
        enough = IMPLYING.get(operation, {operation}) | {ALL}
        return any(acl.permission == ALLOW and acl.operation in enough for acl in mine)

    def allows_any(self, principal, host, operation, kind):
        if self.allows(principal, host, operation, kind, "hardcode"):
            return True
        named = defaultdict(set)
        for acl in self.rules.values():
            is_meant = acl.resource_type == kind and acl.operation in (operation, ALL)
            if is_meant and self.is_for(acl, principal, host):
                named[acl.permission, acl.pattern_type].add(acl.name)
        if "*" in named[DENY, LITERAL]:
            return False
        if "*" in named[ALLOW, LITERAL]:
            return True
        above = named[DENY, PREFIXED]
        return any(
            not any(name.startswith(prefix) for prefix in above)
            for name in named[ALLOW, PREFIXED] | (named[ALLOW, LITERAL] - named[DENY, LITERAL])
        )


a_rule = st.builds(
    Acl,
    st.sampled_from(KINDS),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([ALLOW, DENY]),
)
a_filter = st.builds(
    AclFilter,
    st.sampled_from([ResourceType.ANY, *KINDS]),
    st.sampled_from([None, *NAMES]),
    st.sampled_from([LITERAL, PREFIXED, MATCH, ANY]),
    st.sampled_from([None, *PRINCIPALS]),
    st.sampled_from([None, *HOSTS]),
    st.sampled_from([Operation.ANY, *OPERATIONS]),
    st.sampled_from([Permission.ANY, ALLOW, DENY]),
)
a_change = st.tuples(st.lists(a_rule, max_size=12), st.lists(st.integers(0, 40), max_size=5))
a_question = st.tuples(
    st.sampled_from(["User:alice", "User:bob", "User:eve", "Group:alice"]),
    st.sampled_from(["127.0.0.1", "127.0.0.2", "0:0:0:0:0:0:0:1"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from([*KINDS, CLUSTER]),
)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(a_change, max_size=4),
    st.lists(st.tuples(a_question, st.sampled_from([*NAMES, "hardcoded", "z"])), min_size=1, max_size=20),
    st.lists(a_filter, max_size=4),
    st.booleans(),
)
def test_decisions_and_filters_are_those_of_a_loop_over_all_rules(changes, questions, filters, default):
    ids = (number.to_bytes(16, "big") for number in itertools.count())
    rules, model = AclRules(), Model(super_users=frozenset({"User:eve"}), allows_without_rules=default)
    policy = Policy(model.super_users, default)
    for wanted, removed in changes:
        before, content = rules, dict(rules.by_id)
        _, added = finish(rules.creating(wanted, lambda: next(ids)))
        known = sorted(rules.by_id)
        gone = {known[place % len(known)] for place in removed} if known else set()
        rules = rules.changed(added, gone)
        model.rules = {one: acl for one, acl in {**model.rules, **added}.items() if one not in gone}
        assert rules.version == before.version + 1
        assert (rules.by_id, before.by_id) == (model.rules, content)
    for (principal, host, operation, kind), name in questions:
        who = identities_of(principal, host)
        told = (
            policy.allows(rules, who, operation, kind, name),
            policy.allows_any(rules, who, operation, kind),
        )
        assert told == (
            model.allows(principal, host, operation, kind, name),
            model.allows_any(principal, host, operation, kind),
        )
    for wanted in filters:
        assert finish(rules.finding(wanted)) == sorted(filter(wanted.fits, model.rules.values()))
    found, removed = finish(rules.deleting(filters))
    assert found == [finish(rules.finding(wanted)) for wanted in filters]
    assert rules.changed({}, removed).by_id.keys() == rules.by_id.keys() - removed.keys()


# Hosts


@pytest.mark.parametrize(
    ("host", "inside", "outside"),
    [
        ("10.1.2.3/16", ["10.1.0.0", "10.1.255.255"], ["10.2.0.0", "10.0.255.255", "::1"]),
        ("10.0.0.1/32", ["10.0.0.1"], ["10.0.0.2"]),
        ("0.0.0.0/0", ["0.0.0.1", "255.255.255.255"], ["::1"]),
        ("2001:db8::5/32", ["2001:db8::", "2001:db8:ffff::1"], ["2001:db9::", "10.0.0.1"]),
        ("[2001:db8::5]/32", ["2001:db8::", "2001:db8:ffff::1"], ["2001:db9::", "10.0.0.1"]),
        ("fe80::1%7/64", ["fe80::2"], ["fe81::2"]),
        ("::000a:01.2.3.4/96", ["::a:1.2.3.4"], ["::b:1.2.3.4"]),
        ("::/0", ["::1"], ["127.0.0.1"]),
    ],
)
def test_a_network_is_a_host_of_all_its_addresses(host, inside, outside):
    rules = of(rule(operation=READ, host=host))
    for address, answer in [*((one, True) for one in inside), *((one, False) for one in outside)]:
        who = rules.identities("User:alice", host_text(address))
        assert Policy().allows(rules, who, READ, TOPIC, "orders") is answer, address
        assert Policy().allows_any(rules, who, READ, TOPIC) is answer, address


def test_a_rule_for_a_network_is_removed_like_any_other():
    rules = of(rule(operation=READ, host="10.0.0.0/8"), rule(operation=WRITE, host="10.0.0.0/8"))
    one, other = rules.by_id
    assert len(rules.identities("User:alice", "10.1.1.1")) == 6
    assert len(rules.changed({}, [one]).identities("User:alice", "10.1.1.1")) == 6
    assert len(rules.changed({}, [one, other]).identities("User:alice", "10.1.1.1")) == 4


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("", "Host pattern cannot be null or empty"),
        ("10.0.0.0/33", "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]"),
        ("300.0.0.0/8", "Invalid CIDR notation '300.0.0.0/8': Value [300] not in range [0,255]"),
        ("no/slash", "Invalid CIDR notation 'no/slash': Could not parse [no/slash]"),
        ("::1/129", "Invalid CIDR notation '::1/129': Could not parse [::1/129] - prefix length must be "
         "between 0 and 128"),
        ("::1/x", "Invalid CIDR notation '::1/x': Could not parse [::1/x] - invalid prefix length"),
        ("::g/64", "Invalid CIDR notation '::g/64': Could not parse [::g]"),
        ("::1/6_4", "Invalid CIDR notation '::1/6_4': Could not parse [::1/6_4] - invalid prefix length"),
        ("::ffff:10.0.0.0/104", "Invalid CIDR notation '::ffff:10.0.0.0/104': Could not parse "
         "[::ffff:10.0.0.0] - not an IPv6 address"),
        ("fe80::1%eth0/64", "Invalid CIDR notation 'fe80::1%eth0/64': Could not parse [fe80::1%eth0]"),
        ("[::1/64", "Invalid CIDR notation '[::1/64': Could not parse [[::1]"),
    ],
)  # fmt: skip
def test_a_host_that_nobody_can_have_is_refused(host, why):
    (refusal,), added = finish(AclRules().creating([rule(host=host)], itertools.count().__next__))
    assert (refusal.code, refusal.message, added) == (ErrorCode.INVALID_REQUEST, why, {})


def test_networks_need_a_metadata_version_that_has_them():
    wanted = [rule(host="10.0.0.0/8"), rule(host="10.0.0.1")]
    ids = itertools.count().__next__
    (refusal, none), _ = finish(AclRules().creating(wanted, ids, takes_networks=False))
    assert (refusal.code, none) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_one_deny_counts_more_than_any_allow_and_is_exact():
    rules = of(
        rule("*", ALL, principal="User:*"),
        rule("ord", WRITE, DENY, pattern=PREFIXED),
        rule("other", ALL, DENY, host="127.0.0.2"),
    )
    assert may(rules, READ)
    assert not may(rules, WRITE)
    assert may(rules, DESCRIBE)  # a DENY of WRITE denies no DESCRIBE
    assert may(rules, WRITE, principal="User:bob")
    assert may(rules, WRITE, "other")
    assert not may(rules, READ, "other", host="127.0.0.2")


@pytest.mark.parametrize(
    ("operation", "implied"),
    [
        (READ, {DESCRIBE}),
        (WRITE, {DESCRIBE}),
        (Operation.DELETE, {DESCRIBE}),
        (Operation.ALTER, {DESCRIBE}),
        (ALTER_CONFIGS, {DESCRIBE_CONFIGS}),
        (Operation.CREATE, set()),
        (DESCRIBE_CONFIGS, set()),
        (Operation.CLUSTER_ACTION, set()),
        (ALL, set(OPERATIONS)),
    ],
)
def test_operations_imply_others_in_rules_that_allow(operation, implied):
    rules = of(rule(operation=operation))
    assert {one for one in OPERATIONS if may(rules, one)} == {operation, *implied}


def test_a_prefixed_star_is_a_plain_character_and_a_literal_one_is_every_name():
    assert not may(of(rule("*", pattern=PREFIXED)))
    assert may(of(rule("*", pattern=PREFIXED)), name="*x")
    assert may(of(rule("*")))


def test_without_a_rule_of_anybody_the_option_decides_and_one_wildcard_rule_ends_that():
    policy = {"allows_without_rules": True}
    assert may(AclRules(), **policy)
    assert not may(AclRules())
    others = of(rule("payments", principal="User:bob"))
    assert may(others, **policy)
    assert not may(others, name="payments", **policy)
    assert not may(of(rule("*", principal="User:bob")), **policy)
    assert may(of(rule("*", principal="User:bob", kind=GROUP)), **policy)


def test_super_users_may_do_everything_under_their_exact_name():
    rules = of(rule("*", ALL, DENY, principal="User:*"))
    policy = {"super_users": frozenset({"User:root"})}
    assert may(rules, principal="User:root", **policy)
    assert not may(rules, principal="User:Root", **policy)


def test_writing_to_any_topic_implies_nothing_and_a_wildcard_deny_ends_it():
    def any_topic(*given, operation=WRITE):
        return Policy().allows_any(of(*given), identities_of("User:alice", "127.0.0.1"), operation, TOPIC)

    assert any_topic(rule(operation=WRITE))
    assert not any_topic(rule(operation=WRITE), operation=DESCRIBE)
    assert not any_topic(rule(operation=WRITE), rule("*", WRITE, DENY))
    assert not any_topic(rule(operation=WRITE), rule(operation=WRITE, permission=DENY))
    assert not any_topic(rule(operation=WRITE), rule("o", WRITE, DENY, pattern=PREFIXED))
    assert any_topic(rule("o", WRITE, pattern=PREFIXED), rule("orders", WRITE, DENY, pattern=PREFIXED))


@pytest.mark.parametrize(
    "acl",
    [
        rule(kind=ResourceType.UNKNOWN),
        rule(kind=ResourceType.ANY),
        rule(""),
        rule("cluster", kind=CLUSTER),
        rule(pattern=PatternType.UNKNOWN),
        rule(pattern=ANY),
        rule(pattern=MATCH),
        rule(operation=Operation.UNKNOWN),
        rule(operation=Operation.ANY),
        rule(permission=Permission.UNKNOWN),
        rule(permission=Permission.ANY),
        rule(principal="alice"),
    ],
)
def test_a_rule_that_nobody_can_have_is_refused_and_the_others_are_created(acl):
    refused = KafkaError(ErrorCode.INVALID_REQUEST, "before")
    odd = rule(operation=Operation.IDEMPOTENT_WRITE)  # not of topics, and taken by Kafka
    refusals, added = finish(
        AclRules().creating([acl, odd, odd, rule(), refused], itertools.count().__next__)
    )
    assert [refusal and refusal.code for refusal in refusals] == [42, None, None, None, 42]
    assert list(added.values()) == [odd, rule()]


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (ANY, None, {"a", "ab", "abc", "*", "a.", "ab."}),
        (LITERAL, None, {"a", "ab", "abc", "*"}),
        (PREFIXED, None, {"a.", "ab."}),
        (MATCH, None, {"a", "ab", "abc", "*", "a.", "ab."}),
        (ANY, "ab", {"ab", "ab."}),
        (LITERAL, "ab", {"ab"}),
        (PREFIXED, "ab", {"ab."}),
        (MATCH, "ab", {"ab", "*", "a.", "ab."}),
        (MATCH, "abx", {"*", "a.", "ab."}),
        (LITERAL, "*", {"*"}),
        (PREFIXED, "*", set()),
        (MATCH, "*", {"*"}),
        (PatternType.UNKNOWN, "ab", set()),
        (PatternType.UNKNOWN, None, set()),
    ],
)
def test_a_filter_finds_rules_by_name_and_pattern(pattern, name, found):
    """A prefixed rule is shown with a dot at its end."""
    literal, prefixed = ("a", "ab", "abc", "*"), ("a", "ab")
    rules = of(
        *map(rule, literal), *(rule(one, pattern=PREFIXED) for one in prefixed), rule("ab", kind=GROUP)
    )
    wanted = AclFilter(TOPIC, name, pattern, None, None, Operation.ANY, Permission.ANY)
    told = [acl.name + "." * (acl.pattern_type == PREFIXED) for acl in finish(rules.finding(wanted))]
    assert (set(told), len(told)) == (found, len(found))


def test_decisions_and_filters_find_the_same_patterns():
    """They look for them in code of their own: a decision needs less, and is made more often."""
    names = ["", *("".join(one) for size in (1, 2, 3) for one in itertools.product("ab", repeat=size))]
    for pattern, kind in itertools.product((*names[1:], "*"), (LITERAL, PREFIXED)):
        rules = of(rule(pattern, pattern=kind), rule("babb", pattern=PREFIXED))
        for name in (*names[1:], "*"):
            wanted = AclFilter(TOPIC, name, PatternType.MATCH, None, None, Operation.ANY, Permission.ANY)
            who = identities_of("User:nobody", "127.0.0.1")
            is_fitting = rules.decide(who, READ, TOPIC, name) is not None
            assert is_fitting is bool(finish(rules.finding(wanted))), (pattern, kind, name)


def test_a_rule_that_is_there_is_created_once():
    rules = of(rule())
    assert finish(rules.creating([rule()], bytes)) == ([None], {})


def test_a_filter_with_something_unknown_is_refused_and_the_others_delete():
    rules = of(rule(), rule("b"))
    any_rule = AclFilter(ResourceType.ANY, None, ANY, None, None, Operation.ANY, Permission.ANY)
    results, removed = finish(
        rules.deleting(
            [any_rule._replace(operation=Operation.UNKNOWN), any_rule, any_rule._replace(name="b")]
        )
    )
    assert isinstance(results[0], KafkaError)
    assert results[1:] == [[rule("b"), rule()], [rule("b")]]
    assert len(removed) == 2


def test_a_request_may_neither_create_nor_delete_without_end(monkeypatch):
    monkeypatch.setattr(acls, "CHANGES_MAX", 3)
    ids = itertools.count()
    several = [rule(str(number)) for number in range(4)]
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        finish(AclRules().creating(several, lambda: bytes([next(ids)])))
    rules = of(*several)
    any_rule = AclFilter(ResourceType.ANY, None, ANY, None, None, Operation.ANY, Permission.ANY)
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        finish(rules.deleting([any_rule]))
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        finish(of(several[0]).deleting([any_rule] * 41))  # each result would have the rule


@pytest.mark.parametrize("is_refused", [False, True])
def test_very_many_filters_that_find_nothing_are_judged_in_steps(is_refused):
    operation = Operation.UNKNOWN if is_refused else Operation.ANY
    nothing = AclFilter(TOPIC, "other", ANY, None, None, operation, Permission.ANY)
    taken, steps = [0], []

    def filters():
        for _ in range(5 * acls.ACLS_PER_STEP):
            taken[0] += 1
            yield nothing

    for _ in of(rule()).deleting(filters()):
        steps.append(taken[0])
        taken[0] = 0
    assert len(steps) >= 5
    assert max(steps) <= acls.ACLS_PER_STEP


def test_rules_that_contradict_those_before_are_refused():
    rules = of(rule())
    with pytest.raises(ValueError, match="is there already"):
        rules.changed({b"other": rule()})
    with pytest.raises(ValueError, match="to remove"):
        rules.changed({}, [b"other"])


@given(a_rule)
def test_a_rule_is_the_same_after_the_store(acl):
    assert acl_from_text(json.dumps(list(acl))) == acl


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '[2, 5, 3, "User:a", "*", 3, 3]',
        '[99, "x", 3, "User:a", "*", 3, 3]',
        '[2, "x", 3, "User:a", "*", 3, 1]',
    ],
)
def test_what_is_no_rule_in_the_store_is_an_error(text):
    with pytest.raises(ValueError, match="is not an ACL"):
        acl_from_text(text)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff00:42:8329", "2001:db8:0:0:0:ff00:42:8329"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("", ""),
    ],
)
def test_hosts_are_written_as_java_writes_them(host, text):
    assert host_text(host) == text
