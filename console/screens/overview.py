"""The first page: rates of the last hour, what to look at, and the topics and groups with the most to do.

Rates are those that brokers tell. All else is asked of any cluster; each part that a person may not see says
so in its place.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse, Response

from odradek.client.admin.description import describe_log_dirs
from odradek.client.admin.groups import list_groups
from odradek.client.admin.topics import TopicDescription
from odradek.client.admin.transactions import OPEN_STATES, describe_transactions, list_transactions
from odradek.client.cluster import Cluster
from odradek.client.progress import duration
from odradek.commands.output import size_text
from odradek.console.rendering import link
from odradek.console.screens.groups import fill
from odradek.console.visit import Part, Screen, Visit
from odradek.wire.errors import ErrorCode

GROUPS_MAX = 200
"""Groups whose lag is asked for."""
SHOWN_MAX = 10
BEHIND_S = 60.0
"""A group that is so far behind is worth a look."""
OPEN_S = 300.0
"""A transaction that is open for so long is, too."""
FREE_PERCENT_MIN = 10
FULL_S = 14 * 86_400.0
"""A disk that is full within this time is, too, if it goes on as before."""
NAMED_MAX = 5
PLOTS = (
    ("traffic", "Bytes a second", "bytes", (("bytes_in", "in"), ("bytes_out", "out"))),
    ("requests", "Requests a second", "count", (("requests", "requests"), ("errors", "with an error"))),
    ("p99", "p99 of requests that do not wait", "ms", (("p99_ms", "p99"),)),
    ("disk", "Fullest disk", "part", (("disk_used", "used"),)),
)
"""Name, title, unit, and series with their labels."""


@dataclass(frozen=True, slots=True)
class Look:
    """A thing to look at."""

    text: str
    url: str = ""


async def first(visit: Visit) -> Response:
    """The first page."""
    return visit.go("/overview")


async def show(visit: Visit) -> Response:
    """All parts, asked for at the same time."""
    told, topics, groups, transactions, dirs = await asyncio.gather(
        visit.tell("rates"),
        visit.part(lambda cluster: look_at_topics(visit.all_topics(cluster))),
        visit.part(group_rows),
        visit.part(look_at_transactions),
        visit.part(look_at_dirs),
    )
    looks: list[Look] = []
    if told.value is not None:
        looks += look_at_nodes(told.value)
    if topics.value is not None:
        looks += topics.value[1]
    if groups.value is not None:
        looks += look_at_groups(groups.value[0], _lags_before(visit, groups.value[0]))
    for part in (transactions, dirs):
        looks += part.value or []
    rates = None if told.value is None else merged(told.value)
    return visit.page(
        "overview.html",
        told=told,
        rates=rates,
        plots=[] if rates is None else plots(rates),
        looks=looks,
        refused=_refusals(topics, groups, transactions, dirs),
        numbers=None if topics.value is None else topics.value[0],
        groups=groups,
        topics=[] if rates is None else busy_topics(rates),
    )


def _refusals(*parts: Part[Any]) -> list[str]:
    return list(dict.fromkeys(part.error for part in parts if part.error))


async def show_rates(visit: Visit) -> Response:
    """The series of the plots, for the script that keeps them up to date."""
    told = await visit.tell("rates")
    if told.value is None:
        return JSONResponse({"error": told.error}, 503)
    return JSONResponse({one["name"]: one["data"] for one in plots(merged(told.value))})


# What to look at --------------------------------------------------------------------------------------


def look_at_topics(found: Sequence[TopicDescription]) -> tuple[dict[str, int], list[Look]]:
    """Numbers of topics and partitions; partitions without a leader, and those that lack replicas."""
    offline = [
        f"{topic.name}-{one.partition}" for topic in found for one in topic.partitions if one.leader < 0
    ]
    lacking = {
        topic.name: sum(len(one.in_sync) < len(one.replicas) for one in topic.partitions) for topic in found
    }
    looks = []
    if offline:
        looks.append(
            Look(f"{_counted(offline, 'partition has', 'partitions have')} no leader: {_some(offline)}")
        )
    looks += [
        Look(f"{name}: {count} partitions lack replicas in sync", link("/topics", name, "partitions"))
        for name, count in sorted(lacking.items())
        if count
    ][:NAMED_MAX]
    numbers = {
        "topics": sum(not topic.is_internal for topic in found),
        "partitions": sum(len(topic.partitions) for topic in found),
    }
    return numbers, looks


def group_rows(cluster: Cluster) -> tuple[list[dict[str, Any]], int]:
    """Groups with their lag, those that are the furthest behind first; and how many were not asked for."""
    listed = list_groups(cluster)
    asked = listed[:GROUPS_MAX]
    rows: list[dict[str, Any]] = [{"group": one.group, "state": one.state or None} for one in asked]
    fill(cluster, rows, asked)
    rows.sort(key=lambda row: (-(row["lag_seconds"] or 0), -(row["lag"] or 0), row["group"]))
    return rows, len(listed) - len(asked)


def _lags_before(visit: Visit, rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Lags at the last view, of which one is remembered for a session."""
    memory = visit.session.memory
    now_s = time.monotonic()
    before = memory.get("overview")
    at_s, lags = before if isinstance(before, tuple) else (now_s, {})
    if not lags or now_s - at_s >= 5:
        memory["overview"] = now_s, {row["group"]: row["lag"] for row in rows if row["lag"] is not None}
    return dict(lags)


def look_at_groups(rows: Iterable[Mapping[str, Any]], before: Mapping[str, int]) -> list[Look]:
    """Groups that are behind, and whether that grows since an earlier view."""
    looks = []
    for row in rows:
        lag, seconds = row["lag"], row["lag_seconds"]
        if not lag:
            continue
        grows = row["group"] in before and lag > before[row["group"]]
        if (seconds is None or seconds < BEHIND_S) and not grows:
            continue
        behind = f"{duration(seconds)} behind" if seconds is not None else "behind"
        text = f"group {row['group']} is {behind} ({lag:,} records){', growing' if grows else ''}"
        looks.append(Look(text, link("/group", id=row["group"])))
    return looks[:NAMED_MAX]


def look_at_transactions(cluster: Cluster) -> list[Look]:
    """Transactions that are open for long."""
    listed = list_transactions(cluster, states=OPEN_STATES)
    found, _ = describe_transactions(cluster, listed[:GROUPS_MAX])
    now_ms = time.time() * 1000
    opened = [
        (now_ms - one.start_time_ms, one)
        for one in found
        if one.start_time_ms is not None and now_ms - one.start_time_ms > OPEN_S * 1000
    ]
    opened.sort(key=lambda pair: -pair[0])
    return [
        Look(
            f"transaction {one.transactional_id} of producer {one.producer_id} is open for "
            f"{duration(open_ms / 1000)}",
            link("/topics", one.partitions[0][0], "writers") if one.partitions else "",
        )
        for open_ms, one in opened[:NAMED_MAX]
    ]


def look_at_dirs(cluster: Cluster) -> list[Look]:
    """Directories that are offline or nearly full."""
    looks = []
    for one in describe_log_dirs(cluster, has_replicas=False):
        name = f"{one.path} of broker {one.broker}"
        if one.error != ErrorCode.NONE:
            looks.append(Look(f"{name} is offline"))
        elif one.total_bytes and one.usable_bytes is not None and one.usable_bytes >= 0:
            free = 100 * one.usable_bytes / one.total_bytes
            if free < FREE_PERCENT_MIN:
                looks.append(Look(f"{name} has {free:.0f} % left, {size_text(one.usable_bytes)}"))
    return looks


def look_at_nodes(told: Iterable[Mapping[str, Any]]) -> list[Look]:
    """Faults that brokers tell of themselves."""
    looks = []
    for node in told:
        looks += [Look(f"broker {node['node_id']}: {reason}") for reason in node["reasons_not_ready"]]
        for disk in node["disks"]:
            seconds = disk["seconds_until_full"]
            if seconds is not None and seconds < FULL_S:
                name = f"{disk['path']} of broker {node['node_id']}"
                looks.append(Look(f"{name} is full in {duration(seconds)} at this rate"))
    return looks


def _counted(names: Sequence[str], one: str, many: str) -> str:
    return f"{len(names):,} {one if len(names) == 1 else many}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


# Rates ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of all brokers that tell."""

    times_s: list[float]
    """Times of the steps, the oldest first."""
    series: dict[str, list[float | None]]
    topics: dict[str, dict[str, list[float | None]]]
    started_ms: int
    version: str
    node_ids: list[int]
    connections: int

    def newest(self, name: str) -> float | None:
        """The newest value of a series; None before the first step. One that was always 0 is not told."""
        if not self.times_s:
            return None
        return self.series[name][-1] if name in self.series else 0.0


_LARGEST = ("p99_ms", "disk_used")
"""Series of which the largest of all brokers counts, not the sum."""


def merged(told: Sequence[Mapping[str, Any]]) -> Rates:
    """Steps of several brokers are within ten seconds of each other, which is as exact as a plot."""
    count = max(min(one["noted"], 360) for one in told)
    step_s, last_ms = told[0]["step_s"], max(one["last_ms"] for one in told)
    names = dict.fromkeys(name for one in told for name in one["series"])
    topics = dict.fromkeys(name for one in told for name in one["topics"])
    return Rates(
        times_s=[last_ms / 1000 - step_s * (count - 1 - at) for at in range(count)],
        series={
            name: _together([one["series"].get(name, []) for one in told], count, name in _LARGEST)
            for name in names
        },
        topics={
            topic: {
                way: _together([one["topics"].get(topic, {}).get(way, []) for one in told], count, False)
                for way in ("in", "out")
            }
            for topic in topics
        },
        started_ms=min(one["started_ms"] for one in told),
        version=told[0]["version"],
        node_ids=[one["node_id"] for one in told],
        connections=sum(one["connections"] for one in told),
    )


def _together(columns: Iterable[Sequence[float | None]], count: int, largest: bool) -> list[float | None]:
    padded = [[*[None] * (count - len(column)), *column] for column in columns]
    found: list[float | None] = []
    for at in range(count):
        known = [value for value in (column[at] for column in padded) if value is not None]
        found.append(None if not known else max(known) if largest else sum(known))
    return found


def plots(rates: Rates) -> list[dict[str, Any]]:
    """The plots with their data, as uPlot has them: times, then a list for each series."""
    found: list[dict[str, Any]] = []
    if not rates.times_s:
        return found
    for name, title, unit, series in PLOTS:
        columns = [rates.series.get(key, [0.0] * len(rates.times_s)) for key, _ in series]
        found.append(
            {
                "name": name,
                "title": title,
                "unit": unit,
                "labels": [label for _, label in series],
                "labels_text": json.dumps([label for _, label in series]),
                "data": [rates.times_s, *columns],
                "data_text": json.dumps([rates.times_s, *columns]),
                "lines": [[value or 0.0 for value in column] for column in columns],
                "top": max(value or 0.0 for column in columns for value in column),
            }
        )
    return found


def busy_topics(rates: Rates) -> list[dict[str, Any]]:
    """The topics with the most traffic at the end."""
    rows: list[dict[str, Any]] = [
        {
            "topic": topic,
            "in": (ways["in"] or [None])[-1] or 0.0,
            "out": (ways["out"] or [None])[-1] or 0.0,
            "line": [value or 0.0 for value in ways["in"][-60:]],
        }
        for topic, ways in rates.topics.items()
    ]
    rows.sort(key=lambda row: (-row["in"] - row["out"], row["topic"]))
    return rows[:SHOWN_MAX]


SCREENS = [Screen("/", first), Screen("/overview", show), Screen("/overview/rates", show_rates)]
