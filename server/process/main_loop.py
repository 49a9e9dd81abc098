"""The broker as a process: the event loop, the signals, the parent's lifeline, the exit status.

`run` returns 0 after a clean stop, 1 when every disk has failed; an error at start is raised as a
`ConfigError`, whose text is one sentence for the administrator.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.server.process.systemd import Systemd

logger = logging.getLogger("odradek")

LIFELINE_VARIABLE = "ODRADEK_LIFELINE_FD"
"""File descriptor of a pipe whose other end the parent holds: the broker stops when it closes."""
CONSOLE_MARK = ", console "
"""Before the address of the web console, the last thing in the line of a broker that is ready."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class NodeListener(Protocol):
    """A listener of a node."""

    name: str
    tls: Any
    """None: it has no TLS."""


class NodeServer(Protocol):
    """A node: a broker, a controller or a worker. `start` and `stop` run on the event loop; what is below can
    be used between them."""

    async def start(self) -> None:
        """Raises ConfigError with one sentence for people."""

    async def stop(self) -> None:
        """Stops cleanly; harmless a second time, and after a start that failed."""

    def hurry(self) -> None:
        """A stop that is under way does not wait for other nodes any longer."""

    @property
    def node_id(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def data_directories(self) -> tuple[str, ...]: ...

    @property
    def listeners(self) -> Sequence[NodeListener]:
        """With their real ports."""

    @property
    def addresses(self) -> list[tuple[str, str, int]]:
        """Name, host and real port of every listener."""

    @property
    def controller_addresses(self) -> Sequence[tuple[str, str, int]]:
        """The same of those at which a broker is a controller, too."""

    @property
    def metrics_port(self) -> int:
        """Zero: there are no metrics."""

    @property
    def console_url(self) -> str:
        """Where browsers find the web console; empty: there is none here."""

    @property
    def test_api_ports(self) -> Sequence[int]:
        """Ports of the test API, of those of its addresses that have one."""

    @property
    def config(self) -> BrokerConfig: ...


NewServer = Callable[[Callable[[], None]], NodeServer]
"""Makes a node. It calls its argument when there is nothing left to serve."""


def run(
    new_server: NewServer,
    on_ready: Callable[[NodeServer], None] | None = None,
    *,
    signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> int:
    """Runs a node until one of `signals` or the end of the parent; the exit status. A second signal ends the
    wait for other nodes in a stop.

    `on_ready(server)` is called once, when every listener is open.
    """
    _allow_many_files()
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_serve(new_server, on_ready, signals))
    finally:
        loop.close()


async def _serve(
    new_server: NewServer,
    on_ready: Callable[[NodeServer], None] | None,
    signals: Sequence[signal.Signals],
) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in signals:
        loop.add_signal_handler(number, stopping.set)
    lifeline = _watch_parent(loop, stopping)
    systemd = _systemd()
    # The process has no other program: the loaded groups stay as long as it runs.
    has_failed = False

    def end() -> None:
        nonlocal has_failed
        has_failed = True
        stopping.set()

    server = new_server(end)
    try:
        if not await _is_started(server, stopping):
            return 0
        gc.freeze()
        gc.enable()
        # Python takes a short write for a whole one: of what a broker imports on a full disk, half a file of
        # bytecode would be left, and nobody could import that module again.
        sys.dont_write_bytecode = True
        if on_ready is not None:
            on_ready(server)
        if systemd is not None:
            systemd.ready(f"node {server.node_id} of cluster {server.cluster_id} serves")
        await stopping.wait()
        if systemd is not None:
            systemd.stopping()
    finally:
        # The process ends: no more garbage collection.
        gc.disable()
        for number in signals:
            loop.add_signal_handler(number, server.hurry)
        await server.stop()
        if lifeline is not None:
            loop.remove_reader(lifeline)
    return 1 if has_failed else 0


def _systemd() -> Systemd | None:
    if "NOTIFY_SOCKET" not in os.environ:
        return None
    from odradek.server.process.systemd import systemd_of

    return systemd_of(os.environ)


async def _is_started(server: NodeServer, stopping: asyncio.Event) -> bool:
    """False where a signal came first: a node of a cluster may wait for its controllers for long."""
    starting = asyncio.ensure_future(server.start())
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        stopped.cancel()
        starting.result()
        return True
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    return False


def _allow_many_files() -> None:
    """Raises the limit of open files to the hard limit: shells set 1024, and connections are files, too."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        # macOS says "unlimited" and means 10240.
        logger.debug("the limit of open files stays at %d", soft)


def _watch_parent(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> int | None:
    """Stops when the parent's pipe closes: the kernel closes it whatever ends the parent."""
    text = os.environ.pop(LIFELINE_VARIABLE, "")
    if not text.isdigit():
        return None
    descriptor = int(text)

    def parent_is_gone() -> None:
        loop.remove_reader(descriptor)
        stopping.set()

    try:
        loop.add_reader(descriptor, parent_is_gone)
    except (OSError, ValueError):
        logger.warning(
            "%s=%s is not an open file; not watching for the parent's end", LIFELINE_VARIABLE, text
        )
        return None
    return descriptor
