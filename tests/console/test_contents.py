"""Contents as text: bounded, and in the form that was asked for."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.commands.decoding import PARSED_BYTES_MAX
from odradek.console.contents import (
    ROW_CHARACTERS,
    WHOLE_CHARACTERS,
    Contents,
    header_texts,
    hex_lines,
    pretty,
)
from odradek.console.listing import Listing
from odradek.console.rendering import iso_text, link, points, visible
from odradek.wire.record_layout import Record
from tests.tiers import examples


def value_of(content, form="auto", topic="t", characters=ROW_CHARACTERS):
    return Contents(form, topic, characters).both(Record(0, 0, b"k", content, ()))[1]


@pytest.mark.parametrize(
    ("content", "form", "found", "text"),
    [
        (b'{"a": 1}', "auto", "json", '{"a": 1}'),
        ("Zoë".encode(), "auto", "utf-8", "Zoë"),
        (b"\x81\xa1a\x01", "auto", "msgpack", '{"a": 1}'),
        (b"\xff\xfe\x00", "auto", "hex", "fffe00"),
        (b'{"a": 1}', "hex", "hex", "7b2261223a20317d"),
        (b"text", "json", "hex", "74657874"),
        (b"", "auto", "utf-8", ""),
        (None, "auto", "null", ""),
        (b"x", "no such form", "utf-8", "x"),
    ],
)
def test_a_form_is_found_or_is_as_it_is_asked_for(content, form, found, text):
    shown = value_of(content, form)
    assert (shown.form, shown.text) == (found, text)


@given(st.binary(max_size=3000), st.sampled_from(["auto", "json", "msgpack", "utf-8", "hex"]))
@settings(max_examples=examples(600), deadline=None)
def test_any_content_has_a_text_that_is_bounded_and_can_be_sent(content, form):
    shown = value_of(content, form)
    assert len(shown.text) <= ROW_CHARACTERS
    assert shown.size_bytes == len(content)
    visible(shown.text).encode()
    visible(pretty(shown)).encode()


def test_what_is_deep_or_large_is_bounded():
    deep = value_of(b"[" * 500_000 + b"]" * 500_000)
    assert len(deep.text) <= ROW_CHARACTERS
    large = value_of(b"y" * (PARSED_BYTES_MAX + 1), characters=WHOLE_CHARACTERS)
    assert (large.is_cut, len(large.text), large.size_bytes) == (True, WHOLE_CHARACTERS, PARSED_BYTES_MAX + 1)
    packed = value_of(b"\xdd\xff\xff\xff\xff")
    assert packed.form == "hex", "an array that claims 4 billion elements"


def test_json_over_lines_is_the_same_json():
    shown = value_of(b'{"a": [1, {"b": "\\u00e9"}]}')
    assert json.loads(pretty(shown)) == {"a": [1, {"b": "é"}]}
    assert "\n  " in pretty(shown)


def test_hex_has_offsets_bytes_and_letters():
    assert hex_lines(b"ABC\x00" * 5).splitlines() == [
        "00000000  41 42 43 00 41 42 43 00 41 42 43 00 41 42 43 00  ABC.ABC.ABC.ABC.",
        "00000010  41 42 43 00" + " " * 37 + " ABC.",
    ]
    assert len(hex_lines(bytes(1 << 20)).splitlines()) == 256


def test_headers_are_texts():
    found = header_texts([("a", b"x"), ("b", None), ("c", b"\xff"), ("d" * 900, b"y" * 9000)])
    assert found[:3] == [("a", "x"), ("b", "null"), ("c", "ff")]
    assert [len(text) for text in found[3]] == [ROW_CHARACTERS, ROW_CHARACTERS]


def test_characters_that_are_not_printed_are_seen():
    assert visible("a\u202eb\x00c\td\ne\ud800") == "a\\u202eb\\x00c\td\ne\\ud800"


def test_a_link_keeps_any_name_in_its_place():
    assert (
        link("/topics", "a/../b?c#d", x="&=", y="", z=None, w=True)
        == "/topics/a%2F..%2Fb%3Fc%23d?x=%26%3D&w=1"
    )


def test_times_have_a_zone():
    assert iso_text(-1) == "-"
    assert iso_text(0).endswith(("+00:00", "-00:00")) or iso_text(0)[-6] in "+-"
    assert iso_text(2**62) == str(2**62)


def test_a_sparkline_stays_in_its_place():
    for values in ([0.0, 0.0], [1.0, 5.0, 2.0], [1e12] * 60):
        found = [tuple(map(float, point.split(","))) for point in points(values).split()]
        assert len(found) == len(values)
        assert all(0 <= x <= 80 and 0 <= y <= 20 for x, y in found)
    assert points([1.0]) == ""


def test_rows_are_sorted_with_missing_values_last_and_cut_into_pages():
    rows = [{"name": f"n{number:03}", "size": number if number % 3 else None} for number in range(250)]
    listing = Listing(
        rows, "/list", {"sort": "size", "desc": "1", "page": "1", "filter": "n"}, ("name", "size")
    )
    assert [row["size"] for row in listing.rows[:3]] == [248, 247, 245]
    assert (listing.pages, listing.count, len(listing.rows)) == (3, 250, 100)
    assert listing.heading("size").aria_sort == "descending"
    assert listing.heading("size").url == "/list?sort=size&filter=n"
    assert listing.heading("name").url == "/list?sort=name&filter=n"
    assert listing.heading("name", is_number=True).url == "/list?sort=name&desc=1&filter=n"
    assert listing.url(2) == "/list?sort=size&desc=1&page=2&filter=n"
    last = Listing(rows, "/list", {"sort": "size", "page": "99"}, ("name", "size"))
    assert [row["size"] for row in last.rows[-1:]] == [None]
    assert Listing([], "/list", {"page": "x", "sort": "x"}, ("name",)).rows == []
