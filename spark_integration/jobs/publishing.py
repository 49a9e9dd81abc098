"""Each epoch of a query becomes part of a table of files once, whatever is killed and run again.

A table is a directory of Parquet files. Beside them, in `_odradek`, whose name hides it from readers of
tables, lies what the writer needs:

    _odradek/staging/EPOCH-ATTEMPT/   files that are being written
    _odradek/epochs/EPOCH.json        the decision: which staged files become which files of the table

First all files of an epoch are staged, then the decision is written, then each file is renamed to where
readers find it. Before the decision nothing of an epoch is in the table, and a new run writes it anew. After
it the staged files are what the epoch is: a new run only renames those that are still staged, and never reads
the source again. So no reader sees a row twice, and what is killed at any point is completed by the next run.
"""

import json
import posixpath
import re
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from odradek.spark.jobs.errors import JobError
from odradek.spark.jobs.files import Files

__all__ = ["STATE", "Epoch", "Publisher"]

STATE = "_odradek"
EPOCHS_KEPT = 100
"""Decisions of this many epochs stay: Spark runs only the last one again."""

_STAGED_NAME = re.compile(
    r"part-(?P<task>[0-9]{5,})-.*?(?P<file>-c[0-9]{3})?(?P<suffix>(\.[a-z0-9]+)*\.parquet)"
)


@dataclass(slots=True)
class Epoch:
    """The decision about one epoch."""

    number: int
    attempt: str
    rows: int
    size_bytes: int
    files: list[tuple[str, str]] = field(default_factory=list)
    """(path below the staging directory, path below the table) of each."""


class Publisher:
    """Puts the epochs of one query into the table at `table`."""

    def __init__(self, files: Files, table: str) -> None:
        self.files = files
        self.table = table.rstrip("/")
        self._epochs = f"{self.table}/{STATE}/epochs"
        self._staging = f"{self.table}/{STATE}/staging"

    def publish(self, number: int, write: Callable[[str], int]) -> tuple[Epoch, bool]:
        """The epoch, and whether it is new.

        `write` puts the epoch's files below the directory that it is given, as Spark names them, and tells
        their number of rows. It is not called for an epoch that was decided by an earlier run.
        """
        epoch = self.decided(number)
        is_new = epoch is None
        if epoch is None:
            epoch = self._stage(number, write)
            self.files.write_new(self._decision(number), json.dumps(asdict(epoch)))
        staging = f"{self._staging}/{epoch.attempt}"
        for staged, final in epoch.files:
            if self.files.exists(f"{staging}/{staged}"):
                target = f"{self.table}/{final}"
                self.files.make_directory(posixpath.dirname(target))
                self.files.rename(f"{staging}/{staged}", target)
        self.files.remove(staging)
        self.files.remove(self._decision(number - EPOCHS_KEPT))
        return epoch, is_new

    def decided(self, number: int) -> Epoch | None:
        """The decision about an epoch, where there is one."""
        text = self.files.read_text(self._decision(number))
        if text is None:
            return None
        try:
            epoch = Epoch(**json.loads(text))
        except (ValueError, TypeError):
            raise JobError(
                f"{self._decision(number)} cannot be read: it is damaged, and without it nobody knows which "
                "files of that epoch are in the table"
            ) from None
        epoch.files = [(staged, final) for staged, final in epoch.files]
        return epoch

    def _decision(self, number: int) -> str:
        return f"{self._epochs}/{number:010d}.json"

    def _stage(self, number: int, write: Callable[[str], int]) -> Epoch:
        # What earlier runs have left; nothing of it was decided.
        self.files.remove(self._staging)
        # A name of its own: a task that outlived its driver writes into another directory.
        attempt = f"{number}-{uuid.uuid4().hex}"
        staging = f"{self._staging}/{attempt}"
        rows = write(staging)
        epoch = Epoch(number, attempt, rows, 0)
        for path, size_bytes in self.files.walk(staging):
            staged = path[path.rindex(attempt) + len(attempt) + 1 :]
            folder, name = posixpath.split(staged)
            match = _STAGED_NAME.fullmatch(name)
            if match is not None:
                final = f"part-{number:010d}-{match['task']}{match['file'] or ''}{match['suffix']}"
                epoch.files.append((staged, posixpath.join(folder, final)))
                epoch.size_bytes += size_bytes
        return epoch
