"""The broker's own node, `/brokers/ids/N`: there as long as its session lives.

After a kill the node of the old session stays until that session ends, so a start waits for it; a node that
another broker keeps alive refuses the start. After a lost session, or a response that was lost, the node that
is there may be ours, of this session or the one before (KAFKA-7165): its owner says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from odradek.config.config_error import ConfigError
from odradek.coordinator.zookeeper import nodes
from odradek.server.zookeeper.session import Session

logger = logging.getLogger("odradek.zookeeper")

MARGIN_S = 2.0
"""ZooKeeper ends sessions in steps of its tick, two seconds by default."""


class Registration:
    """`content` makes the node's content. `watch` is called when the node changes."""

    def __init__(
        self,
        session: Session,
        node_id: int,
        content: Callable[[], bytes],
        watch: Callable[[Any], object],
    ) -> None:
        self._session = session
        self._node_id = node_id
        self._path = nodes.broker_path(node_id)
        self._content = content
        self._watch = watch
        self._owners: set[int] = set()
        """Sessions of this process."""

    def begin(self) -> None:
        """At a start. Raises ConfigError for an id that is taken."""
        deadline = time.monotonic() + self._session.timeout_s + MARGIN_S
        is_told = False
        while not self.renew():
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"broker.id: {self._node_id} is taken by another broker, as {self._path} of the "
                    f"ZooKeeper at {self._session.address} says: give this one another number."
                )
            if not is_told:
                logger.info(
                    "waiting at most %g s until ZooKeeper gives up a broker %d that did not say goodbye",
                    self._session.timeout_s + MARGIN_S,
                    self._node_id,
                )
                is_told = True
            gone = threading.Event()
            if self._session.client.exists(self._path, lambda event, gone=gone: gone.set()) is not None:
                gone.wait(max(deadline - time.monotonic(), 0.0) + 0.1)

    def renew(self) -> bool:
        """Makes the node if it is not there; False if it belongs to somebody else."""
        from kazoo.exceptions import NodeExistsError, NoNodeError

        client = self._session.client
        self._owners.add(self._session.id)
        while True:
            try:
                acl = self._session.access(self._path)
                client.create(self._path, self._content(), acl=acl, ephemeral=True)
            except NodeExistsError:
                found = client.exists(self._path)
                if found is None:
                    continue
                if found.ephemeralOwner not in self._owners:
                    return False
                if found.ephemeralOwner != self._session.id:
                    try:
                        client.delete(self._path)
                    except NoNodeError:
                        pass
                    continue
            client.exists(self._path, self._watch)
            return True
