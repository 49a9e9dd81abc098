"""Filters: contains, equals, RE2, a path in JSON, headers; and what is refused."""

import time

import pytest

from odradek.client.client_error import ClientError
from odradek.console.filters import chooser
from odradek.wire.record_layout import Record


def record(value=b"", key=b"k", headers=()):
    return Record(0, 0, key, value, headers)


def is_chosen(content, /, **query):
    return chooser(query)(record(content))


@pytest.mark.parametrize(
    ("how", "text", "value", "wanted"),
    [
        ("contains", "fund", b"refund", True),
        ("contains", "Fund", b"refund", False),
        ("contains", "ü", "Müller".encode(), True),
        ("", "fund", b"refund", True),
        ("equals", "refund", b"refund", True),
        ("equals", "refund", b"refunds", False),
        ("re2", "^re.*d$", b"refund", True),
        ("re2", r"\d{3}", b"12", False),
        ("re2", "M(ü|u)ller", "Müller".encode(), True),
        ("re2", "(?i)REFUND", b"refund", True),
        ("path", "id=7", b'{"id": 7}', True),
        ("path", "$.id = 7", b'{"id": 7}', True),
        ("path", "id=7", b'{"id": "7"}', True),
        ("path", "id=7", b'{"id": 8}', False),
        ("path", "id", b'{"id": null}', True),
        ("path", "id=null", b'{"id": null}', True),
        ("path", "no", b'{"id": null}', False),
        ("path", "a.b[1].c=x", b'{"a": {"b": [0, {"c": "x"}]}}', True),
        ("path", "a.b[*].c=x", b'{"a": {"b": [0, {"c": "y"}, {"c": "x"}]}}', True),
        ("path", "[0]=1", b"[1]", True),
        ("path", "[9]=1", b"[1]", False),
        ("path", "id=7", b"no JSON", False),
        ("path", "id=7", b"\xff\xfe", False),
        ("path", "id=7", b"[" * 100_000, False),
        ("path", "id=true", b'{"id": true}', True),
    ],
)
def test_a_value_is_compared_as_it_is_said(how, text, value, wanted):
    assert is_chosen(value, value=text, value_how=how) is wanted


@pytest.mark.parametrize(
    ("how", "text", "reason"),
    [
        ("re2", "(", "regular expression"),
        ("re2", r"(a)\1", "regular expression"),
        ("re2", "a{1001}", "regular expression"),
        ("path", "a b", "is not a path"),
        ("path", "=7", "a JSON path is as"),
        ("path", "a[x]", "is not a path"),
        ("contains", "x" * 1001, "at most 1,000"),
    ],
)
def test_a_filter_that_is_not_understood_is_a_sentence(how, text, reason):
    with pytest.raises(ClientError, match=reason):
        chooser({"value": text, "value_how": how})


def test_no_expression_is_slow():
    """An expression takes years in Python's own `re`."""
    began = time.process_time()
    assert not is_chosen(b"a" * 50_000 + b"!", value="(a+)+$", value_how="re2")
    assert time.process_time() - began < 20


def test_key_value_and_header_are_all_wanted():
    chooses = chooser({"key": "k", "value": "v", "header": "trace=abc"})
    assert chooses(record(b"v", b"k", [("trace", b"xabcx")]))
    assert not chooses(record(b"v", b"k", [("trace", b"x")]))
    assert not chooses(record(b"v", b"k", [("other", b"abc")]))
    assert not chooses(record(b"v", b"q", [("trace", b"abc")]))
    assert not chooses(record(None, b"k", [("trace", b"abc")]))
    assert not chooses(record(b"v", None, [("trace", b"abc")]))
    assert chooser({"header": "trace"})(record(b"", b"", [("trace", None)]))
    assert not chooser({"header": "trace=a"})(record(b"", b"", [("trace", None)]))
    assert chooser({"key": "", "value": "", "header": " "}) is None
