"""The output of `odradek check`: a line for each finding and repair, a summary, and the progress."""

import json
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from odradek.offline.check_partition import NOTE, Finding
from odradek.offline.repair_partition import Repair

PROGRESS_AFTER_S = 1.0
PROGRESS_INTERVAL_S = 0.2
COLUMNS = 80
"""Width of a terminal that does not tell its own."""


class CannotTell(Exception):
    """An error of `out`, which must not look like one of the checked disk."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


class Report:
    """Lines to `out`. A reader that has gone (a closed pipe) ends a check, but not a repair: with
    `goes_on` what is found and done is counted without a word then."""

    def __init__(self, out: TextIO, as_json: bool, *, goes_on: bool = False) -> None:
        self.damage_count = 0
        self.note_count = 0
        self.repair_count = 0
        self.lost_bytes = 0
        self._out = out
        self._as_json = as_json
        self._goes_on = goes_on
        self._is_read = True

    def findings(self, findings: Iterable[Finding], *, is_repaired: bool = False) -> None:
        """Damage that will be repaired is reported, too, but does not count."""
        for finding in findings:
            if finding.kind == NOTE:
                self.note_count += 1
            elif not is_repaired:
                self.damage_count += 1
            kind, path, position, what, consequence = finding
            self._line(
                {
                    "what": kind,
                    "path": path,
                    "position": position,
                    "finding": what,
                    "consequence": consequence,
                },
                f"{kind} {path}{_at(position)}: {what}. {_sentence(consequence)}",
            )

    def repairs(self, repairs: Iterable[Repair]) -> None:
        for repair in repairs:
            self.repair_count += 1
            self.lost_bytes += repair.lost_bytes
            path, position, what, lost_bytes = repair
            self._line(
                {
                    "what": "repair",
                    "path": path,
                    "position": position,
                    "done": what,
                    "lost_bytes": lost_bytes,
                },
                f"repair {path}{_at(position)}: {what}.",
            )

    def summary(self, partition_count: int, segment_count: int, batch_count: int, size_bytes: int) -> None:
        facts = {
            "partitions": partition_count,
            "segments": segment_count,
            "batches": batch_count,
            "size_bytes": size_bytes,
            "damages": self.damage_count,
            "notes": self.note_count,
            "repairs": self.repair_count,
            "lost_bytes": self.lost_bytes,
        }
        text = " ".join(f"{name}={value}" for name, value in facts.items())
        self._line({"what": "summary", **facts}, f"summary {text}")

    def _line(self, fact: dict[str, Any], text: str) -> None:
        if not self._is_read:
            return
        try:
            self._out.write((json.dumps(fact) if self._as_json else text) + "\n")
        except OSError as error:
            if not (self._goes_on and isinstance(error, BrokenPipeError)):
                raise CannotTell(error) from error
            self._is_read = False


def _at(position: int | None) -> str:
    return "" if position is None else f" at byte {position}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


class Progress:
    """The progress of a long check or import, in one line that is overwritten; nothing without a terminal.

    `clock` gives seconds that only grow. What is done within a second shows nothing.
    """

    def __init__(self, terminal: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._terminal = terminal
        self._clock = clock
        self._total_bytes = 0
        self._done_bytes = 0
        self._next_s = clock() + PROGRESS_AFTER_S
        self._is_shown = False

    def expect(self, size_bytes: int) -> None:
        """Adds bytes that are to be read or written."""
        self._total_bytes += size_bytes

    def advance(self, size_bytes: int, path: str) -> None:
        """Counts bytes as done; `path` is the directory of the partition."""
        self._done_bytes += size_bytes
        if self._terminal is None or self._clock() < self._next_s:
            return
        self._next_s = self._clock() + PROGRESS_INTERVAL_S
        # A file may have grown since it was expected.
        total_bytes = max(self._total_bytes, self._done_bytes, 1)
        share = 100 * self._done_bytes // total_bytes
        figures = f"{share} %, {_part(self._done_bytes, total_bytes)}, "
        self._write(f"\r\x1b[K{figures}{_end_of(path, _columns(self._terminal) - 1 - len(figures))}")
        self._is_shown = True

    def clear(self) -> None:
        """Removes the line; something else is printed next."""
        if self._is_shown:
            self._write("\r\x1b[K")
            self._is_shown = False

    def _write(self, text: str) -> None:
        """A terminal that has gone is no failure of what is done."""
        if self._terminal is None:
            return
        try:
            self._terminal.write(text)
            self._terminal.flush()
        except OSError:
            self._terminal = None


def _part(done_bytes: int, total_bytes: int) -> str:
    """`120 of 4,500 MB`: in the unit of the whole."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 1000)):
        if total_bytes >= 10 * size:
            return f"{done_bytes // size:,} of {total_bytes // size:,} {unit}"
    return f"{done_bytes:,} of {total_bytes:,} bytes"


def _columns(terminal: TextIO) -> int:
    try:
        return os.get_terminal_size(terminal.fileno()).columns or COLUMNS
    except (OSError, ValueError):
        return COLUMNS


def _end_of(path: str, length: int) -> str:
    """The end of a path, where the name of the partition is; a longer line could not be overwritten."""
    text = path if path.isascii() and path.isprintable() else ascii(path)[1:-1]
    return text if len(text) <= length else f"…{text[len(text) - max(length - 1, 0) :]}"
