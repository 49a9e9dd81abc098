"""Patterns of Java: what they take there they take here, and what would mean something else is refused."""

import pytest

from odradek.config.java_patterns import java_pattern


@pytest.mark.parametrize(
    ("pattern", "taken", "not_taken"),
    [
        ("a.c", ("abc",), ("a\nc", "a\rc", "a\x85c", "a\u2028c")),
        ("(?i)ab", ("AB", "ab"), ("A\u212a",)),
        ("(?i:a)b", ("Ab",), ("AB",)),
        ("(?i:a(?-i:b))", ("Ab",), ("AB",)),
        ("(?<who>a)(?:b)(?=c)(?!d)(?<=b)(?<!a)c", ("abc",), ("abd",)),
        ("a{2}b{1,}c{0,1}", ("aabc", "aabb"), ("abc",)),
        (r"\{a\}", ("{a}",), ("a",)),
        (r"[\]x]", ("]", "x"), ("a",)),
        (r"[^\]x]", ("a",), ("]", "x")),
        ("[.$({]", (".", "$", "(", "{"), ("a",)),
        (r"\$\.", ("$.",), ("a.",)),
        (r"(a)\1", ("aa",), ("ab",)),
        (r"\d\w\s", ("1a ",), ("\u0661a ", "1\xe9 ", "1a\u2003")),
    ],
)
def test_a_pattern_takes_what_java_takes(pattern, taken, not_taken):
    compiled = java_pattern(pattern)
    assert all(compiled.fullmatch(text) for text in taken)
    assert not any(compiled.fullmatch(text) for text in not_taken)


@pytest.mark.parametrize(
    ("text", "found_at"),
    [
        ("ab", (2,)),
        ("ab\n", (2, 3)),
        ("ab\r\n", (2, 4)),
        ("ab\r", (2, 3)),
        ("ab\n\n", (3, 4)),
        ("ab\u2028", (2, 3)),
        ("ab\v", (3,)),
    ],
)
def test_an_end_is_where_java_finds_it(text, found_at):
    assert tuple(match.start() for match in java_pattern("$").finditer(text)) == found_at


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?s).*", "(?m)^a", "(?x)a b", "(?is)a", "(?u)a", "(?a)a", "(?L)a", "(?d)a", "(?s:.)", "(?-s:.)"),
        *("(?P<a>x)", "(?P<a>x)(?P=a)", "(?#a)x", "(a)?(?(1)b|c)"),
        *(r"\v", r"[\v]", r"\0101", r"\012", r"(a)\11", r"\101", r"[\b]", r"\Qa\E", r"a\z", r"a\Z"),
        *("[].x]", "[^].x]", "[]", "[a[b]]", "[a&&b]"),
        *("a{,3}", "{", "a{", "a{x}", "a{1"),
        *("(", "a**", r"\p{L}", "\\"),
    ],
)
def test_what_would_mean_something_else_is_refused(pattern):
    with pytest.raises(ValueError, match=r"not built|cannot be read|repetitions|not a character"):
        java_pattern(pattern)
