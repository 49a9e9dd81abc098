"""`ssl.principal.mapping.rules`: how the name in a client's certificate becomes the name of a user.

The text is a list of `DEFAULT` and `RULE:pattern/replacement/`, with `L` or `U` behind it for lower or upper
case. The first rule whose pattern matches the whole name counts; then every match of the pattern is replaced.
Patterns and replacements have Java's syntax (`java_patterns.py`).

Sources: KIP-371; SslPrincipalMapper of Kafka 4.3; java.util.regex.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from odradek.config.config_error import ConfigError
from odradek.config.java_patterns import Substitution, java_pattern

OPTION = "ssl.principal.mapping.rules"
_PART = r"((?:\\.|[^\\/])*)"
_RULE = rf"(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE, re.ASCII)


class NoRuleMatches(Exception):
    """A name that no rule takes: its connection is closed."""


class _Rule(NamedTuple):
    substitution: Substitution
    change_case: Callable[[str], str]

    def apply(self, name: str) -> str | None:
        if self.substitution.pattern.fullmatch(name) is None:
            return None
        return self.change_case(self.substitution.apply(name))


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
            try:
                substitution = Substitution(java_pattern(match[2]), match[3])
            except ValueError as error:
                raise _refusal(text, str(error)) from None
            self._rules.append(_Rule(substitution, _CASES[match[4]]))


_CASES: dict[str, Callable[[str], str]] = {"": str, "L": str.lower, "U": str.upper}


def _refusal(rule: str, reason: str) -> ConfigError:
    return ConfigError(f"{OPTION} has {rule!r}: {reason}.")
