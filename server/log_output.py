"""The log of a broker: one line an event, on stderr."""

import logging
import sys
from typing import Any

__all__ = ["log_to_stderr"]


def log_to_stderr(level: str) -> None:
    class OneLine(logging.Formatter):
        """An event is one line; the traceback of a failure is there with --log-level debug."""

        def formatException(self, ei: Any) -> str:
            if level == "debug":
                return super().formatException(ei)
            return f"  {ei[0].__name__}: {ei[1]}"

        def format(self, record: logging.LogRecord) -> str:
            text = super().format(record)
            return text if level == "debug" else " ".join(text.splitlines())

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
