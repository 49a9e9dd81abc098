"""Data directories that a broker with workers does not take. Nothing is written here.

Directories of another node or cluster are refused later, by the workers themselves.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from odradek.config.config_error import ConfigError
from odradek.server.metadata import meta_properties


def refuse_directories(directories: Sequence[str]) -> None:
    """ConfigError: a directory is that of a node alone."""
    for path in directories:
        if _is_of_node_alone(path):
            raise ConfigError(
                f"Directory {path} of log.dirs belongs to a node without workers, and taking its partitions "
                "over is not built yet: leave odradek.workers out, or name an empty directory and copy the "
                "topics (odradek spark mirror)."
            )


def _is_of_node_alone(path: str) -> bool:
    if os.path.exists(os.path.join(path, meta_properties.OLD_STORE)):
        return True
    return meta_properties.is_ours(path) and not meta_properties.is_member(path)
