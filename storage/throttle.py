"""Rates in bytes per second: of compaction, kept by resting, and of moves between directories, kept by taking
no more than is allowed.
"""

from sys import float_info

INTERVAL_S = 0.3
"""How often the rate is looked at, as in `LogCleaner.java`."""
REST_S_MAX = 20 * 86_400.0
"""At a rate of nothing a rest would have no end; longer than 24 days nothing in the system waits."""
SAVED_MS_MAX = 2_000
"""Of what was allowed and not taken, so much is made up for later."""


class Throttle:
    """`log.cleaner.io.max.bytes.per.second`. As `Throttler.java`, with the time as an argument; but what an
    interval has room for ends it, however soon, so that a fast disk is not busy with much more for a moment.

    A rate below 0 is no limit, as there.
    """

    def __init__(self, bytes_per_second: float, now_s: float) -> None:
        self._bytes_per_second = _limit(bytes_per_second)
        self._begun_s = now_s
        self._bytes = 0
        # When the last rest began, and how many bytes it was to make good.
        self._rested_s = now_s
        self._owed_bytes = 0.0

    def add(self, size_bytes: int, now_s: float) -> float:
        """So many bytes were read or written; returns the seconds to rest before the next."""
        self._bytes += size_bytes
        elapsed_s = now_s - self._begun_s
        if elapsed_s <= INTERVAL_S and self._bytes <= self._bytes_per_second * INTERVAL_S:
            return 0.0
        self._owed_bytes = max(self._bytes - elapsed_s * self._bytes_per_second, 0.0)
        self._bytes = 0
        return self._rest(now_s)

    def change(self, bytes_per_second: float, now_s: float) -> float:
        """Go by another rate from now on; returns the seconds to rest, if there was a rest: what is left of
        it.
        """
        rested_bytes = max(now_s - self._rested_s, 0.0) * self._bytes_per_second
        self._bytes_per_second = _limit(bytes_per_second)
        self._owed_bytes = max(self._owed_bytes - rested_bytes, 0.0)
        return self._rest(now_s) if self._owed_bytes else 0.0

    def _rest(self, now_s: float) -> float:
        self._rested_s = now_s
        rate = max(self._bytes_per_second, float_info.min)
        rest_s = min(self._owed_bytes / rate, REST_S_MAX)
        self._begun_s = now_s + rest_s
        return rest_s


class Allowance:
    """`replica.alter.log.dirs.io.max.bytes.per.second`: how many bytes may be moved just now.

    Kafka measures what was moved in the last seconds and waits while that is too much; here so much is given
    out as the time that has passed allows.
    """

    def __init__(self) -> None:
        self._bytes_per_second = float_info.max
        self._left_bytes = float_info.max
        self._refilled_ms: int | None = None

    @property
    def is_used_up(self) -> bool:
        return self._left_bytes < 1

    def change(self, bytes_per_second: float) -> None:
        """Go by another rate from now on."""
        self._bytes_per_second = bytes_per_second
        self._left_bytes = min(self._left_bytes, bytes_per_second * SAVED_MS_MAX / 1000)

    def refill(self, now_ms: int) -> None:
        """Allow what may be moved in the time since the last call."""
        since_ms = 0 if self._refilled_ms is None else now_ms - self._refilled_ms
        self._refilled_ms = now_ms
        # A clock that was set back allows nothing for a moment, one that was set ahead not more than this.
        allowed_ms = min(max(since_ms, 0), SAVED_MS_MAX)
        full_bytes = self._bytes_per_second * SAVED_MS_MAX / 1000
        self._left_bytes = min(self._left_bytes + self._bytes_per_second * allowed_ms / 1000, full_bytes)

    def take(self, wanted_bytes: int) -> int:
        """So many of the wanted bytes may be moved now."""
        taken_bytes = int(min(wanted_bytes, self._left_bytes))
        self._left_bytes -= taken_bytes
        return taken_bytes


def _limit(bytes_per_second: float) -> float:
    return bytes_per_second if 0 <= bytes_per_second <= float_info.max else float_info.max
