"""A streaming query that writes one table: its checkpoint, its lock, its end, and its errors.

The table's state has its own directory, for a table of files `TABLE/_odradek`: `JOB.json` has the settings of
the table, `checkpoint` is Spark's, `lock` is held while a job writes.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from odradek.spark.jobs.errors import JobError, sentence_of
from odradek.spark.jobs.files import Files, read_note
from odradek.spark.jobs.publishing import STATE
from odradek.spark.jobs.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

POLL_S = 0.2
ADAPTIVE = "spark.sql.adaptive.enabled"
SHOWN_LENGTH = 60


@dataclass(frozen=True)
class Pace:
    """How a query reads: the present records, or as a stream until it is stopped."""

    stream: bool = False
    trigger_seconds: float = 10.0
    max_offsets_per_trigger: int | None = None
    starting_offsets: str = "earliest"
    fail_on_data_loss: bool = True

    def check(self) -> None:
        """JobError for a value that makes no sense."""
        number = self.max_offsets_per_trigger
        if number is not None and (number < 1 or not self.stream):
            raise JobError(
                f"max_offsets_per_trigger {number} bounds the epochs of a stream: give 1 or more, and stream "
                "with it"
            )
        if self.trigger_seconds < 0:
            raise JobError(f"a trigger of {self.trigger_seconds:g} seconds is none: it is 0 or more")

    def options(self) -> dict[str, str]:
        """For the source."""
        found = {
            "startingOffsets": self.starting_offsets,
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
        }
        if self.max_offsets_per_trigger is not None:
            found["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
            # PySpark before 4.2 does not show a Python source the trigger of its query.
            found["trigger"] = "processingTime"
        return found

    def trigger(self) -> dict[str, Any]:
        """For `DataStreamWriter.trigger`."""
        if self.stream:
            return {"processingTime": f"{self.trigger_seconds:g} seconds"}
        return {"availableNow": True}


class Written(Protocol):
    """The table that a query writes."""

    name: str
    files: Files
    """Files of the state."""
    state: str

    def content(self) -> str | None:
        """A name of some visible content of the table, None if it is empty."""
        ...


class DirectoryTable:
    """A table that is a directory of files."""

    def __init__(self, files: Files, name: str) -> None:
        self.files, self.name = files, name
        self.state = f"{name}/{STATE}"

    def content(self) -> str | None:
        names = (name for name in self.files.names(self.name) if not name.startswith(("_", ".")))
        return next(names, None)


@dataclass
class TableQuery:
    """`take` adds one epoch to the table; Spark calls it in its own thread, one epoch after the other."""

    job: str
    session: "SparkSession"
    topics: Topics
    table: Written
    take: "Callable[[DataFrame, int], None]"
    into: str | None = None
    """The target of the job, if it is not the table itself."""
    writing: Any = field(default_factory=threading.RLock)
    """Held by the thread that changes files of the table: Spark's, or the caller's."""
    is_over: bool = False
    failure: BaseException | None = None

    @contextmanager
    def held(self, about: Mapping[str, Any]) -> Iterator[None]:
        """Locks the table for this job; JobError for other settings than `about`, or without its
        checkpoint."""
        with self.table.files.lock(f"{self.table.state}/lock"):
            self._check(about)
            yield

    def run(self, pace: Pace, report_progress: Callable[[int | None], None], stop: threading.Event) -> Any:
        """Runs until all is read, or `stop` is set; `report_progress` is called with the lag now and then.

        Returns the query's last progress (None if it had no epoch).
        """
        try:
            last = None
            # Before PySpark 4.2 AvailableNow is one epoch for a Python source, and one that the run before
            # has planned and not finished would be all of this run.
            for _ in range(2 if self.epoch_begun() is not None and not pace.stream else 1):
                query = (
                    self.topics.stream(self.session, pace.options())
                    .writeStream.queryName(f"{self.job} {self.table.name}")
                    .option("checkpointLocation", f"{self.table.state}/checkpoint")
                    .foreachBatch(self._take)
                    .trigger(**pace.trigger())
                    .start()
                )
                self._follow(query, report_progress, stop)
                last = query.lastProgress or last
                if stop.is_set():
                    break
            with self.writing:
                self.is_over = True
            return last
        except Exception as error:
            cause = self.failure or error
            if isinstance(cause, JobError):
                raise cause from None
            into = self.into or self.table.name
            raise JobError(f"{self.job} of {self.topics} into {into} failed: {sentence_of(cause)}") from None

    def offsets_committed(self) -> dict[tuple[str, int], int]:
        """The offset after the last complete epoch in the checkpoint, by topic and partition."""
        number = self._last("commits")
        if number is None:
            return {}
        text = self.table.files.read_text(f"{self.table.state}/checkpoint/offsets/{number}") or ""
        # A version, Spark's metadata of the epoch, and the offsets of each source.
        return _flat(json.loads(text.splitlines()[2]))

    def epoch_begun(self) -> int | None:
        """The epoch that the run before has planned but not completed: the first of the next run."""
        planned = self._last("offsets")
        return None if planned == self._last("commits") else planned

    def _last(self, kind: str) -> int | None:
        """The highest number of an epoch in a log of the checkpoint."""
        names = self.table.files.names(f"{self.table.state}/checkpoint/{kind}")
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _take(self, batch: "DataFrame", number: int) -> None:
        try:
            with self.writing:
                if self.is_over:
                    raise JobError("the job has ended")
                # On from PySpark 4.2 on, for a stream without states: of an epoch without rows it leaves the
                # observation out with the rest of the plan, and its numbers are what the job counts.
                batch.sparkSession.conf.set(ADAPTIVE, "false")
                self.take(batch, number)
        except BaseException as error:
            self.failure = error
            raise

    def _follow(
        self, query: "StreamingQuery", report_progress: Callable[[int | None], None], stop: threading.Event
    ) -> None:
        while query.isActive:
            if stop.wait(POLL_S):
                query.stop()
                return
            report_progress(_rows_behind(query.lastProgress))
        query.awaitTermination()

    def _check(self, about: Mapping[str, Any]) -> None:
        files, state, table = self.table.files, self.table.state, self.table.name
        path = f"{state}/{self.job}.json"
        wanted = {
            "topics": sorted(set(self.topics.names)),
            "pattern": self.topics.pattern,
            "isolation": self.topics.isolation,
            **about,
        }
        content = self.table.content()
        before = read_note(files, path)
        if before is None:
            if content is not None:
                raise JobError(
                    f"{table} has files that no {self.job} wrote ({content}): give it a table of its own"
                )
            files.write_new(path, json.dumps(wanted))
            return
        for name, now in wanted.items():
            if before.get(name) != now:
                raise JobError(
                    f"the table at {table} was made with {name} {_shown(before.get(name))}, and not "
                    f"{_shown(now)}: use that, or another table"
                )
        checkpoint = f"{state}/checkpoint"
        if content is not None and not files.exists(f"{checkpoint}/metadata"):
            raise JobError(
                f"the checkpoint {checkpoint} is gone, and only it shows which records of the topics are in "
                "the table: bring it back, or use another table"
            )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}…"


def _offsets(progress: Any, name: str) -> dict[tuple[str, int], int]:
    """The offsets in the first source's `startOffset`, `endOffset` or `latestOffset`."""
    if progress is None:
        return {}
    try:
        value = json.loads(progress.json)["sources"][0][name]
        return _flat(json.loads(value) if isinstance(value, str) else value)
    except (ValueError, LookupError, AttributeError):
        return {}


def _flat(by_topic: dict[str, dict[str, int]] | None) -> dict[tuple[str, int], int]:
    return {
        (topic, int(partition)): int(offset)
        for topic, offsets in (by_topic or {}).items()
        for partition, offset in offsets.items()
    }


def _rows_behind(progress: Any) -> int | None:
    latest, end = _offsets(progress, "latestOffset"), _offsets(progress, "endOffset")
    if not latest:
        return None
    return sum(max(0, offset - end.get(key, 0)) for key, offset in latest.items())


def offsets_reached(progress: Any) -> list[tuple[str, int, int]]:
    """(topic, partition, offset after the last row) of a query's last progress."""
    return sorted(
        (topic, partition, offset) for (topic, partition), offset in _offsets(progress, "endOffset").items()
    )
