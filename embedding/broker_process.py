"""A broker as a child process; and a broker that another process of this machine has started."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.config.broker_config import TEST_API_LISTEN
from odradek.embedding.broker_form import STOP_TIMEOUT_S, BrokerStartError, address_of, text_of
from odradek.embedding.kit_calls import KitSocket, call_at
from odradek.server.process.child_python import child_environment
from odradek.server.process.main_loop import CONSOLE_MARK, LIFELINE_VARIABLE

READY_MARK = " ready on "
STDERR_SHOWN_BYTES = 4000


class BrokerProcess:
    """A broker as a child process, `python -m odradek serve`. Passwords reach it by the environment: any user
    of the machine may read arguments."""

    def __init__(self, host: str, data_dir: Path, settings: Mapping[str, Any]) -> None:
        self._host, self._data_dir, self._settings = host, data_dir, settings
        self._has_workers = settings.get("odradek.workers", 1) not in (1, "1", None)
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._stderr: Any = None
        self.kit: KitSocket | None = None
        self._console_url = ""

    @property
    def console_url(self) -> str:
        return self._console_url if self.is_running else ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self.is_running and self._process is not None else None

    def start(self, port: int, timeout_s: float) -> int:
        command = [sys.executable, "-m", "odradek", "serve"]
        # An argument would replace what an option says, such as listeners with TLS and SASL.
        if self._settings.get("log.dirs", self._settings.get("log.dir")) is None:
            command += ["--data-dir", str(self._data_dir)]
        if self._settings.get("listeners") is None:
            command += ["--listen", address_of(self._host, port)]
        if not self._has_workers:
            self.kit = KitSocket()
            command += ["--set", self.kit.setting(self._settings.get(TEST_API_LISTEN))]
        secrets: dict[str, str] = {}
        for name, value in self._settings.items():
            if value is None or (name == TEST_API_LISTEN and self.kit is not None):
                continue
            if _may_be_secret(name):
                secrets[_variable_of(name)] = text_of(value)
            else:
                command += ["--set", f"{name}={text_of(value)}"]
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
                    self._console_url = _console_of(after)
                    return _port_of(after)

    def _new_log(self) -> Any:
        if self.kit is None:
            # Unnamed: it is gone whatever ends the parent.
            return tempfile.TemporaryFile()
        # Other processes may read it, too: see `AttachedBroker`.
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


class AttachedBroker:
    """A broker of another process, at its socket of the file system."""

    console_url = ""

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


def _port_of(rest_of_ready_line: str) -> int:
    """`HOST:PORT[, HOST:PORT] (node ...)`: the port of the first address."""
    return int(rest_of_ready_line.split()[0].rstrip(",").rpartition(":")[2])


def _console_of(rest_of_ready_line: str) -> str:
    """The address of the console, which is the last thing there; empty without one."""
    _, mark, url = rest_of_ready_line.rpartition(CONSOLE_MARK)
    return url.rstrip().removesuffix(")") if mark and url.startswith("http://") else ""


def _may_be_secret(name: str) -> bool:
    from odradek.config.options import BROKER_OPTIONS, option_of_listener

    option = BROKER_OPTIONS.get(name) or option_of_listener(name)
    return option is not None and option.is_sensitive


def _variable_of(name: str) -> str:
    from odradek.config.broker_config import variable_of_option

    return variable_of_option(name)
