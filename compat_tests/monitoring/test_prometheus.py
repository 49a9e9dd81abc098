"""A real Prometheus reads brokers with traffic: what boards, alerts and aliases ask for is there."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from compat_tests.monitoring.alert_cases import CASES
from compat_tests.monitoring.conftest import SLOW, Watched
from compat_tests.monitoring.prometheus import JOB, RATE_S, RULES, promtool, until, write_rules
from odradek.server.metrics.exposition import label_text
from odradek.server.metrics.families import FAMILY
from odradek.server.metrics.monitoring_files import files
from odradek.server.metrics.rules import ALERTS, ALIASES

"""A limit above all waits, so that a wait that fails says what for; the first test has the set-up, too."""

BOARDS = {path.split("/")[-1]: json.loads(text) for path, text in files().items() if path.endswith(".json")}
QUIET = {
    "odradek_log_dir_seconds_until_full": "it is told after an hour",
    "kafka_server_fetcherlagmetrics_consumerlag": "a follower tells it: compat_tests/cluster/test_in_sync.py",
    "odradek_worker_info": "only workers have it: tests/server/test_workers.py",
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
    **{
        f"kafka_server_group_coordinator_metrics_{name}": "a name of Kafka 4.4, by Strimzi's rules for JMX"
        for name in ("offset_count", "classic_group_count")
    },
}
"""Metrics of which promtool does not like the name or a label, and why they have it."""


def in_grafana(expression: str) -> str:
    """With the variables as Grafana fills them in: all that there is."""
    for variable, value in (("$__rate_interval", f"{RATE_S}s"), ("$job", JOB)):
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


@pytest.mark.parametrize(
    "metric",
    [
        "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
        "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total",
        "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total",
        'odradek_sharegroup_deadletters_lost_total{reason="refused"}',
    ],
)
def test_what_goes_wrong_in_share_groups_is_counted(watched: Watched, metric: str) -> None:
    watched.wait_for_data(f"{metric} > 0")


def test_an_alias_has_the_value_and_the_labels_of_the_metric(watched: Watched) -> None:
    theirs = (
        "redpanda_kafka_consumer_group_committed_offset"
        '{redpanda_group="slow",redpanda_topic="orders",redpanda_partition="1"}'
    )
    until(lambda: watched.prometheus.query(theirs), lambda found: found == [4], theirs)
    end = 'redpanda_kafka_max_offset{redpanda_topic="orders",redpanda_partition="1"}'
    until(lambda: watched.prometheus.query(end), lambda found: found == [10], end)


def test_prometheus_evaluates_every_rule_without_an_error(watched: Watched) -> None:
    rules = until(
        watched.prometheus.rules,
        lambda found: all(rule["health"] != "unknown" for rule in found),
        "each rule is evaluated once",
    )
    assert len(rules) == len(ALERTS) + sum(map(len, ALIASES.values()))
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}


def test_nothing_but_what_is_wrong_is_pending(watched: Watched) -> None:
    wrong = {("OdradekSeriesOmitted", ""), ("OdradekGroupLate", SLOW)}
    of_traffic = {("OdradekRequestsFail", "")}  # once it has made enough errors
    of_machine = {(f"Odradek{name}", "") for name in ("DiskNearlyFull", "DiskFullWithinADay", "LoopLate")}

    def told() -> set[tuple[str, str]]:
        """Alert and group. New traffic, as time alone makes the open transaction and what is read too old."""
        watched.traffic()
        alerts = [one["labels"] for rule in watched.prometheus.rules() for one in rule.get("alerts", ())]
        return {(labels["alertname"], labels.get("consumergroup", "")) for labels in alerts}

    until(
        told,
        lambda found: wrong <= found <= wrong | of_traffic | of_machine,
        "alerts for what is wrong, and no others",
    )


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
