"""A pytest plugin that mends one race inside kafka-python 3.0.12, which decides tests of its suite by chance.

A subscription that is made while a Metadata request for other topics is on its way is forgotten: the answer
clears the mark that asks for another one, and the consumer waits until metadata.max.age, five minutes. It
happens against any broker. A consumer with an `api_version` that subscribed 2.5 to 10 ms after its
constructor lost so against Apache Kafka 4.3.1, at 0 to 1.5 ms here, where answers come sooner; one without
lost about 100 ms after its constructor, when its second request is out. Here the mark survives when the
topics changed meanwhile.
"""

from __future__ import annotations

from typing import Any

from kafka.cluster import ClusterMetadata

_compose, _update = ClusterMetadata.metadata_request, ClusterMetadata.update_metadata


def _remembering(self: ClusterMetadata) -> Any:
    self.asked_topics = set(self._topics)
    return _compose(self)


def _keeping(self: ClusterMetadata, metadata: Any) -> Any:
    updated = _update(self, metadata)
    if self._topics != getattr(self, "asked_topics", self._topics):
        self.request_update()
    return updated


ClusterMetadata.metadata_request, ClusterMetadata.update_metadata = _remembering, _keeping
