"""Segments of a partition: a picture of them, and what each is made of. Only brokers know them."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.console.screens.partitions import described
from odradek.console.visit import Screen, Visit
from odradek.wire.errors import ErrorCode

PICTURE_WIDTH, LEAST_WIDTH, GAP = 1000, 4, 2
"""Sizes in the picture, in units of its view box."""
DRAWN_MAX = 120
"""Segments in the picture: the newest."""
ROWS_MAX = 200


async def show(visit: Visit) -> Response:
    """One partition."""
    topic = visit.segment("topic")
    partition = visit.whole("partition", 0, 0, 2**31 - 1)

    def placed(cluster: Cluster) -> tuple[int, int]:
        found = described(cluster, topic).partitions
        if partition >= len(found):
            raise ClientError(f"{topic} has no partition {partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return len(found), found[partition].leader

    places = await visit.part(placed)
    told = await visit.tell("segments", topic=topic, partition=partition)
    leader = -1 if places.value is None else places.value[1]
    here = [one for one in told.value or () if one["is_here"]]
    of_leader = next((one for one in here if one["node_id"] == leader), here[0] if here else None)
    rows = [] if of_leader is None else [_row(one, of_leader["now_ms"]) for one in of_leader["rows"]]
    return visit.page(
        "segments.html",
        404 if places.value is None and of_leader is None else 200,
        topic=topic,
        partition=partition,
        partitions=0 if places.value is None else places.value[0],
        error=places.error or told.error,
        is_told=told.value is not None,
        facts=None if of_leader is None else of_leader["partition"],
        node=None if of_leader is None else of_leader["node_id"],
        is_leader=of_leader is not None and of_leader["node_id"] == leader,
        rows=rows[: -ROWS_MAX - 1 : -1],
        blocks=blocks(rows[-DRAWN_MAX:]),
        left_out=0 if of_leader is None else of_leader["partition"]["segments"] - min(len(rows), ROWS_MAX),
    )


def _row(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    kind = "active" if row["is_active"] else "cleaned" if row["is_cleaned"] else "closed"
    due_ms = row["due_ms"]
    return {
        **row,
        "kind": kind,
        "due_seconds": None if due_ms is None else max(0.0, (due_ms - now_ms) / 1000),
        "goes_by_size": row["bytes_until_due"] == 0 and not row["is_active"],
    }


def blocks(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Places and widths of the segments in a picture, which go by their sizes, the oldest first."""
    if not rows:
        return []
    room = PICTURE_WIDTH - len(rows) * (LEAST_WIDTH + GAP)
    whole = sum(row["size_bytes"] for row in rows) or 1
    found, at = [], 0.0
    for row in rows:
        width = LEAST_WIDTH + room * row["size_bytes"] / whole
        found.append({**row, "x": round(at, 1), "width": round(width, 1)})
        at += width + GAP
    return found


SCREENS = [Screen("/topics/{topic}/segments", show)]
