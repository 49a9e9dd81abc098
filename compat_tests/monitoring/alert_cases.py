"""For each alert the series of a job that it is for (`bad`), and those of a job that is well (`good`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.server.metrics.rules import ALERTS, Alert

_WELL = "1+0x600"
_REPLICAS = "kafka_server_replicamanager"
_REQUESTS = "kafka_network_requestmetrics"
_DIRECTORY = 'dir="/data"'
_GROUP = 'consumergroup="readers",topic="orders"'


@dataclass(frozen=True)
class Case:
    """`series`: metric and labels without job and instance -> values of bad, values of good, in promtool's
    notation, a minute apart. `summary` is that of the alert at `minutes`."""

    minutes: int
    series: Mapping[tuple[str, str], tuple[str, str]]
    summary: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Beside severity and job."""
    has_instance: bool = True
    build_info: str = _WELL
    """Of the broker of `bad`."""

    def test(self, alert: Alert) -> dict[str, Any]:
        """For `promtool test rules`."""
        inputs = [
            {"series": f"odradek_build_info{{{_target(job)}}}", "values": values}
            for job, values in (("bad", self.build_info), ("good", _WELL))
        ]
        for (name, labels), values in self.series.items():
            for job, of_job in zip(("bad", "good"), values, strict=True):
                own = f",{labels}" if labels else ""
                inputs.append({"series": f"{name}{{{_target(job)}{own}}}", "values": of_job})
        instance = {"instance": "bad:1"} if self.has_instance else {}
        expected = {
            "exp_labels": {"severity": alert.severity, "job": "bad", **instance, **self.labels},
            "exp_annotations": {
                "summary": self.summary,
                "description": alert.when,
                "remedy": alert.remedy,
            },
        }
        return {
            "interval": "1m",
            "input_series": inputs,
            "alert_rule_test": [
                {"eval_time": "0m", "alertname": alert.name, "exp_alerts": []},
                {"eval_time": f"{self.minutes}m", "alertname": alert.name, "exp_alerts": [expected]},
            ],
        }


def _target(job: str) -> str:
    return f'job="{job}",instance="{job}:1"'


CASES = {
    "OdradekBrokerDown": Case(
        20, {("up", ""): ("1+0x4 0+0x30", _WELL)}, "bad:1 does not answer", build_info="1+0x4 _x30"
    ),
    "OdradekNotReady": Case(
        10, {("odradek_ready", ""): ("1 0+0x30", _WELL)}, "bad:1 runs, and does not serve clients"
    ),
    "OdradekUnderReplicated": Case(
        10,
        {(f"{_REPLICAS}_underreplicatedpartitions", ""): ("2+0x30", "0+0x30")},
        "2 partitions of bad:1 have replicas out of sync",
    ),
    "OdradekUnderMinIsr": Case(
        10,
        {(f"{_REPLICAS}_underminisrpartitioncount", ""): ("2+0x30", "0+0x30")},
        "2 partitions of bad:1 refuse writes with acks=all",
    ),
    "OdradekPartitionsOffline": Case(
        10,
        {("kafka_controller_kafkacontroller_offlinepartitionscount", ""): ("3+0x30", "0+0x30")},
        "3 partitions of bad have no leader",
        has_instance=False,
    ),
    "OdradekDirectoryFailed": Case(
        10,
        {("odradek_log_dir_online", _DIRECTORY): ("1 0+0x30", _WELL)},
        "/data of bad:1 has failed",
        {"dir": "/data"},
    ),
    "OdradekDiskNearlyFull": Case(
        10,
        {
            ("odradek_log_dir_free_bytes", _DIRECTORY): ("5+0x30", "20+0x30"),
            ("odradek_log_dir_total_bytes", _DIRECTORY): ("100+0x30", "100+0x30"),
        },
        "/data of bad:1 has 5% free",
        {"dir": "/data"},
    ),
    "OdradekDiskFullWithinADay": Case(
        480,
        {
            # Both have as much left at the end; one will have used it within six hours.
            ("odradek_log_dir_free_bytes", _DIRECTORY): ("400-0.5x480", "160+0x480"),
            ("odradek_log_dir_total_bytes", _DIRECTORY): ("1000+0x480", "1000+0x480"),
        },
        "/data of bad:1 will be full within a day",
        {"dir": "/data"},
    ),
    "OdradekLoopLate": Case(
        10,
        {("odradek_loop_late_seconds", ""): ("0.75+0x30", "0.01+0x30")},
        "The event loop of bad:1 is 750ms late",
    ),
    "OdradekRequestsFail": Case(
        30,
        {
            (f"{_REQUESTS}_requests_total", 'request="Produce",version="11"'): ("0+60x60", "0+60x60"),
            (f"{_REQUESTS}_errors_total", 'request="Produce",error="NOT_LEADER_OR_FOLLOWER"'): (
                "0+30x60",
                "0+1x60",
            ),
            # Half of the requests of those who join a group: on purpose.
            (f"{_REQUESTS}_requests_total", 'request="JoinGroup",version="9"'): ("0+60x60", "0+60x60"),
            (f"{_REQUESTS}_errors_total", 'request="JoinGroup",error="MEMBER_ID_REQUIRED"'): (
                "0+30x60",
                "0+30x60",
            ),
        },
        "Produce at bad:1: 0.50 errors for a request",
        {"request": "Produce"},
    ),
    "OdradekTransactionOpenTooLong": Case(
        10,
        {
            ("kafka_server_transaction_coordinator_metrics_active_transaction_total_time_max", ""): (
                "0 400000+0x30",
                "2000+0x30",
            )
        },
        "A transaction at bad:1 is open for 6m 40s",
    ),
    "OdradekFileDescriptorsNearlyUsed": Case(
        10,
        {
            ("process_open_fds", ""): ("90+0x30", "20+0x30"),
            ("process_max_fds", ""): ("100+0x30", "100+0x30"),
        },
        "bad:1 uses 90% of its file descriptors",
    ),
    "OdradekGroupLagGrows": Case(
        40,
        {("kafka_consumergroup_lag_sum", _GROUP): ("2000+120x60", "9000-120x60")},
        "readers falls behind orders by 2 records a second",
        {"consumergroup": "readers", "topic": "orders"},
        has_instance=False,
    ),
    "OdradekGroupLate": Case(
        10,
        {("odradek_consumergroup_lag_seconds", _GROUP): ("700+0x30", "5+0x30")},
        "readers is 11m 40s behind orders",
        {"consumergroup": "readers", "topic": "orders"},
        has_instance=False,
    ),
    "OdradekSeriesOmitted": Case(
        30,
        {("odradek_metrics_series_omitted", 'family="kafka_log_log_size"'): ("14+0x60", "0+0x60")},
        "bad:1 leaves 14 series out",
    ),
}
assert list(CASES) == [alert.name for alert in ALERTS]
