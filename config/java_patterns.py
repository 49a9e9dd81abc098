"""Patterns and replacements of rules in the syntax of Java, by Python's `re`.

A pattern is written in Python's syntax where that is another one. What cannot be written so, and what means
something to Python alone, is refused: a rule that gives another name than in Kafka would give the rights of
somebody else. In a replacement `$1` is a group, and a
backslash takes its meaning from the next character.

Source: java.util.regex.
"""

import re
from collections.abc import Iterator

_LINE_ENDS = "\\n\\r\\x85\\u2028\\u2029"
"""Characters that a dot does not match in Java."""
_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
"""`$` in Java: the end, or before a line end there."""
_GROUP = re.compile(r"\(\?(?:[:=!>]|<[=!A-Za-z]|-?i[:)])")
"""The begin of a group that is more than one. Other flags than `i` have other effects in Python, or none."""
_REPETITION = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_OTHER_ESCAPE = re.compile(r"\\(?:[QEGzZv0]|[0-9]{2})")
"""Escapes that Python has not, or with another meaning: `\v` is every vertical blank in Java, and it reads
more digits of an octal number, and fewer of the number of a group."""


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
            if _OTHER_ESCAPE.match(pattern, index):
                raise ValueError(f"{pattern[index : index + 2]} is not built")
            character = pattern[index : index + 2]
            if is_in_set and character == "\\b":
                raise ValueError("\\b is not a character")
            written.append(character)
        elif is_in_set:
            if character == "[" or pattern.startswith("&&", index):
                raise ValueError("a set of characters in another one is not built")
            is_in_set = character != "]"
            written.append(character)
        elif character == "[":
            is_in_set = True
            character = "[^" if pattern.startswith("[^", index) else "["
            if pattern.startswith("]", index + len(character)):
                raise ValueError("a set of characters that begins with ] is not built; write \\]")
            written.append(character)
        else:
            character, text = _outside_of_sets(pattern, index)
            written.append(text)
        index += len(character)
    return "".join(written)


def _outside_of_sets(pattern: str, index: int) -> tuple[str, str]:
    """The text at an index, and the same in Python's syntax."""
    character = pattern[index]
    if character == ".":
        return character, f"[^{_LINE_ENDS}]"
    if character == "$":
        return character, _END
    if character == "{":
        repetition = _REPETITION.match(pattern, index)
        if repetition is None:
            raise ValueError("{ stands before a number of repetitions; write \\{ for a brace")
        return repetition[0], repetition[0]
    if pattern.startswith("(?", index):
        group = _GROUP.match(pattern, index)
        if group is None:
            raise ValueError(f"{pattern[index : index + 3]} is not built")
        if group[0][2] == "<" and group[0][3] not in "=!":
            return "(?<", "(?P<"
        return group[0], group[0]
    return character, character


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
