"""The list of groups, with lag in records and in time."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from odradek.client.admin.asking import Refused
from odradek.client.admin.groups import ListedGroup, describe_groups, list_groups, offsets_of_groups
from odradek.client.cluster import Cluster
from odradek.commands.groups import TYPES, partition_rows, sum_known
from odradek.console.access import Forbidden
from odradek.console.listing import Listing
from odradek.console.visit import Screen, Visit

KEYS = ("group", "type", "state", "members", "partitions", "lag", "lag_seconds")
_FROM_COORDINATORS = ("members", "partitions", "lag", "lag_seconds")
"""Keys that take further requests: of the groups of one page, unless all are sorted by one of them."""


async def show(visit: Visit) -> Response:
    """Groups by name, or the most lagging first."""
    query = visit.query
    text, state, kind = visit.text("filter"), visit.text("state"), visit.text("type")

    def listed(cluster: Cluster) -> tuple[Listing, list[str], list[Refused]]:
        silent: list[Refused] = []
        every = list_groups(cluster, silent)
        states = sorted({one.state for one in every if one.state})
        chosen = [
            one
            for one in every
            if text.lower() in one.group.lower() and state in ("", one.state) and kind in ("", one.type)
        ]
        rows: list[dict[str, Any]] = [
            {
                "group": one.group,
                "type": one.type,
                "state": one.state or None,
                **dict.fromkeys(_FROM_COORDINATORS),
            }
            for one in chosen
        ]
        if query.get("sort") in _FROM_COORDINATORS:
            fill(cluster, rows, chosen)
            return Listing(rows, "/groups", query, KEYS), states, silent
        listing = Listing(rows, "/groups", query, KEYS)
        by_name = {row["group"]: row for row in rows}
        names = {row["group"] for row in listing.rows}
        shown = [one for one in chosen if one.group in names]
        fill(cluster, [by_name[one.group] for one in shown], shown)
        return listing, states, silent

    return visit.page(
        "groups.html", groups=await visit.part(listed), filter=text, state=state, type=kind, types=TYPES
    )


def fill(cluster: Cluster, rows: Sequence[dict[str, Any]], groups: Sequence[ListedGroup]) -> None:
    """Adds members, partitions and lag, which the coordinators and leaders tell, to rows of these groups."""
    described, _ = describe_groups(cluster, groups)
    offsets, _ = offsets_of_groups(cluster, groups)
    found = {
        one.group: (len(one.members), of)
        for one, of in zip(described, rows_of(cluster, described, offsets), strict=True)
    }
    for row in rows:
        members, partitions = found.get(row["group"], (None, []))
        row["members"] = members
        row["partitions"] = sum(one["committed_offset"] is not None for one in partitions)
        row["lag"] = sum_known(one["lag"] for one in partitions)
        seconds = [one["lag_seconds"] for one in partitions if one["lag_seconds"] is not None]
        row["lag_seconds"] = max(seconds) if seconds and row["lag"] is not None else None


def rows_of(cluster: Cluster, described: Any, offsets: Any) -> list[list[dict[str, Any]]]:
    """The rows of `odradek groups describe`; without lag in time where messages are hidden, as it is the age
    of one."""
    try:
        return partition_rows(cluster, described, offsets)
    except Forbidden:
        return partition_rows(cluster, described, offsets, has_times=False)


SCREENS = [Screen("/groups", show)]
