"""One group: its partitions, lag, members and forecast."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from odradek.client.admin.groups import describe_groups, offsets_of_groups
from odradek.client.cluster import Cluster
from odradek.commands.groups import sum_known
from odradek.commands.topics import record_rates
from odradek.console.listing import Listing
from odradek.console.screens.group_changes import NO_CHANGES, Changes, change_screens, one_group
from odradek.console.screens.groups import rows_of
from odradek.console.visit import Screen, Visit

KEYS = ("topic", "partition", "committed_offset", "end_offset", "lag", "lag_seconds", "client_id", "host")
SAMPLES_MAX = 60
"""Views of a group that its sparkline shows."""
GROUPS_REMEMBERED = 50


@dataclass(frozen=True, slots=True)
class Sample:
    """How far a group was at a moment."""

    seconds: float
    committed: int
    lag: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """How fast a group reads, and when it will have caught up."""

    read: float | None
    """Records a second since the view before; None: this is the first one."""
    written: float
    """Records a second of the last minute."""
    lag: int

    @property
    def text(self) -> str:
        """For a person."""
        if self.lag == 0:
            return "has read all"
        if self.read is None:
            return "look again in a moment to see how fast it reads"
        if self.read <= self.written:
            return "will not catch up" if self.written > 0 or self.read > 0 else "does not read"
        seconds = self.lag / (self.read - self.written)
        return f"has caught up in {_about(seconds)}"


def _about(seconds: float) -> str:
    from odradek.client.progress import duration

    return duration(min(seconds, 100 * 365 * 86_400.0))


@dataclass(frozen=True, slots=True)
class Shown:
    """Contents of the page of a group."""

    description: Any
    rows: list[dict[str, Any]]
    lag: int | None
    lag_seconds: float | None
    forecast: Forecast | None
    lags: list[float]
    """Lag at the last views, the newest last."""


async def show(visit: Visit) -> Response:
    """The group of the query."""
    return await _page(visit, visit.text("id"))


async def _page(visit: Visit, group: str, changes: Changes = NO_CHANGES) -> Response:
    part = await visit.part(lambda cluster: _shown(cluster, visit, group))
    listing = None
    if part.value is not None:
        listing = Listing(part.value.rows, "/group", visit.query | {"id": group}, KEYS)
    return visit.page(
        "group.html",
        200 if part.value is not None or changes is not NO_CHANGES else 404,
        group=group,
        shown=part,
        listing=listing,
        changes=changes,
    )


def _shown(cluster: Cluster, visit: Visit, group: str) -> Shown:
    listed = one_group(cluster, group)
    described, refused = describe_groups(cluster, listed)
    for one in refused:
        raise one.error
    offsets, not_read = offsets_of_groups(cluster, listed)
    for one in not_read:
        raise one.error
    (rows,) = rows_of(cluster, described, offsets)
    rows = [row for row in rows if row["topic"] or row["member_id"]]
    lag = sum_known(row["lag"] for row in rows)
    seconds = [row["lag_seconds"] for row in rows if row["lag_seconds"] is not None]
    forecast: Forecast | None = None
    lags: list[float] = []
    if lag is not None:
        forecast, lags = _forecast(cluster, visit, group, rows, lag)
    return Shown(
        described[0], rows, lag, max(seconds) if seconds and lag is not None else None, forecast, lags
    )


def _forecast(
    cluster: Cluster, visit: Visit, group: str, rows: Sequence[Mapping[str, Any]], lag: int
) -> tuple[Forecast, list[float]]:
    known = [row for row in rows if row["lag"] is not None]
    bounds = {(row["topic"], row["partition"]): (row["start_offset"], row["end_offset"]) for row in known}
    written = sum(record_rates(cluster, bounds).values())
    now = Sample(time.monotonic(), sum(row["committed_offset"] for row in known), lag)
    samples = _remembered(visit, group)
    read = None
    if samples and now.seconds - samples[0].seconds >= 1:
        # Over a minute, if it was seen then: reading is not even.
        before = next((one for one in samples if now.seconds - one.seconds <= 60), samples[-1])
        passed = now.seconds - before.seconds
        read = max(0.0, (now.committed - before.committed) / passed) if passed >= 0.5 else None
    samples.append(now)
    del samples[:-SAMPLES_MAX]
    return Forecast(read, written, lag), [float(one.lag) for one in samples]


def _remembered(visit: Visit, group: str) -> list[Sample]:
    memory = visit.session.memory
    samples = memory.pop(("group", group), None)
    while len(memory) >= GROUPS_REMEMBERED:
        memory.pop(next(iter(memory)), None)
    found: list[Sample] = samples if isinstance(samples, list) else []
    memory["group", group] = found
    return found


SCREENS = [Screen("/group", show), *change_screens("/group", _page)]
