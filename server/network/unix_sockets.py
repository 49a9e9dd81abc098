"""Sockets of the file system, for programs of the same user on this machine."""

from __future__ import annotations

import contextlib
import os
import socket
from contextlib import AsyncExitStack


def bind_privately(path: str, ending: AsyncExitStack) -> socket.socket:
    """A socket at `path` that no other user may open; `ending` removes the file. OSError."""
    bound = socket.socket(socket.AF_UNIX)
    try:
        # A broker that was killed has left the file.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        bound.bind(path)
        os.chmod(path, 0o600)
    except OSError:
        bound.close()
        raise
    ending.callback(_remove, path)
    return bound


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
