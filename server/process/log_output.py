"""The log of a broker on stderr: one line an event, as text or as JSON.

Repeats are gathered: of events that say the same, the first is told at once, and the others as one number
after a second. Levels may be set for single loggers; clients see and change them as resources of the type
BROKER_LOGGER (`apis/log_levels.py`).
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
REPEATS_AFTER_S = 1.0
"""Events that say the same are told once in this time."""
REPEATS_MAX = 1_000
"""Events that are remembered; others are told each time."""


def name_process(name: str) -> None:
    """Each line from now on says `name`: this is one of several processes that share stderr."""
    make = logging.getLogRecordFactory()

    def made(*arguments: Any, **keywords: Any) -> logging.LogRecord:
        record = make(*arguments, **keywords)
        record.of_process = name
        return record

    logging.setLogRecordFactory(made)


def log_to_stderr(level: str, levels: Mapping[str, str] | None = None, form: str = "text") -> None:
    """From now on. `levels` are those of single loggers, by name; `form` is one of FORMATS."""
    assert form in FORMATS
    handler = logging.StreamHandler(sys.stderr)
    shows_tracebacks = level == "debug"
    handler.setFormatter(_Json(shows_tracebacks) if form == "json" else _OneLine(shows_tracebacks))
    root = logging.getLogger()
    root.handlers[:] = [handler if shows_tracebacks else Gathering(handler)]
    root.setLevel(level.upper())
    for name, of_logger in (levels or {}).items():
        logging.getLogger(name).setLevel(of_logger.upper())


class _OneLine(logging.Formatter):
    """An event is one line; the traceback of a failure is there with --log-level debug."""

    def __init__(self, shows_tracebacks: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._shows_tracebacks = shows_tracebacks

    def formatException(self, ei: Any) -> str:
        if self._shows_tracebacks:
            return super().formatException(ei)
        return f"  {ei[0].__name__}: {ei[1]}"

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = super().formatMessage(record)
        name = getattr(record, "of_process", "")
        return f"{name}: {text}" if name else text

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if self._shows_tracebacks else " ".join(text.splitlines())


class _Json(logging.Formatter):
    """An object a line: time (UTC, RFC 3339), level, logger, message, and of a failure `error`."""

    def __init__(self, shows_tracebacks: bool) -> None:
        super().__init__()
        self._shows_tracebacks = shows_tracebacks

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event: dict[str, Any] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if hasattr(record, "of_process"):
            event["process"] = record.of_process
        if record.exc_info is not None and record.exc_info[0] is not None:
            event["error"] = {"type": record.exc_info[0].__name__, "message": str(record.exc_info[1])}
            if self._shows_tracebacks:
                event["error"]["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False)


class Gathering(logging.Handler):
    """Passes events on; of those that say the same within a second only the first, then their number.

    What is held back is told with the first event after that second, of any kind, and at the end. `clock`
    gives seconds that only grow.
    """

    def __init__(self, handler: logging.Handler, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._handler = handler
        self._clock = clock
        self._known: dict[tuple[str, int, str], _Repeats] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now_s = self._clock()
        self._tell_due(now_s)
        key = record.name, record.levelno, record.getMessage()
        repeats = self._known.get(key)
        if repeats is not None:
            repeats.count += 1
            repeats.last = record
            return
        if len(self._known) < REPEATS_MAX:
            self._known[key] = _Repeats(now_s)
        self._handler.handle(record)

    def flush(self) -> None:
        """Tells what is held back."""
        self._tell_due(float("inf"))
        self._handler.flush()

    def _tell_due(self, now_s: float) -> None:
        # The oldest come first: an event looks at no more than are due.
        while self._known:
            key = next(iter(self._known))
            if now_s - self._known[key].since_s < REPEATS_AFTER_S:
                return
            repeats = self._known.pop(key)
            if repeats.last is not None:
                self._handler.handle(_with_number(repeats.last, repeats.count))


class _Repeats:
    __slots__ = ("count", "last", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.count = 0
        self.last: logging.LogRecord | None = None


def _with_number(record: logging.LogRecord, count: int) -> logging.LogRecord:
    told = logging.makeLogRecord(record.__dict__)
    told.msg, told.args = f"{record.getMessage()} ({count} more within {REPEATS_AFTER_S:g} s)", ()
    return told
