"""What commands print: tables that fit a terminal, forms that programs read back."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.commands.output import (
    Column,
    Output,
    cut,
    display_width,
    has_colour,
    printable,
    quantity,
    size_text,
    time_text,
    wrapped,
)

ROWS = [
    {"topic": "orders", "records": 1234567, "leader": None, "replicas": [1, 2], "internal": False},
    {"topic": "größe-日本", "records": 0, "leader": 3, "replicas": [], "internal": True},
]
COLUMNS = [Column("topic"), Column("records", right=True), Column("leader", right=True), Column("replicas")]


def printed(form, rows=ROWS, columns=COLUMNS, **how):
    out = io.StringIO()
    Output(form, out, **how).rows(columns, rows, "nothing there")
    return out.getvalue()


def test_a_table_is_aligned_by_what_a_terminal_shows():
    assert printed("table") == (
        "topic         records  leader  replicas\n"
        "orders      1,234,567       -  1,2\n"
        "größe-日本          0       3\n"
    )
    assert printed("table", rows=[]) == "nothing there\n"


def test_a_table_is_cut_to_the_terminal_and_not_in_a_pipe():
    lines = printed("table", width=20).splitlines()
    assert all(display_width(line) <= 20 for line in lines)
    assert lines[1] == "orders      1,234,5…"


def test_the_longest_texts_are_cut_first_and_numbers_never():
    rows = [{"topic": "t" * 200, "records": 1234567, "leader": "l" * 30, "replicas": [1, 2]}]
    columns = [Column("topic"), Column("records", right=True), Column("leader"), Column("replicas")]
    lines = printed("table", rows=rows, columns=columns, width=60).splitlines()
    assert lines[0] == f"topic    records  leader{' ' * 26}replicas"
    assert lines[1:] == ["t" * 200, f"       1,234,567  {'l' * 30}  1,2"], "it names the row"
    columns = [Column("partition", right=True), *columns]
    lines = printed("table", rows=[{"partition": 1, **rows[0]}], columns=columns, width=60).splitlines()
    assert lines[1] == f"        1  {'t' * 12}…  1,234,567  {'l' * 12}…  1,2"
    columns = columns[1:]
    assert printed("table", rows=rows).splitlines()[1].split() == ["t" * 200, "1,234,567", "l" * 30, "1,2"]


def test_a_name_has_a_line_of_its_own_only_where_it_leaves_no_room():
    rows = [
        {"topic": name, "records": 1234567, "leader": 1, "replicas": [1]} for name in ("t" * 113, "u" * 50)
    ]
    lines = printed("table", rows=rows, width=80).splitlines()
    assert lines == [
        f"topic{' ' * 49}records  leader  replicas",
        "t" * 113,
        f"{' ' * 50}  1,234,567       1  1",
        f"{'u' * 50}  1,234,567       1  1",
    ]
    (row,) = [{"topic": "t" * 113}]
    assert printed("table", rows=[row], columns=[Column("topic")], width=80).splitlines()[1] == "t" * 113


def test_sentences_are_wrapped_to_the_terminal_and_not_in_a_pipe():
    def told(width):
        out = io.StringIO()
        output = Output("table", out, width)
        output.line("  a step that takes long", mark="FAIL", codes="31", hanging=6)
        output.heading("a name: " + "x" * 25)
        return out.getvalue()

    assert told(20) == "FAIL  a step that\n      takes long\na name:\nxxxxxxxxxxxxxxxxxxxx\nxxxxx\n"
    assert told(None) == "FAIL  a step that takes long\na name: xxxxxxxxxxxxxxxxxxxxxxxxx\n"


@given(st.text(), st.integers(20, 90), st.integers(0, 40))
def test_nothing_is_lost_where_a_text_is_wrapped(text, width, hanging):
    lines = wrapped(text, width, hanging)
    assert all(display_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_json_has_all_keys_and_needs_no_rows_at_once():
    assert json.loads(printed("json")) == ROWS
    assert json.loads(printed("json", rows=[])) == []
    assert [json.loads(line) for line in printed("jsonl").splitlines()] == ROWS


def test_tsv_has_the_keys_and_one_line_a_row():
    rows = [{"topic": "a\tb\nc\\", "records": 5, "leader": None, "replicas": [1, 2]}]
    assert printed("tsv", rows) == "topic\trecords\tleader\treplicas\na\\tb\\nc\\\\\t5\t\t1,2\n"


@given(st.text())
def test_no_text_of_others_moves_the_cursor(text):
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert display_width(cut(text, 10)) <= 10


def test_a_control_character_is_shown_as_an_escape():
    assert printable("a\x1b[31mb\u202e") == "a\\x1b[31mb\\u202e"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("wanted", "out", "environ", "expected"),
    [
        ("auto", io.StringIO(), {}, False),
        ("auto", Terminal(), {}, True),
        ("auto", Terminal(), {"TERM": "dumb"}, False),
        ("auto", Terminal(), {"NO_COLOR": "1"}, False),
        ("auto", Terminal(), {"NO_COLOR": ""}, True),
        ("auto", Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ("auto", io.StringIO(), {"FORCE_COLOR": "1"}, True),
        ("always", io.StringIO(), {"NO_COLOR": "1"}, True),
        ("never", Terminal(), {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_are_for_terminals_and_those_who_want_them(wanted, out, environ, expected):
    assert has_colour(wanted, out, environ) is expected


def test_colours_say_nothing_that_the_text_does_not():
    plain, coloured = printed("table"), printed("table", colour=True)
    assert coloured != plain
    assert coloured.replace("\x1b[2m", "").replace("\x1b[0m", "") == plain


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_949, "99.9 kB"),
        (99_950, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (12_300_000_000, "12.3 GB"),
    ],
)
def test_sizes_have_three_digits(size_bytes, text):
    assert size_text(size_bytes) == text


def test_times_have_a_zone_and_none_is_a_hyphen(monkeypatch):
    assert time_text(-1) == "-"
    assert time_text(1_700_000_000_123).endswith(("+00:00", "Z")) or "+" in time_text(1_700_000_000_123)
    assert time_text(2**62) == str(2**62)


def test_one_thing_is_singular():
    assert (quantity(1, "topic"), quantity(2, "topic"), quantity(0, "reply", "replies")) == (
        "1 topic",
        "2 topics",
        "0 replies",
    )
