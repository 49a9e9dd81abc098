"""The screens at a broker of ours: what they show, where their links lead, what they change."""

import re
from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest

import odradek
from odradek.client.admin.configs import Resource, ResourceKind, describe_configs
from odradek.client.admin.groups import list_groups
from odradek.client.admin.topics import delete_topics
from odradek.client.cluster import Cluster, coordinator_of
from odradek.client.group_offsets import commit, committed
from odradek.client.settings import ClientSettings
from odradek.commands.record_json import read_record
from odradek.console.screens.group import Forecast
from odradek.embedding.free_port import free_port
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.records import build_batch
from tests.client.topics import create_topic, produce, produce_batch
from tests.console.browsers import Page, browser_of
from tests.console.conftest import NO_RETENTION, NOW_MS, order


def next_link(page):
    return next((one["href"] for one in page.all("a", rel="next")), None)


def hits(page):
    """Rows of messages: partition, offset, time, key, value, form."""
    return [row for row in page.body_rows if len(row) == 6 and row[0].isdecimal()]


# Topics -----------------------------------------------------------------------------------------------


def test_topics_have_their_sizes_and_lead_to_their_messages(browser, cluster, orders):
    page = browser.page("/topics?filter=ORDERS")
    (row,) = page.body_rows
    assert row[0] == orders
    assert row[2:3] + row[4:] == ["300", "3", "1"]
    assert re.fullmatch(r"[\d.]+ kB", row[3])
    assert f"/topics/{orders}" in page.links()
    assert "__consumer_offsets" not in browser.page("/topics").text
    assert "__consumer_offsets" in browser.page("/topics?internal=1").text


def test_a_thousand_topics_are_sorted_and_cut_into_pages(browser, cluster):
    for number in range(205):
        create_topic(cluster, name=f"many-{number:03}")
    produce(cluster, "many-123", 0, [b"x"] * 9)
    first = browser.page("/topics?filter=many-")
    assert len(first.body_rows) == 100
    assert "page 1 of 3" in first.text
    second = browser.page(next_link(first))
    assert second.body_rows[0][0] == "many-100"
    by_records = browser.page("/topics?filter=many-&sort=records&desc=1")
    assert by_records.body_rows[0][:3:2] == ["many-123", "9"]
    assert by_records.all("th", **{"aria-sort": "descending"})


def test_partitions_have_leaders_offsets_and_sizes(browser, orders):
    rows = browser.page(f"/topics/{orders}/partitions?sort=partition&desc=1").body_rows
    assert [row[:4] for row in rows if row[0].isdecimal()] == [
        [str(one), "0", "100", "100"] for one in (2, 1, 0)
    ]


# Messages ---------------------------------------------------------------------------------------------


def test_messages_come_newest_first_and_each_link_goes_on(browser, orders):
    url, seen = f"/topics/{orders}", []
    while url:
        page = browser.page(url)
        rows = hits(page)
        assert 0 < len(rows) <= 50
        seen += [row[3] for row in rows]
        url = next_link(page)
    assert seen == [f"o-{number}" for number in range(299, -1, -1)]


def test_time_partition_and_offset_choose_messages(browser, orders):
    start, end = (datetime.fromtimestamp(NOW_MS // 1000 + after, UTC).isoformat() for after in (30, 36))
    query = urlencode({"order": "oldest", "from": start, "until": end})
    at = browser.page(f"/topics/{orders}/messages?{query}")
    assert [row[3] for row in hits(at)] == [f"o-{number}" for number in range(30, 36)]
    one = browser.page(f"/topics/{orders}/messages?order=oldest&partition=1&from=98")
    assert [row[:2] + row[3:4] for row in hits(one)] == [["1", "98", "o-295"], ["1", "99", "o-298"]]
    two = browser.page(f"/topics/{orders}/messages?partition=0,2&rows=25")
    assert {row[0] for row in hits(two)} == {"0", "2"}


def test_a_search_says_how_far_it_has_come_and_goes_on(browser, orders):
    url = f"/topics/{orders}/messages?value=refund&rows=25"
    first = browser.page(url)
    assert len(hits(first)) == 25
    told = re.search(r"searched (\d+) of 300, 25 hits, now at [\d-]+ [\d:.]+", first.text)
    assert told
    assert 25 <= int(told[1]) < 300
    second = browser.page(next_link(first))
    assert "searched 300 of 300, 30 hits" in second.text
    assert next_link(second) is None
    assert {row[3] for row in hits(first) + hits(second)} == {f"o-{number}" for number in range(3, 300, 10)}


def test_a_search_without_a_hit_can_go_on_by_itself_without_scripts(cluster, broker, monkeypatch):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"x"] * 300)
    monkeypatch.setattr("odradek.console.search.STEP_S", 0.0)
    with browser_of(broker.bootstrap_servers) as browser:
        page = browser.page(f"/topics/{topic}/messages?value=y")
        url = next(link for link in page.links() if link.endswith("&keep=1"))
        steps = 0
        while True:
            page = browser.page(url)
            steps += 1
            if not (refresh := page.all("meta", **{"http-equiv": "refresh"})):
                break
            assert any(one == next_link(page).replace("&keep=1", "") for one in page.links()), (
                "it can be stopped"
            )
            url = refresh[0]["content"].partition("url=")[2]
        assert steps > 1
        assert "searched 300 of 300, 0 hits" in page.text
        assert "No record is as you look for" in page.text


def test_what_is_not_understood_is_a_sentence_and_the_form_stays(browser, orders):
    for query, told in (
        ("value=(&value_how=re2", "is not a regular expression of RE2"),
        ("from=soon", "is not understood"),
        ("partition=7", "has 3 partitions, counted from 0"),
        ("partition=x", "are not understood"),
        ("at=x", "places"),
        ("from=stored", "a place of a group"),
    ):
        page = browser.page(f"/topics/{orders}/messages?{query}")
        assert told in page.text, query
        assert page.all("input", name="from")


def test_a_message_has_a_page_with_all_forms_and_its_bytes(browser, cluster, orders):
    page = browser.page(f"/topics/{orders}/messages/1/4")
    assert '"state": "refund"' in page.text
    assert "trace" in page.text
    as_hex = browser.page(f"/topics/{orders}/messages/1/4?as=hex")
    assert "00000000 7b 22 69 64" in as_hex.text
    value = browser.get(f"/topics/{orders}/messages/1/4/value.bin").content
    assert value == order(13)
    assert browser.get(f"/topics/{orders}/messages/1/4/key.bin").content == b"o-13"


def test_an_exported_message_is_what_produce_takes(browser, cluster, orders):
    line = browser.get(f"/topics/{orders}/messages/0/3/message.jsonl").content
    found = read_record(line)
    assert (found.topic, found.partition, found.timestamp_ms) == (orders, 0, NOW_MS + 9_000)
    assert (found.key, found.value, found.headers) == (b"o-9", order(9), [("trace", b"t9")])


def test_offsets_that_are_not_there_are_a_sentence(browser, orders):
    for offset in (100, 10**17, 10**30):
        page = browser.page(f"/topics/{orders}/messages/0/{offset}", 200 if offset < 10**18 else 404)
        assert re.search("no offset|no such offset|no record", page.text), offset
    assert browser.get(f"/topics/{orders}/messages/0/x").status_code == 404


def test_internal_topics_are_read_by_their_fields(browser, orders):
    page = browser.page("/topics/__consumer_offsets/messages?value=&key=billing")
    assert any("OffsetCommit" in row[3] and row[5].startswith("internal") for row in hits(page))


def test_a_message_of_many_megabytes_is_shown_in_part_and_can_be_downloaded(tmp_path):
    size = 40 << 20
    options = {
        "message.max.bytes": str(size + 4096),
        "socket.request.max.bytes": str(2 * size),
        **NO_RETENTION,
    }
    with (
        odradek.Broker(options=options) as broker,
        Cluster(ClientSettings(broker.bootstrap_servers)) as cluster,
    ):
        topic = create_topic(cluster)
        produce_batch(cluster, topic, 0, build_batch([(0, NOW_MS, b"k", b"x" * size, ())]))
        produce(cluster, topic, 0, [b"small"])
        with browser_of(broker.bootstrap_servers) as browser:
            response = browser.get(f"/topics/{topic}")
            assert len(response.content) < 50_000
            assert [row[4].split()[-2:] for row in hits(Page(response.text))] == [["small"], ["41.9", "MB"]]
            page = browser.get(f"/topics/{topic}/messages/0/0")
            assert len(page.content) < 500_000
            assert "Only the beginning is shown" in page.text
            assert len(browser.get(f"/topics/{topic}/messages/0/0/value.bin").content) == size


def test_a_topic_that_goes_while_it_is_shown_is_a_sentence(browser, cluster):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"x"] * 60)
    page = browser.page(f"/topics/{topic}")
    delete_topics(cluster, [topic])
    for url in (
        next_link(page),
        f"/topics/{topic}/partitions",
        f"/topics/{topic}/configs",
        f"/topics/{topic}/messages/0/1",
    ):
        gone = browser.page(url)
        assert re.search("UNKNOWN_TOPIC|no topic", gone.text), url
        assert gone.all("a", href="/groups")


# Groups -----------------------------------------------------------------------------------------------


def test_groups_have_their_lag_in_records_and_in_time(browser, orders):
    (row,) = browser.page("/groups?filter=billing").body_rows
    assert row[:6] == ["billing", "Empty", "classic", "0", "2", "100"]
    assert re.fullmatch(r"\d+ d \d+ h|\d+ d", row[6])
    assert not browser.page("/groups?state=Stable&filter=billing").body_rows
    assert "billing" in browser.page("/groups?sort=lag&desc=1&type=classic").text


def test_a_group_has_its_partitions_members_and_a_forecast(browser, cluster, orders):
    page = browser.page("/group?id=billing")
    rows = [row for row in page.body_rows if row[0] == orders]
    assert [row[1:5] for row in rows] == [["0", "10", "100", "90"], ["1", "90", "100", "10"]]
    assert re.search(r"Lag 100 = \d+ d", page.text)
    assert "written 0/s" in page.text
    assert browser.get("/group?id=nobody").status_code == 404


@pytest.mark.parametrize(
    ("read", "written", "lag", "told"),
    [
        (None, 5.0, 10, "look again"),
        (210.0, 260.0, 48_120, "will not catch up"),
        (260.0, 60.0, 48_000, "has caught up in 4 min"),
        (0.0, 0.0, 7, "does not read"),
        (0.0, 0.0, 0, "has read all"),
    ],
)
def test_a_forecast_says_when_a_group_has_caught_up(read, written, lag, told):
    assert told in Forecast(read, written, lag).text


def test_a_seek_shows_first_and_moves_then(browser, cluster, orders):
    commit(cluster, "to-move", {(orders, 0): (10, ""), (orders, 1): (90, "")})
    fields = {"id": "to-move", "to": "+5", "topics": f"{orders}:0"}
    plan = browser.post("/group/seek", {**fields, "do": "plan"})
    assert plan.status_code == 200
    assert [orders, "0", "10", "15", "+5", "85"] in Page(plan.text).body_rows
    assert committed(cluster, "to-move", None, is_stable=True)[orders, 0] == (10, "")
    moved = browser.post("/group/seek", {**fields, "do": "seek"})
    assert (moved.status_code, moved.headers["location"]) == (303, "/group?id=to-move&moved=1")
    assert "Moved 1 partition." in browser.page(moved.headers["location"]).text
    assert committed(cluster, "to-move", None, is_stable=True) == {
        (orders, 0): (15, ""),
        (orders, 1): (90, ""),
    }


def test_a_seek_that_cannot_be_is_a_sentence(browser, cluster, orders):
    commit(cluster, "to-stay", {(orders, 0): (10, "")})
    for to, topics, told in (
        ("nowhere", "", "is not understood"),
        ("start", "no-such-topic", "does not exist"),
        ("+1", f"{orders}:2", "has no commit"),
    ):
        response = browser.post("/group/seek", {"id": "to-stay", "to": to, "topics": topics, "do": "seek"})
        assert told in Page(response.text).text, to
    assert committed(cluster, "to-stay", None, is_stable=True) == {(orders, 0): (10, "")}


def test_a_group_with_members_stays(browser, cluster, orders):
    request = JoinGroupRequest(
        group_id="in-use",
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert cluster.ask(coordinator_of("group", "in-use"), request, version_max=3).error_code == 0
    for path, fields in (
        ("/group/seek", {"id": "in-use", "to": "start", "topics": orders, "do": "seek"}),
        ("/group/delete", {"id": "in-use", "name": "in-use"}),
    ):
        assert re.search("is in use|NON_EMPTY_GROUP", browser.post(path, fields).text), path


def test_deleting_a_group_asks_for_its_name(browser, cluster, orders):
    commit(cluster, "to-delete", {(orders, 0): (10, "")})
    refused = browser.post("/group/delete", {"id": "to-delete", "name": "billing"})
    assert "nothing was deleted" in refused.text
    assert "to-delete" in [one.group for one in list_groups(cluster)]
    done = browser.post("/group/delete", {"id": "to-delete", "name": "to-delete"})
    assert (done.status_code, done.headers["location"]) == (303, "/groups")
    assert "to-delete" not in [one.group for one in list_groups(cluster)]


# Configs ----------------------------------------------------------------------------------------------


def value_of(cluster, topic, name):
    found = describe_configs(cluster, Resource(ResourceKind.TOPIC, topic))
    return next(one.value for one in found if one.name == name)


def test_an_option_is_checked_set_and_given_back(browser, cluster):
    topic = create_topic(cluster)
    fields = {"resource": f"topic:{topic}", "name": "retention.ms", "value": "86400000"}
    assert "retention.ms" not in browser.page(f"/topics/{topic}/configs").text
    assert ["retention.ms", "604800000", "604800000", "default"] in browser.page(
        f"/topics/{topic}/configs?all=1"
    ).body_rows
    checked = browser.post("/configs/change", {**fields, "do": "check"})
    assert "The brokers would take this: retention.ms from 604800000 to 86400000" in Page(checked.text).text
    assert value_of(cluster, topic, "retention.ms") == "604800000"
    assert "Changed: retention.ms" in Page(browser.post("/configs/change", {**fields, "do": "set"}).text).text
    assert value_of(cluster, topic, "retention.ms") == "86400000"
    rows = browser.page(f"/topics/{topic}/configs").body_rows
    assert ["retention.ms", "86400000", "topic"] in [row[:2] + row[3:] for row in rows]
    browser.post("/configs/change", {**fields, "do": "unset"})
    assert value_of(cluster, topic, "retention.ms") == "604800000"


def test_a_change_that_is_wrong_is_refused_with_what_was_typed_in_its_place(browser, cluster):
    topic = create_topic(cluster)
    for do in ("check", "set"):
        fields = {"resource": f"topic:{topic}", "name": "retention.ms", "value": "soon", "do": do}
        page = Page(browser.post("/configs/change", fields).text)
        assert "INVALID_CONFIG" in page.text or "retention.ms" in page.text
        assert page.all("input", name="value")[0]["value"] == "soon"
    assert value_of(cluster, topic, "retention.ms") == "604800000"


def test_brokers_lead_to_their_options(browser):
    assert browser.get("/configs").headers["location"] == "/brokers"
    page = browser.page("/brokers")
    (url,) = [link for link in page.links() if "broker%3A" in link]
    options = browser.page(f"{url}&filter=log.retention.hours")
    assert ["log.retention.hours", "168", "168", "default"] in options.body_rows
    assert browser.get("/configs?resource=nothing").status_code == 502


# Failures ---------------------------------------------------------------------------------------------


def test_brokers_that_are_away_are_a_sentence_on_each_page():
    with browser_of(f"127.0.0.1:{free_port()}", patience_ms=200) as browser:
        for url in (
            "/topics",
            "/topics/orders",
            "/topics/orders/partitions",
            "/topics/orders/configs",
            "/groups",
            "/brokers",
        ):
            page = browser.page(url)
            assert "No broker answered in 0.2 s" in page.text, url
            assert page.all("a", href="/groups")
        assert "No broker answered" in browser.page("/group?id=x", 404).text
        assert "No broker answered" in browser.page("/topics/orders/messages/0/1").text
        assert browser.get("/topics/orders/messages/0/1/value.bin").status_code == 503


def test_a_broker_that_comes_back_is_used_again(tmp_path):
    port = free_port()
    options = {"data_dir": tmp_path, "port": port}
    with browser_of(f"127.0.0.1:{port}", patience_ms=30_000) as browser:
        with (
            odradek.Broker(**options) as broker,
            Cluster(ClientSettings(broker.bootstrap_servers)) as cluster,
        ):
            topic = create_topic(cluster)
            assert topic in browser.page("/topics").text
        with odradek.Broker(**options):
            assert topic in browser.page("/topics").text


def test_the_theme_is_kept_and_is_one_of_two(browser):
    assert browser.post("/theme", {"theme": "dark", "next": "/groups"}).headers["location"] == "/groups"
    assert browser.page("/topics").all("html", **{"data-theme": "dark"})
    browser.post("/theme", {"theme": '"><script>', "next": "//evil.example"})
    assert not browser.page("/topics").all("html", **{"data-theme": "dark"})
