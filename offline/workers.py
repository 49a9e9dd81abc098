"""The directories of the workers of one broker (`odradek.workers`): `data` is `data.w1` and so on, too.

A directory is that of a worker by its name and by the cluster in its `meta.properties`.
"""

import os
import re
from collections.abc import Sequence

from odradek.config.properties import parse_properties
from odradek.server.metadata import meta_properties

_SUFFIX = re.compile(r"\.w([1-9][0-9]{0,3})")


def with_workers(paths: Sequence[str]) -> list[list[str]]:
    """The paths, and the directories of further workers of those that are data directories: a list for each
    worker, since each is a node of its own."""
    found: dict[int, list[str]] = {0: []}
    named = {os.path.abspath(path): path for path in paths}
    of_others: set[str] = set()
    for path in paths:
        for index, other in _other_workers(path):
            whole = os.path.abspath(other)
            of_others.add(whole)
            found.setdefault(index, []).append(named.get(whole, other))
    found[0] = [path for path in paths if os.path.abspath(path) not in of_others]
    return [found[index] for index in sorted(found)]


def _other_workers(path: str) -> list[tuple[int, str]]:
    cluster_id = _cluster_of(path)
    if cluster_id is None:
        return []
    folder, name = os.path.split(os.path.abspath(path))
    found = []
    for entry in os.listdir(folder):
        match = _SUFFIX.fullmatch(entry[len(name) :]) if entry.startswith(name) else None
        other = os.path.join(os.path.dirname(os.path.normpath(path)), entry)
        if match is not None and _cluster_of(other) == cluster_id:
            found.append((int(match[1]), other))
    return sorted(found)


def _cluster_of(path: str) -> str | None:
    try:
        with open(os.path.join(path, meta_properties.FILE_NAME), "rb") as file:
            content = file.read()
        return parse_properties(meta_properties.mended(content) or content).get("cluster.id")
    except (OSError, ValueError):
        return None
