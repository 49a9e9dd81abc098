"""Metrics that clients have pushed about themselves (KIP-714), as `kafka_client_...`.

Names and labels are what clients say, so they are brought into the form of Prometheus: what it does not allow
in a name becomes `_`. The value is that of the last push, kept for two of the client's intervals; sums are
what was added since the push before. Not all of many series are told; which ones is not promised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from odradek.server.metrics.exposition import Sample, label_text
from odradek.server.metrics.families import CLIENT_FAMILY, CLIENT_PREFIX

if TYPE_CHECKING:
    from odradek.coordinator.client_metrics.clients import ClientMetrics, ClientValues
    from odradek.wire.otlp import MetricPoint

SERIES_MAX = 5_000
INTERVALS_KEPT = 2
STEP = 100
"""Points, or clients, that are looked at without a pause."""
NAMES_KEPT = 4_096
_KAFKA = "org.apache.kafka."
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_]+")
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9_]+")


def client_samples(
    metrics: ClientMetrics, now_ms: int, omitted: list[tuple[str, int]]
) -> Iterator[Sample | None]:
    """None among the samples is a place for a pause."""
    families: dict[str, dict[str, float | int]] = {}
    kept = left_out = looked = 0
    for client in metrics.pushed_within(INTERVALS_KEPT, now_ms):
        looked += 1
        if looked >= STEP:
            looked = 0
            yield None
        if client is None:
            continue
        for point in client.metrics:
            for name, value in _values(point):
                series = families.get(name, {})
                labels = _labels(client, point.labels) if kept < SERIES_MAX else ""
                if not labels:
                    left_out += 1
                elif labels not in series:
                    # Names of clients that become the same are told once: Prometheus refuses a page with two.
                    series[labels] = value
                    families[name] = series
                    kept += 1
            looked += 1
            if looked >= STEP:
                looked = 0
                yield None
    for name, series in sorted(families.items()):
        for labels, value in series.items():
            yield name, labels, value
    if left_out:
        omitted.append((CLIENT_FAMILY, left_out))


def _values(point: MetricPoint) -> Iterator[tuple[str, float | int]]:
    """Nothing where a client has no number to tell."""
    if not math.isfinite(point.value):
        return
    name = _name(point.name)
    if point.observations is None:
        yield name, point.value
    else:
        yield f"{name}_sum", point.value
        yield f"{name}_count", point.observations


@lru_cache(NAMES_KEPT)
def _name(name: str) -> str:
    return CLIENT_PREFIX + _NOT_IN_NAMES.sub("_", name.removeprefix(_KAFKA).lower()).strip("_")


@lru_cache(NAMES_KEPT)
def _label_name(name: str) -> str:
    """Nothing for one without a letter."""
    name = _NOT_IN_LABELS.sub("_", name).strip("_")
    return f"_{name}" if name[:1].isdigit() else name


def _labels(client: ClientValues, own: Mapping[str, str]) -> str:
    """Labels of a client's metric; the client cannot change those that the broker knows."""
    labels = {"client_id": client.client_id or "", "client_instance_id": client.client_instance_id}
    for name, value in own.items():
        known = _label_name(name)
        if known:
            labels.setdefault(known, value)
    return label_text(**labels)
