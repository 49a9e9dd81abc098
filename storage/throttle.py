"""A rate in bytes per second, kept by resting: `log.cleaner.io.max.bytes.per.second`."""

INTERVAL_S = 0.3
"""How often the rate is looked at, as in `LogCleaner.java`."""


class Throttle:
    """As `Throttler.java`, with the time as an argument; but what an interval has room for ends it, however
    soon, so that a fast disk is not busy with much more for a moment.
    """

    def __init__(self, bytes_per_second: float, now_s: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._begun_s = now_s
        self._bytes = 0

    def add(self, size_bytes: int, now_s: float) -> float:
        """So many bytes were read or written; returns the seconds to rest before the next."""
        self._bytes += size_bytes
        elapsed_s = now_s - self._begun_s
        wanted_s = self._bytes / self._bytes_per_second
        if elapsed_s <= INTERVAL_S and wanted_s <= INTERVAL_S:
            return 0.0
        rest_s = max(wanted_s - elapsed_s, 0.0)
        self._begun_s = now_s + rest_s
        self._bytes = 0
        return rest_s
