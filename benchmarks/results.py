"""The figures as a line, a Markdown table and a plot."""

from __future__ import annotations

import argparse
import pathlib
import statistics
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from benchmarks.__main__ import Outcome

LONGEST = 5.4
"""Where a bar of the plot is cut off."""
TITLES = {"pinned": "Server pinned to one core, load to the other", "free": "All cores free"}


def figure(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(values: list[float]) -> str:
    return f"{figure(min(values))} to {figure(max(values))}"


def line(outcome: Outcome) -> str:
    verdict = {None: " ", True: "ok", False: "MISSED"}[outcome.met]
    ours, theirs = statistics.median(outcome.odradek), statistics.median(outcome.kafka)
    return (
        f"{outcome.case:<68} Kafka {figure(theirs):>9}  Odradek {figure(ours):>9} {outcome.unit:<10}"
        f" {outcome.ratio:5.2f}x {verdict}"
    )


def table(outcomes: list[Outcome]) -> str:
    rows = [
        "| case | unit | Apache Kafka 4.3.1 (spread) | Odradek (spread) | ratio | target | met |",
        "|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        target = (
            ""
            if outcome.at_least is None
            else f"{'at most' if outcome.lower else 'at least'} {outcome.at_least:g}x"
        )
        met = {None: "", True: "yes", False: "**no**"}[outcome.met]
        rows.append(
            f"| {outcome.case} | {outcome.unit} "
            f"| {figure(statistics.median(outcome.kafka))} ({spread(outcome.kafka)}) "
            f"| {figure(statistics.median(outcome.odradek))} ({spread(outcome.odradek)}) "
            f"| {outcome.ratio:.2f}x | {target} | {met} |"
        )
    return "\n".join(rows)


def plot(outcomes: list[Outcome]) -> str:
    """A bar for each ratio as SVG, drawn so that longer is always better for Odradek; the line is 1x."""
    left, scale, row, top = 430, 110, 22, 30
    height = top + row * len(outcomes) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 6 * scale}" height="{height}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>',
        '<text x="8" y="18">Odradek over Apache Kafka 4.3.1 (right of the line: Odradek is better)</text>',
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


def write(
    folder: pathlib.Path,
    tables: dict[str, list[Outcome]],
    facts: dict[str, str],
    options: argparse.Namespace,
    scale: str,
) -> None:
    """Writes RESULTS.md and one results-NAME.svg for each table."""
    text = ["# Odradek beside Apache Kafka", ""]
    text.append(
        f"Made by `make bench`: both brokers on one machine, {options.rounds} measurements of "
        f"{options.seconds:g} s for each case and broker, who goes first alternating. Before the first case "
        f"Kafka gets {options.compile_seconds:g} s of produces; it is warm for a case when the median of "
        "three figures is within 3 % of that of the three before. Medians with the lowest and highest "
        "figure. Both brokers run throughout; the one not measured is idle."
    )
    text += ["", *(f"- {name}: {value}" for name, value in facts.items())]
    for name, outcomes in tables.items():
        text += ["", f"## {TITLES[name]}", "", table(outcomes), "", f"![ratios](results-{name}.svg)"]
        (folder / f"results-{name}.svg").write_text(plot(outcomes) + "\n")
    if scale:
        text += ["", "## What things cost as they grow", "", scale]
    (folder / "RESULTS.md").write_text("\n".join(text) + "\n")
