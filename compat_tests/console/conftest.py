"""Brokers, a served console, and Chromium with contexts of several kinds: each page is watched."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, FloatRect, Page, sync_playwright

import odradek
from odradek.client.cluster import Cluster
from odradek.client.group_offsets import commit
from odradek.client.settings import ClientSettings
from odradek.embedding.free_port import free_port
from tests.client.topics import create_topic, produce
from tests.console.conftest import NO_RETENTION, write_orders
from tests.console.served import console
from tests.registries import Registry, framed

REPORTS = pathlib.Path(__file__).parent.parent.parent / "build" / "reports" / "console"
TIMEOUT_MS = 120_000
LOOK_MS = 50
PICTURE_HEIGHT_MAX = 2_400
"""Pixels of a page in its picture; that of 100 rows on a phone is longer, and shows nothing more."""
NO_PICTURE = "Unable to capture screenshot"
USER, PASSWORD = "ann", "the password of ann"
Open = Callable[..., Page]
KINDS = {
    "desktop": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "color_scheme": "light",
        "has_touch": True,
        "is_mobile": True,
        "device_scale_factor": 2,
    },
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A broker with 1,000 topics, orders, and groups."""
    with (
        odradek.Broker(options=NO_RETENTION) as broker,
        Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1)) as connected,
    ):
        for number in range(1000):
            create_topic(connected, name=f"many-{number:04}")
        topic = create_topic(connected, partitions=3, name="orders")
        write_orders(connected, topic, 300)
        commit(connected, "billing", {(topic, number): (10 * number, "") for number in range(3)})
        commit(connected, "audit <script>alert(1)</script>", {(topic, 0): (100, "")})
        nasty = create_topic(connected, name="nasty")
        produce(
            connected,
            nasty,
            0,
            [
                b"<img src=x onerror=alert(1)>",
                b"\xff\xfe\x00\x01",
                b"</td><script>alert(1)</script>",
                b"\x00" * 50,
            ],
        )
        decoded = create_topic(connected, name="decoded")
        contents = [framed(12, b"\x0e\x04hi"), framed(13, b"\x0e"), b"\x08\x01\x12\x02\x08\x05"]
        produce(connected, decoded, 0, contents)
        yield connected


@pytest.fixture(scope="session")
def url(cluster: Cluster) -> Iterator[str]:
    """A console without a login."""
    with Registry() as registry:
        fields = [{"name": "id", "type": "long"}, {"name": "state", "type": "string"}]
        registry.schemas[12] = {"schema": json.dumps({"type": "record", "name": "O", "fields": fields})}
        address = str(cluster.settings.bootstrap_servers)
        with console("-b", address, "--listen", "0", "--schema-registry", registry.url) as running:
            yield running.url


@pytest.fixture(scope="session")
def url_with_login() -> Iterator[str]:
    """A console at a broker with SASL."""
    port = free_port()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    options = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{module} username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
        ),
        "connection.failed.authentication.delay.ms": "1",
    }
    properties = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN")
    with (
        odradek.Broker(options=options),
        console("-b", f"127.0.0.1:{port}", *properties, "--listen", "0") as running,
    ):
        yield running.url


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's; as root it has no sandbox of its own."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path is not None, "Chromium is missing (Debian: apt-get install chromium)"
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@contextlib.contextmanager
def watched(context: BrowserContext, host: str) -> Iterator[Page]:
    """A page that says nothing to the console of the browser, opens no dialog, and asks no other host."""
    complaints: list[str] = []
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def asked(address: str) -> None:
        if urlsplit(address).netloc != host:
            complaints.append(f"foreign host: {address}")

    page.on("request", lambda request: asked(request.url))
    yield page
    assert complaints == []


@pytest.fixture
def open_page(chromium: Browser, url: str) -> Iterator[Open]:
    """Opens a watched page: `open_page(kind, path, ...)` with options of the context."""
    with contextlib.ExitStack() as stack:

        def opened(kind: str = "desktop", path: str = "/topics", base: str = url, **options: object) -> Page:
            context = chromium.new_context(base_url=base, **{**KINDS[kind], **options})  # type: ignore[arg-type]
            stack.callback(context.close)
            page = stack.enter_context(watched(context, urlsplit(base).netloc))
            page.goto(path)
            return page

        yield opened


@pytest.fixture(scope="session")
def shoot() -> Callable[[Page, str], None]:
    """Puts a picture of a page into build/reports/console."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    return lambda page, name: _picture(page, str(REPORTS / f"{name}.png"))


def _beginning(page: Page) -> FloatRect:
    width, height = page.evaluate("[innerWidth, document.documentElement.scrollHeight]")
    return {"x": 0, "y": 0, "width": width, "height": min(height, PICTURE_HEIGHT_MAX)}


def _picture(page: Page, path: str) -> None:
    """Chromium refuses while its process for graphics starts, on a busy machine for seconds."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while True:
        try:
            page.screenshot(path=path, full_page=True, clip=_beginning(page))
        except Error as error:
            if NO_PICTURE not in str(error) or time.monotonic() > deadline:
                raise
            page.wait_for_timeout(LOOK_MS)
        else:
            return
