"""What comes out of a measurement: figures, comparisons with Kafka, how a cost grows. Plain values."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """One row of a comparison: the same measurement of both brokers, so many times each."""

    case: str
    unit: str
    lower: bool
    """Whether less is better."""
    at_least: float | None
    """Odradek divided by Kafka; where less is better the most that it may be."""
    kafka: list[float]
    odradek: list[float]
    is_kafka_warm: bool = True
    """False: its rate still rose when its measurements began, so that it can do more than was measured."""

    @property
    def ratio(self) -> float:
        ours, theirs = statistics.median(self.odradek), statistics.median(self.kafka)
        if theirs:
            return ours / theirs
        # What a tool tells in whole milliseconds, or tenths of a second, may be none of them.
        return float("inf") if ours else 1.0

    @property
    def met(self) -> bool | None:
        if self.at_least is None:
            return None
        return self.ratio <= self.at_least if self.lower else self.ratio >= self.at_least


@dataclass
class Figure:
    """One measured number of ours. `limit` is the most that it may be, `at_least` the least."""

    what: str
    value: float
    unit: str
    limit: float | None = None
    spread: tuple[float, float] | None = None
    """The lowest and the highest of the measurements that `value` is the median of."""
    at_least: float | None = None

    @classmethod
    def median(
        cls,
        what: str,
        values: Sequence[float],
        unit: str,
        limit: float | None = None,
        at_least: float | None = None,
    ) -> Figure:
        spread = (min(values), max(values)) if len(values) > 1 else None
        return cls(what, statistics.median(values), unit, limit, spread, at_least)

    @property
    def met(self) -> bool | None:
        if self.limit is None and self.at_least is None:
            return None
        return (self.limit is None or self.value <= self.limit) and (
            self.at_least is None or self.value >= self.at_least
        )


@dataclass
class Point:
    """A cost at one size. Series of the same unit share a diagram."""

    series: str
    size: float
    value: float
    unit: str


@dataclass
class Growth:
    """How costs grow with something: one plot."""

    name: str
    """Of the file: `results-NAME.svg`."""
    title: str
    axis: str
    """What the sizes are."""
    points: list[Point] = field(default_factory=list)

    def add(self, series: str, size: float, values: Sequence[float], unit: str) -> None:
        """The median of these."""
        self.points.append(Point(series, size, statistics.median(values), unit))


@dataclass
class Section:
    """What one part of the run found out."""

    title: str
    notes: list[str] = field(default_factory=list)
    """How it was measured, a paragraph each."""
    outcomes: list[Outcome] = field(default_factory=list)
    plot: str = ""
    """Name of the plot of the ratios, where there is one."""
    figures: list[Figure] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    measured: str = ""
    """When, and at which commit."""

    def missed(self) -> list[str]:
        """The names of what does not meet its target."""
        return [outcome.case for outcome in self.outcomes if outcome.met is False] + [
            figure.what for figure in self.figures if figure.met is False
        ]
