"""The list of topics."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from odradek.client.admin import topics as admin
from odradek.client.admin.lag import offset_bounds
from odradek.client.admin.topics import TopicDescription
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.topics import add_sizes, led, record_rates, topic_rows
from odradek.console.listing import Listing
from odradek.console.visit import Screen, Visit

KEYS = ("topic", "partitions", "replicas", "records", "records_per_second", "size_bytes")
_FROM_BROKERS = ("records", "records_per_second", "size_bytes")
"""Keys that take further requests: of the topics of one page, unless all are sorted by one of them."""
SORTED_PARTITIONS_MAX = 20_000


async def show(visit: Visit) -> Response:
    """Names, sizes and rates."""
    query, has_internal = visit.query, visit.text("internal") == "1"
    filter_text = visit.text("filter")

    def listed(cluster: Cluster) -> Listing:
        chosen = [
            topic
            for topic in visit.all_topics(cluster)
            if (has_internal or not topic.is_internal) and filter_text.lower() in topic.name.lower()
        ]
        rows = [{**row, **dict.fromkeys(_FROM_BROKERS)} for row in topic_rows(chosen)]
        if query.get("sort") in _FROM_BROKERS:
            count = sum(len(topic.partitions) for topic in chosen)
            if count > SORTED_PARTITIONS_MAX:
                raise ClientError(
                    f"to sort by what brokers have to be asked takes too long for {count:,} partitions: "
                    f"filter until there are {SORTED_PARTITIONS_MAX:,}, or sort by another column"
                )
            _fill(cluster, rows, chosen)
            return Listing(rows, "/topics", query, KEYS)
        listing = Listing(rows, "/topics", query, KEYS)
        names = {row["topic"] for row in listing.rows}
        by_name = {row["topic"]: row for row in rows}
        shown = [topic for topic in chosen if topic.name in names]
        _fill(cluster, [by_name[topic.name] for topic in shown], shown)
        return listing

    return visit.page(
        "topics.html", topics=await visit.part(listed), filter=filter_text, has_internal=has_internal
    )


def _fill(cluster: Cluster, rows: Sequence[dict[str, Any]], topics: Sequence[TopicDescription]) -> None:
    bounds = offset_bounds(cluster, led(topics))
    rates = record_rates(cluster, bounds)
    sizes = admin.log_sizes(
        cluster, [(topic.name, one.partition) for topic in topics for one in topic.partitions]
    )
    add_sizes(rows, topics, bounds, sizes)
    for row, topic in zip(rows, topics, strict=True):
        row["records_per_second"] = _rate(topic, rates)


def _rate(topic: TopicDescription, rates: Mapping[tuple[str, int], float]) -> float | None:
    known = [
        rates[topic.name, one.partition] for one in topic.partitions if (topic.name, one.partition) in rates
    ]
    return sum(known) if known else None


SCREENS = [Screen("/topics", show)]
