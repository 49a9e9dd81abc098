"""Patterns and replacements of rules in the syntax of Java, by Python's `re`.

A pattern that means something else to Python, or nothing, is refused. In a replacement `$1` is a group, and a
backslash takes its meaning from the next character.

Source: java.util.regex.
"""

import re
from collections.abc import Iterator

__all__ = ["Substitution", "java_pattern"]

_LINE_ENDS = "\\n\\r\\x85\\u2028\\u2029"
"""What a dot does not match in Java."""


class Substitution:
    """A pattern and what to write for each match of it. ValueError: its replacement is none."""

    def __init__(self, pattern: re.Pattern[str], replacement: str) -> None:
        self.pattern = pattern
        self._replacement = _replacement(replacement, pattern.groups)

    def apply(self, text: str, *, is_repeated: bool = True) -> str:
        """With every match replaced, or the first one only."""
        return "".join(self._replaced(text, is_repeated))

    def _replaced(self, text: str, is_repeated: bool) -> Iterator[str]:
        """After an empty match Java goes on one character further; Python's `sub` looks for a longer one."""
        position = copied = 0
        while position <= len(text) and (match := self.pattern.search(text, position)):
            yield text[copied : match.start()]
            yield self._expand(match)
            copied = match.end()
            position = copied + (match.start() == copied)
            if not is_repeated:
                break
        yield text[copied:]

    def _expand(self, match: re.Match[str]) -> str:
        return "".join(
            part if isinstance(part, str) else match.group(part) or "" for part in self._replacement
        )


def java_pattern(pattern: str) -> re.Pattern[str]:
    """The same pattern in Python. ValueError: the reason why there is none."""
    try:
        # In Java \d, \w and \s are of ASCII.
        return re.compile(_as_python(pattern), re.ASCII)
    except re.error as error:
        raise ValueError(f"the pattern cannot be read ({error})") from None


def _as_python(pattern: str) -> str:
    """The same pattern in Python's syntax."""
    written: list[str] = []
    is_in_set = False
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            if pattern[index + 1 : index + 2] in ("Q", "E", "G", "z", "Z"):
                raise ValueError(f"\\{pattern[index + 1]} is not built")
            character = pattern[index : index + 2]
        elif is_in_set:
            if character == "[" or pattern.startswith("&&", index):
                raise ValueError("a set of characters in another one is not built")
            is_in_set = character != "]"
        elif character == "[":
            is_in_set = True
        elif character == ".":
            written.append(f"[^{_LINE_ENDS}]")
            index += 1
            continue
        elif re.match(r"\(\?<[A-Za-z]", pattern[index:]):
            written.append("(?P<")
            index += 3
            continue
        written.append(character)
        index += len(character)
    return "".join(written)


def _replacement(text: str, groups: int) -> tuple[str | int, ...]:
    """A number beyond the groups is the text that it is; `$12` with two groups is the first one and "2"."""
    parts: list[str | int] = []
    index = 0
    while index < len(text):
        character = text[index]
        index += 1
        if character == "\\":
            character = text[index : index + 1]
            index += 1
        elif character == "$":
            number, index = _group(text, index, groups)
            if number is not None:
                parts.append(number)
                continue
        parts.append(character)
    return tuple(parts)


def _group(text: str, index: int, groups: int) -> tuple[int | None, int]:
    """The group whose number begins at `index`, and where the text goes on; None for a literal `$`."""
    digits = re.match("[0-9]", text[index:])
    if digits is None:
        raise ValueError("$ stands before the number of a group; write \\$ for a dollar")
    number = int(digits[0])
    if number > groups:
        if not groups:
            raise ValueError(f"the pattern has no group {number}")
        return None, index
    index += 1
    while (more := re.match("[0-9]", text[index:])) and number * 10 + int(more[0]) <= groups:
        number = number * 10 + int(more[0])
        index += 1
    return number, index
