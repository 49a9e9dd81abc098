"""Screens of transactions, share groups, access, nodes and changes of topics in Chromium."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

import odradek
from compat_tests.console.conftest import KINDS, TIMEOUT_MS, Open
from compat_tests.console.page_checks import check_page
from odradek.client.admin.acls import Acl, AclFilter, add_acls, describe_acls
from odradek.client.admin.groups import alter_share_offsets, list_groups, offsets_of_groups
from odradek.client.admin.quotas import alter_quotas, describe_quotas
from odradek.client.admin.topics import describe_topics
from odradek.client.admin.users import describe_users, put_user
from odradek.client.cluster import LATEST, Cluster, coordinator_of
from odradek.client.settings import ClientSettings
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.client.applications import KEEPING, start_application
from tests.client.topics import Transactions, create_topic, produce, write_hanging
from tests.console.conftest import NO_RETENTION
from tests.console.served import console

expect.set_options(timeout=TIMEOUT_MS)

OPTIONS = {
    # Takes records of transactions that no coordinator knows, as brokers before Kafka 3.6 do.
    "transaction.partition.verification.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    **NO_RETENTION,
    **KEEPING,
}
KINDS_BY_DAY = [pytest.param(one, marks=[pytest.mark.nightly] if one == "dark" else []) for one in KINDS]
"""The dark colours are those of the screens of `test_browser.py`, which are looked at each day."""
HANGING = 920_000
NASTY = "<img src=x onerror=alert(1)>"
SCREENS = {
    "transactions": "/transactions",
    "transaction": "/transaction?id=pay-7",
    "hanging": "/transactions/hanging?look=1",
    "abort": f"/transactions/abort?partition=hung:0&producer_id={HANGING}",
    "producers": "/topics/orders/producers",
    "share-group": "/share-group?id=parcels",
    "share-group-states": "/share-group?id=letters&states=orders:0",
    "streams-group": "/streams-group?id=words",
    "users": "/users?user=ann&mechanism=SCRAM-SHA-256",
    "acls": "/acls",
    "acls-of-one": "/acls?principal=User:ann",
    "quotas": "/quotas?user=ann&key=producer_byte_rate",
    "tokens": "/tokens",
    "brokers-all": "/brokers",
    "log-dirs": "/brokers/log-dirs",
    "replicas": "/brokers/replicas",
    "quorum": "/brokers/quorum",
    "features": "/brokers/features",
    "moves": "/brokers/moves",
    "create-topic": "/create-topic",
    "change-topic": "/topics/orders/change",
}


def leave(cluster: Cluster, group: str, topic: str, epoch: int) -> None:
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=epoch, subscribed_topic_names=None if epoch else [topic]
    )
    assert cluster.ask(coordinator_of("group", group), request).error_code == 0


@pytest.fixture(scope="module")
def administered() -> Iterator[Cluster]:
    """A broker with something to see on each screen."""
    with (
        odradek.Broker(options=OPTIONS) as broker,
        Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1)) as cluster,
    ):
        for name in ("orders", "hung", "lines"):
            create_topic(cluster, partitions=2, name=name)
            produce(cluster, name, 0, [b"v"] * 5)
        Transactions(cluster, "pay-7").write("orders", 1, [b"v"] * 2)
        Transactions(cluster, NASTY)
        write_hanging(cluster, "hung", HANGING, timestamp=1000)
        for group in ("parcels", "letters"):
            leave(cluster, group, "orders", 0)
        leave(cluster, "letters", "orders", -1)
        alter_share_offsets(cluster, "letters", {("orders", 0): 4})
        start_application(cluster, "words", "lines")
        for user in ("ann", NASTY):
            put_user(cluster, user, "SCRAM-SHA-256", "secret", 4096)
            principal = f"User:{user}"
            rules = [
                Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, principal, "*", one, Permission.ALLOW)
                for one in (Operation.READ, Operation.WRITE)
            ]
            assert add_acls(cluster, rules) == []
            alter_quotas(cluster, {"user": user, "client-id": None}, {"producer_byte_rate": 1024})
        yield cluster


@pytest.fixture(scope="module")
def address(administered: Cluster) -> Iterator[str]:
    """A console without a login."""
    with console("-b", str(administered.settings.bootstrap_servers), "--listen", "0") as running:
        yield running.url


@pytest.mark.parametrize("kind", KINDS_BY_DAY)
@pytest.mark.parametrize("screen", SCREENS)
def test_each_screen_is_whole(
    open_page: Open, address: str, shoot: Callable[[Page, str], None], kind: str, screen: str
) -> None:
    page = open_page(kind, SCREENS[screen], address)
    shoot(page, f"{screen}-{kind}")
    check_page(page, is_phone=kind == "phone")


def test_keys_lead_to_transactions_brokers_and_users(open_page: Open, address: str) -> None:
    page = open_page(path="/topics", base=address)
    for keys, url in (
        ("gx", "/transactions$"),
        ("gb", "/brokers$"),
        ("ga", "/users$"),
        ("gx", "/transactions$"),
    ):
        for key in keys:
            page.keyboard.press(key)
        expect(page).to_have_url(re.compile(url))
        page.wait_for_load_state("load")
    page.keyboard.press("/")
    page.keyboard.type("pay")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("filter=pay"))
    page.wait_for_load_state("load")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/transaction.id=pay-7$"))


def test_keys_alone_make_a_topic(open_page: Open, address: str, administered: Cluster) -> None:
    page = open_page(path="/create-topic", base=address)
    page.get_by_label("Name", exact=True).focus()
    for text in ("by-keys", "2", "1", "retention.ms=60000"):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Check")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("The brokers would take this")).to_be_visible()
    page.get_by_role("button", name="Create").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("The topic has been made.")).to_be_visible()
    assert len(describe_topics(administered, ["by-keys"])[0][0].partitions) == 2


def test_names_that_are_html_are_texts(open_page: Open, address: str) -> None:
    """The page that is watched opens no dialog."""
    for path in ("/transactions", "/users", "/acls", "/quotas"):
        expect(open_page(path=path, base=address).get_by_text(NASTY).first).to_be_visible()


# Without scripts, on a phone --------------------------------------------------------------------------


@pytest.fixture
def plain(open_page: Open, address: str) -> Callable[[str], Page]:
    return lambda path: open_page("phone", path, address, java_script_enabled=False)


def test_without_scripts_a_hanging_transaction_is_aborted(
    plain: Callable[[str], Page], administered: Cluster
) -> None:
    create_topic(administered, name="stuck")
    write_hanging(administered, "stuck", 940_000, timestamp=1000)
    page = plain("/transactions/hanging")
    page.get_by_label("Topics").fill("stuck")
    page.get_by_role("button", name="Look").click()
    page.get_by_role("link", name="Abort").click()
    page.get_by_label("Type the partition").fill("stuck:0")
    page.get_by_role("button", name="Abort it").click()
    expect(page.get_by_text("is aborted in partition 0")).to_be_visible()
    assert administered.list_offsets({("stuck", 0): LATEST}, read_committed=True)["stuck", 0] == 2


def test_without_scripts_a_share_group_is_moved(plain: Callable[[str], Page], administered: Cluster) -> None:
    page = plain("/share-group?id=letters")
    page.get_by_label("To", exact=True).fill("start")
    page.get_by_role("button", name="Dry run", exact=True).click()
    page.get_by_role("button", name="Move 1 partition").click()
    expect(page.get_by_text("Moved 1 partition.")).to_be_visible()
    listed = [one for one in list_groups(administered) if one.group == "letters"]
    assert offsets_of_groups(administered, listed)[0]["letters"] == {("orders", 0): 0}


def test_without_scripts_a_user_gets_a_password_rules_and_a_quota(
    plain: Callable[[str], Page], administered: Cluster
) -> None:
    page = plain("/users")
    page.get_by_label("User", exact=True).fill("kim")
    page.get_by_label("Password", exact=True).fill("of kim")
    page.get_by_label("Again").fill("of kim")
    page.get_by_role("button", name="Set the password").click()
    expect(page.get_by_text("The password of kim for SCRAM-SHA-256 is set.")).to_be_visible()
    assert len(describe_users(administered, ["kim"])) == 1
    page = plain("/acls?principal=User:kim")
    add = page.locator("section.edit")
    add.get_by_label("Operations").fill("READ WRITE")
    add.get_by_label("Name", exact=True).fill("orders")
    add.get_by_role("button", name="Check").click()
    expect(page.get_by_text("Nothing has been added yet")).to_be_visible()
    page.locator("section.edit").get_by_role("button", name="Add").click()
    expect(page.get_by_text("Added:")).to_be_visible()
    wanted = [AclFilter(principal="User:kim")]
    assert len(describe_acls(administered, wanted)) == 2
    page = plain("/acls?principal=User:kim")
    page.get_by_text("Remove these 2 rules").click()
    page.get_by_label("Type “User:kim”").fill("User:kim")
    page.get_by_role("button", name="Remove 2 rules").click()
    expect(page.get_by_text("Removed 2 rules.")).to_be_visible()
    assert describe_acls(administered, wanted) == []
    page = plain("/quotas")
    page.get_by_label("User", exact=True).fill("kim")
    page.get_by_label("Value").fill("2048")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_text("Changed: producer_byte_rate of user=kim from none to 2048")).to_be_visible()
    assert [one.quotas for one in describe_quotas(administered, {"user": "kim"})] == [
        {"producer_byte_rate": 2048}
    ]


def test_without_scripts_a_topic_is_made_trimmed_and_deleted(
    plain: Callable[[str], Page], administered: Cluster
) -> None:
    page = plain("/create-topic")
    page.get_by_label("Name", exact=True).fill("short-lived")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("The topic has been made.")).to_be_visible()
    produce(administered, "short-lived", 0, [b"v"] * 5)
    page.get_by_role("link", name="Change").click()
    page.get_by_label("Before").fill("3")
    page.get_by_role("button", name="Dry run").click()
    page.get_by_label("Type the name of the topic").fill("short-lived")
    page.get_by_role("button", name="Delete 3 records").click()
    expect(page.get_by_text("Deleted 3 records.")).to_be_visible()
    page.get_by_text("Delete the topic", exact=True).click()
    page.get_by_label("Type its name").fill("short-lived")
    page.get_by_role("button", name="Delete the topic with all its records").click()
    expect(page).to_have_url(re.compile("/topics$"))
    assert describe_topics(administered, ["short-lived"])[0] == []
