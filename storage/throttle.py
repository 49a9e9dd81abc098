"""Limits in bytes per second: `Throttle` (compaction) rests after work, `Allowance` (moves between
directories) limits the next step.
"""

from sys import float_info

INTERVAL_S = 0.3
"""The interval of checks of the rate, as in `LogCleaner.java`."""
REST_S_MAX = 20 * 86_400.0
"""The longest rest, for a rate of 0; timers of the system have a limit of 24 days."""
SAVED_MS_MAX = 2_000
"""The longest time of unused allowance that may be used later."""


class Throttle:
    """`log.cleaner.io.max.bytes.per.second`. As `Throttler.java`, with the time as an argument. Unlike there,
    an interval ends early when its bytes are used up, so that a fast disk does not exceed the rate for a
    moment. A rate below 0 is no limit.
    """

    def __init__(self, bytes_per_second: float, now_s: float) -> None:
        self._bytes_per_second = _limit(bytes_per_second)
        self._begun_s = now_s
        self._bytes = 0
        # The begin of the last rest, and the bytes for which it was.
        self._rested_s = now_s
        self._owed_bytes = 0.0

    def add(self, size_bytes: int, now_s: float) -> float:
        """Count bytes that were read or written; returns the seconds to rest before the next step."""
        self._bytes += size_bytes
        elapsed_s = now_s - self._begun_s
        if elapsed_s <= INTERVAL_S and self._bytes <= self._bytes_per_second * INTERVAL_S:
            return 0.0
        self._owed_bytes = max(self._bytes - elapsed_s * self._bytes_per_second, 0.0)
        self._bytes = 0
        return self._rest(now_s)

    def change(self, bytes_per_second: float, now_s: float) -> float:
        """Use another rate; returns the remaining seconds of a rest, at the new rate."""
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
    """`replica.alter.log.dirs.io.max.bytes.per.second`: the bytes that may be moved now.

    Kafka measures the bytes of the last seconds and waits while they are too many; here the allowance grows
    with the time.
    """

    def __init__(self) -> None:
        self._bytes_per_second = float_info.max
        self._left_bytes = float_info.max
        self._refilled_ms: int | None = None

    def change(self, bytes_per_second: float) -> None:
        """Use another rate from now on."""
        self._bytes_per_second = bytes_per_second
        self._left_bytes = min(self._left_bytes, bytes_per_second * SAVED_MS_MAX / 1000)

    def refill(self, now_ms: int) -> None:
        """Add the allowance for the time since the last call."""
        since_ms = 0 if self._refilled_ms is None else now_ms - self._refilled_ms
        self._refilled_ms = now_ms
        # A clock that was set back adds nothing, one that was set ahead at most this time.
        allowed_ms = min(max(since_ms, 0), SAVED_MS_MAX)
        full_bytes = self._bytes_per_second * SAVED_MS_MAX / 1000
        self._left_bytes = min(self._left_bytes + self._bytes_per_second * allowed_ms / 1000, full_bytes)

    def take(self, wanted_bytes: int) -> int:
        """Take up to `wanted_bytes` of the allowance; returns the bytes that may be moved now."""
        taken_bytes = int(min(wanted_bytes, self._left_bytes))
        self._left_bytes -= taken_bytes
        return taken_bytes


def _limit(bytes_per_second: float) -> float:
    return bytes_per_second if 0 <= bytes_per_second <= float_info.max else float_info.max
