"""The producers of a topic, as the leaders of its partitions have them."""

from starlette.responses import Response

from odradek.client.admin.asking import Refused
from odradek.client.admin.transactions import describe_producers, leaders_of, list_transactions
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.producers import row_of
from odradek.commands.selecting import parse_whole
from odradek.console.listing import Listing
from odradek.console.screens.partitions import described
from odradek.console.visit import Screen, Visit

KEYS = (
    "partition",
    "producer_id",
    "producer_epoch",
    "last_sequence",
    "last_timestamp_ms",
    "transaction_start_offset",
)


async def show(visit: Visit) -> Response:
    """Rows with the keys of `odradek producers`, of all partitions or of one."""
    topic, query = visit.segment("topic"), visit.query
    partition, is_open = visit.text("partition"), visit.text("open") == "1"

    def listed(cluster: Cluster) -> tuple[Listing, list[Refused]]:
        number = parse_whole(partition, "Partition", 0, 2**31 - 1) if partition else None
        description = described(cluster, topic)
        leaders = leaders_of([description])
        if number is not None:
            if (topic, number) not in leaders:
                there = len(description.partitions)
                raise ClientError(f"topic {topic} has {there} partitions, counted from 0")
            leaders = {(topic, number): leaders[topic, number]}
        found, refused = describe_producers(cluster, leaders)
        rows = [row_of(one, None) for one in found if not is_open or one.transaction_start_offset is not None]
        listing = Listing(rows, f"/topics/{topic}/producers", query, KEYS)
        return _with_names(cluster, listing), refused

    return visit.page(
        "producers.html",
        topic=topic,
        producers=await visit.part(listed),
        partition=partition,
        is_open=is_open,
        aborted=visit.text("aborted"),
    )


def _with_names(cluster: Cluster, listing: Listing) -> Listing:
    """Adds the transactional ids to the rows of the page, where the user may see them."""
    ids = {row["producer_id"] for row in listing.rows}
    try:
        listed = list_transactions(cluster, producer_ids=ids) if ids else []
    except ClientError:
        return listing
    names = {one.producer_id: one.transactional_id for one in listed}
    listing.rows = [{**row, "transactional_id": names.get(row["producer_id"])} for row in listing.rows]
    return listing


SCREENS = [Screen("/topics/{topic}/producers", show)]
