"""Rates of the last hour, a value each ten seconds: a bounded ring for each of a bounded number of series."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping

STEP_S = 10
POINTS = 360
"""An hour."""
SERIES_MAX = 200
"""All together 0.6 MB."""
_UNKNOWN = math.nan


class History:
    """Series by their names. A series that is not noted in a step has no value there."""

    def __init__(self, points: int = POINTS, series_max: int = SERIES_MAX) -> None:
        self._points, self._series_max = points, series_max
        self._series: dict[str, array[float]] = {}
        self._place = 0
        self.noted = 0
        """Steps so far."""
        self.last_ms = 0
        """Time of the newest step."""

    def __len__(self) -> int:
        return len(self._series)

    @property
    def names(self) -> Iterable[str]:
        """Names of the series."""
        return self._series.keys()

    def note(self, now_ms: int, values: Mapping[str, float]) -> None:
        """Adds a step. Where there is no room for a new series, one whose values are all 0 or unknown makes
        room; else the new one is left out."""
        self._place = (self._place + 1) % self._points
        self.noted, self.last_ms = self.noted + 1, now_ms
        for kept in self._series.values():
            kept[self._place] = _UNKNOWN
        for name, value in values.items():
            series = self._series.get(name)
            if series is None:
                if not value or not self._makes_room(values):
                    continue
                series = self._series[name] = array("d", [_UNKNOWN]) * self._points
            series[self._place] = value

    def _makes_room(self, values: Mapping[str, float]) -> bool:
        if len(self._series) < self._series_max:
            return True
        quiet = next(
            (
                name
                for name, series in self._series.items()
                if not values.get(name) and not any(one == one and one for one in series)
            ),
            None,
        )
        if quiet is None:
            return False
        del self._series[quiet]
        return True

    def values(self, name: str, count: int | None = None) -> list[float | None]:
        """The newest `count` values, the oldest of them first; None where there is none."""
        known = min(self.noted, self._points)
        count = known if count is None else min(count, known)
        series = self._series.get(name)
        if series is None:
            return [None] * count
        first = self._place - count + 1
        found = [series[(first + at) % self._points] for at in range(count)]
        return [None if math.isnan(one) else one for one in found]
