"""`consume -f`: what each letter shows. The expected texts of kcat's letters are what kcat prints."""

import pytest

from odradek.client.client_error import ClientError
from odradek.client.stored_records import StoredBatch
from odradek.commands.record_format import RecordFormat, unescaped, visible
from odradek.wire.records import Record, build_batch, read_batch_header

RECORDS = [
    Record(7, 1_795_794_671_799, b"a", b"one", (("h", b"1"), ("n", None), ("h", b""))),
    Record(8, 1_795_794_671_800, None, None, ()),
    Record(9, -1, b"", b"", ()),
]


def shown(text, **options):
    batch = build_batch(RECORDS, producer_id=4, producer_epoch=5, base_sequence=0, leader_epoch=6)
    stored = StoredBatch(read_batch_header(batch), "create", RECORDS)
    return RecordFormat(text, **options).lines("töpic", 3, stored)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (r"%s\n", [b"one\n", b"\n", b"\n"]),
        (r"%v|%k", [b"one|a", b"|", b"|"]),
        ("%S %K", [b"3 1", b"-1 -1", b"0 0"]),
        ("%R%s", [b"\0\0\0\3one", b"\xff\xff\xff\xff", b"\0\0\0\0"]),
        ("%T %o", [b"1795794671799 7", b"1795794671800 8", b"-1 9"]),
        ("%t-%p", ["töpic-3".encode()] * 3),
        ("%h;", [b"h=1,n=NULL,h=;", b";", b";"]),
        ("%e %x %y", [b"6 4 5"] * 3),
        (r"100%% \x41\x00\t\\", [b"100% A\0\t\\"] * 3),
        ("%s{hex} %k{base64}", [b"6f6e65 YQ==", b" ", b" "]),
        ("%s{json} %h{json}", [b'"one" [%b]' % b", ".join((b'{"key": "h", "value": "1"}',
            b'{"key": "n", "value": null}', b'{"key": "h", "value": ""}')), b"null []", b'"" []']),
        ("%h{hex}", [b"h=31,n=NULL,h=", b"", b""]),
        ("ünd", ["ünd".encode()] * 3),
        ("", [b""] * 3),
    ],
)  # fmt: skip
def test_each_letter_shows_its_part(text, lines):
    assert shown(text) == lines


def test_nulls_are_shown_if_wanted():
    assert shown("%k=%s", nulls=True) == [b"a=one", b"NULL=NULL", b"="]


def test_times_are_local(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    import time

    time.tzset()
    try:
        assert shown("%d{%Y-%m-%d %H:%M:%S.%f}|%d")[0] == (
            b"2026-11-27 21:21:11.799000|2026-11-27T21:21:11.799+05:30"
        )
        assert shown("%d")[2] == b"-", "a record without a timestamp"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["%z", "%", "a\\", r"\q", "%o{hex}", "%s{big}", "%d{%F", r"\x4"])
def test_what_is_not_understood_is_refused(text):
    with pytest.raises(ClientError):
        shown(text)


def test_records_do_not_control_a_terminal():
    assert visible("é\x1b[2J\x9b\x7f\tä\n".encode() + b"\xff") == "é\\x1b[2J\\x9b\\x7f\tä\n\\xff".encode()
    (line, *_) = RecordFormat("\x1b%s", is_terminal=True).lines(
        "t",
        0,
        StoredBatch(read_batch_header(build_batch(RECORDS)), "create", [RECORDS[0]._replace(value=b"\x1b")]),
    )
    assert line == b"\x1b\\x1b", "what the format itself has is meant"


def test_separators_have_the_same_escapes():
    assert unescaped(r"a\t\x00ß\\") == b"a\t\0" + "ß\\".encode()
    with pytest.raises(ClientError):
        unescaped("\\")
