"""Workers, from the configuration of their broker to their end.

All ports are bound before anything else happens, and what a broker needs is imported before the first fork.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from odradek.apis.table import CONTROLLER_MODULES
from odradek.config.broker_config import CONSOLE_LISTEN, METRICS_LISTEN
from odradek.config.config_error import ConfigError
from odradek.config.os_reason import reason_of
from odradek.config.worker_place import AMONG_WORKERS, CONTROLLER_SOCKET, OF_CONTROLLER, WorkerPlace
from odradek.config.workers import config_of, refuse_bounds
from odradek.server.background import warm_up
from odradek.server.broker import BrokerServer
from odradek.server.controlling.controller_server import ControllerServer
from odradek.server.network.listeners import Listener, ListenError, SocketOptions, bind_listener
from odradek.server.network.ports import socket_options
from odradek.server.process import main_loop
from odradek.server.workers.first_worker import FirstWorker, OneProcess
from odradek.server.workers.lone_node import become_first_worker
from odradek.server.workers.resizing import Resizing, make_directories, refuse_foreign
from odradek.server.workers.supervisor import ReadyWorkers, Supervisor, WorkerParts

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.server.process.main_loop import NodeServer
    from odradek.server.workers.supervisor import Deaths

logger = logging.getLogger("odradek.workers")

ROW_ATTEMPTS = 32
"""Attempts to find as many free ports in a row as there are workers."""
FOLDER_PREFIX = "odradek-workers-"
SOCKET_PATH_BYTES_MAX = 100
"""Kernels allow for 104 bytes or more."""
_PREPARED = (
    "coordinator.cluster.producer_ids",
    "server.background.disks",
    "server.cluster.following",
    "server.cluster.leading",
    "server.cluster.member",
    "server.cluster.replica_log",
    "server.cluster.replication",
    "server.cluster.throttles",
    "server.coordination.coordinators",
    "server.coordination.remote_log_ends",
    "server.coordination.remote_transactions",
    "server.metadata.log_directories",
    "server.metadata.member_directories",
    "server.network.broker_peers",
)
_PREPARED_OF_OTHERS = (
    "concurrent.futures.thread",
    "encodings.idna",
    "encodings.latin_1",
    "resource",
    "uvloop",
)


def run(config: BrokerConfig, workers: int, on_ready: Callable[[ReadyWorkers], None]) -> int:
    """Runs the workers until SIGTERM, SIGINT or the end of the parent; the exit status. `on_ready` is called
    once, when all are unfenced. Raises ConfigError with one sentence for the administrator."""
    refuse_bounds(config, workers)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers > cores:
        logger.warning(
            "odradek.workers=%d is more than the %d processors here: they share them, and none is faster",
            workers,
            cores,
        )
    with ExitStack() as ending:
        folder = _socket_folder(ending)
        rows = _bound_rows(config, workers, ending)
        parts = _parts_of(config, rows, folder, ending)
        _prepare()
        node_ids = [one.config.node_id for one in parts]
        refuse_foreign(config.data_directories, node_ids)
        become_first_worker(config)
        make_directories(config.data_directories, node_ids)
        resizing = Resizing(config.data_directories, node_ids)
        be_worker = partial(_be_worker, resizing=resizing, polls_before_sleep=workers <= cores)
        return Supervisor(parts, folder, be_worker, on_ready).run()


def _socket_folder(ending: ExitStack) -> str:
    """A directory that only this user may enter."""
    try:
        _remove_left_folders()
        folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX)
    except OSError as error:
        raise ConfigError(
            f"odradek.workers needs a directory for its sockets, and none can be made in "
            f"{tempfile.gettempdir()}: {reason_of(error)}. TMPDIR may name another place."
        ) from error
    ending.callback(shutil.rmtree, folder, ignore_errors=True)
    if len(folder) > SOCKET_PATH_BYTES_MAX - len("/worker-999"):
        raise ConfigError(f"The path of {folder} is too long for a socket: let TMPDIR name another place.")
    return folder


def _remove_left_folders() -> None:
    """Remove what brokers have left that were killed as a whole: nobody listens there."""
    for name in os.listdir(tempfile.gettempdir()):
        folder = os.path.join(tempfile.gettempdir(), name)
        if name.startswith(FOLDER_PREFIX) and _is_left(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            if os.lstat(folder).st_uid != os.getuid():
                return False
            asking.connect(os.path.join(folder, CONTROLLER_SOCKET))
        except ConnectionRefusedError:
            return True
        except OSError:
            # It is about to be bound, or is asked by many at once.
            return False
    return False


# --- Sockets ---


def _bound_rows(
    config: BrokerConfig, workers: int, ending: ExitStack
) -> list[dict[str, list[socket.socket]]]:
    """The sockets of each worker by the names of listeners. Nothing else has happened yet: a port that is
    taken leaves nothing behind."""
    options = socket_options(config)
    rows: list[dict[str, list[socket.socket]]] = [{} for _ in range(workers)]
    wanted = [(one.name, one.host, one.port) for one in config.listeners]
    if config.metrics_address is not None:
        wanted.append((METRICS_LISTEN, *config.metrics_address))
    for name, host, port in wanted:
        try:
            bound = _bound_row(name, host, port, workers, options)
        except ListenError as error:
            if name != METRICS_LISTEN:
                raise
            raise ConfigError(str(error).replace("listeners: ", f"{METRICS_LISTEN}: ", 1)) from error
        for row, sockets in zip(rows, bound, strict=True):
            row[name] = sockets
            for one in sockets:
                ending.callback(one.close)
    if config.console_address is not None:
        from odradek.server.web_console.hosting import bind_console

        # One for all: the first worker has it.
        rows[0][CONSOLE_LISTEN] = bind_console(config)
        for one in rows[0][CONSOLE_LISTEN]:
            ending.callback(one.close)
    return rows


def _bound_row(
    name: str, host: str, port: int, count: int, options: SocketOptions
) -> list[list[socket.socket]]:
    """One port after the other; from a free one on, where `port` is 0."""
    for attempt in range(ROW_ATTEMPTS):
        row: list[list[socket.socket]] = []
        try:
            for index in range(count):
                first = port or (row[0][0].getsockname()[1] if row else 0)
                wanted = first + index if first else 0
                row.append(bind_listener(Listener(name, host, wanted, None, options)))
        except (ListenError, OverflowError):
            for one in (one for sockets in row for one in sockets):
                one.close()
            if port or attempt == ROW_ATTEMPTS - 1:
                raise
        else:
            break
    return row


def _unix_socket(path: str, backlog: int, ending: ExitStack) -> list[socket.socket]:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    ending.callback(bound.close)
    bound.bind(path)
    bound.listen(backlog)
    bound.setblocking(False)
    return [bound]


def _parts_of(
    config: BrokerConfig,
    rows: Sequence[Mapping[str, list[socket.socket]]],
    folder: str,
    ending: ExitStack,
) -> list[WorkerParts]:
    backlog, rack = socket_options(config).backlog, socket.gethostname()
    found: list[WorkerParts] = []
    for index, row in enumerate(rows):
        ports = {name: sockets[0].getsockname()[1] for name, sockets in row.items()}
        place = WorkerPlace(index=index, folder=folder, controller_id=config.node_id)
        parts = WorkerParts(
            config=config_of(config, place, ports, rack),
            sockets={**row, AMONG_WORKERS: _unix_socket(place.listener.host, backlog, ending)},
        )
        if index == 0:
            place = replace(place, is_controller=True)
            parts = replace(
                parts,
                controller_config=config_of(config, place, ports, rack),
                controller_sockets={OF_CONTROLLER: _unix_socket(place.listener.host, backlog, ending)},
            )
        found.append(parts)
    return found


def _prepare() -> None:
    """Imports what workers need, so that all share it, and leaves it out of garbage collections."""
    for part in (warm_up.RECORDS, warm_up.GROUPS, warm_up.TRANSACTIONS):
        for name in part.modules:
            import_module(f"odradek.{name}")
    of_controller = [f"apis.{name}" for name in CONTROLLER_MODULES.values() if name.startswith("controller.")]
    for name in (*_PREPARED, *dict.fromkeys(of_controller)):
        import_module(f"odradek.{name}")
    for name in _PREPARED_OF_OTHERS:
        with contextlib.suppress(ImportError):
            import_module(name)
    gc.freeze()


# --- In the process of a worker ---


def _be_worker(
    parts: WorkerParts,
    deaths: Deaths,
    on_ready: Callable[[NodeServer], None],
    *,
    resizing: Resizing,
    polls_before_sleep: bool,
) -> int:
    """See `BeWorker`."""

    def new_broker(on_end: Callable[[], None], disk: OneProcess | None = None) -> BrokerServer:
        return BrokerServer(
            parts.config,
            after_loading=gc.freeze,
            polls_before_sleep=polls_before_sleep,
            owns_process=True,
            on_end=on_end,
            sockets=parts.sockets,
            disk=disk,
        )

    def new_server(on_end: Callable[[], None]) -> NodeServer:
        if parts.controller_config is None:
            return new_broker(on_end)

        def has_failed() -> None:
            first.has_failed()
            on_end()

        disk = OneProcess()
        controller = ControllerServer(
            parts.controller_config,
            owns_process=True,
            on_end=has_failed,
            sockets=parts.controller_sockets,
            disk=disk,
        )
        first = FirstWorker(
            new_broker(has_failed, disk),
            controller,
            deaths,
            lambda: resizing.take_over(controller.controlling.controller),
        )
        return first

    return main_loop.run(new_server, on_ready, signals=())
