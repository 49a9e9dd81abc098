"""Records that a filter finds, as a file: the lines of `consume --json`, CSV, bounds, and what goes wrong."""

import contextlib
import csv
import http.client
import io
import itertools
import json
import threading

import pytest
import uvicorn

from odradek.client.client_error import ClientError
from odradek.commands.record_json import read_record
from odradek.console import exporting
from odradek.console.app import TAILS_MAX, make_app
from odradek.console.running import bound
from odradek.wire.records import build_batch
from tests.client.topics import create_topic, produce, produce_batch
from tests.console.browsers import Page, browser_of, settings_for
from tests.console.conftest import NOW_MS


def lines(response):
    assert response.status_code == 200, Page(response.text).text
    assert response.headers["content-disposition"].startswith("attachment")
    assert response.headers["x-content-type-options"] == "nosniff"
    return response.text.splitlines(keepends=True)


def test_a_file_is_what_consume_prints(browser, broker, orders, capsys):
    from odradek.commands.main import main

    assert main(["consume", orders, "-b", broker.bootstrap_servers, "--json", "-p", "1"]) == 0
    printed = capsys.readouterr().out
    assert browser.get(f"/topics/{orders}/export?partition=1").text == printed
    assert len(lines(browser.get(f"/topics/{orders}/export"))) == 300


def test_a_file_has_what_the_filter_chooses_up_to_its_bounds(browser, orders, monkeypatch):
    page = browser.page(f"/topics/{orders}/messages?value=refund&key=o-1")
    (form,) = page.all("form", action=f"/topics/{orders}/export")
    assert form["method"] == "get"
    found = lines(browser.get(f"/topics/{orders}/export?value=refund&kind=jsonl&count=12"))
    assert len(found) == 12
    assert all("refund" in line for line in found)
    assert [read_record(line.encode()).topic for line in found] == [orders] * 12
    monkeypatch.setattr("odradek.console.screens.export.BYTES_MAX", 1000)
    bounded = lines(browser.get(f"/topics/{orders}/export"))
    assert 1000 <= sum(map(len, bounded)) < 1000 + len(bounded[-1])


def test_a_form_adds_what_was_decoded(browser, orders):
    (line,) = lines(browser.get(f"/topics/{orders}/export?as=json&partition=0&from=3&until=4"))
    assert json.loads(line)["value_decoded"]["id"] == 9


def test_csv_is_for_spreadsheets_and_runs_nothing(browser, cluster):
    topic = create_topic(cluster)
    values = [b"=cmd()", b"+a", b"-1", b"@x", b"\tx", b'a,"b"\nc', b"\xc1", None, "é".encode()]
    rows = [(at, NOW_MS, b"=k", value, (("h", b"=x"),)) for at, value in enumerate(values)]
    produce_batch(cluster, topic, 0, build_batch(rows))
    response = browser.get(f"/topics/{topic}/export?kind=csv")
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    head, *found = csv.reader(io.StringIO(response.text, newline=""))
    assert tuple(head) == exporting.COLUMNS
    by_name = [dict(zip(head, row, strict=True)) for row in found]
    assert [row["value"] for row in by_name] == [
        *("'=cmd()", "'+a", "-1", "'@x", "'\tx", 'a,"b"\nc', "c1", "", "é"),
    ]
    for row in by_name:
        assert not any(cell.startswith(("=", "+", "@", "\t", "-c")) for cell in row.values())
    assert {row["key"] for row in by_name} == {"'=k"}
    assert {row["headers"] for row in by_name} == {'[{"key": "h", "value": "=x"}]'}


def test_what_is_wrong_is_a_page_and_not_a_file(browser, orders):
    for query, status in (
        ("kind=exe", 502),
        ("value=(&value_how=re2", 502),
        ("partition=9", 404),
        ("from=soon", 502),
    ):
        response = browser.get(f"/topics/{orders}/export?{query}")
        assert (response.status_code, "attachment" in str(response.headers)) == (status, False), query
    assert browser.get("/topics/no-such-topic/export").status_code == 404


def test_hidden_messages_are_in_no_file(broker, orders):
    with browser_of(broker.bootstrap_servers, hides_messages=True) as browser:
        response = browser.get(f"/topics/{orders}/export")
        assert (response.status_code, "refund" in response.text) == (403, False)


@contextlib.contextmanager
def served(address):
    """The app at a real server, and the app."""
    app = make_app(settings_for(address))
    with bound("127.0.0.1", 0) as listening:
        server = uvicorn.Server(uvicorn.Config(app, http="h11", ws="none", log_level="critical"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[1], app
        finally:
            server.should_exit = True
            thread.join()


def test_a_file_that_fails_on_the_way_is_cut_off_and_its_place_is_free_again(broker, cluster, monkeypatch):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"x" * 100] * 50)
    calls, steps = itertools.count(), exporting.Export.step

    def step(self):
        if next(calls) % 2:
            raise ClientError("the broker is away")
        return steps(self) or b"lines"

    monkeypatch.setattr(exporting.Export, "step", step)
    with served(broker.bootstrap_servers) as (port, app):
        for _ in range(2 * TAILS_MAX):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", f"/topics/{topic}/export")
            response = connection.getresponse()
            assert response.status == 200
            with pytest.raises(http.client.IncompleteRead):
                response.read()
            connection.close()
        tails = app.state.shared.tails
        assert all(tails.take() for _ in range(TAILS_MAX)), "each place is free"
        assert not tails.take()


def test_no_more_files_at_once_than_there_are_places(broker, orders):
    with browser_of(broker.bootstrap_servers) as browser:
        tails = browser.client.app.state.shared.tails
        taken = 0
        while tails.take():
            taken += 1
        response = browser.get(f"/topics/{orders}/export")
        assert "wait for one" in Page(response.text).text
        for _ in range(taken):
            tails.give_back()
        assert len(lines(browser.get(f"/topics/{orders}/export"))) == 300


def test_a_text_view_of_a_content_needs_no_scripts(browser, cluster):
    topic = create_topic(cluster)
    value = "<script>alert(1)</script> \u202e".encode()
    produce(cluster, topic, 0, [value, b"\x00\xff", b'{"a":1}'])
    page = browser.page(f"/topics/{topic}/messages/0/0")
    assert f"/topics/{topic}/messages/0/0/value.txt?as=auto" in page.links()
    for offset, text in ((0, "<script>alert(1)</script> \\u202e"), (2, '{\n  "a": 1\n}')):
        response = browser.get(f"/topics/{topic}/messages/0/{offset}/value.txt")
        assert response.text == text
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        assert response.headers["x-content-type-options"] == "nosniff"
    assert browser.get(f"/topics/{topic}/messages/0/1/value.txt").text.startswith("00000000  00 ff")
    assert browser.get(f"/topics/{topic}/messages/0/1/secret.txt").status_code == 404
