"""Pages about a cluster of which a node is away: a sentence tells it, and the rest of each page is there."""

import time

import pytest

import odradek
from odradek.client.admin.replicas import move_partitions
from odradek.client.admin.topics import create_topic
from odradek.client.cluster import Cluster
from odradek.client.group_offsets import commit
from odradek.client.settings import ClientSettings
from tests.client.topics import Transactions, produce
from tests.console.browsers import browser_of

DEADLINE_S = 120
AWAY = 3


@pytest.fixture(scope="module")
def nodes():
    """Three nodes, the last of which is killed after it has led, held and coordinated something."""
    with (
        odradek.Cluster(
            nodes=3, min_insync_replicas=1, options={"broker.session.timeout.ms": "60000"}
        ) as cluster,
        Cluster(ClientSettings(cluster.bootstrap_servers, retry_ms=10)) as connected,
    ):
        create_topic(connected, "spread", 6, {}, replication_factor=3)
        for partition in range(6):
            produce(connected, "spread", partition, [b"v"] * 3)
        commit(connected, "billing", {("spread", 0): (1, "")})
        Transactions(connected, "pay-7").write("spread", 0, [b"v"])
        yield cluster, connected


@pytest.fixture(scope="module")
def browser(nodes):
    with browser_of(nodes[0].bootstrap_servers, patience_ms=1_500) as opened:
        yield opened


def until(found):
    """The first result that is not empty, within the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        result = found()
        if result:
            return result
        assert time.monotonic() < deadline


def row_of(page, first):
    return next((row for row in page.body_rows if row[0] == first), None)


def test_all_nodes_are_there(browser):
    page = browser.page("/brokers")
    rows = [row for row in page.body_rows if row[0] in ("1", "2", "3")]
    assert [row[3].partition(",")[0] for row in rows] == ["in service"] * 3
    assert sum(int(row[6]) for row in rows) > 6
    assert {row[0] for row in browser.page("/brokers/log-dirs").body_rows} >= {"1", "2", "3"}
    quorum = [row[1] for row in browser.page("/brokers/quorum").body_rows]
    assert "leader" in quorum
    assert quorum.count("observer") == 3


def test_a_move_that_runs_is_shown(browser, nodes):
    _, connected = nodes
    create_topic(connected, "moved", 1, {}, replication_factor=1)
    assert "Nothing is being moved" in browser.page("/brokers/moves").text
    assert move_partitions(connected, {("moved", 0): [1, 2]}) == []
    # The move may be over before the page is there.
    until(lambda: row_of(browser.page("/brokers/replicas?filter=moved"), "moved")[3] == "1, 2")
    (row,) = [row for row in browser.page("/brokers/replicas?filter=moved").body_rows if row[0] == "moved"]
    assert row[1] == "0"


def test_a_node_that_is_away_is_a_sentence_and_the_others_are_shown(browser, nodes):
    cluster, _ = nodes
    cluster.node(AWAY).kill()
    page = browser.page("/brokers")
    assert row_of(page, "1")[3].startswith("in service")
    assert row_of(page, "2")[3].startswith("in service")
    assert row_of(page, str(AWAY))[3].partition(",")[0] in ("does not answer", "fenced")
    dirs = browser.page("/brokers/log-dirs")
    assert {row[0] for row in dirs.body_rows} >= {"1", "2"}
    assert str(AWAY) not in {row[0] for row in dirs.body_rows}
    assert row_of(browser.page("/brokers/features"), "metadata.version")
    for url, first in (("/groups", "billing"), ("/transactions", "pay-7")):
        found = until(lambda url=url, first=first: row_of(browser.page(url), first))
        assert found[0] == first, url


def test_replicas_of_a_node_that_is_away_are_not_in_sync(browser):
    def lost():
        page = browser.page(f"/brokers/replicas?state=under-replicated&broker={AWAY}&filter=spread")
        return [row for row in page.body_rows if row[0] == "spread"]

    rows = until(lambda: lost() if len(lost()) == 6 else None)
    assert all(str(AWAY) in row[3] and str(AWAY) not in row[4] for row in rows)
    until(lambda: row_of(browser.page("/brokers"), str(AWAY))[8] not in ("0", "-"))
    assert row_of(browser.page("/brokers"), "1")[8] == "0"


def test_a_node_that_comes_back_is_in_service(browser, nodes):
    nodes[0].node(AWAY).start()
    until(lambda: row_of(browser.page("/brokers"), str(AWAY))[3].startswith("in service"))
    until(lambda: row_of(browser.page("/brokers/log-dirs"), str(AWAY)))
