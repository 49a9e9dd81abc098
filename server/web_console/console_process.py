"""The process of the console: started by the first connection, which waits for it; started again when it has
ended, by itself after some idle time or in another way.

The broker keeps the listening sockets, so nobody is refused in between. While a process lives it alone
accepts. Broker and process hold the two ends of a socket pair: the kernel closes one whatever ends its side,
and the other side sees it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

from odradek.server.process.child_python import child_environment
from odradek.server.process.main_loop import LIFELINE_VARIABLE

logger = logging.getLogger("odradek.console")

FIRST_PAUSE_S, PAUSE_S_MAX = 0.5, 30.0
"""Before a process that has failed at once is started again; twice as long each time."""
LIVED_S = 10.0
"""A process that has lived for so long has not failed at once."""
REAP_S = 0.02
END_S = 5.0
"""From SIGTERM to SIGKILL at the end of the broker."""


class ConsoleProcess:
    """At most one process, from `open` to `close`; for the event loop. `arguments` are those of `odradek
    console` without its sockets; they are asked for at each start."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: Sequence[socket.socket],
        arguments: Callable[[], Sequence[str]],
    ) -> None:
        self._loop = loop
        self._listening = listening
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: socket.socket | None = None
        self._started_s = 0.0
        self._pause_s = 0.0
        self._later: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        self._is_closed = False
        self.starts = 0
        """Processes that were started."""

    @property
    def pid(self) -> int | None:
        """Id of the process; None: there is none."""
        return None if self._process is None else self._process.pid

    def open(self) -> None:
        """Waits for a connection."""
        for one in self._listening:
            self._loop.add_reader(one.fileno(), self._start)

    async def close(self) -> None:
        """Ends the process. The sockets stay open."""
        self._is_closed = True
        if self._later is not None:
            self._later.cancel()
        self._ignore()
        if self._process is not None:
            self._process.terminate()
            self._drop_lifeline()
            self._reap()
            try:
                async with asyncio.timeout(END_S):
                    await self._ended.wait()
            except TimeoutError:
                self._process.kill()
                self._process.wait()

    def _ignore(self) -> None:
        for one in self._listening:
            self._loop.remove_reader(one.fileno())

    def _start(self) -> None:
        """A connection waits. Both sockets may have told so in one turn."""
        if self._process is not None or self._is_closed:
            return
        self._ignore()
        self._started_s = self._loop.time()
        self._ended.clear()
        ours, theirs = socket.socketpair()
        try:
            descriptors = [one.fileno() for one in self._listening]
            command = [sys.executable, "-m", "odradek", "console", *self._arguments()]
            command += [part for number in descriptors for part in ("--fd", str(number))]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(*descriptors, theirs.fileno()),
                # Ctrl-C in a terminal is for the broker, which ends this process.
                start_new_session=True,
                env={**_environment(), LIFELINE_VARIABLE: str(theirs.fileno())},
            )
        except OSError as error:
            ours.close()
            logger.error("the console cannot be started: %s", error)
            self._pause()
            return
        finally:
            theirs.close()
        self.starts += 1
        ours.setblocking(False)
        self._lifeline = ours
        self._loop.add_reader(ours.fileno(), self._has_ended)
        logger.info("the console has started, process %d", self._process.pid)

    def _has_ended(self) -> None:
        """The other end of the lifeline is closed."""
        self._drop_lifeline()
        self._reap()

    def _drop_lifeline(self) -> None:
        if self._lifeline is not None:
            self._loop.remove_reader(self._lifeline.fileno())
            self._lifeline.close()
            self._lifeline = None

    def _reap(self) -> None:
        """Its files are closed a moment before its status is there."""
        process = self._process
        if process is None:
            return
        status = process.poll()
        if status is None:
            self._later = self._loop.call_later(REAP_S, self._reap)
            return
        self._process = None
        self._ended.set()
        if self._is_closed:
            return
        if status == 0:
            logger.info("the console has ended; the next request starts it again")
        else:
            logger.error("the console has ended with status %d; the next request starts it again", status)
        if status != 0 and self._loop.time() - self._started_s < LIVED_S:
            self._pause()
        else:
            self._pause_s = 0.0
            self.open()

    def _pause(self) -> None:
        self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), PAUSE_S_MAX)
        self._later = self._loop.call_later(self._pause_s, self.open)


def _environment() -> dict[str, str]:
    """The environment without what would configure a broker or a client; users and passwords may be in it."""
    kept = {name: text for name, text in child_environment().items() if not name.startswith("ODRADEK_")}
    return {**kept, "ODRADEK_CONFIG": os.devnull}
