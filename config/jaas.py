"""The JAAS form of login settings: `sasl.jaas.config`, and files with contexts.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret" user_bob="other";

In a file an entry stands in a named context: `KafkaServer { ...; };`. A server looks for
`<listener>.KafkaServer`, the listener in lower case, then for `KafkaServer`.

The words are those of Java's StreamTokenizer, as JaasConfig of Kafka sets it up: letters, digits and `-_$.`
make a word; text in `"` or `'` has escapes; `//` and a lone `/` begin a comment to the end of the line, `/*`
one to `*/`. A value that is a bare number is an error there and here.

Java runs any class that is named. Here a login module is one of a fixed table; any other is refused by name
(CVE-2023-25194 is what happens otherwise). Values may be passwords: no error shows one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.config.config_error import ConfigError
from odradek.config.secret import Secret

_SECURITY: Final = "org.apache.kafka.common.security"
LOGIN_MODULES: Final = {
    f"{_SECURITY}.plain.PlainLoginModule": ("PLAIN",),
    f"{_SECURITY}.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
    "com.sun.security.auth.module.Krb5LoginModule": ("GSSAPI",),
    "org.apache.zookeeper.server.auth.DigestLoginModule": ("DIGEST-MD5",),
}
"""Classes, and the mechanisms that each is for; the last one is for ZooKeeper alone."""
_CLASS: Final = re.compile(r"(?:[A-Za-z_]\w*\.)*\w*LoginModule", re.ASCII)
"""Text that may be shown: no other text is known to be no password."""
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_SYMBOLS: Final = "{}=;"
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_KAFKA_SERVER: Final = "KafkaServer"


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry: its class, and its options without the quotes."""

    name: str
    options: Mapping[str, Secret] = field(repr=False)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return LOGIN_MODULES[self.name]


def parse_one(text: str, what: str) -> LoginModule:
    """The one entry of a `sasl.jaas.config`; `what` names it in errors. ConfigError: one sentence."""
    reader = _Reader(text, what)
    entry = _entry(reader)
    if not reader.at_end:
        raise reader.error("has more than one login module, and Kafka takes one: remove the others")
    return entry


def parse_file(text: str, what: str) -> Mapping[str, Sequence[LoginModule]]:
    """The contexts of a file, by name. ConfigError: one sentence."""
    reader = _Reader(text, what)
    contexts: dict[str, list[LoginModule]] = {}
    while not reader.at_end:
        name = reader.word("the name of a context")
        if name in contexts:
            raise reader.error("has a context twice")
        reader.symbol("{")
        entries = contexts[name] = []
        while not reader.skip("}"):
            entries.append(_entry(reader))
        reader.symbol(";")
    return contexts


def server_context(
    contexts: Mapping[str, Sequence[LoginModule]], listener: str, mechanism: str
) -> LoginModule | None:
    """The login module of a mechanism of a listener; None without one."""
    found = contexts.get(f"{listener.lower()}.{_KAFKA_SERVER}", contexts.get(_KAFKA_SERVER, ()))
    return next((one for one in found if mechanism in one.mechanisms), None)


def _entry(reader: _Reader) -> LoginModule:
    name = reader.word("the class of a login module")
    if name not in LOGIN_MODULES:
        known = ", ".join(one.rpartition(".")[2] for one in LOGIN_MODULES)
        shown = (
            f"the login module {name!r}" if _CLASS.fullmatch(name) else "something else than a login module"
        )
        raise reader.error(f"has {shown}, and the known ones are Kafka's {known}")
    if reader.word("a control flag").lower() not in _FLAGS:
        raise reader.error(f"has no control flag after {name}: write one of {', '.join(_FLAGS)}")
    options: dict[str, Secret] = {}
    while not reader.skip(";"):
        key = reader.word("a key or ';'")
        reader.symbol("=")
        # Behind a forgotten quote the key may be a part of a password.
        options[key] = Secret(reader.word("the value of a key, in quotes if it is a number,"))
    return LoginModule(name, options)


class _Reader:
    """The words and symbols of a text."""

    def __init__(self, text: str, what: str) -> None:
        self._what = what
        self._line = 1
        self._tokens = _tokens(text, self)
        self._next = next(self._tokens, None)

    @property
    def at_end(self) -> bool:
        return self._next is None

    def error(self, sentence: str, line: int | None = None) -> ConfigError:
        return ConfigError(f"{self._what} {sentence} (line {self._line if line is None else line}).")

    def word(self, expected: str) -> str:
        if self._next is None or not self._next.is_word:
            raise self.error(f"is not a JAAS configuration: {expected} is missing")
        text = self._next.text
        self._advance()
        return text

    def skip(self, symbol: str) -> bool:
        """Whether the symbol is next, which is taken then."""
        if self._next is None or self._next.is_word or self._next.text != symbol:
            return False
        self._advance()
        return True

    def symbol(self, symbol: str) -> None:
        if not self.skip(symbol):
            raise self.error(f"is not a JAAS configuration: {symbol!r} is missing")

    def _advance(self) -> None:
        assert self._next is not None
        self._line = self._next.line
        self._next = next(self._tokens, None)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    is_word: bool
    line: int


def _tokens(text: str, reader: _Reader) -> Iterator[_Token]:
    at, line, end = 0, 1, len(text)
    while at < end:
        char = text[at]
        if char == "\n":
            line += 1
        if char <= " ":
            at += 1
        elif char == "/":
            at, line = _comment(text, at, line)
        elif char in "\"'":
            word, at = _quoted(text, at, reader, line)
            yield _Token(word, True, line)
        elif _is_in_word(char):
            begin = at
            while at < end and _is_in_word(text[at]):
                at += 1
            word = text[begin:at]
            # Java reads a number there, and cuts a word such as 1a behind it.
            yield _Token(word, not (word[0].isdecimal() or word[0] in "-."), line)
        else:
            yield _Token(char, False, line)
            at += 1


def _comment(text: str, at: int, line: int) -> tuple[int, int]:
    """Position and line after a comment."""
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        end = len(text) if end < 0 else end + 2
        return end, line + text.count("\n", at, end)
    end = text.find("\n", at)
    return (len(text) if end < 0 else end), line


def _is_in_word(char: str) -> bool:
    return (char.isascii() and char.isalnum()) or char in "-_$." or char >= "\xa0"


def _quoted(text: str, at: int, reader: _Reader, line: int) -> tuple[str, int]:
    """A text in quotes, and the position after it; a line end closes it, as in Java."""
    quote, at, end = text[at], at + 1, len(text)
    found: list[str] = []
    while at < end and text[at] not in (quote, "\n", "\r"):
        char = text[at]
        at += 1
        if char == "\\" and at < end:
            char, at = _escaped(text, at)
        found.append(char)
    if at >= end or text[at] != quote:
        raise reader.error("has a text without its closing quote", line)
    return "".join(found), at + 1


def _escaped(text: str, at: int) -> tuple[str, int]:
    """The character of an escape whose backslash is before `at`, and the position after it."""
    char = text[at]
    if char not in "01234567":
        return _ESCAPES.get(char, char), at + 1
    size = 1
    size_max = 3 if char <= "3" else 2
    while size < size_max and text[at + size : at + size + 1] in tuple("01234567"):
        size += 1
    return chr(int(text[at : at + size], 8)), at + size
