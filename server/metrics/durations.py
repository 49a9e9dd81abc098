"""Durations of requests as the buckets of `Route.times` have them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def upper_s(place: int) -> float:
    """The end of a bucket of `Route.times`, in seconds."""
    return float(1024 << place) / 1e9


def quantile_ms(counts: Sequence[int], quantile: float) -> float:
    """The upper end of the bucket that has the quantile."""
    wanted = math.ceil(sum(counts) * quantile)
    reached = 0
    for place, number in enumerate(counts):
        reached += number
        if reached >= wanted:
            return round(upper_s(place) * 1000, 6)
    return 0.0
