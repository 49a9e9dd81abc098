"""The listeners for clients of Kafka 0.7 of one broker."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from odradek.config.listeners import KAFKA_06, KAFKA_07
from odradek.server.background.work import WorkQueues
from odradek.server.kafka07.handlers import Handlers
from odradek.server.kafka07.position_store import PositionStore
from odradek.server.kafka07.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Collection

    from odradek.apis.leadership import Leadership
    from odradek.config.live import LiveConfig
    from odradek.coordinator.cluster.publishing import Publisher
    from odradek.coordinator.cluster.view import ClusterChange, ClusterView
    from odradek.server.network.connection import Connection
    from odradek.server.network.connections import Connections
    from odradek.server.node import Node
    from odradek.storage.config import LogConfig
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.kafka07")

WORKS_AT_ONCE = 4
"""Reads of logs and of message sets; each may have a thread."""


class Kafka07:
    """A `listeners.Speaker`: makes connections speak 0.7."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, connection: Connection) -> None:
        """A new connection, before it has its transport."""
        Reader(connection, self._handlers, self._tasks)

    def view_changed(self, view: ClusterView, change: ClusterChange) -> None:
        """Forgets the positions of topics that are deleted."""
        if change.deleted:
            self.forget_deleted(view)

    def forget_deleted(self, view: ClusterView) -> None:
        """Forgets all but the topics that there are."""
        topic_ids = {topic.topic_id for topic in view.topics.values()}
        positions = self._handlers.positions
        for key in [key for key in positions if key[0] not in topic_ids]:
            del positions[key]
        self._handlers.queue.run(self._forgetting(topic_ids), lambda _: None, _forgetting_failed)

    def _forgetting(self, topic_ids: Collection[bytes]) -> Work[None]:
        yield lambda: self._handlers.store.forget_others(topic_ids)

    def close(self) -> None:
        """Ends the requests that are under way."""
        for task in tuple(self._tasks):
            task.cancel()


def _forgetting_failed(error: Exception) -> None:
    logger.error("positions of deleted topics could not be removed: %s", error)


def open_listeners(
    node: Node,
    live: LiveConfig[LogConfig],
    publisher: Publisher,
    connections: Connections,
    leadership: Leadership,
    ending: AsyncExitStack,
) -> dict[str, Kafka07]:
    """By protocol. `ending` gets what undoes it. Raises ConfigError with one sentence for people."""
    store = PositionStore(node.config.data_directories[0])
    ending.callback(store.close)
    queue = WorkQueues(asyncio.get_running_loop(), WORKS_AT_ONCE)
    ending.callback(queue.close)
    speakers = {}
    for protocol, magic in ((KAFKA_07, 1), (KAFKA_06, 0)):
        handlers = Handlers(
            connections=connections,
            leadership=leadership,
            store=store,
            queue=queue,
            now_ms=node.now_ms,
            partition_count=lambda: live.values["num.partitions"],
            creates_topics=node.config.values["auto.create.topics.enable"],
            response_bytes_max=node.config.values["fetch.max.bytes"],
            choose=random.randrange,
            magic=magic,
            positions={},
        )
        speaker = speakers[protocol] = Kafka07(handlers)
        ending.callback(speaker.close)
        publisher.subscribe(speaker.view_changed)
    speaker.forget_deleted(publisher.view)
    return speakers
