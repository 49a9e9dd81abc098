"""The error codes in a response, found by code that is generated for its class on first use and cached."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from odradek.wire.schema import Array, fields_of

ErrorsOf = Callable[[Any], list[int]]


@cache
def errors_of(response: Any) -> ErrorsOf:
    """The function that lists the error codes other than 0 in a response of this class, with those of its
    parts."""
    lines = ["def errors(message):", "    found = []"]
    _search(response, "message", 1, lines)
    lines.append("    return found")
    names: dict[str, Any] = {}
    exec(compile("\n".join(lines), f"<errors of {response.__name__}>", "exec"), names)
    errors: ErrorsOf = names["errors"]
    return errors


def _search(struct: Any, name: str, depth: int, lines: list[str]) -> bool:
    """Adds the lines that search one struct; False, without new lines, if it has no error code."""
    indent = "    " * depth
    has_errors = False
    for field in fields_of(struct):
        if field.name in ("error_code", "partition_error_code"):
            lines.append(f"{indent}if {name}.{field.name}:")
            lines.append(f"{indent}    found.append(int({name}.{field.name}))")
            has_errors = True
        elif isinstance(field.type, Array) and isinstance(field.type.item, type):
            lines.append(f"{indent}for part{depth} in {name}.{field.name} or ():")
            if _search(field.type.item, f"part{depth}", depth + 1, lines):
                has_errors = True
            else:
                lines.pop()
    return has_errors
