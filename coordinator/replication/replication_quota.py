"""The throttle of replication: which replicas it is for, and the rate at which they are replicated.

One quota is for what followers read here, one for what this node's followers read from others. The rate is
Kafka's: the bytes of the newest windows by the time since the oldest of these began, which counts as one
window at least. So a replica that begins to move may get a whole measured time's allowance at once, and the
rate is kept on average. Bytes are recorded after the fact, also over the limit.

Bytes of all throttled replicas are counted. Only those out of sync are held back, or the ISR would change all
the time.

Source: `ReplicationQuotaManager`, `SimpleRate` and `SampledStat` of Kafka; KIP-73.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass

from odradek.coordinator.replication.values import ReplicaKey

UNLIMITED = 2**63 - 1
"""Bytes in a second: the default of the options, and no limit."""
DEFAULT_WINDOW_COUNT = 11
DEFAULT_WINDOW_MS = 1_000
ALL_REPLICAS = "*"


@dataclass(slots=True)
class _Window:
    begin_ms: int
    last_ms: int
    size_bytes: int = 0

    def reset(self, now_ms: int) -> None:
        self.begin_ms = self.last_ms = now_ms
        self.size_bytes = 0


class WindowedRate:
    """Bytes in a second over `window_count` windows, and the one that overlaps the oldest of them. A window
    is as long as `window_ms`, and longer where nothing was recorded after it.
    """

    def __init__(self, window_count: int = DEFAULT_WINDOW_COUNT, window_ms: int = DEFAULT_WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._forgotten_after_ms = window_count * window_ms
        self._windows: deque[_Window] = deque(maxlen=window_count + 1)

    def record(self, size_bytes: int, now_ms: int) -> None:
        window = self._newest(now_ms)
        if now_ms - window.begin_ms >= self._window_ms:
            window = _Window(now_ms, now_ms)
            self._windows.append(window)
        window.size_bytes += size_bytes
        window.last_ms = now_ms

    def bytes_per_second(self, now_ms: int) -> float:
        self._newest(now_ms)
        for window in self._windows:
            if now_ms - window.last_ms >= self._forgotten_after_ms:
                window.reset(now_ms)
        elapsed_ms = now_ms - min(window.begin_ms for window in self._windows)
        size_bytes = sum(window.size_bytes for window in self._windows)
        return size_bytes * 1000 / max(elapsed_ms, self._window_ms)

    def _newest(self, now_ms: int) -> _Window:
        if not self._windows:
            self._windows.append(_Window(now_ms, now_ms))
        return self._windows[-1]


class _AllPartitions:
    def __contains__(self, index: object) -> bool:
        return True


def throttled_partitions(replicas: str, node_id: int) -> Container[int]:
    """The partitions of a topic whose replica on this node is throttled, by the topic's setting: `*`, or
    `PARTITION:BROKER,...`. Empty items count for nothing, as in Kafka.
    """
    items = [item.strip() for item in replicas.split(",")]
    if ALL_REPLICAS in items:
        return _AllPartitions()
    pairs = (item.partition(":") for item in items)
    return {int(index) for index, _, broker in pairs if index.isdecimal() and broker == str(node_id)}


class ReplicationQuota:
    """See the module. `bytes_per_second_max` may be changed at any time."""

    def __init__(self, window_count: int = DEFAULT_WINDOW_COUNT, window_ms: int = DEFAULT_WINDOW_MS) -> None:
        self.bytes_per_second_max = UNLIMITED
        self._rate = WindowedRate(window_count, window_ms)
        self.throttled: dict[str, Container[int]] = {}
        """By topic; to be changed by `throttle` and `forget`."""

    def throttle(self, topic: str, partitions: Container[int]) -> None:
        """From now on these partitions of the topic, and no others."""
        if partitions:
            self.throttled[topic] = partitions
        else:
            self.forget(topic)

    def forget(self, topic: str) -> None:
        """No partition of it is throttled."""
        self.throttled.pop(topic, None)

    @property
    def has_throttled(self) -> bool:
        """Whether there is any."""
        return bool(self.throttled)

    def is_throttled(self, key: ReplicaKey) -> bool:
        topic, index = key
        return index in self.throttled.get(topic, ())

    def record(self, key: ReplicaKey, size_bytes: int, now_ms: int) -> None:
        """Counts replicated bytes of that partition, if it is throttled."""
        if size_bytes and self.is_throttled(key):
            self._rate.record(size_bytes, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        if self.bytes_per_second_max >= UNLIMITED:
            return False
        return self._rate.bytes_per_second(now_ms) > self.bytes_per_second_max
