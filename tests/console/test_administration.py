"""Screens of transactions, share groups, access, nodes and changes of topics, at a broker of ours."""

import re
import time
from urllib.parse import parse_qsl, urlsplit

import pytest

import odradek
from odradek.client.admin.acls import Acl, AclFilter, add_acls, describe_acls
from odradek.client.admin.configs import (
    Change,
    Operation,
    Resource,
    ResourceKind,
    alter_configs,
    describe_configs,
)
from odradek.client.admin.groups import alter_share_offsets, list_groups, offsets_of_groups
from odradek.client.admin.quotas import alter_quotas, describe_quotas
from odradek.client.admin.share_states import STATE_NAMES
from odradek.client.admin.topics import describe_topics
from odradek.client.admin.users import describe_users, put_user
from odradek.client.cluster import EARLIEST, LATEST, coordinator_of
from odradek.client.group_offsets import commit, committed
from odradek.console.screens import transactions
from odradek.embedding.free_port import free_port
from odradek.wire.acl_types import Operation as Doing
from odradek.wire.acl_types import PatternType, Permission, ResourceType
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.client.applications import KEEPING, start_application
from tests.client.topics import Transactions, create_topic, delete_topic, produce, write_hanging
from tests.console.browsers import Page, browser_of
from tests.console.conftest import NO_RETENTION
from tests.server.test_dead_letters import Story

OPTIONS = {
    # Takes records of transactions that no coordinator knows, as brokers before Kafka 3.6 do.
    "transaction.partition.verification.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    **NO_RETENTION,
    **KEEPING,
}
HEADS = (
    "Topic",
    "Group",
    "Part",
    "Partition",
    "Name",
    "Of",
    "User",
    "Principal",
    "Broker",
    "Transactional id",
)
PASSWORD = "a secret <of ann>"
RELEASE, REJECT = 2, 3
"""Types of acknowledgements."""


@pytest.fixture(scope="module")
def broker():
    with odradek.Broker(num_partitions=2, options=OPTIONS) as running:
        yield running


def rows_of(page):
    return [row for row in page.body_rows if row[0] not in HEADS]


def row_with(page, first):
    """The rows whose first cell is this text."""
    return [row for row in page.body_rows if row[0] == first]


def sent(browser, path, **fields):
    """The page after a form; redirects are followed once."""
    response = browser.post(path, fields)
    if response.status_code == 303:
        response = browser.get(response.headers["location"])
    return Page(response.text)


def hidden_fields(page, action):
    """The hidden fields of the form with this action, as its page has them."""
    found, is_inside = {}, False
    for tag, attributes in page.elements:
        if tag == "form":
            is_inside = attributes.get("action", "").partition("#")[0] == action
        elif is_inside and tag == "input" and attributes.get("type") == "hidden":
            found[attributes["name"]] = attributes["value"]
    return found


# Transactions -----------------------------------------------------------------------------------------


def test_open_transactions_are_listed_with_their_age_and_lead_to_what_they_hold(browser, cluster):
    topic = create_topic(cluster, partitions=2)
    began = Transactions(cluster, "pay-7")
    produce(cluster, topic, 1, [b"v"] * 3)
    began.write(topic, 1, [b"v"] * 2)
    produce(cluster, topic, 1, [b"v"] * 4)
    done = Transactions(cluster, "pay-8")
    done.write(topic, 0, [b"v"])
    done.end(True)
    (row,) = row_with(browser.page("/transactions?filter=PAY-7"), "pay-7")
    assert row[1] == "Ongoing"
    assert re.fullmatch(r"[\d.]+ (ms|s|min)|0", row[2]), row
    assert row[4:] == [str(began.producer_id), str(began.epoch), "1"]
    (row,) = row_with(browser.page("/transactions?filter=pay-"), "pay-8")
    assert row[1:3] == ["CompleteCommit", "-"]
    opened = browser.page("/transactions?state=open")
    assert row_with(opened, "pay-7")
    assert not row_with(opened, "pay-8")
    assert row_with(browser.page("/transactions?older=0.001&sort=open_seconds&desc=1"), "pay-7")
    assert not row_with(browser.page("/transactions?older=3600"), "pay-7")
    assert "Open for is 'x'" in browser.page("/transactions?older=x").text
    page = browser.page("/transaction?id=pay-7")
    (row,) = row_with(page, topic)
    assert row[1:5] == ["1", "3", "6", "1"], "open from, held back (with those of others), sequence"
    assert f"/topics/{topic}/producers?partition=1" in page.links()
    began.end(True)
    assert "No transaction of this id is open." in browser.page("/transaction?id=pay-7").text
    assert "TRANSACTIONAL_ID_NOT_FOUND" in browser.page("/transaction?id=nobody", 404).text


def test_a_list_of_transactions_is_cut_into_pages_and_bounded(browser, cluster, monkeypatch):
    for number in range(101):
        Transactions(cluster, f"many-{number:03}")
    page = browser.page("/transactions?filter=many-")
    assert len(rows_of(page)) == 100
    assert "page 1 of 2" in page.text
    monkeypatch.setattr(transactions, "DESCRIBED_MAX", 100)
    assert "filter them first" in browser.page("/transactions?filter=many-&sort=open_seconds").text
    assert len(rows_of(browser.page("/transactions?filter=many-1&sort=open_seconds"))) == 1


def test_a_hanging_transaction_is_found_shown_and_aborted_by_the_name_of_its_partition(browser, cluster):
    topic = create_topic(cluster, partitions=2)
    produce(cluster, topic, 0, [b"v"] * 2)
    write_hanging(cluster, topic, 920_000, timestamp=int(time.time() * 1000) - 3_600_000)
    assert (
        "No transaction hangs" in browser.page(f"/transactions/hanging?look=1&topics={topic}&older=7200").text
    )
    page = browser.page(f"/transactions/hanging?look=1&topics={topic}")
    (row,) = row_with(page, topic)
    assert row[1:5] == ["0", "920000", "0", "2"]
    (url,) = [link for link in page.links() if link.startswith("/transactions/abort")]
    plan = browser.page(url)
    assert "Nothing has been done yet" in plan.text
    fields = hidden_fields(plan, "/transactions/abort/confirm")
    fields.pop("token")
    assert "nothing was aborted" in sent(browser, "/transactions/abort/confirm", **fields, name="x").text
    other = {**fields, "start_offset": "1", "name": f"{topic}:0"}
    assert "another transaction" in sent(browser, "/transactions/abort/confirm", **other).text
    ends = cluster.list_offsets({(topic, 0): LATEST}, read_committed=True)
    assert ends[topic, 0] == 2, "nothing was aborted yet"
    done = sent(browser, "/transactions/abort/confirm", **fields, name=f"{topic}:0")
    assert "The transaction of producer 920000 is aborted in partition 0." in done.text
    assert cluster.list_offsets({(topic, 0): LATEST}, read_committed=True)[topic, 0] == 4
    again = sent(browser, "/transactions/abort/confirm", **fields, name=f"{topic}:0")
    assert "has no open transaction" in again.text


def test_a_transaction_that_its_coordinator_knows_is_aborted_by_force_alone(browser, cluster):
    topic = create_topic(cluster)
    known = Transactions(cluster, "known")
    known.write(topic, 0, [b"v"])
    query = f"partition={topic}:0&producer_id={known.producer_id}"
    page = browser.page(f"/transactions/abort?{query}")
    assert "does not hang" in page.text
    (url,) = [link for link in page.links() if "force=1" in link]
    fields = hidden_fields(browser.page(url), "/transactions/abort/confirm")
    fields.pop("token")
    assert fields["force"] == "1"
    without = {name: value for name, value in fields.items() if name != "force"}
    assert "does not hang" in sent(browser, "/transactions/abort/confirm", **without, name=f"{topic}:0").text
    sent(browser, "/transactions/abort/confirm", **fields, name=f"{topic}:0")
    assert cluster.list_offsets({(topic, 0): LATEST}, read_committed=True)[topic, 0] == 2


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("partition=orders&producer_id=1", "is not TOPIC:PARTITION"),
        ("partition=orders:0&producer_id=x", "The producer id is 'x'"),
        ("partition=no-such:0&producer_id=1", "does not exist"),
    ],
)
def test_an_abort_of_what_is_not_there_is_a_sentence(browser, query, told):
    assert told in browser.page(f"/transactions/abort?{query}").text


def test_producers_of_a_topic_have_their_sequence_and_their_open_transaction(browser, cluster):
    topic = create_topic(cluster, partitions=2)
    produce(cluster, topic, 0, [b"v"] * 3, producer_id=910_000, producer_epoch=2, base_sequence=0)
    writing = Transactions(cluster, "writing")
    writing.write(topic, 0, [b"v"] * 2)
    writing.write(topic, 1, [b"v"])
    page = browser.page(f"/topics/{topic}/producers?sort=producer_id&desc=1")
    (row,) = [row for row in rows_of(page) if row[1] == "910000"]
    assert row[:4] == ["0", "910000", "2", "2"]
    assert row[5:] == ["-", "-"]
    only = browser.page(f"/topics/{topic}/producers?open=1")
    assert [row[0:1] + row[5:] for row in rows_of(only)] == [["0", "3", "writing"], ["1", "0", "writing"]]
    assert "/transaction?id=writing" in only.links()
    one = browser.page(f"/topics/{topic}/producers?partition=1")
    assert [row[0] for row in rows_of(one)] == ["1"]
    assert "has 2 partitions" in browser.page(f"/topics/{topic}/producers?partition=2").text
    assert "Partition is 'x'" in browser.page(f"/topics/{topic}/producers?partition=x").text
    assert re.search("UNKNOWN_TOPIC", browser.page("/topics/no-such-topic/producers").text)


# Share groups -----------------------------------------------------------------------------------------


def heartbeat(cluster, group, member_epoch, topics):
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=member_epoch, subscribed_topic_names=topics
    )
    response = cluster.ask(coordinator_of("group", group), request)
    assert response.error_code == 0, response
    return response


def share_starts(cluster, group):
    listed = [one for one in list_groups(cluster) if one.group == group]
    return offsets_of_groups(cluster, listed)[0][group]


def test_a_share_group_has_its_members_offsets_and_options(browser, cluster):
    topic = create_topic(cluster)
    story = Story(cluster, 0)
    story.group = "parcels"
    produce(cluster, topic, 0, [b"v"] * 10)
    story.join(topic, "dlq.parcels")
    deadline = time.monotonic() + 120
    while not (acquired := story.fetch()):
        assert time.monotonic() < deadline
    assert acquired == [(0, 9, 1)]
    story.fetch((2, 3, 1))
    deadline = time.monotonic() + 120
    while not heartbeat(cluster, "parcels", 0, [topic]).assignment.topic_partitions:
        assert time.monotonic() < deadline
    groups = browser.page("/groups?filter=parcels&type=share")
    assert "/share-group?id=parcels" in groups.links()
    page = browser.page("/share-group?id=parcels")
    (row,) = [row for row in row_with(page, topic) if row[1] == "0"]
    assert row[3] == "10"
    assert row[2] == "0"
    assert (row[4], row[5]) in (("8", "2"), ("10", "-")), "as far as its coordinator tells"
    assert row[6] == "1"
    assert f"{topic}:0" in page.text
    assert row_with(page, "errors.deadletterqueue.topic.name")[0][1] == "dlq.parcels"
    assert "/topics/dlq.parcels" in page.links()
    note = browser.page("/group?id=parcels")
    assert "/share-group?id=parcels" in note.links()
    used = sent(browser, "/share-group/seek", id="parcels", to="start", do="seek")
    assert "is in use" in used.text
    check_states(browser, cluster, topic, story)
    heartbeat(cluster, "parcels", -1, None)
    assert "NOT_FOUND" in browser.page("/share-group?id=nobody", 404).text


def check_states(browser, cluster, topic, story):
    """2 to 3 are accepted; 5 is released, delivered again and rejected, 6 released alone."""
    url = f"/share-group?id=parcels&states={topic}:0"
    links = browser.page("/share-group?id=parcels").links()
    assert f"/share-group?id=parcels&states={topic}%3A0#states" in links

    def rows():
        page = browser.page(url)
        return [row for row in page.body_rows if len(row) == 5 and row[3] in STATE_NAMES.values()], page

    acquired, deadline = story.fetch((5, 6, RELEASE)), time.monotonic() + 120
    while (5, 6, 2) not in acquired:
        assert time.monotonic() < deadline
        acquired = story.fetch()
    story.fetch((5, 5, REJECT))
    found, page = rows()
    assert found == [
        ["2", "3", "2", "acknowledged", "1"],
        ["5", "5", "1", "archived", "2"],
        ["6", "6", "1", "available", "1"],
    ]
    assert "Delivered again 1 record" in " ".join(page.text.split())
    assert "has no partition 7" in browser.page(f"/share-group?id=parcels&states={topic}:7").text
    assert "states are those of" in browser.page("/share-group?id=parcels&states=x").text.lower()
    assert "not-a-topic" in browser.page("/share-group?id=parcels&states=not-a-topic:0").text


def test_offsets_of_a_share_group_are_moved_and_forgotten_after_a_dry_run(browser, cluster):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"v"] * 10)
    heartbeat(cluster, "letters", 0, [topic])
    heartbeat(cluster, "letters", -1, None)
    assert alter_share_offsets(cluster, "letters", {(topic, 0): 7}) == []
    plan = sent(browser, "/share-group/seek", id="letters", to="-2", do="plan")
    assert [topic, "0", "7", "5", "-2", "5"] in plan.body_rows
    assert share_starts(cluster, "letters") == {(topic, 0): 7}
    assert "Moved 1 partition." in sent(browser, "/share-group/seek", id="letters", to="-2", do="seek").text
    assert share_starts(cluster, "letters") == {(topic, 0): 5}
    fields = {"id": "letters", "forgotten": topic}
    assert "name a topic" in sent(browser, "/share-group/forget", id="letters", do="plan").text.lower()
    plan = sent(browser, "/share-group/forget", **fields, do="plan")
    assert [topic, "0", "5", "no"] in plan.body_rows
    assert "nothing was deleted" in sent(browser, "/share-group/forget", **fields, do="forget", name="x").text
    assert share_starts(cluster, "letters") == {(topic, 0): 5}
    done = sent(browser, "/share-group/forget", **fields, do="forget", name=topic)
    assert "Deleted the commits of 1 partition." in done.text
    assert share_starts(cluster, "letters") == {}
    assert browser.post("/share-group/delete", {"id": "letters", "name": "letters"}).status_code == 303
    assert "letters" not in [one.group for one in list_groups(cluster)]


def test_the_page_of_share_groups_moves_no_other_group(browser, cluster):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"v"] * 10)
    commit(cluster, "not-shared", {(topic, 0): (5, "")})
    told = sent(browser, "/share-group/seek", id="not-shared", to="start", do="seek").text
    assert "Group not-shared is no share group." in told
    told = sent(browser, "/share-group/seek", id="new", to="start", topics=topic, do="seek").text
    assert "Group new is no share group." in told
    assert committed(cluster, "not-shared", None, is_stable=True) == {(topic, 0): (5, "")}


def test_commits_of_a_group_are_forgotten_after_a_dry_run(browser, cluster):
    topic, other = create_topic(cluster, partitions=2), create_topic(cluster)
    commit(cluster, "forgetful", {(topic, 0): (0, ""), (topic, 1): (0, ""), (other, 0): (0, "")})
    plan = sent(browser, "/group/forget", id="forgetful", forgotten=f"{topic}:1", do="plan")
    assert [topic, "1", "0", "no"] in plan.body_rows
    fields = {"id": "forgetful", "forgotten": f"{topic}:1", "do": "forget", "name": f"{topic}:1"}
    sent(browser, "/group/forget", **fields)
    assert set(committed(cluster, "forgetful", None, is_stable=True)) == {(topic, 0), (other, 0)}
    assert "has no commit for" in sent(browser, "/group/forget", **fields).text


# Kafka Streams ----------------------------------------------------------------------------------------


def test_a_streams_group_has_members_tasks_and_its_topology(browser, cluster):
    create_topic(cluster, 2, "lines")
    produce(cluster, "lines", 0, [b"v"] * 3)
    start_application(cluster, "words", "lines")
    groups = browser.page("/groups?filter=words&type=streams")
    assert "/streams-group?id=words" in groups.links()
    page = browser.page("/streams-group?id=words")
    assert ["0", "lines", "-", "-", "-"] in page.body_rows
    assert "Sub-topology: 0" in page.text
    assert "--> split" in page.text
    (member,) = [row for row in page.body_rows if row[0].endswith(" m")]
    assert "0_0, 0_1" in member[4]
    assert {row[1] for row in row_with(page, "lines")} == {"0", "1"}
    assert (
        "is in use"
        in sent(browser, "/streams-group/seek", id="words", to="start", topics="lines", do="seek").text
    )
    assert "NOT_FOUND" in browser.page("/streams-group?id=nobody", 404).text


# Users ------------------------------------------------------------------------------------------------


def test_a_password_is_set_and_never_shown(browser, cluster, caplog):
    fields = {"user": "ann", "mechanism": "SCRAM-SHA-256", "iterations": "5000"}
    both = {"password": PASSWORD, "again": PASSWORD}
    for wrong, told in (
        ({"password": PASSWORD, "again": "another"}, "are not the same"),
        ({"password": "", "again": ""}, "is empty"),
        ({**both, "iterations": "1"}, "4096 to 16384"),
        ({**both, "iterations": "x"}, "The number of iterations"),
        ({**both, "mechanism": "PLAIN"}, "mechanism"),
        ({**both, "user": ""}, "is empty"),
    ):
        response = browser.post("/users/set", {**fields, **wrong})
        assert told in Page(response.text).text, wrong
        assert PASSWORD not in Page(response.text).text
        assert not [one for one in Page(response.text).all("input", type="password") if one.get("value")]
    assert describe_users(cluster, ["ann"]) == []
    response = browser.post("/users/set", {**fields, **both})
    assert PASSWORD not in response.headers["location"]
    page = browser.page(response.headers["location"])
    assert "The password of ann for SCRAM-SHA-256 is set." in page.text
    assert row_with(page, "ann") == [["ann", "SCRAM-SHA-256", "5,000"]]
    assert PASSWORD not in caplog.text
    assert [one.iterations for one in describe_users(cluster, ["ann"])] == [5000]


def test_a_credential_is_deleted_by_the_name_of_its_user(browser, cluster):
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        put_user(cluster, "bob", mechanism, "secret", 4096)
    fields = {"user": "bob", "mechanism": "SCRAM-SHA-512"}
    assert "nothing was deleted" in sent(browser, "/users/delete", **fields, name="ann").text
    assert len(describe_users(cluster, ["bob"])) == 2
    assert "SCRAM-SHA-512 of bob is deleted." in sent(browser, "/users/delete", **fields, name="bob").text
    assert [one.mechanism for one in describe_users(cluster, ["bob"])] == ["SCRAM-SHA-256"]
    assert "does not exist" in sent(browser, "/users/delete", **fields, name="bob").text


# ACLs -------------------------------------------------------------------------------------------------


def rule(name, principal="User:eve", operation=Doing.READ, pattern=PatternType.LITERAL):
    return Acl(ResourceType.TOPIC, name, pattern, principal, "*", operation, Permission.ALLOW)


def acls_of(cluster, principal):
    return describe_acls(cluster, [AclFilter(principal=principal)])


def test_rules_are_found_by_a_filter_as_the_brokers_understand_it(browser, cluster):
    add_acls(cluster, [rule("shop.", pattern=PatternType.PREFIXED), rule("shop.a"), rule("other")])
    page = browser.page("/acls?principal=User:eve")
    assert {row[5] for row in row_with(page, "User:eve")} == {"shop.", "shop.a", "other"}
    page = browser.page("/acls?type=TOPIC&name=shop.a&pattern=MATCH")
    assert {row[5] for row in row_with(page, "User:eve")} == {"shop.", "shop.a"}
    page = browser.page("/acls?principal=User:eve&pattern=PREFIXED&operation=READ&permission=ALLOW&host=*")
    ((row),) = row_with(page, "User:eve")
    assert row == ["User:eve", "*", "ALLOW", "READ", "TOPIC", "shop.", "PREFIXED"]
    assert "No rule matches" in browser.page("/acls?principal=User:nobody").text
    assert "X is none of" in browser.page("/acls?type=X").text


def test_a_rule_is_checked_and_added(browser, cluster):
    fields = {
        "principal": "User:fay",
        "permission": "ALLOW",
        "operation": "read, Describe_Configs",
        "type": "TOPIC",
        "name": "orders",
        "pattern": "PREFIXED",
        "host": "",
    }
    checked = sent(browser, "/acls/add", **fields, do="check")
    assert "Nothing has been added yet" in checked.text
    assert "User:fay from * may READ TOPIC orders and all that begins so" in checked.text
    assert acls_of(cluster, "User:fay") == []
    assert "Added:" in sent(browser, "/acls/add", **fields, do="add").text
    assert {one.operation for one in acls_of(cluster, "User:fay")} == {Doing.READ, Doing.DESCRIBE_CONFIGS}
    assert "was there already" in sent(browser, "/acls/add", **fields, do="check").text
    for wrong, told in (
        ({"principal": "fay"}, "is not TYPE:NAME"),
        ({"operation": "fly"}, "is none of"),
        ({"operation": ""}, "has an operation"),
        ({"name": ""}, "about something"),
        ({"pattern": "MATCH"}, "are for filters"),
        ({"type": "ANY"}, "are for filters"),
        ({"permission": "x"}, "is none of"),
    ):
        assert told in sent(browser, "/acls/add", **{**fields, **wrong}, do="add").text, wrong
    assert len(acls_of(cluster, "User:fay")) == 2


def test_those_rules_are_removed_that_were_shown_and_no_others(browser, cluster):
    gus = "User:gus"
    add_acls(cluster, [rule("a", gus), rule("b", gus), rule("c", "User:hal")])
    page = browser.page(f"/acls?principal={gus}")
    fields = hidden_fields(page, "/acls/remove")
    fields.pop("token")
    assert "nothing was removed" in sent(browser, "/acls/remove", **fields, word="yes").text
    add_acls(cluster, [rule("d", gus)])
    told = sent(browser, "/acls/remove", **fields, word=gus).text
    assert "there are other rules now" in told.lower()
    assert len(acls_of(cluster, gus)) == 3
    (single,) = [
        link
        for link in browser.page(f"/acls?principal={gus}").links()
        if ("name", "d") in parse_qsl(urlsplit(link).query)
    ]
    fields = hidden_fields(browser.page(single), "/acls/remove")
    fields.pop("token")
    assert "Removed 1 rule." in sent(browser, "/acls/remove", **fields, word=gus).text
    assert [one.resource_name for one in acls_of(cluster, gus)] == ["a", "b"]
    fields = hidden_fields(browser.page(f"/acls?principal={gus}"), "/acls/remove")
    fields.pop("token")
    assert "Removed 2 rules." in sent(browser, "/acls/remove", **fields, word=gus).text
    assert acls_of(cluster, gus) == []
    assert len(acls_of(cluster, "User:hal")) == 1


# Quotas and tokens ------------------------------------------------------------------------------------


def test_a_quota_is_checked_set_and_removed(browser, cluster):
    fields = {"user": "ann", "client_id_defaults": "1", "key": "producer_byte_rate", "value": "1024"}
    checked = sent(browser, "/quotas/change", **fields, do="check")
    assert "The brokers would take this: producer_byte_rate of user=ann client-id=<default>" in checked.text
    assert describe_quotas(cluster, {"user": "ann"}) == []
    assert "from none to 1024" in sent(browser, "/quotas/change", **fields, do="set").text
    page = browser.page("/quotas?filter=ann")
    assert [
        "user=ann client-id=<default>",
        "producer_byte_rate",
        "1,024",
        "bytes a second",
    ] in page.body_rows
    (url,) = [link for link in page.links() if "producer_byte_rate" in link]
    assert browser.page(url).all("input", name="value")[0]["value"] == "1024"
    for wrong, told in (
        ({"value": "nan"}, "is not KEY=VALUE with a number"),
        ({"value": ""}, "is not KEY=VALUE with a number"),
        ({"value": "-1"}, "INVALID_REQUEST"),
        ({"value": "1024.5"}, "cannot be a fractional value"),
        ({"key": "no_such_rate"}, "INVALID_REQUEST"),
        ({"user_defaults": "1"}, "not both"),
        ({"ip": "192.0.2.7"}, "INVALID_REQUEST"),
        ({"user": "", "client_id_defaults": ""}, "whose quota"),
    ):
        page = sent(browser, "/quotas/change", **{**fields, **wrong}, do="set")
        assert told.lower() in page.text.lower(), wrong
    alter_quotas(cluster, {"ip": None}, {"connection_creation_rate": 7})
    assert ["ip=<default>", "connection_creation_rate", "7"] in [
        row[:3] for row in browser.page("/quotas").body_rows
    ]
    assert "from 1024 to none" in sent(browser, "/quotas/change", **fields, do="unset").text
    assert describe_quotas(cluster, {"user": "ann"}) == []
    assert "has no quota" in sent(browser, "/quotas/change", **fields, do="unset").text


def test_tokens_that_the_connection_may_not_see_are_a_sentence(browser):
    assert "DELEGATION_TOKEN" in browser.page("/tokens").text


# Nodes ------------------------------------------------------------------------------------------------


def test_nodes_have_their_state_disks_quorum_and_features(browser, broker, cluster):
    topic = create_topic(cluster, partitions=3, name="placed")
    (row,) = row_with(browser.page("/brokers"), "1")
    assert row[1] == broker.bootstrap_servers
    assert row[3].startswith("in service")
    assert int(row[6].replace(",", "")) == int(row[7].replace(",", "")) >= 3
    assert row[8:10] == ["0", "0"]
    (row,) = row_with(browser.page("/brokers/log-dirs"), "1")
    assert row[2] == "online"
    assert re.fullmatch(r"[\d.]+ [kMGT]?B", row[5])
    rows = row_with(browser.page("/brokers/replicas?broker=1&filter=placed"), topic)
    assert [row[1:] for row in rows] == [[str(number), "1", "1", "1", "-"] for number in range(3)]
    assert not row_with(browser.page("/brokers/replicas?broker=2&filter=placed"), topic)
    for state in ("under-replicated", "offline", "leaderless", "not-preferred"):
        assert "No partition that you may see is so." in browser.page(f"/brokers/replicas?state={state}").text
    assert "The state x is none of" in browser.page("/brokers/replicas?state=x").text
    assert "Broker is 'x'" in browser.page("/brokers/replicas?broker=x").text
    (row,) = [row for row in browser.page("/brokers/quorum").body_rows if row[1:2] == ["leader"]]
    assert row[3] == "0"
    assert [row for row in browser.page("/brokers/features").body_rows if row[0] == "metadata.version"]
    assert "Nothing is being moved." in browser.page("/brokers/moves").text


# Topics -----------------------------------------------------------------------------------------------


def test_a_topic_is_checked_and_made_with_its_options(browser, cluster):
    fields = {"name": "made", "partitions": "3", "replicas": "1"}
    fields["configs"] = "retention.ms = 86400000\r\n\r\ncleanup.policy=compact".replace(" ", "")
    checked = sent(browser, "/create-topic/send", **fields, do="check")
    assert "The brokers would take this" in checked.text
    assert describe_topics(cluster, ["made"])[0] == []
    assert "The topic has been made." in sent(browser, "/create-topic/send", **fields, do="create").text
    ((made,), _) = describe_topics(cluster, ["made"])
    assert len(made.partitions) == 3
    found = {one.name: one.value for one in describe_configs(cluster, Resource(ResourceKind.TOPIC, "made"))}
    assert (found["retention.ms"], found["cleanup.policy"]) == ("86400000", "compact")
    for wrong, told in (
        ({}, "already exists"),
        ({"name": ""}, "has a name"),
        ({"name": "a/b"}, "INVALID_TOPIC_EXCEPTION"),
        ({"name": "x", "partitions": "0"}, "INVALID_PARTITIONS"),
        ({"name": "x", "partitions": "many"}, "Partitions is 'many'"),
        ({"name": "x", "replicas": "3"}, "INVALID_REPLICATION_FACTOR"),
        ({"name": "x", "configs": "retention.ms=soon"}, "INVALID_CONFIG"),
        ({"name": "x", "configs": "no such"}, "is not NAME=VALUE"),
    ):
        for do in ("check", "create"):
            page = sent(browser, "/create-topic/send", **{**fields, **wrong}, do=do)
            assert told in page.text, wrong
            assert page.all("input", name="name")[0]["value"] == {**fields, **wrong}["name"]
    assert describe_topics(cluster, ["x"])[0] == []


def test_partitions_are_checked_and_added(browser, cluster):
    topic = create_topic(cluster, partitions=2)
    assert "The topic has 2 partitions." in browser.page(f"/topics/{topic}/change").text
    checked = sent(browser, "/topic/add-partitions", topic=topic, partitions="4", do="check")
    assert "would take this: from 2 to 4 partitions" in checked.text
    assert len(describe_topics(cluster, [topic])[0][0].partitions) == 2
    sent(browser, "/topic/add-partitions", topic=topic, partitions="4", do="add")
    assert len(describe_topics(cluster, [topic])[0][0].partitions) == 4
    assert (
        "INVALID_PARTITIONS"
        in sent(browser, "/topic/add-partitions", topic=topic, partitions="3", do="add").text
    )


def test_records_are_deleted_after_a_dry_run_by_the_name_of_the_topic(browser, cluster):
    topic = create_topic(cluster, partitions=2)
    for partition in (0, 1):
        produce(cluster, topic, partition, [b"v"] * 10)
    fields = {"topic": topic, "before": "4", "partition": ""}
    plan = sent(browser, "/topic/trim", **fields, do="plan")
    assert ["0", "0", "4", "4"] in plan.body_rows
    assert "Delete 8 records" in plan.text
    assert "nothing was deleted" in sent(browser, "/topic/trim", **fields, do="trim", typed="x").text

    def starts():
        found = cluster.list_offsets({(topic, partition): EARLIEST for partition in (0, 1)})
        return [found[topic, partition] for partition in (0, 1)]

    assert starts() == [0, 0]
    assert "Deleted 8 records." in sent(browser, "/topic/trim", **fields, do="trim", typed=topic).text
    assert starts() == [4, 4]
    one = {**fields, "before": "end", "partition": "1"}
    sent(browser, "/topic/trim", **one, do="trim", typed=topic)
    assert starts() == [4, 10]
    assert "soon" in sent(browser, "/topic/trim", **{**fields, "before": "soon"}, do="plan").text
    assert (
        "has no partition 7" in sent(browser, "/topic/trim", **{**fields, "partition": "7"}, do="plan").text
    )
    pattern = sent(browser, "/topic/trim", **{**fields, "topic": "*"}, do="trim", typed="*")
    assert "one topic can be changed at a time" in pattern.text.lower()
    assert starts() == [4, 10]


def test_a_topic_is_deleted_by_its_name(browser, cluster):
    topic = create_topic(cluster)
    assert "nothing was deleted" in sent(browser, "/topic/delete", topic=topic, typed="x").text
    assert "nothing was deleted" in sent(browser, "/topic/delete", topic="", typed="").text
    assert describe_topics(cluster, [topic])[0]
    assert browser.post("/topic/delete", {"topic": topic, "typed": topic}).headers["location"] == "/topics"
    assert describe_topics(cluster, [topic])[0] == []
    assert "UNKNOWN_TOPIC" in sent(browser, "/topic/delete", topic=topic, typed=topic).text


# Bad input, failures, read-only -----------------------------------------------------------------------

PAGES = (
    "/transactions",
    "/transactions/hanging?look=1",
    "/transactions/abort?partition=t:0&producer_id=1",
    "/topics/t/producers",
    "/users",
    "/acls",
    "/quotas",
    "/tokens",
    "/brokers",
    "/brokers/log-dirs",
    "/brokers/replicas",
    "/brokers/quorum",
    "/brokers/features",
    "/brokers/moves",
)
OF_ONE = ("/transaction?id=x", "/share-group?id=x", "/streams-group?id=x", "/topics/t/change")


def test_brokers_that_are_away_are_a_sentence_on_each_page():
    with browser_of(f"127.0.0.1:{free_port()}", patience_ms=200) as browser:
        for url in (*PAGES, *OF_ONE):
            page = browser.page(url, 200 if url in PAGES else 503)
            assert "No broker answered in 0.2 s" in page.text, url
            assert page.all("a", href="/groups")
        for path, fields in CHANGES_MADE:
            assert "No broker answered" in sent(browser, path, **fields).text, path


CHANGES_MADE = (
    ("/group/forget", {"id": "kept", "forgotten": "kept", "name": "kept", "do": "forget"}),
    ("/share-group/seek", {"id": "kept", "to": "start", "topics": "kept", "do": "seek"}),
    ("/users/set", {"user": "zoe", "mechanism": "SCRAM-SHA-256", "password": "x", "again": "x"}),
    ("/users/delete", {"user": "kept", "mechanism": "SCRAM-SHA-256", "name": "kept"}),
    ("/acls/add", {"principal": "User:zoe", "operation": "READ", "name": "kept", "do": "add"}),
    ("/quotas/change", {"user": "zoe", "key": "producer_byte_rate", "value": "1", "do": "set"}),
    ("/create-topic/send", {"name": "zoe", "do": "create"}),
    ("/topic/add-partitions", {"topic": "kept", "partitions": "9", "do": "add"}),
    ("/topic/trim", {"topic": "kept", "before": "end", "typed": "kept", "do": "trim"}),
    ("/topic/delete", {"topic": "kept", "typed": "kept"}),
)
"""Changes that would be made, of things that are named `kept`."""


def test_read_only_holds_for_each_change_and_plans_are_made(broker, cluster):
    topic = create_topic(cluster, name="kept")
    produce(cluster, topic, 0, [b"v"] * 5)
    commit(cluster, "kept", {(topic, 0): (1, "")})
    put_user(cluster, "kept", "SCRAM-SHA-256", "secret", 4096)
    add_acls(cluster, [rule("kept", "User:kept")])
    write_hanging(cluster, topic, 930_000, timestamp=1000)
    with browser_of(broker.bootstrap_servers, read_only=True) as browser:
        for path, fields in CHANGES_MADE:
            if path != "/share-group/seek":
                told = sent(browser, path, **fields).text.lower()
                assert "this console only reads" in told, path
        shown = browser.page("/acls?principal=User:kept")
        assert not hidden_fields(shown, "/acls/remove")
        seen = hidden_fields(Page(browser_page_of(broker, "/acls?principal=User:kept")), "/acls/remove")
        seen.pop("token")
        assert "This console only reads" in sent(browser, "/acls/remove", **seen, word="User:kept").text
        plan = browser.page("/transactions/abort?partition=kept:0&producer_id=930000")
        fields = hidden_fields(plan, "/transactions/abort/confirm")
        fields.pop("token")
        told = sent(browser, "/transactions/abort/confirm", **fields, name="kept:0")
        assert "This console only reads" in told.text
        for path, fields in (
            ("/topic/trim", {"topic": topic, "before": "end", "do": "plan"}),
            ("/topic/add-partitions", {"topic": topic, "partitions": "9", "do": "check"}),
            ("/create-topic/send", {"name": "zoe", "do": "check"}),
            ("/quotas/change", {"user": "zoe", "key": "producer_byte_rate", "value": "1", "do": "check"}),
            ("/group/forget", {"id": "kept", "forgotten": "kept", "do": "plan"}),
        ):
            assert "only reads" not in sent(browser, path, **fields).text, path
    assert len(describe_topics(cluster, [topic])[0][0].partitions) == 1
    assert cluster.list_offsets({(topic, 0): EARLIEST}) == {(topic, 0): 0}
    assert committed(cluster, "kept", None, is_stable=True) == {(topic, 0): (1, "")}
    assert len(describe_users(cluster, ["kept"])) == 1
    assert describe_users(cluster, ["zoe"]) == []
    assert len(acls_of(cluster, "User:kept")) == 1
    assert acls_of(cluster, "User:zoe") == []
    assert describe_quotas(cluster, {"user": "zoe"}) == []


def browser_page_of(broker, url):
    with browser_of(broker.bootstrap_servers) as browser:
        return browser.get(url).text


def test_what_goes_while_it_is_shown_is_a_sentence_and_the_rest_of_the_page_is_there(
    browser, cluster, monkeypatch
):
    """The group goes between the parts of its page, and the topic of a transaction while it is open."""
    topic = create_topic(cluster)
    heartbeat(cluster, "going", 0, [topic])
    alter_configs(
        cluster,
        Resource(ResourceKind.GROUP, "going"),
        [Change("share.session.timeout.ms", Operation.SET, "50000")],
    )
    monkeypatch.setattr(
        "odradek.console.screens.share_group.describe_share_group", gone("GROUP_ID_NOT_FOUND", 69)
    )
    page = browser.page("/share-group?id=going", 404)
    assert "GROUP_ID_NOT_FOUND" in page.text
    assert row_with(page, "share.session.timeout.ms")[0][1] == "50000"
    assert page.all("form", action="/share-group/delete")
    left = Transactions(cluster, "left")
    left.write(topic, 0, [b"v"])
    delete_topic(cluster, topic)
    page = browser.page("/transaction?id=left")
    assert "Ongoing" in page.text
    assert re.search("UNKNOWN_TOPIC|No transaction of this id", page.text) or row_with(page, topic)


def gone(name, code):
    from odradek.client.client_error import ClientError
    from odradek.wire.errors import ErrorCode

    def fail(*_):
        raise ClientError(f"it is gone: {name}", ErrorCode(code))

    return fail


def test_names_of_all_kinds_do_not_become_html(browser, cluster):
    nasty = [
        '"><script>alert(1)</script><x-evil-1>',
        "a\u202eb\x00",
        "' onload='x",
        "группа",
        "*",
        "/x/",
        "a:b",
    ]
    for text in nasty:
        for path in [url.partition("?")[0] for url in (*PAGES, *OF_ONE)]:
            fields = dict.fromkeys(
                ("id", "filter", "partition", "producer_id", "principal", "name", "type", "state", "broker"),
                text,
            )
            fields |= dict.fromkeys(("older", "topics", "user", "key", "value", "page", "sort", "done"), text)
            response = browser.get(path, params={**fields, "look": "1"})
            assert response.status_code < 500 or response.status_code == 502, (path, text)
            page = Page(response.text)
            assert len(page.all("script")) == 1
            assert not [tag for tag, _ in page.elements if tag.startswith("x-evil")]
            assert not [found for _, found in page.elements if any(name.startswith("on") for name in found)]
        for path, fields in CHANGES_MADE:
            if path not in ("/create-topic/send", "/users/set", "/acls/add", "/quotas/change"):
                changed = {name: text if name != "do" else value for name, value in fields.items()}
                response = browser.post(path, changed)
                assert response.status_code != 500, (path, text)
                assert len(Page(response.text).all("script")) <= 1


def test_a_cluster_of_another_kind_has_no_quorum(browser, monkeypatch):
    monkeypatch.setattr("odradek.console.screens.brokers.describe_quorum", gone("UNSUPPORTED_VERSION", 35))
    assert "UNSUPPORTED_VERSION" in browser.page("/brokers/quorum").text
