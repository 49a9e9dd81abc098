"""A port for a process that is started now, and started again later."""

from __future__ import annotations

import random
import socket

__all__ = ["free_port"]

PORTS = range(20_000, 32_000)
"""Kernels take the ports of outgoing connections from above: one of those may be gone when its process wants
it again. A client that asks for its dead broker may even be given just that port, and talks to itself."""
ATTEMPTS = 200


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nothing listens now. Raises OSError where none is found."""
    error: OSError | None = None
    for port in random.sample(PORTS, ATTEMPTS):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            try:
                probe.bind((host, port))
            except OSError as failure:
                error = failure
            else:
                return port
    raise OSError(f"no port of {host} from {PORTS.start} to {PORTS.stop - 1} is free: {error}")
