"""The connections of the brokers' clients, and the requests that took long: what only brokers know."""

from typing import Any

from starlette.responses import Response

from odradek.console.listing import Listing
from odradek.console.visit import Screen, Visit

KEYS = (
    "client_id",
    "host",
    "principal",
    "listener",
    "software",
    "requests_per_second",
    "bytes_in_per_second",
    "bytes_out_per_second",
    "idle_ms",
    "connected_ms",
    "node",
)
SLOW_KEYS = ("time_ms", "api", "took_ms", "bytes_in", "bytes_out", "client_id", "host", "principal", "node")
_SEARCHED = ("client_id", "host", "principal", "listener", "software")


async def show(visit: Visit) -> Response:
    """A row for each connection; the filter is a part of any name in it."""
    told = await visit.tell("connections")
    text = visit.text("filter")
    rows = [_named(one, of_node["node_id"]) for of_node in told.value or () for one in of_node["rows"]]
    chosen = [row for row in rows if any(text.lower() in str(row[name] or "").lower() for name in _SEARCHED)]
    return visit.page(
        "connections.html",
        told=told,
        listing=Listing(chosen, "/connections", visit.query, KEYS),
        filter=text,
        count=sum(one["count"] for one in told.value or ()),
        seen=len(rows),
    )


async def show_slow(visit: Visit) -> Response:
    """The newest slow requests, the last one first."""
    told = await visit.tell("slow")
    rows = [{**one, "node": of_node["node_id"]} for of_node in told.value or () for one in of_node["rows"]]
    query = visit.query if visit.text("sort") else {**visit.query, "desc": "1"}
    return visit.page(
        "slow.html",
        told=told,
        listing=Listing(rows, "/slow", query, SLOW_KEYS),
        slow_ms=min((one["slow_ms"] for one in told.value or ()), default=0),
    )


def _named(row: dict[str, Any], node_id: int) -> dict[str, Any]:
    return {**row, "software": software(row), "node": node_id}


def software(row: dict[str, Any]) -> str | None:
    """Name and version of a client's library; None for one that does not say."""
    if row["software"] == "unknown":
        return None
    return f"{row['software']} {row['software_version']}"


SCREENS = [Screen("/connections", show), Screen("/slow", show_slow)]
