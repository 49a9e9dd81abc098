"""The authorizer of a broker: what it tells connections, what they keep of it, and what the log says."""

import logging
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from odradek.apis.access import ANY, NOTHING_REFUSED, Need, need_of
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.security.acls import Acl, AclRules, Policy
from odradek.server.security import authorizer
from odradek.server.security.authorizer import StandardAuthorizer
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.messages.heartbeat import HeartbeatRequest

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TOPIC_ID = bytes(range(16))
NO_SUPER_USERS = Policy()


@dataclass
class Client:
    principal: str = "User:alice"
    peer_host: str = "127.0.0.1"
    granted: object = None


@dataclass
class Scene:
    """An authorizer, with a view and a clock that the test sets."""

    policy: Policy = NO_SUPER_USERS
    now_ms: int = 1_000
    view: ClusterView = field(default_factory=ClusterView)

    def __post_init__(self):
        self.authorizer = StandardAuthorizer(self.policy, lambda: self.view, lambda: self.now_ms)

    def set(self, *acls):
        rules = (self.view.acls or AclRules()).replaced({bytes([n]): acl for n, acl in enumerate(acls)})
        self.view = ClusterView(acls=rules, topic_names={TOPIC_ID: "orders"})

    def may(self, client, operation, name, kind=TOPIC):
        wanted = (operation, kind, name)
        resources = {(operation, kind): (name,)}
        refused = self.refused(client, operation, name, kind)
        assert refused in (NOTHING_REFUSED, {wanted})
        assert refused == self.authorizer.hidden(client, resources)
        if not client.granted.is_super and isinstance(name, str):
            assert client.granted.knows({(operation, kind): (name, name)}) is not bool(refused)
        return not refused

    def refused(self, client, operation, name, kind=TOPIC):
        return self.authorizer.refused(client, (need_of(operation, kind),), (name,))


def rule(
    name="orders", operation=READ, permission=Permission.ALLOW, principal="User:alice", host="*", kind=TOPIC
):
    return Acl(kind, name, PatternType.LITERAL, principal, host, operation, permission)


def test_a_rule_counts_for_its_principal_and_host_at_once_and_no_longer_than_it_is_there():
    scene, alice, bob, elsewhere = Scene(), Client(), Client("User:bob"), Client(peer_host="127.0.0.2")
    clients = (alice, bob, elsewhere)
    told = []
    for rules in ((), [rule()], [rule(host="127.0.0.2")], [rule(principal="User:*")], ()):
        scene.set(*rules)
        for _ in range(2):
            told.append(tuple(scene.may(client, READ, "orders") for client in clients))
    assert told[::2] == told[1::2]
    assert told[::2] == [
        (False, False, False),
        (True, False, True),
        (False, False, True),
        (True, True, True),
        (False, False, False),
    ]


def test_what_one_connection_was_told_serves_neither_another_one_nor_another_principal(monkeypatch):
    scene, alice, bob = Scene(), Client(), Client("User:bob")
    scene.set(rule())
    assert scene.may(alice, READ, "orders")
    decided = []
    decide = AclRules.decide
    monkeypatch.setattr(
        AclRules, "decide", lambda self, *asked: decided.append(asked) or decide(self, *asked)
    )
    assert scene.may(alice, READ, "orders")
    assert decided == []
    assert not scene.may(bob, READ, "orders")
    assert len(decided) == 1
    assert alice.granted is not bob.granted
    alice.principal = "User:bob"  # whoever changes it need not know of what was granted
    assert not scene.may(alice, READ, "orders")
    assert len(decided) == 2


def test_a_topic_is_known_by_its_id_and_an_unknown_id_is_no_refusal():
    scene, alice = Scene(), Client()
    scene.set(rule("other"))
    assert not scene.may(alice, READ, TOPIC_ID)
    assert scene.may(alice, READ, bytes(16))
    scene.set(rule())
    assert scene.may(alice, READ, TOPIC_ID)
    scene.view = ClusterView(acls=scene.view.acls, topic_names={bytes(16): "secret"})
    assert not scene.may(alice, READ, bytes(16))  # the topic was created meanwhile


def test_what_was_not_asked_is_not_known_and_one_refusal_is_enough():
    scene, alice = Scene(), Client()
    scene.set(rule("a"), rule("b"))
    assert scene.may(alice, READ, "a")
    known = alice.granted.knows
    assert known({(READ, TOPIC): ("a",)})
    assert not known({(READ, TOPIC): ("a", "b")})
    assert not known({(WRITE, TOPIC): ("a",)})
    assert not known({(READ, TOPIC): ("a",), (WRITE, TOPIC): ("a",)})
    assert not scene.may(alice, READ, "c")
    assert not known({(READ, TOPIC): ("a", "c")})
    assert known({(READ, TOPIC): ()})


def test_the_needs_of_a_request_are_judged_one_by_one():
    scene, alice = Scene(), Client()
    scene.set(rule("a"), rule("b", WRITE))
    needs = (
        Need(READ, TOPIC, lambda request: request.names),
        Need(WRITE, GROUP, None),
        Need(DESCRIBE, TOPIC, lambda request: request.names),
    )
    request = SimpleNamespace(names=["a", "b", "c"])
    assert scene.authorizer.refused(alice, needs, request) == {
        (READ, TOPIC, "b"),
        (READ, TOPIC, "c"),
        (DESCRIBE, TOPIC, "c"),
    }
    assert scene.authorizer.refused(alice, (), request) is NOTHING_REFUSED


def test_super_users_and_the_option_for_resources_without_rules():
    scene = Scene(Policy(frozenset({"User:root"}), allows_without_rules=True))
    scene.set(rule(permission=Permission.DENY, principal="User:*"))
    assert scene.may(Client("User:root"), READ, "orders")
    assert not scene.authorizer.hidden(Client("User:root"), {(WRITE, TOPIC): (ANY,)})
    assert not scene.may(Client(), READ, "orders")
    assert scene.may(Client(), READ, "payments")


def test_writing_to_any_topic_is_told_until_the_rules_change():
    scene, alice = Scene(), Client()
    for rules, expected in (([rule(operation=WRITE)], True), ([rule()], False)):
        scene.set(*rules)
        for _ in range(2):
            assert bool(scene.authorizer.hidden(alice, {(WRITE, TOPIC): (ANY,)})) is not expected


def test_a_client_that_asks_for_ever_new_names_fills_no_memory():
    scene, alice = Scene(), Client()
    scene.set(rule())
    for number in range(2 * authorizer.DECISIONS_MAX):
        scene.authorizer.hidden(alice, {(READ, TOPIC): (f"{number}",)})
        assert sum(map(len, alice.granted.decisions.values())) <= authorizer.DECISIONS_MAX
    assert scene.may(alice, READ, "orders")


def test_the_decision_on_a_long_name_is_right_each_time_and_not_kept():
    scene, alice = Scene(), Client()
    scene.set(rule("n")._replace(pattern_type=PatternType.PREFIXED))
    longest = "n" * authorizer.NAME_CHARACTERS_MAX
    for name in (f"{longest}n", f"o{longest}", longest):
        for _ in range(2):
            refused = scene.refused(alice, READ, name)
            assert bool(refused) is name.startswith("o")
    assert [list(decisions) for decisions in alice.granted.decisions.values()] == [[longest]]


# The log


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "odradek.authorizer")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_refusal_is_logged_with_its_reason_once_a_minute_and_names_are_escaped(lines):
    scene, alice = Scene(), Client("User:al\nice")
    scene.set(rule("*", permission=Permission.DENY, principal="User:*"))
    for _ in range(3):
        scene.refused(alice, READ, "a\nb")
    scene.authorizer.hidden(alice, {(WRITE, TOPIC): ("quiet",)})
    assert lines() == ["'User:al\\nice' from 127.0.0.1 may not READ TOPIC 'a\\nb': an ACL denies it"]
    scene.now_ms += 60_000
    scene.set()

    needs = (Need(READ, GROUP, lambda request: [request.group_id]),)
    scene.authorizer.refused(alice, needs, HeartbeatRequest(group_id="g"))
    assert lines()[1:] == [
        "2 refusals before were not logged",
        "'User:al\\nice' from 127.0.0.1 may not READ GROUP 'g' (Heartbeat): no ACL allows it",
    ]


def test_a_need_that_is_quiet_is_refused_without_a_line(lines):
    scene = Scene()
    needs = (
        Need(Operation.CREATE, CLUSTER, lambda _: ["kafka-cluster"], is_quiet=True),
        Need(Operation.CREATE, TOPIC, lambda _: ["t"]),
    )
    assert len(scene.authorizer.refused(Client(), needs, None)) == 2
    assert [line.split(" may not ")[1] for line in lines()] == ["CREATE TOPIC 't': no ACL allows it"]


def test_a_name_that_a_request_has_many_times_is_refused_once(lines):
    scene = Scene()
    scene.authorizer.refused(Client(), (need_of(READ, TOPIC),), ["t"] * 100)
    scene.now_ms += authorizer.LOG_WINDOW_MS
    scene.refused(Client(), READ, "u")
    assert [line.split(" may not ")[1] for line in lines()] == [
        "READ TOPIC 't': no ACL allows it",
        "READ TOPIC 'u': no ACL allows it",
    ]


def test_many_refusals_are_counted_and_not_logged(lines):
    scene = Scene()
    for number in range(authorizer.LINES_MAX + 1_000):
        scene.refused(Client(), READ, f"t{number}")
    assert len(lines()) == authorizer.LINES_MAX
    scene.now_ms += authorizer.LOG_WINDOW_MS
    scene.refused(Client(), READ, "t")
    assert lines()[authorizer.LINES_MAX] == "1000 refusals before were not logged"


def test_a_long_name_is_cut_in_the_log(lines):
    scene = Scene()
    for end in "ab":
        scene.refused(Client(), READ, "x" * 30_000 + end)
    (line,) = lines()
    assert len(line) < 300
