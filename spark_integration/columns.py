"""Record batches into Arrow batches with the columns of Spark's Kafka source.

    builder = ColumnBuilder(["key", "value"], topic="orders", read_committed=True, start=0, end=1000)
    builder.add(fetched.buffer, partition, fetched.aborted)
    while (batch := builder.take()) is not None:
        yield batch

The columns and their types are those of `format("kafka")`; with `metadata` also the producer and codec of a
batch. Left out are control records, records outside of [start, end) and, with `read_committed`, aborted
records. The compiled `_columns` copies the records.
"""

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

import pyarrow as pa

from odradek.client.client_error import ClientError
from odradek.spark._columns import BytesColumn, HeadersColumn, RecordColumns, TakenColumns
from odradek.wire._records import BatchHeader, read_batch_header
from odradek.wire.aborted import Aborting
from odradek.wire.compression import DEFAULT_LIMIT_BYTES, Compression, decompress
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import batch_of_stored, iter_messages, stored_messages
from odradek.wire.record_layout import HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES, MAGIC_POSITION, MAGIC_V2, Record
from odradek.wire.records import build_batch, records_section, verify_crc
from odradek.wire.records import iter_records as read_all_records

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", HEADER_TYPE))),
    ]
)
"""The columns of Spark's Kafka source (`KafkaRecordToRowConverter.scala`), in its order."""
COLUMNS = tuple(SCHEMA.names)

METADATA_SCHEMA = pa.schema(
    [
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int32()),
        ("transactionState", pa.string()),
        ("codec", pa.string()),
        ("leaderEpoch", pa.int32()),
    ]
)
"""Values of the batch of a record. Null if it has no producer, no transaction, no leader
epoch.
"""
METADATA_COLUMNS = tuple(METADATA_SCHEMA.names)

BATCH_ROWS = 1 << 20
BATCH_BYTES = 64 << 20
"""An Arrow batch is closed when it has reached one of these."""
MICROSECONDS = 1000
"""In one of Kafka's milliseconds."""
_INT64 = range(-(2**63), 2**63)
SECTION_BYTES_MAX = 1 << 30
"""Bound of one record batch; Arrow's columns of bytes end at 2 GiB, and an Arrow batch has room for one
more."""
CODECS = {int(codec): codec.name.lower() for codec in Compression}

_SIZE = Struct(">i")
NO_TIMESTAMP_TYPE = -1
"""The timestampType of format v0, whose messages have no timestamp."""


class CorruptRecords(ClientError):
    """Unsound bytes in a log or a response; `code` is CORRUPT_MESSAGE, INVALID_RECORD or the like."""


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The schema of the named columns in that order; ClientError for an unknown or repeated name."""
    names = (*COLUMNS, *METADATA_COLUMNS)
    for name in columns:
        if name not in names:
            raise ClientError(f"there is no column {name!r}: there are {', '.join(names)}")
    if len(set(columns)) != len(columns) or not columns:
        raise ClientError(f"the columns {', '.join(columns) or '(none)'} have to be one or more, each once")
    return pa.schema([_field(name) for name in columns])


def _field(name: str) -> pa.Field:
    return SCHEMA.field(name) if name in COLUMNS else METADATA_SCHEMA.field(name)


class _Run(NamedTuple):
    """The values that all records of a batch share."""

    partition: int
    timestamp_type: int
    producer_id: int | None
    producer_epoch: int | None
    transaction_state: str | None
    codec: str
    leader_epoch: int | None


_RUN_FIELDS = {
    "partition": "partition",
    "timestampType": "timestamp_type",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "transactionState": "transaction_state",
    "codec": "codec",
    "leaderEpoch": "leader_epoch",
}


class ColumnBuilder:
    """Gathers the columns of record batches of one topic.

    `columns` are names of `COLUMNS`, with `metadata` followed by all of `METADATA_COLUMNS` (or some are
    named). Offsets below `start` and from `end` on are left out; None is no bound.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        topic: str,
        read_committed: bool,
        start: int | None = None,
        end: int | None = None,
        metadata: bool = False,
        check_crcs: bool = True,
    ) -> None:
        named = [*columns, *(name for name in METADATA_COLUMNS if metadata and name not in columns)]
        self.schema = schema_of(named)
        self._topic = topic
        self._read_committed = read_committed
        self._start = -(2**63) if start is None else start
        self._end = 2**63 - 1 if end is None else end
        self._check_crcs = check_crcs
        self._has_metadata = any(name in METADATA_COLUMNS for name in named)
        self._records = RecordColumns(
            keys="key" in named,
            values="value" in named,
            offsets="offset" in named,
            timestamps="timestamp" in named,
            headers="headers" in named,
        )
        self._has_timestamps = "timestamp" in named
        self._runs: list[_Run] = []
        self._run_ends: list[int] = []
        self._closed: list[pa.RecordBatch] = []

    @property
    def rows(self) -> int:
        """The number of rows of the next `take`."""
        return self._closed[0].num_rows if self._closed else self._records.rows

    @property
    def size_bytes(self) -> int:
        """About the number of bytes that `take` has not returned yet."""
        closed_bytes: int = sum(batch.nbytes for batch in self._closed)
        return self._records.size_bytes + closed_bytes

    def add(
        self,
        buffer: Any,
        partition: int,
        aborted: Sequence[tuple[int, int]] = (),
        open_from: Mapping[int, int] | None = None,
    ) -> None:
        """Adds the whole batches in `buffer`; also messages of formats v0 and v1.

        `aborted` has (producer id, first offset) of every aborted transaction that reaches into `buffer`;
        `open_from` is the first offset of each producer's transaction without an end, for the column
        transactionState. `CorruptRecords` for an unsound batch; the batches before it are added.
        """
        aborting = Aborting(aborted)
        open_from = open_from or {}
        view = memoryview(buffer)
        for position, magic, size_bytes in _entries(view, self._topic, partition):
            try:
                if magic < MAGIC_V2:
                    self._add_legacy(view[position : position + size_bytes], partition)
                    continue
                header = read_batch_header(view, position)
                is_aborted = aborting.reaches(header)
                if header.is_control or (is_aborted and self._read_committed):
                    continue
                if header.last_offset < self._start or header.base_offset >= self._end:
                    continue
                if self._check_crcs:
                    verify_crc(view, position, header)
                state = _state(header, is_aborted, open_from) if self._has_metadata else None
                self._add_batch(view[position : position + header.size_bytes], header, partition, state)
            except KafkaError as error:
                raise _corrupt(self._topic, partition, view, position, error) from error

    def take(self) -> pa.RecordBatch | None:
        """The next gathered batch, or None. Call it until it returns None: batches are bounded."""
        if not self._closed:
            self._close()
        return self._closed.pop(0) if self._closed else None

    def _add_batch(
        self,
        batch: memoryview,
        header: BatchHeader,
        partition: int,
        state: str | None,
        timestamp_type: int | None = None,
    ) -> None:
        if header.record_count == 0:
            return
        if header.attributes & 7 == Compression.NONE:
            section: Any = batch[HEADER_SIZE_BYTES:]
        else:
            section = decompress(header.attributes & 7, batch[HEADER_SIZE_BYTES:], DEFAULT_LIMIT_BYTES)
        if len(section) > SECTION_BYTES_MAX:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {len(section)} bytes of records")
        before = self._records.rows
        if not self._records.add_section(section, header, self._start, self._end):
            section, header = self._validated(batch, header)
            if not self._records.add_section(section, header, self._start, self._end, True):
                raise KafkaError(ErrorCode.INVALID_RECORD, "the records are not sound")
        if self._records.rows > before:
            if timestamp_type is None:
                timestamp_type = int(header.uses_log_append_time)
            self._add_run(self._run_of(header, partition, state, timestamp_type))
            if self._records.rows >= BATCH_ROWS or self._records.size_bytes >= BATCH_BYTES:
                self._close()

    def _run_of(self, header: BatchHeader, partition: int, state: str | None, timestamp_type: int) -> _Run:
        if not self._has_metadata:
            return _Run(partition, timestamp_type, None, None, None, "", None)
        return _Run(
            partition,
            timestamp_type,
            header.producer_id if header.producer_id >= 0 else None,
            header.producer_epoch if header.producer_id >= 0 else None,
            state,
            CODECS[header.attributes & 7],
            header.leader_epoch if header.leader_epoch >= 0 else None,
        )

    def _validated(self, batch: memoryview, header: BatchHeader) -> tuple[bytes, BatchHeader]:
        """The records section anew, with names of headers that are UTF-8, and its header.

        Refuses unsound records, and timestamps that do not fit Spark's type.
        """
        records = [one for one in read_all_records(batch, header) if self._start <= one.offset < self._end]
        for record in records:
            if self._has_timestamps and MICROSECONDS * record.timestamp not in _INT64:
                raise KafkaError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"the record at offset {record.offset} has the timestamp {record.timestamp}, which in "
                    f"microseconds (times {MICROSECONDS}) exceeds 64 bits; read without the column timestamp",
                )
        return _rebuilt([record._replace(headers=_java_names(record)) for record in records], header)

    def _add_legacy(self, message: memoryview, partition: int) -> None:
        for outer in iter_messages(message):
            if outer.offset >= self._start:
                batch = memoryview(batch_of_stored(stored_messages(outer), outer))
                timestamp_type = None if outer.magic else NO_TIMESTAMP_TYPE
                self._add_batch(batch, read_batch_header(batch), partition, None, timestamp_type)

    def _add_run(self, run: _Run) -> None:
        if self._runs and self._runs[-1] == run:
            self._run_ends[-1] = self._records.rows
        else:
            self._runs.append(run)
            self._run_ends.append(self._records.rows)

    def _close(self) -> None:
        if self._records.rows:
            taken = self._records.take()
            arrays = [self._array(name, taken) for name in self.schema.names]
            self._closed.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
            self._runs, self._run_ends = [], []

    def _array(self, name: str, taken: TakenColumns) -> pa.Array:
        if name == "key":
            return _bytes_array(pa.binary(), taken.rows, taken.keys)
        if name == "value":
            return _bytes_array(pa.binary(), taken.rows, taken.values)
        if name == "offset":
            return pa.Array.from_buffers(pa.int64(), taken.rows, [None, pa.py_buffer(taken.offsets)], 0)
        if name == "timestamp":
            buffers = [None, pa.py_buffer(taken.timestamps)]
            return pa.Array.from_buffers(SCHEMA.field(name).type, taken.rows, buffers, 0)
        if name == "headers":
            return _headers_array(taken.rows, taken.headers)
        if name == "topic":
            return pa.repeat(pa.scalar(self._topic, pa.string()), taken.rows)
        return self._run_array(self.schema.field(name).type, _RUN_FIELDS[name])

    def _run_array(self, kind: pa.DataType, field: str) -> pa.Array:
        values = [getattr(run, field) for run in self._runs]
        if values.count(values[0]) == len(values):
            return pa.repeat(pa.scalar(values[0], kind), self._run_ends[-1])
        from pyarrow.compute import run_end_decode

        ends = pa.array(self._run_ends, pa.int32())
        encoded = pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind))
        return run_end_decode(encoded)


# Batches ----------------------------------------------------------------------------------------------


def _entries(view: memoryview, topic: str, partition: int) -> Iterator[tuple[int, int, int]]:
    """Position, magic and size of each whole batch or message."""
    position, size_bytes = 0, len(view)
    while size_bytes - position > MAGIC_POSITION:
        (length,) = _SIZE.unpack_from(view, position + 8)
        whole_bytes = LOG_OVERHEAD_BYTES + length
        magic = view[position + MAGIC_POSITION]
        if whole_bytes <= MAGIC_POSITION or magic > MAGIC_V2:
            why = f"a batch of {whole_bytes} bytes with the magic {magic}, which no format has"
            raise _corrupt(topic, partition, view, position, KafkaError(ErrorCode.CORRUPT_MESSAGE, why))
        if whole_bytes > size_bytes - position:
            return
        yield position, magic, whole_bytes
        position += whole_bytes


def _state(header: BatchHeader, is_aborted: bool, open_from: Mapping[int, int]) -> str | None:
    if not header.is_transactional:
        return None
    if is_aborted:
        return "aborted"
    opened = open_from.get(header.producer_id)
    return "open" if opened is not None and opened <= header.base_offset else "committed"


def _corrupt(
    topic: str, partition: int, view: memoryview, position: int, error: KafkaError
) -> CorruptRecords:
    offset = int.from_bytes(view[position : position + 8], "big", signed=True)
    return CorruptRecords(
        f"topic {topic}, partition {partition}, the batch at offset {offset} cannot be read: {error.message}",
        error.code,
    )


def _java_names(record: Record) -> tuple[tuple[str, bytes | None], ...]:
    """The record's headers, with names as Java reads them: invalid UTF-8 is replaced."""
    return tuple(
        (name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value)
        for name, value in record.headers
    )


def _rebuilt(records: list[Record], header: BatchHeader) -> tuple[bytes, BatchHeader]:
    append_time = header.max_timestamp if header.uses_log_append_time else None
    try:
        batch = build_batch(records, base_offset=header.base_offset, log_append_time_ms=append_time)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    rebuilt = read_batch_header(batch)
    rebuilt.producer_id, rebuilt.producer_epoch = header.producer_id, header.producer_epoch
    rebuilt.attributes, rebuilt.leader_epoch = header.attributes, header.leader_epoch
    return records_section(batch, read_batch_header(batch)), rebuilt


# Arrow ------------------------------------------------------------------------------------------------


def _bytes_array(kind: pa.DataType, rows: int, column: BytesColumn | None) -> pa.Array:
    assert column is not None
    validity = pa.py_buffer(column.validity) if column.nulls else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, column.nulls)


def _headers_array(rows: int, column: HeadersColumn | None) -> pa.Array:
    assert column is not None
    names = _bytes_array(pa.string(), column.total, column.names)
    values = _bytes_array(pa.binary(), column.total, column.values)
    headers = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    validity = pa.py_buffer(column.validity) if column.nulls else None
    buffers = [validity, pa.py_buffer(column.offsets)]
    return pa.Array.from_buffers(
        SCHEMA.field("headers").type, rows, buffers, column.nulls, children=[headers]
    )
