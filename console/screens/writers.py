"""Writers of a topic: connections that produce to it, which brokers tell, and producers with ids,
which Kafka's protocol tells.
"""

import time
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from odradek.client.admin.transactions import (
    OPEN_STATES,
    ListedTransaction,
    describe_producers,
    describe_transactions,
    leaders_of,
    list_transactions,
)
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.console.listing import Listing
from odradek.console.screens.connections import software
from odradek.console.screens.partitions import described
from odradek.console.visit import Screen, Visit

KEYS = (
    "client_id",
    "host",
    "principal",
    "partition_count",
    "bytes_per_second",
    "software",
    "connected_ms",
    "node",
)
PRODUCERS_MAX = 200


async def show(visit: Visit) -> Response:
    """Both lists; either may be refused without the other."""
    topic = visit.segment("topic")
    producers = await visit.part(lambda cluster: producer_rows(cluster, topic))
    told = await visit.tell("writers", topic=topic)
    rows = [
        {
            **one,
            "software": software(one),
            "partition_count": len(one["partitions"]),
            "node": of_node["node_id"],
        }
        for of_node in told.value or ()
        for one in of_node["rows"]
    ]
    query = visit.query if visit.text("sort") else {**visit.query, "sort": "bytes_per_second", "desc": "1"}
    return visit.page(
        "writers.html",
        404 if producers.value is None and told.value is None else 200,
        topic=topic,
        told=told,
        listing=Listing(rows, f"/topics/{topic}/writers", query, KEYS),
        seconds=min((one["seconds"] for one in told.value or ()), default=0),
        producers=producers,
    )


def producer_rows(cluster: Cluster, topic: str) -> tuple[list[dict[str, Any]], int, str]:
    """Producers, those with an open transaction first, the newest of the others after them; their number; and
    why the rest is not shown."""
    found, refused = describe_producers(cluster, leaders_of([described(cluster, topic)]))
    if refused and not found:
        raise refused[0].error
    found.sort(key=lambda one: (one.transaction_start_offset is None, -one.last_timestamp_ms))
    shown = found[:PRODUCERS_MAX]
    transactions = _transactions(cluster, {one.producer_id for one in shown})
    since = _open_since(cluster, [*transactions.values()])
    rows = []
    for one in shown:
        name = transactions.get(one.producer_id)
        began_ms = since.get(name.transactional_id) if name is not None else None
        is_open = one.transaction_start_offset is not None
        rows.append(
            {
                "producer_id": one.producer_id,
                "epoch": one.producer_epoch,
                "partition": one.partition,
                "transactional_id": None if name is None else name.transactional_id,
                "last_ms": one.last_timestamp_ms,
                "start_offset": one.transaction_start_offset,
                "open_seconds": max(0.0, time.time() - began_ms / 1000) if is_open and began_ms else None,
            }
        )
    return rows, len(found), str(refused[0].error) if refused else ""


def _transactions(cluster: Cluster, producer_ids: set[int]) -> dict[int, ListedTransaction]:
    """Transactional ids that the person may see; none where that is refused."""
    if not producer_ids:
        return {}
    try:
        listed = list_transactions(cluster, producer_ids=producer_ids)
    except ClientError:
        return {}
    return {one.producer_id: one for one in listed}


def _open_since(cluster: Cluster, listed: Sequence[ListedTransaction]) -> dict[str, int | None]:
    """Times at which the open ones of these have begun."""
    opened = [one for one in listed if one.state in OPEN_STATES]
    if not opened:
        return {}
    try:
        found, _ = describe_transactions(cluster, opened)
    except ClientError:
        return {}
    return {one.transactional_id: one.start_time_ms for one in found}


SCREENS = [Screen("/topics/{topic}/writers", show)]
