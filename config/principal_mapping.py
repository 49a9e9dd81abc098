"""`ssl.principal.mapping.rules`: how the name in a client's certificate becomes the name of a user.

The text is a list of `DEFAULT` and `RULE:pattern/replacement/`, with `L` or `U` behind it for lower or upper
case. The first rule whose pattern matches the whole name counts; then every match of the pattern is replaced.
Patterns and replacements have Java's syntax: `$1` is a group, a backslash takes its meaning from the next
character. A pattern that means something else to Python, or nothing, is refused.

Sources: KIP-371; SslPrincipalMapper of Kafka 4.3; java.util.regex.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from odradek.config.config_error import ConfigError

__all__ = ["NoRuleMatches", "PrincipalMapping"]

OPTION = "ssl.principal.mapping.rules"
_PART = r"((?:\\.|[^\\/])*)"
_RULE = rf"(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE, re.ASCII)
_LINE_ENDS = "\\n\\r\\x85\\u2028\\u2029"
"""What a dot does not match in Java."""


class NoRuleMatches(Exception):
    """A name that no rule takes: its connection is closed."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: tuple[str | int, ...]
    """Texts, and numbers of groups."""
    change_case: Callable[[str], str]

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        return self.change_case("".join(self._replaced(name)))

    def _replaced(self, name: str) -> Iterator[str]:
        """After an empty match Java goes on one character further; Python's `sub` looks for a longer one."""
        position = copied = 0
        while position <= len(name) and (match := self.pattern.search(name, position)):
            yield name[copied : match.start()]
            yield self._expand(match)
            copied = match.end()
            position = copied + (match.start() == copied)
        yield name[copied:]

    def _expand(self, match: re.Match[str]) -> str:
        return "".join(
            part if isinstance(part, str) else match.group(part) or "" for part in self.replacement
        )


class PrincipalMapping:
    """The rules of one text. ConfigError: it is no list of rules."""

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule | None] = []
        for match in _SPLITTER.finditer(text.strip()):
            self._add(match[1])

    def name_of(self, distinguished_name: str) -> str:
        """The user's name, without `User:`. Raises NoRuleMatches."""
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoRuleMatches(f"no rule of {OPTION} takes {distinguished_name!r}")

    def _add(self, text: str) -> None:
        match = _PARSER.match(text)
        if match is None or match.end() != len(text):
            raise _refusal(text, "a rule is DEFAULT or RULE:pattern/replacement/ with L or U behind it")
        if match[1] is not None:
            self._rules.append(None)
        elif match[2] is not None:
            pattern = _compiled(text, match[2])
            self._rules.append(_Rule(pattern, _replacement(text, match[3], pattern.groups), _CASES[match[4]]))


_CASES: dict[str, Callable[[str], str]] = {"": str, "L": str.lower, "U": str.upper}


def _compiled(rule: str, pattern: str) -> re.Pattern[str]:
    try:
        # In Java \d, \w and \s are of ASCII.
        return re.compile(_as_python(rule, pattern), re.ASCII)
    except re.error as error:
        raise _refusal(rule, f"the pattern cannot be read ({error})") from None


def _as_python(rule: str, pattern: str) -> str:
    """The same pattern in Python's syntax."""
    written: list[str] = []
    is_in_set = False
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            if pattern[index + 1 : index + 2] in ("Q", "E", "G", "z", "Z"):
                raise _refusal(rule, f"\\{pattern[index + 1]} is not built")
            character = pattern[index : index + 2]
        elif is_in_set:
            if character == "[" or pattern.startswith("&&", index):
                raise _refusal(rule, "a set of characters in another one is not built")
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


def _replacement(rule: str, text: str, groups: int) -> tuple[str | int, ...]:
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
            number, index = _group(rule, text, index, groups)
            if number is not None:
                parts.append(number)
                continue
        parts.append(character)
    return tuple(parts)


def _group(rule: str, text: str, index: int, groups: int) -> tuple[int | None, int]:
    """The group whose number begins at `index`, and where the text goes on; None for a literal `$`."""
    digits = re.match("[0-9]", text[index:])
    if digits is None:
        raise _refusal(rule, "$ stands before the number of a group; write \\$ for a dollar")
    number = int(digits[0])
    if number > groups:
        if not groups:
            raise _refusal(rule, f"the pattern has no group {number}")
        return None, index
    index += 1
    while (more := re.match("[0-9]", text[index:])) and number * 10 + int(more[0]) <= groups:
        number = number * 10 + int(more[0])
        index += 1
    return number, index


def _refusal(rule: str, reason: str) -> ConfigError:
    return ConfigError(f"{OPTION} has {rule!r}: {reason}.")
