"""The partitions of a topic: leaders, replicas, offsets, sizes."""

from typing import Any

from starlette.responses import Response

from odradek.client.admin import topics as admin
from odradek.client.admin.lag import offset_bounds
from odradek.client.admin.topics import TopicDescription
from odradek.client.cluster import Cluster
from odradek.commands.topics import led, record_rates
from odradek.console.listing import Listing
from odradek.console.visit import Screen, Visit

KEYS = ("partition", "leader", "start_offset", "end_offset", "records", "records_per_second", "size_bytes")


async def show(visit: Visit) -> Response:
    """Rows with the keys of `odradek topics describe`."""
    topic, query = visit.segment("topic"), visit.query

    def listed(cluster: Cluster) -> Listing:
        description = described(cluster, topic)
        rows = _rows(cluster, description)
        return Listing(rows, f"/topics/{topic}/partitions", query, KEYS)

    return visit.page("partitions.html", topic=topic, partitions=await visit.part(listed))


def described(cluster: Cluster, topic: str) -> TopicDescription:
    """The topic; ClientError if it is not there."""
    found, refused = admin.describe_topics(cluster, [topic])
    for one in refused:
        raise one.error
    (description,) = found
    return description


def _rows(cluster: Cluster, topic: TopicDescription) -> list[dict[str, Any]]:
    bounds = offset_bounds(cluster, led([topic]))
    rates = record_rates(cluster, bounds)
    sizes = admin.log_sizes(cluster, [(topic.name, one.partition) for one in topic.partitions])
    rows = []
    for one in topic.partitions:
        key = topic.name, one.partition
        start, end = bounds.get(key, (None, None))
        rows.append(
            {
                "partition": one.partition,
                "leader": one.leader if one.leader >= 0 else None,
                "leader_epoch": one.leader_epoch,
                "replicas": one.replicas,
                "in_sync": one.in_sync,
                "start_offset": start,
                "end_offset": end,
                "records": None if start is None or end is None else end - start,
                "records_per_second": rates.get(key),
                "size_bytes": sizes.get(key),
            }
        )
    return rows


SCREENS = [Screen("/topics/{topic}/partitions", show)]
