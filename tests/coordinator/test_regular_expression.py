"""Regular expressions of clients: RE2's syntax and results, in bounded time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.regular_expression import RegularExpression
from odradek.wire.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["ab", "abcd", "xabc", "ABC"]),
        ("a|bc", ["a", "bc"], ["b", "abc", ""]),
        ("a||b", ["a", "", "b"], ["ab"]),
        (".*special-.*", ["my-special-0", "special-"], ["special", "nothing", "x\nspecial-"]),
        ("(?s).*special-.*", ["x\nspecial-"], ["special"]),
        ("a*b+c?", ["b", "aabbc", "bc"], ["a", "ac", "bcc"]),
        ("a*?b+?c??", ["b", "aabbc", "bc"], ["a", "ac", "bcc"]),
        ("a{2}b{1,2}c{2,}d{0}", ["aabcc", "aabbcccc"], ["abcc", "aabbbcc", "aabc", "aabccd"]),
        ("a{,2}b{x}{", ["a{,2}b{x}{"], ["aab"]),
        ("(ab)*(?:c|d)(?P<name>e)(?<other>f)", ["cef", "ababdef"], ["abef"]),
        ("((((a*)*)*)*)*", ["", "aaa"], ["b"]),
        ("[a-c1_-]+", ["a-1", "_"], ["d", ""]),
        ("[^a-c\\d]", ["d", "-", "\n"], ["b", "5", ""]),
        ("[]a]+[^]b]", ["]ac", "a-"], ["]b", "a]"]),
        ("[\\]\\-\\\\^]+", ["]-\\^"], ["a"]),
        ("[[:alpha:]]+[[:^digit:]x][[:punct:]]", ["ab_!", "zx."], ["a1.", "ä_!"]),
        ("\\d\\D\\s\\S\\w\\W", ["1a b_-"], ["aa b_-", "٣a b_-"]),
        ("[\\d\\s]+", ["1 2"], ["a"]),
        ("\\pL+\\p{Lu}\\PN\\p{^L}", ["äÄx1"], ["1Äx1", "ää11"]),
        ("\\p{Any}", ["x"], ["", "xy"]),
        ("\\Qa.b*\\E+c", ["a.b*c", "a.b**c"], ["a.bc", "axb*c"]),
        ("\\Qa.b", ["a.b"], ["axb"]),
        ("\\.\\*\\(\\-\\x41\\x{1F600}\\101\\n\\0", [".*(-A😀A\n\0"], ["x"]),
        ("(?i)aBc[d-f]\\x4b", ["AbCEk", "abcdK"], ["abcgk"]),
        ("(?i:a)b|(?i)c(?-i)d", ["Ab", "Cd"], ["AB", "cD"]),
        ("(?i)ß.Ä", ["ßxä"], ["ssxä"]),
        ("(a(?i)b|c)d", ["aBd", "Cd"], ["ABd", "aBD"]),
        ("^a$", ["a"], ["aa"]),
        ("a^b", [], ["ab", "a^b"]),
        ("(?m)a$\n^b", ["a\nb"], ["ab"]),
        ("a$\nb", [], ["a\nb"]),
        ("\\Aa\\z", ["a"], ["a\n"]),
        ("a\\b-\\bb\\Bc", ["a-bc"], ["abc"]),
        ("\\b", [], [""]),
        ("(?U)a+?", ["aaa"], [""]),
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
        "(ab(cd",
        "a)",
        "[a",
        "[",
        "[]",
        "[b-a]",
        "[a-\\d]",
        "[[:nothing:]]",
        "*a",
        "a|*",
        "(+)",
        "a**",
        "a+*",
        "a{2}{3}",
        "a*++",
        "a{1001}",
        "a{3,2}",
        "(?i)*",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?P=name)",
        "(?P<>a)",
        "(?P<a-b>a)",
        "(?<a",
        "(?",
        "(?)",
        "(?-)",
        "(?x)a",
        "(?i",
        "\\",
        "[\\",
        "\\1",
        "\\8",
        "\\y",
        "\\C",
        "\\ä",
        "\\p",
        "\\pX",
        "\\p{Greek}",
        "\\p{L",
        "\\x",
        "\\x4",
        "\\xzz",
        "\\x{}",
        "\\x{110000}",
        "\\x{1F600",
        "(" * 100 + ")" * 100,
        "[" + "a-z" * 100 + "]",
        "((a{100}){100}){100}",
        "(((a{1000}){1000}){1000}){1000}",
        "(((a{0}){1000}){1000}){1000}",
    ],
)
def test_what_re2_does_not_know_or_costs_too_much_is_refused_with_a_reason(pattern):
    with pytest.raises(KafkaError) as refusal:
        RegularExpression(pattern)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "is not a valid regular expression: " in refusal.value.message
    assert len(refusal.value.message) < 250


def test_what_keeps_a_backtracking_matcher_busy_for_ever_is_decided_at_once():
    assert not RegularExpression("(a+)+b").matches("a" * 10_000)
    assert not RegularExpression("(a|aa)*(a|aa)*(a|aa)*$b").matches("a" * 10_000)
    assert RegularExpression("(.*)(.*)(.*)(.*)(.*)x").matches("y" * 10_000 + "x")


def test_work_without_end_is_refused():
    """Each of these texts leads to states that the others did not have: 2**20 of them in all."""
    expression = RegularExpression("(a|b)*a(a|b){20}")
    texts = (f"{number * 7919 % 2**40:b}".translate({48: "a", 49: "b"}) for number in range(100_000))
    with pytest.raises(KafkaError) as refusal:
        all(expression.matches(text) is not None for text in texts)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


PIECES = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "\\w", "(?:ab)", "(?:a|bb)", "(?:b*)", "\\b", "^", "$"]
)
PARTS = st.tuples(PIECES, st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "*?"]))


@given(st.lists(PARTS, max_size=6), st.text("ab-", max_size=8))
def test_it_says_what_python_says_where_both_know_the_syntax(parts, text):
    is_anchor = {"\\b", "^", "$"}
    pattern = "".join(piece + ("" if piece in is_anchor else count) for piece, count in parts)
    assert RegularExpression(pattern).matches(text) == (re.fullmatch(pattern, text) is not None)
