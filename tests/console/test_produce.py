"""Produce again, and produce: what is written is what the form says, byte by byte."""

import base64
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import odradek
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.partitioning import Partitioner
from odradek.client.reading import Reader
from odradek.client.settings import ClientSettings
from odradek.client.stored_records import batches_of
from odradek.console.producing import SAME, TYPED_BYTES_MAX, draft_of, headers_text, typed_of
from odradek.wire.record_layout import Record
from odradek.wire.records import build_batch
from tests.client.topics import create_topic, produce_batch
from tests.console.browsers import Page, browser_of
from tests.console.conftest import NO_RETENTION, NOW_MS
from tests.tiers import examples

NASTY = (
    (None, None, []),
    (b"", b"", []),
    (b"k", b'{"a": 1}', [("trace", b"t9"), ("trace", b"t10")]),
    (b"\xff\x00", b"\x00\x01\x02", [("h", b"\xff"), ("n", None), ("", b"x"), ("a=b", b"c"), (" s ", b" v ")]),
    (b"a\r\nb\r", b"\nfirst line is empty\n", [("x", b"a\nb"), ("{", b"}")]),
    ("\u202ebidi".encode(), "ключ </textarea><script>".encode(), [("ü", "ö".encode())]),
    (b"  spaces  ", b"\ttab\t", [("e", b"")]),
)


class Fields(Page):
    """The fields of the form of a page, as a browser would send them."""

    def __init__(self, html):
        self.fields, self._area, self._select = {}, None, None
        super().__init__(html)

    def handle_starttag(self, tag, attributes):
        super().handle_starttag(tag, attributes)
        found = dict(attributes)
        if tag == "input" and "name" in found:
            self.fields[found["name"]] = found.get("value") or ""
        elif tag == "textarea":
            self._area = found["name"]
            self.fields[self._area] = ""
        elif tag == "select":
            self._select = found["name"]
        elif tag == "option" and self._select and ("selected" in found or self._select not in self.fields):
            self.fields[self._select] = found["value"]

    def handle_endtag(self, tag):
        super().handle_endtag(tag)
        if tag == "textarea":
            text = self.fields[self._area].removeprefix("\n")
            # As browsers normalize it.
            self.fields[self._area] = re.sub("\r\n|\r|\n", "\r\n", text)
            self._area = None
        elif tag == "select":
            self._select = None

    def handle_data(self, data):
        super().handle_data(data)
        if self._area is not None:
            self.fields[self._area] += data


def records_of(cluster, topic, partitions=1):
    reader = Reader(
        cluster,
        {
            (topic, number): (0, cluster.list_offsets({(topic, number): -1})[topic, number])
            for number in range(partitions)
        },
        read_committed=False,
    )
    return [
        (fetched.partition, record)
        for fetched in reader
        for one in batches_of(fetched)
        for record in one.records
    ]


def contents(record):
    return (
        None if record.key is None else bytes(record.key),
        None if record.value is None else bytes(record.value),
        [(name, None if value is None else bytes(value)) for name, value in record.headers],
    )


def test_a_message_is_produced_again_as_it_was(browser, cluster):
    topic, other = create_topic(cluster), create_topic(cluster, partitions=3)
    rows = [(at, NOW_MS + at, *found) for at, found in enumerate(NASTY)]
    produce_batch(cluster, topic, 0, build_batch(rows))
    for offset in range(len(NASTY)):
        link = browser.page(f"/topics/{topic}/messages/0/{offset}")
        assert f"/produce?topic={topic}&from=0-{offset}" in link.links()
        form = Fields(browser.get(f"/produce?topic={topic}&from=0-{offset}").text)
        assert form.fields["partition"] == "0"
        done = browser.post("/produce/send", {**form.fields, "topic": other, "partition": "2"})
        place = f"/produce?topic={other}&written=2-{offset}"
        assert (done.status_code, done.headers.get("location")) == (303, place), Page(done.text).text
        told = browser.page(place)
        assert f"Written to partition 2, at offset {offset} ." in told.text
        assert f"/topics/{other}/messages/2/{offset}" in told.links()
    assert [contents(record) for _, record in records_of(cluster, other, 3)] == list(NASTY)


def test_a_large_message_is_produced_again_without_being_in_the_form(tmp_path):
    size = 3 << 20
    options = {"message.max.bytes": str(8 << 20), **NO_RETENTION}
    with (
        odradek.Broker(options=options) as broker,
        Cluster(ClientSettings(broker.bootstrap_servers)) as cluster,
        browser_of(broker.bootstrap_servers) as browser,
    ):
        topic = create_topic(cluster)
        value = bytes(range(256)) * (size // 256)
        produce_batch(cluster, topic, 0, build_batch([(0, NOW_MS, b"k", value, ())]))
        response = browser.get(f"/produce?topic={topic}&from=0-0")
        assert len(response.content) < 20_000
        form = Fields(response.text)
        assert form.fields["value_form"] == SAME
        form.fields["key"] = "other"
        assert browser.post("/produce/send", form.fields).status_code == 303
        assert contents(records_of(cluster, topic)[1][1]) == (b"other", value, [])


def test_a_new_message_goes_where_its_key_leads(browser, cluster):
    topic = create_topic(cluster, partitions=5)
    form = Fields(browser.get(f"/produce?topic={topic}").text)
    assert (form.fields["key_form"], form.fields["value"], form.fields["partition"]) == ("null", "", "")
    sent = {
        **form.fields,
        "key_form": "text",
        "key": "o-991",
        "value": "line\r\nline",
        "headers": "a=1\r\na=2",
    }
    assert browser.post("/produce/send", sent).status_code == 303
    ((partition, record),) = records_of(cluster, topic, 5)
    assert partition == Partitioner("murmur2", 5).partition(b"o-991")
    assert contents(record) == (b"o-991", b"line\nline", [("a", b"1"), ("a", b"2")])
    assert record.timestamp > NOW_MS


def test_what_is_not_understood_is_a_sentence_and_what_was_typed_stays(browser, cluster):
    topic = create_topic(cluster, partitions=2)
    for change, told in (
        ({"topic": "no-such"}, "no topic no-such"),
        ({"topic": ""}, "A topic is needed"),
        ({"partition": "2"}, "has 2 partitions, counted from 0"),
        ({"partition": "x"}, "is not a number"),
        ({"value_form": "base64"}, "value is not base64"),
        ({"headers": "a=1\nnothing"}, "Line 2 of the headers is neither"),
        ({"headers": '{"key": 1}'}, "Line 1 of the headers has a"),
        ({"value_form": SAME}, "none is named"),
        ({"value_form": SAME, "source": "0-7", "source_topic": topic}, "ends before offset 0"),
        ({"value_form": SAME, "source": "x", "source_topic": topic}, "no such offset"),
    ):
        fields = {
            "topic": topic,
            "key": "k",
            "value": "typed é\u202e",
            "partition": "",
            "value_form": "text",
            **change,
        }
        response = browser.post("/produce/send", fields)
        page = Fields(response.text)
        assert told in page.text, change
        assert page.fields["key"] == "k"
        typed = page.fields["value"]
        if page.fields["value_form"] == "base64" and "value_form" not in change:
            typed = base64.b64decode(typed).decode()
        assert typed == "typed é\u202e" or "value_form" in change
    assert records_of(cluster, topic, 2) == []
    assert "no such offset" in browser.page(f"/produce?topic={topic}&from=0-x", 404).text


def test_a_read_only_console_writes_nothing(broker, cluster, orders):
    with browser_of(broker.bootstrap_servers, read_only=True) as browser:
        assert not [
            link for link in browser.page(f"/topics/{orders}/messages/0/3").links() if "/produce?" in link
        ]
        fields = {"topic": orders, "value": "x", "value_form": "text", "key_form": "null"}
        response = browser.post("/produce/send", fields)
        assert "This console only reads" in Page(response.text).text
    assert cluster.list_offsets({(orders, 0): -1}) == {(orders, 0): 100}


@given(
    st.none()
    | st.binary(max_size=60)
    | st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")),
    st.lists(
        st.tuples(
            st.text(max_size=6), st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)
        ),
        max_size=4,
    ),
)
@settings(max_examples=examples(900), deadline=None)
def test_any_content_comes_back_from_its_form(content, headers):
    typed, text = typed_of(content), headers_text(headers)
    lines = {"topic": "t", "key_form": "null", "value_form": typed.form}
    sent = {**lines, "value": typed.text.replace("\n", "\r\n"), "headers": text.replace("\n", "\r\n")}
    draft = draft_of(sent, None)
    assert (draft.value, [*draft.headers]) == (content, headers)


def test_a_content_that_is_too_large_for_a_form_needs_the_original():
    large = b"x" * (TYPED_BYTES_MAX + 1)
    typed = typed_of(large)
    assert typed == (SAME, "")
    fields = {"topic": "t", "key_form": "null", "value_form": SAME, "value": ""}
    with pytest.raises(ClientError):
        draft_of(fields, None)
    assert draft_of(fields, Record(0, 0, None, large, ())).value == large
