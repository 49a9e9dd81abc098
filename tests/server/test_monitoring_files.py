"""What watches a broker: a command writes the files, and each metric has a place on a board."""

import json
import pathlib
import re

import pytest

from odradek.commands.main import main
from odradek.config import option_list
from odradek.server.metrics.boards import (
    BOARDS,
    PANELS,
    PLACES,
    SHOWN,
    families_in,
    family_of,
    made_panel,
    panels_of,
    place_of,
)
from odradek.server.metrics.families import COUNTER, FAMILIES, GAUGE, HISTOGRAM, Family
from odradek.server.metrics.monitoring_files import files, with_alerts
from odradek.server.metrics.rules import ALERTS, ALIASES
from tests.kit.collecting import collected

ROOT = pathlib.Path(__file__).parents[2]
MADE = files()
JSON = {path: json.loads(text) for path, text in MADE.items() if path.endswith(".json")}
METRIC = re.compile(r"\b((?:kafka|odradek|process)_[a-z_]+)\b(\{[^}]*\})?")


def test_the_command_writes_every_file_and_says_where(tmp_path, capsys):
    folder = tmp_path / "new"
    assert main(["monitoring", str(folder)]) == 0
    there = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert there == MADE
    assert capsys.readouterr().out.splitlines() == [str(folder / name) for name in MADE]
    assert main(["monitoring", str(folder)]) == 0, "again, over those that are there"


def test_a_folder_that_cannot_be_written_is_told_in_a_sentence(tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    assert main(["monitoring", str(file)]) == 1
    assert re.fullmatch(rf"odradek: {file}.* cannot be written: .*\.\n", capsys.readouterr().err)


def test_the_alerts_of_the_guide_are_those_of_the_rules():
    page = ROOT / "docs/monitoring.md"
    assert page.read_text() == with_alerts(page.read_text()), (
        "run: python -m odradek.server.metrics.monitoring_files docs/monitoring.md"
    )


def test_each_metric_has_a_panel_on_the_board_of_its_place():
    shown = {
        board.name: {
            family.name for _, panels in panels_of(board) for one in panels for family in families_in(one)
        }
        for board in BOARDS
    }
    with collected() as failures:
        for family in SHOWN:
            with failures.of(family.name):
                board, row = place_of(family)
                assert family.name in shown[board], f"no panel on {board}"
                assert any(row in one.rows for one in BOARDS if one.name == board)


def test_each_place_is_one_of_a_board_and_of_a_metric():
    rows = {(board.name, row) for board in BOARDS for row in board.rows}
    assert {(board, row) for _, board, row in PLACES} <= rows
    assert set(PANELS) <= rows


@pytest.mark.parametrize(
    ("family", "place", "title", "expression", "unit"),
    [
        (
            Family("kafka_new_bytes_total", COUNTER, ("topic",), "Bytes that are new; and more."),
            ("topics", "More"),
            "Bytes that are new, per second",
            "sum by (topic) (rate(<kafka_new_bytes_total>[$__rate_interval]))",
            "Bps",
        ),
        (
            Family("odradek_log_dir_wait_seconds", HISTOGRAM, (), "Seconds of a wait."),
            ("overview", "Disks"),
            "Seconds of a wait",
            "histogram_quantile(0.5, sum by (le, instance) (rate(<odradek_log_dir_wait_seconds_bucket>"
            "[$__rate_interval])))",
            "s",
        ),
        (
            Family("kafka_server_replicafetchermanager_maxlag", GAUGE, ("clientid",), "Lag: at most."),
            ("overview", "Cluster"),
            "Lag",
            "<kafka_server_replicafetchermanager_maxlag>",
            "short",
        ),
        (
            Family("odradek_seen", GAUGE, ("consumergroup", "topic", "partition"), "Seen."),
            ("groups", "More"),
            "Seen",
            "sum by (consumergroup, topic) (max by (consumergroup, topic, partition) (<odradek_seen>))",
            "short",
        ),
    ],
)
def test_a_metric_that_is_new_finds_its_place_and_gets_a_panel(family, place, title, expression, unit):
    panel = made_panel(family)
    assert (place_of(family), panel.title, panel.unit) == (place, title, unit)
    assert panel.expressions[0][0] == expression


@pytest.mark.parametrize("path", JSON)
def test_a_board_has_its_variables_and_panels_that_do_not_overlap(path):
    board = JSON[path]
    names = [variable["name"] for variable in board["templating"]["list"]]
    assert names[:3] == ["datasource", "job", "instance"]
    assert (
        set(names[3:])
        == {"overview": set(), "topics": {"topic"}, "groups": {"topic", "group"}}[
            path.split("/")[-1].removesuffix(".json")
        ]
    )
    numbers = [panel["id"] for panel in board["panels"]]
    assert numbers == list(range(1, len(numbers) + 1))
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["type"] == "row" or panel["description"]


@pytest.mark.parametrize("path", JSON)
def test_a_board_filters_each_metric_by_the_variables_that_it_has_labels_for(path):
    variables = {"job": "job", "instance": "instance", "topic": "topic", "group": "consumergroup"}
    there = {variable["name"] for variable in JSON[path]["templating"]["list"]}
    for panel in JSON[path]["panels"]:
        for target in panel.get("targets", ()):
            assert "<" not in target["expr"]
            found = METRIC.findall(target["expr"])
            assert found, target["expr"]
            for name, filters in found:
                labels = {"job", "instance", *family_of(name).labels}
                for variable in there - {"datasource"}:
                    is_filtered = f'{variables[variable]}=~"${variable}"' in filters
                    assert is_filtered == (variables[variable] in labels), (name, filters)


def test_alerts_are_of_metrics_that_are_there_and_say_what_to_do():
    assert len(ALERTS) >= 12
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    for alert in ALERTS:
        names = {name for name, _ in METRIC.findall(alert.expression())}
        assert names, alert.name
        assert all(family_of(name) for name in names)
        assert alert.severity in ("critical", "warning")
        assert all(text.endswith(".") for text in (alert.when, alert.remedy))
        assert not alert.summary.endswith(".")


def test_each_command_option_and_board_that_a_remedy_names_is_there():
    commands = (ROOT / "docs/commands.md").read_text()
    options = {option.name for option in (*option_list.BROKER, *option_list.TOPIC)}
    for alert in ALERTS:
        for named in re.findall(r"`(odradek [a-z -]+)`", alert.remedy):
            assert f"### {named}\n" in commands, named
        for named in re.findall(r"`([a-z.]+\.[a-z]+)`", alert.remedy):
            assert named in options, named
        for board, row in re.findall(r"board (\w+), (\w+)", alert.remedy):
            assert row in next(one for one in BOARDS if one.name == board).rows


def test_aliases_are_made_of_metrics_that_are_there():
    for rules in ALIASES.values():
        for rule in rules:
            names = {name for name, _ in METRIC.findall(rule.expression)}
            assert names
            assert all(family_of(name) for name in names)
            assert rule.name not in names
    jmx = {rule.name for rule in ALIASES["jmx"]}
    topics = "kafka_server_brokertopicmetrics_"
    assert {f"{topics}{one}" for one in ("messagesinpersec", "bytesinpersec", "bytesoutpersec")} <= jmx


def test_no_rule_overwrites_a_metric_of_the_broker():
    names = {rule.name for rules in ALIASES.values() for rule in rules}
    assert not names & {family.name for family in FAMILIES}
