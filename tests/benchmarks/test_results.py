"""What RESULTS.md and its plots are made of."""

import pathlib
import re
import xml.etree.ElementTree as ElementTree

from benchmarks.__main__ import PARTS
from benchmarks.figures import Figure, Growth, Outcome, Section
from benchmarks.results import (
    figure_table,
    growth_plot,
    mark,
    outcome_table,
    plots,
    ratio_plot,
    section_text,
    sections_of,
)

ROOT = pathlib.Path(__file__).parents[2]
FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")

OUTCOMES = [
    Outcome("seconds for <this>", "s", True, 1.0, [2.0, 2.2, 1.8], [1.0, 1.1, 0.9]),
    Outcome("requests", "requests/s", False, 1.3, [100.0], [120.0]),
]


def growth():
    one = Growth("partitions", "Cost by the number of partitions", "partitions")
    for count in (1_000, 3_000, 10_000):
        one.add("start & stop", count, [count / 1000, count / 900, count / 1100], "s")
        one.add("stop", count, [0.5], "s")
        one.add("RSS", count, [50.0], "MB")
    return one


def test_a_comparison_says_its_ratio_and_whether_that_is_what_was_wanted():
    assert [outcome.met for outcome in OUTCOMES] == [True, False]
    table = outcome_table(OUTCOMES)
    assert "| 0.50x | at most 1x | yes |" in table
    assert "| 1.20x | at least 1.3x | **no** |" in table


def test_a_row_says_when_kafka_was_not_warm():
    def row(at_least):
        one = Outcome("requests", "requests/s", False, at_least, [100.0], [120.0], is_kafka_warm=False)
        return outcome_table([one]).splitlines()[-1]

    assert row(1.0).endswith("| at least 1x | yes (Kafka not warm) |")
    assert row(1.3).endswith("| at least 1.3x | **no** (Kafka not warm) |")
    assert row(None).endswith("|  | (Kafka not warm) |")


def test_nothing_beside_nothing_is_as_good():
    both, ours_only = (Outcome("p50", "ms", True, 1.0, [0.0, 0.0], ours) for ours in ([0.0], [1.0]))
    assert "| 1.00x | at most 1x | yes |" in outcome_table([both])
    assert (ours_only.ratio, ours_only.met) == (float("inf"), False)


def test_a_figure_is_the_median_with_its_spread():
    one = Figure.median("how long", [3.0, 1.0, 2.0], "ms", limit=1.5)
    assert (one.value, one.spread, one.met) == (2.0, (1.0, 3.0), False)
    assert "| how long | 2 ms (1 to 3) | at most 1.5 ms | **no** |" in figure_table([one])


def test_a_figure_may_have_a_least_value():
    ratios = [Figure.median("two over one", [value], "x", at_least=1.8) for value in (1.9, 1.7)]
    assert [one.met for one in ratios] == [True, False]
    assert "| two over one | 1.7 x | at least 1.8 x | **no** |" in figure_table(ratios)


def test_plots_are_sound_pictures():
    for text in (ratio_plot(OUTCOMES), growth_plot(growth())):
        ElementTree.fromstring(text)


def test_a_plot_of_growth_has_a_diagram_for_each_unit_and_a_line_for_each_series():
    picture = ElementTree.fromstring(growth_plot(growth()))
    name = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{name}polyline")) == 3
    texts = [text.text for text in picture.findall(f"{name}text")]
    assert {"s", "MB", "start & stop", "10,000"} <= set(texts)
    # In proportion: the points of the first line stand on one from the corner of the diagram.
    points = [point.split(",") for point in picture.find(f"{name}polyline").get("points").split()]
    slopes = [(240 - float(y)) / (float(x) - 60) for x, y in points]
    assert max(slopes) - min(slopes) < 0.01


def test_a_section_has_its_notes_tables_and_plots():
    section = Section(
        "Title",
        ["a note"],
        OUTCOMES,
        "pinned",
        [Figure("a", 1.0, "s", 2.0, (0.5, 1.5)), Figure("b", 1.0, "s")],
        [growth()],
        "today",
    )
    text = section_text(section)
    told = (
        *("## Title", "Measured today.", "a note", outcome_table(OUTCOMES), "![ratios](results-pinned.svg)"),
        *("![Cost by the number of partitions](results-partitions.svg)", figure_table(section.figures)),
    )
    assert [text.index(one) for one in told] == sorted(text.index(one) for one in told)
    assert set(plots(section)) == {"results-pinned.svg", "results-partitions.svg"}


def test_the_sections_of_the_page_are_those_of_parts_in_their_order():
    page = (pathlib.Path(__file__).parents[2] / "benchmarks" / "RESULTS.md").read_text()
    sections = sections_of(page)
    assert [*sections] == [name for name in PARTS if name in sections]
    assert page.count("\n## ") == len(sections)
    assert page.endswith("".join(f"\n{mark(name)}\n{text}" for name, text in sections.items()))


def numbers(text):
    return [float(one.replace(",", "")) for one in FIGURE.findall(text)]


def compared(page):
    """Rows of Kafka, Odradek and their ratios in the tables of a page: three lists of figures each."""
    for line in page.splitlines():
        cells = [cell.strip().strip("*") for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) >= 4 and all(numbers(cell) for cell in cells[1:4]):
            yield cells[0], *map(numbers, cells[1:4])


def medians():
    """The first figure of each cell in the tables of RESULTS.md: medians stand there."""
    page = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    cells = [cell for line in page.splitlines() if line.startswith("|") for cell in line.split("|")[2:]]
    return sorted({found[0] for cell in cells if (found := numbers(cell))})


def is_rounded(figure, measured):
    return any(abs(figure - one) <= 0.008 * abs(one) for one in measured)


def test_the_speed_that_pages_tell_is_the_speed_that_was_measured():
    measured = medians()
    rows = [
        row
        for name in ("README.md", "docs/performance.md")
        for row in compared((ROOT / name).read_text().split("\n## Measurements behind")[0])
    ]
    assert len(rows) > 30
    unknown = [
        (case, figure)
        for case, kafka, ours, _ in rows
        for figure in (*kafka, *ours)
        if not is_rounded(figure, measured)
    ]
    assert not unknown
    wrong = [
        (case, ratio, mine / theirs)
        for case, kafka, ours, ratios in rows
        for theirs, mine, ratio in zip(kafka, ours, ratios, strict=True)
        if abs(ratio - mine / theirs) > max(0.02 * ratio, 0.006)
    ]
    assert not wrong
