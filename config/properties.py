"""Reads and writes the syntax of `java.util.Properties`, the syntax of `server.properties`.

Blank lines and lines that begin with # or ! are skipped; a backslash at the end of a line continues it; a key
ends at the first unescaped '=', ':' or blank; \\t \\n \\r \\f and \\uXXXX are escapes and any other escaped
character stands for itself; the later of two equal keys counts. Bytes are Latin-1, as Kafka reads them.
"""

import re
from collections.abc import Mapping

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {character: escape for escape, character in _ESCAPES.items()}
_HEX = re.compile(r"[0-9a-fA-F]{4}")


def parse_properties(data: bytes) -> dict[str, str]:
    """Values by key, in the order of the file. ValueError (one sentence): a broken \\uXXXX escape."""
    properties: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        key, value = _split(line)
        properties.pop(key, None)
        properties[key] = value
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """A file that reads as these, a line each; ASCII alone, which every reader takes."""
    return "".join(f"{_escape(key, in_key=True)}={_escape(text)}\n" for key, text in properties.items())


def _escape(text: str, *, in_key: bool = False) -> str:
    escaped = []
    for number, character in enumerate(text):
        if character in _WRITTEN:
            escaped.append(f"\\{_WRITTEN[character]}")
        elif character == "\\" or (character in " =:#!" and (in_key or number == 0)):
            escaped.append(f"\\{character}")
        elif character.isascii():
            escaped.append(character)
        else:
            halves = character.encode("utf-16-be")
            escaped += [f"\\u{halves[at : at + 2].hex()}" for at in range(0, len(halves), 2)]
    return "".join(escaped)


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and leading blanks, continued ones joined."""
    naturals = _LINE_END.split(text)
    if not naturals[-1]:
        del naturals[-1]
    lines: list[str] = []
    joined: str | None = None
    for natural in naturals:
        line = natural.lstrip(_BLANKS)
        # A continuation of an empty line is a line of its own, so this is right for an empty `joined`, too.
        if not joined and (not line or line[0] in "#!"):
            joined = None
            continue
        joined = (joined or "") + line
        if _ends_open(line):
            joined = joined[:-1]
        else:
            lines.append(joined)
            joined = None
    # The file ends with a backslash: Java makes an entry of it even on an empty line.
    if joined is not None:
        lines.append(joined)
    return lines


def _ends_open(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    start = end
    while start < len(line) and line[start] in _BLANKS:
        start += 1
    if start < len(line) and line[start] in "=:":
        start += 1
        while start < len(line) and line[start] in _BLANKS:
            start += 1
    return _unescape(line[:end]), _unescape(line[start:])


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while (found := text.find("\\", position)) >= 0:
        parts.append(text[position:found])
        escaped = text[found + 1 : found + 2]
        position = found + 2
        if escaped == "u":
            digits = text[position : position + 4]
            if not _HEX.fullmatch(digits):
                raise ValueError(f"\\u{digits} is not an escape: four hexadecimal digits must follow \\u.")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    parts.append(text[position:])
    # Two escapes may be the halves of one character beyond the 16-bit range.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
