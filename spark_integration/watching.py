"""Runs a batch of Spark in a thread, while the caller's thread shows its progress."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from odradek.client.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.2
T = TypeVar("T")


def watched(
    spark: "SparkSession",
    progress: Progress,
    doing: str,
    work: Callable[[], T],
    rows_done: Callable[[], int] | None = None,
    rows: int = 0,
) -> T:
    """The result of `work`; meanwhile `progress` shows the completed share of the running tasks,
    or, with `rows_done`, how many of `rows` are done.

    Ctrl-C ends the wait, and cancels the running jobs of this session's context.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def do() -> None:
        try:
            results.append(work())
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=do, name=f"odradek-spark {doing}", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL_S)
            if rows_done is None:
                progress.update(None, share=_share_done(spark), doing=doing)
            elif progress.is_due():
                done = rows_done()
                progress.update(done, lag=rows - done, doing=doing)
    except KeyboardInterrupt:
        spark.sparkContext.cancelAllJobs()
        raise
    if failures:
        raise failures[0]
    return results[0]


def _share_done(spark: "SparkSession") -> float | None:
    """The completed share of the tasks of running stages; None without a running stage."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    tasks = sum(stage.numTasks for stage in stages if stage is not None)
    done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
    return done / tasks if tasks else None
