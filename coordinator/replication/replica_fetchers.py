"""All fetchers of a node: `num.replica.fetchers` for each leader, and which of them has a partition.

Source: `AbstractFetcherManager` of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from odradek.coordinator.replication.replica_fetcher import (
    Fetched,
    FetcherEffect,
    FetcherSettings,
    Phase,
    ReplicaFetcher,
)
from odradek.coordinator.replication.replication_quota import ReplicationQuota
from odradek.coordinator.replication.values import ReplicaKey, ReplicaLog

FetcherKey = tuple[int, int]
"""Leader's id, and the number of its fetcher."""


class ReplicaFetchers:
    """`fetchers_per_leader` is read when a partition is followed; call `resize` when it has changed. `quota`
    is for all fetchers together; without one nothing is throttled.
    """

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        settings: FetcherSettings,
        fetchers_per_leader: Callable[[], int] = lambda: 1,
        fetcher_class: type[ReplicaFetcher] = ReplicaFetcher,
        quota: ReplicationQuota | None = None,
    ) -> None:
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.settings = settings
        self.fetchers_per_leader = fetchers_per_leader
        self.fetcher_class = fetcher_class
        self.quota = quota or ReplicationQuota()
        self.fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        self._places: dict[ReplicaKey, FetcherKey] = {}

    def follow(
        self, key: ReplicaKey, topic_id: bytes, leader_id: int, leader_epoch: int, log: ReplicaLog
    ) -> list[FetcherEffect]:
        """Fetch it from that leader, and from nobody else. Its log is not being changed just now."""
        topic, index = key
        place = leader_id, (crc32(topic.encode()) + index) % self.fetchers_per_leader()
        if self._places.get(key, place) != place:
            self.stop(key)
        fetcher = self.fetchers.get(place)
        if fetcher is None:
            fetcher = self.fetcher_class(
                self.node_id, leader_id, self.broker_epoch, self.settings, self.quota
            )
            self.fetchers[place] = fetcher
        self._places[key] = place
        return fetcher.follow(key, topic_id, leader_epoch, log)

    def resize(self) -> list[FetcherEffect]:
        """Each partition goes to the fetcher that has it now. One that is busy or waits for a view stays
        where it is until its next leader epoch.
        """
        effects: list[FetcherEffect] = []
        for key, (leader_id, _) in list(self._places.items()):
            one = self.followed(key)
            if one is not None and one.phase is Phase.FETCHING and not one.is_busy:
                effects += self.follow(key, one.topic_id, leader_id, one.leader_epoch, one.log)
        return effects

    def stop(self, key: ReplicaKey) -> None:
        place = self._places.pop(key, None)
        if place is not None:
            self.fetchers[place].stop(key)

    def done(self, key: ReplicaKey, error: Exception | None, now_ms: int) -> list[FetcherEffect]:
        """See `ReplicaFetcher.done`; no effect for a partition that is followed no more."""
        place = self._places.get(key)
        return [] if place is None else self.fetchers[place].done(key, error, now_ms)

    def log_changed(self, key: ReplicaKey) -> None:
        """See `ReplicaFetcher.log_changed`."""
        place = self._places.get(key)
        if place is not None:
            self.fetchers[place].log_changed(key)

    def followed(self, key: ReplicaKey) -> Fetched | None:
        place = self._places.get(key)
        return None if place is None else self.fetchers[place].partitions.get(key)

    def take_idle(self) -> list[FetcherKey]:
        """Fetchers without a partition are dropped: their connections may be closed."""
        idle = [place for place, fetcher in self.fetchers.items() if fetcher.is_idle]
        for place in idle:
            del self.fetchers[place]
        return idle
