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
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from odradek.embedding.defaults import EMBEDDED_OPTIONS
from odradek.embedding.kit_calls import KitSocket, call_at
from odradek.server.extensions import NO_EXTENSIONS, Extensions
from odradek.server.process.child_python import child_environment
from odradek.server.process.main_loop import LIFELINE_VARIABLE, new_event_loop

if TYPE_CHECKING:
    from odradek.embedding.seen import Requests, WaitFor
    from odradek.server.broker import BrokerServer
    from odradek.server.metrics.broker_metrics import BrokerMetrics

READY_MARK = " ready on "
STOP_TIMEOUT_S = 10.0
STDERR_SHOWN_BYTES = 4000


class BrokerStartError(RuntimeError):
    """The broker could not start; the text is the reason, as `odradek serve` prints it."""


class _Form(Protocol):
    """How a broker runs: in a thread or as a process."""

    def start(self, port: int, timeout_s: float) -> int: ...

    def stop(self) -> None: ...

    @property
    def is_running(self) -> bool: ...

    @property
    def pid(self) -> int | None: ...

    def call(self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None) -> Any: ...

    def log(self) -> bytes: ...


class Broker:
    """A running broker as a context manager; `start` and `stop` do the same by hand.

    `process` means a child process instead of a thread; only a process can be killed. `workers` are as many
    child processes, each of which is a node (docs/cluster.md). `data_dir` is kept, a
    temporary directory is deleted by `close` (and by leaving the `with`). `options` are Kafka's options by
    their own names, for those that are no Python names; keywords do the same with underscores for dots.
    `extensions` are APIs, types of groups and options beside those of Kafka, for a broker in a thread.
    `max_versions={"Fetch": 11}` are the last versions of APIs that it serves and advertises; `emulate="3.9"`
    has it stand in for a release of Kafka from 2.4 on: its APIs, versions and features.
    """

    def __init__(
        self,
        *,
        process: bool = False,
        workers: int = 1,
        host: str = "127.0.0.1",
        port: int = 0,
        data_dir: str | os.PathLike[str] | None = None,
        start_timeout_s: float = 30.0,
        options: Mapping[str, Any] | None = None,
        extensions: Extensions = NO_EXTENSIONS,
        max_versions: Mapping[str, int] | None = None,
        emulate: str | None = None,
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
            self._temporary = tempfile.TemporaryDirectory(prefix="odradek-")
            data_dir = self._temporary.name
        self.data_dir = Path(data_dir)
        """The data directory."""
        named = {name.replace("_", "."): value for name, value in keywords.items()}
        settings = {**EMBEDDED_OPTIONS, **(options or {}), **named}
        if max_versions:
            settings["odradek.max.versions"] = ",".join(f"{api}={last}" for api, last in max_versions.items())
        if emulate is not None:
            settings["odradek.emulate"] = emulate
        if workers != 1:
            settings["odradek.workers"] = workers
        self._form: _Form = (
            _Child(host, self.data_dir, settings)
            if process
            else _Thread(host, self.data_dir, settings, extensions)
        )

    @classmethod
    def attached(cls, attachment: Mapping[str, Any]) -> Self:
        """A handle to a broker that another process has started (its `attachment`). It does all but `start`,
        `stop`, `kill` and `restart`, which raise RuntimeError."""
        broker = cls.__new__(cls)
        broker._host, broker._port = attachment["host"], attachment["port"]
        broker._start_timeout_s, broker._temporary = 0.0, None
        broker.data_dir = Path(attachment["data_dir"])
        broker._form = _Attached(attachment["pid"], attachment["kit"], attachment["log"])
        return broker

    @property
    def attachment(self) -> dict[str, Any]:
        """Texts and numbers with which other processes of this machine make an `attached` broker.
        RuntimeError unless it runs with `process=True`, without workers."""
        if not isinstance(self._form, _Child) or self._form.kit is None or self.pid is None:
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
        return self

    def metrics(self) -> BrokerMetrics:
        """Counters of its requests since the start, by (name of the API, version), such as `("Produce", 11)`;
        its attribute `clients` has the metrics that clients have pushed. Only for a running broker in a
        thread, else RuntimeError."""
        if not isinstance(self._form, _Thread):
            raise RuntimeError("the metrics of a broker in its own process are not read from here")
        return self._form.metrics()

    @cached_property
    def requests(self) -> Requests:
        """The requests of its clients, with its responses: `broker.requests.record()`, then
        `broker.requests(api="Produce")` (docs/testing.md)."""
        from odradek.embedding.seen import Requests

        return Requests(self.call_kit)

    @cached_property
    def wait_for(self) -> WaitFor:
        """Waits for records, groups, lag, transactions and requests: `broker.wait_for.lag("shop")`."""
        from odradek.embedding.seen import WaitFor

        return WaitFor(self.call_kit)

    def call_kit(self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        """The result of an operation of the test kit (`server/test_kit/kit.py`); people use the attributes
        above. TestKitError: it is refused. RuntimeError: the broker does not run."""
        if not self.is_running:
            raise RuntimeError("the broker does not run")
        return self._form.call(operation, arguments, timeout_s)

    def stop(self) -> None:
        """Stops it cleanly and keeps the data; harmless when it does not run."""
        self._form.stop()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, no connection is closed properly. Only for `process=True`."""
        if not isinstance(self._form, _Child):
            raise RuntimeError("only a broker in its own process can be killed: use Broker(process=True)")
        self._form.kill()

    def restart(self) -> Self:
        """Starts it again with the same port and data, after a clean stop if it still runs."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stops it and deletes the data directory if that is a temporary one."""
        self.stop()
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
        form = "thread" if isinstance(self._form, _Thread) else "process"
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

    async def close(self) -> None:
        await asyncio.to_thread(self._broker.close)

    def kill(self) -> None:
        self._broker.kill()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._broker.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Thread:
    """A broker on an event loop in a thread of its own."""

    def __init__(
        self, host: str, data_dir: Path, settings: Mapping[str, Any], extensions: Extensions
    ) -> None:
        self._host, self._data_dir, self._settings = host, data_dir, settings
        self._extensions = extensions
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._port = 0
        self._failure: BaseException | None = None
        self._server: BrokerServer | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def pid(self) -> int | None:
        return None

    def log(self) -> bytes:
        return b""

    def start(self, port: int, timeout_s: float) -> int:
        from odradek.config.broker_config import load
        from odradek.config.config_error import ConfigError

        try:
            config = load(
                listen=_address(self._host, port),
                data_dir=self._data_dir,
                keywords=self._settings,
                more_options=self._extensions.options,
            )
        except ConfigError as error:
            raise BrokerStartError(str(error)) from error
        self._ready.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(config,), name="odradek-broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(timeout_s):
            raise BrokerStartError(f"the broker was not ready within {timeout_s:g} s")
        if self._failure is not None:
            self._thread.join()
            raise BrokerStartError(str(self._failure)) from self._failure
        return self._port

    def metrics(self) -> BrokerMetrics:
        if self._server is None:
            raise RuntimeError("the broker does not run")
        return self._server.metrics()

    def call(self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None) -> Any:
        server, loop = self._server, self._loop
        if server is None or loop is None:
            raise RuntimeError("the broker does not run")
        calling = asyncio.run_coroutine_threadsafe(server.test_kit.call(operation, arguments), loop)
        return calling.result(timeout_s)

    def stop(self) -> None:
        thread, loop = self._thread, self._loop
        if thread is None:
            return
        if thread.is_alive() and loop is not None and self._stopping is not None:
            try:
                loop.call_soon_threadsafe(self._stopping.set)
            except RuntimeError:
                pass  # it has ended by itself in this moment
        thread.join(STOP_TIMEOUT_S)
        if thread.is_alive():
            raise RuntimeError(f"the broker did not stop within {STOP_TIMEOUT_S:g} s")
        self._thread = self._loop = None

    def _run(self, config: Any) -> None:
        loop = self._loop = new_event_loop()
        try:
            loop.run_until_complete(self._serve(config))
        except BaseException as error:
            self._failure = error
        finally:
            loop.close()
            self._ready.set()

    async def _serve(self, config: Any) -> None:
        from odradek.server.broker import BrokerServer

        self._stopping = asyncio.Event()
        server = BrokerServer(config, extensions=self._extensions)
        try:
            await server.start()
            self._server = server
            self._port = server.port
            self._ready.set()
            await self._stopping.wait()
        finally:
            self._server = None
            await server.stop()


class _Child:
    """A broker as a child process, `python -m odradek serve`. Passwords reach it by the environment: any user
    of the machine may read arguments."""

    def __init__(self, host: str, data_dir: Path, settings: Mapping[str, Any]) -> None:
        self._host, self._data_dir, self._settings = host, data_dir, settings
        self._has_workers = settings.get("odradek.workers", 1) not in (1, "1", None)
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._stderr: Any = None
        self.kit: KitSocket | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self.is_running and self._process is not None else None

    def start(self, port: int, timeout_s: float) -> int:
        command = [sys.executable, "-m", "odradek", "serve", "--data-dir", str(self._data_dir)]
        if self._settings.get("listeners") is None:
            # The argument would replace them, and what they say of TLS and SASL.
            command += ["--listen", _address(self._host, port)]
        if not self._has_workers:
            self.kit = KitSocket()
            command += ["--set", "=".join(self.kit.option)]
        secrets: dict[str, str] = {}
        for name, value in self._settings.items():
            if value is None:
                continue
            if _may_be_secret(name):
                secrets[_variable_of(name)] = _text(value)
            else:
                command += ["--set", f"{name}={_text(value)}"]
        theirs, self._lifeline = os.pipe()
        self._stderr = self._new_log()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                pass_fds=(theirs,),
                # All workers are killed at once, as a machine that loses power would do to them.
                start_new_session=self._has_workers,
                env={**child_environment(), **secrets, LIFELINE_VARIABLE: str(theirs)},
            )
        finally:
            os.close(theirs)
        try:
            return self._wait_until_ready(timeout_s)
        except BaseException:
            self._end(signal.SIGKILL)
            raise

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def call(self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None) -> Any:
        if self.kit is None:
            raise RuntimeError("the test kit is for a broker of one process: use Broker(workers=1)")
        return self.kit.call(operation, arguments, timeout_s)

    def _wait_until_ready(self, timeout_s: float) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        output, descriptor = b"", self._process.stdout.fileno()
        while True:
            if not _is_readable(descriptor, deadline - time.monotonic()):
                raise BrokerStartError(f"the broker was not ready within {timeout_s:g} s{self._said()}")
            piece = os.read(descriptor, 4096)
            if not piece:
                status = self._process.wait()
                raise BrokerStartError(f"the broker ended with status {status}{self._said()}")
            output += piece
            for line in output.split(b"\n")[:-1]:
                before, mark, after = line.decode(errors="replace").partition(READY_MARK)
                if mark and before.startswith("odradek "):
                    return _port_of(after)

    def _new_log(self) -> Any:
        if self.kit is None:
            # Unnamed: it is gone whatever ends the parent.
            return tempfile.TemporaryFile()
        # Other processes may read it, too: see `_Attached`.
        return open(self.kit.log_path, "w+b")

    def log(self) -> bytes:
        if self._stderr is None:
            return b""
        # Not by the object's own position, at which the child writes.
        return os.pread(self._stderr.fileno(), os.fstat(self._stderr.fileno()).st_size, 0)

    def _said(self) -> str:
        """The end of the child's stderr."""
        size_bytes = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size_bytes - STDERR_SHOWN_BYTES))
        text = self._stderr.read().decode(errors="replace").strip()
        return f":\n{text}" if text else ""

    def _end(self, signal_number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._signal(process, signal_number)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._signal(process, signal.SIGKILL)
                process.wait()
            assert process.stdout is not None
            if self._has_workers:
                # Workers are no children of this process: the last one closes the pipe.
                process.stdout.read()
            process.stdout.close()
        if self.kit is not None:
            self.kit.close()
            self.kit = None
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None

    def _signal(self, process: subprocess.Popen[bytes], signal_number: int) -> None:
        if not self._has_workers or signal_number != signal.SIGKILL:
            process.send_signal(signal_number)
        elif process.poll() is None:
            os.killpg(process.pid, signal_number)


class _Attached:
    """A broker of another process, at its socket of the file system."""

    def __init__(self, pid: int, kit_path: str, log_path: str) -> None:
        self.pid: int | None = pid
        self._kit_path, self._log_path = kit_path, Path(log_path)

    @property
    def is_running(self) -> bool:
        return os.path.exists(self._kit_path)

    def start(self, port: int, timeout_s: float) -> int:
        raise RuntimeError("this broker is started by another process")

    def stop(self) -> None:
        raise RuntimeError(
            "this broker is shared with other processes, and is stopped by the one that started it: use "
            "odradek_fresh_broker for a test that stops its broker"
        )

    def call(self, operation: str, arguments: Mapping[str, Any], timeout_s: float | None) -> Any:
        return call_at(self._kit_path, operation, arguments, timeout_s)

    def log(self) -> bytes:
        return self._log_path.read_bytes() if self._log_path.exists() else b""


def _is_readable(descriptor: int, timeout_s: float) -> bool:
    # Not select.select: it takes no descriptor from 1024 on, and a test process may have many.
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return timeout_s > 0 and bool(selector.select(timeout_s))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _port_of(rest_of_ready_line: str) -> int:
    """`HOST:PORT[, HOST:PORT] (node ...)`: the port of the first address."""
    return int(rest_of_ready_line.split()[0].rstrip(",").rpartition(":")[2])


def _text(value: Any) -> str:
    """A Python value as Kafka's files write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return value if isinstance(value, str) else str(value)


def _may_be_secret(name: str) -> bool:
    from odradek.config.options import BROKER_OPTIONS, option_of_listener

    option = BROKER_OPTIONS.get(name) or option_of_listener(name)
    return option is not None and option.is_sensitive


def _variable_of(name: str) -> str:
    from odradek.config.broker_config import variable_of_option

    return variable_of_option(name)
