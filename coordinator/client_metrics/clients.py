"""The clients that push metrics, what each is asked for, and the values that it has sent last.

A client asks which metrics are wanted (`subscribe`), then pushes them at the interval that it was told
(`begin_push`, `end_push`). A client is forgotten when it has not been heard of for three intervals, and at
least a minute; the one that was heard of longest ago goes when there are too many.

Source: ClientMetricsManager and ClientMetricsInstance of Kafka 4.3, whose order of refusals this is; KIP-714.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.coordinator.client_metrics.subscriptions import (
    ALL_METRICS,
    DEFAULT_INTERVAL_MS,
    TEXT_CHARACTERS_MAX,
    Client,
    Subscription,
    subscription_of,
)
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.otlp import MetricPoint, MetricsPush
from odradek.wire.schema import ZERO_UUID, uuid_to_text

CLIENTS_MAX = 16_384
KEPT_BYTES_MAX = 16 << 20
"""Bound of the last values of all clients, estimated."""
POINT_BYTES, LABEL_BYTES = 400, 150
"""Estimates of what a point and a label take in memory, without their texts."""
FORGOTTEN_AFTER_MS = 60_000
FORGOTTEN_AFTER_INTERVALS = 3
RESERVED_IDS = (ZERO_UUID, bytes(15) + b"\1")
_COMPRESSIONS = frozenset(Compression)
_ASKS_AGAIN_AFTER = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Refusals after which a client may ask at once which metrics are wanted."""


class Sender(NamedTuple):
    """The client and the connection of a request."""

    client_id: str | None
    software_name: str
    software_version: str
    host: str
    port: int


class Wanted(NamedTuple):
    """Metrics that a client is asked for."""

    instance_id: bytes
    subscription_id: int
    metrics: tuple[str, ...]
    """Prefixes of names; `*` means all metrics, nothing means none."""
    interval_ms: int


class ClientValues(NamedTuple):
    """The last push of a client."""

    client_instance_id: str
    """Made by this broker, or by another one of the cluster."""
    client_id: str | None
    software_name: str
    software_version: str
    host: str
    labels: Mapping[str, str]
    """Labels that the client gives itself, such as `group_id`."""
    metrics: tuple[MetricPoint, ...]
    pushed_ms: int
    """When it came, by the clock of this broker."""
    has_ended: bool
    """Whether the client has said that it was its last push."""
    interval_ms: int
    """How often it is to push."""


_NOTHING = MetricsPush({}, (), 0, 0)


@dataclass(slots=True)
class _Instance:
    """One client."""

    instance_id: bytes
    client: Client
    peer: tuple[str, int]
    """Address of its connection."""
    version: int
    """Version of the subscriptions that it was matched with."""
    wanted: Wanted
    last_subscribe_ms: int = 0
    last_push_ms: int = 0
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    heard_ms: int = 0
    pushed: MetricsPush = _NOTHING
    pushed_ms: int = 0
    """0: it has not pushed, or its values had to go."""
    pushed_bytes: int = 0

    def begin_anew(self) -> None:
        """Forgets all of the client but its values."""
        self.last_subscribe_ms = self.last_push_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    def may_subscribe(self, now_ms: int) -> bool:
        if now_ms - max(self.last_subscribe_ms, self.last_push_ms) < self.wanted.interval_ms:
            return False
        self.last_subscribe_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Once at any time after it has asked: its first push is due after half an interval, or later."""
        asked = self.last_subscribe_ms > self.last_push_ms
        if not asked and now_ms - self.last_push_ms < self.wanted.interval_ms:
            return False
        self.last_push_ms = now_ms
        return True

    @property
    def forgotten_ms(self) -> int:
        return self.heard_ms + max(FORGOTTEN_AFTER_MS, FORGOTTEN_AFTER_INTERVALS * self.wanted.interval_ms)


class ClientMetrics:
    """See the module. A pure machine: time is an argument."""

    def __init__(
        self, new_instance_id: Callable[[], bytes], tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """`tell` takes a sentence for operators."""
        self._new_instance_id = new_instance_id
        self._tell = tell
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self._clients: OrderedDict[bytes, _Instance] = OrderedDict()
        """The one that was heard of longest ago first."""
        self.kept_bytes = 0
        """Size of the last values of all clients, estimated."""

    def __len__(self) -> int:
        """Clients that are not forgotten."""
        return len(self._clients)

    def follow(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Take the subscriptions as they are now, by name. Cheap when they are the same as before."""
        if configs is self._configs or configs == self._configs:
            self._configs = configs
            return
        self._configs = configs
        self._version += 1
        self._subscriptions = {}
        for name, own in sorted(configs.items()):
            try:
                self._subscriptions[name] = subscription_of(own)
            except KafkaError as error:
                self._tell(f"the subscription {name!r} to client metrics is not honoured: {error.message}")

    def subscribe(self, instance_id: bytes, sender: Sender, now_ms: int) -> Wanted:
        """GetTelemetrySubscriptions. An id of zeros makes a new client. Refuses with
        THROTTLING_QUOTA_EXCEEDED a client that asks too soon."""
        if instance_id == ZERO_UUID:
            instance_id = self._new_instance_id()
        instance = self._heard_of(instance_id, sender, now_ms)
        if not instance.may_subscribe(now_ms) and instance.last_error not in _ASKS_AGAIN_AFTER:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance.wanted

    def begin_push(
        self,
        instance_id: bytes,
        sender: Sender,
        now_ms: int,
        *,
        subscription_id: int,
        compression: int,
        size_bytes: int,
        bytes_max: int,
        is_last: bool,
    ) -> None:
        """PushTelemetry, before the metrics are looked at. Refuses with KafkaError."""
        if instance_id in RESERVED_IDS:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        instance = self._heard_of(instance_id, sender, now_ms)
        error = _refusal(instance, now_ms, subscription_id, compression, size_bytes, bytes_max, is_last)
        # A refused push may end it, too, and a refused one after the end undoes that. As in Kafka.
        instance.is_terminating = is_last
        instance.last_error = error
        if error is not ErrorCode.NONE:
            raise KafkaError(error)

    def end_push(self, instance_id: bytes, pushed: MetricsPush, now_ms: int) -> None:
        """Keep the values of a push that `begin_push` has let in."""
        instance = self._clients.get(instance_id)
        if instance is None:
            return
        labels = sum(len(point.labels) for point in pushed.points) + len(pushed.labels)
        self.kept_bytes -= instance.pushed_bytes
        instance.pushed, instance.pushed_ms = pushed, now_ms
        instance.pushed_bytes = pushed.text_bytes + POINT_BYTES * len(pushed.points) + LABEL_BYTES * labels
        self.kept_bytes += instance.pushed_bytes
        for other in self._clients.values():
            if self.kept_bytes <= KEPT_BYTES_MAX:
                break
            if other is not instance:
                self.kept_bytes -= other.pushed_bytes
                other.pushed, other.pushed_ms, other.pushed_bytes = _NOTHING, 0, 0

    def fail_push(self, instance_id: bytes) -> None:
        """The metrics of a push that was let in cannot be read."""
        if instance := self._clients.get(instance_id):
            instance.last_error = ErrorCode.INVALID_RECORD

    def values(self, now_ms: int) -> tuple[ClientValues, ...]:
        """Values of every client that is not forgotten and whose values are kept; the last push comes last.
        Safe to be called in another thread."""
        found = [one for one in tuple(self._clients.values()) if one.pushed_ms and now_ms < one.forgotten_ms]
        return tuple(_values(one) for one in sorted(found, key=lambda one: one.pushed_ms))

    def pushed_within(self, intervals: int, now_ms: int) -> Iterator[ClientValues | None]:
        """One item for each client, in no order: its values, or None if they are older than so many of its
        intervals. Clients may come and go meanwhile."""
        for one in tuple(self._clients.values()):
            is_recent = one.pushed_ms and now_ms - one.pushed_ms < intervals * one.wanted.interval_ms
            yield _values(one) if is_recent else None

    # Inside

    def _heard_of(self, instance_id: bytes, sender: Sender, now_ms: int) -> _Instance:
        self._forget_old(now_ms)
        peer = (sender.host, sender.port)
        instance = self._clients.get(instance_id)
        if instance is None:
            client = _client(instance_id, sender)
            wanted = self._wanted(instance_id, client)
            instance = _Instance(instance_id, client, peer, self._version, wanted)
            self._clients[instance_id] = instance
            if len(self._clients) > CLIENTS_MAX:
                self._forget(next(iter(self._clients)))
        elif instance.version != self._version or instance.peer != peer:
            # Kafka forgets a client with its connection. Here its values stay for a while.
            instance.peer, instance.version = peer, self._version
            instance.wanted = self._wanted(instance_id, instance.client)
            instance.begin_anew()
        self._clients.move_to_end(instance_id)
        instance.heard_ms = now_ms
        return instance

    def _wanted(self, instance_id: bytes, client: Client) -> Wanted:
        metrics: dict[str, None] = {}
        interval_ms = DEFAULT_INTERVAL_MS
        for subscription in self._subscriptions.values():
            if subscription.has(client):
                metrics |= dict.fromkeys(subscription.metrics)
                interval_ms = min(interval_ms, subscription.interval_ms)
        names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(metrics)
        checksum = zlib.crc32(f"{sorted(names)}{interval_ms}".encode() + instance_id)
        return Wanted(instance_id, checksum - (checksum >> 31 << 32), names, interval_ms)

    def _forget_old(self, now_ms: int) -> None:
        """Forgets the oldest: one with a longer interval keeps those behind it, which are bounded."""
        while self._clients:
            oldest = next(iter(self._clients.values()))
            if now_ms < oldest.forgotten_ms:
                return
            self._forget(oldest.instance_id)

    def _forget(self, instance_id: bytes) -> None:
        self.kept_bytes -= self._clients.pop(instance_id).pushed_bytes


def _refusal(
    instance: _Instance,
    now_ms: int,
    subscription_id: int,
    compression: int,
    size_bytes: int,
    bytes_max: int,
    is_last: bool,
) -> ErrorCode:
    if instance.is_terminating:
        return ErrorCode.INVALID_REQUEST
    if not instance.may_push(now_ms) and not is_last:
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED
    if subscription_id != instance.wanted.subscription_id:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if compression not in _COMPRESSIONS:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if size_bytes > bytes_max:
        return ErrorCode.TELEMETRY_TOO_LARGE
    return ErrorCode.NONE


def _client(instance_id: bytes, sender: Sender) -> Client:
    return Client(
        uuid_to_text(instance_id),
        None if sender.client_id is None else sender.client_id[:TEXT_CHARACTERS_MAX],
        sender.software_name[:TEXT_CHARACTERS_MAX],
        sender.software_version[:TEXT_CHARACTERS_MAX],
        sender.host,
        str(sender.port),
    )


def _values(instance: _Instance) -> ClientValues:
    client, pushed = instance.client, instance.pushed
    return ClientValues(
        client.client_instance_id,
        client.client_id,
        client.client_software_name,
        client.client_software_version,
        client.client_source_address,
        pushed.labels,
        pushed.points,
        instance.pushed_ms,
        instance.is_terminating,
        instance.wanted.interval_ms,
    )
