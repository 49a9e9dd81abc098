"""Records that a filter chooses, as lines of a file: oldest first, bounded by a number and a size.

JSON lines are those of `odradek consume --json`, with a form those of `--decode`. CSV is for spreadsheets: a
text that one would take for a formula has an apostrophe before it.
"""

import csv
import io
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.reading import PartitionRecords, Reader
from odradek.client.stored_records import StoredBatch, batches_of
from odradek.commands.decoding import Decoders
from odradek.commands.record_json import headers_json, json_lines
from odradek.console.filters import Chooses
from odradek.console.rendering import iso_text

RECORDS_MAX = 1_000_000
BYTES_MAX = 1 << 30
"""A file ends with the first record behind this size."""
STEP_S = 0.5
"""How long one step reads, with one response more at most."""
STEP_BYTES = 4 << 20
"""Lines of one step, with those of one batch more at most."""
KINDS: Final = {"jsonl": "JSON lines", "csv": "CSV"}
COLUMNS = (
    *("topic", "partition", "offset", "timestamp", "time", "key", "key_form", "value", "value_form"),
    "headers",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?")
Lines = Callable[[int, StoredBatch], list[bytes]]


@dataclass(slots=True)
class Bound:
    """Room that a file has left."""

    records: int
    size_bytes: int

    @property
    def is_reached(self) -> bool:
        """Whether the file ends."""
        return self.records <= 0 or self.size_bytes <= 0

    def take(self, lines: Sequence[bytes]) -> list[bytes]:
        """Lines that have room, with the one that fills it."""
        taken = []
        for line in lines:
            if self.is_reached:
                break
            taken.append(line)
            self.records -= 1
            self.size_bytes -= len(line)
        return taken


class Export:
    """The reading; each step in a thread, one at a time."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        bounds: Mapping[int, tuple[int, int]],
        *,
        chooses: Chooses | None,
        lines: Lines,
        bound: Bound,
        read_committed: bool,
    ) -> None:
        self._reader = Reader(
            cluster,
            {(topic, number): found for number, found in bounds.items()},
            read_committed=read_committed,
            skipped=lambda *_: None,
        )
        self._chooses, self._lines, self._bound = chooses, lines, bound
        self._batches = self._read()

    def step(self, clock: Callable[[], float] = time.monotonic) -> bytes | None:
        """The next lines, maybe none; None at the end. ClientError."""
        until, size = clock() + STEP_S, 0
        found: list[bytes] = []
        while not self._bound.is_reached and size < STEP_BYTES and clock() < until:
            lines = next(self._batches, None)
            if lines is None:
                self._bound.records = 0
                break
            found += (taken := self._bound.take(lines))
            size += sum(map(len, taken))
        if not found and self._bound.is_reached:
            return None
        return b"".join(found)

    def _read(self) -> Iterator[list[bytes]]:
        for fetched in self._reader:
            yield []
            yield from self._lines_of(fetched)

    def _lines_of(self, fetched: PartitionRecords) -> Iterator[list[bytes]]:
        for batch in batches_of(fetched):
            if self._chooses is not None:
                batch = batch._replace(records=[one for one in batch.records if self._chooses(one)])
            yield self._lines(fetched.partition, batch) if batch.records else []


def lines_of(kind: str, topic: str, decoders: Decoders | None) -> Lines:
    """A function to the lines of a batch. `decoders` is None where contents stay as they are."""
    if kind == "csv":
        return _csv_lines(topic, decoders or Decoders("auto", ()))
    if kind != "jsonl":
        raise ClientError(f"a file is one of {', '.join(KINDS)}")
    if decoders is None:
        return lambda partition, batch: json_lines(topic, partition, batch)
    return lambda partition, batch: decoders.json_lines(topic, partition, batch)


def head_of(kind: str) -> bytes:
    """Bytes before the first record."""
    return _row(COLUMNS) if kind == "csv" else b""


def _csv_lines(topic: str, decoders: Decoders) -> Lines:
    decoder = decoders.of(topic)

    def lines(partition: int, batch: StoredBatch) -> list[bytes]:
        rows = []
        for record in batch.records:
            key, value = decoder.both(record)
            at = record.timestamp
            cells: list[Any] = [topic, partition, record.offset, at, iso_text(at)]
            for one in (key, value):
                cells += [None if one.text is None else one.text.decode("utf-8", "replace"), one.form]
            rows.append(_row([*cells, headers_json(record.headers)]))
        return rows

    return lines


def _row(cells: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow([_cell(one) for one in cells])
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    """A spreadsheet runs what looks like a formula; a number does not."""
    is_formula = isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value
