"""A listener of Kafka 0.7 in ZooKeeper: its clients find broker and topics in a directory below ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from odradek.coordinator.zookeeper import oldest

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.server.zookeeper.session import Session


class OldestListener(NamedTuple):
    folder: str
    """The directory, such as `/kafka07`."""
    host: str
    port: int


class OldestNodes:
    """Nodes of one listener. Used in the thread of `upkeep.py`, since its calls block."""

    def __init__(
        self, session: Session, listener: OldestListener, node_id: int, now_ms: Callable[[], int]
    ) -> None:
        self._session = session
        self._listener = listener
        self._node_id = node_id
        self._now_ms = now_ms
        self._session_id: int | None = None
        """Id of the session that the nodes are of."""
        self._known: dict[str, bytes] = {}

    def keep(self, view: ClusterView) -> None:
        """Writes what differs from the view, and removes what the view does not have."""
        folder = self._listener.folder
        if self._session_id != self._session.id:
            self._known = {}
            for path in (folder, oldest.consumers_path(folder)):
                self._session.ensure_path(path)
            content = oldest.broker(self._listener.host, self._listener.port, self._now_ms())
            self._put(oldest.broker_path(folder, self._node_id), content)
            self._session_id = self._session.id
        wanted = oldest.topic_nodes(view, folder, self._node_id)
        for path in self._known.keys() - wanted.keys():
            self._remove(path)
            del self._known[path]
        for path, content in wanted.items():
            if self._known.get(path) != content:
                self._put(path, content)
                self._known[path] = content

    def _put(self, path: str, content: bytes) -> None:
        from kazoo.exceptions import NodeExistsError

        while True:
            try:
                self._session.client.create(
                    path, content, acl=self._session.access(path), ephemeral=True, makepath=True
                )
                return
            except NodeExistsError:
                # Of a session before, or of this one and the response was lost.
                self._remove(path)

    def _remove(self, path: str) -> None:
        """With the topic's node, which 0.7 leaves, when no broker has it."""
        from kazoo.exceptions import NoNodeError, NotEmptyError

        for one in (path, path.rpartition("/")[0]):
            if one.rpartition("/")[2] in ("ids", "topics"):
                return
            try:
                self._session.client.delete(one)
            except (NoNodeError, NotEmptyError):
                pass
