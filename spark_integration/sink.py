"""Spark's writers for `format("odradek")`.

A batch write is at least once, and exactly once with the option `writeId`; a stream is exactly once. Each
task calls `writing.write`. A stream's task reads its query and epoch from the local properties that Spark
sets for every micro-batch. The id of the query is in its checkpoint, so it is the same after a restart.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from odradek.spark.batching import COLUMNS
from odradek.spark.options import refuse
from odradek.spark.write_options import WriteOptions, write_options
from odradek.spark.writing import Outcome, Task, finish_epoch, write

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

QUERY_PROPERTY = "sql.streaming.queryId"
EPOCH_PROPERTY = "streaming.sql.batchId"
BATCH_EPOCH = 0
RUN_LENGTH = 8
"""Spark makes a writer for each run of each epoch; its tasks and their retries share it."""

_BYTES = ("binary", "string")
TYPES = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Column -> its possible types in Spark's DDL."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `df.write.format("odradek")`; OptionError for a write that is not possible."""
    if overwrite:
        refuse('format("odradek") only appends: a topic is not overwritten; use mode("append")')
    wanted = write_options(options, is_stream=False)
    check_schema(schema, wanted)
    return BatchWriter(wanted)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `df.writeStream.format("odradek")`; every output mode appends its rows."""
    wanted = write_options(options, is_stream=True)
    check_schema(schema, wanted)
    return StreamWriter(wanted)


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """Refuses rows that cannot become records."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in types:
        refuse(f'the rows have no column "value": they have {", ".join(types) or "none"}')
    if options.topic is None and "topic" not in types:
        refuse('no topic is named: give the option topic, or a column "topic"')
    for name in COLUMNS:
        if name in types and types[name] not in TYPES[name]:
            refuse(f'the column "{name}" is {types[name]}: cast it to {" or ".join(TYPES[name])}')


@dataclass
class Written(WriterCommitMessage):
    """The message of a task to the driver."""

    outcome: Outcome


class BatchWriter(DataSourceArrowWriter):
    """One batch write."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._run = uuid.uuid4().hex[:RUN_LENGTH]

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        task = None
        if self._options.write_id is not None:
            task = Task(self._options.write_id, BATCH_EPOCH, _context().partitionId(), self._run)
        return Written(write(self._options, whole(iterator), task))

    def commit(self, messages: Sequence[Any]) -> None:
        _finish(self._options, messages)


if hasattr(datasource, "DataSourceStreamArrowWriter"):  # from Spark 4.1 on
    _STREAM_BASES: tuple[type, ...] = (datasource.DataSourceStreamArrowWriter,)
else:  # 4.0 passes Arrow batches to every Arrow writer, also of streams
    _STREAM_BASES = (DataSourceStreamWriter, DataSourceArrowWriter)


class StreamWriter(*_STREAM_BASES):  # type: ignore[misc]
    """The sink of one stream."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._run = uuid.uuid4().hex[:RUN_LENGTH]

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        context = _context()
        query = context.getLocalProperty(QUERY_PROPERTY)
        epoch = context.getLocalProperty(EPOCH_PROPERTY)
        if not query or epoch is None:
            refuse(
                'Spark sets no epoch for the tasks of this query, so that format("odradek") cannot '
                "write it exactly once: use a trigger of micro-batches (processingTime, availableNow)"
            )
        task = Task(query, int(epoch), context.partitionId(), self._run)
        return Written(write(self._options, whole(iterator), task))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        _finish(self._options, messages)


class InputCutOff(RuntimeError):
    """The input of this task has failed; Spark reports the reason."""


def whole(rows: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """The rows; InputCutOff if they end early.

    If the computation of the rows fails, Spark closes the stream to Python. An Arrow stream that is closed
    between two batches looks complete, and its rows would be committed (tried on 4.0). After a real end Spark
    writes an end mark.
    """
    yield from rows
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        source = frame.f_locals.get("infile")  # a local of `pyspark.worker.main`, not passed on
        if source is not None and hasattr(source, "peek"):
            if not source.peek(1):
                raise InputCutOff("the rows of this task were cut off, so that none of them is written")
            return
        frame = frame.f_back
    raise RuntimeError(f"format odradek cannot see where rows end in PySpark {pyspark.__version__}")


def _finish(options: WriteOptions, messages: Sequence[Any]) -> None:
    finish_epoch(options, [message.outcome for message in messages if message is not None])


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None  # a writer is only called in a task
    return context
