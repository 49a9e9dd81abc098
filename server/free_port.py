"""A port for a process that is started now, and started again later."""

from __future__ import annotations

import itertools
import random
import socket

__all__ = ["free_port"]

PORTS = range(20_000, 32_000)
"""Kernels take the ports of outgoing connections from above: one of those may be gone when its process wants
it again. A client that asks for its dead broker may even be given just that port, and talks to itself."""
ATTEMPTS = 200

_ports = itertools.cycle(random.sample(PORTS, len(PORTS)))
"""A random order for each process. Whoever was given a port may not listen on it yet, so each port is given
once before any is given again."""


def free_port() -> int:
    """A port on which nothing listens now, on any address of either family. Raises OSError where none is
    found."""
    error: OSError | None = None
    for port in itertools.islice(_ports, ATTEMPTS):
        try:
            _probe(port)
        except OSError as failure:
            error = failure
        else:
            return port
    raise OSError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free: {error}")


def _probe(port: int) -> None:
    both = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if both else socket.AF_INET) as probe:
        if both:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        probe.bind(("", port))
