"""The report of a job: as text, as JSON, and as one self-contained HTML page.

The page contains its plots as SVG, and no script or link, so it can be mailed and archived.
"""

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

ROWS_SHOWN = 50
"""The most rows of a table in the text; JSON and HTML have all."""
WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 14, 40
COLOURS = ("#1f77b4", "#d9730d", "#2a9d4a", "#9467bd", "#c0392b", "#0b7a75", "#7f6000", "#555555")
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222;
       max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; margin: .5rem 0 }
td, th { padding: .2rem .7rem; border-bottom: 1px solid #ddd }
th { text-align: left; background: #f4f4f4 }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.scroll { overflow-x: auto } .good { color: #17692f } .bad { color: #a4241a } code { overflow-wrap: anywhere }
svg text { font: 11px system-ui, sans-serif; fill: #444 }
"""


@dataclass
class Table:
    """Rows under columns; a cell is a text, a number or None."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass
class Plot:
    """Lines over numbers. `series` has the points of each line by its name, sorted by the first number."""

    title: str
    x_label: str
    y_label: str
    series: dict[str, Sequence[tuple[float, float]]]
    x_is_time: bool = False
    """The numbers are milliseconds since 1970."""


@dataclass
class Report:
    """`ok` is the exit status of the command: 0 where it is true, else 1."""

    job: str
    summary: str
    """One sentence."""
    figures: dict[str, Any] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    """The first ones, a line each."""
    ok: bool = True

    def text(self) -> str:
        """For a terminal or a log."""
        lines = [f"{self.job}: {self.summary}"]
        width = max(map(len, self.figures), default=0)
        lines += [f"  {name:<{width}}  {_shown(value)}" for name, value in self.figures.items()]
        for table in self.tables:
            lines += ["", table.title, *_text_table(table)]
        if self.differences:
            lines += ["", "first differences", *(f"  {line}" for line in self.differences)]
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        """One object; tables are lists of objects."""
        return json.dumps(
            {
                "job": self.job,
                "ok": self.ok,
                "summary": self.summary,
                "figures": self.figures,
                "differences": self.differences,
                "tables": {
                    table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
                    for table in self.tables
                },
            },
            indent=2,
            default=_plain,
        )

    def html(self) -> str:
        """A whole page."""
        title = html.escape(f"odradek spark {self.job}")
        state = "good" if self.ok else "bad"
        parts = [
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
            f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
            f'<h1>{title}</h1>\n<p class="{state}">{html.escape(self.summary)}</p>',
        ]
        if self.figures:
            parts.append(_html_table(Table("", ("", ""), list(self.figures.items()))))
        if self.differences:
            parts.append("<h2>First differences</h2><ul>")
            parts += [f"<li><code>{html.escape(line)}</code></li>" for line in self.differences]
            parts.append("</ul>")
        for plot in self.plots:
            parts += [f"<h2>{html.escape(plot.title)}</h2>", svg(plot)]
        for table in self.tables:
            parts += [f"<h2>{html.escape(table.title)}</h2>", _html_table(table)]
        return "\n".join([*parts, "</body></html>\n"])


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text_table(table: Table) -> list[str]:
    rows = [[_shown(cell) for cell in row] for row in table.rows[:ROWS_SHOWN]]
    widths = [max(map(len, column)) for column in zip(table.columns, *rows, strict=True)]
    numeric = [
        bool(table.rows) and all(_is_number(row[place]) or row[place] is None for row in table.rows)
        for place in range(len(table.columns))
    ]
    lines = []
    for row in [list(table.columns), *rows]:
        cells = [
            f"{cell:>{width}}" if right else f"{cell:<{width}}"
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    if len(table.rows) > ROWS_SHOWN:
        lines.append(f"  … and {len(table.rows) - ROWS_SHOWN:,} more (--output json and html have all)")
    return lines


def _html_table(table: Table) -> str:
    parts = ['<div class="scroll"><table>']
    if any(table.columns):
        parts.append("<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in table.columns) + "</tr>")
    for row in table.rows:
        cells = (
            f"<td{' class=number' if _is_number(cell) else ''}>{html.escape(_shown(cell))}</td>"
            for cell in row
        )
        parts.append("<tr>" + "".join(cells) + "</tr>")
    return "\n".join([*parts, "</table></div>"])


# Plots ------------------------------------------------------------------------------------------------


def svg(plot: Plot) -> str:
    """The plot as an `<svg>` element; a sentence where there is nothing to plot."""
    points = [point for series in plot.series.values() for point in series]
    if not points:
        return "<p>Nothing to plot.</p>"
    x_low, x_high = _spread([x for x, _ in points])
    y_low, y_high = _spread([*(y for _, y in points), 0.0])
    across = (WIDTH - LEFT - RIGHT) / (x_high - x_low)
    down = (HEIGHT - TOP - BOTTOM) / (y_high - y_low)

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + (x - x_low) * across, HEIGHT - BOTTOM - (y - y_low) * down

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" aria-label="{html.escape(plot.title)}">'
    ]
    for tick in _ticks(y_low, y_high):
        _, y = place(x_low, tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(tick)}</text>')
    for tick in _ticks(x_low, x_high):
        x, _ = place(tick, y_low)
        label = _time_text(tick, x_high - x_low) if plot.x_is_time else _short(tick)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>')
    for number, (name, series) in enumerate(plot.series.items()):
        parts += _series(name, [place(x, y) for x, y in series], number)
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{html.escape(plot.x_label)}</text>'
    )
    parts.append(f'<text x="{LEFT}" y="{TOP - 3}" text-anchor="start">{html.escape(plot.y_label)}</text>')
    return "\n".join([*parts, "</svg>"])


def _series(name: str, points: Sequence[tuple[float, float]], number: int) -> list[str]:
    colour = COLOURS[number % len(COLOURS)]
    dashes = ' stroke-dasharray="6 4"' if number % 2 else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>']
    if len(points) <= 60:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
    where = LEFT + 10 + number * 150
    parts.append(
        f'<line x1="{where}" x2="{where + 20}" y1="{HEIGHT - 10}" y2="{HEIGHT - 10}" stroke="{colour}" '
        f'stroke-width="3"{dashes}/><text x="{where + 25}" y="{HEIGHT - 6}">{html.escape(name)}</text>'
    )
    return parts


def _spread(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low, low + 1)


def _ticks(low: float, high: float) -> list[float]:
    """Five or so round numbers."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _time_text(milliseconds: float, span: float) -> str:
    when = datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
    return when.strftime("%H:%M:%S" if span < 86_400_000 else "%Y-%m-%d")
