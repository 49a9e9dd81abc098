"""Which records are shown: conditions on key, value and headers.

The ways to compare are contains, equals, RE2 (a regular expression that no text makes slow) and the path of a
field in JSON. Nothing else is run for a person: no scripts, no expressions of Python.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from odradek.client.client_error import ClientError
from odradek.commands.decoding import PARSED_BYTES_MAX
from odradek.wire.record_layout import Record

HOWS: Final = {"contains": "contains", "equals": "equals", "re2": "RE2", "path": "JSON path"}
"""Ways to compare, and their names for people."""
TEXT_CHARACTERS_MAX = 1_000
Test = Callable[[bytes], bool]
Chooses = Callable[[Record], bool]

_STEP = re.compile(r"\.?([^.\[\]=\s]+)|\[([0-9]{1,9}|\*)\]")


def chooser(query: Mapping[str, str]) -> Chooses | None:
    """The condition of the fields key, key_how, value, value_how and header; None: all records. ClientError
    for one that is not understood."""
    key, value = (_test(query.get(name, ""), query.get(f"{name}_how", "")) for name in ("key", "value"))
    header = _header_test(query.get("header", "").strip())
    if key is None and value is None and header is None:
        return None

    def chooses(record: Record) -> bool:
        return (
            (key is None or (record.key is not None and key(bytes(record.key))))
            and (value is None or (record.value is not None and value(bytes(record.value))))
            and (header is None or any(header(name, content) for name, content in record.headers))
        )

    return chooses


def _test(text: str, how: str) -> Test | None:
    if not text:
        return None
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ClientError(f"a filter has at most {TEXT_CHARACTERS_MAX:,} characters")
    wanted = text.encode("utf-8", "surrogateescape")
    if how == "equals":
        return lambda content: content == wanted
    if how == "re2":
        return _re2(text)
    if how == "path":
        return _path(text)
    return lambda content: wanted in content


def _re2(text: str) -> Test:
    try:
        import re2
    except ImportError:
        raise ClientError("RE2 is not installed here (pip install google-re2)") from None
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        # Bytes as they are: an expression of UTF-8 is a row of bytes, too.
        pattern = re2.compile(text.encode("utf-8", "surrogateescape"), options)
    except re2.error as error:
        raise ClientError(f"{text!r} is not a regular expression of RE2: {_reason(error)}") from None
    return lambda content: pattern.search(content) is not None


def _reason(error: Exception) -> str:
    (reason, *_) = error.args or ("",)
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _path(text: str) -> Test:
    """`lines[0].id=3`, `customer.name=Ann`, `lines[*].id=3`, or a path alone: the field is there."""
    path, equals, wanted = text.partition("=")
    steps = _steps(path.strip())
    wanted = wanted.strip()

    def test(content: bytes) -> bool:
        if len(content) > PARSED_BYTES_MAX:
            return False
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            return False
        return any(not equals or _as_text(one) == wanted for one in _walk(found, steps, 0))

    return test


def _steps(path: str) -> list[str | int | None]:
    """Names, numbers, and None for every element."""
    rest = path.removeprefix("$")
    steps: list[str | int | None] = []
    position = 0
    while position < len(rest):
        found = _STEP.match(rest, position)
        if found is None:
            raise ClientError(f"{path!r} is not a path such as lines[0].id or lines[*].id")
        name, number = found.groups()
        steps.append(name if name is not None else None if number == "*" else int(number))
        position = found.end()
    if not steps:
        raise ClientError("a JSON path is as customer.name=Ann, lines[0].id=3 or lines[*].id=3")
    return steps


def _walk(value: Any, steps: list[str | int | None], at: int) -> Iterator[Any]:
    if at == len(steps):
        yield value
        return
    step = steps[at]
    if step is None:
        inner = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        for one in inner:
            yield from _walk(one, steps, at + 1)
    elif isinstance(step, int):
        if isinstance(value, list) and step < len(value):
            yield from _walk(value[step], steps, at + 1)
    elif isinstance(value, dict) and step in value:
        yield from _walk(value[step], steps, at + 1)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _header_test(text: str) -> Callable[[str, bytes | None], bool] | None:
    """`name` alone, or `name=part of its value`."""
    if not text:
        return None
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ClientError(f"a filter has at most {TEXT_CHARACTERS_MAX:,} characters")
    name, equals, part = text.partition("=")
    wanted = part.encode("utf-8", "surrogateescape")
    return lambda found, content: found == name and (not equals or wanted in bytes(content or b""))
