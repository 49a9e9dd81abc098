"""The clock of a broker in a test: `broker.clock`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any


class BrokerClock:
    """The time that a broker sees, which may be moved forwards and stopped; that of the system otherwise.

        broker.clock.advance(hours=1)
        broker.clock.to(datetime(2030, 1, 1, tzinfo=UTC))

    Time-outs that the options of the broker, of topics and of groups say, and the times of records, are by
    this clock. What a client waits for a response, and how long its socket is silent, are by the system's.
    """

    def __init__(self, call: Callable[[str, dict[str, Any]], Any]) -> None:
        self._call = call

    def advance(
        self,
        by: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Lets so much time pass, as `timedelta` has it. Everything that is due in it has been done, in its
        order, when this returns. A frozen clock moves as well, and stays frozen."""
        named = {
            "days": days,
            "hours": hours,
            "minutes": minutes,
            "seconds": seconds,
            "milliseconds": milliseconds,
        }
        if by is not None:
            named["milliseconds"] += by / timedelta(milliseconds=1)
        self._call("clock.advance", {name: value for name, value in named.items() if value != 0})

    def to(self, when: datetime | float) -> None:
        """Lets time pass as `advance`, until a datetime (local time, if it has no time zone), or milliseconds
        since 1970. TestKitError: that time has passed."""
        when_ms = round(when.timestamp() * 1000) if isinstance(when, datetime) else when
        self._call("clock.to", {"when": when_ms})

    def freeze(self) -> None:
        """Stops time until `unfreeze`, apart from `advance` and `to`."""
        self._call("clock.freeze", {})

    def unfreeze(self) -> None:
        """Lets time go on from where it is."""
        self._call("clock.unfreeze", {})

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        now_ms: int = self._call("clock.now", {})
        return now_ms
