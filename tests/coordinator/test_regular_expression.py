"""Regular expressions of clients: RE2's syntax and results, in bounded time."""

import sys

import pytest

from odradek.coordinator.regular_expression import RegularExpression, matches_of
from odradek.wire.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["ab", "abcd", "xabc", "ABC"]),
        ("a|bc", ["a", "bc"], ["b", "abc", ""]),
        (".*special-.*", ["my-special-0", "special-"], ["special", "nothing", "x\nspecial-"]),
        ("(?i)aBc[d-f]\\x4b", ["AbCEk", "abcdK"], ["abcgk"]),
        ("\\p{Greek}+\\pN", ["βδ1"], ["ab1"]),
        ("\\Aa\\z", ["a"], ["a\n"]),
        ("ä😀", ["ä😀"], ["a"]),
    ],
)
def test_the_whole_text_has_to_match(pattern, yes, no):
    expression = RegularExpression(pattern)
    assert [text for text in yes if not expression.matches(text)] == []
    assert [text for text in no if expression.matches(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *("(ab(cd", "a)", "[a", "[b-a]", "*a", "a**", "a{1001}", "a{3,2}", "\\", "\\8", "\\p{Nothing}"),
        *("(?=a)", "(?<!a)", "(a)\\1"),
        "((a{100}){100}){100}",
        "(?:(?:x?[ab]{0,1000}){20})*",
        "ä" * 100 + "(",
    ],
)
def test_what_re2_does_not_know_or_costs_too_much_is_refused_with_a_reason(pattern):
    with pytest.raises(KafkaError) as refusal:
        RegularExpression(pattern)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "not a valid regular expression: " in refusal.value.message
    assert len(refusal.value.message) < 250


def test_what_keeps_a_backtracking_matcher_busy_for_ever_is_decided_at_once():
    assert not RegularExpression("(a+)+b").matches("a" * 10_000)
    assert not RegularExpression("(a|aa)*(a|aa)*(a|aa)*$b").matches("a" * 10_000)
    assert RegularExpression("(.*)(.*)(.*)(.*)(.*)x").matches("y" * 10_000 + "x")


def test_what_is_no_expression_matches_nothing_beside_others_that_do():
    found = matches_of(["t.", "(", "T"], ["t1", "t2", "t", "at1"])
    assert found == {"t.": {"t1", "t2"}, "(": set(), "T": set()}


def test_an_install_without_the_library_refuses_every_pattern(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(KafkaError) as refusal:
        RegularExpression("a")
    assert refusal.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "google-re2" in refusal.value.message
