"""Share groups (KIP-932): what this node gives out as leader, and how far groups are behind in the partitions
that it leads and whose states it keeps.

The lag counts records that are not done with, as Kafka's tools count it: from the start offset to the end,
without those behind the start that were acknowledged or archived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from odradek.coordinator.shares.state.persister import UNINITIALIZED_OFFSET
from odradek.server.metrics.exposition import Sample, label_text
from odradek.wire.messages.share_fetch import ShareFetchRequest

if TYPE_CHECKING:
    from odradek.apis.share_fetch import ShareFetch, ShareParts
    from odradek.server.metrics.observed import Observed
    from odradek.storage.log.partition import Partition

STEP = 250
"""Share partitions that are looked at without a pause."""
ACKNOWLEDGE_TYPES = ("Accept", "Release", "Reject", "Renew")
_LAG = "odradek_sharegroup_lag"
_DEAD_LETTERS = "kafka_server_sharegroupmetrics_deadletterqueue"
_LOST = "odradek_sharegroup_deadletters_lost_total"
_IN_FLIGHT = "kafka_server_sharepartitionmetrics_inflightmessagecount"
_EXPIRED = "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total"


def share_samples(
    server: Observed,
    find: Callable[[str, int], Partition | None],
    series_max: int,
    omitted: list[tuple[str, int]],
) -> Iterator[Sample | None]:
    """None among the samples is a place for a pause. `find` gives a partition that is led here."""
    parts = _parts(server)
    counted = (0,) * 5 if parts is None else parts.shares.acknowledged
    for number, name in enumerate(ACKNOWLEDGE_TYPES, 1):
        labels = label_text(acktype=name)
        yield "kafka_server_sharegroupmetrics_recordacknowledgements_total", labels, counted[number]
    yield from _dead_letters(server, series_max, omitted)
    sessions = 0 if parts is None else len(parts.sessions)
    yield "kafka_server_sharesessioncache_sharesessionscount", "", sessions
    partitions = 0 if parts is None else parts.sessions.partition_count()
    yield "kafka_server_sharesessioncache_sharepartitionscount", "", partitions
    series: list[Sample] = []
    yield from _lags(server, find, series)
    yield from _bounded(_LAG, series, series_max, omitted)
    shares = [] if parts is None else list(parts.shares.loaded())
    for name in (_IN_FLIGHT, _EXPIRED):
        series = []
        for number, share in enumerate(shares):
            labels = label_text(group=share.key.group_id, topic=share.name, partition=share.key.partition)
            assert share.partition is not None
            value = share.partition.in_flight if name is _IN_FLIGHT else share.expired_count
            series.append((name, labels, value))
            if number % STEP == STEP - 1:
                yield None
        yield from _bounded(name, series, series_max, omitted)


def _parts(server: Observed) -> ShareParts | None:
    """None as long as nobody has fetched for a share group: it is made at the first request."""
    served = server.connections.dispatcher.routes.made(ShareFetchRequest.api_key)
    if served is None:
        return None
    handler: ShareFetch = served.handle
    return handler.parts


def _dead_letters(
    server: Observed, series_max: int, omitted: list[tuple[str, int]]
) -> Iterator[Sample | None]:
    queues = server.coordinators.dead_letters
    machine = queues().machine if queues.is_made else None
    yield "odradek_sharegroup_deadletters_waiting", "", 0 if machine is None else machine.waiting_count
    if machine is None:
        return
    counted = {
        "recordcount": machine.written,
        "totalproducerequests": machine.produced,
        "failedproducerequests": machine.failed,
    }
    for name, by_group in counted.items():
        series: list[Sample] = [
            (f"{_DEAD_LETTERS}{name}_total", label_text(group=group), count)
            for group, count in sorted(by_group.items())
        ]
        yield from _bounded(f"{_DEAD_LETTERS}{name}_total", series, series_max, omitted)
        yield None
    series = [
        (_LOST, label_text(group=group, reason=reason.label), count)
        for (group, reason), count in sorted(
            machine.lost.items(), key=lambda one: (one[0][0], one[0][1].label)
        )
    ]
    yield from _bounded(_LOST, series, series_max, omitted)


def _lags(
    server: Observed, find: Callable[[str, int], Partition | None], series: list[Sample]
) -> Iterator[None]:
    """Only pauses; fills `series`."""
    coordinator, view = server.coordinators.shares, server.cluster_view
    machines = list(coordinator().partitions.values()) if coordinator.is_made else []
    looked = 0
    for running in machines:
        if running.machine is None:
            continue
        for key, kept in list(running.machine.states.items()):
            looked += 1
            if looked % STEP == 0:
                yield None
            name = view.topic_names.get(key.topic_id)
            partition = None if name is None else find(name, key.partition)
            state = kept.state
            if partition is None or state.start_offset == UNINITIALIZED_OFFSET:
                continue
            # NO_DELIVERY_COUNT: the leader is of a release that does not tell it.
            behind = partition.high_watermark - state.start_offset - max(state.delivery_complete_count, 0)
            labels = label_text(group=key.group_id, topic=name, partition=key.partition)
            series.append((_LAG, labels, max(behind, 0)))
    series.sort(key=lambda sample: sample[1])


def _bounded(
    name: str, series: list[Sample], series_max: int, omitted: list[tuple[str, int]]
) -> Iterator[Sample]:
    if len(series) > series_max:
        omitted.append((name, len(series)))
    else:
        yield from series
