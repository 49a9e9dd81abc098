"""A table of Apache Iceberg that gets each epoch once, with Iceberg's own runtime for Spark.

An epoch is one append, which readers see as a whole or not at all. The summary of its snapshot has the
epoch's number (`odradek.epoch`). A killed run may have appended an epoch that Spark's checkpoint does not
have yet, and Spark then runs it again. So the first epoch of a run is searched in the current snapshot and
the ones before, and skipped if it is there. If snapshots have expired, a row of the epoch is searched
instead.

The state of the job is in `_odradek/ID` in the table's location, or in a given directory. ID is the id of the
table, so that a table that was dropped and created again begins anew.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from odradek.spark.jobs.compaction import SizeRules
from odradek.spark.jobs.errors import JobError, sentence_of
from odradek.spark.jobs.files import open_files
from odradek.spark.jobs.jars import need_jar
from odradek.spark.jobs.publishing import STATE, Epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = "odradek.epoch"
"""Property in the summary of a snapshot."""
RUNTIME = "1.10.1"
"""The version of Iceberg in the error for a missing jar."""
CODECS = {"none": "uncompressed"}
"""Codecs with another name in Iceberg."""


def need_iceberg(spark: "SparkSession") -> None:
    """JobError if Spark does not have Iceberg's runtime."""
    version = ".".join(spark.version.split(".")[:2])
    coordinates = f"org.apache.iceberg:iceberg-spark-runtime-{version}_2.13:{RUNTIME}"
    need_jar(spark, "org.apache.iceberg.spark.SparkCatalog", "table format iceberg", coordinates)


class IcebergTable:
    """The table `name` (`catalog.namespace.name`), created with these columns if it is missing.

    `rules` are for compaction, None for no compaction; `checkpoint` is the directory of the state, None for
    the table's location. JobError if the table cannot be opened or created.
    """

    def __init__(
        self,
        session: "SparkSession",
        name: str,
        columns: "DataFrame",
        compression: str,
        rules: SizeRules | None,
        checkpoint: str | None,
    ) -> None:
        need_iceberg(session)
        self.name = name
        self._session, self._compression, self._rules = session, compression, rules
        self._table = self._opened(columns)
        self._is_first = True
        location = checkpoint.rstrip("/") if checkpoint is not None else f"{self._table.location()}/{STATE}"
        self.state = f"{location}/{self._table.uuid()}"
        try:
            self.files = open_files(session, self.state)
        except Exception as error:
            raise JobError(
                f"the checkpoint of table {name} cannot be at {self.state} ({sentence_of(error)}): name a "
                "directory for it, with the option checkpoint"
            ) from None

    @property
    def is_compacted(self) -> bool:
        return self._rules is not None

    def content(self) -> str | None:
        """A snapshot with rows, or with an epoch (which may have no rows)."""
        for snapshot in self._snapshots():
            summary = snapshot.summary()
            if EPOCH in summary or int(summary.get("total-records") or 0):
                return f"snapshot {snapshot.snapshotId()}"
        return None

    def remove_leftovers(self) -> None:
        """Nothing: Iceberg's `remove_orphan_files` finds the files of incomplete appends."""

    def has(self, number: int, batch: "DataFrame") -> bool:
        """Whether an earlier run has appended the epoch; only possible for the first epoch of a run."""
        is_first, self._is_first = self._is_first, False
        return is_first and self._is_appended(number, batch)

    def publish(self, number: int, rows: "DataFrame", count: Callable[[], int]) -> Epoch:
        writer = rows.writeTo(self.name).option(f"snapshot-property.{EPOCH}", str(number))
        writer.option("compression-codec", CODECS.get(self._compression, self._compression)).append()
        summaries = (one.summary() for one in self._snapshots())
        summary: Any = next((one for one in summaries if one.get(EPOCH) == str(number)), {})
        files, size_bytes = (int(summary.get(name) or 0) for name in ("added-data-files", "added-files-size"))
        return Epoch(number, "", count(), size_bytes, [("", "")] * files)

    def compact(self) -> int:
        """Iceberg's compaction: a snapshot with large files replaces one with small files."""
        if self._rules is None:
            return 0
        self._table.refresh()
        actions = self._session._jvm.org.apache.iceberg.spark.actions.SparkActions  # type: ignore[union-attr]
        action = actions.get(self._session._jsparkSession).rewriteDataFiles(self._table)
        for name, value in (
            ("min-file-size-bytes", self._rules.small_bytes),
            ("target-file-size-bytes", self._rules.target_bytes),
            ("min-input-files", max(2, self._rules.files_min)),
        ):
            action = action.option(name, str(value))
        return int(action.execute().rewrittenDataFilesCount())

    def _opened(self, columns: "DataFrame") -> Any:
        from pyspark.sql import functions as f

        try:
            if not self._session.catalog.tableExists(self.name):
                partitioned = columns.writeTo(self.name).using("iceberg")
                partitioned.partitionedBy(f.col("topic"), f.partitioning.days("timestamp")).create()
            util = self._session._jvm.org.apache.iceberg.spark.Spark3Util  # type: ignore[union-attr]
            return util.loadIcebergTable(self._session._jsparkSession, self.name)
        except Exception as error:
            raise JobError(
                f"the Iceberg table {self.name} cannot be opened or made ({sentence_of(error)}): it is "
                "CATALOG.NAMESPACE.NAME, and Spark needs the settings of its catalog: --conf "
                "spark.sql.catalog.CATALOG=org.apache.iceberg.spark.SparkCatalog and what else that needs"
            ) from None

    def _snapshots(self) -> Iterator[Any]:
        """The current snapshot and the ones before it that have not expired."""
        self._table.refresh()
        snapshot = self._table.currentSnapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parentId()
            snapshot = None if parent is None else self._table.snapshot(parent)

    def _is_appended(self, number: int, batch: "DataFrame") -> bool:
        last = None
        for last in self._snapshots():
            epoch = last.summary().get(EPOCH)
            if epoch is not None:
                # The snapshots before it have lower numbers.
                return bool(int(epoch) >= number)
        if last is None or last.parentId() is None:
            return False
        return self._has_row_of(batch)

    def _has_row_of(self, batch: "DataFrame") -> bool:
        """Whether the table has a row of the epoch: one is enough, because an append is atomic."""
        from pyspark.sql import functions as f

        row = batch.select("topic", "partition", "offset").head()
        if row is None:
            return False
        same = [f.col(name) == f.lit(row[name]) for name in ("topic", "partition", "offset")]
        return not self._session.table(self.name).where(same[0] & same[1] & same[2]).isEmpty()
