"""Merges small files of a table into large ones, while others read it.

For each day that has many small files a new directory is made beside the table: the large files that replace
the small ones, and hard links to the files that stay. Then the two directories exchange their names in one
step. A reader that lists the day sees the old files or the new ones, never both; a reader with an open file
can still read it. A reader that has listed the day and then opens a file may get an error (no such file), but
no wrong rows. Files that a killed run leaves are in `_odradek/compaction`: the next run removes them.

The file system has to exchange directories: only Linux can, and only for local file systems.
"""

import posixpath
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.spark.jobs.errors import JobError
from odradek.spark.jobs.files import Files, LocalFiles
from odradek.spark.jobs.publishing import STATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCHS = re.compile(r"(?:part|compacted)-([0-9]{10})(?:-([0-9]{10}))?-.*")


@dataclass(frozen=True, slots=True)
class SizeRules:
    """When a compaction is worth its cost; sizes in bytes."""

    small_bytes: int = 32 << 20
    """A file below this size is small."""
    target_bytes: int = 128 << 20
    """The approximate size of new files."""
    files_min: int = 8
    """The least number of small files in a day."""


@dataclass(slots=True)
class Day:
    """One directory of the table, and its small files."""

    path: str
    small: list[str]
    small_bytes: int
    kept: list[str]


def days_to_compact(files: Files, table: str, rules: SizeRules) -> list[Day]:
    """The directories of a table with enough small files."""
    days: dict[str, Day] = {}
    for topic in files.names(table):
        if not topic.startswith("topic="):
            continue
        for path, size_bytes in files.walk(f"{table}/{topic}"):
            folder, name = posixpath.split(path)
            if not name.endswith(".parquet"):
                continue
            day = days.setdefault(folder, Day(folder, [], 0, []))
            if size_bytes < rules.small_bytes:
                day.small.append(name)
                day.small_bytes += size_bytes
            else:
                day.kept.append(name)
    return [day for day in days.values() if len(day.small) >= max(2, rules.files_min)]


class Compaction:
    """Compacts the table at `table`; the caller holds its lock."""

    def __init__(
        self,
        spark: "SparkSession",
        files: Files,
        table: str,
        rules: SizeRules,
        codec: str,
        order: tuple[str, ...] = ("partition", "offset"),
    ) -> None:
        if not isinstance(files, LocalFiles):
            raise JobError(
                f"small files of {table} cannot be merged while others read: only local file systems of "
                "Linux can exchange directories in one step; leave the option compact out"
            )
        self._spark, self._files, self._table, self._rules, self._codec = spark, files, table, rules, codec
        self._order = order
        self._work = f"{table}/{STATE}/compaction"

    def remove_leftovers(self) -> None:
        """Removes copies and replaced directories of a killed run."""
        self._files.remove(self._work)

    def run(self) -> int:
        """Merges small files; returns how many are gone."""
        gone = 0
        for day in days_to_compact(self._files, self._table, self._rules):
            self._compact(day)
            gone += len(day.small)
        return gone

    def _compact(self, day: Day) -> None:
        work = f"{self._work}/{uuid.uuid4().hex}"
        written, new = f"{work}/written", f"{work}/day"
        self._write(day, written)
        self._files.make_directory(new)
        names = [name for name in self._files.names(written) if name.endswith(".parquet")]
        label = _label(day.small)
        for number, name in enumerate(names):
            suffix = name[name.index(".") :]
            self._files.rename(
                f"{written}/{name}", f"{new}/{label}-{number:05d}-{uuid.uuid4().hex[:8]}{suffix}"
            )
        for name in day.kept:
            self._files.link(f"{day.path}/{name}", f"{new}/{name}")
        try:
            self._files.exchange(new, day.path)
        except OSError as error:
            raise JobError(
                f"small files of {day.path} cannot be merged: its file system does not exchange directories "
                f"({error.strerror}); leave the option compact out"
            ) from None
        finally:
            self._files.remove(work)

    def _write(self, day: Day, path: str) -> None:
        paths = [f"{day.path}/{name}" for name in day.small]
        rows = self._spark.read.parquet(*paths)
        number = max(1, round(day.small_bytes / self._rules.target_bytes))
        sorted_rows = (
            rows.coalesce(1) if number == 1 else rows.repartitionByRange(number, *self._order)
        ).sortWithinPartitions(*self._order)
        sorted_rows.write.option("compression", self._codec).parquet(path)
        before, after = rows.count(), self._spark.read.parquet(path).count()
        if before != after:
            raise JobError(f"{day.path} has {before} rows, and its copy {after}: nothing was replaced")


def _label(names: list[str]) -> str:
    """The epochs of the new files."""
    epochs = [epoch for name in names for epoch in _epochs(name)]
    return f"compacted-{min(epochs, default=0):010d}-{max(epochs, default=0):010d}"


def _epochs(name: str) -> list[int]:
    match = _EPOCHS.fullmatch(name)
    return [] if match is None else [int(epoch) for epoch in match.groups() if epoch is not None]
