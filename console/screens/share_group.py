"""A share group: members, where it is in each partition, states of records, dead letters; its offsets are
moved or deleted.
"""

import asyncio
from typing import Any

from starlette.responses import Response

from odradek.client.admin.configs import Config, Resource, ResourceKind, describe_configs
from odradek.client.admin.group_details import ShareOffset, describe_share_group, describe_share_offsets
from odradek.client.admin.lag import partition_bounds
from odradek.client.admin.share_states import STATE_NAMES, ShareStates, share_states
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.groups import sum_known
from odradek.console.listing import Listing
from odradek.console.screens.group_changes import NO_CHANGES, Changes, change_screens, check_group
from odradek.console.visit import Part, Screen, Visit

PATH = "/share-group"
KEYS = ("topic", "partition", "start_offset", "end_offset", "lag", "acknowledged", "members")
DEAD_LETTERS = "errors.deadletterqueue."
"""The beginning of the options of a dead letter queue (KIP-1191)."""
SHARING = "share."
"""The beginning of the other options of a share group."""
STATES_SHOWN = 500


async def show(visit: Visit) -> Response:
    """The group of the query."""
    return await _page(visit, visit.text("id"))


async def _page(visit: Visit, group: str, changes: Changes = NO_CHANGES) -> Response:
    def described(cluster: Cluster) -> Any:
        check_group(group)
        return describe_share_group(cluster, group)

    def options(cluster: Cluster) -> list[Config]:
        check_group(group)
        found = describe_configs(cluster, Resource(ResourceKind.GROUP, group))
        return [one for one in found if one.name.startswith((DEAD_LETTERS, SHARING))]

    states_of = visit.text("states")
    shown, rows, configs, states = await asyncio.gather(
        visit.part(described),
        visit.part(lambda cluster: _rows(cluster, group)),
        visit.part(options),
        visit.part(lambda cluster: _states(cluster, group, states_of)),
    )
    listing = None
    if rows.value is not None:
        readers = {} if shown.value is None else _readers(shown.value)
        for row in rows.value:
            row["members"] = readers.pop((row["topic"], row["partition"]), 0)
        not_begun = [_row(topic, number, members) for (topic, number), members in readers.items()]
        listing = Listing([*rows.value, *not_begun], PATH, visit.query | {"id": group}, KEYS)
    is_there = shown.value is not None or changes is not NO_CHANGES
    return visit.page(
        "share_group.html",
        200 if is_there else shown.status,
        group=group,
        shown=shown,
        rows=rows,
        lag=sum_known(row["lag"] for row in rows.value or ()),
        listing=listing,
        configs=configs,
        queue=_queue(configs),
        changes=changes,
        states=states,
        states_of=states_of,
        states_shown=STATES_SHOWN,
        state_names=STATE_NAMES,
        topic_of_states=states_of.rpartition(":")[0],
        partition_of_states=states_of.rpartition(":")[2],
    )


def _states(cluster: Cluster, group: str, place: str) -> tuple[ShareStates | None, int] | None:
    """States of the records of `TOPIC:PARTITION`, and how many of them were delivered again; None if none are
    asked for."""
    topic, _, number = place.rpartition(":")
    if not place:
        return None
    if not (topic and number.isascii() and number.isdecimal() and len(number) < 10):
        raise ClientError("states are those of TOPIC:PARTITION")
    found = share_states(cluster, group, topic, int(number))
    batches = () if found is None else found.batches
    again = sum(one.last_offset - one.first_offset + 1 for one in batches if one.delivery_count > 1)
    return found, again


def _readers(group: Any) -> dict[tuple[str, int], int]:
    """How many members have each partition."""
    found: dict[tuple[str, int], int] = {}
    for member in group.members:
        for key in member.partitions:
            found[key] = found.get(key, 0) + 1
    return found


def _rows(cluster: Cluster, group: str) -> list[dict[str, Any]]:
    """Where the group is. Of what lies between start and end the coordinator tells how much is left, so the
    rest is acknowledged already, behind a record that is not."""
    check_group(group)
    offsets = describe_share_offsets(cluster, group)
    bounds = partition_bounds(cluster, [(one.topic, one.partition) for one in offsets])
    return [_of_offset(one, bounds.get((one.topic, one.partition))) for one in offsets]


def _of_offset(one: ShareOffset, bounds: tuple[int, int] | None) -> dict[str, Any]:
    row = _row(one.topic, one.partition, 0)
    row |= {
        "start_offset": one.start_offset,
        "lag": one.lag,
        "failed": "" if one.error is None else str(one.error),
    }
    if bounds is not None:
        row["end_offset"] = bounds[1]
        if one.start_offset is not None:
            between = max(0, bounds[1] - max(one.start_offset, bounds[0]))
            row["lag"] = between if one.lag is None else min(one.lag, between)
            row["acknowledged"] = None if one.lag is None else max(0, between - one.lag)
    return row


def _row(topic: str, partition: int, members: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(KEYS)
    return row | {"topic": topic, "partition": partition, "members": members, "failed": ""}


def _queue(configs: Part[list[Config]]) -> str:
    """The topic of dead letters, empty if there is none."""
    for one in configs.value or ():
        if one.name == f"{DEAD_LETTERS}topic.name" and one.value:
            return one.value
    return ""


SCREENS = [Screen(PATH, show), *change_screens(PATH, _page, is_share=True)]
