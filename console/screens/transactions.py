"""Transactions: what is open and for how long, what it holds, what hangs, and the end of one that hangs."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from odradek.client.admin.asking import Refused
from odradek.client.admin.lag import offset_bounds
from odradek.client.admin.topics import describe_topics
from odradek.client.admin.transactions import (
    HANGING_SECONDS,
    OPEN_STATES,
    ListedTransaction,
    describe_producers,
    describe_transactions,
    leaders_of,
    list_transactions,
)
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, TopicPartition
from odradek.commands.producers import leaders_named
from odradek.commands.selecting import parse_partition, parse_seconds, parse_whole
from odradek.commands.transactions import AbortPlan, hanging_rows, plan_abort, transaction_rows
from odradek.console.listing import Listing
from odradek.console.rendering import link
from odradek.console.visit import Part, Screen, Visit, sentence
from odradek.wire.errors import ErrorCode

KEYS = ("transactional_id", "state", "open_seconds", "timeout_ms", "producer_id", "producer_epoch", "count")
_FROM_COORDINATORS = ("open_seconds", "timeout_ms", "producer_epoch", "count")
"""Keys that take further requests: of the transactions of one page, unless all are sorted by one of them."""
DESCRIBED_MAX = 2_000
"""Transactions that are described for one page."""
LOOKED_AT_MAX = 5_000
"""Partitions that are searched for hanging transactions at a time."""
HANGING_KEYS = ("idle_seconds", "topic", "partition", "producer_id", "producer_epoch")


# The list ---------------------------------------------------------------------------------------------


async def show(visit: Visit) -> Response:
    """Transactional ids with their transactions, all or those that are open."""
    query, text, state = visit.query, visit.text("filter"), visit.text("state")
    older = visit.text("older")

    def listed(cluster: Cluster) -> tuple[Listing, list[str], list[Refused]]:
        silent: list[Refused] = []
        older_s = parse_seconds(older, "Open for") if older else None
        every = list_transactions(cluster, silent=silent)
        wanted = OPEN_STATES if state == "open" or older_s is not None else (state,) if state else ()
        chosen = [
            one
            for one in every
            if text.lower() in one.transactional_id.lower() and (not wanted or one.state in wanted)
        ]
        states = sorted({one.state for one in every})
        rows = {one.transactional_id: _row(one) for one in chosen}
        if older_s is not None or query.get("sort") in _FROM_COORDINATORS:
            if len(chosen) > DESCRIBED_MAX:
                raise ClientError(
                    f"these are {len(chosen):,} transactions, and {DESCRIBED_MAX:,} can be compared by their "
                    "age or partitions at a time: filter them first"
                )
            _fill(cluster, rows, chosen)
            kept = [row for row in rows.values() if older_s is None or (row["open_seconds"] or 0) >= older_s]
            return Listing(kept, "/transactions", query, KEYS), states, silent
        listing = Listing([*rows.values()], "/transactions", query, KEYS)
        shown = {row["transactional_id"] for row in listing.rows}
        _fill(cluster, rows, [one for one in chosen if one.transactional_id in shown])
        return listing, states, silent

    part = await visit.part(listed)
    return visit.page("transactions.html", transactions=part, filter=text, state=state, older=older)


def _row(one: ListedTransaction) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        **dict.fromkeys(_FROM_COORDINATORS),
        "partitions": [],
    }


def _fill(cluster: Cluster, rows: Mapping[str, dict[str, Any]], chosen: Sequence[ListedTransaction]) -> None:
    """Adds what the coordinators tell. Ids that are gone meanwhile stay as they were listed."""
    described, _ = describe_transactions(cluster, chosen)
    for found in transaction_rows(described):
        rows[found["transactional_id"]].update(found, count=len(found["partitions"]))


# One transaction --------------------------------------------------------------------------------------


async def show_one(visit: Visit) -> Response:
    """State and age of a transaction, and what it holds in each of its partitions."""
    name = visit.text("id")

    def described(cluster: Cluster) -> dict[str, Any]:
        if not name:
            raise ClientError("a transactional id is needed", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        found, refused = describe_transactions(cluster, [name])
        for one in refused:
            raise one.error
        (row,) = transaction_rows(found)
        return row

    part = await visit.part(described)
    held: Part[list[dict[str, Any]]] | None = None
    if part.value is not None and part.value["partitions"]:
        row = part.value
        held = await visit.part(lambda cluster: _held(cluster, row))
    return visit.page(
        "transaction.html", 200 if part.value is not None else part.status, id=name, shown=part, held=held
    )


def _held(cluster: Cluster, transaction: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of its partitions: readers of committed records wait at the first record of the transaction."""
    keys = [parse_partition(text) for text in transaction["partitions"]]
    topics, missing = describe_topics(cluster, {topic for topic, _ in keys})
    told = leaders_of(topics)
    producers, refused = describe_producers(cluster, {key: told[key] for key in keys if key in told})
    failures = {one.name: str(one.error) for one in (*missing, *refused)}
    ours = {
        (one.topic, one.partition): one
        for one in producers
        if one.producer_id == transaction["producer_id"] and one.transaction_start_offset is not None
    }
    bounds = offset_bounds(cluster, [key for key in keys if key in ours])
    rows = []
    for key in keys:
        one = ours.get(key)
        start = None if one is None else one.transaction_start_offset
        end = bounds[key][1] if key in bounds else None
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "start_offset": start,
                "held": None if start is None or end is None else max(0, end - start),
                "last_sequence": None if one is None else one.last_sequence,
                "last_timestamp_ms": None if one is None else one.last_timestamp_ms,
                "failed": failures.get(f"{key[0]}-{key[1]}") or failures.get(key[0], ""),
            }
        )
    return rows


# Hanging ones -----------------------------------------------------------------------------------------


async def hanging(visit: Visit) -> Response:
    """Open transactions that nobody will end, of a topic or of all. They are looked for when a form asks for
    it: all leaders and coordinators are asked."""
    older, topics = visit.text("older", str(HANGING_SECONDS)), visit.text("topics")
    part: Part[tuple[Listing, list[Refused]]] | None = None

    def found(cluster: Cluster) -> tuple[Listing, list[Refused]]:
        older_s = parse_seconds(older, "Without a record for")
        leaders = leaders_named(cluster, topics.split() or None)
        if len(leaders) > LOOKED_AT_MAX:
            raise ClientError(
                f"these are {len(leaders):,} partitions, and {LOOKED_AT_MAX:,} can be looked at at a time: "
                "name topics"
            )
        rows, refused = hanging_rows(cluster, leaders, older_s)
        query = {"desc": "1", **visit.query} if "sort" not in visit.query else visit.query
        return Listing(rows, "/transactions/hanging", query, HANGING_KEYS), refused

    if visit.text("look") == "1":
        part = await visit.part(found)
    return visit.page("hanging.html", hanging=part, older=older, topics=topics)


async def plan(visit: Visit) -> Response:
    """The end of one transaction in one partition, as it would be."""
    return await _plan_page(visit)


async def _plan_page(visit: Visit, failed: str = "") -> Response:
    name, is_forced = visit.text("partition"), visit.text("force") == "1"
    producer_id = visit.text("producer_id")

    def planned(cluster: Cluster) -> AbortPlan:
        return _planned(cluster, visit)

    part = await visit.part(planned)
    return visit.page(
        "abort.html", partition=name, producer_id=producer_id, is_forced=is_forced, plan=part, failed=failed
    )


def _planned(cluster: Cluster, visit: Visit) -> AbortPlan:
    topic, partition = parse_partition(visit.text("partition"))
    producer_id = parse_whole(visit.text("producer_id"), "The producer id")
    try:
        return plan_abort(cluster, topic, partition, producer_id, is_forced=visit.text("force") == "1")
    except ClientError as error:
        raise ClientError(str(error).replace("--force", "force"), error.code) from None


async def abort(visit: Visit) -> Response:
    """Ends the transaction that was shown, if the name of its partition was typed."""
    name = visit.text("partition")
    if visit.text("name") != name:
        return await _plan_page(visit, f"Type {name} to abort the transaction there; nothing was aborted.")

    def aborted(cluster: Cluster) -> TopicPartition:
        made = _planned(cluster, visit)
        if str(made.producer.transaction_start_offset) != visit.text("start_offset"):
            raise ClientError("the producer has begun another transaction there meanwhile: look again")
        made.carry_out(cluster)
        return made.producer.topic, made.producer.partition

    try:
        topic, partition = await visit.ask(aborted)
    except ClientError as error:
        return await _plan_page(visit, sentence(error))
    return visit.go(
        link("/topics", topic, "producers", partition=str(partition), aborted=visit.text("producer_id"))
    )


SCREENS = [
    Screen("/transactions", show),
    Screen("/transaction", show_one),
    Screen("/transactions/hanging", hanging),
    Screen("/transactions/abort", plan),
    Screen("/transactions/abort/confirm", abort, ("POST",)),
]
