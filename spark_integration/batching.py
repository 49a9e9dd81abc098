"""Record batches of Arrow columns, for the sink and the jobs: no Python object for a row.

A row with a partition goes there, a row with a key to the partition of Kafka's clients (murmur2), any other
row to a partition that changes after every `batch_bytes`. Rows of one partition keep their order. A batch
exceeds `batch_bytes` only if it has a single row. Memory holds at most `memory_bytes` and the rows of one
step.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow

from odradek.spark._batching import EncodedRecords, RecordEncoder, RowRefused, Rows
from odradek.spark._batching import murmur2 as murmur2
from odradek.wire.compression import Compression
from odradek.wire.record_layout import HEADER_SIZE_BYTES, TRANSACTIONAL
from odradek.wire.records import batch_of_section

COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
"""The columns that are written; others are ignored, as in Spark's Kafka sink."""

BATCH_BYTES = 256 << 10
MEMORY_BYTES = 32 << 20
_STEP_BYTES = 4 << 20
_MOST_STEP_ROWS = 65_536


class RowsRefused(ValueError):
    """Rows that cannot be records; one sentence that names the column and the remedy."""


@dataclass(slots=True)
class RecordsBuffer:
    """Encoded rows of one partition: a record batch without the fields of its producer."""

    topic: str
    partition: int
    section: bytes
    record_count: int
    base_timestamp: int
    max_timestamp: int
    compression: Compression = Compression.NONE
    level: int | None = None

    @property
    def size_bytes(self) -> int:
        """Without compression."""
        return HEADER_SIZE_BYTES + len(self.section)

    def batch(
        self, *, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
    ) -> bytearray:
        """The record batch as it is sent."""
        return batch_of_section(
            self.section,
            self.record_count,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            attributes=TRANSACTIONAL if transactional else 0,
            compression=self.compression,
            level=self.level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )


class Batches:
    """Arrow record batches in, `RecordsBuffer`s out.

    `counts` returns the number of partitions of a topic, and refuses an unknown one. With `topic` all rows go
    there, whatever their column contains; without it each row goes to the topic in its column.
    `sticky_start` is the partition for the first rows without a key, modulo the topic's partitions.
    """

    def __init__(
        self,
        counts: Callable[[str], int],
        *,
        topic: str | None = None,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        memory_bytes: int = MEMORY_BYTES,
        sticky_start: int = 0,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        encoder: Callable[[int], Any] = RecordEncoder,
    ) -> None:
        self._counts, self._topic, self._now_ms = counts, topic, now_ms
        self._compression, self._level = compression, level
        self._memory_bytes, self._sticky_start = memory_bytes, sticky_start
        self._encoder = encoder(batch_bytes - HEADER_SIZE_BYTES)
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}

    @property
    def rows(self) -> int:
        """How many rows were added."""
        return int(self._encoder.rows)

    @property
    def checksum(self) -> int:
        """64 bits over topic, key, value and headers of the rows, and their partition and timestamp if
        present.

        The same rows have the same checksum in any order."""
        return int(self._encoder.checksum)

    @property
    def sample(self) -> list[int]:
        """The smallest 32 of the hashes whose sum the checksum is."""
        sample: list[int] = self._encoder.sample
        return sample

    def add(self, batch: pyarrow.RecordBatch) -> Iterator[RecordsBuffer]:
        """Adds the rows of `batch` step by step while the result is iterated; yields full buffers.

        Raises RowsRefused for a row that cannot be a record, and the errors of `counts`.
        """
        rows_a_step = _STEP_BYTES * batch.num_rows // max(1, batch.nbytes)
        rows_a_step = min(max(1, rows_a_step), _MOST_STEP_ROWS)
        for start in range(0, batch.num_rows, rows_a_step):
            for encoded in self._encode(batch.slice(start, rows_a_step)):
                yield self._buffer(encoded)
            if self._encoder.held_bytes > self._memory_bytes:
                yield from self.drain()

    def drain(self) -> Iterator[RecordsBuffer]:
        """The remaining buffers, partition after partition."""
        for encoded in self._encoder.drain():
            yield self._buffer(encoded)

    def _encode(self, batch: pyarrow.RecordBatch) -> list[EncodedRecords]:
        names = batch.schema.names
        columns = {name: batch.column(names.index(name)) for name in COLUMNS if name in names}
        topics = None
        if self._topic is not None:
            self._number(self._topic)
        elif "topic" in columns:
            topics = self._topic_numbers(columns["topic"])
        else:
            raise RowsRefused('the rows have no column "topic": add one, or give the option topic')
        rows = Rows(
            row_count=batch.num_rows,
            topics=topics,
            partitions=_cast(columns, "partition", pyarrow.int32()),
            keys=_binary(columns, "key"),
            values=_binary(columns, "value"),
            timestamps=_microseconds(columns),
            headers=_headers(columns),
        )
        try:
            full: list[EncodedRecords] = self._encoder.add(rows, self._now_ms())
        except RowRefused as refused:
            raise RowsRefused(self._sentence(refused, columns)) from None
        return full

    def _number(self, topic: str) -> int:
        number = self._numbers.get(topic)
        if number is None:
            seed = int.from_bytes(hashlib.blake2b(topic.encode(), digest_size=8).digest(), "little")
            number = self._encoder.add_topic(self._counts(topic), seed, self._sticky_start)
            self._numbers[topic] = number
            self._names.append(topic)
        return number

    def _topic_numbers(self, column: pyarrow.Array) -> pyarrow.Array:
        dictionary = column.cast(pyarrow.string()).dictionary_encode()
        numbers = [None if name is None else self._number(name) for name in dictionary.dictionary.to_pylist()]
        return pyarrow.array(numbers, pyarrow.int32()).take(dictionary.indices)

    def _buffer(self, encoded: EncodedRecords) -> RecordsBuffer:
        return RecordsBuffer(
            self._names[encoded.topic],
            encoded.partition,
            encoded.section,
            encoded.record_count,
            encoded.base_timestamp,
            encoded.max_timestamp,
            self._compression,
            self._level,
        )

    def _sentence(self, refused: RowRefused, columns: dict[str, pyarrow.Array]) -> str:
        if refused.what == "topic":
            return "a row has null as its topic: fill the column, or give the option topic for all rows"
        topic = self._topic
        if topic is None:
            topic = columns["topic"][refused.row].as_py()
        if refused.what == "header":
            return f"a row for topic {topic} has a header without a key: every header needs one"
        number = columns["partition"][refused.row].as_py()
        return (
            f"a row names partition {number} of topic {topic}, which has {self._counts(topic)}: "
            "numbers begin at 0; leave the partition null to have one chosen"
        )


def _cast(columns: dict[str, pyarrow.Array], name: str, kind: pyarrow.DataType) -> pyarrow.Array | None:
    column = columns.get(name)
    if column is None or column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pyarrow.ArrowException as error:
        raise RowsRefused(f'the column "{name}" cannot be written: {error}') from None


def _binary(columns: dict[str, pyarrow.Array], name: str) -> pyarrow.Array | None:
    return _cast(columns, name, pyarrow.binary())


def _microseconds(columns: dict[str, pyarrow.Array]) -> pyarrow.Array | None:
    column = columns.get("timestamp")
    if column is None:
        return None
    if not pyarrow.types.is_timestamp(column.type):
        raise RowsRefused(f'the column "timestamp" has the type {column.type}: cast it to a timestamp')
    return column.cast(pyarrow.timestamp("us", column.type.tz)).cast(pyarrow.int64())


def _headers(columns: dict[str, pyarrow.Array]) -> pyarrow.Array | None:
    column = columns.get("headers")
    if column is None or pyarrow.types.is_null(column.type):
        return None
    kind = column.type
    is_list = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    if not is_list or not pyarrow.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        raise RowsRefused(
            f'the column "headers" has the type {kind}: it has to be array<struct<key:string,value:binary>>'
        )
    fields = [field.with_type(pyarrow.binary()) for field in kind.value_type]
    if kind.value_type.field(0).type == pyarrow.string():
        fields[0] = kind.value_type.field(0)  # the same bytes in the same places
    return _cast(columns, "headers", pyarrow.list_(pyarrow.field("element", pyarrow.struct(fields))))
