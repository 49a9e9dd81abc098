"""The screens of facts that only brokers tell, in Chromium, at the console that a broker has started."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

import odradek
from compat_tests.console.conftest import KINDS, TIMEOUT_MS, Open
from compat_tests.console.page_checks import check_page
from odradek.client.cluster import Cluster
from odradek.client.group_offsets import commit
from odradek.client.settings import ClientSettings
from tests.client.topics import Transactions, create_topic, produce
from tests.console.conftest import NO_RETENTION

expect.set_options(timeout=TIMEOUT_MS)

SCREENS = {
    "overview": "/overview",
    "connections": "/connections",
    "slow": "/slow",
    "writers": "/topics/orders/writers",
    "segments": "/topics/orders/segments",
}


@pytest.fixture(scope="module")
def own_url() -> Iterator[str]:
    """The console of a broker with segments, writers, an open transaction, slow requests, and rates."""
    options = {**NO_RETENTION, "odradek.log.slow.request.ms": 0, "log.segment.bytes": 1 << 20}
    with (
        odradek.Broker(console=True, options=options) as broker,
        Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1, client_id="shop-api")) as cluster,
    ):
        topic = create_topic(cluster, partitions=3, name="orders")
        commit(cluster, "billing", {(topic, 0): (0, "")})
        urllib.request.urlopen(f"{broker.console_url}/connections").close()
        began_ms = time.time_ns() // 1_000_000
        for number in range(12):
            produce(cluster, topic, 0, [os.urandom(300_000)], timestamp=began_ms + number)
        open_transaction(cluster, topic)
        until_there_are_rates(broker.console_url, lambda: produce(cluster, topic, 1, [b"x" * 1000]))
        yield broker.console_url


def open_transaction(cluster: Cluster, topic: str) -> None:
    """A transaction that nobody ends."""
    Transactions(cluster, "pay-7", timeout_ms=900_000).write(topic, 2, [b"x"])


def until_there_are_rates(url: str, work: Callable[[], object]) -> None:
    """Works until the history has two steps."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while True:
        work()
        with urllib.request.urlopen(f"{url}/overview/rates") as response:
            found = json.load(response)
        if found and len(found["traffic"][0]) >= 2:
            return
        assert time.monotonic() < deadline, "no rates"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("screen", SCREENS)
def test_each_screen_is_whole(
    open_page: Open, shoot: Callable[[Page, str], None], own_url: str, kind: str, screen: str
) -> None:
    page = open_page(kind, SCREENS[screen], own_url)
    page.wait_for_load_state("load")
    if screen == "overview":
        expect(page.locator("canvas").first).to_be_visible()
    shoot(page, f"own-{screen}-{kind}")
    check_page(page, is_phone=kind == "phone")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("screen", SCREENS)
def test_each_screen_says_that_other_brokers_do_not_tell(open_page: Open, kind: str, screen: str) -> None:
    page = open_page(kind, SCREENS[screen])
    expect(page.get_by_text("Kafka's protocol has no request for it")).to_be_visible()
    check_page(page, is_phone=kind == "phone")


@pytest.mark.parametrize("screen", SCREENS)
def test_each_screen_works_without_scripts(open_page: Open, own_url: str, screen: str) -> None:
    page = open_page("desktop", SCREENS[screen], own_url, java_script_enabled=False)
    expect(page.locator("h1")).to_be_visible()
    if screen == "overview":
        assert page.locator(".plot svg polyline").count() >= 4
        expect(page.locator(".plot svg").first).to_be_visible()
        assert page.locator("canvas").count() == 0
    if screen == "segments":
        assert page.locator("svg.segments rect").count() == 4


def test_the_overview_has_plots_and_leads_on(open_page: Open, own_url: str) -> None:
    page = open_page("desktop", "/", own_url)
    expect(page).to_have_url(re.compile("/overview$"))
    expect(page.locator("canvas")).to_have_count(4)
    # Who does not see the canvas has the picture's name.
    expect(page.get_by_role("img", name="Bytes a second, the last hour")).to_have_count(1)
    page.get_by_role("navigation", name="Cluster").get_by_role("link", name="Connections").click()
    expect(page.get_by_role("cell", name="shop-api").or_(page.get_by_text("shop-api")).first).to_be_visible()
    page.get_by_label("Filter").fill("no such client")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No connection is as you look for")).to_be_visible()


def test_writers_have_their_connection_and_their_transaction(open_page: Open, own_url: str) -> None:
    page = open_page("desktop", "/topics/orders/writers", own_url)
    expect(page.get_by_role("row", name=re.compile("shop-api"))).to_be_visible()
    row = page.get_by_role("row", name=re.compile("pay-7"))
    expect(row).to_contain_text("open")
    expect(row).to_contain_text("holds readers at 0")


def test_keys_lead_to_the_overview_and_between_partitions(open_page: Open, own_url: str) -> None:
    page = open_page("desktop", "/topics/orders/segments", own_url)
    page.wait_for_load_state("load")
    page.keyboard.press("n")
    expect(page).to_have_url(re.compile("partition=1$"))
    page.wait_for_load_state("load")
    page.keyboard.press("p")
    expect(page).to_have_url(re.compile("partition=0$"))
    page.wait_for_load_state("load")
    page.keyboard.press("j")
    expect(page.locator("tr.current")).to_have_count(1)
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page).to_have_url(re.compile("/overview$"))
