"""All topics of a large cluster, kept for some seconds: to read them takes long, and each click would.

found = kept.read(access, cluster)

One list is kept, that of the person who asked last: 100,000 partitions take 50 MB.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.client.admin.topics import TopicDescription, describe_topics
from odradek.client.cluster import Cluster
from odradek.console.access import Access

LARGE_PARTITIONS: Final = 10_000
"""Fewer are read each time."""
KEPT_S: Final = 10.0


class _Kept(NamedTuple):
    access: Access
    until_s: float
    topics: list[TopicDescription]


class KeptTopics:
    """The list; for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: _Kept | None = None

    def read(self, access: Access, cluster: Cluster) -> list[TopicDescription]:
        """All topics that a person may see, sorted by name. ClientError."""
        kept = self._kept
        if kept is not None and kept.access is access and self._clock() < kept.until_s:
            return kept.topics
        found, _ = describe_topics(cluster)
        is_large = sum(len(topic.partitions) for topic in found) >= LARGE_PARTITIONS
        self._kept = _Kept(access, self._clock() + KEPT_S, found) if is_large else None
        return found

    def forget(self) -> None:
        """The next page reads them anew: somebody has changed something."""
        self._kept = None
