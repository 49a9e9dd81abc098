"""Templates and their filters. All texts are escaped: no template marks anything as safe.

Characters that are not printed, such as those that turn the direction of a line, are shown as escapes.
"""

import functools
import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2

from odradek.client.progress import duration
from odradek.commands.output import printable, quantity, size_text

FOLDER: Final = pathlib.Path(__file__).parent
STATIC: Final = FOLDER / "static"
LINES_KEPT = frozenset("\n\t")


@functools.cache
def environment() -> jinja2.Environment:
    """The templates; an unknown name in one is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=shown,
    )
    made.filters.update(
        size=lambda value: "-" if value is None else size_text(value),
        number=lambda value: "-" if value is None else f"{value:,}",
        rate=rate_text,
        seconds=lambda value: "-" if value is None else duration(value),
        iso=iso_text,
        day=lambda value: iso_text(value)[:10],
        clock=lambda value: iso_text(value)[11:],
        quantity=quantity,
        points=points,
    )
    made.globals.update(link=link, static=static)
    return made


def shown(value: Any) -> Any:
    """A value as the templates print it: "-" for None; texts without characters that are not printed."""
    if value is None:
        return "-"
    return visible(value) if type(value) is str else value


def visible(text: str) -> str:
    """The text with escapes for characters that are not printed, except the ends of lines and tabs."""
    if text.isprintable():
        return text
    return "".join(one if one in LINES_KEPT else printable(one) for one in text)


def link(path: str, /, *parts: object, **query: object) -> str:
    """The URL of a path, with further parts, and a query without what is None, False or empty. A True is
    1."""
    quoted = "/".join([path.rstrip("/"), *(quote(str(part), safe="") for part in parts)])
    given = {name: "1" if value is True else str(value) for name, value in query.items() if _is_given(value)}
    text = urlencode(given, errors="surrogateescape")
    return (quoted or "/") + (f"?{text}" if text else "")


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != ""


@functools.cache
def static(name: str) -> str:
    """The URL of a file of `static/`, another one for another content."""
    return f"/static/{name}?{hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


def iso_text(timestamp_ms: int | None) -> str:
    """Time with its zone, that of the console's machine: 2026-11-30 09:00:01.204+01:00."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone().isoformat(" ", "milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)


def rate_text(per_second: float | None) -> str:
    """`210/s`; less than ten with a decimal."""
    if per_second is None:
        return "-"
    return f"{per_second:,.0f}/s" if per_second >= 10 or per_second == 0 else f"{per_second:.1f}/s"


def points(values: Sequence[float], width: int = 80, height: int = 20, top: float | None = None) -> str:
    """The points of a sparkline, for a `polyline` of SVG: `top`, else the largest value, at the top, 0 at the
    bottom."""
    if len(values) < 2:
        return ""
    top = max(*values, 1e-9) if top is None else max(top, 1e-9)
    step = width / (len(values) - 1)
    return " ".join(
        f"{at * step:.1f},{height - 1 - (height - 2) * max(0.0, value) / top:.1f}"
        for at, value in enumerate(values)
    )


def page(template: str, values: Mapping[str, Any]) -> str:
    """The HTML of a page."""
    return environment().get_template(template).render(values)
