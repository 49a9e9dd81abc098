"""Programs that tests start, and ask, hear or kill: each a process with pipes, whose errors are kept."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from compat_tests import reference

SHOWN_LENGTH = 3000
"""Characters of what a program has complained about, its last ones."""


class JavaFailure(RuntimeError):
    """What a program of ours says of an exception that it has met."""


class Child:
    """A process; `how` is for `subprocess.Popen`."""

    def __init__(self, command: Sequence[str], **how: Any) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the program)
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, **how
        )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Nobody asks it for more: it ends."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(30)

    def errors(self) -> str:
        """What it has written to its standard error."""
        size = os.fstat(self._errors.fileno()).st_size
        # The file's position is the program's as well.
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")


class Program(Child):
    """One that answers each line of its standard input with `ok N` and N lines, or `error TEXT`. When it is
    killed, what it is asked meanwhile raises RuntimeError."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command)
        self._one_at_a_time = threading.Lock()

    def ask(self, *command: object, lines: Iterable[str] = ()) -> list[str]:
        """One command and its answer. JavaFailure: the exception's text; RuntimeError: it has ended."""
        assert self.process.stdin is not None
        with self._one_at_a_time:
            text = "\t".join(map(str, command))
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write("".join(f"{line}\n" for line in (text, *lines)).encode())
                self.process.stdin.flush()
            status, _, rest = self._line().partition(" ")
            if status == "ok":
                return [self._line() for _ in range(int(rest))]
            assert status == "error", (status, rest)
            raise JavaFailure(rest)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        if not line.endswith("\n"):  # It may have been killed in the middle of an answer.
            raise RuntimeError(self.errors()[-SHOWN_LENGTH:])
        return line.removesuffix("\n")


class JavaProgram(Program):
    """One of Java."""

    def __init__(self, class_path: str, main_class: str, *arguments: str) -> None:
        options = (*reference.SMALL_JVM, *reference.archive_for(class_path))
        super().__init__(["java", *options, "-cp", class_path, main_class, *arguments])


class Teller(Child):
    """One that tells what it does, a line of JSON each (`telling.py`), and always before it does it: what is
    known of a process that is gone is what it has told."""

    def __init__(self, command: Sequence[str], **how: Any) -> None:
        super().__init__(command, **how)
        self._noise: list[bytes] = []

    def events(self, begin: bytes) -> Iterator[Any]:
        """All of them, until it is gone; each begins so. Whatever else it prints is no event."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(begin) and line.endswith(b"\n"):
                yield json.loads(line)
            else:
                self._noise.append(line)
        self.process.wait()

    def ask_to_stop(self) -> None:
        assert self.process.stdin is not None
        # It may be gone, and what led to it closed.
        with contextlib.suppress(BrokenPipeError, ValueError):
            os.write(self.process.stdin.fileno(), b"stop\n")

    def signal_all(self, number: signal.Signals) -> None:
        """To it and to the processes that it has; it is one with a `process_group` of its own."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def complaints(self) -> str:
        """What it has printed or written to its standard error that is no event."""
        return (b"".join(self._noise).decode(errors="replace") + self.errors())[-SHOWN_LENGTH:]
