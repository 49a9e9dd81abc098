"""Metrics of replication on a node of a cluster: changes of ISRs, and how far its followers' logs are behind.

A node alone has all of it, with nothing to tell: boards that ask for it show 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.server.metrics.exposition import Sample, label_text

if TYPE_CHECKING:
    from odradek.server.cluster.replication import Replication

STEP = 250
"""Partitions that are looked at without a pause."""
_LAG = "kafka_server_fetcherlagmetrics_consumerlag"


def replication_samples(
    replication: Replication | None, series_max: int, omitted: list[tuple[str, int]]
) -> Iterator[Sample | None]:
    """None among the samples is a place for a pause."""
    manager = "kafka_server_replicamanager_"
    changes = None if replication is None else replication.leading.isr_changes
    for name, value in (
        ("isrshrinks_total", 0 if changes is None else changes.shrinks),
        ("isrexpands_total", 0 if changes is None else changes.expands),
        ("failedisrupdates_total", 0 if changes is None else changes.failures),
    ):
        yield f"{manager}{name}", "", value
    largest, series = 0, list[Sample]()
    fetchers = {} if replication is None else dict(replication.following.fetchers.fetchers)
    looked = 0
    for (leader_id, number), fetcher in sorted(fetchers.items()):
        client_id = f"ReplicaFetcherThread-{number}-{leader_id}"
        for (topic, index), one in list(fetcher.partitions.items()):
            largest = max(largest, one.lag or 0)
            if topic not in INTERNAL_TOPICS and one.lag is not None:
                labels = label_text(clientid=client_id, topic=topic, partition=index)
                series.append((_LAG, labels, one.lag))
            looked += 1
            if looked % STEP == 0:
                yield None
    yield "kafka_server_replicafetchermanager_maxlag", label_text(clientid="Replica"), largest
    if len(series) > series_max:
        omitted.append((_LAG, len(series)))
    else:
        yield from series
