"""`odradek acls` at a broker of ours with an authorizer; compat_tests has the same at others."""

import pytest

import odradek

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def broker():
    options = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    with odradek.Broker(options=options) as running:
        yield running


@pytest.fixture
def acls(odradek_command):
    """Without rules at first."""
    assert odradek_command("acls", "remove", "--all").status == 0
    return lambda *arguments: odradek_command("acls", *arguments)


def rules(ended):
    assert (ended.status, ended.err) == (0, "")
    return [
        (row["permission"], row["operation"], row["resource_type"], row["resource_name"], row["pattern_type"])
        for row in ended.rows
    ]


def test_a_rule_is_made_of_each_combination(acls):
    ended = acls(
        *("add", "--principal", "User:ann", "--principal", "User:bob", "--host", "192.0.2.1"),
        *("--operation", "Read", "--operation", "describe-configs", "--topic", "a", "--topic", "b"),
        *("--output", "json"),
    )
    assert len(ended.rows) == 8
    assert ended.rows[0] == {
        "principal": "User:ann",
        "host": "192.0.2.1",
        "permission": "ALLOW",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource_name": "a",
        "pattern_type": "LITERAL",
    }
    listed = acls("list", "--output", "json").rows
    assert sorted(map(str, listed)) == sorted(map(str, ended.rows))
    assert len(acls("list", "--principal", "User:bob", "--topic", "b", "--output", "json").rows) == 2
    assert len(acls("list", "--operation", "READ", "--output", "json").rows) == 4


def test_a_list_for_a_name_has_every_rule_that_fits_it(acls):
    ann = ("--principal", "User:ann", "--operation", "WRITE")
    acls("add", *ann, "--topic", "shop.", "--prefixed", "--deny")
    acls("add", *ann, "--topic", "shop.orders", "--topic", "*", "--group", "shop.orders")
    acls("add", *ann, "--topic", "other")
    assert rules(acls("list", "--topic", "shop.orders", "--output", "json")) == [
        ("ALLOW", "WRITE", "TOPIC", "*", "LITERAL"),
        ("DENY", "WRITE", "TOPIC", "shop.", "PREFIXED"),
        ("ALLOW", "WRITE", "TOPIC", "shop.orders", "LITERAL"),
    ]
    denied = [("DENY", "WRITE", "TOPIC", "shop.", "PREFIXED")]
    assert rules(acls("list", "--topic", "shop.", "--prefixed", "--output", "json")) == denied
    assert rules(acls("list", "--prefixed", "--output", "json")) == denied
    assert rules(acls("list", "--deny", "--output", "json")) == denied


def test_a_removal_is_of_the_very_name_and_can_be_tried(acls):
    ann = ("--principal", "User:ann", "--operation", "ALL")
    acls("add", *ann, "--topic", "x", "--cluster", "--transactional-id", "x", "--delegation-token", "x")
    acls("add", *ann, "--topic", "x", "--prefixed")
    before = acls("list", "--output", "json").rows
    literal = [("ALLOW", "ALL", "TOPIC", "x", "LITERAL")]
    assert rules(acls("remove", "--topic", "x", "--dry-run", "--output", "json")) == literal
    assert acls("list", "--output", "json").rows == before
    assert rules(acls("remove", "--topic", "x", "--output", "json")) == literal
    prefixed = [("ALLOW", "ALL", "TOPIC", "x", "PREFIXED")]
    assert rules(acls("remove", "--topic", "x", "--prefixed", "--output", "json")) == prefixed
    assert rules(acls("remove", "--cluster", "--output", "json")) == [
        ("ALLOW", "ALL", "CLUSTER", "kafka-cluster", "LITERAL")
    ]
    assert [rule[2] for rule in rules(acls("list", "--output", "json"))] == [
        "TRANSACTIONAL_ID",
        "DELEGATION_TOKEN",
    ]
    assert acls("remove", "--topic", "x").out == "no rule matches, nothing to remove\n"


def test_all_rules_go_only_if_it_is_said(acls):
    acls("add", "--principal", "User:ann", "--operation", "CREATE_TOKENS", "--user-principal", "User:bob")
    refused = acls("remove")
    assert (refused.status, refused.err) == (
        1,
        "odradek: this is every rule of the cluster: say which ones, or --all\n",
    )
    assert len(acls("remove", "--all", "--dry-run", "--output", "json").rows) == 1
    assert len(acls("remove", "--all", "--output", "json").rows) == 1
    assert acls("list").out == "no ACLs\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["add", "--principal", "User:a"], "a rule needs --principal, --operation, and what it is about"),
        (["add", "--topic", "t", "--operation", "READ"], "a rule needs"),
        (
            ["add", "--principal", "ann", "--topic", "t", "--operation", "READ"],
            "--principal ann is not TYPE:NAME",
        ),
        (["list", "--operation", "fly"], "--operation fly is none of ALL, READ, WRITE,"),
        (["list", "--operation", "any"], "--operation any is none of ALL,"),
        (
            ["add", "--principal", "User:a", "--operation", "READ", "--topic", ""],
            "adding the rule that User:a from * may READ topic  was refused: INVALID_REQUEST",
        ),
    ],
)
def test_a_fault_is_one_sentence_and_status_1(acls, arguments, sentence):
    ended = acls(*arguments)
    assert ended.status == 1
    assert ended.err.startswith(f"odradek: {sentence}"), ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_rule_that_is_refused_leaves_the_others(acls):
    ended = acls(
        *("add", "--principal", "User:a", "--operation", "READ"),
        *("--topic", "good", "--cluster", "--topic", "", "--output", "json"),
    )
    assert ended.status == 1
    assert [row["resource_name"] for row in ended.rows] == ["good", "kafka-cluster"]
    assert acls("list", "--output", "json").rows == ended.rows


def test_without_an_authorizer_a_sentence_says_so(run):
    with odradek.Broker() as open_broker:
        ended = run("acls", "list", "-b", open_broker.bootstrap_servers)
    assert ended.status == 1
    assert ended.err.startswith("odradek: listing ACLs was refused: SECURITY_DISABLED (")


def role(acls, *arguments):
    rows = acls("add", "--principal", "User:ann", *arguments, "--output", "json").rows
    return sorted(f"{row['resource_type']} {row['resource_name']} {row['operation']}" for row in rows)


def test_roles_have_the_rules_of_kafkas_own_tool(acls):
    assert role(acls, "--producer", "--topic", "t", "--transactional-id", "x", "--idempotent") == [
        "CLUSTER kafka-cluster IDEMPOTENT_WRITE",
        "TOPIC t CREATE",
        "TOPIC t DESCRIBE",
        "TOPIC t WRITE",
        "TRANSACTIONAL_ID x DESCRIBE",
        "TRANSACTIONAL_ID x WRITE",
    ]
    assert role(acls, "--consumer", "--topic", "t", "--group", "g") == [
        "GROUP g READ",
        "TOPIC t DESCRIBE",
        "TOPIC t READ",
    ]
    both = role(acls, "--producer", "--consumer", "--topic", "t", "--group", "g", "--prefixed")
    assert len(both) == 5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--producer"], "need --principal and --topic"),
        (["--consumer", "--topic", "t"], "--consumer needs --group, too"),
        (["--producer", "--topic", "t", "--operation", "READ"], "without --operation, --deny"),
        (["--producer", "--topic", "t", "--group", "g"], "say nothing of a group"),
        (["--consumer", "--topic", "t", "--group", "g", "--idempotent"], "--idempotent is for --producer"),
    ],
)
def test_roles_that_do_not_go_together_are_one_sentence(acls, arguments, sentence):
    ended = acls("add", "--principal", "User:ann", *arguments)
    assert (ended.status, ended.out) == (1, "")
    assert sentence in ended.err
