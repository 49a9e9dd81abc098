"""Meters of quotas: how much was used in the newest windows, and for how long a client has to wait now.

`RateMeter` has Kafka's figures: `samples` windows, and the one that overlaps the oldest of them. A window is
as long as `window_ms`, or longer if nothing came after it, and counts until its last event is `samples`
windows old. The rate is the sum by the age of the oldest window, to which missing whole windows are added up
to `samples` - 1. The wait is as long as the rate needs to sink to the bound when nothing more comes.

`TokenBucket` has the figures of controller_mutation_rate: it is full at first, may be overdrawn, and the wait
is as long as it takes to be level again.

Times are milliseconds of a clock that never goes back.

Source: `Rate`, `SampledStat`, `TokenBucket`, `QuotaUtils`, `ControllerMutationQuotaManager` of Kafka; KIP-13,
KIP-599.
"""

from __future__ import annotations

from collections import deque
from math import floor, inf

DEFAULT_SAMPLES = 11
DEFAULT_WINDOW_MS = 1_000
NEVER_MS = -(2**62)
WAIT_MS_MAX = 2**31 - 1
"""The longest that a response can name."""


class Waits:
    """Waits of the clients of one quota, together."""

    __slots__ = ("ms",)

    def __init__(self) -> None:
        self.ms = 0


class RateMeter:
    """See the module. `bound` is per second, and may be changed at any time."""

    __slots__ = (
        "_allowed",
        "_begin_ms",
        "_bound",
        "_expiry_ms",
        "_older",
        "_older_sum",
        "_value",
        "_wait_ms_max",
        "_window_ms",
        "last_ms",
        "waits",
    )

    def __init__(
        self,
        bound: float,
        *,
        samples: int = DEFAULT_SAMPLES,
        window_ms: int = DEFAULT_WINDOW_MS,
        wait_ms_max: int = WAIT_MS_MAX,
    ) -> None:
        self._window_ms = window_ms
        self._expiry_ms = samples * window_ms
        self._wait_ms_max = wait_ms_max
        # Begin, last event and value of the windows before the present one. They expire in this order.
        self._older: deque[tuple[int, int, float]] = deque()
        self._older_sum: float = 0
        self._begin_ms = NEVER_MS
        self._value: float = 0
        self.last_ms = NEVER_MS
        """Time of the last event."""
        self.waits: Waits | None = None
        """Where `charge` counts its waits; None: nowhere."""
        self.bound = bound

    @property
    def bound(self) -> float:
        return self._bound

    @bound.setter
    def bound(self, bound: float) -> None:
        self._bound = bound
        self._allowed = self.value_max  # up to here no age of the oldest window makes the rate too large

    @property
    def value_max(self) -> float:
        """Largest value that a meter without events records at once without a wait."""
        return self._bound * (self._expiry_ms - self._window_ms) / 1000

    def record(self, value: float, now_ms: int) -> None:
        if now_ms - self._begin_ms >= self._window_ms:
            self._advance(now_ms)
        self._value += value
        self.last_ms = now_ms

    def charge(self, value: float, now_ms: int) -> int:
        """`record`, then `throttle_ms`."""
        if now_ms - self._begin_ms >= self._window_ms:
            self._advance(now_ms)
        self._value = value = self._value + value
        self.last_ms = now_ms
        if self._older_sum + value <= self._allowed:
            return 0
        wait_ms = self.throttle_ms(now_ms)
        if self.waits is not None:
            self.waits.ms += wait_ms
        return wait_ms

    @property
    def credit(self) -> float:
        """How much more may be recorded now without a wait, at least."""
        return self._allowed - self._older_sum - self._value

    def throttle_ms(self, now_ms: int) -> int:
        """For how many milliseconds the client has to wait from now on; 0 within the bound."""
        rate = self.per_second(now_ms)
        if not rate > self._bound:
            return 0
        if self._bound <= 0:
            return self._wait_ms_max
        wait_ms = (rate - self._bound) / self._bound * self._span_ms(now_ms)
        return self._wait_ms_max if wait_ms >= self._wait_ms_max else floor(wait_ms + 0.5)

    def per_second(self, now_ms: int) -> float:
        """The rate."""
        self._expire(now_ms)
        return (self._older_sum + self._value) * 1000 / self._span_ms(now_ms)

    def _span_ms(self, now_ms: int) -> int:
        begin_ms = self._older[0][0] if self._older else self._begin_ms
        age_ms = 0 if begin_ms == NEVER_MS else now_ms - begin_ms
        missing = self._expiry_ms // self._window_ms - 1 - age_ms // self._window_ms
        if missing > 0:
            age_ms += missing * self._window_ms
        return max(age_ms, 1)

    def _advance(self, now_ms: int) -> None:
        if self._begin_ms != NEVER_MS:
            self._older.append((self._begin_ms, self.last_ms, self._value))
        self._begin_ms = now_ms
        self._value = 0
        self._expire_older(now_ms)
        # Anew, so that fractions leave no remainder behind.
        self._older_sum = sum([value for _, _, value in self._older])

    def _expire(self, now_ms: int) -> None:
        self._expire_older(now_ms)
        if self._begin_ms != NEVER_MS and now_ms - self.last_ms >= self._expiry_ms:
            self._begin_ms = self.last_ms = now_ms
            self._value = 0

    def _expire_older(self, now_ms: int) -> None:
        older = self._older
        while older and now_ms - older[0][1] >= self._expiry_ms:
            self._older_sum -= older.popleft()[2]


class TokenBucket:
    """See the module. `bound` is per second, and may be changed at any time."""

    __slots__ = ("_seconds", "_tokens", "bound", "last_ms", "waits")

    def __init__(
        self, bound: float, *, samples: int = DEFAULT_SAMPLES, window_ms: int = DEFAULT_WINDOW_MS
    ) -> None:
        self.bound = bound
        self._seconds = samples * window_ms / 1000
        self._tokens = inf
        self.last_ms = NEVER_MS
        self.waits: Waits | None = None
        """For whoever tells a client to wait."""

    def record(self, value: float, now_ms: int) -> None:
        """Takes so many tokens, also if there are too few."""
        tokens = self.tokens(now_ms) - value
        self._tokens = min(self.bound * self._seconds, tokens)

    def tokens(self, now_ms: int) -> float:
        """Tokens in the bucket; less than 0 if it is overdrawn."""
        full = self.bound * self._seconds
        if self.last_ms == NEVER_MS:
            self._tokens = full
        else:
            elapsed_ms = max(now_ms - self.last_ms, 0)
            self._tokens = min(full, self._tokens + self.bound * elapsed_ms / 1000)
        self.last_ms = now_ms
        return self._tokens

    def throttle_ms(self, now_ms: int) -> int:
        """For how many milliseconds the client has to wait from now on; 0 unless the bucket is overdrawn."""
        tokens = self.tokens(now_ms)
        if tokens >= 0:
            return 0
        wait_ms = -tokens / self.bound * 1000
        return WAIT_MS_MAX if wait_ms >= WAIT_MS_MAX else floor(wait_ms + 0.5)
