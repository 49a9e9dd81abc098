"""A port for a process that is started now, and started again later."""

from __future__ import annotations

import itertools
import random
import socket
import threading
from collections.abc import Iterator

PORTS = range(20_000, 32_000)
"""Kernels take the ports of outgoing connections from above: one of those may be gone when its process wants
it again. A client that asks for its dead broker may even be given just that port, and talks to itself."""
BLOCK_PORTS = 200
"""A process takes whole blocks. It binds the first port of each, which nobody is given."""
ATTEMPTS = 200


def free_port() -> int:
    """A port on which nothing listens now, on any address of either family. Raises OSError where none is
    found.

    Whoever was given a port may not listen on it yet. So each port is given once by a process before any is
    given again, and other processes that ask get other ports, until this one ends.
    """
    error: OSError | None = None
    for _ in range(ATTEMPTS):
        with _one_at_a_time:
            port = next(_ports)
        try:
            _bind(port).close()
        except OSError as failure:
            error = failure
        else:
            return port
    raise OSError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free: {error}")


def _given() -> Iterator[int]:
    """The ports of each block that no other process has. After the last one, those of all blocks, again and
    again."""
    bound, all_ports = [], []
    for first in random.sample(PORTS[::BLOCK_PORTS], len(PORTS) // BLOCK_PORTS):
        block = random.sample(range(first + 1, first + BLOCK_PORTS), BLOCK_PORTS - 1)
        all_ports += block
        try:
            bound.append(_bind(first))
        except OSError:
            continue
        yield from block
    yield from itertools.cycle(all_ports)


_ports = _given()
_one_at_a_time = threading.Lock()


def _bind(port: int) -> socket.socket:
    """A socket that does not listen, on every address. Raises OSError if one of them has the port."""
    both = socket.has_dualstack_ipv6()
    bound = socket.socket(socket.AF_INET6 if both else socket.AF_INET)
    try:
        if both:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(("", port))
    except OSError:
        bound.close()
        raise
    return bound
