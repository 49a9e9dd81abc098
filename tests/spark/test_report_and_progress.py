"""Reports in their three forms, and the line that says how far a job is."""

import io
import json
import re
import xml.etree.ElementTree

import pytest

from odradek.client.progress import Progress, duration
from odradek.spark.report import Plot, Report, Table, svg


def report():
    return Report(
        "verify",
        "topic <a> and table b differ",
        figures={"rows": 1234567, "share": 0.5, "codec": None, "complete": False},
        tables=[
            Table("partitions", ("partition", "rows", "CRC"), [(0, 1000, "00ff"), (1, 2, None)]),
            Table("long", ("n",), [(n,) for n in range(60)]),
        ],
        plots=[Plot("Rows & more", "window", "rows", {"a": [(0, 1), (5, 4)], "b<": [(0, 2), (5, 3)]})],
        differences=["partition 0, offset 7: value is '<x>' in a"],
        ok=False,
    )


def test_text_has_figures_tables_and_differences_in_columns():
    lines = report().text().splitlines()
    assert lines[:5] == [
        "verify: topic <a> and table b differ",
        "  rows      1,234,567",
        "  share     0.5",
        "  codec     -",
        "  complete  no",
    ]
    assert lines[6:10] == [
        "partitions",
        "  partition   rows  CRC",
        "          0  1,000  00ff",
        "          1      2  -",
    ]
    assert "  … and 10 more (--output json and html have all)" in lines
    assert lines[-2:] == ["first differences", "  partition 0, offset 7: value is '<x>' in a"]


def test_json_has_all_of_it():
    whole = json.loads(report().json())
    assert (whole["job"], whole["ok"], whole["figures"]["rows"]) == ("verify", False, 1234567)
    assert whole["tables"]["partitions"][1] == {"partition": 1, "rows": 2, "CRC": None}
    assert len(whole["tables"]["long"]) == 60
    assert whole["differences"] == report().differences


def test_the_page_stands_alone_and_shows_what_it_says():
    page = report().html()
    assert not re.search(r"<script|<link|src=|href=|@import|url\(", page)
    assert "topic &lt;a&gt; and table b differ" in page
    assert "value is &#x27;&lt;x&gt;&#x27; in a" in page
    assert page.count("<tr>") == 4 + 3 + 61
    assert page.count("<svg") == page.count("</svg>") == 1


def test_a_plot_is_whole_svg_with_a_line_for_each_series():
    plot = report().plots[0]
    root = xml.etree.ElementTree.fromstring(svg(plot))
    lines = [element.get("points") for element in root.iter("polyline")]
    assert len(lines) == 2
    ends = [[tuple(map(float, point.split(","))) for point in line.split()] for line in lines]
    # Left to right, and upwards: SVG counts from the top.
    assert ends[0][0][0] == ends[1][0][0] < ends[0][1][0] == ends[1][1][0]
    assert ends[0][1][1] < ends[1][1][1] < ends[1][0][1] < ends[0][0][1]
    texts = [element.text for element in root.iter("text")]
    assert {"a", "b<", "window", "rows", "0", "4"} <= set(texts)


@pytest.mark.parametrize("points", [[], [(3, 0)], [(3, 7), (3, 7)]])
def test_a_plot_of_little_is_no_error(points):
    assert svg(Plot("p", "x", "y", {"s": points})).startswith("<p>" if not points else "<svg")


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_one_line_written_over_again():
    clock, out = Clock(), Terminal()
    progress = Progress("archive", out, clock)
    clock.now += 0.9
    progress.update(90, 450_000)
    assert out.getvalue() == "", "what is done within a second shows nothing"
    clock.now += 9.1
    progress.update(1000, 5_000_000, lag=9000)
    progress.update(1001, 5_000_000, lag=8999)  # too soon to be read
    clock.now += 10
    progress.update(4000, 20_000_000, lag=6000)
    progress.clear()
    assert out.getvalue() == (
        "\r\x1b[Karchive: 1,000 rows, 100/s, 0.5 MB/s, lag 9,000, 1 min 30 s left"
        "\r\x1b[Karchive: 4,000 rows, 200/s, 1.0 MB/s, lag 6,000, 30 s left"
        "\r\x1b[K"
    )


def test_elsewhere_there_is_a_plain_line_now_and_then():
    clock, out = Clock(), io.StringIO()
    progress = Progress("verify", out, clock)
    progress.update(None, share=0.0, doing="topic a")
    clock.now += 10
    progress.update(None, share=0.25, doing="topic a")
    clock.now += 5
    progress.update(None, share=0.5, doing="topic a")
    progress.clear()
    assert out.getvalue() == "verify: topic a 25 %, 30 s left\n"


def test_durations_have_two_units_at_most():
    shown = [duration(seconds) for seconds in (0.4, 59, 60, 125, 3600, 12_000, 90_000, 200_000)]
    assert shown == ["0 s", "59 s", "1 min", "2 min 5 s", "1 h", "3 h 20 min", "1 d 1 h", "2 d 7 h"]
