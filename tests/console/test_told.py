"""Facts that brokers tell their console alone: what they say, and to whom."""

import itertools
import json
import math
import os
import re
import time

import pytest

import odradek
from odradek.client.admin.acls import Acl, add_acls
from odradek.client.admin.configs import Change, Resource, ResourceKind, alter_configs
from odradek.client.admin.configs import Operation as Doing
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.console.access import Forbidden
from odradek.console.broker_admin import ask_brokers
from odradek.console.screens.overview import Look, look_at_groups, look_at_nodes, merged, plots
from odradek.console.screens.segments import blocks
from odradek.embedding.free_port import free_port
from odradek.server.web_console.history import POINTS, SERIES_MAX, History
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from tests.client.topics import create_topic, produce
from tests.console.browsers import Page, browser_of
from tests.console.conftest import NO_RETENTION, write_orders
from tests.console.hosted import get, logged_in, short_place, until

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ANONYMOUS = {"principal": "User:ANONYMOUS", "host": "127.0.0.1"}


@pytest.fixture(scope="module")
def told():
    """A broker in a process with a console, a cluster of it, and a function that asks its socket."""
    with short_place() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        options = {**NO_RETENTION, "odradek.log.slow.request.ms": 0, "log.cleaner.backoff.ms": 50}
        with (
            odradek.Broker(process=True, console=True, options=options) as broker,
            Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1, client_id="shop-api")) as cluster,
        ):
            (sockets,) = folder.glob("odradek-console-*")

            def asked(operation, **arguments):
                (one,) = ask_brokers(str(sockets), operation, **{**ANONYMOUS, **arguments})
                return one

            yield broker, cluster, asked


def page(broker, path, status=200, **headers):
    found, _, text = get(broker.console_url, path, **headers)
    assert found == status, text
    return Page(text)


# Connections and writers ------------------------------------------------------------------------------


def test_connections_are_those_that_are_open(told):
    _, cluster, asked = told
    produce(cluster, create_topic(cluster), 0, [b"x" * 1000])
    rows = asked("connections")["rows"]
    mine = [row for row in rows if row["client_id"] == "shop-api"]
    assert mine
    for row in mine:
        assert row["principal"] == "User:ANONYMOUS"
        assert (row["host"], row["listener"]) == ("127.0.0.1", "PLAINTEXT")
        assert row["software"] == "odradek"
        assert row["requests"] >= 1
    with Cluster(ClientSettings(cluster.settings.bootstrap_servers, client_id="other")) as other:
        create_topic(other)
        assert "other" in {row["client_id"] for row in asked("connections")["rows"]}
    until(
        lambda: "other" not in {row["client_id"] for row in asked("connections")["rows"]},
        "the end of the connection",
    )


def test_requests_of_a_connection_are_counted_exactly(told):
    _, cluster, asked = told
    topic = create_topic(cluster)

    def requests():
        return sum(row["requests"] for row in asked("connections")["rows"] if row["client_id"] == "shop-api")

    produce(cluster, topic, 0, [b"x"])  # after it the leader is known
    before = requests()
    for _ in range(7):
        produce(cluster, topic, 0, [b"x"])
    assert requests() == before + 7


def test_writers_are_those_who_write_with_their_partitions_and_rates(told):
    broker, cluster, asked = told
    topic = create_topic(cluster, partitions=3)
    asked("writers", topic=topic)  # from now on it is watched
    for partition in (0, 2, 2, 2):
        produce(cluster, topic, partition, [b"x" * 10_000])
    (row,) = asked("writers", topic=topic)["rows"]
    assert row["client_id"] == "shop-api"
    assert row["partitions"] == [0, 2]
    assert row["bytes_per_second"] > 100
    found = page(broker, f"/topics/{topic}/writers")
    assert any(cells[0] == "shop-api" for cells in found.body_rows)
    assert asked("writers", topic=create_topic(cluster))["rows"] == []


def test_a_topic_that_is_not_there_has_no_writers(told):
    broker, _, asked = told
    with pytest.raises(ClientError, match="there is no topic no-such"):
        asked("writers", topic="no-such")
    assert "There is no topic no-such" in page(broker, "/topics/no-such/writers", 404).text
    page(broker, "/topics/no-such/segments", 404)


def test_slow_requests_are_kept_in_a_bounded_ring(told):
    broker, cluster, asked = told
    topic = create_topic(cluster)
    for _ in range(210):
        produce(cluster, topic, 0, [b"x"])
    slow = asked("slow")
    assert slow["slow_ms"] == 0
    assert len(slow["rows"]) == 200
    assert slow["rows"][-1]["api"] == "Produce"
    assert slow["rows"][-1]["client_id"] == "shop-api"
    assert not {"Fetch", "JoinGroup"} & {row["api"] for row in slow["rows"]}
    assert "Produce v" in page(broker, "/slow").text
    # The log has them, too.
    assert "slow request: Produce" in broker.log()


# Segments ---------------------------------------------------------------------------------------------


def test_segments_are_the_files_of_the_partition(told):
    broker, cluster, asked = told
    topic = create_topic(cluster)
    change(cluster, topic, {"segment.bytes": "1048576", "retention.ms": str(400 * 86_400_000)})
    now_ms = time.time_ns() // 1_000_000
    for _ in range(5):
        produce(cluster, topic, 0, [os.urandom(300_000)], timestamp=now_ms)
    told_now = asked("segments", topic=topic, partition=0)
    rows = told_now["rows"]
    files = sorted((broker.data_dir / f"{topic}-0").glob("*.log"))
    assert [row["name"] for row in rows] == [path.name for path in files]
    assert [row["size_bytes"] for row in rows] == [path.stat().st_size for path in files]
    assert [row["base_offset"] for row in rows] == [int(path.stem) for path in files]
    assert len(rows) == 2
    assert [row["is_active"] for row in rows] == [False, True]
    assert [row["batches"] for row in rows] == [3, 2]
    assert [row["codecs"] for row in rows] == [["none"], ["none"]]
    assert all(row["due_ms"] == row["latest_ms"] + 400 * 86_400_000 for row in rows)
    facts = told_now["partition"]
    assert (facts["log_start_offset"], facts["log_end_offset"], facts["high_watermark"]) == (0, 5, 5)
    text = page(broker, f"/topics/{topic}/segments").text
    assert "High watermark 5" in text
    assert "goes in" in text


def test_a_compacted_segment_is_told_as_cleaned(told):
    broker, cluster, asked = told
    topic = create_topic(cluster)
    change(cluster, topic, {"cleanup.policy": "compact", "segment.bytes": "1048576"})
    for _ in range(5):
        produce(cluster, topic, 0, [os.urandom(300_000)])
    broker.compact(topic)
    rows = asked("segments", topic=topic, partition=0)["rows"]
    assert [row["is_active"] for row in rows][-1]
    assert all(row["is_cleaned"] for row in rows[:-1])
    assert not rows[-1]["is_cleaned"]
    assert "stays" in page(broker, f"/topics/{topic}/segments").text


def change(cluster, topic, values):
    resource = Resource(ResourceKind.TOPIC, topic)
    alter_configs(cluster, resource, [Change(name, Doing.SET, value) for name, value in values.items()])


def test_the_picture_has_each_segment_within_its_width():
    rows = [{"size_bytes": size} for size in (0, 1, 10**9, 5, 10**9)]
    found = blocks(rows)
    assert [one["size_bytes"] for one in found] == [0, 1, 10**9, 5, 10**9]
    assert all(one["width"] >= 4 for one in found)
    assert all(a["x"] + a["width"] < b["x"] for a, b in itertools.pairwise(found))
    assert found[-1]["x"] + found[-1]["width"] <= 1000
    assert blocks([]) == []


# Rates ------------------------------------------------------------------------------------------------


def test_rates_are_those_of_what_was_written(told):
    broker, cluster, asked = told
    topic = create_topic(cluster, name="busy")
    first = asked("rates")["noted"]
    produced = 0
    while asked("rates")["noted"] < first + 2:
        produce(cluster, topic, 0, [b"x" * 1000] * 10)
        produced += 1
    rates = asked("rates")
    assert rates["step_s"] == 10
    whole = sum(value or 0 for value in rates["topics"]["busy"]["in"]) * rates["step_s"]
    # What came after the last step is not in it; what the step of ten seconds lacks is within a tenth.
    assert 1000 * 10 <= whole <= 1.2 * produced * 10_100
    assert rates["series"]["requests"][-1] > 0
    assert 0 < rates["series"]["disk_used"][-1] < 1
    found = page(broker, "/overview")
    assert {one["data-plot"] for one in found.all("div") if "data-plot" in one} == {
        "traffic",
        "requests",
        "p99",
        "disk",
    }
    assert found.all("polyline")
    status, headers, text = get(broker.console_url, "/overview/rates")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert len(json.loads(text)["traffic"]) == 3


def test_the_history_is_bounded_and_keeps_an_hour():
    history = History()
    for step in range(400):
        history.note(1000 * step, {"a": float(step), **({"b": 1.0} if step % 2 else {})})
    assert history.values("a") == [float(step) for step in range(400 - POINTS, 400)]
    assert history.values("a", 3) == [397.0, 398.0, 399.0]
    assert history.values("b", 4) == [None, 1.0, None, 1.0]
    assert history.values("none", 2) == [None, None]
    many = History()
    many.note(0, {f"s{number}": 1.0 for number in range(300)})
    assert len(many) == SERIES_MAX
    assert 8 * POINTS * SERIES_MAX < 600_000


def test_a_quiet_series_makes_room_for_a_busy_one():
    history = History(points=3, series_max=2)
    history.note(0, {"a": 1.0, "b": 1.0})
    history.note(1, {"a": 1.0, "b": 0.0, "c": 5.0})
    assert set(history.names) == {"a", "b"}
    history.note(2, {"a": 1.0, "b": 0.0})
    history.note(3, {"a": 1.0, "b": 0.0})
    history.note(4, {"a": 1.0, "b": 0.0, "c": 5.0})
    assert set(history.names) == {"a", "c"}
    assert history.values("c") == [None, None, 5.0]


def of_node(node_id, **series):
    return {
        "node_id": node_id,
        "noted": 2,
        "step_s": 10,
        "last_ms": 50_000 + node_id,
        "series": series,
        "topics": {"t": {"in": [1.0, 2.0], "out": [0.0, None]}},
        "started_ms": 7,
        "version": "0",
        "connections": 3,
        "reasons_not_ready": ["groups are being loaded"] if node_id == 2 else [],
        "disks": [{"path": "/d", "seconds_until_full": 86_400.0 if node_id == 1 else None}],
    }


def test_rates_of_several_brokers_are_added_and_the_slowest_counts():
    nodes = [
        of_node(1, bytes_in=[1.0, 2.0], p99_ms=[1.0, 5.0]),
        of_node(2, bytes_in=[None, 3.0], p99_ms=[2.0, 4.0]),
    ]
    rates = merged(nodes)
    assert rates.series == {"bytes_in": [1.0, 5.0], "p99_ms": [2.0, 5.0]}
    assert rates.topics == {"t": {"in": [2.0, 4.0], "out": [0.0, None]}}
    assert rates.times_s == pytest.approx([40.002, 50.002])
    assert rates.connections == 6
    assert [one["name"] for one in plots(rates)] == ["traffic", "requests", "p99", "disk"]
    assert [one.text for one in look_at_nodes(nodes)] == [
        "/d of broker 1 is full in 1 d at this rate",
        "broker 2: groups are being loaded",
    ]
    assert not any(math.isnan(value) for one in plots(rates) for line in one["lines"] for value in line)


def test_groups_that_are_behind_or_grow_are_to_be_looked_at():
    rows = [
        {"group": "far", "lag": 48_120, "lag_seconds": 240.0},
        {"group": "near", "lag": 5, "lag_seconds": 3.0},
        {"group": "grows", "lag": 50, "lag_seconds": 3.0},
        {"group": "read", "lag": 0, "lag_seconds": None},
    ]
    assert look_at_groups(rows, {"grows": 20, "near": 5, "far": 1}) == [
        Look("group far is 4 min behind (48,120 records), growing", "/group?id=far"),
        Look("group grows is 3 s behind (50 records), growing", "/group?id=grows"),
    ]


# Who may see what -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured():
    """A broker with ACLs, where ann may do all, and bob may describe the topic `shown`; the cookies of both
    at its console; and the folder of its socket."""
    ports = {"SASL_PLAINTEXT": free_port(), "PLAINTEXT": free_port()}
    jaas = f'{PLAIN} user_ann="ann\'s" user_bob="bob\'s";'
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:ann",
        **NO_RETENTION,
    }
    rule = Acl(
        *(ResourceType.TOPIC, "shown", PatternType.LITERAL, "User:bob", "*"),
        *(Operation.DESCRIBE, Permission.ALLOW),
    )
    with short_place() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        with (
            odradek.Broker(process=True, console=True, options=options) as broker,
            Cluster(ClientSettings(f"127.0.0.1:{ports['PLAINTEXT']}", retry_ms=1)) as cluster,
        ):
            for name in ("shown", "hidden"):
                produce(cluster, create_topic(cluster, name=name), 0, [b"x"])
            assert add_acls(cluster, [rule]) == []
            cookies = {user: logged_in(broker.console_url, user, f"{user}'s") for user in ("ann", "bob")}
            (sockets,) = folder.glob("odradek-console-*")
            yield broker, cookies, str(sockets), cluster


@pytest.mark.parametrize(
    ("path", "ann_sees"),
    [("/connections", "SASL_PLAINTEXT"), ("/slow", "Requests of"), ("/overview", "Connections")],
)
def test_facts_of_the_cluster_need_the_right_to_describe_it(secured, path, ann_sees):
    broker, cookies = secured[:2]
    seen = page(broker, path, cookie=cookies["ann"]).text
    assert ann_sees in seen
    assert "DESCRIBE on the cluster" not in seen
    refused = page(broker, path, cookie=cookies["bob"])
    assert "needs the right DESCRIBE on the cluster" in refused.text
    assert ann_sees not in refused.text or path == "/overview"


@pytest.mark.parametrize("tab", ["segments", "writers"])
def test_facts_of_a_topic_need_the_right_to_describe_it(secured, tab):
    broker, cookies = secured[:2]
    assert page(broker, f"/topics/shown/{tab}", cookie=cookies["bob"]).text
    text = page(broker, f"/topics/hidden/{tab}", 404, cookie=cookies["bob"]).text
    assert "High watermark" not in text
    assert "needs the right DESCRIBE on hidden" in text or "AUTHORIZATION" in text
    assert page(broker, f"/topics/hidden/{tab}", cookie=cookies["ann"]).text


OPERATIONS = {
    "rates": {},
    "connections": {},
    "slow": {},
    "writers": {"topic": "hidden"},
    "segments": {"topic": "hidden", "partition": 0},
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_socket_decides_whatever_the_console_shows(secured, operation):
    sockets = secured[2]
    arguments = OPERATIONS[operation]
    assert ask_brokers(sockets, operation, principal="User:ann", host="10.0.0.9", **arguments)
    for user in ("User:bob", "User:nobody"):
        with pytest.raises(Forbidden):
            ask_brokers(sockets, operation, principal=user, host="10.0.0.9", **arguments)
    for principal in ("Worker:odradek", "", "ann"):
        with pytest.raises(ClientError, match="the principal is not a user"):
            ask_brokers(sockets, operation, principal=principal, host="10.0.0.9", **arguments)


def test_a_person_sees_the_rates_of_topics_that_they_may_describe(secured):
    broker, cookies, sockets, cluster = secured

    def have_rates():
        for name in ("shown", "hidden"):
            produce(cluster, name, 0, [b"x"])
        return {"shown", "hidden"} <= ask_brokers(sockets, "rates", principal="User:ann", host="")[0][
            "topics"
        ].keys()

    until(have_rates, "rates of both topics")
    assert "hidden" in page(broker, "/overview", cookie=cookies["ann"]).text
    assert "hidden" not in page(broker, "/overview", cookie=cookies["bob"]).text


@pytest.mark.parametrize(
    "arguments", [{"topic": 7, "partition": 0}, {"topic": "shown", "partition": "0"}, {"topic": "shown"}]
)
def test_a_wrong_request_is_refused(secured, arguments):
    with pytest.raises(ClientError, match="the request is wrong"):
        ask_brokers(secured[2], "segments", principal="User:ann", host="", **arguments)
    with pytest.raises(ClientError, match="no such operation"):
        ask_brokers(secured[2], "faults", principal="User:ann", host="")


def test_other_brokers_do_not_tell_and_the_pages_say_so(broker, cluster):
    write_orders(cluster, create_topic(cluster, partitions=1, name="plain"), 20, partitions=1)
    with browser_of(broker.bootstrap_servers) as browser:
        for path in ("/connections", "/slow", "/topics/plain/segments", "/topics/plain/writers"):
            text = browser.page(path).text
            assert "no request for it" in text, path
            assert "odradek serve --console" in text
        text = browser.page("/overview").text
        assert "no request for it" in text
        assert "Topics" in text
        assert browser.get("/overview/rates").status_code == 503
        assert re.search(r"No producer with an id", browser.page("/topics/plain/writers").text)


def test_without_a_folder_it_is_a_sentence_and_with_an_empty_one_too(tmp_path):
    with pytest.raises(ClientError, match="no request for it"):
        ask_brokers(None, "rates", **ANONYMOUS)
    with pytest.raises(ClientError, match="no broker tells"):
        ask_brokers(str(tmp_path), "rates", **ANONYMOUS)
    with pytest.raises(ClientError, match="no broker tells"):
        ask_brokers(str(tmp_path / "gone"), "rates", **ANONYMOUS)
