"""A group of Kafka Streams: members with their tasks, topology, commits, which are moved or deleted."""

import asyncio
from typing import Any

from starlette.responses import Response

from odradek.client.admin.group_details import StreamsGroup, describe_streams_group
from odradek.client.admin.groups import describe_groups, offsets_of_groups
from odradek.client.admin.topologies import describe_topologies
from odradek.client.cluster import Cluster
from odradek.commands.groups import sum_known
from odradek.commands.topologies import topology_lines
from odradek.console.listing import Listing
from odradek.console.screens.group_changes import NO_CHANGES, Changes, change_screens, check_group, one_group
from odradek.console.screens.groups import rows_of
from odradek.console.visit import Screen, Visit

PATH = "/streams-group"
KEYS = ("topic", "partition", "committed_offset", "end_offset", "lag", "lag_seconds", "client_id", "host")


async def show(visit: Visit) -> Response:
    """The group of the query."""
    return await _page(visit, visit.text("id"))


async def _page(visit: Visit, group: str, changes: Changes = NO_CHANGES) -> Response:
    def described(cluster: Cluster) -> StreamsGroup:
        check_group(group)
        return describe_streams_group(cluster, group)

    shown, rows, text = await asyncio.gather(
        visit.part(described),
        visit.part(lambda cluster: _rows(cluster, group)),
        visit.part(lambda cluster: _text(cluster, group)),
    )
    listing = None
    if rows.value is not None:
        listing = Listing(rows.value, PATH, visit.query | {"id": group}, KEYS)
    is_there = shown.value is not None or changes is not NO_CHANGES
    return visit.page(
        "streams_group.html",
        200 if is_there else shown.status,
        group=group,
        shown=shown,
        rows=rows,
        lag=sum_known(row["lag"] for row in rows.value or ()),
        listing=listing,
        text=text,
        changes=changes,
    )


def _rows(cluster: Cluster, group: str) -> list[dict[str, Any]]:
    listed = one_group(cluster, group)
    described, refused = describe_groups(cluster, listed)
    offsets, not_read = offsets_of_groups(cluster, listed)
    for one in (*refused, *not_read):
        raise one.error
    (rows,) = rows_of(cluster, described, offsets)
    return [row for row in rows if row["topic"]]


def _text(cluster: Cluster, group: str) -> str:
    """Kafka's text of the topology, if the brokers keep a description of it."""
    found, refused = describe_topologies(cluster, one_group(cluster, group))
    for one in refused:
        raise one.error
    return "\n".join(topology_lines(found[0].subtopologies))


SCREENS = [Screen(PATH, show), *change_screens(PATH, _page, is_share=False)]
