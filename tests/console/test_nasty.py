"""500 nasty messages: whatever they hold, a page has the same elements, and shows them as texts."""

import itertools
import json
import re

import pytest

from odradek.client.group_offsets import commit
from odradek.wire.records import build_batch
from tests.client.topics import create_topic, produce_batch
from tests.console.browsers import Page

NUMBER = 500
SHAPES = (
    "<script src=//evil.example/x.js></script><x-evil-{n}>",
    "<img src=x onerror=alert({n})><x-evil-{n}>",
    '"><x-evil-{n} onmouseover="alert(1)">',
    "'><x-evil-{n}>",
    "</td></tr></table><x-evil-{n}>",
    "</textarea></title></style></script><x-evil-{n}>",
    "<!--<x-evil-{n}>",
    "--><x-evil-{n}>",
    "<![CDATA[<x-evil-{n}>]]>",
    "<svg/onload=alert({n})><x-evil-{n}>",
    "&lt;x-evil-{n}&gt;<x-evil-{n}>",
    "&#60;x-evil-{n}&#62;",
    "javascript:alert({n})//<x-evil-{n}>",
    "{{{{ 7*{n} }}}}{{% include 'base.html' %}}<x-evil-{n}>",
    "\x00<x-evil-{n}>\x00",
    "\u202e<x-evil-{n}>\u2066\ufeff",
    "\r\nSet-Cookie: a=b\r\n\r\n<x-evil-{n}>",
    "<x-evil-{n}\x0bstyle=x>",
    "<a href='data:text/html,<x-evil-{n}>'>",
    "<base href=//evil.example><meta http-equiv=refresh content=0><form action=//evil.example><x-evil-{n}>",
)
BYTES = (
    lambda text: text.encode(),
    lambda text: json.dumps({"a": text, text: [text]}).encode(),
    lambda text: b"\xff\xfe" + text.encode("utf-16-le"),
    lambda text: b"\x81\xa1a\xd9" + bytes([len(text.encode()[:255])]) + text.encode()[:255],
    lambda text: text.encode() + b"\xc0\xbc\xed\xa0\x80",
)


def messages():
    shapes = itertools.product(SHAPES, BYTES)
    for number, (shape, to_bytes) in zip(range(NUMBER), itertools.cycle(shapes), strict=False):
        text = shape.format(n=number)
        name = text.encode("utf-8", "replace").decode()
        yield number, to_bytes(text), [(name, text.encode()), (f"h{number}", b"\xff" + text.encode())]


@pytest.fixture(scope="module")
def nasty(cluster):
    topic = create_topic(cluster, name="nasty")
    found = list(messages())
    assert len(found) == NUMBER
    for first in range(0, NUMBER, 50):
        records = [
            (at, 1_764_500_000_000 + number, content, content, headers)
            for at, (number, content, headers) in enumerate(found[first : first + 50])
        ]
        produce_batch(cluster, topic, 0, build_batch(records))
    return topic


def check(response):
    """No element, attribute or link of a page is from a message."""
    assert response.headers["content-type"].startswith("text/html")
    assert "a" not in response.cookies
    page = Page(response.text)
    for tag, attributes in page.elements:
        assert not tag.startswith("x-evil"), tag
        assert tag not in ("img", "base", "iframe", "object", "embed", "style"), tag
        assert not [name for name in attributes if name.startswith(("on", "x-evil", "style"))], attributes
        for name in ("href", "src", "action"):
            assert not re.match(r"\s*(//|\w+:)", attributes.get(name) or ""), attributes
    assert len(page.all("script")) == 1
    assert len(page.all("meta")) == 3
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\u202e\u2066]", response.text)
    return page


@pytest.mark.parametrize("form", ["auto", "utf-8", "json", "msgpack", "hex"])
def test_no_message_becomes_html_in_a_list(browser, nasty, form):
    url, seen = f"/topics/{nasty}/messages?rows=200&order=oldest&as={form}", 0
    while url:
        page = check(browser.get(url))
        seen += sum(len(row) == 6 for row in page.body_rows)
        url = next((one["href"] for one in page.all("a", rel="next")), None)
    assert seen == NUMBER


def test_the_texts_are_there_as_texts(browser, nasty):
    page = check(browser.get(f"/topics/{nasty}/messages?rows=200&order=oldest&as=utf-8"))
    assert "<script src=//evil.example/x.js></script><x-evil-0>" in page.text
    assert "\\u202e<x-evil-75>" in page.text


def test_no_message_becomes_html_on_its_own_page(browser, nasty):
    for offset in range(0, NUMBER, 7):
        for form in ("auto", "hex"):
            check(browser.get(f"/topics/{nasty}/messages/0/{offset}?as={form}"))


def test_a_downloaded_message_is_no_page(browser, nasty):
    for offset in range(0, NUMBER, 50):
        for name in ("key.bin", "value.bin", "message.jsonl"):
            response = browser.get(f"/topics/{nasty}/messages/0/{offset}/{name}")
            assert response.status_code == 200
            assert response.headers["content-type"] == "application/octet-stream"
            assert response.headers["content-disposition"].startswith("attachment")
            assert response.headers["x-content-type-options"] == "nosniff"


def test_names_filters_and_errors_do_not_become_html(browser, cluster, nasty):
    groups = [shape.format(n=number)[:200] for number, shape in enumerate(SHAPES)]
    for group in groups:
        commit(cluster, group, {(nasty, 0): (1, "")})
    assert len(check(browser.get("/groups")).body_rows) >= len(groups)
    for text in groups:
        fields = {"id": text, "filter": text, "resource": text, "edit": text, "value": text, "from": text}
        fields |= {"partition": text, "at": text, "sort": text, "as": text, "header": text, "next": text}
        fields |= {"key_how": "re2", "key": text, "page": text, "type": text, "state": text}
        for path in ("/topics", "/groups", "/group", "/configs", "/login", f"/topics/{nasty}"):
            response = browser.get(path, params=fields)
            if response.status_code != 303:
                check(response)
        check(browser.get("/group", params={"id": text}))
        check(browser.get(f"/topics/{nasty}/configs", params={"edit": text, "filter": text}))
        check(browser.post("/group/seek", {"id": text, "to": text, "topics": text, "do": "plan"}))
        check(browser.post("/group/delete", {"id": "x", "name": text}))
        change = {"resource": f"topic:{nasty}", "name": text, "value": text, "do": "check"}
        check(browser.post("/configs/change", change))
    for path in ("/topics/%3Cx-evil-1%3E", "/%3Cx-evil-1%3E", "/topics/a%0d%0ab", "/topics/%00"):
        check(browser.get(path))
