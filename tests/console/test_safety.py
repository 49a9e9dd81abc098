"""Safety of the console, row by row: who reaches it, who changes something, what a page may load."""

import re
import socket

import pytest

import odradek
from odradek.client.admin.acls import Acl, add_acls
from odradek.client.admin.configs import Resource, ResourceKind, describe_configs
from odradek.client.admin.topics import describe_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.group_offsets import commit, committed
from odradek.client.settings import ClientSettings
from odradek.console.access import READING, Forbidden, check_of
from odradek.console.app import FORM_BYTES_MAX, make_app
from odradek.console.gate import host_name
from odradek.console.rendering import STATIC
from odradek.console.screens.all_screens import SCREENS
from odradek.console.sessions import IDLE_S, SESSIONS_MAX, Failures, Sessions
from odradek.console.settings import ConsoleSettings, check_listener
from odradek.embedding.free_port import free_port
from odradek.security.client_security import ClientSecurity
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.messages import api_keys, api_name
from tests.client.topics import create_topic, produce
from tests.console.browsers import HOME, Browser, Page, browser_of, settings_for
from tests.console.conftest import NO_RETENTION, order

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = {"ann": "ann's password", "bob": "bob's password"}
CHANGES = sorted(screen.path for screen in SCREENS if screen.methods == ("POST",))


class Clock:
    """Seconds that a test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def secured():
    """A broker where ann may do all, and bob reads the topic `shown`; and a cluster to prepare it."""
    ports = {"PLAINTEXT": free_port(), "SASL_PLAINTEXT": free_port()}
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:ann",
        "connection.failed.authentication.delay.ms": "1",
        **NO_RETENTION,
    }
    with (
        odradek.Broker(options=options),
        Cluster(ClientSettings(f"127.0.0.1:{ports['PLAINTEXT']}", retry_ms=1)) as cluster,
    ):
        for name in ("shown", "hidden"):
            create_topic(cluster, name=name)
            produce(cluster, name, 0, [order(1), order(2)])
        commit(cluster, "billing", {("shown", 0): (1, "")})
        rules = [
            Acl(kind, name, PatternType.LITERAL, "User:bob", "*", operation, Permission.ALLOW)
            for kind, name, operation in (
                (ResourceType.TOPIC, "shown", Operation.READ),
                (ResourceType.GROUP, "billing", Operation.DESCRIBE),
            )
        ]
        assert add_acls(cluster, rules) == []
        yield f"127.0.0.1:{ports['SASL_PLAINTEXT']}", cluster


def with_login(address, **options):
    security = ClientSecurity("SASL_PLAINTEXT")
    client = ClientSettings(address, retry_ms=1, patience_ms=20_000, security=security)
    return ConsoleSettings(client=client, mechanism="PLAIN", **options)


@pytest.fixture
def door(secured):
    """A browser before its login, and the clock of its console."""
    clock = Clock()
    with Browser(make_app(with_login(secured[0]), clock)) as browser:
        browser.clock = clock
        yield browser


def log_in(browser, user, password=None):
    token = browser.token("/login")
    password = USERS[user] if password is None else password
    return browser.post("/login", {"user": user, "password": password}, token=token)


# Host and Origin --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "x@127.0.0.1",
        "",
        "127.0.0.1/x",
    ],
)
@pytest.mark.parametrize("path", ["/topics", "/static/console.css", "/login", "/nothing"])
def test_a_foreign_host_gets_421(browser, host, path):
    response = browser.get(path, headers={"host": host})
    assert response.status_code == 421
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize("host", ["127.0.0.1:9080", "localhost", "LOCALHOST:1", "[::1]:9080", "192.0.2.7:80"])
def test_an_address_and_localhost_are_known(browser, host):
    assert browser.get("/topics", headers={"host": host}).status_code == 200


def test_a_name_is_known_if_it_was_given(broker):
    with browser_of(broker.bootstrap_servers, hosts=frozenset({"console.example"})) as browser:
        assert browser.get("/topics", headers={"host": "Console.example:9080"}).status_code == 200
        assert browser.get("/topics", headers={"host": "other.example"}).status_code == 421


def test_a_host_is_read_as_browsers_write_it():
    assert [host_name(text) for text in ("a:1", "[::1]:1", "a:x", "a/b", "a?b", "u@a")] == [
        "a",
        "::1",
        None,
        None,
        None,
        None,
    ]


def test_every_change_is_a_post_with_a_token_and_the_own_origin(browser):
    assert len(CHANGES) >= 5
    token = browser.token()
    for path in CHANGES:
        for headers in (
            {},
            {"origin": "null"},
            {"origin": "http://evil.example"},
            {"origin": "http://127.0.0.1:9081"},
            {"origin": "file://127.0.0.1:9080"},
        ):
            assert browser.post(path, token=token, headers=headers).status_code == 403, (path, headers)
        for wrong in ("", "x", token[:-1], token + "x"):
            assert browser.post(path, token=wrong).status_code == 403, (path, wrong)
        assert browser.get(path).status_code in (303, 405), path


def test_a_token_of_another_session_changes_nothing(broker):
    app = make_app(settings_for(broker.bootstrap_servers))
    with Browser(app) as one, Browser(app) as other:
        assert other.post("/theme", {"theme": "dark"}, token=one.token()).status_code == 403
        assert other.post("/theme", {"theme": "dark"}).status_code == 303


def test_only_get_and_post_are_served(browser):
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert browser.client.request(method, "/topics").status_code == 405


def test_a_path_is_bounded(browser):
    assert browser.get("/topics/orders/messages/0/" + "9" * 5000).status_code == 414
    assert browser.get("/" + "x" * 1900).status_code == 404


def test_a_form_is_bounded(browser):
    token = browser.token()
    too_large = {"theme": "x" * FORM_BYTES_MAX}
    assert browser.post("/theme", too_large, token=token).status_code == 413
    assert (
        browser.post("/theme", {f"f{number}": "1" for number in range(300)}, token=token).status_code == 400
    )
    sent = browser.client.post("/theme", json={"token": token}, headers={"origin": HOME})
    assert sent.status_code == 415


# Pages ------------------------------------------------------------------------------------------------


def test_pages_and_files_have_headers_that_forbid_all_foreign(browser, orders):
    for url in ("/topics", f"/topics/{orders}", "/nothing", "/static/console.css", "/static/console.js"):
        headers = browser.get(url).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["object-src"] == "'none'"
        assert policy["form-action"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    assert browser.get("/topics").headers["cache-control"] == "no-store"


def test_nothing_is_inline_and_nothing_foreign(browser, orders):
    for url in (
        "/topics",
        f"/topics/{orders}",
        f"/topics/{orders}/messages/0/1",
        "/groups",
        "/group?id=billing",
        "/brokers",
    ):
        page = browser.page(url)
        assert not page.all("style")
        assert not [
            found
            for _, found in page.elements
            if "style" in found or any(name.startswith("on") for name in found)
        ]
        loaded = [found.get("src") for tag, found in page.elements if tag in ("script", "img", "iframe")]
        loaded += [found["href"] for found in page.all("link")]
        assert loaded
        assert all(re.fullmatch(r"/static/[\w.]+\?[0-9a-f]{12}", one) for one in loaded)
        assert all(link.startswith(("/", "#")) for link in page.links())


def test_the_files_are_small_and_name_no_host():
    files = [*STATIC.iterdir()]
    assert sum(path.stat().st_size for path in files) < 150_000
    own = [STATIC / "console.js", STATIC / "plots.js"]
    assert sum(len(path.read_text().splitlines()) for path in own) <= 400
    for path in files:
        # That of others names its source in its first line.
        text = path.read_text().replace("/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "", 1)
        assert not re.findall(r"https?://(?!www\.w3\.org)", text), path


def test_no_template_marks_a_text_as_safe():
    templates = [*(STATIC.parent / "templates").glob("*.html")]
    assert len(templates) > 8
    for path in templates:
        assert not re.search(r"\|\s*safe\b|autoescape|Markup|\|\s*e\b", path.read_text()), path
    for path in STATIC.parent.rglob("*.py"):
        assert not re.search(r"Markup\(|\|\s*safe\b|autoescape=False", path.read_text()), path
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", (STATIC / "console.js").read_text()
    )


# Login ------------------------------------------------------------------------------------------------


def test_without_a_login_every_screen_leads_to_it(door):
    for screen in SCREENS:
        path = re.sub(r"\{(\w+)(:int)?\}", "1", screen.path)
        if screen.methods == ("GET",) and screen.needs_login:
            response = door.get(path)
            assert (response.status_code, response.headers["location"].partition("?")[0]) == (303, "/login")
        elif screen.needs_login:
            assert door.post(path, token=door.token("/login")).headers["location"] == "/login"


def test_a_login_is_that_of_a_client(door):
    response = log_in(door, "ann")
    assert (response.status_code, response.headers["location"]) == (303, "/overview")
    page = door.page("/topics")
    assert {row[0] for row in page.body_rows} == {"hidden", "shown"}
    assert "Log out ann" in page.text


def test_users_see_what_a_client_sees_as_them(secured):
    for user in USERS:
        with Browser(make_app(with_login(secured[0]))) as browser:
            log_in(browser, user)
            jaas = f'{PLAIN} username="{user}" password="{USERS[user]}";'
            options = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": jaas,
            }
            with Cluster(
                ClientSettings(secured[0], retry_ms=1, security=ClientSecurity.of(options))
            ) as cluster:
                topics, _ = describe_topics(cluster)
                seen = [row[0] for row in browser.page("/topics").body_rows]
                assert seen == [topic.name for topic in topics if not topic.is_internal]
                assert ("hidden" in seen) == (user == "ann")
                try:
                    describe_configs(cluster, Resource(ResourceKind.TOPIC, "shown"))
                    may = True
                except ClientError:
                    may = False
                text = browser.page("/topics/shown/configs").text
                assert ("CLUSTER_AUTHORIZATION_FAILED" in text or "TOPIC_AUTHORIZATION_FAILED" in text) != may


def test_what_a_user_may_not_do_is_a_sentence_and_is_not_done(secured):
    with Browser(make_app(with_login(secured[0]))) as browser:
        log_in(browser, "bob")
        hidden = browser.page("/topics/hidden")
        assert "TOPIC_AUTHORIZATION_FAILED" in hidden.text or "does not exist" in hidden.text
        assert "refund" not in hidden.text
        response = browser.post("/group/seek", {"id": "billing", "to": "start", "do": "seek"})
        assert "GROUP_AUTHORIZATION_FAILED" in response.text
        assert committed(secured[1], "billing", None, is_stable=True) == {("shown", 0): (1, "")}


def test_a_wrong_password_is_a_sentence_without_the_password(door):
    response = log_in(door, "ann", "a wrong secret")
    assert response.status_code == 403
    assert "refuses the user 'ann'" in Page(response.text).text
    assert "a wrong secret" not in response.text
    assert door.get("/topics").status_code == 303


def test_failed_logins_are_slowed_by_user_and_by_address(door):
    for _ in range(2):
        assert log_in(door, "ann", "wrong").status_code == 403
    assert log_in(door, "ann").status_code == 429
    assert log_in(door, "bob").status_code == 429, "the address waits, too"
    door.clock.now += 1.5
    assert log_in(door, "ann", "wrong").status_code == 403
    door.clock.now += 1.5
    assert log_in(door, "ann").status_code == 429, "twice as long"
    door.clock.now += 1.5
    assert log_in(door, "ann").status_code == 303


def test_the_wait_grows_to_a_minute_and_ends_with_a_login():
    clock = Clock()
    failures = Failures(clock)
    waits = []
    for _ in range(12):
        failures.failed("user ann", "address x")
        waits.append(failures.wait_s("user ann"))
        clock.now += waits[-1]
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]
    failures.succeeded("user ann")
    failures.failed("user ann")
    assert failures.wait_s("user ann") == 0


def test_the_cookie_is_new_at_login_and_scripts_do_not_see_it(door):
    before = door.get("/login").headers["set-cookie"]
    after = log_in(door, "ann").headers["set-cookie"]
    for cookie in (before, after):
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {*cookie.split("; ")}
        assert len(re.search(r"odradek=([\w-]+)", cookie)[1]) >= 43, "256 bits"
    assert before.partition(";")[0] != after.partition(";")[0]
    assert "Secure" not in after


def test_the_cookie_is_secure_under_tls(broker):
    with Browser(make_app(settings_for(broker.bootstrap_servers)), "https://127.0.0.1:9080") as browser:
        assert "Secure" in browser.get("/topics").headers["set-cookie"]
    with browser_of(broker.bootstrap_servers) as browser:
        proxied = browser.get("/topics", headers={"x-forwarded-proto": "https"})
        assert "Secure" in proxied.headers["set-cookie"]


def test_a_session_ends_after_half_an_hour_without_use(door):
    log_in(door, "ann")
    door.clock.now += IDLE_S - 1
    assert door.get("/topics").status_code == 200
    door.clock.now += IDLE_S + 1
    assert door.get("/topics").status_code == 303


def test_a_logout_ends_the_session_for_every_tab(door):
    log_in(door, "ann")
    cookie = door.client.cookies["odradek"]
    assert door.post("/logout", token=door.token()).status_code == 303
    door.client.cookies.clear()
    assert door.get("/topics", headers={"cookie": f"odradek={cookie}"}).status_code == 303


def test_a_login_leads_to_no_other_host(door):
    for url in (
        "//evil.example/",
        "https://evil.example/",
        "/\\evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
    ):
        token = door.token("/login")
        response = door.post("/login", {"user": "ann", "password": USERS["ann"], "next": url}, token=token)
        assert response.headers["location"] == "/overview", url
        door.post("/logout", token=door.token())
    token = door.token("/login")
    response = door.post(
        "/login", {"user": "ann", "password": USERS["ann"], "next": "/group?id=a%2Fb"}, token=token
    )
    assert response.headers["location"] == "/group?id=a%2Fb"


def test_visitors_end_no_session_of_others():
    clock = Clock()
    sessions = Sessions(clock)
    first = sessions.begin(None)
    for _ in range(SESSIONS_MAX):
        sessions.begin(None)
    assert len(sessions) == SESSIONS_MAX
    assert sessions.find(first.cookie) is None


def test_who_only_looks_at_the_login_ends_no_session(door):
    log_in(door, "ann")
    cookie = door.client.cookies["odradek"]
    shared = door.client.app.state.shared
    for _ in range(SESSIONS_MAX + 1):
        shared.doors.session_of(None)
    door.client.cookies.clear()
    assert door.get("/topics", headers={"cookie": f"odradek={cookie}"}).status_code == 200


# Where it listens -------------------------------------------------------------------------------------


def test_it_listens_elsewhere_only_if_people_log_in_or_it_is_said():
    plain = ClientSettings("127.0.0.1:1")
    login = ClientSettings("127.0.0.1:1", security=ClientSecurity("SASL_SSL"))
    certificate = ClientSettings(
        "127.0.0.1:1", security=ClientSecurity("SSL", (("ssl.keystore.location", "key.pem"),))
    )
    for host in ("127.0.0.1", "localhost", "::1"):
        check_listener(ConsoleSettings(client=plain), host)
        check_listener(ConsoleSettings(client=login), host)
    check_listener(ConsoleSettings(client=login), "0.0.0.0")
    check_listener(ConsoleSettings(client=plain, is_anonymous=True), "0.0.0.0")
    check_listener(ConsoleSettings(client=certificate, is_anonymous=True), "0.0.0.0")
    for host in ("0.0.0.0", "192.0.2.1", "console.example", "::"):
        with pytest.raises(ClientError, match="can be reached from other machines"):
            check_listener(ConsoleSettings(client=plain), host)
    with pytest.raises(ClientError, match="a certificate of its own"):
        check_listener(ConsoleSettings(client=certificate), "127.0.0.1")


# What it may do ---------------------------------------------------------------------------------------


def test_read_only_holds_where_requests_are_sent(broker, cluster, orders):
    with browser_of(broker.bootstrap_servers, read_only=True) as browser:
        assert len(browser.page(f"/topics/{orders}").body_rows) == 50
        before = committed(cluster, "billing", None, is_stable=True)
        seek = {"id": "billing", "to": "start"}
        plan = browser.post("/group/seek", {**seek, "do": "plan"})
        assert "Nothing has been moved yet" in plan.text
        for path, fields in (
            ("/group/seek", {**seek, "do": "seek"}),
            ("/group/delete", {"id": "billing", "name": "billing"}),
            (
                "/configs/change",
                {"resource": f"topic:{orders}", "name": "retention.ms", "value": "1", "do": "set"},
            ),
            ("/configs/change", {"resource": f"topic:{orders}", "name": "retention.ms", "do": "unset"}),
        ):
            assert "This console only reads" in Page(browser.post(path, fields).text).text, path
        checked = browser.post(
            "/configs/change",
            {"resource": f"topic:{orders}", "name": "retention.ms", "value": "1", "do": "check"},
        )
        assert "The brokers would take this" in checked.text, "a check changes nothing"
    assert committed(cluster, "billing", None, is_stable=True) == before
    found = {one.name: one.value for one in describe_configs(cluster, Resource(ResourceKind.TOPIC, orders))}
    assert found["retention.ms"] == "604800000"


def test_hidden_messages_are_read_by_no_screen(broker, orders):
    with browser_of(broker.bootstrap_servers, hides_messages=True) as browser:
        for url in (
            f"/topics/{orders}",
            f"/topics/{orders}/messages?value=refund",
            f"/topics/{orders}/messages/0/3",
            f"/topics/{orders}/messages/0/3/value.bin",
            f"/topics/{orders}/messages/0/3/message.jsonl",
            f"/topics/{orders}/partitions",
            "/topics/__consumer_offsets/messages",
        ):
            text = browser.get(url).text
            assert "refund" not in text.replace("value=refund", "").replace('value="refund"', ""), url
            assert not re.search('(&#34;|")state', text), url
        assert len(browser.page(f"/topics/{orders}/partitions").body_rows) >= 3
        group = browser.page("/group?id=billing")
        assert "Lag 100" in group.text or "100" in group.text, "lag in records needs no message"


def test_the_check_knows_every_api_that_a_client_may_send():
    """Refuses what is not known to read only: a new API cannot slip through."""
    names = {api_name(key) for key in api_keys()}
    assert names > READING
    changing = (
        "Produce",
        "CreateTopics",
        "DeleteRecords",
        "OffsetCommit",
        "AlterConfigs",
        "CreateAcls",
        "JoinGroup",
    )
    assert not READING.intersection(changing)
    check = check_of(read_only=True, hides_messages=True)
    from odradek.wire.messages.fetch import FetchRequest
    from odradek.wire.messages.list_groups import ListGroupsRequest
    from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
    from odradek.wire.messages.produce import ProduceRequest

    check(ListGroupsRequest())
    check(MetadataRequest(topics=[MetadataRequestTopic(name="a")], allow_auto_topic_creation=False))
    for request in (
        FetchRequest(topics=[]),
        ProduceRequest(acks=1, timeout_ms=1, topic_data=[]),
        MetadataRequest(topics=[MetadataRequestTopic(name="a")]),
    ):
        with pytest.raises(Forbidden):
            check(request)


def test_the_port_is_not_open_to_others_by_default():
    from odradek.console.running import bound

    with bound("127.0.0.1", 0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        assert listening.family == socket.AF_INET
