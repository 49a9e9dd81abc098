"""Programs of Java with a `main`, one after the other in a resident virtual machine (`ToolServer.java`).

A process of the tests starts one for each class path when it needs it first, and one more for each program
that runs beside others. A program that streams, that a test interrupts or that needs options of the virtual
machine is a process of its own instead.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pathlib
import select
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence

from compat_tests.kit.java import SMALL_JVM, compiled

SOURCE = pathlib.Path(__file__).with_name("ToolServer.java")
JVM = (
    *SMALL_JVM,
    # What the virtual machine itself has to say is no part of an answer.
    "-XX:+DisplayVMOutputToStderr",
    # There are the hooks that a program leaves for its end.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
SHOWN_LENGTH = 3000
"""Characters of what a server has said, its last ones."""
END_SECONDS = 30
READY = 1


class ToolServer:
    """One virtual machine, in which one program runs at a time."""

    def __init__(self, class_path: str, jvm: Sequence[str], environment: dict[str, str]) -> None:
        self.environment, self.folder = environment, pathlib.Path.cwd()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the server)
        path = f"{class_path}:{compiled('', SOURCE)}"
        self._process = subprocess.Popen(
            ["java", *JVM, *jvm, "-cp", path, SOURCE.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            bufsize=0,
        )
        self._is_settled = True

    def run(
        self, words: Sequence[str], given: bytes, timeout_seconds: float
    ) -> subprocess.CompletedProcess[bytes]:
        """`words` are a folder of classes or "", the class and its arguments. Raises TimeoutExpired when the
        program has not ended in time, and RuntimeError when the virtual machine has; it is gone then."""
        deadline = time.monotonic() + timeout_seconds
        self._is_settled = False
        assert self._process.stdin is not None
        parts = [*(word.encode() for word in words), given]
        request = struct.pack(">i", len(words)) + b"".join(struct.pack(">i", len(one)) + one for one in parts)
        try:
            with contextlib.suppress(BrokenPipeError):  # The answer will be missing.
                self._process.stdin.write(request)
            (status,) = struct.unpack(">i", self._read(4, deadline))
            out, errors = (self._read_bytes(deadline) for _ in range(2))
        except TimeoutError:
            self.kill()
            raise subprocess.TimeoutExpired([*words[1:]], timeout_seconds) from None
        except RuntimeError:
            self.kill()
            raise
        return subprocess.CompletedProcess([*words[1:]], status, out, errors)

    def is_usable(self) -> bool:
        """Whether another program may run: waits until the last one has left. It may have left threads, or
        hold on; then the server ends."""
        if not self._is_settled:
            try:
                self._is_settled = self._read(1, time.monotonic() + END_SECONDS) == bytes([READY])
            except (TimeoutError, RuntimeError):
                self.kill()
        return self._is_settled

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _read_bytes(self, deadline: float) -> bytes:
        (size,) = struct.unpack(">i", self._read(4, deadline))
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        """Raises TimeoutError, and RuntimeError when the server ends before."""
        assert self._process.stdout is not None
        found = b""
        while len(found) < size:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise TimeoutError
            more = self._process.stdout.read(size - len(found))
            if not more:
                self._errors.seek(0)
                raise RuntimeError(self._errors.read().decode(errors="replace")[-SHOWN_LENGTH:])
            found += more
        return found


class ToolServers:
    """Servers for one class path: as many are started as programs run together."""

    def __init__(self, class_path: str, jvm: Sequence[str] = ()) -> None:
        self._class_path, self._jvm = class_path, jvm
        self._idle: list[ToolServer] = []
        self._lock = threading.Lock()
        atexit.register(self.close)

    def run(
        self, words: Sequence[str], given: bytes = b"", *, timeout_seconds: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        """See `ToolServer.run`."""
        server = self._take()
        finished = server.run(words, given, timeout_seconds)
        with self._lock:
            self._idle.append(server)
        return finished

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for one in idle:
            one.kill()

    def _take(self) -> ToolServer:
        """One that is in the same surroundings as this process, with nothing left of other programs."""
        environment = {name: text for name, text in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        while (server := self._idle_one(environment)) is not None:
            if server.is_usable():
                return server
        return ToolServer(self._class_path, self._jvm, environment)

    def _idle_one(self, environment: dict[str, str]) -> ToolServer | None:
        with self._lock:
            for server in self._idle:
                if server.environment == environment and server.folder == pathlib.Path.cwd():
                    self._idle.remove(server)
                    return server
        return None
