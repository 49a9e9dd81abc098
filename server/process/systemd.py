"""Tells systemd that the broker is ready, lives and stops: sd_notify(3), over the socket of NOTIFY_SOCKET.

Without that variable nothing is told and nothing is imported. With WATCHDOG_USEC (and WATCHDOG_PID, if it is
given, naming this process) it tells twice in that time that the event loop runs; systemd restarts a broker
that does not.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import MutableMapping

logger = logging.getLogger("odradek.broker")

_US_PER_S = 1_000_000


class Systemd:
    """The socket of systemd; what cannot be sent is logged once."""

    def __init__(self, path: str, watchdog_s: float | None) -> None:
        """`path` begins with @ for an abstract socket. `watchdog_s`: how long systemd waits for a sign of
        life; None: it does not."""
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._watchdog_s = watchdog_s
        self._handle: asyncio.TimerHandle | None = None
        self._has_failed = False

    def ready(self, status: str) -> None:
        """The broker serves; from now on it tells that it lives."""
        self.tell_ready(status)
        if self.pause_s is not None:
            self._live(self.pause_s)

    def tell_ready(self, status: str) -> None:
        """The broker serves. Without an event loop `alive` is to be called every `pause_s` from now on."""
        self._send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")

    @property
    def pause_s(self) -> float | None:
        """How often it is told that the broker lives; None: never."""
        return None if self._watchdog_s is None else self._watchdog_s / 2

    def alive(self) -> None:
        """The broker lives."""
        if self._watchdog_s is not None:
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The broker has been told to stop."""
        if self._handle is not None:
            self._handle.cancel()
        self._send("STOPPING=1")

    def _live(self, pause_s: float) -> None:
        self.alive()
        self._handle = asyncio.get_running_loop().call_later(pause_s, self._live, pause_s)

    def _send(self, text: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
                sending.setblocking(False)
                sending.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("systemd cannot be told (NOTIFY_SOCKET): %s", error.strerror or error)


def systemd_of(environ: MutableMapping[str, str]) -> Systemd | None:
    """None without NOTIFY_SOCKET. The variables are removed: they are not for processes that are started."""
    path = environ.pop("NOTIFY_SOCKET", "")
    usec, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
    if path[:1] not in ("/", "@"):
        return None
    is_watched = usec.isdecimal() and int(usec) > 0 and pid in ("", str(os.getpid()))
    return Systemd(path, int(usec) / _US_PER_S if is_watched else None)
