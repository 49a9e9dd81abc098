"""Survey of ZooKeeper when a broker becomes the controller: the nodes of topics and of settings.

Many requests are under way at once: ten thousand partitions take a second or two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from odradek.coordinator.zookeeper import nodes
from odradek.server.zookeeper.session import Session

UNDER_WAY_MAX = 500
SETTING_FOLDERS = tuple(f"/config/{kind}" for kind in nodes.CONFIG_KINDS)
Ask = Callable[[str], Any]
"""Begins a request about a path; its result has `get`."""


def survey(session: Session) -> dict[str, bytes]:
    """All nodes of topics and of settings, by path."""
    client = session.client
    found: dict[str, bytes] = {}
    names = client.get_children(nodes.TOPICS)
    topics = [nodes.topic_path(name) for name in names]
    found |= _contents(topics, client.get_async)
    indexes = dict(_children(list(map(nodes.partitions_path, names)), client.get_children_async))
    for path in indexes:
        found[path] = b""
    partitions = [f"{path}/{index}" for path, children in indexes.items() for index in children]
    found |= dict.fromkeys(partitions, b"")
    found |= _contents([f"{path}/state" for path in partitions], client.get_async)
    folders = list(SETTING_FOLDERS)
    while folders:
        below = [
            f"{path}/{name}"
            for path, names in _children(folders, client.get_children_async)
            for name in names
        ]
        found |= _contents(below, client.get_async)
        # Only the node of a user has nodes below it.
        folders = [path for path in below if path.startswith("/config/users/")]
    return found


def _contents(paths: Iterable[str], ask: Ask) -> dict[str, bytes]:
    return {path: bytes(response[0] or b"") for path, response in _responses(paths, ask)}


def _children(paths: Iterable[str], ask: Ask) -> Iterator[tuple[str, list[str]]]:
    return _responses(paths, ask)


def _responses(paths: Iterable[str], ask: Ask) -> Iterator[tuple[str, Any]]:
    """Paths and responses of the nodes that are there."""
    from kazoo.exceptions import NoNodeError

    under_way: deque[tuple[str, Any]] = deque()

    def first() -> Iterator[tuple[str, Any]]:
        path, result = under_way.popleft()
        try:
            response = result.get()
        except NoNodeError:
            return
        yield path, response

    for path in paths:
        under_way.append((path, ask(path)))
        if len(under_way) == UNDER_WAY_MAX:
            yield from first()
    while under_way:
        yield from first()
