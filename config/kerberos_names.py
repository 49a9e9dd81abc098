"""`sasl.kerberos.principal.to.local.rules`: how a principal of Kerberos becomes the name of a user.

A principal is `primary@REALM` or `primary/host@REALM`. Each rule is `DEFAULT` or

    RULE:[n:format](match)s/from/to/g/L

`DEFAULT` takes principals of the default realm, and their primary. The other kind takes principals of `n`
components; `format` makes a text of them (`$0` is the realm, `$1` the primary, `$2` the host), `match` has to
match the whole text, and then `from` is replaced by `to`, with `g` everywhere. `L` and `U` change the case.
`(match)`, `s/from/to/` and the rest may be left out. The first rule that takes a principal counts; a result
with `/` or `@` is none. Patterns have Java's syntax (`java_patterns.py`).

A rule that fails in Kafka for each principal, such as one with `$3`, is refused here at the start.

Sources: KerberosName, KerberosRule and KerberosShortNamer of Kafka 4.3.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from odradek.config.config_error import ConfigError
from odradek.config.java_patterns import Substitution, java_pattern

OPTION = "sasl.kerberos.principal.to.local.rules"
_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"(?P<default>DEFAULT)"
    r"|RULE:\[(?P<count>[0-9]+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<source>[^/]*)/(?P<target>[^/]*)/(?P<repeat>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$([0-9]*)")


class NoLocalName(Exception):
    """A principal that no rule takes, or one for which the result is no name."""


class KerberosName(NamedTuple):
    """The parts of a principal; those that it has not are None."""

    primary: str
    host: str | None
    realm: str | None

    @classmethod
    def parse(cls, text: str) -> "KerberosName":
        """ValueError: it has too many parts."""
        match = _NAME.fullmatch(text)
        if match is not None:
            return cls(match[1], match[2], match[3])
        if "@" in text:
            raise ValueError(f"{text!r} is not a principal of the form primary/host@REALM")
        return cls(text, None, None)


class _Rule(NamedTuple):
    components: int
    format: tuple[str | int, ...]
    """Texts, and numbers of components; 0 is the realm."""
    match: re.Pattern[str] | None
    substitution: Substitution | None
    is_repeated: bool
    change_case: Callable[[str], str]

    def apply(self, parts: list[str]) -> str | None:
        """`parts` are the realm and the components."""
        if len(parts) - 1 != self.components:
            return None
        base = "".join(part if isinstance(part, str) else parts[part] for part in self.format)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        if self.substitution is not None:
            base = self.substitution.apply(base, is_repeated=self.is_repeated)
        return self.change_case(_checked(base))


class ShortNames:
    """The rules of one listener. ConfigError: one makes no sense."""

    def __init__(self, rules: Iterable[str], default_realm: str) -> None:
        self._default_realm = default_realm
        self._rules = [_rule(text) for text in rules]

    def name_of(self, principal: str) -> str:
        """The user's name, without `User:`. Raises NoLocalName."""
        try:
            primary, host, realm = KerberosName.parse(principal)
        except ValueError as error:
            raise NoLocalName(str(error)) from None
        if realm is None:
            return primary
        parts = [realm, primary] if host is None else [realm, primary, host]
        for rule in self._rules:
            if rule is None:
                name = _checked(primary) if realm == self._default_realm else None
            else:
                name = rule.apply(parts)
            if name is not None:
                return name
        raise NoLocalName(f"no rule of {OPTION} takes {principal!r}")


_CASES: dict[str | None, Callable[[str], str]] = {None: str, "L": str.lower, "U": str.upper}


def _rule(text: str) -> _Rule | None:
    """None: DEFAULT."""
    match = _RULE.match(text)
    if match is None or match.end() != len(text):
        raise _refusal(text, "a rule is DEFAULT or RULE:[n:format](match)s/from/to/g/L, without commas")
    if match["default"] is not None:
        return None
    count = int(match["count"])
    try:
        pattern = None if match["match"] is None else java_pattern(match["match"])
        substitution = None
        if match["source"] is not None:
            substitution = Substitution(java_pattern(match["source"]), match["target"])
        parts = tuple(_format(match["format"], count))
    except ValueError as error:
        raise _refusal(text, str(error)) from None
    return _Rule(count, parts, pattern, substitution, match["repeat"] is not None, _CASES[match["case"]])


def _format(text: str, count: int) -> Iterable[str | int]:
    position = 0
    for match in _PARAMETER.finditer(text):
        yield text[position : match.start()]
        if not match[1] or int(match[1]) > count:
            raise ValueError(f"${match[1]} is none of the realm $0 and the {count} components")
        yield int(match[1])
        position = match.end()
    yield text[position:]


def _checked(name: str) -> str:
    if "/" in name or "@" in name:
        raise NoLocalName(f"the rules of {OPTION} make {name!r}, which is not a name of a user")
    return name


def _refusal(rule: str, reason: str) -> ConfigError:
    return ConfigError(f"{OPTION} has {rule!r}: {reason}.")
