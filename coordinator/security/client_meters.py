"""The meters of all clients, and what each of them has to wait for.

A quota has meters only while it is set for anybody, and for a client only if the client has a value. Clients
whose use is measured together share one (`client_quotas.Whose`). A meter without events for an hour is
dropped. Clients choose their ids, so beyond `METERS_MAX` those are dropped that have had no event for
longest: a client that makes up ids takes no meter from one that is at work.

Connections keep the `ClientMeters` of their client as long as `generation` stays.

Source: `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Generic, TypeVar

from odradek.coordinator.cluster.view import Quotas
from odradek.coordinator.security.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaLevels,
    Whose,
)
from odradek.coordinator.security.quota_meters import (
    DEFAULT_SAMPLES,
    DEFAULT_WINDOW_MS,
    RateMeter,
    TokenBucket,
    Waits,
)
from odradek.wire.errors import ErrorCode, KafkaError

IDLE_MS_MAX = 3_600_000
METERS_MAX = 20_000
"""Meters of one quota; when there are more a tenth of them goes."""
CLIENT_ID_KEPT_CHARACTERS = 128
"""Longest client id that is kept whole; of a longer one the hash is kept."""
REMEMBERED_MAX = 1_000
"""Clients whose meters are found without a search; with more all are forgotten."""
NS_PER_PERCENT = 10_000_000
"""Processor time in a second that is one percent of a core."""


@dataclass(frozen=True, slots=True)
class Windows:
    """`quota.window.num` and `.size.seconds`, or those of `controller.quota`."""

    samples: int = DEFAULT_SAMPLES
    window_ms: int = DEFAULT_WINDOW_MS


class ClientMeters:
    """Meters of one client; None where no quota is for it."""

    __slots__ = ("fetch", "mutation", "produce", "request")

    def __init__(
        self,
        produce: RateMeter | None,
        fetch: RateMeter | None,
        request: RateMeter | None,
        mutation: TokenBucket | None,
    ) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request
        """In percent of a core."""
        self.mutation = mutation

    def charge_request(self, took_ns: int, now_ms: int) -> int:
        """A request took so much processor time; returns for how many milliseconds the client has to wait."""
        request = self.request
        return 0 if request is None else request.charge(took_ns / NS_PER_PERCENT, now_ms)

    def record_request(self, took_ns: int, now_ms: int) -> None:
        """Processor time after `charge_request`; the next request has to wait for it."""
        if self.request is not None:
            self.request.record(took_ns / NS_PER_PERCENT, now_ms)


class FetchCharge:
    """Charge of one fetch: processor time in pieces, then the response."""

    __slots__ = ("_meters", "_now_ms", "_took_ns")

    def __init__(self, meters: ClientMeters, now_ms: Callable[[], int]) -> None:
        self._meters = meters
        self._now_ms = now_ms
        self._took_ns = 0

    @property
    def bytes_max(self) -> float:
        """Beyond it every response would have to wait."""
        fetch = self._meters.fetch
        return float("inf") if fetch is None else fetch.value_max

    def add(self, took_ns: int) -> None:
        """Processor time."""
        self._took_ns += took_ns

    def throttle_ms(self, size_bytes: int) -> int:
        """For how many milliseconds the client has to wait; then the response has to be empty, and nothing of
        it counts."""
        meters, now_ms = self._meters, self._now_ms()
        wait_ms = meters.charge_request(self._took_ns, now_ms)
        fetch = meters.fetch
        if fetch is not None:
            wait_ms = max(fetch.charge(size_bytes, now_ms), wait_ms)
            if wait_ms:
                fetch.record(-size_bytes, now_ms)
        return wait_ms

    def take_back(self, size_bytes: int) -> None:
        """The response was shorter by so much."""
        if self._meters.fetch is not None:
            self._meters.fetch.record(-size_bytes, self._now_ms())


class MutationCharge:
    """Charge of a request that makes or deletes partitions.

    With `is_strict` a topic is refused while the bucket is overdrawn, else all are done, and the client has
    to wait afterwards.
    """

    __slots__ = ("_bucket", "_is_strict", "_now_ms", "_wait_ms", "_waits_since_ms")

    def __init__(self, bucket: TokenBucket, *, is_strict: bool, now_ms: Callable[[], int]) -> None:
        self._bucket = bucket
        self._is_strict = is_strict
        self._now_ms = now_ms
        self._wait_ms = 0
        self._waits_since_ms = 0

    def __call__(self, partitions: int) -> None:
        """Raises THROTTLING_QUOTA_EXCEEDED if the topic with these partitions has to be left as it is."""
        now_ms, bucket = self._now_ms(), self._bucket
        if self._is_strict and bucket.tokens(now_ms) < 0:
            self._wait(bucket.throttle_ms(now_ms), now_ms)
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        bucket.record(partitions, now_ms)
        if not self._is_strict:
            self._wait(bucket.throttle_ms(now_ms), now_ms)

    def _wait(self, wait_ms: int, now_ms: int) -> None:
        self._wait_ms, self._waits_since_ms = wait_ms, now_ms

    def throttle_ms(self) -> int:
        """For how many milliseconds the client has to wait from now on; to be asked once."""
        wait_ms = max(self._wait_ms - (self._now_ms() - self._waits_since_ms), 0)
        if self._bucket.waits is not None:
            self._bucket.waits.ms += wait_ms
        return wait_ms


M = TypeVar("M", RateMeter, TokenBucket)


class _MetersOf(Generic[M]):
    """The meters of one quota."""

    def __init__(self, name: str, new_meter: Callable[[float], M]) -> None:
        self.name = name
        self.levels = QuotaLevels({}, name)
        self._new_meter: Callable[[float], M] = new_meter
        self._meters: dict[Whose, M] = {}
        self.waits = Waits()

    def follow(self, quotas: Quotas) -> None:
        self.levels = QuotaLevels(quotas, self.name)
        for whose, meter in list(self._meters.items()):
            value = None if _is_shortened(whose) else self.levels.value_of(whose)
            if value is None:
                del self._meters[whose]
            else:
                meter.bound = value

    def meter(self, user: str, client_id: str) -> M | None:
        found = self.levels.find(user, client_id)
        if found is None:
            return None
        whose, value = _shortened(found[0]), found[1]
        meter = self._meters.get(whose)
        if meter is None:
            meter = self._meters[whose] = self._new_meter(value)
            meter.waits = self.waits
        return meter

    def drop_idle(self, now_ms: int) -> bool:
        """Whether any was."""
        return self._drop(
            [whose for whose, one in self._meters.items() if now_ms - one.last_ms >= IDLE_MS_MAX]
        )

    def drop_too_many(self) -> bool:
        """Whether there were."""
        if len(self._meters) <= METERS_MAX:
            return False
        meters = self._meters
        return self._drop(nsmallest(METERS_MAX // 10, meters, key=lambda whose: meters[whose].last_ms))

    def _drop(self, dropped: list[Whose]) -> bool:
        for whose in dropped:
            del self._meters[whose]
        return bool(dropped)

    def __len__(self) -> int:
        return len(self._meters)


def _shortened(whose: Whose) -> Whose:
    user, client_id = whose
    if len(client_id) <= CLIENT_ID_KEPT_CHARACTERS:
        return whose
    return user, f"{client_id[:CLIENT_ID_KEPT_CHARACTERS]} {hash(client_id)}"


def _is_shortened(whose: Whose) -> bool:
    return len(whose[1]) > CLIENT_ID_KEPT_CHARACTERS


class QuotaMeters:
    """See the module. `now_ms` is a clock that never goes back."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        windows: Windows = Windows(),
        controller_windows: Windows = Windows(),
    ) -> None:
        self.now_ms = now_ms
        self.is_active = False
        """Whether any user or client has a quota."""
        self.generation = 0
        """Grows when clients may have other meters than before."""
        self._quotas: Quotas = {}
        self._of: dict[tuple[str, str | None], ClientMeters] = {}
        """Meters of clients that have asked lately, as long as `generation` is `_of_generation`."""
        self._of_generation = 0

        def rate(bound: float) -> RateMeter:
            return RateMeter(bound, samples=windows.samples, window_ms=windows.window_ms)

        def request_rate(bound: float) -> RateMeter:
            window_ms = windows.window_ms
            return RateMeter(bound, samples=windows.samples, window_ms=window_ms, wait_ms_max=window_ms)

        def bucket(bound: float) -> TokenBucket:
            samples, window_ms = controller_windows.samples, controller_windows.window_ms
            return TokenBucket(bound, samples=samples, window_ms=window_ms)

        self._produce = _MetersOf(PRODUCER_BYTE_RATE, rate)
        self._fetch = _MetersOf(CONSUMER_BYTE_RATE, rate)
        self._request = _MetersOf(REQUEST_PERCENTAGE, request_rate)
        self._mutation = _MetersOf(CONTROLLER_MUTATION_RATE, bucket)
        self._all: tuple[_MetersOf[Any], ...] = (self._produce, self._fetch, self._request, self._mutation)

    def follow(self, quotas: Quotas) -> bool:
        """Takes the quotas as they are now; returns whether any is another."""
        if quotas is self._quotas:
            return False
        self._quotas = quotas
        for meters in self._all:
            meters.follow(quotas)
        self.is_active = any(meters.levels for meters in self._all)
        self.generation += 1
        return True

    def of(self, principal: str, client_id: str | None) -> ClientMeters:
        """The meters of a client; `principal` has the form TYPE:NAME."""
        if self._of_generation == self.generation:
            found = self._of.get((principal, client_id))
            if found is not None:
                return found
        return self._look_up(principal, client_id)

    def _look_up(self, principal: str, client_id: str | None) -> ClientMeters:
        found = self._found(principal, client_id)
        if client_id is not None and len(client_id) > CLIENT_ID_KEPT_CHARACTERS:
            return found
        if self._of_generation != self.generation or len(self._of) >= REMEMBERED_MAX:
            self._of.clear()
            self._of_generation = self.generation
        self._of[principal, client_id] = found
        return found

    def _found(self, principal: str, client_id: str | None) -> ClientMeters:
        user = principal.partition(":")[2]
        client_id = client_id or ""
        for meters in self._all:
            self.generation += meters.drop_too_many()
        return ClientMeters(
            self._produce.meter(user, client_id),
            self._fetch.meter(user, client_id),
            self._request.meter(user, client_id),
            self._mutation.meter(user, client_id),
        )

    def fetch_charge(self, principal: str, client_id: str | None) -> FetchCharge | None:
        """None if no quota is for the fetches of this client."""
        meters = self.of(principal, client_id)
        if meters.fetch is None and meters.request is None:
            return None
        return FetchCharge(meters, self.now_ms)

    def mutation_charge(
        self, principal: str, client_id: str | None, *, is_strict: bool
    ) -> MutationCharge | None:
        """None if no quota is for the partitions that this client makes and deletes."""
        if not self._mutation.levels:
            return None
        bucket = self.of(principal, client_id).mutation
        return None if bucket is None else MutationCharge(bucket, is_strict=is_strict, now_ms=self.now_ms)

    def drop_idle(self) -> None:
        """Forgets the meters of clients that have gone; call it now and then."""
        now_ms = self.now_ms()
        for meters in self._all:
            self.generation += meters.drop_idle(now_ms)

    def waits_ms(self) -> dict[str, int]:
        """Waits of clients since the start, by kind of quota, as Kafka calls them."""
        return {
            "produce": self._produce.waits.ms,
            "fetch": self._fetch.waits.ms,
            "request": self._request.waits.ms,
            "controller": self._mutation.waits.ms,
        }

    def __len__(self) -> int:
        """All meters that there are."""
        return sum(len(meters) for meters in self._all)
