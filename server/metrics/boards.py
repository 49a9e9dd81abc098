"""The boards for Grafana 10 and later, as JSON: some panels by hand, one for each other family of the table.

A family finds its board and row by the first prefix of `PLACES`; one without, by its labels. Its panel
follows from its kind, labels, name and help (`made_panel`), unless a panel of `PANELS` shows it already. So a
metric that is new in the table is on a board by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from odradek.server.metrics.families import CLIENT_FAMILY, COUNTER, FAMILIES, FAMILY, HISTOGRAM, Family

SCHEMA_VERSION = 39
"""Schema of Grafana 10.4; later ones read it."""
COLUMNS = 24
STAT_SIZE = (4, 4)
GRAPH_SIZE = (8, 8)
TABLE_SIZE = (24, 9)
"""Width in columns, height in units of Grafana's grid."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SUFFIXES = ("_bucket", "_sum", "_count")
RATE = "[$__rate_interval]"

ROW_OTHERS = "More"


class Board(NamedTuple):
    name: str
    title: str
    description: str
    rows: tuple[str, ...]
    variables: dict[str, str]
    """Variable -> the label that it filters."""


BOARDS = (
    Board(
        "overview",
        "Odradek: overview",
        "Brokers: state, requests, replication, transactions, disks and process.",
        ("State", "Requests", "Connections", "Cluster", "Transactions", "Disks", "Process", ROW_OTHERS),
        {"job": "job", "instance": "instance"},
    ),
    Board(
        "topics",
        "Odradek: topics and partitions",
        "Topics: traffic, partitions and their replicas, logs.",
        ("Topics", "Traffic", "Partitions", "Logs", ROW_OTHERS),
        {"job": "job", "instance": "instance", "topic": "topic"},
    ),
    Board(
        "groups",
        "Odradek: groups and lag",
        "Consumer groups: how far they are behind, in records and in seconds.",
        ("Lag", "Groups", ROW_OTHERS),
        {"job": "job", "instance": "instance", "topic": "topic", "group": "consumergroup"},
    ),
)

PLACES = (
    ("kafka_network_", "overview", "Requests"),
    ("odradek_request_", "overview", "Requests"),
    ("odradek_response_", "overview", "Requests"),
    ("odradek_throttle", "overview", "Requests"),
    ("kafka_server_socketservermetrics_", "overview", "Connections"),
    ("kafka_server_fetchsessioncache_", "overview", "Connections"),
    ("kafka_brokers", "overview", "Cluster"),
    ("kafka_broker_", "overview", "Cluster"),
    ("kafka_server_replica", "overview", "Cluster"),
    ("kafka_controller_", "overview", "Cluster"),
    ("kafka_server_transaction_coordinator_", "overview", "Transactions"),
    ("odradek_transactions_", "overview", "Transactions"),
    ("odradek_log_dir_", "overview", "Disks"),
    ("odradek_flush", "overview", "Disks"),
    ("odradek_compaction", "overview", "Disks"),
    ("kafka_log_logflush", "overview", "Disks"),
    ("kafka_log_logcleaner", "overview", "Disks"),
    ("odradek_loop_", "overview", "Process"),
    ("odradek_ready", "overview", "Process"),
    ("odradek_build_", "overview", "Process"),
    ("odradek_metrics_", "overview", "Process"),
    ("process_", "overview", "Process"),
    ("kafka_server_kafkaserver_linux_disk_", "overview", "Process"),
    ("kafka_server_brokertopicmetrics_", "topics", "Traffic"),
    ("kafka_topic_", "topics", "Partitions"),
    ("kafka_cluster_partition_", "topics", "Partitions"),
    ("kafka_log_log_", "topics", "Logs"),
    ("kafka_consumergroup_", "groups", "Lag"),
    ("odradek_consumergroup_", "groups", "Lag"),
    ("kafka_coordinator_group_", "groups", "Groups"),
)
"""Beginning of a name, board, row. The first one that fits counts."""

SHOWN = tuple(family for family in FAMILIES if family.name != CLIENT_FAMILY)
"""All but those that clients push, whose names are theirs."""

TITLES = {
    "odradek_flush_seconds": "Syncs",
    "odradek_log_dir_seconds_until_full": "Time until the disk is full",
    "kafka_controller_kafkacontroller_activecontrollercount": "Decides for the cluster",
    "kafka_server_fetchsessioncache_numincrementalfetchsessions": "Fetch sessions",
    "kafka_server_transaction_coordinator_metrics_active_transaction_total_time_max": "Oldest transaction",
    "odradek_loop_late_seconds": "Lateness of the event loop",
    "odradek_metrics_series_omitted": "Series that are left out",
    "odradek_build_info": "Versions",
    "kafka_broker_info": "Addresses of brokers",
    "kafka_cluster_partition_atminisr": "Partitions at the minimum of replicas in sync",
    "kafka_cluster_partition_underminisr": "Partitions under the minimum of replicas in sync",
    "kafka_topic_partition_under_replicated_partition": "Under-replicated partitions",
    "kafka_consumergroup_members": "Members",
    "kafka_server_brokertopicmetrics_bytesin_total": "Bytes in",
    "kafka_server_brokertopicmetrics_bytesout_total": "Bytes out",
    "kafka_server_brokertopicmetrics_messagesin_total": "Records in",
    "kafka_server_brokertopicmetrics_totalproducerequests_total": "Appends to partitions",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": "Fetches with records, by partition",
    "odradek_log_dir_online": "Data directories that work",
    "process_cpu_seconds_total": "Processors in use",
}
"""Titles of families whose help does not begin with a short one. Without an entry a title is the help up to a
colon, semicolon or full stop."""

UNITS = (
    (r"_bytes(_total)?$|bytes(in|out)_total$|_log_size$|_disk_[rw]char$", "bytes"),
    (r"_seconds(_total)?$", "s"),
    (r"ms$|_time_max$|_time_avg$", "ms"),
    (r"_(ratio|share)(_max)?$", "percentunit"),
)
"""Pattern of a name, Grafana's unit; else `short`."""
PER_SECOND = {"bytes": "Bps", "short": "cps", "s": "percentunit", "ms": "ms"}
"""The unit of the rate of a counter. Seconds for a second are a share."""


class Panel(NamedTuple):
    """`expressions` are PromQL and the text of the legend; `<name>` in them is the metric, filtered by the
    variables of the board, and `<name{label="value"}>` is filtered by the label, too."""

    title: str
    expressions: tuple[tuple[str, str], ...]
    unit: str = "short"
    description: str = ""
    """Empty: the helps of the families that are shown."""
    kind: str = "timeseries"
    bad: tuple[str, float] | None = None
    """`above` or `below`, and from which value on it is red."""


def stat(title: str, expression: str, unit: str = "short", description: str = "", bad: Any = None) -> Panel:
    return Panel(title, ((expression, ""),), unit, description, "stat", bad)


_BROKER, _REPLICAS = "kafka_server_brokertopicmetrics_", "kafka_server_replicamanager_"
_CONTROLLER, _GROUPS = "kafka_controller_kafkacontroller_", "kafka_coordinator_group_groupmetadatamanager_"

PANELS: dict[tuple[str, str], tuple[Panel, ...]] = {
    ("overview", "State"): (
        stat("Brokers that are ready", "sum(<odradek_ready>)", bad=("below", 1)),
        stat("Brokers of the cluster", "max(<kafka_brokers>)"),
        stat("Partitions without leader", f"max(<{_CONTROLLER}offlinepartitionscount>)", bad=("above", 1)),
        stat("Under-replicated", f"sum(<{_REPLICAS}underreplicatedpartitions>)", bad=("above", 1)),
        stat("Under min.insync.replicas", f"sum(<{_REPLICAS}underminisrpartitioncount>)", bad=("above", 1)),
        stat("Failed directories", "sum(1 - <odradek_log_dir_online>)", bad=("above", 1)),
        stat("Records in", f"sum(rate(<{_BROKER}messagesin_total>{RATE}))", "cps"),
        stat("Bytes in", f"sum(rate(<{_BROKER}bytesin_total>{RATE}))", "Bps"),
        stat("Bytes out", f"sum(rate(<{_BROKER}bytesout_total>{RATE}))", "Bps"),
        stat("Group that is most behind", "max(<odradek_consumergroup_lag_seconds>)", "s"),
        stat(
            "Least free disk", "min(<odradek_log_dir_free_bytes> / <odradek_log_dir_total_bytes>)",
            "percentunit", bad=("below", 0.1),
        ),
        stat(
            "Last start", "min(time() - <process_start_time_seconds>)", "s",
            "Seconds since the broker that began last has begun.",
        ),
    ),
    ("overview", "Requests"): (
        Panel(
            "Requests per second",
            (
                (
                    f"sum by (request) (rate(<kafka_network_requestmetrics_requests_total>{RATE}))",
                    "{{request}}",
                ),
            ),
            "reqps",
        ),
        Panel(
            "Half of the requests take at most",
            (
                (
                    "histogram_quantile(0.5, sum by (le, request) "
                    f"(rate(<odradek_request_seconds_bucket>{RATE})))",
                    "{{request}}",
                ),
            ),
            "s",
        ),
        Panel(
            "99 % of the requests take at most",
            (
                (
                    "histogram_quantile(0.99, sum by (le, request) "
                    f"(rate(<odradek_request_seconds_bucket>{RATE})))",
                    "{{request}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Errors per second",
            (
                (
                    f"sum by (request, error) (rate(<kafka_network_requestmetrics_errors_total>{RATE}))",
                    "{{request}} {{error}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "99 % of the requests since the start",
            (
                (
                    'max by (request) (<kafka_network_requestmetrics_totaltimems{quantile="0.99"}>)',
                    "{{request}}",
                ),
            ),
            "ms",
        ),
    ),
    ("overview", "Cluster"): (
        Panel(
            "Replicas and leaders of each node",
            (
                (f"<{_REPLICAS}partitioncount>", "{{instance}} replicas"),
                (f"<{_REPLICAS}leadercount>", "{{instance}} leaders"),
            ),
        ),
        Panel(
            "Trouble of replicas",
            (
                (f"<{_REPLICAS}underreplicatedpartitions>", "{{instance}} under-replicated"),
                (f"<{_REPLICAS}underminisrpartitioncount>", "{{instance}} under min.insync.replicas"),
                (f"<{_REPLICAS}offlinereplicacount>", "{{instance}} failed"),
            ),
        ),
        Panel(
            "Topics and partitions",
            (
                (f"max(<{_CONTROLLER}globaltopiccount>)", "topics"),
                (f"max(<{_CONTROLLER}globalpartitioncount>)", "partitions"),
                (f"max(<{_CONTROLLER}offlinepartitionscount>)", "partitions without leader"),
            ),
        ),
        Panel(
            "Brokers, as each node sees them",
            (
                (f"<{_CONTROLLER}activebrokercount>", "{{instance}} active"),
                (f"<{_CONTROLLER}fencedbrokercount>", "{{instance}} fenced"),
            ),
        ),
    ),
    ("overview", "Disks"): (
        Panel(
            "Free share",
            (("<odradek_log_dir_free_bytes> / <odradek_log_dir_total_bytes>", "{{instance}} {{dir}}"),),
            "percentunit",
        ),
        Panel(
            "Free bytes",
            (("<odradek_log_dir_free_bytes>", "{{instance}} {{dir}}"),),
            "bytes",
        ),
    ),
    ("overview", "Process"): (
        Panel(
            "Memory",
            (
                ("<process_resident_memory_bytes>", "{{instance}} resident"),
                ("<process_virtual_memory_bytes>", "{{instance}} address space"),
            ),
            "bytes",
        ),
        Panel(
            "File descriptors",
            (
                ("<process_open_fds>", "{{instance}} open"),
                ("<process_max_fds>", "{{instance}} limit"),
            ),
        ),
    ),
    ("topics", "Topics"): (
        stat("Topics", "count(max by (topic) (<kafka_topic_partitions>))"),
        stat("Partitions", "sum(max by (topic) (<kafka_topic_partitions>))"),
        stat("Replicas", "sum(max by (topic, partition) (<kafka_topic_partition_replicas>))"),
        stat(
            "Replicas out of sync",
            "sum(max by (topic, partition) "
            "(<kafka_topic_partition_replicas> - <kafka_topic_partition_in_sync_replica>))",
            bad=("above", 1),
        ),
        stat("Records in", f"sum(rate(<{_BROKER}messagesin_total>{RATE}))", "cps"),
        stat("Bytes on disk", "sum(<kafka_log_log_size>)", "bytes"),
    ),
    ("topics", "Partitions"): (
        Panel(
            "Not led by the first replica",
            (
                (
                    "sum by (topic) "
                    "(1 - max by (topic, partition) (<kafka_topic_partition_leader_is_preferred>))",
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            "Growth by offsets, per second",
            (
                (
                    "sum by (topic) (max by (topic, partition) "
                    f"(rate(<kafka_topic_partition_current_offset>{RATE})))",
                    "{{topic}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "Partitions",
            tuple(
                (f"max by (topic, partition) (<kafka_topic_partition_{name}>)", title)
                for name, title in (
                    ("leader", "leader"),
                    ("replicas", "replicas"),
                    ("in_sync_replica", "in sync"),
                    ("oldest_offset", "first offset"),
                    ("current_offset", "high watermark"),
                )
            ),
            kind="table",
        ),
    ),
    ("topics", "Logs"): (
        Panel(
            "Bytes on disk",
            (("sum by (topic) (<kafka_log_log_size>)", "{{topic}}"),),
            "bytes",
            "Bytes of the logs on the disks of the chosen nodes, with all replicas.",
        ),
        Panel(
            "Offsets from the first to the last",
            (
                (
                    "sum by (topic) (max by (topic, partition) (<kafka_log_log_logendoffset>)"
                    " - max by (topic, partition) (<kafka_log_log_logstartoffset>))",
                    "{{topic}}",
                ),
            ),
        ),
    ),
    ("groups", "Lag"): (
        stat("Groups", f"sum(<{_GROUPS}numgroups>)"),
        stat("Most records behind", "max(<kafka_consumergroup_lag_sum>)"),
        stat("Most time behind", "max(<odradek_consumergroup_lag_seconds>)", "s"),
        stat("Commits past the end", "sum(<odradek_consumergroup_offsets_past_end>) or vector(0)"),
        Panel(
            "Records behind",
            (
                (
                    "max by (consumergroup, topic) (<kafka_consumergroup_lag_sum>)",
                    "{{consumergroup}} {{topic}}",
                ),
            ),
        ),
        Panel(
            "Time behind",
            (
                (
                    "max by (consumergroup, topic) (<odradek_consumergroup_lag_seconds>)",
                    "{{consumergroup}} {{topic}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Growth of the lag, records per second",
            (
                (
                    f"max by (consumergroup, topic) (deriv(<kafka_consumergroup_lag_sum>{RATE}))",
                    "{{consumergroup}} {{topic}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "Commits, records per second",
            (
                (
                    f"max by (consumergroup, topic) (deriv(<kafka_consumergroup_current_offset_sum>{RATE}))",
                    "{{consumergroup}} {{topic}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "The 100 partitions with the largest lag",
            (
                (
                    "topk(100, max by (consumergroup, topic, partition) (<kafka_consumergroup_lag>))",
                    "records behind",
                ),
                (
                    "max by (consumergroup, topic, partition) (<kafka_consumergroup_current_offset>)"
                    " and topk(100, max by (consumergroup, topic, partition) (<kafka_consumergroup_lag>))",
                    "committed offset",
                ),
            ),
            kind="table",
        ),
    ),
    ("groups", "Groups"): (
        Panel(
            "Groups by state",
            tuple(
                (f"sum(<{_GROUPS}numgroups{state.lower()}>)", state)
                for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
            ),
        ),
    ),
}  # fmt: skip
"""(board, row) -> panels that are made by hand, before those that the table gives."""


# Families


def family_of(name: str) -> Family:
    """Family of a metric, also of the series of a histogram. KeyError: there is none."""
    for suffix in SUFFIXES:
        base = name.removesuffix(suffix)
        if name not in FAMILY and base != name and base in FAMILY:
            return FAMILY[base]
    return FAMILY[name]


def families_in(panel: Panel) -> list[Family]:
    """Families that a panel shows, each once, in order."""
    names = [name for text, _ in panel.expressions for name in re.findall(r"<([a-z_]+)", text)]
    return list({family.name: family for family in map(family_of, names)}.values())


def place_of(family: Family) -> tuple[str, str]:
    """Board and row of the panel of a family."""
    for beginning, board, row in PLACES:
        if family.name.startswith(beginning):
            return board, row
    if "consumergroup" in family.labels:
        return "groups", ROW_OTHERS
    return ("topics" if "topic" in family.labels else "overview"), ROW_OTHERS


def made_panel(family: Family) -> Panel:
    """The panel that follows from the table."""
    unit = next((unit for pattern, unit in UNITS if re.search(pattern, family.name)), "short")
    title = TITLES.get(family.name) or re.split(r"[:;.(]", family.help)[0].strip()
    by: list[str] = [label for label in ("consumergroup", "topic") if label in family.labels]
    by = by or ["instance", *family.labels]
    legend = " ".join(f"{{{{{label}}}}}" for label in by)
    if family.name.endswith("_info"):
        columns = ", ".join(("instance", *family.labels))
        return Panel(title, ((f"max by ({columns}) (<{family.name}>)", "is so"),), kind="table")
    if family.kind == HISTOGRAM:
        by = [label for label in by if label != "le"]
        quantiles = (("0.5", "half"), ("0.99", "99 %"))
        return Panel(
            title,
            tuple(
                (
                    f"histogram_quantile({quantile}, sum by (le, {', '.join(by)}) "
                    f"(rate(<{family.name}_bucket>{RATE})))",
                    f"{legend} {told}",
                )
                for quantile, told in quantiles
            ),
            unit,
        )
    grouped = f"by ({', '.join(by)})"
    if family.kind == COUNTER:
        expression = f"sum {grouped} (rate(<{family.name}>{RATE}))"
        told = title if family.name in TITLES else f"{title}, per second"
        return Panel(told, ((expression, legend),), PER_SECOND.get(unit, unit))
    expression = f"<{family.name}>"
    if "partition" in family.labels:
        # Each replica tells of the partition.
        inner = ", ".join(label for label in family.labels if label in (*by, "partition"))
        expression = f"sum {grouped} (max by ({inner}) ({expression}))"
    elif by[0] != "instance":
        expression = f"max {grouped} ({expression})"
    return Panel(title, ((expression, legend),), unit)


def _shown_by_hand() -> Iterator[str]:
    """Names. A number alone shows what has no labels; of others it is a sum."""
    for panels in PANELS.values():
        for panel in panels:
            for family in families_in(panel):
                if panel.kind != "stat" or not family.labels:
                    yield family.name


def panels_of(board: Board) -> Iterator[tuple[str, list[Panel]]]:
    """Row and its panels; rows without panels are left out."""
    shown = set(_shown_by_hand())
    for row in board.rows:
        panels = list(PANELS.get((board.name, row), ()))
        for family in SHOWN:
            if family.name not in shown and place_of(family) == (board.name, row):
                panels.append(made_panel(family))
        if panels:
            # Wide ones come last, so that no gap stays beside them; a row keeps its order otherwise.
            yield row, sorted(panels, key=lambda panel: ("stat", "timeseries", "table").index(panel.kind))


# Expressions


def expression(text: str, board: Board) -> str:
    """PromQL with the filters of the board in the place of each `<name>`."""

    def filtered(match: re.Match[str]) -> str:
        name, own = match[1], match[2]
        labels = {"job", "instance", *family_of(name).labels}
        filters = [f'{label}=~"${one}"' for one, label in board.variables.items() if label in labels]
        return f"{name}{{{','.join([*filters, *([own[1:-1]] if own else [])])}}}"

    return re.sub(r"<([a-z_]+)(\{[^}]*\})?>", filtered, text)


# JSON


def board_json(board: Board) -> dict[str, Any]:
    """The model of Grafana."""
    return {
        "uid": f"odradek-{board.name}",
        "title": board.title,
        "description": board.description,
        "tags": ["odradek", "kafka"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "title": "Odradek", "type": "dashboards", "tags": ["odradek"], "asDropdown": True,
                "includeVars": True, "keepTime": True,
            }
        ],
        "annotations": {"list": []},
        "templating": {"list": list(_variables(board))},
        "panels": list(_placed(board)),
    }  # fmt: skip


def _variables(board: Board) -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
        "current": {}, "hide": 0, "refresh": 1, "regex": "", "includeAll": False, "multi": False,
    }  # fmt: skip
    asked = {
        "job": "label_values(odradek_build_info, job)",
        "instance": 'label_values(odradek_build_info{job=~"$job"}, instance)',
        "topic": 'label_values(kafka_topic_partitions{job=~"$job",instance=~"$instance"}, topic)',
        "group": (
            'label_values(kafka_consumergroup_members{job=~"$job",instance=~"$instance"}, consumergroup)'
        ),
    }
    for name in board.variables:
        yield {
            "name": name, "label": name.capitalize(), "type": "query", "datasource": DATASOURCE,
            "definition": asked[name], "query": {"query": asked[name], "refId": f"variable-{name}"},
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "hide": 0, "refresh": 2, "regex": "", "sort": 1,
            "includeAll": True, "allValue": ".*", "multi": True,
        }  # fmt: skip


def _placed(board: Board) -> Iterator[dict[str, Any]]:
    number, top = 1, 0
    for row, panels in panels_of(board):
        yield {
            "id": number, "type": "row", "title": row, "collapsed": False, "panels": [],
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        }  # fmt: skip
        number, top, left, height = number + 1, top + 1, 0, 0
        for panel in panels:
            wide, high = {"stat": STAT_SIZE, "table": TABLE_SIZE}.get(panel.kind, GRAPH_SIZE)
            if left + wide > COLUMNS or high != height:
                top, left = top + height, 0
            height = high
            yield {
                **_panel_json(panel, board),
                "id": number,
                "gridPos": {"x": left, "y": top, "w": wide, "h": high},
            }
            number, left = number + 1, left + wide
        top += height


def _panel_json(panel: Panel, board: Board) -> dict[str, Any]:
    is_table = panel.kind == "table"
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description or _helps(families_in(panel)),
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": DATASOURCE,
                "editorMode": "code",
                "expr": expression(text, board),
                "legendFormat": legend or "__auto",
                "instant": is_table,
                "range": not is_table,
                "format": "table" if is_table else "time_series",
            }
            for place, (text, legend) in enumerate(panel.expressions)
        ],
        **({"transformations": _columns(panel)} if is_table else {}),
    }


def _helps(families: Sequence[Family]) -> str:
    if len(families) == 1:
        return f"{families[0].help} ({families[0].name})"
    return "\n".join(f"- {family.name}: {family.help}" for family in families)


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.bad is not None and panel.bad[0] == "above":
        steps.append({"color": "red", "value": panel.bad[1]})
    elif panel.bad is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.bad[1]}]
    drawn = {"custom": {"drawStyle": "line", "fillOpacity": 10, "showPoints": "never"}}
    return {
        "unit": panel.unit,
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
        **(drawn if panel.kind == "timeseries" else {}),
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
        "textMode": "value",
    },
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
}


def _columns(panel: Panel) -> list[dict[str, Any]]:
    """One row for the same labels, one column for each expression."""
    one = len(panel.expressions) == 1
    names = {
        "Value" if one else f"Value #{chr(ord('A') + place)}": title
        for place, (_, title) in enumerate(panel.expressions)
    }
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}},
    ]
