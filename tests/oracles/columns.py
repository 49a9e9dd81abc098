"""What `odradek.spark._columns` has to make of records, in plain Python."""

from array import array
from collections.abc import Iterable
from typing import Any

from odradek.spark._columns import BytesColumn, HeadersColumn, TakenColumns
from odradek.spark.columns import MICROSECONDS
from odradek.wire.errors import KafkaError
from odradek.wire.records import BatchHeader, Record
from tests.oracles.records import read_records

_INT64 = range(-(2**63), 2**63)


class RecordColumns:
    """Gathers the columns that are wanted of one records section after the other."""

    def __init__(self, *, keys: bool, values: bool, offsets: bool, timestamps: bool, headers: bool) -> None:
        self._wanted = keys, values, offsets, timestamps, headers
        self._begin()

    def _begin(self) -> None:
        keys, values, offsets, timestamps, headers = self._wanted
        self.rows = 0
        self._keys = _Bytes() if keys else None
        self._values = _Bytes() if values else None
        self._offsets = array("q") if offsets else None
        self._timestamps = array("q") if timestamps else None
        self._headers = _Headers() if headers else None

    @property
    def size_bytes(self) -> int:
        """How many bytes the columns have, without the bitmaps."""
        parts = [self._keys, self._values, self._headers]
        numbers = [self._offsets, self._timestamps]
        return sum(part.size_bytes for part in parts if part is not None) + sum(
            8 * len(part) for part in numbers if part is not None
        )

    def add_section(
        self, section: Any, header: BatchHeader, start: int, end: int, names_checked: bool = False
    ) -> bool:
        """Takes the records of [start, end) of a batch's records section, which is not compressed (any more).

        False, and nothing is taken, if the section is not sound, or if it has what has to be looked at: a
        timestamp beyond 64 bits of microseconds or, unless `names_checked`, a header's name that is not
        ASCII.
        """
        try:
            records = read_records(bytes(section), header)
        except KafkaError:
            return False
        if self._headers is not None and not names_checked and not all(map(_has_ascii_names, records)):
            return False
        if self._timestamps is not None and not all(has_microseconds(record) for record in records):
            return False
        self._add(record for record in records if start <= record.offset < end)
        return True

    def _add(self, records: Iterable[Record]) -> None:
        for offset, timestamp, key, value, headers in records:
            self.rows += 1
            if self._keys is not None:
                self._keys.add(key)
            if self._values is not None:
                self._values.add(value)
            if self._offsets is not None:
                self._offsets.append(offset)
            if self._timestamps is not None:
                self._timestamps.append(MICROSECONDS * timestamp)
            if self._headers is not None:
                self._headers.add(headers)

    def take(self) -> TakenColumns:
        """What was gathered; after that there is nothing."""
        taken = TakenColumns(
            self.rows,
            None if self._keys is None else self._keys.taken(),
            None if self._values is None else self._values.taken(),
            self._offsets,
            self._timestamps,
            None if self._headers is None else self._headers.taken(),
        )
        self._begin()
        return taken


def has_microseconds(record: Record) -> bool:
    """Whether the record's timestamp fits into 64 bits of microseconds."""
    return MICROSECONDS * record.timestamp in _INT64


def _has_ascii_names(record: Record) -> bool:
    return all(name.isascii() for name, _ in record.headers)


class _Validity:
    """A bitmap that says which rows are there."""

    def __init__(self) -> None:
        self.bits = bytearray()
        self.nulls = 0
        self._rows = 0

    def add(self, is_there: bool) -> None:
        if self._rows & 7 == 0:
            self.bits.append(0)
        if is_there:
            self.bits[-1] |= 1 << (self._rows & 7)
        else:
            self.nulls += 1
        self._rows += 1


class _Bytes:
    def __init__(self) -> None:
        self._validity = _Validity()
        self._offsets = array("i", [0])
        self._data = bytearray()

    @property
    def size_bytes(self) -> int:
        return len(self._data) + 4 * len(self._offsets)

    def add(self, value: bytes | None) -> None:
        self._validity.add(value is not None)
        self._data += value or b""
        self._offsets.append(len(self._data))

    def taken(self) -> BytesColumn:
        return BytesColumn(self._validity.bits, self._validity.nulls, self._offsets, self._data)


class _Headers:
    def __init__(self) -> None:
        self._validity = _Validity()
        self._offsets = array("i", [0])
        self._names = _Bytes()
        self._values = _Bytes()

    @property
    def size_bytes(self) -> int:
        return 4 * len(self._offsets) + self._names.size_bytes + self._values.size_bytes

    def add(self, headers: Iterable[tuple[str, bytes | None]]) -> None:
        """A record without headers has null, as in Spark's connector."""
        count = 0
        for name, value in headers:
            self._names.add(name.encode("utf-8", "surrogateescape"))
            self._values.add(value)
            count += 1
        self._validity.add(count > 0)
        self._offsets.append(self._offsets[-1] + count)

    def taken(self) -> HeadersColumn:
        names, values = self._names.taken(), self._values.taken()
        return HeadersColumn(
            self._validity.bits,
            self._validity.nulls,
            self._offsets,
            self._offsets[-1],
            names,
            values,
        )
