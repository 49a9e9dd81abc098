"""The stream of PySpark 4.2 and later: Spark passes the start of a batch, and whether limits apply.

So limits work with every trigger: AvailableNow reads its backlog in limited batches, up to the ends at its
beginning, and Once reads all of it in one batch. Imported only where PySpark has these
interfaces.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from odradek.spark.offsets import from_checkpoint, to_checkpoint
from odradek.spark.options import Offsets, ReadOptions
from odradek.spark.stream_source import CheckpointOffsets, StreamReader


class AdmittingStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """`StreamReader` with Spark's admission control."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._target: Offsets | None = None
        """Where an AvailableNow query ends."""
        self._latest: Offsets | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that Spark passes to `latestOffset`. One has room for one number only: what is beside it
        is in the options."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._first_ends()

    def latestOffset(  # type: ignore[override]  # Spark has changed it
        self, start: CheckpointOffsets, limit: ReadLimit
    ) -> dict[str, Any]:
        place = from_checkpoint(start)
        self._has_given = True
        self._latest = self._ends(place)
        if isinstance(limit, ReadAllAvailable):
            return to_checkpoint(self._latest)
        options = _with(self._options, limit)
        if self._target is not None:
            # The end is fixed: to wait for more would take forever.
            return to_checkpoint(self._limited(place, self._latest, options))
        return to_checkpoint(self._next_end(place, self._latest, options))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The last known ends, for the lag in Spark's progress reports."""
        return None if self._latest is None else to_checkpoint(self._latest)

    def _ends(self, place: Offsets) -> Offsets:
        if self._target is not None:
            return self._target
        if self._latest is None and place == self._initial and self._first is not None:
            return self._first
        return self._view.latest(place)


def _with(options: ReadOptions, limit: ReadLimit) -> ReadOptions:
    """The options with the limit of this batch in place of their own."""
    if isinstance(limit, ReadMaxRows):
        return replace(options, max_offsets_per_trigger=limit.max_rows, max_bytes_per_trigger=None)
    if isinstance(limit, ReadMaxBytes):
        return replace(options, max_bytes_per_trigger=limit.max_bytes, max_offsets_per_trigger=None)
    if isinstance(limit, ReadMinRows):
        return replace(options, min_offsets_per_trigger=limit.min_rows)
    return options
