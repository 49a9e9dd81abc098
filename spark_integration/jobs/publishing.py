"""Adds each epoch of a query to a table of files exactly once, after any kill.

A table is a directory of Parquet files. The state of the writer is beside them in `_odradek`, a name that
readers of tables ignore:

    _odradek/staging/EPOCH-ATTEMPT/   files that are being written
    _odradek/epochs/EPOCH.json        the decision: which staged files become which files of the table

First all files of an epoch are staged, then the decision is written, then each file is renamed into the
table. Before the decision the table has nothing of the epoch, and a new run writes it anew. After the
decision the staged files are the epoch: a new run only renames the remaining ones, and never reads the source
again. So no reader sees a row twice, and the next run completes an epoch that was killed at any point.
"""

import json
import posixpath
import re
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from odradek.spark.jobs.errors import JobError
from odradek.spark.jobs.files import Files

STATE = "_odradek"
EPOCHS_KEPT = 100
"""The number of decisions that stay: Spark repeats only the last epoch."""

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
    """Adds the epochs of one query to the table at `table`."""

    def __init__(self, files: Files, table: str) -> None:
        self.files = files
        self.table = table.rstrip("/")
        self._epochs = f"{self.table}/{STATE}/epochs"
        self._staging = f"{self.table}/{STATE}/staging"

    def publish(self, number: int, write: Callable[[str], int]) -> tuple[Epoch, bool]:
        """The epoch, and whether this call has added to the table: False if all of it was there.

        `write` writes the epoch's files below the given directory, with Spark's names, and returns their
        number of rows. It is not called for an epoch that an earlier run has decided.
        """
        epoch = self.decided(number)
        has_added = epoch is None
        if epoch is None:
            epoch = self._stage(number, write)
            self.files.write_new(self._decision(number), json.dumps(asdict(epoch)))
        staging = f"{self._staging}/{epoch.attempt}"
        for staged, final in epoch.files:
            if self.files.exists(f"{staging}/{staged}"):
                target = f"{self.table}/{final}"
                self.files.make_directory(posixpath.dirname(target))
                self.files.rename(f"{staging}/{staged}", target)
                has_added = True
        self.files.remove(staging)
        self.files.remove(self._decision(number - EPOCHS_KEPT))
        return epoch, has_added

    def decided(self, number: int) -> Epoch | None:
        """The decision about an epoch, if there is one."""
        text = self.files.read_text(self._decision(number))
        if text is None:
            return None
        try:
            epoch = Epoch(**json.loads(text))
        except (ValueError, TypeError):
            raise JobError(
                f"{self._decision(number)} cannot be read: it is damaged, and only it shows which "
                "files of that epoch are in the table"
            ) from None
        epoch.files = [(staged, final) for staged, final in epoch.files]
        return epoch

    def _decision(self, number: int) -> str:
        return f"{self._epochs}/{number:010d}.json"

    def _stage(self, number: int, write: Callable[[str], int]) -> Epoch:
        # Files of earlier runs without a decision.
        self.files.remove(self._staging)
        # A unique name: a task that outlived its driver writes into another directory.
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
