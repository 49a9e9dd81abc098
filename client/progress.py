"""The progress of a job: one line that is overwritten on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from typing import TextIO

TERMINAL_FIRST_S = 1.0
"""Time until a terminal shows progress, so that a shorter job shows none."""
TERMINAL_INTERVAL_S = 0.2
PLAIN_INTERVAL_S = 10.0
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


class Progress:
    """Writes the progress of `job` to `out`; nothing if `out` is None.

    Rates are means since the start. `clock` gives seconds that only grow.
    """

    def __init__(self, job: str, out: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._job = job
        self._out = out
        self._clock = clock
        self._is_terminal = out is not None and out.isatty()
        self._began = clock()
        # A job that is done at once leaves no plain line.
        self._next = self._began + (TERMINAL_FIRST_S if self._is_terminal else PLAIN_INTERVAL_S)
        self._is_shown = False

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def is_due(self) -> bool:
        """Whether an update would be shown, for callers whose figures are expensive."""
        return self._out is not None and self._clock() >= self._next

    def update(
        self,
        rows: int | None,
        size_bytes: int | None = None,
        *,
        lag: int | None = None,
        share: float | None = None,
        doing: str = "",
    ) -> None:
        """`rows` and `size_bytes` are done; `lag` is how many rows are left, or `share` what part is done.

        None means unknown.
        """
        now = self._clock()
        if self._out is None or not self.is_due():
            return
        self._next = now + (TERMINAL_INTERVAL_S if self._is_terminal else PLAIN_INTERVAL_S)
        line = self._line(rows, size_bytes, lag, share, doing, max(now - self._began, 1e-9))
        self._out.write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")
        self._out.flush()
        self._is_shown = True

    def clear(self) -> None:
        """Removes the line from a terminal; the report comes next."""
        if self._out is not None and self._is_terminal and self._is_shown:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _line(
        self,
        rows: int | None,
        size_bytes: int | None,
        lag: int | None,
        share: float | None,
        doing: str,
        seconds: float,
    ) -> str:
        parts = []
        if rows is not None:
            parts += [f"{rows:,} rows", f"{rows / seconds:,.0f}/s"]
        if size_bytes is not None:
            parts.append(f"{size_bytes / seconds / 1e6:.1f} MB/s")
        if lag is not None:
            parts.append(f"lag {lag:,}")
        if share is not None:
            parts.append(f"{100 * share:.0f} %")
        left = self._seconds_left(rows, lag, share, seconds)
        if left is not None:
            parts.append(f"{duration(left)} left")
        return " ".join(filter(None, (f"{self._job}:", doing, ", ".join(parts) or "begins")))

    @staticmethod
    def _seconds_left(rows: int | None, lag: int | None, share: float | None, seconds: float) -> float | None:
        if lag is not None and rows:
            return lag * seconds / rows
        if share:
            return seconds * (1 - share) / share
        return None


def duration(seconds: float) -> str:
    """Two units at most: `3 h 20 min`, `45 s`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    for place, (unit, size) in enumerate(_UNITS):
        if seconds >= size:
            smaller, smaller_size = _UNITS[place + 1] if place + 1 < len(_UNITS) else ("s", 1)
            rest = int(seconds % size // smaller_size)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(seconds)
