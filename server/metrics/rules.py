"""The rules for Prometheus: alerts with their remedies, and other names for the same numbers.

YAML is written line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.server.metrics.families import COUNTER, FAMILIES

_HEAD = """\
# Made by `odradek monitoring`; docs/monitoring.md says how to use it.
groups:
  - name: {name}
    rules:
"""


# Alerts


class Condition(NamedTuple):
    """`value` is PromQL and gives data whether it is well or not."""

    value: str
    operator: str
    bound: str

    def text(self) -> str:
        return f"{self.value} {self.operator} {self.bound}"


class Alert(NamedTuple):
    """`conditions` hold together for `lasts` before it fires. Texts may have Prometheus' templates."""

    name: str
    severity: str
    """critical: clients are refused, or data is at risk; warning: soon, or some of them."""
    lasts: str
    conditions: tuple[Condition, ...]
    summary: str
    when: str
    """Explanation in docs/monitoring.md, and in the alert as `description`."""
    remedy: str

    def expression(self) -> str:
        return " and ".join(condition.text() for condition in self.conditions)


def _ours(value: str) -> str:
    """Not of others whose metrics have the same names, such as Kafka's brokers and Prometheus itself."""
    return f"({value} and on (job, instance) odradek_build_info)"


_FREE = "odradek_log_dir_free_bytes / odradek_log_dir_total_bytes"
_REPLICAS = "kafka_server_replicamanager"
_REQUESTS = "kafka_network_requestmetrics"
_TRANSACTION = "kafka_server_transaction_coordinator_metrics_active_transaction_total_time_max"
EXPECTED_ERRORS = "MEMBER_ID_REQUIRED|REBALANCE_IN_PROGRESS|FETCH_SESSION_ID_NOT_FOUND"
"""Errors that clients get on purpose when they join a group, go on after a rebalance or after a restart."""
_ERRORS = (
    "sum by (job, instance, request) "
    f'({_ours(f"""rate({_REQUESTS}_errors_total{{error!~"{EXPECTED_ERRORS}"}}[5m])""")})'
)

ALERTS = (
    Alert(
        "OdradekBrokerDown", "critical", "1m",
        (Condition("(up and on (job, instance) last_over_time(odradek_build_info[7d]))", "==", "0"),),
        "{{ $labels.instance }} does not answer",
        "Prometheus cannot read the metrics of a broker that it has read in the last 7 days.",
        "Look at the state and the log of its process (`systemctl status`, `docker logs`), and start it "
        "again.",
    ),
    Alert(
        "OdradekNotReady", "warning", "2m",
        (Condition("odradek_ready", "<", "1"),),
        "{{ $labels.instance }} runs, and does not serve clients",
        "The broker loads its groups, is fenced, or has no directory that it can use.",
        "Read the reasons at `/health/ready` of its metrics port; a fenced broker does not reach its "
        "controllers.",
    ),
    Alert(
        "OdradekUnderReplicated", "warning", "5m",
        (Condition(_ours(f"{_REPLICAS}_underreplicatedpartitions"), ">", "0"),),
        "{{ $value }} partitions of {{ $labels.instance }} have replicas out of sync",
        "Partitions that this node leads have fewer replicas in sync than they have.",
        "Find the node that is down or slow with `odradek cluster health`, and start it, or move its "
        "replicas.",
    ),
    Alert(
        "OdradekUnderMinIsr", "critical", "1m",
        (Condition(_ours(f"{_REPLICAS}_underminisrpartitioncount"), ">", "0"),),
        "{{ $value }} partitions of {{ $labels.instance }} refuse writes with acks=all",
        "Fewer replicas are in sync than min.insync.replicas.",
        "Bring the missing nodes back; lower min.insync.replicas of a topic only if you can lose its last "
        "records.",
    ),
    Alert(
        "OdradekPartitionsOffline", "critical", "1m",
        (
            Condition(
                f"max by (job) ({_ours('kafka_controller_kafkacontroller_offlinepartitionscount')})", ">", "0"
            ),
        ),
        "{{ $value }} partitions of {{ $labels.job }} have no leader",
        "Nobody can read or write partitions: all their replicas in sync are down.",
        "Start the nodes that have these partitions (`odradek cluster health` names them); an unclean "
        "election loses records.",
    ),
    Alert(
        "OdradekDirectoryFailed", "critical", "0m",
        (Condition("odradek_log_dir_online", "<", "1"),),
        "{{ $labels.dir }} of {{ $labels.instance }} has failed",
        "A data directory could not be read or written, and its partitions are offline on this node.",
        "Read the error in the log of the broker, replace the disk, and start the broker again.",
    ),
    Alert(
        "OdradekDiskNearlyFull", "critical", "5m",
        (Condition(_FREE, "<", "0.1"),),
        "{{ $labels.dir }} of {{ $labels.instance }} has {{ $value | humanizePercentage }} free",
        "Less than a tenth of the file system of a data directory is free.",
        "Lower `retention.ms` or `retention.bytes` of the largest topics (board topics, Logs), or make the "
        "disk larger.",
    ),
    Alert(
        "OdradekDiskFullWithinADay", "warning", "1h",
        (
            Condition("predict_linear(odradek_log_dir_free_bytes[6h], 86400)", "<", "0"),
            Condition(_FREE, "<", "0.5"),
        ),
        "{{ $labels.dir }} of {{ $labels.instance }} will be full within a day",
        "If the disk fills as in the last 6 hours, it will be full within a day; half of it is used.",
        "Find the topic that grows (board topics, Traffic), and bound it by `retention.bytes` before the "
        "disk is full.",
    ),
    Alert(
        "OdradekLoopLate", "warning", "5m",
        (Condition("odradek_loop_late_seconds", ">", "0.5"),),
        "The event loop of {{ $labels.instance }} is {{ $value | humanizeDuration }} late",
        "Clients wait: the process gets too little processor time, or a step takes too long.",
        "Give the broker a processor of its own, look for other work on the machine, and set "
        "`odradek.log.slow.request.ms` to see which requests wait.",
    ),
    Alert(
        "OdradekRequestsFail", "warning", "10m",
        (
            Condition(
                f"{_ERRORS} / sum by (job, instance, request) "
                f"({_ours(f'rate({_REQUESTS}_requests_total[5m])')})",
                ">", "0.05",
            ),
            Condition(_ERRORS, ">", "0.1"),
        ),
        '{{ $labels.request }} at {{ $labels.instance }}: {{ $value | printf "%.2f" }} errors for a request',
        "More than 5 errors for 100 requests of an API, without those that belong to rebalances and "
        "restarts.",
        "See which errors they are (board overview, Requests: Errors per second), and ask the owner of the "
        "client; authorization errors may be an attack.",
    ),
    Alert(
        "OdradekTransactionOpenTooLong", "warning", "1m",
        (Condition(f"{_ours(_TRANSACTION)} / 1000", ">", "300"),),
        "A transaction at {{ $labels.instance }} is open for {{ $value | humanizeDuration }}",
        "Consumers with read_committed do not get past a transaction that is open for more than 5 minutes.",
        "Find it with `odradek transactions list`, and end the producer, or the transaction with "
        "`odradek transactions abort`.",
    ),
    Alert(
        "OdradekFileDescriptorsNearlyUsed", "warning", "5m",
        (Condition(_ours("process_open_fds / process_max_fds"), ">", "0.8"),),
        "{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its file descriptors",
        "Soon the broker can neither accept connections nor open segments.",
        "Raise the limit (`LimitNOFILE=` of systemd, `--ulimit nofile=` of Docker), or find the client that "
        "opens connections and keeps them.",
    ),
    Alert(
        "OdradekGroupLagGrows", "warning", "15m",
        (
            Condition(
                f"max by (job, consumergroup, topic) ({_ours('deriv(kafka_consumergroup_lag_sum[15m])')})",
                ">", "1",
            ),
            Condition(
                f"max by (job, consumergroup, topic) ({_ours('kafka_consumergroup_lag_sum')})", ">", "1000"
            ),
        ),
        "{{ $labels.consumergroup }} falls behind {{ $labels.topic }} by {{ $value | humanize }} records a "
        "second",
        "The lag is more than 1,000 records and has grown by more than one a second for half an hour.",
        "See whether the group has all its members (`odradek groups describe`), and add members up to the "
        "number of partitions.",
    ),
    Alert(
        "OdradekGroupLate", "warning", "5m",
        (
            Condition(
                "max by (job, consumergroup, topic) (odradek_consumergroup_lag_seconds)", ">", "600"
            ),
        ),
        "{{ $labels.consumergroup }} is {{ $value | humanizeDuration }} behind {{ $labels.topic }}",
        "The oldest record that a group has not committed is more than 10 minutes old.",
        "Look at the log of the consumer: it is stopped, cannot handle a record, or is slow; delete the "
        "offsets of a group that nobody uses (`odradek groups delete-offsets`).",
    ),
    Alert(
        "OdradekSeriesOmitted", "warning", "15m",
        (Condition("sum by (job, instance) (odradek_metrics_series_omitted)", ">", "0"),),
        "{{ $labels.instance }} leaves {{ $value }} series out",
        "There are more partitions or commits than metrics.series.max allows: boards have only sums of them.",
        "Raise `odradek.metrics.series.max`, if Prometheus can take so many series, or delete topics and "
        "groups that nobody uses.",
    ),
)  # fmt: skip


def alerts_yaml(alerts: Sequence[Alert]) -> str:
    """A rule file."""
    return _HEAD.format(name="odradek") + "".join(line for alert in alerts for line in _alert_lines(alert))


def _alert_lines(alert: Alert) -> Iterator[str]:
    yield f"      - alert: {alert.name}\n"
    yield f"        expr: {_quoted(alert.expression())}\n"
    yield f"        for: {alert.lasts}\n"
    yield f"        labels:\n          severity: {alert.severity}\n"
    yield "        annotations:\n"
    for name, text in (("summary", alert.summary), ("description", alert.when), ("remedy", alert.remedy)):
        yield f"          {name}: {_quoted(text)}\n"


def alert_table(alerts: Sequence[Alert]) -> str:
    """Lines of Markdown."""
    lines = ["| alert | severity | fires after | when | what to do |\n", "|---|---|---|---|---|\n"]
    lines += [
        f"| `{one.name}` | {one.severity} | {'at once' if one.lasts == '0m' else one.lasts} | {one.when} "
        f"| {one.remedy} |\n"
        for one in alerts
    ]
    return "".join(lines)


# Aliases


class Alias(NamedTuple):
    """A recording rule: the same numbers by another name."""

    name: str
    expression: str
    labels: Mapping[str, str] = {}


def _renamed(source: str, labels: Mapping[str, str]) -> str:
    """The series of `source` with labels named anew, and no others but job and instance."""
    expression = source
    for ours, theirs in labels.items():
        expression = f'label_replace({expression}, "{theirs}", "$1", "{ours}", "(.*)")'
    return f"sum by ({', '.join(('job', 'instance', *labels.values()))}) ({expression})"


def _jmx() -> Iterator[Alias]:
    """Counters of meters: `bytesinpersec` is the name of Confluent's stack and of Grafana Cloud,
    `bytesinpersec_count` that of others."""
    for family in FAMILIES:
        meter = re.fullmatch(r"(kafka_[a-z_]+)_total", family.name)
        if meter is not None and family.kind == COUNTER:
            for suffix in ("persec", "persec_count"):
                yield Alias(f"{meter[1]}{suffix}", family.name)


_TOPIC = {"topic": "redpanda_topic"}
_PARTITION = {**_TOPIC, "partition": "redpanda_partition"}
_GROUP = {"consumergroup": "redpanda_group"}
_KAFKA = {"redpanda_namespace": "kafka"}


def _redpanda() -> Iterator[Alias]:
    topics = "kafka_server_brokertopicmetrics"
    for request, counter in (("produce", "bytesin"), ("consume", "bytesout")):
        yield Alias(
            "redpanda_kafka_request_bytes_total",
            _renamed(f"{topics}_{counter}_total", _TOPIC),
            {**_KAFKA, "redpanda_request": request},
        )
    for request, api in (("produce", "Produce"), ("consume", "Fetch")):
        for suffix in ("bucket", "sum", "count"):
            by = "job, instance, le" if suffix == "bucket" else "job, instance"
            yield Alias(
                f"redpanda_kafka_request_latency_seconds_{suffix}",
                f'sum by ({by}) (odradek_request_seconds_{suffix}{{request="{api}"}})',
                {"redpanda_request": request},
            )
    partition = "kafka_topic_partition"
    yield Alias("redpanda_kafka_max_offset", _renamed(f"{partition}_current_offset", _PARTITION), _KAFKA)
    yield Alias(
        "redpanda_kafka_under_replicated_replicas",
        _renamed(f"({partition}_replicas - {partition}_in_sync_replica)", _PARTITION),
        _KAFKA,
    )
    yield Alias("redpanda_kafka_partitions", _renamed("kafka_topic_partitions", _TOPIC), _KAFKA)
    replicas = f"max by (job, instance, topic) ({partition}_replicas)"
    yield Alias("redpanda_kafka_replicas", _renamed(replicas, _TOPIC), _KAFKA)
    yield Alias(
        "redpanda_kafka_consumer_group_committed_offset",
        _renamed("kafka_consumergroup_current_offset", {**_GROUP, **_PARTITION}),
    )
    yield Alias("redpanda_kafka_consumer_group_consumers", _renamed("kafka_consumergroup_members", _GROUP))
    committed = "count by (job, instance, consumergroup) (kafka_consumergroup_lag_sum)"
    yield Alias("redpanda_kafka_consumer_group_topics", _renamed(committed, _GROUP))
    controller = "kafka_controller_kafkacontroller"
    for theirs, ours in (
        ("redpanda_cluster_brokers", "kafka_brokers"),
        ("redpanda_cluster_topics", f"{controller}_globaltopiccount"),
        ("redpanda_cluster_partitions", f"{controller}_globalpartitioncount"),
        ("redpanda_cluster_unavailable_partitions", f"{controller}_offlinepartitionscount"),
        ("redpanda_application_uptime_seconds_total", _ours("time() - process_start_time_seconds")),
        ("redpanda_storage_disk_free_bytes", "sum by (job, instance) (odradek_log_dir_free_bytes)"),
        ("redpanda_storage_disk_total_bytes", "sum by (job, instance) (odradek_log_dir_total_bytes)"),
    ):
        yield Alias(theirs, ours)
    yield Alias(
        "redpanda_rpc_active_connections",
        "sum by (job, instance) (kafka_server_socketservermetrics_connection_count)",
        {"redpanda_server": "kafka"},
    )


ALIASES: dict[str, tuple[Alias, ...]] = {
    "kafka-exporter": (
        # Strimzi's board looks there for its variables.
        Alias("kafka_exporter_build_info", "odradek_build_info"),
    ),
    "jmx": tuple(_jmx()),
    "redpanda": tuple(_redpanda()),
}
"""By the dialect; a rule file each."""


def aliases_yaml(rules: Sequence[Alias]) -> str:
    """A rule file."""
    lines = []
    for rule in rules:
        lines.append(f"      - record: {rule.name}\n        expr: {_quoted(rule.expression)}\n")
        if rule.labels:
            lines.append("        labels:\n")
            lines += [f"          {name}: {_quoted(value)}\n" for name, value in rule.labels.items()]
    return _HEAD.format(name="odradek-aliases") + "".join(lines)


def _quoted(text: str) -> str:
    assert "\n" not in text
    return "'" + text.replace("'", "''") + "'"
