"""The command line in a terminal of its own: a pty of 80 columns, where a person reads and types."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

DEADLINE_S = 60


class Terminal:
    """A context manager; what is printed has no carriage returns."""

    def __init__(self, *words, columns=80, **environ):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        path = ":".join(one for one in sys.path if one)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "odradek", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "TERM": "dumb", **environ},
        )
        os.close(theirs)
        self.printed = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._child.kill()
        self._child.wait()
        os.close(self._ours)

    @property
    def is_running(self):
        return self._child.poll() is None

    def read_until(self, text):
        """All that was printed, when `text` is in it."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.printed:
            assert self._read(deadline), f"it ended with {self.printed!r}"
        return self.printed

    def type(self, text):
        os.write(self._ours, text.encode())

    def ended(self):
        """All that was printed, and the exit status."""
        deadline = time.monotonic() + DEADLINE_S
        while self._read(deadline):
            pass
        return self.printed, self._child.wait(DEADLINE_S)

    def _read(self, deadline):
        readable, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, f"nothing more than {self.printed!r}"
        try:
            piece = os.read(self._ours, 65536)
        except OSError:  # Linux says EIO at the end
            return False
        self.printed += piece.decode().replace("\r", "")
        return bool(piece)
