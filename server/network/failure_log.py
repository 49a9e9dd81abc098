"""Failures of clients in the log: the first of an address at once, then one line a minute with their
number."""

from __future__ import annotations

from dataclasses import dataclass

INTERVAL_MS = 60_000
ADDRESSES_MAX = 1_000
OTHERS = "other addresses"


@dataclass(slots=True)
class _Failures:
    since_ms: int
    count: int = 0
    """Failures that no line has told yet."""
    last_reason: str = ""


class FailureLog:
    """Counts by address, for a bounded number of addresses; the rest count together."""

    def __init__(self) -> None:
        self._by_address: dict[str, _Failures] = {}

    def note(self, address: str, reason: str, now_ms: int) -> str | None:
        """A failure; the line to log now, if there is one. `reason` has no secret, and names are escaped."""
        known = self._by_address.get(address)
        if known is None and len(self._by_address) >= ADDRESSES_MAX:
            address = OTHERS
            known = self._by_address.get(address)
        if known is None:
            self._by_address[address] = _Failures(now_ms)
            return f"{address}: {reason}"
        known.count += 1
        known.last_reason = reason
        return None

    def due(self, now_ms: int) -> list[str]:
        """The lines that are due: one a minute for each address with new failures."""
        lines = []
        for address, known in list(self._by_address.items()):
            if now_ms - known.since_ms < INTERVAL_MS:
                continue
            if not known.count:
                del self._by_address[address]
                continue
            lines.append(
                f"{address}: {known.count} more in the last minute, the last one: {known.last_reason}"
            )
            known.since_ms, known.count = now_ms, 0
        return lines

    def __len__(self) -> int:
        """Addresses that are remembered; 0: `due` need not be called."""
        return len(self._by_address)
