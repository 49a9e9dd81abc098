"""`odradek console` as a process, and what it serves."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading

STARTS_S = 120


class Console:
    """A running console; `url` is where it is."""

    def __init__(self, arguments, **options):
        self.lines = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "odradek", "console", *arguments],
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "ODRADEK_CONFIG": os.devnull},
            **options,
        )
        self._is_told = threading.Event()
        self.url = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if (found := re.search(r"the console is at (\S+)", line)) is not None:
                self.url = found[1]
                self._is_told.set()
        self._is_told.set()

    def wait(self):
        assert self._is_told.wait(STARTS_S)
        assert self.url is not None, "".join(self.lines)
        return self.url

    def ended(self):
        """The exit status, and what was printed."""
        status = self.process.wait(STARTS_S)
        self._reader.join(STARTS_S)
        return status, "".join(self.lines)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.ended()


@contextlib.contextmanager
def console(*arguments, **options):
    running = Console(arguments, **options)
    try:
        running.wait()
        yield running
    finally:
        running.stop()
