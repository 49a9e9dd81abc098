"""How a broker stops serving: within two seconds on a disk that answers.

What is staged is committed, responses that are ready are sent, what waits is refused, and connections are
closed. Flushes, checkpoints and the mark of a clean stop come after this, when the store is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.server.background.schedule import Schedule
    from odradek.server.coordination.coordinators import Coordinators
    from odradek.server.network.connections import Connections

CONVERSIONS_WAIT_S = 0.5
FLUSH_WAIT_S = 1.0
CLOSE_WAIT_S = 0.5


async def stop_serving(schedule: Schedule, coordinators: Coordinators, connections: Connections) -> None:
    """Commits, answers, and closes the connections."""
    coordinators.close()
    turn = schedule.turn
    turn.end()
    await _until(lambda: len(schedule.conversions) == 0, CONVERSIONS_WAIT_S)
    turn.end()
    await _until(lambda: not turn.is_flushing, FLUSH_WAIT_S)
    turn.end()
    await close_connections(connections)
    # Requests that came in meanwhile were not answered, but what they staged must not stay staged.
    turn.end()


async def close_connections(connections: Connections) -> None:
    """Sends what is ready, and closes them; those that do not read it are cut."""
    connections.close_all()
    await _until(lambda: len(connections) == 0, CLOSE_WAIT_S)
    connections.abort_all()
    await _until(lambda: len(connections) == 0, CLOSE_WAIT_S)


async def _until(condition: Callable[[], bool], patience_s: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while not condition() and loop.time() < deadline:
        await asyncio.sleep(0.005)
