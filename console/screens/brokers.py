"""The nodes of a cluster: brokers, log directories, replicas, the quorum, features, and running moves."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from starlette.responses import Response

from odradek.client.admin.description import (
    ClusterDescription,
    Features,
    describe_cluster,
    describe_features,
    describe_log_dirs,
)
from odradek.client.admin.quorum import Quorum, describe_quorum
from odradek.client.admin.replicas import list_moves
from odradek.client.admin.topics import PartitionDescription, TopicDescription
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.cluster import broker_rows, feature_rows, log_dir_row
from odradek.commands.selecting import parse_whole
from odradek.console.listing import Listing
from odradek.console.visit import Part, Screen, Visit
from odradek.wire.releases import METADATA_VERSION, level_name

KEYS = ("broker", "host", "rack", "release", "leaders", "replicas", "not_in_sync", "offline")
DIR_KEYS = ("broker", "log_dir", "replicas", "size_bytes", "usable_bytes", "total_bytes")
REPLICA_KEYS = ("topic", "partition", "leader", "in_sync_count")
QUORUM_KEYS = ("node", "log_end_offset", "lag", "last_fetch_ms", "last_caught_up_ms")
FEATURE_KEYS = ("feature",)
MOVE_KEYS = ("topic", "partition")
AT_ONCE = 4
"""Brokers that one page asks at the same time."""
STATES: Final = {
    "": "all partitions",
    "under-replicated": "not all in sync",
    "offline": "with a replica offline",
    "leaderless": "without a leader",
    "not-preferred": "led by another than the first",
}
"""Choices of partitions, for people."""
Result = TypeVar("Result")


# Brokers ----------------------------------------------------------------------------------------------


async def show(visit: Visit) -> Response:
    """Brokers with what they lead and hold."""
    described, counts = await asyncio.gather(
        visit.part(describe_cluster), visit.part(lambda cluster: _counts(visit, cluster))
    )
    listing, silent = None, list[tuple[int, str]]()
    if described.value is not None:
        told, silent = await _features(visit, described.value)
        names = {one.broker for one in described.value.brokers}
        rows = broker_rows(described.value, told)
        # Brokers that are gone but have replicas are rows, too.
        known = counts.value or {}
        rows += [_gone(described.value, broker) for broker in known if broker not in names]
        for row in rows:
            row |= known.get(row["broker"], dict.fromkeys(_COUNTED, None if counts.value is None else 0))
            row["is_silent"] = row["broker"] in dict(silent)
            row["is_gone"] = row["broker"] not in names
            level = row["metadata_version"]
            row["metadata_version"] = None if level is None else level_name(METADATA_VERSION, level)
        listing = Listing(rows, "/brokers", visit.query, KEYS)
    return visit.page("brokers.html", described=described, counts=counts, listing=listing, silent=silent)


_COUNTED = ("leaders", "replicas", "not_in_sync", "offline")


def _counts(visit: Visit, cluster: Cluster) -> dict[int, dict[str, int]]:
    """How many partitions each broker leads and holds."""
    found: dict[int, dict[str, int]] = {}

    def count(broker: int, what: str) -> None:
        found.setdefault(broker, dict.fromkeys(_COUNTED, 0))[what] += 1

    for _, one in _partitions(visit, cluster):
        if one.leader >= 0:
            count(one.leader, "leaders")
        for broker in one.replicas:
            count(broker, "replicas")
            if broker not in one.in_sync:
                count(broker, "not_in_sync")
            if broker in one.offline:
                count(broker, "offline")
    return found


def _gone(described: ClusterDescription, broker: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(("host", "port", "rack", "release", "metadata_version", "fenced"))
    return row | {"cluster_id": described.cluster_id, "broker": broker, "controller": False}


def _partitions(visit: Visit, cluster: Cluster) -> Iterable[tuple[TopicDescription, PartitionDescription]]:
    return ((topic, one) for topic in visit.all_topics(cluster) for one in topic.partitions)


async def _of_each(
    visit: Visit, brokers: Sequence[int], work: Callable[[Cluster, int], Result]
) -> list[tuple[int, Part[Result]]]:
    """A part for each broker, so that those which are away take nothing from the others."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(broker: int) -> tuple[int, Part[Result]]:
        async with slots:
            return broker, await visit.part(lambda cluster: work(cluster, broker))

    return [*await asyncio.gather(*map(one, brokers))]


async def _features(
    visit: Visit, described: ClusterDescription
) -> tuple[dict[int, Features], list[tuple[int, str]]]:
    """Features of the brokers that respond, and why the others do not."""
    asked = [one.broker for one in described.brokers if not one.is_fenced]
    parts = await _of_each(visit, asked, describe_features)
    told = {broker: part.value for broker, part in parts if part.value is not None}
    return told, [(broker, part.error) for broker, part in parts if part.value is None]


# Log directories --------------------------------------------------------------------------------------


async def log_dirs(visit: Visit) -> Response:
    """Log directories, with what they hold and what is free."""
    described = await visit.part(describe_cluster)
    listing, failed = None, []
    if described.value is not None:
        asked = [one.broker for one in described.value.brokers if not one.is_fenced]
        parts = await _of_each(visit, asked, lambda cluster, broker: describe_log_dirs(cluster, [broker]))
        rows = [log_dir_row(one) | {"error": one.error.name} for _, part in parts for one in part.value or ()]
        failed = [part.error for _, part in parts if part.value is None]
        listing = Listing(rows, "/brokers/log-dirs", visit.query, DIR_KEYS)
    return visit.page("log_dirs.html", described=described, listing=listing, failed=failed)


# Replicas ---------------------------------------------------------------------------------------------


async def replicas(visit: Visit) -> Response:
    """Partitions with their replicas: all, those of a broker, or those that are not well."""
    query, state, broker = visit.query, visit.text("state"), visit.text("broker")
    text = visit.text("filter")

    def listed(cluster: Cluster) -> Listing:
        number = parse_whole(broker, "Broker", 0, 2**31 - 1) if broker else None
        rows = [
            {
                "topic": topic.name,
                "partition": one.partition,
                "leader": one.leader if one.leader >= 0 else None,
                "replicas": one.replicas,
                "in_sync": one.in_sync,
                "offline": one.offline,
                "in_sync_count": len(one.in_sync),
            }
            for topic, one in _partitions(visit, cluster)
            if (number is None or number in one.replicas)
            and text.lower() in topic.name.lower()
            and _is_in(state, one)
        ]
        return Listing(rows, "/brokers/replicas", query, REPLICA_KEYS)

    return visit.page(
        "replicas.html",
        replicas=await visit.part(listed),
        state=state,
        states=STATES,
        broker=broker,
        filter=text,
    )


def _is_in(state: str, one: PartitionDescription) -> bool:
    """ClientError for a state that is none."""
    if state not in STATES:
        raise ClientError(f"the state {state} is none of {', '.join(name for name in STATES if name)}")
    return {
        "": True,
        "under-replicated": len(one.in_sync) < len(one.replicas),
        "offline": bool(one.offline),
        "leaderless": one.leader < 0,
        "not-preferred": bool(one.replicas) and one.leader != one.replicas[0],
    }[state]


# Quorum, features, moves ------------------------------------------------------------------------------


async def quorum(visit: Visit) -> Response:
    """Voters and observers of the metadata log."""

    def described(cluster: Cluster) -> tuple[Quorum, Listing]:
        found = describe_quorum(cluster)
        rows = [
            {
                "node": one.node,
                "is_voter": one.is_voter,
                "is_leader": one.is_leader,
                "log_end_offset": one.log_end_offset if one.log_end_offset >= 0 else None,
                "lag": one.lag,
                "last_fetch_ms": one.last_fetch_ms,
                "last_caught_up_ms": one.last_caught_up_ms,
                "addresses": one.addresses,
            }
            for one in found.nodes
        ]
        return found, Listing(rows, "/brokers/quorum", visit.query, QUORUM_KEYS)

    return visit.page("quorum.html", quorum=await visit.part(described))


async def features(visit: Visit) -> Response:
    """Levels of the cluster, and those that all brokers have."""
    described = await visit.part(describe_cluster)
    listing, failed = None, []
    if described.value is not None:
        told, silent = await _features(visit, described.value)
        failed = [error for _, error in silent]
        rows = feature_rows([*told.values()]) if told else []
        listing = Listing(rows, "/brokers/features", visit.query, FEATURE_KEYS)
    return visit.page("features.html", described=described, listing=listing, failed=failed)


async def moves(visit: Visit) -> Response:
    """Partitions that are being moved to other brokers."""

    def listed(cluster: Cluster) -> Listing:
        rows = [
            {
                "topic": one.topic,
                "partition": one.partition,
                "replicas": one.replicas,
                "adding": one.adding,
                "removing": one.removing,
            }
            for one in list_moves(cluster)
        ]
        return Listing(rows, "/brokers/moves", visit.query, MOVE_KEYS)

    return visit.page("moves.html", moves=await visit.part(listed))


SCREENS = [
    Screen("/brokers", show),
    Screen("/brokers/log-dirs", log_dirs),
    Screen("/brokers/replicas", replicas),
    Screen("/brokers/quorum", quorum),
    Screen("/brokers/features", features),
    Screen("/brokers/moves", moves),
]
