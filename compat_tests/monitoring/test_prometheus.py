"""A real Prometheus reads brokers with traffic: what boards, alerts and aliases ask for is there."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from compat_tests.clients import wait_until
from compat_tests.monitoring.alert_cases import CASES
from compat_tests.monitoring.conftest import Watched
from compat_tests.monitoring.prometheus import JOB, RULES, promtool, write_rules
from odradek.server.metrics.exposition import label_text
from odradek.server.metrics.families import FAMILY
from odradek.server.metrics.monitoring_files import files
from odradek.server.metrics.rules import ALERTS, ALIASES

BOARDS = {path.split("/")[-1]: json.loads(text) for path, text in files().items() if path.endswith(".json")}
QUIET = {
    "odradek_log_dir_seconds_until_full": "it is told after an hour",
    "kafka_server_fetcherlagmetrics_consumerlag": "a follower tells it: compat_tests/cluster/test_in_sync.py",
    **dict.fromkeys(
        (
            "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total",
            "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total",
            "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total",
            "odradek_sharegroup_deadletters_lost_total",
        ),
        "no share group has a queue: tests/server/test_dead_letters.py",
    ),
}
"""Metrics that these brokers have no series of, and why."""
EXPRESSIONS = [
    pytest.param(target["expr"], id=f"{name}-{panel['id']}{target['refId']}")
    for name, board in BOARDS.items()
    for panel in board["panels"]
    for target in panel.get("targets", ())
    if not any(metric in target["expr"] for metric in QUIET)
]
VARIABLES = [
    pytest.param(variable["definition"], id=f"{name}-{variable['name']}")
    for name, board in BOARDS.items()
    for variable in board["templating"]["list"]
    if variable["type"] == "query"
]
CONDITIONS = [
    pytest.param(condition.value, id=f"{alert.name}-{place}")
    for alert in ALERTS
    for place, condition in enumerate(alert.conditions)
]
ALIAS_NAMES = [
    pytest.param(
        rule.name + label_text(**rule.labels),
        id="-".join((rule.name, *rule.labels.values())),
    )
    for rules in ALIASES.values()
    for rule in rules
]

COMPLAINTS = {
    "kafka_consumergroup_current_offset_sum": "the name of kafka_exporter",
    "kafka_consumergroup_lag_sum": "the name of kafka_exporter",
    "kafka_network_requestmetrics_totaltimems": "a gauge with quantiles, as Strimzi's rules for JMX make it",
    "kafka_server_socketservermetrics_connection_count": "the name of Strimzi's rules for JMX",
}
"""Metrics of which promtool does not like the name or a label, and why they have it."""


def in_grafana(expression: str) -> str:
    """With the variables as Grafana fills them in: all that there is."""
    for variable, value in (("$__rate_interval", "10s"), ("$job", JOB)):
        expression = expression.replace(variable, value)
    return re.sub(r"\$(instance|topic|group)\b", ".*", expression)


def test_promtool_likes_the_metrics(watched: Watched) -> None:
    watched.traffic()
    named = set()
    for target in watched.targets:
        checked = promtool("check", "metrics", stdin=watched.scrape(target))
        assert not checked.stdout
        named |= {line.split(" ")[0] for line in checked.stderr.splitlines() if line}
    assert named == set(COMPLAINTS)


@pytest.mark.parametrize("name", RULES)
def test_promtool_likes_the_rules(tmp_path: pathlib.Path, name: str) -> None:
    write_rules(tmp_path)
    checked = promtool("check", "rules", tmp_path / name)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not checked.stderr


def test_promtool_likes_the_configuration_of_the_guide(watched: Watched) -> None:
    checked = promtool("check", "config", watched.prometheus.file)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "WARNING" not in checked.stdout + checked.stderr


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_each_expression_of_a_board_gives_data(watched: Watched, expression: str) -> None:
    watched.wait_for_data(in_grafana(expression))


@pytest.mark.parametrize("metric", QUIET)
def test_what_is_quiet_is_quiet(watched: Watched, metric: str) -> None:
    assert metric in FAMILY
    watched.wait_for_data("odradek_ready")
    assert not watched.prometheus.query(metric), "it has data: look at its panel, too"


@pytest.mark.parametrize("definition", VARIABLES)
def test_each_variable_of_a_board_has_values(watched: Watched, definition: str) -> None:
    asked = re.fullmatch(r"label_values\((.*), (\w+)\)", definition)
    assert asked is not None
    selector = in_grafana(asked[1])
    watched.wait_for_data(selector)
    assert watched.prometheus.label_values(asked[2], selector)


@pytest.mark.parametrize("value", CONDITIONS)
def test_what_an_alert_looks_at_is_there(watched: Watched, value: str) -> None:
    watched.wait_for_data(value)


@pytest.mark.parametrize("name", ALIAS_NAMES)
def test_each_alias_gives_data(watched: Watched, name: str) -> None:
    watched.wait_for_data(name)


def test_an_alias_has_the_value_and_the_labels_of_the_metric(watched: Watched) -> None:
    theirs = (
        "redpanda_kafka_consumer_group_committed_offset"
        '{redpanda_group="slow",redpanda_topic="orders",redpanda_partition="1"}'
    )
    watched.wait_for_data(theirs)
    assert watched.prometheus.query(theirs) == [4]
    end = 'redpanda_kafka_max_offset{redpanda_topic="orders",redpanda_partition="1"}'
    assert watched.prometheus.query(end) == [10]


def test_prometheus_evaluates_every_rule_without_an_error(watched: Watched) -> None:
    def all_evaluated() -> bool:
        return all(rule["health"] != "unknown" for rule in watched.prometheus.rules())

    wait_until(all_evaluated, "each rule is evaluated once")
    rules = watched.prometheus.rules()
    assert len(rules) == len(ALERTS) + sum(map(len, ALIASES.values()))
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}


def test_nothing_but_what_is_wrong_is_pending(watched: Watched) -> None:
    watched.wait_for_data("odradek_metrics_series_omitted")
    alarmed = {"OdradekSeriesOmitted", "OdradekRequestsFail"}  # which the traffic makes
    told = {rule["name"] for rule in watched.prometheus.rules() if rule.get("alerts")}
    of_machine = {"OdradekDiskNearlyFull", "OdradekDiskFullWithinADay", "OdradekLoopLate"}
    assert told <= alarmed | of_machine


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_fires_for_what_is_wrong_and_not_for_what_is_well(alert, tmp_path: pathlib.Path) -> None:
    write_rules(tmp_path)
    cases = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "1m",
        "tests": [CASES[alert.name].test(alert)],
    }
    (tmp_path / "cases.yml").write_text(json.dumps(cases))  # YAML, too
    checked = promtool("test", "rules", tmp_path / "cases.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
