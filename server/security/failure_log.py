"""What strangers do wrong, told without letting them fill the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

INTERVAL_MS = 60_000
ADDRESSES_MAX = 256
"""Of more addresses at once those are forgotten that were told longest ago."""


class FailureLog:
    """One line for an address, then a count once in `INTERVAL_MS`. A line has the address and the reason,
    both escaped, and nothing that a peer has sent besides."""

    def __init__(self, logger: logging.Logger, what: str, now_ms: Callable[[], int]) -> None:
        self.count = 0
        """All failures since the start."""
        self._logger = logger
        self._what = what
        self._now_ms = now_ms
        self._told: dict[str, tuple[int, int]] = {}
        """By address: when, and how many failures since that are not told."""

    def note(self, address: str, reason: str) -> None:
        self.count += 1
        now_ms = self._now_ms()
        told_ms, untold = self._told.get(address, (now_ms - INTERVAL_MS, 0))
        if now_ms - told_ms < INTERVAL_MS:
            self._told[address] = (told_ms, untold + 1)
            return
        self._told.pop(address, None)
        self._told[address] = (now_ms, 0)
        if len(self._told) > ADDRESSES_MAX:
            del self._told[next(iter(self._told))]
        more = f" ({untold} more from there since the last such line)" if untold else ""
        # An address has no characters to escape, unless it comes from elsewhere than a socket.
        shown = address if address.isprintable() else ascii(address)
        self._logger.warning(
            "%s from %s: %s%s", self._what, shown, reason if reason.isprintable() else ascii(reason), more
        )
