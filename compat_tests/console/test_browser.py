"""The console in Chromium: each screen light, dark and on a phone; by keys alone; without scripts."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from compat_tests.console.conftest import KINDS, PASSWORD, TIMEOUT_MS, USER, Open
from compat_tests.console.page_checks import check_page
from odradek.client.cluster import Cluster
from odradek.client.group_offsets import commit, committed
from odradek.wire.records import build_batch
from tests.client.topics import create_topic, produce, produce_batch
from tests.console.test_nasty import NUMBER, messages

expect.set_options(timeout=TIMEOUT_MS)

SCREENS = {
    "topics": "/topics",
    "messages": "/topics/orders",
    "search": "/topics/orders/messages?value=refund&rows=25",
    "nasty": "/topics/nasty",
    "message": "/topics/orders/messages/0/3",
    "decoded": "/topics/decoded",
    "not-decoded": "/topics/decoded/messages/0/1",
    "produce": "/produce?topic=orders",
    "produce-again": "/produce?topic=orders&from=0-3",
    "partitions": "/topics/orders/partitions",
    "topic-configs": "/topics/orders/configs?edit=retention.ms&all=1",
    "groups": "/groups",
    "group": "/group?id=billing",
    "brokers": "/brokers",
    "broker-configs": "/configs?resource=broker:1&edit=log.retention.ms",
    "failure": "/topics/no-such-topic",
}

STRANGE = """() => [...document.querySelectorAll("*")]
  .filter((e) => e.localName.startsWith("x-evil") || /^(img|iframe|base|object|style)$/.test(e.localName) ||
    [...e.attributes].some((a) => a.name.startsWith("on")))
  .map((e) => e.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("screen", SCREENS)
def test_each_screen_is_whole(
    open_page: Open, shoot: Callable[[Page, str], None], kind: str, screen: str
) -> None:
    page = open_page(kind, SCREENS[screen])
    shoot(page, f"{screen}-{kind}")
    check_page(page, is_phone=kind == "phone")


def test_the_screen_of_a_seek_is_whole(open_page: Open, shoot: Callable[[Page, str], None]) -> None:
    for kind in KINDS:
        page = open_page(kind, "/group?id=billing")
        page.get_by_label("To", exact=True).fill("-100")
        page.get_by_role("button", name="Dry run").click()
        expect(page.get_by_text("Nothing has been moved yet")).to_be_visible()
        shoot(page, f"seek-{kind}")
        check_page(page, is_phone=kind == "phone")


def test_the_login_is_whole_and_a_wrong_password_is_told(
    open_page: Open, url_with_login: str, shoot: Callable[[Page, str], None]
) -> None:
    for kind in KINDS:
        page = open_page(kind, "/groups", url_with_login)
        expect(page).to_have_url(re.compile("/login"))
        expect(page.get_by_label("User")).to_be_focused()
        shoot(page, f"login-{kind}")
        check_page(page, is_phone=kind == "phone")
    page.get_by_label("User").fill(USER)
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/groups$"))
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(re.compile("/login$"))


def test_messages_that_are_html_are_texts(open_page: Open) -> None:
    """The page that is watched opens no dialog."""
    page = open_page(path="/topics/nasty")
    expect(page.get_by_text("<img src=x onerror=alert(1)>")).to_be_visible()
    page = open_page(path="/groups")
    expect(page.get_by_role("link", name="audit <script>alert(1)</script>")).to_be_visible()


def test_500_nasty_messages_run_nothing(open_page: Open, cluster: Cluster) -> None:
    """Scripts, signs of direction and bytes of all kinds: the watched page has no complaint of the policy."""
    topic = create_topic(cluster, name="nasty-500")
    rows = [(at, 1_764_500_000_000 + at, content, content, headers) for at, content, headers in messages()]
    assert len(rows) == NUMBER
    for first in range(0, NUMBER, 50):
        some = [(at, *row[1:]) for at, row in enumerate(rows[first : first + 50])]
        produce_batch(cluster, topic, 0, build_batch(some))
    page = open_page(path=f"/topics/{topic}/messages?rows=200&order=oldest")
    seen = 0
    while True:
        seen += page.locator("tbody tr").count()
        strange = page.evaluate(STRANGE)
        assert strange == []
        following = page.get_by_role("link", name="Later").first
        if not following.count():
            break
        following.click()
        page.wait_for_load_state("load")
    assert seen == NUMBER
    for offset in range(0, NUMBER, 23):
        page.goto(f"/topics/{topic}/messages/0/{offset}")
        assert page.evaluate(STRANGE) == []
        page.goto(f"/produce?topic={topic}&from=0-{offset}")
        assert page.evaluate(STRANGE) == []


def test_a_message_is_copied_and_produced_again(open_page: Open, cluster: Cluster) -> None:
    topic = create_topic(cluster, name="again")
    produce(cluster, topic, 0, [b'{"a": 1}\n'])
    page = open_page(path=f"/topics/{topic}/messages/0/0", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").last.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert "a" in page.evaluate("navigator.clipboard.readText()")
    page.get_by_role("link", name="Produce again").click()
    expect(page.get_by_label("Value", exact=True)).to_have_value('{"a": 1}\n')
    page.get_by_role("button", name="Write it").click()
    expect(page.get_by_role("status")).to_contain_text("Written to partition 0, at offset 1.")
    plain = open_page(path=f"/produce?topic={topic}", java_script_enabled=False)
    plain.get_by_label("Value", exact=True).fill("without scripts")
    plain.get_by_role("button", name="Write it").click()
    expect(plain.get_by_role("status")).to_contain_text("at offset 2.")


# Keys -------------------------------------------------------------------------------------------------


def arrived(page: Page, pattern: str) -> None:
    """The page is there, with its script."""
    expect(page).to_have_url(re.compile(pattern))
    page.wait_for_load_state("load")


def test_keys_lead_everywhere(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("Tab")
    expect(page.get_by_text("To the content")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("g")
    arrived(page, "/groups$")
    page.keyboard.press("g")
    page.keyboard.press("t")
    arrived(page, "/topics$")
    page.keyboard.press("/")
    expect(page.get_by_label("Filter")).to_be_focused()
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    arrived(page, "filter=orders")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="orders")).to_be_focused()
    page.keyboard.press("Enter")
    arrived(page, "/topics/orders$")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    arrived(page, r"/messages/2/99")
    page.go_back()
    page.keyboard.press("n")
    arrived(page, "at=")


def test_the_list_of_keys_opens_and_closes(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_keys_in_a_field_are_letters(open_page: Open) -> None:
    page = open_page()
    page.get_by_label("Filter").focus()
    page.keyboard.type("gg/?jk")
    expect(page.get_by_label("Filter")).to_have_value("gg/?jk")
    expect(page).to_have_url(re.compile("/topics$"))


def test_what_has_the_focus_is_seen(open_page: Open) -> None:
    page = open_page(path="/topics/orders")
    widths = []
    for _ in range(12):
        page.keyboard.press("Tab")
        widths.append(page.evaluate("getComputedStyle(document.activeElement).outlineWidth"))
    assert set(widths) == {"2px"}


# Tail -------------------------------------------------------------------------------------------------


def test_a_tail_shows_what_comes_as_texts(open_page: Open, cluster: Cluster) -> None:
    topic = create_topic(cluster, name="tailed")
    page = open_page(path="/topics/tailed")
    tail = page.get_by_role("button", name="Tail")
    tail.click()
    expect(tail).to_have_attribute("aria-pressed", "true")
    expect(page.locator("[data-state]")).to_contain_text("tail: 0 new")
    produce(cluster, topic, 0, [b"<b>first</b><img src=x onerror=alert(1)>", b"second"])
    expect(page.get_by_text("<b>first</b><img src=x onerror=alert(1)>")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("second")
    expect(page.locator("[data-state]")).to_contain_text("tail: 2 new")
    tail.click()
    expect(tail).to_have_attribute("aria-pressed", "false")


# Without scripts --------------------------------------------------------------------------------------


def test_without_scripts_a_person_searches_and_goes_on(open_page: Open) -> None:
    page = open_page(path="/topics/orders", java_script_enabled=False)
    expect(page.get_by_role("button", name="Tail")).to_be_hidden()
    page.get_by_label("Value", exact=True).fill("refund")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Rows").select_option("25")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(25)
    page.get_by_role("link", name="Go on").first.click()
    expect(page.locator("tbody tr")).to_have_count(5)
    expect(page.get_by_text("searched 300 of 300, 30 hits")).to_be_visible()


def test_without_scripts_a_person_moves_a_group(open_page: Open, cluster: Cluster) -> None:
    commit(cluster, "moved", {("orders", 0): (10, "")})
    page = open_page("phone", "/group?id=moved", java_script_enabled=False)
    page.get_by_label("To", exact=True).fill("end")
    page.get_by_role("button", name="Dry run").click()
    page.get_by_role("button", name="Move 1 partition").click()
    expect(page.get_by_text("Moved 1 partition.")).to_be_visible()
    assert committed(cluster, "moved", None, is_stable=True) == {("orders", 0): (100, "")}


def test_without_scripts_a_person_chooses_a_theme(open_page: Open) -> None:
    page = open_page(path="/groups", java_script_enabled=False)
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page).to_have_url(re.compile("/groups$"))
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_a_thousand_topics_are_sorted_and_filtered_by_links(open_page: Open) -> None:
    page = open_page("desktop", "/topics?filter=many-", java_script_enabled=False)
    expect(page.locator("tbody tr")).to_have_count(100)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("tbody tr").first).to_contain_text("many-0100")
    page.goto(page.url.partition("?")[0])
    page.get_by_role("link", name="Records", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Records")
    texts = page.locator("tbody td[data-label=Records]").all_inner_texts()
    counts = [int(text.replace(",", "")) for text in texts]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 0
