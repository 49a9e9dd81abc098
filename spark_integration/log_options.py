"""The options for reading segment files, with the names of Spark's Kafka source where it has them.

`read_log_options` makes `LogOptions` of Spark's options, or raises `OptionError`: one sentence with the
option and the remedy. No file is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odradek.spark import options as kafka_options
from odradek.spark.options import Assigned, Bound, GivenOptions, Matching, Subscribed, refuse

FORMAT = "odradek-log"

METADATA_COLUMNS = {
    "producerId": "BIGINT",
    "producerEpoch": "INT",
    "transactionState": "STRING",
    "codec": "STRING",
    "leaderEpoch": "INT",
}
"""Column -> its type in Spark's DDL: values of a batch for its records."""

COLUMNS = {**kafka_options.COLUMNS, **METADATA_COLUMNS}

_REASONS = {
    "kafka.bootstrap.servers": "files are read without a broker; remove it, or use format('odradek')",
    "minPartitions": "tasks are made by their bytes; remove it, or use maxBytesPerPartition",
    "maxRecordsPerPartition": "tasks are made by their bytes; remove it, or use maxBytesPerPartition",
}

MAX_BYTES_PER_PARTITION = 128 << 20
"""Default of Spark for files (`spark.sql.files.maxPartitionBytes`)."""


@dataclass(frozen=True)
class LogOptions:
    """The options of a read of segment files."""

    paths: tuple[str, ...]
    """Data directories, or directories of single partitions."""
    subscription: Subscribed | Matching | Assigned | None
    """None: every topic whose name does not begin with `__`."""
    start: Bound
    end: Bound
    columns: tuple[str, ...]
    read_committed: bool
    check_crcs: bool
    max_bytes_per_partition: int
    """A task reads at most so much of a segment, unless a batch is larger."""
    push_filters: bool
    """Whether a `where` becomes part of the plan, with the consequences that `log_source.py` describes."""


def read_log_options(options: Mapping[str, Any]) -> LogOptions:
    """The user's options, parsed; OptionError for an option that is wrong or unknown."""
    given = GivenOptions(options)
    subscription, start, end = kafka_options.batch_range(given)
    read = LogOptions(
        paths=_paths(given),
        subscription=subscription,
        start=start,
        end=end,
        columns=_columns(given),
        read_committed=given.one_of(
            "kafka.isolation.level", {"read_committed": True, "read_uncommitted": False}, False
        ),
        check_crcs=given.boolean("kafka.check.crcs", True),
        max_bytes_per_partition=given.number("maxBytesPerPartition") or MAX_BYTES_PER_PARTITION,
        push_filters=given.boolean("pushFilters", False),
    )
    given.refuse_rest(FORMAT, _REASONS)
    return read


def read_log_columns(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of these options; the others are not checked."""
    return _columns(GivenOptions(options))


def _paths(given: GivenOptions) -> tuple[str, ...]:
    text = given.text("path") or ""
    paths = tuple(part.strip().removeprefix("file://") for part in text.split(",") if part.strip())
    return paths or refuse("path is missing: call load(...) with the data directories of a broker (log.dirs)")


def _columns(given: GivenOptions) -> tuple[str, ...]:
    include_headers = given.boolean("includeHeaders", False)
    include_metadata = given.boolean("includeMetadata", True)
    text = given.text("columns")
    if text is not None:
        return kafka_options.named_columns(text, COLUMNS)
    return tuple(
        name
        for name in COLUMNS
        if (include_headers or name != "headers") and (include_metadata or name not in METADATA_COLUMNS)
    )
