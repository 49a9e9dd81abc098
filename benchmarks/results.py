"""The figures as lines, Markdown tables and plots, and RESULTS.md, which keeps the sections of parts
that were not measured anew.
"""

from __future__ import annotations

import json
import pathlib
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from xml.sax.saxutils import escape

from benchmarks.figures import Figure, Growth, Outcome, Point, Section
from odradek.embedding.maven_jars import KAFKA_VERSION

LONGEST = 5.4
"""Where a bar of the plot is cut off."""
INTRODUCTION = (
    "Made by `make bench`. Medians with the lowest and the highest figure; what is compared was measured in "
    "turn, not one after the other. A core is that of one processor: who is said to be on it is on no other. "
    "What follows is of the machine that measured last; a section that is older may be from another one."
)
COLOURS = ("#386", "#b33", "#36a", "#a60", "#727", "#555")


def figure(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    return f"{figure(min(values))} to {figure(max(values))}"


def line(outcome: Outcome) -> str:
    verdict = {None: " ", True: "ok", False: "MISSED"}[outcome.met]
    if not outcome.is_kafka_warm:
        verdict += " (Kafka not warm)"
    ours, theirs = statistics.median(outcome.odradek), statistics.median(outcome.kafka)
    return (
        f"{outcome.case:<68} Kafka {figure(theirs):>9}  Odradek {figure(ours):>9} {outcome.unit:<10}"
        f" {outcome.ratio:5.2f}x {verdict}"
    )


def figure_line(one: Figure) -> str:
    target = figure_target(one)
    limit = f"  ({target}: {'ok' if one.met else 'MISSED'})" if target else ""
    between = "" if one.spread is None else f"  {spread(one.spread)}"
    return f"{one.what:<78} {figure(one.value):>9} {one.unit}{between}{limit}"


def figure_target(one: Figure) -> str:
    """Empty where it has none."""
    if one.at_least is not None:
        return f"at least {one.at_least:g} {one.unit}"
    return "" if one.limit is None else f"at most {one.limit:g} {one.unit}"


def outcome_table(outcomes: Sequence[Outcome]) -> str:
    rows = [
        f"| case | unit | Apache Kafka {KAFKA_VERSION} (spread) | Odradek (spread) | ratio | target | met |",
        "|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        target = (
            ""
            if outcome.at_least is None
            else f"{'at most' if outcome.lower else 'at least'} {outcome.at_least:g}x"
        )
        rows.append(
            f"| {outcome.case} | {outcome.unit} "
            f"| {figure(statistics.median(outcome.kafka))} ({spread(outcome.kafka)}) "
            f"| {figure(statistics.median(outcome.odradek))} ({spread(outcome.odradek)}) "
            f"| {outcome.ratio:.2f}x | {target} | {is_met(outcome.met, outcome.is_kafka_warm)} |"
        )
    return "\n".join(rows)


def figure_table(figures: Sequence[Figure]) -> str:
    rows = ["| what | measured (spread) | target | met |", "|---|---|---|---|"]
    for one in figures:
        between = "" if one.spread is None else f" ({spread(one.spread)})"
        target = figure_target(one)
        rows.append(
            f"| {one.what} | {figure(one.value)} {one.unit}{between} | {target} | {is_met(one.met)} |"
        )
    return "\n".join(rows)


def is_met(met: bool | None, is_kafka_warm: bool = True) -> str:
    verdict = {None: "", True: "yes", False: "**no**"}[met]
    return verdict if is_kafka_warm else f"{verdict} (Kafka not warm)".lstrip()


def ratio_plot(outcomes: Sequence[Outcome]) -> str:
    """A bar for each ratio as SVG, drawn so that longer is always better for Odradek; the line is 1x."""
    left, scale, row, top = 430, 110, 22, 30
    height = top + row * len(outcomes) + 10
    parts = [
        *picture(left + 6 * scale, height),
        f'<text x="8" y="18">Odradek over Apache Kafka {KAFKA_VERSION} '
        "(right of the line: Odradek is better)</text>",
    ]
    for index, outcome in enumerate(outcomes):
        better = outcome.ratio
        if outcome.lower:
            better = 1 / outcome.ratio if outcome.ratio else LONGEST
        y = top + index * row
        length = min(better, LONGEST) * scale
        color = "#b33" if outcome.met is False else "#386"
        parts.append(f'<text x="{left - 6}" y="{y + 14}" text-anchor="end">{escape(outcome.case)}</text>')
        parts.append(f'<rect x="{left}" y="{y + 3}" width="{length:.0f}" height="14" fill="{color}"/>')
        parts.append(f'<text x="{left + length + 5:.0f}" y="{y + 14}">{better:.2f}x</text>')
    parts.append(
        f'<line x1="{left + scale}" x2="{left + scale}" y1="{top}" y2="{height}" stroke="black"/></svg>'
    )
    return "\n".join(parts)


def growth_plot(growth: Growth) -> str:
    """A diagram for each unit, side by side, as SVG. Both axes begin at 0 and are linear: what stays the same
    is level, and what grows in proportion is a straight line."""
    units: dict[str, dict[str, list[Point]]] = {}
    for point in growth.points:
        units.setdefault(point.unit, {}).setdefault(point.series, []).append(point)
    width, height, legend = 330, 240, 18
    most = max(map(len, units.values()), default=0)
    parts = [
        *picture(width * len(units) + 20, height + 60 + legend * most),
        f'<text x="8" y="18">{escape(growth.title)}</text>',
    ]
    for number, (unit, series) in enumerate(units.items()):
        parts += diagram(unit, growth.axis, series, left=60 + number * width, width=width - 80, height=height)
    return "\n".join([*parts, "</svg>"])


def diagram(
    unit: str, axis: str, series: Mapping[str, list[Point]], *, left: int, width: int, height: int
) -> list[str]:
    top, bottom = 50, height
    points = [point for some in series.values() for point in some]
    sizes = sorted({point.size for point in points})
    largest = max(sizes[-1], 1e-9)
    highest = max(max(point.value for point in points), 1e-9)

    def place(point: Point) -> tuple[float, float]:
        return left + point.size / largest * width, bottom - point.value / highest * (bottom - top)

    parts = [
        f'<path d="M{left} {top - 8}V{bottom}H{left + width}" fill="none" stroke="black"/>',
        f'<text x="{left - 40}" y="{top - 14}">{escape(unit)}</text>',
        f'<text x="{left - 6}" y="{top + 4}" text-anchor="end">{figure(highest)}</text>',
        f'<text x="{left - 6}" y="{bottom + 4}" text-anchor="end">0</text>',
        f'<text x="{left + width}" y="{bottom + 32}" text-anchor="end">{escape(axis)}</text>',
    ]
    free_from = -1.0
    for size in sizes:
        x = left + size / largest * width
        parts.append(f'<path d="M{x:.0f} {bottom}v4" stroke="black"/>')
        if x >= free_from:
            parts.append(f'<text x="{x:.0f}" y="{bottom + 16}" text-anchor="middle">{figure(size)}</text>')
            free_from = x + 40
    for number, (name, some) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [place(point) for point in sorted(some, key=lambda point: point.size)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        y = bottom + 50 + 18 * number
        parts.append(f'<rect x="{left}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{left + 16}" y="{y}">{escape(name)}</text>')
    return parts


def picture(width: int, height: int) -> list[str]:
    """The head of an SVG."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]


def print_section(section: Section) -> None:
    """What a person at the terminal sees of a part."""
    for outcome in section.outcomes:
        print(line(outcome))
    for one in section.figures:
        print(figure_line(one))


def update(
    folder: pathlib.Path, sections: Mapping[str, Section], facts: Mapping[str, str], order: Sequence[str]
) -> None:
    """Takes these sections into RESULTS.md, in place of what was there of them, with their plots; what other
    parts have there stays as it is. `facts` are about the machine as it is now, `order` are the names of all
    sections. Each single figure is in `raw/NAME.json`.
    """
    page, raw = folder / "RESULTS.md", folder / "raw"
    texts = sections_of(page.read_text()) if page.exists() else {}
    raw.mkdir(exist_ok=True)
    for name, section in sections.items():
        texts[name] = section_text(section)
        for plot, drawn in plots(section).items():
            (folder / plot).write_text(drawn)
        (raw / f"{name}.json").write_text(json.dumps(asdict(section), indent=1) + "\n")
    text = (
        "\n".join(["# Odradek measured, and beside Apache Kafka", "", INTRODUCTION, "", *told(facts)]) + "\n"
    )
    page.write_text(text + "".join(f"\n{mark(name)}\n{texts[name]}" for name in order if name in texts))


def told(facts: Mapping[str, str]) -> list[str]:
    return [f"- {name}: {value}" for name, value in facts.items()]


def mark(name: str) -> str:
    """Stands before the section of a part; a reader does not see it."""
    return f"<!-- part: {name} -->"


def sections_of(page: str) -> dict[str, str]:
    """The sections of RESULTS.md by the names of their parts, as they stand there."""
    _, *found = re.split(r"^<!-- part: (\S+) -->\n", page, flags=re.MULTILINE)
    return {name: f"{text.rstrip()}\n" for name, text in zip(found[::2], found[1::2], strict=True)}


def section_text(section: Section) -> str:
    """A section as Markdown."""
    text = [f"## {section.title}", "", f"Measured {section.measured}."]
    for note in section.notes:
        text += ["", note]
    if section.outcomes:
        text += ["", outcome_table(section.outcomes)]
    if section.plot:
        text += ["", f"![ratios](results-{section.plot}.svg)"]
    for growth in section.growths:
        text += ["", f"![{growth.title}](results-{growth.name}.svg)"]
    if section.figures:
        text += ["", figure_table(section.figures)]
    return "\n".join(text) + "\n"


def plots(section: Section) -> dict[str, str]:
    """The pictures of a section, by the names of their files: one of a comparison, one of each growth."""
    drawn = {f"results-{growth.name}.svg": growth_plot(growth) + "\n" for growth in section.growths}
    if section.plot:
        drawn[f"results-{section.plot}.svg"] = ratio_plot(section.outcomes) + "\n"
    return drawn
