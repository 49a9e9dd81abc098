"""A broker inside a Python program: `odradek.Broker` in a thread of its own or as a child process.

    with odradek.Broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

    with odradek.Broker(process=True, log_retention_ms=60_000) as broker:
        broker.kill()       # SIGKILL, as a machine that loses power would do to it
        broker.restart()    # same port, same data

    with odradek.Broker(workers=4) as broker:   # four processes, at four ports in a row

The port is free and on 127.0.0.1 unless said otherwise; the data directory is a temporary one that goes away
with the broker unless one is given. Options are Kafka's with underscores for dots; groups start without a
delay (`group_initial_rebalance_delay_ms=3000` is Kafka's default). A child ends when its parent does,
whatever ends that.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from odradek.config.broker_config import CONSOLE_LISTEN
from odradek.embedding.broker_form import BrokerForm
from odradek.embedding.broker_process import AttachedBroker, BrokerProcess
from odradek.embedding.broker_thread import BrokerThread
from odradek.embedding.defaults import EMBEDDED_OPTIONS
from odradek.embedding.kit_calls import WithTestKit
from odradek.server.extensions import NO_EXTENSIONS, Extensions

if TYPE_CHECKING:
    from odradek.embedding.snapshots import Snapshot, Source
    from odradek.server.metrics.broker_metrics import BrokerMetrics

START_TIMEOUT_S = 120.0
"""A start takes a tenth of a second, and more than 30 s beside 60 processes of tests on two cores. A broker
that ends in its start is told at once: only one that hangs is waited for so long."""


class Broker(WithTestKit):
    """A running broker as a context manager; `start` and `stop` do the same by hand.

    `process` means a child process instead of a thread; only a process can be killed. `workers` are as many
    child processes, each of which is a node (docs/cluster.md). `data_dir` is kept, a
    temporary directory is deleted by `close` (and by leaving the `with`). `options` are Kafka's options by
    their own names, for those that are no Python names; keywords do the same with underscores for dots.
    `extensions` are APIs, types of groups and options beside those of Kafka, for a broker in a thread.
    `snapshot` is what it begins with (`embedding/snapshots.py`): a snapshot, an archive, or a data directory
    that nobody serves; its data directory has to be new. TestKitError: that cannot be.
    `max_versions={"Fetch": 11}` are the last versions of APIs that it serves and advertises, -1 for one that
    it does not; `emulate="3.9"` has it stand in for a release of Kafka from 2.4 on: its APIs, versions and
    features.
    `console=True` opens a web console at a free port of 127.0.0.1, and `console="HOST:PORT"` there (the extra
    `odradek[console]`); `console_url` is its address. Its process starts with the first request.
    """

    def __init__(
        self,
        *,
        process: bool = False,
        workers: int = 1,
        host: str = "127.0.0.1",
        port: int = 0,
        data_dir: str | os.PathLike[str] | None = None,
        snapshot: Source | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        options: Mapping[str, Any] | None = None,
        extensions: Extensions = NO_EXTENSIONS,
        max_versions: Mapping[str, int] | None = None,
        emulate: str | None = None,
        console: bool | str = False,
        **keywords: Any,
    ) -> None:
        process = process or workers > 1
        if process and extensions != NO_EXTENSIONS:
            raise ValueError("extensions are Python objects, which a child process does not have")
        self._host = host
        self._port = port
        self._start_timeout_s = start_timeout_s
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="odradek-", dir=_file_system_of(snapshot))
            data_dir = self._temporary.name
        self.data_dir = Path(data_dir)
        """The data directory."""
        self._snapshots: weakref.WeakSet[Snapshot] = weakref.WeakSet()
        self._has_folders = False
        if snapshot is not None:
            self._fill(snapshot)
        named = {name.replace("_", "."): value for name, value in keywords.items()}
        settings = {**EMBEDDED_OPTIONS, **(options or {}), **named}
        if max_versions:
            settings["odradek.max.versions"] = ",".join(f"{api}={last}" for api, last in max_versions.items())
        if emulate is not None:
            settings["odradek.emulate"] = emulate
        if workers != 1:
            settings["odradek.workers"] = workers
        if console:
            settings[CONSOLE_LISTEN] = "127.0.0.1:0" if console is True else console
        self._settings, self._extensions = settings, extensions
        self._form: BrokerForm = (
            BrokerProcess(host, self.data_dir, settings)
            if process
            else BrokerThread(host, self.data_dir, settings, extensions)
        )

    def _fill(self, snapshot: Source) -> None:
        from odradek.embedding.snapshots import fill

        try:
            fill(str(self.data_dir), snapshot)
        except BaseException:
            self._remove_temporary()
            raise

    @classmethod
    def attached(cls, attachment: Mapping[str, Any]) -> Self:
        """A handle to a broker that another process has started (its `attachment`). It does all but `start`,
        `stop`, `kill` and `restart`, which raise RuntimeError."""
        broker = cls.__new__(cls)
        broker._host, broker._port = attachment["host"], attachment["port"]
        broker._start_timeout_s, broker._temporary = 0.0, None
        broker.data_dir = Path(attachment["data_dir"])
        broker._settings, broker._extensions = {}, NO_EXTENSIONS
        broker._snapshots, broker._has_folders = weakref.WeakSet(), False
        broker._form = AttachedBroker(attachment["pid"], attachment["kit"], attachment["log"])
        return broker

    @property
    def attachment(self) -> dict[str, Any]:
        """Texts and numbers with which other processes of this machine make an `attached` broker.
        RuntimeError unless it runs with `process=True`, without workers."""
        if not isinstance(self._form, BrokerProcess) or self._form.kit is None or self.pid is None:
            raise RuntimeError(
                "only a running broker in one process of its own has handles in other processes"
            )
        kit = self._form.kit
        return {
            "host": self._host,
            "port": self._port,
            "data_dir": str(self.data_dir),
            "pid": self.pid,
            "kit": kit.path,
            "log": str(kit.log_path),
        }

    @property
    def port(self) -> int:
        """The port, with workers that of the first; 0 before the first start when none was given."""
        return self._port

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, the clients' option of this name."""
        host = self._host if self._host not in ("", "0.0.0.0", "::") else "127.0.0.1"
        return f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"

    @property
    def console_url(self) -> str:
        """The address of its web console, such as `http://127.0.0.1:9080`; empty: it has none, or does not
        run."""
        return self._form.console_url

    @property
    def is_running(self) -> bool:
        return self._form.is_running

    @property
    def pid(self) -> int | None:
        """Process id of the child; None for a broker in a thread or one that does not run."""
        return self._form.pid

    def log(self) -> str:
        """All that it has logged since its start, for `process=True`; empty for a broker in a thread, whose
        loggers are those of the program below "odradek"."""
        return self._form.log().decode(errors="replace")

    def start(self) -> Self:
        """Starts it and returns when it answers; BrokerStartError with the reason if it does not."""
        if not self.is_running:
            self._port = self._form.start(self._port, self._start_timeout_s)
            if self.console_url:
                # A page that is open finds it again after a restart.
                host, _, port = str(self._settings[CONSOLE_LISTEN]).rpartition(":")
                if port == "0":
                    port = self.console_url.rpartition(":")[2]
                    self._settings[CONSOLE_LISTEN] = f"{host or '127.0.0.1'}:{port}"
            self.tell_started()
        return self

    def metrics(self) -> BrokerMetrics:
        """Counters of its requests since the start, by (name of the API, version), such as `("Produce", 11)`;
        its attribute `clients` has the metrics that clients have pushed. Only for a running broker in a
        thread, else RuntimeError."""
        if not isinstance(self._form, BrokerThread):
            raise RuntimeError("the metrics of a broker in its own process are not read from here")
        return self._form.metrics()

    def call_kit(self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        if not self.is_running:
            raise RuntimeError("the broker does not run")
        return self.tell_called(operation, self._form.call(operation, arguments, timeout_s))

    def snapshot(self) -> Snapshot:
        """The data as they are now, or as the last stop has left them, for `restore`; see
        `embedding/snapshots.py`. TestKitError: it is a node of a cluster, has workers or several directories,
        or a partition is offline."""
        snapshot = self._take(prepares=True)
        self._snapshots.add(snapshot)
        return snapshot

    def restore(self, source: Source) -> None:
        """Returns to a snapshot, or takes the data of an archive or of a directory that nobody serves. The
        port stays, connections are cut. Works as often as wanted, and also while the broker does not run.
        TestKitError: nothing has been done."""
        from odradek.embedding.snapshots import restore

        self._refuse_workers()
        self._has_folders = True
        restore(self, source)

    def fork(self) -> Broker:
        """A second broker with the same data and options at free ports; from now on each has its own. It has
        to be closed, too. TestKitError: as for `snapshot`."""
        with self._take(prepares=False) as snapshot:
            other = Broker(
                process=not isinstance(self._form, BrokerThread),
                host=self._host,
                snapshot=snapshot,
                start_timeout_s=self._start_timeout_s,
                options=_with_free_ports(self._settings),
                extensions=self._extensions,
            )
        try:
            return other.start()
        except BaseException:
            other.close()
            raise

    def _take(self, *, prepares: bool) -> Snapshot:
        from odradek.embedding.snapshots import take

        self._refuse_workers()
        self._has_folders = True
        return take(self, prepares=prepares)

    def _refuse_workers(self) -> None:
        if self._settings.get("odradek.workers", 1) not in (1, "1", None):
            from odradek.server.test_kit.kit import TestKitError

            raise TestKitError("snapshots are for a broker of one process, and this one has workers")

    def stop(self) -> None:
        """Stops it cleanly and keeps the data; harmless when it does not run."""
        self._form.stop()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, no connection is closed properly. Only for `process=True`."""
        if not isinstance(self._form, BrokerProcess):
            raise RuntimeError("only a broker in its own process can be killed: use Broker(process=True)")
        self._form.kill()

    def restart(self) -> Self:
        """Starts it again with the same port and data, after a clean stop if it still runs."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stops it and deletes its snapshots, and the data directory if that is a temporary one."""
        self.stop()
        for snapshot in list(self._snapshots):
            snapshot.close()
        if self._has_folders:
            from odradek.embedding.snapshots import remove_leftovers

            remove_leftovers(str(self.data_dir))
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        form = "thread" if isinstance(self._form, BrokerThread) else "process"
        state = f"on {self.bootstrap_servers}" if self.is_running else "stopped"
        return f"<odradek.Broker in a {form}, {state}>"


class AsyncBroker:
    """The same for asyncio programs: `async with odradek.AsyncBroker() as broker:`.

    The broker has its own thread (or process), so a busy program does not slow it and it does not slow the
    program. Takes what `Broker` takes.
    """

    def __init__(self, **arguments: Any) -> None:
        self._broker = Broker(**arguments)

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    @property
    def port(self) -> int:
        return self._broker.port

    @property
    def data_dir(self) -> Path:
        return self._broker.data_dir

    @property
    def is_running(self) -> bool:
        return self._broker.is_running

    async def start(self) -> Self:
        await asyncio.to_thread(self._broker.start)
        return self

    async def stop(self) -> None:
        await asyncio.to_thread(self._broker.stop)

    async def restart(self) -> Self:
        await asyncio.to_thread(self._broker.restart)
        return self

    async def snapshot(self) -> Snapshot:
        return await asyncio.to_thread(self._broker.snapshot)

    async def restore(self, source: Source) -> None:
        await asyncio.to_thread(self._broker.restore, source)

    async def close(self) -> None:
        await asyncio.to_thread(self._broker.close)

    def kill(self) -> None:
        self._broker.kill()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._broker.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _file_system_of(snapshot: Source | None) -> str | None:
    """The folder of a snapshot, whose files can be shared there; None for the usual one."""
    path = getattr(snapshot, "path", None)
    return None if path is None else os.path.dirname(path)


def _with_free_ports(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a second broker on the same machine."""
    if settings.get("advertised.listeners") is not None:
        from odradek.server.test_kit.kit import TestKitError

        raise TestKitError("a broker with advertised.listeners has no fork: both would have the same address")
    return {
        name: re.sub(r":\d+(?=\s*(?:,|$))", ":0", value)
        if isinstance(value, str) and (name == "listeners" or name.endswith(".listen"))
        else value
        for name, value in settings.items()
    }
