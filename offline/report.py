"""The output of `odradek check`: a line for each finding and repair, a summary, and the progress."""

import json
import time
from collections.abc import Iterable
from typing import Any, TextIO

from odradek.offline.check_partition import NOTE, Finding
from odradek.offline.repair_partition import Repair

__all__ = ["CannotTell", "Progress", "Report"]

PROGRESS_INTERVAL_S = 0.2


class CannotTell(Exception):
    """An error of `out`, which must not look like one of the checked disk."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


class Report:
    def __init__(self, out: TextIO, as_json: bool) -> None:
        self.damage_count = 0
        self.note_count = 0
        self.repair_count = 0
        self.lost_bytes = 0
        self._out = out
        self._as_json = as_json

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
        try:
            self._out.write((json.dumps(fact) if self._as_json else text) + "\n")
        except OSError as error:
            raise CannotTell(error) from error


def _at(position: int | None) -> str:
    return "" if position is None else f" at byte {position}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


class Progress:
    """The progress, in one line that is overwritten; nothing without a terminal."""

    def __init__(self, terminal: TextIO | None) -> None:
        self._terminal = terminal
        self._total_bytes = 0
        self._done_bytes = 0
        self._next_s = 0.0

    def expect(self, size_bytes: int) -> None:
        self._total_bytes += size_bytes

    def advance(self, size_bytes: int, path: str) -> None:
        self._done_bytes += size_bytes
        if self._terminal is None or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + PROGRESS_INTERVAL_S
        share = min(100 * self._done_bytes // max(self._total_bytes, 1), 100)
        self._terminal.write(f"\r\x1b[K{share} % of {self._total_bytes / 1e6:.0f} MB, {path}")
        self._terminal.flush()

    def clear(self) -> None:
        if self._terminal is not None and self._next_s:
            self._terminal.write("\r\x1b[K")
            self._terminal.flush()
